#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole sluiced with fractions on the device plugin's path, as kubelet and the API server see it.

usage: fraction_node.py BUILD_DIR [unittest arguments]
"""
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dra_api import claim, share  # noqa: E402
from fraction_world import BUILD, CTL, GPU, MIB, NODE, SLOTS, SLUICE, Node  # noqa: E402
from waiting import until  # noqa: E402

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/"
DRA_WORLD = os.path.join(BUILD, "tests/agent/dra_world")


class Case(unittest.TestCase):
    spec = "h200x2"
    strategy = "cdi-cri"

    def setUp(self):
        self.node = Node(self.spec, self.strategy)
        self.addCleanup(self.node.end)

    def has(self, name, slot, mib, cores=0, container="main", cards=None):
        """The container in that slot is held to what its own pod was promised."""
        n = self.node
        tenant = n.tenants()[f"{name}/{container}"]
        self.assertEqual(n.tenant_of(slot), tenant["name"])
        self.assertEqual([g["memory_limit_bytes"] for g in tenant["gpus"]],
                         [m * MIB for m in (mib if isinstance(mib, list) else [mib])])
        if cores:
            self.assertEqual(tenant["cores_request_percent"], cores)
        if cards is not None:
            self.assertEqual(n.cards_of(slot), cards)
        return tenant

    def nothing(self):
        self.assertEqual(self.node.tenants(), {})
        self.assertEqual(self.node.specs(), {})


class Start(Case):
    def test_a_slot_is_only_a_name(self):
        n = self.node
        n.start()
        self.assertEqual(n.ask(f"options {GPU}"), "1")
        got = json.loads(n.ask(f"allocate {GPU} {n.slot(4)}"))
        self.assertEqual(got, {"envs": {}, "annotations": {}, "mounts": [], "devices": [],
                               "cdi": ["k8s.gpu.sluice.io/slot=" + n.slot(4)]})
        both = json.loads(n.ask(f"allocate {GPU} {n.slot(7)} {n.slot(2)}"))
        self.assertEqual(both["cdi"], ["k8s.gpu.sluice.io/slot=" + n.slot(2)])  # in any order
        self.nothing()

    def test_a_promise_becomes_a_tenant(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(1, 3000, 25)]}, coresLimit=80, priority="high")
        n.place("a", n.slot(3))  # a slot is a token: the promise says which card
        self.assertEqual(n.prestart(n.slot(3)), [""])
        tenant = self.has("a", n.slot(3), 3000, 25, cards=[1])
        self.assertEqual(tenant["cores_limit_percent"], 80)
        self.assertEqual(tenant["priority"], "high")
        self.assertEqual(tenant["about"]["namespace"], "team")
        spec = n.specs()[n.slot(3)]
        self.assertEqual(spec["kind"], "k8s.gpu.sluice.io/slot")
        self.assertEqual([d["name"] for d in spec["devices"]], [n.slot(3)])
        mounts = {m["containerPath"]: m for m in spec["devices"][0]["containerEdits"]["mounts"]}
        self.assertEqual(mounts["/etc/ld.so.preload"]["hostPath"], "/host/state/ld.so.preload")
        self.assertEqual(mounts["/run/sluice"]["hostPath"], "/host/arb/k/" + tenant["name"])
        text = subprocess.run([SLUICE, "status", "--dir", n.arb], capture_output=True, text=True,
                              env=n.env, check=True).stdout
        for word in ("team", "a", "main"):
            self.assertRegex(text, rf"\b{word}\b")

    def test_how_gpu_time_is_shared(self):
        """As the node's configuration says, from the next container on; a container that starts again gets
        the new word, and the same lease."""
        n = self.node
        n.start()
        with open(n.path("config.yaml"), encoding="ascii") as f:
            text = f.read()

        def configure(how):
            with open(n.path("config.yaml"), "w", encoding="ascii") as f:
                f.write(text.replace("enabled: true", f"enabled: true, compute: {how}"))
            n.stop()
            n.start()

        n.pod("a", {"main": [(0, 1000, 10)]})
        n.place("a", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.assertEqual(self.has("a", n.slot(1), 1000, 10)["compute_asked"], "auto")
        configure("turns")
        n.pod("b", {"main": [(0, 1000, 10)]})
        n.place("b", n.slot(2))
        self.assertEqual(n.prestart(n.slot(2)), [""])
        self.assertEqual(self.has("b", n.slot(2), 1000, 10)["compute_asked"], "turns")
        self.assertEqual(self.has("a", n.slot(1), 1000, 10)["compute_asked"], "auto")
        until("the GPU has turns", lambda: n.tenants()["a/main"]["compute"] == "turns")
        configure("slices")
        self.assertEqual(n.prestart(n.slot(2)), [""])
        self.assertEqual(self.has("b", n.slot(2), 1000, 10)["compute_asked"], "slices")
        until("the GPU has slices again", lambda: n.tenants()["a/main"]["compute"] == "slices")

    def test_two_gpus_in_one_container(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 1000, 20), (1, 2000, 40)]})
        n.place("a", n.slot(5), n.slot(1))
        self.assertEqual(n.prestart(f"{n.slot(5)},{n.slot(1)}"), [""])
        self.has("a", n.slot(1), [1000, 2000], 20, cards=[0, 1])

    def test_no_cores_is_what_is_idle(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 1000, 0)]})
        n.place("a", n.slot(0))
        self.assertEqual(n.prestart(n.slot(0)), [""])
        self.has("a", n.slot(0), 1000)

    def test_each_gets_its_own_whatever_the_order(self):
        n = self.node
        n.start()
        rng = random.Random(6)
        for turn in range(12):
            names, slots = [f"p{turn}-{i}" for i in range(2)], rng.sample(range(SLOTS), 2)
            sizes = [1000 + turn, 40000 + turn]
            for i in range(2):
                n.pod(names[i], {"main": [(rng.randrange(2), sizes[i], 10 + 40 * i)]})
            order = [0, 1] if turn % 2 else [1, 0]
            for i in order:
                n.place(names[i], n.slot(slots[i]))
            rng.shuffle(order)
            self.assertEqual(n.prestart(*[n.slot(slots[i]) for i in order]), ["", ""])
            for i in range(2):
                self.has(names[i], n.slot(slots[i]), sizes[i], 10 + 40 * i)
            for name in names:
                n.gone(name)
        until("all are gone", lambda: not n.tenants() and not n.specs())

    def test_a_burst(self):
        n = self.node
        n.start()
        size = {i: 1000 + 100 * i for i in range(2 * SLOTS)}
        slot = {i: n.slot(i % SLOTS, i // SLOTS) for i in size}
        for i in size:
            n.pod(f"p{i}", {"main": [(i % 2, size[i], 5)]})
            n.place(f"p{i}", slot[i])
        asked = int(n.ask("podres on").split()[1])
        self.assertEqual(n.prestart(*slot.values()), [""] * len(size))
        for i in size:
            self.has(f"p{i}", slot[i], size[i], 5, cards=[i % 2])
        self.assertLess(int(n.ask("podres on").split()[1]) - asked, len(size))  # lists are shared

    def test_containers_of_one_pod(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 1000, 10)], "side": [(0, 5000, 20)]})
        n.place("a", n.slot(1))
        n.place("a", n.slot(2), container="side")
        self.assertEqual(n.prestart(n.slot(2), n.slot(1)), ["", ""])
        self.has("a", n.slot(1), 1000, 10)
        self.has("a", n.slot(2), 5000, 20, container="side")

    def test_a_container_starts_again(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 1000, 10)]})
        n.place("a", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1), n.slot(1)), ["", ""])
        tenant = self.has("a", n.slot(1), 1000)["name"]
        n.stop()
        n.start()
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.assertEqual(self.has("a", n.slot(1), 1000)["name"], tenant)
        # Its promise was changed while it was down.
        n.pod("a", {"main": [(1, 2000, 10)]})
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.has("a", n.slot(1), 2000, cards=[1])
        self.assertEqual(len(n.tenants()), 1)

    def test_a_slot_goes_to_another_pod(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 1000, 10)]})
        n.place("a", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        # Kubelet has given it on; the API server has not heard of the end of the first.
        n.ask("remove team a")
        n.pod("b", {"main": [(1, 2000, 20)]})
        n.place("b", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.has("b", n.slot(1), 2000, 20, cards=[1])
        self.assertEqual(list(n.tenants()), ["b/main"])

    def test_a_successor_of_the_same_name(self):
        n = self.node
        n.start()
        n.pod("a-0", {"main": [(0, 1000, 10)]}, uid="first")
        n.place("a-0", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        first = self.has("a-0", n.slot(1), 1000)["name"]
        n.pod("a-0", {"main": [(0, 4000, 10)]}, uid="second")
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.assertNotEqual(self.has("a-0", n.slot(1), 4000)["name"], first)
        self.assertEqual(len(n.tenants()), 1)

    def test_one_that_has_ended_is_listed_still(self):
        """Kubelet before 1.34."""
        n = self.node
        n.start()
        n.pod("old", {"main": [(0, 1000, 10)]}, phase="Succeeded")
        n.place("old", n.slot(1))
        n.pod("new", {"main": [(0, 2000, 20)]})
        n.place("new", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.has("new", n.slot(1), 2000, 20)

    def test_the_end_of_one_is_not_heard_of_yet(self):
        n = self.node
        n.start()
        n.pod("old", {"main": [(0, 1000, 10)]}, phase="Running")
        n.place("old", n.slot(1))
        n.pod("new", {"main": [(0, 2000, 20)]})
        n.place("new", n.slot(1))
        n.kubelet.stdin.write(f"prestart {GPU} {n.slot(1)}\n")
        n.kubelet.stdin.flush()
        until("the agent looks again",
              lambda: len([1 for m, p, _ in n.api.log if p.endswith("/pods/old")]) >= 2)
        self.nothing()  # and does not guess
        n.status("old", phase="Failed")
        self.assertEqual(json.loads(n.kubelet.stdout.readline()), [""])
        self.has("new", n.slot(1), 2000, 20)

    def test_room_of_one_that_has_ended(self):
        """Its pod has ended, kubelet lists it still, and the extender has given its memory on."""
        n = self.node
        n.start()
        n.pod("old", {"main": [(0, 100000, 60)]})
        n.place("old", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        n.status("old", phase="Succeeded")
        n.pod("new", {"main": [(0, 90000, 60)]})
        n.place("new", n.slot(2))
        self.assertEqual(n.prestart(n.slot(2)), [""])
        self.has("new", n.slot(2), 90000, 60)
        self.assertEqual(list(n.tenants()), ["new/main"])


class Refused(Case):
    def test_without_a_promise(self):
        n = self.node
        n.start()
        n.pod("a", None)
        n.place("a", n.slot(1))
        answer, = n.prestart(n.slot(1))
        self.assertIn("team/a has no annotation sluice.io/lease", answer)
        self.assertIn("webhook and its scheduler extender", answer)
        self.nothing()

    def test_promises_that_are_none(self):
        n = self.node
        n.start()
        n.place("a", n.slot(1))
        for shares, extra, words in (
                ({"other": [(0, 1000, 10)]}, {}, "promises nothing to container main"),
                ({"main": []}, {}, "promises nothing to container main"),
                ({"main": [(0, 1000, 10)]}, {"node": "node-2"}, "promised GPUs of node node-2"),
                ({"main": [(0, 1000, 101)]}, {}, "sluice.io/lease"),
                ({"main": [(0, 0, 10)]}, {}, "needs some memory")):
            n.pod("a", shares, **extra)
            answer, = n.prestart(n.slot(1))
            self.assertIn(words, answer)
        pod = n.pod("a", {"main": [(0, 1000, 10)]})
        pod["metadata"]["annotations"]["sluice.io/lease"] = "{"
        self.assertIn("is not JSON", n.prestart(n.slot(1))[0])
        n.gpus.append("GPU-00000000-dead-0000-0000-000000000000")
        n.pod("a", {"main": [(2, 1000, 10)]})
        self.assertIn(n.gpus.pop(), n.prestart(n.slot(1))[0])
        self.nothing()
        n.pod("a", {"main": [(0, 1000, 10)]})
        self.assertEqual(n.prestart(n.slot(1)), [""])

    def test_nobody_has_it(self):
        n = self.node
        n.start()
        self.assertIn("kubelet lists no container with device", n.prestart(n.slot(1))[0])
        self.nothing()

    def test_kubelet_does_not_say(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 1000, 10)]})
        n.place("a", n.slot(1))
        n.ask("podres off")
        self.assertIn("cannot find the pod that has device", n.prestart(n.slot(1))[0])
        n.ask("podres " + n.path("podres.sock"))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        n.pod("b", {"main": [(0, 2000, 10)]})
        n.place("b", n.slot(2))
        n.ask("podres silent")
        self.assertIn("cannot find the pod that has device", n.prestart(n.slot(2))[0])
        n.ask("podres on")
        self.assertEqual(n.prestart(n.slot(2), n.slot(1)), ["", ""])
        self.has("a", n.slot(1), 1000)
        self.has("b", n.slot(2), 2000)

    def test_the_api_server_does_not_say(self):
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 1000, 10)]})
        n.place("a", n.slot(1))
        n.api.down = True
        self.assertIn("cannot read pod team/a", n.prestart(n.slot(1))[0])
        n.api.down = False
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.has("a", n.slot(1), 1000)


    def test_what_the_namespace_may_not_ask_for(self):
        """World.config: priority high for namespace team, up to 80 % of an idle GPU for all."""
        n = self.node
        n.start()
        n.pod("a", {"main": [(0, 1000, 10)]}, space="other", priority="high")
        n.place("a", n.slot(1), space="other")
        got, = n.prestart(n.slot(1))
        self.assertIn("priority high", got)
        self.assertIn("namespace other may have normal at most", got)
        n.pod("b", {"main": [(0, 1000, 10)]}, coresLimit=81)
        n.place("b", n.slot(2))
        got, = n.prestart(n.slot(2))
        self.assertIn("up to 81 %", got)
        self.assertIn("80 % at most", got)
        n.pod("c", {"main": [(0, 1000, 90)]}, space="other", priority="low")
        n.place("c", n.slot(3), space="other")
        self.assertEqual(n.prestart(n.slot(3)), [""])  # a share may be larger than what is burst to
        self.assertEqual(list(n.tenants()), ["c/main"])


class Annotations(Case):
    strategy = "cdi-annotations"

    def test_the_slot_as_an_annotation(self):
        n = self.node
        n.start()
        got = json.loads(n.ask(f"allocate {GPU} {n.slot(4)}"))
        self.assertEqual(list(got["annotations"].values()), ["k8s.gpu.sluice.io/slot=" + n.slot(4)])
        self.assertRegex(list(got["annotations"])[0], r"^cdi\.k8s\.io/sluice-slot_[0-9a-f]{16}$")
        self.assertEqual(got["cdi"] + got["mounts"] + list(got["envs"]), [])


class Init(Case):
    def test_init_containers_have_their_turn(self):
        """Kubelet gives an init container's devices on to a container, and lists the latter alone."""
        n = self.node
        n.start()
        n.pod("a", {"fetch": [(0, 4000, 10)], "main": [(1, 1000, 20)]}, inits=["wait", "fetch"])
        n.place("a", n.slot(1))
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.has("a", n.slot(1), 4000, 10, container="fetch")
        n.status("a", initContainerStatuses=[
            {"name": "wait", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
            {"name": "fetch", "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}])
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.has("a", n.slot(1), 4000, 10, container="fetch")
        n.status("a", initContainerStatuses=[
            {"name": "fetch", "restartCount": 1, "state": {"running": {}}}])
        n.kubelet.stdin.write(f"prestart {GPU} {n.slot(1)}\n")  # the API server is behind
        n.kubelet.stdin.flush()
        seen = len(n.api.log)
        until("the agent looks again", lambda: len(n.api.log) >= seen + 2)
        n.status("a", initContainerStatuses=[
            {"name": "fetch", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}}])
        self.assertEqual(json.loads(n.kubelet.stdout.readline()), [""])
        self.has("a", n.slot(1), 1000, 20)
        self.assertEqual(list(n.tenants()), ["a/main"])

    def test_a_sidecar_takes_a_slot_over(self):
        """Kubelet lists the slot for the sidecar alone, from the beginning."""
        n = self.node
        n.start()
        n.pod("a", {"fetch": [(0, 4000, 10)], "log": [(0, 500, 5)], "main": [(1, 1000, 20)]}, inits=["fetch", "log"])
        n.api.objects[n.pod_path("a")]["spec"]["initContainers"][1]["restartPolicy"] = "Always"
        n.place("a", n.slot(1), container="log")
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.has("a", n.slot(1), 4000, 10, container="fetch")
        n.status("a", initContainerStatuses=[{"name": "fetch", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}])
        self.assertEqual(n.prestart(n.slot(1)), [""])
        self.has("a", n.slot(1), 500, 5, container="log")
        self.assertEqual(list(n.tenants()), ["a/log"])

    def test_an_init_container_keeps_what_is_not_listed(self):
        n = self.node
        n.start()
        n.pod("a", {"fetch": [(0, 4000, 10), (1, 4000, 10)], "main": [(1, 1000, 20)]}, inits=["fetch"])
        n.place("a", n.slot(5))  # of slots 1 and 5, which fetch has, main gets one
        self.assertEqual(n.prestart(f"{n.slot(1)},{n.slot(5)}"), [""])
        self.has("a", n.slot(1), [4000, 4000], 10, container="fetch")
        n.stop()
        n.start()
        before = int(n.ask("podres on").split()[1])
        until("a sweep", lambda: int(n.ask("podres on").split()[1]) > before)
        self.has("a", n.slot(1), [4000, 4000], 10, container="fetch")
        n.gone("a")
        until("all are gone", lambda: not n.tenants() and not n.specs())


class Release(Case):
    def start_two(self):
        n = self.node
        n.start()
        for i, name in enumerate("ab"):
            n.pod(name, {"main": [(i, 1000 + i, 10)]}, phase="Running")
            n.place(name, n.slot(i))
        self.assertEqual(n.prestart(n.slot(0), n.slot(1)), ["", ""])

    def test_when_the_pod_is_gone(self):
        n = self.node
        self.start_two()
        n.gone("a")
        until("a's tenant is removed", lambda: list(n.tenants()) == ["b/main"])
        until("a's spec is removed", lambda: list(n.specs()) == [n.slot(1)])
        self.has("b", n.slot(1), 1001)

    def test_not_when_kubelet_has_just_started(self):
        n = self.node
        self.start_two()
        n.ask("podres blank")
        n.pod("c", {"main": [(0, 5000, 10)]})
        for _ in range(3):  # each asks for the list, which has nothing
            self.assertIn("kubelet lists no container", n.prestart(n.slot(2))[0])
        seen = len([1 for m, p, _ in n.api.log if p.endswith("/pods/a")])
        until("the API server is asked, again",
              lambda: len([1 for m, p, _ in n.api.log if p.endswith("/pods/a")]) > seen + 1)
        self.assertEqual(sorted(n.tenants()), ["a/main", "b/main"])
        n.ask("podres on")
        n.gone("b")
        until("b's tenant is removed", lambda: list(n.tenants()) == ["a/main"])

    def test_not_while_the_api_server_is_away(self):
        n = self.node
        self.start_two()
        n.api.down = True
        n.gone("a")
        seen = len(n.api.log)
        n.prestart(n.slot(5))  # a list
        until("it is asked", lambda: [1 for m, p, _ in n.api.log[seen:] if p.endswith("/pods/a")])
        self.assertEqual(sorted(n.tenants()), ["a/main", "b/main"])
        n.api.down = False
        until("a's tenant is removed", lambda: list(n.tenants()) == ["b/main"])

    def test_what_went_while_the_agent_was_away(self):
        n = self.node
        self.start_two()
        n.stop(signal.SIGKILL)
        n.gone("a")
        n.start()
        until("a's tenant is removed", lambda: list(n.tenants()) == ["b/main"])
        self.has("b", n.slot(1), 1001)
        self.assertEqual(list(n.specs()), [n.slot(1)])

    def test_claims_of_a_driver_that_left(self):
        """From claims to slots without draining: a claim's tenant goes with its pod, though nobody unprepares it."""
        n = self.node
        self.start_two()
        folder = n.path("dra")
        for name in ("registry", "state", "plugin"):
            os.makedirs(os.path.join(folder, name))
        driver = subprocess.Popen([DRA_WORLD, "node", folder, n.path("root"), n.api.url, n.arb, n.cdi], env=n.env,
                                  stdout=subprocess.PIPE, text=True)
        try:
            until("the driver is ready", lambda: "READY" in driver.stdout.readline())
            for i, pod in enumerate(("kept", "lost", "again")):
                uid = f"0c6a9f4e-0000-4000-8000-00000000000{i}"
                n.api.put(f"{CLAIMS}{pod}-gpu", claim(f"{pod}-gpu", uid, [share(share_id=f"s{i}", memory="10Gi", cores="10")],
                                                      pod=pod))
                said = subprocess.run([DRA_WORLD, "kubelet", f"{folder}/plugin/dra.sock", "prepare", "v1",
                                       f"default/{pod}-gpu/{uid}"], capture_output=True, text=True, env=n.env, check=True)
                self.assertEqual(json.loads(said.stdout)[uid]["error"], "")
        finally:
            driver.kill()
            driver.wait()
            driver.stdout.close()

        def pod(name, claim_name):
            n.api.put(f"/api/v1/namespaces/default/pods/{name}", {
                "metadata": {"name": name, "uid": "u"}, "status": {"phase": "Running", "resourceClaimStatuses": [
                    {"name": "gpu", "resourceClaimName": claim_name}]}})

        def claims():
            return sorted(t["about"]["claim"] for t in n.tenants().values() if "claim" in t["about"])
        for name in ("kept", "lost"):
            pod(name, f"{name}-gpu")
        pod("again", "another")  # of the same name, a successor
        self.assertEqual(claims(), ["again-gpu", "kept-gpu", "lost-gpu"])
        n.stop(signal.SIGKILL)
        n.start()
        until("the tenant of a pod that has a successor is removed", lambda: claims() == ["kept-gpu", "lost-gpu"])
        n.api.delete("/api/v1/namespaces/default/pods/lost")
        until("the tenant of a pod that is gone is removed", lambda: claims() == ["kept-gpu"])
        until("with their specs", lambda: len(glob.glob(n.cdi + "/*claim*")) == 1)
        self.assertEqual(sorted(n.tenants()), ["a/main", "b/main", "kept/"])

    def test_forgotten_by_hand(self):
        """sluice forget: for a pod whose end nobody can tell."""
        n = self.node
        self.start_two()
        n.stop(signal.SIGKILL)
        name = n.tenants()["a/main"]["name"]
        done = subprocess.run([SLUICE, "forget", name, "--dir", n.arb], capture_output=True, text=True, env=n.env, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"{name}: forgotten; 1000 MiB of GPU memory were promised to pod team/a\n")
        self.assertEqual(list(n.tenants()), ["b/main"])
        again = subprocess.run([SLUICE, "forget", name, "--dir", n.arb], capture_output=True, text=True, env=n.env, check=False)
        self.assertEqual(again.returncode, 1)
        self.assertIn(name, again.stderr)
        n.start()  # the container starts again, and has what it was promised
        self.assertEqual(n.prestart(n.slot(0)), [""])
        self.has("a", n.slot(0), 1000)

    def test_specs_of_tenants_that_are_not_there(self):
        n = self.node
        self.start_two()
        n.stop()  # with the arbiter, and then its memory: a reboot
        shutil.rmtree(n.arb)
        os.mkdir(n.arb, 0o700)
        n.start()
        until("they are removed", lambda: not n.specs())
        self.assertEqual(n.prestart(n.slot(0), n.slot(1)), ["", ""])
        self.has("a", n.slot(0), 1000)
        self.has("b", n.slot(1), 1001)


class Register(Case):
    def gpus(self):
        notes = self.node.api.objects[NODE]["metadata"].get("annotations", {})
        return json.loads(notes.get("sluice.io/gpus", "[]"))

    def test_the_node_says_what_it_has(self):
        n = self.node
        n.start()
        ours = until("the annotation", self.gpus)
        self.assertEqual([g["uuid"] for g in ours], n.gpus)
        for g in ours:
            self.assertGreater(g["memoryMiB"], 100000)
            self.assertEqual((g["cores"], g["healthy"]), (100, True))
            self.assertIn("H200", g["model"])
        hami = json.loads(n.api.objects[NODE]["metadata"]["annotations"]["hami.io/node-nvidia-register"])
        self.assertEqual([(g["id"], g["count"], g["devmem"], g["health"]) for g in hami],
                         [(g["uuid"], SLOTS, g["memoryMiB"], True) for g in ours])
        self.assertTrue(all(g["type"].startswith("NVIDIA") for g in hami))
        subprocess.run([CTL, "xid", "1", "48"], check=True, env=n.sim)
        until("its health", lambda: [g["healthy"] for g in self.gpus()] == [True, False])
        patches = len(n.api.patches)
        time.sleep(0.5)
        self.assertEqual(len(n.api.patches), patches)  # nothing to say, nothing said
        with open(n.path("config.yaml"), "w", encoding="ascii") as f:
            f.write("version: v1\n")
        n.agent.send_signal(signal.SIGHUP)
        until("no fractions any more", lambda: not self.gpus())
        self.assertNotIn("hami.io/node-nvidia-register",
                         n.api.objects[NODE]["metadata"]["annotations"])

    def test_ours_are_taken_back_after_a_restart(self):
        n = self.node
        n.start()
        until("the annotation", self.gpus)
        n.stop()
        with open(n.path("config.yaml"), "w", encoding="ascii") as f:
            f.write("version: v1\n")
        n.start(wait=False)
        until("both are gone", lambda: not n.api.objects[NODE]["metadata"]["annotations"].keys() &
              {"sluice.io/gpus", "hami.io/node-nvidia-register"})

    def test_without_fractions_others_are_left_alone(self):
        n = self.node
        node = n.api.objects[NODE]
        node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "theirs"}
        with open(n.path("config.yaml"), "w", encoding="ascii") as f:
            f.write("version: v1\n")
        n.start(wait=False)
        self.assertTrue(n.ask(f"wait {GPU} 2 2 20").startswith("ok"))
        self.assertEqual(n.ask(f"options {GPU}"), "0")
        until("labels", lambda: n.api.objects[NODE]["metadata"].get("labels"))
        self.assertEqual(n.api.objects[NODE]["metadata"]["annotations"]["hami.io/node-nvidia-register"],
                         "theirs")
        # Switched on live: kubelet is told that it is to ask, and there is an arbiter.
        with open(n.path("config.yaml"), "w", encoding="ascii") as f:
            f.write(f"version: v1\nsharing: {{fractional: {{enabled: true, slots: {SLOTS}}}}}\n")
        n.agent.send_signal(signal.SIGHUP)
        n.registered()
        until("registered anew", lambda: n.ask(f"options {GPU}") == "1")
        n.pod("a", {"main": [(0, 1000, 10)]})
        n.place("a", n.slot(1))
        until("it starts", lambda: n.prestart(n.slot(1)) == [""])
        self.has("a", n.slot(1), 1000)


class Kill(Case):
    """SIGKILL at every step, then the same questions again."""
    spec = "h200"

    def test_when_starting(self):
        n = self.node
        n.pod("a", {"main": [(0, 1000, 10)]})
        n.pod("b", {"main": [(0, 2000, 20)]})
        n.place("a", n.slot(1))
        for point in ("fraction.listed", "fraction.promise", "fraction.lease", "fraction.leased",
                      "cdi.slot.made", "cdi.slot.written", "fraction.ready"):
            with self.subTest(point):
                n.start(fault=point)
                self.assertNotEqual(n.prestart(n.slot(1)), [""])
                n.died()
                n.start()
                self.assertEqual(n.prestart(n.slot(1)), [""])
                self.has("a", n.slot(1), 1000, 10)
                self.assertEqual(len(n.tenants()), 1)
                # Another has the slot by the time it is back.
                n.stop(signal.SIGKILL)
                n.start(fault=point)
                n.ask("remove team a")
                n.place("b", n.slot(1))
                self.assertNotEqual(n.prestart(n.slot(1)), [""])
                n.died()
                n.start()
                self.assertEqual(n.prestart(n.slot(1)), [""])
                self.has("b", n.slot(1), 2000, 20)
                self.assertEqual(len(n.tenants()), 1)
                n.stop()
                n.ask("remove team b")
                n.place("a", n.slot(1))

    def test_anywhere(self):
        """Agent and arbiter die where chance has it while pods come and go on the same few slots."""
        n = self.node
        rng = random.Random(8)
        pods = {}  # slot → (name, MiB)
        count = 0
        answers = []
        for turn in range(16):
            n.start(fault=f"random:{turn + 1}:60", wait=False)
            for _ in range(3):
                for slot in rng.sample(range(5), 3):
                    if slot in pods:
                        n.gone(pods.pop(slot)[0])
                    count += 1
                    pods[slot] = (f"p{count}", 1000 + count)
                    n.pod(pods[slot][0], {"main": [(0, pods[slot][1], 5)]})
                    n.place(pods[slot][0], n.slot(slot))
                if n.agent.poll() is None and n.ask(f"wait {GPU} {SLOTS} {SLOTS} 0.5").startswith("ok"):
                    answers += n.prestart(*[n.slot(s) for s in pods])
            n.stop(signal.SIGKILL)
        self.assertIn("", answers)
        self.assertIn("the peer closed the connection", answers)  # it did die by itself
        n.start()
        until("they start", lambda: n.prestart(*[n.slot(s) for s in pods]) == [""] * len(pods))
        for slot, (name, mib) in pods.items():
            self.has(name, n.slot(slot), mib, 5)
        until("no other is left", lambda: len(n.tenants()) == len(n.specs()) == len(pods))
        for name, _ in pods.values():
            n.gone(name)
        until("all are gone", lambda: not n.tenants() and not n.specs())

    def test_when_removing(self):
        n = self.node
        for point in ("fraction.unspecified", "cdi.slot.removed", "fraction.removed"):
            with self.subTest(point):
                n.pod("a", {"main": [(0, 1000, 10)]})
                n.pod("b", {"main": [(0, 2000, 20)]})
                n.place("a", n.slot(1))
                n.place("b", n.slot(2))
                n.start(fault=point)
                self.assertEqual(n.prestart(n.slot(1), n.slot(2)), ["", ""])
                n.gone("a")
                n.prestart(n.slot(5))  # a list
                n.died()
                n.start()
                until("a's tenant is removed", lambda: list(n.tenants()) == ["b/main"])
                until("and its spec", lambda: list(n.specs()) == [n.slot(2)])
                self.has("b", n.slot(2), 2000, 20)
                n.gone("b")
                n.prestart(n.slot(5))
                until("all are gone", lambda: not n.tenants() and not n.specs())
                n.stop()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
