#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole sluiced whose pods are resized: the lease of a running pod changes, and the tenant follows.

usage: fraction_resize.py BUILD_DIR [unittest arguments]
"""
import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fraction_node import Case  # noqa: E402
from fraction_world import MIB, SLUICE  # noqa: E402
from waiting import until  # noqa: E402


class Resize(Case):
    """sluice-controller has written another lease into a running pod, and tells the Node."""

    def resize(self, *args, **options):
        self.node.resize(*args, **options)

    def memory(self, name, container="main"):
        """MiB; None: an arbiter that has just started may not list the tenant yet."""
        tenant = self.node.tenants().get(f"{name}/{container}")
        return tenant and tenant["gpus"][0]["memory_limit_bytes"] // MIB

    def events(self, reason):
        return [(e["involvedObject"]["name"], e["message"]) for e in self.node.api.events if e["reason"] == reason]

    def test_the_tenant_follows_the_lease(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 3000, 30)]})
        n.pod("b", {"main": [(0, 1000, 10)]})
        n.place("a", n.slot(1))
        n.place("b", n.slot(2))
        self.assertEqual(n.prestart(n.slot(1), n.slot(2)), ["", ""])
        before = self.has("a", n.slot(1), 3000, 30)["name"]
        for mib, cores in ((2000, 20), (4000, 40)):
            self.resize("a", mib, cores, {"resize": f"memory={mib}Mi", "done": True, "message": f"now {mib}"})
            until("the tenant has it", lambda m=mib: self.memory("a") == m)
            self.assertEqual(self.has("a", n.slot(1), mib, cores)["name"], before)  # the same tenant
            until("an event", lambda m=mib: ("a", f"now {m}") in self.events("SluiceResized"))
        self.assertEqual(self.memory("b"), 1000)
        self.assertEqual(len(self.events("SluiceResized")), 2)  # none about b
        self.assertEqual(n.prestart(n.slot(1)), [""])  # the container starts again: the same lease
        self.assertEqual(self.has("a", n.slot(1), 4000, 40)["name"], before)

    def test_a_refusal_is_told_once(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 3000, 30)]})
        n.place("a", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        no = {"resize": "memory=900Gi", "done": False, "message": "there is no room"}
        self.resize("a", 3000, 30, no)
        until("an event", lambda: self.events("SluiceResizeFailed") == [("a", "there is no room")])
        self.node.tell_resized()  # of another pod
        n.stop()
        n.start()
        self.node.tell_resized()
        self.resize("a", 2500, 30, {"resize": "memory=2500Mi", "done": True, "message": "now 2500"})
        until("the next one", lambda: self.memory("a") == 2500)
        self.assertEqual(self.events("SluiceResizeFailed"), [("a", "there is no room")])

    def test_resized_while_no_agent_ran(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 3000, 30)]})
        n.pod("b", {"main": [(1, 3000, 30)]})
        n.place("a", n.slot(1))
        n.place("b", n.slot(2))
        self.assertEqual(n.prestart(n.slot(1), n.slot(2)), ["", ""])
        n.stop(signal.SIGKILL)
        self.resize("a", 1500, 15, {"resize": "memory=1500Mi", "done": True, "message": "x"}, tell=False)
        n.start()
        until("the tenant has it", lambda: self.memory("a") == 1500)
        self.assertEqual(self.memory("b"), 3000)

    def test_several_at_once_and_two_containers(self):
        n = self.node
        n.start()
        for i in range(8):
            n.pod(f"p{i}", {"main": [(0, 1000, 5)], "side": [(1, 1000, 5)]})
            n.place(f"p{i}", n.slot(i))
            n.place(f"p{i}", n.slot(i, 1), container="side")
            self.assertEqual(n.prestart(n.slot(i)), [""])
            self.assertEqual(n.prestart(n.slot(i, 1)), [""])
        for i in range(8):
            for mib in (1100 + i, 1200 + i):
                self.resize(f"p{i}", mib, 6, {"resize": f"memory={mib}Mi", "done": True, "message": f"now {mib}"})
        until("all have it", lambda: all(self.memory(f"p{i}", c) == 1200 + i for i in range(8) for c in ("main", "side")))
        until("events", lambda: all((f"p{i}", f"now {1200 + i}") in self.events("SluiceResized") for i in range(8)))
        # One event for a pod, not one for each container.
        self.assertEqual(len(self.events("SluiceResized")), len(set(self.events("SluiceResized"))))

    def test_what_the_node_does_not_have(self):
        """The controller's books and the node disagree (a tenant that is not in them): told, and nothing is cut."""
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 3000, 30)]})
        n.place("a", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.resize("a", 900000, 30, {"resize": "memory=900000Mi", "done": True, "message": "x"})
        until("an event", lambda: self.events("SluiceResizeFailed"))
        self.assertEqual(self.memory("a"), 3000)

    def test_the_room_of_a_pod_that_just_ended(self):
        """The books know that it has ended; its tenant goes a moment later."""
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 3000, 30)]})
        n.pod("b", {"main": [(0, 130000, 30)]})
        n.place("a", n.slot(1))
        n.place("b", n.slot(2))
        self.assertEqual(n.prestart(n.slot(1), n.slot(2)), ["", ""])
        n.gone("b")
        self.resize("a", 100000, 30, {"resize": "memory=100000Mi", "done": True, "message": "now 100000"})
        until("the tenant has it", lambda: self.memory("a") == 100000)
        until("an event", lambda: ("a", "now 100000") in self.events("SluiceResized"))
        self.assertEqual(self.events("SluiceResizeFailed"), [])

    def no_answer(self):
        """The agent has given up waiting for the arbiter."""
        with open(self.node.path("log"), encoding="utf-8", errors="replace") as f:
            return "cannot resize a tenant" in f.read()

    def two_pods(self):
        """The second is a fence: when the arbiter has followed its resize, it has read all that came before."""
        n = self.node
        n.start()
        for name, slot in (("a", 1), ("b", 2)):
            n.pod(name, {"main": [(0, 3000, 30)]})
            n.place(name, n.slot(slot))
            self.assertEqual(n.prestart(n.slot(slot)), [""])
        return n.arbiter()

    def fence(self, mib):
        self.resize("b", mib, 30, {"resize": f"memory={mib}Mi", "done": True, "message": f"now {mib}"})
        until("the fence", lambda: self.memory("b") == mib)

    def test_no_answer_and_back(self):
        """The arbiter carries a resize out after nobody waits for it any more. By then the lease is the old one again."""
        arbiter = self.two_pods()
        os.kill(arbiter, signal.SIGSTOP)
        self.resize("a", 2000, 20, {"resize": "memory=2000Mi", "done": True, "message": "now 2000"})
        until("the agent gives up", self.no_answer)
        self.resize("a", 3000, 30, {"resize": "memory=3000Mi", "done": True, "message": "now 3000"})
        os.kill(arbiter, signal.SIGCONT)
        self.fence(1000)
        until("the tenant has what the lease says", lambda: self.memory("a") == 3000)
        self.fence(1100)
        self.assertEqual((self.memory("a"), self.node.arbiter()), (3000, arbiter))
        self.assertEqual(self.events("SluiceResizeFailed"), [])

    def test_no_answer_and_another_arbiter(self):
        """It never reads the resize; the one that comes after it is asked again, without another word of the Node."""
        arbiter = self.two_pods()
        os.kill(arbiter, signal.SIGSTOP)
        self.resize("a", 2000, 20, {"resize": "memory=2000Mi", "done": True, "message": "now 2000"})
        until("the agent gives up", self.no_answer)
        os.kill(arbiter, signal.SIGKILL)
        until("another arbiter", lambda: self.node.arbiter() not in (None, arbiter))
        until("the tenant has what the lease says", lambda: self.memory("a") == 2000, seconds=40)
        until("an event", lambda: ("a", "now 2000") in self.events("SluiceResized"))
        self.assertEqual(self.events("SluiceResizeFailed"), [])

    def test_room_that_comes_late(self):
        """Told once that there is none; followed as soon as there is, without another word of the Node."""
        n = self.node
        self.two_pods()
        n.pod("c", {"main": [(0, 130000, 30)]})
        n.place("c", n.slot(3))
        self.assertEqual(n.prestart(n.slot(3)), [""])
        self.resize("a", 100000, 30, {"resize": "memory=100000Mi", "done": True, "message": "now 100000"})
        until("an event", lambda: self.events("SluiceResizeFailed"), seconds=40)
        tried = self.reads("a")
        until("two more tries", lambda: self.reads("a") >= tried + 2, seconds=60)
        self.assertEqual((self.memory("a"), len(self.events("SluiceResizeFailed"))), (3000, 1))
        n.gone("c")
        until("the tenant has it", lambda: self.memory("a") == 100000, seconds=40)
        until("an event", lambda: ("a", "now 100000") in self.events("SluiceResized"))
        self.assertEqual(len(self.events("SluiceResizeFailed")), 1)

    def test_the_pod_cannot_be_read(self):
        """The API server has no answer for the agent when the Node tells of a resize."""
        n = self.node
        self.two_pods()
        n.api.unread.add(n.pod_path("a"))
        self.resize("a", 2000, 20, {"resize": "memory=2000Mi", "done": True, "message": "now 2000"})
        self.fence(1000)
        until("the agent has asked", self.unread)
        self.assertEqual(self.memory("a"), 3000)
        n.api.unread.clear()
        until("the tenant has it", lambda: self.memory("a") == 2000)
        until("an event", lambda: ("a", "now 2000") in self.events("SluiceResized"))

    def reads(self, name):
        return self.node.api.log.count(("GET", self.node.pod_path(name), {}))

    def unread(self):
        with open(self.node.path("log"), encoding="utf-8", errors="replace") as f:
            return "whether a pod was resized" in f.read()

    def test_a_container_that_starts_again(self):
        """… just when its lease is the first one again. The arbiter takes the tenant it has for that one's."""
        n = self.node
        self.two_pods()
        self.fence(2000)
        self.resize("b", 3000, 30, {"resize": "memory=3000Mi", "done": True, "message": "now 3000"}, tell=False)
        self.assertEqual(n.prestart(n.slot(2)), [""])
        until("the tenant has what the lease says", lambda: self.memory("b") == 3000)

    def test_the_node_bounds_idle_time(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 3000, 30)]})
        n.place("a", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.resize("a", 2000, 20, {"resize": "cores=20:100", "done": True, "message": "x"}, limit=100)
        until("the tenant has it", lambda: self.memory("a") == 2000)
        self.assertEqual(n.tenants()["a/main"]["cores_limit_percent"], 80)  # allow.burst of the node

    def test_set_on_the_node_is_refused(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 3000, 30)]})
        n.place("a", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        name = self.has("a", n.slot(1), 3000, 30)["name"]
        done = subprocess.run([SLUICE, "set", "--dir", n.arb, name, "--memory", "2Gi", "--cores", "20"],
                              capture_output=True, text=True, env=n.env, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("kubectl -n team annotate pod a gpu.sluice.io/resize=memory=2048Mi,cores=20 --overwrite", done.stderr)
        self.assertEqual(self.memory("a"), 3000)
        done = subprocess.run([SLUICE, "set", "--dir", n.arb, name, "--priority", "low"], capture_output=True, text=True,
                              env=n.env, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))  # no matter of the books


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + (sys.argv[2:] or ["Resize"]))
