/* SPDX-License-Identifier: Apache-2.0 */
/* Inside steering. steer.c: tenants and their use; steer_plan.c: the orders; steer_windows.c: windows for those that are
 * behind; steer_tune.c: slices beside light work; steer_effect.c: do slices have an effect? */
#ifndef SLUICE_POLICY_STEER_INTERNAL_H
#define SLUICE_POLICY_STEER_INTERNAL_H

#include "policy/ring.h"
#include "policy/steer.h"

#define MS 1000000ULL

/* How often to decide while there is anything to steer. */
#define TICK_NS           (5 * MS)
/* A switch between tenants that keep the GPU busy costs 160 us: one round of slices takes this long, so that two
 * tenants lose less than 1 % to it … */
#define ROUND_US          40000U
/* … less where a tenant has a limit below its part of the round … */
#define BOUND_ROUND_US    12000U
/* … and while the effect of slices is measured: several rounds in each period that counts. */
#define EFFECT_ROUND_US   24000U
/* No slice is shorter than this. */
#define LEAST_SLICE_US    1000U
#define SWITCH_US         160U
/* For the tenant of the highest priority among several: its requests run in one piece. */
#define TOP_SLICE_US      5000U
/* For tenants of lower priority beside it: how long it waits for the GPU. Under 50 us the hardware was seen to stall
 * for milliseconds now and then. */
#define TINY_SLICE_US     50U
/* Several tenants run one at a time for this long; of lower priorities, the next one starts this much later, when the
 * one before it is certainly off. */
#define TURN_NS           (25 * MS)
#define LOW_GAP_NS        MS
/* If their priorities differ as well: tenants below others have short turns, and a tenant above others counts for so
 * many of them. No tenant starves while the GPU has time. */
#define LOWEST_TURN_NS    (5 * MS)
#define ABOVE_COUNTS      16U
/* An order is renewed long before it ends. If it is not renewed, it ends. */
#define RENEW_NS          (150 * MS)
/* A higher priority counts for so long after it was active. */
#define TOP_LINGERS_NS    (2000 * MS)
/* A tenant keeps the GPU busy from this part of the last 100 ms on, until it falls below the second figure. */
#define HEAVY_FROM        500U
#define HEAVY_UNTIL       250U
#define HEAVY_MEMORY_NS   (100 * MS)
/* How long the parts of the time in which a tenant waits, or launches, are remembered. */
#define WAITING_MEMORY_NS (200 * MS)

/* Only programs with kernels shorter than a launch takes are bound by their launches. Others end their steps where their
 * work ends: another slice of their neighbour does not help them. */
#define SHORT_KERNEL_NS 30000

/* A tenant that launched nothing for this long, and waits for nothing, has stopped. It still counts as active for a
 * second. */
#define STOPPED_NS (2 * TICK_NS)

/* Tenants of one kind that run one at a time. */
enum turns {
    TURNS_NONE,
    TURNS_LOWER, /* tenants below a higher priority: with tiny slices the GPU would only switch */
    TURNS_BUSY,  /* busy tenants beside light work, which then waits for one of them, not for all */
};

