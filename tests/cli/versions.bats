# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016,SC2154 # a shell of its own expands; bats sets output and stderr
# libsluice and arbiters of other versions: served where they fit, else refused with a sentence (docs/upgrade.md).

load common

setup() {
    common_setup
    PEER=$SLUICE_SOURCE/tests/cli/versions.py
}

teardown() { common_teardown; }

# attach_socket: of a tenant that lives until the test ends.
tenant() {
    mkfifo "$PLACE/in"
    "$SLUICE" run --sim h200 --name t --memory 1Gi -- sh -c 'echo "$SLUICE_ATTACH" >"$0"; read -r x <"$1"' \
        "$PLACE/socket" "$PLACE/in" &
    BACKGROUND+=($!)
    eventually test -s "$PLACE/socket"
    SOCKET=$(cat "$PLACE/socket")
}

# other_arbiter OPTION [LAYOUT]: at $PLACE/other.
other_arbiter() {
    python3 "$PEER" arbiter "$PLACE/other" "$@" &
    BACKGROUND+=($!)
    eventually test -S "$PLACE/other"
}

# program COMMAND...: with libsluice, as a process of the tenant at $PLACE/other.
program() {
    SLUICE_ATTACH=$PLACE/other LD_PRELOAD=${RUNTIME}$SLUICE_BUILD/lib/libsluice.so \
        LD_LIBRARY_PATH=$SLUICE_BUILD/sim SLUICE_SIM=h200 "$@" </dev/null
}

hello() { run -0 python3 "$PEER" hello "$SOCKET" "$@"; }

@test "a process that tells no protocol gets the first one" {
    tenant
    hello 0
    [ "$output" = "layout 1: welcome, protocol 1, 3 descriptors" ]
}

@test "arbiter and process take the newest protocol that both know" {
    tenant
    hello 0x00010003
    [ "$output" = "layout 1: welcome, protocol 3, 3 descriptors" ]
    hello 0x00010002
    [ "$output" = "layout 1: welcome, protocol 2, 3 descriptors" ]
    hello 0x00030005 # two versions ahead: the agent was taken back
    [ "$output" = "layout 1: welcome, protocol 3, 3 descriptors" ]
}

@test "a process three versions ahead is refused with a sentence" {
    tenant
    hello 0x00040006
    has "layout 1: error: libsluice in this process speaks protocol 4 to 6, and the arbiter speaks up to 3 only"
    has "start the pod or the command again"
}

@test "a process with another layout of messages is refused in words that it can read" {
    tenant
    hello 0 7
    has "layout 7: error: the peer uses messages of version 7, but this build uses 1: install the same version"
    run -0 python3 "$PEER" ask "$SLUICE_DIR/arbiter.sock" 7
    has "layout 7: error: the peer uses messages of version 7, but this build uses 1: install the same version"
}

@test "the arbiter goes on after them, and shows which protocol a process speaks" {
    tenant
    hello 0x00040006
    hello 0 7
    "$SLUICE" run --sim h200 --name u -- "$ALLOC" 1048576 <"$PLACE/in" >"$PLACE/log" &
    BACKGROUND+=($!)
    exec 8>"$PLACE/in"
    eventually grep -q total "$PLACE/log"
    run -0 "$SLUICE" status --json u
    has '"protocol": 3'
    exec 8>&-
}

@test "libsluice refuses an arbiter that takes a protocol it does not know, and says so" {
    other_arbiter 9
    run -2 program "$ALLOC" 1048576
    has "sluice: this process is not attached to its tenant, and CUDA answers error 800: the arbiter speaks protocol 9 with this process, and libsluice in it knows 1 to 3"
    has "CUDA does not start"
}

@test "libsluice refuses an arbiter with another layout of messages, and says so" {
    other_arbiter 3 7
    run -2 program "$ALLOC" 1048576
    has "sluice: this process is not attached to its tenant, and CUDA answers error 800: the peer uses messages of version 7, but this build uses 1"
}
