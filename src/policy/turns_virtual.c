/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual time: GPU time received, divided by weight. Who has the least is next.
 *
 * It is kept apart for each priority: a tenant starved by a higher one must not hold back the
 * clock by which newcomers of the higher one start. A tenant that sleeps longer than grace_ns
 * leaves the race and keeps only its distance to it: what it owes melts while it sleeps, and what
 * it is owed is bounded, so sleeping banks no advantage. Over a shorter pause it keeps its place,
 * or every gap between two of its steps would wipe out what the others owe it.
 */
#include "policy/turns_internal.h"

#define REBASE_NS (INT64_MAX / 8)

bool sl_turns_virtual_least(const struct sl_turns *s, const struct tenant *t, int64_t *ret)
{
    bool found = false;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        const struct gpu *gpu = &s->gpu[g];
        uint32_t c = (uint32_t)t->spec.priority;
        if (!gpu->has_v[c])
            continue;
        *ret = found ? min_i64(*ret, gpu->v_ns[c]) : gpu->v_ns[c];
        found = true;
    }
    return found;
}

static void count_virtual(struct sl_turns *s, const struct tenant *t)
{
    uint32_t c = (uint32_t)t->spec.priority;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        struct gpu *gpu = &s->gpu[g];
        gpu->v_ns[c] = gpu->has_v[c] ? min_i64(gpu->v_ns[c], t->v_ns) : t->v_ns;
        gpu->has_v[c] = true;
    }
}

/* The least virtual time of the others it meets; of those live now, or of all awake. */
static bool least_of_others(const struct sl_turns *s, const struct tenant *t, bool live,
                            int64_t *ret)
{
    bool found = false;
    for (uint32_t i = 0; i < s->n_ids; i++) {
        const struct tenant *o = &s->tenants[s->ids[i]];
        if (o == t || !o->awake || o->seen.stale || (live && !o->seen.live) ||
            o->spec.priority != t->spec.priority || !(o->spec.gpu_mask & t->spec.gpu_mask))
            continue;
        *ret = found ? min_i64(*ret, o->v_ns) : o->v_ns;
        found = true;
    }
    return found;
}

/* The most a tenant may be behind the others: what it owes, and how long they may make it pay. */
static int64_t most_behind(const struct sl_turns *s, const struct tenant *t)
{
    return min_i64(virtual_of(s->cfg.debt_bound_ns, t->weight), to_i64(s->cfg.repay_ns));
}

static void clamp_distance(const struct sl_turns *s, struct tenant *t)
{
    int64_t least = -to_i64(s->cfg.grace_ns);
    t->rel_ns = min_i64(max_i64(t->rel_ns, least), most_behind(s, t));
}

void sl_turns_virtual_leave(struct sl_turns *s, struct tenant *t)
{
    int64_t least;
    t->rel_ns = least_of_others(s, t, false, &least) ? t->v_ns - least : 0;
    clamp_distance(s, t);
    t->awake = t->seen.stale = false;
    t->slept_ns = s->now_ns;
}

/* The same GPU time, under another weight. */
static int64_t reweigh(int64_t distance_ns, uint32_t old, uint32_t new)
{
    uint64_t size = distance_ns < 0 ? (uint64_t)-distance_ns : (uint64_t)distance_ns;
    int64_t scaled = to_i64(mul_sat(size, old) / new);
    return distance_ns < 0 ? -scaled : scaled;
}

void sl_turns_virtual_reweigh(struct sl_turns *s, struct tenant *t, uint32_t old_weight)
{
    int64_t least;
    t->v_rest = 0;
    if (!t->awake)
        t->rel_ns = reweigh(t->rel_ns, old_weight, t->weight);
    else if (sl_turns_virtual_least(s, t, &least))
        t->v_ns = iadd_sat(least, reweigh(t->v_ns - least, old_weight, t->weight));
}

/* GPUs that awake tenants of one class connect, directly or through others. */
static uint32_t component(const struct sl_turns *s, uint32_t mask, enum sl_turns_priority class)
{
    uint32_t before;
    do {
        before = mask;
        for (uint32_t i = 0; i < s->n_ids; i++) {
            const struct tenant *t = &s->tenants[s->ids[i]];
            if (t->awake && t->spec.priority == class && (t->spec.gpu_mask & mask))
                mask |= t->spec.gpu_mask;
        }
    } while (mask != before);
    return mask;
}

static void shift(struct sl_turns *s, uint32_t mask, enum sl_turns_priority class, int64_t by)
{
    for (uint32_t i = 0; i < s->n_ids; i++) {
        struct tenant *t = &s->tenants[s->ids[i]];
        if (t->awake && t->spec.priority == class && (t->spec.gpu_mask & mask))
            t->v_ns = iadd_sat(t->v_ns, by);
    }
    FOR_EACH_GPU(g, mask)
    s->gpu[g].v_ns[class] = iadd_sat(s->gpu[g].v_ns[class], by);
}

/*
 * A tenant that comes back on several GPUs ties together races that ran at their own pace. Their
 * clocks are set to the same time first, or it would be far ahead in one of them, or far behind.
 */
