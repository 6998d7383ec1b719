#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# picture.sh BUILD-DIR: runs the demo and draws what it printed into docs/img/demo.svg.
set -eu
cd "$(dirname "$0")/.."
text=$(mktemp)
trap 'rm -f "$text"' EXIT
# The prompt line is the only thing that the demo itself did not print.
printf '\033[2m$\033[0m make demo\n' >"$text"
CLICOLOR_FORCE=1 demo/demo.sh "$1" >>"$text"
mkdir -p docs/img
python3 tools/terminal-svg.py "make demo" <"$text" >docs/img/demo.svg
cat "$text"
