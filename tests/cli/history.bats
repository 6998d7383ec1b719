#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `sluice history`: what ended tenants asked for, got and needed, whoever is killed meanwhile.
load common
load waiting
setup() { common_setup; }
teardown() { common_teardown; }

GI=1073741824
CONTEXT=$((500 * 1048576)) # of one process on the simulated H200

# entry NAME FILTER: of the last entry of this name.
entry() { "$SLUICE" history --json "$1" | jq -r ".entries[-1] | $2"; }
ended() { [[ $("$SLUICE" history --json | jq "[.entries[] | select(.name == \"$1\")] | length") == "${2:-1}" ]]; }
entry_is() {
    local got
    got=$(entry "$1" "$2") && [[ $got == "$3" ]] && return 0
    printf 'entry %s, %s: expected %s, but got %s\n' "$1" "$2" "$3" "$got" >&2
    return 1
}
another_arbiter() { local now; now=$(field .arbiter_pid) && [[ $now =~ ^[0-9]+$ && $now != "$1" ]]; }
no_arbiter() { [[ -z $(arbiters_here) ]]; }
end_arbiter() {
    local pid
    for pid in $(arbiters_here); do kill "-$1" "$pid"; done
    eventually no_arbiter
}

@test "nothing has ended yet: a sentence, and nothing is made" {
    run -0 "$SLUICE" history
    has "No tenant has ended in $SLUICE_DIR yet."
    [ ! -e "$SLUICE_DIR" ]
    run -0 "$SLUICE" history --json
    [ "$(jq -c '[.running, .damaged_lines, .entries, .hints]' <<<"$output")" = '[false,0,[],[]]' ]
}

@test "exit codes and signals, of commands that ran and of those that could not" {
    printf '#!/no/such/program\n' >"$PLACE/script"
    chmod +x "$PLACE/script"
    srun --name good -- true
    run -3 srun --name bad -- sh -c 'exit 3'
    run -137 srun --name killed -- sh -c 'kill -KILL $$'
    run -143 srun --name ended -- sh -c 'kill -TERM $$'
    run -127 srun --name missing -- "$PLACE/script"
    for t in good bad killed ended missing; do eventually ended "$t"; done
    entry_is good '"\(.end) \(.exit_code) \(.signal)"' "exit 0 null"
    entry_is bad '"\(.end) \(.exit_code) \(.signal)"' "exit 3 null"
    entry_is killed '"\(.end) \(.exit_code) \(.signal)"' "signal null 9"
    entry_is ended '"\(.end) \(.exit_code) \(.signal)"' "signal null 15"
    entry_is missing '"\(.end) \(.exit_code) \(.signal)"' "exit 127 null"
    run -0 "$SLUICE" history
    has "signal 9"
    [ "$(sed -n '2p;$p' <<<"$output" | awk '{print $3}' | tr '\n' ' ')" = "good missing " ] # the latest is the last
}

@test "the highest memory, to the byte: of one process after the other, and of two at a time" {
    srun --name row --memory 20Gi -- sh -c '"$0" $1 </dev/null; "$0" $2 </dev/null' "$ALLOC" $((3 * GI)) $GI
    eventually ended row
    entry_is row '.gpus[0].memory_peak_bytes' $((3 * GI + CONTEXT))
    entry_is row '.gpus[0].memory_asked_bytes' $((20 * GI))
    mkfifo "$PLACE/in"
    srun --name both --memory 20Gi -- sh -c '"$0" $1 <"$3" & exec "$0" $2 <"$3"' "$ALLOC" $((3 * GI)) $GI "$PLACE/in" >"$PLACE/log" &
    BACKGROUND+=($!)
    exec 8>"$PLACE/in"
    two() { [[ $(grep -c total "$PLACE/log") == 2 ]]; }
    eventually two
    exec 8>&-
    eventually ended both
    entry_is both '.gpus[0].memory_peak_bytes' $((4 * GI + 2 * CONTEXT))
}

@test "memory that was refused does not count, and a tenant that never came to the GPU has none" {
    srun --name full --memory 4Gi -- "$ALLOC" $GI $((10 * GI)) </dev/null
    srun --name idle --memory 4Gi -- true
    eventually ended idle
    entry_is full '.gpus[0].memory_peak_bytes' $((GI + CONTEXT))
    entry_is idle '.gpus[0].memory_peak_bytes' 0
    entry_is full '"\(.user) \(.uid) \(.command)"' "$(id -un) $(id -u) $(basename "$ALLOC")"
}

