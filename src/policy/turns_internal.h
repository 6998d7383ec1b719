/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside turn-taking. turns.c: tenants, events, the cost of turns; turns_plan.c: the next tenant.
 *
 * Virtual time is GPU time divided by weight, in ns × 1000 / permille. Of each tenant only its lead is kept: how far it
 * is ahead of the tenant that got the least, among tenants of its priority that want the same GPU.
 */
#ifndef SLUICE_POLICY_TURNS_INTERNAL_H
#define SLUICE_POLICY_TURNS_INTERNAL_H

#include "policy/ring.h"
#include "policy/times.h"
#include "policy/turns.h"

#define CLASSES 3U
#define NOBODY  UINT32_MAX

struct tenant {
    enum sl_turns_state state;
    bool want;   /* launches wait, or work is in flight */
    bool dirty;  /* an action must be reported */
    bool filler; /* its turn fills a gap, and costs no virtual time */
    struct sl_steer_spec spec;
    uint32_t weight;
    uint32_t hold_mask; /* GPUs it is on: differs from spec.gpu_mask after a set */
    uint64_t granted_ns;
    uint64_t until_ns;  /* end of its turn; CLOSING: of its time to drain */
    uint64_t length_ns; /* how long it holds its turns */
    uint64_t idle_since_ns;
    uint64_t wait_from_ns;
    int64_t lead_ns[SL_TURNS_MAX_GPUS]; /* in virtual time */
    int64_t key_ns;                     /* during decide: the largest lead; the least goes first */
    int64_t tokens;                     /* account of the limit, in ns × permille */
    uint64_t tokens_at_ns;
    uint64_t held_ns, overrun_ns, waited_ns, turns, overruns;
};

struct gpu {
    uint32_t holder;   /* CALLED, RUNNING or CLOSING */
    uint32_t overruns; /* tenants in overrun on it */
    /* rebuilt by each decide */
    uint32_t wanting;
    uint32_t n[CLASSES];       /* with work */
    uint64_t weights[CLASSES]; /* of those */
    int64_t least_ns[CLASSES]; /* lead of the tenant that got the least */
};

struct sl_turns {
    uint64_t now_ns; /* everything is charged up to here */
    struct gpu gpu[SL_TURNS_MAX_GPUS];
    uint32_t n_ids, n_cands;
    uint32_t ids[SL_TURNS_MAX_TENANTS];   /* the present tenants */
    uint32_t cands[SL_TURNS_MAX_TENANTS]; /* during decide */
    struct sl_ring rings[SL_TURNS_MAX_TENANTS];
    struct tenant tenants[SL_TURNS_MAX_TENANTS];
};

#define FOR_EACH_GPU(g, mask)                                                                      \
    for (uint32_t g##_left = (mask), g = 0;                                                        \
         g##_left && ((g = (uint32_t)__builtin_ctz(g##_left)), true); g##_left &= g##_left - 1)

#define FOR_EACH_TENANT(s, t)                                                                      \
    for (uint32_t t##_i = 0; t##_i < (s)->n_ids; t##_i++)                                          \
        for (struct tenant *t = &(s)->tenants[(s)->ids[t##_i]]; t; t = NULL)

static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline uint32_t id_of(const struct sl_turns *s, const struct tenant *t)
{
    return (uint32_t)(t - s->tenants);
}

static inline bool capped(const struct tenant *t)
{
    return t->spec.limit_permille < 1000;
}

static inline bool is_open(const struct tenant *t)
{
    return t->state == SL_TURNS_CALLED || t->state == SL_TURNS_RUNNING;
}

static inline bool is_busy(const struct tenant *t)
{
    return t->state >= SL_TURNS_CALLED;
}

/* GPU time as virtual time of this weight. */
static inline int64_t virtual_of(uint64_t ns, uint32_t weight)
{
    return (int64_t)(ns * 1000 / weight);
}

/* turns.c */
void sl_turns_tick(struct sl_turns *s, uint64_t now_ns);
void sl_turns_occupy(struct sl_turns *s, struct tenant *t);
void sl_turns_pass_over(struct sl_turns *s, struct tenant *t);
/* Updates the account of its limit. Has it enough to start? How long may it run from now? */
void sl_turns_accrue(const struct sl_turns *s, struct tenant *t);
int64_t sl_turns_start_tokens(const struct tenant *t);
uint64_t sl_turns_run_ns(const struct tenant *t);

/* turns_plan.c: counts the wanting tenants, and all leads. */
void sl_turns_refresh(struct sl_turns *s);

#endif
