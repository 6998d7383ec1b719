/* SPDX-License-Identifier: Apache-2.0 */
/* A time in the past, as people write it. */
#ifndef SLUICE_CLI_SINCE_H
#define SLUICE_CLI_SINCE_H

#include <stdint.h>

#include "base/err.h"

/* "2h" (that long before now), "2026-11-17", or "2026-11-17 14:30" with or without seconds, in the time of this
 * computer. In milliseconds since 1970. A time after now_ms is refused. */
int sl_since_parse(const char *text, uint64_t now_ms, uint64_t *ret_ms,
                   struct sl_err *err) SL_MUST_CHECK;

#endif
