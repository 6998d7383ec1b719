#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh BUILD-DIR: clang-format (check only), shellcheck and clang-tidy, on what differs from the commit $BASE, by default the
# one where this branch left main. ALL=1: on everything. lint.sh --format: lays the sources out.
# Each version of clang-format lays out a little differently, so both programs are named with their version (tools/deps.txt).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/check/files.sh"
format=clang-format-19
tidy=clang-tidy-19

c_files() {
    tree_files | grep -E '^(src|sim|include|tests|bench|demo)/.*\.[ch]$'
}

if [ "$1" = --format ]; then
    c_files | xargs "$format" -i
    exit 0
fi
build=$1
bad=0

if [ -z "${BASE:-}" ]; then
    BASE=$(git -c safe.directory="$root" merge-base HEAD main 2>/dev/null) ||
        BASE=$(git -c safe.directory="$root" merge-base HEAD origin/main 2>/dev/null) || ALL=1
fi

echo "lint: clang-format"
c_files | xargs -P "$(nproc)" -n 50 "$format" --dry-run -Werror 2>&1 |
    sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: code should be.*/\1/p' | sort -u |
    awk '{ print "  " $0 ": laid out otherwise" } END { if (NR) print "  `make format` mends that"; exit NR > 0 }' || bad=1

echo "lint: shellcheck"
tree_files | grep -E '\.sh$|^\.ci/run$' | xargs shellcheck -S warning -x -P SCRIPTDIR || bad=1

echo "lint: clang-tidy"
if [ -n "${ALL:-}" ]; then
    python3 "$root/tools/tidy.py" "$tidy" "$build" --all || bad=1
else
    python3 "$root/tools/tidy.py" "$tidy" "$build" --base "$BASE" || bad=1
fi
exit $bad
