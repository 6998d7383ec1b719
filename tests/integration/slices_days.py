#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Days on which sharing a GPU by the hardware's slices may go wrong, on a simulated GPU, with real processes.

usage: slices_days.py BUILD_DIR [unittest options]

What is asserted is progress and state: work ends, channels come back, a GPU falls back to turns and says so.
What a tenant got is compared with a control that runs in the same moments on a simulated machine of its own.
"""
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

import compute_days as days
import waiting
from compute_days import BUILD, SLUICE, Tenant

PROGRAM = os.path.join(BUILD, "tests", "bin", "slices_tenant")
# Every control on channel groups is refused: the GPU is shared by turns.
TURNS = {"SLUICE_SIM_FAULT": "groups=refused"}
SLICES = {}
SLOW = "SLUICE_TEST_SLOW" in os.environ  # an instrumented build


class World(days.World):
    def setUp(self):
        super().setUp()
        os.environ["SLUICE_LOG"] = "info"  # the arbiter says in its log how a GPU is shared
        self.addCleanup(os.environ.pop, "SLUICE_LOG", None)

    def program(self, name, *mode, **how):
        return Tenant(self, name, *mode, program=PROGRAM, **how)

    def busy(self, name="busy", kernel_us=200, **how):
        """A tenant that works until the test ends."""
        return Tenant(self, name, "steady", f"kernel_us={kernel_us}", "seconds=55", **how)

    def until(self, what, condition, seconds):
        return waiting.until(what, condition, seconds, every=0.005)

    def gpu(self, index=0):
        return self.status()["gpus"][index]

    def falls_back(self, reason, seconds=15):
        self.until("turns", lambda: self.gpu()["compute"] == "turns", seconds)
        self.assertIn(reason, self.gpu()["compute_reason"])

    def arbiter_said(self, words):
        with open(os.path.join(self.dir, "arbiter.log"), encoding="utf-8") as f:
            return f.read().count(words)

    def channels(self):
        """{pid: (channels that are off, seconds that its kernels ran)}"""
        found, pid = {}, 0
        for line in self.ctl("show").splitlines():
            head = re.match(r" +pid (\d+) ", line)
            group = re.match(r" +group .* disabled (\d+)  ran ([0-9.]+) s", line)
            if head:
                pid = int(head[1])
                found.setdefault(pid, (0, 0.0))
            elif group:
                off, ran = found[pid]
                found[pid] = (off + int(group[1]), ran + float(group[2]))
        return found

    def off(self, tenant):
        return self.channels()[tenant.pid][0] > 0

    def ran(self, tenant):
        return self.channels()[tenant.pid][1]

    def goes_on(self, *tenants, seconds=25):
        for t in tenants:
            before = self.ran(t)
            self.until(f"{t.name} goes on", lambda: self.ran(t) > before + 0.01, seconds)

    def stop_when(self, tenant, off):
        """Stops a tenant's process in the state that was asked for; it keeps it while it is stopped. It runs until it
        is seen in that state: a process that is stopped again and again does not reach its limit on a slow machine."""
        def stopped():
            if self.off(tenant) != off:
                return False
            self.stop(tenant)
            if self.off(tenant) == off:
                return True
            os.kill(tenant.pid, signal.SIGCONT)
            return False
        self.until(f"{tenant.name} with channels {'off' if off else 'on'}", stopped, 40)


def in_both(cls):
    """Makes two tests of each both_…(): one where slices share the GPU, and one where turns do."""
    for name in [n for n in dir(cls) if n.startswith("both_")]:
        for env, how in ((SLICES, "slices"), (TURNS, "turns")):
            def test(self, run=getattr(cls, name), env=env, how=how):
                run(self, env, how)
            setattr(cls, f"test_{name[5:]}_{how}", test)
    return cls


@in_both
class Hangs(World):
    """Programs whose next launch is what their work in flight waits for."""

    def ends(self, kind, cores, env):
        if kind != "event":
            one = self.program("one", kind, cores=cores, env=env)
            self.assertEqual(one.result(timeout=30)["done"], 10, kind)
            return
        with tempfile.TemporaryDirectory() as pipes:
            for side in "01":
                os.mkfifo(os.path.join(pipes, side))
            sides = [self.program(f"side{side}", kind, f"side={side}", f"dir={pipes}", cores=cores, env=env)
                     for side in (0, 1)]
            for t in sides:
                self.assertEqual(t.result(timeout=30)["done"], 10, t.name)

    def both_under_a_cap(self, env, how):
        idle = self.program("idle", "host", "count=1", "hold=1", env=env)
        self.until(how, lambda: self.gpu()["compute"] == how, 10)
        for kind in ("host", "value", "event"):
            self.ends(kind, "30", env)
        idle.result()

    def both_beside_a_busy_tenant(self, env, how):
        busy = self.busy(cores="50:100", env=env)
        self.until(how, lambda: self.gpu()["compute"] == how, 10)
        for kind in ("host", "value", "event"):
            self.ends(kind, "25:100" if kind == "event" else "50:100", env)
        self.goes_on(busy)


class Locks(World):
    """Programs that wait for the GPU inside the driver, with the driver's lock held."""
    WORKS = (("frees", "kernels=300", "count=20"), ("frees2", "kernels=20", "count=60"))

    def ends(self, cores):
        for work in self.WORKS:
            one = self.program("one", *work, "kernel_us=200", cores=cores,
                               env={"SLUICE_SIM_FAULT": "waits=locked"})
            self.assertEqual(one.result(timeout=60)["done"], int(work[2][6:]), work)

    def test_under_a_cap(self):
        self.ends("30")

    def test_beside_a_busy_tenant(self):
        busy = self.busy(cores="50")
        self.ends("50")
        self.goes_on(busy)


