/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: times in which others are off the GPU, for a tenant that is behind its share although it has work. It waits
 * for each short kernel, so it loses its slice each time. Whether it is behind shows in trials: short windows in which
 * all others are off. Later windows keep off those that make room for it: busy tenants, and tenants that would be busy
 * without the others, or are behind themselves. A program that needs little is kept off in trials only.
 */
#include "policy/steer_internal.h"

/* A tenant that may be behind is tried out in windows of its own, so many in a row, so often. */
#define TRIAL_NS        (10 * MS)
#define TRIALS          2U
#define TRIAL_FIRST_NS  (200 * MS)
#define TRIAL_EVERY_NS  (1000 * MS)
#define TRIAL_RARELY_NS (8000 * MS)
/* From the start of a window until the other tenants are off. */
#define WINDOW_LEAD_NS  (2 * MS)
/* A tenant may be behind if it has work queued for this part of the time, beside a busy tenant. A tenant that has work
 * only now and then gets on well enough. */
#define WAITING_FROM    200U
/* Beside others like itself its work waits too shortly to be seen in the queue: it may be behind if it launches all the
 * time. */
#define LAUNCHING_FROM  800U
/* A tenant that rests for longer has no windows meanwhile. Many programs rest for some milliseconds between steps. */
#define PAUSE_NS        (2 * SL_STEER_PERIOD_NS)
/* Where no busy tenant is there, windows are for a few tenants only, and not shorter than this part of a period: more
 * of them would spend the time on switches. */
#define MOST_WAITING    8U
#define LEAST_WINDOW    60U

static bool mostly(uint32_t permille, uint32_t from, bool was)
{
    return permille >= (was ? from / 2 : from);
}

/* A tenant that may be behind, or that others may be behind for. */
static void find_waiting(struct tenant *t)
{
    t->queues = !t->heavy && mostly(t->waiting_permille, WAITING_FROM, t->queues);
    t->launches = !t->heavy && mostly(t->launching_permille, LAUNCHING_FROM, t->launches);
}

static bool waits(const struct tenant *t, bool beside_heavy)
{
    return t->queues || (t->launches && !beside_heavy) || t->window_permille || t->window_open;
}

static bool competes(const struct sl_steer *s, const struct tenant *t, const struct tenant *o)
{
    return meet(t, o) && active(s, o) && !o->lower && !o->spec.paused;
}

/* The others on its GPUs that windows of its own could keep off. */
struct rivals {
    uint32_t heavy, waiting;
    bool at_work;     /* not all of them have stopped */
    bool room;        /* some of them are kept off in windows */
    bool untried;     /* of some it is not known yet */
    uint64_t back_ns; /* when one of them returns from its limit; now if one of them is on */
};

static struct rivals rivals_of(const struct sl_steer *s, const struct tenant *t)
{
    struct rivals r = {.back_ns = SL_STEER_NEVER};
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    {
        if (!competes(s, t, o) || (!o->heavy && !waits(o, false)))
            continue;
        r.heavy += o->heavy;
        r.waiting += !o->heavy;
        r.at_work |= !has_stopped(s, o);
        r.room |= o->heavy || o->makes_room;
        /* A limited one may never be on for a trial. */
        r.untried |= !o->heavy && !o->tried && !limited(o);
        earlier(&r.back_ns, o->capped_until_ns > s->now_ns ? o->capped_until_ns : s->now_ns);
    }
    return r;
}

static uint64_t per_second(uint64_t launches, uint64_t ns)
{
    return ns ? launches * 1000 * MS / ns : 0;
}

/* Does it hardly get on without windows? Then it loses nothing when others have long slices between them. */
static bool hardly_runs(uint64_t speed, uint32_t share)
{
    return speed * 2 < share;
}

/*
 * Does it run slower than its share of the speed it has alone? Beside busy tenants it has lost its slices then. But a
 * program that is bound by its launches has about half of its speed there, and with windows would only wait longer.
 * Tenants that only wait for each other gain by windows where switches cost them much.
 */
static bool is_behind(const struct tenant *t, const struct rivals *r, uint64_t speed,
                      uint32_t share)
{
    if (!r->heavy)
        return speed * 5 < share * 4ULL;
    bool launch_bound = t->inside.used_ns < t->inside.launches * SHORT_KERNEL_NS;
    return launch_bound ? hardly_runs(speed, share) : speed * 20 < share * 19ULL;
}

/* Others that make room, and got on without windows so far, may be behind from now on. */
static void try_the_others(struct sl_steer *s, struct tenant *t)
{
    struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (competes(s, t, o) && waits(o, false) && o->makes_room && !o->window_permille)
        o->trial_at_ns = s->now_ns;
}

