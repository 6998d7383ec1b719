/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs a tenant gets: those it names, or those that the placement policy chooses among the ones that have room.
 * The choice and the promise are one step of the arbiter's loop: no other request comes between them.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <string.h>

#include "arbiter/errors.h"
#include "base/units.h"
#include "policy/place.h"

static uint32_t promised_permille(const struct arbiter *a, uint32_t gpu,
                                  const struct tenant *except)
{
    uint32_t sum = 0;
    for (const struct tenant *t = a->tenants; t; t = t->next)
        for (uint32_t i = 0; i < t->gpu_count && t != except; i++)
            if (t->gpu[i] == gpu)
                sum += atomic_load(&t->lease.page->cores_request_permille);
    return sum;
}

uint32_t sl_arb_cores_left(const struct arbiter *a, uint32_t gpu, const struct tenant *except)
{
    uint32_t others = promised_permille(a, gpu, except);
    return others < 1000 ? 1000 - others : 0;
}

int sl_arb_check_cores(struct arbiter *a, const struct sl_msg_lease *ask, const struct tenant *t,
                       struct sl_err *err)
{
    bool divided = ask->fields & SL_FIELD_CORES;
    int rc = sl_arb_reach_check(a, t, divided, err);
    if (rc < 0 || !divided)
        return rc;
    if (ask->cores_request_permille == 0 || ask->cores_limit_permille > 1000 ||
        ask->cores_request_permille > ask->cores_limit_permille)
        return sl_err_set(err, -EINVAL, SL_E_CORES_RANGE);
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        uint32_t others = promised_permille(a, t->gpu[i], t);
        char left[16], want[16];
        if (others + ask->cores_request_permille > 1000)
            return sl_err_set(err, -ENOSPC, SL_E_GPU_TIME_LEFT, a->gpu[t->gpu[i]].index,
                              sl_format_cores(others < 1000 ? 1000 - others : 0,
                                              others < 1000 ? 1000 - others : 0, left,
                                              sizeof(left)),
                              sl_format_cores(ask->cores_request_permille,
                                              ask->cores_request_permille, want, sizeof(want)));
    }
    return 0;
}

/* Can the rest of what is asked for be had on the tenant's GPUs? */
static int check_room(struct arbiter *a, const struct sl_msg_lease *ask, const struct tenant *t,
                      struct sl_err *err)
{
    uint64_t limit[SL_MAX_GPUS];
    int rc = sl_arb_grant_memory(a, ask, t, limit, err);
    return rc < 0 ? rc : sl_arb_check_cores(a, ask, t, err);
}

/* --- the arbiter chooses --- */

/* Tenants on the GPU that take of its time what is there. */
static uint32_t takers(const struct arbiter *a, uint32_t gpu)
{
    uint32_t count = 0;
    for (const struct tenant *t = a->tenants; t; t = t->next)
        for (uint32_t i = 0; i < t->gpu_count; i++)
            count += t->gpu[i] == gpu && t->terms.cores_request_permille == 0 && !t->terms.paused;
    return count;
}

/* The GPU as it would be with this request on it. */
static struct sl_place_card with_request(struct arbiter *a, const struct sl_msg_lease *ask,
                                         uint32_t gpu)
{
    uint64_t bytes = 0, left = sl_arb_grant_left(a, gpu, NULL);
    uint32_t cores = sl_arb_cores_left(a, gpu, NULL);
    (void)sl_arb_grant_asked(a, gpu, ask, 0, &bytes);
    return (struct sl_place_card){
        .memory_bytes = ask->fields & SL_FIELD_MEMORY ? left - bytes : sl_arb_grant_offer(a, gpu),
        .cores_permille = ask->fields & SL_FIELD_CORES ? cores - ask->cores_request_permille
                                                       : cores / (takers(a, gpu) + 1),
        .numa = a->gpu[gpu].numa,
        .link_group = a->gpu[gpu].link_group,
    };
}

/* A tenant that says how much it takes is packed: whole cards stay free for large requests. One that leaves memory or
 * time open takes what it finds, and goes where it finds most. */
static enum sl_place_policy policy_for(const struct sl_msg_lease *ask)
{
    const uint32_t both = SL_FIELD_MEMORY | SL_FIELD_CORES;
    return (ask->fields & both) == both ? SL_PLACE_SLUICE : SL_PLACE_SPREAD;
}

