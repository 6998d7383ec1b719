#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random tenants on a simulated node, and a checker that knows the truth.

usage: soak.py BUILD_DIR [--seconds N] [--seed N] [--await NAME]... [--without EVENT]... [--verbose]

Tenants come and go, take memory in several ways, share it, launch, fork, are killed and stopped; their
limits change; the arbiter is killed, ended, started again, and runs out of disk and of
descriptors; the driver fails. The same seed draws the same events; what happens between them is the
machine's affair.

Checked all the while (a violation is printed, and the exit status is 1):
  over       what a tenant was granted is within its limit
  refused    nothing is refused that fits
  ledger     what `sluice status` shows as used is what is held, once things are quiet
  lease      every tenant is there after every restart, with its limit
  hang       every request, `status` and start is answered within 5 s
  died       nobody ends who was not told to
  leak       the arbiter's own memory and descriptors stay flat

--await NAME leaves out one check whose mend is known to be under way:
  restart      refusals in the three seconds after an arbiter's restart are counted, no violations; and
               contexts that are older than the arbiter may be left out for half a minute
  descriptors  launches while the arbiter is out of descriptors
  gate         launches while some process is stopped in the middle of its work; launches that hang
               (they do, now and then, once the arbiter was restarted) are counted, no violations
"""
import argparse
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GIB = 1024  # everything is in MiB
CONTEXT = 500  # of a simulated H200
CONTEXT_SLACK = 12  # modules, and what the audit rounds
OUT_OF_MEMORY, INJECTED = 2, 999
PATIENCE = 5.0  # s: longer is a hang
SETTLE = 2.0  # s after a death or a restart until figures have to be right
READY = b"R"
FLAT_KIB = 2048  # an arbiter may grow by this much after its first seconds


class Violation(Exception):
    pass


class Piece:
    """Memory that one or several workers hold."""

    def __init__(self, mib):
        self.mib = mib
        self.holders = set()


class Worker:
    """A process of a tenant. One request is under way at most."""

    def __init__(self, soak, tenant, fault=None):
        self.soak, self.tenant = soak, tenant
        env = dict(tenant.env)
        if fault:
            env["SLUICE_SIM_FAULT"] = fault
        self.fault = fault
        self.process = subprocess.Popen([soak.program], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid
        self.places = {}  # place -> Piece
        self.filled = 0
        self.buffer = b""
        self.asked = None
        self.context_since = time.monotonic()

    def line(self, deadline, what):
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Violation(f"hang: {self.name()} did not answer {what!r} within {PATIENCE} s")
            data = os.read(self.process.stdout.fileno(), 4096)
            if not data:
                error = self.process.stderr.read().decode(errors="replace").strip()
                raise EOFError(f"{self.name()} ended at {what!r}: {error}")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def name(self):
        return f"{self.tenant.name}/{self.pid}"

    def say(self, request):
        self.asked = (request, time.monotonic())
        self.process.stdin.write(request.encode() + b"\n")

    def hear(self):
        request, since = self.asked
        self.asked = None
        rc, value = self.line(since + PATIENCE, request).split()
        self.soak.operations += 1
        self.soak.slowest = max(self.soak.slowest, time.monotonic() - since)
        self.soak.log(f"{self.name()} {request} -> {rc} {value}")
        return int(rc), int(value)

    def ask(self, request):
        self.say(request)
        return self.hear()

    def free_place(self):
        return next(i for i in range(256) if i not in self.places)


class Tenant:
    def __init__(self, soak, name, limit, cores):
        self.soak, self.name = soak, name
        self.limits = {limit}  # which of them holds is not known after a `set` that failed
        self.before = (0, 0)  # when its limit was set just after a restart, and the limit before
        self.workers = []
        self.dead = []  # (time of death, MiB): until the arbiter has surely noticed
        self.env = {}
        self.holder = subprocess.Popen(
            [soak.sluice, "--dir", soak.dir, "run", "--sim", "h200", "--name", name, "--memory",
             f"{limit}Mi", "--cores", cores, "--", soak.program, "hold"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in self.holder.stdout:
            key, separator, value = line.rstrip("\n").partition("=")
            if not separator:
                break
            self.env[key] = value

    def pieces(self):
        return {p for w in self.workers for p in w.places.values()}

    def held(self):
        """MiB that its living processes hold, shared pieces once."""
        return sum(p.mib for p in self.pieces()) + sum(w.filled for w in self.workers)

    def at_most(self):
        """The most the books may rightly have: with what the dead had, and with contexts."""
        self.dead = [d for d in self.dead if not self.soak.calm_since(d[0])]
        return (self.held() + sum(mib for _, mib in self.dead) +
                (len(self.workers) + len(self.dead)) * (CONTEXT + CONTEXT_SLACK))

    def at_least(self):
        """What it surely holds: contexts count once the arbiter has been there to measure them."""
        contexts = sum(self.soak.measured(w) for w in self.workers)
        return self.held() + contexts * CONTEXT

    def most(self):
        since, limit = self.before
        return max(self.limits) if self.soak.calm_since(since) else max(limit, *self.limits)

    def granted(self, what):
        if self.held() > self.most():
            raise Violation(f"over: {self.name} holds {self.held()} of {self.most()} MiB after {what}")

    def refused(self, what, mib, before):
        if before + mib <= min(self.limits):
            if "restart" in self.soak.awaited and self.soak.up_for() < 3:
                self.soak.met["refusals after restarts"] += 1
                return
            raise Violation(f"refused: {self.name} {what}: {mib} MiB beside {before} of {min(self.limits)} "
                            f"(arbiter up for {self.soak.up_for():.1f} s)")


class Soak:
    def __init__(self, build, seed, awaited, without, verbose):
        self.build, self.random, self.verbose = build, random.Random(seed), verbose
        self.awaited, self.without = awaited, without
        self.met = {"refusals after restarts": 0, "launches that hung": 0}
        self.sluice = os.path.join(build, "bin", "sluice")
        self.control = os.path.join(build, "sim", "sluice-sim-ctl")
        self.program = os.path.join(build, "tests", "bin", "soak_tenant")
        self.tmp = tempfile.mkdtemp(prefix="sluice-soak-")
        self.dir = os.path.join(self.tmp, "w")
        self.tenants, self.children = [], []
        self.arbiter, self.pidfd, self.started = None, -1, 0.0
        self.count, self.operations, self.slowest = 0, 0, 0.0
        self.events, self.violations = {}, []
        self.disk = None
        self.ended = []  # (name, when) of tenants that are over
        self.flat = None
        self.tight_until = 0.0

    def log(self, text):
        if self.verbose:
            print(f"{time.monotonic():.3f} {text}", flush=True)

    # ---- the arbiter ----

    def start_arbiter(self):
        """As an operator would. A `sluice run` that lost its arbiter may have been quicker: then that one
        is the arbiter."""
        read, write = os.pipe()
        child = subprocess.Popen(
            [self.sluice, "--dir", self.dir, "arbiter", "--sim", "h200", "--idle-exit", "0", "--ready-fd",
             str(write)], pass_fds=[write], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(write)
        self.children.append(child)
        said, deadline = b"", time.monotonic() + PATIENCE
        while not said.startswith(READY):
            if not select.select([read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Violation(f"hang: the arbiter is not ready after {PATIENCE} s: {said!r}")
            data = os.read(read, 512)
            if not data:
                break
            said += data
        os.close(read)
        if not said.startswith(READY) and b"already serves" not in said:
            raise Violation(f"died: the arbiter does not start: {said!r}")
        pid = child.pid
        while not said.startswith(READY):
            done = self.command("status", "--json")
            pid = json.loads(done.stdout).get("arbiter_pid") if done.returncode == 0 else None
            if pid:
                break
            if time.monotonic() > deadline:
                raise Violation("hang: an arbiter is said to be there, and does not answer")
        self.arbiter, self.pidfd = pid, os.pidfd_open(pid)
        self.started = time.monotonic()
        self.flat = None

    def arbiter_gone(self, patience):
        return bool(select.select([self.pidfd], [], [], patience)[0])

    def up_for(self):
        return time.monotonic() - self.started if self.arbiter else 0.0

    def calm_since(self, moment):
        """The arbiter has had time to see what happened at that moment."""
        return self.arbiter is not None and time.monotonic() - max(moment, self.started) > SETTLE

    def measured(self, worker):
        """The arbiter knows the worker's context: it was there when that was made, or has had its time."""
        if worker.context_since > self.started:
            return self.calm_since(worker.context_since)
        return self.arbiter is not None and self.up_for() > (30 if "restart" in self.awaited else 5)

    def end_arbiter(self, how):
        if self.arbiter_gone(0):
            raise Violation("died: the arbiter ended by itself")
        signal.pidfd_send_signal(self.pidfd, how)
        if not self.arbiter_gone(PATIENCE):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            raise Violation(f"hang: the arbiter did not end within {PATIENCE} s of {how.name}")
        os.close(self.pidfd)
        self.arbiter = None
        for child in list(self.children):
            if child.poll() is not None:
                self.children.remove(child)

    def command(self, *words):
        try:
            return subprocess.run([self.sluice, "--dir", self.dir, *words], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise Violation(f"hang: `sluice {' '.join(words)}` did not end within {PATIENCE} s")

    def status(self):
        done = self.command("status", "--json")
        if done.returncode != 0:
            raise Violation(f"died: `sluice status` ends with {done.returncode}: {done.stderr.strip()}")
        return {t["name"]: t for t in json.loads(done.stdout)["tenants"]}

    # ---- checks ----

    def check_leases(self):
        over = set(self.lingering()) | {t.name for t in self.tenants}
        there = self.status()
        ghosts = set(there) - over
        if ghosts:
            raise Violation(f"lease: {sorted(ghosts)} are over, and still there; {self.who_is_there()}")
        for t in self.tenants:
            if t.name not in there:
                raise Violation(f"lease: {t.name} is not there any more "
                                f"(arbiter up for {self.up_for():.1f} s)")
            limit = there[t.name]["gpus"][0]["memory_limit_bytes"] >> 20
            if limit not in t.limits:
                raise Violation(f"lease: {t.name} has {limit} MiB instead of {sorted(t.limits)}")
        return there

    def check_ledgers(self):
        """Exact once the dead are buried: waits for it, within reason."""
        deadline = time.monotonic() + SETTLE + PATIENCE
        while True:
            there = self.check_leases()
            wrong = [(t.name, there[t.name]["gpus"][0]["memory_used_bytes"] >> 20, t.held())
                     for t in self.tenants]
            wrong = [w for w in wrong if w[1] != w[2]]
            if not wrong:
                return
            self.log(f"books: {wrong}")
            if time.monotonic() > deadline:
                raise Violation(f"ledger: (tenant, MiB in the books, MiB held): {wrong}")
            time.sleep(0.1)

    def check_arbiter(self):
        if self.arbiter_gone(0):
            raise Violation("died: the arbiter ended by itself")
        with open(f"/proc/{self.arbiter}/status", encoding="utf-8") as f:
            anonymous = int(next(line for line in f if line.startswith("RssAnon")).split()[1])
        descriptors = len(os.listdir(f"/proc/{self.arbiter}/fd"))
        if self.up_for() < 5:
            return
        if self.flat is None:
            self.flat = anonymous
        if anonymous > self.flat + FLAT_KIB:
            raise Violation(f"leak: the arbiter has {anonymous} KiB of its own, {self.flat} at first")
        most = 40 + 8 * len(self.tenants) + 4 * sum(len(t.workers) + len(t.dead) for t in self.tenants)
        if descriptors > most and all(self.calm_since(d[0]) for t in self.tenants for d in t.dead):
            raise Violation(f"leak: the arbiter has {descriptors} descriptors, {most} are plenty")

    # ---- events ----

    def new_tenant(self):
        self.count += 1
        while any(t.name == f"t{self.count % 16}" for t in self.tenants):
            self.count += 1
        cores = self.random.choice(["20:100", "10:100", "5:100", "15"])
        limit = self.random.randint(4, 24) * GIB
        # Its name says nothing of its age: files of an old one must not be taken for the new one's.
        tenant = Tenant(self, f"t{self.count % 16}", limit, cores)
        if "SLUICE_ATTACH" not in tenant.env:
            error = tenant.holder.stderr.read().strip()
            tenant.holder.wait()
            if time.monotonic() > self.tight_until and not self.lingering():
                raise Violation(f"refused: a tenant of {limit} MiB: {error}; " + self.who_is_there())
            return
        self.tenants.append(tenant)
        self.new_worker(tenant)

    def lingering(self):
        """Tenants that are over, and that the arbiter may not have noticed yet."""
        self.ended = [(n, at) for n, at in self.ended if not self.calm_since(at)]
        return [n for n, _ in self.ended]

    def who_is_there(self):
        return (f"known {sorted(t.name for t in self.tenants)}, there {sorted(self.status())}, ended "
                f"{[(n, round(time.monotonic() - at, 1)) for n, at in self.ended]}, "
                f"arbiter up for {self.up_for():.1f} s")

    def end_tenant(self, tenant):
        for worker in list(tenant.workers):
            self.end_worker(worker, kill=self.random.random() < 0.5)
        tenant.holder.stdin.close()
        try:
            tenant.holder.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Violation(f"hang: `sluice run` of {tenant.name} does not end")
        tenant.holder.stdout.close()
        tenant.holder.stderr.close()
        self.tenants.remove(tenant)
        self.ended.append((tenant.name, time.monotonic()))

    def new_worker(self, tenant):
        if tenant.at_most() + CONTEXT + 2 * CONTEXT_SLACK > min(tenant.limits):
            return
        fault = None
        if self.random.random() < 0.3:
            fault = f"{self.random.choice(['cuMemAlloc_v2', 'cuMemCreate', 'cuMemFree_v2', 'cuMemRelease'])}" \
                    f":{self.random.randint(1, 20)}={INJECTED}"
        worker = Worker(self, tenant, fault)
        try:
            said = worker.line(time.monotonic() + PATIENCE, "start")
        except EOFError as e:
            worker.process.wait()
            if self.arbiter and time.monotonic() > self.tight_until and self.up_for() > SETTLE:
                raise Violation(f"died: a process with room for its context does not start: {e}")
            return
        assert said == "ready"
        worker.context_since = time.monotonic()
        tenant.workers.append(worker)

    def end_worker(self, worker, kill):
        tenant = worker.tenant
        before = tenant.held()
        if kill:
            worker.process.kill()
        else:
            worker.process.stdin.close()
        try:
            worker.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Violation(f"hang: {worker.name()} does not end")
        for pipe in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
            pipe.close()
        tenant.workers.remove(worker)
        for piece in worker.places.values():
            piece.holders.discard(worker)
        tenant.dead.append((time.monotonic(), before - tenant.held()))

    def take(self, worker):
        tenant, mib = worker.tenant, self.random.choice([2, 64, 256, 1024, 3 * GIB])
        how, place = self.random.choice(["alloc", "managed", "create"]), worker.free_place()
        before = tenant.at_most()
        rc, _ = worker.ask(f"{how} {place} {mib}")
        if rc == 0:
            worker.places[place] = Piece(mib)
            worker.places[place].holders.add(worker)
            worker.places[place].how = how
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
            worker.places.pop(place).holders.discard(worker)
        elif rc != INJECTED:
            raise Violation(f"died: {worker.name()} free: error {rc}")

    def share(self, worker):
        """Another process of the tenant imports a piece: it counts once."""
        pieces = [i for i, p in worker.places.items() if getattr(p, "how", "") == "create"]
        if not pieces or len(worker.tenant.workers) < 2:
            return
        other = self.random.choice([w for w in worker.tenant.workers if w is not worker])
        place = self.random.choice(pieces)
        rc, fd = worker.ask(f"export {place}")
        if rc != 0:
            raise Violation(f"died: {worker.name()} export: error {rc}")
        there = other.free_place()
        rc, _ = other.ask(f"import {there} {worker.pid} {fd}")
        worker.ask(f"close {fd}")
        if rc != 0:
            raise Violation(f"refused: {other.name()} imports what its tenant has already: error {rc}")
        piece = worker.places[place]
        other.places[there] = piece
        piece.holders.add(other)

    def burst(self, tenant):
        """All its processes take all they can at once; what they get together is the limit."""
        workers, mib = list(tenant.workers), 64
        before = tenant.at_most()
        for w in workers:
            w.say(f"fill {mib} {self.random.randint(5, 60)}")
        wanted = [int(w.asked[0].split()[2]) for w in workers]
        answers = [w.hear() for w in workers]
        for w, (_, got) in zip(workers, answers):
            w.filled = got * mib
        if any(got for _, got in answers):
            tenant.granted("a burst")
        if any(got for _, got in answers):
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

    def launch(self, tenant):
        workers = list(tenant.workers)
        for w in workers:
            w.say(f"launch {self.random.randint(1, 40)}")
        for w in workers:
            try:
                rc, _ = w.hear()
            except Violation:
                if "gate" not in self.awaited:
                    raise
                self.met["launches that hung"] += 1
                self.end_worker(w, kill=True)
                continue
            if rc != 0:
                raise Violation(f"died: {w.name()} launch: error {rc}")

    @staticmethod
    def launch_one(worker, count):
        rc, _ = worker.ask(f"launch {count}")
        if rc != 0:
            raise Violation(f"died: {worker.name()} launch: error {rc}")

    def stop(self, worker):
        """Not where it holds the lock of the simulated machine: no real driver waits for a stopped process."""
        while True:
            worker.process.send_signal(signal.SIGSTOP)
            try:
                subprocess.run([self.control, "show"], env=worker.tenant.env, stdout=subprocess.DEVNULL,
                               timeout=0.5, check=False)
                return
            except subprocess.TimeoutExpired:
                worker.process.send_signal(signal.SIGCONT)
                time.sleep(0.001)

    def stop_and_go(self, worker):
        """Stopped in the middle of its work; the others go on."""
        worker.say("launch 0" if "gate" in self.awaited else f"launch {self.random.randint(1, 40)}")
        self.stop(worker)
        try:
            for _ in range(3):
                other = self.random.choice(self.tenants)
                free = [w for w in other.workers if w is not worker]
                if free:
                    self.take(free[0])
                if free and "gate" not in self.awaited:
                    self.launch_one(free[0], 5)
        finally:
            worker.process.send_signal(signal.SIGCONT)
        worker.asked = (worker.asked[0], time.monotonic())
        rc, _ = worker.hear()
        if rc != 0:
            raise Violation(f"died: {worker.name()} launch: error {rc}")

    def set_limit(self, tenant):
        limit = self.random.randint(3, 26) * GIB
        done = self.command("set", "--memory", f"{limit}Mi", tenant.name)
        if done.returncode == 0:
            # A process takes it over when it is back with the arbiter, if that was just restarted.
            tenant.before = (time.monotonic(), max(tenant.limits)) if self.up_for() < SETTLE else (0, 0)
            tenant.limits = {limit}
            self.log(f"set {tenant.name} {limit}: done")
            return
        self.log(f"set {tenant.name} {limit}: {done.stderr.strip()}")
        if time.monotonic() <= self.tight_until:
            tenant.limits.add(limit)
        elif not self.lingering():
            raise Violation(f"refused: `sluice set --memory {limit}Mi {tenant.name}`: {done.stderr.strip()}; " +
                            self.who_is_there())

    def restart(self):
        how = self.random.choice([signal.SIGKILL, signal.SIGTERM])
        self.end_arbiter(how)
        away = self.random.choice([0, 0, 0.3, 1.0])
        end = time.monotonic() + away
        while time.monotonic() < end:  # life goes on without it
            workers = self.workers()
            if not workers:
                break
            self.random.choice([self.take, self.give])(self.random.choice(workers))
        self.start_arbiter()
        for _ in range(20):  # nobody is refused because of it
            workers = self.workers()
            if workers:
                self.random.choice([self.take, self.give])(self.random.choice(workers))
        self.check_leases()

    def full_disk(self):
        """No room for the state files while limits change and tenants come."""
        if not self.disk:
            return
        ballast = os.path.join(self.disk, "ballast")
        self.tight_until = time.monotonic() + 60
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
        self.tight_until = 0
        self.check_leases()

    def few_descriptors(self):
        """The arbiter has no descriptor left for newcomers; those who are there notice nothing."""
        pid = self.arbiter
        now = len(os.listdir(f"/proc/{pid}/fd"))
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        self.tight_until = time.monotonic() + 60
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (now + self.random.randint(0, 3), hard))
        newcomers = []
        try:
            for tenant in self.tenants[:2]:
                newcomers.append(subprocess.Popen([self.program], env=tenant.env, stdin=subprocess.DEVNULL,
                                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            for worker in self.workers()[:4]:
                self.take(worker)
                if "descriptors" not in self.awaited:
                    self.launch_one(worker, 3)
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        for process in newcomers:
            try:
                process.wait(3 * PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise Violation("hang: a process that came while descriptors were few")
        for tenant in self.tenants[:2]:  # what they had for a moment
            tenant.dead.append((time.monotonic(), 0))
        self.tight_until = 0

    # ---- the run ----

    def workers(self):
        return [w for t in self.tenants for w in t.workers]

    def step(self):
        events = [("take", 30), ("give", 22), ("share", 8), ("burst", 6), ("launch", 8), ("stop", 3),
                  ("set", 4), ("new tenant", 2), ("end tenant", 1), ("new worker", 4), ("kill worker", 3),
                  ("fork", 2), ("restart", 1), ("full disk", 1), ("descriptors", 1), ("books", 2)]
        events = [(n, w) for n, w in events if n not in self.without]
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
        elif name in ("burst", "launch"):
            getattr(self, name)(tenant)
        elif name == "stop":
            self.stop_and_go(worker)
        elif name == "set":
            self.set_limit(tenant)
        elif name == "kill worker":
            self.end_worker(worker, kill=self.random.random() < 0.8)
        elif name == "fork":
            worker.ask("fork")
        elif name == "restart":
            self.restart()
        elif name == "full disk":
            self.full_disk()
        elif name == "descriptors":
            self.few_descriptors()
        else:
            self.check_ledgers()
        self.check_arbiter()

    def mount_small_disk(self):
        """A disk of its own for the state files, where that is allowed."""
        if not os.environ.get("SLUICE_SOAK_INSIDE"):
            return
        where = os.path.join(self.dir, "t")
        os.makedirs(where, mode=0o700, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", where],
                              stderr=subprocess.PIPE, check=False)
        self.disk = where if done.returncode == 0 else None


    def run(self, seconds):
        os.makedirs(self.dir, mode=0o700)
        self.mount_small_disk()
        print(f"the disk is {'filled at times' if self.disk else 'never full: no right to mount one'}",
              flush=True)
        try:
            self.start_arbiter()
            end = time.monotonic() + seconds
            next_word = time.monotonic() + 60
            for _ in range(3):
                self.new_tenant()
            while time.monotonic() < end:
                self.step()
                if time.monotonic() > next_word:
                    next_word += 60
                    print(f"{int(seconds - (end - time.monotonic()))} s: {self.operations} operations",
                          flush=True)
            self.check_ledgers()
        except (Violation, EOFError) as e:
            text = str(e) if isinstance(e, Violation) else f"died: {e}"
            self.violations.append(text)
            print(f"VIOLATION {text}", flush=True)
        finally:
            self.clean()

    def clean(self):
        for worker in self.workers():
            worker.process.kill()
            worker.process.wait()
        for tenant in self.tenants:
            tenant.holder.kill()
            tenant.holder.wait()
        if self.arbiter:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            self.arbiter_gone(PATIENCE)
        for child in self.children:
            child.wait()
        if self.disk:
            subprocess.run(["umount", "-l", self.disk], check=False)
        deadline = time.monotonic() + PATIENCE
        while os.path.exists(self.tmp) and time.monotonic() < deadline:
            shutil.rmtree(self.tmp, ignore_errors=True)  # a process that just died may still have made a file


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
    parser.add_argument("--await", action="append", default=[], dest="awaited",
                        choices=["restart", "descriptors", "gate"])
    parser.add_argument("--without", action="append", default=[], help="leave out an event, to find a cause")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
    print(f"soak: SEED={seed}, {args.seconds:.0f} s", flush=True)
    soak = Soak(os.path.abspath(args.build), seed, args.awaited, args.without, args.verbose)
    soak.run(args.seconds)
    print(f"{soak.operations} operations, slowest answer {soak.slowest:.2f} s, events: "
          f"{', '.join(f'{n} {c}' for n, c in sorted(soak.events.items()))}")
    if args.awaited:
        print(f"left out until they are mended: {', '.join(args.awaited)}; "
              f"{', '.join(f'{count} {what}' for what, count in soak.met.items())}")
    print(f"{len(soak.violations)} violations")
    return 1 if soak.violations else 0


if __name__ == "__main__":
    sys.exit(main())
