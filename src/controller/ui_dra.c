/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What DRA has promised, in books of their own: each pool of `gpu.sluice.io` is a node with its cards, each allocated
 * claim a pod with a lease. So the page and the placement engine see both worlds in one form. Kept only for the page.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"
#include "controller/mutate.h"

#define MIB        (1u << 20)
#define MIG_SLICES 7

struct pool_card {
    uint64_t slice; /* hash of the name of the slice that has it; 0: there is none */
    struct sl_promise_gpu info;
};

/* A node's devices. */
struct pool {
    struct sl_map_item item; /* by name */
    char name[254];
    struct pool_card card[SL_PROMISE_NODE_GPUS];
};

struct ui_dra {
    struct sl_cluster *cluster;
    struct sl_map pools;
};

struct ui_dra *sl_ui_dra_create(enum sl_place_policy policy, struct sl_err *err)
{
    const struct sl_cluster_options opt = {.policy = policy, .seed = 1};
    struct ui_dra *d = sl_xcalloc(1, sizeof(*d));
    if (sl_cluster_create(&opt, &d->cluster, err) == 0)
        return d;
    free(d);
    return NULL;
}

void sl_ui_dra_free(struct ui_dra *d)
{
    if (!d)
        return;
    sl_cluster_destroy(d->cluster);
    sl_map_free(&d->pools, free);
    free(d);
}

struct sl_cluster *sl_ui_dra_cluster(struct ui_dra *d)
{
    return d->cluster;
}

static struct pool *pool_find(const struct ui_dra *d, const char *name)
{
    return sl_map_find(&d->pools, name, strlen(name));
}

/* "gpu-3", "gpu-3-share", "gpu-3-mig-1g18gb-0": the card's number, and the rest of the name. */
static const char *device_card(const char *name, unsigned *ret)
{
    uint64_t number = 0;
    const char *rest = strncmp(name, "gpu-", 4) == 0
                           ? sl_number_read(name + 4, SL_PROMISE_NODE_GPUS - 1, &number)
                           : NULL;
    *ret = (unsigned)number;
    return rest;
}

static const char *attribute(const json_t *device, const char *key)
{
    return sl_jget_text(json_object_get(json_object_get(device, "attributes"), key), "string");
}

/* Any device of a card says which card it is; whole cards and shares say how much memory it has. */
static void read_device(const json_t *device, uint64_t slice, struct pool *p)
{
    unsigned number;
    uint64_t bytes = 0;
    const char *rest = device_card(sl_jget_text(device, "name"), &number);
    const json_t *memory = json_object_get(json_object_get(device, "capacity"), "memory");
    if (!rest || (*rest && strcmp(rest, "-share") != 0) ||
        sl_jget_quantity(json_object_get(memory, "value"), 0, &bytes) != 0 ||
        bytes / MIB > 64u << 20)
        return;
    struct pool_card *card = &p->card[number];
    card->slice = slice;
    card->info =
        (struct sl_promise_gpu){.memory_mib = (uint32_t)(bytes / MIB),
                                .cores = 100,
                                .numa = -1,
                                .healthy = !json_array_size(json_object_get(device, "taints"))};
    (void)snprintf(card->info.uuid, sizeof(card->info.uuid), "%s", attribute(device, "uuid"));
    (void)snprintf(card->info.model, sizeof(card->info.model), "%s",
                   attribute(device, "productName"));
    sl_utf8_mend(card->info.uuid);
    sl_utf8_mend(card->info.model);
    if (!card->info.uuid[0]) /* cards are told apart by it */
        (void)snprintf(card->info.uuid, sizeof(card->info.uuid), "gpu-%u", number);
}

/* Frees a pool without cards. */
static void tell_cluster(struct ui_dra *d, struct pool *p)
{
    struct sl_promise_node node = {.count = 0};
    struct sl_err err = SL_ERR_INIT;
    for (unsigned i = 0; i < SL_PROMISE_NODE_GPUS; i++)
        if (p->card[i].slice)
            node.gpu[node.count++] = p->card[i].info;
    if (!node.count) {
        sl_cluster_node_gone(d->cluster, p->name);
        sl_map_drop(&d->pools, &p->item);
        free(p);
        return;
    }
    char *text SL_CLEANUP(free) = sl_promise_gpus_text(&node);
    json_t *object = json_pack("{s:{s:s,s:{s:s}}}", "metadata", "name", p->name, "annotations",
                               SL_PROMISE_GPUS_KEY, text ? text : "");
    if (sl_cluster_node_set(d->cluster, object, &err) != 0)
        sl_warn("%s", err.msg);
    json_decref(object);
}