@in_both
class TwoGpus(World):
    sim = "h200x2"
    COUNT = 60

    def lockstep(self, env, cores, one_lease):
        with tempfile.TemporaryDirectory() as pipes:
            for side in "01":
                os.mkfifo(os.path.join(pipes, side))
            command = [f"{PROGRAM} lockstep count={self.COUNT} side={side} dir={pipes}" for side in (0, 1)]
            if one_lease:
                tenants = [Tenant(self, "gang", "-c", f"{command[0]} & {command[1]} && wait $!", cores=cores,
                                  gpus="0,1", env=env, program="/bin/sh")]
            else:
                tenants = [Tenant(self, f"half{side}", "-c", f"exec {command[side]}", cores=cores, gpus="0,1",
                                  env=env, program="/bin/sh") for side in (0, 1)]
            for t in tenants:
                out, err = t.process.communicate(timeout=40)
                self.assertEqual(t.process.returncode, 0, err)
                self.assertEqual(out.count(f'"done": {self.COUNT}'), 2 if one_lease else 1, err)

    def both_under_caps(self, env, how):
        self.lockstep(env, "30", one_lease=True)
        self.lockstep(env, "30", one_lease=False)

    def both_beside_neighbours(self, env, how):
        neighbours = [self.busy(f"n{gpu}", cores="40:100", gpus=str(gpu), env=env) for gpu in (0, 1)]
        self.until(how, lambda: self.gpu()["compute"] == how, 10)
        self.lockstep(env, "30:100", one_lease=True)
        self.lockstep(env, "30", one_lease=False)
        self.goes_on(*neighbours)


