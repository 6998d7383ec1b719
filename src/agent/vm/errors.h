/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_VM_ERRORS_H
#define SLUICE_AGENT_VM_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("vm");

SL_ERROR(VM_NO_SYSFS, "cannot read %s: devices for virtual machines are not known",
    "the agent does not see the machine's sysfs", "mount /sys into the agent's container, or correct `--vm-root`");
SL_ERROR(VM_UNREADABLE, "%zu files of sysfs cannot be understood, first %s: what they describe is not offered",
    "a driver writes another form than Sluice knows, or a device is broken",
    "read the file; report its text as a bug of Sluice if it looks right");
SL_ERROR(VM_NO_GROUP,
    "%s has no IOMMU group: turn the IOMMU on in the firmware and the kernel (intel_iommu=on, amd_iommu=on)",
    "the IOMMU is off", "turn it on and restart the machine");
SL_ERROR(VM_NO_NODE, "%s: there is no /dev/vfio/%d: load vfio-pci, and mount /dev into the agent's container",
    "the VFIO modules are not loaded, or the agent does not see /dev", "`modprobe vfio-pci`; mount /dev");
SL_ERROR(VM_BLOCKED, "%s: driver %s holds %s, which is in the same IOMMU group %d: bind it to vfio-pci too",
    "a group goes to a virtual machine as a whole; often the audio function of the card is left with its own driver",
    "bind every function of the group to vfio-pci");
SL_ERROR(VM_GROUP_SHARED,
    "%s and %s are in one IOMMU group: one virtual machine can have the group, so only %s is offered",
    "the board does not separate its slots (no ACS)", "use another slot, or accept that the second card stays idle");
SL_ERROR(VM_TYPE_UNNAMED,
    "vGPU type %u of %s has no name in sysfs now: it is not offered; name it with vm.resources, pattern \"vgpu:%u\"",
    "a card whose vGPUs are all in use lists no types, and the agent has not seen its types before",
    "add the entry that the message names, or remove one vGPU for a moment");
SL_ERROR(VM_TYPES_UNSAVED_LOG, "the names of vGPU types are not saved: %s",
    "the state directory cannot be written", "make room there, or correct `--state-dir`");
SL_ERROR(VGPU_BUSY, "containers still use the card %s: its vGPUs are made when they have ended",
    "the card changes from containers to virtual machines", "nothing, or delete the pods that use the card");
SL_ERROR(VGPU_UNFIT, "vGPU type %s does not fit on card %s now: it has %u of %u",
    "vGPUs of other types have the card, its virtual functions are not enabled, or the card does not know the type",
    "remove the others; `sriov-manage -e`; read `creatable_vgpu_types` or `mdev_supported_types`");
SL_ERROR(VGPU_HELD, "vGPU %s %s is no longer configured, and is removed when its virtual machine has ended",
    "`sharing.vgpu` changed while the vGPU was in use", "nothing: the agent waits");
SL_ERROR(VGPU_BLIND, "kubelet does not say which devices are in use: no vGPU is made or removed until it does: %s",
    "kubelet's PodResources socket is not mounted, or kubelet is away", "`--pod-resources-socket`");
SL_ERROR(VGPU_WRITE, "cannot write to %s, for vGPU %s %s on card %s",
    "the driver refused, or the agent may not write to sysfs", "the log of the kernel; the component `privileged`");
SL_ERROR_ALSO(VGPU_GROUP, "cannot tell whether %s is in use (%s): it is not removed");
SL_ERROR(VGPU_UNSAVED, "the vGPUs that Sluice made cannot be saved, so none is made: %s",
    "the state directory cannot be written", "make room there, or correct `--state-dir`");
SL_ERROR(VGPU_STALE_LOG, "the list of vGPUs that Sluice made cannot be saved: %s",
    "the state directory cannot be written", "make room there");
SL_ERROR(VM_GONE, "%s %s is no longer there, or no longer offered: refresh the list of devices",
    "a device was removed while kubelet gave it away", "nothing: kubelet tries another device or node");

#endif
