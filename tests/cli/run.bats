#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `sluice run` is as good as running the command: its code, its signals, its output, its input.
load common
setup() { common_setup; }
teardown() { common_teardown; }

srun() { "$SLUICE" run --sim h200 "$@"; }

@test "passes the exit code through" {
    run -0 srun -- true
    run -1 srun -- false
    run -42 srun -- sh -c 'exit 42'
    run -0 srun true
    nothing_left
}

@test "a command killed by a signal kills us by the same signal" {
    run bash -c '"$SLUICE" run --sim h200 -- sh -c "kill -TERM \$\$"; echo "code $?"'
    has "code 143"
    # Not just the code: the kernel must say "signalled", or shells and CI believe otherwise.
    run -0 "$TERMINAL" -- "$SLUICE" run --sim h200 -- sh -c 'kill -INT $$'
    has "signal 2"
    nothing_left
}

@test "arguments, input and output are the command's own" {
    run -0 srun -- printf '%s|' a 'b c' -- --memory ''
    [ "$output" = 'a|b c|--|--memory||' ]
    run -0 bash -c 'echo hello | "$SLUICE" run --sim h200 -- cat'
    [ "$output" = hello ]
    run -0 --separate-stderr srun -- sh -c 'echo out; echo err >&2'
    [ "$output" = out ]
    [ "$stderr" = err ]
}

@test "what the command finds in its environment" {
    run -0 env LD_PRELOAD= LD_LIBRARY_PATH=/somewhere "$SLUICE" run --sim h200 --name me -- env
    [[ $output =~ SLUICE_ATTACH=$SLUICE_DIR/t/me.sock ]]
    [[ $output =~ LD_PRELOAD=[^$'\n']*/libsluice.so ]]
    [[ $output =~ CUDA_VISIBLE_DEVICES=GPU- ]]
    [[ $output =~ SLUICE_SIM=h200 ]]
    [[ $output =~ LD_LIBRARY_PATH=[^$'\n']*/sim:/somewhere ]]
    # A limit is never in the environment: the command could rewrite it.
    [[ ! $output =~ 1073741824 ]]
}

@test "a library the user preloads stays, and ours is not doubled in a nested run" {
    run -0 bash -c 'LD_PRELOAD=${RUNTIME}libm.so.6 "$SLUICE" run --sim h200 -- printenv LD_PRELOAD'
    [[ $output =~ ^"$RUNTIME"[^:]*/libsluice.so:libm.so.6$ ]]
    run -0 srun -- "$SLUICE" run --sim h200 -- printenv LD_PRELOAD
    [[ $output =~ ^"$RUNTIME"[^:]*/libsluice.so$ ]]
}

@test "no descriptor of ours leaks into the command" {
    # No pipeline: while the shell makes one, it holds its ends for a moment.
    plain=$(sh -c 'cd /proc/$$/fd && echo *')
    [ "$(srun -- sh -c 'cd /proc/$$/fd && echo *')" = "$plain" ]
}

