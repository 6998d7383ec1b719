/* SPDX-License-Identifier: Apache-2.0 */
/* Turn-taking: tenants, events, and the books about who is where. turns_plan.c decides. */
#include "policy/turns.h"

#include <errno.h>
#include <stdlib.h>

#include "policy/errors.h"
#include "policy/turns_internal.h"

#define US 1000ULL
#define MS 1000000ULL
#define MAX_STEP_NS (86400ULL * 1000 * MS)
#define CLOCK_START_NS (1000 * MS) /* so that "one window ago" is never negative */
#define CLOCK_END_NS (UINT64_MAX / 4)

static void default_u64(uint64_t *field, uint64_t value)
{
    if (*field == 0)
        *field = value;
}

static void default_u32(uint32_t *field, uint32_t value)
{
    if (*field == 0)
        *field = value;
}

static void fill_defaults(struct sl_turns_config *c)
{
    default_u32(&c->max_tenants, SL_TURNS_MAX_TENANTS);
    default_u64(&c->quantum_ns, 20 * MS);
    default_u64(&c->quantum_high_ns, 5 * MS);
    default_u64(&c->round_ns, 200 * MS);
    default_u64(&c->min_turn_ns, 2 * MS);
    default_u64(&c->drain_ns, 50 * MS);
    default_u64(&c->idle_ns, 100 * US);
    default_u64(&c->come_ns, 10 * MS);
    default_u64(&c->grace_ns, 100 * MS);
    default_u64(&c->debt_bound_ns, 10000 * MS);
    default_u64(&c->repay_ns, 30000 * MS);
    default_u64(&c->claim_ns, 1000 * MS);
    default_u64(&c->start_credit_ns, 300 * US);
    default_u32(&c->credit_permille, 50);
    default_u64(&c->cap_period_ns, 50 * MS);
    default_u64(&c->burst_idle_ns, 30 * MS);
    default_u64(&c->burst_wait_ns, 80 * MS);
    default_u32(&c->best_effort_permille, 10);
    default_u32(&c->floor_permille, 20);
    default_u64(&c->floor_turn_ns, 10 * MS);
    default_u64(&c->window_ns, 4 * MS);
    default_u64(&c->window_high_ns, 200 * US);
}

static int check_config(const struct sl_turns_config *c, struct sl_err *err)
{
    const uint64_t times[] = {c->quantum_ns,      c->quantum_high_ns, c->round_ns,
                              c->min_turn_ns,     c->drain_ns,        c->idle_ns,      c->come_ns,
                              c->grace_ns,        c->debt_bound_ns,   c->start_credit_ns,
                              c->cap_period_ns,   c->burst_idle_ns,   c->burst_wait_ns,
                              c->floor_turn_ns,   c->window_ns,       c->window_high_ns,
                              c->repay_ns,        c->claim_ns};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        if (times[i] > MAX_STEP_NS)
            return sl_err_set(err, -EINVAL, SL_E_TURNS_DAY);
    if (c->max_tenants > SL_TURNS_MAX_TENANTS)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_MANY, c->max_tenants, SL_TURNS_MAX_TENANTS);
    if (c->min_turn_ns > c->quantum_ns || c->min_turn_ns > c->quantum_high_ns ||
        c->quantum_ns > c->round_ns)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_ORDER);
    if (c->start_credit_ns > c->min_turn_ns)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_CREDIT);
    if (c->credit_permille > 1000 || c->best_effort_permille > 1000 || c->floor_permille > 500)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_PART);
    return 0;
}

int sl_turns_create(const struct sl_turns_config *config, struct sl_turns **ret, struct sl_err *err)
{
    struct sl_turns_config c = {0};
    if (config)
        c = *config;
    fill_defaults(&c);
    int r = check_config(&c, err);
    if (r < 0)
        return r;
    size_t n = c.max_tenants;
    struct sl_turns *s = calloc(1, sizeof(*s) + n * sizeof(s->tenants[0]));
    uint32_t *lists = calloc(3 * n, sizeof(lists[0]));
    struct sl_ring *rings = calloc(n, sizeof(rings[0]));
    if (!s || !lists || !rings) {
        free(s);
        free(lists);
        free(rings);
        return sl_err_set(err, -ENOMEM, "turns: out of memory for %u tenants", c.max_tenants);
    }
    s->cfg = c;
    s->ids = lists;
    s->busy = lists + n;
    s->cands = lists + 2 * n;
    s->rings = rings;
    s->now_ns = CLOCK_START_NS;
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        s->gpu[g].holder = NOBODY;
        s->gpu[g].top = CLASSES;
        s->gpu[g].floor_at_ns = s->now_ns;
    }
    *ret = s;
    return 0;
}

