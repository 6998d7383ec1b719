# SPDX-License-Identifier: Apache-2.0
"""A whole sluiced that serves virtual machines by resource claims, on a made sysfs that changes while it runs."""
import json
import os
import pathlib
import signal
import subprocess

from sluiced_node import BUILD, GPU, Case, main, until
from dra_api import GROUP, claim, device, share  # noqa: E402  sluiced_node names its folder
from machine import Machine  # noqa: E402

H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S_8Q = "nvidia.com/NVIDIA_L40S-8Q"
ON = "version: v1\nvm: {enabled: true}\n"
PCI = "resource.kubernetes.io/pciBusID"
UUID = "aa618089-8b16-4d01-a136-25a0f3c73"
CLAIMS = GROUP + "/namespaces/default/resourceclaims/"
PLACE = "/var/run/kubernetes.io/dra-device-attributes"


def uid(n):
    return f"00000000-0000-4000-8000-{n:012d}"


def name_of(address):
    return "vm-" + address.replace(":", "-").replace(".", "-")


class Claims(Case):
    def machine(self, spec="h200x2", config=ON, podres=True):
        node = self.node(spec, api=True)
        node.config(config)
        machine = Machine(f"{node.folder}/machine")
        for folder in ("plugin", "registry"):
            os.mkdir(f"{node.folder}/{folder}")
        node.options += [f"--vm-root={machine.root}", "--dra", f"--kubelet-plugin-dir={node.folder}/plugin",
                         f"--kubelet-registry-dir={node.folder}/registry"]
        if podres:
            node.kubelet.ask(f"podres {node.folder}/podres.sock")
        return node, machine

    def devices(self, node):
        """All devices of the newest generation, by name; None while it is not whole."""
        slices = node.api.slices()
        if len({s["spec"]["pool"]["generation"] for s in slices}) != 1:
            return None
        if len(slices) != slices[0]["spec"]["pool"]["resourceSliceCount"]:
            return None
        return {d["name"]: d for s in slices for d in s["spec"].get("devices", [])}

    def vm(self, node):
        return sorted(n for n in self.devices(node) or {} if n.startswith("vm-"))

    def wait_vm(self, node, *addresses):
        want = sorted(map(name_of, addresses))
        until(f"{want} in the slices, not {self.vm(node)}", lambda: self.devices(node) is not None and self.vm(node) == want)

    def attributes(self, node, address):
        return {k: next(iter(v.values())) for k, v in self.devices(node)[name_of(address)]["attributes"].items()}

    def call(self, node, verb, n):
        done = subprocess.run([f"{BUILD}/tests/agent/dra_world", "kubelet", f"{node.folder}/plugin/dra.sock", verb, "v1",
                               f"default/claim-{n}/{uid(n)}"], capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)[uid(n)]

    def prepare(self, node, n, *results, **more):
        node.api.put(CLAIMS + f"claim-{n}", claim(f"claim-{n}", uid(n), list(results), **more))
        return self.call(node, "prepare", n)

    def spec(self, node, n):
        """The claim's CDI spec: device name → edits."""
        for path in pathlib.Path(f"{node.folder}/cdi").glob("*.json"):
            if uid(n) in path.name:
                spec = json.loads(path.read_text(encoding="utf-8"))
                return {d["name"]: d["containerEdits"] for d in spec["devices"]}, spec.get("containerEdits", {})
        return None, None

    def status(self, node, n):
        """The last Ready condition that was written."""
        for path, body in reversed(node.api.patches):
            if path == CLAIMS + f"claim-{n}/status":
                return [c for c in body["status"]["devices"][0]["conditions"] if c["type"] == "Ready"][0]
        return None

    def card(self, agent):
        """The PCI address of the first simulated card."""
        for line in agent.get("/metrics")[1].splitlines():
            if line.startswith("sluice_gpu_info{") and 'index="0"' in line:
                return line.split('pci_bus_id="')[1].split('"')[0].lower()[-12:]
        raise AssertionError("no card")


