#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Bad input and bad days: each a clear error with the cure, an exit code that says so, nothing left.
load common
setup() { common_setup; }
teardown() { nothing_left_status=0; nothing_left || nothing_left_status=$?; common_teardown; return $nothing_left_status; }

refused() { run -125 "$SLUICE" run --sim h200 "$@" -- touch "$PLACE/ran"; [ ! -e "$PLACE/ran" ]; }

@test "--memory 0" {
    refused --memory 0
    has "is zero"
}

@test "--memory 10: bytes, not gigabytes" {
    refused --memory 10
    has 'memory "10" is less than 512 bytes'
    has "10Gi"
    refused --memory 511
    run -0 "$SLUICE" run --sim h200 --memory 512 -- true
}

@test "--memory -1" {
    refused --memory -1
    has "write for example 10Gi"
}

@test "--memory 10Gb" {
    refused --memory 10Gb
    has '"10Gi"'
}

@test "--memory 1e30" {
    refused --memory 1e30
    has "is not an amount"
}

@test "--memory larger than anything" {
    refused --memory 99999999999999999999Gi
    refused --memory 9000000Ti
    has "more than any GPU has"
}

@test "--memory 101%" {
    refused --memory 101%
    has "1% to 100%"
}

@test "--memory 200Gi on a 141 GB card" {
    refused --memory 200Gi
    has "200 GiB were asked for"
    has "ask for less"
}

@test "--compute with a word that it does not know" {
    for how in fast '' Slices slices,turns; do
        refused --compute "$how"
        has "compute \"$how\" is not known: write auto, slices or turns"
    done
}

@test "--cores 0, 101, 50:20, ten" {
    for cores in 0 101 50:20 ten 30: :30 ''; do
        refused --cores "$cores"
        has "cores"
    done
}

@test "--priority urgent" {
    refused --priority urgent
    has "high, normal or low"
}

@test "one GPU named twice, by index and by its UUID" {
    refused --gpu 0,0
    has "named twice"
    uuid=$("$SLUICE" run --sim h200 -- printenv CUDA_VISIBLE_DEVICES)
    refused --gpu "0,$uuid"
    has "named twice"
}

@test "a GPU that is not there" {
    refused --gpu 7
    has 'no GPU "7"'
    refused --gpu GPU-00000000-0000-0000-0000-000000000000
    has "this machine has"
    refused --gpu 0,
    has "empty name"
}

@test "an unknown simulated card" {
    run -125 "$SLUICE" run --sim h2000 -- true
    has "h200"
    run -125 "$SLUICE" run --sim ./no/such/file -- true
    has "no/such/file"
    run -125 "$SLUICE" run --sim '' -- true
    has "--sim h200"
}

@test "a name that does not do" {
    refused --name ''
    refused --name ../../etc/passwd
    has "is not valid"
    refused --name "$(printf 'x%.0s' {1..100})"
    name=$(printf 'abcdefgh%.0s' {1..5})i # one letter too long
    refused --name "$name"
    has "\"$name\""
}

@test "no command" {
    run -125 "$SLUICE" run --sim h200 --memory 1Gi
    has "no command is given"
    run -125 "$SLUICE" run --sim h200 --
    has "no command is given"
}

@test "a command that is not there, or no program" {
    run -127 "$SLUICE" run --sim h200 -- no-such-command-here
    has "not found"
    run -127 "$SLUICE" run --sim h200 -- ./no/such/file
    touch "$PLACE/plain"
    run -126 "$SLUICE" run --sim h200 -- "$PLACE/plain"
    has "Permission denied"
    run -126 "$SLUICE" run --sim h200 -- "$PLACE"
}

@test "no driver" {
    [ ! -e /proc/driver/nvidia/version ] || skip "there is a driver here"
    run -125 "$SLUICE" run -- touch "$PLACE/ran"
    has "no NVIDIA driver"
    has "--sim h200"
    [ ! -e "$PLACE/ran" ]
}

