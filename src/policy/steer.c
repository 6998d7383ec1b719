/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants, and their use of the GPU. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "policy/errors.h"
#include "policy/steer_internal.h"

#define DAY_NS               86400000000000ULL
/* The weight of a tenant that asked for no cores. */
#define BEST_EFFORT_PERMILLE 10U

struct sl_steer *sl_steer_create(void)
{
    return sl_xcalloc(1, sizeof(struct sl_steer));
}

void sl_steer_destroy(struct sl_steer *steer)
{
    free(steer);
}

static int check_spec(const struct sl_steer_spec *spec, struct sl_err *err)
{
    if (spec->gpu_mask == 0 || spec->gpu_mask >= 1U << SL_STEER_MAX_GPUS)
        return sl_err_set(err, -EINVAL, SL_E_STEER_MASK, spec->gpu_mask, SL_STEER_MAX_GPUS - 1);
    if (spec->limit_permille == 0)
        return sl_err_set(err, -EINVAL, SL_E_STEER_LIMIT);
    return 0;
}

static void take_spec(struct tenant *t, const struct sl_steer_spec *spec)
{
    t->spec = *spec;
    t->weight = spec->request_permille ? spec->request_permille : BEST_EFFORT_PERMILLE;
    if (t->weight > spec->limit_permille)
        t->weight = spec->limit_permille;
    if (spec->paused)
        t->active_at_ns = 0; /* the others do not wait until it counts as quiet */
    t->dirty = true;
}

static int64_t period_quota_ns(const struct tenant *t)
{
    return (int64_t)(SL_STEER_PERIOD_NS * t->spec.limit_permille / 1000);
}

/* The most that it may save up: one period's worth. The time that it earns while it is off for its limit is not
 * lost. */
static int64_t quota_ns(const struct tenant *t)
{
    int64_t quota = period_quota_ns(t);
    return quota > t->saved_ns ? quota : t->saved_ns;
}

int sl_steer_add(struct sl_steer *s, uint32_t id, const struct sl_steer_spec *spec, uint64_t now_ns,
                 struct sl_err *err)
{
    if (id >= SL_STEER_MAX_TENANTS)
        return sl_err_set(err, -ERANGE, SL_E_STEER_NUMBER, id, SL_STEER_MAX_TENANTS - 1);
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    struct tenant *t = &s->tenants[id];
    if (t->used)
        return sl_err_set(err, -EEXIST, SL_E_STEER_USED, id);
    *t = (struct tenant){.used = true};
    sl_steer_forget_windows(t);
    take_spec(t, spec);
    /* It begins with the tokens with which it runs evenly. */
    t->tokens_ns =
        period_quota_ns(t) * (int64_t)(1000 - (limited(t) ? spec->limit_permille : 0)) / 1000;
    t->ring = (struct sl_ring){.began_ns = now_ns,
                               .newest = now_ns / SL_RING_FINE_NS,
                               .newest_coarse = now_ns / SL_RING_COARSE_NS};
    t->order = (struct sl_steer_order){.id = id, .slice_us = SL_STEER_DEFAULT_US};
    s->ids[s->n_ids++] = id;
    return 0;
}

int sl_steer_set(struct sl_steer *s, uint32_t id, const struct sl_steer_spec *spec,
                 struct sl_err *err)
{
    if (id >= SL_STEER_MAX_TENANTS || !s->tenants[id].used)
        return sl_err_set(err, -ENOENT, SL_E_STEER_NONE, id);
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    struct tenant *t = &s->tenants[id];
    take_spec(t, spec);
    if (t->tokens_ns > quota_ns(t))
        t->tokens_ns = quota_ns(t);
    t->capped_until_ns = 0;
    return 0;
}

void sl_steer_remove(struct sl_steer *s, uint32_t id)
{
    if (id >= SL_STEER_MAX_TENANTS || !s->tenants[id].used)
        return;
    s->tenants[id].used = false;
    sl_steer_effect_forget(s, id);
    for (uint32_t i = 0; i < s->n_ids; i++)
        if (s->ids[i] == id) {
            s->ids[i] = s->ids[--s->n_ids];
            break;
        }
}