/* The slice of a tenant that suits the light tenants beside it; steer_tune.c. */
#define TUNE_MOST 5U
/* What the busy tenants must keep with another slice. */
enum tune_keep {
    KEEP_SPEED,   /* the speed that they have with the first slice: nobody pays for the light one */
    KEEP_REQUEST, /* their requests: they asked for little */
    KEEP_LIMIT,   /* a tenant with a limit still reaches it */
};
struct tune_way {
    enum tune_keep keep;
    bool together;  /* for all busy tenants that take turns, not for one */
    uint32_t run;   /* so many periods with a slice are compared with as many others, … */
    uint32_t wins;  /* … so many times, before another slice is chosen */
    uint32_t check; /* after so many runs the chosen slice is compared with the usual one */
    uint32_t slices_us[TUNE_MOST]; /* the first is the usual one; 0: no more */
};
struct tune {
    const struct tune_way *way; /* NULL: not begun */
    uint32_t at, left;          /* the slice in use, and its periods left */
    uint32_t chosen, rival;     /* who is tried beside the chosen slice; TUNE_MOST: none */
    /* Runs: of the rival that were better; of the usual slice that were no worse; since the chosen slice was compared
     * with the usual one, and until it is. */
    uint32_t won, doubts, runs, check_after;
    uint32_t age;        /* periods since the last trial began */
    bool fresh, settles; /* this period shows nothing; nor does this run */
    uint32_t light;
    /* Of the running period: its start, and the launches, the use and the time off at that time. */
    uint64_t since_ns, light_launches, light_ns, busy_launches, busy_ns, off_ns;
    uint64_t run_launches, run_ns; /* of this run: launches of the light ones, in what time */
    /* Launches a second: with the chosen slice in the run before, with the rival after that, 0: none; and their sums. */
    int64_t before_got, rival_got, chosen_sum, rival_sum;
    int64_t kernel_ns;         /* of the light tenants, on average */
    uint32_t tried[TUNE_MOST]; /* the periods in the figures of a slice: … */
    /* … launches a second, and GPU time in 1/100000 */
    int64_t busy_ran[TUNE_MOST], busy_got[TUNE_MOST];
    bool lacks[TUNE_MOST]; /* the busy tenants get too little with it */
    uint64_t in_use_ns;    /* since when the slice is in use */
};

struct tenant {
    bool used;
    struct sl_steer_spec spec;
    uint32_t weight;
    struct sl_steer_seen seen, before; /* reported; and as of the last settling */
    uint64_t active_at_ns;             /* 0: never */
    uint32_t busy_permille;            /* part of recent time that it kept the GPU busy; smoothed */
    bool heavy;
    struct tune tune;
    int64_t uncharged_ns; /* done and not yet charged; below 0: charged in advance */
    /* its limit */
    int64_t tokens_ns;
    int64_t saved_ns; /* its tokens at its last return */
    uint64_t capped_until_ns;
    /* its windows, while it is light and others are heavy */
    uint64_t trial_at_ns, trial_gap_ns; /* trial_at_ns 0: none is planned */
    uint64_t trial_rest_ns;             /* of the time at work until its next one, while none is */
    /* Beside how many busy tenants, and how many in all, it was not behind; 0: none. */
    uint32_t gets_on_busy, gets_on_all;
    bool window_open;
    uint64_t window_from_ns; /* of this period; SL_STEER_NEVER: none */
    uint64_t window_until_ns;
    uint64_t mark_at_ns; /* when to set the mark for counting launches; SL_STEER_NEVER: it is set */
    uint64_t mark_ns, mark_launches;
    uint64_t mark_used_ns;
    uint32_t trials; /* windows since the last judgement */
    struct {
        uint64_t launches, ns, used_ns;
    } inside, outside; /* of those windows, and of the time between them */
    /* Of the time that it is on beside others, smoothed: with work queued, and with that or launches … */
    uint32_t waiting_permille, launching_permille;
    bool queues, launches; /* … and enough of it to be behind */
    uint32_t window_permille;
    bool tried, proven; /* it had a trial; its windows helped it */
    bool makes_room;    /* its trial showed that others may have windows in its place, … */
    bool hardly_runs;   /* … and that it hardly gets on without windows */
    bool alone;         /* the busy tenants are off, for its window or for their limits */
    /* its turn among tenants that run one at a time */
    uint64_t wanted_at_ns; /* when it last had something to run; 0: never */
    bool races;
    int64_t virtual_ns;     /* time of its turns, divided by its weight */
    uint64_t turn_from_ns;  /* … counted up to here */
    uint64_t turn_until_ns; /* 0: not its turn */
    /* during decide */
    bool lower; /* a tenant of a higher priority is there */
    /* does not keep the GPU busy, and uses no more than its part: others make room for it */
    bool light;
    bool busy; /* keeps the GPU busy, or uses or wants more than its part */
    enum turns turns;
    bool picked;
    uint64_t off_until_ns;
    /* told */
    bool told, dirty;
    struct sl_steer_order order;
    uint64_t used_ns, off_ns;
    struct sl_ring ring;
};

