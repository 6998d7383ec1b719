#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reachable.sh TREE COMMAND...: runs COMMAND. Where other users cannot enter a folder above TREE, as in a checkout of root
# in /root, it runs in a mount namespace in which they can: that folder then has nothing in it but TREE. Where that
# cannot be done, COMMAND runs as it is, and says itself what it skips.
set -eu
tree=$1
shift

closed() { # the first folder on the way to the tree that others may not enter; fails where there is none
    path=
    rest=${tree#/}
    while [ -n "$rest" ]; do
        path=$path/${rest%%/*}
        case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
        if ! setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$path"; then
            echo "$path"
            return 0
        fi
    done
    return 1
}

if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null || ! folder=$(closed) || [ "$folder" = "$tree" ] ||
    ! unshare --mount mount -t tmpfs none /run 2>/dev/null; then
    exec "$@"
fi
case $(command -v "$1") in "$tree"/*) ;; "$folder"/*) exec "$@" ;; esac # its program would be gone
# shellcheck disable=SC2016 # the inner shell expands
exec unshare --mount sh -eu -c '
    folder=$1 tree=$2 here=$(pwd)
    shift 2
    place=$(mktemp -d)
    mount --make-private --bind "$place" "$place" # else it could not be moved away
    mkdir "$place/tree"
    mount --rbind "$tree" "$place/tree"
    mount -t tmpfs -o mode=755 none "$folder"
    mkdir -p "$tree"
    mount --move "$place/tree" "$tree"
    umount "$place"
    rm -r "$place"
    cd "$here"
    exec "$@"' sh "$folder" "$tree" "$@"