@in_both
class Pauses(World):
    """`sluice pause`: off the GPU in the middle of the work, and on again where it was."""

    def sluice(self, *words, code=0):
        done = subprocess.run([SLUICE, "--dir", self.dir, *words], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def told(self, tenant):
        return next(t for t in self.status()["tenants"] if t["name"] == tenant.name)

    def stands_still(self, tenant, beside, gpu_s=0.2):
        """It runs nothing while another tenant uses the GPU for so long. What was on the GPU before ends first."""
        def still():
            before, begin = self.ran(tenant), self.ran(beside)
            self.until(f"{beside.name} goes on", lambda: self.ran(beside) > begin + gpu_s, 30)
            return self.ran(tenant) == before
        self.until(f"{tenant.name} stands still", still, 60)

    def both_pause_and_resume(self, env, how):
        a, b = self.busy("a", cores="30:100", env=env), self.busy("b", cores="60:100", env=env)
        self.until(how, lambda: self.gpu()["compute"] == how, 10)
        self.goes_on(a, b)
        # Until its context is measured, 640 MiB are assumed for it.
        self.until("its context is measured", lambda: self.told(b)["gpus"][0]["memory_used_bytes"] < 640 << 20, 20)
        held = self.told(b)["gpus"][0]["memory_used_bytes"]
        self.assertFalse(self.told(b)["paused"])
        self.assertRegex(self.sluice("pause", "b"), r"^b: paused; it keeps [0-9.]+ \wiB of GPU memory\n$")
        self.stands_still(b, a)
        self.stands_still(b, a, 1.2)  # longer than an order may last
        if how == "turns":
            self.stands_still(b, a, 6)  # longer than a launch waits for a turn
        self.assertTrue(self.told(b)["paused"])
        self.assertEqual(self.told(b)["gpus"][0]["memory_used_bytes"], held)
        self.assertEqual(self.sluice("pause", "b"), "b: is paused already\n")
        self.assertEqual(self.sluice("resume", "b"), "b: goes on\n")
        self.goes_on(a, b)
        self.assertEqual(self.sluice("resume", "b"), "b: is not paused\n")

    def both_survive_the_arbiter(self, env, how):
        a, b = self.busy("a", cores="30:100", env=env), self.busy("b", cores="60:100", env=env)
        self.goes_on(a, b)
        self.sluice("pause", "b")
        self.stands_still(b, a)
        os.kill(self.arbiter_pid(), signal.SIGKILL)
        self.sluice("run", "--sim", self.sim, "--", "true")  # starts another
        self.until("both are back", lambda: all(self.told(t)["processes"] for t in (a, b)), 20)
        self.assertTrue(self.told(b)["paused"])
        self.stands_still(b, a)
        self.sluice("resume", "b")
        self.goes_on(a, b)

    def both_nobody_stays_off_for_a_stopped_arbiter(self, env, how):
        a, b = self.busy("a", cores="30:100", env=env), self.busy("b", cores="60:100", env=env)
        self.goes_on(a, b)
        self.sluice("pause", "b")
        self.stands_still(b, a)
        arbiter = self.arbiter_pid()
        os.kill(arbiter, signal.SIGSTOP)
        try:
            self.goes_on(a, b, seconds=30)
        finally:
            os.kill(arbiter, signal.SIGCONT)
        self.stands_still(b, a)

    def test_alone_under_a_limit(self):
        a = self.busy("a", cores="30")
        self.goes_on(a)
        self.sluice("pause", "a")
        self.until("off", lambda: self.off(a), 10)
        before = self.ran(a)
        time.sleep(1.5)  # longer than an order may last
        self.assertTrue(self.off(a))
        self.assertEqual(self.ran(a), before)
        self.sluice("resume", "a")
        self.goes_on(a)

    def test_wrong_names(self):
        self.busy("a")
        self.assertIn("no tenant is named: write sluice pause NAME", self.sluice("pause", code=2))
        self.assertIn("only one tenant can be named: write sluice resume NAME", self.sluice("resume", "a", "b", code=2))
        self.assertIn('no tenant is named "nobody"', self.sluice("pause", "nobody", code=1))
        self.assertIn("no tenant is named", self.sluice("resume", "n" * 100, code=1))
        self.assertFalse(self.status()["tenants"][0]["paused"])


class Refusals(World):
    """Drivers that do not let a process set its slices, or only seem to."""

    def stays_with_turns(self, *tenants):
        self.goes_on(*tenants)
        for t in tenants:
            subprocess.run([SLUICE, "--dir", self.dir, "set", t.name, "--cores", "15:100"], check=True,
                           stdout=subprocess.DEVNULL)
        self.goes_on(*tenants)
        self.assertEqual(self.gpu()["compute"], "turns")
        self.assertEqual(self.arbiter_said("is shared by turns"), 1)
        self.assertEqual(self.arbiter_said("by slices again"), 0)

    def test_one_process_is_refused(self):
        a = self.busy("a", cores="30:100", env={"SLUICE_SIM_FAULT": "groups=refused@4"})
        b = self.busy("b", cores="60:100")
        # libcuda's own call, and the first try, are accepted: whoever changes the slice finds out.
        for cores in ("20:100", "40:100", "10:100"):
            self.goes_on(a, b)
            subprocess.run([SLUICE, "--dir", self.dir, "set", "a", "--cores", cores], check=True,
                           stdout=subprocess.DEVNULL)
        self.falls_back("the driver refuses to set time slices (status 0x56)")
        self.stays_with_turns(a, b)

    def test_the_card_refuses(self):
        a, b = self.busy("a", cores="30:100"), self.busy("b", cores="60:100")
        self.goes_on(a, b)
        self.assertEqual(self.gpu()["compute"], "slices")
        self.ctl("groups", "0", "refused")
        c = self.busy("c", cores="10:100")
        self.falls_back("the driver refuses to set time slices (status 0x56)")
        self.stays_with_turns(a, b, c)

    def test_slices_are_refused_under_caps(self):
        a, b = self.busy("a", cores="30"), self.busy("b", cores="30")
        self.goes_on(a, b)
        self.ctl("groups", "0", "refused-slice")
        c = self.busy("c", cores="20")
        self.falls_back("the driver refuses to set time slices (status 0x56)")
        self.stays_with_turns(a, b, c)
        self.until("nothing is off", lambda: not any(off for off, _ in self.channels().values()), 2)

    def test_refused_while_off(self):
        a = self.busy("a", cores="5")
        self.goes_on(a)
        self.stop_when(a, off=True)
        self.ctl("groups", "0", "refused")
        os.kill(a.pid, signal.SIGCONT)
        self.falls_back("the driver refuses to set time slices (status 0x56)")
        # It can do nothing but ask again, and does.
        self.ctl("groups", "0", "normal")
        self.until("its channels are on", lambda: not self.off(a), 1.2)
        self.goes_on(a)

    def test_controls_without_effect(self):
        # Alone it reaches its limit. Beside a busy tenant it might not, because its slices have no effect either.
        a = self.busy("a", cores="30", env={"SLUICE_SIM_FAULT": "groups=inert"})
        self.falls_back("have no effect")
        b = self.busy("b", cores="50:100")
        self.stays_with_turns(a, b)

    def test_slices_without_effect(self):
        """Nobody reaches a limit, and nothing is refused: two busy tenants show that their slices do nothing. When one
        of them goes, slices are tried again with the next."""
        inert = {"SLUICE_SIM_FAULT": "groups=inert:slice"}
        a = self.busy("a", cores="30:100", env=inert)
        b = self.busy("b", cores="70:100", env=inert)
        self.goes_on(a, b)
        self.assertEqual(self.gpu()["compute"], "slices")
        self.falls_back("time slices have no effect: two busy programs were measured", seconds=50)
        self.stays_with_turns(a, b)
        b.kill()
        self.until("slices again", lambda: self.gpu()["compute"] == "slices", 20)
        self.goes_on(a)

    def test_slices_with_effect(self):
        """The same where slices work: it is measured, too, and nothing changes."""
        a, b = self.busy("a", cores="30:100"), self.busy("b", cores="70:100")
        slices = set()

        def look():
            slices.add(next(t["slice_us"] for t in self.status()["tenants"] if t["name"] == "a"))
            return {12000, 11076, 4235} <= slices  # its part of 40 ms; of 24 ms with twice its weight, and with half
        self.goes_on(a, b)
        self.until("a measurement", look, 30)
        self.goes_on(a, b)
        self.assertEqual(self.arbiter_said("is shared by turns"), 0)

    def test_doctor_measured_no_effect(self):
        """Nobody reaches a limit here, so nothing but what doctor measured tells that the driver does nothing."""
        a = self.busy("a", cores="30:100")
        self.goes_on(a)
        self.assertEqual(self.gpu()["compute"], "slices")
        memo = os.path.join(self.dir, "slices.txt")

        def measured():
            """On a machine that is too busy doctor measures nothing, writes nothing down, and says: run it again."""
            subprocess.run([SLUICE, "doctor", "--sim", "h200"], check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "SLUICE_DIR": self.dir, "SLUICE_SIM_FAULT": "groups=inert"})
            return os.path.exists(memo)

        self.until("doctor's measurement", measured, 40)
        b = self.busy("b", cores="50:100")
        self.falls_back("`sluice doctor` measured that time slices have no effect")
        self.stays_with_turns(a, b)
        a.kill()
        b.kill()
        # A verdict of another driver says nothing.
        with open(memo, encoding="utf-8") as f:
            text = f.read()
        with open(memo, "w", encoding="utf-8") as f:
            f.write(re.sub(r" driver \S+", " driver 1.2.3", text))
        self.goes_on(self.busy("c", cores="30:100"))
        self.assertEqual(self.gpu()["compute"], "slices")

    def test_used_time_never_goes_down(self):
        """It is a counter of the bill: it goes on when a card goes over to turns, and back."""
        a, seen = self.busy("a", cores="50"), [0]

        def used():
            seen.append(next(t["used_ns"] for t in self.status()["tenants"] if t["name"] == "a"))
            self.assertGreaterEqual(seen[-1], seen[-2])
            return seen[-1]

        def grows(how):
            start = used()
            self.until(f"more is used by {how}", lambda: used() > start + 100_000_000, 40)
            self.assertEqual(self.gpu()["compute"], how)

        grows("slices")
        b = self.busy("b", cores="30", compute="turns")
        self.until("turns", lambda: self.gpu()["compute"] == "turns", 15)
        grows("turns")
        b.kill()
        self.until("slices again", lambda: self.gpu()["compute"] == "slices" and used(), 40)
        grows("slices")
        self.goes_on(a)

    def test_what_runs_while_channels_are_off(self):
        """Host functions and copies are not kernels: that they go on is no proof against the driver."""
        a = self.program("a", "gaps", "kernel_us=8000", "gap_us=20000", "count=150", "hold=1", cores="20")
        self.until("it was held back", lambda: self.status()["tenants"][0]["waited_ns"] > 5e8, 30)
        self.assertEqual(a.result(timeout=50)["done"], 150)
        self.assertEqual(self.arbiter_said("is shared by turns"), 0)


