/* SPDX-License-Identifier: Apache-2.0 */
#include "share/resize.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "share/errors.h"

int sl_resize_parse(const char *text, struct sl_resize *ret, struct sl_err *err)
{
    struct sl_resize r = {0};
    const char *p = text;
    do {
        char item[64];
        size_t n = strcspn(p, ",");
        (void)snprintf(item, sizeof(item), "%.*s", (int)(n < sizeof(item) ? n : sizeof(item) - 1),
                       p);
        struct sl_memory_amount m = {0};
        int rc = -EINVAL;
        if (strncmp(item, "memory=", 7) == 0) {
            rc = sl_parse_memory(item + 7, &m, err);
            r.memory_bytes = m.bytes;
            if (rc == 0 && m.percent)
                rc = -EINVAL;
        } else if (strncmp(item, "cores=", 6) == 0) {
            rc = sl_parse_cores(item + 6, &r.cores_permille, &r.limit_permille, err);
        }
        if (rc < 0)
            return sl_err_set(err, -EINVAL, SL_E_RESIZE_BAD, SL_RESIZE_KEY, item);
        p += n;
    } while (*p++ == ',');
    *ret = r;
    return 0;
}

struct sl_share sl_resize_share(const struct sl_share *allocated, const struct sl_resize *r)
{
    struct sl_share now = *allocated;
    if (r->memory_bytes)
        now.memory_bytes = r->memory_bytes;
    if (r->cores_permille)
        now.cores_permille = r->cores_permille;
    if (r->limit_permille > now.limit_permille)
        now.limit_permille = r->limit_permille;
    if (now.limit_permille < now.cores_permille)
        now.limit_permille = now.cores_permille;
    return now;
}
