#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Where the arbiter lives, and starting it: races, leftovers of the dead, its end.
load common
setup() { common_setup; }
teardown() { common_teardown; }

@test "twenty runs at once share one arbiter" {
    for i in {1..20}; do
        "$SLUICE" run --sim h200 --memory 1Gi -- sh -c "touch $PLACE/up.$i; while [ ! -e $PLACE/go ]; do sleep 0.05; done" &
        BACKGROUND+=($!)
    done
    all_up() { [ "$(find "$PLACE" -name 'up.*' | wc -l)" -eq 20 ]; }
    eventually all_up
    [ "$(arbiters_here | wc -l)" -eq 1 ]
    [ "$(field '.tenants | length')" -eq 20 ]
    touch "$PLACE/go"
    for pid in "${BACKGROUND[@]}"; do wait "$pid"; done
    BACKGROUND=()
    nothing_left
}

@test "the arbiter leaves by itself, and its socket with it" {
    run -0 "$SLUICE" run --sim h200 -- test -S "$SLUICE_DIR/arbiter.sock"
    eventually no_processes
    no_sockets
}

@test "the socket of a dead arbiter is no obstacle" {
    "$SLUICE" arbiter --dir "$SLUICE_DIR" --sim h200 &
    pid=$!
    BACKGROUND+=("$pid")
    running() { [ "$(field .running)" = true ]; }
    eventually running
    kill -KILL "$pid"
    wait "$pid" || true
    [ -S "$SLUICE_DIR/arbiter.sock" ]
    run -0 "$SLUICE" status
    has "No arbiter is running"
    run -0 "$SLUICE" run --sim h200 -- echo alive
    [ "$output" = alive ]
    nothing_left
}

@test "an arbiter killed under a running command is replaced and takes it over" {
    "$SLUICE" run --sim h200 --name kept --memory 1Gi -- sleep 30 &
    BACKGROUND+=($!)
    eventually tenant_exists kept
    old=$(field .arbiter_pid)
    kill -KILL "$old"
    replaced() { now=$(field .arbiter_pid); [ "$now" != null ] && [ "$now" != "$old" ] && tenant_exists kept; }
    eventually replaced
    [ "$(field '.tenants[0].gpus[0].memory_limit_bytes')" = 1073741824 ]
    kill "${BACKGROUND[0]}"
    wait "${BACKGROUND[0]}" || true
    nothing_left
}

@test "the arbiter is not bound to the processors of its starter" {
    processors() { grep Cpus_allowed_list "/proc/$1/status" | cut -f2; }
    mine=$(processors self)
    first=${mine%%[-,]*}
    [ "$mine" != "$first" ] || skip "this machine has one processor"
    taskset -c "$first" "$SLUICE" run --sim h200 --name one -- sleep 30 &
    BACKGROUND+=($!)
    eventually tenant_exists one
    [ "$(processors "$BACKGROUND")" = "$first" ]
    [ "$(processors "$(field .arbiter_pid)")" != "$first" ]
    kill "${BACKGROUND[0]}"
    wait "${BACKGROUND[0]}" || true
    nothing_left
}

@test "the arbiter keeps nothing of its starter's open and leaves its terminal" {
    "$SLUICE" run --sim h200 --name one -- sleep 30 9>"$PLACE/nine" &
    BACKGROUND+=($!)
    eventually tenant_exists one
    pid=$(arbiters_here)
    [ "$(sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f5)" = 0 ] # no controlling terminal
    [ "$(readlink "/proc/$pid/cwd")" = / ]
    for fd in 0 1 2; do [ "$(readlink "/proc/$pid/fd/$fd")" = /dev/null ]; done
    ! ls -l "/proc/$pid/fd" | grep -F "$PLACE/nine"
}

@test "the directory is private" {
    (umask 000; "$SLUICE" run --sim h200 -- true)
    [ "$(stat -c %a "$SLUICE_DIR")" = 700 ]
}

@test "without --dir: XDG_RUNTIME_DIR, then /tmp, each simulated world its own" {
    [ "$EUID" -ne 0 ] || command -v setpriv >/dev/null || skip "no setpriv"
    as_user() {
        if [ "$EUID" -eq 0 ]; then setpriv --reuid 23457 --regid 23457 --clear-groups "$@"; else "$@"; fi
    }
    as_user test -x "$SLUICE" || skip "the build is not readable for others"
    uid=$(as_user id -u)
    unset SLUICE_DIR
    mkdir -m 700 "$PLACE/xdg"
    [ "$EUID" -ne 0 ] || { chown "$uid" "$PLACE/xdg"; chmod 755 "$PLACE"; }
    XDG_RUNTIME_DIR=$PLACE/xdg run -0 as_user "$SLUICE" status --json --sim h200x2
    [ "$(jq -r .dir <<<"$output")" = "$PLACE/xdg/sluice/sim-h200x2" ]
    XDG_RUNTIME_DIR=$PLACE/xdg run -0 as_user "$SLUICE" status --json
    [ "$(jq -r .dir <<<"$output")" = "$PLACE/xdg/sluice" ]
    # Somebody else's XDG_RUNTIME_DIR (su, sudo) is passed over.
    XDG_RUNTIME_DIR=/ run -0 as_user "$SLUICE" status --json
    [ "$EUID" -ne 0 ] || [ "$(jq -r .dir <<<"$output")" = "/tmp/sluice-$uid" ]
    export SLUICE_DIR=$PLACE/d
}

@test "a relative --dir and one with a slash at the end are the same place" {
    cd "$PLACE"
    run -0 "$SLUICE" --dir d/ status --json
    [ "$(jq -r .dir <<<"$output")" = "$PLACE/d" ]
}

@test "a file of cards is one world wherever it is named from" {
    printf 'device = h200\n' >"$PLACE/cards"
    unset SLUICE_DIR
    cd "$PLACE"
    run -0 "$SLUICE" status --json --sim ./cards
    a=$(jq -r .dir <<<"$output")
    run -0 "$SLUICE" status --json --sim "$PLACE/../$(basename "$PLACE")/cards"
    [ "$(jq -r .dir <<<"$output")" = "$a" ]
    [[ $a == */sim-cards-* ]]
    export SLUICE_DIR=$PLACE/d
}

@test "an installed sluice finds its library and the simulated driver" {
    cmake --install "$SLUICE_BUILD" --prefix "$PLACE/usr" >/dev/null
    run -0 "$PLACE/usr/bin/sluice" run --sim h200 --memory 4Gi -- "$ALLOC" 512 </dev/null
    [ "${lines[0]}" = ok ]
    [ "${lines[1]}" = "total 4294967296" ]
    run -0 "$PLACE/usr/bin/sluice" run --sim h200 -- printenv LD_PRELOAD
    [[ $output == "$RUNTIME$PLACE"/usr/lib*/libsluice.so ]]
    [ -f "$PLACE/usr/share/man/man1/sluice-run.1" ]
    [ -f "$PLACE/usr/share/bash-completion/completions/sluice" ]
}

@test "SLUICE_LOG makes a log in the arbiter's directory" {
    SLUICE_LOG=info run -0 "$SLUICE" run --sim h200 --name chatty -- true
    grep -q chatty "$SLUICE_DIR/arbiter.log"
}
