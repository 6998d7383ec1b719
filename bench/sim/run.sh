#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench-sim`: the simulated GPU against the figures of a real one, then the rows of bench/gpu with the bars
# of a real one, on a clock that stands still while anybody can run (clock.h). Usage: run.sh BUILD [OPTIONS of run.py]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
shift
status=0
"$build/bench/bench_slices" || status=1
"$build/bench/bench_clock" "$build/bench/libsluice-bench-clock.so" \
    python3 "$here/gpu/run.py" --sim h200 --build "$build" --out "$build/bench/sim" "$@" || status=1
exit $status
