/* SPDX-License-Identifier: Apache-2.0 */
/* The orders: which tenants are off until when, and all slices. Windows: steer_windows.c. */
#include "policy/steer_internal.h"

/* Shorter than this, turning channels off and on again takes longer than they are off. */
#define SHORTEST_OFF_NS      (2 * MS)
#define LEAST_GROUP_US       500U
/* Between windows for others: those tenants get on in their windows, so few switches are best. */
#define WINDOWED_SLICE_US    10000U
/* A report is up to a millisecond old. */
#define REPORT_NS            MS
/* A modest request: no more than this part of all requests together. */
#define MODEST_PERMILLE      550U
/* A tenant that stops taking turns and returns is ahead or behind by at most so many turns. */
#define TURNS_KEPT           4U
/* For so long after a tenant was off for its limit, it counts as a tenant that wants more. */
#define CAPPED_LINGERS_NS    (1000 * MS)
/* A tenant is light up to its part; once light, up to a quarter more. */
#define LIGHT_KEPT(permille) ((permille) + (permille) / 4)

/* --- one at a time ----------------------------------------------------------------------------- */

static void find_lower(struct sl_steer *s)
{
    struct tenant *t;
    FOR_EACH_TENANT(s, t)
    {
        const struct tenant *o;
        t->lower = false;
        t->off_until_ns = 0;
        FOR_EACH_TENANT(s, o)
        t->lower |=
            meet(t, o) && o->spec.priority > t->spec.priority && lately(s, o, TOP_LINGERS_NS);
    }
}

/* Its part of the requests of all active tenants on its GPUs. */
uint32_t sl_steer_share_of(const struct sl_steer *s, const struct tenant *t)
{
    uint64_t sum = t->weight;
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && active(s, o))
        sum += o->weight;
    uint64_t share = 1000ULL * t->weight / sum;
    return (uint32_t)(share < t->spec.limit_permille ? share : t->spec.limit_permille);
}

static void find_light(struct sl_steer *s)
{
    struct tenant *t;
    FOR_EACH_TENANT(s, t)
    {
        uint32_t part = sl_steer_share_of(s, t), most = t->light ? LIGHT_KEPT(part) : part;
        bool held = t->capped_until_ns && s->now_ns < t->capped_until_ns + CAPPED_LINGERS_NS;
        bool little = !held && sl_ring_permille(&t->ring, false, s->now_ns) <= most;
        bool shares = !t->lower && !t->window_permille && active(s, t);
        t->light = shares && !t->heavy && little;
        t->busy = t->heavy || (shares && !little);
    }
}

static enum turns turns_of(const struct sl_steer *s, const struct tenant *t)
{
    const struct tenant *o;
    bool light = false, busy = false, heavy = t->heavy;
    if (t->lower)
        return TURNS_LOWER;
    if (!t->busy || !active(s, t))
        return TURNS_NONE;
    FOR_EACH_TENANT(s, o)
    {
        if (!meet(t, o) || !active(s, o) || o->lower)
            continue;
        light |= o->light;
        busy |= o->busy;
        heavy |= o->heavy;
    }
    return light && busy && heavy ? TURNS_BUSY : TURNS_NONE;
}

/* Has work to run, or had a moment ago. A tenant that is off shows it by its queue. */
static bool wants(const struct sl_steer *s, const struct tenant *t)
{
    return t->turns && !t->spec.paused && t->capped_until_ns <= s->now_ns && t->wanted_at_ns &&
           s->now_ns - t->wanted_at_ns <= TICK_NS;
}

/* GPUs that more than one of these tenants wants. */
static uint32_t contested(const struct sl_steer *s, enum turns turns)
{
    uint32_t once = 0, twice = 0;
    const struct tenant *t;
    FOR_EACH_TENANT(s, t)
    {
        if (t->turns != turns || !wants(s, t))
            continue;
        twice |= once & t->spec.gpu_mask;
        once |= t->spec.gpu_mask;
    }
    return twice;
}

