# SPDX-License-Identifier: Apache-2.0
"""A whole sluiced that serves virtual machines, on a made sysfs whose devices come, go and change their drivers."""
import os
import re
import shutil
import signal

from sluiced_node import GPU, Case, main, until
from machine import Machine  # noqa: E402  sluiced_node names its folder

H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S_8Q = "nvidia.com/NVIDIA_L40S-8Q"
ON = "version: v1\nvm: {enabled: true}\n"


class Machines(Case):
    def machine(self, spec="h200x2", config=ON, **more):
        node = self.node(spec, **more)
        node.config(config)
        machine = Machine(f"{node.folder}/machine")
        node.options.append(f"--vm-root={machine.root}")
        return node, machine

    def addresses(self, agent):
        """The PCI addresses of the simulated cards, by UUID."""
        found = {}
        for line in re.findall(r"^sluice_gpu_info\{(.*)\} 1$", agent.get("/metrics")[1], re.M):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            found[labels["gpu"]] = labels["pci_bus_id"].lower()[-12:]
        self.assertEqual(len(found), 2)
        return found

    def vgpus(self, count):
        return ON + f"sharing: {{vgpu: [{{name: NVIDIA L40S-8Q, count: {count}}}]}}\n" if count else ON

    def types(self, machine, functions):
        return [(machine.pci / f / "nvidia/current_vgpu_type").read_text(encoding="ascii").strip() for f in functions]