/* If it is behind, it gets the rest in windows, where others make room. */
static void judge(struct sl_steer *s, struct tenant *t)
{
    struct rivals r = rivals_of(s, t);
    uint32_t share = sl_steer_share_of(s, t), had = t->window_permille;
    uint64_t in = per_second(t->inside.launches, t->inside.ns);
    uint64_t speed = in ? 1000 * per_second(t->outside.launches, t->outside.ns) / in : 1000;
    bool runs = in > 1000 * MS / SL_STEER_PERIOD_NS;
    bool behind = runs && is_behind(t, &r, speed, share);
    bool early = had && r.untried && !r.heavy; /* some of the others were still on */
    t->tried = true;
    if (!had) { /* all others were off, and had no long slices before */
        t->makes_room = behind || t->inside.used_ns * 1000 >= t->inside.ns * HEAVY_FROM;
        t->hardly_runs = hardly_runs(speed, share);
    }
    t->trials = 0;
    t->inside.launches = t->inside.ns = t->inside.used_ns = 0;
    t->outside.launches = t->outside.ns = t->outside.used_ns = 0;
    if (early)
        return;
    t->window_permille = behind && r.room ? (uint32_t)((share - speed) * 1000 / (1000 - speed)) : 0;
    if (!r.heavy && t->window_permille < LEAST_WINDOW)
        t->window_permille = 0;
    /* In a trial all others are off, in a window perhaps not: only windows show that windows help. */
    bool proves = had && t->window_permille;
    if (proves && !t->proven)
        try_the_others(s, t);
    t->proven = proves;
    if (proves)
        t->trial_gap_ns = TRIAL_EVERY_NS;
    t->gets_on_busy = t->window_permille ? 0 : r.heavy;
    t->gets_on_all = t->window_permille ? 0 : r.heavy + r.waiting;
    if (t->window_permille)
        return;
    t->trial_at_ns = s->now_ns + t->trial_gap_ns;
    t->trial_gap_ns = t->trial_gap_ns * 2 < TRIAL_RARELY_NS ? t->trial_gap_ns * 2 : TRIAL_RARELY_NS;
}

/* A trial keeps the others off. A tenant that returns to no more rivals than before, and got on beside them, has its
 * next trial no sooner for that. */
static void plan_trial(struct sl_steer *s, struct tenant *t, const struct rivals *r)
{
    uint64_t in_ns = TRIAL_FIRST_NS;
    if (r->heavy > t->gets_on_busy || r->heavy + r->waiting > t->gets_on_all)
        t->trial_gap_ns = TRIAL_EVERY_NS;
    else if (t->trial_rest_ns > in_ns)
        in_ns = t->trial_rest_ns;
    t->trial_at_ns = s->now_ns + in_ns;
}

/* Its time without work, or without rivals, does not bring its next trial closer. */
static void stop_trials(const struct sl_steer *s, struct tenant *t)
{
    if (t->trial_at_ns)
        t->trial_rest_ns = t->trial_at_ns > s->now_ns ? t->trial_at_ns - s->now_ns : 0;
    sl_steer_forget_windows(t);
}

void sl_steer_forget_windows(struct tenant *t)
{
    t->trial_at_ns = 0;
    t->window_from_ns = SL_STEER_NEVER;
    t->window_until_ns = t->mark_at_ns = 0;
    t->window_open = false;
    t->window_permille = 0;
    t->tried = t->makes_room = t->hardly_runs = t->proven = false;
    t->trials = 0;
    t->inside.launches = t->inside.ns = t->inside.used_ns = 0;
    t->outside.launches = t->outside.ns = t->outside.used_ns = 0;
}

/* Counts its launches since the mark. Launches until the others are off, or on again, belong to neither side; and
 * reports are late. So the next mark comes a little later. */
static void count_launches(struct sl_steer *s, struct tenant *t, bool inside)
{
    bool marked = t->mark_at_ns == SL_STEER_NEVER;
    t->mark_at_ns = s->now_ns + WINDOW_LEAD_NS;
    if (!marked)
        return;
    if (inside) {
        t->inside.launches += t->seen.launches - t->mark_launches;
        t->inside.ns += s->now_ns - t->mark_ns;
        t->inside.used_ns += t->used_ns - t->mark_used_ns;
    } else {
        t->outside.launches += t->seen.launches - t->mark_launches;
        t->outside.ns += s->now_ns - t->mark_ns;
    }
}