void sl_turns_destroy(struct sl_turns *turns)
{
    if (!turns)
        return;
    free(turns->ids);
    free(turns->rings);
    free(turns);
}

/* The caller's clock jumped: the ends of turns it was told are on a clock that is no more. */
static void move_clock(struct sl_turns *s, uint64_t offset)
{
    s->offset = offset;
    for (uint32_t i = 0; i < s->n_busy; i++) {
        struct tenant *t = &s->tenants[s->busy[i]];
        if (t->state == SL_TURNS_OPEN && !t->free)
            t->dirty = true;
    }
}

void sl_turns_tick(struct sl_turns *s, uint64_t now_ns)
{
    if (!s->clock_set) {
        s->clock_set = true;
        s->offset = s->now_ns - now_ns;
    }
    uint64_t step = now_ns + s->offset - s->now_ns;
    if (step > (uint64_t)INT64_MAX) { /* the caller's clock went back */
        move_clock(s, s->now_ns - now_ns);
        step = 0;
    } else if (step > MAX_STEP_NS) {
        move_clock(s, s->offset - (step - MAX_STEP_NS));
        step = MAX_STEP_NS;
    }
    if (s->now_ns > CLOCK_END_NS)
        step = 0; /* a century of jumps: stop the clock rather than wrap */
    sl_turns_ledger_settle(s, s->now_ns + step);
}

uint64_t sl_turns_outer_ns(const struct sl_turns *s, uint64_t inner_ns)
{
    if (inner_ns == SL_TURNS_NEVER)
        return SL_TURNS_NEVER;
    uint64_t now_ns = s->now_ns - s->offset;
    if (inner_ns <= s->now_ns)
        return now_ns;
    return min_u64(add_sat(now_ns, inner_ns - s->now_ns), SL_TURNS_NEVER - 1);
}

static void list_drop(uint32_t *list, uint32_t *count, uint32_t id)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (list[i] == id) {
            list[i] = list[--*count];
            return;
        }
    }
}

void sl_turns_occupy(struct sl_turns *s, uint32_t id)
{
    struct tenant *t = &s->tenants[id];
    t->hold_mask = t->spec.gpu_mask;
    FOR_EACH_GPU (g, t->hold_mask)
        s->gpu[g].holder = id;
    s->busy[s->n_busy++] = id;
}

/* No longer the holder, but still on the GPU. */
void sl_turns_pass_over(struct sl_turns *s, uint32_t id)
{
    struct tenant *t = &s->tenants[id];
    FOR_EACH_GPU (g, t->hold_mask) {
        s->gpu[g].holder = NOBODY;
        s->gpu[g].overruns++;
    }
    t->state = SL_TURNS_OVERRUN;
    t->overruns++;
    t->dirty = false;
}

void sl_turns_vacate(struct sl_turns *s, uint32_t id)
{
    struct tenant *t = &s->tenants[id];
    if (t->state == SL_TURNS_IDLE)
        return;
    if (t->state == SL_TURNS_CLOSING) {
        uint64_t left_ns = t->drain_until_ns - min_u64(s->now_ns, t->drain_until_ns);
        t->drain_ns = (t->drain_ns + s->cfg.drain_ns - min_u64(left_ns, s->cfg.drain_ns)) / 2;
    }
    FOR_EACH_GPU (g, t->hold_mask) {
        if (t->state == SL_TURNS_OVERRUN)
            s->gpu[g].overruns--;
        else
            s->gpu[g].holder = NOBODY;
    }
    list_drop(s->busy, &s->n_busy, id);
    t->state = SL_TURNS_IDLE;
    t->hold_mask = 0;
    t->free = t->floor = t->backfill = t->gives_up = t->dirty = false;
    t->wait_from_ns = s->now_ns;
}

static int check_spec(const struct sl_turns_spec *spec, struct sl_err *err)
{
    if (spec->gpu_mask == 0 || spec->gpu_mask >> SL_TURNS_MAX_GPUS)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_GPUS, SL_TURNS_MAX_GPUS);
    if (spec->limit_permille == 0 || spec->limit_permille > 1000 || spec->request_permille > 1000)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_SHARE, spec->request_permille,
                          spec->limit_permille);
    if ((unsigned)spec->priority > SL_TURNS_HIGH)
        return sl_err_set(err, -EINVAL, SL_E_TURNS_PRIORITY, (unsigned)spec->priority);
    return 0;
}

