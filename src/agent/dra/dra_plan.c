/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the allocation to a plan for this node, with a last check that there is room. The scheduler does not know
 * everything (a resize, a claim that is still being unprepared, a bug); the check makes sure that two tenants never get
 * one piece of a card.
 */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/dra/errors.h"
#include "base/units.h"
#include "share/lease.h"

static enum sl_device_kind kind_of(const struct sl_prepared_device *d, struct sl_device_name *ret)
{
    struct sl_device_name name = {.kind = SL_DEVICE_WHOLE};
    if (sl_device_name_parse(d->device, &name, NULL) < 0)
        name.kind = SL_DEVICE_WHOLE; /* the largest possible kind */
    if (ret)
        *ret = name;
    return name.kind;
}

/* Is the other device prepared on the same card, and does it take a part of the card? */
static bool beside(const struct sl_prepared_device *d, const struct sl_prepared_device *other)
{
    return other != d && !other->admin && strcmp(other->share.gpu, d->share.gpu) == 0;
}

/* May two devices of one card be prepared at the same time? */
static bool compatible(const struct sl_prepared_device *a, const struct sl_prepared_device *b)
{
    struct sl_device_name x, y;
    enum sl_device_kind ka = kind_of(a, &x), kb = kind_of(b, &y);
    if (ka == SL_DEVICE_WHOLE || ka == SL_DEVICE_VM || kb == SL_DEVICE_WHOLE || ka != kb)
        return false;
    if (ka == SL_DEVICE_SHARE)
        return true;
    return a->mig_start >= b->mig_start + b->mig_size || b->mig_start >= a->mig_start + a->mig_size;
}

static int check_sums(struct sl_dra *dra, const struct sl_prepared_device *d, const char *advice,
                      struct sl_err *err)
{
    struct sl_share own = sl_prepared_share(d);
    uint64_t memory = own.memory_bytes, bytes = memory;
    uint32_t cores = own.cores_permille, permille = cores;
    uint64_t total = sl_dra_card_bytes(dra, d->share.gpu);
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; i < p->device_count; i++)
            if (beside(d, &p->device[i])) {
                struct sl_share held = sl_prepared_share(&p->device[i]);
                bytes += held.memory_bytes;
                permille += held.cores_permille;
            }
    char left[32], want[32];
    if (bytes > total)
        return sl_err_set(err, -ENOSPC, SL_E_CLAIM_MEMORY_LEFT, d->device,
                          sl_format_bytes(total + memory > bytes ? total + memory - bytes : 0, left,
                                          sizeof(left)),
                          sl_format_bytes(memory, want, sizeof(want)), advice);
    if (permille > 1000)
        return sl_err_set(err, -ENOSPC, SL_E_CLAIM_TIME_LEFT, d->device,
                          permille - cores < 1000 ? (1000 + cores - permille) / 10 : 0, cores / 10,
                          advice);
    return 0;
}

/* Can d be prepared beside a device of another claim? */
static int check_beside(const struct sl_prepared_device *d, const struct sl_prepared *by,
                        const struct sl_prepared_device *other, struct sl_err *err)
{
    if (!compatible(d, other))
        return sl_err_set(err, -EBUSY, SL_E_CLAIM_NOT_FREE, d->device, by->name_space, by->name,
                          other->device);
    /* A tenant without limits would take from tenants that have them. */
    if (kind_of(d, NULL) != SL_DEVICE_SHARE || d->share.strategy == other->share.strategy)
        return 0;
    return sl_err_set(err, -EBUSY, SL_E_CLAIM_STRATEGIES, d->request,
                      sl_strategy_words[d->share.strategy], by->name_space, by->name,
                      sl_strategy_words[other->share.strategy]);
}

static int check_room(struct sl_dra *dra, const struct sl_prepared_device *d, struct sl_err *err)
{
    int rc = 0;
    if (d->admin)
        return 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; rc == 0 && i < p->device_count; i++)
            if (beside(d, &p->device[i]))
                rc = check_beside(d, p, &p->device[i], err);
    if (rc < 0 || kind_of(d, NULL) != SL_DEVICE_SHARE)
        return rc;
    return check_sums(dra, d,
                      "shares were made larger after the pod was scheduled; make one smaller, or "
                      "delete the pod, and its successor is placed again",
                      err);
}

