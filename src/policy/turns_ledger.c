/* SPDX-License-Identifier: Apache-2.0 */
/* What turns cost: charging, the cap account, the floor account, shares over time. */
#include "policy/turns_internal.h"

void sl_turns_ledger_accrue(struct sl_turns *s, struct tenant *t)
{
    uint64_t elapsed = s->now_ns - t->tokens_at_ns;
    t->tokens_at_ns = s->now_ns;
    if (!capped(t) || elapsed == 0)
        return;
    /* A tenant kept waiting by others may save up more than one that sleeps: it loses nothing by
     * their long kernels, and neither can hoard enough to upset a whole second. */
    uint64_t depth_ns = t->want ? s->cfg.burst_wait_ns : s->cfg.burst_idle_ns;
    int64_t depth = to_i64(mul_sat(depth_ns, 1000));
    if (t->tokens >= depth)
        return;
    int64_t gain = to_i64(mul_sat(elapsed, t->spec.limit_permille));
    t->tokens = min_i64(iadd_sat(t->tokens, gain), depth);
}

int64_t sl_turns_ledger_start_tokens(const struct sl_turns *s, const struct tenant *t)
{
    /* Alone, a tenant with limit L then runs for L of each period: it starts with this much, and
     * spends it at 1 - L while it runs. */
    uint64_t l = t->spec.limit_permille;
    uint64_t tokens = mul_sat(s->cfg.cap_period_ns, l * (1000 - l)) / 1000;
    uint64_t most = mul_sat(s->cfg.burst_idle_ns, 1000);
    return to_i64(min_u64(max_u64(tokens, 1000000ULL * 1000), most));
}

uint64_t sl_turns_ledger_run_ns(struct sl_turns *s, struct tenant *t)
{
    if (!capped(t))
        return SL_TURNS_NEVER;
    sl_turns_ledger_accrue(s, t);
    return t->tokens <= 0 ? 0 : (uint64_t)t->tokens / (1000 - t->spec.limit_permille);
}

void sl_turns_ledger_accrue_floor(struct sl_turns *s, struct gpu *g)
{
    uint64_t elapsed = s->now_ns - g->floor_at_ns;
    g->floor_at_ns = s->now_ns;
    if (!g->floor_accrues)
        return;
    int64_t depth = to_i64(mul_sat(s->cfg.floor_turn_ns, 1000));
    int64_t gain = to_i64(mul_sat(elapsed, s->cfg.floor_permille));
    g->floor = min_i64(iadd_sat(g->floor, gain), depth);
}

/* Lower priorities that run, for whatever reason, are using up their floor. */
static void charge_floor(struct sl_turns *s, const struct tenant *t, uint64_t ns)
{
    int64_t cost = to_i64(mul_sat(ns, 1000));
    int64_t least = -to_i64(mul_sat(s->cfg.debt_bound_ns, 1000));
    FOR_EACH_GPU(g, t->hold_mask)
    {
        struct gpu *gpu = &s->gpu[g];
        if (gpu->top >= CLASSES || (uint32_t)t->spec.priority >= gpu->top)
            continue;
        int64_t bottom = t->turn.floor ? least : min_i64(gpu->floor, 0);
        gpu->floor = max_i64(iadd_sat(gpu->floor, -cost), bottom);
    }
}

static void charge_virtual(struct tenant *t, uint64_t from, uint64_t to, uint64_t divisor)
{
    if (t->turn.backfill)
        from = max_u64(from, t->until_ns);
    if (to <= from)
        return;
    uint64_t scaled = add_sat(mul_sat((to - from) / divisor, 1000), t->v_rest);
    t->v_ns = iadd_sat(t->v_ns, to_i64(scaled / t->weight));
    t->v_rest = scaled % t->weight;
}

/* Beside an overrun the hardware slices a GPU evenly; the fullest of its GPUs sets the pace. */
static uint64_t slices(const struct sl_turns *s, const struct tenant *t)
{
    uint64_t most = 1;
    FOR_EACH_GPU(g, t->hold_mask)
    {
        const struct gpu *gpu = &s->gpu[g];
        most = max_u64(most, gpu->overruns + (gpu->holder != NOBODY ? 1U : 0U));
    }
    return most;
}

static void charge(struct sl_turns *s, uint32_t id, uint64_t from, uint64_t to)
{
    struct tenant *t = &s->tenants[id];
    if (t->state == SL_TURNS_OPEN && t->turn.free && !t->want)
        return; /* an open gate that nobody uses */
    from = max_u64(from, t->charge_from_ns);
    if (to <= from)
        return;
    if (!t->turn.free)
        /* A clock that jumps must not ruin anybody. */
        from = max_u64(from, to - min_u64(to, s->cfg.debt_bound_ns));
    /*
     * Among themselves tenants pay what they got: a slice. To its own limit a holder pays in full:
     * the one in overrun may be frozen and use nothing, and a cap must hold even then.
     */
    uint64_t sharing = slices(s, t);
    uint64_t divisor = t->state == SL_TURNS_OVERRUN ? sharing : 1;
    charge_virtual(t, from, to, sharing);
    sl_ring_add(&s->rings[id], from, to, (uint32_t)(1000 / divisor));
    uint64_t ns = (to - from) / divisor;
    uint64_t *total = t->state == SL_TURNS_OVERRUN ? &t->overrun_ns : &t->held_ns;
    *total = add_sat(*total, ns);
    charge_floor(s, t, ns);
    if (capped(t)) {
        int64_t least = -to_i64(mul_sat(s->cfg.debt_bound_ns, 1000));
        t->tokens = max_i64(iadd_sat(t->tokens, -to_i64(mul_sat(ns, 1000))), least);
    }
    uint64_t earned = mul_sat(ns, s->cfg.credit_permille) / 1000;
    t->credit_ns = min_u64(add_sat(t->credit_ns, earned), 4 * s->cfg.start_credit_ns);
}

void sl_turns_ledger_settle(struct sl_turns *s, uint64_t now_ns)
{
    uint64_t from = s->now_ns;
    s->now_ns = now_ns;
    if (now_ns == from)
        return;
    for (uint32_t i = 0; i < s->n_busy; i++) {
        struct tenant *t = &s->tenants[s->busy[i]];
        sl_turns_ledger_accrue(s, t);
        charge(s, s->busy[i], from, now_ns);
    }
}

uint64_t sl_turns_ledger_debt_ns(struct sl_turns *s, struct tenant *t)
{
    uint64_t debt = 0;
    if (capped(t)) {
        sl_turns_ledger_accrue(s, t);
        if (t->tokens < 0)
            debt = (uint64_t)-t->tokens / 1000;
    }
    int64_t least;
    int64_t lead = t->rel_ns;
    if (t->awake)
        lead = sl_turns_virtual_least(s, t, &least) ? t->v_ns - least : 0;
    if (lead > 0)
        debt = max_u64(debt, mul_sat((uint64_t)lead, t->weight) / 1000);
    return min_u64(debt, s->cfg.debt_bound_ns);
}
