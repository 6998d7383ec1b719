# SPDX-License-Identifier: Apache-2.0
# Instructions by object file, from callgrind's output: the cost lines of each function itself. The
# line after calls= is what the called function cost, and is not the caller's.
function named(text,    id, name) {
    id = text; sub(/\).*/, ")", id)
    name = text; sub(/^\([0-9]+\) ?/, "", name)
    if (name != "") names[id] = name
    return names[id]
}
/^ob=/ { object = named(substr($0, 4)); next }
/^cob=/ { named(substr($0, 5)); next }
/^calls=/ { skip = 1; next }
/^[0-9+*-]/ { if (skip) skip = 0; else cost[object] += $2; next }
END {
    for (o in cost) {
        file = o; sub(/.*\//, "", file)
        sub(/^libsluice.*/, "libsluice", file); sub(/^libcuda.*/, "libcuda", file)
        if (file != "libsluice" && file != "libcuda") file = "other"
        sum[file] += cost[o]
    }
    printf "%d %d %d\n", sum["libsluice"], sum["libcuda"], sum["other"]
}