int sl_dra_fits(struct sl_dra *dra, const struct sl_prepared_device *d, struct sl_err *err)
{
    return check_sums(dra, d,
                      "the share stays as it is; ask for less, or make another share "
                      "smaller",
                      err);
}

/* --- planning --- */

/* The place of a MIG device: from the card's profiles, or from an existing instance. */
static int plan_mig(struct sl_dra *dra, const struct sl_device_name *name,
                    struct sl_prepared_device *d, struct sl_err *err)
{
    const struct card *c = &dra->card[name->gpu];
    const struct sl_inv_gpu *g = &dra->inv->gpu[name->gpu];
    char word[32];
    d->mig_start = name->start;
    d->mig_gpu_instance = d->mig_compute_instance = SL_GPU_NO_INSTANCE;
    for (size_t i = 0; i < c->profile_count; i++) {
        const struct sl_gpu_mig_profile *p = &c->profile[i];
        sl_device_profile_word(p->name, word, sizeof(word));
        for (uint32_t k = 0; strcmp(word, name->profile) == 0 && k < p->placement_count; k++)
            if (p->placements[k].start == name->start) {
                (void)snprintf(d->mig_profile, sizeof(d->mig_profile), "%s", p->name);
                d->mig_profile_id = p->id;
                d->mig_size = p->placements[k].size;
                return 0;
            }
    }
    for (size_t i = 0; i < g->mig_count; i++) {
        sl_device_profile_word(g->mig[i].info.profile, word, sizeof(word));
        if (strcmp(word, name->profile) == 0 && g->mig[i].info.placement_start == name->start) {
            (void)snprintf(d->mig_profile, sizeof(d->mig_profile), "%s", g->mig[i].info.profile);
            d->mig_profile_id = UINT32_MAX; /* it cannot be made, only found */
            d->mig_size = g->mig[i].info.placement_size;
            return 0;
        }
    }
    return sl_err_set(err, -ENOENT, SL_E_CLAIM_NO_PLACE, name->gpu, d->device);
}

static int plan_device(struct sl_dra *dra, const struct sl_claim_result *r,
                       struct sl_prepared_device *d, struct sl_err *err)
{
    (void)snprintf(d->request, sizeof(d->request), "%s", r->request);
    (void)snprintf(d->subrequest, sizeof(d->subrequest), "%s", r->subrequest);
    (void)snprintf(d->device, sizeof(d->device), "%s", r->device);
    (void)snprintf(d->share_id, sizeof(d->share_id), "%s", r->share_id);
    d->admin = r->admin;
    d->share = r->share;
    d->ready_since.yes_s = (uint64_t)time(NULL);
    if (r->name.kind == SL_DEVICE_VM)
        return sl_dra_vm_plan(dra, d, err);
    if (!dra->inv || !dra->driver || dra->awaits_vm)
        return sl_err_set(err, -EAGAIN, SL_E_DRA_READING);
    if (r->name.gpu >= dra->inv->gpu_count)
        return sl_err_set(err, -ENOENT, SL_E_CLAIM_GPU_MISSING, dra->inv->gpu_count, r->device);
    const struct sl_inv_gpu *g = &dra->inv->gpu[r->name.gpu];
    if (g->lost)
        return sl_err_set(err, -EIO, SL_E_CLAIM_GPU_LOST, r->name.gpu, r->device);
    if (sl_dra_vm_takes(dra, r->name.gpu))
        return sl_err_set(err, -EBUSY, SL_E_CLAIM_VM_HAS_CARD, r->name.gpu, r->device);
    d->timeslice = r->admin ? 0 : r->timeslice; /* who observes changes nothing */
    (void)snprintf(d->share.gpu, sizeof(d->share.gpu), "%.63s", g->info.uuid);
    return r->name.kind == SL_DEVICE_MIG ? plan_mig(dra, &r->name, d, err) : 0;
}