class Arbiters(World):
    def test_killed_while_channels_are_off(self):
        for how in ("stopped", "running"):
            with self.subTest(how):
                a = self.busy(f"a-{how}", cores="5")
                self.goes_on(a)
                if how == "stopped":
                    self.stop_when(a, off=True)
                else:
                    self.until("channels off", lambda: self.off(a), 20)
                os.kill(self.arbiter_pid(), signal.SIGKILL)
                if how == "stopped":
                    self.assertTrue(self.off(a))
                    os.kill(a.pid, signal.SIGCONT)
                self.until("its channels are on", lambda: not self.off(a), 1.2)
                self.goes_on(a)
                a.kill()

    def test_stopped(self):
        tenants = [self.busy(n, cores="20") for n in "ab"]
        self.goes_on(*tenants)
        arbiter = self.arbiter_pid()
        os.kill(arbiter, signal.SIGSTOP)
        try:
            self.until("nothing is off", lambda: not any(off for off, _ in self.channels().values()), 1.2)
            for _ in range(3):
                self.goes_on(*tenants)
        finally:
            os.kill(arbiter, signal.SIGCONT)
        self.until("caps are kept again", lambda: self.off(tenants[0]), 10)


class Neighbours(World):
    def beside_control(self, one, seconds=2.0):
        """What a tenant ran of what a tenant alone on its own machine ran in the same moments."""
        alone = World()
        alone.setUp()
        self.addCleanup(alone.doCleanups)
        control = alone.busy(kernel_us=1000)
        self.addCleanup(control.end)
        alone.goes_on(control)
        before = self.ran(one), alone.ran(control)
        time.sleep(seconds)
        after = self.ran(one), alone.ran(control)
        self.assertGreater(after[1], before[1])
        return (after[0] - before[0]) / (after[1] - before[1])

    def test_stopped(self):
        for off in (True, False):
            with self.subTest(off=off):
                a = self.busy(f"a-{off}", cores="20")
                b = self.busy(f"b-{off}", kernel_us=1000, cores="60:100")
                self.goes_on(a, b)
                self.stop_when(a, off)
                self.assertGreater(self.beside_control(b), 0.6)
                self.assertEqual(self.off(a), off)
                os.kill(a.pid, signal.SIGCONT)
                self.goes_on(a, b)
                for t in (a, b):
                    t.kill()

    def test_killed(self):
        for off in (True, False):
            with self.subTest(off=off):
                a = self.busy(f"a-{off}", cores="20")
                b = self.busy(f"b-{off}", cores="60")
                self.goes_on(a, b)
                self.stop_when(a, off)
                a.kill()
                self.goes_on(b)
                self.assertNotIn(a.pid, self.channels())
                b.kill()
                # What comes later finds nothing off.
                c = self.busy(f"c-{off}", cores="50:100")
                self.goes_on(c)
                self.assertFalse(self.off(c))
                c.kill()

    def test_endless_kernel(self):
        endless = Tenant(self, "endless", "forever", cores="5")
        b = self.busy("b", kernel_us=1000, cores="90")
        self.goes_on(endless, b)
        self.assertGreater(self.beside_control(b, 4), 0.8 * 0.9)
        endless.kill()

    def test_endless_kernels_of_four_processes(self):
        command = " & ".join([f"{days.TENANT} forever"] * 4)
        Tenant(self, "four", "-c", f"{command} & wait", cores="5", program="/bin/sh")
        b = self.busy("b", kernel_us=1000, cores="90")
        self.until("all five are there", lambda: len(self.channels()) == 5, 10)
        for pid in set(self.channels()) - {b.pid}:  # the shell's end is not theirs
            self.addCleanup(os.kill, pid, signal.SIGKILL)
        self.goes_on(b)
        self.assertGreater(self.beside_control(b, 4), 0.8 * 0.9)


