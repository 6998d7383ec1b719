/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the state of the agent and its cards: /metrics, /healthz, /readyz. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include "agent/agent_internal.h"
#include "base/log.h"
#include "base/xalloc.h"

#define PODRES_AGE_NS (5 * 1000000000ULL)

void sl_agent_count_xid(struct sl_agent *a, const char *uuid, uint64_t xid)
{
    for (size_t i = 0; i < a->xid_count; i++)
        if (a->xid[i].xid == xid && strcmp(a->xid[i].gpu, uuid) == 0) {
            a->xid[i].count++;
            return;
        }
    if (a->xid_count == SL_AGENT_MAX_XIDS)
        return;
    struct sl_metrics_xid *x = &a->xid[a->xid_count++];
    *x = (struct sl_metrics_xid){.xid = xid, .count = 1};
    (void)snprintf(x->gpu, sizeof(x->gpu), "%s", uuid);
}

/* --- NVML's numbers, on the devices' thread ----------------------------------------------------- */

struct sample {
    struct sl_exporter *exporter;
    struct sl_gpu_sampled *numbers;
    size_t count;
};

static int take_sample(struct sl_gpu *gpu, void *arg, struct sl_err *err)
{
    struct sample *s = arg;
    return sl_gpu_numbers_read(gpu, &s->numbers, &s->count, err);
}

static void sampled(void *arg, int result, const struct sl_err *err)
{
    struct sample *s = arg;
    if (result != -ECANCELED) /* the agent stops, and so does the exporter */
        sl_exporter_sampled(s->exporter, s->numbers, result < 0 ? 0 : s->count,
                            result < 0 ? err : NULL);
    free(s->numbers);
    free(s);
}

static void sample(void *data, struct sl_exporter *exporter)
{
    struct sl_agent *a = data;
    struct sl_err err = SL_ERR_INIT;
    struct sample *s = sl_xcalloc(1, sizeof(*s));
    s->exporter = exporter;
    if (sl_devices_submit(a->devices, take_sample, sampled, s, &err) == 0)
        return;
    free(s);
    sl_exporter_sampled(exporter, NULL, 0, &err);
}

/* --- figures that the loop knows ---------------------------------------------------------------- */

static void fill_devices(struct sl_agent *a, const struct sl_inventory *inv, struct sl_metrics *m)
{
    m->gpu = sl_xcalloc(inv ? inv->gpu_count : 0, sizeof(*m->gpu));
    m->xid = a->xid;
    m->xid_count = a->xid_count;
    for (size_t g = 0; inv && g < inv->gpu_count; g++) {
        const struct sl_inv_gpu *card = &inv->gpu[g];
        m->gpu[m->gpu_count++] = (struct sl_metrics_gpu){
            .uuid = card->info.uuid,
            .name = card->info.name,
            .pci_bus_id = card->info.pci_bus_id,
            .index = (unsigned)g,
            .healthy = sl_agent_card_ok(a, card->info.uuid),
            .now = SL_GPU_NUMBERS_UNKNOWN,
        };
        m->gpu[g].now.memory_total_bytes = (double)card->info.memory_total_bytes;
        m->mig = sl_xreallocarray(m->mig, m->mig_count + card->mig_count, sizeof(*m->mig));
        for (size_t i = 0; i < card->mig_count; i++)
            m->mig[m->mig_count++] = (struct sl_metrics_mig){
                .gpu = card->info.uuid,
                .uuid = card->mig[i].info.uuid,
                .profile = card->mig[i].info.profile,
                .memory_total_bytes = (double)card->mig[i].info.memory_total_bytes,
                .memory_used_bytes = NAN,
            };
    }
}

