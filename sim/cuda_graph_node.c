/* SPDX-License-Identifier: Apache-2.0 */
/* Adding nodes to graphs, and changing what they do. */
#include "sim/cuda_graph.h"

#include <stdlib.h>
#include <string.h>

/* Turns parameters into work; *n gets what else the node keeps. Memory nodes get their address. */
static CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2 *p, struct sim_work *w)
{
    const unsigned int grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
    const unsigned int block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    CUfunction f = p->func ? p->func : (CUfunction)(void *)p->kern;
    return sim_kernel_work(f, grid, block, p->sharedMemBytes, p->kernelParams, p->extra, w);
}

static CUresult memset_work(const CUDA_MEMSET_NODE_PARAMS *p, struct sim_work *w)
{
    if (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)
        return CUDA_ERROR_INVALID_VALUE;
    *w = (struct sim_work){.type = SIM_WORK_MEMSET};
    w->memset.dst = p->dst;
    w->memset.pitch = p->pitch;
    w->memset.value = p->value;
    w->memset.element = p->elementSize;
    w->memset.width = p->width;
    w->memset.height = p->height;
    return sim_memset_check(w);
}

static CUresult alloc_work(CUDA_MEM_ALLOC_NODE_PARAMS *p, struct sim_work *w)
{
    uint32_t card;
    if (!p || p->bytesize == 0 || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = sim_ordinal(p->poolProps.location.id, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (p->bytesize > 1ULL << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_alloc a = {.size = p->bytesize, .kind = SIM_GRAPH, .card = card};
    a.address = (uintptr_t)sim_map_memory((p->bytesize + SIM_BLOCK - 1) & ~(SIM_BLOCK - 1));
    if (!a.address || !sim_alloc_add(&a))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *w = (struct sim_work){.type = SIM_WORK_ALLOC};
    w->address = p->dptr = a.address;
    return CUDA_SUCCESS;
}

static CUresult free_work(CUdeviceptr dptr, struct sim_work *w)
{
    const struct sim_alloc *a = sim_alloc_find(dptr);
    if (!a || a->kind != SIM_GRAPH || a->address != dptr)
        return CUDA_ERROR_INVALID_VALUE;
    *w = (struct sim_work){.type = SIM_WORK_FREE};
    w->address = dptr;
    return CUDA_SUCCESS;
}

static struct sim_work event_work(uint8_t type, CUevent e)
{
    struct sim_work w = {.type = type};
    w.record.event = e;
    return w;
}

static CUresult batch_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct sim_work **ret, size_t *n)
{
    if (!p || p->count == 0 || p->count > 256 || !p->paramArray || p->flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work *all = calloc(p->count, sizeof(*all));
    if (!all)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t used = 0;
    for (unsigned int i = 0; i < p->count; i++) {
        const CUstreamBatchMemOpParams *o = &p->paramArray[i];
        bool wait = o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                    o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        bool write = o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                     o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        if (!wait && !write)
            continue;
        bool wide = o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        struct sim_work *w = &all[used++];
        w->type = wait ? SIM_WORK_WAIT_VALUE : SIM_WORK_WRITE_VALUE;
        w->word.address = o->waitValue.address; /* both kinds are laid out alike */
        w->word.value = wide ? o->waitValue.value64 : o->waitValue.value;
        w->word.bytes = wide ? 8 : 4;
        w->word.flags = o->waitValue.flags;
        if (!sim_range_ok(w->word.address, w->word.bytes)) {
            free(all);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    *ret = all;
    *n = used;
    return CUDA_SUCCESS;
}

static CUresult add_kernel(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                           const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    struct sim_work w;
    CUresult r = kernel_work(p, &w);
    if (r == CUDA_SUCCESS)
        r = sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_KERNEL, &w, ph);
    return r == CUDA_SUCCESS ? sim_node_keep_params(*ph, p->kernelParams, p->extra) : r;
}

static CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    CUDA_KERNEL_NODE_PARAMS_v2 wide = {0};
    memcpy(&wide, p, sizeof(*p)); /* v1 is the beginning of v2 */
    return wide;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
    ENTER();
    return nodeParams
               ? LOCKED(add_kernel(phNode, hGraph, dependencies, numDependencies, nodeParams))
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddKernelNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    ENTER();
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 p = widen(nodeParams);
    return LOCKED(add_kernel(phNode, hGraph, dependencies, numDependencies, &p));
}

static CUresult add_copy(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                         const CUDA_MEMCPY3D *p)
{
    struct sim_work w;
    CUresult r = p ? sim_copy_resolve(p, &w) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_MEMCPY, &w, ph);
    if (r == CUDA_SUCCESS)
        (*ph)->copy = *p;
    return r;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D *copyParams,
                              CUcontext ctx)
{
    ENTER();
    (void)ctx;
    return LOCKED(add_copy(phNode, hGraph, dependencies, numDependencies, copyParams));
}

static CUresult add_memset(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                           const CUDA_MEMSET_NODE_PARAMS *p)
{
    struct sim_work w;
    CUresult r = p ? memset_work(p, &w) : CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_MEMSET, &w, ph) : r;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                              CUcontext ctx)
{
    ENTER();
    (void)ctx;
    return LOCKED(add_memset(phNode, hGraph, dependencies, numDependencies, memsetParams));
}

static CUresult add_host(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                         const CUDA_HOST_NODE_PARAMS *p)
{
    struct sim_work w = {.type = SIM_WORK_HOST};
    if (!p || !p->fn)
        return CUDA_ERROR_INVALID_VALUE;
    w.host.fn = p->fn;
    w.host.arg = p->userData;
    return sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_HOST, &w, ph);
}

