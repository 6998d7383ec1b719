# SPDX-License-Identifier: Apache-2.0
"""Devices for virtual machines on a real kubelet: a made sysfs below the agent's driver root, changed while it runs."""
import contextlib
import json
import os
import shutil
import stat
import sys

import images
from test_dra import devices, template
from world import SIM_ROOT, check, same, test, wait

sys.path.insert(0, os.path.join(images.TOP, "tests", "support"))
from machine import Machine  # noqa: E402

GPU = "nvidia.com/gpu"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S_8Q = "nvidia.com/NVIDIA_L40S-8Q"
AUDIO = "nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER"
A40_8Q = "nvidia.com/NVIDIA_A40-8Q"
A40_1Q = "nvidia.com/NVIDIA_A40-1Q"
UUID = "aa618089-8b16-4d01-a136-25a0f3c73"
GROUPS = (70, 71, 80)
METADATA = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates"


@contextlib.contextmanager
def nodes(groups, *more):
    """The container runtime wants real device nodes on the host; one with the numbers of /dev/null harms nobody."""
    made = [*(f"/dev/vfio/{name}" for name in ("vfio", *map(str, groups))), *more]
    made = [path for path in made if not os.path.exists(path)]
    os.makedirs("/dev/vfio/devices", exist_ok=True)
    try:
        for path in made:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        yield
    finally:
        for path in filter(os.path.exists, made):
            os.remove(path)
        for folder in ("/dev/vfio/devices", "/dev/vfio"):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def fresh(w, overlay):
    """The overlay, and a machine without what an earlier test left."""
    w.use(overlay)
    shutil.rmtree(f"{SIM_ROOT}/sys", ignore_errors=True)
    shutil.rmtree(f"{SIM_ROOT}/dev/vfio", ignore_errors=True)
    return Machine(SIM_ROOT)


def address(w):
    """The PCI address of the simulated card, as sysfs writes it."""
    for line in w.agent_get("/metrics").splitlines():
        if line.startswith("sluice_gpu_info{"):
            return line.split('pci_bus_id="')[1].split('"')[0].lower()[-12:]
    return check(False, "the agent shows no card")


@test("vm.passthrough_comes_and_goes")
def passthrough(w):
    w.clean()
    machine = Machine(SIM_ROOT)
    w.apply("vm")
    w.agent()
    w.wait_allocatable({GPU: 1})
    with nodes(GROUPS):
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        w.wait_allocatable({GPU: 1, H200: 1})
        machine.function("0000:a1:00.0", 71, "vfio-pci")
        w.wait_allocatable({GPU: 1, H200: 2})
        w.pod("machine", H200, command=("sleep", "1000"))
        w.wait_running("machine")
        env = w.exec("machine", "env")
        check("PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB=0000:a" in env, f"the pod's variables: {env}")
        os.remove(f"{SIM_ROOT}/dev/vfio/70")
        w.wait_allocatable({GPU: 1, H200: 1})
        machine.write("dev/vfio/70")
        w.wait_allocatable({GPU: 1, H200: 2})
        w.delete("machine")
        machine.remove("0000:a0:00.0")
        machine.remove("0000:a1:00.0")
        w.wait_allocatable({GPU: 1})


@test("vm.a_card_changes_sides")
def sides(w):
    machine = fresh(w, "vm")
    card = address(w)
    machine.function(card, 80, "nvidia")
    agent = w.agent()["metadata"]["uid"]
    for _ in range(2):
        machine.bind(card, "vfio-pci")
        w.wait_allocatable({H200: 1})
        machine.bind(card, "nvidia")
        w.wait_allocatable({GPU: 1})
    same("the agent's pod", w.agent()["metadata"]["uid"], agent)