static void fill_resources(struct sl_agent *a, struct sl_metrics *m)
{
    const struct sl_podres_map *map = a->podres ? sl_podres_last(a->podres) : NULL;
    size_t containers = sl_plugins_count(a->plugins);
    m->resource_count = containers + (a->vm_plugins ? sl_plugins_count(a->vm_plugins) : 0);
    m->resource = sl_xcalloc(m->resource_count, sizeof(*m->resource));
    for (size_t i = 0; i < m->resource_count; i++) {
        struct sl_metrics_resource *r = &m->resource[i];
        if (i < containers)
            sl_plugins_resource(a->plugins, i, &r->of);
        else
            sl_plugins_resource(a->vm_plugins, i - containers, &r->of);
        r->in_use = map ? (double)sl_podres_in_use(map, r->of.name) : NAN;
    }
}

static bool is_of(const char *uuid, const char *id)
{
    size_t n = strlen(uuid);
    return n > 0 && strncmp(id, uuid, n) == 0 && (id[n] == '\0' || strncmp(id + n, "::", 2) == 0);
}

/* The card of a device or of a MIG device; NULL: not one of ours. Found by the id alone: a pod may hold a device of an
 * earlier plan, and still use the card. */
const char *sl_agent_gpu_of(const struct sl_inventory *inv, const char *id)
{
    for (size_t g = 0; inv && g < inv->gpu_count; g++) {
        const struct sl_inv_gpu *card = &inv->gpu[g];
        bool found = is_of(card->info.uuid, id);
        for (size_t m = 0; !found && m < card->mig_count; m++)
            found = is_of(card->mig[m].info.uuid, id);
        if (found)
            return card->info.uuid;
    }
    return NULL;
}

/* A device of a virtual machine has the address of its card. */
static const char *vm_card(const struct sl_vm_offer *offer, const struct sl_podres_device *d)
{
    for (size_t i = 0; offer && i < offer->device_count; i++)
        if (strcmp(offer->device[i].id, d->id) == 0 &&
            strcmp(offer->device[i].resource, d->resource) == 0)
            return offer->device[i].card;
    return NULL;
}

/* Which container holds which device: dashboards join it with the figures of the card. */
static void fill_allocations(struct sl_agent *a, const struct sl_inventory *inv,
                             struct sl_metrics *m)
{
    const struct sl_podres_map *map = a->podres ? sl_podres_last(a->podres) : NULL;
    m->allocation = sl_xcalloc(map ? map->device_count : 0, sizeof(*m->allocation));
    for (size_t i = 0; map && i < map->device_count; i++) {
        const struct sl_podres_device *d = &map->device[i];
        const char *gpu = sl_agent_gpu_of(inv, d->id);
        if (!gpu)
            gpu = vm_card(a->vm_offer, d);
        if (gpu)
            m->allocation[m->allocation_count++] = (struct sl_metrics_allocation){d, gpu};
    }
}

/* Has a pod the device? Of its own claims the agent knows, of plugins kubelet. */
static double vm_held(const struct sl_agent *a, const struct sl_vm_device *d)
{
    const struct sl_podres_map *map = a->podres ? sl_podres_last(a->podres) : NULL;
    if (a->dra && sl_dra_vm_held(a->dra, d->id))
        return 1;
    for (size_t i = 0; map && i < map->device_count; i++)
        if (strcmp(map->device[i].id, d->id) == 0)
            return 1;
    return map || a->vm_offer->way == SL_VM_BY_CLAIMS ? 0 : NAN;
}

static void fill_vm(const struct sl_agent *a, struct sl_metrics *m)
{
    const struct sl_vm_offer *offer = a->vm_offer;
    m->vm_count = offer ? offer->device_count : 0;
    m->vm = sl_xcalloc(m->vm_count, sizeof(*m->vm));
    for (size_t i = 0; i < m->vm_count; i++) {
        const struct sl_vm_device *d = &offer->device[i];
        m->vm[i] =
            (struct sl_metrics_vm){.resource = d->resource,
                                   .device = d->id,
                                   .kind = sl_vm_kind_name(d->kind),
                                   .card = d->card,
                                   .type = d->type,
                                   .by = offer->way == SL_VM_BY_CLAIMS ? "claims" : "plugins",
                                   .healthy = d->healthy,
                                   .held = vm_held(a, d)};
    }
}