class Crowds(World):
    def test_sixty_four_tenants(self):
        tenants = [self.program(f"t{i}", "host", "count=5", "hold=1", cores="1.5" if i % 2 else "1.5:100")
                   for i in range(64)]
        self.assertEqual(len(self.status()["tenants"]), 64)
        for t in tenants:
            self.assertEqual(t.result(timeout=30)["done"], 5, t.name)

    def test_contexts(self):
        count = 300 if SLOW else 10000
        a = self.program("a", "contexts", f"count={count}", "kernel_us=50", "hold=1", cores="50")
        b = self.busy("b", cores="50:100")
        self.assertEqual(a.result(timeout=55)["done"], count)
        self.goes_on(b)
        self.assertEqual(self.arbiter_said("is shared by turns"), 0)

    def test_forks(self):
        count = 16 if SLOW else 100
        a = self.program("a", "forks", f"count={count}", cores="30")
        b = self.busy("b", cores="50:100")
        out, err = a.process.communicate(timeout=50)
        self.assertEqual((a.process.returncode, f'{{"done": {count}}}' in out), (0, True), err)
        self.goes_on(b)
        self.assertEqual(self.arbiter_said("is shared by turns"), 0)


@in_both
class Captures(World):
    def both_graphs_are_recorded_under_a_cap(self, env, how):
        a = self.program("a", "capture", "count=20", "hold=1", cores="30", env=env)
        self.until(how, lambda: self.gpu()["compute"] == how, 10)
        self.assertEqual(a.result(timeout=50)["done"], 20)

    def both_launches_go_on_while_another_thread_records(self, env, how):
        """The queue is full all the time: what is measured of a launch must not hold it up."""
        count = 5000 if SLOW else 200000
        a = self.program("a", "flood", f"count={count}", cores="50", env=env)
        self.assertEqual(a.result(timeout=30)["done"], count)


if __name__ == "__main__":
    unittest.main(verbosity=2)
