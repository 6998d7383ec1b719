#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `sluice status` shows who waits in line.
load common
load waiting
load gpus
setup() { common_setup; }
teardown() { common_teardown; }

@test "status shows who waits: place, what it asks for, why, and for how long" {
    CARDS=h200x2
    run -0 "$SLUICE" status --sim h200x2 --json
    [ "$(jq -c .waiting <<<"$output")" = '[]' ]
    hold zero 100Gi --gpu 0
    hold one 60Gi --gpu 1
    waiter pair --gpus 2 --memory 60Gi --cores 30 --name pair
    waiter small --memory 10Gi --cores 30:100
    waiter named --gpu 0 --memory 70Gi --priority low
    CUDA_VISIBLE_DEVICES=1,0 waiter part --memory 50% --priority high --gpus 2
    run -0 "$SLUICE" status --sim h200x2
    has "PLACE  WAITING"
    local want
    for want in '^ *1  - +[0-9]+  1,0 +50%  +-  high ' '^ *2  pair +[0-9]+  any 2 +60.0 GiB +30  normal ' \
        '^ *3  - +[0-9]+  any +10.0 GiB  30:100  normal ' '^ *4  - +[0-9]+  0 +70.0 GiB  +-  low '; do
        grep -Eq "$want" <<<"$output" || { echo "no line $want in:" "$output" >&2; false; }
    done
    has $'\n         2 GPUs asked, 1 of 2 has room\n'
    has $'\n         the commands before it go first\n'
    [ "$(awk 'length > 80' <<<"$output")" = "" ]
    run -0 "$SLUICE" status --sim h200x2 --json
    [ "$(jq -c '.waiting[] | [.place, .name, .state, .priority, .memory_bytes, .memory_percent, .cores_request_percent, .cores_limit_percent, .gpu_count, [.gpus[].index]]' <<<"$output")" = '[1,null,"waits","high",null,50,null,null,2,[1,0]]
[2,"pair","waits","normal",64424509440,null,30,30,2,[]]
[3,null,"waits","normal",10737418240,null,30,100,1,[]]
[4,null,"waits","low",75161927680,null,null,null,1,[0]]' ]
    [ "$(jq '[.waiting[] | .waited_ns > 0 and (.reason | length > 0) and .pid > 0] | all' <<<"$output")" = true ]
    kill -STOP "$WAITER" # the first in line
    release zero
    release one
    patiently eval '[ "$(field ".waiting[0].state")" = stopped ]'
    [[ $(field '.waiting[0].reason') == "it is stopped:"* ]]
    kill -CONT "$WAITER"
}
