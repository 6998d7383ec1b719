#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resizes of claims that fail for a while: the DRA driver follows the annotation until the tenant has it.

usage: dra_resize.py BUILD_DIR [unittest arguments]
"""
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dra_api import by_class, share  # noqa: E402
from dra_rig import CLAIMS, GIB, SLUICE, Case, uid  # noqa: E402
from waiting import until  # noqa: E402


class Resize(Case):
    def two_resizable(self):
        """Returns a function that annotates one of two claims. The second is a fence: when the arbiter has followed its
        resize, it has read all that came before."""
        n = self.node
        n.start()
        objects = {}
        for k in (1, 2):
            objects[k] = n.claim(k, [share(cores="20", share_id=f"s{k}")], pod=f"pod-{k}",
                                 config=[by_class(allow={"resize": "free"})])
            self.assertEqual(n.prepare(k)["error"], "")

        def annotate(k, text):
            objects[k]["metadata"]["annotations"] = {"gpu.sluice.io/resize": text} if text else {}
            n.api.put(CLAIMS + f"claim-{k}", objects[k])

        return annotate

    def memory(self, k):
        return self.node.tenants()[uid(k) + "-0"]["gpus"][0]["memory_limit_bytes"] // GIB

    def resized_events(self, k):
        return [line.split()[1] for line in self.node.events().splitlines()
                if line.startswith("EVENT SluiceResize") and f"/pod-{k} " in line]

    def test_no_answer_and_back(self):
        """The arbiter carries a resize out after nobody waits for it any more. By then the annotation is gone."""
        n, annotate = self.node, self.two_resizable()
        n.arbiter.send_signal(signal.SIGSTOP)
        annotate(1, "memory=12Gi")
        until("the driver gives up", lambda: "does not answer" in n.log())
        annotate(1, "")
        n.arbiter.send_signal(signal.SIGCONT)
        annotate(2, "memory=5Gi")
        until("the fence", lambda: self.memory(2) == 5)
        until("the share as it was allocated", lambda: self.memory(1) == 10)
        until("it is told", lambda: self.resized_events(1))
        annotate(2, "memory=6Gi")
        until("the fence", lambda: self.memory(2) == 6)
        self.assertEqual((self.memory(1), self.resized_events(1)), (10, ["SluiceResized"]))

    def test_no_answer_and_back_without_a_driver(self):
        """The annotation goes while no driver is there: the next one knows that the amounts are not known."""
        n, annotate = self.node, self.two_resizable()
        n.arbiter.send_signal(signal.SIGSTOP)
        annotate(1, "memory=12Gi")
        until("the driver gives up", lambda: "does not answer" in n.log())
        until("it is written down", lambda: n.checkpoint()[uid(1)]["resizeUnsure"])
        n.stop(signal.SIGKILL)
        annotate(1, "")
        n.arbiter.send_signal(signal.SIGCONT)
        until("the arbiter carries it out", lambda: self.memory(1) == 12)
        n.start()
        until("the share as it was allocated", lambda: self.memory(1) == 10)
        until("all is known again", lambda: not n.checkpoint()[uid(1)]["resizeUnsure"])

    def test_no_answer_and_another_arbiter(self):
        """It never reads the resize; the one that comes after it is asked again, though the annotation is the same."""
        n, annotate = self.node, self.two_resizable()
        n.arbiter.send_signal(signal.SIGSTOP)
        annotate(1, "memory=12Gi")
        until("the driver gives up", lambda: "does not answer" in n.log())
        n.arbiter.kill()
        n.arbiter.wait()
        n.start_arbiter()
        until("the share has it", lambda: self.memory(1) == 12, seconds=40)
        until("it is told", lambda: self.resized_events(1))
        self.assertEqual(self.resized_events(1), ["SluiceResized"])
        self.assertEqual(n.checkpoint()[uid(1)]["devices"][0]["resizedMemoryBytes"], 12 * GIB)

    def test_no_room_for_long(self):
        """Another tenant has more than its claim: told once; followed when the room is there, and not before."""
        n, annotate = self.node, self.two_resizable()

        def set_other(memory):
            subprocess.run([SLUICE, "--dir", n.arb, "set", uid(2) + "-0", "--memory", memory], env=n.env, check=True)

        set_other("120Gi")
        annotate(1, "memory=60Gi")
        until("an event", lambda: self.resized_events(1), seconds=40)
        self.assertEqual((self.memory(1), self.resized_events(1)), (10, ["SluiceResizeFailed"]))
        set_other("10Gi")
        until("the share has it", lambda: self.memory(1) == 60, seconds=40)
        until("it is told", lambda: len(self.resized_events(1)) == 2)
        self.assertEqual(self.resized_events(1), ["SluiceResizeFailed", "SluiceResized"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], warnings="ignore")
