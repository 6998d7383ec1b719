/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/graph_mem.h"

#include <stdlib.h>
#include <string.h>

#include "policy/cost.h"
#include "preload/charge.h"
#include "preload/device.h"
#include "preload/gate.h"
#include "preload/pool.h"
#include "preload/track.h"

#define MAX_DEPTH 8 /* child graphs in child graphs */

/* The peak need of one graph, for each device. */
struct need {
    unsigned int count;
    struct {
        CUdevice device;
        uint64_t live_bytes;
        uint64_t peak_bytes;
    } part[SL_MAX_GPUS];
};

/* One allocation in a graph: the node that frees it needs the size. */
struct live {
    CUdeviceptr address;
    uint64_t bytes;
    CUdevice device;
};

/* The reservation around one driver call. */
struct claim {
    unsigned int count;
    struct {
        struct sl_pool *pool;
        uint64_t pending;
    } part[SL_MAX_GPUS];
};

struct walk {
    struct sl_process *process;
    struct need *need;
    struct live *live;
    size_t count, capacity;
};

static _Atomic bool seen;

void sl_graph_mem_seen(void)
{
    atomic_store_explicit(&seen, true, memory_order_relaxed);
}

/* ---- the need of a graph ---- */

static void add_live(struct walk *w, CUdevice device, int64_t bytes)
{
    struct need *n = w->need;
    unsigned int i = 0;
    while (i < n->count && n->part[i].device != device)
        i++;
    if (i == n->count) {
        if (i == SL_MAX_GPUS)
            return;
        n->part[n->count++].device = device;
    }
    uint64_t live = n->part[i].live_bytes;
    live = bytes < 0 && (uint64_t)-bytes > live ? 0 : live + (uint64_t)bytes;
    n->part[i].live_bytes = live;
    if (live > n->part[i].peak_bytes)
        n->part[i].peak_bytes = live;
}

static CUresult visit_alloc(struct walk *w, CUgraphNode node)
{
    __typeof__(&cuGraphMemAllocNodeGetParams) get = SL_REAL(cuGraphMemAllocNodeGetParams);
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    memset(&params, 0, sizeof(params));
    CUresult rc = get ? get(node, &params) : CUDA_ERROR_NOT_SUPPORTED;
    CUdevice device = params.poolProps.location.id;
    if (rc == CUDA_SUCCESS && params.poolProps.location.type == CU_MEM_LOCATION_TYPE_INVALID) {
        /* Captured, and the driver does not tell the device: then it is the current one. */
        struct sl_site site;
        rc = sl_site_current(w->process, &site);
        device = site.device;
    } else if (params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return rc;
    }
    if (rc != CUDA_SUCCESS)
        return rc;
    if (w->count == w->capacity) {
        size_t capacity = w->capacity ? w->capacity * 2 : 64;
        struct live *more = realloc(w->live, capacity * sizeof(*more));
        if (!more)
            return CUDA_ERROR_OUT_OF_MEMORY;
        w->live = more;
        w->capacity = capacity;
    }
    w->live[w->count++] = (struct live){params.dptr, params.bytesize, device};
    add_live(w, device, (int64_t)params.bytesize);
    return CUDA_SUCCESS;
}

static CUresult visit_free(struct walk *w, CUgraphNode node)
{
    __typeof__(&cuGraphMemFreeNodeGetParams) get = SL_REAL(cuGraphMemFreeNodeGetParams);
    CUdeviceptr address;
    CUresult rc = get ? get(node, &address) : CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; rc == CUDA_SUCCESS && i < w->count; i++)
        if (w->live[i].address == address) {
            add_live(w, w->live[i].device, -(int64_t)w->live[i].bytes);
            w->live[i] = w->live[--w->count];
            break;
        }
    return rc;
}

static CUresult visit_graph(struct walk *w, CUgraph graph, int depth);

