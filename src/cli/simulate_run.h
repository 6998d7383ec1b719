/* SPDX-License-Identifier: Apache-2.0 */
/* One simulated run: pods arrive at a cluster, a policy places them. */
#ifndef SLUICE_CLI_SIMULATE_RUN_H
#define SLUICE_CLI_SIMULATE_RUN_H

#include <stdbool.h>

#include "cli/simulate_trace.h"

#define SIM_CURVE 201 /* samples: one for each percent arrived, 0-200 */

enum sim_lifetimes { SIM_LIFETIME_EXPONENTIAL, SIM_LIFETIME_TRACE };

struct sim_options {
    struct sl_place_config place;
    unsigned until_percent; /* demand that arrives, as a share of capacity; at most 200 */
    bool churn;             /* pods also leave */
    enum sim_lifetimes lifetimes;
    unsigned load_percent; /* churn: demand that would run at once if nothing were rejected */
    unsigned turnovers;    /* churn: mean lifetimes to measure over, after as many to settle */
    bool learn;            /* the policy learns what arrives instead of being told */
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
int sim_run(const struct sim_cluster *cluster, const struct sim_pods *pods,
            const struct sim_options *options, uint64_t seed, struct sim_result *ret,
            struct sl_err *err) SL_MUST_CHECK;

uint64_t sim_random(uint64_t *state);

#endif
