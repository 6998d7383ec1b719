/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/claims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/xalloc.h"
#include "controller/errors.h"
#include "controller/mutate.h"

#define RESULTS 32
#define MIB     (1u << 20)

struct claims_pool {
    struct sl_map_item item; /* by name, which is the node's name */
    char name[254];
    uint64_t total_mib, used_mib;
    size_t users; /* slices and claims that use this entry */
};

struct claims_slice {
    struct sl_map_item item; /* by name */
    char name[254];
    struct claims_pool *pool;
    uint64_t total_mib;
    uint32_t size_mib[SL_CLAIMS_SIZES];
    size_t size_count;
};

struct claims_claim {
    struct sl_map_item item; /* by uid */
    char uid[64];
    size_t count;
    struct {
        struct claims_pool *pool;
        uint64_t mib;
    } part[];
};

static struct claims_pool *pool_get(struct sl_claims *c, const char *name)
{
    struct claims_pool *p = sl_map_find(&c->pools, name, strlen(name));
    if (!p && strlen(name) < sizeof(p->name)) {
        p = sl_xcalloc(1, sizeof(*p));
        (void)snprintf(p->name, sizeof(p->name), "%s", name);
        p->item.key = p->name;
        sl_map_add(&c->pools, &p->item);
    }
    if (p)
        p->users++;
    return p;
}

static void pool_put(struct sl_claims *c, struct claims_pool *p)
{
    if (--p->users)
        return;
    sl_map_drop(&c->pools, &p->item);
    free(p);
}

static void add_size(uint32_t *sizes, size_t *count, uint32_t mib)
{
    size_t at = 0;
    while (at < *count && sizes[at] < mib)
        at++;
    if ((at < *count && sizes[at] == mib) || *count == SL_CLAIMS_SIZES)
        return;
    memmove(sizes + at + 1, sizes + at, (*count - at) * sizeof(*sizes));
    sizes[at] = mib;
    (*count)++;
}

static void sizes_again(struct sl_claims *c)
{
    struct sl_map_walk walk = {.bucket = 0};
    const struct claims_slice *s;
    c->size_count = 0;
    while ((s = sl_map_next(&c->slices, &walk)))
        for (size_t i = 0; i < s->size_count; i++)
            add_size(c->size_mib, &c->size_count, s->size_mib[i]);
}

void sl_claims_slice_gone(struct sl_claims *c, const char *name)
{
    struct claims_slice *s = sl_map_find(&c->slices, name, strlen(name));
    if (!s)
        return;
    s->pool->total_mib -= s->total_mib;
    pool_put(c, s->pool);
    sl_map_drop(&c->slices, &s->item);
    free(s);
    sizes_again(c);
}

static bool is_driver(const json_t *object)
{
    const char *driver = sl_jget_text(object, "driver");
    return strcmp(driver, SL_MUTATE_DRIVER) == 0 || strcmp(driver, SL_MUTATE_DRIVER_NVIDIA) == 0;
}

/* Under NVIDIA's name our own attributes have their domain. */
static const char *type_of(const json_t *attributes)
{
    const json_t *own = json_object_get(attributes, SL_MUTATE_DRIVER "/type");
    return sl_jget_text(own ? own : json_object_get(attributes, "type"), "string");
}

static void read_devices(const json_t *devices, struct claims_slice *s)
{
    const json_t *d;
    size_t i;
    json_array_foreach(devices, i, d)
    {
        uint64_t bytes;
        const json_t *attributes = json_object_get(d, "attributes");
        const json_t *memory = json_object_get(json_object_get(d, "capacity"), "memory");
        if (strcmp(type_of(attributes), "share") != 0 ||
            sl_jget_quantity(json_object_get(memory, "value"), 0, &bytes) != 0 ||
            bytes / MIB == 0 || bytes / MIB > 64u << 20)
            continue;
        s->total_mib += bytes / MIB;
        add_size(s->size_mib, &s->size_count, (uint32_t)(bytes / MIB));
    }
}

