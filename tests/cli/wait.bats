#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `sluice run --wait`: a line to wait in: who goes first, what it says, and words that are no time.
load common
load waiting
setup() { common_setup; }
teardown() { common_teardown; }

@test "starts when there is room, and says place and reason meanwhile" {
    hold first 100Gi
    waiter a --memory 80Gi
    waiter b --memory 70Gi
    file_has "$PLACE/a.err" '^sluice: waiting: place 1 of 1; 80.0 GiB asked, 40.4 GiB of GPU 0 are left$'
    file_has "$PLACE/b.err" '^sluice: waiting: place 2 of 2; 70.0 GiB asked, 40.4 GiB of GPU 0 are left$'
    release first
    eventually ran a b
    nothing_left
    [ ! -e "$SLUICE_DIR/line" ]
}

@test "where there is room, --wait changes nothing" {
    run -7 --separate-stderr srun --wait=10m --memory 10Gi -- sh -c 'exit 7'
    [ -z "$stderr" ]
    nothing_left
}

@test "the exit code and the signals of the command are its own, as without --wait" {
    hold first 100Gi
    srun --wait --memory 60Gi -- sh -c 'kill -TERM $$' 2>"$PLACE/err" &
    local pid=$!
    eventually file_has "$PLACE/err" waiting:
    release first
    local code=0
    wait "$pid" || code=$?
    [ "$code" -eq 143 ]
}

@test "without --wait, the refusal names it; what can never fit is refused at once" {
    hold first 100Gi
    run -125 srun --memory 60Gi -- true
    has "60.0 GiB were asked for"
    has "; add --wait to start when there is room"
    run -125 srun --memory 1Gi --gpu 1 --wait -- true
    has 'no GPU "1"'
    for wait in --wait --wait=1h; do
        run -125 srun --memory 300Gi "$wait" -- true
        has "300 GiB were asked for: ask for less"
        run -125 "$SLUICE" run --dir "$PLACE/e" --sim h200x2 --memory 300Gi "$wait" -- true
        has "no GPU that may be used is so large"
    done
    run -125 srun --memory 300Gi -- true
    [[ $output != *--wait* ]]
    "$SLUICE" run --dir "$PLACE/e" --sim h200x2 -- true
    for pid in $(grep -lzxF -f <(echo "$PLACE/e") /proc/[0-9]*/cmdline | cut -d/ -f3); do kill "$pid"; done
}

@test "a small command does not overtake a large one, waiting or not; a higher priority does" {
    hold first 30Gi
    waiter large --memory 120Gi
    waiter small --memory 75Gi
    file_has "$PLACE/small.err" 'place 2 of 2; the commands before it go first'
    run -125 srun --memory 10Gi -- true
    has "other commands wait in line for every GPU that may be used, and go first; add --wait"
    run -125 srun --gpu 0 --memory 10Gi -- true
    has "other commands wait in line for GPU 0 and go first; add --wait"
    run -125 srun --priority low -- true
    run -0 srun --priority high --memory 10Gi -- true
    waiter last --priority low --memory 80Gi
    waiter high --priority high --memory 115Gi
    file_has "$PLACE/high.err" 'place 1 of 4'
    nobody_ran
    release first
    eventually ran high large small last
    nothing_left
}

@test "who waits for one GPU holds up no other" {
    CARDS=h200x2
    "$SLUICE" run --sim h200x2 --gpu 0 --memory 100Gi --name zero -- sleep 100 &
    BACKGROUND+=($!)
    eventually tenant_exists zero
    waiter first --gpu 0 --memory 60Gi
    run -0 "$SLUICE" run --sim h200x2 --gpu 1 --memory 60Gi -- true
    # Without --gpu: the other one, though the first has room for it.
    run -0 "$SLUICE" run --sim h200x2 --memory 10Gi -- printenv CUDA_VISIBLE_DEVICES
    local got=$output
    run -0 "$SLUICE" run --sim h200x2 --gpu 1 --memory 10Gi -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "$got" ]
    run -0 "$SLUICE" run --sim h200x2 --wait --memory 10Gi -- true
    # Who waits for all of them holds up all.
    waiter both --gpu 0,1 --memory 60Gi
    run -125 "$SLUICE" run --sim h200x2 --memory 10Gi -- true
    nobody_ran
}

@test "GPU time is waited for as memory is" {
    hold first 1Gi --cores 80
    waiter a --cores 30
    file_has "$PLACE/a.err" 'place 1 of 1; 30 % of the time asked, 20 % of GPU 0 are left'
    run -0 "$SLUICE" set --sim h200 first --cores 60
    eventually ran a
}

@test "after the time that --wait names it gives up, with a code of its own" {
    hold first 100Gi
    run -124 srun --wait=1s --memory 60Gi -- true
    has "run: there was no room in the time given (--wait=1s): place 1 of 1; 60.0 GiB asked, 40.4 GiB of GPU 0 are left"
    run -0 srun --memory 10Gi -- true # it is not in line any more
}

@test "times that are none" {
    for wait in abc 0 0s -5 -5s 5 1.5h 10min 1w 99999999999999999999s '10m ' 200000d; do
        run -125 srun --wait="$wait" -- true
        has "\"$wait\" is not a time: write a whole number with s, m, h or d, for example 30s, 10m or 2h"
    done
    run -125 srun --wait= -- true
    has "--wait= has no value: write --wait[=TIME]"
    run -125 srun --wait --wait=5s -- true
    has "--wait is given twice"
    run -1 "$SLUICE" words run wait # its value is never the next word
    no_processes
}
