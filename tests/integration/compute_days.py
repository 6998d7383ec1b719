#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Good and bad days of compute shares, on a simulated GPU, with real processes.

usage: compute_days.py BUILD_DIR [unittest options]

Every scenario asserts behaviour: who got how much of the GPU in one run, who went on, who waited.
Margins are wide, because the machine may be busy; the benchmarks have the narrow ones.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
SLUICE = os.path.join(BUILD, "bin", "sluice")
TENANT = os.path.join(BUILD, "tests", "integration", "compute_tenant")
CLOCK_JUMPS = os.path.join(BUILD, "tests", "integration", "libclock_jumps.so")


class Tenant:
    """One `sluice run`, and the work its command reports."""

    def __init__(self, world, name, *mode, cores=None, priority=None, gpus=None, env=None, program=TENANT):
        command = [SLUICE, "--dir", world.dir, "run", "--sim", world.sim, "--name", name]
        command += ["--cores", str(cores)] if cores else []
        command += ["--priority", priority] if priority else []
        command += ["--gpu", gpus] if gpus else []
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

    def tearDown(self):
        self.tmp.cleanup()

    def status(self):
        out = subprocess.run([SLUICE, "--dir", self.dir, "status", "--json"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        return json.loads(out)

    @staticmethod
    def share(result, begin=0.0, end=None):
        """Part of the wall time between two moments (s) in which its kernels ran, in percent."""
        tenths = result["tenths"]
        end = len(tenths) / 10 - 0.1 if end is None else end
        part = tenths[int(begin * 10):int(end * 10)]
        return 100.0 * sum(part) / (len(part) * 1e8) if part else 0.0


class GoodDays(World):
    def test_cap_alone(self):
        got = self.share(Tenant(self, "a", "steady", "seconds=4", cores=25).result(), 0.5)
        self.assertAlmostEqual(got, 25, delta=4)

    def test_cap_alone_graph(self):
        got = self.share(Tenant(self, "a", "graph", "seconds=4", cores=30).result(), 0.5)
        self.assertAlmostEqual(got, 30, delta=4)

    def test_cap_alone_long_kernels(self):
        got = self.share(Tenant(self, "a", "steady", "kernel_us=20000", "seconds=5", cores=25).result(),
                         1.0)
        self.assertAlmostEqual(got, 25, delta=5)

    def test_weights(self):
        a = Tenant(self, "a", "steady", "seconds=4", cores="30:100")
        b = Tenant(self, "b", "steady", "seconds=4", cores="70:100")
        got_a, got_b = self.share(a.result(), 1, 3.5), self.share(b.result(), 1, 3.5)
        self.assertAlmostEqual(100 * got_a / (got_a + got_b), 30, delta=5)
        self.assertGreater(got_a + got_b, 80)

    def test_burst(self):
        a = Tenant(self, "a", "steady", "seconds=6", cores="30:100")
        time.sleep(2)
        b = Tenant(self, "b", "steady", "seconds=2", cores="70:100")
        came = b.ready - a.ready
        b.result()
        a = a.result()
        self.assertGreater(self.share(a, 0.5, came - 0.3), 80)
        self.assertLess(self.share(a, came + 0.6, came + 1.6), 45)
        self.assertGreater(self.share(a, came + 3.0, 5.5), 80)

    def test_many_processes_one_lease(self):
        script = f"for i in 1 2 3 4; do {TENANT} steady seconds=3 & done; wait"
        out = subprocess.run([SLUICE, "--dir", self.dir, "run", "--sim", self.sim, "--cores", "25", "--",
                              "sh", "-c", script], check=True, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL).stdout
        got = sum(self.share(json.loads(line), 0.5, 2.8) for line in out.splitlines())
        self.assertAlmostEqual(got, 25, delta=6)

    def test_live_set(self):
        a = Tenant(self, "a", "steady", "seconds=5", cores=25)
        time.sleep(2)
        changed = time.monotonic() - a.ready
        subprocess.run([SLUICE, "--dir", self.dir, "set", "a", "--cores", "50"], check=True,
                       stdout=subprocess.DEVNULL)
        r = a.result()
        self.assertAlmostEqual(self.share(r, 0.5, changed), 25, delta=6)
        self.assertAlmostEqual(self.share(r, changed + 1, 4.8), 50, delta=7)

    def test_live_priority(self):
        a = Tenant(self, "a", "steady", "seconds=5", cores="50:100")
        b = Tenant(self, "b", "steady", "seconds=5", cores="50:100")
        time.sleep(2)
        changed = time.monotonic()
        subprocess.run([SLUICE, "--dir", self.dir, "set", "b", "--priority", "high"], check=True,
                       stdout=subprocess.DEVNULL)
        got_a, got_b = a.result(), b.result()
        self.assertAlmostEqual(self.share(got_b, 0.7, changed - b.ready), 50, delta=12)
        self.assertGreater(self.share(got_b, changed - b.ready + 1, 4.5), 75)
        self.assertLess(self.share(got_a, changed - a.ready + 1, 4.5), 20)

    def test_status_says_what_was_got(self):
        a = Tenant(self, "a", "steady", "seconds=5", cores="25")
        idle = Tenant(self, "idle", "steady", "seconds=0.1", "rest=4", cores="10:50", priority="low")
        time.sleep(3)
        t = {t["name"]: t for t in self.status()["tenants"]}
        text = subprocess.run([SLUICE, "--dir", self.dir, "status"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(t["a"]["cores_request_percent"], 25)
        self.assertEqual(t["idle"]["cores_limit_percent"], 50)
        self.assertAlmostEqual(t["a"]["share_1s_percent"], 25, delta=8)
        self.assertAlmostEqual(t["a"]["share_60s_percent"], 25, delta=10)
        self.assertGreater(t["a"]["launches"], 1000)
        self.assertGreater(t["a"]["waited_ns"], 1e9)  # three quarters of three seconds
        self.assertGreater(t["a"]["window_ns"], 0)
        self.assertEqual(t["idle"]["share_1s_percent"], 0)
        self.assertLess(t["idle"]["share_60s_percent"], 10)
        self.assertGreater(t["idle"]["launches"], 0)
        head = next(line for line in text.splitlines() if "TENANT" in line and "PROCS" in line)
        for word in ("CORES", "GOT 1s", "GOT 1min", "PRIORITY", "WAITED", "LAUNCHES", "DEBT", "WINDOW"):
            self.assertIn(word, head)
        a.result()
        idle.result()

    def test_priority(self):
        low = Tenant(self, "low", "steady", "seconds=5", cores="50:100", priority="low")
        time.sleep(1)
        high = Tenant(self, "high", "steady", "seconds=2", cores="50:100", priority="high")
        came = high.ready - low.ready
        got_high = self.share(high.result(), 0.3, 1.8)
        got_low = self.share(low.result(), came + 0.4, came + 1.8)
        self.assertGreater(got_high, 75)
        self.assertLess(got_low, 20)

    def test_unlimited_tenant_is_not_slowed(self):
        got = self.share(Tenant(self, "a", "steady", "seconds=2").result(), 0.3)
        self.assertGreater(got, 80)


class BadDays(World):
    def test_kernel_of_seconds(self):
        long = Tenant(self, "long", "long", "kernel_us=5000000", "seconds=12", cores="20")
        b = Tenant(self, "b", "steady", "seconds=12", cores="80:100")
        time.sleep(4)
        owed = [t["debt_ns"] for t in self.status()["tenants"] if t["name"] == "long"]
        b = b.result()
        long.kill()
        self.assertGreater(self.share(b, 0.5, 4.5), 25)    # the hardware slices beside the long one
        self.assertGreater(owed[0], 5e8)                   # … which runs up a debt
        self.assertGreater(self.share(b, 10.5, 11.5), 60)  # and pays it

    def test_kernel_without_end(self):
        endless = Tenant(self, "endless", "forever", cores=50)
        b = Tenant(self, "b", "steady", "seconds=3", cores="50:100")
        got = self.share(b.result(), 0.5)
        endless.kill()
        self.assertGreater(got, 25)
        after = self.share(Tenant(self, "c", "steady", "seconds=2", cores="50:100").result(), 0.5)
        self.assertGreater(after, 85)

    def test_flood_of_launches(self):
        flood = Tenant(self, "flood", "tiny", "count=1000000", cores="20:100")
        b = Tenant(self, "b", "steady", "seconds=3", cores="80:100")
        got = self.share(b.result(), 0.5)
        self.assertGreater(got, 55)
        self.assertEqual(flood.result(timeout=120)["launches"], 1000000)

    def test_stopped_in_its_turn(self):
        a = Tenant(self, "a", "steady", "seconds=4", cores="50:100")
        b = Tenant(self, "b", "steady", "seconds=4", cores="50:100")
        time.sleep(1)
        os.kill(a.pid, signal.SIGSTOP)
        stopped = time.monotonic() - b.ready
        time.sleep(1.5)
        os.kill(a.pid, signal.SIGCONT)
        r = b.result()
        a.result()
        self.assertGreater(self.share(r, stopped + 0.3, stopped + 1.4), 80)

    def test_killed_in_its_turn(self):
        for _ in range(5):
            a = Tenant(self, "a", "steady", "seconds=30", cores="50:100")
            b = Tenant(self, "b", "steady", "seconds=1.5", cores="50:100")
            time.sleep(0.6)
            a.kill()
            gone = time.monotonic() - b.ready
            self.assertGreater(self.share(b.result(), gone + 0.2), 75)

    def test_arbiter_killed_with_four_waiting(self):
        tenants = [Tenant(self, f"t{i}", "steady", "seconds=6", cores="20") for i in range(4)]
        time.sleep(1)
        os.kill(self.arbiter_pid(), signal.SIGKILL)
        died = time.monotonic()
        subprocess.run([SLUICE, "--dir", self.dir, "run", "--sim", self.sim, "--", "true"], check=True)
        for t in tenants:
            r = t.result()
            at = died - t.ready
            self.assertGreater(self.share(r, at + 0.5, at + 1.5), 3, f"{t.name} stands still")
            self.assertAlmostEqual(self.share(r, at + 2, 5.8), 20, delta=7)

    def test_garbage_in_its_page(self):
        liar = Tenant(self, "liar", "garbage", "seconds=30", cores="20:100")
        b = Tenant(self, "b", "steady", "seconds=4", cores="50:100")
        arbiter = self.arbiter_pid()
        got = self.share(b.result(), 0.5, 3.5)
        self.assertGreater(got, 30)
        self.assertIn("liar", [t["name"] for t in self.status()["tenants"]])
        liar.kill()
        after = self.share(Tenant(self, "c", "steady", "seconds=2", cores="50").result(), 0.5)
        self.assertAlmostEqual(after, 50, delta=8)
        self.assertEqual(self.arbiter_pid(), arbiter)

    def test_clock_jumps(self):
        a = Tenant(self, "a", "steady", "seconds=4", cores="50:100", env={"LD_PRELOAD": CLOCK_JUMPS})
        b = Tenant(self, "b", "steady", "seconds=4", cores="50:100")
        with open(f"/proc/{a.pid}/maps", encoding="utf-8") as f:
            self.assertIn(CLOCK_JUMPS, f.read())
        self.assertGreater(self.share(b.result(), 0.5, 3.5), 35)
        self.assertGreater(self.share(a.result(), 0.5, 3.5), 10)  # it goes on, with what is its own
        after = self.share(Tenant(self, "c", "steady", "seconds=2", cores="50").result(), 0.5)
        self.assertAlmostEqual(after, 50, delta=8)

    def test_graph_of_ten_thousand_nodes(self):
        got = self.share(Tenant(self, "a", "graph", "nodes=10000", "kernel_us=2", "seconds=5",
                                cores=50).result(), 1)
        self.assertAlmostEqual(got, 50, delta=8)

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