void sl_steer_report(struct sl_steer *s, uint32_t id, const struct sl_steer_seen *seen)
{
    if (id >= SL_STEER_MAX_TENANTS || !s->tenants[id].used)
        return;
    struct tenant *t = &s->tenants[id];
    struct sl_steer_seen was = t->seen;
    t->seen = *seen;
    if (t->spec.paused)
        t->seen.active = t->seen.pending = false; /* its queued work cannot run */
    /* Counters that go back are new counters, or a lie: they count from here on. */
    if (seen->saturated_ns < was.saturated_ns)
        t->before.saturated_ns = seen->saturated_ns;
    if (seen->work_ns < was.work_ns)
        t->before.work_ns = seen->work_ns;
    if (seen->launches < was.launches) {
        t->before.launches = seen->launches;
        t->mark_launches = seen->launches;
    }
}

/* --- the use ----------------------------------------------------------------------------------- */

static uint64_t part(uint64_t used, uint64_t before, uint64_t most)
{
    uint64_t d = used > before ? used - before : 0;
    return d < most ? d : most;
}

/* Slice-weighted presence of a tenant among those that keep the GPU busy. */
static uint64_t pull(const struct tenant *t, uint64_t saturated_ns)
{
    uint64_t groups = t->seen.groups ? t->seen.groups : 1;
    return saturated_ns / 1000 * t->order.slice_us * groups;
}

/*
 * The part of the GPU's time that a tenant got while it kept its queue full, in permille: the time that light tenants
 * leave, by slices. The hardware goes round robin and skips tenants without work.
 */
static uint64_t fraction(const struct sl_steer *s, const struct tenant *t, uint64_t saturated_ns,
                         uint64_t span_ns)
{
    uint64_t least = 1000;
    for (uint32_t g = 0; g < SL_STEER_MAX_GPUS; g++) {
        if (!(t->spec.gpu_mask & 1U << g))
            continue;
        uint64_t own = pull(t, saturated_ns), all = own, light = 0, rivals = 1,
                 round_us = t->order.slice_us;
        const struct tenant *o;
        FOR_EACH_TENANT(s, o)
        {
            if (o == t || !(o->spec.gpu_mask & 1U << g))
                continue;
            uint64_t sat = part(o->seen.saturated_ns, o->before.saturated_ns, span_ns);
            all += pull(o, sat);
            light += part(o->seen.work_ns, o->before.work_ns, span_ns);
            if (sat > span_ns / 2) {
                rivals++;
                round_us += o->order.slice_us;
            }
        }
        uint64_t got = all ? 1000 * own / all : 1000;
        uint64_t free_permille = light < span_ns ? 1000 - 1000 * light / span_ns : 0;
        /* The time of switches belongs to no tenant. */
        uint64_t lost =
            rivals > 1 ? 1000 * rivals * SWITCH_US / (round_us + rivals * SWITCH_US) : 0;
        got = got * free_permille / 1000 * (1000 - lost) / 1000;
        least = got < least ? got : least;
    }
    return least;
}

static void charge(struct tenant *t, uint64_t used_ns, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t span = to_ns - from_ns;
    uint32_t permille = (uint32_t)(used_ns * 1000 / span);
    t->used_ns += used_ns;
    if (t->order.off_until_ns > from_ns && !t->spec.paused)
        t->off_ns += span;
    sl_ring_add(&t->ring, from_ns, to_ns, permille > 1000 ? 1000 : permille);
    if (!limited(t))
        return;
    if (t->capped_until_ns > from_ns)
        t->saved_ns = t->tokens_ns + (int64_t)(span * t->spec.limit_permille / 1000);
    int64_t quota = quota_ns(t);
    t->tokens_ns += (int64_t)(span * t->spec.limit_permille / 1000) - (int64_t)used_ns;
    if (t->tokens_ns > quota)
        t->tokens_ns = quota;
    /* One period's debt at most: a report must not lock its tenant out. */
    if (t->tokens_ns < -(int64_t)SL_STEER_PERIOD_NS)
        t->tokens_ns = -(int64_t)SL_STEER_PERIOD_NS;
}

