/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the slice of a busy tenant that suits the light tenants beside it. A program that launches for two milliseconds
 * and then waits gets on only at the ends of its neighbour's slices. It has done a step when a slice ends after its
 * last launch: with slices of 2 ms that is every 2.8 ms, and every 5.2 ms if its host is a little slower. A shorter
 * slice makes the step shorter, a slightly longer one may save a whole round. The best slice depends on the program and
 * on the speed of its host, which goes up and down by half within seconds. So another slice than the usual one is
 * chosen on evidence only: runs with it and runs with the chosen one follow each other, and each time the light tenants
 * must get more done with it than just before and just after. While it is chosen it is compared with the usual one, and
 * given up when it is no better any more.
 */
#include "policy/steer_internal.h"

/* A run is a few periods with the same slice (struct tune_way). The first of them shows nothing: time that a limited
 * tenant saved or owes comes from the slice before. Before the first run, the tenants have just begun. */
#define SETTLING     2U
/* After a longer break than this, the tenants have just begun, too. What is known of the slices stays. */
#define BREAK_NS     (4 * SL_STEER_PERIOD_NS)
/* After so many periods slices are tried again: rarely, because people notice the slowest steps. */
#define TRIED_EVERY  500U
/* A chosen slice is compared with the usual one after a few runs (struct tune_way); each time that it is better, after
 * twice as many, up to so many times as many. It is given up when it is no better for so many times in a row. */
#define CHECKED_TO   8U
#define DOUBTS       2U
/* The number of periods in a figure. */
#define REMEMBERED   16U
#define KERNELS      4 /* … and in the mean length of a kernel */
/* Busy tenants lack time below this part of their requests, in percent: their use is an estimate. … */
#define ENOUGH       95
/* … or below this part of their speed with the first slice; … */
#define SAME_SPEED   97
/* Over all its runs, a slice must make the light ones faster than the chosen one by so much; or than the usual one where
 * that is the driver's. */
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
    if (u->light_launches > tune->light_launches)
        learn(&tune->kernel_ns, u->light_ns, tune->light_ns, 1,
              u->light_launches - tune->light_launches, KERNELS);
    learn(&tune->busy_ran[at], u->busy_launches, tune->busy_launches, 1000 * MS, span, weight);
    learn(&tune->busy_got[at], u->busy_ns, tune->busy_ns, 100000, span, weight);
    tune->tried[at]++;
    tune->run_launches += u->light_launches - tune->light_launches;
    tune->run_ns += span;
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

/* Where a short slice leaves too little, a shorter one leaves less. A run is too short to show that a limit is reached:
 * until all are tried again, nothing speaks for a slice with which it was not. */
static void note_lack(struct tune *tune, bool lacks)
{
    bool shorter = lacks && tune->way->keep != KEEP_SPEED;
    tune->lacks[tune->at] = lacks || (tune->way->keep == KEEP_LIMIT && tune->lacks[tune->at]);
    for (uint32_t i = 0; i < TUNE_MOST; i++)
        tune->lacks[i] |= shorter && tune->way->slices_us[i] < tune->way->slices_us[tune->at];
}

/* Used unless there is evidence for another slice: the first; where the busy ones lack time with it, the next longer one
 * with which they do not; else the longest. */
static uint32_t usual(const struct tune *tune)
{
    const uint32_t *us = tune->way->slices_us;
    uint32_t best = 0;
    for (uint32_t i = 1; i < TUNE_MOST && tune->lacks[0]; i++)
        if (tune->lacks[best] ? us[i] > us[best]
                              : us[i] > us[0] && us[i] < us[best] && !tune->lacks[i])
            best = i;
    return best;
}

/* From i on. The usual slice is compared with the chosen one anyway. Beside long kernels no longer slice is tried. */
static uint32_t next_rival(const struct tune *tune, uint32_t i)
{
    if (tune->way->keep == KEEP_SPEED && tune->kernel_ns > SHORT_KERNEL_NS)
        return TUNE_MOST;
    while (i < TUNE_MOST && (i == tune->chosen || i == usual(tune) || !tune->way->slices_us[i]))
        i++;
    return i;
}

static void begin_duel(struct tune *tune, uint32_t rival)
{
    tune->rival = rival;
    tune->won = 0;
    tune->rival_sum = tune->chosen_sum = 0;
}

static void begin_trial(struct tune *tune)
{
    tune->age = 0;
    for (uint32_t i = 0; i < TUNE_MOST; i++)
        tune->lacks[i] = false;
    begin_duel(tune, next_rival(tune, 0));
}