/* The virtual time of the race: the least of the tenants in it; if there are none, of those that are about to enter. */
static int64_t least_virtual(struct sl_steer *s, enum turns turns, uint32_t gpus)
{
    struct tenant *t;
    int64_t least = INT64_MAX, entering = INT64_MAX;
    FOR_EACH_TENANT(s, t)
    {
        if (t->turns != turns || !(t->spec.gpu_mask & gpus))
            continue;
        if (t->races && t->virtual_ns < least)
            least = t->virtual_ns;
        if (!t->races && wants(s, t) && t->virtual_ns < entering)
            entering = t->virtual_ns;
    }
    return least != INT64_MAX ? least : entering;
}

/* A tenant that is new, or returns, has no turns saved up. Its lead over others is soon forgotten. */
static void enter_race(struct sl_steer *s, enum turns turns, uint32_t gpus)
{
    struct tenant *t;
    FOR_EACH_TENANT(s, t)
    if (t->turns == turns)
        t->races = t->races && active(s, t) && (t->spec.gpu_mask & gpus);
    int64_t least = least_virtual(s, turns, gpus);
    FOR_EACH_TENANT(s, t)
    {
        if (t->turns != turns || t->races || !wants(s, t) || !(t->spec.gpu_mask & gpus))
            continue;
        int64_t most = least + (int64_t)(TURNS_KEPT * TURN_NS * 1000 / t->weight);
        t->races = true;
        t->turn_until_ns = 0;
        t->virtual_ns = t->virtual_ns < least ? least : t->virtual_ns > most ? most : t->virtual_ns;
    }
}

/* Does a tenant of a lower priority also take turns? Then this one counts for more. */
static bool above_another(const struct sl_steer *s, const struct tenant *t)
{
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && o->races && o->spec.priority < t->spec.priority)
        return true;
    return false;
}

static bool below_another(const struct sl_steer *s, const struct tenant *t)
{
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && o->races && o->spec.priority > t->spec.priority && wants(s, o))
        return true;
    return false;
}

static void charge_turn(struct sl_steer *s, struct tenant *t)
{
    uint64_t weight = (uint64_t)t->weight * (above_another(s, t) ? ABOVE_COUNTS : 1);
    /* Decisions may have been late: a tenant does not pay for all of that time. */
    if (t->turn_until_ns && s->now_ns > t->turn_from_ns) {
        uint64_t span = s->now_ns - t->turn_from_ns;
        t->virtual_ns += (int64_t)((span < TURN_NS ? span : TURN_NS) * 1000 / weight);
    }
    t->turn_from_ns = s->now_ns;
}

/* The next tenant on GPUs that are not given away yet: a tenant whose turn is not over, then the tenant that had least
 * for its weight. */
static struct tenant *next_in_race(struct sl_steer *s, enum turns turns, uint32_t taken)
{
    struct tenant *t, *best = NULL;
    FOR_EACH_TENANT(s, t)
    {
        if (t->turns != turns || !t->races || (t->spec.gpu_mask & taken) || !wants(s, t))
            continue;
        bool holds = t->turn_until_ns > s->now_ns, held = best && best->turn_until_ns > s->now_ns;
        if (!best || (holds != held ? holds : t->virtual_ns < best->virtual_ns))
            best = t;
    }
    return best;
}

static void take_turn(struct sl_steer *s, struct tenant *t)
{
    uint64_t off = t->order.off_until_ns;
    if (t->turn_until_ns > s->now_ns) {
        if (off > s->now_ns && off < s->now_ns + LOW_GAP_NS)
            keep_off(t, off); /* about to return: no new order */
        return;
    }
    /* All turns end at the same moments, so that a tenant on several GPUs finds all of them free. */
    uint64_t length = below_another(s, t) ? LOWEST_TURN_NS : TURN_NS;
    t->turn_until_ns = s->now_ns - s->now_ns % length + length;
    if (t->turn_until_ns < s->now_ns + length / 5)
        t->turn_until_ns += length;
    t->turn_from_ns = s->now_ns;
    if (off > s->now_ns && t->turns == TURNS_LOWER)
        keep_off(t, s->now_ns + LOW_GAP_NS);
}

