/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is next. One pass over the candidates, best first: tenants that wait, and holders whose turn
 * may end now ("soft": it ran out, or somebody better came). A holder that comes up first goes on
 * without a hand-over; one that does not is closed.
 *
 * A candidate whose GPUs are not all there reserves the ones that are, or tenants on one GPU would
 * starve those on several. The gap until the last of them comes free may be filled by others, for
 * as long as it is likely to last.
 */
#include "policy/turns_internal.h"

#define NO_HORIZON UINT64_MAX

struct plan {
    uint32_t asked;                         /* some candidate can use it */
    uint32_t avail;                         /* no holder, or a soft one */
    uint32_t soft;                          /* of those: has a soft holder */
    uint32_t taken;                         /* given away by this plan */
    uint32_t reserved;                      /* waited for by a better candidate … */
    uint64_t horizon_ns[SL_TURNS_MAX_GPUS]; /* … which cannot start before this */
};

static bool meets(const struct tenant *a, const struct tenant *b)
{
    return ((a->hold_mask | a->spec.gpu_mask) & (b->hold_mask | b->spec.gpu_mask)) != 0;
}

/* Is anybody else there that has work, or is still on one of its GPUs? */
static bool contended(const struct sl_turns *s, const struct tenant *t)
{
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        const struct gpu *gpu = &s->gpu[g];
        if (gpu->overruns || gpu->wanting > (t->want ? 1U : 0U))
            return true;
        if (gpu->holder != NOBODY && &s->tenants[gpu->holder] != t)
            return true;
    }
    return false;
}

static bool may_be_free(const struct sl_turns *s, const struct tenant *t)
{
    return !capped(t) && t->state != SL_TURNS_OVERRUN && !contended(s, t);
}

static bool alone(const struct sl_turns *s, const struct tenant *t)
{
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    if (s->gpu[g].attached > 1)
        return false;
    return true;
}

/* Its part of a round in which everybody with work and its priority gets one turn. */
static uint64_t turn_ns(const struct sl_turns *s, const struct tenant *t)
{
    uint32_t c = (uint32_t)t->spec.priority;
    uint64_t turn = s->cfg.round_ns;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        const struct gpu *gpu = &s->gpu[g];
        uint64_t quantum = gpu->attached_high ? s->cfg.quantum_high_ns : s->cfg.quantum_ns;
        uint64_t n = gpu->n[c] ? gpu->n[c] : 1;
        uint64_t weights = max_u64(gpu->weights[c], t->weight);
        uint64_t round = min_u64(mul_sat(quantum, n), s->cfg.round_ns);
        turn = min_u64(turn, mul_sat(round, t->weight) / weights);
    }
    return max_u64(turn, s->cfg.min_turn_ns);
}

static bool beside_high(const struct sl_turns *s, const struct tenant *t)
{
    uint32_t self = t->spec.priority == SL_TURNS_HIGH;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    if (s->gpu[g].attached_high > self)
        return true;
    return false;
}

static void set_window(struct sl_turns *s, struct tenant *t)
{
    uint64_t window = s->cfg.window_ns;
    uint32_t kernels = 1;
    if (beside_high(s, t)) {
        window = s->cfg.window_high_ns;
    } else if (t->turn.free) {
        if (alone(s, t))
            window = 0;
    } else {
        /* What is in flight at the end of a short turn should not be most of it. */
        uint64_t quarter = (t->until_ns - min_u64(t->granted_ns, t->until_ns)) / 4;
        window = min_u64(window, max_u64(quarter, s->cfg.window_ns / 8));
    }
    if (window != t->window_ns || kernels != t->window_kernels) {
        t->window_ns = window;
        t->window_kernels = kernels;
        t->dirty = true;
    }
}

static void set_until(struct tenant *t, uint64_t until_ns)
{
    if (t->turn.free || t->until_ns != until_ns)
        t->dirty = true;
    t->turn.free = false;
    t->until_ns = until_ns;
}