static void fill_dra(const struct sl_agent *a, struct sl_metrics_dra *m)
{
    struct sl_dra_stats stats = sl_dra_stats(a->dra);
    *m = (struct sl_metrics_dra){.on = true,
                                 .claims = stats.claims,
                                 .prepared = stats.prepared,
                                 .prepare_failed = stats.prepare_failed,
                                 .unprepared = stats.unprepared,
                                 .unprepare_failed = stats.unprepare_failed,
                                 .slices_current = stats.slices_current};
}

static void add_allocations(const struct sl_plugins *plugins, struct sl_plugins_stats *sum)
{
    struct sl_plugins_stats more;
    sl_plugins_stats(plugins, &more);
    sum->allocate_ns_sum += more.allocate_ns_sum;
    for (size_t i = 0; i < SL_PLUGINS_BUCKETS; i++)
        sum->allocate_bucket[i] += more.allocate_bucket[i];
}

static void fill_agent(struct sl_agent *a, struct sl_metrics_agent *m)
{
    struct sl_plugins_stats *stats = &a->metrics_stats;
    sl_plugins_stats(a->plugins, stats);
    if (a->vm_plugins)
        add_allocations(a->vm_plugins, stats);
    bool connected =
        a->opt.dra ? a->dra && sl_dra_stats(a->dra).registered : sl_plugins_ready(a->plugins);
    *m = (struct sl_metrics_agent){
        .version = SLUICE_VERSION,
        .node = a->node_name,
        .start_time_seconds = a->start_time_s,
        .reloads_ok = a->reloads_ok,
        .reloads_failed = a->reloads_failed,
        .reload_error = a->reload_error[0] ? a->reload_error
                        : a->unfit[0]      ? a->unfit
                                           : NULL,
        .reload_time_seconds = a->reload_time_s,
        .allocate = {sl_plugins_bucket_ns, stats->allocate_bucket, SL_PLUGINS_BUCKETS,
                     stats->allocate_ns_sum},
        .kubelet_connected = connected,
    };
    if (a->opt.dra && !a->vm_plugins)
        m->allocate.buckets = 0;
    if (a->dra)
        fill_dra(a, &m->dra);
    sl_agent_node_fill(a, m);
}

static void fill(void *data, struct sl_metrics *m)
{
    struct sl_agent *a = data;
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    fill_devices(a, inv, m);
    fill_resources(a, m);
    fill_allocations(a, inv, m);
    fill_vm(a, m);
    fill_agent(a, &m->agent);
}

/* A newer agent that waits for the end of an older one counts as ready; otherwise a rolling upgrade would hang. */
static bool dra_ready(const struct sl_agent *a)
{
    return a->dra && (sl_dra_stats(a->dra).registered || sl_dra_stats(a->dra).standby);
}

static bool ready(void *data, char *why, size_t size)
{
    struct sl_agent *a = data;
    const char *not = NULL;
    /* With devices for virtual machines a node may have no driver for containers at all. */
    bool vm_only = a->vm && a->vm_offer && a->vm_offer->device_count;
    if (!sl_agent_vm_ready(a))
        not = "kubelet has not registered every resource of virtual machines yet";
    else if (!sl_devices_inventory(a->devices) && vm_only)
        not = NULL;
    else if (!sl_devices_inventory(a->devices))
        not = "the driver has not answered yet";
    else if (!a->plan)
        not = a->unfit[0] ? a->unfit : "the configuration is not known yet";
    else if (a->opt.dra && !dra_ready(a))
        not = "kubelet has not registered the DRA driver yet";
    else if (!a->opt.dra && !sl_plugins_ready(a->plugins))
        not = "kubelet has not registered every resource yet";
    else if (!a->opt.dra && a->mps)
        not = sl_mps_trouble(a->mps);
    (void)snprintf(why, size, "%s", not? not : "");
    return !not;
}

