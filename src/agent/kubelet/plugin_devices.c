/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of a resource: copies that outlive the plan, look-up by id, health, and the list on the wire. */
#include "agent/kubelet/errors.h"
#include "agent/kubelet/plugin_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/xalloc.h"
#include "deviceplugin.pb-c.h"
#include "rpc/pb.h"

void sl_plugin_cards_copy(const struct sl_inventory *inv, struct plugin_cards *ret)
{
    struct plugin_cards c = {.count = inv->gpu_count};
    size_t n = c.count;
    c.uuid = sl_xcalloc(n + 1, sizeof(*c.uuid));
    c.lost = sl_xcalloc(n + 1, sizeof(*c.lost));
    c.numa = sl_xcalloc(n + 1, sizeof(*c.numa));
    c.links = inv->nvlinks ? sl_xcalloc(n * n + 1, 1) : NULL;
    for (size_t i = 0; i < n; i++) {
        memcpy(c.uuid[i], inv->gpu[i].info.uuid, sizeof(c.uuid[i]));
        c.lost[i] = inv->gpu[i].lost;
        c.numa[i] = inv->gpu[i].info.numa_node;
    }
    if (c.links)
        memcpy(c.links, inv->nvlinks, n * n);
    *ret = c;
}

void sl_plugin_cards_free(struct plugin_cards *cards)
{
    free(cards->uuid);
    free(cards->lost);
    free(cards->numa);
    free(cards->links);
    *cards = (struct plugin_cards){0};
}

static int compare_ids(const void *a, const void *b, void *data)
{
    const struct sl_plan_device *device = data;
    return strcmp(device[*(const uint32_t *)a].id, device[*(const uint32_t *)b].id);
}