static void rotate(struct sl_steer *s, enum turns turns, uint64_t *next)
{
    uint32_t gpus = contested(s, turns), taken = 0;
    struct tenant *t;
    enter_race(s, turns, gpus);
    while (gpus && (t = next_in_race(s, turns, taken)) != NULL) {
        taken |= t->spec.gpu_mask;
        take_turn(s, t);
        t->picked = true;
        earlier(next, t->turn_until_ns);
    }
    FOR_EACH_TENANT(s, t)
    {
        bool picked = t->picked;
        if (t->turns != turns)
            continue;
        t->picked = false;
        if (picked)
            continue;
        t->turn_until_ns = 0;
        if ((t->spec.gpu_mask & gpus) && active(s, t))
            keep_off(t, s->now_ns + RENEW_NS);
    }
}

static void take_turns(struct sl_steer *s, uint64_t *next)
{
    struct tenant *t;
    FOR_EACH_TENANT(s, t)
    {
        enum turns turns = turns_of(s, t);
        t->races &= t->turns == turns && turns != TURNS_NONE;
        t->turns = turns;
        /* The others wait during its turn: it pays for the time, even if it did not use it. */
        charge_turn(s, t);
        t->turn_until_ns = turns ? t->turn_until_ns : 0;
    }
    rotate(s, TURNS_LOWER, next);
    rotate(s, TURNS_BUSY, next);
}

/* --- limits ------------------------------------------------------------------------------------ */

static bool has_company(const struct sl_steer *s, const struct tenant *t)
{
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && active(s, o))
        return true;
    return false;
}

/*
 * When it may return: at the start of a period, with half of the tokens with which it runs evenly; beside others with
 * enough for a slice, else its time on could be over before its slice comes, each time. A small limit may need many
 * periods for that: then it waits for the start of four, eight or sixteen. So all limits end at the same moments, and
 * tenants that wait for each other meet.
 */
static uint64_t end_of_cap(const struct sl_steer *s, const struct tenant *t)
{
    uint64_t limit = t->spec.limit_permille, until = end_of_period(s);
    int64_t need = (int64_t)(SL_STEER_PERIOD_NS * limit / 1000 * (1000 - limit) / 2000);
    int64_t slice = has_company(s, t) ? (int64_t)t->order.slice_us * 1000 : 0;
    const int64_t round = BOUND_ROUND_US * INT64_C(1000);
    slice = slice < round ? slice : round;
    need = need > slice ? need : slice;
    for (uint32_t periods = 2; periods <= 16; periods *= 2) {
        if (t->tokens_ns + (int64_t)((until - s->now_ns) * limit / 1000) >= need)
            break;
        uint64_t step = periods * SL_STEER_PERIOD_NS;
        until = periods == 2 ? until + SL_STEER_PERIOD_NS : s->now_ns - s->now_ns % step + step;
    }
    return until;
}

static void apply_limit(struct sl_steer *s, struct tenant *t, uint64_t *next)
{
    uint64_t limit = t->spec.limit_permille;
    if (t->capped_until_ns <= s->now_ns && t->tokens_ns <= 0) {
        uint64_t until = end_of_cap(s, t);
        if (until - s->now_ns >= SHORTEST_OFF_NS)
            t->capped_until_ns = until;
    }
    if (t->capped_until_ns > s->now_ns) {
        keep_off(t, t->capped_until_ns);
        earlier(next, t->capped_until_ns);
    } else if (t->tokens_ns > 0) {
        earlier(next, s->now_ns + (uint64_t)t->tokens_ns * 1000 / (1000 - limit) + 1);
    }
}

/* --- pauses ------------------------------------------------------------------------------------ */

/* An order lasts for a second at most. It is given anew when half of that is over. */
static void apply_pause(struct sl_steer *s, struct tenant *t, uint64_t *next)
{
    const uint64_t half = SL_STEER_MOST_OFF_NS / 2;
    uint64_t until = t->order.off_until_ns;
    if (until <= s->now_ns + half)
        until = s->now_ns + SL_STEER_MOST_OFF_NS;
    keep_off(t, until);
    earlier(next, until - half);
}

/* --- slices ------------------------------------------------------------------------------------ */

