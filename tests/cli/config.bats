#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `sluice config check`: good files, bad files, and what a node would advertise.
load common
setup() { common_setup; DATA=$SLUICE_SOURCE/tests/data/config; }
teardown() { common_teardown; }

@test "a good file: the whole configuration, and what two H200 would advertise" {
    run -0 "$SLUICE" config check --sim h200x2 "$DATA/time-slicing.yaml"
    has "  migStrategy: none"
    has "      replicas: 10"
    has "With 2 GPUs"
    [[ $output =~ nvidia.com/gpu\ +20\ +time-slicing\ +10\ +any\ +GPU\ 0,\ 1 ]]
}

@test "NVIDIA's examples are accepted" {
    for file in "$DATA"/*.yaml; do # also the names of MIG profiles that this card does not have
        run -0 "$SLUICE" config check --sim h200 "$file"
    done
    for file in time-slicing mps; do # a node with 8 GPUs: 80 shares
        run -0 "$SLUICE" config check --sim h200x8 "$DATA/$file.yaml"
        [[ $output =~ nvidia.com/gpu\ +80\  ]]
        run -0 "$SLUICE" config check --sim h200x8 "$DATA/$file-renamed.yaml"
        [[ $output =~ nvidia.com/gpu.shared\ +80\  ]]
    done
}

@test "what it prints is a file it accepts, and prints the same of" {
    for file in time-slicing mps mig-mixed flags; do
        "$SLUICE" config check --sim h200 "$DATA/$file.yaml" >"$PLACE/one"
        "$SLUICE" config check --sim h200 - <"$PLACE/one" | sed "s|=stdin|=$DATA/$file.yaml|" >"$PLACE/two"
        diff "$PLACE/one" "$PLACE/two"
    done
}

@test "virtual machines: which way they get their devices, and which vGPUs are made" {
    check() { printf 'version: v1\nvm: {enabled: true%s}\n%s' "$1" "${2-}" | "$SLUICE" config check --sim h200 -; }
    run -0 check ""
    has "by claims where it has --dra, else by plugins"
    run -0 check ", by: plugins"
    has "by device plugins"
    run -0 check ", by: claims" "sharing: {vgpu: [{name: NVIDIA L40S-8Q, count: 4}]}"
    has "by claims, for which it needs --dra"
    has "It makes 4 vGPUs NVIDIA L40S-8Q on each card that can have them."
    run -1 check ", by: both"
    has 'stdin:2:25: vm.by: "both" is not known: possible values: auto, plugins or claims'
    run -0 "$SLUICE" config check --sim h200 "$DATA/time-slicing.yaml"
    [[ $output != *"virtual machines"* ]]
}

@test "a bad file: its name, line, column and what was meant; exit code 1" {
    printf 'version: v1\nflags:\n  migStrateyg: none\n' >"$PLACE/bad.yaml"
    run -1 "$SLUICE" config check --sim h200 "$PLACE/bad.yaml"
    [ "$output" = "sluice: config: $PLACE/bad.yaml:3:3: unknown key \"migStrateyg\" in flags: did you mean \"migStrategy\"?" ]
    run -1 "$SLUICE" config check - <"$PLACE/bad.yaml"
    has "stdin:3:3: unknown key"
    run -1 --separate-stderr "$SLUICE" config check --json - <"$PLACE/bad.yaml"
    [[ $(jq -r .error <<<"$output") == "stdin:3:3: unknown key"* ]]
}

@test "what is wrong only on this node is an error too" {
    echo 'sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [7]}]}}' >"$PLACE/c.yaml"
    run -1 "$SLUICE" config check --sim h200x2 "$PLACE/c.yaml"
    has "c.yaml:1:37: devices: there is no GPU 7: this node has 2"
}

@test "JSON has the configuration, resources by device, and warnings" {
    run -0 "$SLUICE" config check --json --sim h200x2 - <<'END'
sharing: {mps: {resources: [{name: gpu, replicas: 4, devices: [1], rename: slice}, {name: x, replicas: 2}]}}
END
    [ "$(jq -c '[.file, .gpus, .no_gpus, .config.version]' <<<"$output")" = '["stdin",2,null,"v1"]' ]
    [ "$(jq -c '.resources | map([.name, .base_name, .count, .sharing])' <<<"$output")" = \
        '[["nvidia.com/gpu","nvidia.com/gpu",1,"none"],["nvidia.com/slice","nvidia.com/gpu",4,"mps"]]' ]
    [ "$(jq -c '.resources[1].devices | map([.gpu, .mig, .replicas])' <<<"$output")" = '[[1,null,4]]' ]
    [ "$(jq -c '.config.sharing.mps.resources[0].devices' <<<"$output")" = '["1"]' ]
    [ "$(jq -r '.warnings[0]' <<<"$output")" = "nvidia.com/x should be shared, but this node has no such device" ]
    # The configuration in it is a configuration.
    jq .config <<<"$output" | "$SLUICE" config check --sim h200x2 - >/dev/null
}

@test "MIG on a simulated node: none, single, mixed" {
    export SLUICE_SIM=h200x2 SLUICE_SIM_STATE=$PLACE/state
    "$SLUICE_BUILD/sim/sluice-sim-ctl" mig 0 1g.18gb 1g.18gb 3g.71gb
    names() { jq -c '.resources | map([.name, .count])' <<<"$output"; }
    run -0 "$SLUICE" config check --json - <<<'flags: {migStrategy: mixed}'
    [ "$(names)" = '[["nvidia.com/mig-1g.18gb",2],["nvidia.com/mig-3g.71gb",1],["nvidia.com/gpu",1]]' ]
    [ "$(jq -r '.resources[0].devices[0].mig' <<<"$output")" = 1g.18gb ]
    run -0 "$SLUICE" config check --json - <<<'flags: {migStrategy: single}'
    [ "$(names)" = '[["nvidia.com/gpu",2],["nvidia.com/mig-3g.71gb",1]]' ]
    [ "$(jq '.warnings | length' <<<"$output")" = 2 ]
    run -0 "$SLUICE" config check --json - </dev/null
    [ "$(names)" = '[["nvidia.com/gpu",2]]' ]
}

@test "the environment the agent would read counts" {
    run -0 env MIG_STRATEGY=single "$SLUICE" config check --sim h200 "$DATA/flags.yaml"
    has "  migStrategy: single"
    run -1 env MIG_STRATEGY=double "$SLUICE" config check --sim h200 "$DATA/flags.yaml"
    has 'MIG_STRATEGY: "double" is not known'
}

@test "without a GPU the file is still checked" {
    [ ! -e /dev/nvidiactl ] || skip "there is a GPU"
    run -0 "$SLUICE" config check "$DATA/mps.yaml"
    has "what it would advertise is not known: no NVIDIA driver"
    run -0 "$SLUICE" config check --json "$DATA/mps.yaml"
    [ "$(jq -c '[.resources, .gpus]' <<<"$output")" = '[[],0]' ]
}

@test "the command line: a verb's verb, one file" {
    run -2 "$SLUICE" config
    has "sluice config check FILE"
    run -2 "$SLUICE" config chekc x
    has "sluice config check FILE"
    run -2 "$SLUICE" config check
    has "no file is named"
    run -2 "$SLUICE" config check a b
    has "is an extra word"
    run -1 "$SLUICE" config check "$PLACE/none.yaml"
    has "$PLACE/none.yaml"
    run -1 "$SLUICE" config check --sim nonsense "$DATA/mps.yaml"
    has nonsense
}

@test "output that cannot be written is a failure; nothing is left behind" {
    run -1 bash -c '"$SLUICE" config check --sim h200 "$0" >/dev/full' "$DATA/mps.yaml"
    [ ! -e "$SLUICE_DIR" ]
}
