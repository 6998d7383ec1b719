/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/quantity.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define EXACT (1ULL << 53) /* beyond it a double skips whole numbers */

int sl_ctl_quantity(const json_t *value, uint64_t *ret)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},         {"m", 1e-3},     {"k", 1e3},     {"M", 1e6},
                 {"G", 1e9},      {"T", 1e12},     {"P", 1e15},    {"Ki", 1024.0},
                 {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}};
    const char *text = json_string_value(value);
    char *end;
    if (json_is_integer(value)) {
        if (json_integer_value(value) < 0)
            return -EINVAL;
        *ret = (uint64_t)json_integer_value(value);
        return 0;
    }
    if (!text || ((text[0] < '0' || text[0] > '9') && text[0] != '.'))
        return -EINVAL;
    double v = strtod(text, &end);
    for (size_t i = 0; i < SL_ARRAY_LEN(units); i++)
        if (strcmp(end, units[i].suffix) == 0) {
            v *= units[i].factor;
            if (!(v >= 0) || v > (double)EXACT)
                return -EINVAL;
            *ret = (uint64_t)v;
            return 0;
        }
    return -EINVAL;
}
