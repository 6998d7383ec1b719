/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How each GPU's time is shared: by the hardware's slices, which the policy steers (src/policy/steer.h), or by turns at
 * the gate (turnstile.c), where the driver does not let processes set their slices, or where a creator chose turns.
 * This file carries the ledgers' figures to the policy and the policy's orders to the lease pages, and chooses between
 * slices and turns for each GPU.
 */
#include "arbiter/arbiter_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbiter/slices_memo.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "policy/times.h"

struct compute {
    struct sl_steer *steer;
    struct tenant *by_id[SL_STEER_MAX_TENANTS];
};

struct sl_steer_spec sl_arb_spec_of(const struct tenant *t)
{
    const struct sl_lease_page *p = t->lease.page;
    struct sl_steer_spec spec = {
        .request_permille = atomic_load(&p->cores_request_permille),
        .limit_permille = atomic_load(&p->cores_limit_permille),
        .priority = atomic_load(&p->priority),
        .paused = t->terms.paused,
        .billed = t->kept, /* a container's: its namespace pays for it */
    };
    for (uint32_t i = 0; i < t->gpu_count; i++)
        spec.gpu_mask |= t->gpu[i] < SL_STEER_MAX_GPUS ? 1U << t->gpu[i] : 0;
    return spec;
}

/* --- slices or turns --------------------------------------------------------------------------- */

static const char *why_not(const struct sl_slot *s, char *text, size_t size)
{
    switch (atomic_load(&s->control)) {
    case SL_CONTROL_NO_GROUP:
        return "a process has no compute channels of its own (an MPS client, or an unknown driver)";
    case SL_CONTROL_REFUSED:
        (void)snprintf(text, size, "the driver refuses to set time slices (status 0x%x)",
                       atomic_load(&s->control_status));
        return text;
    case SL_CONTROL_NO_EFFECT:
        return "the driver accepts the controls, and they have no effect";
    default:
        return NULL;
    }
}

/* Reads what `sluice doctor` has measured since the last tenant came. */
static void recall_doctor(struct arbiter *a, const struct tenant *t)
{
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        struct sl_slices_result r;
        struct gpu *g = &a->gpu[t->gpu[i]];
        g->no_effect =
            sl_slices_recall(a->dir_fd, g->uuid, a->driver, &r) && r.verdict == SL_SLICES_NO_EFFECT;
    }
}

/* The first reason why a tenant's GPUs cannot be shared by slices, or NULL. */
static const char *against_slices(const struct arbiter *a, const struct tenant *t, char *text,
                                  size_t size)
{
    if (t->compute == SL_COMPUTE_TURNS)
        return "a tenant asked for turns";
    if (t->compute == SL_COMPUTE_SLICES)
        return NULL;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        if (a->gpu[t->gpu[i]].no_effect)
            return "`sluice doctor` measured that time slices have no effect";
    if (a->now_ns < t->turns_until_ns)
        return "time slices have no effect: two busy programs were measured";
    if (!t->ledger.page)
        return NULL;
    for (const struct member *m = t->members; m; m = m->next) {
        const char *why = why_not(&t->ledger.page->slot[m->slot], text, size);
        if (why)
            return why;
    }
    return NULL;
}

static void use_turns(struct arbiter *a, uint32_t gpu, const char *why, bool *changed)
{
    struct gpu *g = &a->gpu[gpu];
    if (g->turns_wanted)
        return;
    g->turns_wanted = true;
    *changed = true;
    if (!g->turns || strcmp(g->why, why) != 0) {
        (void)snprintf(g->why, sizeof(g->why), "%s", why);
        sl_info("GPU %u is shared by turns: %s", g->index, why);
    }
}

/* A tenant on several GPUs has one gate: if one of its GPUs uses turns, all of them do. */
static void choose_modes(struct arbiter *a)
{
    char text[96];
    bool changed = true;
    for (uint32_t i = 0; i < a->gpu_count; i++)
        a->gpu[i].turns_wanted = false;
    for (const struct tenant *t = a->tenants; t; t = t->next) {
        const char *why = against_slices(a, t, text, sizeof(text));
        for (uint32_t i = 0; why && i < t->gpu_count; i++)
            use_turns(a, t->gpu[i], why, &changed);
    }
    while (changed) {
        changed = false;
        for (const struct tenant *t = a->tenants; t; t = t->next) {
            const struct gpu *first = NULL;
            for (uint32_t i = 0; i < t->gpu_count; i++)
                first = a->gpu[t->gpu[i]].turns_wanted && !first ? &a->gpu[t->gpu[i]] : first;
            for (uint32_t i = 0; first && i < t->gpu_count; i++)
                use_turns(a, t->gpu[i], first->why, &changed);
        }
    }
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        if (a->gpu[i].turns && !a->gpu[i].turns_wanted)
            sl_info("GPU %u is shared by slices again", a->gpu[i].index);
        a->gpu[i].turns = a->gpu[i].turns_wanted;
    }
}

