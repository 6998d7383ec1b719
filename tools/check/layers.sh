#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Dependencies between folders point down only: every #include "room/…" under src/, sim/ and include/ must be
# an edge that layers.txt allows, and every edge that layers.txt allows must be used. A folder in a room is a
# room of its own, `agent/dra`. A circle between rooms is refused, whatever layers.txt says.
set -eu
. "$(dirname "$0")/files.sh"

tree_files | grep -E '^(src/[^/]+|sim|include/[^/]+)/.*\.(c|h|S|def)$' | xargs awk '
    FILENAME == "tools/check/layers.txt" {
        if ($0 ~ /^#/ || NF == 0) next
        room = $1; sub(/:$/, "", room); known[room] = 1
        for (i = 2; i <= NF; i++) { allowed[room, $i] = 1; known[$i] = 1 }
        next
    }
    FNR == 1 {
        n = split(FILENAME, part, "/")
        room = part[1] == "sim" ? "sim" : n > 3 ? part[2] "/" part[3] : part[2]
        if (!(room in known)) { print FILENAME ": room " room " is not in tools/check/layers.txt"; bad = 1 }
    }
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
        name = $0; sub(/^[^<"]*[<"]/, "", name); sub(/[>"].*/, "", name)
        if ($0 ~ /"\.\.\//) { print FILENAME ":" FNR ": include by room, not by ../: " name; bad = 1; next }
        if (name !~ /\//) next
        target = name; sub(/\/[^\/]*$/, "", target)
        if (!(target in known)) next
        edges++
        used[room, target] = 1
        if (room != target && !((room, target) in allowed)) {
            print FILENAME ":" FNR ": " room " may not include " target " (" name ")"; bad = 1
        }
    }
    END {
        for (e in allowed) {
            split(e, part, SUBSEP)
            if (!(e in used)) {
                print "tools/check/layers.txt: " part[1] " includes nothing of " part[2] ": take it out"; bad = 1
            }
        }
        # A room goes when all it may include has gone; what cannot go stands in a circle.
        do {
            went = 0
            for (room in known) {
                held = 0
                for (other in known) if ((room, other) in allowed) held = 1
                if (!held) {
                    went = 1
                    for (other in known) delete allowed[other, room]
                    delete known[room]
                }
            }
        } while (went)
        for (room in known) { print "tools/check/layers.txt: " room " stands in a circle, or above one"; bad = 1 }
        print edges + 0 " includes between rooms examined"; exit bad || edges == 0
    }
' tools/check/layers.txt