CUresult cuGraphAddHostNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    ENTER();
    return LOCKED(add_host(phNode, hGraph, dependencies, numDependencies, nodeParams));
}

static CUresult add_child(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                          CUgraph child)
{
    CUgraph copy;
    if (!child || child->magic != SIM_GRAPH_MAGIC || child == g)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = sim_graph_copy(child, &copy);
    if (r != CUDA_SUCCESS)
        return r;
    r = sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_GRAPH, NULL, ph);
    if (r == CUDA_SUCCESS)
        (*ph)->child = copy;
    else
        sim_graph_free(copy);
    return r;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  CUgraph childGraph)
{
    ENTER();
    return LOCKED(add_child(phNode, hGraph, dependencies, numDependencies, childGraph));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                             size_t numDependencies)
{
    ENTER();
    return LOCKED(sim_graph_add(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY,
                                NULL, phNode));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   CUevent event)
{
    ENTER();
    if (!event || event->magic != SIM_EVT_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_work w = event_work(SIM_WORK_RECORD, event);
    return LOCKED(sim_graph_add(hGraph, dependencies, numDependencies,
                                CU_GRAPH_NODE_TYPE_EVENT_RECORD, &w, phNode));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 CUevent event)
{
    ENTER();
    if (!event || event->magic != SIM_EVT_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_work w = event_work(SIM_WORK_WAIT, event);
    return LOCKED(sim_graph_add(hGraph, dependencies, numDependencies,
                                CU_GRAPH_NODE_TYPE_WAIT_EVENT, &w, phNode));
}

static CUresult add_alloc(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                          CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
    struct sim_work w;
    CUresult r = alloc_work(p, &w);
    if (r == CUDA_SUCCESS)
        r = sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &w, ph);
    if (r == CUDA_SUCCESS)
        (*ph)->alloc = *p;
    return r;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    ENTER();
    return LOCKED(add_alloc(phNode, hGraph, dependencies, numDependencies, nodeParams));
}

static CUresult add_free(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                         CUdeviceptr dptr)
{
    struct sim_work w;
    CUresult r = free_work(dptr, &w);
    return r == CUDA_SUCCESS ? sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_MEM_FREE, &w, ph) : r;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               size_t numDependencies, CUdeviceptr dptr)
{
    ENTER();
    return LOCKED(add_free(phNode, hGraph, dependencies, numDependencies, dptr));
}

