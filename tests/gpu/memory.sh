#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every allocation path and lookup against a limit, on this machine's GPU. See memory_paths.py.
# usage: tests/gpu/memory.sh BUILD_DIR [OUT_DIR]; SIM=h200 takes the simulated GPU instead.
set -eu
build=${1:?build directory}
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/memory_paths.py" "$build" ${2:+--out "$2"} ${SIM:+--sim "$SIM"}
