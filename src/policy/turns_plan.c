/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the next tenant. One pass over the candidates, best first: tenants that wait, and holders whose turn may end
 * now ("soft": it ran out, or a better candidate came). A holder that comes up first goes on without a hand-over; any
 * other holder is closed.
 *
 * A candidate whose GPUs are not all free reserves the free ones, or tenants on one GPU would starve tenants on
 * several. Until the turns end that it waits for, others may fill the gap.
 */
#include "policy/turns_internal.h"

struct plan {
    uint32_t avail;                         /* no holder, or a soft holder */
    uint32_t soft;                          /* of those: has a soft holder */
    uint32_t taken;                         /* given away by this plan */
    uint32_t reserved;                      /* a better candidate waits for it … */
    uint64_t horizon_ns[SL_TURNS_MAX_GPUS]; /* … which cannot start before this */
};

/* Has it work, and may it have a turn? */
static bool is_ready(const struct tenant *t)
{
    return (t->state == SL_TURNS_WOKEN || t->state == SL_TURNS_WAITING) && !t->spec.paused &&
           (!capped(t) || t->tokens >= sl_turns_start_tokens(t));
}

static bool is_live(const struct tenant *t)
{
    return is_ready(t) || is_busy(t);
}

/* --- virtual time ------------------------------------------------------------------------------- */

static void count_tenant(struct sl_turns *s, const struct tenant *t)
{
    uint32_t c = t->spec.priority;
    bool wants = t->want && !t->spec.paused;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        struct gpu *gpu = &s->gpu[g];
        gpu->wanting += wants;
        if (wants || is_live(t)) {
            gpu->n[c]++;
            gpu->weights[c] += t->weight;
        }
        if (is_live(t))
            gpu->least_ns[c] = min_i64(gpu->least_ns[c], t->lead_ns[g]);
    }
}

/*
 * Leads are counted again from the tenant that got the least. So the debt of a tenant melts while the others run, a new
 * tenant owes nothing and is owed nothing, and a tenant that sleeps falls behind, but by no more than it may claim.
 */
static void count_leads(const struct sl_turns *s, struct tenant *t)
{
    uint32_t c = t->spec.priority;
    int64_t most = min_i64(virtual_of(SL_TURN_DEBT_NS, t->weight), (int64_t)SL_TURN_REPAY_NS);
    t->key_ns = -(int64_t)SL_TURN_CLAIM_NS;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        int64_t least = s->gpu[g].least_ns[c];
        if (least != INT64_MAX)
            t->lead_ns[g] = max_i64(min_i64(t->lead_ns[g] - least, most), t->key_ns);
    }
    FOR_EACH_GPU(k, t->spec.gpu_mask)
    t->key_ns = max_i64(t->key_ns, t->lead_ns[k]);
}

void sl_turns_refresh(struct sl_turns *s)
{
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        struct gpu *gpu = &s->gpu[g];
        gpu->wanting = 0;
        for (uint32_t c = 0; c < CLASSES; c++) {
            gpu->n[c] = 0;
            gpu->weights[c] = 0;
            gpu->least_ns[c] = INT64_MAX;
        }
    }
    FOR_EACH_TENANT(s, t)
    {
        sl_turns_accrue(s, t);
        count_tenant(s, t);
    }
    FOR_EACH_TENANT(s, u)
    count_leads(s, u);
}

/* --- turns -------------------------------------------------------------------------------------- */

static bool meets(const struct tenant *a, const struct tenant *b)
{
    return ((a->hold_mask | a->spec.gpu_mask) & (b->hold_mask | b->spec.gpu_mask)) != 0;
}

/* Has another tenant work, or is another tenant still on one of its GPUs? */
static bool contended(const struct sl_turns *s, const struct tenant *t)
{
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        const struct gpu *gpu = &s->gpu[g];
        if (gpu->overruns || gpu->wanting > (t->want ? 1U : 0U) ||
            (gpu->holder != NOBODY && gpu->holder != id_of(s, t)))
            return true;
    }
    return false;
}

