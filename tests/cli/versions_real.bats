# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # bats sets output and stderr
# Real builds of earlier versions (tests/data/versions.txt) beside today's: their libsluice with our arbiter, ours with theirs,
# and a process that runs while the one replaces the other. On a simulated GPU.

load common

setup() {
    common_setup
    mkfifo "$PLACE/in"
}

teardown() { common_teardown; }

# old_version NAME: the folder $OLD has bin/sluice and lib/libsluice.so of that version, and today's simulated GPU.
old_version() {
    local built
    built=$(python3 "$SLUICE_SOURCE/tests/support/old_version.py" "$SLUICE_BUILD" "$1" 2>"$PLACE/why") || {
        if [ $? = 77 ]; then skip "$(cat "$PLACE/why")"; fi
        cat "$PLACE/why" >&2
        return 1
    }
    OLD=$PLACE/old
    mkdir -p "$OLD/bin" "$OLD/lib"
    cp "$built/bin/sluice" "$OLD/bin"
    cp "$built/lib/libsluice.so" "$OLD/lib"
    ln -s "$SLUICE_BUILD/sim" "$OLD/sim"
}

# arbiter SLUICE: in place of the one that is there. Nobody else may start one meanwhile.
arbiter() {
    local pid
    for pid in $(arbiters_here); do kill -TERM "$pid"; done
    eventually no_arbiter
    "$1" arbiter --sim h200 --dir "$SLUICE_DIR" --idle-exit 0 3>&- 8>&- &
    BACKGROUND+=($!)
    eventually "$1" status
    eventually runs "$1"
}

no_arbiter() { [[ -z $(arbiters_here) ]]; }
runs() { [[ $(readlink "/proc/$(arbiters_here)/exe") == "$(readlink -f "$1")" ]]; }

# program SLUICE: a tenant with a limit of 2 GiB that has 1 GiB; more by lines of input. `run` would start an arbiter of its
# own version when there is none, so it stands still: its command does not.
program() {
    "$1" run --sim h200 --name t --memory 2Gi -- "$ALLOC" 1073741824 <"$PLACE/in" >"$PLACE/log" 2>"$PLACE/err" &
    RUN=$!
    BACKGROUND+=("$RUN")
    exec 8>"$PLACE/in"
    eventually grep -q total "$PLACE/log" || { cat "$PLACE/err" >&2; return 1; }
    kill -STOP "$RUN"
}

# asks BYTES ANSWER: the running program allocates that much more.
asks() {
    local before
    before=$(wc -l <"$PLACE/log")
    echo "$1" >&8
    eventually grown "$before"
    [ "$(tail -n 1 "$PLACE/log")" = "$2" ] || { cat "$PLACE/log" "$PLACE/err" >&2; return 1; }
}
grown() { [[ $(wc -l <"$PLACE/log") -gt $1 ]]; }

member() { "$SLUICE" status --json t | grep -q '"processes": 1'; }
speaks() { "$SLUICE" status --json t | grep -q "\"protocol\": $1"; }

# both_ways NAME
both_ways() {
    old_version "$1"
    # Theirs with our arbiter: they tell no protocol.
    arbiter "$SLUICE"
    program "$OLD/bin/sluice"
    eventually speaks 1
    asks 268435456 ok
    asks 1073741824 "error 2"
    # Our arbiter goes, theirs comes, and ours again: the limit is the same, and what is held stays booked.
    arbiter "$OLD/bin/sluice"
    eventually member
    asks 1073741824 "error 2"
    asks 134217728 ok
    arbiter "$SLUICE"
    eventually speaks 1
    asks 1073741824 "error 2"
    asks 134217728 ok
}

# reverse NAME
reverse() {
    old_version "$1"
    # Ours with their arbiter, then with ours.
    arbiter "$OLD/bin/sluice"
    program "$SLUICE"
    eventually member
    asks 1073741824 "error 2"
    arbiter "$SLUICE"
    eventually speaks 3
    asks 1073741824 "error 2"
    asks 268435456 ok
    arbiter "$OLD/bin/sluice"
    eventually member
    asks 1073741824 "error 2"
}

@test "libsluice of 0.1.0 under the arbiter of today, and back" { both_ways 0.1.0; }

@test "libsluice of today under the arbiter of 0.1.0, and forward" { reverse 0.1.0; }

@test "libsluice of the version after that under the arbiter of today, and back" { both_ways 0.1.0+history; }

@test "libsluice of today under the arbiter of the version after that, and forward" { reverse 0.1.0+history; }
