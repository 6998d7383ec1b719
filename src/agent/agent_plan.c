/* SPDX-License-Identifier: Apache-2.0 */
/* From cards and configuration to the node's offer: driver files, plan, MPS daemons, CDI specs, device plugins, labels,
 * in this order. Each part hears only of changes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_internal.h"
#include "container/cdi.h"
#include "agent/errors.h"
#include "agent/kubelet/allocate.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"

#define FILES_RETRY_NS     SL_NS_PER_S
#define FILES_RETRY_MAX_NS (60 * SL_NS_PER_S)

static void find_driver(struct sl_agent *a, const struct sl_inventory *inv)
{
    struct sl_driver_options options = {0};
    struct sl_driver *driver = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (inv->gpu_count == 0)
        return;
    sl_driver_options_set(&options, a->config, inv->driver_version);
    if (sl_driver_find(&options, &driver, &err) < 0) {
        if (a->files_retry_ns == 0)
            sl_agent_say(a, SL_EVENT_WARNING, "DriverFilesMissing", "%s", err.msg);
        return;
    }
    if (!a->driver || a->driver->warning_count != driver->warning_count)
        for (size_t i = 0; i < driver->warning_count; i++)
            sl_warn("%s", driver->warning[i]);
    sl_driver_free(a->driver);
    a->driver = driver;
}

/* --- MPS --------------------------------------------------------------------------------------- */

bool sl_agent_shared_by(const struct sl_plan *plan, size_t gpu, enum sl_sharing sharing)
{
    for (size_t r = 0; r < plan->resource_count; r++)
        for (size_t d = 0; d < plan->resource[r].device_count; d++)
            if (plan->resource[r].device[d].gpu == gpu &&
                plan->resource[r].device[d].sharing == sharing)
                return true;
    return false;
}

static const struct sl_plan_device *device_of(const struct sl_plan_resource *res, const char *id)
{
    for (size_t i = 0; i < res->device_count; i++)
        if (strcmp(res->device[i].id, id) == 0)
            return &res->device[i];
    return NULL;
}

/* A card is ready for pods when the driver says so and, where MPS shares the card, its daemon answers. */
static void publish_health(struct sl_agent *a, const char *uuid)
{
    struct sl_err err = SL_ERR_INIT;
    bool ok = sl_agent_card_ok(a, uuid) && (!a->mps || sl_mps_ready(a->mps, uuid));
    if (sl_plugins_set_health(a->plugins, uuid, ok, &err) < 0)
        sl_error("%s: %s", uuid, err.msg);
}

static void mps_state(void *data, const char *uuid, enum sl_mps_state state, bool restarted,
                      const char *reason)
{
    struct sl_agent *a = data;
    if (state == SL_MPS_READY && !restarted)
        sl_info("%s: %s", uuid, reason);
    else if (state != SL_MPS_STARTING)
        sl_agent_say(a, state == SL_MPS_READY ? SL_EVENT_NORMAL : SL_EVENT_WARNING,
                     state == SL_MPS_READY ? "MPSRestarted" : "MPSFailed", "%s: %s", uuid, reason);
    publish_health(a, uuid);
}

static int open_mps(struct sl_agent *a, struct sl_err *err)
{
    struct sl_driver_options driver = {0};
    sl_driver_options_set(&driver, a->config, NULL);
    const struct sl_mps_options options = {
        .root = a->config->mps_root, .driver_root = driver.root, .state = mps_state, .data = a};
    return sl_mps_create(a->loop, &options, &a->mps, err);
}

int sl_agent_mps_apply(struct sl_agent *a, struct sl_err *err)
{
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    if (!inv || !a->plan)
        return 0;
    SL_CLEANUP(free) struct sl_mps_gpu *gpus = sl_xcalloc(inv->gpu_count + 1, sizeof(*gpus));
    size_t n = 0;
    for (size_t g = 0; g < inv->gpu_count; g++) {
        bool planned = !a->opt.dra && sl_agent_shared_by(a->plan, g, SL_SHARING_MPS);
        bool asked = sl_agent_dra_mps(a, inv->gpu[g].info.uuid) < a->dra_mps_count;
        if (!planned && !asked)
            continue;
        /* With shares of different sizes the daemon's limit is the whole card, and each container's own limit
         * is in its environment. */
        bool equal = !asked && a->config->fail_requests_greater_than_one;
        gpus[n++] =
            (struct sl_mps_gpu){.uuid = inv->gpu[g].info.uuid,
                                .index = (unsigned)g,
                                .memory_bytes = inv->gpu[g].info.memory_total_bytes,
                                .replicas = equal ? sl_plan_replicas(a->plan, g, SL_NO_MIG) : 1};
    }
    if (n == 0 && !a->mps)
        return 0;
    int rc = a->mps ? 0 : open_mps(a, err);
    return rc < 0 ? rc : sl_mps_apply(a->mps, gpus, n, err);
}

