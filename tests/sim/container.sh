#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# container.sh CTL PROGRAM: two containers (mount and PID namespaces) on one simulated machine, each with a
# card of its own and the state at another path than outside. PROGRAM is this directory's container.c.
set -eu
ctl=$1 program=$2
top=$(mktemp -d "${TMPDIR:-/tmp}/sluice-container-XXXXXX")
trap 'rm -rf "$top"' EXIT
unset SLUICE_SIM SLUICE_SIM_STATE SLUICE_SIM_DEV CUDA_VISIBLE_DEVICES

space="unshare --mount --pid --fork"
[ "$(id -u)" = 0 ] || space="unshare --user --map-root-user --mount --pid --fork"
if ! $space mount -t tmpfs none /mnt 2>/dev/null; then
    echo "skipped: no mount and PID namespaces here"
    exit 77
fi

"$ctl" make-root "$top/root" h200x2
export SLUICE_SIM=h200x2

# contain CARD COMMAND…: what a container runtime does with the agent's edits, in a directory.
contain() {
    card=$1; shift
    $space sh -c '
        set -eu
        root=$1 card=$2; shift 2
        mount -t tmpfs none /mnt
        mkdir -p /mnt/dev /mnt/lib
        for n in nvidiactl nvidia-uvm "nvidia$card"; do
            : >"/mnt/dev/$n"; mount --bind "$root/dev/$n" "/mnt/dev/$n"
        done
        : >/mnt/machine; mount --bind "$root/state/machine" /mnt/machine
        mount -t proc proc /proc
        export SLUICE_SIM_STATE=/mnt/machine SLUICE_SIM_DEV=/mnt/dev LD_LIBRARY_PATH="$root/lib"
        exec "$@"' sh "$top/root" "$card" "$@"
}

want() {
    [ "$1" = "$2" ] || { echo "got \"$1\", not \"$2\""; exit 1; }
}
outside() {
    SLUICE_SIM_STATE="$top/root/state/machine" "$ctl" show
}

want "$(contain 1 "$top/root/bin/nvidia-smi" -L | wc -l)" 1
uuid0=$("$top/root/bin/nvidia-smi" -L | sed -n '1s/.*UUID: \(.*\))/\1/p')
want "$(contain 0 "$program" uuid)" "$uuid0"

# Both are PID 1 to themselves; outside they are two processes, each with its gibibyte on its card.
mkfifo "$top/a" "$top/b"
contain 0 "$program" hold <"$top/a" >"$top/a.out" &
a=$!
contain 1 "$program" hold <"$top/b" >"$top/b.out" &
b=$!
exec 8>"$top/a" 9>"$top/b"
i=0
until grep -qx 'pid 1 holds' "$top/a.out" && grep -qx 'pid 1 holds' "$top/b.out"; do
    i=$((i + 1)); [ $i -lt 200 ] || { echo "they never began"; exit 1; }
    sleep 0.05
done
outside >"$top/show"
want "$(grep -c ' contexts 1' "$top/show")" 2
pids=$(sed -n 's/^ *pid \([0-9]*\) .*/\1/p' "$top/show")
for p in $pids; do
    [ "$p" -gt 1 ]
    grep -q '^NSpid:.*[[:space:]]1$' "/proc/$p/status" || { echo "$p is not one of them"; exit 1; }
done
want "$(echo "$pids" | sort -u | wc -l)" 2

# One is killed from outside: its memory is back at once, the other is untouched.
kill -9 "$(echo "$pids" | head -1)"
wait $a || true
want "$(outside | grep -c ' contexts 1')" 1
echo >&9
wait $b
want "$(cat "$top/b.out")" "$(printf 'pid 1 holds\ndone')"
want "$(outside | grep -c ' contexts ' || true)" 0
