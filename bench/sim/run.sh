#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench-sim`: compute shares on the simulated GPU, bars looser by 2 points. Usage: run.sh BUILD
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=$1
shift
status=0
"$build/bench/bench_slices" || status=1
python3 "$here/gpu/run.py" --sim h200 --build "$build" --out "$build/bench/sim" "$@" || status=1
exit $status