static void remember(uint32_t *permille, bool now, uint64_t span_ns)
{
    uint64_t keep = span_ns < WAITING_MEMORY_NS ? WAITING_MEMORY_NS - span_ns : 0;
    *permille = (uint32_t)((*permille * keep + (now ? 1000 : 0) * (WAITING_MEMORY_NS - keep)) /
                           WAITING_MEMORY_NS);
}

static void weigh(struct tenant *t, uint64_t saturated_ns, uint64_t span_ns, bool was_off)
{
    if (was_off) /* shows nothing about its use when it is on */
        return;
    uint32_t now = (uint32_t)(saturated_ns * 1000 / span_ns);
    uint64_t keep = span_ns < HEAVY_MEMORY_NS ? HEAVY_MEMORY_NS - span_ns : 0;
    t->busy_permille =
        (uint32_t)((t->busy_permille * keep + now * (HEAVY_MEMORY_NS - keep)) / HEAVY_MEMORY_NS);
    t->heavy = t->busy_permille >= (t->heavy ? HEAVY_UNTIL : HEAVY_FROM);
    if (t->alone) /* it does not wait */
        return;
    bool launched = t->seen.launches != t->before.launches;
    remember(&t->waiting_permille, t->seen.pending, span_ns);
    remember(&t->launching_permille, launched || t->seen.pending, span_ns);
}

static bool has_company(const struct sl_steer *s, const struct tenant *t)
{
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && (o->seen.active || o->seen.pending))
        return true;
    return false;
}

/*
 * Slices show how much a tenant could use at most: beside others it loses time to switches, which slices do not show.
 * Finished kernels show its real use, as well as their length is known. They come late and in lumps, so the difference
 * is kept. Alone, no estimate is needed. A wrong estimate (kernels whose length depends on their data) halves a charge
 * at most.
 */
static uint64_t charge_by_progress(const struct sl_steer *s, struct tenant *t, uint64_t most_ns)
{
    bool told = t->seen.done_ns != 0;
    uint64_t fresh = t->seen.done_ns > t->before.done_ns ? t->seen.done_ns - t->before.done_ns : 0;
    t->before.done_ns = t->seen.done_ns;
    if (!told || !has_company(s, t)) {
        t->uncharged_ns = 0;
        return most_ns;
    }
    int64_t least = (int64_t)(most_ns / 2), most = (int64_t)most_ns,
            keep = (int64_t)SL_STEER_PERIOD_NS;
    t->uncharged_ns += fresh < SL_STEER_PERIOD_NS ? (int64_t)fresh : keep;
    int64_t charged = t->uncharged_ns < least  ? least
                      : t->uncharged_ns < most ? t->uncharged_ns
                                               : most;
    t->uncharged_ns -= charged;
    t->uncharged_ns = t->uncharged_ns > keep    ? keep
                      : t->uncharged_ns < -keep ? -keep
                                                : t->uncharged_ns;
    return (uint64_t)charged;
}

/* Processes report in steps of a millisecond, which may be more than the time since the last settling: the rest is
 * charged next time. A lie is not carried far. */
static void carry(uint64_t *before, uint64_t now, uint64_t charged)
{
    *before += charged;
    if (now - *before > SL_STEER_PERIOD_NS)
        *before = now - SL_STEER_PERIOD_NS;
}

