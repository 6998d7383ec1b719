#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions that libsluice adds per call, counted by callgrind on the simulated driver: the
# difference between many calls and few, divided. Usage: callgrind.sh BUILD
set -eu
build=$(cd "${1:-build}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
LAUNCH_BAR=60
ALLOC_BAR=400
command -v valgrind >/dev/null || { echo "callgrind: valgrind is missing: run make deps-dev" >&2; exit 1; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/sluice-callgrind.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# count OPTIONS-OF-RUN -- ARGUMENTS: instructions in libsluice, in libcuda and in the rest
count() {
    options=""
    while [ "$1" != "--" ]; do options="$options $1"; shift; done
    shift
    # shellcheck disable=SC2086 # the options are words
    "$build/bin/sluice" --dir "$scratch/d" run --sim h200 $options -- \
        valgrind --tool=callgrind --callgrind-out-file="$scratch/out" --log-file="$scratch/log" \
        "$build/bench/bench_hooks" "$@" || { cat "$scratch/log" >&2; exit 1; }
    awk -f "$here/callgrind.awk" "$scratch/out"
}

# per MANY FEW CALLS: instructions per call in libsluice alone
per() {
    echo "$1 $2 $3" | awk '{ printf "%.1f\n", ($1 - $4) / $7 }'
}

mkdir -p "$scratch/d"
chmod 700 "$scratch/d"
few=$(count -- launch 2048)
many=$(count -- launch 10240)
launch=$(per "$many" "$few" 8192)
few=$(count --memory 10Gi -- alloc 1000 0)
many=$(count --memory 10Gi -- alloc 3000 0)
alloc=$(per "$many" "$few" 2000)
freed=$(count --memory 10Gi -- alloc 3000 2000)
free=$(per "$freed" "$many" 2000)

verdict() { awk -v a="$1" -v b="$2" 'BEGIN { print (a > 0 && a <= b) ? "pass" : "FAIL" }'; }
echo "Instructions in libsluice per call (callgrind, simulated driver):"
printf '  %-34s %8s   bar %4s   %s\n' "cuLaunchKernel, no limit, free gate" "$launch" "$LAUNCH_BAR" "$(verdict "$launch" $LAUNCH_BAR)"
printf '  %-34s %8s   bar %4s   %s\n' "cuMemAlloc_v2 under a limit" "$alloc" "$ALLOC_BAR" "$(verdict "$alloc" $ALLOC_BAR)"
printf '  %-34s %8s   bar %4s   %s\n' "cuMemFree_v2 under a limit" "$free" "$ALLOC_BAR" "$(verdict "$free" $ALLOC_BAR)"
printf '{"launch": %s, "alloc": %s, "free": %s, "launch_bar": %s, "alloc_bar": %s}\n' \
    "$launch" "$alloc" "$free" "$LAUNCH_BAR" "$ALLOC_BAR" >"$build/bench/hooks.json"
[ "$(verdict "$launch" $LAUNCH_BAR)$(verdict "$alloc" $ALLOC_BAR)$(verdict "$free" $ALLOC_BAR)" = passpasspass ]
