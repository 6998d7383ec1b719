#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No source file over 800 lines: past that it is two things.
set -eu
. "$(dirname "$0")/files.sh"

source_files | xargs wc -l | awk '$2 != "total" { n++; if ($1 > 800) { print $2 ": " $1 " lines, at most 800"; bad = 1 } }
    END { print n + 0 " files examined"; exit bad || n == 0 }'