@test "a driver whose NVML is broken" {
    mkdir "$PLACE/lib"
    cp "$EMPTY_LIBRARY" "$PLACE/lib/libnvidia-ml.so.1"
    LD_LIBRARY_PATH=$PLACE/lib run -125 "$SLUICE" run -- true
    has "libnvidia-ml"
    echo "not a library" >"$PLACE/lib/libnvidia-ml.so.1"
    LD_LIBRARY_PATH=$PLACE/lib run -125 "$SLUICE" run -- true
    has "libnvidia-ml"
}

@test "libsluice that is not there" {
    refused --libsluice "$PLACE/libsluice.so"
    has "libsluice.so"
    mkdir "$PLACE/a b"
    touch "$PLACE/a b/libsluice.so"
    refused --libsluice "$PLACE/a b/libsluice.so"
    has "LD_PRELOAD cannot express"
}

@test "libsluice that is something else: nothing runs without its limits" {
    refused --libsluice "$BATS_TEST_FILENAME"
    has "is not a libsluice.so"
    refused --libsluice "$EMPTY_LIBRARY"
    has "is not a libsluice.so"
    run -0 "$SLUICE" run --sim h200 --libsluice "$SLUICE_BUILD/lib/libsluice.so" -- true
}

@test "a directory whose path is too long for a socket" {
    long=$PLACE/$(printf 'd%.0s' {1..100})
    run -125 "$SLUICE" --dir "$long" run --sim h200 -- true
    has "too long"
    has "--dir"
    [ ! -e "$long" ]
}

@test "a directory that is a file, a stranger's, or everyone's" {
    touch "$PLACE/file"
    run -125 "$SLUICE" --dir "$PLACE/file" run --sim h200 -- true
    has "not a directory"
    mkdir -m 777 "$PLACE/open"
    run -125 "$SLUICE" --dir "$PLACE/open" run --sim h200 -- true
    has "chmod 700"
    [ "$EUID" -eq 0 ] || skip "only root can make a stranger's directory"
    mkdir -m 755 "$PLACE/other"
    chown 12345 "$PLACE/other"
    run -125 "$SLUICE" --dir "$PLACE/other" run --sim h200 -- true
    has "another user (uid 12345)"
    ln -s "$PLACE/other" "$PLACE/link"
    chown -h 12345 "$PLACE/link"
    run -125 "$SLUICE" --dir "$PLACE/link" run --sim h200 -- true
    has "another user (uid 12345)"
    run -1 "$SLUICE" --dir "$PLACE/other" status
    has "another user"
}

# as_nobody COMMAND...: without root's rights to read everything.
as_nobody() {
    if [ "$EUID" -ne 0 ]; then "$@"; else setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; fi
}

@test "a directory that may not be read or written" {
    [ "$EUID" -ne 0 ] || command -v setpriv >/dev/null || skip "no setpriv"
    as_nobody test -x "$SLUICE" || skip "the build is not readable for others"
    chmod 755 "$PLACE"
    mkdir "$PLACE/locked"
    [ "$EUID" -ne 0 ] || chown 65534 "$PLACE/locked"
    chmod 000 "$PLACE/locked"
    run -125 as_nobody "$SLUICE" --dir "$PLACE/locked" run --sim h200 -- true
    has "Permission denied"
    has "--dir"
    run -125 as_nobody "$SLUICE" --dir "$PLACE/locked/deeper" run --sim h200 -- true
    has "Permission denied"
    has "--dir"
    run -1 as_nobody "$SLUICE" --dir "$PLACE/locked" status
    has "Permission denied"
    chmod 700 "$PLACE/locked"
}

@test "a full disk" {
    unshare -m true 2>/dev/null || skip "no mount namespaces here"
    mkdir "$PLACE/full"
    run unshare -m bash -c 'mount -t tmpfs -o size=4k,nr_inodes=3 none "$1" || exit 99
        mkdir -m 700 "$1/d"; head -c 100000 /dev/zero >"$1/fill" 2>/dev/null
        "$SLUICE" --dir "$1/d" run --sim h200 -- true; rc=$?; sleep 0.1; exit $rc' bash "$PLACE/full"
    [ "$status" -ne 99 ] || skip "no tmpfs here"
    [ "$status" -eq 125 ]
    has "No space left"
}

