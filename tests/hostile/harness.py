# SPDX-License-Identifier: Apache-2.0
"""A victim beside an attacker, on a simulated GPU, with real processes.

The victim has a share of memory and GPU time and always has kernels queued; the attacker is a tenant beside it. `sluice
status` is asked again and again, and new tenants come. What must hold: the victim keeps its share, no allocation of it is
refused, newcomers are served, and every status answers in time.

The control is a second world with all of the same in it, its own arbiter and GPU, whose attacker does nothing. Both
run in the same moments, so what the machine does to one it does to the other, whoever else uses it. The victim's share is
what it was promised, or what the control got, where the machine could not give even that one as much.

A status has a second, whatever the control's took. Time in which the arbiter, or the process that asks, could run and had
no processor is the machine's: the kernel says how much it was (schedstat), and it is not counted. The table shows the
slowest as it was, the control's, and the slowest without that time.
"""
import collections
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time


PATIENCE_S = 30
KERNEL_S = 0.002  # of the simulated GPU, each round of victim.c
SETTLE_S = 2.0  # the attack is under way, and the shares are found, before anything is measured
MEASURE_S = 12
MOMENT_S = 1  # parts of it, to see how much the figures vary by themselves
KEEP = 0.95
FAR = 0.15  # below it by this much is no chance

# What the victim and the attacker are promised (percent of the GPU's time), how GPU time is shared, and the part of the
# victim's share that can be kept for it. New tenants come where the attack is on who comes.
Scene = collections.namedtuple("Scene", "program victim attacker compute part newcomers")


