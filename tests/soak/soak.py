#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random tenants on a simulated node, and a checker that knows the truth.

usage: soak.py BUILD_DIR [--seconds N] [--seed N] [--world machine|cluster]... [--without EVENT]... [--verbose]

Tenants come and go, take memory in several ways, share it, launch, fork, are killed and stopped; their limits change;
the arbiter and the agent are killed, ended, stopped, started again, and run out of disk and of descriptors; the driver
fails. Two thirds of the time they live on one machine (`sluice run`), then on a node of a cluster (sluiced). The same
seed draws the same events; what happens between them is the machine's affair.

Times without restarts and times with many take turns, so that memory has time to grow where it leaks.

Checked all the while (a violation is printed, and the exit status is 1):
  over       what a tenant was granted is within its limit
  refused    nothing is refused that fits
  ledger     what `sluice status` shows as used is what is held, once things are quiet
  lease      every tenant is there after every restart, with its limit
  hang       every request, `status` and start is answered within 5 s of time the machine had for it (patience.py)
  died       nobody ends who was not told to, or gets an error that nobody injected
  leak       the memory of arbiter and agent stays flat, and so do the arbiter's descriptors
"""
import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("", "../support", "../agent"):
    sys.path.insert(0, os.path.join(HERE, folder))
from model import (CONTEXT, CONTEXT_SLACK, FAULTS, INJECTED, OUT_OF_MEMORY, Dead, Piece, Violation,  # noqa: E402
                   Worker)
from pages import pages_text  # noqa: E402
from patience import LIMIT, Hang, Patience, Queued  # noqa: E402
from worlds import Cluster, Machine  # noqa: E402

GIB = 1024  # everything is in MiB
SETTLE = 2.0  # s after a death or a restart until figures have to be right
WARM = 10.0  # s of a daemon's life after which its memory stays flat …
FLAT_KIB = 2048  # … within this much
NEVER_STEADY = ("restart",)
WORLDS = {"machine": Machine, "cluster": Cluster}


class Soak:
    def __init__(self, build, seed, world, without, verbose):
        self.build, self.random, self.verbose = build, random.Random(f"{seed} {world}"), verbose
        self.without = without
        self.sluice = os.path.join(build, "bin", "sluice")
        self.control = os.path.join(build, "sim", "sluice-sim-ctl")
        self.program = os.path.join(build, "tests", "bin", "soak_tenant")
        self.tenants = []
        self.count, self.operations, self.slowest, self.restarts = 0, 0, 0.0, 0
        self.events, self.violations, self.excused = {}, [], 0
        self.ended = []  # (name, when) of tenants that are over
        self.queued = Queued()
        self.awake = 0.0  # since when the arbiter has not been stopped; infinite while it is
        self.flat = {}  # process → KiB it had when it was warm
        self.looked_flat = 0.0  # s
        self.drawn = 0  # limits so far
        self.late = {}  # tenant → the last limit it was to get while the disk was full
        self.tight = False  # a disk or descriptors are short: what fails now may fail
        self.steady = False
        self.world = WORLDS[world](self)

    def log(self, text):
        if self.verbose:
            print(f"{time.monotonic():.3f} {text}", flush=True)

    # ---- waiting ----

    def processes(self):
        """All on whom an answer may depend: each of them may hold the lock of the simulated machine."""
        return [w.pid for w in self.workers()] + [pid for pid, _ in self.world.daemons().values() if pid]

    def waited(self, wait, what):
        self.slowest = max(self.slowest, wait.took)
        if wait.took > LIMIT:
            self.excused += 1
            print(f"slow machine: {what} took {wait.took:.1f} s, {wait.stood:.1f} of them ours", flush=True)

    def ended_within(self, process, what):
        def ended(seconds):
            try:
                process.wait(seconds)
                return True
            except subprocess.TimeoutExpired:
                return False

        # A process that comes or goes may wait for the arbiter, or for the lock of the simulated machine.
        wait = Patience(lambda: [*self.processes(), process.pid])
        wait.until(ended, f"the end of {what}")
        self.waited(wait, f"the end of {what}")

    def calm_since(self, moment, seconds=SETTLE):
        """The arbiter, and the agent, have had time to see what happened at that moment: processors, that is. A stopped
        arbiter sees nothing, and a request that waits for it may take seconds meanwhile."""
        since = max(moment, self.world.ready_since(), self.awake)
        return self.world.arbiter is not None and \
            time.monotonic() - since - self.queued.since(since) > seconds

    def measured(self, worker):
        """The arbiter knows the worker's context: it was there when that was made, or has had its time."""
        if worker.context_since > self.world.started:
            return self.calm_since(worker.context_since)
        return self.world.arbiter is not None and self.world.up_for() > 5

    def command(self, *words):
        child = subprocess.Popen([self.sluice, "--dir", self.world.dir, *words], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        said = []

        def done(seconds):
            try:
                said[:] = child.communicate(timeout=seconds)
                return True
            except subprocess.TimeoutExpired:
                return False

        wait = Patience(lambda: [*self.processes(), child.pid])
        try:
            wait.until(done, f"`sluice {' '.join(words)}`")
        except Hang:
            child.kill()
            child.communicate()
            raise
        self.waited(wait, f"`sluice {' '.join(words)}`")
        return subprocess.CompletedProcess(words, child.returncode, *said)

    def status(self):
        done = self.command("status", "--json")
        if done.returncode != 0:
            raise Violation(f"died: `sluice status` ends with {done.returncode}: {done.stderr.strip()}")
        return {t["name"]: t for t in json.loads(done.stdout)["tenants"]}

    # ---- checks ----

    def ghosts(self, there):
        """Tenants that are over, that the arbiter has had time to notice, and that are still there."""
        return set(there) - {t.sluice_name for t in self.tenants} - set(self.lingering())

    def check_leases(self):
        there = self.status()

        def none_left(seconds):
            nonlocal there
            if not self.ghosts(there):
                return True
            time.sleep(min(seconds, 0.1))
            there = self.status()
            return not self.ghosts(there)

        # An arbiter that just began waits a second for processes of earlier ones, and a second more after it had no
        # processor: how long that takes depends on the machine. That it ends does not.
        try:
            Patience(self.processes).until(none_left, "the end of tenants that are over")
        except Hang as e:
            raise Violation(f"lease: {sorted(self.ghosts(there))} are over, and still there; {self.who_is_there()}; {e}") from None
        for t in self.tenants:
            if t.sluice_name not in there:
                raise Violation(f"lease: {t.name} is not there any more "
                                f"(arbiter up for {self.world.up_for():.1f} s)")
            limit = there[t.sluice_name]["gpus"][0]["memory_limit_bytes"] >> 20
            if limit not in t.limits:
                raise Violation(f"lease: {t.name} has {limit} MiB instead of {sorted(t.limits)}")
        return there

    def check_ledgers(self):
        """Exact once the dead are buried: waits for it, within reason."""
        wrong = []

        def right(seconds):
            there = self.check_leases()
            books = [(t.name, there[t.sluice_name]["gpus"][0]["memory_used_bytes"] >> 20, t.held())
                     for t in self.tenants]
            wrong[:] = [b for b in books if b[1] != b[2]]
            if wrong:
                self.log(f"books: {wrong}")
                time.sleep(min(seconds, 0.1))
            return not wrong

        try:
            Patience(self.processes).until(right, "the books")
        except Hang:
            raise Violation(f"ledger: (tenant, MiB in the books, MiB held): {wrong}") from None

    def check_daemons(self):
        self.world.check_alive()
        self.queued.look([pid for pid, _ in self.world.daemons().values()])
        for name, (pid, up) in self.world.daemons().items():
            with open(f"/proc/{pid}/status", encoding="utf-8") as f:
                own = int(next(line for line in f if line.startswith("RssAnon")).split()[1])
            if up < WARM:
                continue
            self.looked_flat = max(self.looked_flat, up - WARM)
            first = self.flat.setdefault(pid, own)
            if own > first + FLAT_KIB:
                raise Violation(f"leak: {name} has {own} KiB of its own, {first} at first, {up:.0f} s old")
        descriptors = len(os.listdir(f"/proc/{self.world.arbiter}/fd"))
        most = 40 + 8 * (len(self.tenants) + len(self.lingering())) + \
            4 * sum(len(t.workers) + len(t.dead) for t in self.tenants)
        calm = self.world.up_for() > 5 and all(self.calm_since(d.at) for t in self.tenants for d in t.dead)
        if descriptors > most and calm:
            raise Violation(f"leak: the arbiter has {descriptors} descriptors, {most} are plenty")

    # ---- tenants ----

    def draw_limit(self, least, most):
        """GiB and a bit, another bit each time (until it comes round): no two limits of a tenant are alike. Who sees one
        in `sluice status` knows which `set` it is from. With limits that come again, an older one, which the agent is
        about to leave, was taken for the new one."""
        self.drawn += 1
        return self.random.randint(least, most) * GIB - self.drawn % (GIB // 2)

    def new_tenant(self):
        self.count += 1
        while any(t.name == f"t{self.count % 16}" for t in self.tenants):
            self.count += 1
        cores = self.random.choice(["20:100", "10:100", "5:100", "15"])
        limit = self.draw_limit(4, 24)
        # Its name says nothing of its age: files of an old one must not be taken for the new one's.
        tenant, error = self.world.new_tenant(f"t{self.count % 16}", limit, cores)
        if tenant:
            self.tenants.append(tenant)
            self.new_worker(tenant)
        elif not self.tight and not self.lingering():
            raise Violation(f"refused: a tenant of {limit} MiB: {error}; " + self.who_is_there())

    def lingering(self):
        """Tenants that are over, and that the arbiter may not have noticed yet."""
        self.ended = [(n, at) for n, at in self.ended if not self.calm_since(at, self.world.END + SETTLE)]
        return [n for n, _ in self.ended]

    def who_is_there(self):
        return (f"known {sorted(t.name for t in self.tenants)}, there {sorted(self.status())}, ended "
                f"{[(n, round(time.monotonic() - at, 1)) for n, at in self.ended]}, "
                f"arbiter up for {self.world.up_for():.1f} s")

    def books_of(self, tenant):
        """What the arbiter says of a tenant, and what the machine says of its processes: for the report."""
        pids = [w.pid for w in tenant.workers]
        pages = [pages_text(p) for p in pids]  # first: they change
        told = None
        if self.awake < time.monotonic():
            told = self.status().get(tenant.sluice_name)
        show = subprocess.run([self.control, "show"], env=tenant.env, capture_output=True, text=True, check=False).stdout
        lines = [line.strip() for line in show.splitlines() if any(f"pid {p} " in line for p in pids)]
        return (f"the arbiter says {told}; the machine: {lines}; processes {pids}, dead {tenant.dead}, "
                f"now {time.monotonic():.3f}; pages: {pages}")

    def end_tenant(self, tenant):
        for worker in list(tenant.workers):
            self.end_worker(worker, kill=self.random.random() < 0.5)
        self.world.end_tenant(tenant)
        self.tenants.remove(tenant)
        self.ended.append((tenant.sluice_name, time.monotonic()))

    # ---- processes ----

    def workers(self):
        return [w for t in self.tenants for w in t.workers]

    def new_worker(self, tenant):
        if tenant.at_most() + CONTEXT + 2 * CONTEXT_SLACK > min(tenant.limits):
            return
        fault = None
        if self.random.random() < 0.3:
            fault = f"{self.random.choice(FAULTS)}:{self.random.randint(1, 20)}={INJECTED}"
        worker = Worker(self, tenant, fault)
        tenant.workers.append(worker)
        try:
            said = worker.line("start")
        except EOFError as e:
            tenant.workers.remove(worker)
            worker.end(kill=True)
            tenant.dead.append(Dead())
            if self.world.arbiter and not self.tight:
                raise Violation(f"died: a process with room for its context does not start: {e}") from None
            return
        assert said == "ready"
        worker.context_since = time.monotonic()

    def end_worker(self, worker, kill):
        tenant = worker.tenant
        tenant.workers.remove(worker)
        worker.end(kill)
        tenant.dead.append(Dead(worker))

    def take(self, worker):
        tenant, mib = worker.tenant, self.random.choice([2, 64, 256, 1024, 3 * GIB])
        how, place = self.random.choice(["alloc", "managed", "create"]), worker.free_place()
        before = tenant.at_most()
        rc, _ = worker.ask(f"{how} {place} {mib}")
        if rc == 0:
            worker.places[place] = Piece(mib, how)
            tenant.granted(how)
        elif rc == OUT_OF_MEMORY:
            tenant.refused(how, mib, before)
        elif rc != INJECTED:
            raise Violation(f"died: {worker.name()} {how}: error {rc}")

    def give(self, worker):
        if not worker.places:
            return
        place = self.random.choice(sorted(worker.places))
        rc, _ = worker.ask(f"free {place}")
        if rc == 0:
            del worker.places[place]
        elif rc != INJECTED:
            raise Violation(f"died: {worker.name()} free: error {rc}")

    def share(self, worker):
        """Another process of the tenant imports a piece: it counts once."""
        pieces = [i for i, p in worker.places.items() if p.how == "create"]
        if not pieces or len(worker.tenant.workers) < 2:
            return
        other = self.random.choice([w for w in worker.tenant.workers if w is not worker])
        place = self.random.choice(pieces)
        rc, fd = worker.ask(f"export {place}")
        if rc == INJECTED:
            return
        if rc != 0:
            raise Violation(f"died: {worker.name()} export: error {rc}")
        there = other.free_place()
        rc, _ = other.ask(f"import {there} {worker.pid} {fd}")
        worker.ask(f"close {fd}")
        if rc == 0:
            other.places[there] = worker.places[place]
        elif rc != INJECTED:
            raise Violation(f"refused: {other.name()} imports what its tenant has already: error {rc}")

    def burst(self, tenant):
        """All its processes take all they can at once; what they get together is the limit."""
        workers, mib = list(tenant.workers), 64
        before = tenant.at_most()
        wanted = [self.random.randint(5, 60) for _ in workers]
        for w, want in zip(workers, wanted):
            w.say(f"fill {mib} {want}")
        answers = [w.hear() for w in workers]
        for w, (_, got) in zip(workers, answers):
            w.filled = got * mib
        if any(got for _, got in answers):
            tenant.granted("a burst")
            if tenant.at_least() > tenant.most():
                raise Violation(f"over: {tenant.name} has {tenant.at_least()} of {tenant.most()} MiB "
                                f"with its contexts")
        for w, (rc, got), want in zip(workers, answers, wanted):
            if rc == OUT_OF_MEMORY:
                tenant.refused("a burst", mib, before + sum(g for _, g in answers) * mib)
            elif rc not in (0, INJECTED) or (rc == 0 and got != want):
                raise Violation(f"died: {w.name()} fill: error {rc}, {got} of {want}")
        for w in workers:
            rc, left = w.ask("drain")
            if rc == INJECTED:
                rc, left = w.ask("drain")
            w.filled = left * mib
            if rc != 0 or left != 0:
                raise Violation(f"died: {w.name()} drain: error {rc}, {left} left")

    def launch(self, workers, most):
        for w in workers:
            w.say(f"launch {self.random.randint(1, most)}")
        for w in workers:
            rc, _ = w.hear()
            if rc != 0:
                raise Violation(f"died: {w.name()} launch: error {rc}")

    def some_life(self, without=None):
        """What others do while somebody is away: it goes on."""
        others = [w for w in self.workers() if w is not without]
        for worker in self.random.sample(others, min(3, len(others))):
            self.take(worker)
            self.launch([worker], 5)
            self.give(worker)

    def stop_and_go(self, worker):
        """Stopped in the middle of its work; the others go on."""
        worker.say(f"launch {self.random.randint(1, 40)}")
        worker.tenant.stop(worker)
        try:
            self.some_life(without=worker)
        finally:
            worker.process.send_signal(signal.SIGCONT)
        rc, _ = worker.hear()
        if rc != 0:
            raise Violation(f"died: {worker.name()} launch: error {rc}")

    # ---- the arbiter ----

    def set_limit(self, tenant):
        limit = self.draw_limit(3, 26)
        error = self.world.set_limit(tenant, limit)
        self.log(f"set {tenant.name} {limit}: {error or 'done'}")
        if not error:
            tenant.set(limit)
        elif self.tight or "has not answered for" in error:  # command() saw no hang: the machine was that slow
            tenant.limits.add(limit)
            self.late[tenant] = limit
        elif not self.lingering():
            raise Violation(f"refused: {tenant.name} gets {limit} MiB: {error}; " + self.who_is_there())

    def restart(self):
        def life(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end and self.workers():
                self.random.choice([self.take, self.give])(self.random.choice(self.workers()))

        self.restarts += 1
        self.world.restart(self.random, life)
        for _ in range(20):  # nobody is refused because of it
            if self.workers():
                self.random.choice([self.take, self.give])(self.random.choice(self.workers()))
        self.check_leases()

    def stop_arbiter(self):
        """It does not answer for a moment; nobody needs it for what they may do anyway."""
        self.awake = float("inf")
        signal.pidfd_send_signal(self.world.pidfd, signal.SIGSTOP)
        try:
            self.some_life()
        finally:
            signal.pidfd_send_signal(self.world.pidfd, signal.SIGCONT)
            self.awake = time.monotonic()

    def full_disk(self):
        """No room for the state files while limits change and tenants come. Who follows by itself does so once there is
        room again."""
        if not self.world.disk:
            return
        ballast = os.path.join(self.world.disk, "ballast")
        self.tight = True
        self.late = {}
        try:
            with open(ballast, "wb", buffering=0) as f:
                try:
                    while True:
                        f.write(b"x" * 4096)
                except OSError:
                    pass
            for _ in range(4):
                if self.tenants:
                    self.set_limit(self.random.choice(self.tenants))
            workers = self.workers()
            for worker in self.random.sample(workers, min(3, len(workers))):
                self.take(worker)
            if len(self.tenants) < 5:
                self.new_tenant()
        finally:
            os.unlink(ballast)
            self.tight = False
        for tenant, limit in self.late.items():
            if self.world.catches_up(tenant, limit):
                tenant.set(limit)
        self.check_leases()

    def all_back(self, seconds):
        there = self.check_leases()
        back = all(there[t.sluice_name]["processes"] == len(t.workers) for t in self.tenants)
        if not back:
            time.sleep(min(seconds, 0.02))
        return back

    def few_descriptors(self):
        """The arbiter has no descriptor left for newcomers; those who are there notice nothing."""
        Patience(self.processes).until(self.all_back, "all processes are back with the arbiter")
        pid = self.world.arbiter
        now = len(os.listdir(f"/proc/{pid}/fd"))
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (now + self.random.randint(0, 3), hard))
        newcomers = []
        self.tight = True
        try:
            for tenant in self.tenants[:2]:
                newcomers.append(subprocess.Popen([self.program], env=tenant.env, stdin=subprocess.DEVNULL,
                                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            self.some_life()
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
            self.tight = False
        try:
            for process in newcomers:
                self.ended_within(process, "a process that came while descriptors were few")
        finally:
            for process in newcomers:
                process.kill()
                process.wait()
        for tenant in self.tenants[:2]:  # what they had for a moment
            tenant.dead.append(Dead())

    # ---- the run ----

    def step(self):
        events = [("take", 30), ("give", 22), ("share", 8), ("burst", 6), ("launch", 8), ("stop", 3),
                  ("set", 4), ("new tenant", 2), ("end tenant", 1), ("new worker", 4), ("kill worker", 3),
                  ("fork", 2), ("restart", 1), ("full disk", 1), ("descriptors", 1), ("stop arbiter", 1),
                  ("books", 2)]
        left_out = {*self.without, *(NEVER_STEADY if self.steady else ())}
        events = [(n, w) for n, w in events if n not in left_out]
        name = self.random.choices([n for n, _ in events], [w for _, w in events])[0]
        workers = self.workers()
        worker = self.random.choice(workers) if workers else None
        tenant = self.random.choice(self.tenants) if self.tenants else None
        self.log(f"-- {name}")
        self.events[name] = self.events.get(name, 0) + 1
        if name == "new tenant" or not tenant:
            if len(self.tenants) < 5:
                self.new_tenant()
        elif name == "end tenant":
            if len(self.tenants) > 2:
                self.end_tenant(tenant)
        elif name == "new worker" or not tenant.workers:
            if len(tenant.workers) < 4:
                self.new_worker(tenant)
        elif name in ("take", "give", "share"):
            getattr(self, name)(worker)
        elif name == "burst":
            self.burst(tenant)
        elif name == "launch":
            self.launch(list(tenant.workers), 40)
        elif name == "stop":
            self.stop_and_go(worker)
        elif name == "set":
            self.set_limit(tenant)
        elif name == "kill worker":
            self.end_worker(worker, kill=self.random.random() < 0.8)
        elif name == "fork":
            worker.ask("fork")
        elif name == "books":
            self.check_ledgers()
        else:
            {"restart": self.restart, "full disk": self.full_disk, "descriptors": self.few_descriptors,
             "stop arbiter": self.stop_arbiter}[name]()
        self.check_daemons()

    def run(self, seconds):
        try:
            self.world.begin()
            print(f"{self.world.name}, {seconds:.0f} s; the disk is "
                  f"{'filled at times' if self.world.disk else 'never full: no right to mount one'}", flush=True)
            began = time.monotonic()
            next_word, phase = began + 60, max(20.0, seconds / 10)
            for _ in range(3):
                self.new_tenant()
            while time.monotonic() < began + seconds:
                self.steady = int((time.monotonic() - began) / phase) % 2 == 1
                self.step()
                if time.monotonic() > next_word:
                    next_word += 60
                    print(f"{time.monotonic() - began:.0f} s: {self.operations} operations", flush=True)
            self.check_ledgers()
        except (Violation, Hang, EOFError, AssertionError) as e:
            text = {Hang: "hang: ", EOFError: "died: ", AssertionError: "hang: "}.get(type(e), "") + str(e)
            self.violations.append(text)
            print(f"VIOLATION {text}", flush=True)
        finally:
            self.clean()

    def clean(self):
        for worker in self.workers():
            worker.process.kill()
            worker.process.wait()
        self.world.end()

    def report(self):
        print(f"{self.world.name}: {self.operations} operations, {self.restarts} restarts, slowest answer "
              f"{self.slowest:.2f} s, {self.excused} over {LIMIT:.0f} s for want of a processor, memory watched for "
              f"{self.looked_flat:.0f} s on end; events: "
              f"{', '.join(f'{n} {c}' for n, c in sorted(self.events.items()))}", flush=True)


def in_own_mounts():
    """Once more, where a mount is nobody else's affair."""
    if os.environ.get("SLUICE_SOAK_INSIDE") or \
            subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return
    os.environ["SLUICE_SOAK_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])


def main():
    in_own_mounts()
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--world", action="append", choices=list(WORLDS), help="this one only")
    parser.add_argument("--without", action="append", default=[], help="leave out an event, to find a cause")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
    worlds = args.world or list(WORLDS)
    part = {"machine": 2 / 3, "cluster": 1 / 3}
    print(f"soak: SEED={seed}, {args.seconds:.0f} s", flush=True)
    violations = operations = 0
    for world in worlds:
        soak = Soak(os.path.abspath(args.build), seed, world, args.without, args.verbose)
        soak.run(args.seconds * part[world] / sum(part[w] for w in worlds))
        soak.report()
        violations += len(soak.violations)
        operations += soak.operations
    print(f"{operations} operations, {violations} violations; again with SEED={seed}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
