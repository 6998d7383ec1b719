#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Commands wait in line for one simulated card while its arbiter is killed again and again: all of them run, one after the
other, in the order of their priorities and then of their coming. Usage: restart_line.py BUILD JOBS RESTARTS
"""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import folders  # noqa: E402
import waiting  # noqa: E402

BUILD, JOBS, RESTARTS = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
SLUICE = os.path.join(BUILD, "bin", "sluice")
PATIENCE = 100  # seconds, for what takes a moment on an idle machine
# Says that it runs; where a gate stands, it waits until the gate is opened.
COMMAND = 'echo "$1" >>"$2/started"; until [ ! -e "$2/gate-$1" ]; do sleep 0.02; done; echo "$1" >>"$2/ended"'


class World:
    def __init__(self, folder):
        self.folder = folder
        self.directory = os.path.join(folder, "d")
        self.jobs = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def lines(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as f:
                return f.read().split("\n")[:-1]
        except FileNotFoundError:
            return []

    def start(self, name, memory, *options):
        with open(self.path(f"err-{name}"), "wb") as err:
            self.jobs.append(subprocess.Popen(
                [SLUICE, "run", "--dir", self.directory, "--sim", "h200", "--memory", memory, *options, "--",
                 "sh", "-c", COMMAND, "sh", name, self.folder], stderr=err))

    def close_gate(self, name):
        with open(self.path(f"gate-{name}"), "wb"):
            pass

    def open_gate(self, name):
        os.unlink(self.path(f"gate-{name}"))

    def until(self, what, condition):
        return waiting.until(what, condition, seconds=PATIENCE)

    def arbiter(self):
        out = subprocess.run([SLUICE, "status", "--json", "--dir", self.directory, "--sim", "h200"], check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        return (json.loads(out).get("arbiter_pid") or 0) if out else 0

    def kill_arbiter(self):
        old = self.until("an arbiter", self.arbiter)
        os.kill(old, signal.SIGKILL)
        self.until("the next arbiter", lambda: self.arbiter() not in (0, old))


def main():
    with folders.world("sluice-line-") as folder:
        world = World(folder)
        # The large ones do not fit beside this one, the small ones would; two of them never fit together.
        world.close_gate("holder")
        world.start("holder", "30Gi")
        world.until("the holder", lambda: world.lines("started"))
        high = [f"job-{i}" for i in range(JOBS) if i % 10 == 7]
        normal = [f"job-{i}" for i in range(JOBS) if i % 10 != 7]
        order = high + normal
        for i in range(JOBS):
            name = f"job-{i}"
            world.start(name, "75Gi" if i % 10 in (3, 8) else "120Gi", "--wait",
                        "--priority", "high" if name in high else "normal")
            world.until(f"{name} in line", lambda n=name: any("waiting: place" in s for s in world.lines(f"err-{n}")))
        stops = [order[JOBS * i // RESTARTS] for i in range(1, RESTARTS)]
        for name in stops:
            world.close_gate(name)
        world.kill_arbiter()  # while all of them wait …
        assert world.lines("started") == ["holder"], "one that does not fit, or stands behind it, has started"
        world.open_gate("holder")
        for name in stops:  # … and while some do
            world.until(f"{name} to run", lambda n=name: n in world.lines("started"))
            world.kill_arbiter()
            world.open_gate(name)
        codes = [job.wait(timeout=PATIENCE) for job in world.jobs]
        assert codes == [0] * (JOBS + 1), f"exit codes {codes}"
        assert world.lines("started") == ["holder"] + order, f"started in the order {world.lines('started')}"
        assert world.lines("ended") == ["holder"] + order, "two of them ran at a time"
        print(f"{JOBS} jobs, {1 + len(stops)} restarts, order kept")


if __name__ == "__main__":
    main()
