# SPDX-License-Identifier: Apache-2.0
"""A made machine: sys/ and dev/ as far as the agent reads them for virtual machines, to be changed while it runs."""
import os
import pathlib
import shutil

IDS = "10de  NVIDIA Corporation\n\t2335  GH100 [H200 SXM 141GB]\n\t26b9  AD102GL [L40S]\n"


class Machine:
    """A directory with sys/ and dev/, as far as the agent reads them."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        self.pci = self.root / "sys/bus/pci/devices"
        self.pci.mkdir(parents=True, exist_ok=True)
        self.write("dev/vfio/vfio")
        self.write("usr/share/hwdata/pci.ids", IDS)

    def write(self, path, text=""):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")

    def link(self, path, target):
        """In one step: the agent may be reading."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        half = link.with_name(link.name + ".half")
        half.symlink_to(target)
        os.replace(half, link)

    def bind(self, address, driver):
        self.link(f"sys/bus/pci/devices/{address}/driver", f"../../../bus/pci/drivers/{driver}")

    def function(self, address, group, driver, device=0x2335, kind=0x0302, numa=1, bus=None):
        """bus: "pci0000:a0" makes the directory below it, with a link to it, as sysfs has it."""
        where = f"sys/bus/pci/devices/{address}"
        if bus:
            (self.root / f"sys/devices/{bus}/{address}").mkdir(parents=True)
            self.link(where, f"../../../devices/{bus}/{address}")
        self.write(f"{where}/numa_node", f"{numa}\n")
        self.write(f"{where}/class", f"0x{kind:04x}00\n")
        self.write(f"{where}/device", f"0x{device:04x}\n")
        self.write(f"dev/vfio/{group}")
        self.link(f"{where}/iommu_group", f"../../../../kernel/iommu_groups/{group}")
        self.link(f"sys/kernel/iommu_groups/{group}/devices/{address}", self.pci / address)
        self.bind(address, driver)
        self.write(f"{where}/vendor", "0x10de\n")  # last: before it, this is nobody's device

    def remove(self, address):
        where = self.pci / address
        os.remove(where / "vendor")
        if where.is_symlink():
            folder = where.resolve()
            where.unlink()
            where = folder
        shutil.rmtree(where)

    def vf(self, card, address, group, current, creatable=""):
        where = f"sys/bus/pci/devices/{address}"
        self.link(f"{where}/physfn", f"../{card}")
        self.write(f"{where}/nvidia/creatable_vgpu_types", "ID    : vGPU Name\n" + creatable)
        self.write(f"{where}/nvidia/current_vgpu_type", f"{current}\n")
        self.function(address, group, "nvidia", device=0x26b9)

    def mdev(self, card, uuid, group, kind):
        where = f"sys/bus/pci/devices/{card}/{uuid}"
        self.write(f"{where}/mdev_type/name", kind + "\n")
        self.write(f"dev/vfio/{group}")
        self.link(f"{where}/iommu_group", f"../../../../../kernel/iommu_groups/{group}")
        self.link(f"sys/bus/mdev/devices/{uuid}", f"../../pci/devices/{card}/{uuid}")
