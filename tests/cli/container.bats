#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A lease inside containers that podman starts, on a simulated GPU. Each test has a /run of its own, in a mount
# namespace, so that the default folders are used and nothing of the machine is touched.

load common

setup() {
    command -v podman >/dev/null || skip "podman is not installed"
    command -v crun >/dev/null || skip "crun, which podman starts here, is not installed"
    [[ $(id -u) = 0 ]] && unshare --mount --pid --fork mount -t tmpfs none /run 2>/dev/null ||
        skip "needs root and mount namespaces"
    common_setup
    make_rootfs
}
teardown() {
    [[ -z ${PLACE:-} ]] || common_teardown
}

# A container's files: the program, what it loads, and nothing else.
make_rootfs() {
    local file
    mkdir -p "$PLACE/rootfs/"{bin,dev,etc,proc,run,sys,tmp,usr/lib64,usr/local,var}
    cp "$ALLOC" "$PLACE/rootfs/bin/alloc"
    while read -r file; do
        mkdir -p "$PLACE/rootfs$(dirname "$file")"
        cp -L "$file" "$PLACE/rootfs$file"
    done < <(ldd "$ALLOC" "$SLUICE_BUILD/lib/libsluice.so" "$SLUICE_BUILD/sim/libcuda.so.1" |
        grep -o '/[^ ]*' | grep -v ':$' | sort -u)
}

# in_namespace SCRIPT [ARGUMENT...]: bash with podman_run and sluice. When it ends, its processes have ended and its
# /run is gone.
in_namespace() {
    local script='
        mount -t tmpfs -o mode=755 none /run
        mount -t tmpfs none /sys/fs/cgroup # podman and crun need none, and leave nothing there
        unset SLUICE_DIR
        podman_run() {
            podman --root "$PLACE/storage" --runroot /run/podman --storage-driver vfs --cgroup-manager cgroupfs \
                --events-backend none --runtime "$(command -v crun)" \
                run --cgroups disabled --network none --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 --rm "$@"
        }
        alloc() { podman_run --device sluice.io/lease=train --rootfs "$PLACE/rootfs" /bin/alloc "$@"; }
        lease() { "$SLUICE" lease "$@" --sim h200; }
        used() { lease list --json | jq ".leases[0].gpus[0].used_bytes"; }
        processes() { lease list --json | jq ".leases[0].processes"; }
        has_processes() { test "$(processes)" = "$1"; }
        arbiter() { grep -lzx "arbite[r]" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3; }
        no_arbiter() { test -z "$(arbiter)"; }
        '
    script+=$(declare -f eventually)
    PLACE=$PLACE unshare --mount --pid --fork --mount-proc --kill-child bash -euc "$script
        $1" bash "${@:2}" 3>&-
}

@test "the limit holds inside, to the last block; the lease goes when it is deleted" {
    run -0 --separate-stderr in_namespace '
        lease create train --memory 10Gi --cores 30
        mkfifo "$PLACE/hold"
        podman_run -i --device sluice.io/lease=train --rootfs "$PLACE/rootfs" /bin/alloc <"$PLACE/hold" >"$PLACE/out" &
        exec 8>"$PLACE/hold"
        eventually grep total "$PLACE/out"
        has_processes 1
        context=$(used) # of the one container, which has allocated nothing
        cat "$PLACE/out"
        lease delete train || echo "refused: $?"
        exec 8>&-
        wait %1
        eventually has_processes 0
        block=$((2 << 20))
        rest=$(((((10 << 30) - context) / block) * block))
        alloc "$rest" "$block"
        alloc "$((rest + block))"
        lease delete train
        find /run/cdi /run/sluice -name "*train*" -o -name lease
        alloc 1 2>&1 || echo "podman: $?"
        find "$PLACE/storage" -path "*-containers/*" -name config.json'
    printf '%s\n' "${lines[@]}" "$stderr"
    [ "${lines[1]}" = "total $((10 << 30))" ]
    [ "${lines[2]}" = "refused: 1" ]
    [[ $stderr == *"1 process uses lease train"* ]]
    [ "${lines[3]}" = ok ]
    [ "${lines[4]}" = "error 2" ]
    [ "${lines[5]}" = "total $((10 << 30))" ]
    [ "${lines[6]}" = "error 2" ]
    [ "${lines[8]}" = "lease train is deleted" ]
    [[ ${lines[9]} == *"unresolvable CDI devices sluice.io/lease=train"* ]]
    [[ ${lines[10]} == "podman: "* ]]
    [ "${#lines[@]}" = 11 ]
}

@test "two containers share one lease" {
    run -0 in_namespace '
        lease create train --memory 10Gi >/dev/null
        mkfifo "$PLACE/hold"
        podman_run -i --device sluice.io/lease=train --rootfs "$PLACE/rootfs" /bin/alloc $((6 << 30)) \
            <"$PLACE/hold" >"$PLACE/out" &
        exec 8>"$PLACE/hold"
        eventually grep total "$PLACE/out"
        alloc $((6 << 30)) $((1 << 30))
        exec 8>&-
        wait %1'
    [ "${lines[0]}" = "error 2" ]
    [ "${lines[1]}" = ok ]
}

@test "a container outlives the arbiter, and keeps its limit" {
    run -0 in_namespace '
        lease create train --memory 10Gi >/dev/null
        mkfifo "$PLACE/hold"
        podman_run -i --device sluice.io/lease=train --rootfs "$PLACE/rootfs" /bin/alloc $((6 << 30)) \
            <"$PLACE/hold" >"$PLACE/out" &
        exec 8>"$PLACE/hold"
        eventually grep total "$PLACE/out"
        kill -KILL "$(arbiter)"
        eventually no_arbiter
        lease list 2>&1 | head -1
        eventually has_processes 1
        alloc $((6 << 30)) $((1 << 30))
        exec 8>&-
        wait %1'
    printf "%s\n" "${lines[@]}"
    [[ ${lines[0]} == *"the arbiter in /run/sluice/sim-h200 had ended; it was started again"* ]]
    [ "${lines[1]}" = "error 2" ]
    [ "${lines[2]}" = ok ]
}
