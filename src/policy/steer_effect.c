/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do slices have an effect? Some cards are reported to accept them, to read them back, and to share as before. So while
 * tenants keep a GPU busy, two of them are measured now and then: one gets twice its slice for a while, then half of
 * it, in turn. Where slices work, both programs follow, one up and the other down; over the whole measurement their
 * shares stay about the same. Launches are compared, each tenant's with its own: they are counted exactly, and no tenant
 * can lie for the other.
 */
#include "policy/steer_internal.h"
#include "policy/times.h"

/* A slice stays for so many periods; the first of them is not counted. Longer, shorter, shorter, longer, and again: a
 * drift falls on both alike. */
#define RUN            5U
#define RUNS           8U
#define PERIODS        (RUN * RUNS)
/* Fewer launches in a run say nothing. */
#define LEAST_LAUNCHES 20U
/* The parts of the time in which both must have kept their queues full, in percent. */
#define FULL           90U
/* A tenant follows its slice from this part of the expected change on, in percent. It does not if its launches are the
 * same in all runs: the most are no more than this part of the fewest, in percent. A program whose launches come in
 * lumps does neither. */
#define FOLLOWS        60
#define SAME           125
#define STRIKES        3U
/* No program launches more in a period. A liar's figures stay small enough to be multiplied. */
#define MOST_LAUNCHES  1000000U

/* Only slices decide how these tenants share. */
static bool by_slices_alone(const struct tenant *t)
{
    return t->heavy && !limited(t) && !t->light && !t->lower && !t->spec.paused &&
           !t->window_permille && t->turns == TURNS_NONE && t->seen.groups <= 1 &&
           (t->spec.gpu_mask & (t->spec.gpu_mask - 1)) == 0;
}

/* The tenants with the least and the greatest weight on a GPU, if slices alone decide between all that are there. With
 * half of its weight, the least one must still have a whole slice. */
static bool find_pair(struct sl_steer *s, uint32_t gpu, uint32_t pair[2])
{
    struct tenant *t, *least = NULL, *most = NULL;
    uint64_t weights = 0;
    FOR_EACH_TENANT(s, t)
    {
        if (!(t->spec.gpu_mask & 1U << gpu) || !active(s, t))
            continue;
        if (!by_slices_alone(t))
            return false;
        weights += t->weight;
        least = !least || t->weight < least->weight ? t : least;
        most = !most || t->weight >= most->weight ? t : most;
    }
    if (!least || least == most)
        return false;
    uint64_t half = least->weight / 2;
    if (half * EFFECT_ROUND_US < (weights - least->weight + half) * LEAST_SLICE_US)
        return false;
    pair[0] = least->order.id;
    pair[1] = most->order.id;
    return true;
}

static struct tenant *of_pair(struct sl_steer *s, const struct effect *e, uint32_t which)
{
    return &s->tenants[e->pair[which]];
}

/* The phase of a period: 0, the slice of the first of the pair is longer; 1, it is shorter. */
static uint32_t phase_of(uint32_t period)
{
    uint32_t run = period / RUN;
    return (run ^ run >> 1) & 1;
}

static void wait_for(const struct sl_steer *s, struct effect *e, uint64_t ns)
{
    e->period = 0;
    e->wait_ns = ns < SL_EFFECT_EVERY_NS ? ns : SL_EFFECT_EVERY_NS;
    e->next_at_ns = s->now_ns + e->wait_ns;
}

static void mark(struct sl_steer *s, struct effect *e)
{
    e->marked_ns = s->now_ns;
    for (uint32_t i = 0; i < 2; i++) {
        e->marked[i].launches = of_pair(s, e, i)->seen.launches;
        e->marked[i].saturated_ns = of_pair(s, e, i)->seen.saturated_ns;
    }
}

/* Counts the period that has just ended. False: the counters began anew. */
static bool count(struct sl_steer *s, struct effect *e, uint32_t period)
{
    uint64_t span = s->now_ns - e->marked_ns;
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_steer_seen *now = &of_pair(s, e, i)->seen;
        if (now->launches < e->marked[i].launches || now->saturated_ns < e->marked[i].saturated_ns)
            return false;
        uint64_t full = now->saturated_ns - e->marked[i].saturated_ns;
        uint64_t launches = now->launches - e->marked[i].launches;
        e->full_ns[i] += full < span ? full : span;
        if (period % RUN > 0)
            e->run[i] += launches < MOST_LAUNCHES ? launches : MOST_LAUNCHES;
    }
    e->span_ns += span;
    return true;
}

static void end_run(struct effect *e, uint32_t phase)
{
    for (uint32_t i = 0; i < 2; i++) {
        e->launches[i][phase] += e->run[i];
        e->fewest[i] = e->run[i] < e->fewest[i] ? e->run[i] : e->fewest[i];
        e->most[i] = e->run[i] > e->most[i] ? e->run[i] : e->most[i];
        e->run[i] = 0;
    }
}

/* How far a tenant followed its slice, in percent of what is expected: 100, its launches changed like its share. */
static int64_t followed(const struct effect *e, uint32_t which)
{
    /* Weights of the first and of all, in both phases. The share of the second is the rest of the share of both. */
    uint64_t a = e->weight[0], b = e->weight[1], rest = e->weights - a;
    uint64_t longer = which ? b : 2 * a, shorter = which ? b : a / 2;
    uint64_t expected = 1000 * longer * (rest + a / 2) / (shorter * (rest + 2 * a));
    uint64_t seen = 1000 * e->launches[which][0] / e->launches[which][1];
    int64_t change = (int64_t)expected - 1000;
    return ((int64_t)seen - 1000) * 100 / change;
}

