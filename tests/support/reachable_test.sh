#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reachable_test.sh REACHABLE: another user reads a tree in a folder that only root may enter, and nothing else of that
# folder; outside, the folder is as it was, and nothing is left of it.
set -eu
reachable=$1
if [ "$(id -u)" -ne 0 ] || ! unshare --mount mount -t tmpfs none /run 2>/dev/null; then
    echo "skipped: needs root and mount namespaces"
    exit 77
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir -m 700 "$place/home"
mkdir -m 755 "$place/home/tree" "$place/tmp"
echo text >"$place/home/tree/file"
echo secret >"$place/home/other"
export TMPDIR="$place/tmp"

other() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
fail() {
    echo "$1"
    exit 1
}

if other cat "$place/home/tree/file" 2>/dev/null; then fail "the folder was open before: this proves nothing"; fi
[ "$("$reachable" "$place/home/tree" setpriv --reuid 65534 --regid 65534 --clear-groups cat "$place/home/tree/file")" = text ] ||
    fail "another user cannot read the tree"
if "$reachable" "$place/home/tree" test -e "$place/home/other"; then fail "the rest of the folder is there, too"; fi
if other cat "$place/home/tree/file" 2>/dev/null; then fail "the folder is open afterwards"; fi
[ -z "$(ls "$place/tmp")" ] || fail "left behind: $(ls "$place/tmp")"

# An open tree is left alone, and the command's exit code is the script's.
[ "$("$reachable" "$place/tmp" readlink /proc/self/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ] || fail "a namespace without need"
code=0
"$reachable" "$place/home/tree" sh -c 'exit 3' || code=$?
[ "$code" = 3 ] || fail "exit code $code, not 3"
