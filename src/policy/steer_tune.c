/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the slice of a busy tenant that suits the light tenants beside it. A program that launches for two milliseconds
 * and then waits gets on only at the ends of its neighbour's slices. It has done a step when a slice ends after its
 * last launch: with slices of 2 ms that is every 2.8 ms, and every 5.2 ms if its host is a little slower. A shorter
 * slice makes the step shorter, a slightly longer one may save a whole round. The best slice depends on the program and
 * on the speed of its host. So each slice is tried for a few periods, and the slice with which the light tenants get
 * most done is kept, unless the busy ones then get too little. The speed of a host goes up and down by a third within
 * seconds, so slices that are close to each other are tried by turns, several times.
 */
#include "policy/steer_internal.h"

/* A slice stays for so many periods. The first of them shows nothing: time that a limited tenant saved or owes comes
 * from the slice before. Before the first run, the tenants have just begun. */
#define RUN          5U
#define SETTLING     2U
/* After a longer break than this, the tenants have just begun, too. What is known of the slices stays. */
#define BREAK_NS     (4 * SL_STEER_PERIOD_NS)
/* A slice is tried so many times, in turn with the others, unless it is below this part of the best one, in percent. */
#define PASSES       3U
#define IN_QUESTION  85
/* When all were tried, the chosen slice stays for so many runs before one is tried again: rarely, because people notice
 * the slowest steps. … */
#define TRIED_EVERY  100U
/* … All are tried again if the light ones are faster or slower than then by more than this, in percent. */
#define CHANGED      125
/* The number of periods in a figure. */
#define REMEMBERED   16U
#define KERNELS      4 /* … and in the mean length of a kernel */
/* Busy tenants lack time below this part of their requests, in percent: their use is an estimate. … */
#define ENOUGH       95
/* … or below this part of their speed with the first slice; … */
#define SAME_SPEED   97
/* … and another slice than the usual one is chosen where it makes the light ones faster by more than chance does; where
 * the usual one is the driver's, by this much. */
#define BY_CHANCE    103
#define FASTER       107
/* A tenant with a limit lacks time when it did not reach its limit for this long, and used less than this part of it,
 * in percent: what it saved before may last for longer. */
#define UNREACHED_NS (20 * SL_STEER_PERIOD_NS)
#define ALL_OF_IT    98

struct use {
    uint64_t light_launches, light_ns, busy_launches, busy_ns, off_ns;
    uint32_t light; /* their number */
    bool at_work;   /* all of them, and the busy one */
};

static struct use use_now(const struct sl_steer *s, const struct tenant *t, bool together)
{
    struct use u = {.busy_ns = t->used_ns,
                    .busy_launches = t->seen.launches,
                    .off_ns = t->off_ns,
                    .at_work = together || !has_stopped(s, t)};
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    {
        if (!meet(t, o))
            continue;
        if (together && o->turns == TURNS_BUSY) {
            u.busy_ns += o->used_ns;
            u.busy_launches += o->seen.launches;
        }
        if (!o->light)
            continue;
        u.light_launches += o->seen.launches;
        u.light_ns += o->used_ns;
        u.light++;
        u.at_work &= !has_stopped(s, o);
    }
    return u;
}

static void learn(int64_t *mean, uint64_t now, uint64_t before, uint64_t scale, uint64_t span_ns,
                  int64_t weight)
{
    *mean += ((int64_t)((now - before) * scale / span_ns) - *mean) / weight;
}

/* Does the period that ends now show what its slice is worth? Not if somebody had stopped at its start or its end. Not
 * while others had a window: then the busy tenant was off with any slice. (Tenants that have limits or take turns are
 * off all the time.) */
static bool comparable(const struct tune *tune, const struct use *u, uint64_t span_ns)
{
    bool window =
        tune->way->keep == KEEP_SPEED && !tune->way->together && u->off_ns != tune->off_ns;
    return !tune->fresh && u->at_work && !window && u->light == tune->light &&
           u->light_launches >= tune->light_launches && u->light_ns >= tune->light_ns &&
           u->busy_launches >= tune->busy_launches && u->busy_ns >= tune->busy_ns &&
           span_ns >= SL_STEER_PERIOD_NS / 2;
}