static void settle(struct sl_steer *s, uint64_t now_ns)
{
    uint64_t from = s->now_ns, span = now_ns - from;
    struct tenant *t;
    uint64_t used[SL_STEER_MAX_TENANTS] = {0};
    if (span == 0)
        return;
    FOR_EACH_TENANT(s, t)
    {
        uint64_t sat = part(t->seen.saturated_ns, t->before.saturated_ns, span);
        uint64_t work = part(t->seen.work_ns, t->before.work_ns, span);
        uint64_t sum = work + (sat ? sat * fraction(s, t, sat, span) / 1000 : 0);
        used[t_i] = charge_by_progress(s, t, sum < span ? sum : span);
    }
    FOR_EACH_TENANT(s, t)
    {
        uint64_t sat = part(t->seen.saturated_ns, t->before.saturated_ns, span);
        bool was_off = t->order.off_until_ns > from;
        charge(t, used[t_i], from, now_ns);
        weigh(t, sat, span, was_off);
        carry(&t->before.saturated_ns, t->seen.saturated_ns, sat);
        carry(&t->before.work_ns, t->seen.work_ns, part(t->seen.work_ns, t->before.work_ns, span));
    }
    s->now_ns = now_ns;
}

/* --- deciding ---------------------------------------------------------------------------------- */

/* Another clock: forgets everything that was to happen at a time of the old clock, and no tenant stays off for it. */
static void set_clock(struct sl_steer *s, uint64_t now_ns)
{
    struct tenant *t;
    s->clock_set = true;
    s->now_ns = now_ns;
    s->period_at_ns = now_ns - now_ns % SL_STEER_PERIOD_NS;
    memset(s->effect, 0, sizeof(s->effect));
    FOR_EACH_TENANT(s, t)
    {
        t->capped_until_ns = t->turn_until_ns = t->turn_from_ns = 0;
        t->active_at_ns = t->wanted_at_ns = 0;
        t->dirty |= t->order.off_until_ns != 0;
        t->order.off_until_ns = 0;
        t->ring = (struct sl_ring){.began_ns = now_ns,
                                   .newest = now_ns / SL_RING_FINE_NS,
                                   .newest_coarse = now_ns / SL_RING_COARSE_NS};
        t->gets_on_busy = t->gets_on_all = 0;
        sl_steer_forget_windows(t);
    }
}

static void tick(struct sl_steer *s, uint64_t now_ns)
{
    if (!s->clock_set || now_ns < s->now_ns || now_ns - s->now_ns > DAY_NS)
        set_clock(s, now_ns);
    settle(s, now_ns);
    /* Also where no time has passed: the first decide may find several tenants at work. */
    struct tenant *t;
    FOR_EACH_TENANT(s, t)
    {
        if (t->seen.active || t->seen.pending)
            t->active_at_ns = now_ns;
        if (t->seen.pending || t->seen.launches != t->before.launches)
            t->wanted_at_ns = now_ns;
        t->before.launches = t->seen.launches;
    }
}

size_t sl_steer_decide(struct sl_steer *s, uint64_t now_ns, struct sl_steer_order *orders,
                       size_t max, uint64_t *ret_next_ns)
{
    tick(s, now_ns);
    bool new_period = now_ns >= end_of_period(s);
    if (new_period)
        s->period_at_ns = now_ns - now_ns % SL_STEER_PERIOD_NS;
    uint64_t next = sl_steer_plan(s, new_period);
    size_t n = 0;
    struct tenant *t;
    FOR_EACH_TENANT(s, t)
    {
        if (!t->dirty)
            continue;
        if (n == max) {
            next = now_ns;
            break;
        }
        t->dirty = false;
        t->told = true;
        orders[n++] = t->order;
    }
    *ret_next_ns = next;
    return n;
}

int sl_steer_stats(const struct sl_steer *s, uint32_t id, struct sl_steer_stats *ret)
{
    if (id >= SL_STEER_MAX_TENANTS || !s->tenants[id].used)
        return -ENOENT;
    const struct tenant *t = &s->tenants[id];
    *ret = (struct sl_steer_stats){
        .share_1s_permille = sl_ring_permille(&t->ring, false, s->now_ns),
        .share_60s_permille = sl_ring_permille(&t->ring, true, s->now_ns),
        .used_ns = t->used_ns,
        .off_ns = t->off_ns,
        .debt_ns = limited(t) && t->tokens_ns < 0 ? (uint64_t)-t->tokens_ns : 0,
        .slice_us = t->order.slice_us,
        .heavy = t->heavy,
        .window_permille = t->window_permille,
    };
    return 0;
}