/* --- the owner of a tenant, for its labels ------------------------------------------------------ */

struct search {
    const char *tenant;
    struct sl_tenant_owner *owner;
    const struct sl_podres_map *map;
};

static void match_lease(void *data, const struct sl_dra_lease *lease)
{
    struct search *s = data;
    const struct sl_podres_claim *c = NULL;
    if (strcmp(lease->tenant, s->tenant) != 0)
        return;
    (void)snprintf(s->owner->pod_namespace, sizeof(s->owner->pod_namespace), "%s",
                   lease->name_space);
    (void)snprintf(s->owner->pod, sizeof(s->owner->pod), "%s", lease->pod ? lease->pod : "");
    for (size_t i = 0; s->map && i < s->map->claim_count && !c; i++)
        if (strcmp(s->map->claim[i].share_id, lease->share_id) == 0 && *lease->share_id)
            c = &s->map->claim[i];
    if (c) {
        (void)snprintf(s->owner->pod, sizeof(s->owner->pod), "%s", c->pod);
        (void)snprintf(s->owner->container, sizeof(s->owner->container), "%s", c->container);
    }
}

static void owner(void *data, const char *tenant, const struct sl_podres_map *map,
                  struct sl_tenant_owner *ret)
{
    struct sl_agent *a = data;
    struct search s = {tenant, ret, map};
    struct sl_fraction_owner f;
    if (a->dra)
        sl_dra_each_lease(a->dra, match_lease, &s);
    if (a->fraction && sl_fraction_owner(a->fraction, tenant, &f)) {
        (void)snprintf(ret->pod_namespace, sizeof(ret->pod_namespace), "%s", f.pod_namespace);
        (void)snprintf(ret->pod, sizeof(ret->pod), "%s", f.pod);
        (void)snprintf(ret->container, sizeof(ret->container), "%s", f.container);
    }
}

/* --- HTTP ---------------------------------------------------------------------------------------- */

int sl_agent_observe_arbiter(struct sl_agent *a, struct sl_err *err)
{
    struct sl_arbiter_dir place;
    if (!a->exporter || !a->arbiter)
        return 0;
    int rc = sl_arbiter_dir_find(a->opt.arbiter_dir, NULL, &place, err);
    return rc < 0 ? rc : sl_exporter_arbiter(a->exporter, &place, err);
}

int sl_agent_observe_open(struct sl_agent *a, struct sl_err *err)
{
    if (!*a->opt.metrics_address)
        return 0;
    a->podres = sl_podres_create(a->loop, a->opt.podres_socket, PODRES_AGE_NS);
    const struct sl_exporter_options options = {.fill = fill,
                                                .names = a->opt.names,
                                                .sample = sample,
                                                .owner = owner,
                                                .ready = ready,
                                                .data = a,
                                                .podres = a->podres};
    a->exporter = sl_exporter_create(a->loop, &options);
    const struct sl_http_server_options http = {.address = a->opt.metrics_address,
                                                .handle = sl_exporter_handle,
                                                .gone = sl_exporter_gone,
                                                .data = a->exporter};
    int rc = sl_agent_observe_arbiter(a, err);
    if (rc == 0)
        rc = sl_http_server_create(a->loop, &http, &a->http, err);
    if (rc == 0) /* "127.0.0.1:0" is any port */
        sl_info("metrics at port %u", sl_http_server_port(a->http));
    return rc < 0 ? sl_err_wrap(err, "metrics at %s", a->opt.metrics_address) : 0;
}

void sl_agent_observe_close(struct sl_agent *a)
{
    sl_exporter_destroy(a->exporter);
    sl_http_server_destroy(a->http);
    sl_podres_destroy(a->podres);
}