void sl_ui_dra_slice(struct ui_dra *d, bool gone, const json_t *object)
{
    const char *name = sl_jget_text(json_object_get(object, "metadata"), "name");
    const json_t *spec = json_object_get(object, "spec"), *device;
    const char *pool = sl_jget_text(json_object_get(spec, "pool"), "name");
    uint64_t slice = sl_hash_bytes(SL_HASH_START, name, strlen(name)) | 1;
    size_t i;
    if (strcmp(sl_jget_text(spec, "driver"), SL_MUTATE_DRIVER) != 0 || !pool[0] ||
        strlen(pool) >= sizeof(((struct pool *)0)->name))
        return;
    struct pool *p = pool_find(d, pool);
    if (!p) {
        p = sl_xcalloc(1, sizeof(*p));
        (void)snprintf(p->name, sizeof(p->name), "%s", pool);
        p->item.key = p->name;
        sl_map_add(&d->pools, &p->item);
    }
    for (i = 0; i < SL_PROMISE_NODE_GPUS; i++)
        if (p->card[i].slice == slice)
            p->card[i].slice = 0;
    json_array_foreach(gone ? NULL : json_object_get(spec, "devices"), i, device)
        read_device(device, slice, p);
    tell_cluster(d, p);
}

/* The amounts of one allocated device. "-mig-1g18gb-0": a seventh of the card's time, and 18 GiB. */
static struct sl_share share_of(const json_t *result, const char *rest,
                                const struct sl_promise_gpu *card)
{
    const json_t *consumed = json_object_get(result, "consumedCapacity");
    struct sl_share share = SL_SHARE_INIT;
    uint64_t bytes = (uint64_t)card->memory_mib * MIB, cores = 100, slices, gib;
    if (strncmp(rest, "-mig-", 5) == 0) {
        const char *g = sl_number_read(rest + 5, MIG_SLICES, &slices);
        if (g && *g == 'g' && sl_number_read(g + 1, 4096, &gib)) {
            cores = slices * 100 / MIG_SLICES;
            bytes = gib * 1024 * MIB < bytes ? gib * 1024 * MIB : bytes;
        }
    } else if (consumed) {
        (void)!sl_jget_quantity(json_object_get(consumed, "memory"), 0, &bytes);
        (void)!sl_jget_quantity(json_object_get(consumed, "cores"), 0, &cores);
    }
    share.memory_bytes = bytes;
    share.cores_permille = (uint32_t)(cores > 100 ? 1000 : cores * 10);
    memcpy(share.gpu, card->uuid, sizeof(card->uuid));
    return share;
}

/* The promise of a claim; false: nothing of ours is allocated. */
static bool promise_of(const struct ui_dra *d, const json_t *claim, struct sl_promise *ret)
{
    const json_t *allocation = json_object_get(json_object_get(claim, "status"), "allocation");
    const json_t *result;
    size_t i;
    memset(ret, 0, sizeof(*ret));
    json_array_foreach(json_object_get(json_object_get(allocation, "devices"), "results"), i,
                       result)
    {
        unsigned number;
        const char *rest = device_card(sl_jget_text(result, "device"), &number);
        const struct pool *p = strcmp(sl_jget_text(result, "driver"), SL_MUTATE_DRIVER) == 0
                                   ? pool_find(d, sl_jget_text(result, "pool"))
                                   : NULL;
        if (!p || !rest || !p->card[number].info.uuid[0] || ret->share_count == SL_PROMISE_SHARES ||
            (ret->node[0] && strcmp(ret->node, p->name) != 0))
            continue;
        (void)snprintf(ret->node, sizeof(ret->node), "%s", p->name);
        ret->share[ret->share_count++] = share_of(result, rest, &p->card[number].info);
    }
    (void)snprintf(ret->container[0].name, sizeof(ret->container[0].name), "claim");
    ret->container[0].count = (uint8_t)ret->share_count;
    ret->container_count = 1;
    return ret->share_count > 0;
}

/* The pod that uses the claim; where several do, how many more. */
static void user_of(const json_t *claim, char *buf, size_t size)
{
    const json_t *users = json_object_get(json_object_get(claim, "status"), "reservedFor");
    const char *pod = sl_jget_text(json_array_get(users, 0), "name");
    size_t count = json_array_size(users);
    if (!pod[0])
        (void)snprintf(buf, size, "claim %s",
                       sl_jget_text(json_object_get(claim, "metadata"), "name"));
    else if (count > 1)
        (void)snprintf(buf, size, "%s and %zu more", pod, count - 1);
    else
        (void)snprintf(buf, size, "%s", pod);
    sl_utf8_mend(buf);
}

void sl_ui_dra_claim(struct ui_dra *d, bool gone, const json_t *claim)
{
    const json_t *meta = json_object_get(claim, "metadata");
    const char *uid = sl_jget_text(meta, "uid");
    struct sl_err err = SL_ERR_INIT;
    struct sl_promise promise;
    char user[300];
    if (!uid[0])
        return;
    if (gone || !promise_of(d, claim, &promise)) {
        sl_cluster_pod_gone(d->cluster, uid);
        return;
    }
    user_of(claim, user, sizeof(user));
    char *lease SL_CLEANUP(free) = sl_promise_lease_text(&promise);
    json_t *pod =
        json_pack("{s:{s:s,s:s,s:s,s:{s:s}},s:{s:s}}", "metadata", "uid", uid, "name", user,
                  "namespace", sl_jget_text(meta, "namespace"), "annotations", SL_PROMISE_LEASE_KEY,
                  lease ? lease : "", "spec", "nodeName", promise.node);
    if (sl_cluster_pod_set(d->cluster, pod, 0, &err) != 0)
        sl_warn("%s", err.msg);
    json_decref(pod);
}
