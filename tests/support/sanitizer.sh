#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: sanitizer.sh TOOL: what tools/sanitizer.sh takes for a report.
set -u
tool=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# want CODE WORDS COMMAND: the command writes reports, $1 is where.
want() {
    out=$("$tool" "$dir" sh -c "$3" sh "$dir/reports" 2>&1)
    code=$?
    case $out in
    *"$2"*) ;;
    *) code="$code without \"$2\"" ;;
    esac
    [ "$code" = "$1" ] || { echo "$3: exit $code, not $1: $out"; exit 1; }
}

want 0 "reports: 0 (files with no report in them: 0)" 'true'
want 7 "reports: 0" 'exit 7'
want 0 "reports: 0 (files with no report in them: 1)" ': >$1/address.1'
want 0 "reports: 0 (files with no report in them: 1)" 'echo "==17==Unable to get registers from thread 23." >$1/address.17'
want 1 "reports: 1" 'echo "==17==ERROR: AddressSanitizer: heap-use-after-free" >$1/address.17'
want 1 "LEAK" 'printf "==17==Unable to get registers from thread 23.\n==17==ERROR: LEAK\n" >$1/address.17; : >$1/address.18'
want 1 "reports: 2" 'echo "runtime error: x" >$1/undefined.1; echo "WARNING: ThreadSanitizer: data race" >$1/thread.2'
want 1 "reports: 1" 'echo "==17==LeakSanitizer has encountered a fatal error." >$1/address.17'