/* Launches show how fast programs are, and are counted exactly; their use is an estimate. */
static void score(struct tune *tune, const struct use *u, uint64_t now_ns)
{
    uint64_t span = now_ns - tune->since_ns;
    uint32_t at = tune->at;
    if (!comparable(tune, u, span))
        return;
    int64_t weight = tune->tried[at] < REMEMBERED ? tune->tried[at] + 1 : REMEMBERED;
    learn(&tune->light_got[at], u->light_launches, tune->light_launches, 1000 * MS, span, weight);
    if (u->light_launches > tune->light_launches)
        learn(&tune->kernel_ns, u->light_ns, tune->light_ns, 1,
              u->light_launches - tune->light_launches, KERNELS);
    learn(&tune->busy_ran[at], u->busy_launches, tune->busy_launches, 1000 * MS, span, weight);
    learn(&tune->busy_got[at], u->busy_ns, tune->busy_ns, 100000, span, weight);
    tune->tried[at]++;
    tune->scored = true;
}

static void begin_period(struct tune *tune, const struct use *u, uint64_t now_ns)
{
    tune->since_ns = now_ns;
    tune->light_launches = u->light_launches;
    tune->light_ns = u->light_ns;
    tune->busy_launches = u->busy_launches;
    tune->busy_ns = u->busy_ns;
    tune->off_ns = u->off_ns;
    tune->light = u->light;
}

/* Some launch in bursts, and what they use is an estimate: both must say that they are slower. */
static bool is_lacking(const struct sl_steer *s, const struct tenant *t, const struct tune *tune,
                       uint64_t need_permille)
{
    switch (tune->way->keep) {
    case KEEP_SPEED:
        return tune->busy_ran[tune->at] * 100 < tune->busy_ran[0] * SAME_SPEED &&
               tune->busy_got[tune->at] * 100 < tune->busy_got[0] * SAME_SPEED;
    case KEEP_REQUEST:
        return tune->busy_got[tune->at] < (int64_t)need_permille * ENOUGH;
    case KEEP_LIMIT: /* a tenant that reaches its limit is off at times; one that lacks time never is */
        return s->now_ns > tune->in_use_ns + UNREACHED_NS &&
               s->now_ns > t->capped_until_ns + UNREACHED_NS &&
               tune->busy_got[tune->at] < (int64_t)need_permille * ALL_OF_IT;
    }
    return false;
}

/* Where a short slice leaves too little, a shorter one leaves less. */
static void note_lack(struct tune *tune, bool lacks)
{
    bool shorter = lacks && tune->way->keep != KEEP_SPEED;
    tune->lacks[tune->at] = lacks;
    for (uint32_t i = 0; i < TUNE_MOST; i++)
        tune->lacks[i] |= shorter && tune->way->slices_us[i] < tune->way->slices_us[tune->at];
}

/* Used unless another slice is better by more than chance: for tenants that pay for no other one the driver's, for
 * others a short one, because it suits most hosts and makes the slowest steps shorter. */
static uint32_t usual(const struct tune *tune)
{
    return tune->way->keep == KEEP_SPEED ? 0 : 1;
}

/* Of longer slices, the longest is tried first. Where it costs the light ones a fifth, they do a step in each round with
 * both slices, or with neither, and no slice in between helps. */
static bool worth_trying(const struct tune *tune, uint32_t i)
{
    if (!tune->way->slices_us[i])
        return false;
    if (tune->way->keep != KEEP_SPEED || i == 0)
        return true;
    if (tune->kernel_ns > SHORT_KERNEL_NS)
        return false;
    return i == 1 || tune->light_got[1] * 5 > tune->light_got[0] * 4;
}

/* At first all are tried; later the chosen one and one rival. */
static bool takes_part(const struct tune *tune, uint32_t i)
{
    return (tune->rival == TUNE_MOST || i == tune->rival || i == tune->chosen) &&
           worth_trying(tune, i);
}

static bool better(const struct tune *tune, uint32_t i, uint32_t than, int64_t by)
{
    if (tune->lacks[i] || tune->lacks[than])
        return !tune->lacks[i];
    return tune->light_got[i] * 100 > tune->light_got[than] * by;
}

static uint32_t best_of(const struct tune *tune)
{
    uint32_t first = takes_part(tune, usual(tune)) ? usual(tune) : tune->chosen, best = first;
    int64_t by = tune->way->keep == KEEP_SPEED ? FASTER : BY_CHANCE;
    for (uint32_t i = 0; i < TUNE_MOST; i++)
        if (tune->passes[i] && takes_part(tune, i) &&
            better(tune, i, best, best == first ? by : 100))
            best = i;
    return tune->lacks[best] ? 0 : best; /* the busy ones lack time with every slice */
}

/* Could it still turn out to be the best one? */
static bool in_question(const struct tune *tune, uint32_t i, uint32_t best)
{
    if (!takes_part(tune, i))
        return false;
    if (!tune->passes[i] || i == best || i == usual(tune))
        return true;
    if (tune->way->keep == KEEP_SPEED) /* a few periods do not show yet what busy ones lack */
        return tune->light_got[i] > tune->light_got[0];
    return !tune->lacks[i] && tune->light_got[i] * 100 > tune->light_got[best] * IN_QUESTION;
}