static void align(struct sl_turns *s, const struct tenant *t)
{
    enum sl_turns_priority class = t->spec.priority;
    uint32_t tied = 0;
    int64_t reference = 0;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        const struct gpu *gpu = &s->gpu[g];
        if (!gpu->has_v[class] || (tied & (1U << g)))
            continue;
        uint32_t part = component(s, 1U << g, class);
        if (!tied)
            reference = gpu->v_ns[class];
        else
            shift(s, part, class, iadd_sat(reference, -gpu->v_ns[class]));
        tied |= part;
    }
}

static void come_back(struct sl_turns *s, struct tenant *t)
{
    if (t->spec.gpu_mask & (t->spec.gpu_mask - 1))
        align(s, t);
    if (t->rel_ns > 0)
        t->rel_ns = max_i64(iadd_sat(t->rel_ns, -to_i64(s->now_ns - t->slept_ns)), 0);
    clamp_distance(s, t);
    int64_t least;
    if (sl_turns_virtual_least(s, t, &least))
        t->v_ns = iadd_sat(least, t->rel_ns);
    t->awake = true;
    count_virtual(s, t);
}

/*
 * Back from a short pause, or from waiting for its cap: it keeps its place, but the others used
 * what it could not use, and small weights must not pay for that for ever.
 */
static void resume(struct sl_turns *s, struct tenant *t)
{
    int64_t least = 0;
    if (least_of_others(s, t, true, &least))
        t->v_ns = max_i64(t->v_ns, iadd_sat(least, -to_i64(s->cfg.claim_ns)));
}

/* Is it using a GPU, as far as the ledger can see? */
static bool running(const struct tenant *t)
{
    return t->state != SL_TURNS_IDLE && !(t->state == SL_TURNS_OPEN && t->turn.free && !t->want);
}

static void reset_gpus(struct sl_turns *s)
{
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        struct gpu *gpu = &s->gpu[g];
        sl_turns_ledger_accrue_floor(s, gpu);
        gpu->floor_accrues = false;
        gpu->attached = gpu->attached_high = gpu->wanting = 0;
        gpu->top = CLASSES;
        for (uint32_t c = 0; c < CLASSES; c++) {
            gpu->n[c] = 0;
            gpu->weights[c] = gpu->promised[c] = 0;
            gpu->has_v[c] = false;
        }
    }
}

static void count_tenant(struct sl_turns *s, const struct tenant *t)
{
    uint32_t c = (uint32_t)t->spec.priority;
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        struct gpu *gpu = &s->gpu[g];
        gpu->attached++;
        gpu->attached_high += t->spec.priority == SL_TURNS_HIGH;
        gpu->wanting += t->want;
        if (t->want || t->seen.live) {
            gpu->n[c]++;
            gpu->weights[c] += t->weight;
        }
        if (t->seen.live) {
            gpu->promised[c] += t->spec.request_permille;
            if (gpu->top == CLASSES || c > gpu->top)
                gpu->top = c;
        }
    }
}

static void note_floor(struct sl_turns *s, const struct tenant *t)
{
    FOR_EACH_GPU(g, t->spec.gpu_mask)
    {
        struct gpu *gpu = &s->gpu[g];
        uint64_t above = 0;
        for (uint32_t c = (uint32_t)t->spec.priority + 1; c < CLASSES; c++)
            above += gpu->promised[c];
        if (gpu->top < CLASSES && gpu->top > (uint32_t)t->spec.priority && above < 1000)
            gpu->floor_accrues = true;
    }
}

void sl_turns_virtual_refresh(struct sl_turns *s)
{
    reset_gpus(s);
    for (uint32_t i = 0; i < s->n_ids; i++) {
        struct tenant *t = &s->tenants[s->ids[i]];
        sl_turns_ledger_accrue(s, t);
        bool allowed = !capped(t) || t->tokens >= sl_turns_ledger_start_tokens(s, t);
        t->seen.ready = t->want && t->state == SL_TURNS_IDLE && allowed;
        /* It slept since it was last live, even if nobody asked for a plan meanwhile. */
        t->seen.stale = t->awake && !t->seen.live && s->now_ns - t->ready_ns > s->cfg.grace_ns;
        bool was_live = t->seen.live;
        t->seen.live = t->seen.ready || running(t);
        t->seen.returns = t->seen.live && !was_live;
        if (t->seen.live)
            t->ready_ns = s->now_ns;
        count_tenant(s, t);
        if (t->awake && !t->seen.stale)
            count_virtual(s, t);
    }
    for (uint32_t i = 0; i < s->n_ids; i++) {
        struct tenant *t = &s->tenants[s->ids[i]];
        if (t->seen.stale)
            sl_turns_virtual_leave(s, t);
    }
    for (uint32_t i = 0; i < s->n_ids; i++) {
        struct tenant *t = &s->tenants[s->ids[i]];
        if (!t->awake && t->seen.live)
            come_back(s, t);
        else if (t->seen.returns)
            resume(s, t);
        int64_t least;
        if (t->awake && sl_turns_virtual_least(s, t, &least)) {
            t->v_ns = min_i64(t->v_ns, iadd_sat(least, most_behind(s, t)));
            if (least > REBASE_NS)
                shift(s, component(s, t->spec.gpu_mask, t->spec.priority), t->spec.priority,
                      -least);
        }
        if (t->seen.ready)
            note_floor(s, t);
    }
}
