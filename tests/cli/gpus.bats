#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The arbiter chooses the GPU: which it takes, how many, and what it says when none fits.
load common
load waiting
load gpus
setup() {
    common_setup
    CARDS=h200x4
}
teardown() { common_teardown; }

@test "who says how much it takes is packed; who leaves something open goes where most is left" {
    for i in 1 2 3; do hold "both$i" 30Gi --cores 20; done
    [ "$(tenants_on)" = "3 0 0 0" ]
    hold large 100Gi --cores 10
    [ "$(gpus_of large)" = 1 ]
    hold small 20Gi --cores 30 # 30 GiB and 10 % are left on GPU 0 then, 20 GiB and 60 % would be on GPU 1
    [ "$(gpus_of small)" = 0 ]
    hold memory 20Gi
    hold memory2 20Gi
    [ "$(gpus_of memory) $(gpus_of memory2)" = "2 3" ]
    hold tight 20Gi --cores 10 --gpu auto
    [ "$(gpus_of tight)" = 0 ]
    release large
    eventually eval '[ "$(tenants_on)" = "5 0 1 1" ]'
    hold time 100% --cores 100 # a whole card was kept free for this
    [ "$(gpus_of time)" = 1 ]
    within_cards
}

@test "without limits, each finds a card of its own, then the card with the fewest" {
    local i
    for i in 0 1 2 3 4; do
        srun --name "open$i" -- sleep 100 &
        BACKGROUND+=($!)
        eventually tenant_exists "open$i"
    done
    [ "$(tenants_on)" = "2 1 1 1" ]
    hold third 100Gi --gpu 1 # then GPU 1 has the least to give
    srun --name more -- sleep 100 &
    BACKGROUND+=($!)
    eventually tenant_exists more
    [ "$(gpus_of more)" = 2 ]
}

@test "cards of different sizes: a small request leaves the large card alone" {
    CARDS=h200,t4
    hold small 10Gi --cores 30
    hold large 60Gi --cores 30
    hold open 4Gi
    [ "$(gpus_of small) $(gpus_of large) $(gpus_of open)" = "1 0 0" ]
    run -125 srun --memory 141Gi -- true
    has "141 GiB were asked for, but no GPU that may be used is so large: the largest, GPU 0 (NVIDIA H200), has 140 GiB: ask for less, or for a part on each"
    run -125 srun --gpus 2 --memory 20Gi --wait -- true
    has "2 GPUs with 20.0 GiB each were asked for, but 1 of the 2 that may be used are so large"
}

@test "--gpus: so many different cards, each with what is asked for, and the command sees exactly these" {
    run -0 srun --gpus 3 --memory 10Gi --cores 30 -- printenv CUDA_VISIBLE_DEVICES
    [ "$(tr , '\n' <<<"$output" | sort -u | wc -l)" -eq 3 ]
    hold pair 50Gi --gpus 2 --cores 40
    [ "$(field '[.tenants[0].gpus[].memory_limit_bytes] | unique | join(" ")')" = $((50 << 30)) ]
    [ "$(tenants_on)" = "1 1 0 0" ]
    hold next 50Gi --gpus 2 --cores 40
    [ "$(tenants_on)" = "2 2 0 0" ]
    [ "$(field '[.gpus[].cores_promised_percent] | join(" ")')" = "80 80 0 0" ]
    run -0 srun --gpu 1,2 --gpus 2 -- true
    run -0 srun --gpus 1 --gpu 3 -- true
    within_cards
    CARDS=h200 run -125 "$SLUICE" run --dir "$PLACE/one" --sim h200 --gpus 2 -- true
    has "2 GPUs were asked for, but this machine has 1: ask for fewer GPUs"
}

@test "CUDA_VISIBLE_DEVICES bounds the choice, and keeps its order" {
    uuid() { field ".gpus[$1].uuid"; }
    hold other 100Gi --gpu 1
    CUDA_VISIBLE_DEVICES=3,1 run -0 srun --gpus 2 --memory 10Gi -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "$(uuid 3),$(uuid 1)" ]
    local three
    three=$(uuid 3)
    for visible in 1,3 "1,${three:0:14}" "1,$three,nonsense,0" "1,3,3,$three"; do
        CUDA_VISIBLE_DEVICES=$visible run -0 srun --gpu auto --memory 60Gi -- printenv CUDA_VISIBLE_DEVICES
        [ "$output" = "$three" ]
        CUDA_VISIBLE_DEVICES=$visible run -125 srun --gpus 3 --wait -- true
        has "3 GPUs were asked for, but CUDA_VISIBLE_DEVICES allows 2: ask for fewer GPUs, or allow more"
    done
    CUDA_VISIBLE_DEVICES='' run -125 srun --gpu auto --gpus 2 -- true
    has "hides every GPU"
    # A GPU that is named comes first; who names one that is hidden is told so.
    for visible in 3 "$three" "${three:0:14}" 0,3; do
        CUDA_VISIBLE_DEVICES=$visible run -0 --separate-stderr srun --gpu 3 -- printenv CUDA_VISIBLE_DEVICES
        [ "$output" = "$three" ]
        [ -z "$stderr" ]
    done
    CUDA_VISIBLE_DEVICES=0,1 run -0 --separate-stderr srun --gpu 0,3 -- true
    [ "$stderr" = 'sluice: run: --gpu takes GPU 3, which CUDA_VISIBLE_DEVICES="0,1" does not allow: --gpu comes first' ]
    CUDA_VISIBLE_DEVICES='' run -0 --separate-stderr srun --gpu 3 -- true
    [[ $stderr == *"--gpu takes GPU 3"* ]]
}