struct company {
    uint32_t heavy, busy, light; /* active ones on its GPUs, itself included */
    uint64_t weights;            /* of the heavy ones, … */
    uint64_t busy_weights;       /* … of the busy ones … */
    uint64_t all_weights;        /* … and of all */
    bool below;                  /* a tenant of a lower priority is there */
    bool bound;                  /* a tenant's limit is below the time of its slices */
    bool elsewhere;              /* other GPUs are busy, too */
    uint64_t windows;            /* permille of the time for tenants with windows of their own, … */
    bool between;                /* … and some of them get on between those, too */
};

static struct company company_of(const struct sl_steer *s, const struct tenant *t)
{
    struct company c = {0};
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    {
        c.elsewhere |= o != t && !meet(t, o) && o->heavy && active(s, o);
        if (o != t && (!meet(t, o) || !active(s, o)))
            continue;
        c.below |= o->spec.priority < t->spec.priority;
        if (o->lower)
            continue;
        c.light += o->light;
        c.busy += o->busy;
        c.busy_weights += o->busy ? o->weight : 0;
        c.all_weights += o->weight;
        c.windows += o->window_permille;
        c.between |= o->window_permille && !o->hardly_runs;
        if (!o->heavy)
            continue;
        c.heavy++;
        c.weights += sl_steer_effect_weight(s, o);
    }
    if (c.heavy < 2)
        return c;
    FOR_EACH_TENANT(s, o)
    c.bound |= (o == t || (meet(t, o) && active(s, o))) && o->heavy && !o->lower &&
               o->spec.limit_permille * c.weights < 1000ULL * o->weight;
    return c;
}

/*
 * One round of slices. The use of a tenant before it reached its limit is known by its slices only, so where limits
 * matter a round is short compared with the period. Between windows all tenants must get their slices, so two rounds
 * fit. Each period has another round: rounds in step with the periods would let the same tenant begin each time. Each
 * GPU has its own sequence of rounds: tenants on two GPUs that wait for each other must not be on by turns for ever.
 */
static uint64_t round_us(const struct sl_steer *s, const struct tenant *t, const struct company *c)
{
    static const uint32_t tenths[] = {10, 7, 12, 8, 11, 9, 13};
    uint64_t period = s->period_at_ns / SL_STEER_PERIOD_NS, us = ROUND_US;
    uint64_t step = period + (c->elsewhere ? 3U * (uint32_t)__builtin_ctz(t->spec.gpu_mask) : 0);
    uint64_t between =
        SL_STEER_PERIOD_NS / 1000 * (1000 - (c->windows < 1000 ? c->windows : 1000)) / 2000;
    if (sl_steer_effect_runs(s, t))
        return EFFECT_ROUND_US;
    if (!c->bound && !c->windows && !c->elsewhere)
        return us;
    us = c->bound ? BOUND_ROUND_US : us;
    us = c->windows && between < us ? between : us;
    return us / 10 * tenths[step % 7];
}

/* The first of the tenants that run one at a time with it: all have the slice that is tried for the first one. */
static struct tenant *first_of(struct sl_steer *s, struct tenant *t)
{
    struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (o == t || (meet(t, o) && o->turns == TURNS_BUSY && active(s, o)))
        return o;
    return t;
}

/*
 * Which slices are tried for a busy tenant beside a light one; the first is the usual one. A limited tenant gets the
 * time back that shorter slices cost it, and tenants that asked for little together leave the light one more than that:
 * 1.1 ms suits most hosts and makes the slowest steps shorter. Any other tenant would pay for shorter slices. Longer
 * ones cost it nothing, but the light one's slowest steps get longer where they do not help: they are tried for a
 * shorter time, and must win more often.
 */
static uint32_t beside_light(struct sl_steer *s, struct tenant *t, const struct company *c)
{
#define SHORTER 5, 2, 24, {1100, 1750, 1400, SL_STEER_DEFAULT_US, 900}
#define LONGER  3, 4, 3, {SL_STEER_DEFAULT_US, 3300, 2700, 2300}
    static const struct tune_way modest = {KEEP_REQUEST, true, SHORTER},
                                 bound = {KEEP_LIMIT, false, SHORTER},
                                 one = {KEEP_SPEED, false, LONGER},
                                 several = {KEEP_SPEED, true, LONGER};
    if (c->busy > 1 && 1000 * c->busy_weights <= MODEST_PERMILLE * c->all_weights)
        return sl_steer_tune(s, first_of(s, t), &modest, c->busy_weights);
    if (limited(t))
        return sl_steer_tune(s, t, &bound, t->spec.limit_permille);
    if (c->busy > 1)
        return sl_steer_tune(s, first_of(s, t), &several, c->busy_weights);
    return sl_steer_tune(s, t, &one, t->weight);
}