class VmClaims(Claims):
    def test_every_kind(self):
        node, machine = self.machine()
        agent = node.agent()
        until("cards", lambda: "gpu-0" in (self.devices(node) or {}))
        card = self.card(agent)
        machine.write("dev/iommu")
        machine.function("0000:a0:00.0", 70, "vfio-pci", bus="pci0000:a0", numa=0)
        machine.write("sys/bus/pci/devices/0000:a0:00.0/vfio-dev/vfio3/dev", "1:2\n")
        machine.function(card, 80, "nvidia")
        machine.vf(card, "0000:4e:00.4", 61, 1157, "1157  : NVIDIA L40S-8Q\n")
        machine.function("0000:b0:00.0", 81, "nvidia", numa=-1)
        machine.mdev("0000:b0:00.0", UUID + "001", 90, "NVIDIA A40-8Q")
        self.wait_vm(node, "0000:a0:00.0", "0000:4e:00.4", UUID + "001")
        self.assertEqual(self.attributes(node, "0000:a0:00.0"), {
            "type": "vm", "kind": "passthrough", "resourceName": H200, "productName": "GH100 [H200 SXM 141GB]",
            "pciDevice": "10de:2335", "card": "0000:a0:00.0", "iommuGroup": 70, "numaNode": 0,
            "resource.kubernetes.io/numaNode": 0, "resource.kubernetes.io/pcieRoot": "pci0000:a0", PCI: "0000:a0:00.0"})
        vgpu = self.attributes(node, "0000:4e:00.4")
        self.assertEqual([vgpu[k] for k in ("kind", "vgpuType", "card", PCI, "iommuGroup")],
                         ["vgpu-vf", "NVIDIA L40S-8Q", card, "0000:4e:00.4", 61])
        mediated = self.attributes(node, UUID + "001")
        self.assertEqual([mediated[k] for k in ("kind", "vgpuType", "mdevUUID")],
                         ["vgpu-mdev", "NVIDIA A40-8Q", UUID + "001"])
        self.assertNotIn(PCI, mediated)  # it would be the card's, which many share
        self.assertNotIn("numaNode", mediated)
        # No device plugin has them.
        self.assertEqual([node.counts(r) for r in (H200, L40S_8Q, "nvidia.com/NVIDIA_A40-8Q")], [[0, 0, 0]] * 3)
        self.assertEqual(agent.metric('sluice_vm_device_held{resource="%s"' % H200), 0)

        got = self.prepare(node, 1, device("gpu", name_of("0000:a0:00.0")))
        self.assertEqual(got["error"], "")
        edits, common = self.spec(node, 1)
        self.assertEqual(common, {})  # a virtual machine needs nothing of the driver
        (only,) = edits.values()
        self.assertEqual(only["env"], ["PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB=0000:a0:00.0"])
        self.assertEqual([d["path"] for d in only["deviceNodes"]],
                         ["/dev/vfio/vfio", "/dev/vfio/70", "/dev/vfio/devices/vfio3", "/dev/iommu"])
        (mount,) = only["mounts"]
        self.assertEqual(mount["containerPath"], f"{PLACE}/resourceclaims/claim-1/gpu/gpu.sluice.io-metadata.json")
        said = json.loads(pathlib.Path(mount["hostPath"]).read_text(encoding="utf-8"))
        self.assertEqual([said["apiVersion"], said["kind"]], ["metadata.resource.k8s.io/v1alpha1", "DeviceMetadata"])
        self.assertNotIn("podClaimName", said)
        self.assertEqual(said["requests"], [{"name": "gpu", "devices": [{
            "driver": "gpu.sluice.io", "pool": "node-1", "name": name_of("0000:a0:00.0"),
            "attributes": self.devices(node)[name_of("0000:a0:00.0")]["attributes"]}]}])
        self.assertEqual(os.stat(mount["hostPath"]).st_mode & 0o777, 0o644)  # virt-launcher is not root
        self.assertEqual(agent.metric('sluice_vm_device_held{resource="%s"' % H200), 1)

        # From a template, of a subrequest, with two devices of one resource.
        machine.function("0000:a1:00.0", 71, "vfio-pci")
        machine.function("0000:a2:00.0", 72, "vfio-pci")
        self.wait_vm(node, "0000:a0:00.0", "0000:a1:00.0", "0000:a2:00.0", "0000:4e:00.4", UUID + "001")
        got = self.prepare(node, 2, *(device("gpu/any", name_of(a)) for a in ("0000:a1:00.0", "0000:a2:00.0")),
                           device("v", name_of(UUID + "001")),
                           annotations={"resource.kubernetes.io/pod-claim-name": "cards"})
        self.assertEqual(got["error"], "")
        edits, _ = self.spec(node, 2)
        both = "PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB=0000:a1:00.0,0000:a2:00.0"
        envs = {n.removeprefix(uid(2) + "-"): e["env"] for n, e in edits.items()}
        self.assertEqual(envs, {f"gpu-{name_of('0000:a1:00.0')}": [both], f"gpu-{name_of('0000:a2:00.0')}": [both],
                                f"v-{name_of(UUID + '001')}": [f"MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-8Q={UUID}001"]})
        mounts = [m for e in edits.values() for m in e.get("mounts", [])]
        self.assertEqual([m["containerPath"] for m in mounts],
                         [f"{PLACE}/resourceclaimtemplates/cards/{r}/gpu.sluice.io-metadata.json" for r in ("gpu", "v")])
        said = json.loads(pathlib.Path(mounts[0]["hostPath"]).read_text(encoding="utf-8"))
        self.assertEqual([said["podClaimName"], said["requests"][0]["name"], len(said["requests"][0]["devices"])],
                         ["cards", "gpu/any", 2])
        # What one claim has, no other gets, whatever the scheduler says.
        self.assertIn("is not free", self.prepare(node, 3, device("gpu", name_of("0000:a1:00.0")))["error"])

        for n in (1, 2):
            self.assertEqual(self.call(node, "unprepare", n)["error"], "")
            self.assertEqual(self.spec(node, n), (None, None))
        self.assertEqual(os.listdir(f"{node.folder}/state/claim-metadata"), [])
        self.assertEqual(self.prepare(node, 4, device("gpu", name_of("0000:a1:00.0")))["error"], "")

    def test_card_changes_sides(self):
        """In no generation of the slices is a card for containers and for virtual machines."""
        node, machine = self.machine()
        seen = []
        put = node.api.put

        def record(path, obj, event=None):
            if "/resourceslices/" in path:
                seen.append(json.loads(json.dumps(obj["spec"])))
            return put(path, obj, event)

        node.api.put = record
        agent = node.agent()
        until("cards", lambda: "gpu-0" in (self.devices(node) or {}))
        card = self.card(agent)
        machine.function(card, 80, "nvidia")
        for _ in range(2):
            machine.bind(card, "vfio-pci")
            self.wait_vm(node, card)
            self.assertFalse([n for n in self.devices(node) if n == "gpu-0" or n.startswith("gpu-0-")])
            self.assertIn("gpu-1", self.devices(node))
            self.assertIn("virtual machines have GPU 0", self.prepare(node, 1, device("gpu", "gpu-0"))["error"])
            self.assertIn("virtual machines have GPU 0", self.prepare(node, 2, share())["error"])
            self.assertEqual(self.prepare(node, 3, device("gpu", name_of(card)))["error"], "")
            self.assertEqual(self.call(node, "unprepare", 3)["error"], "")
            machine.bind(card, "nvidia")
            self.wait_vm(node)
            self.assertIn("gpu-0", self.devices(node))
            self.assertIn("not offered to virtual machines", self.prepare(node, 4, device("gpu", name_of(card)))["error"])
        generations = {}
        for spec in seen:
            names = generations.setdefault(spec["pool"]["generation"], set())
            names |= {d["name"] for d in spec.get("devices", [])}
        self.assertFalse([g for g, names in generations.items() if "gpu-0" in names and name_of(card) in names])
        # A container's claim on the card, and vGPUs that another program makes meanwhile.
        self.assertEqual(self.prepare(node, 5, device("gpu", "gpu-0"))["error"], "")
        machine.vf(card, "0000:4e:00.4", 61, 1157, "1157  : NVIDIA L40S-8Q\n")
        self.wait_vm(node, "0000:4e:00.4")
        self.assertIn("is not free", self.prepare(node, 6, device("gpu", name_of("0000:4e:00.4")))["error"])
        self.assertEqual(self.call(node, "unprepare", 5)["error"], "")
        self.assertEqual(self.call(node, "prepare", 6)["error"], "")

    def test_one_way_only(self):
        """The way changes while a pod has a device: nobody gets the device by the new way before that pod has ended."""
        node, machine = self.machine(config=ON.replace("true", "true, by: plugins"))
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        machine.function("0000:a1:00.0", 71, "vfio-pci")
        agent = node.agent()
        node.wait(2, resource=H200)
        until("cards", lambda: "gpu-0" in (self.devices(node) or {}))
        self.assertEqual(self.vm(node), [])
        self.assertIn("not offered to virtual machines", self.prepare(node, 1, device("gpu", name_of("0000:a0:00.0")))["error"])
        self.assertTrue(node.allocate("0000:a0:00.0", resource=H200)["envs"])
        node.kubelet.ask(f"place default vm compute {H200} 0000:a0:00.0")
        node.config(ON)  # with --dra: by claims
        node.wait(0, resource=H200)
        self.wait_vm(node, "0000:a1:00.0")
        agent.said("a pod has 0000:a0:00.0 by a device plugin")
        node.kubelet.ask("remove default vm")
        self.wait_vm(node, "0000:a0:00.0", "0000:a1:00.0")
        self.assertEqual(self.prepare(node, 2, device("gpu", name_of("0000:a1:00.0")))["error"], "")
        node.config(ON.replace("true", "true, by: plugins"))
        node.wait(2, 1, resource=H200)
        self.assertEqual(node.ids(H200), ["0000:a0:00.0"])
        agent.said("a claim has 0000:a1:00.0")
        until("no slices", lambda: self.vm(node) == [])
        self.assertEqual(self.call(node, "unprepare", 2)["error"], "")  # also by the way that is off
        node.wait(2, resource=H200)

    def test_without_kubelets_word(self):
        """A device that a plugin of an earlier agent may have given away is not offered by claims."""
        node, machine = self.machine(podres=False)
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        agent = node.agent()
        agent.said("no device for virtual machines is offered by claims until it does")
        self.assertEqual(self.vm(node), [])
        node.kubelet.ask(f"podres {node.folder}/podres.sock")
        self.wait_vm(node, "0000:a0:00.0")

    def test_no_driver(self):
        """Every card is with virtual machines: claims need no driver for containers."""
        node, machine = self.machine(spec=None)
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        agent = node.agent()
        self.wait_vm(node, "0000:a0:00.0")
        self.assertEqual(list(self.devices(node)), [name_of("0000:a0:00.0")])
        self.assertEqual(self.prepare(node, 1, device("gpu", name_of("0000:a0:00.0")))["error"], "")
        self.assertIn("still reading", self.prepare(node, 2, device("gpu", "gpu-0"))["error"])
        until("ready", lambda: agent.get("/readyz")[0] == 200)
        agent.kill()
        os.remove(next(pathlib.Path(f"{node.folder}/cdi").glob(f"*{uid(1)}*")))  # as after a restart of the machine
        agent = node.agent(name="next")
        until("the spec is there again", lambda: self.spec(node, 1)[0])
        self.assertEqual(self.call(node, "prepare", 1)["error"], "")
        self.assertEqual(self.call(node, "unprepare", 1)["error"], "")
        self.assertEqual(agent.kill(signal.SIGTERM), 0)

    def test_no_claims_without_dra(self):
        node, machine = self.machine(config=ON.replace("true", "true, by: claims"))
        node.options.remove("--dra")
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        agent = node.agent()
        agent.said("vm.by is claims, but this agent serves no claims")
        node.wait(2, resource=GPU)
        self.assertEqual(node.counts(H200), [0, 0, 0])
        node.config(ON)
        node.wait(1, resource=H200)


