#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# glibc.sh LIBRARY: loads into any process of a distribution with glibc 2.31 or newer, so it may need
# no symbol version above that and no library but libc.
set -eu
lib=$1
newest=2.31
bad=0

needed=$(objdump -p "$lib" | awk '$1 == "NEEDED" { print $2 }')
for n in $needed; do
    case $n in
    libc.so.6 | ld-linux-*.so.* | libdl.so.2 | libpthread.so.0) ;;
    *) echo "needs $n: only libc is allowed"; bad=1 ;;
    esac
done

objdump -T "$lib" | awk -v newest="$newest" '
    function number(v,   p) { split(v, p, "."); return p[1] * 1000000 + p[2] * 1000 + p[3] }
    match($0, /GLIBC_[0-9.]+/) {
        v = substr($0, RSTART + 6, RLENGTH - 6)
        seen++
        if (number(v) > number(newest)) { print "needs " $NF " of glibc " v; bad = 1 }
    }
    /GLIBC_PRIVATE/ && /\*UND\*/ { print "needs a private symbol: " $NF; bad = 1 }
    END { print seen + 0 " versioned symbols, none may be above glibc " newest; exit bad || seen == 0 }' || bad=1
exit $bad
