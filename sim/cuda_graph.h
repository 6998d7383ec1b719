/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and captures, inside the simulated libcuda. The process lock guards all of it. */
#ifndef SLUICE_SIM_CUDA_GRAPH_H
#define SLUICE_SIM_CUDA_GRAPH_H

#include <pthread.h>

#include "sim/cuda_int.h"

#define SIM_GRAPH_MAGIC 0x47524631u
#define SIM_NODE_MAGIC  0x4e4f4431u
#define SIM_EXEC_MAGIC  0x45584531u

struct CUgraphNode_st {
    uint32_t magic;
    uint8_t visit; /* while ordering */
    CUgraphNodeType type;
    CUgraph graph;
    size_t index; /* in graph->nodes */
    CUgraphNode *deps;
    size_t dep_count;
    struct sim_work work; /* RECORD and WAIT keep their event in work.record */
    CUgraph child;
    CUgraphNode origin; /* what it was cloned from */
    void **params;      /* kernel: copies of the arguments, for those who ask */
    CUDA_MEMCPY3D copy;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    struct sim_work *batch; /* memory operations */
    size_t batch_count;
};

struct CUgraph_st {
    uint32_t magic;
    CUgraphNode *nodes;
    size_t count, room;
    CUgraph origin;
};

/* An executable graph, flattened in an order that keeps every dependency. */
struct sim_graph_program {
    unsigned int refs; /* the exec, and launches in flight */
    size_t count;
    bool
        one_by_one; /* holds what cannot be one operation: host functions, events, waiting kernels */
    struct sim_work *works;
};

struct CUgraphExec_st {
    uint32_t magic;
    CUcontext ctx;
    unsigned long long flags;
    CUgraph graph; /* a clone of what it was made from */
    struct sim_graph_program *program;
};

struct sim_capture {
    CUgraph graph;
    CUstreamCaptureMode mode;
    CUstream origin;
    pthread_t thread;
    uint64_t id;
    bool invalid, ended;
    bool into;     /* a graph of the program's own */
    size_t events; /* last recorded in it: they may outlive it, so the record lives as long */
    struct sim_capture *next;
};

CUgraph sim_graph_new(void);
void sim_graph_free(CUgraph g);
CUresult sim_graph_copy(CUgraph from, CUgraph *ret);
CUresult sim_graph_add(CUgraph g, const CUgraphNode *deps, size_t count, CUgraphNodeType type,
                       const struct sim_work *w, CUgraphNode *ret);
CUresult sim_node_keep_params(CUgraphNode n, void **params, void **extra);
/* Nodes in an order that keeps dependencies, for the caller to free; NULL for a cycle or no memory. */
CUgraphNode *sim_graph_order(CUgraph g);

#endif
