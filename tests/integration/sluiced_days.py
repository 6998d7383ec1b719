# SPDX-License-Identifier: Apache-2.0
"""A whole sluiced on bad days: cards, drivers, kubelets and disks that fail, and agents that are killed."""
import json
import os
import pathlib
import resource
import signal
import time

from sluiced_node import Case, main, shared, until

QUICK = "health: {recoverAfter: 500ms, recoverAfterReset: 500ms}\n"
PLAIN = "version: v1\n" + QUICK


class Cards(Case):
    def test_xid(self):
        node = self.node()
        node.config(shared("timeSlicing", 2, QUICK))
        agent = node.agent()
        node.wait(4)
        sick, well = node.ids()[0], node.ids()[-1]
        node.ctl("xid", "0", "13")  # a program's own
        until("counted", lambda: agent.metric("sluice_gpu_xid_errors_total") == 1)
        self.assertEqual(node.counts()[1], 1)
        node.config(shared("timeSlicing", 2, "health: {recoverAfter: 10m}\n"))
        agent.said("new configuration")
        node.ctl("xid", "0", "63")
        node.wait(4, 2)  # every replica of that card, none of the other
        self.assertIn("unhealthy", node.allocate(sick))
        self.assertTrue(node.allocate(well)["envs"])
        node.config(shared("timeSlicing", 2, QUICK))
        node.wait(4)
        self.assertTrue(node.allocate(sick)["envs"])
        self.assertEqual(node.counts()[0], 1)

    def test_card_lost_while_a_pod_has_it(self):
        node = self.node(api=True)
        node.config(PLAIN + "flags: {plugin: {deviceListStrategy: cdi-cri}}\n")
        agent = node.agent()
        node.wait(2)
        card = node.ids()[0]
        self.assertEqual(len(node.allocate(card)["cdi"]), 1)
        node.ctl("lost", "0")
        node.wait(2, 1)  # still listed: kubelet must not forget whose it is
        self.assertNotIn(card, node.ids())
        self.assertIn("unhealthy", node.allocate(card))
        until("an event", lambda: [e for e in node.api.events() if e["reason"] == "GPUUnhealthy"])
        self.assertEqual(agent.get("/healthz")[0], 200)
        node.ctl("back", "0")
        agent.process.send_signal(signal.SIGHUP)  # a look now, not in half a minute
        node.wait(2)
        self.assertEqual(len(node.allocate(card)["cdi"]), 1)
        self.assertEqual(node.counts()[0], 1)

    def test_nvml_hangs(self):
        node = self.node()
        node.config(PLAIN)
        stuck = f"{node.folder}/stuck"
        agent = node.agent(env={"SLUICE_SIM_FAULT": f"nvmlDeviceGetPowerUsage:0=hang@{stuck}"})
        node.wait(2)
        pathlib.Path(stuck).touch()
        status, text = agent.get("/metrics")  # asks NVML, and does not wait for ever
        self.assertEqual((status, "sluice_gpu_power_watts{" in text), (200, False))
        self.assertEqual(agent.get("/healthz")[0], 200)
        self.assertTrue(node.allocate(node.ids()[0])["envs"])
        node.config(shared("timeSlicing", 3))
        node.wait(6)
        node.kubelet.ask("stop")
        node.kubelet.ask("start")
        node.wait(6)
        self.assertTrue(node.allocate(node.ids()[0])["envs"])
        os.remove(stuck)
        until("NVML answers again", lambda: agent.metric("sluice_gpu_power_watts") is not None)
        pathlib.Path(stuck).touch()
        self.assertEqual(agent.get("/metrics")[0], 200)
        self.assertEqual(agent.kill(signal.SIGTERM), 0)

    def test_no_driver(self):
        node = self.node(None)
        node.config(PLAIN)
        agent = node.agent()
        self.assertEqual(agent.process.wait(timeout=30), 1)
        self.assertIn("libnvidia-ml.so.1", agent.text())
        self.assertIn("failOnInitError", agent.text())
        agent = node.agent("--fail-on-init-error=false", name="patient")
        until("it serves", lambda: "libnvidia-ml.so.1" in agent.text())
        self.assertEqual(until("healthz", lambda: agent.get("/healthz"))[0], 200)
        self.assertEqual(agent.get("/readyz")[0], 503)
        os.rmdir(node.root)
        node.ctl("make-root", node.root, "h200x2")  # the driver comes later
        node.wait(2)
        until("ready", lambda: agent.get("/readyz")[0] == 200)
        self.assertTrue(node.allocate(node.ids()[0])["envs"])

    def test_no_gpu(self):
        node = self.node(api=True)
        node.config(PLAIN)
        os.mkdir(f"{node.folder}/dev")
        pathlib.Path(f"{node.folder}/dev/nvidiactl").touch()
        agent = node.agent(env={"SLUICE_SIM_DEV": f"{node.folder}/dev"})
        agent.said("0 GPUs")
        until("ready", lambda: agent.get("/readyz")[0] == 200)
        self.assertEqual(node.counts(), [0, 0, 0])
        self.assertEqual(agent.kill(signal.SIGTERM), 0)


