/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_PRELOAD_ERRORS_H
#define SLUICE_PRELOAD_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("program");

SL_ERROR(WELCOME_DESCRIPTORS,
    "the arbiter sent %d descriptors instead of 3: install the same version of Sluice on both sides",
    "`libsluice.so` and the arbiter are of different builds", "install the same version on both sides");
SL_ERROR_ALSO(WELCOME_WRONG, "the arbiter gave an unexpected answer: install the same version of Sluice on both sides");
SL_ERROR(ATTACH_REFUSED, "the arbiter refuses this process: %.*s",
    "the reason of the arbiter is in the message", "look up that reason on this page");
SL_ERROR(ATTACH_AWAY_LOG,
    "the arbiter of the GPU does not answer (%s): waiting up to %u s for it; %s changes this time",
    "the agent or the arbiter is being replaced (an upgrade, a crash); the line is on stderr after a second",
    "nothing: the program goes on when the arbiter is back. `kubectl -n sluice-system get pods` shows the agent");
SL_ERROR(NOT_ATTACHED_LOG, "this process is not attached to its tenant, and CUDA answers error 800: %s",
    "the arbiter did not come back in time, the tenant has ended, or the arbiter refused the process",
    "start the agent (or the next `sluice run`), then the program again");
SL_ERROR(ALONE_LOG,
    "the arbiter of the GPU does not answer: this is the only process of %s, and starts without it, under the limits that "
    "it left",
    "the agent or the arbiter was away for two seconds; only one process of a tenant may start then",
    "nothing: the process attaches when the arbiter is back. Other processes of the tenant wait. "
    "`kubectl -n sluice-system get pods` shows the agent");
SL_ERROR(ATTACH_WAIT_LOG, "%s \"%.20s\" is not a number of seconds from 0 to %d: waiting %d s",
    "the variable of the program's environment", "write a whole number, for example 120");

#endif
