#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Dependencies between folders point down only: every #include "room/…" under src/, sim/ and include/ must be
# an edge that layers.txt allows.
set -eu
. "$(dirname "$0")/files.sh"

tree_files | grep -E '^(src/[^/]+|sim|include/[^/]+)/.*\.(c|h|S|def)$' | xargs awk '
    FILENAME == "tools/check/layers.txt" {
        if ($0 ~ /^#/ || NF == 0) next
        room = $1; sub(/:$/, "", room); known[room] = 1; allowed[room, room] = 1
        for (i = 2; i <= NF; i++) { allowed[room, $i] = 1; known[$i] = 1 }
        next
    }
    FNR == 1 {
        n = split(FILENAME, part, "/")
        room = part[1] == "sim" ? "sim" : part[2]
        if (!(room in known)) { print FILENAME ": room " room " is not in tools/check/layers.txt"; bad = 1 }
    }
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
        name = $0; sub(/^[^<"]*[<"]/, "", name); sub(/[>"].*/, "", name)
        if ($0 ~ /"\.\.\//) { print FILENAME ":" FNR ": include by room, not by ../: " name; bad = 1; next }
        if (name !~ /\//) next
        target = name; sub(/\/.*/, "", target)
        if (!(target in known)) next
        edges++
        if (!((room, target) in allowed)) {
            print FILENAME ":" FNR ": " room " may not include " target " (" name ")"; bad = 1
        }
    }
    END { print edges + 0 " includes between rooms examined"; exit bad || edges == 0 }
' tools/check/layers.txt
