#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Leases for containers: made, listed, deleted, healed. No container is started here: container.bats does that.

load common

setup() {
    common_setup
    CDI=$PLACE/cdi
    LEASE=("$SLUICE" lease)
    WORLD=(--sim h200 --cdi-dir "$CDI")
    SPEC=$CDI/sluice.io-lease_train.json
}
teardown() { common_teardown; }

create() { "${LEASE[@]}" create "$1" "${WORLD[@]}" "${@:2}"; }
state_of() { "${LEASE[@]}" list --json "${WORLD[@]}" 2>/dev/null | jq -r ".leases[] | select(.name == \"$1\") | .state"; }

# Nothing of a lease is left: no spec or half of one, no tenant, no folder.
no_leases() {
    [[ -z $(find "$CDI" -type f 2>/dev/null) ]] && no_tenants &&
        [[ ! -e $SLUICE_DIR/lease && -z $(find "$SLUICE_DIR/k" -mindepth 1 2>/dev/null) ]]
}

# A process that uses the lease as a container's would, until its input ends.
use_lease() {
    mkfifo "$PLACE/hold"
    env SLUICE_ATTACH="$SLUICE_DIR/k/train/attach.sock" SLUICE_SIM=h200 \
        SLUICE_SIM_STATE="$SLUICE_DIR/sim-h200.state" LD_LIBRARY_PATH="$SLUICE_BUILD/sim" \
        LD_PRELOAD="${RUNTIME}$SLUICE_BUILD/lib/libsluice.so" "$ALLOC" 1000000 <"$PLACE/hold" >"$PLACE/out" 3>&- &
    BACKGROUND+=($!)
    exec 8>"$PLACE/hold"
    eventually file_has "$PLACE/out" total
}

@test "create, list, set, delete" {
    run -0 create train --memory 10Gi --cores 30 --priority low
    [ "${lines[0]}" = "lease train is made: start containers with --device sluice.io/lease=train" ]
    has "must search $CDI"
    [ "$(jq -r '.kind + "=" + .devices[0].name' "$SPEC")" = sluice.io/lease=train ]
    run -0 "${LEASE[@]}" list "${WORLD[@]}"
    [[ ${lines[1]} =~ train\ +0\ +10.0\ GiB\ +0\ +30\ +low\ +0\ +ready ]]
    run -0 "$SLUICE" set train --sim h200 --memory 12Gi
    [ "$("${LEASE[@]}" list --json "${WORLD[@]}" | jq '.leases[0].gpus[0].limit_bytes')" = $((12 << 30)) ]
    run -0 "${LEASE[@]}" delete train "${WORLD[@]}"
    [ "$output" = "lease train is deleted" ]
    no_leases
    run -0 "${LEASE[@]}" list "${WORLD[@]}"
    [ "$output" = "no leases" ]
    nothing_left
}

@test "the GPU is chosen as for a command: auto, several, of those allowed" {
    WORLD=(--sim h200x4 --cdi-dir "$CDI")
    leases_gpus() { "${LEASE[@]}" list --json "${WORLD[@]}" | jq -r ".leases[] | select(.name == \"$1\") | [.gpus[].index] | join(\",\")"; }
    run -0 create pair --gpus 2 --memory 100Gi --cores 30
    run -0 create tight --gpu auto --memory 10Gi --cores 30
    run -0 create open --memory 10Gi
    CUDA_VISIBLE_DEVICES=3,1 run -0 create some --memory 60Gi
    [ "$(leases_gpus pair) $(leases_gpus tight) $(leases_gpus open) $(leases_gpus some)" = "0,1 0 2 3" ]
    [ "$(jq -r '.devices[0].containerEdits.env[]' "$CDI/sluice.io-lease_pair.json" | grep -c 'GPU-.*,GPU-')" -ge 1 ]
    CUDA_VISIBLE_DEVICES=0 run -0 create hidden --gpu 2 --memory 1Gi
    has 'lease: --gpu takes GPU 2, which CUDA_VISIBLE_DEVICES="0" does not allow: --gpu comes first'
    run -1 create never --memory 200Gi
    has "ask for less, or for a part on each of several GPUs with --gpus"
    run -1 create never --gpus 5
    has "this machine has 4"
    run -1 create never --gpus none
    has "is not a number of GPUs"
    run -1 create never --gpus 3 --memory 120Gi
    has "3 GPUs were asked for, and 1 has room of the 4 that may be used"
    [[ $output != *--wait* ]]
    for name in pair tight open some hidden; do run -0 "${LEASE[@]}" delete "$name" "${WORLD[@]}"; done
    no_leases
}

