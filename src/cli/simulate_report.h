/* SPDX-License-Identifier: Apache-2.0 */
/* Results of many runs, as tables, JSON lines and curves. */
#ifndef SLUICE_CLI_SIMULATE_REPORT_H
#define SLUICE_CLI_SIMULATE_REPORT_H

#include <stdio.h>

#include "cli/simulate_run.h"

#define SIM_MAX_TRACES   64
#define SIM_MAX_POLICIES SL_PLACE_POLICIES
#define SIM_MAX_SEEDS    1000
#define SIM_MAX_LEVELS   8

struct sim_report {
    const struct sim_options *options;
    const struct sim_cluster *cluster;
    char traces[SIM_MAX_TRACES][64]; /* short names */
    size_t trace_count;
    enum sl_place_policy policies[SIM_MAX_POLICIES];
    size_t policy_count;
    uint64_t seeds[SIM_MAX_SEEDS];
    size_t seed_count;
    unsigned levels[SIM_MAX_LEVELS]; /* percent arrived to print tables for */
    size_t level_count;
    struct sim_result *results; /* by trace, policy, seed */
};

struct sim_result *sl_sim_report_at(const struct sim_report *r, size_t trace, size_t policy,
                                    size_t seed);

/* Mean over seeds of unallocated percent at a percent arrived. */
double sl_sim_report_mean(const struct sim_report *r, size_t trace, size_t policy, unsigned level);

/* Allocates the results; everything else must be set. */
void sl_sim_report_init(struct sim_report *r);
void sl_sim_report_fini(struct sim_report *r);

void sl_sim_report_tables(const struct sim_report *r, FILE *out);

/* One line of JSON for one run. */
void sl_sim_report_json(const struct sim_report *r, size_t trace, size_t policy, size_t seed,
                        FILE *out);

/* One chart a trace: unallocated percent by percent arrived, one curve a policy. */
void sl_sim_report_svg(const struct sim_report *r, FILE *out);

#endif