class Vm(Machines):
    def test_passthrough(self):
        node, machine = self.machine()
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        machine.function("0000:a1:00.0", 71, "vfio-pci")
        agent = node.agent()
        node.wait(2)
        node.wait(2, resource=H200)
        self.assertEqual(sorted(node.ids(H200)), ["0000:a0:00.0", "0000:a1:00.0"])
        got = node.allocate("0000:a1:00.0", resource=H200)
        self.assertEqual(got["envs"], {"PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB": "0000:a1:00.0"})
        self.assertEqual(got["devices"], ["/dev/vfio/vfio", "/dev/vfio/71"])
        until("ready", lambda: agent.get("/readyz")[0] == 200)
        self.assertEqual(agent.metric(f'sluice_shares_advertised{{resource="{H200}"}}'), 2)
        self.assertEqual(agent.metric(f'sluice_allocations_total{{resource="{H200}"}}'), 1)
        self.assertIn("there is no device", node.allocate("0000:a9:00.0", resource=H200))
        # Containers and virtual machines do not know of each other's devices.
        self.assertTrue(node.allocate(node.ids()[0])["envs"])
        self.assertEqual(agent.kill(signal.SIGTERM), 0)

    def test_hot_plug(self):
        node, machine = self.machine(api=True)
        agent = node.agent()
        node.wait(2)
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        node.wait(1, resource=H200)
        machine.function("0000:a1:00.0", 71, "vfio-pci")
        node.wait(2, resource=H200)
        self.assertTrue(node.allocate("0000:a0:00.0", resource=H200)["envs"])
        os.remove(machine.root / "dev/vfio/70")  # the group vanishes while a machine holds the card
        node.wait(2, 1, resource=H200)
        self.assertIn("unhealthy", node.allocate("0000:a0:00.0", resource=H200))
        until("an event", lambda: [e for e in node.api.events() if e["reason"] == "VMDeviceUnhealthy"])
        machine.write("dev/vfio/70")
        node.wait(2, resource=H200)
        machine.remove("0000:a0:00.0")
        node.wait(1, resource=H200)
        self.assertIn("there is no device", node.allocate("0000:a0:00.0", resource=H200))
        machine.remove("0000:a1:00.0")
        node.wait(0, resource=H200)
        machine.function("0000:a1:00.0", 71, "vfio-pci")
        node.wait(1, resource=H200)
        self.assertEqual(node.counts()[0], 1)  # the resource of containers was registered once
        self.assertEqual(agent.get("/healthz")[0], 200)

    def test_card_changes_sides(self):
        """Never offered by two ways: not to containers while a virtual machine may have it, and not the other way."""
        node, machine = self.machine()
        agent = node.agent()
        node.wait(2)
        cards = self.addresses(agent)
        uuid, address = sorted(cards.items())[0]
        for i, a in enumerate(sorted(cards.values())):
            machine.function(a, 80 + i, "nvidia")
        for _ in range(2):
            machine.bind(address, "vfio-pci")
            node.wait(1, resource=H200)
            node.wait(2, 1)
            self.assertNotIn(uuid, node.ids())
            self.assertIn("unhealthy", node.allocate(uuid))
            self.assertTrue(node.allocate(address, resource=H200)["envs"])
            self.assertEqual(agent.metric(f'sluice_gpu_healthy{{gpu="{uuid}"'), 0)
            machine.bind(address, "nvidia")
            node.wait(0, resource=H200)
            node.wait(2)
            self.assertTrue(node.allocate(uuid)["envs"])
            self.assertEqual(node.ids(H200), [])
        self.assertEqual(node.counts()[0], 1)

    def test_vgpu(self):
        node, machine = self.machine()
        agent = node.agent()
        node.wait(2)
        card = sorted(self.addresses(agent).items())[0]
        machine.function(card[1], 80, "nvidia")
        machine.vf(card[1], "0000:4e:00.4", 61, 1157)
        machine.vf(card[1], "0000:4e:00.5", 62, 0, "1157  : NVIDIA L40S-8Q\n")
        node.wait(1, resource=L40S_8Q)
        node.wait(2, 1)  # the card is shared by virtual machines: not for containers
        got = node.allocate("0000:4e:00.4", resource=L40S_8Q)
        self.assertEqual(got["envs"], {"PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-8Q": "0000:4e:00.4"})
        self.assertEqual(got["devices"], ["/dev/vfio/vfio", "/dev/vfio/61"])
        machine.write("sys/bus/pci/devices/0000:4e:00.5/nvidia/current_vgpu_type", "1157\n")
        machine.write("sys/bus/pci/devices/0000:4e:00.5/nvidia/creatable_vgpu_types", "ID    : vGPU Name\n")
        node.wait(2, resource=L40S_8Q)  # full: no list of types has the name now
        agent.kill()
        agent = node.agent(name="next")  # and the next agent remembers it
        until("registered", lambda: node.counts(L40S_8Q)[0] == 2)
        node.wait(2, resource=L40S_8Q)
        for vf in ("4", "5"):
            machine.write(f"sys/bus/pci/devices/0000:4e:00.{vf}/nvidia/current_vgpu_type", "0\n")
        node.wait(0, resource=L40S_8Q)
        node.wait(2)
        uuids = [f"aa618089-8b16-4d01-a136-25a0f3c73{i:03}" for i in range(64)]
        for i, uuid in enumerate(uuids):
            machine.mdev(card[1], uuid, 200 + i, "NVIDIA A40-1Q")
        node.wait(64, resource="nvidia.com/NVIDIA_A40-1Q")
        node.wait(2, 1)
        got = node.allocate(uuids[5], uuids[63], resource="nvidia.com/NVIDIA_A40-1Q")
        self.assertEqual(got["envs"], {"MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-1Q": f"{uuids[5]},{uuids[63]}"})
        self.assertEqual(got["devices"], ["/dev/vfio/vfio", "/dev/vfio/205", "/dev/vfio/263"])

    def test_config(self):
        node, machine = self.machine(config="version: v1\n")
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        agent = node.agent()
        node.wait(2)
        self.assertEqual(node.counts(H200), [0, 0, 0])  # off, unless it is asked for
        node.config(ON)
        node.wait(1, resource=H200)
        node.config(ON.replace("true", "true, resources: [{pattern: '10de:2335', name: Mine}]"))
        node.wait(1, resource="nvidia.com/Mine")
        node.wait(0, resource=H200)
        got = node.allocate("0000:a0:00.0", resource="nvidia.com/Mine")
        self.assertEqual(got["envs"], {"PCI_RESOURCE_NVIDIA_COM_MINE": "0000:a0:00.0"})
        node.config(ON.replace("true", "true, resources: [{pattern: '*', name: gpu}]"))
        agent.said("nvidia.com/gpu is a resource of containers")
        node.wait(1, resource="nvidia.com/Mine")  # the old configuration stays
        node.config("version: v1\n")
        node.wait(0, resource="nvidia.com/Mine")
        node.wait(2, resource=GPU)
        node.config(ON)
        node.wait(1, resource=H200)


