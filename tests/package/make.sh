#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make.sh SOURCE BUILD VERSION OUTPUT: packages of a build in OUTPUT/old, and the same as a newer version in OUTPUT/new.
set -eu
source=$1
build=$2
version=$3
out=$4
rm -rf "$out"
DESTDIR=$out/stage cmake --install "$build" --prefix /usr --strip >/dev/null
"$source/tools/package.py" "$out/stage" "$version" "$out/old"
"$source/tools/package.py" "$out/stage" "$version+1" "$out/new"
