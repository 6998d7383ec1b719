/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_MPS_ERRORS_H
#define SLUICE_AGENT_MPS_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("mps");

SL_ERROR(MPS_NO_ROOT,
    "MPS needs a directory of its own: set flags.mpsRoot (--mps-root) to an absolute path, for example /run/nvidia/mps",
    "`flags.mpsRoot` is empty or not absolute", "an absolute path");
SL_ERROR(MPS_NO_UUID, "GPU %u has no UUID, which MPS needs for the name of its directory",
    "the card does not answer", "`nvidia-smi`");
SL_ERROR(MPS_SMALL, "GPU %u: each of %u MPS clients would get less than 1 MiB: use fewer replicas",
    "too many replicas for the memory of the card", "fewer replicas");
SL_ERROR(MPS_NOT_SHARED, "MPS does not share GPU %s",
    "the configuration changed meanwhile", "nothing: Sluice tries again by itself");
SL_ERROR(MPS_NO_PROGRAM,
    "there is no nvidia-cuda-mps-control under %s: install the compute utilities of the driver, or share the cards in "
    "another way",
    "the driver root has no MPS", "install the compute utilities of the driver");
SL_ERROR(MPS_CONTROL_GONE, "the control program ended",
    "the MPS daemon crashed or was stopped", "nothing: it is started again");
SL_ERROR(MPS_START_LOG, "cannot start the MPS daemon of GPU %u: %s",
    "the reason follows (log, event)", "nothing: Sluice tries again by itself");
SL_ERROR_ALSO(MPS_ENDED_LOG, "the MPS daemon of GPU %u ended: %s");
SL_ERROR_ALSO(MPS_SILENT_LOG, "the MPS daemon of GPU %u does not answer%s%.120s");
SL_ERROR_ALSO(MPS_LIMITS_LOG,
    "the MPS daemon of GPU %u did not accept its limits: %u %% were set, it reports \"%.80s\"");
SL_ERROR_ALSO(MPS_REFUSED_LOG, "the MPS daemon of GPU %u refuses its limits: %.160s");
SL_ERROR(MPS_FAULT_LOG,
    "a fault of a client stopped the MPS server of GPU %u: all its clients fail, and new clients are refused until "
    "those have ended",
    "one program crashed on the GPU, and MPS ends all programs that share the server (log, event)",
    "nothing: pods restart");
SL_ERROR_ALSO(MPS_STUCK_LOG,
    "the MPS server of GPU %u did not recover from the fault of a client in time: its daemon is restarted");
SL_ERROR_ALSO(MPS_CLIENT_LOG, "a client of GPU %u failed under MPS: %.160s");
SL_ERROR(MPS_NOT_MOUNTED,
    "%s: MPS needs a folder of the node at %s: install the agent with deploy/components/mps, which mounts that folder",
    "the folder of MPS is not mounted from the node", "`deploy/components/mps`");

#endif
