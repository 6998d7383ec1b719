#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh BUILD-DIR [SECONDS]: every libFuzzer target for its part of SECONDS (60), from the corpus in the
# tree; what is found new stays in the build directory. A finding stops the run and is kept as a file.
set -eu
cd "$(dirname "$0")/.."
build=$1
seconds=${2:-60}
set -- "$build"/tests/fuzz/fuzz_*
[ -x "$1" ] || { echo "fuzz: no fuzzer in $build/tests/fuzz" >&2; exit 1; }
each=$((seconds / $#))
[ $each -gt 0 ] || each=1

for fuzzer in "$@"; do
    name=$(basename "$fuzzer")
    corpus=$build/corpus/$name
    mkdir -p "$corpus"
    seeds=tests/fuzz/corpus/${name#fuzz_}
    [ -d "$seeds" ] || seeds=
    log=$build/$name.log
    # shellcheck disable=SC2086 # no seeds: no argument
    if "$fuzzer" -max_total_time=$each -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$build/$name-" "$corpus" $seeds >"$log" 2>&1; then
        runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
        echo "fuzz: $name: $runs runs in $each s, nothing found"
    else
        tail -n 40 "$log"
        echo "fuzz: $name found something; the input is $build/$name-*" >&2
        exit 1
    fi
done