static void close_turn(struct sl_turns *s, struct tenant *t)
{
    uint64_t length_ns = min_u64(s->now_ns - t->granted_ns, s->cfg.round_ns);
    t->length_ns = t->turns == 1 ? length_ns : (3 * t->length_ns + length_ns) / 4;
    t->state = SL_TURNS_CLOSING;
    t->seen.soft = false;
    if (t->turn.free) {
        t->turn.free = false;
        t->until_ns = s->now_ns;
        t->charge_from_ns = min_u64(t->charge_from_ns, s->now_ns);
    }
    t->drain_until_ns = add_sat(s->now_ns, s->cfg.drain_ns);
    t->dirty = true;
}

/* The end of a turn that begins or goes on now. */
static uint64_t end_ns(struct sl_turns *s, struct tenant *t, uint64_t horizon_ns)
{
    uint64_t length = t->turn.floor ? s->cfg.floor_turn_ns : turn_ns(s, t);
    length = min_u64(length, sl_turns_ledger_run_ns(s, t));
    return min_u64(add_sat(s->now_ns, length), horizon_ns);
}

static void grant(struct sl_turns *s, uint32_t id, bool floor, uint64_t horizon_ns)
{
    struct tenant *t = &s->tenants[id];
    if (t->want)
        t->waited_ns = add_sat(t->waited_ns, s->now_ns - t->wait_from_ns);
    t->turn.free = may_be_free(s, t);
    sl_turns_occupy(s, id);
    t->state = SL_TURNS_OPEN;
    t->turn.floor = floor;
    t->turn.backfill = horizon_ns != NO_HORIZON;
    t->woken = t->turn.gives_up = t->turn.started = false;
    t->promise_ns = 0;
    t->seen.ready = false;
    t->turns++;
    t->granted_ns = s->now_ns;
    t->idle_since_ns = s->now_ns;
    t->until_ns = t->turn.free ? SL_TURNS_NEVER : end_ns(s, t, horizon_ns);
    uint64_t credit = min_u64(t->credit_ns, s->cfg.start_credit_ns);
    t->credit_ns -= credit;
    t->charge_from_ns = s->now_ns + credit;
    t->dirty = true;
}

static void extend(struct sl_turns *s, struct tenant *t, uint64_t horizon_ns)
{
    t->seen.soft = false;
    if (t->until_ns > s->now_ns && !t->turn.free)
        return; /* somebody better came, but cannot use it: the turn just goes on */
    t->turn.floor = false;
    t->turn.backfill = horizon_ns != NO_HORIZON;
    set_until(t, end_ns(s, t, horizon_ns));
}

/* Lower priorities that got less than their floor go first, for one short turn. */
static bool on_floor(const struct sl_turns *s, const struct tenant *t)
{
    bool held_back = false;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        const struct gpu *gpu = &s->gpu[g];
        if (gpu->top >= CLASSES || gpu->top <= (uint32_t)t->spec.priority)
            continue;
        if (!gpu->floor_accrues || gpu->floor < to_i64(mul_sat(s->cfg.floor_turn_ns, 1000)))
            return false;
        if (gpu->holder != NOBODY && s->tenants[gpu->holder].turn.floor)
            return false;
        held_back = true;
    }
    return held_back && t->state == SL_TURNS_IDLE;
}

static uint32_t rank(const struct sl_turns *s, const struct tenant *t)
{
    return on_floor(s, t) ? CLASSES : (uint32_t)t->spec.priority;
}

/* A holder goes on only if it would still be behind after half another turn: what a turn falls
 * short of by a hand-over must not earn it a second one. */
static int64_t order_key(const struct sl_turns *s, const struct tenant *t)
{
    if (t->state != SL_TURNS_OPEN)
        return t->v_ns;
    return iadd_sat(t->v_ns, virtual_of(turn_ns(s, t) / 2, t->weight));
}

static bool goes_before(const struct tenant *a, const struct tenant *b)
{
    if (a->rank != b->rank)
        return a->rank > b->rank;
    if (a->rank == CLASSES && a->wait_from_ns != b->wait_from_ns)
        return a->wait_from_ns < b->wait_from_ns;
    if (a->key_ns != b->key_ns)
        return a->key_ns < b->key_ns;
    return a->state == SL_TURNS_IDLE && b->state != SL_TURNS_IDLE;
}

