#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compiler.sh COMPILER BUILD-DIR: the programs build and link with that compiler, and it accepts every other file of the
# tree, tests too, warnings being errors. Of those it makes no code: that would take twice the time and say no more.
set -eu
cc=$1
build=$2
cd "$(dirname "$0")/../.."
generator=
if command -v ninja >/dev/null 2>&1 && [ ! -e "$build/CMakeCache.txt" ]; then
    generator="-G Ninja"
fi
# Debug: unoptimised, so that a second compiler costs little time.
# shellcheck disable=SC2086 # two words, or none
cmake -S . -B "$build" $generator -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Debug -DSLUICE_WERROR=ON >/dev/null
cmake --build "$build" -j "$(nproc)" --target sluice sluiced sluice-controller sluice_preload sim_cuda sim_nvidia_ml \
    nvidia-cuda-mps-control sluice-sim-ctl
python3 tools/check/accepts.py "$build"
