#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may ask for what: claims that want more than a plain share, on a node of processes with the simulated GPU.

usage: dra_allow.py BUILD_DIR [unittest arguments]
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dra_api import by_class, config, share  # noqa: E402
from dra_rig import CLAIMS, GIB, Case, uid  # noqa: E402
from waiting import until  # noqa: E402


class Allow(Case):
    def refused(self, number, *words):
        got = self.node.prepare(number)["error"]
        for word in words:
            self.assertIn(word, got)
        until("an event", lambda: "SluiceNotAllowed default/pod-1" in self.node.events())

    def test_claims_do_not_choose_their_enforcement(self):
        """By default: what libsluice enforces, priority normal at most, idle time up to all of it."""
        n = self.node
        n.start()
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        n.claim(2, [share(memory="1Gi", cores="1")], config=[config(strategy="timeSlicing")])
        self.refused(2, "strategy timeSlicing", "namespace default may not", "sharing.fractional.allow")
        n.claim(3, [share(memory="1Gi", cores="1")], config=[config(strategy="mps")])
        self.refused(3, "strategy mps", "namespace default may not")
        n.claim(4, [share(memory="1Gi", cores="1")], config=[config(priority="high", cores={"limit": 100})])
        self.refused(4, "priority high", "normal at most", "the administrator can allow it")
        # A claim may not say what claims may say.
        n.claim(5, [share(memory="1Gi", cores="1")], config=[config(priority="high", allow={"priority": "high"})])
        self.assertIn("belongs in a DeviceClass", n.prepare(5)["error"])
        self.assertEqual(list(n.tenants()), [uid(1) + "-0"])
        self.assertEqual(len(n.specs()), 1)
        # What is everybody's.
        n.claim(6, [share(memory="1Gi", cores="1")], config=[config(priority="low", cores={"limit": 100}, strategy="libsluice")])
        self.assertEqual(n.prepare(6)["error"], "")
        self.assertEqual(n.tenants()[uid(6) + "-0"]["cores_limit_percent"], 100)

    def test_the_class_decides(self):
        n = self.node
        n.start()
        # What the class itself says, and what it lets claims say, in which namespaces.
        high = config(priority="high")
        n.claim(1, [share(memory="1Gi", cores="1")], config=[by_class(priority="high")])
        self.assertEqual(n.prepare(1)["error"], "")
        self.assertEqual(n.tenants()[uid(1) + "-0"]["priority"], "high")
        # How the time of a GPU is shared is for all its tenants: a class may say it, a claim may not.
        n.claim(7, [share(memory="1Gi", cores="1")], config=[config(compute="turns")])
        self.refused(7, "compute: turns", "DeviceClass")
        n.claim(8, [share(memory="1Gi", cores="1")], config=[by_class(compute="turns")])
        self.assertEqual(n.prepare(8)["error"], "")
        self.assertEqual(n.tenants()[uid(8) + "-0"]["compute_asked"], "turns")
        self.assertEqual(n.tenants()[uid(1) + "-0"]["compute_asked"], "auto")
        n.stop()
        n.start()  # from the checkpoint
        self.assertEqual(n.prepare(8)["error"], "")
        self.assertEqual(n.tenants()[uid(8) + "-0"]["compute_asked"], "turns")
        n.claim(2, [share(memory="1Gi", cores="1")], config=[by_class(allow={"priority": "high", "namespaces": ["other", "def*"]}), high])
        self.assertEqual(n.prepare(2)["error"], "")
        n.claim(3, [share(memory="1Gi", cores="1")], config=[by_class(allow={"priority": "high", "namespaces": ["other"]}), high])
        self.refused(3, "priority high")
        n.claim(4, [share(memory="1Gi", cores="1")], config=[by_class(allow={"priorities": "high"})])
        self.assertIn("allow.priorities is not known", n.prepare(4)["error"])
        # Allowed, but nobody who is held to nothing gets beside those who are held to their share.
        n.claim(5, [share(memory="1Gi", cores="1")], config=[by_class(allow={"strategies": ["timeSlicing"]}), config(strategy="timeSlicing")])
        self.assertIn("use one strategy for a GPU", n.prepare(5)["error"])
        for i in (1, 2, 8):
            self.assertEqual(n.unprepare(i)["error"], "")
        self.assertEqual(n.prepare(5)["error"], "")
        n.claim(6, [share(memory="1Gi", cores="1")])
        self.assertIn("use one strategy for a GPU", n.prepare(6)["error"])

    def test_the_node_decides(self):
        n = self.node
        n.start(config="version: v1\nsharing: {fractional: {allow: {priority: low, burst: 40, resize: never, namespaces: [\n"
                       "  {name: other, priority: high}, {name: 'd*t', strategies: [mps], burst: 50}]}}}\n")
        n.claim(1, [share()], config=[config(priority="normal", cores={"limit": 50})])
        self.assertEqual(n.prepare(1)["error"], "")  # normal is what the driver gives without a word, too
        n.claim(2, [share()], config=[config(priority="high")])
        self.refused(2, "priority high", "normal at most")
        n.claim(3, [share()], config=[config(cores={"limit": 60})])
        self.refused(3, "up to 60 %", "50 % at most")
        n.claim(4, [share()], config=[config(strategy="mps")])
        self.assertIn("use one strategy for a GPU", n.prepare(4)["error"])
        n.claim(5, [share()], config=[config(strategy="timeSlicing")])
        self.refused(5, "strategy timeSlicing")
        self.assertEqual(self.resizer(1)("cores=10")["reason"], "NotAllowed")

    def resizer(self, number):
        """annotate(text) -> the condition that tells of it"""
        n, obj = self.node, self.node.api.objects[CLAIMS + f"claim-{number}"]

        def told():
            return [c for p, b in n.api.patches if f"claim-{number}/" in p for d in b["status"]["devices"]
                    for c in d["conditions"] if c["type"] == "Resized" and c["message"] != "the share was resized"]

        def annotate(text):
            before = len(told())
            obj["metadata"]["annotations"] = {"gpu.sluice.io/resize": text} if text else {}
            n.api.put(CLAIMS + f"claim-{number}", obj)
            return until("a condition", lambda: len(told()) > before and told()[-1])
        return annotate

    def test_resizes_stay_within_what_was_allocated(self):
        n = self.node
        n.start()
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        annotate = self.resizer(1)

        def lease():
            t = n.tenants()[uid(1) + "-0"]
            return t["gpus"][0]["memory_limit_bytes"] // GIB, t["cores_request_percent"], t["cores_limit_percent"]
        for text, word in (("memory=11Gi", "10.0 GiB"), ("cores=31", "30 %"), ("memory=128Gi,cores=60", "10.0 GiB")):
            refused = annotate(text)
            self.assertEqual((refused["status"], refused["reason"]), ("False", "NotAllowed"))
            self.assertIn(word, refused["message"])
            self.assertIn("the administrator can allow it", refused["message"])
            self.assertEqual(lease(), (10, 30, 30))
        self.assertEqual(annotate("memory=5Gi,cores=20:60")["status"], "True")
        self.assertEqual(lease(), (5, 20, 60))
        self.assertEqual(annotate("memory=10Gi,cores=30")["status"], "True")
        self.assertEqual(lease(), (10, 30, 30))
        # As far as the class says: half of the card.
        n.claim(2, [share(memory="1Gi", cores="10", share_id="s2")], config=[by_class(allow={"resize": "free", "resizeTo": 50})])
        self.assertEqual(n.prepare(2)["error"], "")
        annotate = self.resizer(2)
        self.assertEqual(annotate("memory=60Gi,cores=50")["status"], "True")
        self.assertIn("50 %", annotate("cores=51")["message"])
        self.assertIn("the limit of resizes", annotate("memory=80Gi")["message"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], warnings="ignore")
