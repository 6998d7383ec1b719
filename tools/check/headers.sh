#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone, with each compiler there is.
set -eu
. "$(dirname "$0")/files.sh"

bad=0
count=0
for cc in gcc clang; do
    command -v "$cc" >/dev/null 2>&1 || continue
    for h in $(tree_files | grep -E '^(src|sim|include)/.*\.h$'); do
        count=$((count + 1))
        # -Wno-unused-function: a header may offer static inline functions.
        if ! printf '#include "%s"\n' "$h" | "$cc" -std=gnu17 -D_GNU_SOURCE -DSLUICE_VERSION='"0"' \
            -Wall -Wextra -Werror -Wno-unused-function -I. -Iinclude -Isrc -I"$(dirname "$h")" \
            -fsyntax-only -x c -; then
            echo "$h does not compile alone with $cc"
            bad=1
        fi
    done
done
echo "$count header compilations"
[ "$count" -gt 0 ] && exit $bad
