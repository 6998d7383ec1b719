/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/quota.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/xalloc.h"
#include "controller/errors.h"

#define NO_LIMIT UINT64_MAX

struct quota_limit {
    struct sl_map_item item;
    char key[320]; /* namespace/name */
    uint64_t memory_mib, cores;
};

struct quota_pending {
    struct quota_pending *next;
    char admission[64], name_space[64];
    uint64_t memory_mib, cores, until_ns;
};

/* The words of quotas, with or without "limits." or "requests." before them. */
static const struct {
    const char *name;
    bool cores;
    uint64_t unit_mib;
} words[] = {{"nvidia.com/gpumem", false, 1},      {"nvidia.com/gpucores", true, 1},
             {"volcano.sh/vgpu-memory", false, 1}, {"volcano.sh/vgpu-cores", true, 1},
             {"volcano.sh/gpu-memory", false, 1},  {"aliyun.com/gpu-mem", false, 1024}};

static int key_of(const char *name_space, const char *name, char key[320])
{
    return snprintf(key, 320, "%s/%s", name_space, name) < 320 ? 0 : -ENAMETOOLONG;
}

static int read_hard(const json_t *hard, struct quota_limit *l, struct sl_err *err)
{
    const char *key;
    json_t *value;
    l->memory_mib = l->cores = NO_LIMIT;
    json_object_foreach((json_t *)(uintptr_t)hard, key, value)
    {
        const char *name = strncmp(key, "limits.", 7) == 0     ? key + 7
                           : strncmp(key, "requests.", 9) == 0 ? key + 9
                                                               : key;
        for (size_t i = 0; i < SL_ARRAY_LEN(words); i++) {
            uint64_t n, *at = words[i].cores ? &l->cores : &l->memory_mib;
            if (strcmp(name, words[i].name) != 0)
                continue;
            if (sl_jget_quantity(value, 0, &n) != 0)
                return sl_err_set(err, -EINVAL, SL_E_QUOTA_BAD, key);
            n = n > NO_LIMIT / 1024 ? NO_LIMIT - 1 : n * words[i].unit_mib;
            *at = n < *at ? n : *at; /* the smaller of two counts */
        }
    }
    return 0;
}

void sl_quota_gone(struct sl_quota *q, const char *name_space, const char *name)
{
    char key[320];
    struct quota_limit *l =
        key_of(name_space, name, key) ? NULL : sl_map_find(&q->limits, key, strlen(key));
    if (!l)
        return;
    sl_map_drop(&q->limits, &l->item);
    free(l);
}

int sl_quota_set(struct sl_quota *q, const json_t *object, struct sl_err *err)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *name = sl_jget_text(meta, "name"), *space = sl_jget_text(meta, "namespace");
    struct quota_limit l = {.key = ""};
    if (!name[0] || !space[0] || key_of(space, name, l.key) != 0)
        return sl_err_set(err, -EINVAL, SL_E_QUOTA_NAME);
    sl_quota_gone(q, space, name);
    int rc = read_hard(json_object_get(json_object_get(object, "spec"), "hard"), &l, err);
    if (rc)
        return sl_err_wrap(err, "ResourceQuota %s", l.key);
    if (l.memory_mib == NO_LIMIT && l.cores == NO_LIMIT)
        return 0;
    struct quota_limit *kept = sl_xmalloc(sizeof(*kept));
    *kept = l;
    kept->item.key = kept->key;
    sl_map_add(&q->limits, &kept->item);
    return 0;
}

void sl_quota_free(struct sl_quota *q)
{
    sl_map_free(&q->limits, free);
    sl_quota_expire(q, UINT64_MAX);
}

static int over(const char *what, const char *unit, const struct quota_limit *l, uint64_t limit,
                uint64_t used, uint64_t more, struct sl_err *err)
{
    if (more == 0 || limit == NO_LIMIT || (used <= limit && more <= limit - used))
        return 0;
    return sl_err_set(err, -EDQUOT, SL_E_QUOTA_REACHED, l->key, (unsigned long long)limit, unit,
                      what, (unsigned long long)used, (unsigned long long)more);
}

static bool is_of(const struct quota_limit *l, const char *name_space)
{
    size_t size = strlen(name_space);
    return strncmp(l->key, name_space, size) == 0 && l->key[size] == '/';
}

bool sl_quota_covers(const struct sl_quota *q, const char *name_space)
{
    struct sl_map_walk walk = {.bucket = 0};
    const struct quota_limit *l;
    while ((l = sl_map_next(&q->limits, &walk)))
        if (is_of(l, name_space))
            return true;
    return false;
}

int sl_quota_check(const struct sl_quota *q, const struct sl_cluster *c, const char *name_space,
                   uint64_t memory_mib, uint64_t cores, struct sl_err *err)
{
    uint64_t used_memory, used_cores;
    struct sl_map_walk walk = {.bucket = 0};
    const struct quota_limit *l;
    int rc = 0;
    sl_cluster_used(c, name_space, &used_memory, &used_cores);
    for (const struct quota_pending *p = q->pending; p; p = p->next)
        if (strcmp(p->name_space, name_space) == 0) {
            used_memory += p->memory_mib;
            used_cores += p->cores;
        }
    while (!rc && (l = sl_map_next(&q->limits, &walk))) {
        if (!is_of(l, name_space))
            continue;
        rc = over("memory", "MiB", l, l->memory_mib, used_memory, memory_mib, err);
        if (!rc)
            rc = over("time", "percent", l, l->cores, used_cores, cores, err);
    }
    return rc;
}

void sl_quota_admit(struct sl_quota *q, const char *admission, const char *name_space,
                    uint64_t memory_mib, uint64_t cores, uint64_t until_ns)
{
    struct quota_pending *p = sl_xcalloc(1, sizeof(*p));
    (void)snprintf(p->admission, sizeof(p->admission), "%s", admission);
    (void)snprintf(p->name_space, sizeof(p->name_space), "%s", name_space);
    p->memory_mib = memory_mib;
    p->cores = cores;
    p->until_ns = until_ns;
    p->next = q->pending;
    q->pending = p;
}

static void drop_pending(struct sl_quota *q, const char *admission, uint64_t now_ns)
{
    for (struct quota_pending **at = &q->pending; *at;) {
        struct quota_pending *p = *at;
        if (p->until_ns > now_ns && strcmp(p->admission, admission) != 0) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
}

void sl_quota_seen(struct sl_quota *q, const char *admission)
{
    drop_pending(q, admission, 0);
}

void sl_quota_expire(struct sl_quota *q, uint64_t now_ns)
{
    drop_pending(q, "", now_ns);
}