static bool is_full(const struct effect *e, uint32_t which)
{
    return e->full_ns[which] * 100 >= e->span_ns * FULL && e->fewest[which] >= LEAST_LAUNCHES;
}

static bool same_in_all_runs(const struct effect *e, uint32_t which)
{
    return e->most[which] * 100 <= e->fewest[which] * SAME;
}

static void judge(const struct sl_steer *s, struct effect *e)
{
    if (!is_full(e, 0) || !is_full(e, 1)) {
        wait_for(s, e, 2 * e->wait_ns);
    } else if (followed(e, 0) >= FOLLOWS && followed(e, 1) >= FOLLOWS) {
        e->strikes = 0;
        wait_for(s, e, SL_EFFECT_EVERY_NS);
    } else if (same_in_all_runs(e, 0) && same_in_all_runs(e, 1)) {
        e->failed |= ++e->strikes == STRIKES;
        wait_for(s, e, SL_EFFECT_FIRST_NS);
    } else {
        wait_for(s, e, 2 * e->wait_ns);
    }
}

static void begin(struct sl_steer *s, struct effect *e)
{
    struct tenant *t;
    e->period = 1;
    e->weight[0] = of_pair(s, e, 0)->weight;
    e->weight[1] = of_pair(s, e, 1)->weight;
    e->weights = 0;
    FOR_EACH_TENANT(s, t)
    if (t == of_pair(s, e, 0) || (meet(t, of_pair(s, e, 0)) && active(s, t)))
        e->weights += t->weight;
    for (uint32_t i = 0; i < 2; i++) {
        e->launches[i][0] = e->launches[i][1] = e->run[i] = e->most[i] = e->full_ns[i] = 0;
        e->fewest[i] = UINT64_MAX;
    }
    e->span_ns = 0;
    mark(s, e);
}

static void next_period(struct sl_steer *s, struct effect *e)
{
    if (!count(s, e, e->period - 1)) {
        wait_for(s, e, 2 * e->wait_ns);
        return;
    }
    mark(s, e);
    if (e->period % RUN == 0)
        end_run(e, phase_of(e->period - 1));
    if (e->period++ == PERIODS)
        judge(s, e);
}

/* A pair must be together for a moment. When it is measured next stays, whoever the two are. */
static void new_pair(const struct sl_steer *s, struct effect *e, const uint32_t pair[2])
{
    uint64_t at = s->now_ns + SL_EFFECT_FIRST_NS;
    if (pair[0] != e->pair[0] || pair[1] != e->pair[1])
        e->strikes = 0;
    e->pair[0] = pair[0];
    e->pair[1] = pair[1];
    e->paired = true;
    e->period = 0;
    e->wait_ns = e->wait_ns ? e->wait_ns : SL_EFFECT_FIRST_NS;
    e->next_at_ns = e->next_at_ns > at ? e->next_at_ns : at;
}

void sl_steer_effect(struct sl_steer *s)
{
    for (uint32_t g = 0; g < SL_STEER_MAX_GPUS; g++) {
        struct effect *e = &s->effect[g];
        uint32_t pair[2];
        if (!find_pair(s, g, pair)) {
            e->paired = false;
            e->period = 0;
        } else if (!e->paired || pair[0] != e->pair[0] || pair[1] != e->pair[1]) {
            new_pair(s, e, pair);
        } else if (e->period) {
            next_period(s, e);
        } else if (s->now_ns >= e->next_at_ns) {
            begin(s, e);
        }
    }
}

void sl_steer_effect_forget(struct sl_steer *s, uint32_t id)
{
    for (uint32_t g = 0; g < SL_STEER_MAX_GPUS; g++) {
        struct effect *e = &s->effect[g];
        if (id != e->pair[0] && id != e->pair[1])
            continue;
        e->paired = e->failed = false;
        e->period = e->strikes = 0;
    }
}

/* The measurement in which a tenant takes part, as one of the pair or beside it; NULL: none. */
static const struct effect *measured(const struct sl_steer *s, const struct tenant *t)
{
    for (uint32_t g = 0; g < SL_STEER_MAX_GPUS; g++)
        if ((t->spec.gpu_mask & 1U << g) && s->effect[g].period)
            return &s->effect[g];
    return NULL;
}

bool sl_steer_effect_runs(const struct sl_steer *s, const struct tenant *t)
{
    return measured(s, t) != NULL;
}

uint32_t sl_steer_effect_weight(const struct sl_steer *s, const struct tenant *t)
{
    const struct effect *e = measured(s, t);
    if (!e || t != &s->tenants[e->pair[0]])
        return t->weight;
    return phase_of(e->period - 1) ? t->weight / 2 : 2 * t->weight;
}

bool sl_steer_no_effect(struct sl_steer *s, uint32_t ret_ids[2])
{
    for (uint32_t g = 0; g < SL_STEER_MAX_GPUS; g++) {
        struct effect *e = &s->effect[g];
        if (!e->failed)
            continue;
        e->failed = false;
        ret_ids[0] = e->pair[0];
        ret_ids[1] = e->pair[1];
        return true;
    }
    return false;
}