/* Its part of a round in which each tenant with work and its priority gets one turn. */
static uint64_t turn_ns(const struct sl_turns *s, const struct tenant *t)
{
    uint32_t c = t->spec.priority;
    uint64_t turn = SL_TURN_ROUND_NS;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        const struct gpu *gpu = &s->gpu[g];
        uint64_t round = min_u64(SL_TURN_QUANTUM_NS * max_u64(gpu->n[c], 1), SL_TURN_ROUND_NS);
        turn = min_u64(turn, round * t->weight / max_u64(gpu->weights[c], t->weight));
    }
    return max_u64(turn, SL_TURN_SHORTEST_NS);
}

/* The end of a turn that begins or goes on now. */
static uint64_t end_ns(const struct sl_turns *s, const struct tenant *t, uint64_t horizon_ns)
{
    if (!capped(t) && !contended(s, t))
        return SL_TURNS_NEVER;
    uint64_t length = min_u64(turn_ns(s, t), sl_turns_run_ns(t));
    return min_u64(add_sat(s->now_ns, length), horizon_ns);
}

static void close_turn(const struct sl_turns *s, struct tenant *t)
{
    t->length_ns = (3 * t->length_ns + min_u64(s->now_ns - t->granted_ns, SL_TURN_ROUND_NS)) / 4;
    t->state = SL_TURNS_CLOSING;
    t->until_ns = add_sat(s->now_ns, SL_TURN_DRAIN_NS);
    t->dirty = true;
}

static void grant(struct sl_turns *s, struct tenant *t, uint64_t horizon_ns)
{
    t->waited_ns = add_sat(t->waited_ns, s->now_ns - t->wait_from_ns);
    sl_turns_occupy(s, t);
    t->state = SL_TURNS_CALLED;
    t->filler = horizon_ns != SL_TURNS_NEVER;
    t->turns++;
    t->granted_ns = s->now_ns;
    t->until_ns = end_ns(s, t, horizon_ns);
    t->dirty = true;
}

static void extend(const struct sl_turns *s, struct tenant *t, uint64_t horizon_ns)
{
    if (t->until_ns > s->now_ns)
        return; /* a better candidate came, but cannot use it: the turn goes on */
    t->filler = horizon_ns != SL_TURNS_NEVER;
    t->until_ns = end_ns(s, t, horizon_ns);
}

/* A holder goes on only if it would still be behind after half another turn: the small loss of a hand-over must not
 * earn it a second turn. */
static int64_t order_key(const struct sl_turns *s, const struct tenant *t)
{
    return is_open(t) ? t->key_ns + virtual_of(turn_ns(s, t) / 2, t->weight) : t->key_ns;
}

static bool goes_before(const struct sl_turns *s, const struct tenant *a, const struct tenant *b)
{
    if (a->spec.priority != b->spec.priority)
        return a->spec.priority > b->spec.priority;
    int64_t key_a = order_key(s, a), key_b = order_key(s, b);
    return key_a != key_b ? key_a < key_b : is_open(b);
}

static bool is_late(const struct sl_turns *s, const struct tenant *t)
{
    return t->state == SL_TURNS_CALLED && s->now_ns >= add_sat(t->granted_ns, SL_TURN_COME_NS);
}

static bool must_close(const struct sl_turns *s, const struct tenant *t)
{
    if (t->spec.paused || t->hold_mask != t->spec.gpu_mask || is_late(s, t))
        return true;
    if (!t->want && (capped(t) || contended(s, t)) &&
        s->now_ns - t->idle_since_ns >= SL_TURN_IDLE_NS)
        return true;
    uint64_t run = sl_turns_run_ns(t);
    return run == 0 || (run < SL_TURN_LEFT_NS && s->now_ns >= t->until_ns);
}

