/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities as people write them: memory (10Gi, 512Mi, 25%), cores (30, 30:100), GPU lists. */
#ifndef SLUICE_BASE_UNITS_H
#define SLUICE_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* An amount of memory: bytes, or a percentage of a card (percent > 0). */
struct sl_memory_amount {
    uint64_t bytes;
    uint32_t percent;
};

/* Kubernetes quantities: plain bytes, k M G T P, Ki Mi Gi Ti Pi (or gi, GI), with decimals; or N%. */
int sl_parse_memory(const char *text, struct sl_memory_amount *ret,
                    struct sl_err *err) SL_MUST_CHECK;

/* `30` (a hard 30) or `30:100` (at least 30, up to 100), in percent of one GPU, decimals allowed
 * to a tenth, each with or without a % sign. Results are permille. */
int sl_parse_cores(const char *text, uint32_t *ret_request_permille, uint32_t *ret_limit_permille,
                   struct sl_err *err) SL_MUST_CHECK;

/* "10.0 GiB", "512 MiB", "0". Returns buf. */
const char *sl_format_bytes(uint64_t bytes, char *buf, size_t size);

/* "30 %", "30–100 %" as ASCII: "30", "30:100", "12.5". Returns buf. */
const char *sl_format_cores(uint32_t request_permille, uint32_t limit_permille, char *buf,
                            size_t size);

/* 30s, 10m, 2h or 1d; at least a second. */
int sl_parse_duration(const char *text, uint64_t *ret_ns, struct sl_err *err) SL_MUST_CHECK;

/* "850 us", "1.5 s", "2 min". Returns buf. */
const char *sl_format_duration(uint64_t ns, char *buf, size_t size);

#endif
