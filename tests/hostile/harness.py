# SPDX-License-Identifier: Apache-2.0
"""A victim beside an attacker, on a simulated GPU, with real processes.

The victim has a share of memory and GPU time and works all the time; the attacker is a tenant beside it. `sluice
status` is asked again and again, and new tenants come. What must hold: no allocation of the victim is refused, its
launches go on, newcomers are served, and every status answers in time.

The control is a second world with all of the same in it, its own arbiter and GPU, whose attacker does nothing. Both
run in the same moments, so what the machine does to one it does to the other, whoever else uses it.
"""
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time


PATIENCE_S = 30


class Failure(Exception):
    pass


class Command:
    """A `sluice run` whose input we hold and whose lines we read."""

    def __init__(self, arena, name, options, program):
        self.name, self.reader = name, None
        self.process = subprocess.Popen(
            [arena.sluice, "--dir", arena.dir, "run", "--sim", "h200", "--name", name, *options, "--", *program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True)
        arena.stack.callback(self.end)

    def wait_for(self, word):
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise Failure(f"{self.name} ended before it said {word!r}")

    def end(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            # The command too, which may wait for an arbiter that is stuck: its end of the pipe must close.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.reader:
            self.reader.join()
        self.process.stdout.close()


class Victim(Command):
    def __init__(self, arena):
        super().__init__(arena, "victim", ["--memory", "2Gi", "--cores", "40"], [arena.victim])
        self.rounds, self.refused = [], []
        self.wait_for("ready")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("refused"):
                self.refused.append(line.strip())
            else:
                self.rounds.append(float(line))

    def rate(self, begin, end):
        """Rounds a second between two moments."""
        return sum(begin <= t < end for t in list(self.rounds)) / (end - begin)

    def longest_pause(self, begin, end):
        times = [begin, *(t for t in list(self.rounds) if begin <= t < end), end]
        return max(b - a for a, b in zip(times, times[1:]))


class Repeat:
    """Something done again and again in a thread; remembers how long each took, and the first that failed."""

    def __init__(self, action, pause):
        self.action, self.pause, self.took, self.failure = action, pause, [], None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stop.is_set() and not self.failure:
            begin = time.monotonic()
            try:
                self.action(len(self.took))
            except Failure as failure:
                self.failure = failure
            self.took.append(time.monotonic() - begin)
            self.stop.wait(self.pause)

    def end(self):
        self.stop.set()
        self.thread.join()


class Arena:
    """One arbiter in a directory of its own."""

    def __init__(self, build):
        self.sluice = os.path.join(build, "bin", "sluice")
        self.victim = os.path.join(build, "tests", "hostile", "hostile_victim")
        self.attack = os.path.join(build, "tests", "hostile", "hostile_attack")
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        self.dir = os.path.join(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-hostile-")), "w")
        self.stack.callback(self.end_arbiter)
        return self

    def __exit__(self, *error):
        self.stack.close()

    def end_arbiter(self):
        """It would leave by itself once nobody is there, unless the attack was a success."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                    words = f.read().split("\0")
                if "arbiter" in words and self.dir in words:
                    os.kill(int(pid), signal.SIGKILL)

    def sluice_does(self, what, *command):
        try:
            done = subprocess.run([self.sluice, "--dir", self.dir, *command], timeout=PATIENCE_S, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            raise Failure(f"{what}: nothing happened for {PATIENCE_S} s") from None
        if done.returncode != 0 or "refused" in done.stdout:
            raise Failure(f"{what}: exit {done.returncode}: {done.stdout[-300:]}")

    def status(self, number):
        self.sluice_does(f"status {number}", "status")

    def newcomer(self, number):
        """A tenant that comes, does five rounds of work and goes."""
        self.sluice_does(f"new tenant {number}", "run", "--sim", "h200", "--name", f"new{number}", "--memory", "2Gi",
                         "--", self.victim, "5")


class World:
    """A victim, an attacker that waits, and later what is seen of both."""

    def __init__(self, arena, attack):
        self.arena, self.victim = arena, Victim(arena)
        self.attacker = Command(arena, "attacker", ["--memory", "2Gi", "--cores", "20"], [arena.attack, attack])
        self.attacker.wait_for("waiting")

    def begin(self):
        self.statuses = Repeat(self.arena.status, 0.1)
        self.newcomers = Repeat(self.arena.newcomer, 0.1)

    def look(self, begin, end):
        self.statuses.end()
        self.newcomers.end()
        self.rate = self.victim.rate(begin, end)
        self.pause = self.victim.longest_pause(begin, end)
        self.status = max(self.statuses.took)
        self.newcomer = max(self.newcomers.took)


def measure(build, attack, seconds=5.0, limit=1.0):
    """Runs one attack; prints the line of the table; raises Failure where something does not hold."""
    with Arena(build) as one, Arena(build) as other:
        world, control = World(one, attack), World(other, attack)
        world.attacker.process.stdin.write("go\n")
        world.attacker.wait_for("attacking")
        begin = time.monotonic()
        for w in (world, control):
            w.begin()
        time.sleep(seconds)
        end = time.monotonic()
        for w in (world, control):
            w.look(begin, end)
        print(f"{attack:9} victim {100 * world.rate / control.rate:4.0f} % of its control ({world.rate:.0f} of "
              f"{control.rate:.0f} rounds a second); slowest of each, attacked and control: pause {world.pause:.2f} "
              f"{control.pause:.2f} s, status {world.status:.2f} {control.status:.2f} s, new tenant "
              f"{world.newcomer:.2f} {control.newcomer:.2f} s", flush=True)
        for repeat in (world.statuses, world.newcomers):
            if repeat.failure:
                raise repeat.failure
        if world.victim.refused:
            raise Failure(f"{len(world.victim.refused)} allocations were refused, first: {world.victim.refused[0]}")
        if world.victim.process.poll() is not None:
            raise Failure("the victim ended")
        if world.pause > limit + control.pause:
            raise Failure(f"the victim stood still for {world.pause:.2f} s")
        if world.status > limit + control.status:
            raise Failure(f"a status took {world.status:.2f} s")