static void apply_spec(struct sl_turns *s, struct tenant *t, const struct sl_turns_spec *spec)
{
    t->spec = *spec;
    if (t->spec.request_permille > t->spec.limit_permille)
        t->spec.request_permille = t->spec.limit_permille;
    t->weight = t->spec.request_permille ? t->spec.request_permille : s->cfg.best_effort_permille;
}

static struct tenant *find(struct sl_turns *s, uint32_t id)
{
    return id < s->cfg.max_tenants && s->tenants[id].used ? &s->tenants[id] : NULL;
}

int sl_turns_add(struct sl_turns *turns, uint32_t id, const struct sl_turns_spec *spec,
                 uint64_t now_ns, struct sl_err *err)
{
    int r = check_spec(spec, err);
    if (r < 0)
        return r;
    if (id >= turns->cfg.max_tenants)
        return sl_err_set(err, -ERANGE, SL_E_TURNS_NUMBER, id, turns->cfg.max_tenants);
    if (turns->tenants[id].used)
        return sl_err_set(err, -EEXIST, SL_E_TURNS_EXISTS, id);
    sl_turns_tick(turns, now_ns);
    struct tenant *t = &turns->tenants[id];
    *t = (struct tenant){.used = true, .tokens_at_ns = turns->now_ns};
    turns->rings[id] = (struct sl_ring){.began_ns = turns->now_ns,
                                        .newest = turns->now_ns / SL_RING_FINE_NS,
                                        .newest_coarse = turns->now_ns / SL_RING_COARSE_NS};
    apply_spec(turns, t, spec);
    t->tokens = capped(t) ? sl_turns_ledger_start_tokens(turns, t) : 0;
    t->credit_ns = turns->cfg.start_credit_ns;
    t->slept_ns = turns->now_ns;
    turns->ids[turns->n_ids++] = id;
    return 0;
}

int sl_turns_set(struct sl_turns *turns, uint32_t id, const struct sl_turns_spec *spec,
                 uint64_t now_ns, struct sl_err *err)
{
    int r = check_spec(spec, err);
    if (r < 0)
        return r;
    struct tenant *t = find(turns, id);
    if (!t)
        return sl_err_set(err, -ENOENT, SL_E_TURNS_NONE, id);
    sl_turns_tick(turns, now_ns);
    sl_turns_ledger_accrue(turns, t);
    bool was_capped = capped(t);
    uint32_t old_weight = t->weight;
    bool moves = spec->priority != t->spec.priority || spec->gpu_mask != t->spec.gpu_mask;
    if (t->awake && moves)
        sl_turns_virtual_leave(turns, t);
    apply_spec(turns, t, spec);
    sl_turns_virtual_reweigh(turns, t, old_weight);
    if (capped(t)) {
        /* What was used before the cap was set is not held against it, nor may it be saved. */
        int64_t start = sl_turns_ledger_start_tokens(turns, t);
        t->tokens = was_capped ? min_i64(t->tokens, start) : start;
    }
    return 0;
}

void sl_turns_remove(struct sl_turns *turns, uint32_t id, uint64_t now_ns)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return;
    sl_turns_tick(turns, now_ns);
    sl_turns_vacate(turns, id);
    list_drop(turns->ids, &turns->n_ids, id);
    t->used = false;
}

void sl_turns_want(struct sl_turns *turns, uint32_t id, bool want, uint64_t now_ns)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return;
    sl_turns_tick(turns, now_ns);
    if (t->want == want)
        return;
    sl_turns_ledger_accrue(turns, t); /* the account's depth depends on it */
    t->want = want;
    if (want) {
        t->woken = t->state == SL_TURNS_IDLE;
        t->wait_from_ns = turns->now_ns;
    } else {
        if (t->state == SL_TURNS_IDLE) {
            t->waited_ns = add_sat(t->waited_ns, turns->now_ns - t->wait_from_ns);
            t->live = false;
        }
        t->slept_ns = turns->now_ns;
        t->idle_since_ns = turns->now_ns;
    }
}

