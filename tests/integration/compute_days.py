#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Good and bad days of compute shares, on a simulated GPU, with real processes.

usage: compute_days.py BUILD_DIR [--at-once] [unittest options]

--at-once: three scenarios for each processor at a time, as each sleeps most of the time and has a machine of its own;
those that need the processors come first, alone.

Every scenario asserts behaviour: who got how much of the GPU in one run, who went on, who waited. The machine
may be busy, and a tenant that gets no processor launches nothing: so a control runs at the same time, alone on
a simulated machine of its own. Nobody has to get more than its part of what the control got. Margins are wide;
the benchmarks have the narrow ones.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import at_once  # noqa: E402
import folders  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
SLUICE = os.path.join(BUILD, "bin", "sluice")
TENANT = os.path.join(BUILD, "tests", "integration", "compute_tenant")
CTL = os.path.join(BUILD, "sim", "sluice-sim-ctl")
CLOCK_JUMPS = os.path.join(BUILD, "tests", "integration", "libclock_jumps.so")


class Tenant:
    """One `sluice run`, and the work its command reports."""

    def __init__(self, world, name, *mode, cores=None, priority=None, gpus=None, compute=None, env=None, program=TENANT,
                 memory=None, prefix=()):
        command = [*prefix, SLUICE, "--dir", world.dir, "run", "--sim", world.sim, "--name", name]
        command += ["--cores", str(cores)] if cores else []
        command += ["--memory", memory] if memory else []
        command += ["--priority", priority] if priority else []
        command += ["--gpu", gpus or "0"]  # together: the arbiter would give each a card of its own
        command += ["--compute", compute] if compute else []
        command += ["--", program, *mode]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env={**os.environ, **(env or {})})
        world.addCleanup(self.end)
        self.name = name
        self.pid = 0
        said = ""
        for line in self.process.stderr:
            said += line
            if line.startswith("ready "):
                self.pid = int(line.split()[1])
                break
        self.ready = time.monotonic()
        if not self.pid:
            raise AssertionError(f"{name} did not start: {said}")

    def result(self, timeout=60):
        out, err = self.process.communicate(timeout=timeout)
        if self.process.returncode != 0 or not out.strip():
            raise AssertionError(f"{self.name}: exit {self.process.returncode}: {err}")
        return json.loads(out)

    def end(self):
        """Whatever became of the test, nothing stays behind."""
        for stop in (self.process.terminate, self.process.kill):
            if self.process.poll() is None:
                stop()
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    pass
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.communicate(timeout=20)