/* Without those that the line has: which may leave too few. */
static int leave_line(const struct candidates *from, const struct sl_line_gpus *barred,
                      struct candidates *ret, struct sl_err *err)
{
    *ret = (struct candidates){.any = true, .wanted = from->wanted};
    for (uint32_t i = 0; i < from->count; i++)
        if (!sl_line_gpus_has(barred, from->gpu[i]))
            ret->gpu[ret->count++] = from->gpu[i];
    if (ret->count >= ret->wanted)
        return 0;
    if (ret->count == 0)
        return sl_err_set(err, -ENOSPC, SL_E_LINE_BEFORE_ALL);
    return sl_err_set(err, -ENOSPC, SL_E_LINE_BEFORE_SOME, from->count - ret->count, from->count);
}

/* Those on which the request fits. */
static int keep_fitting(struct arbiter *a, const struct sl_msg_lease *ask,
                        const struct candidates *from, struct tenant *t, struct candidates *ret,
                        struct sl_err *err)
{
    struct sl_err early = SL_ERR_INIT;
    *ret = (struct candidates){.any = true, .wanted = from->wanted};
    t->gpu_count = 1;
    for (uint32_t i = 0; i < from->count; i++) {
        t->gpu[0] = from->gpu[i];
        int rc = check_room(a, ask, t, err);
        if (rc == 0)
            ret->gpu[ret->count++] = from->gpu[i];
        else if (rc == -EAGAIN)
            early = *err; /* after a restart: in a second it may fit there */
        else if (rc != -ENOSPC)
            return rc; /* the request is wrong for every GPU */
    }
    if (ret->count >= ret->wanted)
        return 0;
    if (early.code) {
        *err = early;
        return -EAGAIN;
    }
    return from->count > 1 ? sl_arb_none_fits(a, ask, from, ret->count, err) : -ENOSPC;
}

static int choose_fitting(struct arbiter *a, const struct sl_msg_lease *ask,
                          const struct candidates *from, const struct sl_line_gpus *barred,
                          struct tenant *t, struct sl_err *err)
{
    struct sl_err unwanted = SL_ERR_INIT;
    struct candidates open, fit = {.count = 0};
    struct sl_place_card cards[SL_ARB_MAX_GPUS];
    size_t chosen[SL_MAX_GPUS];
    uint64_t largest = 0;
    if (!err)
        err = &unwanted; /* a look at the line asks for no reason */
    int rc = leave_line(from, barred, &open, err);
    if (rc == 0)
        rc = keep_fitting(a, ask, &open, t, &fit, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < fit.count; i++)
        cards[i] = with_request(a, ask, fit.gpu[i]);
    for (uint32_t i = 0; i < a->gpu_count; i++)
        largest = a->gpu[i].total_bytes > largest ? a->gpu[i].total_bytes : largest;
    rc = sl_place_cards(policy_for(ask), cards, fit.count, largest, fit.wanted, chosen, err);
    if (rc < 0)
        return rc;
    t->gpu_count = fit.wanted;
    for (uint32_t i = 0; i < fit.wanted; i++)
        t->gpu[i] = fit.gpu[chosen[i]];
    return 0;
}

int sl_arb_choose(struct arbiter *a, const struct sl_msg_lease *ask,
                  const struct sl_line_gpus *barred, struct tenant *t, struct sl_err *err)
{
    struct candidates from;
    int rc = sl_arb_candidates(a, ask, &from, err);
    if (rc < 0)
        return rc;
    if (from.any)
        return choose_fitting(a, ask, &from, barred, t, err);
    t->gpu_count = from.count;
    memcpy(t->gpu, from.gpu, sizeof(t->gpu));
    for (uint32_t i = 0; i < from.count; i++)
        if (sl_line_gpus_has(barred, from.gpu[i]))
            return sl_err_set(err, -ENOSPC, SL_E_LINE_BEFORE, a->gpu[from.gpu[i]].index);
    return check_room(a, ask, t, err);
}

/* Puts the largest of the rest at this place. */
static void largest_first(const struct arbiter *a, struct candidates *from, uint32_t at)
{
    for (uint32_t i = at + 1; i < from->count; i++) {
        uint32_t here = from->gpu[at];
        if (a->gpu[from->gpu[i]].total_bytes <= a->gpu[here].total_bytes)
            continue;
        from->gpu[at] = from->gpu[i];
        from->gpu[i] = here;
    }
}

uint32_t sl_arb_meant(struct arbiter *a, const struct sl_msg_lease *ask, uint32_t gpu[SL_MAX_GPUS])
{
    struct candidates from;
    if (sl_arb_candidates(a, ask, &from, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < from.wanted; i++) {
        if (from.any)
            largest_first(a, &from, i);
        gpu[i] = from.gpu[i];
    }
    return from.wanted;
}
