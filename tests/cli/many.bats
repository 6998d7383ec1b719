#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# More GPUs, MIG instances and tenants than GPU time can be divided among: refused with a sentence.

load common

setup() {
    common_setup
    # 21 instances: the first 16 can be shared by time.
    mkdir -m 700 "$SLUICE_DIR"
    export SLUICE_SIM=h200x3 SLUICE_SIM_STATE=$SLUICE_DIR/sim-h200x3.state
    local card
    for card in 0 1 2; do
        "$SLUICE_BUILD/sim/sluice-sim-ctl" mig $card 1g.18gb 1g.18gb 1g.18gb 1g.18gb 1g.18gb 1g.18gb 1g.18gb
    done
    mapfile -t INSTANCES < <("$SLUICE_BUILD/sim/sluice-sim-ctl" list | grep -o 'MIG-[0-9a-f-]*')
    [ "${#INSTANCES[@]}" -eq 21 ]
    unset SLUICE_SIM SLUICE_SIM_STATE
}
teardown() { common_teardown; }

hold() { # NAME OPTION...
    "$SLUICE" run --sim h200x3 --name "$@" -- sleep 100 &
    BACKGROUND+=($!)
    eventually tenant_exists "$1"
}

@test "an instance is chosen as a card is; several GPUs are no instances" {
    run -0 "$SLUICE" run --sim h200x3 --memory 10Gi --cores 30 -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "${INSTANCES[0]}" ]
    hold first --memory 10Gi --cores 30
    hold second --memory 2Gi --cores 30 # beside the first: other instances stay whole
    hold third
    [ "$(field '[.tenants[].gpus[0].uuid] | sort | join(" ")')" = \
        "$(printf '%s\n' "${INSTANCES[0]}" "${INSTANCES[0]}" "${INSTANCES[1]}" | sort | paste -sd' ')" ]
    CUDA_VISIBLE_DEVICES="${INSTANCES[5]},${INSTANCES[6]:0:20}" run -0 "$SLUICE" run --sim h200x3 --memory 10Gi -- \
        printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "${INSTANCES[5]}" ]
    run -125 "$SLUICE" run --sim h200x3 --gpus 2 -- true
    has "2 GPUs were asked for, but there are 0 that may be used and are no MIG instances"
}

@test "an instance beyond the sixteenth is not shared, and its time not limited" {
    hold first --gpu "${INSTANCES[3]}" --cores 30
    run -0 "$SLUICE" run --sim h200x3 --gpu "${INSTANCES[3]}" --cores 30 -- true
    run -125 "$SLUICE" run --sim h200x3 --gpu "${INSTANCES[16]}" --cores 30 -- true
    has "cannot be divided"
    hold alone --gpu "${INSTANCES[20]}" --memory 1Gi
    run -125 "$SLUICE" run --sim h200x3 --gpu "${INSTANCES[20]}" --memory 1Gi -- true
    has "${INSTANCES[20]}"
    has "first 16 of the 21"
    run -1 "$SLUICE" set --sim h200x3 alone --cores 30
    has "cannot be divided"
    # Memory of it can be changed, and another one that is free can be had.
    run -0 "$SLUICE" set --sim h200x3 alone --memory 2Gi
    run -0 "$SLUICE" run --sim h200x3 --gpu "${INSTANCES[19]}" --memory 1Gi -- true
}