@test "list of nothing starts no arbiter" {
    run -0 "${LEASE[@]}" list "${WORLD[@]}"
    [ "$output" = "no leases" ]
    run -0 "${LEASE[@]}" list --json "${WORLD[@]}"
    [ "$(jq '.leases | length' <<<"$output")" = 0 ]
    [ ! -e "$SLUICE_DIR" ]
}

@test "a lease promises memory and time" {
    create train --memory 100Gi --cores 60
    run -1 create more --memory 100Gi
    has "has 40.4 GiB left"
    run -1 create more --cores 50
    has "% of its time left"
    run -1 "${LEASE[@]}" delete more "${WORLD[@]}"
    [ "$(find "$CDI" -type f | wc -l)" = 1 ]
}

@test "delete while processes use the lease" {
    create train --memory 10Gi
    use_lease
    run -1 "${LEASE[@]}" delete train "${WORLD[@]}"
    has "1 process uses lease train: end the containers first, or delete it with --force"
    [ "$(state_of train)" = ready ]
    run -0 "${LEASE[@]}" delete --force train "${WORLD[@]}"
    no_leases
    exec 8>&-
    eventually only_arbiter
}

@test "the arbiter dies: list says so and starts it again, delete still sees processes" {
    create train --memory 10Gi
    use_lease
    kill -KILL "$(arbiters_here)"
    eventually eval '[[ -z $(arbiters_here) ]]'
    run -1 --separate-stderr "${LEASE[@]}" delete train "${WORLD[@]}"
    [[ $stderr == *"the arbiter in $SLUICE_DIR had ended; it was started again"* ]]
    [[ $stderr == *"1 process uses lease train"* ]]
    exec 8>&-
    run -0 eventually "${LEASE[@]}" delete train "${WORLD[@]}"
    no_leases
}

@test "the directory of the arbiter is lost, as by a reboot" {
    create train --memory 10Gi
    kill -KILL "$(arbiters_here)"
    eventually eval '[[ -z $(arbiters_here) ]]'
    rm -r "$SLUICE_DIR"
    run -0 --separate-stderr "${LEASE[@]}" list "${WORLD[@]}"
    [[ $stderr == *'"train" is lost'*'sluice lease create train'* ]]
    [ "$(state_of train)" = lost ]
    run -0 create train --memory 5Gi
    [ "$(state_of train)" = ready ]
    run -0 "${LEASE[@]}" delete train "${WORLD[@]}"
    no_leases
}

@test "a lost lease can be deleted" {
    create train --memory 10Gi
    kill -KILL "$(arbiters_here)"
    eventually eval '[[ -z $(arbiters_here) ]]'
    rm -r "$SLUICE_DIR"
    run -0 "${LEASE[@]}" delete train "${WORLD[@]}"
    no_leases
}

@test "what a killed create or delete leaves is healed" {
    # A tenant and a folder without a spec, and half of a spec.
    create train --memory 10Gi
    mv "$SPEC" "$SPEC.new"
    run -0 "${LEASE[@]}" list "${WORLD[@]}"
    has '"train" has no CDI spec'
    has "no leases"
    no_leases
    # A folder without a tenant.
    mkdir -p "$SLUICE_DIR/lease/other"
    touch "$SLUICE_DIR/lease/other/"{libsluice.so,libsluice.so.new,ld.so.preload.new}
    run -0 "${LEASE[@]}" list "${WORLD[@]}"
    no_leases
    # The next create does the same.
    create train --memory 10Gi
    rm "$SPEC"
    run -0 create train --memory 120Gi
    [ "$(state_of train)" = ready ]
}

@test "killed at any time: the next command heals" {
    create held --memory 1Gi
    local i pid
    for i in {0..15}; do
        "${LEASE[@]}" create train "${WORLD[@]}" --memory 10Gi >/dev/null 3>&- &
        pid=$!
        sleep "0.00$((i % 10))" # a moment inside, whichever: all of them must be right
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" || true
        if [[ $(state_of train) == ready ]]; then
            "${LEASE[@]}" delete train "${WORLD[@]}" >/dev/null 3>&- &
            pid=$!
            sleep "0.00$((i % 10))"
            kill -KILL "$pid" 2>/dev/null || true
            wait "$pid" || true
            [[ $(state_of train) != ready ]] || "${LEASE[@]}" delete train "${WORLD[@]}"
        fi
        [ "$(find "$CDI" "$SLUICE_DIR/lease" "$SLUICE_DIR/k" -name '*train*' | wc -l)" = 0 ]
    done
    [ "$(state_of held)" = ready ]
}

