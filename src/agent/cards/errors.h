/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_CARDS_ERRORS_H
#define SLUICE_AGENT_CARDS_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("cards");

SL_ERROR(CARDS_SILENT,
    "%zu GPUs do not answer and never did: they are not offered until they answer; nvidia-smi and the log of the "
    "kernel say why",
    "a card is broken, or its driver hangs", "`nvidia-smi`, `dmesg`");
SL_ERROR(CARDS_NO_NVML, "NVML is not open on this node",
    "the driver is not installed, or not loaded yet", "install or load the driver");
SL_ERROR(CARDS_GONE, "GPU %s is no longer in this machine",
    "a card was removed", "delete the pods that used it");
SL_ERROR(CARDS_NO_LIBRARY,
    "there is no libnvidia-ml.so.1 under the driver root %s: name the directory in which the driver is installed "
    "(--driver-root)",
    "the driver root is wrong, or not mounted into the agent", "`--driver-root`");
SL_ERROR(CARDS_BUSY, "NVML has not answered for a while: try again later",
    "the driver hangs", "nothing: Sluice tries again by itself; `dmesg` may say why");

#endif
