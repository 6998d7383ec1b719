/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes tenants that are left over. Kubelet never says that it takes devices back, so the agent reads its list. But a
 * kubelet that has just started lists nothing. So a tenant whose slot is not listed is removed only when the API
 * server, too, says that its pod is gone or over. Tenants of claims, which a DRA agent left on the node, are in no such
 * list: they go when their pod is gone and no process uses them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container/cdi.h"
#include "agent/fraction/fraction_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fault.h"
#include "base/json_read.h"
#include "base/list.h"
#include "base/log.h"

#define SWEEP_NS  (10 * SL_NS_PER_S)
#define UNSURE_NS SL_NS_PER_S /* some slots are not listed, and their pods are not gone yet */

/* --- removing ------------------------------------------------------------------------------------ */

static void unmade(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sl_fraction_slot *slot = data;
    struct sl_fraction *f = slot->fraction;
    (void)text;
    slot->removing = false;
    if (rc < 0) {
        sl_fraction_say(f, "cannot remove a tenant whose pod is gone", err);
    } else {
        SL_FAULT("fraction.removed");
        sl_info("%s: removed, because %s/%s is gone", slot->tenant, slot->space, slot->pod);
        sl_list_drop(&f->slots, slot);
        sl_leases_forget(f->leases, slot);
        sl_fraction_slot_free(slot);
    }
    sl_fraction_wake(f);
}

/* A failure does not stop the removal: the next start finds the spec again. */
static int remove_spec(void *data, struct sl_err *err)
{
    struct sl_fraction_slot *slot = data;
    if (sl_cdi_remove(slot->fraction->opt.cdi_dir, slot->claim[0] ? SL_CDI_CLAIM : SL_CDI_SLOT,
                      slot->token, err) < 0)
        sl_fraction_say(slot->fraction, "cannot remove a left-over spec", err);
    return 0;
}

void sl_fraction_slot_remove(struct sl_fraction_slot *slot)
{
    struct sl_msg_lease lease = {0};
    const struct sl_leases_item tenant = {SL_MSG_REMOVE, &lease, NULL};
    if (slot->removing)
        return;
    slot->removing = true;
    memcpy(lease.name, slot->tenant, sizeof(lease.name));
    sl_leases_tenancy(slot->fraction->leases,
                      &(struct sl_tenancy){false, &tenant, 1, remove_spec, NULL,
                                           SL_FAULT_NAME("fraction.unspecified")},
                      unmade, slot);
}

/* --- is the pod still there? --------------------------------------------------------------------- */

/* A claim may be shared: the tenant names its first pod, and another may be using it. */
static void counted(void *data, struct sl_client_status *status, const struct sl_err *err)
{
    struct sl_fraction_slot *slot = data;
    bool used = false;
    slot->counting = false;
    if (!status) {
        sl_fraction_say(slot->fraction, "cannot find out who uses a claim's tenant", err);
        return;
    }
    for (size_t i = 0; i < status->tenant_count; i++)
        used |= strcmp(status->tenant[i].name, slot->tenant) == 0 && status->tenant[i].processes;
    sl_client_status_free(status);
    if (!used)
        sl_fraction_slot_remove(slot);
}

/* Does the pod use the slot's claim? The claim's name may be cut, in the tenant. */
static bool uses_claim(const json_t *pod, const struct sl_fraction_slot *slot)
{
    const json_t *lists[] = {
        json_object_get(json_object_get(pod, "spec"), "resourceClaims"),
        json_object_get(json_object_get(pod, "status"), "resourceClaimStatuses")};
    for (size_t l = 0; l < SL_ARRAY_LEN(lists); l++)
        for (size_t i = 0; i < json_array_size(lists[l]); i++)
            if (strncmp(sl_jget_text(json_array_get(lists[l], i), "resourceClaimName"), slot->claim,
                        strlen(slot->claim)) == 0)
                return true;
    return false;
}

static bool is_gone(const json_t *pod, const struct sl_fraction_slot *slot)
{
    bool another =
        slot->claim[0] ? !uses_claim(pod, slot) : strcmp(sl_kube_meta(pod, "uid"), slot->uid) != 0;
    return another || sl_fraction_pod_state(pod) == SL_POD_OVER;
}

static void got_pod(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_fraction_slot *slot = data;
    bool gone = status == 404 || (status == 200 && is_gone(body, slot));
    slot->asking = NULL;
    if (gone && slot->claim[0]) {
        slot->counting = true;
        sl_leases_status(slot->fraction->leases, true, counted, slot);
    } else if (gone)
        sl_fraction_slot_remove(slot);
    else if (status != 200)
        sl_fraction_say(slot->fraction, "cannot find out whether pods are gone", err);
}

static void check(struct sl_fraction_slot *slot)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_fraction *f = slot->fraction;
    char path[400];
    if (!f->kube || slot->asking || slot->counting || slot->removing)
        return;
    (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", slot->space, slot->pod);
    if (sl_kube_request(f->kube, "GET", path, NULL, NULL, got_pod, slot, &slot->asking, &err) < 0) {
        slot->asking = NULL;
        sl_fraction_say(f, "cannot find out whether pods are gone", &err);
    }
}

