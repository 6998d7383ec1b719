#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# core.sh COMPILER: what `make core`, `make demo` and `make install` configure needs a C compiler, CMake and make, and
# nothing else of the machine: no Python, no library, no other program is found here.
set -eu
cc=$(command -v "$1")
make=$(command -v make)
cd "$(dirname "$0")/../.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if ! cmake -S . -B "$place" -G 'Unix Makefiles' -DCMAKE_C_COMPILER="$cc" -DCMAKE_MAKE_PROGRAM="$make" -DSLUICE_CORE=ON \
    -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=FALSE -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=FALSE >"$place/log" 2>&1; then
    cat "$place/log"
    echo "check.core: a core build asks for more than a C compiler, CMake and make: leave it out where SLUICE_CORE is set"
    exit 1
fi
if grep -E '^(PYTHON3|[A-Za-z0-9_]*Python3[A-Za-z0-9_]*):[A-Z]*=/' "$place/CMakeCache.txt"; then
    echo "check.core: it found what was hidden from it, so it proves nothing"
    exit 1
fi
