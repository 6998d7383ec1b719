# SPDX-License-Identifier: Apache-2.0
"""What the checker knows: processes, tenants, and the memory they hold. All figures are MiB."""
import os
import select
import signal
import subprocess
import time

from patience import Patience

CONTEXT = 500  # of a simulated H200
CONTEXT_SLACK = 12  # modules, and what the audit rounds
OUT_OF_MEMORY, INJECTED = 2, 999
FAULTS = ("cuMemAlloc_v2", "cuMemAllocManaged", "cuMemCreate", "cuMemFree_v2", "cuMemRelease",
          "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle")


class Violation(Exception):
    pass


class Piece:
    """Memory that one or several processes hold."""

    def __init__(self, mib, how):
        self.mib, self.how = mib, how


class Dead:
    """A process that ended: what it had counts until the arbiter has surely noticed. A piece that it shared counts
    once more if the others give it back meanwhile."""

    def __init__(self, worker=None):
        self.at = time.monotonic()
        self.pieces = set(worker.places.values()) if worker else set()
        self.filled = worker.filled if worker else 0

    def __repr__(self):
        return f"({self.at:.3f}: {self.filled} MiB and pieces of {sorted(p.mib for p in self.pieces)})"


class Worker:
    """A process of a tenant. One request is under way at most."""

    def __init__(self, soak, tenant, fault=None):
        self.soak, self.tenant, self.fault = soak, tenant, fault
        env = dict(tenant.env)
        if fault:
            env["SLUICE_SIM_FAULT"] = fault
        self.process = subprocess.Popen([soak.program], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid
        self.places = {}  # place → Piece
        self.filled = 0
        self.buffer = b""
        self.asked = None
        self.context_since = time.monotonic()

    def name(self):
        return f"{self.tenant.name}/{self.pid}"

    def read(self, seconds):
        """True once a whole line is there."""
        if b"\n" in self.buffer:
            return True
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return False
        data = os.read(self.process.stdout.fileno(), 4096)
        if not data:
            error = self.process.stderr.read().decode(errors="replace").strip()
            raise EOFError(f"{self.name()} ended: {error or 'without a word'}")
        self.buffer += data
        return b"\n" in self.buffer

    def line(self, what):
        wait = Patience(self.soak.processes)
        wait.until(self.read, f"{self.name()} {what!r}")
        self.soak.waited(wait, f"{self.name()} {what!r}")
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def say(self, request):
        self.asked = request
        self.process.stdin.write(request.encode() + b"\n")

    def hear(self):
        request, self.asked = self.asked, None
        rc, value = self.line(request).split()
        self.soak.operations += 1
        self.soak.log(f"{self.name()} {request} -> {rc} {value}")
        return int(rc), int(value)

    def ask(self, request):
        self.say(request)
        return self.hear()

    def free_place(self):
        return next(i for i in range(256) if i not in self.places)

    def end(self, kill):
        """However it ends, its pipes are closed."""
        if kill:
            self.process.kill()
        elif not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.soak.ended_within(self.process, self.name())
        finally:
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                pipe.close()


class Tenant:
    def __init__(self, soak, name, limit, env):
        self.soak, self.name, self.env = soak, name, env
        self.sluice_name = name  # as the arbiter has it
        self.limits = {limit}  # which of them holds is not known after a `set` that failed
        self.older = []  # (until when the arbiter was set, MiB): limits a process may still have
        self.workers = []
        self.dead = []

    def pieces(self):
        return {p for w in self.workers for p in w.places.values()}

    def held(self):
        """MiB that its living processes hold, shared pieces once."""
        return sum(p.mib for p in self.pieces()) + sum(w.filled for w in self.workers)

    def at_most(self):
        """The most the books may rightly have: with what the dead had, and with contexts."""
        self.dead = [d for d in self.dead if not self.soak.calm_since(d.at)]
        pieces = self.pieces().union(*(d.pieces for d in self.dead))
        all_of_them = self.workers + self.dead
        return (sum(p.mib for p in pieces) + sum(w.filled for w in all_of_them) +
                len(all_of_them) * (CONTEXT + CONTEXT_SLACK))

    def at_least(self):
        """What it surely holds: contexts count once the arbiter has been there to measure them."""
        contexts = sum(self.soak.measured(w) for w in self.workers)
        return self.held() + contexts * CONTEXT

    def set(self, limit):
        """A process that is not back yet since a restart has the limit of before until it is."""
        if not self.soak.calm_since(0):
            self.older += [(time.monotonic(), mib) for mib in self.limits]
        self.limits = {limit}

    def most(self):
        self.older = [o for o in self.older if not self.soak.calm_since(o[0])]
        return max([*self.limits, *(mib for _, mib in self.older)])

    def granted(self, what):
        if self.held() > self.most():
            raise Violation(f"over: {self.name} holds {self.held()} of {self.most()} MiB after {what} "
                            f"(arbiter up for {self.soak.world.up_for():.1f} s; {self.soak.books_of(self)})")

    def refused(self, what, mib, before):
        if before + mib <= min(self.limits):
            raise Violation(f"refused: {self.name} {what}: {mib} MiB beside {before} of {min(self.limits)} "
                            f"(arbiter up for {self.soak.world.up_for():.1f} s; {self.soak.books_of(self)})")

    def stop(self, worker):
        """Not where it holds the lock of the simulated machine: no real driver waits for a stopped process."""
        while True:
            worker.process.send_signal(signal.SIGSTOP)
            try:
                subprocess.run([self.soak.control, "show"], env=self.env, stdout=subprocess.DEVNULL,
                               timeout=0.5, check=False)
                return
            except subprocess.TimeoutExpired:
                worker.process.send_signal(signal.SIGCONT)
                time.sleep(0.001)