class VmClaimDays(Claims):
    """Bad days."""

    def test_vanishes_while_held(self):
        node, machine = self.machine()
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        agent = node.agent()
        self.wait_vm(node, "0000:a0:00.0")
        self.assertEqual(self.prepare(node, 1, device("gpu", name_of("0000:a0:00.0")))["error"], "")
        until("a status", lambda: (self.status(node, 1) or {}).get("status") == "True")
        os.remove(machine.root / "dev/vfio/70")
        until("a taint", lambda: (self.devices(node) or {}).get(name_of("0000:a0:00.0"), {}).get("taints"))
        self.assertEqual(self.devices(node)[name_of("0000:a0:00.0")]["taints"][0]["effect"], "NoSchedule")
        until("the owner is told", lambda: self.status(node, 1)["status"] == "False")
        self.assertIn("/dev/vfio/70", self.status(node, 1)["message"])
        self.assertIn("/dev/vfio/70", self.prepare(node, 2, device("gpu", name_of("0000:a0:00.0")))["error"])
        machine.write("dev/vfio/70")
        until("it is well again", lambda: self.status(node, 1)["status"] == "True")
        machine.remove("0000:a0:00.0")
        self.wait_vm(node)
        until("the owner is told", lambda: self.status(node, 1)["status"] == "False")
        self.assertIn("no longer there", self.status(node, 1)["message"])
        self.assertEqual(self.call(node, "unprepare", 1)["error"], "")
        self.assertEqual(self.spec(node, 1), (None, None))
        self.assertEqual(agent.get("/healthz")[0], 200)

    def test_sysfs_blocks_from_the_beginning(self):
        """Until sysfs was read, no slices are written and no card is prepared: it may be one that has vGPUs."""
        node, machine = self.machine()
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        vendor = machine.pci / "0000:a0:00.0/vendor"
        os.remove(vendor)
        os.mkfifo(vendor)
        agent = node.agent()
        agent.said("sysfs has not answered")
        self.assertEqual(node.api.slices(), [])
        self.assertIn("still reading", self.prepare(node, 1, device("gpu", "gpu-0"))["error"])
        with open(vendor, "wb") as pipe:
            os.remove(vendor)
            vendor.write_text("0x10de\n", encoding="ascii")
            pipe.write(b"0x10de\n")
        self.wait_vm(node, "0000:a0:00.0")
        self.assertEqual(self.call(node, "prepare", 1)["error"], "")

    def test_many(self):
        """64 vGPUs on one card, in slices as the API takes them; each can be claimed."""
        node, machine = self.machine()
        machine.function("0000:b0:00.0", 81, "nvidia")
        uuids = [UUID + f"{i:03}" for i in range(64)]
        for i, uuid in enumerate(uuids):
            machine.mdev("0000:b0:00.0", uuid, 200 + i, "NVIDIA A40-1Q")
        node.agent()
        self.wait_vm(node, *uuids)
        self.assertLessEqual(max(len(s["spec"].get("devices", [])) for s in node.api.slices()), 64)
        for i, uuid in enumerate(uuids):
            self.assertEqual(self.prepare(node, i, device("gpu", name_of(uuid)))["error"], "")
        for i in range(64):
            self.assertEqual(self.call(node, "unprepare", i)["error"], "")

    def test_refused(self):
        node, machine = self.machine()
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        machine.function("0000:a1:00.0", 70, "vfio-pci")  # the same group
        agent = node.agent()
        self.wait_vm(node, "0000:a0:00.0")
        agent.said("are in one IOMMU group")
        name = name_of("0000:a0:00.0")
        self.assertIn("adminAccess", self.prepare(node, 1, {**device("gpu", name), "adminAccess": True})["error"])
        for n, bad in enumerate(("vm-", "vm-zz", "vm-0000:a0:00.0", "vm-0000-a0-00-0-")):
            self.assertIn("does not belong to this driver", self.prepare(node, 10 + n, device("gpu", bad))["error"], bad)
        self.assertIn("not offered", self.prepare(node, 2, device("gpu", name_of("0000:a1:00.0")))["error"])
        config = {"source": "FromClaim", "requests": [], "opaque": {"driver": "gpu.sluice.io", "parameters": {
            "apiVersion": "gpu.sluice.io/v1alpha1", "kind": "ShareConfig", "priority": "high"}}}
        self.assertIn("is not shared", self.prepare(node, 3, device("gpu", name), config=[config])["error"])
        os.makedirs(f"{node.folder}/state", exist_ok=True)
        pathlib.Path(f"{node.folder}/state/claim-metadata").write_text("in the way", encoding="ascii")
        self.assertIn("cannot be written", self.prepare(node, 4, device("gpu", name))["error"])
        self.assertEqual(self.spec(node, 4), (None, None))
        os.remove(f"{node.folder}/state/claim-metadata")
        self.assertEqual(self.call(node, "prepare", 4)["error"], "")

    def test_vgpu_in_a_claim_stays(self):
        """A vGPU that the configuration no longer has is removed when its claim has ended, and not before."""
        wanted = ON + "sharing: {vgpu: [{name: NVIDIA L40S-8Q, count: 2}]}\n"
        node, machine = self.machine(config=wanted)
        machine.function("0000:b0:00.0", 80, "nvidia")
        functions = ["0000:b0:00.4", "0000:b0:00.5"]
        for i, f in enumerate(functions):
            machine.vf("0000:b0:00.0", f, 61 + i, 0, "1157  : NVIDIA L40S-8Q\n")
        agent = node.agent()
        self.wait_vm(node, *functions)  # made, and offered
        self.assertEqual(self.prepare(node, 1, device("gpu", name_of(functions[0])))["error"], "")
        node.config(ON)
        agent.said("is removed when its virtual machine has ended")
        kind = machine.pci / functions[0] / "nvidia/current_vgpu_type"
        until("the free one is gone",
              lambda: (machine.pci / functions[1] / "nvidia/current_vgpu_type").read_text(encoding="ascii").strip() == "0")
        self.assertEqual(kind.read_text(encoding="ascii").strip(), "1157")
        self.assertEqual(self.vm(node), [])  # and it is not given away again
        self.assertEqual(self.call(node, "unprepare", 1)["error"], "")
        until("the held one too", lambda: kind.read_text(encoding="ascii").strip() == "0")

    def test_sysfs_blocks(self):
        """A read of sysfs that never returns: claims of what is known are prepared, and the agent answers."""
        node, machine = self.machine()
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        agent = node.agent()
        self.wait_vm(node, "0000:a0:00.0")
        vendor = machine.pci / "0000:a0:00.0/vendor"
        os.remove(vendor)
        os.mkfifo(vendor)  # to open it is to wait
        agent.said("sysfs has not answered")
        self.assertEqual(self.prepare(node, 1, device("gpu", name_of("0000:a0:00.0")))["error"], "")
        self.assertEqual(self.prepare(node, 2, device("gpu", "gpu-1"))["error"], "")
        self.assertEqual(agent.get("/healthz")[0], 200)
        with open(vendor, "wb") as pipe:
            os.remove(vendor)
            vendor.write_text("0x10de\n", encoding="ascii")
            pipe.write(b"0x10de\n")
        agent.said("sysfs answers again")


if __name__ == "__main__":
    main()
