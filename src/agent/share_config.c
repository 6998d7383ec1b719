/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/share_config.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

static const char *const strategies[] = {
    [SL_SHARE_LIBSLUICE] = "libsluice", [SL_SHARE_MPS] = "mps", [SL_SHARE_TIME_SLICING] = "timeSlicing"};
static const char *const priorities[] = {
    [SL_PRIORITY_LOW] = "low", [SL_PRIORITY_NORMAL] = "normal", [SL_PRIORITY_HIGH] = "high"};

const char *sl_share_strategy_name(enum sl_share_strategy strategy)
{
    return strategies[strategy];
}

/* A word of a list. */
static int word(const json_t *value, const char *key, const char *const *list, size_t count,
                unsigned *ret, struct sl_err *err)
{
    const char *text = json_string_value(value);
    for (size_t i = 0; text && i < count; i++)
        if (strcmp(text, list[i]) == 0) {
            *ret = (unsigned)i;
            return 0;
        }
    return sl_err_set(err, -EINVAL, "ShareConfig: %s \"%.40s\" is not known: write %s, %s or %s", key,
                      text ? text : "(not a string)", list[0], list[1], list[2]);
}

static int read_cores(const json_t *cores, struct sl_share_config *c, struct sl_err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(cores))
        return sl_err_set(err, -EINVAL,
                          "ShareConfig: cores is a mapping: write `cores: {limit: 100}`; the share "
                          "itself is the request's capacity");
    /* jansson wants it writable for iteration only. */
    json_object_foreach((json_t *)(uintptr_t)cores, key, value)
    {
        if (strcmp(key, "limit") != 0)
            return sl_err_set(err, -EINVAL,
                              "ShareConfig: cores.%.40s is not known: cores has only limit", key);
        json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
        if (n < 1 || n > 100)
            return sl_err_set(err, -EINVAL,
                              "ShareConfig: cores.limit is a whole percentage of one GPU from 1 to "
                              "100: write for example `limit: 100`");
        c->cores_limit_permille = (uint32_t)n * 10;
    }
    return 0;
}

static int read_key(const char *key, const json_t *value, struct sl_share_config *c,
                    struct sl_err *err)
{
    unsigned n = 0;
    int rc;
    if (strcmp(key, "apiVersion") == 0 || strcmp(key, "kind") == 0)
        return 0;
    if (strcmp(key, "priority") == 0) {
        rc = word(value, key, priorities, SL_ARRAY_LEN(priorities), &n, err);
        if (rc == 0)
            c->priority = (enum sl_priority)n;
        return rc;
    }
    if (strcmp(key, "strategy") == 0) {
        rc = word(value, key, strategies, SL_ARRAY_LEN(strategies), &n, err);
        if (rc == 0)
            c->strategy = (enum sl_share_strategy)n;
        return rc;
    }
    if (strcmp(key, "cores") == 0)
        return read_cores(value, c, err);
    return sl_err_set(err, -EINVAL,
                      "ShareConfig: %.40s is not known: it has priority, cores.limit and strategy; "
                      "memory and cores of the share are the request's capacity",
                      key);
}

int sl_share_config_apply(const json_t *parameters, struct sl_share_config *config,
                          struct sl_err *err)
{
    struct sl_share_config c = *config;
    const char *version = json_string_value(json_object_get(parameters, "apiVersion"));
    const char *kind = json_string_value(json_object_get(parameters, "kind"));
    if (!version || strcmp(version, SL_SHARE_API_VERSION) != 0 || !kind ||
        strcmp(kind, SL_SHARE_KIND) != 0)
        return sl_err_set(err, -EINVAL,
                          "the opaque parameters are %.60s %.40s: write apiVersion: "
                          SL_SHARE_API_VERSION " and kind: " SL_SHARE_KIND,
                          version ? version : "without apiVersion", kind ? kind : "without kind");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)parameters, key, value)
    {
        int rc = read_key(key, value, &c, err);
        if (rc < 0)
            return rc;
        c.any |= strcmp(key, "apiVersion") != 0 && strcmp(key, "kind") != 0;
    }
    *config = c;
    return 0;
}