static void obey(struct tenant *t, const struct sl_steer_order *order)
{
    struct sl_lease_page *p = t->lease.page;
    /* A process that keeps the driver's own slice needs no call. */
    bool own = order->slice_us == SL_STEER_DEFAULT_US && atomic_load(&p->slice_us) == 0;
    atomic_store(&p->slice_us, own ? 0 : order->slice_us);
    atomic_store(&p->off_until_ns, order->off_until_ns);
    atomic_store(&p->meter, order->meter);
    sl_arb_tell_gate(t);
}

static void open_gate(struct tenant *t)
{
    bool limited = atomic_load(&t->lease.page->cores_limit_permille) < 1000;
    sl_arb_gate_set(t, 0, limited ? SL_GATE_METER : SL_GATE_FREE);
    sl_arb_tell_gate(t);
}

static void enter_mode(struct arbiter *a, struct tenant *t)
{
    bool turns = t->gpu_count && a->gpu[t->gpu[0]].turns;
    if (t->by_turns == turns)
        return;
    t->by_turns = turns;
    if (turns) {
        obey(t, &(struct sl_steer_order){.slice_us = SL_STEER_DEFAULT_US});
        sl_arb_turnstile_add(a, t);
        sl_arb_tell_gate(t);
    } else {
        sl_arb_turnstile_remove(a, t);
        open_gate(t);
    }
}

/* --- the ledgers' figures ---------------------------------------------------------------------- */

static uint64_t grown(uint64_t now, uint64_t *before)
{
    uint64_t d = now > *before ? now - *before : 0;
    *before = now;
    return d;
}

static void read_member(struct arbiter *a, struct tenant *t, struct member *m)
{
    const struct sl_slot *s = &t->ledger.page->slot[m->slot];
    uint64_t watched = atomic_load(&s->watched_ns);
    uint64_t busy = grown(atomic_load(&s->saturated_ns), &m->saturated_ns);
    sl_once_report(&t->once, &m->distance_ns, watched, busy);
    t->seen.work_ns += grown(atomic_load(&s->work_ns), &m->work_ns);
    t->seen.launches += grown(atomic_load(&s->launches), &m->launches);
    t->seen.done_ns += grown(atomic_load(&s->done_ns), &m->done_ns);
    if (busy)
        m->busy_until_ns = a->now_ns + SL_BUSY_LASTS_NS;
    bool speaks = a->now_ns < atomic_load(&s->metered_ns) + SL_SILENT_NS;
    t->seen.pending |= speaks && atomic_load(&s->pending);
    uint32_t now = atomic_load(&s->busy);
    t->seen.active |= now == SL_BUSY_RUNNING;
    t->use.has_work |= now != SL_BUSY_IDLE;
    t->seen.groups += m->busy_until_ns > a->now_ns;
}

static void report(struct arbiter *a, struct tenant *t)
{
    t->seen.active = t->seen.pending = false;
    t->seen.groups = 0;
    t->use.has_work = false;
    for (struct member *m = t->members; m && t->ledger.page; m = m->next)
        read_member(a, t, m);
    t->seen.saturated_ns += sl_once_count(&t->once);
    struct sl_steer_seen seen = t->seen;
    seen.active = seen.active && !t->by_turns;
    seen.pending = seen.pending && !t->by_turns;
    sl_steer_report(a->compute->steer, t->steer_id, &seen);
}

/* The two take turns for a while, or until one of them goes: its figures may have been wrong, and others must not pay
 * for that. */
static void note_no_effect(struct arbiter *a)
{
    uint32_t ids[2];
    while (sl_steer_no_effect(a->compute->steer, ids))
        for (uint32_t i = 0; i < 2; i++)
            a->compute->by_id[ids[i]]->turns_until_ns = a->now_ns + SL_EFFECT_AGAIN_NS;
}

static void forget_no_effect(struct arbiter *a, const struct tenant *gone)
{
    for (struct tenant *t = a->tenants; t && gone->turns_until_ns; t = t->next)
        if (sl_arb_spec_of(t).gpu_mask & sl_arb_spec_of(gone).gpu_mask)
            t->turns_until_ns = 0;
}

