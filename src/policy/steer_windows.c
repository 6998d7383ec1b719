/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: times in which others are off the GPU, for a tenant that is behind its share although it has work. It waits
 * for each short kernel, so it loses its slice each time.
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
/* A tenant may be behind if it has work queued for this part of the time. A tenant that has work only now and then gets
 * on well enough. */
#define WAITING_FROM    200U

/* When one of the busy tenants returns from its limit; now if one of them is on. */
static uint64_t heavy_back_ns(const struct sl_steer *s, const struct tenant *t)
{
    uint64_t back = SL_STEER_NEVER;
    const struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && o->heavy && active(s, o) && !o->lower)
        earlier(&back, o->capped_until_ns > s->now_ns ? o->capped_until_ns : s->now_ns);
    return back;
}

static uint64_t per_second(uint64_t launches, uint64_t ns)
{
    return ns ? launches * 1000 * MS / ns : 0;
}

/* Does it run slower than its share of the speed it has alone? Then it gets the rest in windows. */
static void judge(struct sl_steer *s, struct tenant *t)
{
    uint32_t share = sl_steer_share_of(s, t);
    uint64_t in = per_second(t->inside.launches, t->inside.ns);
    uint64_t speed = in ? 1000 * per_second(t->outside.launches, t->outside.ns) / in : 1000;
    bool runs = in > 1000 * MS / SL_STEER_PERIOD_NS;
    t->trials = 0;
    t->inside.launches = t->inside.ns = t->outside.launches = t->outside.ns = 0;
    if (runs && speed * 20 < share * 19ULL) {
        t->window_permille = (uint32_t)((share - speed) * 1000 / (1000 - speed));
        t->trial_gap_ns = TRIAL_EVERY_NS;
        return;
    }
    t->window_permille = 0;
    t->trial_at_ns = s->now_ns + t->trial_gap_ns;
    t->trial_gap_ns = t->trial_gap_ns * 2 < TRIAL_RARELY_NS ? t->trial_gap_ns * 2 : TRIAL_RARELY_NS;
}

void sl_steer_forget_windows(struct tenant *t)
{
    t->trial_at_ns = 0;
    t->trial_gap_ns = TRIAL_EVERY_NS;
    t->window_from_ns = SL_STEER_NEVER;
    t->window_until_ns = t->mark_at_ns = 0;
    t->window_open = false;
    t->window_permille = 0;
    t->trials = 0;
    t->inside.launches = t->inside.ns = t->outside.launches = t->outside.ns = 0;
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
    } else {
        t->outside.launches += t->seen.launches - t->mark_launches;
        t->outside.ns += s->now_ns - t->mark_ns;
    }
}

/* Windows of tenants on the same GPUs follow one another up to the end of the period; trials come one at a time. */
static void place_window(struct sl_steer *s, struct tenant *t)
{
    uint64_t length = SL_STEER_PERIOD_NS * t->window_permille / 1000, until = end_of_period(s);
    bool trial = length == 0 && s->now_ns >= t->trial_at_ns, free = true;
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

/* In a window, tenants that have windows of their own are off too, not only the busy tenants. */
void sl_steer_clear_the_gpu(struct sl_steer *s, struct tenant *t)
{
    struct tenant *o;
    FOR_EACH_TENANT(s, o)
    if (meet(t, o) && !o->lower && (o->heavy || o->window_permille))
        keep_off(o, end_of_windows(s, o, t->window_until_ns));
}

void sl_steer_apply_window(struct sl_steer *s, struct tenant *t, bool new_period, uint64_t *next)
{
    uint64_t back = heavy_back_ns(s, t);
    bool may = !t->heavy && !t->lower && active(s, t) && back != SL_STEER_NEVER;
    t->alone = may && back > s->now_ns;
    if (!may || (!t->window_permille && !t->window_open && t->waiting_permille < WAITING_FROM)) {
        sl_steer_forget_windows(t);
        return;
    }
    if (t->trial_at_ns == 0)
        t->trial_at_ns = s->now_ns + TRIAL_FIRST_NS;
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
        t->mark_at_ns = back + WINDOW_LEAD_NS;
    }
    t->alone |= t->window_open;
    if (t->mark_at_ns <= s->now_ns) {
        t->mark_ns = s->now_ns;
        t->mark_launches = t->seen.launches;
        t->mark_at_ns = SL_STEER_NEVER;
    }
    earlier(next, t->mark_at_ns);
    earlier(next, t->window_open ? t->window_until_ns : t->window_from_ns);
}