void sl_fraction_sweep_all(struct sl_fraction *f)
{
    for (struct sl_fraction_slot *s = f->slots; s; s = s->next)
        check(s);
}

/* Kubelet lists an init container's devices under the container that has them next, or not at all. So the pod must be
 * listed, and its container must not be listed with other devices. */
static bool is_listed(const struct sl_fraction_slot *slot, const struct sl_podres_map *map)
{
    bool pod = false, container = false;
    for (size_t i = 0; i < map->device_count && !slot->claim[0]; i++) {
        const struct sl_podres_device *d = &map->device[i];
        if (strcmp(d->pod, slot->pod) != 0 || strcmp(d->pod_namespace, slot->space) != 0)
            continue;
        if (strcmp(d->id, slot->token) == 0)
            return true;
        pod = true;
        container |= strcmp(d->container, slot->container) == 0;
    }
    return pod && !container;
}

void sl_fraction_listed(struct sl_fraction *f, const struct sl_podres_map *map)
{
    bool unsure = false;
    for (struct sl_fraction_slot *s = f->slots; s; s = s->next) {
        if (is_listed(s, map))
            continue;
        unsure = true;
        check(s);
    }
    if (!unsure) {
        f->unsure_ns = UNSURE_NS;
        return;
    }
    sl_timer_set(f->loop, &f->timer, sl_loop_now(f->loop) + f->unsure_ns);
    f->unsure_ns = f->unsure_ns * 2 < SWEEP_NS ? f->unsure_ns * 2 : SWEEP_NS;
}

static void swept(void *data, const struct sl_podres_map *map, const struct sl_err *err)
{
    struct sl_fraction *f = data;
    f->listing = false;
    sl_fraction_sweep_timer(f);
    if (err) {
        sl_fraction_say(f, "cannot find out which pods are on this node", err);
    } else {
        f->said[0] = '\0';
        sl_fraction_listed(f, map);
    }
}

/* --- after a start --------------------------------------------------------------------------------- */

/* Removes specs of missing tenants: for example, the arbiter forgets its tenants at a reboot. */
static void drop_specs(struct sl_fraction *f)
{
    struct sl_err err = SL_ERR_INIT;
    char **token = NULL;
    size_t n = 0;
    if (sl_cdi_list(f->opt.cdi_dir, SL_CDI_SLOT, &token, &n, &err) < 0) {
        sl_fraction_say(f, "cannot look for left-over CDI specs", &err);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct sl_fraction_slot *s = f->slots;
        while (s && strcmp(s->token, token[i]) != 0)
            s = s->next;
        if (!s && sl_cdi_remove(f->opt.cdi_dir, SL_CDI_SLOT, token[i], &err) < 0)
            sl_fraction_say(f, "cannot remove a left-over spec", &err);
    }
    sl_cdi_list_free(token, n);
}

static void loaded(void *data, struct sl_client_status *status, const struct sl_err *err)
{
    struct sl_fraction *f = data;
    if (!status) {
        sl_fraction_say(f, "the tenants of the arbiter are not known yet", err);
        sl_timer_set(f->loop, &f->timer, sl_loop_now(f->loop) + UNSURE_NS);
        return;
    }
    for (size_t i = 0; i < status->tenant_count; i++) {
        const struct sl_msg_tenant *t = &status->tenant[i];
        if ((t->flags & SL_LEASE_KEEP) && !sl_fraction_find(f, t->name))
            (void)sl_fraction_slot_add(f, t->name, t->about);
    }
    sl_client_status_free(status);
    drop_specs(f);
    f->loaded = true;
    f->said[0] = '\0';
    sl_fraction_look(f); /* leases may have changed while no agent ran */
    if (f->slots)
        sl_info("%zu containers have fractions", sl_fraction_count(f));
    sl_timer_set(f->loop, &f->timer, sl_loop_now(f->loop) + UNSURE_NS);
    sl_fraction_wake(f);
}

void sl_fraction_load(struct sl_fraction *f)
{
    sl_leases_status(f->leases, false, loaded, f);
}

static void timer_fired(struct sl_timer *timer)
{
    struct sl_fraction *f = sl_container_of(timer, struct sl_fraction, timer);
    if (!f->loaded) {
        sl_fraction_load(f);
    } else if (f->slots && !f->listing) {
        f->listing = true;
        sl_podres_fresh(f->podres, swept, f);
    }
}

void sl_fraction_sweep_timer(struct sl_fraction *f)
{
    f->timer.fire = timer_fired;
    if (!f->unsure_ns)
        f->unsure_ns = UNSURE_NS;
    if (f->slots && !f->timer.set)
        sl_timer_set(f->loop, &f->timer, sl_loop_now(f->loop) + SWEEP_NS);
}
