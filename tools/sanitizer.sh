#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: sanitizer.sh BUILD_DIR COMMAND…
# Runs the tests of an instrumented build and then prints what the sanitizers reported, of every
# process: also of those whose exit code and output nobody sees. Fails when the tests fail or when
# there is a report. A file with nothing in it is none (its process was killed before it wrote), and
# neither is LeakSanitizer's remark that a thread ended while it looked.
set -u
build=$1
shift
mkdir -p "$build/reports"
find "$build/reports" -type f -delete
"$@"
code=$?

remark='^(==[0-9]+==)?Unable to get registers from thread [0-9]+\.?$'
count=0
remarks=0
for file in "$build"/reports/*; do
    [ -f "$file" ] || continue
    if grep -qvE "$remark|^[[:space:]]*\$" "$file"; then
        count=$((count + 1))
        echo "==> $file"
        head -n 200 "$file"
        code=1
    else
        remarks=$((remarks + 1))
    fi
done
echo "sanitizer reports: $count (files with no report in them: $remarks)"
exit "$code"
