/* SPDX-License-Identifier: Apache-2.0 */
/* Fractions without DRA in the agent: slots at Allocate, leases at PreStartContainer, and the Node's annotations for
 * the scheduler extender (and HAMi's tools). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_internal.h"
#include "agent/errors.h"
#include "base/cleanup.h"
#include "base/xalloc.h"
#include "share/promise.h"

static void machine(void *data, const struct sl_inventory **inv, const struct sl_driver **driver)
{
    struct sl_agent *a = data;
    *inv = sl_devices_inventory(a->devices);
    *driver = a->driver;
}

static const struct sl_config *config(void *data)
{
    const struct sl_agent *a = data;
    return a->config;
}

static void event(void *data, const char *pod_namespace, const char *pod, const char *uid,
                  bool warning, const char *reason, const char *text)
{
    const struct sl_agent *a = data;
    if (a->node)
        sl_pod_event(a->node, pod_namespace, pod, uid, warning ? SL_EVENT_WARNING : SL_EVENT_NORMAL,
                     reason, text);
}

static int open_fraction(struct sl_agent *a, struct sl_err *err)
{
    const struct sl_fraction_options options = {.node_name = a->node_name,
                                                .cdi_dir = a->opt.cdi_dir,
                                                .arbiter_dir = a->opt.arbiter_dir,
                                                .arbiter_dir_host = a->opt.arbiter_dir_host,
                                                .sluice_dir_host = a->opt.state_dir_host,
                                                .podres_socket = a->opt.podres_socket,
                                                .claims_too = !a->opt.dra,
                                                .machine = machine,
                                                .config = config,
                                                .event = event,
                                                .data = a};
    int rc = sl_agent_arbiter_open(a, err);
    if (rc == 0)
        rc = sl_agent_install_sluice(a, err);
    return rc < 0 ? rc : sl_fraction_create(a->loop, &options, a->kube, &a->fraction, err);
}

/* --- kubelet ------------------------------------------------------------------------------------- */

void sl_agent_prestart(void *data, const struct sl_plan_resource *res, const char *const *ids,
                       size_t n, struct sl_prestart *call)
{
    struct sl_agent *a = data;
    struct sl_err err = SL_ERR_INIT;
    /* Device ids that the plan no longer has are slots of an earlier plan: the pod still has them. */
    if (sl_agent_count_ids(res, ids, n, false) == n) {
        sl_prestart_answer(call, NULL);
    } else if (!a->fraction) {
        (void)sl_err_set(&err, -EAGAIN, SL_E_FRACTION_NOT_READY);
        sl_prestart_answer(call, &err);
    } else {
        sl_fraction_prestart(a->fraction, res->name, ids, n, call);
    }
}

/* --- the Node ------------------------------------------------------------------------------------ */

/* Returns the "count" for HAMi's register: one figure for all cards of the node. */
static unsigned find_gpus(const struct sl_agent *a, const struct sl_inventory *inv,
                          struct sl_promise_node *ret)
{
    unsigned split = 0;
    ret->count = 0;
    for (size_t g = 0; g < inv->gpu_count && ret->count < SL_PROMISE_NODE_GPUS; g++) {
        const struct sl_inv_gpu *card = &inv->gpu[g];
        if (!sl_agent_shared_by(a->plan, g, SL_SHARING_FRACTIONAL))
            continue;
        struct sl_promise_gpu *to = &ret->gpu[ret->count++];
        *to =
            (struct sl_promise_gpu){.memory_mib = (uint32_t)(card->info.memory_total_bytes >> 20),
                                    .cores = 100,
                                    .numa = card->info.numa_node,
                                    .healthy = !card->lost && sl_agent_card_ok(a, card->info.uuid)};
        (void)snprintf(to->uuid, sizeof(to->uuid), "%.63s", card->info.uuid);
        (void)snprintf(to->model, sizeof(to->model), "%.63s", card->info.name);
        unsigned slots = sl_plan_replicas(a->plan, g, SL_NO_MIG);
        if (slots > split)
            split = slots;
    }
    return split;
}

void sl_agent_fraction_publish(struct sl_agent *a)
{
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    struct sl_promise_node gpus = {.count = 0};
    struct sl_labels notes = {0};
    if (!a->node || !a->plan || !inv)
        return;
    unsigned split = a->opt.dra ? 0 : find_gpus(a, inv, &gpus);
    a->published_gpus |= gpus.count || sl_node_annotation(a->node, SL_PROMISE_GPUS_KEY);
    SL_CLEANUP(free) char *ours = gpus.count ? sl_promise_gpus_text(&gpus) : sl_xstrdup("");
    SL_CLEANUP(free)
    char *hami = gpus.count ? sl_promise_register_text(&gpus, split) : sl_xstrdup("");
    if (!ours || !hami)
        sl_out_of_memory();
    sl_labels_set(&notes, SL_PROMISE_GPUS_KEY, ours);
    /* HAMi's own plugin may run here: remove its annotation only if our own annotation shows that we wrote it. */
    if (a->published_gpus)
        sl_labels_set(&notes, SL_PROMISE_REGISTER_KEY, hami);
    sl_node_annotations(a->node, &notes);
    sl_labels_clear(&notes);
}

/* sluice-controller changes this annotation when it has resized a pod of the node. */
void sl_agent_fraction_seen(void *data)
{
    struct sl_agent *a = data;
    const char *now = a->node ? sl_node_annotation(a->node, SL_PROMISE_NUDGE_KEY) : NULL;
    if (!now || strncmp(now, a->resized_at, sizeof(a->resized_at) - 1) == 0)
        return;
    (void)snprintf(a->resized_at, sizeof(a->resized_at), "%s", now);
    if (a->fraction)
        sl_fraction_look(a->fraction);
}

void sl_agent_fraction_update(struct sl_agent *a)
{
    struct sl_err err = SL_ERR_INIT;
    /* With DRA, only for old containers on a node that was not drained: their tenants go with their pods. */
    bool wanted =
        a->opt.dra ? !(a->dra && sl_dra_stats(a->dra).standby) : a->config->fractional.enabled;
    if (wanted && !a->fraction && open_fraction(a, &err) < 0)
        sl_agent_say(a, SL_EVENT_WARNING, "FractionsFailed", "%s", err.msg);
    sl_agent_fraction_publish(a);
}
