/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes quantities: "10Gi", "1500m", "1.5G", "12e6". This is the only parser of numbers with units in the tree.
 * It computes exactly: a limit must not depend on the locale, accept "inf", or lose low bits to a double.
 */
#ifndef SLUICE_BASE_QUANTITY_H
#define SLUICE_BASE_QUANTITY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The value times 10^decimals, rounded down: 0 for whole units, 3 for thousandths. -EINVAL: the text is not a
 * quantity, or it is negative. -ERANGE: the result is more than INT64_MAX. */
int sl_quantity_parse(const char *text, int decimals, uint64_t *ret) SL_MUST_CHECK;
/* The same, and the message says what a quantity looks like. */
int sl_quantity_read(const char *text, int decimals, uint64_t *ret,
                     struct sl_err *err) SL_MUST_CHECK;

/* Decimal digits: no sign, no blanks. Returns the text after them; NULL: no digit, or the number is above `max`. */
const char *sl_number_read(const char *text, uint64_t max, uint64_t *ret);

/*
 * A number as people write it: it begins with a digit, a digit follows the point, and there is no sign and no exponent.
 * Gives billionths, rounded down, and returns the text after the number. NULL: there is no such number, or its whole
 * part does not fit 64 bits.
 */
const char *sl_decimal_read(const char *text, unsigned __int128 *ret_billionths);

/* As the API server would write it back: with the largest power of 1024 (binary) or of 1000 that divides it. */
void sl_quantity_binary(uint64_t value, char *buf, size_t size);
void sl_quantity_decimal(uint64_t value, char *buf, size_t size);

#endif
