#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Claims prepared and unprepared 64 at once, on a simulated node, with an API server that answers at once.
# usage: bench/dra.sh [BUILD_DIR] [ROUNDS]     the goal: p99 of prepare <= 50 ms on an otherwise idle machine
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
SLUICE_BENCH_ROUNDS=${2:-20} python3 "$here/tests/agent/dra_node.py" "${1:-$here/build}" Bench Slices.test_published 2>&1 |
    grep -E "claims at once|slices of|^OK|FAILED|Error"