static bool must_close(struct sl_turns *s, struct tenant *t)
{
    if (t->hold_mask != t->spec.gpu_mask || t->turn.gives_up)
        return true;
    if (!t->want) {
        if (t->turn.free)
            return contended(s, t) || capped(t);
        if (s->now_ns - t->idle_since_ns >= s->cfg.idle_ns)
            return true;
    }
    if (!capped(t))
        return false;
    uint64_t run = sl_turns_ledger_run_ns(s, t);
    return run == 0 || (run < MIN_RUN_NS && s->now_ns >= t->until_ns);
}

/* May somebody who waits end this turn before its time? */
static bool interrupted(const struct sl_turns *s, const struct tenant *h)
{
    if (h->turn.floor)
        return false;
    for (uint32_t i = 0; i < s->n_ids; i++) {
        const struct tenant *t = &s->tenants[s->ids[i]];
        if (!t->seen.ready || !meets(t, h))
            continue;
        if (rank(s, t) > (uint32_t)h->spec.priority)
            return true;
        if (t->spec.priority != h->spec.priority || !t->woken ||
            s->now_ns - h->granted_ns < s->cfg.min_turn_ns)
            continue;
        int64_t lag = virtual_of(s->cfg.min_turn_ns, t->weight);
        if (iadd_sat(t->v_ns, lag) < h->v_ns)
            return true;
    }
    return false;
}

static void review_holder(struct sl_turns *s, struct tenant *t)
{
    t->seen.soft = false;
    if (must_close(s, t)) {
        close_turn(s, t);
        return;
    }
    if (may_be_free(s, t)) {
        if (!t->turn.free) {
            t->turn.free = true;
            t->turn.floor = t->turn.backfill = false;
            t->until_ns = SL_TURNS_NEVER;
            t->dirty = true;
        }
        return;
    }
    if (t->turn.free) {
        /* Company: the turn it would have had, if any of it is left. */
        uint64_t turn = min_u64(turn_ns(s, t), sl_turns_ledger_run_ns(s, t));
        set_until(t, max_u64(add_sat(t->granted_ns, turn), s->now_ns));
    }
    /* On a machine short of processors a tenant wakes late: a turn that ended before it could begin
     * would be lost again and again. */
    bool over = s->now_ns >= t->until_ns &&
                (t->turn.started || s->now_ns - t->granted_ns >= s->cfg.come_ns);
    t->seen.soft = over || interrupted(s, t);
}

static void collect(struct sl_turns *s, struct plan *p)
{
    s->n_cands = 0;
    for (uint32_t i = 0; i < s->n_ids; i++) {
        uint32_t id = s->ids[i];
        struct tenant *t = &s->tenants[id];
        if (!t->seen.ready)
            t->promise_ns = 0;
        bool opens =
            t->state == SL_TURNS_IDLE && !t->seen.ready && may_be_free(s, t) && alone(s, t);
        if (!t->seen.ready && !(t->state == SL_TURNS_OPEN && t->seen.soft) && !opens)
            continue;
        t->rank = rank(s, t);
        t->key_ns = order_key(s, t);
        p->asked |= t->spec.gpu_mask;
        s->cands[s->n_cands++] = id;
    }
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        uint32_t holder = s->gpu[g].holder;
        bool soft = holder != NOBODY && s->tenants[holder].seen.soft;
        if (holder == NOBODY || soft)
            p->avail |= 1U << g;
        if (soft)
            p->soft |= 1U << g;
        p->horizon_ns[g] = NO_HORIZON;
    }
}

static uint32_t take_best(struct sl_turns *s)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < s->n_cands; i++)
        if (goes_before(&s->tenants[s->cands[i]], &s->tenants[s->cands[best]]))
            best = i;
    uint32_t id = s->cands[best];
    s->cands[best] = s->cands[--s->n_cands];
    return id;
}

/* When a GPU that is not there is likely to be. What a tenant's kernels make of its drains can be
 * learnt; a liar delays who waits for it by no more than the bound on draining. */