@test "without a limit: the highest memory too, and no amount asked for" {
    mkfifo "$PLACE/in"
    srun --name open -- sh -c 'exec "$0" "$1" <"$2"' "$ALLOC" $((3 * GI)) "$PLACE/in" >"$PLACE/log" &
    BACKGROUND+=($!)
    exec 8>"$PLACE/in"
    measured() { [[ $(field '.tenants[0].gpus[0].memory_overhead_bytes') == "$CONTEXT" ]]; }
    eventually measured
    echo 512 >&8 # the context is measured by now
    lines() { [[ $(wc -l <"$PLACE/log") == "$1" ]]; }
    eventually lines 3
    exec 8>&-
    eventually ended open
    entry_is open '"\(.gpus[0].memory_peak_bytes) \(.gpus[0].memory_asked_bytes)"' "$((3 * GI + CONTEXT + 512)) null"
}

@test "a sluice run that is killed: how its command ended is unknown" {
    "$SLUICE" run --sim h200 --name orphan --memory 5Gi -- sleep 100 &
    local pid=$!
    BACKGROUND+=("$pid")
    eventually tenant_exists orphan
    kill -KILL "$pid"
    eventually ended orphan
    entry_is orphan '"\(.end) \(.exit_code)"' "unknown null"
    run -0 "$SLUICE" history orphan
    has unknown
}

@test "a process that outlives its command: one entry, when it ends, with the command's exit code" {
    mkfifo "$PLACE/in"
    "$SLUICE" run --sim h200 --name parent --memory 5Gi -- sh -c '"$0" $1 <"$2" >"$3" 2>&1 & until grep -q total "$3"; do sleep 0.02; done; exit 4' "$ALLOC" $GI "$PLACE/in" "$PLACE/log" &
    local runner=$!
    BACKGROUND+=("$runner")
    exec 8>"$PLACE/in"
    local code=0
    wait "$runner" || code=$?
    [ "$code" = 4 ]
    tenant_exists parent
    ! ended parent
    exec 8>&-
    eventually ended parent
    entry_is parent '"\(.exit_code) \(.gpus[0].memory_peak_bytes)"' "4 $((GI + CONTEXT))"
}

@test "the arbiter is killed: start, wait, highest memory and exit code are known to the next one" {
    hold first 100Gi
    "$SLUICE" run --sim h200 --wait --name lives --memory 80Gi -- sh -c '"$0" $1 </dev/null; touch "$2/used"; until [ -e "$2/go" ]; do sleep 0.02; done; exit 6' \
        "$ALLOC" $((5 * GI)) "$PLACE" 2>"$PLACE/err" &
    BACKGROUND+=($!)
    eventually file_has "$PLACE/err" waiting:
    local killed
    killed=$(field .arbiter_pid)
    kill -KILL "$killed"
    eventually another_arbiter "$killed"
    release first
    eventually test -e "$PLACE/used"
    killed=$(field .arbiter_pid)
    local started
    started=$(date +%s%3N)
    kill -KILL "$killed"
    eventually another_arbiter "$killed"
    touch "$PLACE/go"
    eventually ended lives
    entry_is lives '"\(.exit_code) \(.gpus[0].memory_peak_bytes)"' "6 $((5 * GI + CONTEXT))"
    [ "$(entry lives .waited_ms)" -gt 0 ]
    [ "$(entry lives .started_unix_ms)" -le "$started" ]
    eventually ended first
    entry_is first .waited_ms 0
}

@test "a tenant that ends while no arbiter runs: the next one enters it, once" {
    "$SLUICE" run --sim h200 --name lone --memory 5Gi -- sleep 100 &
    local runner=$!
    BACKGROUND+=("$runner")
    eventually tenant_exists lone
    for pid in $(arbiters_here); do kill -STOP "$pid"; done # it does not see the end
    kill -KILL "$runner"
    end_arbiter KILL
    srun -- true
    eventually ended lone
    entry_is lone .end unknown
    [ "$("$SLUICE" history --json lone | jq '.entries | length')" = 1 ]
}

