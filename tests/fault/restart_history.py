#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Commands end on one simulated card while its arbiter is killed again and again, at any moment: each of them has exactly
one entry in the history, with its own exit code or none, and no line is damaged. Usage: restart_history.py BUILD JOBS
"""
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import folders  # noqa: E402
import waiting  # noqa: E402

BUILD, JOBS = os.path.abspath(sys.argv[1]), int(sys.argv[2])
SLUICE = os.path.join(BUILD, "bin", "sluice")
AT_A_TIME = 4


def ask(directory, *words):
    out = subprocess.run([SLUICE, *words, "--json", "--dir", directory, "--sim", "h200"], check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads(out) if out else {}


def start(directory, i):
    """A command that ends with a code of its own; what Sluice itself says goes nowhere: the arbiter is killed."""
    return subprocess.Popen([SLUICE, "run", "--dir", directory, "--sim", "h200", "--name", f"job-{i}", "--memory", "1Gi",
                             "--", "sh", "-c", f"sleep 0.05; exit {i % 100}"], stderr=subprocess.DEVNULL)


class Killer(threading.Thread):
    """Kills each arbiter at a random moment of its first fifth of a second, until told to stop."""

    def __init__(self, directory):
        super().__init__()
        self.directory, self.done, self.kills, self.rng = directory, threading.Event(), 0, random.Random(7)

    def run(self):
        while not self.done.is_set():
            pid = ask(self.directory, "status").get("arbiter_pid")
            if not pid:
                continue
            time.sleep(self.rng.uniform(0, 0.2))  # a moment that nothing in the arbiter knows of
            try:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
            except ProcessLookupError:
                pass


def main():
    with folders.world("sluice-past-") as folder:
        directory = os.path.join(folder, "d")
        killer = Killer(directory)
        killer.start()
        codes = {}
        try:
            for first in range(0, JOBS, AT_A_TIME):
                jobs = {i: start(directory, i) for i in range(first, min(first + AT_A_TIME, JOBS))}
                for i, job in jobs.items():
                    codes[i] = job.wait(timeout=100)
        finally:
            killer.done.set()
            killer.join()
        # 125: the arbiter was killed each time that the command was about to be entered; it did not run.
        ran = {f"job-{i}": code for i, code in codes.items() if code != 125}
        assert all(code == int(name[4:]) % 100 for name, code in ran.items()), f"exit codes {codes}"
        assert ran and killer.kills >= 5, f"{len(ran)} commands ran, {killer.kills} arbiters were killed"
        subprocess.run([SLUICE, "run", "--dir", directory, "--sim", "h200", "--name", "last", "--", "true"], check=True)

        def entered():
            past = ask(directory, "history").get("entries", [])
            return past if set(ran) | {"last"} <= {e["name"] for e in past} else None

        past = waiting.until("every command in the history", entered, seconds=60)
        names = [e["name"] for e in past if e["name"] in ran]
        assert len(names) == len(set(names)), f"entered twice: {sorted(n for n in names if names.count(n) > 1)}"
        wrong = [e for e in past if e["name"] in ran and e["exit_code"] not in (None, ran[e["name"]])]
        assert not wrong, f"wrong exit codes: {wrong}"
        assert ask(directory, "history")["damaged_lines"] == 0
        known = sum(e["exit_code"] is not None for e in past if e["name"] in ran)
        print(f"{len(ran)} commands, {killer.kills} arbiters killed, {known} exit codes known")


if __name__ == "__main__":
    main()
