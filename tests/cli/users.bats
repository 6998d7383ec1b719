#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Several users on one machine, and what the node's agent mounts. Each test has a /run of its own, in a mount
# namespace: that needs root.

load common

setup() {
    [[ $(id -u) = 0 ]] && unshare --mount mount -t tmpfs none /run 2>/dev/null || skip "needs root and mount namespaces"
    setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$SLUICE" || skip "the build is not readable for others"
    common_setup
    chmod 755 "$PLACE"
    mkdir -m 700 "$PLACE/user"
    chown 65534:65534 "$PLACE/user"
}
teardown() { [[ -z ${PLACE:-} ]] || common_teardown; }

# with_run PREPARE COMMAND...: PREPARE makes what is in /run; COMMAND runs as another user with a directory of its own.
with_run() {
    local prepare=$1
    shift
    unshare --mount sh -eu -c '
        mount -t tmpfs -o mode=755 none /run
        eval "$1"; shift
        export SLUICE_DIR=$1/user/d HOME=$1/user; shift
        exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"' sh "$prepare" "$PLACE" "$@" </dev/null
}

@test "root's arbiter is no obstacle to another user" {
    run -0 --separate-stderr with_run 'mkdir -m 700 /run/sluice' \
        "$SLUICE" run --sim h200 --memory 1Gi -- "$ALLOC" 1000000 3000000000
    [ "${lines[0]}" = ok ]
    [ "${lines[1]}" = "error 2" ]
    [ -z "$stderr" ]
}

@test "doctor tells whose /run/sluice is" {
    run -0 with_run 'mkdir -m 700 /run/sluice' "$SLUICE" doctor --sim h200
    [[ "$output" == *"attach "*"/run/sluice belongs to the arbiter of another user"* ]]
    run -0 with_run : "$SLUICE" doctor --sim h200
    [[ "$output" != *"attach "* ]]
}

@test "what cannot be looked at is said, not passed over" {
    # Whoever closed /run hides a mounted socket, too: the program would be stopped, so the command is not started.
    run -125 with_run 'mkdir -m 755 /run/sluice; chmod 700 /run' \
        "$SLUICE" run --sim h200 --memory 1Gi -- "$ALLOC" 1000000
    [[ "$output" == *"cannot look for /run/sluice/attach.sock"*"Permission denied"* ]]
    run -1 with_run 'mkdir -m 755 /run/sluice; chmod 700 /run' "$SLUICE" doctor --sim h200
    [[ "$output" == *"problem"*"attach"* ]]
}

@test "in a container whose share is over, programs are refused and not unlimited" {
    # What the agent mounts is read-only; the socket in it goes with the tenant.
    local gone='mkdir -m 755 /run/sluice; mount -t tmpfs -o ro,mode=755 none /run/sluice'
    run with_run "$gone" env LD_PRELOAD="${RUNTIME}$SLUICE_BUILD/lib/libsluice.so" \
        LD_LIBRARY_PATH="$SLUICE_BUILD/sim" SLUICE_SIM=h200 "$ALLOC" 1000000
    [[ "$output" == *"sluice: this process is not attached to its tenant, and CUDA answers error 800: cannot reach the arbiter at /run/sluice/attach.sock"* ]]
    [[ "$output" == *"error 800"* ]]
    run -125 with_run "$gone" "$SLUICE" run --sim h200 --memory 1Gi -- "$ALLOC" 1000000
    [[ "$output" == *"its socket /run/sluice/attach.sock is gone"*"start the pod again"* ]]
    run -1 with_run "$gone" "$SLUICE" doctor --sim h200
    [[ "$output" == *"problem"*"attach"*"is gone"* ]]
}

@test "in a container with a share of its own, run says which share holds" {
    run with_run 'mkdir -m 755 /run/sluice; : >/run/sluice/attach.sock; chmod 666 /run/sluice/attach.sock' \
        "$SLUICE" run --sim h200 --memory 1Gi -- "$ALLOC" 1000000
    [[ "$output" == *"the share of this container"* ]]
    [[ "$output" == *"error 800"* ]] # nobody listens there: stopped, not unlimited
}
