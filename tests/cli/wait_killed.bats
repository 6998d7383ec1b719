#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Those who stand in the line of `sluice run --wait` are killed and stopped, and hold up nobody.
load common
load waiting
setup() { common_setup; }
teardown() { common_teardown; }

@test "Ctrl-C leaves the line at once" {
    hold first 100Gi
    run -0 "$TERMINAL" wait 'place 1 of 1' send '\003' -- "$SLUICE" run --sim h200 --wait --memory 60Gi -- true
    has "signal 2"
    run -0 srun --memory 10Gi -- true
    waiter next --memory 60Gi
    file_has "$PLACE/next.err" 'place 1 of 1'
}

@test "who is killed at the head of the line leaves it" {
    hold first 100Gi
    waiter head --memory 80Gi
    local pid=$WAITER
    waiter next --memory 80Gi
    kill -KILL "$pid"
    eventually file_has "$PLACE/next.err" 'place 1 of 1'
    release first
    eventually ran next
}

@test "who is stopped at the head of the line is passed over, and keeps its place" {
    hold first 100Gi
    waiter head --memory 80Gi
    local pid=$WAITER
    waiter next --memory 80Gi
    kill -STOP "$pid"
    release first
    patiently ran next # five seconds are the stopped one's to answer
    hold second 100Gi
    waiter later --memory 80Gi
    kill -CONT "$pid"
    eventually file_has "$PLACE/later.err" 'place 2 of 2'
    release second
    eventually ran next head later
}

@test "who is killed or stopped while the arbiter is away does not hold up the others" {
    hold first 100Gi
    waiter dead --memory 80Gi
    local dead=$WAITER
    waiter stopped --memory 80Gi
    local stopped=$WAITER
    waiter next --memory 80Gi
    kill -STOP "$dead" "$stopped"
    release first
    kill -KILL "$(field .arbiter_pid)"
    kill -KILL "$dead"
    patiently ran next # ten seconds are the stopped one's to come back
    kill -CONT "$stopped"
    eventually ran next stopped
}

# In the first second after a restart it is not known what a tenant without a limit uses. The arbiter looked at the line
# meanwhile, and died of it, as did each that followed.
@test "the arbiter is killed beside a tenant without a limit, and only once" {
    "$SLUICE" run --sim h200 --name open -- sleep 100 &
    BACKGROUND+=($!)
    eventually tenant_exists open
    hold first 100Gi
    waiter a --memory 80Gi
    local killed next
    killed=$(field .arbiter_pid)
    kill -KILL "$killed"
    another() { next=$(field .arbiter_pid) && [[ $next =~ ^[0-9]+$ && $next != "$killed" ]]; }
    eventually another
    # The time to come back is over when there is room for one that does not wait.
    eventually srun --priority high --memory 1Gi -- true
    [ "$(field .arbiter_pid)" = "$next" ]
    release first
    eventually ran a
}

@test "a tenant without a limit that frees memory lets the next one in" {
    mkfifo "$PLACE/in"
    srun --name open -- sh -c 'exec "$0" 107374182400 <"$1"' "$ALLOC" "$PLACE/in" >"$PLACE/log" &
    BACKGROUND+=($!)
    exec 8>"$PLACE/in"
    eventually file_has "$PLACE/log" total
    waiter a --memory 60Gi
    exec 8>&-
    eventually ran a
}

@test "an arbiter of an older version, which has no line" {
    mkdir -m 700 "$SLUICE_DIR"
    python3 - "$SLUICE_DIR/arbiter.sock" <<'PYTHON' &
import socket, struct, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(sys.argv[1])
server.listen()
client, _ = server.accept()
client.recv(65536)
client.send(struct.pack("<IHHIIi404s", 0x53434C53, 1, 15, 424, 0, -28, b"GPU 0 has too little left"))
client.recv(1)
PYTHON
    BACKGROUND+=($!)
    eventually test -S "$SLUICE_DIR/arbiter.sock"
    run -125 srun --wait -- true
    has "is of an older version, in which commands cannot wait"
}