static void publish_all_health(struct sl_agent *a, const struct sl_inventory *inv)
{
    for (size_t g = 0; g < inv->gpu_count; g++) {
        publish_health(a, inv->gpu[g].info.uuid);
        for (size_t m = 0; m < inv->gpu[g].mig_count; m++)
            publish_health(a, inv->gpu[g].mig[m].info.uuid);
    }
}

void sl_agent_health_changed(void *data, const char *uuid, bool healthy, const char *reason)
{
    struct sl_agent *a = data;
    sl_agent_say(a, healthy ? SL_EVENT_NORMAL : SL_EVENT_WARNING,
                 healthy ? "GPUHealthy" : "GPUUnhealthy", "%s: %s", uuid, reason);
    publish_health(a, uuid);
    if (a->dra)
        sl_dra_health(a->dra, uuid, healthy && !sl_agent_vm_takes(a, uuid), reason);
    sl_agent_fraction_publish(a);
}

void sl_agent_publish_cards(struct sl_agent *a)
{
    const struct sl_inventory *inv = a->devices ? sl_devices_inventory(a->devices) : NULL;
    if (!inv)
        return;
    publish_all_health(a, inv);
    for (size_t g = 0; a->dra && g < inv->gpu_count; g++) {
        const char *uuid = inv->gpu[g].info.uuid;
        bool takes = sl_agent_vm_takes(a, uuid);
        if (takes)
            sl_dra_health(a->dra, uuid, false, "virtual machines have this card");
        else if (g < SL_AGENT_MAX_GPUS && a->vm_took[g] && sl_health_ok(a->health, uuid))
            sl_dra_health(a->dra, uuid, true, "virtual machines have given the card back");
        if (g < SL_AGENT_MAX_GPUS)
            a->vm_took[g] = takes;
    }
    sl_agent_fraction_publish(a);
}

/* --- Allocate ---------------------------------------------------------------------------------- */

size_t sl_agent_count_ids(const struct sl_plan_resource *res, const char *const *ids, size_t n,
                          bool fractional)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sl_plan_device *d = device_of(res, ids[i]);
        count += d && (d->sharing == SL_SHARING_FRACTIONAL) == fractional;
    }
    return count;
}

/* Several shares of one card in one container are one larger share (with NVIDIA's plugin, users get nothing for extra
 * shares). MPS takes the smaller of this limit and the daemon's own. */
