/* SPDX-License-Identifier: Apache-2.0 */
/* One simulated run: pods arrive at a cluster, a policy places them. */
#ifndef SLUICE_CLI_SIMULATE_RUN_H
#define SLUICE_CLI_SIMULATE_RUN_H

#include <stdbool.h>

#include "cli/simulate_trace.h"

#define SIM_CURVE 201 /* samples: one for each percent arrived, 0-200 */

/* What-if: how GPUs are shared. `slots`: N equal slots a card, a share takes as many as it needs. */
enum sim_strategy { SIM_FRACTIONAL, SIM_EXCLUSIVE, SIM_SLOTS, SIM_MIG };

/* What-if: GPU memory as a second dimension. */
enum sim_memory {
    SIM_MEMORY_NONE,        /* as the pods say, usually nothing */
    SIM_MEMORY_SAME,        /* the same share as of compute */
    SIM_MEMORY_INDEPENDENT, /* a share drawn from the pods' own, independently */
};

enum sim_lifetimes { SIM_LIFETIME_EXPONENTIAL, SIM_LIFETIME_TRACE };

struct sim_options {
    struct sl_place_config place;
    unsigned until_percent; /* demand that arrives, as a share of capacity; at most 200 */
    bool churn;             /* pods also leave */
    enum sim_lifetimes lifetimes;
    unsigned load_percent; /* churn: demand that would run at once if nothing were rejected */
    unsigned turnovers;    /* churn: mean lifetimes to measure over, after as many to settle */
    enum sim_strategy strategy;
    unsigned slots; /* for SIM_SLOTS, 2-100 */
    enum sim_memory memory;
    bool learn; /* the policy learns what arrives instead of being told */
};

struct sim_result {
    double unallocated[SIM_CURVE];   /* percent of GPU capacity, by percent arrived */
    double fragmentation[SIM_CURVE]; /* percent of what is free that expected demand cannot use */
    unsigned samples;                /* valid entries above */
    uint64_t pods, rejected;
    double rejected_gpu_percent; /* of the GPU demand that arrived (churn: while measured) */
    double mean_unallocated;     /* churn: average over the measured time */
    double wall_s;
    double decisions_per_s;
};

/* `seed` fixes the order of pods, the order of nodes and every other draw. */
int sl_sim_run(const struct sim_cluster *cluster, const struct sim_pods *pods,
               const struct sim_options *options, uint64_t seed, struct sim_result *ret,
               struct sl_err *err) SL_MUST_CHECK;

/* Applies strategy and memory to the pods (and marks cards for MIG): the run sees the result. What a
 * pod asked for stays its worth, so that waste inside a slot or an instance counts as waste. */
void sl_sim_transform(const struct sim_options *options, const struct sim_cluster *cluster,
                      const struct sim_pods *pods, struct sim_cluster *ret_cluster,
                      struct sim_pods *ret_pods);

#endif
