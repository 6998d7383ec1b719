#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh LIBRARY MAP: the library exports exactly what the version script's global: part names, and cannot abort.
set -eu
lib=$1
map=$2
want=$(mktemp)
have=$(mktemp)
trap 'rm -f "$want" "$have"' EXIT

sed -e 's|/\*[^*]*\*/||g' -e 's/#.*//' "$map" | tr ';{}' '\n\n\n' | awk '
    { gsub(/[ \t]/, "") }
    /^global:/ { on = 1; sub(/^global:/, "") }
    /^local:/ { on = 0 }
    on && $0 != "" { print }' | LC_ALL=C sort -u >"$want"
# Version names themselves are absolute symbols ("A"); they are not functions.
nm -D --defined-only "$lib" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort -u >"$have"

[ -s "$want" ] || { echo "$map names no global symbol"; exit 1; }
bad=0
# Patterns in a map are matched as patterns; plain names exactly.
while IFS= read -r name; do
    ok=0
    if grep -qxF -e "$name" "$want"; then
        ok=1
    else
        for p in $(grep -F '*' "$want" || true); do
            # shellcheck disable=SC2254 # a pattern is what it is
            case $name in $p) ok=1 ;; esac
        done
    fi
    [ $ok = 1 ] || { echo "exported but not in $map: $name"; bad=1; }
done <"$have"
for name in $(grep -vF '*' "$want" || true); do
    grep -qxF -e "$name" "$have" || { echo "in $map but not exported: $name"; bad=1; }
done
# Someone else's process is never aborted: what ends a daemon without memory must not be in here.
if nm "$lib" | grep -q ' sl_out_of_memory$'; then
    echo "$lib has base/xalloc.c in it, which aborts: use malloc() and degrade"
    bad=1
fi
echo "$(wc -l <"$have") symbols exported"
exit $bad