static void mps_share(const struct sl_agent *a, size_t gpu, const struct sl_inventory *inv,
                      size_t shares, struct sl_edits *extra)
{
    unsigned replicas = sl_plan_replicas(a->plan, gpu, SL_NO_MIG);
    char text[64];
    if (a->config->fail_requests_greater_than_one || replicas == 0)
        return;
    if (shares > replicas)
        shares = replicas;
    uint64_t bytes = inv->gpu[gpu].info.memory_total_bytes / replicas * shares;
    (void)snprintf(text, sizeof(text), "%zu",
                   shares * 100 / replicas ? shares * 100 / replicas : 1);
    sl_edits_env(extra, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", text);
    (void)snprintf(text, sizeof(text), "0=%lluM", (unsigned long long)(bytes >> 20));
    sl_edits_env(extra, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", text);
}

static int mps_part(struct sl_agent *a, const struct sl_inventory *inv,
                    const struct sl_plan_resource *res, const char *const *ids, size_t n,
                    struct sl_edits *extra, struct sl_err *err)
{
    size_t gpu = SIZE_MAX, shares = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sl_plan_device *d = device_of(res, ids[i]);
        if (!d || d->sharing != SL_SHARING_MPS || d->gpu >= inv->gpu_count)
            continue;
        if (shares && d->gpu != gpu)
            return sl_err_set(err, -EINVAL, SL_E_MPS_TWO_GPUS, res->name);
        gpu = d->gpu;
        shares++;
    }
    if (shares == 0)
        return 0;
    if (!a->mps)
        return sl_err_set(err, -EAGAIN, SL_E_MPS_NOT_RUNNING, res->name);
    int rc = sl_mps_edits(a->mps, inv->gpu[gpu].info.uuid, extra, err);
    if (rc == 0)
        mps_share(a, gpu, inv, shares, extra);
    return rc;
}

int sl_agent_allocate(void *data, const struct sl_plan_resource *res, const char *const *ids,
                      size_t n, struct sl_edits *edits, struct sl_err *err)
{
    struct sl_agent *a = data;
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    struct sl_edits extra = {0};
    if (!inv || !a->driver)
        return sl_err_set(err, -EAGAIN, SL_E_DRIVER_FILES_MISSING, res->name);
    size_t fractions = sl_agent_count_ids(res, ids, n, true);
    if (fractions == n)
        return sl_fraction_allocate(a->config, ids, n, edits, err);
    if (fractions)
        return sl_err_set(err, -EINVAL, SL_E_FRACTION_AND_WHOLE);
    int rc = mps_part(a, inv, res, ids, n, &extra, err);
    if (rc == 0)
        rc = sl_allocate_edits(a->config, inv, a->driver, res, ids, n, &extra, edits, err);
    sl_edits_clear(&extra);
    return rc;
}

/* --- putting it together ------------------------------------------------------------------------ */

/* What the plan leaves out is missing to somebody, so the Node says it. Claims are not served by the plan. */
static void say_warnings(struct sl_agent *a, const struct sl_plan *old, const struct sl_plan *plan)
{
    for (size_t i = 0; i < plan->warning_count; i++) {
        bool known = false;
        for (size_t k = 0; old && k < old->warning_count; k++)
            known |= strcmp(old->warning[k], plan->warning[i]) == 0;
        if (known)
            continue;
        if (a->opt.dra)
            sl_warn("%s", plan->warning[i]);
        else
            sl_agent_say(a, SL_EVENT_WARNING, "ConfigWarning", "%s", plan->warning[i]);
    }
}

/* Failed searches and writes are tried again: a disk is full for a while, a driver is being installed. */
static void write_specs(struct sl_agent *a, const struct sl_inventory *inv)
{
    struct sl_err err = SL_ERR_INIT;
    bool failed = !a->driver && inv->gpu_count > 0;
    if (a->driver && sl_cdi_write_node(a->opt.cdi_dir, a->driver, inv, &err) < 0) {
        failed = true;
        if (a->files_retry_ns == 0)
            sl_agent_say(a, SL_EVENT_WARNING, "CDIFailed", "%s", err.msg);
    } else if (a->driver && a->files_retry_ns) {
        sl_agent_say(a, SL_EVENT_NORMAL, "CDIWritten", "CDI specs are written again, to %s",
                     a->opt.cdi_dir);
    }
    if (!failed) {
        a->files_retry_ns = 0;
        sl_timer_stop(a->loop, &a->files_retry);
        return;
    }
    uint64_t wait_ns = a->files_retry_ns ? 2 * a->files_retry_ns : FILES_RETRY_NS;
    a->files_retry_ns = wait_ns < FILES_RETRY_MAX_NS ? wait_ns : FILES_RETRY_MAX_NS;
    sl_timer_set(a->loop, &a->files_retry, sl_loop_now(a->loop) + a->files_retry_ns);
}

void sl_agent_retry_files(struct sl_timer *timer)
{
    struct sl_agent *a = sl_container_of(timer, struct sl_agent, files_retry);
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    if (!inv)
        return;
    if (!a->driver) {
        find_driver(a, inv);
        sl_agent_dra_update(a);
    }
    write_specs(a, inv);
}

static void offer(struct sl_agent *a, const struct sl_inventory *inv, const struct sl_plan *plan)
{
    static const struct sl_plan nothing;
    struct sl_err err = SL_ERR_INIT;
    write_specs(a, inv);
    if (sl_agent_mps_apply(a, &err) < 0)
        sl_agent_say(a, SL_EVENT_WARNING, "MPSFailed", "%s", err.msg);
    publish_all_health(a, inv);
    if (sl_plugins_apply(a->plugins, a->opt.dra ? &nothing : plan, inv, &err) < 0)
        sl_agent_say(a, SL_EVENT_WARNING, "DevicePluginFailed", "%s", err.msg);
    if (a->opt.dra && !a->vacated) {
        a->vacated = true;
        sl_plugins_vacate(a->plugins, plan);
    }
    /* Two agents overlap in an upgrade: the one on standby must not write labels. */
    if (a->labeler && !(a->dra && sl_dra_stats(a->dra).standby))
        sl_labeler_update(a->labeler, a->config, inv, plan);
    sl_agent_dra_update(a);
    sl_agent_fraction_update(a);
    if (a->vm_offer) /* a card may be new to this side, and not for it */
        sl_agent_publish_cards(a);
}

void sl_agent_replan(struct sl_agent *a)
{
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    struct sl_err err = SL_ERR_INIT;
    struct sl_plan *plan = NULL;
    if (!inv || sl_agent_config_waits(a))
        return;
    find_driver(a, inv);
    if (sl_plan_make(a->config, inv, &plan, &err) < 0) {
        if (strcmp(a->unfit, err.msg) != 0)
            sl_agent_say(a, SL_EVENT_WARNING, "ConfigUnfit", SL_E_PLAN_KEPT_LOG, err.msg);
        (void)snprintf(a->unfit, sizeof(a->unfit), "%s", err.msg);
        /* The labeler still points to the old configuration and inventory, which are freed now. */
        if (a->labeler)
            sl_labeler_update(a->labeler, a->config, inv, NULL);
        sl_agent_dra_update(a); /* also: the driver's files may have been found again */
        return;
    }
    a->unfit[0] = '\0';
    if (!a->opt.dra) /* the warnings are about resources, which claims do not use */
        say_warnings(a, a->plan, plan);
    struct sl_plan *old = a->plan;
    a->plan = plan;
    offer(a, inv, plan);
    sl_plan_free(old);
}