def scene_of(arena, name):
    if not name.startswith("endless"):
        return Scene([arena.attack, name], 40, 20, "auto", 1, True)
    kind, _, turns = name.partition("-")
    processes = int(kind.removeprefix("endless") or 1)
    # By turns nothing takes a kernel off the GPU: then the driver's own equal slices are all there is.
    part = 1 / (1 + processes) if turns else 1
    return Scene([arena.endless, str(processes)], 90, 5, turns or "auto", part, False)


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
    def __init__(self, arena, scene):
        super().__init__(arena, "victim", ["--memory", "4Gi", "--cores", str(scene.victim), "--compute", scene.compute],
                         [arena.victim])
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

    def shares(self, begin):
        """Of the GPU's time, in each moment from then on."""
        counts = collections.Counter(int((t - begin) // MOMENT_S) for t in list(self.rounds))
        return [counts[i] * KERNEL_S / MOMENT_S for i in range(MEASURE_S // MOMENT_S)]

    def longest_pause(self, begin, end):
        times = [begin, *(t for t in list(self.rounds) if begin <= t < end), end]
        return max(b - a for a, b in zip(times, times[1:]))


class Statuses:
    """`sluice status`, asked again and again by one process (asker.c): how long each answer took, and without the
    time for which nobody had a processor for it."""

    def __init__(self, arena):
        self.answers, self.failure = [], None
        self.process = subprocess.Popen([arena.asker, arena.dir], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        arena.stack.callback(self.end)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("refused"):
                self.failure = Failure(f"status {len(self.answers)}: {line.strip()}")
            else:
                took, queued = map(float, line.split())
                self.answers.append((took, max(0.0, took - queued)))

    def end(self):
        if self.process.stdin.closed:
            return
        self.process.stdin.close()
        self.process.wait(2 * PATIENCE_S)
        self.thread.join()
        self.process.stdout.close()


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
        self.asker = os.path.join(build, "tests", "hostile", "hostile_asker")
        self.attack = os.path.join(build, "tests", "hostile", "hostile_attack")
        self.endless = os.path.join(build, "tests", "hostile", "hostile_endless")
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

    def newcomer(self, number):
        """A tenant that comes, does five rounds of work and goes."""
        self.sluice_does(f"new tenant {number}", "run", "--sim", "h200", "--name", f"new{number}", "--memory", "2Gi",
                         "--", self.victim, "5")


class World:
    """A victim, an attacker that waits, and later what is seen of both."""

    def __init__(self, arena, scene):
        self.arena, self.scene, self.victim = arena, scene, Victim(arena, scene)
        self.attacker = Command(arena, "attacker", ["--memory", "2Gi", "--cores", str(scene.attacker), "--compute",
                                                    scene.compute], scene.program)
        self.attacker.wait_for("waiting")

    def begin(self):
        self.statuses = Statuses(self.arena)
        self.newcomers = Repeat(self.arena.newcomer, 0.1) if self.scene.newcomers else None

    def look(self, begin, end):
        self.statuses.end()
        if self.newcomers:
            self.newcomers.end()
        self.shares = self.victim.shares(begin)
        self.share = mean(self.shares)
        self.pause = self.victim.longest_pause(begin, end)
        answers = self.statuses.answers or [(PATIENCE_S, PATIENCE_S)]
        self.status = max(took for took, _ in answers)
        self.status_net = max(net for _, net in answers)
        self.newcomer = max(self.newcomers.took) if self.newcomers else 0


def mean(values):
    return sum(values) / len(values)


def kept(world, control, scene):
    """The part of its share that the victim kept, and how much that varies by itself (its standard error).

    The share is what was promised, or what the control got where that is less, as far as it can be kept."""
    def part(moments):
        mine, theirs = (mean([shares[i] for i in moments]) for shares in (world.shares, control.shares))
        return mine / (min(scene.victim / 100, theirs) * scene.part) if theirs else 1

    every = range(len(world.shares))
    without = [part([i for i in every if i != left_out]) for left_out in every]  # the jackknife
    count = len(without)
    return part(every), ((count - 1) / count * sum((w - mean(without)) ** 2 for w in without)) ** 0.5


HEADER = ("attack          promised  control  victim   kept of its share  slowest: status          pause      new tenant\n"
          "                                       (attacked, control; seconds; status also without the wait for a processor)")


def judge(world, control, scene, limit, keep):
    """Raises Failure where something does not hold."""
    for repeat in (world.statuses, world.newcomers):
        if repeat and repeat.failure:
            raise repeat.failure
    if world.victim.refused:
        raise Failure(f"{len(world.victim.refused)} allocations were refused, first: {world.victim.refused[0]}")
    if world.victim.process.poll() is not None:
        raise Failure("the victim ended")
    if world.pause > limit + control.pause:
        raise Failure(f"the victim stood still for {world.pause:.2f} s")
    if world.status_net > limit:
        raise Failure(f"a status took {world.status_net:.2f} s, {world.status:.2f} s with the wait for a processor")
    part, error = kept(world, control, scene)
    if part + 2 * error < keep or (scene.part == 1 and part < keep - FAR):
        raise Failure(f"the victim kept {100 * part:.1f} % of its share, where {200 * error:.1f} are chance: less than "
                      f"{100 * keep:.0f} %")


def measure(build, attack, limit=1.0, keep=KEEP):
    """Runs one attack; prints the line of the table; raises Failure where something does not hold."""
    with Arena(build) as one, Arena(build) as other:
        scene = scene_of(one, attack)
        world, control = World(one, scene), World(other, scene)
        world.attacker.process.stdin.write("go\n")
        world.attacker.wait_for("attacking")
        for w in (world, control):
            w.begin()
        time.sleep(SETTLE_S)
        begin = time.monotonic()
        time.sleep(MEASURE_S)
        end = time.monotonic()
        for w in (world, control):
            w.look(begin, end)
        part, error = kept(world, control, scene)
        print(f"{attack:15} {scene.victim:5} %  {100 * control.share:6.1f} % {100 * world.share:5.1f} %  "
              f"{100 * part:6.1f} % ± {200 * error:4.1f}   {world.status:14.2f} {control.status:.2f} {world.status_net:.2f}  {world.pause:.2f} "
              f"{control.pause:.2f}  {world.newcomer:.2f} {control.newcomer:.2f}", flush=True)
        judge(world, control, scene, limit, keep)
