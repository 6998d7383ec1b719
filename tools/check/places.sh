#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Nothing in the tree names a place on some developer's machine or a private host.
set -eu
. "$(dirname "$0")/files.sh"

# The slashes are spelled [/] so that this file does not find itself.
pattern='(^|[^A-Za-z0-9_.}])([/]work|[/]home|[/]Users|[/]root)[/]|[.]internal([^A-Za-z0-9_(.]|[.]?$|[.][^A-Za-z0-9])|(^|[^0-9.])192[.]168[.][0-9]'
found=$(tree_files | grep -v '^tests/fuzz/corpus/' | tr '\n' '\0' | xargs -0 grep -nIE "$pattern" || true)
if [ -n "$found" ]; then
    echo "$found"
    echo "a path or host of one machine: name a variable, a relative path or an example instead"
    exit 1
fi
echo "$(tree_files | wc -l) files examined"
