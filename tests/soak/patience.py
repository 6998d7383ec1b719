# SPDX-License-Identifier: Apache-2.0
"""When is waiting a hang? Not when the machine has no processor for those who should answer.

Whoever waits names the processes the answer depends on. Time in which one of their threads wants a processor and
gets none, or waits for a disk, is the machine's; so is time in which this process itself does not run. The kernel
tells: a thread's state, and in `schedstat` how long it ran and how long it stood in a queue. What remains is time in which
everybody concerned slept, or worked, and still no answer came: more than LIMIT of that is a hang.
"""
import bisect
import os
import time

LIMIT = 5.0  # s
TICK = 0.05
QUICK = 0.2  # s until anybody is looked at: nearly all answers come before
BACKSTOP = 120.0  # s: a machine that gives nothing for so long cannot be told from a hang


class Hang(Exception):
    pass


def look(pids):
    """(process, thread) → (state, ns it ran, ns it stood in a queue)"""
    found = {}
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as f:
                    state = f.read().rsplit(")", 1)[1].split()[0]
                with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as f:
                    ran, stood = f.read().split()[:2]
            except OSError:
                continue
            found[pid, thread] = (state, int(ran), int(stood))
    return found


def starved(before, now, seconds):
    """How much of this time somebody wanted what the machine did not give."""
    most = 0.0
    for key, (state, ran, stood) in now.items():
        _, ran_before, stood_before = before.get(key, (state, ran, stood))
        if state == "D":
            lost = seconds
        elif state == "R":  # it still wants one: what it did not get it stood for
            lost = seconds - (ran - ran_before) / 1e9
        else:
            lost = (stood - stood_before) / 1e9
        most = max(most, min(seconds, lost))
    return most


class Queued:
    """How long daemons stood in a queue for a processor, by moment."""

    def __init__(self):
        self.before, self.total, self.moments = {}, 0.0, []

    def look(self, pids):
        now = look(pids)
        more = [stood - self.before[key][2] for key, (_, _, stood) in now.items() if key in self.before]
        self.before = now
        self.total += max(more, default=0) / 1e9
        self.moments.append((time.monotonic(), self.total))

    def since(self, moment):
        at = bisect.bisect_left(self.moments, (moment,))
        return self.total - self.moments[at - 1][1] if at > 0 else self.total


class Patience:
    """One wait. `concerned` names the processes, and is asked again and again: they may change."""

    def __init__(self, concerned, limit=None):
        self.concerned, self.limit = concerned, LIMIT if limit is None else limit
        self.stood = self.took = 0.0

    def until(self, ready, what):
        """ready(seconds) waits for so long at most; returns what it returned once that is true."""
        began = time.monotonic()
        got = ready(QUICK)
        if got:
            self.took = time.monotonic() - began
            return got
        self.stood = QUICK
        before, at = look(self.concerned()), time.monotonic()
        while True:
            got = ready(TICK)
            now, after = time.monotonic(), look(self.concerned())
            self.took = now - began
            if got:
                return got
            wall = min(now - at, 2 * TICK)  # more: this process did not run either
            self.stood += wall - min(wall, starved(before, after, wall))
            before, at = after, now
            if self.stood > self.limit or self.took > BACKSTOP:
                raise Hang(f"{what}: no answer in {self.took:.1f} s, {self.stood:.1f} of which the machine had "
                           f"processors for all concerned ({describe(after)})")


def describe(threads):
    """Who does what: for the report."""
    words = []
    for (pid, thread), (state, _, _) in sorted(threads.items()):
        try:
            with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8", errors="replace") as f:
                name = f.read().strip()
            with open(f"/proc/{pid}/task/{thread}/wchan", encoding="ascii") as f:
                where = f.read().strip()
        except OSError:
            name, where = "?", "?"
        words.append(f"{pid}/{thread} {name} {state} {where}")
    return ", ".join(words)