static void choose(struct tune *tune, uint32_t slice)
{
    tune->chosen = slice;
    tune->doubts = tune->runs = 0;
    tune->check_after = tune->way->check;
    tune->before_got = tune->rival_got = 0;
}

/* The rival had its run between two of the chosen slice. One such run that is no better ends the duel. Of longer slices,
 * the longest is tried first. Where it costs the light ones a fifth, they do a step in each round with both slices, or
 * with neither, and no slice in between helps. */
static void judge_rival(struct tune *tune, int64_t after)
{
    uint32_t rival = tune->rival;
    int64_t got = tune->rival_got, before = tune->before_got,
            most = after > before ? after : before;
    bool dear = tune->way->keep == KEEP_SPEED && tune->chosen == 0;
    if (got < most || tune->lacks[rival]) {
        bool hopeless = dear && rival == 1 && got * 5 < most * 4;
        begin_duel(tune, hopeless ? TUNE_MOST : next_rival(tune, rival + 1));
        return;
    }
    tune->rival_sum += 2 * got;
    tune->chosen_sum += before + after;
    if (++tune->won < tune->way->wins)
        return;
    if (tune->rival_sum * 100 >= tune->chosen_sum * (dear ? FASTER : BY_CHANCE))
        choose(tune, rival);
    begin_duel(tune, next_rival(tune, rival + 1));
}

/* The usual slice had its run between two of the chosen one. */
static void judge_chosen(struct tune *tune, int64_t after)
{
    if (2 * tune->rival_got < tune->before_got + after) {
        if (tune->check_after < CHECKED_TO * tune->way->check)
            tune->check_after *= 2;
        tune->doubts = tune->runs = 0;
    } else if (++tune->doubts == DOUBTS) {
        choose(tune, usual(tune));
    }
}

/* What the light ones got in the run that has ended, 0 if it shows nothing. A run counts between two others only. */
static void judge(struct tune *tune, int64_t got)
{
    if (got == 0) {
        tune->before_got = tune->rival_got = 0;
    } else if (tune->at != tune->chosen) {
        tune->rival_got = got;
    } else {
        if (tune->rival_got && tune->rival < TUNE_MOST)
            judge_rival(tune, got);
        else if (tune->rival_got)
            judge_chosen(tune, got);
        tune->before_got = tune->at == tune->chosen ? got : 0;
        tune->rival_got = 0;
    }
}

static uint32_t next_slice(struct tune *tune)
{
    tune->runs++;
    tune->age += tune->way->run;
    if (tune->lacks[tune->chosen] && tune->chosen != usual(tune))
        choose(tune, usual(tune));
    if (tune->rival == TUNE_MOST && tune->age >= TRIED_EVERY && tune->before_got &&
        !tune->rival_got)
        begin_trial(tune);
    if (tune->rival == tune->chosen)
        begin_duel(tune, next_rival(tune, tune->rival));
    if (!tune->before_got || tune->rival_got)
        return tune->chosen;
    if (tune->rival < TUNE_MOST)
        return tune->rival;
    return tune->runs >= tune->check_after ? usual(tune) : tune->chosen;
}

/* The run that the break ended is of no use; nor is the time in which nobody was there to reach a limit. */
static void go_on(struct tune *tune, uint64_t now_ns)
{
    tune->at = tune->chosen;
    tune->left = tune->way->run + 1;
    tune->settles = true;
    tune->in_use_ns = now_ns;
    tune->run_launches = tune->run_ns = 0;
    judge(tune, 0);
}

static void begin_run(const struct sl_steer *s, struct tenant *t, uint64_t need_permille)
{
    struct tune *tune = &t->tune;
    uint32_t before = tune->at;
    if (tune->run_ns)
        note_lack(tune, is_lacking(s, t, tune, need_permille));
    judge(tune, tune->run_ns ? (int64_t)(tune->run_launches * 1000 * MS / tune->run_ns) : 0);
    tune->at = next_slice(tune);
    tune->run_launches = tune->run_ns = 0;
    tune->fresh = tune->at != before || !tune->tried[tune->at];
    tune->in_use_ns = tune->fresh ? s->now_ns : tune->in_use_ns;
    tune->left = tune->way->run;
    tune->settles = false;
}

/* Another situation: earlier figures are of no use. */
static void begin(struct tune *tune, const struct tune_way *way)
{
    *tune = (struct tune){.way = way, .left = SETTLING, .settles = true, .rival = TUNE_MOST};
    tune->check_after = way->check;
    tune->age = TRIED_EVERY;
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