/* May a waiting tenant end this turn before its time? */
static bool interrupted(struct sl_turns *s, const struct tenant *h)
{
    FOR_EACH_TENANT(s, t)
    {
        if (!is_ready(t) || !meets(t, h))
            continue;
        if (t->spec.priority > h->spec.priority)
            return true;
        if (t->spec.priority == h->spec.priority && t->state == SL_TURNS_WOKEN &&
            s->now_ns - h->granted_ns >= SL_TURN_SHORTEST_NS &&
            t->key_ns + virtual_of(SL_TURN_SHORTEST_NS, t->weight) < h->key_ns)
            return true;
    }
    return false;
}

/* Closes a turn that is over; returns the holder's GPUs if it may end now. */
static uint32_t review_holder(struct sl_turns *s, struct tenant *t)
{
    if (must_close(s, t)) {
        if (is_late(s, t))
            t->want = false; /* until it reports again that it wants a turn */
        close_turn(s, t);
        return 0;
    }
    if (t->until_ns == SL_TURNS_NEVER && (capped(t) || contended(s, t))) {
        /* Others came: it keeps the rest of the turn that it would have had. */
        uint64_t turn = min_u64(turn_ns(s, t), sl_turns_run_ns(t));
        t->until_ns = max_u64(add_sat(t->granted_ns, turn), s->now_ns);
    }
    bool over = t->state == SL_TURNS_RUNNING && s->now_ns >= t->until_ns;
    return over || interrupted(s, t) ? t->hold_mask : 0;
}

/* --- the plan ----------------------------------------------------------------------------------- */

static struct plan collect(struct sl_turns *s)
{
    struct plan p = {0};
    s->n_cands = 0;
    FOR_EACH_TENANT(s, t)
    {
        uint32_t soft = is_open(t) ? review_holder(s, t) : 0;
        p.soft |= soft;
        if (soft || is_ready(t))
            s->cands[s->n_cands++] = id_of(s, t);
    }
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        p.avail |= s->gpu[g].holder == NOBODY ? 1U << g : 0;
        p.horizon_ns[g] = SL_TURNS_NEVER;
    }
    p.avail |= p.soft;
    return p;
}

static struct tenant *take_best(struct sl_turns *s)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < s->n_cands; i++)
        if (goes_before(s, &s->tenants[s->cands[i]], &s->tenants[s->cands[best]]))
            best = i;
    struct tenant *t = &s->tenants[s->cands[best]];
    s->cands[best] = s->cands[--s->n_cands];
    return t;
}

/* It cannot start: its GPUs are reserved for it. Until the last turn ends that stands in its way, others may use them;
 * but not while a holder drains, or two tenants that drain by turns could delay it for ever. */
static void reserve(const struct sl_turns *s, struct plan *p, const struct tenant *t)
{
    uint32_t mask = t->spec.gpu_mask;
    uint64_t start_ns = s->now_ns;
    FOR_EACH_GPU(g, mask & (~p->avail | p->taken))
    {
        uint32_t holder = s->gpu[g].holder;
        const struct tenant *h = holder != NOBODY ? &s->tenants[holder] : NULL;
        if (h && is_open(h)) /* a holder often has no more work long before its turn is over */
            start_ns = max_u64(start_ns, min_u64(h->until_ns, h->granted_ns + h->length_ns));
    }
    FOR_EACH_GPU(f, mask & ~p->taken)
    p->horizon_ns[f] = min_u64(p->horizon_ns[f], start_ns);
    p->reserved |= mask & ~p->taken;
}

static void consider(struct sl_turns *s, struct plan *p, struct tenant *t)
{
    uint32_t mask = t->spec.gpu_mask;
    uint64_t horizon = SL_TURNS_NEVER;
    FOR_EACH_GPU(g, mask & p->reserved)
    horizon = min_u64(horizon, p->horizon_ns[g]);
    bool gap = horizon != SL_TURNS_NEVER, holds = is_open(t);
    if (mask & (~p->avail | p->taken)) {
        reserve(s, p, t);
        return;
    }
    if (gap && (horizon < add_sat(s->now_ns, SL_TURN_SHORTEST_NS) || (!holds && (mask & p->soft))))
        return; /* not worth a hand-over */
    p->taken |= mask;
    if (holds) {
        extend(s, t, horizon);
        p->soft &= ~mask;
    } else if (!(mask & p->soft)) {
        grant(s, t, horizon);
    } /* else its holders get no extension: they are closed, and this tenant waits for them */
}

