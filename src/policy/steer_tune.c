/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which slice of a busy tenant suits the light ones beside it. A program that launches for two milliseconds and
 * then waits gets on at the ends of its neighbour's slices only: whether its step ends at one of them or just
 * after decides between 3 and 5 ms a step. What is best depends on the program, so each is tried, one period at
 * a time, and the one is kept with which the light ones get most done.
 */
#include "policy/steer_internal.h"

/* Periods of each before one is chosen. Then one period in so many is for another: rarely, because the slowest
 * steps are what people notice. The score of the one that is used goes on, so it is left when it gets worse. */
#define TRIED_FIRST 4U
#define TRIED_EVERY 128U
/* Periods that a score stands for. */
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

/* What the light ones used in the period that is over, with the slice that it had. */
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
    if (tune->slices_us != slices_us) /* another situation: what was learnt is of no use */
        *tune = (struct tune){
            .slices_us = slices_us, .used_ns = used, .light = light, .since_ns = s->now_ns};
    else if (s->now_ns != tune->since_ns)
        score(tune, used, light, s->now_ns);
    else
        return slices_us[tune->at];
    tune->at = choose(tune, n);
    return slices_us[tune->at];
}