class World(unittest.TestCase):
    sim = "h200"

    def arbiter_pid(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                    words = f.read().split("\0")
            except OSError:
                continue
            if "arbiter" in words and self.dir in words:
                return int(pid)
        raise AssertionError(f"no arbiter serves {self.dir}")

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="sluice-days-")
        self.dir = os.path.join(self.tmp.name, "w")
        # After the tenants have ended, which would start an arbiter anew: what is added first comes last.
        self.addCleanup(self.tmp.cleanup)
        self.addCleanup(folders.end_arbiters, self.tmp.name)

    def status(self):
        out = subprocess.run([SLUICE, "--dir", self.dir, "status", "--json"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        return json.loads(out)

    def ctl(self, *args):
        state = [f for f in os.listdir(self.dir) if f.endswith(".state")]
        env = {**os.environ, "SLUICE_SIM": self.sim, "SLUICE_SIM_STATE": os.path.join(self.dir, state[0])}
        return subprocess.run([CTL, *args], check=True, stdout=subprocess.PIPE, text=True, env=env, timeout=5).stdout

    def stop(self, tenant):
        """Stops its process; not with the simulated machine's lock in its hand, which no real driver leaves to it."""
        for _ in range(10):
            os.kill(tenant.pid, signal.SIGSTOP)
            try:
                return self.ctl("show")
            except subprocess.TimeoutExpired:
                os.kill(tenant.pid, signal.SIGCONT)
        raise AssertionError(f"{tenant.name} always holds the lock")

    def steady(self, name, seconds, *more, **how):
        """A tenant with so much in its queue that a busy processor does not make it idle."""
        return Tenant(self, name, "steady", "kernel_us=500", "batch_us=20000", f"seconds={seconds}", *more, **how)

    def control(self, seconds):
        """The same, alone on a simulated machine of its own."""
        elsewhere = types.SimpleNamespace(dir=self.dir + "-alone", sim="h200", addCleanup=self.addCleanup)
        return World.steady(elsewhere, "control", seconds)

    def assertShare(self, tenant, result, want, control, moments, delta=8):
        """It got what it should between two moments, or that part of what the control got, and no more."""
        begin, end = moments
        got = self.share(result, begin, end)
        self.assertGreater(got, (want - delta) * self.at_once(tenant, control, moments), tenant.name)
        self.assertLess(got, want + delta, tenant.name)

    def at_once(self, tenant, control, moments):
        """The part of the GPU's time, 0 to 1, that the control got between two moments of a tenant."""
        if not hasattr(control, "said"):
            control.said = control.result()
        later = tenant.ready - control.ready
        return min(1.0, self.share(control.said, moments[0] + later, moments[1] + later) / 100)

    @staticmethod
    def share(result, begin=0.0, end=None):
        """Part of the wall time between two moments (s) in which its kernels ran, in percent."""
        tenths = result["tenths"]
        end = len(tenths) / 10 - 0.1 if end is None else end
        part = tenths[int(begin * 10):int(end * 10)]
        return 100.0 * sum(part) / (len(part) * 1e8) if part else 0.0


class GoodDays(World):
    def test_cap_alone(self):
        control, a = self.control(5), self.steady("a", 4, cores=25)
        self.assertShare(a, a.result(), 25, control, (0.5, 3.8))

    def test_cap_alone_graph(self):
        control, a = self.control(5), Tenant(self, "a", "graph", "nodes=100", "seconds=4", cores=30)
        self.assertShare(a, a.result(), 30, control, (0.5, 3.8))

    def test_cap_alone_long_kernels(self):
        control, a = self.control(6), Tenant(self, "a", "steady", "kernel_us=20000", "seconds=5", cores=25)
        self.assertShare(a, a.result(), 25, control, (1.0, 4.8))

    def test_weights(self):
        control = self.control(5.5)
        a = self.steady("a", 4.5, cores="30:100")
        b = self.steady("b", 4.5, cores="70:100")
        got_a, got_b = self.share(a.result(), 1, 4), self.share(b.result(), 1, 4)
        self.assertAlmostEqual(100 * got_a / (got_a + got_b), 30, delta=10)
        self.assertGreater(got_a + got_b, 80 * self.at_once(a, control, (1, 4)))

    def test_burst(self):
        control = self.control(7)
        a = self.steady("a", 6, cores="30:100")
        time.sleep(2)
        b = self.steady("b", 2, cores="70:100")
        came = b.ready - a.ready
        b.result()
        r = a.result()
        for alone in ((0.5, came - 0.3), (came + 3.0, 5.5)):
            self.assertGreater(self.share(r, *alone), 80 * self.at_once(a, control, alone))
        self.assertLess(self.share(r, came + 0.6, came + 1.6), 50)

    def test_many_processes_one_lease(self):
        control = self.control(6)
        each = f"{TENANT} steady kernel_us=500 batch_us=20000 seconds=4"
        four = Tenant(self, "four", "-c", f"for i in 1 2 3 4; do {each} & done; wait", cores=25, program="/bin/sh")
        out = four.process.communicate(timeout=30)[0]
        results = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(results), 4)
        got = sum(self.share(r, 0.5, 3.8) for r in results)
        self.assertGreater(got, 15 * self.at_once(four, control, (0.5, 3.8)))
        self.assertLess(got, 35)

    def test_live_set(self):
        control, a = self.control(6), self.steady("a", 5, cores=25)
        time.sleep(2)
        changed = time.monotonic() - a.ready
        subprocess.run([SLUICE, "--dir", self.dir, "set", "a", "--cores", "50"], check=True,
                       stdout=subprocess.DEVNULL)
        r = a.result()
        self.assertShare(a, r, 25, control, (0.5, changed))
        self.assertShare(a, r, 50, control, (changed + 1, 4.8))

    def test_live_priority(self):
        control = self.control(6)
        a = self.steady("a", 5, cores="50:100")
        b = self.steady("b", 5, cores="50:100")
        time.sleep(2)
        changed = time.monotonic()
        subprocess.run([SLUICE, "--dir", self.dir, "set", "b", "--priority", "high"], check=True,
                       stdout=subprocess.DEVNULL)
        got_a, got_b = a.result(), b.result()
        self.assertShare(b, got_b, 50, control, (0.7, changed - b.ready), delta=15)
        later = (changed - b.ready + 1, 4.5)
        self.assertGreater(self.share(got_b, *later), 75 * self.at_once(b, control, later))
        self.assertLess(self.share(got_a, changed - a.ready + 1, 4.5), 25)

    def test_status_says_what_was_got(self):
        control, a = self.control(6), self.steady("a", 5, cores="25")
        idle = Tenant(self, "idle", "steady", "seconds=0.1", "rest=600", cores="10:50", priority="low")
        time.sleep(3)
        t = {t["name"]: t for t in self.status()["tenants"]}
        text = subprocess.run([SLUICE, "--dir", self.dir, "status", "--wide"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(t["a"]["cores_request_percent"], 25)
        self.assertEqual(t["idle"]["cores_limit_percent"], 50)
        for span in ("share_1s_percent", "share_60s_percent"):
            self.assertLess(t["a"][span], 35)
            self.assertGreater(t["a"][span], 15 * self.at_once(a, control, (0.5, 2.8)))
        self.assertGreater(t["a"]["launches"], 100)
        self.assertGreater(t["a"]["waited_ns"], 1e9)  # its channels were off for three quarters of three seconds
        self.assertEqual(t["a"]["compute"], "slices")
        self.assertGreater(t["a"]["slice_us"], 0)
        self.assertEqual(t["idle"]["share_1s_percent"], 0)
        self.assertLess(t["idle"]["share_60s_percent"], 10)
        self.assertGreater(t["idle"]["launches"], 0)
        head = next(line for line in text.splitlines() if "TENANT" in line and "PROCS" in line)
        for word in ("CORES", "GOT 1s", "GOT 1min", "PRIORITY", "WAITED", "LAUNCHES", "SLICE"):
            self.assertIn(word, head)
        a.result()
        idle.kill()

    def test_priority(self):
        control = self.control(6)
        low = self.steady("low", 5, cores="50:100", priority="low")
        time.sleep(1)
        high = self.steady("high", 3, cores="50:100", priority="high")
        came = high.ready - low.ready
        got_high = self.share(high.result(), 0.5, 2.8)
        got_low = self.share(low.result(), came + 0.6, came + 2.8)
        self.assertGreater(got_high, 75 * self.at_once(high, control, (0.5, 2.8)))
        self.assertLess(got_low, 25)

    def test_unlimited_tenant_is_not_slowed(self):
        control, a = self.control(4), self.steady("a", 3)
        self.assertGreater(self.share(a.result(), 0.5, 2.8), 80 * self.at_once(a, control, (0.5, 2.8)))


class BadDays(World):
    def test_kernel_of_seconds(self):
        control = self.control(7)
        long = Tenant(self, "long", "long", "kernel_us=5000000", "seconds=6", cores="20")
        b = self.steady("b", 5, cores="80:100")
        r = b.result()
        long.kill()
        # The long one is stopped in the middle, from the beginning.
        self.assertGreater(self.share(r, 0.5, 4.5), 65 * self.at_once(b, control, (0.5, 4.5)))

    def test_kernel_without_end(self):
        control = self.control(8)
        endless = Tenant(self, "endless", "forever", cores=50)
        b = self.steady("b", 3, cores="50:100")
        got = self.share(b.result(), 0.5, 2.8)
        endless.kill()
        c = self.steady("c", 2, cores="50:100")
        after = self.share(c.result(), 0.5, 1.8)
        self.assertGreater(got, 35 * self.at_once(b, control, (0.5, 2.8)))
        self.assertGreater(after, 80 * self.at_once(c, control, (0.5, 1.8)))

    def test_flood_of_launches(self):
        control = self.control(4)
        flood = Tenant(self, "flood", "tiny", "count=1000000", cores="20:100")
        b = self.steady("b", 3, cores="80:100")
        got = self.share(b.result(), 0.5, 2.8)
        self.assertGreater(got, 55 * self.at_once(b, control, (0.5, 2.8)))
        self.assertEqual(flood.result(timeout=120)["launches"], 1000000)

    def test_stopped(self):
        control = self.control(5)
        a = self.steady("a", 4, cores="50:100")
        b = self.steady("b", 4, cores="50:100")
        time.sleep(1)
        self.stop(a)
        stopped = time.monotonic() - b.ready
        time.sleep(1.5)
        os.kill(a.pid, signal.SIGCONT)
        r = b.result()
        a.result()
        moments = (stopped + 0.3, stopped + 1.4)
        self.assertGreater(self.share(r, *moments), 75 * self.at_once(b, control, moments))

    def test_killed(self):
        control = self.control(12)
        for _ in range(4):
            a = self.steady("a", 30, cores="50:100")
            b = self.steady("b", 2, cores="50:100")
            time.sleep(0.6)
            a.kill()
            moments = (time.monotonic() - b.ready + 0.3, 1.9)
            got = self.share(b.result(), *moments)
            self.assertGreater(got, 70 * self.at_once(b, control, moments))

    def test_arbiter_killed_with_four_waiting(self):
        control = self.control(8)
        tenants = [self.steady(f"t{i}", 6, cores="20") for i in range(4)]
        time.sleep(1)
        os.kill(self.arbiter_pid(), signal.SIGKILL)
        died = time.monotonic()
        subprocess.run([SLUICE, "--dir", self.dir, "run", "--sim", self.sim, "--", "true"], check=True)
        for t in tenants:
            r = t.result()
            at = died - t.ready
            self.assertGreater(self.share(r, at + 0.5, at + 1.5), 0, f"{t.name} stands still")
            self.assertShare(t, r, 20, control, (at + 2, 5.8), delta=10)

    def test_garbage_in_its_page(self):
        liar = Tenant(self, "liar", "garbage", "seconds=30", cores="20:100")
        control = self.control(9)
        b = self.steady("b", 4, cores="50:100")
        arbiter = self.arbiter_pid()
        got = self.share(b.result(), 0.5, 3.5)
        self.assertIn("liar", [t["name"] for t in self.status()["tenants"]])
        liar.kill()
        c = self.steady("c", 3, cores="50")
        said = c.result()
        self.assertGreater(got, 30 * self.at_once(b, control, (0.5, 3.5)))
        self.assertShare(c, said, 50, control, (0.5, 2.8), delta=12)
        self.assertEqual(self.arbiter_pid(), arbiter)

    def test_clock_jumps(self):
        control = self.control(10)
        a = self.steady("a", 4, cores="50:100", env={"LD_PRELOAD": CLOCK_JUMPS})
        b = self.steady("b", 4, cores="50:100")
        with open(f"/proc/{a.pid}/maps", encoding="utf-8") as f:
            self.assertIn(CLOCK_JUMPS, f.read())
        got_b, got_a = self.share(b.result(), 0.5, 3.5), self.share(a.result(), 0.5, 3.5)
        c = self.steady("c", 3, cores="50")
        said = c.result()
        self.assertGreater(got_b, 35 * self.at_once(b, control, (0.5, 3.5)))
        self.assertGreater(got_a, 0)  # it goes on
        self.assertShare(c, said, 50, control, (0.5, 2.8), delta=12)

    def test_graph_of_ten_thousand_nodes(self):
        control = self.control(6)
        a = Tenant(self, "a", "graph", "nodes=10000", "kernel_us=2", "seconds=5", cores=50)
        self.assertShare(a, a.result(), 50, control, (1, 4.8), delta=12)

    def test_sixty_four_tenants(self):
        tenants = [Tenant(self, f"t{i}", "steady", "seconds=12", cores="1.5:100") for i in range(64)]
        results = [t.result(timeout=90) for t in tenants]
        # Time a tenant held the GPU without using it, because sixty-four programs were starting on a
        # few processors, is paid back for seconds: so over all of its life, not over any part of it.
        got = [self.share(r, 0, 11.5) for r in results]
        self.assertGreater(min(got), 0, got)
        self.assertLess(max(got), 8 * sum(got) / 64, got)
        self.assertGreater(sum(got), 60)

    def test_clean_end(self):
        a = Tenant(self, "a", "steady", "seconds=30", cores=50)
        a.process.send_signal(signal.SIGTERM)
        a.process.communicate(timeout=20)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.status()["tenants"]:
            time.sleep(0.1)
        self.assertEqual(self.status()["tenants"], [])


class TwoGpus(World):
    sim = "h200x2"

    def test_kernels_that_wait_for_each_other(self):
        a = Tenant(self, "a", "meet", "count=2000", cores="50:100", gpus="0,1")
        b = Tenant(self, "b", "meet", "count=2000", cores="50:100", gpus="0,1")
        self.assertEqual(a.result(timeout=60)["launches"], 4000)
        self.assertEqual(b.result(timeout=60)["launches"], 4000)


class Threads(World):
    """Many threads and many ends at once. These say nothing about time, so they hold on the slowest
    machine: they are what an instrumented build runs, which sees a race when there is one."""
    sim = "h200x2"

    def went_on(self, *tenants):
        for t in tenants:
            self.assertGreater(t.result(timeout=120)["launches"], 0, t.name)

    def test_under_a_cap(self):
        self.went_on(Tenant(self, "a", "steady", "threads=6", "seconds=3", cores=30))

    def test_small_kernels(self):
        self.went_on(Tenant(self, "a", "steady", "threads=3", "streams=4", "kernel_us=5", "seconds=2",
                            cores=50))

    def test_graphs(self):
        self.went_on(Tenant(self, "a", "graph", "threads=4", "seconds=2", cores="30:100"),
                     Tenant(self, "b", "graph", "threads=2", "seconds=2", cores="30:100"))

    def test_turns(self):
        self.went_on(Tenant(self, "a", "steady", "threads=4", "seconds=3", cores="30:100"),
                     Tenant(self, "b", "steady", "threads=4", "seconds=3", cores="70:100"))

    def test_priorities(self):
        self.went_on(
            Tenant(self, "a", "steady", "threads=3", "seconds=3", cores="50:100", priority="low"),
            Tenant(self, "b", "steady", "threads=3", "seconds=2", cores="50:100", priority="high"))

    def test_free_gate_that_closes(self):
        a = Tenant(self, "a", "steady", "threads=4", "seconds=4")
        time.sleep(1)
        b = Tenant(self, "b", "steady", "seconds=1", cores="50:100")
        self.went_on(b, a)

    def test_contexts_come_and_go(self):
        self.went_on(Tenant(self, "a", "churn", "threads=4", "kernel_us=50", "seconds=3", cores=50),
                     Tenant(self, "b", "steady", "threads=2", "seconds=3", cores="50:100"))

    def test_primary_contexts_come_and_go(self):
        # Free at first, then in turns: what a free gate let through is looked for in these contexts.
        a = Tenant(self, "a", "primary", "kernel_us=50", "seconds=4", gpus="0,1")
        time.sleep(1)
        b = Tenant(self, "b", "steady", "seconds=2", cores="50:100", gpus="0,1")
        self.went_on(b, a)

    def test_everything_closed(self):
        # The program's file has the numbers of our descriptors: nobody writes into it, or waits for
        # ever; the log, if one was asked for, is still the log.
        log = os.path.join(self.tmp.name, "log")
        a = Tenant(self, "a", "closed", "seconds=5", cores=50,
                   env={"SLUICE_LOG": "info", "SLUICE_LOG_FILE": log})
        r = a.result(timeout=120)
        self.assertGreater(sum(r["tenths"][-10:]), 0)
        with open(log, encoding="utf-8") as f:
            self.assertIn("attached again", f.read())

    def test_arbiter_killed(self):
        tenants = [Tenant(self, n, "steady", "threads=3", "seconds=5", cores="40") for n in "ab"]
        for _ in range(2):
            time.sleep(1)
            os.kill(self.arbiter_pid(), signal.SIGKILL)
            subprocess.run([SLUICE, "--dir", self.dir, "run", "--sim", self.sim, "--", "true"],
                           check=True)
        self.went_on(*tenants)

    def test_live_set(self):
        a = Tenant(self, "a", "steady", "threads=3", "seconds=3", cores=25)
        for cores in ("50", "10:100", "80"):
            time.sleep(0.5)
            subprocess.run([SLUICE, "--dir", self.dir, "set", "a", "--cores", cores], check=True,
                           stdout=subprocess.DEVNULL)
        self.went_on(a)

    def test_two_gpus(self):
        tenants = [Tenant(self, n, "meet", "count=200", cores="50:100", gpus="0,1") for n in "ab"]
        for t in tenants:
            self.assertEqual(t.result(timeout=120)["launches"], 400)

    def test_processes_of_one_lease(self):
        script = f"for i in 1 2 3; do {TENANT} steady threads=2 seconds=2 & done; wait"
        out = subprocess.run([SLUICE, "--dir", self.dir, "run", "--sim", self.sim, "--cores", "50", "--",
                              "sh", "-c", script], check=True, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL).stdout
        self.assertEqual(len(out.splitlines()), 3)


LONG = ("BadDays.test_killed",)
ALONE = ("BadDays.test_flood_of_launches", "BadDays.test_sixty_four_tenants")

if __name__ == "__main__":
    if sys.argv[1:2] == ["--at-once"]:
        at_once.main([sys.executable, __file__, BUILD], 3 * os.cpu_count(), sys.argv[2:], ALONE, LONG)
    unittest.main(verbosity=2)
