#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh BUILD-DIR: clang-format (check only), shellcheck, clang-tidy. lint.sh --format: reformat.
set -eu
. "$(dirname "$0")/check/files.sh"
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
c_files | xargs clang-format --dry-run --Werror || bad=1

echo "lint: shellcheck"
tree_files | grep -E '\.sh$|^\.ci/run$' | xargs shellcheck -S warning -x -P SCRIPTDIR || bad=1

echo "lint: clang-tidy"
# Only what the compilation database knows: the compiler's own flags decide.
tree_files | grep -E '^(src|sim)/.*\.c$' | while IFS= read -r f; do
    ! grep -qF "/$f\"" "$build/compile_commands.json" || echo "$f"
done | xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet 2>/dev/null || bad=1
exit $bad