@test "ten at once: one gets the name" {
    local i
    for i in {1..10}; do
        create train --memory 10Gi >"$PLACE/made.$i" 2>&1 3>&- &
    done
    wait
    [ "$(grep -l 'is made' "$PLACE"/made.* | wc -l)" = 1 ]
    [ "$(grep -l 'there is a lease' "$PLACE"/made.* | wc -l)" = 9 ]
}

@test "a name that is taken" {
    create train --memory 10Gi
    run -1 create train --memory 10Gi
    has 'there is a lease "train" already'
    # By another arbiter in the same folder.
    run -1 "$SLUICE" lease create train --dir "$PLACE/e" "${WORLD[@]}"
    has "by a lease of another arbiter ($SLUICE_DIR/k/train)"
    run -1 "$SLUICE" lease delete train --dir "$PLACE/e" "${WORLD[@]}"
    [ "$(state_of train)" = ready ]
    # By a command.
    "$SLUICE" run --sim h200 --memory 1Gi --name busy -- sleep 1000 3>&- &
    BACKGROUND+=($!)
    eventually tenant_exists busy
    run -1 create busy
    has 'a command of `sluice run` has the name "busy"'
    run -1 "${LEASE[@]}" delete busy "${WORLD[@]}"
    has "is a tenant, but not a lease"
    # By a file that is not ours.
    echo '{}' >"$CDI/sluice.io-lease_other.json"
    run -1 create other
    has "is not a CDI spec that Sluice wrote"
}

@test "wrong command lines" {
    run -2 "${LEASE[@]}"
    has "no action is given"
    run -2 "${LEASE[@]}" crate train
    has 'did you mean "create"?'
    run -2 "${LEASE[@]}" destroy train
    has 'unknown action "destroy": write create, list or delete'
    run -2 "${LEASE[@]}" create
    has 'write `sluice lease create NAME`'
    run -2 "${LEASE[@]}" list train
    has '"train" is an extra word: write `sluice lease list`'
    run -2 "${LEASE[@]}" list --memory 1Gi
    has '--memory works with `sluice lease create` only'
    run -2 "${LEASE[@]}" create train --force
    has '--force works with `sluice lease delete` only'
    local name
    for name in a/b .a a- "a b" "" "$(printf 'a%.0s' {1..41})"; do
        run -1 "${LEASE[@]}" create "$name" "${WORLD[@]}"
        has "is not valid"
    done
    [ ! -e "$SLUICE_DIR" ]
}

@test "places and GPUs that are not there" {
    run -1 "${LEASE[@]}" create train --sim h200 --cdi-dir relative
    has "use an absolute path"
    run -1 "${LEASE[@]}" create train --sim h200 --cdi-dir "$PLACE/with space"
    has "without spaces"
    touch "$PLACE/file"
    run -1 "${LEASE[@]}" create train --sim h200 --cdi-dir "$PLACE/file/cdi"
    has "cannot write to the folder for CDI specs $PLACE/file/cdi"
    run -1 create train --gpu 7
    has 'there is no GPU "7" here'
    run -1 create train --memory 500Gi
    has "500 GiB were asked for"
    create train
    run -1 "${LEASE[@]}" delete trian "${WORLD[@]}"
    has 'did you mean "train"?'
    run -1 "${LEASE[@]}" delete somethingelse "${WORLD[@]}"
    has 'no lease is named "somethingelse": see `sluice lease list`'
    run -0 "${LEASE[@]}" delete train "${WORLD[@]}"
    no_leases
}

@test "a failure after the tenant was made undoes it" {
    mkdir -p "$SLUICE_DIR"
    chmod 700 "$SLUICE_DIR"
    : >"$SLUICE_DIR/lease" # no folder can be made there
    run -1 create train --memory 10Gi
    rm "$SLUICE_DIR/lease"
    no_leases
    nothing_left
}

@test "run refuses container clients" {
    local command
    mkdir "$PLACE/bin"
    for command in docker podman nerdctl sudo; do
        printf '#!/bin/sh\necho started\n' >"$PLACE/bin/$command"
        chmod +x "$PLACE/bin/$command"
    done
    PATH=$PLACE/bin:$PATH
    for command in "docker run x" "podman run x" "nerdctl run x" "$PLACE/bin/docker ps" "sudo docker run x" \
        "sudo -u root -E podman run x" "env A=b docker run x"; do
        # shellcheck disable=SC2086 # words
        run -125 "$SLUICE" run --sim h200 --memory 1Gi -- $command
        has "starts containers outside of \`sluice run\`, so nothing would be limited"
        has "run --device sluice.io/lease=NAME"
    done
    run -0 "$SLUICE" run --sim h200 --memory 1Gi -- sudo -u docker true
    [ "$output" = started ]
}