class VmDays(Machines):
    """Bad days, and vGPUs that the agent makes."""

    def test_no_driver(self):
        """Every card is with virtual machines: there is no driver for containers, and the node is well."""
        node, machine = self.machine(spec=None)
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        agent = node.agent()
        node.wait(1, resource=H200)
        until("ready", lambda: agent.get("/readyz")[0] == 200)
        self.assertTrue(node.allocate("0000:a0:00.0", resource=H200)["envs"])
        self.assertEqual(agent.kill(signal.SIGTERM), 0)

    def test_sysfs_blocks(self):
        node, machine = self.machine()
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        agent = node.agent()
        node.wait(1, resource=H200)
        vendor = machine.pci / "0000:a0:00.0/vendor"
        os.remove(vendor)
        os.mkfifo(vendor)  # to open it is to wait
        agent.said("sysfs has not answered")
        self.assertTrue(node.allocate("0000:a0:00.0", resource=H200)["envs"])  # what is known stays
        self.assertTrue(node.allocate(node.ids()[0])["envs"])
        node.config(ON + "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n")
        node.wait(4)
        with open(vendor, "wb") as pipe:
            os.remove(vendor)
            vendor.write_text("0x10de\n", encoding="ascii")
            pipe.write(b"0x10de\n")
        agent.said("sysfs answers again")
        machine.remove("0000:a0:00.0")
        node.wait(0, resource=H200)

    def test_sysfs_blocks_from_the_beginning(self):
        """Until sysfs was read, a card may be one that has vGPUs: containers do not get it."""
        node, machine = self.machine()
        first = node.agent()
        node.wait(2)
        card = sorted(self.addresses(first).items())[0][1]
        self.assertEqual(first.kill(signal.SIGTERM), 0)
        machine.function(card, 80, "nvidia")
        machine.vf(card, "0000:4e:00.4", 61, 1157, "1157  : NVIDIA L40S-8Q\n")
        vendor = machine.pci / "0000:4e:00.4/vendor"
        os.remove(vendor)
        os.mkfifo(vendor)
        agent = node.agent(name="next")
        agent.said("sysfs has not answered")
        node.wait(2, 0)
        self.assertEqual(agent.get("/healthz")[0], 200)
        with open(vendor, "wb") as pipe:
            os.remove(vendor)
            vendor.write_text("0x10de\n", encoding="ascii")
            pipe.write(b"0x10de\n")
        node.wait(1, resource=L40S_8Q)
        node.wait(2, 1)

    def test_no_sysfs(self):
        """A root without sysfs is said, and containers get their cards."""
        node, machine = self.machine()
        shutil.rmtree(machine.root / "sys")
        agent = node.agent()
        agent.said("devices for virtual machines are not known")
        node.wait(2)

    def test_vgpus_made(self):
        node, machine = self.machine(config=self.vgpus(2))
        node.kubelet.ask(f"podres {node.folder}/podres.sock")
        agent = node.agent()
        node.wait(2)
        uuid, card = sorted(self.addresses(agent).items())[0]
        node.kubelet.ask(f"place default train main {GPU} {uuid}")
        functions = [f"0000:4e:00.{i}" for i in range(4, 8)]
        machine.function(card, 80, "nvidia")
        for i, f in enumerate(functions):
            machine.vf(card, f, 61 + i, 0, "1157  : NVIDIA L40S-8Q\n")
        node.wait(2, 1)  # the card is for virtual machines now ...
        agent.said("containers still use the card")  # ... but a pod has it
        self.assertEqual(self.types(machine, functions), ["0"] * 4)
        node.kubelet.ask("remove default train")
        node.wait(2, resource=L40S_8Q)
        self.assertEqual(self.types(machine, functions), ["1157", "1157", "0", "0"])
        node.config(self.vgpus(3))
        node.wait(3, resource=L40S_8Q)
        self.assertTrue(node.allocate(functions[2], resource=L40S_8Q)["envs"])
        node.kubelet.ask(f"place default vm compute {L40S_8Q} {functions[2]}")
        agent.kill()  # what it made is known to the next one
        machine.write(f"sys/bus/pci/devices/{functions[3]}/nvidia/current_vgpu_type", "1157\n")  # not ours
        node.config(self.vgpus(0))
        agent = node.agent(name="next")
        agent.said("is removed when its virtual machine has ended")
        until("the free ones are gone", lambda: self.types(machine, functions) == ["0", "0", "1157", "1157"])
        node.wait(1, resource=L40S_8Q)
        self.assertEqual(node.ids(L40S_8Q), [functions[3]])  # the held one is not given away again
        node.kubelet.ask("remove default vm")
        until("the held one too", lambda: self.types(machine, functions) == ["0", "0", "0", "1157"])
        self.assertEqual(agent.get("/healthz")[0], 200)

    def test_type_no_longer_fits(self):
        """The card has no room for the second vGPU any more: the first is offered, the second is waited for, and said."""
        node, machine = self.machine(config=self.vgpus(2), api=True)
        node.kubelet.ask(f"podres {node.folder}/podres.sock")
        machine.function("0000:a0:00.0", 80, "nvidia")
        functions = ["0000:a0:00.4", "0000:a0:00.5"]
        machine.vf("0000:a0:00.0", functions[0], 61, 0, "1157  : NVIDIA L40S-8Q\n")
        machine.vf("0000:a0:00.0", functions[1], 62, 0)  # this list has other types, or none
        agent = node.agent()
        node.wait(1, resource=L40S_8Q)
        agent.said("vGPU type NVIDIA L40S-8Q does not fit on card 0000:a0:00.0 now: it has 1 of 2")
        until("an event", lambda: [e for e in node.api.events() if e["reason"] == "VGPUWaits"])
        self.assertEqual(self.types(machine, functions), ["1157", "0"])
        self.assertTrue(node.allocate(functions[0], resource=L40S_8Q)["envs"])
        machine.write(f"sys/bus/pci/devices/{functions[1]}/nvidia/creatable_vgpu_types",
                      "ID    : vGPU Name\n1157  : NVIDIA L40S-8Q\n")
        node.wait(2, resource=L40S_8Q)
        self.assertEqual(self.types(machine, functions), ["1157", "1157"])
        # Another program gives one of ours another type: it is that program's now, and is not removed.
        machine.write(f"sys/bus/pci/devices/{functions[1]}/nvidia/creatable_vgpu_types",
                      "ID    : vGPU Name\n1162  : NVIDIA L40S-12Q\n")
        machine.write(f"sys/bus/pci/devices/{functions[1]}/nvidia/current_vgpu_type", "1162\n")
        node.wait(1, resource="nvidia.com/NVIDIA_L40S-12Q")
        node.config(self.vgpus(0))
        node.wait(0, resource=L40S_8Q)
        until("ours is gone", lambda: self.types(machine, functions) == ["0", "1162"])
        # One that another program made, and gives another type: another resource.
        machine.vf("0000:a0:00.0", "0000:a0:00.6", 63, 1160, "1160  : NVIDIA L40S-48Q\n1161  : NVIDIA L40S-24Q\n")
        node.wait(1, resource="nvidia.com/NVIDIA_L40S-48Q")
        machine.write("sys/bus/pci/devices/0000:a0:00.6/nvidia/current_vgpu_type", "1161\n")
        node.wait(1, resource="nvidia.com/NVIDIA_L40S-24Q")
        node.wait(0, resource="nvidia.com/NVIDIA_L40S-48Q")

    def test_vgpus_without_kubelets_word(self):
        """Nothing is made and nothing removed while it is not known what is in use."""
        node, machine = self.machine(config=self.vgpus(1))
        machine.function("0000:a0:00.0", 80, "nvidia")
        machine.vf("0000:a0:00.0", "0000:a0:00.4", 61, 0, "1157  : NVIDIA L40S-8Q\n")
        agent = node.agent()
        agent.said("no vGPU is made or removed until it does")
        self.assertEqual(self.types(machine, ["0000:a0:00.4"]), ["0"])
        node.kubelet.ask(f"podres {node.folder}/podres.sock")
        node.wait(1, resource=L40S_8Q)
        node.config(self.vgpus(0))
        node.wait(0, resource=L40S_8Q)
        until("removed", lambda: self.types(machine, ["0000:a0:00.4"]) == ["0"])

    def test_killed(self):
        node, machine = self.machine()
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        for i in range(4):
            agent = node.agent()
            until("registered", lambda n=i: node.counts(H200)[0] == n + 1)
            node.wait(1, resource=H200)
            self.assertTrue(node.allocate("0000:a0:00.0", resource=H200)["envs"])
            agent.kill()


if __name__ == "__main__":
    main()