class Kubelets(Case):
    def test_ten_restarts(self):
        node = self.node()
        node.config(shared("timeSlicing", 2))
        agent = node.agent()
        for _ in range(10):
            node.wait(4)
            node.kubelet.ask("stop")
            node.kubelet.ask("start")
        node.wait(4)
        self.assertTrue(node.allocate(node.ids()[0])["envs"])
        self.assertEqual(node.counts()[0], 1)  # of this kubelet: once
        self.assertEqual(agent.metric("sluice_registrations_total"), 11)

    def test_ids_that_are_none(self):
        node = self.node()
        node.config(shared("timeSlicing", 2))
        agent = node.agent()
        node.wait(4)
        first = node.ids()[0]
        for bad in ("GPU-0", first + "x", first.split("::")[0], "::", "../../etc", "é", "x" * 4000):
            self.assertIn("there is no device", node.allocate(bad))
            self.assertIn("there is no device", node.allocate(first, bad))
        self.assertIn("twice", node.allocate(first, first))
        self.assertTrue(node.allocate(first)["envs"])
        self.assertEqual(agent.metric("sluice_allocations_failed_total"), 15)
        self.assertEqual(agent.metric("sluice_allocate_duration_seconds_count"), 16)


class Agents(Case):
    def test_killed_during_allocate(self):
        node = self.node()
        node.config(shared("timeSlicing", 2, "flags: {plugin: {deviceListStrategy: cdi-cri}}\n"))
        spec = pathlib.Path(f"{node.folder}/cdi/k8s.device-plugin.nvidia.com-gpu.json")
        answers = []
        for i in range(12):
            agent = node.agent()
            until("registered", lambda n=i: node.counts()[0] == n + 1)
            node.wait(4)
            if i == 0:
                devices, text = node.ids(), spec.read_bytes()
            self.assertEqual(node.ids(), devices)
            node.kubelet.tell(f"allocate nvidia.com/gpu {devices[i % 4]}")
            time.sleep(i * 0.0001)
            agent.kill()
            answers.append(node.kubelet.answer())
        for answer in answers:  # whole, or an error; nothing else
            self.assertTrue(answer.startswith("error") or len(json.loads(answer)["cdi"]) == 1, answer)
        self.assertEqual(spec.read_bytes(), text)
        self.assertEqual(sorted(os.listdir(spec.parent)), [spec.name])
        node.agent()
        until("registered", lambda: node.counts()[0] == 13)
        node.wait(4)
        self.assertEqual(len(node.allocate(devices[0])["cdi"]), 1)

    def test_two_on_one_node(self):
        node = self.node()
        node.config(PLAIN)
        first = node.agent(name="first")
        node.wait(2)
        second = node.agent(name="second")
        first.said("has taken over")
        until("taken over", lambda: node.counts()[0] == 2)
        node.wait(2)
        self.assertTrue(node.allocate(node.ids()[0])["envs"])
        self.assertEqual(second.metric("sluice_allocations_total"), 1)
        time.sleep(1.2)  # long enough for a fight
        self.assertEqual(node.counts()[0], 2)
        self.assertEqual(first.get("/healthz")[0], 200)
        self.assertEqual([first.metric(f"sluice_resource_{m}") for m in ("contested", "registered")], [1, 0])
        self.assertEqual([second.metric(f"sluice_resource_{m}") for m in ("contested", "registered")], [0, 1])
        second.kill()
        until("the first is back", lambda: node.counts()[0] == 3)
        node.wait(2)
        self.assertTrue(node.allocate(node.ids()[0])["envs"])

    def test_api_server_away(self):
        """Pods get their devices all the same; labels and events come when somebody is there to take them."""
        node = self.node(api=True)
        node.api.down = True
        node.config(shared("timeSlicing", 2, QUICK + "flags: {gfd: {noTimestamp: true}}\n"))
        agent = node.agent()
        node.wait(4)
        self.assertTrue(node.allocate(node.ids()[0])["envs"])
        self.assertEqual(agent.get("/readyz")[0], 200)
        node.ctl("xid", "0", "63")
        agent.said("XID 63")
        until("asked for", lambda: len(node.api.log) > 2)
        self.assertEqual((node.api.labels(), node.api.events()), ({}, []))
        node.api.down = False
        until("labels", lambda: node.api.labels().get("nvidia.com/gpu.replicas") == "2")
        until("events", lambda: [e for e in node.api.events() if "XID 63" in e["message"]])
        before = len(node.api.log)
        agent.kill()
        node.agent()  # and one that finds all as it should be writes nothing
        until("looked", lambda: len(node.api.log) > before + 1)
        until("registered", lambda: node.counts()[0] == 2)
        node.wait(4)
        self.assertEqual([m for m, p, _ in node.api.log[before:] if m == "PATCH" and "/nodes/" in p], [])

    def test_disk_full(self):
        """A limit on files stands in for it: the old spec stays whole, and it is written when there is room."""
        node = self.node(api=True)
        node.config("version: v1\nflags: {migStrategy: mixed, plugin: {deviceListStrategy: cdi-cri}}\n")
        agent = node.agent()
        node.wait(2)
        spec = pathlib.Path(f"{node.folder}/cdi/k8s.device-plugin.nvidia.com-gpu.json")
        before = spec.read_bytes()
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        node.ctl("mig", "1", "1g.18gb")
        agent.process.send_signal(signal.SIGHUP)
        until("told", lambda: [e for e in node.api.events() if e["reason"] == "CDIFailed"])
        self.assertEqual(spec.read_bytes(), before)
        self.assertEqual(sorted(os.listdir(spec.parent)), [spec.name])
        self.assertEqual(len(node.allocate(node.ids()[0])["cdi"]), 1)
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        until("written", lambda: b"MIG-" in spec.read_bytes())
        json.loads(spec.read_bytes())
        until("told", lambda: [e for e in node.api.events() if e["reason"] == "CDIWritten"])


