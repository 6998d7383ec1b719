/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quantity.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/errors.h"

typedef unsigned __int128 wide;

/* Digits behind the point that count. With so many, a number of 64 bits still fits `wide`. */
#define DECIMALS_MAX 18

static const struct {
    const char *suffix;
    int binary, decimal; /* 1024^binary × 10^decimal */
} suffixes[] = {
    {"", 0, 0},   {"n", 0, -9}, {"u", 0, -6}, {"m", 0, -3}, {"k", 0, 3},  {"M", 0, 6},
    {"G", 0, 9},  {"T", 0, 12}, {"P", 0, 15}, {"E", 0, 18}, {"Ki", 1, 0}, {"Mi", 2, 0},
    {"Gi", 3, 0}, {"Ti", 4, 0}, {"Pi", 5, 0}, {"Ei", 6, 0},
};

/* Digits with at most one point. The number is *ret / 10^*ret_after. Returns the text after it; NULL: no digit, or a
 * whole part of more than 64 bits. */
static const char *digits(const char *s, wide *ret, int *ret_after)
{
    wide v = 0;
    int after = 0;
    bool point = false, any = false;
    for (; isdigit((unsigned char)*s) || (*s == '.' && !point); s++) {
        if (*s == '.') {
            point = true;
            continue;
        }
        any = true;
        if (point && after == DECIMALS_MAX)
            continue;
        v = v * 10 + (unsigned)(*s - '0');
        if (!point && v > UINT64_MAX)
            return NULL;
        after += point;
    }
    *ret = v;
    *ret_after = after;
    return any ? s : NULL;
}

/* v × 1024^binary × 10^exponent, rounded down. False: the result does not fit. */
static bool scale(wide v, int binary, int exponent, wide *ret)
{
    for (; binary > 0; binary--)
        if (__builtin_mul_overflow(v, 1024, &v))
            return false;
    for (; exponent < 0 && v; exponent++)
        v /= 10;
    for (; exponent > 0 && v; exponent--)
        if (__builtin_mul_overflow(v, 10, &v))
            return false;
    *ret = v;
    return true;
}

/* "e6", "E-3", or one of the suffixes. */
static bool unit(const char *text, int *ret_binary, int *ret_exponent)
{
    bool e = *text == 'e' || *text == 'E';
    if (e && (isdigit((unsigned char)text[1]) || text[1] == '-' || text[1] == '+')) {
        char *end;
        long n = strtol(text + 1, &end, 10);
        *ret_binary = 0;
        *ret_exponent = (int)n;
        return *end == '\0' && n >= -60 && n <= 60;
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(suffixes); i++)
        if (strcmp(text, suffixes[i].suffix) == 0) {
            *ret_binary = suffixes[i].binary;
            *ret_exponent = suffixes[i].decimal;
            return true;
        }
    return false;
}

int sl_quantity_parse(const char *text, int decimals, uint64_t *ret)
{
    wide v;
    int after, binary, exponent;
    const char *rest = digits(*text == '+' ? text + 1 : text, &v, &after);
    if (!rest || !unit(rest, &binary, &exponent))
        return -EINVAL;
    if (!scale(v, binary, exponent + decimals - after, &v) || v > INT64_MAX)
        return -ERANGE;
    *ret = (uint64_t)v;
    return 0;
}

int sl_quantity_read(const char *text, int decimals, uint64_t *ret, struct sl_err *err)
{
    int rc = sl_quantity_parse(text, decimals, ret);
    if (rc < 0)
        return sl_err_set(err, rc, SL_E_QUANTITY_BAD, text);
    return 0;
}

const char *sl_number_read(const char *text, uint64_t max, uint64_t *ret)
{
    uint64_t n = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n) || n > max)
            return NULL;
    *ret = p > text ? n : *ret;
    return p > text ? p : NULL;
}

const char *sl_decimal_read(const char *text, wide *ret_billionths)
{
    wide v;
    int after;
    const char *rest = isdigit((unsigned char)*text) ? digits(text, &v, &after) : NULL;
    if (!rest || rest[-1] == '.' || !scale(v, 0, 9 - after, &v))
        return NULL;
    *ret_billionths = v;
    return rest;
}

static void format(uint64_t value, uint64_t base, const char *const *names, char *buf, size_t size)
{
    size_t i = 0;
    for (; value && i < 6 && value % base == 0; i++)
        value /= base;
    (void)snprintf(buf, size, "%llu%s", (unsigned long long)value, names[i]);
}

void sl_quantity_binary(uint64_t value, char *buf, size_t size)
{
    static const char *const names[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    format(value, 1024, names, buf, size);
}

void sl_quantity_decimal(uint64_t value, char *buf, size_t size)
{
    static const char *const names[] = {"", "k", "M", "G", "T", "P", "E"};
    format(value, 1000, names, buf, size);
}
