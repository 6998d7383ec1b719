#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# sluice forget: what it refuses. What it forgets, and that a pod has its share again afterwards: tests/agent/fraction_node.py.

load common

setup() {
    common_setup
    WORLD=(--sim h200 --cdi-dir "$PLACE/cdi")
}
teardown() { common_teardown; }

@test "one tenant, and one that is there" {
    run -0 "$SLUICE" lease create other "${WORLD[@]}" --memory 1Gi
    run -1 "$SLUICE" forget nobody --sim h200
    has nobody
    run -2 "$SLUICE" forget --sim h200
    has "sluice forget NAME"
    run -2 "$SLUICE" forget one two --sim h200
    run -0 "$SLUICE" lease delete other "${WORLD[@]}"
}

@test "a lease is deleted, and a command ends: neither is forgotten" {
    run -0 "$SLUICE" lease create mine "${WORLD[@]}" --memory 1Gi
    run -1 "$SLUICE" forget mine --sim h200
    has "sluice lease delete mine"
    run -0 "$SLUICE" lease delete mine "${WORLD[@]}"
    run -0 "$SLUICE" run --sim h200 --memory 1Gi --name job -- sh -c '! "$0" forget job --sim h200 2>&1' "$SLUICE"
    has "it ends with the command"
}