@test("vm.vgpus_of_a_card")
def vgpus(w):
    machine = fresh(w, "vm")
    card = address(w)
    machine.function(card, 80, "nvidia")
    for i in range(4):
        machine.vf(card, f"0000:4e:00.{i + 4}", 90 + i, 1157 if i < 3 else 0, "1157  : NVIDIA L40S-8Q\n")
    w.wait_allocatable({L40S_8Q: 3})  # and the card is not for containers
    for i in range(4):
        machine.remove(f"0000:4e:00.{i + 4}")
    w.wait_allocatable({GPU: 1})
    wait("no device of a virtual machine", lambda: "sluice_vm_device_healthy{" not in w.agent_get("/metrics"))


def gets(w, pod, *env, paths):
    """What is in the pod: virt-launcher's variables and the nodes of VFIO, these and no others."""
    have = {line for line in w.exec(pod, "env").splitlines() if "PCI_RESOURCE_" in line}
    same(f"variables of {pod}", have, set(env))
    look = 'for f in /dev/vfio/* /dev/vfio/devices/* /dev/iommu; do if [ -c "$f" ]; then echo "$f"; fi; done'
    found = w.exec(pod, "sh", "-c", look).split()
    same(f"nodes in {pod}", sorted(found), sorted(paths))


@test("vm.every_kind_is_given_away_and_comes_back")
def every_kind(w):
    """A card with iommufd, an audio function with a group of its own, a virtual function, a mediated device."""
    machine = fresh(w, "vm")
    machine.write("usr/share/hwdata/pci.ids", "10de  NVIDIA Corporation\n"
                  "\t1aef  GA102 High Definition Audio Controller\n\t2335  GH100 [H200 SXM 141GB]\n\t26b9  AD102GL [L40S]\n")
    machine.write("dev/iommu")
    with nodes((70, 71, 72, 73), "/dev/iommu", "/dev/vfio/devices/vfio3"):
        machine.write("sys/bus/pci/devices/0000:a0:00.0/vfio-dev/vfio3/dev", "1:3\n")
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        machine.function("0000:a0:00.1", 71, "vfio-pci", device=0x1aef, kind=0x0403)
        machine.function("0000:b0:00.0", 80, "nvidia")
        machine.vf("0000:b0:00.0", "0000:b0:00.4", 72, 1157, "1157  : NVIDIA L40S-8Q\n")
        machine.function("0000:b1:00.0", 81, "nvidia")
        machine.mdev("0000:b1:00.0", UUID + "001", 73, "NVIDIA A40-8Q")
        kinds = {H200: 1, AUDIO: 1, L40S_8Q: 1, A40_8Q: 1}
        w.wait_allocatable({GPU: 1, **kinds})
        for attempt in ("first", "again"):  # the second time shows that the first pod's came back
            names = {r: f"{attempt}-{i}" for i, r in enumerate(kinds)}
            for resource, name in names.items():
                w.pod(name, resource, command=("sleep", "1000"))
            w.wait_running(*names.values())
            pci = "PCI_RESOURCE_NVIDIA_COM_"
            gets(w, names[H200], pci + "GH100_H200_SXM_141GB=0000:a0:00.0",
                 paths=["/dev/vfio/vfio", "/dev/vfio/70", "/dev/vfio/devices/vfio3", "/dev/iommu"])
            gets(w, names[AUDIO], pci + "GA102_HIGH_DEFINITION_AUDIO_CONTROLLER=0000:a0:00.1",
                 paths=["/dev/vfio/vfio", "/dev/vfio/71"])
            gets(w, names[L40S_8Q], pci + "NVIDIA_L40S-8Q=0000:b0:00.4", paths=["/dev/vfio/vfio", "/dev/vfio/72"])
            gets(w, names[A40_8Q], f"MDEV_{pci}NVIDIA_A40-8Q={UUID}001", paths=["/dev/vfio/vfio", "/dev/vfio/73"])
            w.delete(*names.values())
        for path in ("dev/iommu", f"sys/bus/mdev/devices/{UUID}001"):
            os.remove(f"{SIM_ROOT}/{path}")
        for a in ("0000:a0:00.0", "0000:a0:00.1", "0000:b0:00.4", "0000:b0:00.0", "0000:b1:00.0"):
            machine.remove(a)
        w.wait_allocatable({GPU: 1})


