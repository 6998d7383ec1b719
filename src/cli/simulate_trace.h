/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice simulate` runs on: a cluster and the pods that want to run there. */
#ifndef SLUICE_CLI_SIMULATE_TRACE_H
#define SLUICE_CLI_SIMULATE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "policy/place.h"

#define SIM_MODEL_NAME 32

struct sim_models {
    unsigned count;
    char names[SL_PLACE_MAX_MODELS][SIM_MODEL_NAME];
};

struct sim_cluster {
    struct sim_models models;
    struct sl_place_node *nodes;
    size_t count;
    size_t without_gpu; /* nodes of the file that were left out */
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

#endif
