/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_GPU_ERRORS_H
#define SLUICE_GPU_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("driver");

SL_ERROR(NO_DRIVER, "no NVIDIA driver on this machine: %.160s and no /dev/nvidiactl: install the driver%s",
    "there is no driver, or its kernel module is not loaded",
    "install the driver and `modprobe nvidia`; or use `--sim h200`");
SL_ERROR_ALSO(DRIVER_NOT_LOADED,
    "no NVIDIA driver on this machine: NVML is installed but the kernel module is not loaded: run \"modprobe nvidia\", "
    "or install the driver");
SL_ERROR(NO_NVML,
    "the NVIDIA driver is loaded but its NVML library cannot be loaded: %.160s: install the driver's libnvidia-ml "
    "package, or give the container the \"utility\" driver capability",
    "a container or a driver without `libnvidia-ml.so.1`",
    "install the NVML package of the driver; give the container the `utility` capability");
SL_ERROR(DRIVER_MISMATCH,
    "driver/library version mismatch: the loaded NVIDIA kernel module and this NVML library are of different versions: "
    "reboot, or unload and load the nvidia modules",
    "the driver was upgraded while the old kernel module was loaded", "reload the module, or reboot");
SL_ERROR(DRIVER_PERMISSION,
    "this user may not use the NVIDIA driver: no permission on /dev/nvidiactl: check the group and mode of "
    "/dev/nvidia*",
    "no permission on `/dev/nvidiactl`", "join the group that owns it (often `video` or `render`)");
SL_ERROR(NVML_START, "NVML did not start: %s (NVML error %d)",
    "the text of NVML is in the message", "`nvidia-smi`, `sluice doctor`");
SL_ERROR_ALSO(NVML_CALL, "%s: %s (NVML error %d)");
SL_ERROR(NVML_OLD, "the NVML library of this driver has no %s: update the driver",
    "the driver is too old", "update the driver");
SL_ERROR(NVML_WRONG, "%s is not an NVML library: it has no nvmlInit_v2",
    "a wrong library was named, or the loader found it first", "check `LD_LIBRARY_PATH`");
SL_ERROR(NO_XIDS, "no GPU of this machine reports XID events",
    "the card or the driver cannot report XIDs", "nothing: the health of the cards is not watched then");
SL_ERROR(PROCESSES_GROW, "listing GPU processes: the list grows faster than it can be read",
    "hundreds of processes start at this moment", "nothing: Sluice tries again by itself");
SL_ERROR(MIG_NO_PLACEMENT, "MIG profile %u has no placement at memory slice %u",
    "the MIG layout of the card changed meanwhile", "nothing: Sluice tries again by itself");
SL_ERROR_ALSO(MIG_NO_COMPUTE, "the driver has no compute instance of %u slices");
SL_ERROR_ALSO(MIG_NOT_LISTED, "the driver does not list the MIG device that it just made");
SL_ERROR(BACKEND_LACKS, "this GPU backend does not support the operation \"%s\"",
    "a mistake in Sluice itself", "please report it");

#endif
