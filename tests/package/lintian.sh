#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lintian.sh FOLDER: Debian's checker finds no error and no warning in the packages.
set -eu
command -v lintian >/dev/null || { echo "skipped: lintian is not installed (tools/deps.sh bare)"; exit 77; }
lintian --allow-root --fail-on error,warning "$1"/*.deb
echo "lintian: $(ls "$1"/*.deb | wc -l) packages, nothing found"
