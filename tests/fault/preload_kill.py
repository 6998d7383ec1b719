#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes with libsluice die inside its accounting, and nothing of what they had is left.

usage: preload_kill.py BUILD_DIR SEED RUNS POINT...

One tenant on the simulated GPU, started with the libsluice that has fault points. A survivor works in
it all the while. Each run is three more processes that take and give memory, each with SLUICE_FAULT at
one of the named points or at random. After each run the ledger is what the survivor holds, and the
survivor takes and gives as before; at the end the ledger is empty. Points that only the arbiter
passes (account.reap.*) are none of a process: fault.account_kill has those.
"""
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import folders  # noqa: E402

BUILD, SEED, RUNS = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
POINTS = [p for p in sys.argv[4:] if not p.startswith("account.reap.")]
SLUICE = os.path.join(BUILD, "bin", "sluice")
PROBE = os.path.join(BUILD, "tests", "bin", "memory_probe")
PATHS = ("alloc", "pool", "create", "mapped", "array", "graph")
PIECE = 2 << 20
HELD = 3


def fail(text):
    sys.exit(f"FAILED: {text} (seed {SEED})")


class World:
    def __init__(self, directory):
        self.directory = directory
        # A shell in the tenant starts what it is told: one line, one process; it says which and how
        # each ended.
        script = 'while read -r line; do eval "$line"; done'
        self.shell = subprocess.Popen(
            [SLUICE, "run", "--dir", directory, "--sim", "h200", "--memory", "8Gi", "--name", "t",
             "--libsluice", os.path.join(BUILD, "lib", "libsluice-fault.so"), "--",
             "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, bufsize=1)

    def tell(self, line):
        self.shell.stdin.write(line + "\n")

    def usage(self):
        out = subprocess.run([SLUICE, "status", "--json", "--dir", self.directory, "--sim", "h200"],
                             stdout=subprocess.PIPE, text=True, check=True, timeout=30).stdout
        tenant = json.loads(out)["tenants"][0]
        return tenant["gpus"][0]["memory_used_bytes"], tenant["processes"]

    def settle(self, used, processes, when):
        until = time.monotonic() + 20
        while (now := self.usage()) != (used, processes):
            if time.monotonic() > until:
                fail(f"{when}: (ledger, processes) is {now} instead of {(used, processes)}")
            time.sleep(0.005)


def start_survivor(world):
    """It lives on fifos, because its lines come from here and its parent is the shell."""
    names = [os.path.join(world.directory, n) for n in ("to", "from")]
    for name in names:
        os.mkfifo(name)
    world.tell(f"env -u SLUICE_FAULT {PROBE} alloc direct <{names[0]} >{names[1]} &")
    to = open(names[0], "w", encoding="ascii", buffering=1)
    back = open(names[1], encoding="ascii")
    if back.readline().split()[:2] != ["ready", "0"]:
        fail("the survivor did not start")

    def ask(line, expected):
        to.write(line + "\n")
        if (got := back.readline().strip()) != expected:
            fail(f"the survivor: {line}: {got} instead of {expected}")
    ask(f"take {HELD}", f"got {HELD} 0")
    return to, ask


def run(world, faults, rng):
    """Three processes, each with its fault; returns how many were killed."""
    requests = "".join(f"take {rng.randint(1, 4)}\\ngive\\n" for _ in range(3)) + "take 2\\nquit\\n"
    jobs = "".join(f"printf '{requests}' | SLUICE_FAULT={f} {PROBE} {rng.choice(PATHS)} direct "
                   f">/dev/null 2>&1 & p{i}=$!; " for i, f in enumerate(faults))
    waits = "".join(f"wait $p{i}; e=\"$e $?\"; " for i in range(len(faults)))
    world.tell(f"e=; {jobs}{waits}echo \"ended$e\"")
    words = world.shell.stdout.readline().split()
    if len(words) != len(faults) + 1 or words[0] != "ended":
        fail(f"{faults}: the shell said {words}")
    codes = [int(w) for w in words[1:]]
    if any(c not in (0, 128 + signal.SIGKILL) for c in codes):
        fail(f"{faults}: ended with {codes}")
    return sum(c != 0 for c in codes)


def main():
    rng = random.Random(SEED)
    began = time.monotonic()
    named = at_random = 0
    with folders.world("sluice-kill-") as directory:
        world = World(directory)
        to, ask = start_survivor(world)
        for n in range(RUNS):
            point = POINTS[n // 2 % len(POINTS)]
            if n % 2 == 0:
                faults = [f"{point}:{k}" for k in (1, rng.randint(1, 3), rng.randint(1, 6))]
                killed = run(world, faults, rng)
                named += killed
                if killed == 0:
                    fail(f"{faults}: nobody died")
            else:
                faults = [f"random:{rng.getrandbits(40)}:{rng.choice((3, 10, 30))}" for _ in "123"]
                at_random += run(world, faults, rng)
            world.settle(HELD * PIECE, 1, f"run {n}, {faults}")
            ask("take 5", f"got {HELD + 5} 0")
            ask("give", f"gave {HELD + 5} 0")
            ask(f"take {HELD}", f"got {HELD} 0")
        ask("give", f"gave {HELD} 0")
        to.write("quit\n")
        world.settle(0, 0, "at the end")
        world.shell.stdin.close()
        if (code := world.shell.wait(30)) != 0:
            fail(f"sluice run ended with {code}")
    print(f"{RUNS} runs of 3 processes: {named} killed at {len(POINTS)} named points, {at_random} at "
          f"random ones; the ledger was right after each, {time.monotonic() - began:.1f} s")
    return 0 if named and at_random else 1


if __name__ == "__main__":
    sys.exit(main())