/* The slice that was tried least, of those in question; the usual one first. TUNE_MOST: one is left, or all were tried
 * enough. */
static uint32_t next_to_try(const struct tune *tune)
{
    uint32_t best = best_of(tune), next = usual(tune), n = 0;
    if (!in_question(tune, next, best) || tune->passes[next] == PASSES)
        next = TUNE_MOST;
    for (uint32_t i = 0; i < TUNE_MOST; i++) {
        if (!in_question(tune, i, best))
            continue;
        n++;
        if (tune->passes[i] < PASSES && (next == TUNE_MOST || tune->passes[i] < tune->passes[next]))
            next = i;
    }
    return n > 1 ? next : TUNE_MOST;
}

/* The program may be another one by now, or its host slower: then all slices are tried again, else one of them. */
static void try_again(struct tune *tune)
{
    int64_t got = tune->light_got[tune->chosen], then = tune->chosen_got;
    uint32_t turn = tune->turns++, rival = turn % 2 ? usual(tune) : turn / 2 % TUNE_MOST;
    tune->runs = 0;
    tune->rival = got * CHANGED < then * 100 || got * 100 > then * CHANGED ? TUNE_MOST : rival;
    if (rival == tune->chosen && tune->rival != TUNE_MOST)
        return;
    tune->trying = true;
    for (uint32_t i = 0; i < TUNE_MOST; i++)
        if (takes_part(tune, i))
            tune->tried[i] = tune->passes[i] = 0;
}

/* Between trials the chosen slice stays: what is known of the others is from another time, and another speed of the
 * host. */
static uint32_t choose(struct tune *tune)
{
    if (!tune->trying && tune->lacks[tune->chosen]) {
        tune->rival = TUNE_MOST;
        tune->chosen = best_of(tune);
    }
    if (!tune->trying && ++tune->runs >= TRIED_EVERY)
        try_again(tune);
    uint32_t next = tune->trying ? next_to_try(tune) : TUNE_MOST;
    if (next < TUNE_MOST)
        return next;
    if (tune->trying) {
        tune->chosen = best_of(tune);
        tune->chosen_got = tune->light_got[tune->chosen];
    }
    tune->trying = false;
    return tune->chosen;
}

/* The run that the break ended is of no use; nor is the time in which nobody was there to reach a limit. */
static void go_on(struct tune *tune, uint64_t now_ns)
{
    tune->left = RUN + 1;
    tune->settles = true;
    tune->in_use_ns = now_ns;
}

static void begin_run(const struct sl_steer *s, struct tenant *t, uint64_t need_permille)
{
    struct tune *tune = &t->tune;
    uint32_t before = tune->at;
    if (tune->scored) {
        note_lack(tune, is_lacking(s, t, tune, need_permille));
        tune->passes[before] += tune->passes[before] < PASSES;
    }
    /* Nothing is tried on programs that do not stay at work. */
    tune->at = tune->scored || tune->settles ? choose(tune) : tune->chosen;
    tune->scored = false;
    tune->fresh = tune->at != before || !tune->tried[tune->at];
    tune->in_use_ns = tune->fresh ? s->now_ns : tune->in_use_ns;
    tune->left = RUN;
    tune->settles = false;
}

/* Another situation: earlier figures are of no use. */
static void begin(struct tune *tune, const struct tune_way *way)
{
    *tune = (struct tune){
        .way = way, .left = SETTLING, .settles = true, .trying = true, .rival = TUNE_MOST};
    tune->at = tune->chosen = usual(tune);
}

uint32_t sl_steer_tune(const struct sl_steer *s, struct tenant *t, const struct tune_way *way,
                       uint64_t need_permille)
{
    struct tune *tune = &t->tune;
    struct use u = use_now(s, t, way->together);
    if (tune->way == way && s->now_ns == tune->since_ns)
        return way->slices_us[tune->at];
    if (tune->way != way)
        begin(tune, way);
    else if (s->now_ns > tune->since_ns + BREAK_NS)
        go_on(tune, s->now_ns);
    else
        score(tune, &u, s->now_ns);
    begin_period(tune, &u, s->now_ns);
    tune->fresh = tune->settles;
    if (tune->left == 0)
        begin_run(s, t, need_permille);
    tune->fresh |= !u.at_work;
    tune->in_use_ns = u.at_work ? tune->in_use_ns : s->now_ns;
    tune->left--;
    return way->slices_us[tune->at];
}
