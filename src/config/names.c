/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "config/errors.h"
#include "config/schema.h"

/* Lower-case letters, digits, '-' and '.', each part between dots beginning and ending with a letter
 * or digit: what the API server takes after the '/'. */
static bool is_subdomain(const char *name)
{
    char before = '.';
    for (; *name; before = *name++) {
        bool alnum = (*name >= 'a' && *name <= 'z') || (*name >= '0' && *name <= '9');
        if (!alnum && *name != '-' && *name != '.')
            return false;
        if (!alnum && before == '.')
            return false;
        if (*name == '.' && before == '-')
            return false;
    }
    return before != '-' && before != '.';
}

int sl_name_make(const struct sl_draft *d, const struct sl_scalar *s, char **ret,
                 struct sl_err *err)
{
    const char *slash = strchr(s->text, '/');
    const char *name = s->text;
    if (slash) {
        if (strncmp(name, SL_DOMAIN, strlen(SL_DOMAIN)) != 0)
            return sl_config_fail(d, s->at, err, -EINVAL, SL_E_RESOURCE_DOMAIN, s->text);
        name += strlen(SL_DOMAIN);
    }
    if (!*name)
        return sl_config_fail(d, s->at, err, -EINVAL, SL_E_RESOURCE_EMPTY);
    size_t len = strlen(SL_DOMAIN) + strlen(name);
    if (len > SL_RESOURCE_NAME_MAX)
        return sl_config_fail(d, s->at, err, -EINVAL, SL_E_RESOURCE_LONG, SL_DOMAIN, name, len,
                              SL_RESOURCE_NAME_MAX);
    if (!is_subdomain(name))
        return sl_config_fail(d, s->at, err, -EINVAL, SL_E_RESOURCE_BAD, s->text);
    char *full = sl_xmalloc(len + 1);
    (void)snprintf(full, len + 1, SL_DOMAIN "%s", name);
    *ret = full;
    return 0;
}