static CUresult visit_node(struct walk *w, CUgraphNode node, int depth)
{
    __typeof__(&cuGraphNodeGetType) get_type = SL_REAL(cuGraphNodeGetType);
    __typeof__(&cuGraphChildGraphNodeGetGraph) get_child = SL_REAL(cuGraphChildGraphNodeGetGraph);
    CUgraphNodeType type;
    CUgraph child;
    CUresult rc = get_type ? get_type(node, &type) : CUDA_ERROR_NOT_SUPPORTED;
    if (rc != CUDA_SUCCESS)
        return rc;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return visit_alloc(w, node);
    if (type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return visit_free(w, node);
    if (type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_SUCCESS;
    rc = get_child ? get_child(node, &child) : CUDA_ERROR_NOT_SUPPORTED;
    return rc == CUDA_SUCCESS ? visit_graph(w, child, depth + 1) : rc;
}

/*
 * Nodes come in the order in which they were added, which for a captured stream is the order of execution: so memory
 * that is freed before the next allocation is counted once. Parallel branches may need more; the driver's extra memory
 * is charged after the launch.
 */
static CUresult visit_graph(struct walk *w, CUgraph graph, int depth)
{
    __typeof__(&cuGraphGetNodes) get_nodes = SL_REAL(cuGraphGetNodes);
    size_t count = 0;
    CUresult rc = get_nodes ? get_nodes(graph, NULL, &count) : CUDA_ERROR_NOT_SUPPORTED;
    if (rc != CUDA_SUCCESS || count == 0 || depth > MAX_DEPTH)
        return rc;
    CUgraphNode *nodes = calloc(count, sizeof(*nodes));
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rc = get_nodes(graph, nodes, &count);
    for (size_t i = 0; i < count && rc == CUDA_SUCCESS; i++)
        rc = visit_node(w, nodes[i], depth);
    free(nodes);
    return rc;
}

/* An unknown need is an error: such a graph is not instantiated. */
static CUresult find_need(struct sl_process *p, CUgraph graph, struct need *ret)
{
    struct walk w = {.process = p, .need = ret};
    memset(ret, 0, sizeof(*ret));
    CUresult rc = graph ? visit_graph(&w, graph, 0) : CUDA_SUCCESS;
    free(w.live);
    return rc;
}

/* ---- reserving around a driver call ---- */

static void claim_end(struct sl_process *p, struct claim *claim)
{
    for (unsigned int i = 0; i < claim->count; i++) {
        (void)sl_pool_settle(p, claim->part[i].pool, claim->part[i].pending);
        sl_pool_expect_shrink();
    }
    claim->count = 0;
}

static CUresult claim_need(struct sl_process *p, const struct need *need, struct claim *claim)
{
    claim->count = 0;
    for (unsigned int i = 0; i < need->count; i++) {
        CUdevice device = need->part[i].device;
        uint64_t pending = 0;
        struct sl_pool *pool = sl_pool_of_graphs(device, sl_device_gpu(p, device));
        if (!pool || !sl_pool_cover(p, pool, need->part[i].peak_bytes, &pending)) {
            claim_end(p, claim);
            return sl_charge_refused(p);
        }
        claim->part[claim->count].pool = pool;
        claim->part[claim->count++].pending = pending;
    }
    return CUDA_SUCCESS;
}

/* Anything but CUDA_SUCCESS: the graph's memory exceeds the limit, and nothing is claimed. */
static CUresult claim_exec(struct sl_process *p, CUgraphExec exec, struct claim *claim)
{
    struct sl_track t;
    claim->count = 0;
    if (!atomic_load_explicit(&seen, memory_order_relaxed) ||
        !sl_track_get(SL_KIND_EXEC, (uint64_t)(uintptr_t)exec, &t))
        return CUDA_SUCCESS;
    return claim_need(p, t.object, claim);
}

/* ---- nodes ---- */

CUresult cuGraphAddMemAllocNode(CUgraphNode *phNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    SL_ENTER(cuGraphAddMemAllocNode, real, p,
             (phNode, hGraph, dependencies, numDependencies, nodeParams));
    sl_graph_mem_seen();
    return real(phNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    SL_ENTER(cuGraphAddNode, real, p, (phNode, hGraph, dependencies, numDependencies, nodeParams));
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        sl_graph_mem_seen();
    return real(phNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies,
                           CUgraphNodeParams *nodeParams)
{
    SL_ENTER(cuGraphAddNode_v2, real, p,
             (phNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams));
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        sl_graph_mem_seen();
    return real(phNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

/* ---- instantiation ---- */

struct instantiation {
    struct claim claim;
    struct need *need; /* NULL: no memory nodes */
};

static CUresult instantiate_begin(struct sl_process *p, CUgraph graph, struct instantiation *in)
{
    struct need need;
    *in = (struct instantiation){0};
    if (!atomic_load_explicit(&seen, memory_order_relaxed))
        return CUDA_SUCCESS;
    CUresult rc = find_need(p, graph, &need);
    if (rc != CUDA_SUCCESS || need.count == 0)
        return rc;
    in->need = malloc(sizeof(need));
    if (!in->need)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *in->need = need;
    rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (sl_track_room()) {
        rc = claim_need(p, &need, &in->claim);
        if (rc != CUDA_SUCCESS)
            sl_track_cancel();
    }
    if (rc != CUDA_SUCCESS) {
        free(in->need);
        in->need = NULL;
    }
    return rc;
}

/* Also after instantiate_begin failed: then there is nothing to end. */
static CUresult instantiate_end(struct sl_process *p, struct instantiation *in, CUresult rc,
                                const CUgraphExec *exec)
{
    if (!in->need)
        return rc;
    claim_end(p, &in->claim);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        free(in->need);
        return rc;
    }
    struct sl_track t = {.kind = SL_KIND_EXEC,
                         .key = (uint64_t)(uintptr_t)*exec,
                         .object = in->need,
                         .gpu = SL_NOT_LEASED};
    sl_track_put(&t);
    return rc;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize)
{
    SL_ENTER(cuGraphInstantiate, real, p,
             (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize));
    struct instantiation in;
    CUresult rc = instantiate_begin(p, hGraph, &in);
    if (rc == CUDA_SUCCESS)
        rc = real(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
    return instantiate_end(p, &in, rc, phGraphExec);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize)
{
    SL_ENTER(cuGraphInstantiate_v2, real, p,
             (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize));
    struct instantiation in;
    CUresult rc = instantiate_begin(p, hGraph, &in);
    if (rc == CUDA_SUCCESS)
        rc = real(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
    return instantiate_end(p, &in, rc, phGraphExec);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags)
{
    SL_ENTER(cuGraphInstantiateWithFlags, real, p, (phGraphExec, hGraph, flags));
    struct instantiation in;
    CUresult rc = instantiate_begin(p, hGraph, &in);
    if (rc == CUDA_SUCCESS)
        rc = real(phGraphExec, hGraph, flags);
    return instantiate_end(p, &in, rc, phGraphExec);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    SL_ENTER(cuGraphInstantiateWithParams, real, p, (phGraphExec, hGraph, params));
    struct instantiation in;
    CUresult rc = instantiate_begin(p, hGraph, &in);
    if (rc == CUDA_SUCCESS)
        rc = real(phGraphExec, hGraph, params);
    return instantiate_end(p, &in, rc, phGraphExec);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    SL_ENTER(cuGraphInstantiateWithParams_ptsz, real, p, (phGraphExec, hGraph, params));
    struct instantiation in;
    CUresult rc = instantiate_begin(p, hGraph, &in);
    if (rc == CUDA_SUCCESS)
        rc = real(phGraphExec, hGraph, params);
    return instantiate_end(p, &in, rc, phGraphExec);
}

/* ---- upload, launch, the end, and trimming ---- */

/* Reserves the memory of the graph, then calls the driver. */
static CUresult with_memory(struct sl_process *p, CUresult (*real)(CUgraphExec, CUstream),
                            CUgraphExec exec, CUstream stream)
{
    struct claim claim;
    CUresult rc = claim_exec(p, exec, &claim);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = real(exec, stream);
    claim_end(p, &claim);
    return rc;
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    SL_ENTER(cuGraphUpload, real, p, (hGraphExec, hStream));
    return with_memory(p, real, hGraphExec, hStream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    SL_ENTER(cuGraphUpload_ptsz, real, p, (hGraphExec, hStream));
    return with_memory(p, real, hGraphExec, hStream);
}

/* `named` is the stream by its explicit name: the default stream differs between the variants. */
static CUresult launch(struct sl_process *p, CUresult (*real)(CUgraphExec, CUstream),
                       CUgraphExec exec, CUstream stream, CUstream named)
{
    struct sl_launch l = {.after = false};
    CUresult rc = CUDA_SUCCESS;
    if (!sl_gate_is_free())
        rc = sl_gate_enter(&l, sl_cost_key_graph(exec), named);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = with_memory(p, real, exec, stream);
    return l.after ? sl_gate_leave(&l, rc) : rc;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    SL_ENTER(cuGraphLaunch, real, p, (hGraphExec, hStream));
    return launch(p, real, hGraphExec, hStream, SL_LEGACY(hStream));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    SL_ENTER(cuGraphLaunch_ptsz, real, p, (hGraphExec, hStream));
    return launch(p, real, hGraphExec, hStream, SL_PER_THREAD(hStream));
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    SL_ENTER(cuGraphExecDestroy, real, p, (hGraphExec));
    struct sl_track t;
    bool known = sl_track_take(SL_KIND_EXEC, (uint64_t)(uintptr_t)hGraphExec, &t);
    sl_cost_forget(&sl_gate_costs, sl_cost_key_graph(hGraphExec));
    CUresult rc = real(hGraphExec);
    if (!known)
        return rc;
    if (rc != CUDA_SUCCESS && sl_track_room()) {
        sl_track_put(&t);
        return rc;
    }
    const struct need *need = t.object;
    for (unsigned int i = 0; i < need->count; i++)
        sl_pool_settle_all(p, sl_device_gpu(p, need->part[i].device));
    free(t.object);
    sl_pool_expect_shrink();
    return rc;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
    SL_ENTER(cuDeviceGraphMemTrim, real, p, (dev));
    CUresult rc = real(dev);
    if (atomic_load_explicit(&seen, memory_order_relaxed))
        sl_pool_settle_all(p, sl_device_gpu(p, dev));
    return rc;
}

void sl_graph_mem_forget(void)
{
    atomic_store(&seen, false);
}