@test("vm.bad_days")
def bad_days(w):
    machine = fresh(w, "vm")
    with nodes((70, 71, 72)):
        # Two cards in one group: one machine can have the group.
        machine.function("0000:a0:00.0", 70, "vfio-pci")
        machine.function("0000:a1:00.0", 70, "vfio-pci")
        w.wait_allocatable({GPU: 1, H200: 1})
        wait("an event of the shared group", lambda: [e for e in w.events("VMDevices") if "one IOMMU group" in e["message"]])
        # A card with files that no kernel writes: what it is, is not guessed, and the others stay.
        machine.write("sys/bus/pci/devices/0000:a3:00.0/device", "\x00\x01???\n")
        machine.write("sys/bus/pci/devices/0000:a3:00.0/class", "9" * 5000)
        machine.write("sys/bus/pci/devices/0000:a3:00.0/vendor", "0x10de\n")
        wait("an event of the bad file", lambda: [e for e in w.events("VMDevices") if "cannot be understood" in e["message"]])
        w.wait_allocatable({GPU: 1, H200: 1})
        # A card that goes while a pod has it: the pod goes on, nobody else gets it, and it comes back.
        w.pod("holder", H200, command=("sleep", "1000"))
        w.wait_running("holder")
        before = w.container("holder")
        machine.remove("0000:a0:00.0")
        machine.remove("0000:a1:00.0")
        w.wait_allocatable({GPU: 1})
        same("the pod's container", w.container("holder"), before)
        w.delete("holder")
        machine.function("0000:a0:00.0", 71, "vfio-pci")
        w.wait_allocatable({GPU: 1, H200: 1})
        w.pod("next", H200, command=("sleep", "1000"))
        w.wait_running("next")
        # sysfs that does not answer: what is known is given away, and kubelet is answered.
        machine.function("0000:a4:00.0", 72, "vfio-pci")
        w.wait_allocatable({GPU: 1, H200: 2})
        vendor = machine.pci / "0000:a4:00.0/vendor"
        os.remove(vendor)
        os.mkfifo(vendor)
        wait("an event of sysfs", lambda: w.events("SysfsStalled"))
        w.pod("meanwhile", H200, command=("sleep", "1000"))
        w.pod("container", GPU, command=("sleep", "1000"))
        w.wait_running("meanwhile", "container")
        with open(vendor, "wb") as pipe:
            os.remove(vendor)
            vendor.write_text("0x10de\n", encoding="ascii")
            pipe.write(b"0x10de\n")
        wait("an event of sysfs", lambda: w.events("SysfsResumed"))
        w.delete("next", "meanwhile", "container")
        for a in ("0000:a0:00.0", "0000:a3:00.0", "0000:a4:00.0"):
            machine.remove(a)
        # 64 instances of one card, and none a moment later.
        machine.function("0000:b1:00.0", 81, "nvidia")
        for i in range(64):
            machine.mdev("0000:b1:00.0", UUID + f"{i:03}", 200 + i, "NVIDIA A40-1Q")
        w.wait_allocatable({GPU: 1, A40_1Q: 64})
        for i in range(64):
            os.remove(f"{SIM_ROOT}/sys/bus/mdev/devices/{UUID}{i:03}")
        machine.remove("0000:b1:00.0")
        w.wait_allocatable({GPU: 1})


def vm_devices(w):
    return sorted(d["name"] for d in devices(w) if d["name"].startswith("vm-"))


