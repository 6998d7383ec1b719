#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What Prometheus' own linter says of our metrics: nothing. promtool.sh PROGRAM-THAT-PRINTS
set -eu
promtool=${PROMTOOL:-promtool}
if ! command -v "$promtool" >/dev/null 2>&1; then
    echo "skipped: promtool is not installed (Debian: apt-get install prometheus)"
    exit 77
fi
said=$("$1" --print | "$promtool" check metrics 2>&1) || { echo "$said"; exit 1; }
[ -z "$said" ] || { echo "$said"; exit 1; }
echo "promtool has nothing to say"