/* Shares that go to a container together are one tenant, on one or several GPUs. */
static void name_tenants(const struct sl_claim *claim, struct sl_prepared *p)
{
    unsigned next = 0;
    for (size_t i = 0; i < p->device_count; i++) {
        struct sl_prepared_device *d = &p->device[i];
        if (d->admin || kind_of(d, NULL) != SL_DEVICE_SHARE ||
            d->share.strategy != SL_SHARE_LIBSLUICE)
            continue;
        for (size_t k = 0; k < i && !d->tenant[0]; k++)
            if (claim->result[k].group == claim->result[i].group)
                memcpy(d->tenant, p->device[k].tenant, sizeof(d->tenant));
        if (!d->tenant[0])
            (void)snprintf(d->tenant, sizeof(d->tenant), "%.36s-%u", p->uid, next++);
    }
}

/* A GPU has one daemon, and a container's environment has one daemon's directory and limits. */
static int check_mps(const struct sl_claim *claim, struct sl_err *err)
{
    for (size_t i = 0; i < claim->result_count; i++)
        for (size_t k = 0; k < i; k++) {
            const struct sl_claim_result *a = &claim->result[k], *b = &claim->result[i];
            if (a->group == b->group && !a->admin && !b->admin &&
                a->share.strategy == SL_SHARE_MPS && b->share.strategy == SL_SHARE_MPS)
                return sl_err_set(err, -EINVAL, SL_E_CLAIM_MPS_SHARES, b->request, a->device,
                                  b->device);
        }
    return 0;
}

struct sl_prepared *sl_dra_plan(struct sl_dra *dra, struct sl_claim *claim, struct sl_err *err)
{
    if (sl_allow_claim(dra->config, claim, err) < 0 || check_mps(claim, err) < 0)
        return NULL;
    struct sl_prepared *p = sl_checkpoint_add(&dra->checkpoint, claim->uid, claim->result_count);
    (void)snprintf(p->name_space, sizeof(p->name_space), "%s", claim->name_space);
    (void)snprintf(p->name, sizeof(p->name), "%s", claim->name);
    (void)snprintf(p->pod, sizeof(p->pod), "%s", claim->pod);
    (void)snprintf(p->pod_uid, sizeof(p->pod_uid), "%s", claim->pod_uid);
    (void)snprintf(p->pod_claim, sizeof(p->pod_claim), "%s", claim->pod_claim);
    p->state = SL_PREPARING;
    int rc = 0;
    for (size_t i = 0; i < claim->result_count && rc == 0; i++) {
        rc = plan_device(dra, &claim->result[i], &p->device[i], err);
        if (rc == 0)
            rc = check_room(dra, &p->device[i], err);
    }
    if (rc < 0) {
        sl_checkpoint_drop(&dra->checkpoint, p);
        return NULL;
    }
    name_tenants(claim, p);
    return p;
}

bool sl_dra_first_of_tenant(const struct sl_prepared *p, size_t device)
{
    if (!p->device[device].tenant[0])
        return false;
    for (size_t k = 0; k < device; k++)
        if (strcmp(p->device[k].tenant, p->device[device].tenant) == 0)
            return false;
    return true;
}

int sl_dra_compose(const struct sl_dra *dra, const struct sl_prepared *p, size_t device, bool now,
                   struct sl_msg_lease *ret, struct sl_err *err)
{
    const struct sl_prepared_device *first = &p->device[device];
    const struct sl_owner owner = {.name_space = p->name_space,
                                   .pod = p->pod,
                                   .claim = p->name,
                                   .claim_uid = p->uid,
                                   .request = first->request,
                                   .container = first->containers};
    struct sl_share share[SL_CLAIM_RESULTS];
    size_t n = 0;
    for (size_t i = 0; i < p->device_count && n < SL_CLAIM_RESULTS; i++)
        if (strcmp(p->device[i].tenant, first->tenant) == 0)
            share[n++] = now ? sl_prepared_share(&p->device[i]) : p->device[i].share;
    int rc = sl_lease_compose(first->tenant, &owner, share, n, ret, err);
    if (rc < 0)
        return rc;
    if (now)
        ret->fields = SL_FIELD_MEMORY | SL_FIELD_CORES;
    else if (dra->config)
        sl_lease_compute(ret, dra->config->fractional.compute);
    return 0;
}
