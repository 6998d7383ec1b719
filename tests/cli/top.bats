#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `sluice top` on a real terminal: tmux plays it, and tells what is on the screen.
load common
setup() {
    common_setup
    SERVER=$(basename "$PLACE")
}
teardown() {
    term kill-server 2>/dev/null || true
    common_teardown
}

term() { tmux -L "$SERVER" -f /dev/null "$@"; }
screen() { term capture-pane -p; }
screen_has() { screen | grep -qF -- "$1"; }
screen_lacks() { ! screen_has "$1"; }

# holder NAME OPTIONS...: a tenant that holds 512 MiB until the test ends.
holder() {
    local name=$1
    shift
    mkfifo "$PLACE/$name.in"
    "$SLUICE" run --sim h200x2 --name "$name" "$@" -- sh -c 'exec "$0" 512 <"$1"' "$ALLOC" "$PLACE/$name.in" \
        >"$PLACE/$name.log" &
    BACKGROUND+=($!)
    exec {fd}>"$PLACE/$name.in"
    HOLDS+=("$fd")
    eventually file_has "$PLACE/$name.log" total
}

# top COLUMNS ROWS [VARIABLE=VALUE...]: starts it and waits for its first page.
top() {
    local cols=$1 rows=$2
    shift 2
    term new-session -d -x "$cols" -y "$rows" \
        "env LC_ALL=C.UTF-8 $* '$SLUICE' top --sim h200x2; echo ended with \$?; sleep 60"
    eventually screen_has "sluice top"
}

@test "once: one page for a pipe, no colours, no arbiter started" {
    run -1 "$SLUICE" top --once
    has "no arbiter is running in $SLUICE_DIR"
    [ ! -e "$SLUICE_DIR" ]
    holder train --memory 10Gi --cores 30
    run -0 "$SLUICE" top --once --sim h200x2
    [[ ${lines[0]} == "sluice top  2 GPUs, 1 tenant  simulated GPUs (h200x2) "* ]]
    has "GPU 1  NVIDIA H200"
    has "  train              $(id -un)"
    has "of 10.0 GiB      30"
    [[ $output != *$'\033'* ]]
}

@test "no terminal, or one that can do nothing: says what to use instead" {
    run -1 "$SLUICE" top --sim h200 </dev/null
    has "this is no terminal: \`sluice top --once\` prints one page"
    top() { term new-session -d -x 80 -y 24 "TERM=dumb '$SLUICE' top --sim h200; sleep 60"; }
    top
    eventually screen_has "this terminal cannot place its cursor"
}

@test "the screen follows tenants that come and go" {
    holder train --memory 10Gi --cores 30
    top 80 24
    eventually screen_has "  train "
    [ "$(screen | wc -l)" = 24 ]
    [ "$(screen | LC_ALL=C.UTF-8 wc -L)" -le 80 ]
    screen_has "q quit"
    holder serve --memory 20Gi --cores 50:100
    eventually screen_has "  serve "
    screen_has "50:100"
    kill "${BACKGROUND[0]}"
    eventually screen_lacks "  train "
    term send-keys q
    eventually screen_has "ended with 0"
}

@test "no arbiter: says so, and shows tenants once there are some" {
    top 80 24
    eventually screen_has "no arbiter is running in $SLUICE_DIR"
    [ ! -e "$SLUICE_DIR" ]
    holder train --memory 10Gi
    eventually screen_has "  train "
    kill -KILL "$(arbiters_here)"
    eventually screen_has "  train " # run starts the next arbiter
}

@test "keys change, fold out, filter and end" {
    holder train --memory 10Gi --cores 30
    holder serve --memory 20Gi --cores 50
    top 80 24
    eventually screen_has "  train "
    term send-keys Down
    term send-keys c 25 Enter
    eventually screen_has "cores of train is 25 now"
    [ "$("$SLUICE" status --json --sim h200x2 | jq '.tenants[] | select(.name == "train").cores_limit_percent')" = 25 ]
    term send-keys m nonsense Enter
    eventually screen_has 'memory "nonsense" is not an amount'
    term send-keys c 130 Enter # the whole answer, over two lines
    eventually screen_has "30:100 to use idle time as well"
    term send-keys p high Enter
    eventually screen_has "priority of train is high now"
    term send-keys z
    eventually screen_has "train is paused: z lets it go on"
    [ "$("$SLUICE" status --json --sim h200x2 | jq '.tenants[] | select(.paused).name')" = '"train"' ]
    eventually screen_has "   25 paused "
    term send-keys z
    eventually screen_has "train goes on"
    [ -z "$("$SLUICE" status --json --sim h200x2 | jq '.tenants[] | select(.paused).name')" ]
    term send-keys Enter
    eventually screen_has "process "
    screen_has "$(basename "$ALLOC" | cut -c1-15)"
    term send-keys / ser Enter
    eventually screen_lacks "  train "
    screen_has "/ filter: ser"
    term send-keys Escape
    eventually screen_has "  train "
    term send-keys End
    term send-keys x
    eventually screen_has "end train (1 process)? y or n"
    term send-keys n
    eventually screen_has "nothing was ended"
    term send-keys x y
    eventually screen_lacks "  train "
    term send-keys '?'
    eventually screen_has "x                 end the selected tenant"
    term send-keys Escape q
    eventually screen_has "ended with 0"
}

@test "who waits in line is shown, with the reason, until it runs; Ctrl-C leaves" {
    holder train --memory 100Gi --gpu 0
    top 80 24
    eventually screen_has "  train "
    screen_lacks "WAITING IN LINE"
    "$SLUICE" run --sim h200x2 --name next --memory 60Gi --gpu 0 --wait -- sleep 100 2>"$PLACE/next.err" &
    BACKGROUND+=($!)
    eventually screen_has "WAITING IN LINE (1)"
    screen_matches() { screen | grep -qE -- "$1"; }
    eventually screen_matches "^  1  next +$(id -un) +0 +60\\.0 GiB .* for [0-9.]+ s$"
    screen_has "40 GiB"
    kill "${BACKGROUND[0]}"
    eventually screen_lacks "WAITING IN LINE"
    eventually screen_has "  next "
    term send-keys / ne C-c
    eventually screen_has "ended with 0"
}

@test "a window that grows shows more, one that is tiny does no harm" {
    holder train --memory 10Gi --cores 30
    top 80 24
    eventually screen_has "  train "
    screen_lacks PRIORITY
    term resize-window -x 120 -y 40
    eventually screen_has PRIORITY
    term resize-window -x 20 -y 5
    eventually screen_lacks PRIORITY
    term resize-window -x 80 -y 24
    eventually screen_has "  train "
    term send-keys q
    eventually screen_has "ended with 0"
}

@test "colours, unless NO_COLOR is set" {
    holder train --memory 10Gi --cores 30
    top 80 24
    eventually screen_has "  train "
    term capture-pane -ep | grep -q $'\033\[33m' # simulated
    term kill-server
    SERVER+=-2 # the first may not be gone yet
    top 80 24 NO_COLOR=1
    eventually screen_has "  train "
    run -1 grep -q $'\033\[3[0-7]m' <(term capture-pane -ep)
}
