/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/errors.h"

static const struct {
    const char *suffix;
    uint64_t factor;
} memory_suffixes[] = {
    {"", 1},
    {"k", 1000ULL},
    {"M", 1000000ULL},
    {"G", 1000000000ULL},
    {"T", 1000000000000ULL},
    {"P", 1000000000000000ULL},
    {"Ki", 1ULL << 10},
    {"Mi", 1ULL << 20},
    {"Gi", 1ULL << 30},
    {"Ti", 1ULL << 40},
    {"Pi", 1ULL << 50},
};

/*
 * Reads digits[.digits] exactly: the whole part and up to nine decimals as billionths. No strtod:
 * a limit must not depend on the locale, accept "inf" or "1e30", or lose low bits.
 */
static const char *parse_decimal(const char *s, uint64_t *ret_whole, uint32_t *ret_billionths)
{
    if (!isdigit((unsigned char)*s))
        return NULL;
    uint64_t whole = 0;
    for (; isdigit((unsigned char)*s); s++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*s - '0'), &whole))
            return NULL;
    uint32_t frac = 0;
    if (*s == '.') {
        uint32_t scale = 100000000;
        s++;
        if (!isdigit((unsigned char)*s))
            return NULL;
        for (; isdigit((unsigned char)*s); s++) {
            frac += (uint32_t)(*s - '0') * scale;
            scale /= 10;
        }
    }
    *ret_whole = whole;
    *ret_billionths = frac;
    return s;
}

static int memory_error(struct sl_err *err, const char *text)
{
    size_t n = strlen(text);
    if (n > 2 && (strcmp(text + n - 2, "Gb") == 0 || strcmp(text + n - 2, "GB") == 0 ||
                  strcmp(text + n - 2, "Mb") == 0 || strcmp(text + n - 2, "MB") == 0))
        return sl_err_set(err, -EINVAL, SL_E_MEMORY_UNIT, text, text + n - 2, (int)(n - 2), text,
                          text[n - 2], (int)(n - 2), text, text[n - 2]);
    return sl_err_set(err, -EINVAL, SL_E_MEMORY_BAD, text);
}

int sl_parse_memory(const char *text, struct sl_memory_amount *ret, struct sl_err *err)
{
    uint64_t whole;
    uint32_t frac;
    const char *rest = parse_decimal(text, &whole, &frac);
    if (!rest)
        return memory_error(err, text);

    if (strcmp(rest, "%") == 0) {
        if (frac != 0 || whole < 1 || whole > 100)
            return sl_err_set(err, -EINVAL, SL_E_MEMORY_PERCENT, text);
        *ret = (struct sl_memory_amount){.percent = (uint32_t)whole};
        return 0;
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(memory_suffixes); i++) {
        if (strcmp(rest, memory_suffixes[i].suffix) != 0)
            continue;
        unsigned __int128 bytes = (unsigned __int128)whole * memory_suffixes[i].factor +
                                  (unsigned __int128)frac * memory_suffixes[i].factor / 1000000000;
        if (bytes > INT64_MAX)
            return sl_err_set(err, -ERANGE, SL_E_MEMORY_HUGE, text);
        if (bytes == 0)
            return sl_err_set(err, -EINVAL, SL_E_MEMORY_ZERO, text);
        *ret = (struct sl_memory_amount){.bytes = (uint64_t)bytes};
        return 0;
    }
    return memory_error(err, text);
}

static const char *parse_percent(const char *s, uint32_t *ret_permille)
{
    uint64_t whole;
    uint32_t frac;
    const char *rest = parse_decimal(s, &whole, &frac);
    if (!rest || frac % 100000000 != 0 || whole > 100 || (whole == 100 && frac))
        return NULL;
    *ret_permille = (uint32_t)whole * 10 + frac / 100000000;
    return *ret_permille ? rest : NULL;
}

int sl_parse_cores(const char *text, uint32_t *ret_request_permille, uint32_t *ret_limit_permille,
                   struct sl_err *err)
{
    uint32_t request = 0, limit = 0;
    const char *rest = parse_percent(text, &request);
    if (rest && *rest == ':')
        rest = parse_percent(rest + 1, &limit);
    else
        limit = request;
    if (!rest || *rest != '\0')
        return sl_err_set(err, -EINVAL, SL_E_CORES_BAD, text);
    if (limit < request)
        return sl_err_set(err, -EINVAL, SL_E_CORES_ORDER, text);
    *ret_request_permille = request;
    *ret_limit_permille = limit;
    return 0;
}

const char *sl_format_bytes(uint64_t bytes, char *buf, size_t size)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit + 1 < SL_ARRAY_LEN(names)) {
        value /= 1024;
        unit++;
    }
    if (unit == 0)
        (void)snprintf(buf, size, bytes ? "%.0f B" : "%.0f", value);
    else
        (void)snprintf(buf, size, value < 100 ? "%.1f %s" : "%.0f %s", value, names[unit]);
    return buf;
}

static int format_permille(uint32_t permille, char *buf, size_t size)
{
    if (permille % 10)
        return snprintf(buf, size, "%u.%u", permille / 10, permille % 10);
    return snprintf(buf, size, "%u", permille / 10);
}

const char *sl_format_cores(uint32_t request_permille, uint32_t limit_permille, char *buf,
                            size_t size)
{
    int n = format_permille(request_permille, buf, size);
    if (limit_permille != request_permille && n > 0 && (size_t)n + 1 < size) {
        buf[n] = ':';
        (void)format_permille(limit_permille, buf + n + 1, size - (size_t)n - 1);
    }
    return buf;
}

const char *sl_format_duration(uint64_t ns, char *buf, size_t size)
{
    double s = (double)ns / 1e9;
    if (ns < 1000)
        (void)snprintf(buf, size, "%llu ns", (unsigned long long)ns);
    else if (ns < 1000000)
        (void)snprintf(buf, size, "%.0f us", s * 1e6);
    else if (ns < 1000000000)
        (void)snprintf(buf, size, "%.1f ms", s * 1e3);
    else if (s < 120)
        (void)snprintf(buf, size, "%.1f s", s);
    else
        (void)snprintf(buf, size, "%.0f min", s / 60);
    return buf;
}