@test "signals sent to sluice run reach the command once" {
    for sig in INT TERM HUP QUIT USR1 USR2 WINCH CONT; do
        rm -f "$PLACE/ready"
        # A shell starts background jobs with SIGINT and SIGQUIT ignored; a person's terminal does not.
        env --default-signal "$SLUICE" run --sim h200 -- bash -c "trap 'echo got $sig; n=1' $sig; touch '$PLACE/ready'
            until [ \"\$n\" ]; do sleep 0.02; done; sleep 0.2" >"$PLACE/log" &
        pid=$!
        BACKGROUND+=("$pid")
        eventually test -e "$PLACE/ready"
        kill -"$sig" "$pid"
        wait "$pid"
        [ "$(grep -c "got $sig" "$PLACE/log")" -eq 1 ]
    done
}

@test "Ctrl-C on a terminal reaches the command once and leaves nothing behind" {
    run -0 "$TERMINAL" wait READY send '\003' -- "$SLUICE" run --sim h200 -- bash -c '
        trap "echo GOT-INT; n=1" INT; echo READY
        until [ "$n" ]; do sleep 0.02; done; sleep 0.3; exit 7'
    [ "$(grep -c GOT-INT <<<"$output")" -eq 1 ]
    has "exit 7"
    nothing_left
}

@test "Ctrl-C ends a command that does not mind, and us by the same signal" {
    run -0 "$TERMINAL" wait READY send '\003' -- "$SLUICE" run --sim h200 -- sh -c 'echo READY; exec sleep 30'
    has "signal 2"
    nothing_left
}

@test "Ctrl-Z stops the job, fg continues it" {
    run -0 "$TERMINAL" send 'PS1=; stty -echo\n' \
        send "$SLUICE run --sim h200 -- sh -c 'echo BE''GUN; sleep 1; echo FIN''ISHED'\\n" \
        wait BEGUN send '\032' wait Stopped send 'fg\n' wait FINISHED send 'echo code=$?; exit 5\n' \
        -- bash --norc --noprofile -i
    has "code=0"
    has "exit 5"
}

@test "a pipeline stays one job" {
    run -0 bash -c 'set -o pipefail; "$SLUICE" run --sim h200 -- seq 3 | tail -1'
    [ "$output" = 3 ]
}

@test "when sluice run is killed, the command runs on as its tenant" {
    mkfifo "$PLACE/in"
    srun --name orphan --memory 1Gi -- sh -c 'exec "$0" 1048576 <"$1"' "$ALLOC" "$PLACE/in" >"$PLACE/log" &
    pid=$!
    BACKGROUND+=("$pid")
    exec 8>"$PLACE/in"
    eventually file_has "$PLACE/log" total
    kill -KILL "$pid"
    wait "$pid" || true
    sleep 0.3
    tenant_exists orphan
    [ "$(field '.tenants[0].processes')" = 1 ]
    exec 8>&-
    nothing_left
}

@test "the memory limit is what the program sees and gets" {
    run -0 srun --memory 4Gi -- "$ALLOC" 1073741824 4294967296 104857600 </dev/null
    [ "${lines[0]}" = ok ]
    [ "${lines[1]}" = "error 2" ]
    [ "${lines[2]}" = ok ]
    [ "${lines[3]}" = "total 4294967296" ]
    nothing_left
}

@test "memory that is rounded is remarked on, in one line" {
    run -0 --separate-stderr srun --memory 1000000001 -- true
    [ "${#stderr_lines[@]}" -eq 1 ]
    [[ $stderr == *"units of 512 bytes"* ]]
    run -0 --separate-stderr srun --memory 1Gi --cores 30 --priority high -- true
    [ -z "$stderr" ]
}

@test "a name that is taken" {
    srun --name same -- sleep 30 &
    BACKGROUND+=($!)
    eventually tenant_exists same
    run -125 srun --name same -- true
    has 'named "same" already runs'
    has "choose another --name"
}

@test "several GPUs" {
    run -0 "$SLUICE" run --sim h200x4 --gpu 2,0 -- printenv CUDA_VISIBLE_DEVICES
    [ "$(tr , '\n' <<<"$output" | sort -u | wc -l)" -eq 2 ]
}

uuid_of() { # CARDS INDEX
    "$SLUICE" run --sim "$1" --gpu "$2" -- printenv CUDA_VISIBLE_DEVICES
}

@test "CUDA_VISIBLE_DEVICES chooses when --gpu does not" {
    local zero one two
    zero=$(uuid_of h200x4 0) one=$(uuid_of h200x4 1) two=$(uuid_of h200x4 2)
    for visible in 1 "$one" "${one:0:12}" 1,2 " 1, 2" "1,nonsense,0"; do
        export CUDA_VISIBLE_DEVICES=$visible
        run -0 "$SLUICE" run --sim h200x4 -- printenv CUDA_VISIBLE_DEVICES
        [ "$output" = "$one" ]
    done
    run -0 --separate-stderr "$SLUICE" run --sim h200x4 --gpu 2 -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "$two" ]
    for visible in "" -1 "-1,0"; do
        CUDA_VISIBLE_DEVICES=$visible run -125 "$SLUICE" run --sim h200x4 -- true
        has "hides every GPU"
    done
    CUDA_VISIBLE_DEVICES=9,0 run -125 "$SLUICE" run --sim h200x4 -- true
    has 'no GPU "9"'
    unset CUDA_VISIBLE_DEVICES
    run -0 "$SLUICE" run --sim h200x4 -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "$zero" ]
}

@test "without --gpu: one that has room" {
    local zero one two
    zero=$(uuid_of h200x4 0) one=$(uuid_of h200x4 1) two=$(uuid_of h200x4 2)
    "$SLUICE" run --sim h200x4 --gpu 0 --memory 100Gi --name big -- sleep 100 &
    BACKGROUND+=($!)
    "$SLUICE" run --sim h200x4 --gpu 1 --cores 90 --name busy -- sleep 100 &
    BACKGROUND+=($!)
    eventually tenant_exists big
    eventually tenant_exists busy
    run -0 "$SLUICE" run --sim h200x4 --memory 60Gi --cores 10 -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "$one" ]
    run -0 "$SLUICE" run --sim h200x4 --memory 60Gi --cores 50 -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "$two" ]
    run -0 "$SLUICE" run --sim h200x4 --memory 10Gi --cores 50 -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "$zero" ]
    CUDA_VISIBLE_DEVICES=0,1 run -125 "$SLUICE" run --sim h200x4 --memory 60Gi --cores 50 -- true
    has "none of 2 GPUs has room for this tenant (left: GPU 0 has "
    has "GPU 1 has "
    has " and 10 %"
    CUDA_VISIBLE_DEVICES=0 run -125 "$SLUICE" run --sim h200x4 --memory 60Gi -- true
    has "GPU 0"
    has "left of"
    run -125 "$SLUICE" run --sim h200x4 --memory 600Gi -- true
    has "600 GiB were asked for, but no GPU that may be used is so large"
}

@test "without --gpu and --memory: a GPU that is promised to others is passed over" {
    local one
    one=$(uuid_of h200x2 1)
    "$SLUICE" run --sim h200x2 --gpu 0 --memory 100% --name all -- sleep 100 &
    BACKGROUND+=($!)
    eventually tenant_exists all
    run -0 "$SLUICE" run --sim h200x2 -- printenv CUDA_VISIBLE_DEVICES
    [ "$output" = "$one" ]
    run -125 "$SLUICE" run --sim h200x2 --gpu 0 -- true
    has "nothing left"
    "$SLUICE" run --sim h200x2 --gpu 1 --memory 100% --name rest -- sleep 100 &
    BACKGROUND+=($!)
    eventually tenant_exists rest
    run -125 "$SLUICE" run --sim h200x2 -- true
    has "none of 2 GPUs has room for this"
}

@test "closed standard descriptors do no harm" {
    run -0 bash -c '"$SLUICE" run --sim h200 -- sh -c "exit 0" <&- >&- 2>&-'
}
