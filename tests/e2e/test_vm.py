# SPDX-License-Identifier: Apache-2.0
"""Devices for virtual machines on a real kubelet: a made sysfs below the agent's driver root, changed while it runs."""
import contextlib
import os
import stat
import sys

import images
from world import SIM_ROOT, check, same, test, wait

sys.path.insert(0, os.path.join(images.TOP, "tests", "support"))
from machine import Machine  # noqa: E402

GPU = "nvidia.com/gpu"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S_8Q = "nvidia.com/NVIDIA_L40S-8Q"
GROUPS = (70, 71, 80)


@contextlib.contextmanager
def nodes(groups):
    """The container runtime wants real device nodes on the host; one with the numbers of /dev/null harms nobody."""
    made = [f"/dev/vfio/{name}" for name in ("vfio", *map(str, groups))]
    made = [path for path in made if not os.path.exists(path)]
    os.makedirs("/dev/vfio", exist_ok=True)
    try:
        for path in made:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        yield
    finally:
        for path in filter(os.path.exists, made):
            os.remove(path)
        with contextlib.suppress(OSError):
            os.rmdir("/dev/vfio")


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
    w.use("vm")
    machine = Machine(SIM_ROOT)
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
    w.use("vm")
    machine = Machine(SIM_ROOT)
    card = address(w)
    machine.function(card, 80, "nvidia")
    for i in range(4):
        machine.vf(card, f"0000:4e:00.{i + 4}", 90 + i, 1157 if i < 3 else 0, "1157  : NVIDIA L40S-8Q\n")
    w.wait_allocatable({L40S_8Q: 3})  # and the card is not for containers
    for i in range(4):
        machine.remove(f"0000:4e:00.{i + 4}")
    w.wait_allocatable({GPU: 1})
    wait("no device of a virtual machine", lambda: "sluice_vm_device_healthy{" not in w.agent_get("/metrics"))
