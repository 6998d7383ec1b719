#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Commands that wait for one or several of several GPUs: who goes where, and in which order.
load common
load waiting
load gpus
setup() {
    common_setup
    CARDS=h200x4
}
teardown() { common_teardown; }

@test "who waits starts on whichever card has room first, in order" {
    for i in 0 1 2 3; do hold "h$i" 100Gi --gpu "$i"; done
    srun --wait --memory 100Gi --name a -- sh -c "echo a >>'$PLACE/ran'; printenv CUDA_VISIBLE_DEVICES >'$PLACE/where'" 2>"$PLACE/a.err" 8>&- &
    BACKGROUND+=($!)
    patiently file_has "$PLACE/a.err" 'place 1 of 1; 100 GiB asked, 40.4 GiB of GPU 0 are left'
    waiter b --memory 100Gi --name b
    CUDA_VISIBLE_DEVICES=0,3 waiter c --memory 100Gi --name c
    in_line a b c
    nobody_ran
    release h2
    patiently ran a b # one after the other, on the same card
    [ "$(cat "$PLACE/where")" = "$(field '.gpus[2].uuid')" ]
    in_line c
    release h3
    patiently ran a b c
}

@test "two at once: it is not starved by small ones, and two pairs do not block each other" {
    CARDS=h200x2
    hold zero 100Gi --gpu 0
    hold one 100Gi --gpu 1
    waiter pair --gpus 2 --memory 60Gi --name pair
    waiter twin --gpus 2 --memory 130Gi --name twin
    waiter small --memory 20Gi --name small
    file_has "$PLACE/pair.err" '2 GPUs asked, 0 of 2 have room; 60.0 GiB asked, 40.4 GiB of GPU 0 are left'
    run -125 srun --memory 1Gi -- true # nor by one that does not wait
    has "other commands wait in line for every GPU that may be used"
    release one
    patiently eval 'field ".waiting[0].reason" | grep -q "1 of 2 has room"'
    nobody_ran
    release zero
    patiently ran pair twin small
    nothing_left
}

@test "who waits for one GPU leaves the rest; a pair does not go where one is left" {
    CARDS=h200x3
    hold zero 100Gi --gpu 0
    waiter first --gpu 0 --memory 100Gi
    run -0 srun --gpus 2 --memory 60Gi -- true
    run -125 srun --gpus 3 --memory 10Gi -- true
    has "other commands wait in line for 1 of the 3 GPUs that may be used, and go first"
    waiter all --gpus 3 --memory 60Gi
    run -125 srun --gpu 1 --memory 10Gi -- true
    has "other commands wait in line for GPU 1 and go first"
    nobody_ran
    release zero
    patiently ran first all
}

@test "the line of auto and pairs outlives the arbiter, with the time that each waits" {
    CARDS=h200x2
    hold zero 100Gi --gpu 0
    hold one 100Gi --gpu 1
    waiter a --memory 130Gi --name a
    waiter pair --gpus 2 --memory 130Gi --name pair
    waiter b --memory 130Gi --name b
    local killed before i
    for i in 1 2 3; do
        killed=$(field .arbiter_pid) before=$(field '.waiting[2].waited_ns')
        kill -KILL "$killed"
        another() { [[ $(field .arbiter_pid) =~ ^[0-9]+$ && $(field .arbiter_pid) != "$killed" ]] && in_line a pair b; }
        patiently another
        [ "$(field '.waiting[2].waited_ns')" -gt "$before" ]
    done
    within_cards
    release zero
    release one
    patiently ran a pair b
    nothing_left
}
