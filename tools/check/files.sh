# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Sourced by the checks: `tree_files` lists the tree's files, from the repository root. In a git
# checkout that is what git tracks or would track; in an unpacked archive, all but build folders.
# Who is not in tools/check sets `root` first.
: "${root:=$(cd "$(dirname "$0")/../.." && pwd)}"
cd "$root" || exit 1

tree_files() {
    if git -c safe.directory="$root" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git -c safe.directory="$root" ls-files -co --exclude-standard | while IFS= read -r f; do
            [ ! -f "$f" ] || echo "$f"
        done
    else
        find . -type f -not -path './build*' -not -path './.git/*' | sed 's|^\./||'
    fi
}

# The files written in a language that carries comments.
source_files() {
    tree_files | grep -E '(^|/)(CMakeLists\.txt|Makefile)$|\.(c|h|S|def|map|cmake|sh|bats|py|proto|ptx)$|^\.ci/run$'
}