class Mps(Case):
    def test_daemons(self):
        node = self.node()
        node.config(shared("mps", 4))
        agent = node.agent()
        node.wait(8)
        share = node.ids()[0]
        card = share.split("::")[0]
        got = node.allocate(share)
        pipe = f"{node.folder}/mps/{card}/pipe"
        self.assertEqual(got["envs"]["CUDA_MPS_PIPE_DIRECTORY"], pipe)
        self.assertIn(pipe, [m["container"] for m in got["mounts"]])
        self.assertIn("maximum request size", node.allocate(*node.ids()[:2]))
        pids = sorted(node.daemons())
        self.assertEqual(len(pids), 2)
        killed = int(pathlib.Path(f"{node.folder}/mps/{card}/daemon.pid").read_text(encoding="ascii").split()[0])
        os.kill(killed, signal.SIGKILL)
        node.wait(8, 4)  # the shares of that card
        node.wait(8)
        self.assertTrue(node.allocate(share)["envs"])
        pids = sorted(node.daemons())
        agent.kill()  # tenants go on, and the next agent finds the daemons
        agent = node.agent()
        until("registered", lambda: node.counts()[0] == 2)
        node.wait(8)
        self.assertEqual(sorted(node.daemons()), pids)
        node.config("version: v1\n")
        node.wait(2)
        until("the daemons are gone", lambda: not list(node.daemons()))
        self.assertNotIn("CUDA_MPS_PIPE_DIRECTORY", node.allocate(node.ids()[0])["envs"])

    def test_larger_shares(self):
        """Without failRequestsGreaterThanOne several shares of a card are one larger share."""
        node = self.node()
        node.config(shared("mps", 4).replace("    resources", "    failRequestsGreaterThanOne: false\n    resources"))
        node.agent()
        node.wait(8)
        ids = node.ids()
        envs = [node.allocate(*ids[:n])["envs"] for n in (1, 3)]
        self.assertEqual([e["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for e in envs], ["25", "75"])
        limits = [int(e["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"][2:-1]) for e in envs]
        self.assertLessEqual(abs(limits[1] - 3 * limits[0]), 3)
        self.assertIn("shares of two GPUs", node.allocate(ids[0], ids[-1]))


if __name__ == "__main__":
    main()
