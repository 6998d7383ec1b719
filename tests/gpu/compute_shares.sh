#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compute shares on this machine's GPU, held to the bars: half the time per cell of a full run.
# Usage: compute_shares.sh [BUILD [GROUP,...]]; SIM=h200 takes the simulated GPU instead.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build-core}
out=$(mktemp -d "${TMPDIR:-/tmp}/sluice-compute.XXXXXX")
trap 'rm -rf "$out"' EXIT
python3 "$root/bench/gpu/run.py" ${SIM:+--sim "$SIM"} --quick --build "$build" --out "$out" \
    --only "${2:-caps,pairs,long,multi,set}"
