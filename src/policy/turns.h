/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turn-taking: who may submit GPU work now, and for how long.
 *
 * Weighted exclusive turns with a debt ledger. Pure code: no I/O, no clock, no globals, nothing is
 * allocated after create. The caller reports events with the time they happened, then asks
 * sl_turns_decide() what to do and does it. Not thread-safe: one owner.
 *
 * What it promises, for tenants whose gates obey:
 *  - at most one tenant that is not in overrun holds a GPU; a tenant on several GPUs gets them all
 *    at the same moment or none, and keeps its place in the queue while it waits for the last one;
 *  - among tenants of one priority that have work, GPU time follows the requests (their ratio, so
 *    an overcommitted GPU scales); what one leaves idle goes to the others at once;
 *  - nobody exceeds its limit by more than a bounded burst; a kernel that outlives its turn is debt
 *    and is paid back by waiting;
 *  - a higher priority interrupts a lower one as soon as the lower has drained. Lower priorities
 *    keep a floor (2 % of a GPU for all of them together), unless the higher ones that want the
 *    GPU were promised all of it (requests of 1000 permille or more);
 *  - a holder that does not drain in time is passed over (OVERRUN): the hardware's own slicing
 *    takes over, its time goes on being charged, and it gets no new turn before it has released.
 *
 * Charging: a turn is charged from its start to its release, on each GPU of the tenant alike. The
 * hand-over between grant and start is not charged, within a budget that a tenant can only earn by
 * being charged, so lying about the start gains it at most credit_permille of its own time.
 */
#ifndef SLUICE_POLICY_TURNS_H
#define SLUICE_POLICY_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SL_TURNS_MAX_TENANTS 1024U
#define SL_TURNS_MAX_GPUS    16U
#define SL_TURNS_NEVER       UINT64_MAX

enum sl_turns_priority {
    SL_TURNS_LOW = 0,
    SL_TURNS_NORMAL = 1,
    SL_TURNS_HIGH = 2,
};

/* A zero field takes the default in brackets. */
struct sl_turns_config {
    uint32_t max_tenants;     /* ids are 0 … max_tenants-1 [1024] */
    uint64_t quantum_ns;      /* mean turn when only throughput matters [20 ms] */
    uint64_t quantum_high_ns; /* mean turn on a GPU that has a high tenant [5 ms] */
    uint64_t round_ns;        /* everybody's turn comes within this, where possible [200 ms] */
    uint64_t min_turn_ns;     /* no turn is shorter, a hand-over would eat it [2 ms] */
    uint64_t drain_ns;        /* a closed holder may drain this long [50 ms] */
    uint64_t idle_ns;         /* a holder without work keeps its turn this long [100 us] */
    uint64_t come_ns;         /* a turn waits this long for its tenant to start [10 ms] */
    uint64_t grace_ns;        /* a pause up to this keeps a tenant's place exactly [100 ms] */
    uint64_t debt_bound_ns;   /* no tenant owes more GPU time than this [10 s] */
    uint64_t repay_ns;        /* … nor pays its neighbours back for longer than this [30 s] */
    uint64_t claim_ns;        /* what a tenant that pauses, or waits for its cap, may claim of
                                      the others, in time at its full share [1 s] */
    uint64_t start_credit_ns; /* uncharged time between grant and start, at most [300 us] */
    uint32_t credit_permille; /* … and at most this part of the time charged [50] */
    uint64_t cap_period_ns;   /* a capped tenant alone goes on and off in this period [50 ms] */
    uint64_t burst_idle_ns;   /* what a capped tenant saves up while it sleeps [30 ms] */
    uint64_t burst_wait_ns;   /* … and while it waits for a turn [80 ms] */
    uint32_t best_effort_permille; /* weight of a tenant that asked for no cores [10] */
    uint32_t floor_permille;       /* what lower priorities keep of a GPU [20] */
    uint64_t floor_turn_ns;        /* length of such a turn [10 ms] */
    uint64_t window_ns;            /* work in flight, in estimated time [4 ms] */
    uint64_t window_high_ns;       /* … beside a high tenant [200 us] */
};

struct sl_turns_spec {
    uint32_t gpu_mask;         /* bit g: uses GPU g; not empty */
    uint32_t request_permille; /* of each of its GPUs; 0: no cores asked, best effort */
    uint32_t limit_permille;   /* 1 … 1000; 1000: may use everything that is idle */
    enum sl_turns_priority priority;
};

enum sl_turns_action_kind {
    SL_TURNS_CLOSE, /* stop submitting; call sl_turns_released() when nothing is in flight */
    SL_TURNS_FREE,  /* gate open without end: nobody to share with and no cap */
    SL_TURNS_GRANT, /* gate open until until_ns; also renews or shortens a grant under way */
};

