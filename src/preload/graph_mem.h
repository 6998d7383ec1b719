/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory owned by graphs: allocation nodes, and allocations captured from streams. The driver takes
 * the memory when a graph is instantiated, uploaded or launched, from one pool per device; that
 * pool is charged by what it holds, and before each such step the graph's own need is reserved.
 */
#ifndef SLUICE_PRELOAD_GRAPH_MEM_H
#define SLUICE_PRELOAD_GRAPH_MEM_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "preload/attach.h"

struct sl_pool;

/* What is reserved around one driver call. */
struct sl_graph_claim {
    unsigned int count;
    struct {
        struct sl_pool *pool;
        uint64_t pending;
    } part[SL_MAX_GPUS];
};

/* Some graph in this process has memory nodes; until then all of this costs one load. */
void sl_graph_mem_seen(void);

/* Before and after cuGraphLaunch or cuGraphUpload of exec. Begin returns CUDA_ERROR_OUT_OF_MEMORY
 * when the tenant cannot have what the graph allocates; then there is no end. */
CUresult sl_graph_mem_begin(struct sl_process *p, CUgraphExec exec, struct sl_graph_claim *claim);
void sl_graph_mem_end(struct sl_process *p, struct sl_graph_claim *claim);

void sl_graph_mem_forget(void); /* in a forked child */

#endif