size_t sl_plugin_devices_find(const struct plugin_devices *devices, const char *id)
{
    size_t low = 0, high = devices->res.device_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(id, devices->res.device[devices->by_id[middle]].id);
        if (order == 0)
            return devices->by_id[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return SIZE_MAX;
}

static int check_devices(const struct sl_plan_resource *res, const struct plugin_cards *cards,
                         struct sl_err *err)
{
    /* protobuf-c does not check UTF-8; kubelet's decoder does, and drops the connection. */
    if (!sl_utf8_valid(res->name))
        return sl_err_set(err, -EINVAL, SL_E_RESOURCE_UTF8);
    for (size_t i = 0; i < res->device_count; i++) {
        const struct sl_plan_device *d = &res->device[i];
        if (d->gpu >= cards->count)
            return sl_err_set(err, -EINVAL, SL_E_PLAN_GPU, res->name, d->id, d->gpu, cards->count);
        if (!d->id[0] || !sl_utf8_valid(d->id))
            return sl_err_set(err, -EINVAL, SL_E_DEVICE_UTF8, res->name, i);
    }
    return 0;
}

static int compare_units(const void *a, const void *b, void *data)
{
    const struct sl_plan_device *x = (struct sl_plan_device *)data + *(const uint32_t *)a;
    const struct sl_plan_device *y = (struct sl_plan_device *)data + *(const uint32_t *)b;
    if (x->gpu != y->gpu)
        return x->gpu < y->gpu ? -1 : 1;
    return x->mig < y->mig ? -1 : x->mig > y->mig;
}

/* Units in the order of cards; by_id serves as the list to sort. */
static void find_units(struct plugin_devices *d)
{
    size_t n = d->res.device_count;
    d->whole = true;
    qsort_r(d->by_id, n, sizeof(*d->by_id), compare_units, d->res.device);
    for (size_t i = 0; i < n; i++) {
        const struct sl_plan_device *device = &d->res.device[d->by_id[i]];
        struct plugin_unit *last = d->unit_count ? &d->units[d->unit_count - 1] : NULL;
        if (!last || last->gpu != device->gpu || last->mig != device->mig) {
            last = &d->units[d->unit_count++];
            *last = (struct plugin_unit){.gpu = device->gpu, .mig = device->mig};
        }
        last->replicas++;
        d->unit_of[d->by_id[i]] = (uint32_t)(d->unit_count - 1);
        d->whole &= device->mig == SL_NO_MIG && last->replicas == 1;
        d->fractions |= device->sharing == SL_SHARING_FRACTIONAL;
    }
}

static int index_devices(struct plugin_devices *d, struct sl_err *err)
{
    size_t n = d->res.device_count;
    for (size_t i = 0; i < n; i++)
        d->by_id[i] = (uint32_t)i;
    find_units(d);
    qsort_r(d->by_id, n, sizeof(*d->by_id), compare_ids, d->res.device);
    for (size_t i = 1; i < n; i++)
        if (strcmp(d->res.device[d->by_id[i - 1]].id, d->res.device[d->by_id[i]].id) == 0)
            return sl_err_set(err, -EEXIST, SL_E_PLAN_IDS, d->res.name,
                              d->res.device[d->by_id[i]].id);
    return 0;
}

int sl_plugin_devices_copy(const struct sl_plan_resource *res, const struct plugin_cards *cards,
                           struct plugin_devices *ret, struct sl_err *err)
{
    int rc = check_devices(res, cards, err);
    if (rc < 0)
        return rc;
    size_t n = res->device_count;
    struct plugin_devices d = {.res = *res};
    d.res.device = sl_xcalloc(n + 1, sizeof(*d.res.device));
    d.healthy = sl_xcalloc(n + 1, sizeof(*d.healthy));
    d.by_id = sl_xcalloc(n + 1, sizeof(*d.by_id));
    d.unit_of = sl_xcalloc(n + 1, sizeof(*d.unit_of));
    d.units = sl_xcalloc(n + 1, sizeof(*d.units));
    if (n)
        memcpy(d.res.device, res->device, n * sizeof(*res->device));
    rc = index_devices(&d, err);
    if (rc < 0) {
        sl_plugin_devices_free(&d);
        return rc;
    }
    *ret = d;
    return 0;
}

void sl_plugin_devices_free(struct plugin_devices *devices)
{
    free(devices->res.device);
    free(devices->healthy);
    free(devices->by_id);
    free(devices->unit_of);
    free(devices->units);
    *devices = (struct plugin_devices){0};
}

/* Do both look the same to kubelet? */
bool sl_plugin_devices_equal(const struct plugin_devices *a, const struct plugin_devices *b)
{
    if (a->res.device_count != b->res.device_count)
        return false;
    for (size_t i = 0; i < a->res.device_count; i++) {
        const struct sl_plan_device *x = &a->res.device[a->by_id[i]];
        const struct sl_plan_device *y = &b->res.device[b->by_id[i]];
        if (strcmp(x->id, y->id) != 0 || x->numa_node != y->numa_node ||
            a->healthy[a->by_id[i]] != b->healthy[b->by_id[i]])
            return false;
    }
    return true;
}

/* `what` is the card, the device without its replica's number, or the device. */
static bool concerns(const char *what, const struct sl_plan_device *device, const char *card)
{
    size_t n = strlen(what);
    return strcmp(what, card) == 0 ||
           (strncmp(what, device->id, n) == 0 &&
            (device->id[n] == '\0' || strncmp(device->id + n, "::", 2) == 0));
}

bool sl_plugin_devices_judge(const struct sl_plugins *plugins, const struct plugin_cards *cards,
                             struct plugin_devices *devices)
{
    bool changed = false;
    devices->healthy_count = 0;
    for (size_t i = 0; i < devices->res.device_count; i++) {
        const struct sl_plan_device *d = &devices->res.device[i];
        bool healthy = !cards->lost[d->gpu];
        for (size_t k = 0; healthy && k < plugins->unhealthy_count; k++)
            healthy = !concerns(plugins->unhealthy[k], d, cards->uuid[d->gpu]);
        changed |= healthy != devices->healthy[i];
        devices->healthy[i] = healthy;
        devices->healthy_count += healthy;
    }
    return changed;
}

int sl_plugin_devices_pack(const struct plugin_devices *devices, bool none, uint8_t **ret,
                           size_t *ret_size, struct sl_err *err)
{
    size_t n = none ? 0 : devices->res.device_count;
    Dp__ListAndWatchResponse *message = sl_rpc_pb_new(&dp__list_and_watch_response__descriptor);
    for (size_t i = 0; i < n; i++) {
        const struct sl_plan_device *from = &devices->res.device[i];
        Dp__Device *d =
            sl_rpc_pb_add(&message->devices, &message->n_devices, &dp__device__descriptor);
        d->id = sl_xstrdup(from->id);
        d->health = sl_xstrdup(devices->healthy[i] ? "Healthy" : "Unhealthy");
        if (from->numa_node < 0)
            continue;
        d->topology = sl_rpc_pb_new(&dp__topology_info__descriptor);
        Dp__NUMANode *node =
            sl_rpc_pb_add(&d->topology->nodes, &d->topology->n_nodes, &dp__numanode__descriptor);
        node->id = from->numa_node;
    }
    size_t size = dp__list_and_watch_response__get_packed_size(message);
    int rc = size > PLUGIN_MAX_MESSAGE
                 ? sl_err_set(err, -EMSGSIZE, SL_E_PLAN_LARGE, devices->res.name, n)
                 : 0;
    if (rc == 0) {
        *ret = sl_xmalloc(size + 1);
        *ret_size = dp__list_and_watch_response__pack(message, *ret);
    }
    sl_rpc_pb_free(&message->base);
    return rc;
}
