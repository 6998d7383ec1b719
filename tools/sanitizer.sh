#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: sanitizer.sh BUILD_DIR COMMAND…
# Runs the tests of an instrumented build and then prints what the sanitizers reported, of every
# process: also of those whose exit code and output nobody sees. Fails when the tests fail or when
# there is a report.
set -u
build=$1
shift
mkdir -p "$build/reports"
find "$build/reports" -type f -delete
"$@"
code=$?
count=$(find "$build/reports" -type f | wc -l)
if [ "$count" -gt 0 ]; then
    find "$build/reports" -type f -exec head -n 200 {} +
    code=1
fi
echo "sanitizer reports: $count"
exit "$code"
