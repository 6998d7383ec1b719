/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the slice of a busy tenant that suits the light tenants beside it. A program that launches for two milliseconds
 * and then waits gets on only at the ends of its neighbour's slices: whether its step ends at such an end or just after
 * it makes the difference between 3 and 5 ms a step. The best slice depends on the program. So each slice is tried, one
 * period at a time, and the slice with which the light tenants get most done is kept.
 */
#include "policy/steer_internal.h"

/* Periods of each slice before one is chosen. Then one period in so many is for another slice: rarely, because people
 * notice the slowest steps. The score of the chosen slice goes on, so it is left when it gets worse. */
#define TRIED_FIRST 4U
#define TRIED_EVERY 128U
/* The number of periods in a score. */
#define REMEMBERED  8U

static uint64_t used_by_light(const struct sl_steer *s, const struct tenant *t, uint32_t *count)
{
    uint64_t sum = 0;
    const struct tenant *o;
    *count = 0;
    FOR_EACH_TENANT(s, o)
    {
        if (!meet(t, o) || !o->light)
            continue;
        sum += o->used_ns;
        (*count)++;
    }
    return sum;
}

/* Scores the light tenants' use in the last period, for the slice of that period. */
static void score(struct tune *tune, uint64_t used_ns, uint32_t light, uint64_t now_ns)
{
    uint64_t span = now_ns - tune->since_ns;
    bool comparable = light == tune->light && used_ns >= tune->used_ns &&
                      span >= SL_STEER_PERIOD_NS / 2 && span <= 4 * SL_STEER_PERIOD_NS;
    if (comparable) {
        int64_t got = (int64_t)((used_ns - tune->used_ns) * 100000 / span);
        uint32_t *tried = &tune->tried[tune->at];
        int64_t weight = *tried < REMEMBERED ? *tried + 1 : REMEMBERED;
        tune->score[tune->at] += (got - tune->score[tune->at]) / weight;
        (*tried)++;
    }
    tune->used_ns = used_ns;
    tune->light = light;
    tune->since_ns = now_ns;
}

static uint32_t choose(struct tune *tune, uint32_t n)
{
    uint32_t best = 0, least = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = tune->score[i] > tune->score[best] ? i : best;
        least = tune->tried[i] < tune->tried[least] ? i : least;
    }
    tune->periods++;
    if (tune->tried[least] < TRIED_FIRST)
        return least;
    return tune->periods % TRIED_EVERY ? best : (tune->periods / TRIED_EVERY) % n;
}

uint32_t sl_steer_tune(const struct sl_steer *s, struct tenant *t, const uint32_t *slices_us,
                       uint32_t n)
{
    struct tune *tune = &t->tune;
    uint32_t light;
    uint64_t used = used_by_light(s, t, &light);
    if (tune->slices_us != slices_us) /* another situation: earlier scores are of no use */
        *tune = (struct tune){
            .slices_us = slices_us, .used_ns = used, .light = light, .since_ns = s->now_ns};
    else if (s->now_ns != tune->since_ns)
        score(tune, used, light, s->now_ns);
    else
        return slices_us[tune->at];
    tune->at = choose(tune, n);
    return slices_us[tune->at];
}
