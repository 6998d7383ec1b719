/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside turn-taking. turns.c: tenants and events; turns_ledger.c: charging, caps, statistics;
 * turns_virtual.c: virtual time; turns_plan.c: who is next.
 *
 * Times below are on an inner clock that only moves forward (sl_turns_tick). Virtual time is
 * GPU time divided by weight, in ns × 1000 / permille; only differences between tenants that can
 * meet on a GPU matter, so a tenant that sleeps keeps only its distance (`rel_ns`) to the others.
 */
#ifndef SLUICE_POLICY_TURNS_INTERNAL_H
#define SLUICE_POLICY_TURNS_INTERNAL_H

#include "policy/ring.h"
#include "policy/turns.h"

#define CLASSES    3U
#define NOBODY     UINT32_MAX
#define MIN_RUN_NS 200000ULL /* a grant with less cap left than this is not worth renewing */

/* The turn a tenant has: all of it false without one. */
struct turn {
    bool free;     /* open without end */
    bool floor;    /* the floor of a lower priority: not interrupted */
    bool backfill; /* fills a gap: up to until_ns it costs no virtual time */
    bool started;  /* it was used */
    bool gives_up; /* was released while the gate is open: close it */
};

/* What the last decision saw of a tenant. */
struct seen {
    bool ready;   /* has work, and its cap allows a turn */
    bool live;    /* ready or running */
    bool returns; /* live, and was not the time before */
    bool stale;   /* awake for longer than it had reason to be */
    bool soft;    /* its turn may end now */
};

struct tenant {
    bool used;
    bool want;
    bool woken; /* came back from a pause and has not had a turn since */
    bool awake; /* live within grace_ns: v_ns counts; otherwise rel_ns does */
    bool dirty; /* an action is to be told */
    struct turn turn;
    struct seen seen;
    enum sl_turns_state state;
    uint32_t rank;  /* during decide: who goes first … */
    int64_t key_ns; /* … and among equals */
    struct sl_turns_spec spec;
    uint32_t weight;
    uint32_t hold_mask; /* what it holds: differs from spec.gpu_mask after a set */
    uint64_t granted_ns;
    uint64_t until_ns;
    uint64_t charge_from_ns; /* within the start credit nothing is charged */
    uint64_t drain_until_ns;
    uint64_t drain_ns;  /* how long it usually takes to drain */
    uint64_t length_ns; /* … and holds its turns */
    uint64_t idle_since_ns;
    uint64_t ready_ns; /* last moment it was seen live */
    uint64_t slept_ns; /* when rel_ns was taken */
    uint64_t wait_from_ns;
    uint64_t promise_ns; /* while its GPUs are kept for it: when it was to start, 0: none */
    int64_t v_ns;
    uint64_t v_rest; /* remainder of the division by weight */
    int64_t rel_ns;  /* while not awake: distance to the others when it fell asleep */
    int64_t tokens;  /* cap account, in ns × permille */
    uint64_t tokens_at_ns;
    uint64_t credit_ns;
    uint64_t window_ns;
    uint32_t window_kernels;
    uint64_t held_ns, overrun_ns, waited_ns, turns, overruns;
};

struct gpu {
    uint32_t holder;   /* OPEN or CLOSING */
    uint32_t overruns; /* tenants in overrun on it */
    int64_t floor;     /* account of the lower priorities, ns × permille */
    uint64_t floor_at_ns;
    bool floor_accrues;
    /* rebuilt by each decide */
    uint32_t attached, attached_high;
    uint32_t wanting;
    uint32_t top;               /* highest class that is ready or busy, CLASSES if none */
    uint32_t n[CLASSES];        /* with work */
    uint64_t weights[CLASSES];  /* of those */
    uint64_t promised[CLASSES]; /* requests of those ready or busy */
    bool has_v[CLASSES];
    int64_t v_ns[CLASSES]; /* least virtual time of the awake */
};

struct sl_turns {
    struct sl_turns_config cfg;
    bool clock_set;
    uint64_t offset; /* inner clock - caller's clock, modulo 2^64 */
    uint64_t now_ns; /* inner clock: everything is charged up to here */
    struct gpu gpu[SL_TURNS_MAX_GPUS];
    uint32_t n_ids, n_busy, n_cands;
    uint32_t *ids;   /* tenants there are */
    uint32_t *busy;  /* those not IDLE */
    uint32_t *cands; /* during decide */
    struct sl_ring *rings;
    struct tenant tenants[];
};

#define FOR_EACH_GPU(g, mask)                                                                      \
    for (uint32_t g##_left = (mask), g = 0;                                                        \
         g##_left && ((g = (uint32_t)__builtin_ctz(g##_left)), true); g##_left &= g##_left - 1)

static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static inline uint64_t mul_sat(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static inline int64_t iadd_sat(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return r;
}

static inline int64_t to_i64(uint64_t a)
{
    return a > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)a;
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

static inline bool capped(const struct tenant *t)
{
    return t->spec.limit_permille < 1000;
}

/* GPU time as virtual time of this weight. */
static inline int64_t virtual_of(uint64_t ns, uint32_t weight)
{
    return to_i64(mul_sat(ns, 1000) / weight);
}

/* turns_ledger.c */

/* Charges every busy tenant up to now_ns on the inner clock. */
void sl_turns_ledger_settle(struct sl_turns *s, uint64_t now_ns);
/* Brings a tenant's cap account up to date; more than one turn's worth lets it start. */
void sl_turns_ledger_accrue(struct sl_turns *s, struct tenant *t);
int64_t sl_turns_ledger_start_tokens(const struct sl_turns *s, const struct tenant *t);
/* How long the cap lets it run if it starts now. */
uint64_t sl_turns_ledger_run_ns(struct sl_turns *s, struct tenant *t);
void sl_turns_ledger_accrue_floor(struct sl_turns *s, struct gpu *g);
uint64_t sl_turns_ledger_debt_ns(struct sl_turns *s, struct tenant *t);

/* turns_virtual.c */

/* Rebuilds what a plan needs of tenants and GPUs: who is ready, virtual times, weights. */
void sl_turns_virtual_refresh(struct sl_turns *s);
/* Turns an awake tenant's virtual time into a distance, before its priority or GPUs change. */
void sl_turns_virtual_leave(struct sl_turns *s, struct tenant *t);
/* Its weight has changed: what it owes or is owed stays the same GPU time. */
void sl_turns_virtual_reweigh(struct sl_turns *s, struct tenant *t, uint32_t old_weight);
/* Least virtual time of the awake tenants it meets. False: it meets none. */
bool sl_turns_virtual_least(const struct sl_turns *s, const struct tenant *t, int64_t *ret);

/* turns.c */
void sl_turns_occupy(struct sl_turns *s, uint32_t id);
void sl_turns_vacate(struct sl_turns *s, uint32_t id);
void sl_turns_pass_over(struct sl_turns *s, uint32_t id);
uint64_t sl_turns_outer_ns(const struct sl_turns *s, uint64_t inner_ns);
void sl_turns_tick(struct sl_turns *s, uint64_t now_ns);

#endif
