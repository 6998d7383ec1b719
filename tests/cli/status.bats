#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What `status`, `set` and `doctor` say.
load common
setup() { common_setup; }
teardown() { common_teardown; }

# tenant NAME OPTIONS... -- BYTES: runs in the background, holding BYTES.
tenant() {
    local name=$1 fd
    shift
    mkfifo "$PLACE/$name.in"
    "$SLUICE" run --name "$name" "${@:1:$#-2}" -- sh -c 'exec "$0" "$1" <"$2"' "$ALLOC" "${@: -1}" \
        "$PLACE/$name.in" >"$PLACE/$name.log" &
    BACKGROUND+=($!)
    exec {fd}>"$PLACE/$name.in"
    HOLDS+=("$fd")
    eventually file_has "$PLACE/$name.log" total
}

@test "no arbiter: says so, exits 0, and JSON has empty lists" {
    run -0 "$SLUICE" status
    has "No arbiter is running in $SLUICE_DIR"
    run -0 "$SLUICE" status --json
    [ "$(jq -c '[.running, .gpus, .tenants, .audit, .arbiter_pid]' <<<"$output")" = '[false,[],[],[],null]' ]
    [ ! -e "$SLUICE_DIR" ]
}

@test "JSON is JSON whatever the names, and one line ends it" {
    export SLUICE_DIR=$PLACE/$'\xff\x1b[31m"'
    "$SLUICE" status --json >"$PLACE/out"
    python3 -c 'import json,sys; json.loads(open(sys.argv[1], "rb").read().decode("utf-8"))' "$PLACE/out"
    [ -n "$(tail -n 1 "$PLACE/out")" ]
}

@test "a simulated world says that it is one, also where only its directory is named" {
    tenant a --sim h200 --memory 2Gi -- 512
    run -0 "$SLUICE" status
    has "Simulated GPUs (h200)"
    [ "$(field .simulated)" = h200 ]
}

@test "JSON has what was asked for and what is used" {
    tenant a --sim h200 --memory 2Gi --cores 30:60 --priority high -- 1048576
    run -0 "$SLUICE" status --json
    [ "$(jq -c '.running' <<<"$output")" = true ]
    [ "$(jq -c '.gpus | length' <<<"$output")" = 1 ]
    [ "$(jq -c '.gpus[0].memory_promised_bytes' <<<"$output")" = 2147483648 ]
    [ "$(jq -c '.gpus[0].cores_promised_percent' <<<"$output")" = 30 ]
    [ "$(jq -c '.tenants[0] | [.name, .priority, .cores_request_percent, .cores_limit_percent, .processes]' \
        <<<"$output")" = '["a","high",30,60,1]' ]
    [ "$(jq -c '.tenants[0].gpus[0] | [.index, .memory_limit_bytes, .memory_used_bytes]' <<<"$output")" = \
        '[0,2147483648,1048576]' ]
}

asked() { field '.tenants[] | select(.name == "a") | .compute_asked'; }
mode() { field '.gpus[0].compute'; }
is() { [ "$("$1")" = "$2" ]; }

@test "--compute: auto and slices leave a GPU with slices, turns give it turns; status says which and why" {
    for how in auto slices; do
        tenant "$how" --sim h200 --compute "$how" -- 512
    done
    run -0 "$SLUICE" status
    has "NVIDIA H200"
    [[ $output != *"is shared by turns"* ]]
    [ "$(field '[.tenants[] | .name == .compute_asked] | all')" = true ]
    tenant a --sim h200 --compute turns -- 512
    eventually is mode turns
    run -0 "$SLUICE" status --wide
    grep -Eq '^ *GPU +NAME .* SHARED BY +UUID$' <<<"$output"
    grep -Eq '^ *0 +NVIDIA H200 .* turns +GPU-' <<<"$output"
    run -0 "$SLUICE" status
    has "GPU 0 is shared by turns: a tenant asked for turns"
    [ "$(asked)" = turns ]
}

@test "--compute turns is kept by the next arbiter" {
    tenant a --sim h200 --compute turns -- 512
    kill -KILL "$(arbiters_here)"
    eventually is asked turns
    eventually is mode turns
}

@test "a driver that refuses: turns, and the reason" {
    SLUICE_SIM_FAULT=groups=refused "$SLUICE" run --sim h200 --name a --cores 50 -- \
        "$COMPUTE" steady seconds=600 >/dev/null &
    BACKGROUND+=($!)
    eventually is mode turns
    run -0 "$SLUICE" status
    has "GPU 0 is shared by turns: the driver refuses to set time slices (status 0x56)"
    [ "$(field '.gpus[0].compute_reason')" = "the driver refuses to set time slices (status 0x56)" ]
}

