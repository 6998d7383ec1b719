#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh BUILD-DIR: shellcheck, clang-tidy, and how many files clang-format would change (which fails
# nothing: hands align some tables better). lint.sh --format: reformat.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/check/files.sh"
c_files() {
    tree_files | grep -E '^(src|sim|include|tests|bench|demo)/.*\.[ch]$'
}

if [ "$1" = --format ]; then
    c_files | xargs clang-format -i
    exit 0
fi
build=$1
bad=0

echo "lint: clang-format"
c_files | xargs clang-format --dry-run 2>&1 | sed -n 's/:[0-9]*:[0-9]*: warning: code should be.*//p' | sort -u |
    awk 'END { if (NR) print "  " NR " files are laid out otherwise: `make format` changes them" }'

echo "lint: shellcheck"
tree_files | grep -E '\.sh$|^\.ci/run$' | xargs shellcheck -S warning -x -P SCRIPTDIR || bad=1

echo "lint: clang-tidy"
# Only what the compilation database knows: the compiler's own flags decide.
tree_files | grep -E '^(src|sim)/.*\.c$' | while IFS= read -r f; do
    ! grep -qF "/$f\"" "$build/compile_commands.json" || echo "$f"
done | xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet 2>/dev/null || bad=1
exit $bad
