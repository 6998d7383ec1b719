#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The DRA driver as kubelet and the API server see it: a node of processes on the simulated GPU.

usage: dra_node.py BUILD_DIR [unittest arguments]
"""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dra_pb  # noqa: E402
from dra_api import GROUP, by_class, config, device, share  # noqa: E402
from dra_rig import CLAIMS, CTL, GIB, WORLD, Case, uid  # noqa: E402
from waiting import until  # noqa: E402


class Share(Case):
    def test_registers(self):
        n = self.node
        n.start()
        out = subprocess.run([WORLD, "register", n.path("registry/gpu.sluice.io-reg.sock")],
                             capture_output=True, text=True, check=True)
        info = json.loads(out.stdout)
        self.assertEqual(info["type"], "DRAPlugin")
        self.assertEqual(info["name"], "gpu.sluice.io")
        self.assertEqual(info["endpoint"], n.path("plugin/dra.sock"))
        self.assertEqual(info["versions"][0], "v1.DRAPlugin")

    def test_prepare_and_back(self):
        n = self.node
        n.start()
        n.claim(1, [share()], config=[by_class(allow={"priority": "high"}), config(priority="high", cores={"limit": 80})])
        got = n.prepare(1)
        self.assertEqual(got["error"], "")
        self.assertEqual(got["devices"], [{
            "request": "gpu", "pool": "node-1", "device": "gpu-0-share", "shareID": "share-1",
            "cdi": f"k8s.gpu.sluice.io/claim={uid(1)}-gpu-gpu-0-share"}])
        tenant = n.tenants()[uid(1) + "-0"]
        self.assertEqual(tenant["gpus"][0]["memory_limit_bytes"], 10 * GIB)
        self.assertEqual(tenant["cores_request_percent"], 30)
        self.assertEqual(tenant["cores_limit_percent"], 80)
        self.assertEqual(tenant["priority"], "high")
        self.assertEqual(tenant["about"]["pod"], "pod-1")
        self.assertEqual(tenant["about"]["claim"], "claim-1")
        spec = json.dumps(n.specs())
        self.assertIn("ld.so.preload", spec)
        self.assertIn(f"/host/sluice/k/{uid(1)}-0", spec)
        self.assertNotIn("SLUICE_MEMORY", spec)
        status = until("the claim's status is written",
                       lambda: [b for p, b in n.api.patches if p.endswith("claim-1/status")])[0]["status"]["devices"][0]
        self.assertEqual(status["shareID"], "share-1")
        self.assertEqual(status["data"]["memory"], "10Gi")
        self.assertEqual(status["conditions"][0]["status"], "True")
        # Again, from either API version, and after restarts: the same.
        self.assertEqual(n.prepare(1), got)
        self.assertEqual(n.prepare(1, version="v1beta1"), got)
        n.stop()
        n.start()
        self.assertEqual(n.prepare(1), got)
        self.assertEqual(n.unprepare(1)["error"], "")
        self.assertEqual(n.unprepare(1)["error"], "")
        self.gone()

    def test_how_gpu_time_is_shared(self):
        """As the node's configuration says; the same claim again takes the new word."""
        n = self.node
        n.env["DRA_CONFIG"] = n.path("config.yaml")
        n.claim(1, [share()])
        for how in ("turns", "slices", "auto"):
            with open(n.path("config.yaml"), "w", encoding="ascii") as f:
                f.write(f"sharing: {{fractional: {{compute: {how}}}}}\n")
            n.start()
            self.assertEqual(n.prepare(1)["error"], "")
            self.assertEqual(n.tenants()[uid(1) + "-0"]["compute_asked"], how)
            n.stop()

    def test_status_beside_anothers(self):
        """A patch is refused (an opaque config with spaces): the claim is put back as it was, but for our devices."""
        n = self.node
        n.api.no_apply = True
        n.api.conflicts = 1
        n.start()
        n.claim(1, [share()])
        path = CLAIMS + "claim-1"
        # Of another driver, with fields that nobody here knows.
        other = dra_pb.device("nic.example.com", "p", "eth0", dra_pb.field(6, dra_pb.field(1, "eth0")) + b"\x98\x06\x07")
        stale = dra_pb.device("gpu.sluice.io", "node-1", "gpu-0-share", dra_pb.field(7, "share-1"))
        allocation = dra_pb.field(1, dra_pb.field(2, '{ "spaces":  "and order" }') + dra_pb.field(1, "\u00e9"))
        n.api.protobuf[path] = dra_pb.claim(uid(1), "77", allocation, [stale, other])
        self.assertEqual(n.prepare(1)["error"], "")
        until("the claim's status is written, after a conflict once more", lambda: len(n.api.updates) == 2)
        for at, body in n.api.updates:
            self.assertEqual(at, path + "/status")
            got = dra_pb.read_claim(body)
            before = dra_pb.read_claim(n.api.protobuf[path])
            for same in ("kind", "uid", "version", "spec", "allocation", "reserved"):
                self.assertEqual(got[same], before[same], same)
            self.assertEqual(got["devices"][0], other)
            ours = [dra_pb.read_device(d) for d in got["devices"][1:]]
            self.assertEqual([(d["driver"], d["pool"], d["device"], d["shareID"]) for d in ours],
                             [("gpu.sluice.io", "node-1", "gpu-0-share", "share-1")])
            self.assertEqual(ours[0]["data"]["memory"], "10Gi")
            condition = ours[0]["conditions"][0]
            self.assertEqual((condition["type"], condition["status"], condition["reason"]), ("Ready", "True", "Prepared"))
            self.assertLess(abs(condition["seconds"] - time.time()), 600)
        self.assertEqual(n.unprepare(1)["error"], "")

    def test_status_of_another_claim(self):
        n = self.node
        n.api.no_apply = True
        n.start()
        n.claim(1, [share()])
        n.claim(2, [share(share_id="share-2")])
        n.api.protobuf[CLAIMS + "claim-1"] = dra_pb.claim(uid(9), "77", b"", [])  # of this name by now
        n.api.protobuf[CLAIMS + "claim-2"] = b"k8s\0\x12\x7f"  # cut short
        for k in (1, 2):
            self.assertEqual(n.prepare(k)["error"], "")
            read = ("GET", CLAIMS + f"claim-{k}", {})
            until("the claim is read again", lambda r=read: n.api.log.count(r) >= 2)
        self.assertEqual(n.prepare(1)["error"], "")
        for k in (1, 2):
            self.assertEqual(n.unprepare(k)["error"], "")
        self.assertEqual(n.api.updates, [])

    def test_two_requests_two_gpus(self):
        n = self.node
        n.start()
        n.claim(1, [share("a", memory="10Gi", cores="20", share_id="s1"),
                    share("b", memory="20Gi", cores="50", share_id="s2")])
        self.assertIn("pods/pod-1 not found", n.prepare(1)["error"])
        self.assertEqual(n.checkpoint(), {})
        n.api.put("/api/v1/namespaces/default/pods/pod-1", {
            "metadata": {"name": "pod-1"},
            "spec": {"resourceClaims": [{"name": "gpus", "resourceClaimName": "claim-1"}],
                     "containers": [{"name": r, "resources": {"claims": [
                         {"name": "gpus", "request": r}]}} for r in ("a", "b")]}})
        got = n.prepare(1)
        self.assertEqual(got["error"], "")
        self.assertEqual({d["request"] for d in got["devices"]}, {"a", "b"})
        self.assertEqual(len({d["cdi"] for d in got["devices"]}), 2)
        limits = {t["about"]["request"]: t["gpus"][0]["memory_limit_bytes"]
                  for t in n.tenants().values()}
        self.assertEqual(limits, {"a": 10 * GIB, "b": 20 * GIB})
        self.assertEqual(n.unprepare(1)["error"], "")
        self.gone()

    def test_two_requests_one_container(self):
        """A container is one tenant: what it uses together adds up on a GPU."""
        n = self.node
        n.start()
        n.claim(1, [share("a", memory="10Gi", cores="20", share_id="s1"),
                    share("b", memory="20Gi", cores="50", share_id="s2"),
                    share("c", memory="5Gi", cores="10", share_id="s3")])
        n.api.put("/api/v1/namespaces/default/pods/pod-1", {
            "metadata": {"name": "pod-1"},
            "spec": {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "t"}],
                     "containers": [
                         {"name": "both", "resources": {"claims": [
                             {"name": "gpus", "request": "a"}, {"name": "gpus", "request": "b"}]}},
                         {"name": "one", "resources": {"claims": [{"name": "gpus", "request": "c"}]}}]},
            "status": {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "claim-1"}]}})
        got = n.prepare(1)
        self.assertEqual(got["error"], "")
        self.assertEqual(sorted((t["gpus"][0]["memory_limit_bytes"] // GIB, t["cores_request_percent"])
                                for t in n.tenants().values()), [(5, 10), (30, 70)])
        self.assertEqual(n.prepare(1), got)
        n.arbiter.kill()
        n.arbiter.wait()
        n.start_arbiter()
        self.assertEqual(n.prepare(1), got)
        self.assertEqual(n.unprepare(1)["error"], "")
        self.gone()

    def test_two_claims_of_one_pod(self):
        """A container is one tenant, so it can have the share of one claim; two containers can have one each."""
        n = self.node
        n.start()
        for i in (1, 2):
            n.claim(i, [share(share_id=f"s{i}")], pod_uid="u")

        def pod(*containers):
            n.api.put("/api/v1/namespaces/default/pods/pod-1", {
                "metadata": {"name": "pod-1"},
                "spec": {"resourceClaims": [{"name": "x", "resourceClaimName": "claim-1"},
                                            {"name": "y", "resourceClaimTemplateName": "t"}],
                         "containers": [{"name": "c" + "".join(used), "resources": {"claims": [{"name": u} for u in used]}}
                                        for used in containers]},
                "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "claim-2"}]}})
        pod("xy")
        both = n.call("prepare", *(f"default/claim-{i}/{uid(i)}" for i in (1, 2)))
        errors = sorted(c["error"] for c in both.values())
        self.assertEqual(errors[0], "")
        self.assertIn("container cxy uses shares of two claims", errors[1])
        self.assertIn("SluiceConfigInvalid default/pod-1", n.events())
        self.assertEqual((len(n.tenants()), len(n.checkpoint())), (1, 1))
        # Kubelet tries again, after a restart too; the message stays, and what is prepared stays alone.
        n.stop()
        n.start()
        self.assertIn("two claims", n.prepare(2)["error"] + n.prepare(1)["error"])
        self.assertEqual(len(n.tenants()), 1)
        # The same claims in two containers are two tenants.
        pod("x", "y")
        for i in (1, 2):
            self.assertEqual(n.prepare(i)["error"], "")
        self.assertEqual(len(n.tenants()), 2)
        for i in (1, 2):
            self.assertEqual(n.unprepare(i)["error"], "")
        self.gone()

    def test_memory_alone(self):
        """Who names no time takes what is idle, as a HAMi pod with gpumem alone; and is sure of the least."""
        n = self.node
        n.start()
        for i in (1, 2):
            claim = n.claim(i, [share(memory="10Gi", cores="1", share_id=f"s{i}")])
            claim["spec"] = {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": "gpu.sluice.io", "capacity": {"requests": {"memory": "10Gi"}}}}]}}
            self.assertEqual(n.prepare(i)["error"], "")
            tenant = n.tenants()[uid(i) + "-0"]
            self.assertEqual((tenant["cores_request_percent"], tenant["cores_limit_percent"]), (1, 100))
        status = until("the claim's status is written",
                       lambda: [b for p, b in n.api.patches if p.endswith("claim-1/status")])[0]["status"]["devices"][0]
        self.assertEqual(status["data"]["cores"], "1:100")
        for i in (1, 2):
            self.assertEqual(n.unprepare(i)["error"], "")
        self.gone()

    def test_refusals(self):
        n = self.node
        n.start()
        n.claim(1, [share(memory="100Gi", cores="60")])
        self.assertEqual(n.prepare(1)["error"], "")
        n.claim(2, [share(memory="100Gi", cores="10")])
        self.assertIn("memory left", n.prepare(2)["error"])
        n.claim(3, [share(memory="1Gi", cores="50")])
        self.assertIn("time left", n.prepare(3)["error"])
        n.claim(4, [device("all", "gpu-0")])
        self.assertIn("not free", n.prepare(4)["error"])
        n.claim(5, [device("m", "gpu-0-mig-1g18gb-0")])
        self.assertIn("not free", n.prepare(5)["error"])
        n.claim(6, [device("all", "gpu-7")])
        self.assertIn("has 1 GPUs", n.prepare(6)["error"])
        n.claim(7, [share()], config=[config(priority="urgent")])
        self.assertIn("low, normal or high", n.prepare(7)["error"])
        self.assertIn("SluiceConfigInvalid default/pod-1", n.events())
        self.assertIn("not found", n.prepare(8)["error"])
        other = n.claim(9, [share()])
        other["metadata"]["uid"] = "another"
        self.assertIn("has been replaced by another claim", n.prepare(9)["error"])
        n.claim(10, [share()], config=[by_class(allow={"strategies": ["mps"]}), config(strategy="mps")])
        self.assertIn("strategy mps", n.prepare(10)["error"])
        n.claim(11, [share(memory="1Gi", cores="10"), share(memory="1Gi", cores="10", share_id="s2")],
                config=[by_class(strategy="mps")])
        self.assertIn("one daemon", n.prepare(11)["error"])
        # Nothing of all that is left, and the first is as it was.
        self.assertEqual(list(n.checkpoint()), [uid(1)])
        self.assertEqual(list(n.tenants()), [uid(1) + "-0"])
        self.assertEqual(len(n.specs()), 1)
        self.assertEqual(n.unprepare(1)["error"], "")
        self.assertEqual(n.prepare(4)["error"], "")
        self.assertEqual(n.tenants(), {})
        self.assertEqual(n.unprepare(4)["error"], "")
        self.gone()

    def test_unknown_and_deleted(self):
        n = self.node
        n.start()
        self.assertEqual(n.unprepare(77)["error"], "")
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        n.api.delete(CLAIMS + "claim-1")
        n.api.down = True
        self.assertEqual(n.prepare(1)["error"], "")  # it is prepared, whoever is down
        self.assertEqual(n.unprepare(1)["error"], "")
        n.api.down = False
        self.assertIn("not found", n.prepare(1)["error"])
        self.gone()

    def test_many_in_one_call(self):
        n = self.node
        n.start()
        for i in range(1, 9):
            n.claim(i, [share(memory="1Gi", cores="5")])
        answer = n.call("prepare", *[f"default/claim-{i}/{uid(i)}" for i in range(1, 10)])
        self.assertEqual(len(answer), 9)
        self.assertEqual([bool(answer[uid(i)]["error"]) for i in range(1, 10)], [False] * 8 + [True])
        answer = n.call("unprepare", *[f"default/claim-{i}/{uid(i)}" for i in range(1, 10)])
        self.assertEqual({v["error"] for v in answer.values()}, {""})
        self.gone()

    def test_arbiter_restarts_and_hangs(self):
        n = self.node
        n.start()
        n.claim(1, [share()])
        n.claim(2, [share(memory="1Gi", cores="5")])
        self.assertEqual(n.prepare(1)["error"], "")
        n.arbiter.kill()
        n.arbiter.wait()
        n.start_arbiter()
        self.assertEqual(list(n.tenants()), [uid(1) + "-0"])
        self.assertEqual(n.prepare(2)["error"], "")
        n.arbiter.send_signal(signal.SIGSTOP)
        self.assertIn("does not answer", n.unprepare(2)["error"])
        n.arbiter.send_signal(signal.SIGCONT)
        self.assertEqual(n.unprepare(2)["error"], "")
        self.assertEqual(n.unprepare(1)["error"], "")
        self.gone()

    def test_reboot(self):
        """/run is empty after a reboot: leases and CDI specs are made again before kubelet asks."""
        n = self.node
        n.start()
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        before = n.specs()
        n.stop(signal.SIGKILL)
        n.arbiter.kill()
        n.arbiter.wait()
        n.boot()
        n.start_arbiter()
        n.start()
        until("the spec is there again", lambda: n.specs() == before)
        self.assertEqual(list(n.tenants()), [uid(1) + "-0"])

    def test_leftovers_are_swept(self):
        n = self.node
        n.start()
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        n.stop()
        os.unlink(n.path("state/checkpoint.json"))
        for old in glob.glob(n.path("state/checkpoint.json.*")):
            os.unlink(old)
        n.start()
        until("what nobody knows is gone", lambda: not n.tenants() and not n.specs())

    def test_damaged_checkpoint_sweeps_nothing(self):
        n = self.node
        n.start()
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        n.stop()
        os.truncate(n.path("state/checkpoint.json"), 100)
        os.unlink(n.path("state/checkpoint.json.old"))
        n.start()
        time.sleep(0.5)
        self.assertEqual(list(n.tenants()), [uid(1) + "-0"])
        self.assertEqual(n.prepare(1)["error"], "")
        self.assertEqual(n.unprepare(1)["error"], "")
        self.gone()

    def test_resize(self):
        n = self.node
        n.start()
        obj = n.claim(1, [share()], config=[by_class(allow={"resize": "free"})])
        n.claim(2, [share(memory="100Gi", cores="30")])
        self.assertEqual(n.prepare(1)["error"], "")
        self.assertEqual(n.prepare(2)["error"], "")

        def resized():
            return [c for c in told() if c["message"] != "the share was resized"]

        def told():
            return [c for p, b in n.api.patches for d in b["status"]["devices"]
                    for c in d["conditions"] if c["type"] == "Resized"]

        def annotate(text):
            before = len(resized())
            obj["metadata"]["annotations"] = {"gpu.sluice.io/resize": text} if text else {}
            n.api.put(CLAIMS + "claim-1", obj)
            return until("a condition", lambda: len(resized()) > before and resized()[-1])

        def lease():
            t = n.tenants()[uid(1) + "-0"]
            return t["gpus"][0]["memory_limit_bytes"] // GIB, t["cores_request_percent"]

        self.assertEqual(annotate("memory=12Gi,cores=40")["status"], "True")
        self.assertEqual(lease(), (12, 40))
        refused = annotate("memory=60Gi")
        self.assertEqual((refused["status"], refused["reason"]), ("False", "NoRoom"))
        self.assertEqual(lease(), (12, 40))
        self.assertEqual(annotate("memory=12GB")["reason"], "Invalid")
        self.assertEqual(annotate("cores=50")["status"], "True")
        self.assertEqual(lease(), (10, 50))
        # What is resized counts, and outlives the driver and the arbiter's state.
        n.claim(3, [share(memory="1Gi", cores="30")])
        self.assertIn("time left", n.prepare(3)["error"])
        n.stop(signal.SIGKILL)
        before = len(told())
        n.start()
        self.assertEqual(n.prepare(1)["error"], "")
        self.assertEqual(lease(), (10, 50))
        self.assertEqual(until("the condition stays", lambda: told()[before:])[0]["status"], "True")
        self.assertEqual(annotate("")["status"], "True")
        self.assertEqual(lease(), (10, 30))
        # An annotation that goes while no driver is there.
        self.assertEqual(annotate("cores=40")["status"], "True")
        n.stop(signal.SIGKILL)
        obj["metadata"]["annotations"] = {}
        n.api.put(CLAIMS + "claim-1", obj)
        n.start()
        until("the share as it was allocated", lambda: lease() == (10, 30))

    def test_conditions_keep_their_time(self):
        """lastTransitionTime is when the status changed, not when it was written."""
        n = self.node
        n.start()
        obj = n.claim(1, [share()], config=[by_class(allow={"resize": "free"})])
        self.assertEqual(n.prepare(1)["error"], "")

        def condition(kind, after=0):
            found = [(c["status"], c["lastTransitionTime"]) for _, b in n.api.patches[after:]
                     for d in b["status"]["devices"] for c in d["conditions"] if c["type"] == kind]
            return found[-1] if found else None

        def resize(text):
            before = len(n.api.patches)
            # Another second, also by the kernel's coarse clock, which is a tick behind.
            second = int(time.time()) + 1
            until("another second", lambda: time.time() > second + 0.1)
            obj["metadata"]["annotations"] = {"gpu.sluice.io/resize": text}
            n.api.put(CLAIMS + "claim-1", obj)
            return until("a condition", lambda: condition("Resized", before))

        ready = until("a condition", lambda: condition("Ready"))
        first = resize("memory=12Gi")
        self.assertEqual(first[0], "True")
        self.assertNotEqual(first[1], ready[1])
        self.assertEqual(resize("memory=11Gi"), first)
        refused = resize("memory=600Gi")
        self.assertEqual(refused[0], "False")
        self.assertNotEqual(refused[1], first[1])
        self.assertEqual(condition("Ready"), ready)
        n.stop(signal.SIGKILL)
        before = len(n.api.patches)
        n.start()
        self.assertEqual(n.prepare(1)["error"], "")
        self.assertEqual(until("a condition", lambda: condition("Ready", before)), ready)

    def test_rolling_upgrade(self):
        n = self.node
        n.start(instance="old")
        n.claim(1, [share()])
        got = n.prepare(1, socket="dra-old.sock")
        self.assertEqual(got["error"], "")
        n.stop()
        self.assertFalse(os.path.exists(n.path("registry/gpu.sluice.io-old-reg.sock")))
        self.assertTrue(n.api.slices())
        n.start(instance="new")
        self.assertEqual(n.prepare(1, socket="dra-new.sock"), got)
        # Two at a time, as with maxSurge: the newer waits, and has everything when the older ends.
        old, before = n.node, len(n.api.slices())
        n.start(instance="newer", wait=False)
        time.sleep(0.5)
        self.assertIsNone(n.node.poll())
        self.assertFalse(os.path.exists(n.path("plugin/dra-newer.sock")))
        n.claim(2, [share(memory="1Gi", cores="5")])
        self.assertEqual(n.prepare(2, socket="dra-new.sock")["error"], "")
        old.terminate()
        self.assertEqual(old.wait(10), 0)
        until("the newer takes over", lambda: os.path.exists(n.path("plugin/dra-newer.sock")))
        self.assertEqual(len(n.api.slices()), before)
        self.assertEqual(set(n.checkpoint()), {uid(1), uid(2)})
        until("it has what was prepared", lambda: n.prepare(1, socket="dra-newer.sock") == got)
        for i in (1, 2):
            self.assertEqual(n.unprepare(i, socket="dra-newer.sock")["error"], "")
        self.gone()


class Slices(Case):
    spec = "h200x8"

    def test_published(self):
        n = self.node
        begun = time.monotonic()
        n.start()
        until("MIG devices are published",
              lambda: sum(len(s["spec"].get("devices", [])) for s in n.api.slices()) > 100)
        until("one generation",
              lambda: len({s["spec"]["pool"]["generation"] for s in n.api.slices()}) == 1)
        print(f"slices of 8 GPUs with MIG after {time.monotonic() - begun:.2f} s", file=sys.stderr)
        slices = n.api.slices()
        self.assertEqual({s["spec"]["pool"]["resourceSliceCount"] for s in slices}, {len(slices)})
        names = [d["name"] for s in slices for d in s["spec"].get("devices", [])]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("gpu-7-mig-1g18gb-6", names)
        generation = slices[0]["spec"]["pool"]["generation"]

        # Kubelet starts and wipes them.
        for s in slices:
            n.api.delete(GROUP + "/resourceslices/" + s["metadata"]["name"])
        until("they are back", lambda: len(n.api.slices()) == len(slices))
        # Somebody makes a stray one and changes another.
        stray = json.loads(json.dumps(slices[0]))
        stray["metadata"]["name"] = "stray"
        n.api.put(GROUP + "/resourceslices/stray", stray)
        changed = n.api.slices()[1]
        changed["spec"]["devices"] = changed["spec"]["devices"][:1]
        n.api.put(GROUP + "/resourceslices/" + changed["metadata"]["name"], changed)

        def healed():
            now = n.api.slices()
            return (len(now) == len(slices)
                    and len({s["spec"]["pool"]["generation"] for s in now}) == 1
                    and [len(s["spec"].get("devices", [])) for s in now] ==
                    [len(s["spec"].get("devices", [])) for s in slices])
        until("all is as it should be", healed)
        # A restart changes nothing.
        before = n.api.slices()
        n.stop()
        n.start()
        until("", lambda: sum(len(s["spec"].get("devices", [])) for s in n.api.slices()) > 100)
        time.sleep(0.5)
        self.assertEqual([s["spec"]["devices"] for s in n.api.slices() if "devices" in s["spec"]],
                         [s["spec"]["devices"] for s in before if "devices" in s["spec"]])
        self.assertGreaterEqual(n.api.slices()[0]["spec"]["pool"]["generation"], 1)
        self.assertGreaterEqual(generation, 1)

    def test_count_two(self):
        n = self.node
        n.start()
        n.claim(1, [share("pair", "gpu-0-share", share_id="a"), share("pair", "gpu-1-share", share_id="b")])
        self.assertEqual(n.prepare(1)["error"], "")
        tenants = n.tenants()
        self.assertEqual(len(tenants), 1)
        self.assertEqual(len(tenants[uid(1) + "-0"]["gpus"]), 2)
        self.assertEqual(n.unprepare(1)["error"], "")


class Health(Case):
    def stream(self):
        p = subprocess.Popen([WORLD, "health", self.node.path("plugin/dra.sock"), "1000"],
                             stdout=subprocess.PIPE, text=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p

    @staticmethod
    def changed(stream):
        """The first message that is no good news: what is well is told again now and then."""
        while True:
            told = json.loads(stream.stdout.readline())[0]
            if told["health"] != 1:
                return told

    def test_unhealthy(self):
        n = self.node
        n.start()
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        stream = self.stream()
        self.assertEqual(json.loads(stream.stdout.readline()),
                         [{"device": "gpu-0-share", "health": 1, "message": ""}])
        env = dict(n.env, SLUICE_SIM="h200", SLUICE_SIM_STATE=n.path("root/state/machine"))
        subprocess.run([CTL, "xid", "0", "79"], check=True, env=env)
        self.assertEqual(self.changed(stream)["health"], 2)
        taints = until("taints",
                       lambda: [d["taints"] for s in n.api.slices()
                                for d in s["spec"].get("devices", []) if "taints" in d])
        self.assertEqual(taints[0][0]["key"], "gpu.sluice.io/unhealthy")
        until("the claim's condition",
              lambda: [b for _, b in n.api.patches
                       if b["status"]["devices"][0]["conditions"][0]["status"] == "False"])

    def test_unhealthy_while_the_api_server_is_away(self):
        n = self.node
        n.start()
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        until("the claim's status", lambda: n.api.patches)
        stream = self.stream()
        n.api.down = True
        env = dict(n.env, SLUICE_SIM="h200", SLUICE_SIM_STATE=n.path("root/state/machine"))
        subprocess.run([CTL, "xid", "0", "79"], check=True, env=env)
        self.assertEqual(self.changed(stream)["health"], 2)
        status = ("PATCH", CLAIMS + "claim-1/status")
        tried = len([e for e in n.api.log if e[:2] == status])
        until("it is tried", lambda: len([e for e in n.api.log if e[:2] == status]) > tried)
        n.api.down = False
        until("the claim's condition, once the API server is back",
              lambda: n.api.patches[-1][1]["status"]["devices"][0]["conditions"][0]["status"] == "False")

    def test_lost(self):
        n = self.node
        n.start()
        n.claim(1, [share()])
        self.assertEqual(n.prepare(1)["error"], "")
        stream = self.stream()
        self.assertEqual(json.loads(stream.stdout.readline())[0]["health"], 1)
        env = dict(n.env, SLUICE_SIM="h200", SLUICE_SIM_STATE=n.path("root/state/machine"))
        subprocess.run([CTL, "lost", "0"], check=True, env=env)
        subprocess.run([CTL, "xid", "0", "79"], env=env)  # what a driver says of it: look now
        self.assertEqual(self.changed(stream)["health"], 2)
        effects = until("eviction", lambda: {t["effect"] for s in n.api.slices()
                                 for d in s["spec"].get("devices", [])
                                 for t in d.get("taints", [])} == {"NoExecute"}, 60)
        self.assertTrue(effects)
        self.assertNotEqual(n.prepare(2)["error"], "")


class Mig(Case):
    def mig_node(self):
        n = self.node
        n.start()
        until("MIG is offered", lambda: any(d["name"] == "gpu-0-mig-1g18gb-6" for s in n.api.slices()
                          for d in s["spec"].get("devices", [])))
        return n

    def test_dynamic(self):
        n = self.mig_node()
        n.claim(1, [device("m", "gpu-0-mig-3g71gb-4")])
        n.claim(2, [device("m", "gpu-0-mig-1g18gb-0"), device("w", "gpu-0-mig-1g18gb-1")])
        self.assertEqual(n.prepare(1)["error"], "")
        self.assertEqual(n.prepare(2)["error"], "")
        self.assertEqual(sorted(n.mig()), ["1g.18gb", "1g.18gb", "3g.71gb"])
        self.assertEqual(n.prepare(2)["error"], "")
        self.assertEqual(len(n.mig()), 3)
        self.assertIn("nvidia-cap", json.dumps(n.specs()))
        n.claim(3, [device("m", "gpu-0-mig-1g18gb-5")])
        self.assertIn("not free", n.prepare(3)["error"])
        n.claim(4, [share()])
        self.assertIn("not free", n.prepare(4)["error"])
        self.assertEqual(n.unprepare(1)["error"], "")
        self.assertEqual(n.mig(), ["1g.18gb", "1g.18gb"])
        self.assertEqual(n.unprepare(2)["error"], "")
        self.assertEqual(n.mig(), [])
        # MIG is on still; a share turns it off.
        self.assertEqual(n.prepare(4)["error"], "")
        self.assertEqual(n.unprepare(4)["error"], "")
        self.gone()

    def test_admin_access(self):
        """Who looks in has the device without a lease, is counted nowhere, and takes nothing away when he leaves."""
        n = self.mig_node()
        place = "gpu-0-mig-1g18gb-0"
        n.claim(1, [dict(device("look", place), adminAccess=True)])
        self.assertIn("makes none", n.prepare(1)["error"])
        n.claim(2, [device("m", place)])
        self.assertEqual(n.prepare(2)["error"], "")
        self.assertEqual(n.prepare(1)["error"], "")
        self.assertEqual(n.mig(), ["1g.18gb"])
        n.claim(3, [dict(device("look", "gpu-0"), adminAccess=True)])
        self.assertEqual(n.prepare(3)["error"], "")
        for k in (1, 3):
            self.assertEqual(n.unprepare(k)["error"], "")
        self.assertEqual(n.mig(), ["1g.18gb"])
        self.assertEqual(n.unprepare(2)["error"], "")
        n.claim(4, [share(memory="140Gi", cores="100")])
        self.assertEqual(n.prepare(4)["error"], "")
        n.claim(5, [dict(device("look", "gpu-0-share"), adminAccess=True)])
        self.assertEqual(n.prepare(5)["error"], "")
        self.assertEqual(list(n.tenants()), [uid(4) + "-0"])
        self.assertNotIn("preload", json.dumps(next(s for f, s in n.specs().items() if uid(5) in f)))
        for k in (4, 5):
            self.assertEqual(n.unprepare(k)["error"], "")
        self.gone()

    def test_foreign_instances(self):
        n = self.node
        env = dict(n.env, SLUICE_SIM="h200", SLUICE_SIM_STATE=n.path("root/state/machine"))
        subprocess.run([CTL, "mig", "0", "2g.35gb@2"], check=True, env=env)
        n = self.mig_node()
        names = [d["name"] for s in n.api.slices() for d in s["spec"].get("devices", [])]
        self.assertIn("gpu-0-mig-2g35gb-2", names)
        self.assertNotIn("gpu-0-mig-1g18gb-2", names)
        self.assertNotIn("gpu-0", names)
        n.claim(1, [device("m", "gpu-0-mig-2g35gb-2")])
        self.assertEqual(n.prepare(1)["error"], "")
        self.assertEqual(n.mig(), ["2g.35gb"])
        self.assertEqual(n.unprepare(1)["error"], "")
        self.assertEqual(n.mig(), ["2g.35gb"])  # not ours to destroy
        n.claim(2, [device("m", "gpu-0-mig-1g18gb-2")])  # the scheduler knew an older slice
        self.assertNotEqual(n.prepare(2)["error"], "")
        self.assertEqual(n.mig(), ["2g.35gb"])


POINTS = ["dra.prepare.planned", "dra.prepare.lease", "dra.prepare.leased", "dra.prepare.cdi",
          "dra.prepare.done", "checkpoint.before:1", "checkpoint.written:1", "checkpoint.linked:1",
          "checkpoint.replaced:1", "checkpoint.before:2", "checkpoint.written:2",
          "checkpoint.linked:2", "checkpoint.replaced:2", "cdi.claim.made", "cdi.claim.written"]
MIG_POINTS = ["dra.mig.before", "dra.mig.made", "dra.prepare.mig", "checkpoint.replaced:2",
              "checkpoint.before:3", "dra.prepare.done"]
UN_POINTS = ["dra.unprepare.begun", "dra.unprepare.cdi", "dra.unprepare.lease", "dra.unprepare.mig",
             "dra.unprepare.done", "checkpoint.before:1", "checkpoint.replaced:1",
             "checkpoint.linked:2", "checkpoint.replaced:2", "cdi.claim.removed"]
UN_MIG_POINTS = ["dra.mig.unmade", "dra.unprepare.mig", "checkpoint.before:2"]


class Kill(Case):
    """SIGKILL at every step: after a restart the claim is prepared, or there is nothing of it."""

    def whole_or_nothing(self, mig):
        n = self.node

        def settled():
            entry = n.checkpoint().get(uid(1))
            if entry and entry["state"] != 1:
                return False
            want = 1 if entry else 0
            return (len(n.specs()) == want and len(n.tenants()) == (0 if mig else want)
                    and len(n.mig()) == (want if mig else 0))
        until(f"prepared or gone: {n.checkpoint()} {n.specs()} {n.tenants()} {n.mig()}", settled)

    def one(self, point, mig, unprepare):
        n = self.node
        n.claim(1, [device("m", "gpu-0-mig-3g71gb-4")] if mig else [share()])
        if unprepare:
            n.start()
            self.wait_mig(mig)
            self.assertEqual(n.prepare(1)["error"], "")
            n.stop()
        if unprepare:
            n.start(fault=point)
            self.assertIsNone(n.unprepare(1, check=False))
        else:
            n.start(fault=point)
            self.wait_mig(mig)
            self.assertIsNone(n.prepare(1, check=False))
        self.assertEqual(n.node.wait(10), -signal.SIGKILL)
        n.start()
        self.whole_or_nothing(mig)
        # Kubelet asks again.
        if unprepare:
            self.assertEqual(n.unprepare(1)["error"], "")
        else:
            self.wait_mig(mig)
            self.assertEqual(n.prepare(1)["error"], "")
            self.whole_or_nothing(mig)
            self.assertEqual(list(n.checkpoint()), [uid(1)])
            self.assertEqual(n.unprepare(1)["error"], "")
        self.gone()
        n.stop()

    def wait_mig(self, mig):
        if mig:
            until("MIG is offered", lambda: any(d["name"] == "gpu-0-mig-1g18gb-6" for s in self.node.api.slices()
                              for d in s["spec"].get("devices", [])))

    def test_every_point_is_here(self):
        sources = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src")
        there = set()
        for path in glob.glob(sources + "/**/*.c", recursive=True):
            with open(path, encoding="utf-8") as f:
                there |= set(re.findall(r'SL_FAULT(?:_NAME)?\("((?:dra|checkpoint|cdi\.claim)\.[^"]*)"\)', f.read()))
        tried = {p.split(":")[0] for p in POINTS + MIG_POINTS + UN_POINTS + UN_MIG_POINTS}
        self.assertGreater(len(there), 15)
        self.assertEqual(there, tried)

    def test_prepare(self):
        for point in POINTS:
            with self.subTest(point=point):
                self.one(point, False, False)

    def test_prepare_mig(self):
        for point in MIG_POINTS:
            with self.subTest(point=point):
                self.one(point, True, False)

    def test_unprepare(self):
        for point in UN_POINTS:
            with self.subTest(point=point):
                self.one(point, False, True)

    def test_unprepare_mig(self):
        for point in UN_MIG_POINTS:
            with self.subTest(point=point):
                self.one(point, True, True)


class Bench(Case):
    def test_64_at_once(self):
        """Every one is prepared; how fast is for bench/dra.sh to judge, on a machine that is quiet."""
        n = self.node
        quick = subprocess.Popen([WORLD, "api", "0"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(quick.wait)
        self.addCleanup(quick.kill)
        n.api.url = f"http://127.0.0.1:{quick.stdout.readline().strip()}"
        n.start()
        for _ in range(int(os.environ.get("SLUICE_BENCH_ROUNDS", "1"))):
            out = subprocess.run([WORLD, "bench", n.path("plugin/dra.sock"), "64"],
                                 capture_output=True, text=True)
            self.assertEqual(out.returncode, 0, out.stderr)
            print(out.stdout, end="", file=sys.stderr)
        self.gone()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], warnings="ignore")
