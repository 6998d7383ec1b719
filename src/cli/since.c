/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/since.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/units.h"
#include "cli/errors.h"

/* Digits and separators only, in this form; strptime alone would take spaces and signs as well. */
static bool has_form(const char *text, const char *form)
{
    for (; *form; form++, text++)
        if (*form == '0' ? !isdigit((unsigned char)*text) : *text != *form)
            return false;
    return *text == '\0';
}

/* False: no such day or time. */
static bool date_ms(const char *text, const char *format, uint64_t *ret)
{
    struct tm tm = {.tm_isdst = -1};
    const char *end = strptime(text, format, &tm);
    int day = tm.tm_mday, month = tm.tm_mon;
    if (!end || *end)
        return false;
    time_t t = mktime(&tm);
    if (t < 0 || tm.tm_mday != day || tm.tm_mon != month) /* February 30 becomes March */
        return false;
    *ret = (uint64_t)t * 1000;
    return true;
}

int sl_since_parse(const char *text, uint64_t now_ms, uint64_t *ret_ms, struct sl_err *err)
{
    static const struct {
        const char *form, *format;
    } forms[] = {
        {"0000-00-00", "%Y-%m-%d"},
        {"0000-00-00 00:00", "%Y-%m-%d %H:%M"},
        {"0000-00-00T00:00", "%Y-%m-%dT%H:%M"},
        {"0000-00-00 00:00:00", "%Y-%m-%d %H:%M:%S"},
        {"0000-00-00T00:00:00", "%Y-%m-%dT%H:%M:%S"},
    };
    uint64_t ns, at;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (!has_form(text, forms[i].form))
            continue;
        if (!date_ms(text, forms[i].format, &at))
            return sl_err_set(err, -EINVAL, SL_E_SINCE_NO_DAY, text);
        if (at > now_ms)
            return sl_err_set(err, -EINVAL, SL_E_SINCE_FUTURE, text);
        *ret_ms = at;
        return 0;
    }
    if (sl_parse_duration(text, &ns, NULL) < 0)
        return sl_err_set(err, -EINVAL, SL_E_SINCE_BAD, text);
    at = ns / SL_NS_PER_MS;
    *ret_ms = at < now_ms ? now_ms - at : 0;
    return 0;
}