@test("vm.claims")
def claims(w):
    """The class vm.gpu.sluice.io with the stock scheduler: given, seen as KubeVirt looks for it, and freed."""
    w.clean()
    machine = fresh(w, "vm-dra")
    wait("slices of the driver", lambda: devices(w), 30)
    card = address(w)
    machine.function(card, 80, "nvidia")
    template(w, "vm-h200", "vm.gpu.sluice.io", expression=f'device.attributes["gpu.sluice.io"].resourceName == "{H200}"')
    template(w, "vm-vgpu", "vm.gpu.sluice.io",
             expression='device.attributes["gpu.sluice.io"].vgpuType == "NVIDIA A40-8Q"')
    template(w, "whole", "whole.gpu.sluice.io")
    with nodes((70, 73, 80)):
        machine.function("0000:a0:00.0", 70, "vfio-pci", bus="pci0000:a0")
        machine.function("0000:b1:00.0", 81, "nvidia")
        machine.mdev("0000:b1:00.0", UUID + "001", 73, "NVIDIA A40-8Q")
        wait(lambda: f"two devices in the slices, not {vm_devices(w)}", lambda: len(vm_devices(w)) == 2, 30)
        # And no plugin has them. Those of the agent before go with it, a moment after its successor is ready.
        wait(lambda: f"nothing to be allocatable, not {w.allocatable()}", lambda: w.allocatable() == {}, 30)
        w.pod("card", claims={"gpu": "vm-h200"}, command=("sleep", "1000"))
        w.pod("vgpu", claims={"gpu": "vm-vgpu"}, command=("sleep", "1000"))
        w.wait_running("card", "vgpu")
        gets(w, "card", "PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB=0000:a0:00.0",
             paths=["/dev/vfio/vfio", "/dev/vfio/70"])
        gets(w, "vgpu", f"MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-8Q={UUID}001", paths=["/dev/vfio/vfio", "/dev/vfio/73"])
        for pod, key, value in (("card", "resource.kubernetes.io/pciBusID", "0000:a0:00.0"), ("vgpu", "mdevUUID", UUID + "001")):
            said = json.loads(w.exec(pod, "cat", f"{METADATA}/gpu/gpu/gpu.sluice.io-metadata.json"))
            same(f"{key} in {pod}", said["requests"][0]["devices"][0]["attributes"][key], {"string": value})
        # There is one: the next pod waits for it.
        w.pod("second", claims={"gpu": "vm-h200"}, command=("sleep", "1000"))
        wait("the second to wait", lambda: w.waiting("second"))
        w.delete("card")
        w.wait_running("second")
        w.delete("second", "vgpu")
        # The card moves from containers to virtual machines and back.
        w.pod("train", claims={"gpu": "whole"}, command=("sleep", "1000"))
        w.wait_running("train")
        w.delete("train")
        machine.remove("0000:a0:00.0")
        agent = w.agent()["metadata"]["uid"]
        machine.bind(card, "vfio-pci")
        wait(lambda: f"the card for virtual machines only, not {[d['name'] for d in devices(w)]}",
             lambda: not [d for d in devices(w) if d["name"].startswith("gpu-0")] and len(vm_devices(w)) == 2, 30)
        w.pod("third", claims={"gpu": "vm-h200"}, command=("sleep", "1000"))
        w.wait_running("third")
        gets(w, "third", f"PCI_RESOURCE_NVIDIA_COM_GH100_H200_SXM_141GB={card}", paths=["/dev/vfio/vfio", "/dev/vfio/80"])
        w.delete("third")
        machine.bind(card, "nvidia")
        os.remove(f"{SIM_ROOT}/sys/bus/mdev/devices/{UUID}001")
        wait(lambda: f"the card for containers, not {[d['name'] for d in devices(w)]}",
             lambda: "gpu-0" in [d["name"] for d in devices(w)] and not vm_devices(w), 30)
        w.pod("train", claims={"gpu": "whole"}, command=("sleep", "1000"))
        w.wait_running("train")
        same("the agent's pod", w.agent()["metadata"]["uid"], agent)
        w.delete("train")
