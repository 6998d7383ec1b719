#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/deps.sh GROUP…: installs the packages of tools/deps.txt that are missing. Silent when there
# is nothing to do, so that every other target can start with it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "deps: not a Debian or Ubuntu system; install by hand what tools/deps.txt lists" >&2
    exit 0
fi

installed() {
    case $1 in
    cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1; return ;;
    file:*) [ -e "${1#file:}" ]; return ;;
    esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

any_installed() {
    for p in $(echo "$1" | tr '|' ' '); do
        if installed "$p"; then
            return 0
        fi
    done
    return 1
}

missing=
for group in "$@"; do
    for choice in $(awk -v g="$group" '$1 == g { print $2 }' "$here/deps.txt"); do
        any_installed "$choice" || missing="$missing $choice"
    done
done
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "deps: missing:$missing; install them as root and run this again" >&2
        exit 1
    fi
    sudo=sudo
fi

export DEBIAN_FRONTEND=noninteractive
# Package lists may be absent (a fresh container) or old; one update settles both.
$sudo apt-get update -qq
packages=
for choice in $missing; do
    found=
    for p in $(echo "$choice" | tr '|' ' '); do
        case $p in *:*) continue ;; esac
        if apt-cache show "$p" >/dev/null 2>&1; then
            found=$p
            break
        fi
    done
    if [ -z "$found" ]; then
        echo "deps: no package $choice in this distribution's lists" >&2
        exit 1
    fi
    packages="$packages $found"
done
echo "deps: installing$packages"
# shellcheck disable=SC2086 # the list is meant to be split
$sudo apt-get install -y -qq --no-install-recommends $packages >/dev/null