static uint32_t slice_of(struct sl_steer *s, struct tenant *t)
{
    uint64_t groups = t->seen.groups ? t->seen.groups : 1, us = SL_STEER_DEFAULT_US;
    if (t->lower)
        return TINY_SLICE_US;
    struct company c = company_of(s, t);
    if (c.below)
        return TOP_SLICE_US;
    if (t->busy && c.light)
        return beside_light(s, t, &c);
    if (!t->heavy)
        return SL_STEER_DEFAULT_US;
    if (c.heavy > 1)
        us = round_us(s, t, &c) * sl_steer_effect_weight(s, t) / c.weights;
    else if (c.windows && !c.between)
        us = WINDOWED_SLICE_US;
    else
        return SL_STEER_DEFAULT_US; /* no other tenant: short slices only cost time */
    us = us < LEAST_SLICE_US ? LEAST_SLICE_US : us > ROUND_US ? ROUND_US : us;
    us /= groups;
    return us < LEAST_GROUP_US ? LEAST_GROUP_US : (uint32_t)us;
}

/* --- all together ------------------------------------------------------------------------------ */

static bool metered(const struct sl_steer *s, const struct tenant *t)
{
    const struct tenant *o;
    if (t->spec.paused || (!active(s, t) && t->order.off_until_ns <= s->now_ns))
        return false;
    if (limited(t) || t->spec.billed)
        return true;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && lately(s, o, TOP_LINGERS_NS))
        return true;
    return false;
}

static void tell(struct sl_steer *s, struct tenant *t, bool new_period)
{
    struct sl_steer_order want = t->order;
    bool meter = metered(s, t);
    /* A change costs the process a call into the driver: between periods only where latency matters. */
    bool urgent = !t->told || t->lower || want.slice_us == TINY_SLICE_US;
    if (new_period || urgent)
        want.slice_us = slice_of(s, t);
    want.meter = meter;
    bool renewed = t->off_until_ns > want.off_until_ns &&
                   want.off_until_ns > s->now_ns + RENEW_NS / 2 &&
                   t->off_until_ns <= s->now_ns + RENEW_NS;
    if (!renewed)
        want.off_until_ns = t->off_until_ns;
    /* An order that is over is the same as none. */
    bool off_changes = want.off_until_ns != t->order.off_until_ns &&
                       (want.off_until_ns > s->now_ns || t->order.off_until_ns > s->now_ns);
    t->dirty |= off_changes || want.slice_us != t->order.slice_us || want.meter != t->order.meter;
    t->order = want;
}

uint64_t sl_steer_plan(struct sl_steer *s, bool new_period)
{
    uint64_t next = SL_STEER_NEVER;
    struct tenant *t;
    find_lower(s);
    find_light(s);
    FOR_EACH_TENANT(s, t)
    {
        if (limited(t) && (active(s, t) || t->capped_until_ns > s->now_ns))
            apply_limit(s, t, &next);
        if (t->spec.paused)
            apply_pause(s, t, &next);
        sl_steer_apply_window(s, t, new_period, &next);
    }
    FOR_EACH_TENANT(s, t)
    if (t->window_open)
        sl_steer_clear_the_gpu(s, t);
    take_turns(s, &next);
    if (new_period)
        sl_steer_effect(s);
    bool any = false;
    FOR_EACH_TENANT(s, t)
    {
        tell(s, t, new_period);
        any |= t->order.meter;
    }
    if (any) {
        earlier(&next, s->now_ns + TICK_NS);
        earlier(&next, end_of_period(s));
    }
    if (next != SL_STEER_NEVER && next < s->now_ns + REPORT_NS / 5)
        next = s->now_ns + REPORT_NS / 5;
    return next;
}
