/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/claim_quantity.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

typedef unsigned __int128 wide;

/* The unit in thousandths of a thousandth of a thousandth (nano), which is as fine as they go. */
static const struct {
    const char *suffix;
    unsigned binary, decimal; /* 1024^binary × 10^decimal nano */
} suffixes[] = {
    {"n", 0, 0},  {"u", 0, 3},  {"m", 0, 6},  {"", 0, 9},   {"k", 0, 12}, {"M", 0, 15},
    {"G", 0, 18}, {"T", 0, 21}, {"P", 0, 24}, {"E", 0, 27}, {"Ki", 1, 9}, {"Mi", 2, 9},
    {"Gi", 3, 9}, {"Ti", 4, 9}, {"Pi", 5, 9}, {"Ei", 6, 9},
};

/* Digits with at most one point: the digits as a number and how many stood after the point. */
static const char *digits(const char *s, wide *ret, unsigned *ret_after)
{
    wide v = 0;
    unsigned after = 0, count = 0;
    bool point = false;
    for (; isdigit((unsigned char)*s) || (*s == '.' && !point); s++) {
        if (*s == '.') {
            point = true;
            continue;
        }
        if (++count > 27)
            return NULL;
        v = v * 10 + (unsigned)(*s - '0');
        after += point;
    }
    *ret = v;
    *ret_after = after;
    return count ? s : NULL;
}

/* v × 10^exponent, cut off below and refused above. */
static int scale(wide v, int exponent, wide *ret)
{
    for (; exponent < 0; exponent++)
        v /= 10;
    for (; exponent > 0 && v; exponent--)
        if (__builtin_mul_overflow(v, 10, &v))
            return -ERANGE;
    *ret = v;
    return 0;
}

static int parse(const char *text, int finest, uint64_t *ret)
{
    wide v;
    unsigned after, binary = 0;
    int exponent = -finest;
    const char *rest = digits(*text == '+' ? text + 1 : text, &v, &after);
    if (!rest)
        return -EINVAL;
    if ((*rest == 'e' || *rest == 'E') &&
        (isdigit((unsigned char)rest[1]) || rest[1] == '-' || rest[1] == '+')) {
        char *end;
        long e = strtol(rest + 1, &end, 10);
        if (*end || e > 60 || e < -60)
            return -EINVAL;
        exponent += (int)e;
    } else {
        size_t i = 0;
        while (i < SL_ARRAY_LEN(suffixes) && strcmp(rest, suffixes[i].suffix) != 0)
            i++;
        if (i == SL_ARRAY_LEN(suffixes))
            return -EINVAL;
        binary = suffixes[i].binary;
        exponent += (int)suffixes[i].decimal - 9;
    }
    for (; binary; binary--)
        if (__builtin_mul_overflow(v, 1024, &v))
            return -ERANGE;
    int rc = scale(v, exponent - (int)after, &v);
    if (rc < 0 || v > INT64_MAX)
        return -ERANGE;
    *ret = (uint64_t)v;
    return 0;
}

static int checked(const char *text, int finest, uint64_t *ret, struct sl_err *err)
{
    int rc = parse(text, finest, ret);
    if (rc < 0)
        return sl_err_set(err, rc, "\"%.40s\" is not a Kubernetes quantity such as 10Gi or 30", text);
    return 0;
}

int sl_quantity_milli(const char *text, uint64_t *ret, struct sl_err *err)
{
    return checked(text, -3, ret, err);
}

int sl_quantity_whole(const char *text, uint64_t *ret, struct sl_err *err)
{
    return checked(text, 0, ret, err);
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