void sl_turns_started(struct sl_turns *turns, uint32_t id, uint64_t now_ns)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return;
    sl_turns_tick(turns, now_ns);
    if (t->started || (t->state != SL_TURNS_OPEN && t->state != SL_TURNS_CLOSING))
        return;
    t->started = true;
    if (t->charge_from_ns > turns->now_ns) { /* give back what it did not need */
        t->credit_ns = add_sat(t->credit_ns, t->charge_from_ns - turns->now_ns);
        t->charge_from_ns = turns->now_ns;
    }
    if (t->state == SL_TURNS_OPEN && !t->free && !t->backfill) {
        uint64_t late_ns = min_u64(turns->now_ns - t->granted_ns, turns->cfg.come_ns);
        t->until_ns = add_sat(t->until_ns, late_ns);
        t->dirty |= late_ns > 0;
    }
}

void sl_turns_released(struct sl_turns *turns, uint32_t id, uint64_t now_ns)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return;
    sl_turns_tick(turns, now_ns);
    /* Not told yet what it says it did: the gate may be open. */
    bool ended = !t->dirty && !t->free && turns->now_ns >= t->until_ns;
    if (t->state == SL_TURNS_OPEN && !ended)
        t->gives_up = true;
    else if (!t->dirty)
        sl_turns_vacate(turns, id);
}

int sl_turns_stats(struct sl_turns *turns, uint32_t id, uint64_t now_ns, struct sl_turns_stats *ret)
{
    struct tenant *t = find(turns, id);
    if (!t)
        return -ENOENT;
    sl_turns_tick(turns, now_ns);
    uint64_t waited_ns = t->waited_ns;
    if (t->want && t->state == SL_TURNS_IDLE)
        waited_ns = add_sat(waited_ns, turns->now_ns - t->wait_from_ns);
    const struct sl_ring *ring = &turns->rings[id];
    *ret = (struct sl_turns_stats){
        .state = t->state,
        .want = t->want,
        .free = t->state == SL_TURNS_OPEN && t->free,
        .held_ns = t->held_ns,
        .overrun_ns = t->overrun_ns,
        .waited_ns = waited_ns,
        .turns = t->turns,
        .overruns = t->overruns,
        .debt_ns = sl_turns_ledger_debt_ns(turns, t),
        .credit_ns = t->credit_ns,
        .share_1s_permille = sl_ring_permille(ring, false, turns->now_ns),
        .share_60s_permille = sl_ring_permille(ring, true, turns->now_ns),
    };
    return 0;
}

static int check_gpu(const struct sl_turns *s, uint32_t g, struct sl_err *err)
{
    const struct gpu *gpu = &s->gpu[g];
    uint32_t holders = 0, overruns = 0;
    for (uint32_t i = 0; i < s->n_ids; i++) {
        const struct tenant *t = &s->tenants[s->ids[i]];
        if (!(t->hold_mask & (1U << g)))
            continue;
        if (t->state == SL_TURNS_OVERRUN) {
            overruns++;
        } else {
            holders++;
            if (gpu->holder != s->ids[i])
                return sl_err_set(err, -EPROTO, SL_E_TURNS_HOLDER, g, gpu->holder, s->ids[i]);
        }
    }
    if (holders != (gpu->holder == NOBODY ? 0 : 1) || overruns != gpu->overruns)
        return sl_err_set(err, -EPROTO, SL_E_TURNS_HOLDERS, g, holders, overruns, gpu->overruns);
    return 0;
}

int sl_turns_check(const struct sl_turns *turns, struct sl_err *err)
{
    uint32_t busy = 0;
    int64_t most = to_i64(mul_sat(turns->cfg.burst_wait_ns, 1000));
    int64_t least = -to_i64(mul_sat(turns->cfg.debt_bound_ns, 1000));
    for (uint32_t i = 0; i < turns->n_ids; i++) {
        const struct tenant *t = &turns->tenants[turns->ids[i]];
        bool idle = t->state == SL_TURNS_IDLE;
        busy += !idle;
        if (!t->used || idle != (t->hold_mask == 0))
            return sl_err_set(err, -EPROTO, SL_E_TURNS_BUSY, turns->ids[i]);
        if (t->tokens > most || t->tokens < least)
            return sl_err_set(err, -EPROTO, SL_E_TURNS_CAP, turns->ids[i]);
        if (t->credit_ns > 5 * turns->cfg.start_credit_ns)
            return sl_err_set(err, -EPROTO, SL_E_TURNS_CREDIT_BOUNDS, turns->ids[i]);
    }
    if (busy != turns->n_busy)
        return sl_err_set(err, -EPROTO, SL_E_TURNS_LIST, busy, turns->n_busy);
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        int r = check_gpu(turns, g, err);
        if (r < 0)
            return r;
    }
    return 0;
}
