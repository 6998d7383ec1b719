#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bare.sh BUILD STAGE VERSION: the packages of STAGE in a bare Debian 12: lintian, then install, upgrade and purge by apt.
# BUILD has the program that allocates. MIRROR is the Debian mirror, by default the one of debootstrap. Needs root.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
stage=$2
version=$3

if [ "${4:-}" = inside ]; then # in mount and process namespaces of its own, which end with it
    root=$build
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    for folder in tmp dev/shm; do mount -t tmpfs tmpfs "$root/$folder"; done
    # shellcheck disable=SC2016 # the inner shell expands
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ DEBIAN_FRONTEND=noninteractive sh -ec '
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends /packages/old/*.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
        dpkg --purge sluice sluiced libsluice >/dev/null # the libraries that they need stay
        /packages/life.sh /packages /packages/alloc /'
fi

if [ "$(id -u)" -ne 0 ]; then
    echo "test-package: NOT RUN: debootstrap and chroot need root"
    exit 2
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
root=$place/root
# shellcheck disable=SC2086 # without MIRROR there is no argument
debootstrap --variant=minbase bookworm "$root" ${MIRROR:-} >"$place/log" 2>&1 || { tail "$place/log"; exit 1; }
cp /etc/resolv.conf "$root/etc/"
"$here/../../tools/package.py" "$stage" "$version" "$root/packages/old"
"$here/../../tools/package.py" "$stage" "$version+1" "$root/packages/new"
"$here/lintian.sh" "$root/packages/old"
cp "$here/life.sh" "$root/packages/"
cp "$build/tests/cli/cli_alloc" "$root/packages/alloc"
unshare --mount --pid --fork --kill-child "$0" "$root" - - inside
echo "test-package: passed"