@test "what fits on no single card says how much one has, which, and what to do" {
    CARDS=h200x2
    hold zero 100Gi --gpu 0
    hold one 60Gi --gpu 1
    run -125 srun --memory 100Gi -- true
    has "no single GPU has 100 GiB left: GPU 1 has the most, 80.4 GiB, and the 2 GPUs that may be used have 121 GiB together"
    has "ask for at most what one has, or for a part on each of several GPUs with --gpus; add --wait to start when"
    run -0 srun --memory 80Gi -- true
    run -0 srun --gpus 2 --memory 40Gi -- true
    run -125 srun --gpus 2 --memory 60Gi -- true
    has "2 GPUs were asked for, and 1 has room of the 2 that may be used (left: GPU 0 has 40.4 GiB and 100 %, GPU 1 has 80.4"
    run -125 srun --memory 130Gi -- true
    has "none of 2 GPUs has 130 GiB left: GPU 1 has the most, 80.4 GiB: ask for less"
    [[ $output == *"; add --wait"* ]]
    for wait in "" --wait --wait=1h; do
        run -125 srun ${wait:+"$wait"} --memory 200Gi -- true
        has "200 GiB were asked for, but no GPU that may be used is so large: the largest, GPU 0 (NVIDIA H200), has 140 GiB: ask for less, or for a part on each of several GPUs with --gpus"
        [[ $output != *"add --wait"* ]]
        run -125 srun ${wait:+"$wait"} --memory 300Gi -- true
        [[ $output != *--gpus* && $output == *"ask for less" ]]
    done
}

@test "words that are no number of GPUs, and what contradicts itself" {
    for count in 0 -1 two 2.5 17 99999999999999999999 1e1 ' 2' '2 ' +2 0x2; do
        run -125 srun --gpus "$count" -- true
        has "--gpus \"$count\" is not a number of GPUs: write a whole number from 1 to 16, for example 2"
    done
    run -125 srun --gpus '' -- true
    has 'is not a number of GPUs'
    run -125 srun --gpus 2 --gpus 3 -- true
    has "--gpus is given twice"
    run -125 srun --gpus 2 --gpu 0 -- true
    has "--gpus asks for 2, but --gpu names 1: leave one of them out, or choose among some GPUs with CUDA_VISIBLE_DEVICES"
    run -125 srun --gpus 1 --gpu 0,1 -- true
    has "--gpus asks for 1, but --gpu names 2"
    for list in auto,0 0,auto auto,auto; do
        run -125 srun --gpu "$list" -- true
        has "--gpu \"$list\" names GPUs beside auto: write auto alone, or name the GPUs"
    done
    no_processes
    run -125 srun --gpus 5 -- true
    has "5 GPUs were asked for, but this machine has 4: ask for fewer GPUs"
    run -125 srun --gpu automatic -- true
    has 'no GPU "automatic"'
}

@test "an arbiter of before gives one GPU: the command does not run on less than it asked for" {
    mkdir -m 700 "$SLUICE_DIR"
    mkfifo "$PLACE/old.in"
    "$OLD_ARBITER" "$SLUICE_DIR/arbiter.sock" <"$PLACE/old.in" &
    local pid=$! fd
    BACKGROUND+=("$pid")
    exec {fd}>"$PLACE/old.in"
    HOLDS+=("$fd")
    eventually test -S "$SLUICE_DIR/arbiter.sock"
    run -125 "$SLUICE" run --gpus 2 -- touch "$PLACE/began"
    has "the arbiter (process $pid) is of an older version, which chooses one GPU only: name the GPUs"
    [ ! -e "$PLACE/began" ]
    run -0 "$SLUICE" status --json
    [ "$(jq -c .waiting <<<"$output")" = '[]' ]
}
