/* SPDX-License-Identifier: Apache-2.0 */
/* How a promise ended, in HAMi's annotations. Pure; writing it is the controller's (controller_int.h). */
#ifndef SLUICE_CONTROLLER_SETTLE_H
#define SLUICE_CONTROLLER_SETTLE_H

#include <jansson.h>

/* The annotations to change now; NULL: none. */
json_t *sl_settle_patch(const json_t *pod);

#endif