static uint64_t tokens_wait_ns(const struct tenant *t)
{
    int64_t need = sl_turns_start_tokens(t) - t->tokens;
    return need <= 0 ? 1 : (uint64_t)need / t->spec.limit_permille + 1;
}

static uint64_t wake_of(const struct sl_turns *s, const struct tenant *t)
{
    uint64_t wake = SL_TURNS_NEVER;
    switch (t->state) {
    case SL_TURNS_CALLED:
    case SL_TURNS_RUNNING:
        wake = t->state == SL_TURNS_CALLED ? add_sat(t->granted_ns, SL_TURN_COME_NS) : t->until_ns;
        if (!t->want && (capped(t) || contended(s, t)))
            wake = min_u64(wake, add_sat(t->idle_since_ns, SL_TURN_IDLE_NS));
        return wake;
    case SL_TURNS_CLOSING:
        return t->until_ns;
    case SL_TURNS_WOKEN:
    case SL_TURNS_WAITING:
        if (t->spec.paused)
            return wake;
        if (!is_ready(t))
            return add_sat(s->now_ns, tokens_wait_ns(t));
        if (t->state == SL_TURNS_WAITING)
            return wake;
        break; /* it may interrupt once the holder has had its minimum */
    case SL_TURNS_NONE:
    case SL_TURNS_IDLE:
    case SL_TURNS_OVERRUN:
        return wake;
    }
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        uint32_t holder = s->gpu[g].holder;
        if (holder == NOBODY || !is_open(&s->tenants[holder]))
            continue;
        uint64_t least = add_sat(s->tenants[holder].granted_ns, SL_TURN_SHORTEST_NS);
        wake = least > s->now_ns ? min_u64(wake, least) : wake;
    }
    return wake;
}

static size_t tell(struct sl_turns *s, bool closes, struct sl_turns_action *actions, size_t n,
                   size_t max, bool *more)
{
    FOR_EACH_TENANT(s, t)
    {
        if (!t->dirty || is_open(t) == closes)
            continue;
        if (n == max) {
            *more = true;
            return n;
        }
        t->dirty = false;
        actions[n++] = (struct sl_turns_action){
            .kind = closes ? SL_TURNS_CLOSE : SL_TURNS_OPEN, .id = id_of(s, t), .turn = t->turns};
    }
    return n;
}

size_t sl_turns_decide(struct sl_turns *turns, uint64_t now_ns, struct sl_turns_action *actions,
                       size_t max, uint64_t *ret_next_wake_ns)
{
    sl_turns_tick(turns, now_ns);
    FOR_EACH_TENANT(turns, t)
    if (t->state == SL_TURNS_CLOSING && turns->now_ns >= t->until_ns && !t->dirty)
        sl_turns_pass_over(turns, t);
    sl_turns_refresh(turns);
    struct plan p = collect(turns);
    while (turns->n_cands)
        consider(turns, &p, take_best(turns));
    FOR_EACH_TENANT(turns, h)
    if (is_open(h) && (h->hold_mask & p.soft))
        close_turn(turns, h);
    bool more = false;
    size_t n = tell(turns, true, actions, 0, max, &more);
    n = tell(turns, false, actions, n, max, &more);
    uint64_t wake = SL_TURNS_NEVER;
    FOR_EACH_TENANT(turns, w)
    wake = min_u64(wake, wake_of(turns, w));
    *ret_next_wake_ns = more ? now_ns : max_u64(wake, add_sat(turns->now_ns, 1));
    return n;
}
