/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_CONTAINER_ERRORS_H
#define SLUICE_CONTAINER_ERRORS_H

#include <inttypes.h>

#include "base/errtable.h"

SL_ERROR_PART("container");

SL_ERROR(DRIVER_NO_LIBCUDA, "there is no libcuda%s%s under %s: is this the driver root?",
    "the driver root is wrong or not mounted, or the libraries are of another version than the kernel module",
    "`nvidiaDriverRoot`, `containerDriverRoot`; after an upgrade of the driver, reload the module or reboot");
SL_ERROR_ALSO(DRIVER_NO_FILE, "there is no %s under %s: is this the driver root?");
SL_ERROR(DRIVER_NO_LIBRARY_LOG, "there is no %s.so.%s under %s: %s",
    "a part of the driver is not installed; the message says what does not work (a warning)",
    "install it, if containers need it");
SL_ERROR(DRIVER_BAD_LIBRARY_LOG, "%s cannot be read as a library: containers do not get it",
    "a damaged file in the directory of the driver (a warning)", "reinstall the driver");
SL_ERROR(DRIVER_NOT_A_NODE, "%s is not a device node",
    "a kernel module is not loaded, or another file has the name of the device node",
    "run `nvidia-modprobe -u -c=0` on the node; the warning at the start names what fails without it");
SL_ERROR_ALSO(DRIVER_NO_NODE, "%s does not exist, and its driver is not loaded");
SL_ERROR(DRIVER_VERSION, "\"%.80s\" is not the version of a driver",
    "NVML gave an unexpected answer", "`nvidia-smi`, `sluice doctor`");
SL_ERROR(DRIVER_NO_CAPABILITY,
    "the driver has no capability for %s of GPU %" PRIu32,
    "the MIG instance is gone, or the agent cannot see `/proc/driver/nvidia`",
    "nothing: it is tried again with the next change");
SL_ERROR(SIM_ROOT_LINE, "%s/sluice-sim: the line \"%.60s\" does not have the form SLUICE_SIM…=value",
    "the mark of a simulated driver root was edited", "`sluice-sim-ctl make-root`");
SL_ERROR(CDI_NAME_BAD, "CDI device \"%.80s\" is not valid: use letters and digits, with _ - . : between them",
    "a claim that cannot be described to a container runtime", "other request names in the claim");
SL_ERROR_ALSO(CDI_TWICE, "CDI device \"%.80s\" is named twice");
SL_ERROR_ALSO(CDI_EMPTY, "CDI device \"%.80s\" would give nothing to a container");
SL_ERROR_ALSO(CDI_NAME_LONG, "the CDI name of %.80s is too long");
SL_ERROR_ALSO(CDI_CLAIM_UID, "\"%.80s\" is not the UID of a claim");
SL_ERROR_ALSO(CDI_CLAIM_EMPTY, "claim %s has no device to describe");
SL_ERROR(CDI_SLOT_NAME, "\"%.80s\" cannot be the name of a slot",
    "an id that kubelet should not have", "delete the pod");
SL_ERROR(CDI_FOREIGN, "%s is not a CDI spec that Sluice wrote: remove the file, or choose another name",
    "another program wrote a file with this name", "look at the file, then remove it");
SL_ERROR(CDI_PATH_LONG, "the path %.80s… is too long",
    "more than 4095 bytes", "shorter directories");
SL_ERROR(CDI_GPU_GONE, "the GPU no longer exists: the GPUs of the machine have changed",
    "a card or a MIG device was removed meanwhile", "nothing: it is tried again");
SL_ERROR(CDI_UTF8, "a name or path for a container is not UTF-8: rename the file",
    "the runtime would refuse the whole spec", "rename the file of the driver");

#endif