@test "the table fits 80 columns, lines up and has no colours in a pipe; --wide shows all of it" {
    long=a-name-of-as-many-letters-as-are-allowed
    tenant a --sim h200x2 --gpu 0,1 --memory 2Gi --cores 30 -- 1048576
    tenant $long --sim h200x2 --memory 100Gi --cores 12.5:100 --priority low -- 512
    run -0 "$SLUICE" status
    [[ $output != *$'\033'* ]]
    [ "$(awk 'length > 80' <<<"$output")" = "" ]
    has "TENANT"
    has "  a-name-of-"
    has "~ "
    [[ $output != *"$long"* ]]
    has "\`sluice status --wide\` shows all of it"
    has "12.5:100"
    [ "$(awk '$1 == "a" { print $8 }' <<<"$output")" = 0.0% ]
    run -0 "$SLUICE" status --wide
    has "  $long  "
    [[ $output != *"~"* ]]
    [ "$(awk '$1 == "a" { print $9 }' <<<"$output")" = 0.0% ]
    # Every line of the tenants' table has its CORES column end where the title's does.
    title=$(grep TENANT <<<"$output" | grep PROCS)
    prefix=${title%%PROCS*}PROCS
    column=${#prefix}
    rows=$(grep -E "^  (a|$long) " <<<"$output")
    [ "$(wc -l <<<"$rows")" -eq 2 ]
    while IFS= read -r row; do [[ ${row:column-1:1} == [0-9] && ${row:column:1} == ' ' ]]; done <<<"$rows"
}

@test "one tenant: what it has, and its processes, in 80 columns and as JSON" {
    tenant a --sim h200x2 --gpu 0,1 --memory 2Gi --cores 30:60 -- 1048576
    tenant neighbour --sim h200x2 --memory 1Gi -- 512
    run -0 "$SLUICE" status a
    [ "${lines[0]}" = "Simulated GPUs (h200x2)" ]
    [ "${lines[1]}" = "Tenant a" ]
    has "limit 2.0 GiB"
    has "30:60% asked for"
    [[ $output != *neighbour* ]]
    pid=$(awk '/^ *PROCESS +PROGRAM/ { getline; print $1 }' <<<"$output")
    [ "$(cat "/proc/$pid/comm")" = "$(basename "$ALLOC" | cut -c1-15)" ]
    [ "$(awk 'length > 80' <<<"$output")" = "" ]
    run -0 "$SLUICE" status --json a
    [ "$(jq -c '[.running, .simulated, .tenant.name, .processes_reason, .tenants]' <<<"$output")" = \
        '[true,"h200x2","a",null,null]' ]
    [ "$(jq -c '.processes | map([.pid, .command, (.gpus | map([.index, .memory_used_bytes]))])' <<<"$output")" = \
        "[[$pid,\"$(cat "/proc/$pid/comm")\",[[0,1048576],[1,0]]]]" ]
    # An element of the list of all tenants, key for key.
    [ "$(jq -c '.tenant | keys' <<<"$output")" = "$(field '.tenants[0] | keys | tojson')" ]
}

@test "one tenant: a name that is wrong, with the name that was meant and the command that lists them" {
    run -1 "$SLUICE" status train
    has "so there is no tenant \"train\""
    [ ! -e "$SLUICE_DIR" ]
    tenant train --sim h200 -- 512
    run -1 "$SLUICE" status trian
    has 'status: no tenant is named "trian": did you mean "train"? `sluice status` lists the tenants'
    name=$(printf 'abcdefgh%.0s' {1..5})i # one letter longer than any tenant's
    for how in --json --watch; do
        run -1 "$SLUICE" status "$name" $how
        [ "$output" = "sluice: status: no tenant is named \"$name\": \`sluice status\` lists the tenants" ]
    done
    run -2 "$SLUICE" status train other
    has "only one tenant can be named"
}

@test "one tenant: an arbiter that is too old to list processes is no tenant without processes" {
    mkdir -m 700 "$SLUICE_DIR"
    mkfifo "$PLACE/old.in"
    "$OLD_ARBITER" "$SLUICE_DIR/arbiter.sock" <"$PLACE/old.in" &
    pid=$!
    BACKGROUND+=("$pid")
    exec {fd}>"$PLACE/old.in"
    HOLDS+=("$fd")
    eventually test -S "$SLUICE_DIR/arbiter.sock"
    run -0 "$SLUICE" status train
    has "Tenant train"
    has "Processes:  not known: the arbiter (process $pid) is too old"
    run -0 "$SLUICE" status train --json
    [ "$(jq -c '[.tenant.name, .processes]' <<<"$output")" = '["train",null]' ]
    [[ $(jq -r .processes_reason <<<"$output") == "the arbiter (process $pid) is too old"* ]]
}

@test "colours on a terminal, none with NO_COLOR" {
    command -v script >/dev/null || skip "no script(1)"
    "$SLUICE" run --sim h200 -- sleep 30 &
    BACKGROUND+=($!)
    eventually test -S "$SLUICE_DIR/arbiter.sock"
    run -0 env TERM=xterm script -qec "$SLUICE status" /dev/null
    [[ $output == *$'\033['* ]]
    run -0 env TERM=xterm NO_COLOR=1 script -qec "$SLUICE status" /dev/null
    [[ $output != *$'\033['* ]]
}

@test "--watch goes on until it is interrupted" {
    "$SLUICE" status --watch >"$PLACE/log" &
    pid=$!
    BACKGROUND+=("$pid")
    twice() { [ "$(grep -c 'No arbiter' "$PLACE/log")" -ge 2 ]; }
    eventually twice
    kill -TERM "$pid"
    code=0
    wait "$pid" || code=$?
    [ "$code" -eq 143 ]
}

@test "set: grows at once, shrinks below use with a remark" {
    tenant a --sim h200 --memory 1Gi -- 536870912
    run -0 "$SLUICE" set a --memory 2Gi
    has "a: memory 1.0 GiB -> 2.0 GiB"
    [ "$(field '.tenants[0].gpus[0].memory_limit_bytes')" = 2147483648 ]
    run -0 "$SLUICE" set a --memory 256Mi --cores 20:50 --priority low
    has "a: memory 2.0 GiB -> 256 MiB"
    has "a: cores nothing asked -> 20:50%"
    has "a: priority normal -> low"
    has "more than its new limit"
    [ "$(field '.tenants[0] | [.priority, .cores_request_percent] | @csv')" = '"low",20' ]
    [ "$(field '.tenants[0].gpus[0].memory_used_bytes')" = 536870912 ]
}

@test "a tenant that is gone is gone from the list" {
    run -0 "$SLUICE" run --sim h200 --name brief -- true
    run -0 "$SLUICE" status
    [[ $output != *brief* ]]
}

@test "completion knows the tenants" {
    "$SLUICE" run --sim h200 --name findme -- sleep 30 &
    BACKGROUND+=($!)
    eventually tenant_exists findme
    run -0 "$SLUICE" words --tenants
    [ "$output" = findme ]
}

@test "doctor: all is well with simulated cards, and nothing is left" {
    # Others may run a doctor too: its own process ID is in the names of its scratch directories.
    run -0 bash -c 'echo "process $$"; exec "$0" doctor --sim h200x2' "$SLUICE"
    pid=$(sed -n 's/^process //p' <<<"$output")
    [ -n "$pid" ]
    has "\`sluice run\` works here"
    has "GPU 1: NVIDIA H200"
    has "CUDA "
    [[ $output != *problem* ]]
    run ! compgen -G "/tmp/sluice-doctor-$pid-*"
    [ ! -e "$SLUICE_DIR" ]
}

@test "doctor: the licence of a vGPU, where the driver tells" {
    vgpu() {
        printf 'device = h200\nvgpu = %s\n' "$1" >"$BATS_TEST_TMPDIR/guest"
        "$SLUICE" doctor --sim "$BATS_TEST_TMPDIR/guest" | grep '  vgpu  ' || true
    }
    run -0 vgpu licensed
    [[ $output == ok* ]]
    has "GPU 0 is a vGPU, licensed for Simulated Compute Server until 2031-01-31"
    run -0 vgpu unlicensed
    [[ $output == warning* ]]
    has "GPU 0 is a vGPU without a licence for Simulated Compute Server: its driver slows it down"
    run -0 vgpu untold
    [[ $output == skipped* ]]
    has "its driver does not tell whether it has a licence"
    run -0 vgpu no
    [ -z "$output" ]
    printf 'device = h200\nvgpu = perhaps\n' >"$BATS_TEST_TMPDIR/guest"
    run "$SLUICE" doctor --sim "$BATS_TEST_TMPDIR/guest"
    has "no, licensed, unlicensed or untold"
}

# What doctor measured. On a machine that is too busy it measures nothing, says so, and is asked again.
slices() {
    local line i
    for ((i = 0; i < 20; i++)); do
        line=$("$SLUICE" doctor --sim h200 | grep '  slices  ')
        [[ $line == *"varied too much"* ]] || break
    done
    echo "$line"
}

@test "doctor measures whether time slices have an effect: they do" {
    run -0 slices
    [[ $output =~ ^ok\ .*GPU\ 0:\ time\ slices\ work\ \(1\ :\ [234567]\.[0-9]\),\ channels\ can\ be\ taken\ off$ ]]
    [ ! -e "$SLUICE_DIR" ]
}

@test "doctor: a driver that refuses, or accepts and does nothing, is a warning with the reason" {
    export SLUICE_SIM_FAULT=groups=refused
    run -0 slices
    [[ $output == warning* ]]
    has "GPU 0: the driver refuses to set time slices (status 0x56): GPU time is shared by turns"
    export SLUICE_SIM_FAULT=groups=inert
    run -0 slices
    [[ $output == warning* ]]
    [[ $output =~ "GPU 0: the driver accepts time slices, and they have no effect (1 : "[0-9.]+"): GPU time is shared by turns" ]]
    export SLUICE_SIM_FAULT=groups=inert:slice
    run -0 slices
    [[ $output == warning* ]]
    has "GPU 0: channels can be taken off, but time slices have no effect (1 : "
    export SLUICE_SIM_FAULT=groups=refused:disable
    run -0 slices
    [[ $output == warning* ]]
    has "channels cannot be taken off (status 0x56): GPU time is shared by turns"
    run -0 "$SLUICE" doctor --sim h200
    has "\`sluice run\` works here"
}

@test "doctor remembers what it measured, for this card and this driver" {
    mkdir -m 700 "$SLUICE_DIR"
    run -0 slices
    has "time slices work"
    [[ $output != *earlier* ]]
    good=$(cat "$SLUICE_DIR/slices.txt")
    # Controls of which one works and one does not: probably the host was busy. It measures again next time.
    rm "$SLUICE_DIR/slices.txt"
    SLUICE_SIM_FAULT=groups=inert:slice run -0 slices
    [ ! -e "$SLUICE_DIR/slices.txt" ]
    printf '%s\n' "$good" >"$SLUICE_DIR/slices.txt"
    export SLUICE_SIM_FAULT=groups=refused
    run -0 slices
    has "channels can be taken off (measured earlier)"
    # Of another driver, of another card, cut short, not ours, nonsense: measured again.
    for spoil in 's/driver [0-9.]*/driver 1.2.3/' 's/gpu GPU-/gpu GPU-f/' '/^end$/d' '1s/1$/2/' \
        's/verdict 0/verdict 9/' 's/status 0$/status 0 and more/' 's/off 1/off 2/'; do
        sed "$spoil" <<<"$good" >"$SLUICE_DIR/slices.txt"
        [ "$(cat "$SLUICE_DIR/slices.txt")" != "$good" ]
        run -0 slices
        has "the driver refuses to set time slices (status 0x56)"
        [[ $output != *earlier* ]]
        run -0 slices
        has "(measured earlier)"
    done
    ! grep -q 'driver 1.2.3' "$SLUICE_DIR/slices.txt"
}

@test "doctor leaves no process behind when it is killed while it measures" {
    "$SLUICE" doctor --sim h200 >/dev/null &
    pid=$!
    BACKGROUND+=("$pid")
    spinners() { pgrep -P "$pid" -f "sluice spin" >"$PLACE/spinners"; }
    eventually spinners
    # Where its scratch directories are: nobody removes them after SIGKILL.
    left=$(tr '\0' '\n' <"/proc/$(head -n 1 "$PLACE/spinners")/environ" |
        sed -nE 's,^SLUICE_(ATTACH|SIM_STATE)=(/tmp/sluice-doctor-[^/]*)/.*,\2,p')
    kill -KILL "$pid"
    all_gone() { local p; for p in $(cat "$PLACE/spinners"); do [ ! -d "/proc/$p" ] || return 1; done; }
    eventually all_gone
    [[ $left == /tmp/sluice-doctor-"$pid"-* ]]
    for dir in $left; do rm -rf "$dir"; done
}

@test "doctor: without a driver it says what to do and exits 1" {
    [ ! -e /proc/driver/nvidia/version ] || skip "there is a driver here"
    run -1 "$SLUICE" doctor
    has "kernel module is not loaded"
    has "does not work here: 1 problem above."
    [ "$(grep -c '^problem' <<<"$output")" = 1 ]
    [ "$(grep -c '^skipped .*not checked: there is no driver$' <<<"$output")" = 3 ]
    run -1 "$SLUICE" doctor --json
    [ "$(jq -c '[.checks[] | select(.result == "problem").name]' <<<"$output")" = '["driver"]' ]
    [ "$(jq -c '[.ok, (.checks | map(select(.result == "problem" and .cure == null)) | length)]' <<<"$output")" = '[false,0]' ]
}

@test "doctor: a broken libsluice and a directory that cannot be" {
    echo nonsense >"$PLACE/libsluice.so"
    run -1 "$SLUICE" doctor --sim h200 --libsluice "$PLACE/libsluice.so"
    has "cannot be loaded"
    touch "$PLACE/file"
    run -1 "$SLUICE" --dir "$PLACE/file" doctor --sim h200
    has "is not a directory"
}