static CUresult add_batch(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
    struct sim_work *all;
    size_t count;
    CUresult r = batch_work(p, &all, &count);
    if (r == CUDA_SUCCESS)
        r = sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, NULL, ph);
    if (r == CUDA_SUCCESS) {
        (*ph)->batch = all;
        (*ph)->batch_count = count;
    }
    return r;
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    ENTER();
    return LOCKED(add_batch(phNode, hGraph, dependencies, numDependencies, nodeParams));
}

static CUDA_MEMSET_NODE_PARAMS narrow(const CUDA_MEMSET_NODE_PARAMS_v2 *p)
{
    CUDA_MEMSET_NODE_PARAMS m;
    memcpy(&m, p, sizeof(m));
    return m;
}

static CUresult add_any(CUgraphNode *ph, CUgraph g, const CUgraphNode *deps, size_t n,
                        CUgraphNodeParams *p)
{
    struct sim_work w;
    CUDA_MEMSET_NODE_PARAMS m;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return add_kernel(ph, g, deps, n, &p->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return add_copy(ph, g, deps, n, &p->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        m = narrow(&p->memset);
        return add_memset(ph, g, deps, n, &m);
    case CU_GRAPH_NODE_TYPE_HOST:
        return add_host(ph, g, deps, n, &p->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_child(ph, g, deps, n, p->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return sim_graph_add(g, deps, n, CU_GRAPH_NODE_TYPE_EMPTY, NULL, ph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        w = event_work(p->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? SIM_WORK_WAIT : SIM_WORK_RECORD,
                       p->eventWait.event);
        return sim_graph_add(g, deps, n, p->type, &w, ph);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_alloc(ph, g, deps, n, &p->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return add_free(ph, g, deps, n, p->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return add_batch(ph, g, deps, n, &p->memOp);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    ENTER();
    return nodeParams ? LOCKED(add_any(phNode, hGraph, dependencies, numDependencies, nodeParams))
                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddNode_v2(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies,
                           CUgraphNodeParams *nodeParams)
{
    ENTER();
    (void)dependencyData; /* plain edges only */
    return nodeParams ? LOCKED(add_any(phNode, hGraph, dependencies, numDependencies, nodeParams))
                      : CUDA_ERROR_INVALID_VALUE;
}

/* ---- changing nodes ---- */

static CUresult set_kernel(CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    struct sim_work w;
    if (!n || n->magic != SIM_NODE_MAGIC || n->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = kernel_work(p, &w);
    if (r != CUDA_SUCCESS)
        return r;
    n->work = w;
    return sim_node_keep_params(n, p->kernelParams, p->extra);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
    ENTER();
    return nodeParams ? LOCKED(set_kernel(hNode, nodeParams)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    ENTER();
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 p = widen(nodeParams);
    return LOCKED(set_kernel(hNode, &p));
}

static CUresult set_any(CUgraphNode n, const CUgraphNodeParams *p)
{
    CUDA_MEMSET_NODE_PARAMS m;
    struct sim_work w;
    CUresult r = CUDA_ERROR_NOT_SUPPORTED;
    if (!n || n->magic != SIM_NODE_MAGIC || n->type != p->type)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL)
        return set_kernel(n, &p->kernel);
    if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        r = sim_copy_resolve(&p->memcpy.copyParams, &w);
    } else if (p->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        m = narrow(&p->memset);
        r = memset_work(&m, &w);
    } else if (p->type == CU_GRAPH_NODE_TYPE_HOST) {
        w = (struct sim_work){.type = SIM_WORK_HOST};
        w.host.fn = p->host.fn;
        w.host.arg = p->host.userData;
        r = p->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (r == CUDA_SUCCESS) {
        n->work = w;
        if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY)
            n->copy = p->memcpy.copyParams;
    }
    return r;
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    ENTER();
    return nodeParams ? LOCKED(set_any(hNode, nodeParams)) : CUDA_ERROR_INVALID_VALUE;
}
