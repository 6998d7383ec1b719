/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShareConfig, the opaque parameters of gpu.sluice.io in a claim or a DeviceClass. share/share_json.h has the fields of
 * a share; in a DeviceClass there is also a field with the rights of its claims:
 *
 *   allow: {…}   # as sharing.fractional.allow of the node's configuration, and `namespaces: [team-*]`: only those
 *
 * All fields but apiVersion and kind may be left out. Unknown keys are errors: a misspelt limit is no limit.
 */
#include "agent/dra/claim.h"

#include <errno.h>
#include <string.h>

#include "agent/dra/errors.h"

static const char *const resizes[] = {
    [SL_ALLOW_NEVER] = "never", [SL_ALLOW_ALLOCATED] = "allocated", [SL_ALLOW_FREE] = "free", NULL};

static int read_percent(const json_t *value, const char *key, unsigned *ret, struct sl_err *err)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < 0 || n > 100)
        return sl_err_set(err, -EINVAL, SL_E_ALLOW_PERCENT, key);
    *ret = (unsigned)n;
    return 0;
}

static int read_strategies(const json_t *list, unsigned *ret, struct sl_err *err)
{
    size_t i;
    const json_t *one;
    unsigned n = 0;
    if (!json_is_array(list))
        return sl_err_set(err, -EINVAL, SL_E_ALLOW_STRATEGIES);
    json_array_foreach(list, i, one)
    {
        int rc = sl_share_config_word(one, "allow.strategies", sl_strategy_words, &n, err);
        if (rc < 0)
            return rc;
        *ret |= 1u << n;
    }
    return 0;
}

/* Is the claim's namespace in the list? Without a list every namespace is. */
static int read_spaces(const json_t *list, const char *name_space, bool *ret, struct sl_err *err)
{
    size_t i;
    const json_t *one;
    *ret = false;
    if (!json_is_array(list))
        return sl_err_set(err, -EINVAL, SL_E_ALLOW_NAMESPACES);
    json_array_foreach(list, i, one)
    {
        if (!json_is_string(one))
            return sl_err_set(err, -EINVAL, SL_E_ALLOW_NAMESPACE);
        *ret |= sl_config_match(json_string_value(one), name_space);
    }
    return 0;
}

static int read_allow(const json_t *allow, const struct sl_share_reader *reader, struct sl_err *err)
{
    struct sl_config_allow a = {.strategies = 0};
    bool ours = true;
    const char *key;
    json_t *value;
    unsigned n = 0;
    if (!reader->allow)
        return sl_err_set(err, -EINVAL, SL_E_ALLOW_IN_CLAIM);
    if (!json_is_object(allow))
        return sl_err_set(err, -EINVAL, SL_E_ALLOW_MAPPING);
    json_object_foreach((json_t *)(uintptr_t)allow, key, value)
    {
        int rc = 0;
        if (strcmp(key, "strategies") == 0)
            rc = read_strategies(value, &a.strategies, err);
        else if (strcmp(key, "namespaces") == 0)
            rc = read_spaces(value, reader->name_space, &ours, err);
        else if (strcmp(key, "burst") == 0)
            rc = read_percent(value, key, &a.burst, err);
        else if (strcmp(key, "resizeTo") == 0)
            rc = read_percent(value, key, &a.resize_to, err);
        else if (strcmp(key, "priority") == 0 &&
                 (rc = sl_share_config_word(value, "allow.priority", sl_priority_words, &n, err)) ==
                     0)
            a.priority = (enum sl_priority)n;
        else if (strcmp(key, "resize") == 0 &&
                 (rc = sl_share_config_word(value, "allow.resize", resizes, &n, err)) == 0)
            a.resize = (enum sl_allow_resize)n;
        else if (rc == 0)
            rc = sl_err_set(err, -EINVAL, SL_E_ALLOW_KEY, key);
        if (rc < 0)
            return rc;
    }
    if (ours)
        sl_config_allow_add(reader->allow, &a);
    return 0;
}

int sl_share_config_apply(const json_t *parameters, const struct sl_share_reader *reader,
                          struct sl_share *share, struct sl_err *err)
{
    struct sl_share s = *share;
    const char *version = json_string_value(json_object_get(parameters, "apiVersion"));
    const char *kind = json_string_value(json_object_get(parameters, "kind"));
    if (!version || strcmp(version, SL_SHARE_API_VERSION) != 0 || !kind ||
        strcmp(kind, SL_SHARE_KIND) != 0)
        return sl_err_set(err, -EINVAL, SL_E_SHARE_KIND, version ? version : "without apiVersion",
                          kind ? kind : "without kind", SL_SHARE_API_VERSION, SL_SHARE_KIND);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)parameters, key, value)
    {
        if (strcmp(key, "apiVersion") == 0 || strcmp(key, "kind") == 0)
            continue;
        int rc = strcmp(key, "allow") == 0 ? read_allow(value, reader, err)
                                           : sl_share_config_key(key, value, &s, err);
        if (rc < 0)
            return rc;
    }
    *share = s;
    return 0;
}