/* Windows of tenants on the same GPUs follow one another up to the end of the period; trials come one at a time. A
 * tenant that rests has none. */
static void place_window(struct sl_steer *s, struct tenant *t)
{
    t->window_from_ns = SL_STEER_NEVER;
    if (s->now_ns > t->wanted_at_ns + PAUSE_NS)
        return;
    uint64_t length = SL_STEER_PERIOD_NS * t->window_permille / 1000, until = end_of_period(s);
    bool trial = length == 0 && t->trial_at_ns && s->now_ns >= t->trial_at_ns, free = true;
    const struct tenant *o;
    if (trial)
        length = TRIAL_NS;
    FOR_EACH_TENANT(s, o)
    {
        if (!meet(t, o) || o->window_from_ns == SL_STEER_NEVER ||
            o->window_from_ns < s->period_at_ns)
            continue;
        free &= o->window_permille > 0;
        until = o->window_from_ns < until ? o->window_from_ns : until;
    }
    bool fits = until >= s->now_ns + length;
    if (!fits && !trial) {
        length = until > s->now_ns ? until - s->now_ns : 0;
        fits = length > WINDOW_LEAD_NS;
    }
    t->window_from_ns = length && fits && (free || !trial) ? until - length : SL_STEER_NEVER;
    t->window_until_ns = until;
}

static void close_window(struct sl_steer *s, struct tenant *t)
{
    count_launches(s, t, true);
    t->window_open = false;
    t->window_from_ns = SL_STEER_NEVER;
    if (++t->trials >= TRIALS)
        judge(s, t);
}

/* Where another window follows at once, a tenant stays off between the two. */
static uint64_t end_of_windows(const struct sl_steer *s, const struct tenant *t, uint64_t until)
{
    const struct tenant *o;
    for (bool again = true; again;) {
        again = false;
        FOR_EACH_TENANT(s, o)
        {
            if (!meet(t, o) || o->window_from_ns != until || o->window_until_ns <= until)
                continue;
            until = o->window_until_ns;
            again = true;
        }
    }
    return until;
}

/* Off in a window: busy tenants, tenants with windows of their own, and in a trial all that wait. While the window's
 * tenant rests, nobody. */
void sl_steer_clear_the_gpu(struct sl_steer *s, struct tenant *t)
{
    bool trial = t->window_permille == 0;
    struct tenant *o;
    if (has_stopped(s, t) && s->now_ns > t->window_from_ns + STOPPED_NS)
        return;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && !o->lower &&
        (o->heavy || o->window_permille || (waits(o, false) && (trial || o->makes_room))))
        keep_off(o, end_of_windows(s, o, t->window_until_ns));
}

void sl_steer_apply_window(struct sl_steer *s, struct tenant *t, bool new_period, uint64_t *next)
{
    find_waiting(t);
    struct rivals r = rivals_of(s, t);
    bool few = r.waiting > 0 && r.waiting < MOST_WAITING;
    bool may = !t->heavy && !t->lower && active(s, t) && (r.heavy || few);
    t->alone = may && r.back_ns > s->now_ns;
    if (!may || !waits(t, r.heavy > 0)) {
        stop_trials(s, t);
        return;
    }
    if (t->trial_at_ns == 0 && r.at_work && !has_stopped(s, t))
        plan_trial(s, t, &r);
    if (t->window_open && s->now_ns >= t->window_until_ns)
        close_window(s, t);
    if (new_period)
        place_window(s, t);
    /* It has reached its limit: do not hold the others off for it. */
    if (t->capped_until_ns > s->now_ns) {
        t->window_from_ns = SL_STEER_NEVER;
        t->window_open = false;
        t->mark_at_ns = t->capped_until_ns + WINDOW_LEAD_NS;
    }
    if (t->window_from_ns <= s->now_ns && !t->window_open) {
        count_launches(s, t, false);
        t->window_open = true;
    }
    /* While the others are off for their own limits, its speed is that of a window. */
    if (!t->window_open && t->alone) {
        count_launches(s, t, false);
        t->mark_at_ns = r.back_ns + WINDOW_LEAD_NS;
    }
    t->alone |= t->window_open;
    if (t->mark_at_ns <= s->now_ns) {
        t->mark_ns = s->now_ns;
        t->mark_launches = t->seen.launches;
        t->mark_used_ns = t->used_ns;
        t->mark_at_ns = SL_STEER_NEVER;
    }
    earlier(next, t->mark_at_ns);
    earlier(next, t->window_open ? t->window_until_ns : t->window_from_ns);
}
