/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one user may have of a machine, in the sum of all tenants of that user: memory, GPU time, tenants, and the
 * highest priority. Pure: who the user is, and what the tenants have, is the caller's knowledge.
 */
#ifndef SLUICE_POLICY_LIMITS_H
#define SLUICE_POLICY_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

enum sl_limit_kind {
    SL_LIMIT_MEMORY,   /* bytes promised, on all GPUs together */
    SL_LIMIT_CORES,    /* permille of one GPU promised, on all GPUs together */
    SL_LIMIT_TENANTS,  /* how many */
    SL_LIMIT_PRIORITY, /* the highest that may be asked for; not a sum */
    SL_LIMITS,
};

#define SL_LIMIT_NONE UINT64_MAX

struct sl_limit {
    uint64_t most; /* SL_LIMIT_NONE: any amount */
    unsigned line; /* of the file that says so; 0: nothing says so */
};

struct sl_limits {
    struct sl_limit of[SL_LIMITS];
};

/* An amount of each kind. Memory may be SL_LIMIT_NONE: as much as there is. */
struct sl_limits_use {
    uint64_t of[SL_LIMITS];
};

enum sl_limits_answer {
    SL_LIMITS_FINE,
    SL_LIMITS_LATER, /* when other tenants of the user end */
    SL_LIMITS_NEVER,
};

struct sl_limits_verdict {
    enum sl_limits_answer answer;
    enum sl_limit_kind kind; /* unless fine */
    struct sl_limit limit;
    uint64_t used, asked;
};

/* Nothing is limited. */
struct sl_limits sl_limits_none(void);

/* What `over` says counts; the rest stays as it is in `base`. */
void sl_limits_lay(struct sl_limits *base, const struct sl_limits *over);

/*
 * May a tenant have `asked`, beside what the other tenants of the user have? `before` is what it has already: an amount
 * that does not grow is fine, also where the limit was lowered meanwhile. For a new tenant `before` is all zero, its
 * priority included; a priority of 0, the lowest, is always fine.
 */
struct sl_limits_verdict sl_limits_check(const struct sl_limits *limits,
                                         const struct sl_limits_use *others,
                                         const struct sl_limits_use *before,
                                         const struct sl_limits_use *asked);

#endif