/* Whether slices have an effect on a GPU; steer_effect.c. */
struct effect {
    bool paired;
    uint32_t pair[2];    /* ids of the two tenants that are measured, */
    uint32_t weight[2];  /* … their weights, */
    uint64_t weights;    /* … and of all tenants on the GPU */
    uint32_t period;     /* of the measurement, from 1 on; 0: none runs */
    uint64_t next_at_ns; /* when the next one begins, … */
    uint64_t wait_ns;    /* … so long after the last one */
    uint64_t span_ns;    /* of the measurement so far, … */
    uint64_t full_ns[2]; /* … and the parts of it in which both kept their queues full */
    uint64_t marked_ns;  /* start of the running period, and the figures of that moment */
    struct {
        uint64_t launches, saturated_ns;
    } marked[2];
    uint64_t run[2];             /* launches of each in the running run, … */
    uint64_t fewest[2], most[2]; /* … of all runs … */
    /* … and in all, while the slice of the first was longer, and shorter */
    uint64_t launches[2][2];
    uint32_t strikes; /* measurements in a row that showed no effect */
    bool failed;      /* to be told */
};

struct sl_steer {
    bool clock_set;
    uint64_t now_ns;
    uint64_t period_at_ns; /* start of the running period */
    uint32_t n_ids;
    uint32_t ids[SL_STEER_MAX_TENANTS];
    struct tenant tenants[SL_STEER_MAX_TENANTS];
    struct effect effect[SL_STEER_MAX_GPUS];
};

#define FOR_EACH_TENANT(s, t)                                                                      \
    for (uint32_t t##_i = 0; t##_i < (s)->n_ids && ((t) = &(s)->tenants[(s)->ids[t##_i]], true);   \
         t##_i++)

static inline bool limited(const struct tenant *t)
{
    return t->spec.limit_permille < 1000;
}

static inline bool meet(const struct tenant *a, const struct tenant *b)
{
    return a != b && (a->spec.gpu_mask & b->spec.gpu_mask) != 0;
}

static inline uint64_t end_of_period(const struct sl_steer *s)
{
    return s->period_at_ns + SL_STEER_PERIOD_NS;
}

static inline bool lately(const struct sl_steer *s, const struct tenant *t, uint64_t ns)
{
    return t->active_at_ns && s->now_ns - t->active_at_ns <= ns;
}

static inline bool active(const struct sl_steer *s, const struct tenant *t)
{
    return t->seen.active || t->seen.pending || lately(s, t, TICK_NS);
}

static inline bool has_stopped(const struct sl_steer *s, const struct tenant *t)
{
    return s->now_ns > t->wanted_at_ns + STOPPED_NS;
}

static inline void earlier(uint64_t *next, uint64_t at)
{
    if (at < *next)
        *next = at;
}

static inline void keep_off(struct tenant *t, uint64_t until_ns)
{
    if (until_ns > t->off_until_ns)
        t->off_until_ns = until_ns;
}

/* steer_plan.c: which tenants are off until when, and all slices. Returns the time of the next call. */
uint64_t sl_steer_plan(struct sl_steer *s, bool new_period);
uint32_t sl_steer_share_of(const struct sl_steer *s, const struct tenant *t);

/* steer_windows.c: opens and closes the windows of a tenant; and who is off for an open one. */
void sl_steer_apply_window(struct sl_steer *s, struct tenant *t, bool new_period, uint64_t *next);
void sl_steer_clear_the_gpu(struct sl_steer *s, struct tenant *t);
void sl_steer_forget_windows(struct tenant *t);

/* steer_tune.c: the slice for the period that begins now. need_permille: the GPU time that the busy tenants asked for. */
uint32_t sl_steer_tune(const struct sl_steer *s, struct tenant *t, const struct tune_way *way,
                       uint64_t need_permille);

/* steer_effect.c: at the start of a period. While a measurement runs, tenants have other weights, and shorter rounds. */
void sl_steer_effect(struct sl_steer *s);
void sl_steer_effect_forget(struct sl_steer *s, uint32_t id); /* the tenant goes */
bool sl_steer_effect_runs(const struct sl_steer *s, const struct tenant *t);
uint32_t sl_steer_effect_weight(const struct sl_steer *s, const struct tenant *t);

#endif
