#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Many commands at once on several GPUs: nothing is promised twice, also while the arbiter is killed.
load common
load waiting
load gpus
setup() {
    common_setup
    CARDS=h200x4
}
teardown() { common_teardown; }

@test "twenty at once on four cards: all get room, and no card is promised twice" {
    at_once 20 --memory 28Gi --cores 20
    patiently lines "$PLACE/crowd.ran" 20
    [ "$(tenants_on)" = "5 5 5 5" ]
    within_cards
    [ ! -s "$PLACE/crowd.err" ]
    run -125 srun --memory 1Gi --cores 1 -- true
    release crowd
    nothing_left
}

@test "more at once than there is room for: as many as fit, the others are told why" {
    at_once 14 --memory 60Gi --cores 40
    patiently lines "$PLACE/crowd.ran" 8
    patiently lines "$PLACE/crowd.err" 6
    [ "$(tenants_on)" = "2 2 2 2" ]
    within_cards
    [ "$(grep -c 'no single GPU has 60.0 GiB left' "$PLACE/crowd.err")" -eq 6 ]
    release crowd
    nothing_left
}

@test "at once and open: spread evenly; pairs at once: never two halves" {
    at_once 12 --memory 20Gi
    patiently lines "$PLACE/crowd.ran" 12
    [ "$(tenants_on)" = "3 3 3 3" ]
    release crowd
    patiently only_arbiter
    rm "$PLACE/crowd.ran"
    at_once 6 --gpus 2 --memory 60Gi
    patiently lines "$PLACE/crowd.ran" 4
    patiently lines "$PLACE/crowd.err" 2
    [ "$(tenants_on)" = "2 2 2 2" ]
    within_cards
    release crowd
    nothing_left
}

@test "a crowd that waits over four cards, while the arbiter is killed: all run, no card is promised twice" {
    for i in 0 1 2 3; do hold "h$i" 130Gi --gpu "$i"; done
    local i killed
    for ((i = 0; i < 16; i++)); do
        "$SLUICE" run --sim "$CARDS" --wait --memory 60Gi --cores 20 --gpus $((1 + (i % 4 == 3))) -- \
            sh -c "echo w$i >>'$PLACE/ran'" 2>"$PLACE/w$i.err" 8>&- &
        BACKGROUND+=($!)
    done
    patiently eval '[ "$(field ".waiting | length")" -eq 16 ]'
    for i in 0 1 2 3; do
        killed=$(field .arbiter_pid)
        kill -KILL "$killed"
        another() { [[ $(field .arbiter_pid) =~ ^[0-9]+$ && $(field .arbiter_pid) != "$killed" ]]; }
        patiently another
        release "h$i"
        within_cards
    done
    patiently lines "$PLACE/ran" 16
    [ "$(sort -u "$PLACE/ran" | wc -l)" -eq 16 ]
    nothing_left
}