int sl_claims_slice_set(struct sl_claims *c, const json_t *object, struct sl_err *err)
{
    const char *name = sl_jget_text(json_object_get(object, "metadata"), "name");
    const json_t *spec = json_object_get(object, "spec");
    const char *pool = sl_jget_text(json_object_get(spec, "pool"), "name");
    sl_claims_slice_gone(c, name);
    if (!is_driver(spec) || !pool[0])
        return 0;
    struct claims_slice *s = sl_xcalloc(1, sizeof(*s));
    if (strlen(name) >= sizeof(s->name) || !(s->pool = pool_get(c, pool))) {
        free(s);
        return sl_err_set(err, -ENAMETOOLONG, SL_E_SLICE_NAME_LONG);
    }
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    s->item.key = s->name;
    read_devices(json_object_get(spec, "devices"), s);
    sl_map_add(&c->slices, &s->item);
    s->pool->total_mib += s->total_mib;
    sizes_again(c);
    return 0;
}

void sl_claims_claim_gone(struct sl_claims *c, const char *uid)
{
    struct claims_claim *k = sl_map_find(&c->claims, uid, strlen(uid));
    if (!k)
        return;
    for (size_t i = 0; i < k->count; i++) {
        k->part[i].pool->used_mib -= k->part[i].mib;
        pool_put(c, k->part[i].pool);
    }
    sl_map_drop(&c->claims, &k->item);
    free(k);
}

/* The allocated memory of a share. A whole card has no such figure: it counts as the largest card. */
static uint64_t result_mib(const struct sl_claims *c, const json_t *result)
{
    uint64_t bytes;
    const json_t *consumed = json_object_get(result, "consumedCapacity");
    if (sl_jget_quantity(json_object_get(consumed, "memory"), 0, &bytes) == 0)
        return bytes / MIB;
    return c->size_count ? c->size_mib[c->size_count - 1] : 0;
}

void sl_claims_claim_set(struct sl_claims *c, const json_t *object)
{
    const char *uid = sl_jget_text(json_object_get(object, "metadata"), "uid");
    const json_t *allocation = json_object_get(json_object_get(object, "status"), "allocation");
    const json_t *results = json_object_get(json_object_get(allocation, "devices"), "results"), *r;
    size_t i, count = json_array_size(results);
    sl_claims_claim_gone(c, uid);
    if (count == 0 || count > RESULTS || strlen(uid) >= sizeof(((struct claims_claim *)0)->uid))
        return;
    struct claims_claim *k = sl_xcalloc(1, sizeof(*k) + count * sizeof(k->part[0]));
    (void)snprintf(k->uid, sizeof(k->uid), "%s", uid);
    k->item.key = k->uid;
    json_array_foreach(results, i, r)
    {
        struct claims_pool *pool = is_driver(r) ? pool_get(c, sl_jget_text(r, "pool")) : NULL;
        if (!pool)
            continue;
        k->part[k->count].pool = pool;
        k->part[k->count].mib = result_mib(c, r);
        pool->used_mib += k->part[k->count++].mib;
    }
    if (k->count)
        sl_map_add(&c->claims, &k->item);
    else
        free(k);
}

void sl_claims_free(struct sl_claims *c)
{
    struct sl_map *const tables[] = {&c->slices, &c->claims, &c->pools};
    for (size_t t = 0; t < SL_ARRAY_LEN(tables); t++)
        sl_map_free(tables[t], free);
}

unsigned sl_claims_fullness(const struct sl_claims *c, const char *node)
{
    const struct claims_pool *p = sl_map_find(&c->pools, node, strlen(node));
    if (!p || !p->total_mib)
        return 0;
    uint64_t full = p->used_mib * 1000 / p->total_mib;
    return full > 1000 ? 1000 : (unsigned)full;
}
