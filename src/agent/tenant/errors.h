/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_TENANT_ERRORS_H
#define SLUICE_AGENT_TENANT_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("dra");

SL_ERROR(ALLOW_PRIORITY, "%s asks for priority %s, and namespace %s may have %s at most: ask for that, or %s",
    "the administrator decides what claims and pods may ask for",
    "ask for less, or [have it allowed](dra.md#who-may-ask-for-what)");
SL_ERROR_ALSO(ALLOW_BURST,
    "%s asks for up to %u %% of a GPU's time, and namespace %s may have %u %% at most beyond its share: lower the "
    "limit, or %s");
SL_ERROR(ARBITER_NO_ANSWER,
    "the arbiter at %s does not answer: check whether `sluice status` works, and see the log of the agent",
    "the arbiter hangs or restarts", "the log of the agent");
SL_ERROR(TENANT_DIR_LONG, "the name of the arbiter's directory, %s, is too long",
    "unix sockets allow 107 bytes", "a shorter `--arbiter-dir`");

#endif
