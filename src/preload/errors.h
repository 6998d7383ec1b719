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

#endif
