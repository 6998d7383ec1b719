/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/errors.h"
#include "base/quantity.h"

typedef unsigned __int128 wide;

#define BILLION 1000000000u

/* The units that people write: no exponents, nothing below a byte. */
static bool memory_unit(const char *text)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"};
    for (size_t i = 0; i < SL_ARRAY_LEN(units); i++)
        if (strcmp(text, units[i]) == 0)
            return true;
    return false;
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

/* `10gi` can only mean `10Gi`. (`10m` is ambiguous: a thousandth in Kubernetes.) */
static const char *binary_unit(const char *text, const char *rest, char buf[64])
{
    static const char letters[] = "KMGTP";
    const char *letter = rest[0] ? strchr(letters, rest[0] & ~0x20) : NULL;
    if (!letter || (rest[1] | 0x20) != 'i' || rest[2] || rest - text > 60)
        return text;
    (void)snprintf(buf, 64, "%.*s%ci", (int)(rest - text), text, *letter);
    return buf;
}

int sl_parse_memory(const char *text, struct sl_memory_amount *ret, struct sl_err *err)
{
    wide billionths;
    uint64_t bytes;
    const char *rest = sl_decimal_read(text, &billionths);
    if (!rest)
        return memory_error(err, text);
    if (strcmp(rest, "%") == 0) {
        if (billionths % BILLION || billionths == 0 || billionths > (wide)100 * BILLION)
            return sl_err_set(err, -EINVAL, SL_E_MEMORY_PERCENT, text);
        *ret = (struct sl_memory_amount){.percent = (uint32_t)(billionths / BILLION)};
        return 0;
    }
    char buf[64];
    const char *number = binary_unit(text, rest, buf);
    rest = number + (rest - text);
    int rc = memory_unit(rest) ? sl_quantity_parse(number, 0, &bytes) : -EINVAL;
    if (rc == -ERANGE)
        return sl_err_set(err, -ERANGE, SL_E_MEMORY_HUGE, text);
    if (rc < 0)
        return memory_error(err, text);
    if (bytes == 0)
        return sl_err_set(err, -EINVAL, SL_E_MEMORY_ZERO, text);
    *ret = (struct sl_memory_amount){.bytes = bytes};
    return 0;
}

static const char *parse_percent(const char *s, uint32_t *ret_permille)
{
    const wide tenth = BILLION / 10;
    wide billionths;
    const char *rest = sl_decimal_read(s, &billionths);
    if (!rest || billionths == 0 || billionths % tenth || billionths > 1000 * tenth)
        return NULL;
    *ret_permille = (uint32_t)(billionths / tenth);
    return rest + (*rest == '%');
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

int sl_parse_duration(const char *text, uint64_t *ret_ns, struct sl_err *err)
{
    static const struct {
        const char *name;
        uint64_t seconds;
    } unit[] = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    uint64_t number = 0;
    const char *rest = sl_number_read(text, 100000, &number);
    for (size_t i = 0; rest && number > 0 && i < SL_ARRAY_LEN(unit); i++)
        if (strcmp(rest, unit[i].name) == 0) {
            *ret_ns = number * unit[i].seconds * 1000000000ULL;
            return 0;
        }
    return sl_err_set(err, -EINVAL, SL_E_TIME_BAD, text);
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
    else if (s < 7200)
        (void)snprintf(buf, size, "%.0f min", s / 60);
    else if (s < 2 * 86400)
        (void)snprintf(buf, size, "%.1f h", s / 3600);
    else
        (void)snprintf(buf, size, "%.1f d", s / 86400);
    return buf;
}
