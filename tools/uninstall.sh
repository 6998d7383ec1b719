#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# uninstall.sh MANIFEST: removes the files that `make install` put below $DESTDIR, and the directories of its own
# that are empty then. Fails, and says so, where none of them is there: most likely DESTDIR is another one.
set -eu
manifest=$1
root=${DESTDIR:-}

if [ ! -f "$manifest" ]; then
    echo "uninstall: nothing was installed from this tree" >&2
    exit 1
fi
found=0
while read -r file || [ -n "$file" ]; do
    if [ -e "$root$file" ] || [ -L "$root$file" ]; then
        rm -f "$root$file"
        found=$((found + 1))
    fi
done <"$manifest"
if [ $found = 0 ]; then
    echo "uninstall: nothing of Sluice is below ${root:-/}: give the DESTDIR of \`make install\`" >&2
    exit 1
fi
sed -n 's|^\(.*/sluice\)/sim/.*|\1|p' "$manifest" | sort -u | while read -r dir; do
    rmdir "$root$dir/sim" "$root$dir" 2>/dev/null || true
done
echo "uninstall: $found files removed from ${root:-/}"