@test "the system's arbiter: words, rights and its file" {
    run -2 "$SLUICE" arbiter frobnicate
    has 'unexpected word "frobnicate"'
    run -2 "$SLUICE" arbiter check a b
    has 'unexpected word "b"'
    run -2 "$SLUICE" arbiter --config "$PLACE/a.yaml"
    has "--config belongs to --system"
    run -2 "$SLUICE" arbiter --idle-exit soon
    has "need a number"
    as_nobody test -x "$SLUICE" || skip "the build is not readable for others"
    run -1 as_nobody "$SLUICE" arbiter --system --sim h200
    has "started by root"
    run -1 "$SLUICE" arbiter check "$PLACE/a.yaml"
    has "No such file"
    run -1 "$SLUICE" arbiter check "$PLACE"
    has "is not a file"
    printf 'group: 4711\ndefaults: {memory: 4OGi}\n' >"$PLACE/a.yaml"
    run -1 "$SLUICE" arbiter check "$PLACE/a.yaml"
    has "$PLACE/a.yaml:2:20: memory"
    printf 'group: 4711\nusers: {4712: {memory: 40Gi, tenants: unlimited}, no-such-user-here: {}}\n' >"$PLACE/a.yaml"
    run -0 "$SLUICE" arbiter check "$PLACE/a.yaml"
    has "user 4712"
    has "  memory    40.0 GiB"
    has "user no-such-user-here (not known here: without effect)"
}

@test "a second arbiter" {
    "$SLUICE" run --sim h200 -- sleep 30 &
    BACKGROUND+=($!)
    eventually test -S "$SLUICE_DIR/arbiter.sock"
    run -75 "$SLUICE" arbiter --dir "$SLUICE_DIR" --sim h200
    has "already"
    kill "${BACKGROUND[0]}"
    wait "${BACKGROUND[0]}" || true
}

@test "an arbiter that hangs is named, with what to do" {
    "$SLUICE" run --sim h200 -- sleep 60 &
    BACKGROUND+=($!)
    eventually test -S "$SLUICE_DIR/arbiter.sock"
    pid=$(field .arbiter_pid)
    kill -STOP "$pid"
    run -1 "$SLUICE" status --sim h200
    kill -CONT "$pid"
    has "the arbiter (process $pid) has not answered"
    has "kill -KILL $pid"
    kill "${BACKGROUND[0]}"
    wait "${BACKGROUND[0]}" || true
}

@test "other cards than the arbiter in the directory has" {
    "$SLUICE" run --sim h200 -- sleep 30 &
    BACKGROUND+=($!)
    eventually test -S "$SLUICE_DIR/arbiter.sock"
    run -125 "$SLUICE" run --sim t4 -- true
    has "other GPUs (h200)"
    run -125 "$SLUICE" run -- true
    has "add --sim h200"
    kill "${BACKGROUND[0]}"
    wait "${BACKGROUND[0]}" || true
}

@test "set: no tenant, no change, a wrong amount, too much" {
    run -2 "$SLUICE" set
    has "no tenant is named"
    run -2 "$SLUICE" set x
    has "nothing to change"
    run -2 "$SLUICE" set x --memory 10Gb
    has '"10Gi"'
    run -1 "$SLUICE" set x --memory 1Gi
    has "no arbiter is running"
    "$SLUICE" run --sim h200 --memory 1Gi --name one -- sleep 30 &
    BACKGROUND+=($!)
    eventually tenant_exists one
    run -1 "$SLUICE" set two --memory 1Gi
    has 'no tenant is named "two"'
    run -1 "$SLUICE" set one --memory 200Gi
    has "ask for less"
    [ "$(field '.tenants[0].gpus[0].memory_limit_bytes')" = 1073741824 ]
    kill "${BACKGROUND[0]}"
    wait "${BACKGROUND[0]}" || true
}