static uint64_t free_at(const struct sl_turns *s, const struct gpu *gpu)
{
    if (gpu->holder == NOBODY)
        return s->now_ns;
    const struct tenant *h = &s->tenants[gpu->holder];
    uint64_t closed_ns = s->now_ns;
    if (h->state == SL_TURNS_CLOSING)
        closed_ns = h->drain_until_ns - min_u64(s->cfg.drain_ns, h->drain_until_ns);
    else if (!h->seen.soft) /* some usually have no more work long before their turn is over */
        closed_ns = min_u64(h->until_ns, add_sat(h->granted_ns, h->length_ns));
    return max_u64(add_sat(closed_ns, h->drain_ns), s->now_ns);
}

/*
 * It cannot start: keep its GPUs for it, for as long as it is likely to wait. That moment is fixed
 * when nobody better stands in its way: those who fill the gap on one GPU and on the other must
 * not put it off in turns for ever.
 */
static void reserve(const struct sl_turns *s, struct plan *p, struct tenant *t)
{
    uint32_t mask = t->spec.gpu_mask;
    uint64_t start_ns = s->now_ns;
    FOR_EACH_GPU(g, mask & (~p->avail | p->taken))
    start_ns = max_u64(start_ns, free_at(s, &s->gpu[g]));
    if (mask & p->taken)
        t->promise_ns = 0;
    else if (!t->promise_ns)
        t->promise_ns = start_ns;
    else
        start_ns = min_u64(start_ns, t->promise_ns);
    FOR_EACH_GPU(f, mask & ~p->taken)
    p->horizon_ns[f] = min_u64(p->horizon_ns[f], start_ns);
    p->reserved |= mask & ~p->taken;
}

static void consider(struct sl_turns *s, struct plan *p, uint32_t id)
{
    struct tenant *t = &s->tenants[id];
    uint32_t mask = t->spec.gpu_mask;
    bool holds = t->state == SL_TURNS_OPEN;
    uint64_t horizon = NO_HORIZON;
    FOR_EACH_GPU(g, mask & p->reserved)
    horizon = min_u64(horizon, p->horizon_ns[g]);
    bool gap = horizon != NO_HORIZON;
    if (gap)
        horizon -= min_u64(horizon, t->drain_ns); /* it has to be off again by then */
    if (mask & (~p->avail | p->taken)) {
        reserve(s, p, t);
    } else if (gap &&
               (horizon < add_sat(s->now_ns, s->cfg.min_turn_ns) || (!holds && (mask & p->soft)))) {
        return; /* not worth a hand-over */
    } else if (holds) {
        extend(s, t, horizon);
        p->taken |= mask;
    } else if (mask & p->soft) {
        /* Its holders are not extended any more: they are closed below, and this one waits. */
        p->taken |= mask;
    } else {
        grant(s, id, on_floor(s, t), horizon);
        p->taken |= mask;
    }
}

static void plan(struct sl_turns *s)
{
    struct plan p = {0};
    collect(s, &p);
    while (s->n_cands && (p.asked & p.avail & ~p.taken))
        consider(s, &p, take_best(s));
    for (uint32_t i = 0; i < s->n_busy; i++) {
        struct tenant *t = &s->tenants[s->busy[i]];
        if (t->state == SL_TURNS_OPEN && t->seen.soft)
            close_turn(s, t);
    }
}

static uint64_t wait_for(int64_t have, int64_t need, uint32_t rate_permille)
{
    if (have >= need)
        return 1;
    return (uint64_t)(need - have) / rate_permille + 1;
}

