/* SPDX-License-Identifier: Apache-2.0 */
/* Kubernetes quantities, read in every form the API server may write and written in its own. */
#ifndef SLUICE_AGENT_DRA_CLAIM_QUANTITY_H
#define SLUICE_AGENT_DRA_CLAIM_QUANTITY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* "10Gi", "1500m", "12e6": in thousandths, what is finer cut off. */
int sl_quantity_milli(const char *text, uint64_t *ret, struct sl_err *err) SL_MUST_CHECK;
/* Whole units, cut off: bytes for memory. */
int sl_quantity_whole(const char *text, uint64_t *ret, struct sl_err *err) SL_MUST_CHECK;

/* As the API server would write it back: the largest power of 1024 (binary) or 1000 that divides. */
void sl_quantity_binary(uint64_t value, char *buf, size_t size);
void sl_quantity_decimal(uint64_t value, char *buf, size_t size);

#endif
