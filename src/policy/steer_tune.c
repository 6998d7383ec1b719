/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the slice of a busy tenant that suits the light tenants beside it. A program that launches for two milliseconds
 * and then waits gets on only at the ends of its neighbour's slices: whether its step ends at such an end or just after
 * it makes the difference between 3 and 5 ms a step. The best slice depends on the program. So each slice is tried for a
 * few periods, and the slice with which the light tenants get most done is kept, unless the busy one then falls
 * short of its own part: shorter slices lose more time to switches.
 */
#include "policy/steer_internal.h"

/* A slice stays for so many periods. The first of them shows nothing: time that a limited tenant saved or owes comes
 * from the slice before. Before the first run, the tenants have just begun. */
#define RUN          4U
#define SETTLING     2U
/* A slice on trial is given up after so many of them where it is worse than the best by a sixth. */
#define ENOUGH_TRIED 2U
/* Then one run in so many is for another slice: rarely, because people notice the slowest steps. The figures of the
 * chosen slice go on, so it is left when it gets worse. */
#define TRIED_EVERY  128U
/* The number of periods in a figure. */
#define REMEMBERED   16U
/* Busy tenants without a limit lack time when they got less than this part of their requests, in percent: their use is
 * an estimate. A tenant with a limit lacks time when it did not reach its limit for this long. */
#define ENOUGH       95
#define UNREACHED_NS (10 * SL_STEER_PERIOD_NS)

struct used {
    uint64_t light_ns, busy_ns;
    uint32_t light; /* their number */
};

static struct used used_now(const struct sl_steer *s, const struct tenant *t, bool together)
{
    struct used u = {.busy_ns = t->used_ns};
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    {
        if (!meet(t, o))
            continue;
        if (together && o->turns == TURNS_BUSY)
            u.busy_ns += o->used_ns;
        if (!o->light)
            continue;
        u.light_ns += o->used_ns;
        u.light++;
    }
    return u;
}

static void learn(int64_t *mean, uint64_t used_ns, uint64_t before_ns, uint64_t span_ns,
                  int64_t weight)
{
    *mean += ((int64_t)((used_ns - before_ns) * 100000 / span_ns) - *mean) / weight;
}

/* The use in the last period shows what the slice of that period is worth. */
static void score(struct tune *tune, const struct used *u, uint64_t now_ns)
{
    uint64_t span = now_ns - tune->since_ns;
    bool comparable = !tune->fresh && u->light == tune->light && u->light_ns >= tune->light_ns &&
                      u->busy_ns >= tune->busy_ns && span >= SL_STEER_PERIOD_NS / 2 &&
                      span <= 4 * SL_STEER_PERIOD_NS;
    if (comparable) {
        uint32_t *tried = &tune->tried[tune->at];
        int64_t weight = *tried < REMEMBERED ? *tried + 1 : REMEMBERED;
        learn(&tune->light_got[tune->at], u->light_ns, tune->light_ns, span, weight);
        learn(&tune->busy_got[tune->at], u->busy_ns, tune->busy_ns, span, weight);
        (*tried)++;
    }
}

static void begin_period(struct tune *tune, const struct used *u, uint64_t now_ns)
{
    tune->since_ns = now_ns;
    tune->light_ns = u->light_ns;
    tune->busy_ns = u->busy_ns;
    tune->light = u->light;
}

/* At the end of a run. A tenant that reaches its limit is off at times; a tenant that lacks time never is. */
static void judge_run(const struct sl_steer *s, const struct tenant *t, struct tune *tune,
                      uint64_t need_permille, bool together)
{
    bool unreached =
        s->now_ns > tune->in_use_ns + UNREACHED_NS && s->now_ns > t->capped_until_ns + UNREACHED_NS;
    if (!tune->settles)
        tune->lacks[tune->at] =
            together ? tune->busy_got[tune->at] < (int64_t)need_permille * ENOUGH : unreached;
}

/* The first slice is the longest: it is for busy tenants that lack time with every slice. */
static bool better(const struct tune *tune, uint32_t i, uint32_t than)
{
    if (tune->lacks[i] || tune->lacks[than])
        return !tune->lacks[i];
    return tune->light_got[i] > tune->light_got[than];
}

static bool hopeless(const struct tune *tune, uint32_t n)
{
    int64_t best = 0;
    for (uint32_t i = 0; i < n; i++)
        best = !tune->lacks[i] && tune->light_got[i] > best ? tune->light_got[i] : best;
    return tune->tried[tune->at] == ENOUGH_TRIED && tune->light_got[tune->at] < best / 6 * 5;
}

static uint32_t choose(struct tune *tune, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!tune->tried[i])
            return i;
        best = better(tune, i, best) ? i : best;
    }
    tune->runs++;
    return tune->runs % TRIED_EVERY ? best : (tune->runs / TRIED_EVERY) % n;
}

uint32_t sl_steer_tune(const struct sl_steer *s, struct tenant *t, const uint32_t *slices_us,
                       uint32_t n, uint64_t need_permille, bool together)
{
    struct tune *tune = &t->tune;
    struct used u = used_now(s, t, together);
    if (tune->slices_us != slices_us) /* another situation: earlier figures are of no use */
        *tune = (struct tune){.slices_us = slices_us, .left = SETTLING, .settles = true};
    else if (s->now_ns != tune->since_ns)
        score(tune, &u, s->now_ns);
    else
        return slices_us[tune->at];
    begin_period(tune, &u, s->now_ns);
    tune->fresh = tune->settles;
    if (tune->left == 0 || hopeless(tune, n)) {
        uint32_t before = tune->at;
        judge_run(s, t, tune, need_permille, together);
        tune->at = choose(tune, n);
        tune->fresh = tune->at != before || !tune->tried[tune->at];
        tune->in_use_ns = tune->fresh ? s->now_ns : tune->in_use_ns;
        tune->left = RUN;
        tune->settles = false;
    }
    tune->left--;
    return slices_us[tune->at];
}