static uint64_t wake_of(struct sl_turns *s, struct tenant *t)
{
    switch (t->state) {
    case SL_TURNS_OPEN: {
        uint64_t wake = t->until_ns;
        if (!t->turn.started && !t->turn.free)
            wake = max_u64(wake, add_sat(t->granted_ns, s->cfg.come_ns));
        if (!t->want && !t->turn.free)
            wake = min_u64(wake, add_sat(t->idle_since_ns, s->cfg.idle_ns));
        return wake;
    }
    case SL_TURNS_CLOSING:
        return t->drain_until_ns;
    case SL_TURNS_OVERRUN:
        return SL_TURNS_NEVER;
    case SL_TURNS_IDLE:
        break;
    }
    if (!t->want)
        return SL_TURNS_NEVER;
    if (!t->seen.ready) {
        int64_t start = sl_turns_ledger_start_tokens(s, t);
        return add_sat(s->now_ns, wait_for(t->tokens, start, t->spec.limit_permille));
    }
    uint64_t wake = SL_TURNS_NEVER;
    if (t->woken) { /* it may interrupt once the holder has had its least */
        FOR_EACH_GPU(g, t->spec.gpu_mask)
        {
            uint32_t holder = s->gpu[g].holder;
            if (holder == NOBODY || s->tenants[holder].state != SL_TURNS_OPEN)
                continue;
            uint64_t least = add_sat(s->tenants[holder].granted_ns, s->cfg.min_turn_ns);
            if (least > s->now_ns)
                wake = min_u64(wake, least);
        }
    }
    return wake;
}

static uint64_t next_wake(struct sl_turns *s)
{
    uint64_t wake = SL_TURNS_NEVER;
    for (uint32_t i = 0; i < s->n_ids; i++)
        wake = min_u64(wake, wake_of(s, &s->tenants[s->ids[i]]));
    int64_t full = to_i64(mul_sat(s->cfg.floor_turn_ns, 1000));
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        const struct gpu *gpu = &s->gpu[g];
        if (gpu->floor_accrues && gpu->floor < full)
            wake = min_u64(wake,
                           add_sat(s->now_ns, wait_for(gpu->floor, full, s->cfg.floor_permille)));
    }
    return max_u64(wake, s->now_ns + 1);
}

static size_t tell(struct sl_turns *s, bool closes, struct sl_turns_action *actions, size_t n,
                   size_t max, bool *more)
{
    for (uint32_t i = 0; i < s->n_busy; i++) {
        struct tenant *t = &s->tenants[s->busy[i]];
        if (!t->dirty || (t->state == SL_TURNS_CLOSING) != closes)
            continue;
        if (n == max) {
            *more = true;
            break;
        }
        t->dirty = false;
        struct sl_turns_action *a = &actions[n++];
        *a = (struct sl_turns_action){.kind = closes         ? SL_TURNS_CLOSE
                                              : t->turn.free ? SL_TURNS_FREE
                                                             : SL_TURNS_GRANT,
                                      .id = s->busy[i],
                                      .turn = t->turns,
                                      .until_ns = SL_TURNS_NEVER,
                                      .window_ns = t->window_ns,
                                      .window_kernels = t->window_kernels};
        if (a->kind == SL_TURNS_GRANT)
            a->until_ns = sl_turns_outer_ns(s, t->until_ns);
    }
    return n;
}

size_t sl_turns_decide(struct sl_turns *turns, uint64_t now_ns, struct sl_turns_action *actions,
                       size_t max, uint64_t *ret_next_wake_ns)
{
    sl_turns_tick(turns, now_ns);
    for (uint32_t i = 0; i < turns->n_busy; i++) {
        struct tenant *t = &turns->tenants[turns->busy[i]];
        if (t->state == SL_TURNS_CLOSING && turns->now_ns >= t->drain_until_ns && !t->dirty)
            sl_turns_pass_over(turns, turns->busy[i]);
    }
    sl_turns_virtual_refresh(turns);
    for (uint32_t i = 0; i < turns->n_busy; i++) {
        struct tenant *t = &turns->tenants[turns->busy[i]];
        if (t->state == SL_TURNS_OPEN)
            review_holder(turns, t);
    }
    plan(turns);
    for (uint32_t i = 0; i < turns->n_busy; i++) {
        struct tenant *t = &turns->tenants[turns->busy[i]];
        if (t->state == SL_TURNS_OPEN)
            set_window(turns, t);
    }
    bool more = false;
    size_t n = tell(turns, true, actions, 0, max, &more);
    n = tell(turns, false, actions, n, max, &more);
    *ret_next_wake_ns = more ? now_ns : sl_turns_outer_ns(turns, next_wake(turns));
    return n;
}
