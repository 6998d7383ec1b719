#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compiler.sh COMPILER BUILD-DIR: the whole tree builds with that compiler, warnings being errors.
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
cmake --build "$build" -j "$(nproc)"
