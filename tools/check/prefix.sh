#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# prefix.sh LIBRARY…: what a room defines for other files, functions and data alike, begins with sl_.
set -eu
for library in "$@"; do
    nm -g --defined-only "$library" | awk -v room="$(basename "$library" .a)" 'NF == 3 { print room, $3 }'
done | sort -u | awk '{ n++ } $2 !~ /^sl_/ { print $1 ": " $2 " does not begin with sl_: rename it, or make it static"; bad = 1 }
    END { print n + 0 " names examined"; exit bad || n == 0 }'