uint64_t sl_arb_compute_tick(struct arbiter *a)
{
    struct sl_steer_order orders[16];
    uint64_t next;
    size_t n;
    choose_modes(a);
    for (struct tenant *t = a->tenants; t; t = t->next) {
        if (t->steer_id == UINT32_MAX)
            continue;
        enter_mode(a, t);
        report(a, t);
        sl_arb_use_look(a, t);
    }
    do {
        n = sl_steer_decide(a->compute->steer, a->now_ns, orders, 16, &next);
        for (size_t i = 0; i < n; i++) {
            struct tenant *t = a->compute->by_id[orders[i].id];
            if (t->by_turns) /* quiet in the policy's eyes: off only for a pause */
                atomic_store(&t->lease.page->paused_until_ns, orders[i].off_until_ns);
            else
                obey(t, &orders[i]);
        }
    } while (n == 16);
    note_no_effect(a);
    return least(next, sl_arb_turnstile_tick(a));
}

/* --- tenants and members ----------------------------------------------------------------------- */

void sl_arb_compute_add(struct arbiter *a, struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_steer_spec spec = sl_arb_spec_of(t);
    uint32_t id = 0;
    t->steer_id = t->turn.id = UINT32_MAX;
    recall_doctor(a, t);
    while (id < SL_STEER_MAX_TENANTS && a->compute->by_id[id])
        id++;
    /* A MIG instance beyond the policy's limits has a GPU of its own already. */
    if (id == SL_STEER_MAX_TENANTS || spec.gpu_mask == 0)
        return;
    if (sl_steer_add(a->compute->steer, id, &spec, a->now_ns, &err) < 0) {
        sl_error("the GPU time of tenant %s is not shared by slices: %s", t->name, err.msg);
        return;
    }
    t->steer_id = id;
    a->compute->by_id[id] = t;
    open_gate(t);
}

void sl_arb_compute_set(struct arbiter *a, struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_steer_spec spec = sl_arb_spec_of(t);
    if (t->steer_id == UINT32_MAX)
        return;
    if (sl_steer_set(a->compute->steer, t->steer_id, &spec, &err) < 0)
        sl_error("tenant %s keeps its old cores: %s", t->name, err.msg);
    if (t->by_turns)
        sl_arb_turnstile_set(a, t);
    else
        open_gate(t);
}

void sl_arb_compute_remove(struct arbiter *a, struct tenant *t)
{
    sl_arb_turnstile_remove(a, t);
    forget_no_effect(a, t);
    if (t->steer_id == UINT32_MAX)
        return;
    sl_steer_remove(a->compute->steer, t->steer_id);
    a->compute->by_id[t->steer_id] = NULL;
    t->steer_id = UINT32_MAX;
    /* Its processes may outlive the tenant (an arbiter that ends drops tenants): let them run. */
    obey(t, &(struct sl_steer_order){.slice_us = SL_STEER_DEFAULT_US});
    sl_arb_gate_set(t, 0, SL_GATE_FREE);
}

void sl_arb_compute_member_came(struct tenant *t, struct member *m)
{
    const struct sl_slot *s = &t->ledger.page->slot[m->slot];
    m->saturated_ns = atomic_load(&s->saturated_ns);
    m->work_ns = atomic_load(&s->work_ns);
    m->distance_ns = sl_once_came(&t->once, atomic_load(&s->watched_ns));
    m->launches = atomic_load(&s->launches);
    m->done_ns = atomic_load(&s->done_ns);
}

uint64_t sl_arb_compute_used(struct arbiter *a, const struct tenant *t)
{
    struct sl_steer_stats s = {.used_ns = 0};
    if (t->steer_id != UINT32_MAX && sl_steer_stats(a->compute->steer, t->steer_id, &s) < 0)
        return 0;
    return s.used_ns + sl_arb_turnstile_used(a, t);
}

void sl_arb_compute_status(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m)
{
    struct sl_steer_stats s;
    m->compute = t->by_turns ? SL_COMPUTE_TURNS : SL_COMPUTE_SLICES;
    if (t->by_turns)
        sl_arb_turnstile_status(a, t, m);
    if (t->by_turns || t->steer_id == UINT32_MAX ||
        sl_steer_stats(a->compute->steer, t->steer_id, &s) < 0)
        return;
    m->share_1s_permille = s.share_1s_permille;
    m->share_60s_permille = s.share_60s_permille;
    m->debt_ns = (int64_t)s.debt_ns;
    m->waited_ns += s.off_ns;
    m->slice_us = s.slice_us;
}

void sl_arb_compute_open(struct arbiter *a)
{
    a->compute = sl_xcalloc(1, sizeof(*a->compute));
    a->compute->steer = sl_steer_create();
    sl_arb_turnstile_open(a);
}

void sl_arb_compute_close(struct arbiter *a)
{
    sl_arb_turnstile_close(a);
    sl_steer_destroy(a->compute->steer);
    free(a->compute);
    a->compute = NULL;
}