@test "without an arbiter the file is shown, whole or damaged" {
    srun --name one -- true
    srun --name two -- true
    eventually ended two
    end_arbiter TERM
    [ "$(stat -c %a "$SLUICE_DIR/history")" = 600 ]
    run -0 "$SLUICE" history
    has one
    has two
    truncate -s -5 "$SLUICE_DIR/history"
    printf '\nrubbish\n' >>"$SLUICE_DIR/history"
    run -0 "$SLUICE" history
    has one
    [[ $output != *" two "* ]]
    has "2 damaged lines are left out; the rest of $SLUICE_DIR/history is shown"
    [ "$("$SLUICE" history --json | jq .damaged_lines)" = 2 ]
    srun --name three -- true # an arbiter takes over what is left
    eventually ended three
    run -0 "$SLUICE" history
    has one
    has three
    printf '\xff\x00\n' >"$SLUICE_DIR/history"
    srun --name four -- true
    eventually ended four
    end_arbiter KILL
    run -0 "$SLUICE" history
    has one
    has four
    [[ $output != *damaged* ]]
}

# A full disk is in unit.history_file: a process that may write no file gets no shared page either.
@test "a file that cannot be written: nothing is lost while the arbiter lives, and all is written afterwards" {
    srun --name before -- true
    eventually ended before
    hold first 5Gi # the arbiter stays
    local arbiter
    arbiter=$(field .arbiter_pid)
    rm "$SLUICE_DIR/history"
    mkdir "$SLUICE_DIR/history"
    for i in 1 2 3; do srun --name "full$i" -- true; done
    eventually ended full3
    ended before
    rmdir "$SLUICE_DIR/history"
    srun --name after -- true
    eventually ended after
    [ "$(field .arbiter_pid)" = "$arbiter" ]
    [ "$(grep -c ' name=' "$SLUICE_DIR/history")" = 5 ]
    release first
    eventually ended first
}

@test "a name, the last N, and since when" {
    for i in 1 2 3; do srun --name same -- true; eventually ended same "$i"; done
    srun --name other -- true
    eventually ended other
    count() { "$SLUICE" history --json "$@" | jq '.entries | length'; }
    [ "$(count)" = 4 ]
    [ "$(count same)" = 3 ]
    [ "$(count -n 2)" = 2 ]
    [ "$(count --last=1 | tr -d '\n')$("$SLUICE" history --json -n 1 | jq -r .entries[0].name)" = 1other ]
    [ "$(count same --last 99)" = 3 ]
    [ "$(count --since 1d)" = 4 ]
    [ "$(count --since 2020-02-29)" = 4 ]
    [ "$(count --since '2020-02-29 12:30')" = 4 ]
    sed -i 's/name=same/name=sam3/' "$SLUICE_DIR/history" # the arbiter does not read it again
    [ "$(count same)" = 3 ]
    run -0 "$SLUICE" words --ended
    [ "$output" = $'same\nother' ]
}

@test "nothing that ended since then" {
    srun --name old -- true
    eventually ended old
    local second
    second=$(($(entry old .ended_unix_ms) / 1000))
    later() { [ "$(date +%s)" -gt "$second" ]; }
    eventually later
    run -0 "$SLUICE" history --since "$(date '+%F %T')" old
    has "No tenant has ended since that time in $SLUICE_DIR."
}

@test "bad input" {
    wrong() { run -2 "$SLUICE" history "${@:2}"; has "$1"; }
    wrong 'history: "0" is not a number of tenants: write for example --last 10' -n 0
    wrong '"-3" is not a number' --last=-3
    wrong '"3x" is not a number' -n 3x
    wrong '"99999999999999999999" is not a number' -n 99999999999999999999
    wrong '--last needs a value' -n
    wrong '"yesterday" is no time: write 30m, 2h or 1d' --since yesterday
    wrong '"" is no time' --since ''
    wrong '"2026-1-1" is no time' --since 2026-1-1
    wrong 'there is no time "2021-02-29"' --since 2021-02-29
    wrong 'there is no time "2021-01-01 25:00"' --since '2021-01-01 25:00'
    wrong '"2999-01-01" is in the future' --since 2999-01-01
    wrong 'only one name can be given' a b
    wrong 'unknown option "-x"' -x
    run -1 "$SLUICE" history nobody
    has 'no ended tenant is named "nobody": `sluice history` lists them'
    srun --name training -- true
    eventually ended training
    run -1 "$SLUICE" history trainin
    has 'no ended tenant is named "trainin": did you mean "training"?'
    run -2 "$SLUICE" status -n 3
    has 'unknown option "-n"'
}

@test "something else in the place of the file" {
    mkdir -m 700 "$SLUICE_DIR"
    mkfifo "$SLUICE_DIR/history"
    run -1 timeout 20 "$SLUICE" history
    has "history is not a file: remove it"
    srun --name still -- true
    eventually ended still
    [ -f "$SLUICE_DIR/history" ]
}