/*
 * The in-flight window: submit while the estimated time in flight, the new launch included, stays
 * within window_ns, or while fewer than window_kernels launches are in flight. window_ns 0: no
 * bound at all.
 */
struct sl_turns_action {
    enum sl_turns_action_kind kind;
    uint32_t id;
    uint64_t turn;     /* counts the tenant's turns; the same for a turn's GRANTs and its CLOSE */
    uint64_t until_ns; /* GRANT only, on the caller's clock; otherwise SL_TURNS_NEVER */
    uint64_t window_ns;
    uint32_t window_kernels;
};

enum sl_turns_state {
    SL_TURNS_IDLE,    /* gate shut, nothing in flight */
    SL_TURNS_OPEN,    /* holds its GPUs */
    SL_TURNS_CLOSING, /* told to stop, draining */
    SL_TURNS_OVERRUN, /* did not drain in time, passed over */
};

struct sl_turns_stats {
    enum sl_turns_state state;
    bool want;
    bool free;                   /* OPEN without end */
    uint64_t held_ns;            /* charged as the holder */
    uint64_t overrun_ns;         /* charged in overrun: its part of a sliced GPU */
    uint64_t waited_ns;          /* had work and no open gate */
    uint64_t turns;              /* turns begun */
    uint64_t overruns;           /* turns that were not drained in time */
    uint64_t debt_ns;            /* GPU time it owes, to its limit or to its neighbours */
    uint64_t credit_ns;          /* hand-over budget left */
    uint32_t share_1s_permille;  /* of the last second */
    uint32_t share_60s_permille; /* of the last minute, or of its life if that is shorter */
};

struct sl_turns;

/* config may be NULL: all defaults. -EINVAL if a field contradicts another, -ENOMEM. */
int sl_turns_create(const struct sl_turns_config *config, struct sl_turns **ret,
                    struct sl_err *err) SL_MUST_CHECK;
void sl_turns_destroy(struct sl_turns *turns);

/* The caller chooses ids, densely: the cost of a call grows with the tenants there are. A request
 * above the limit is cut to it. -EINVAL, -ERANGE (id), -EEXIST. */
int sl_turns_add(struct sl_turns *turns, uint32_t id, const struct sl_turns_spec *spec,
                 uint64_t now_ns, struct sl_err *err) SL_MUST_CHECK;

/* Changes a tenant while it runs; in force at the next decide. -EINVAL, -ENOENT. */
int sl_turns_set(struct sl_turns *turns, uint32_t id, const struct sl_turns_spec *spec,
                 uint64_t now_ns, struct sl_err *err) SL_MUST_CHECK;

/* Whatever it held is free at once. Unknown ids are ignored here and in every event below: what
 * reports them may be late. */
void sl_turns_remove(struct sl_turns *turns, uint32_t id, uint64_t now_ns);

/* want: it has launches waiting or work in flight; !want: neither. Repeating it is harmless. While
 * a gate is FREE this only steers the statistics, so it need not be exact. */
void sl_turns_want(struct sl_turns *turns, uint32_t id, bool want, uint64_t now_ns);

/* The first submission of the turn has reached the GPU. */
void sl_turns_started(struct sl_turns *turns, uint32_t id, uint64_t now_ns);

/*
 * The gate is shut and nothing is in flight. Ends a turn that was told to CLOSE, or whose until_ns
 * has passed. Before that, from a tenant whose gate is open, it means that it gives its turn up: a
 * CLOSE follows, and only the release after that one counts, so a stray message cannot leave an
 * open gate unaccounted for.
 */
void sl_turns_released(struct sl_turns *turns, uint32_t id, uint64_t now_ns);

/*
 * What to do now: fills up to max actions, CLOSEs first, and returns how many. *ret_next_wake_ns is
 * when to call again if nothing happens before (SL_TURNS_NEVER: no need; now_ns: there was no
 * room for all actions). Times may jump: a step back counts as no time, a step of more than a day
 * as a day, and turns under way are told again with their end on the new clock.
 */
size_t sl_turns_decide(struct sl_turns *turns, uint64_t now_ns, struct sl_turns_action *actions,
                       size_t max, uint64_t *ret_next_wake_ns);

/* -ENOENT if there is no such tenant. */
int sl_turns_stats(struct sl_turns *turns, uint32_t id, uint64_t now_ns,
                   struct sl_turns_stats *ret) SL_MUST_CHECK;

/* Checks the structure's invariants, for tests and for a daemon's self-check. 0 or -EPROTO. */
int sl_turns_check(const struct sl_turns *turns, struct sl_err *err) SL_MUST_CHECK;

#endif
