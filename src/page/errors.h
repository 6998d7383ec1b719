/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_PAGE_ERRORS_H
#define SLUICE_PAGE_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("page");

SL_ERROR(PAGE_TOKEN, "the token must be one word of %u to %u letters, digits and signs",
    "the file of `--ui-token-file` is empty, too short, or has several words",
    "`head -c 24 /dev/urandom | base64 > FILE` makes a good token");
SL_ERROR(PAGE_TOKEN_MISSING, "the token is missing or wrong: send it in the header X-Sluice-Token",
    "the page and its data are for those who have the token",
    "the text of the file of `--ui-token-file`; `sluice web` prints it in its address");
SL_ERROR(PAGE_HOST, "this server answers to 127.0.0.1, [::1] and localhost only",
    "a page of another site, or a name that leads to this machine, was used to reach a server for this machine only",
    "open the address as it was printed");
SL_ERROR(PAGE_WANT_NOTHING, "write how much memory or GPU time it needs: 10Gi, 30",
    "the form is empty", "fill in one of the two");
SL_ERROR_ALSO(PAGE_WANT_GPUS, "the number of GPUs must be 1 to 16");

#endif