@test "who asks for far more than it uses is told, within 80 columns" {
    local long=a-name-of-forty-letters-that-is-too-long
    srun --name "$long" --memory 40Gi --cores 30 -- "$ALLOC" $((3 * GI)) </dev/null
    srun --name "$long" --memory 40Gi --cores 30 -- "$ALLOC" $GI </dev/null
    eventually ended "$long" 2
    srun --name fits --memory 2Gi -- "$ALLOC" $GI </dev/null
    eventually ended fits
    run -0 "$SLUICE" history
    has "Asked for far more than was used:"
    has "$long: peak 3.5 of 40.0 GiB"
    [[ $(tr -s ' \n' ' ' <<<"$output") == *"(the highest of 2 runs): --memory 5Gi would do"* ]]
    [[ $output != *"fits: peak"* ]]
    while IFS= read -r line; do [ "${#line}" -le 80 ]; done <<<"$output"
    has "3.5/40.0 GiB"
    run -0 "$SLUICE" history --wide
    has "$long"
    has "COMMAND"
    [ "$("$SLUICE" history --json | jq -c '.hints | map([.name, .about, .runs, .asked_bytes, .used_bytes, .enough_bytes])')" = \
        "[[\"$long\",\"memory\",2,$((40 * GI)),$((3 * GI + CONTEXT)),$((5 * GI))]]" ]
}

@test "GPU time: measured under a limit, and said to be unknown where it was not measured" {
    srun --name held --cores 30 -- "$COMPUTE" steady seconds=2 ns_per_iter=1
    srun --name alone --cores 30:100 -- "$COMPUTE" steady seconds=1 ns_per_iter=1
    eventually ended alone
    entry_is held '.measured_ms > 0 and .gpu_time_ms > 0 and .gpu_time_ms <= .measured_ms' true
    entry_is held '.cores_got_percent > 0 and .cores_got_percent < 40' true
    entry_is held '"\(.cores_request_percent) \(.cores_limit_percent)"' "30 30"
    entry_is alone '"\(.measured_ms) \(.cores_got_percent)"' "0 null"
    entry_is alone '.work_ms > 0' true
}

@test "a lease that is deleted" {
    "$SLUICE" lease create box --sim h200 --memory 5Gi --cdi-dir "$PLACE/cdi"
    "$SLUICE" lease delete box --sim h200 --cdi-dir "$PLACE/cdi"
    eventually ended box
    entry_is box '"\(.end) \(.gpus[0].memory_asked_bytes)"' "removed $((5 * GI))"
}

@test "refused tenants have no entry" {
    run -125 srun --name huge --memory 200Gi -- true
    hold first 100Gi
    run -125 srun --name second --memory 100Gi -- true
    run -124 srun --wait=1s --name third --memory 100Gi -- true
    release first
    eventually ended first
    [ "$("$SLUICE" history --json | jq '.entries | length')" = 1 ]
}

@test "an arbiter of an older version: what is in the file is shown" {
    srun --name before -- true
    eventually ended before
    end_arbiter TERM
    mkfifo "$PLACE/old.in"
    "$OLD_ARBITER" "$SLUICE_DIR/arbiter.sock" <"$PLACE/old.in" &
    BACKGROUND+=($!)
    exec 7>"$PLACE/old.in"
    eventually test -S "$SLUICE_DIR/arbiter.sock"
    run -0 "$SLUICE" history
    has before
    exec 7>&-
}

@test "the keys of the JSON" {
    srun --name one --memory 2Gi -- true
    eventually ended one
    run -0 "$SLUICE" history --json
    [ "$(jq -r 'keys_unsorted | join(" ")' <<<"$output")" = "running dir damaged_lines entries hints" ]
    [ "$(jq -r '.entries[0] | keys_unsorted | join(" ")' <<<"$output")" = \
        "name uid user command started ended started_unix_ms ended_unix_ms waited_ms cores_request_percent cores_limit_percent cores_got_percent work_ms measured_ms gpu_time_ms end exit_code signal gpus" ]
    [ "$(jq -r '.entries[0].gpus[0] | keys_unsorted | join(" ")' <<<"$output")" = "index uuid memory_asked_bytes memory_peak_bytes" ]
    [[ $(jq -r '.entries[0].ended' <<<"$output") =~ ^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$ ]]
}
