/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice simulate`: a cluster and the pods that want to run there, one run of a policy, the results of many. */
#ifndef SLUICE_CLI_SIMULATE_H
#define SLUICE_CLI_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "policy/place.h"

/* --- simulate_trace.c, simulate_gen.c: cluster and pods --- */

#define SIM_MODEL_NAME 32

struct sim_models {
    unsigned count;
    char names[SL_PLACE_MAX_MODELS][SIM_MODEL_NAME];
};

struct sim_cluster {
    struct sim_models models;
    struct sl_place_node *nodes;
    size_t count;
    uint64_t gpu_milli;
};

struct sim_pod {
    struct sl_place_request request;
    uint32_t worth_milli; /* milli-GPU it asked for, before any what-if */
    uint32_t runtime_s;   /* 0: the trace does not say */
};

struct sim_pods {
    struct sim_pod *pods;
    size_t count;
    uint64_t gpu_milli;
};

/* Both read CSV by column name; errors carry file, line and column. */
int sl_sim_cluster_load(const char *path, struct sim_cluster *ret,
                        struct sl_err *err) SL_MUST_CHECK;
int sl_sim_pods_load(const char *path, struct sim_models *models, struct sim_pods *ret,
                     struct sl_err *err) SL_MUST_CHECK;

/* "100xH200:8:192000:2097152:143771,…": COUNTxMODEL:GPUS:CPU_MILLI:MEMORY_MIB[:GPU_MEMORY_MIB]. */
int sl_sim_cluster_parse_mix(const char *text, struct sim_cluster *ret,
                             struct sl_err *err) SL_MUST_CHECK;

/* A cluster and pods with the proportions of a large production cluster; see docs/simulate.md. */
void sl_sim_cluster_generate(size_t nodes, struct sim_cluster *ret);
void sl_sim_pods_generate(uint64_t seed, struct sim_pods *ret);

/* The number of a model, added when new; -1 when there are too many or the name is too long. */
int sl_sim_model_number(struct sim_models *models, const char *name, size_t length);

void sl_sim_cluster_fini(struct sim_cluster *c);
void sl_sim_pods_fini(struct sim_pods *p);

/* --- simulate_run.c, simulate_whatif.c: one run --- */

#define SIM_CURVE 201 /* samples: one for each percent arrived, 0-200 */

/* What-if: how GPUs are shared. `slots`: N equal slots a card, a share takes as many as it needs. */
enum sim_strategy { SIM_FRACTIONAL, SIM_EXCLUSIVE, SIM_SLOTS, SIM_MIG };

/* What-if: GPU memory as a second dimension. */
enum sim_memory {
    SIM_MEMORY_NONE,        /* as the pods say; most pods say nothing */
    SIM_MEMORY_SAME,        /* the same share as of compute */
    SIM_MEMORY_INDEPENDENT, /* a share drawn at random from the shares of all pods */
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
    bool learn; /* the policy learns the demand from arrivals instead of being told */
};

struct sim_result {
    double unallocated[SIM_CURVE]; /* percent of GPU capacity, by percent arrived */
    double
        fragmentation[SIM_CURVE]; /* percent of the free capacity that expected demand cannot use */
    unsigned samples;             /* valid entries above */
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

/* Applies strategy and memory to the pods (and marks cards for MIG): the run sees the result. The request of a pod
 * stays its worth, so that waste inside a slot or an instance counts as waste. */
void sl_sim_transform(const struct sim_options *options, const struct sim_cluster *cluster,
                      const struct sim_pods *pods, struct sim_cluster *ret_cluster,
                      struct sim_pods *ret_pods);

/* --- simulate_report.c, simulate_svg.c: tables, JSON lines and curves --- */

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

void sl_sim_report_tables(const struct sim_report *r, FILE *out);

/* One line of JSON for one run. */
void sl_sim_report_json(const struct sim_report *r, size_t trace, size_t policy, size_t seed,
                        FILE *out);

/* One chart a trace: unallocated percent by percent arrived, one curve a policy. */
void sl_sim_report_svg(const struct sim_report *r, FILE *out);

#endif
