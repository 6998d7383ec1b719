/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: nodes, edges, and the questions about them. */
#include "sim/cuda_graph.h"

#include <stdlib.h>
#include <string.h>

static bool graph_ok(CUgraph g)
{
    return g && g->magic == SIM_GRAPH_MAGIC;
}

static bool node_ok(CUgraphNode n)
{
    return n && n->magic == SIM_NODE_MAGIC;
}

CUgraph sim_graph_new(void)
{
    CUgraph g = calloc(1, sizeof(*g));
    if (g)
        g->magic = SIM_GRAPH_MAGIC;
    return g;
}

static void node_free(CUgraphNode n)
{
    if (n->child)
        sim_graph_free(n->child);
    free(n->deps);
    free(n->params);
    free(n->batch);
    n->magic = 0;
    free(n);
}

void sim_graph_free(CUgraph g)
{
    for (size_t i = 0; i < g->count; i++)
        node_free(g->nodes[i]);
    free(g->nodes);
    g->magic = 0;
    free(g);
}

CUresult sim_graph_add(CUgraph g, const CUgraphNode *deps, size_t count, CUgraphNodeType type,
                       const struct sim_work *w, CUgraphNode *ret)
{
    if (!graph_ok(g) || !ret || (count && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!node_ok(deps[i]) || deps[i]->graph != g)
            return CUDA_ERROR_INVALID_VALUE;
    if (g->count == g->room) {
        size_t room = g->room ? g->room * 2 : 16;
        CUgraphNode *grown = realloc(g->nodes, room * sizeof(CUgraphNode));
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        g->nodes = grown;
        g->room = room;
    }
    CUgraphNode n = calloc(1, sizeof(*n));
    CUgraphNode *copy = count ? malloc(count * sizeof(CUgraphNode)) : NULL;
    if (!n || (count && !copy)) {
        free(n);
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (count)
        memcpy(copy, deps, count * sizeof(CUgraphNode));
    *n = (struct CUgraphNode_st){.magic = SIM_NODE_MAGIC,
                                 .type = type,
                                 .graph = g,
                                 .index = g->count,
                                 .deps = copy,
                                 .dep_count = count};
    n->work = w ? *w : (struct sim_work){.type = SIM_WORK_EMPTY};
    g->nodes[g->count++] = n;
    *ret = n;
    return CUDA_SUCCESS;
}

/* One block: the pointers, then the bytes they point at. */
CUresult sim_node_keep_params(CUgraphNode n, void **params, void **extra)
{
    CUfunction f = n->work.kernel.f;
    const unsigned char *packed = NULL;
    for (void **e = extra; e && *e != CU_LAUNCH_PARAM_END; e += 2)
        if (e[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            packed = e[1];
    size_t head = (f->param_count + 1) * sizeof(void *);
    char *block = calloc(1, head + f->param_bytes);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void **pointers = (void **)(void *)block;
    for (size_t i = 0; i < f->param_count; i++) {
        pointers[i] = block + head + f->params[i].offset;
        memcpy(pointers[i], packed ? packed + f->params[i].offset : params[i], f->params[i].size);
    }
    free(n->params);
    n->params = pointers;
    return CUDA_SUCCESS;
}

/* All but the edges, which need every node's copy first. */
static CUresult copy_node(CUgraphNode from, CUgraph to)
{
    CUgraphNode n;
    CUresult r = sim_graph_add(to, NULL, 0, from->type, &from->work, &n);
    if (r != CUDA_SUCCESS)
        return r;
    n->origin = from;
    n->copy = from->copy;
    n->alloc = from->alloc;
    if (from->child)
        r = sim_graph_copy(from->child, &n->child);
    if (r == CUDA_SUCCESS && from->params)
        r = sim_node_keep_params(n, from->params, NULL);
    if (r == CUDA_SUCCESS && from->batch_count) {
        n->batch = malloc(from->batch_count * sizeof(*n->batch));
        if (!n->batch)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(n->batch, from->batch, from->batch_count * sizeof(*n->batch));
        n->batch_count = from->batch_count;
    }
    return r;
}

CUresult sim_graph_copy(CUgraph from, CUgraph *ret)
{
    CUgraph g = sim_graph_new();
    CUresult r = g ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < from->count && r == CUDA_SUCCESS; i++)
        r = copy_node(from->nodes[i], g);
    for (size_t i = 0; i < from->count && r == CUDA_SUCCESS; i++) {
        CUgraphNode n = g->nodes[i], o = from->nodes[i];
        n->deps = o->dep_count ? malloc(o->dep_count * sizeof(CUgraphNode)) : NULL;
        if (o->dep_count && !n->deps) {
            r = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        for (size_t k = 0; k < o->dep_count; k++)
            n->deps[k] = g->nodes[o->deps[k]->index];
        n->dep_count = o->dep_count;
    }
    if (r != CUDA_SUCCESS) {
        if (g)
            sim_graph_free(g);
        return r;
    }
    g->origin = from;
    *ret = g;
    return CUDA_SUCCESS;
}

/* Depth first with a stack of our own: graphs are deep. */
CUgraphNode *sim_graph_order(CUgraph g)
{
    CUgraphNode *out = malloc((g->count + 1) * sizeof(CUgraphNode));
    struct frame {
        CUgraphNode n;
        size_t next;
    } *stack = malloc((g->count + 1) * sizeof(*stack));
    size_t done = 0;
    bool ok = out && stack;
    for (size_t i = 0; ok && i < g->count; i++)
        g->nodes[i]->visit = 0;
    for (size_t i = 0; ok && i < g->count; i++) {
        size_t depth = 0;
        if (g->nodes[i]->visit)
            continue;
        stack[depth++] = (struct frame){.n = g->nodes[i]};
        g->nodes[i]->visit = 1;
        while (ok && depth) {
            struct frame *f = &stack[depth - 1];
            if (f->next == f->n->dep_count) {
                f->n->visit = 2;
                out[done++] = f->n;
                depth--;
                continue;
            }
            CUgraphNode d = f->n->deps[f->next++];
            if (d->visit == 1)
                ok = false; /* a cycle */
            else if (d->visit == 0) {
                d->visit = 1;
                stack[depth++] = (struct frame){.n = d};
            }
        }
    }
    free(stack);
    if (!ok) {
        free(out);
        return NULL;
    }
    return out;
}

/* ---- the calls ---- */

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    ENTER();
    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = sim_graph_new();
    return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(CUgraph g)
{
    if (!graph_ok(g))
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_free(g);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
    ENTER();
    return LOCKED(destroy(hGraph));
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    ENTER();
    if (!phGraphClone || !graph_ok(originalGraph))
        return CUDA_ERROR_INVALID_VALUE;
    return LOCKED(sim_graph_copy(originalGraph, phGraphClone));
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph)
{
    ENTER();
    if (!phNode || !node_ok(hOriginalNode) || !graph_ok(hClonedGraph))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < hClonedGraph->count; i++)
        if (hClonedGraph->nodes[i]->origin == hOriginalNode) {
            *phNode = hClonedGraph->nodes[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Copies out `total` handles: with NULL, only how many there are; a larger room is cleared. */
static CUresult hand_out(const CUgraphNode *from, size_t total, CUgraphNode *out, size_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (out)
        for (size_t i = 0; i < *count; i++)
            out[i] = i < total ? from[i] : NULL;
    if (!out || *count > total)
        *count = total;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    ENTER();
    return graph_ok(hGraph) ? LOCKED(hand_out(hGraph->nodes, hGraph->count, nodes, numNodes))
                            : CUDA_ERROR_INVALID_VALUE;
}

static CUresult roots(CUgraph g, CUgraphNode *out, size_t *count)
{
    CUgraphNode *found = malloc((g->count + 1) * sizeof(CUgraphNode));
    size_t n = 0;
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->dep_count == 0)
            found[n++] = g->nodes[i];
    CUresult r = hand_out(found, n, out, count);
    free(found);
    return r;
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    ENTER();
    return graph_ok(hGraph) ? LOCKED(roots(hGraph, rootNodes, numRootNodes))
                            : CUDA_ERROR_INVALID_VALUE;
}

static CUresult edges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    if (!graph_ok(g) || !count || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++)
        for (size_t k = 0; k < g->nodes[i]->dep_count; k++, n++)
            if (from && n < *count) {
                from[n] = g->nodes[i]->deps[k];
                to[n] = g->nodes[i];
            }
    if (!from || *count > n)
        *count = n;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    ENTER();
    return LOCKED(edges(hGraph, from, to, numEdges));
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edgeData, size_t *numEdges)
{
    ENTER();
    CUresult r = LOCKED(edges(hGraph, from, to, numEdges));
    if (r == CUDA_SUCCESS && edgeData && from)
        memset(edgeData, 0, *numEdges * sizeof(*edgeData));
    return r;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                    size_t *numDependencies)
{
    ENTER();
    return node_ok(hNode)
               ? LOCKED(hand_out(hNode->deps, hNode->dep_count, dependencies, numDependencies))
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    CUresult r = cuGraphNodeGetDependencies(hNode, dependencies, numDependencies);
    if (r == CUDA_SUCCESS && edgeData && dependencies)
        memset(edgeData, 0, *numDependencies * sizeof(*edgeData));
    return r;
}

static CUresult add_edges(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    if (!graph_ok(g) || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!node_ok(from[i]) || !node_ok(to[i]) || from[i]->graph != g || to[i]->graph != g ||
            from[i] == to[i])
            return CUDA_ERROR_INVALID_VALUE;
        CUgraphNode *grown = realloc(to[i]->deps, (to[i]->dep_count + 1) * sizeof(CUgraphNode));
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        to[i]->deps = grown;
        to[i]->deps[to[i]->dep_count++] = from[i];
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies)
{
    ENTER();
    return LOCKED(add_edges(hGraph, from, to, numDependencies));
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    ENTER();
    (void)edgeData;
    return LOCKED(add_edges(hGraph, from, to, numDependencies));
}

static CUresult destroy_node(CUgraphNode n)
{
    if (!node_ok(n))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph g = n->graph;
    for (size_t i = 0; i < g->count; i++) {
        CUgraphNode o = g->nodes[i];
        size_t kept = 0;
        for (size_t k = 0; k < o->dep_count; k++)
            if (o->deps[k] != n)
                o->deps[kept++] = o->deps[k];
        o->dep_count = kept;
    }
    memmove(&g->nodes[n->index], &g->nodes[n->index + 1],
            (g->count - n->index - 1) * sizeof(CUgraphNode));
    g->count--;
    for (size_t i = n->index; i < g->count; i++)
        g->nodes[i]->index = i;
    node_free(n);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    ENTER();
    return LOCKED(destroy_node(hNode));
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    ENTER();
    if (!node_ok(hNode) || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = hNode->type;
    return CUDA_SUCCESS;
}

/* What a node of that type holds; an error for any other. */
#define NODE_GETTER(call, out_type, node_type, ...)                                                \
    CUresult call(CUgraphNode hNode, out_type *out)                                                \
    {                                                                                              \
        ENTER();                                                                                   \
        if (!node_ok(hNode) || !out || hNode->type != (node_type))                                 \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        sim_lock();                                                                                \
        __VA_ARGS__;                                                                               \
        sim_unlock();                                                                              \
        return CUDA_SUCCESS;                                                                       \
    }

static CUDA_KERNEL_NODE_PARAMS_v2 kernel_params(CUgraphNode n)
{
    const struct sim_work *w = &n->work;
    return (CUDA_KERNEL_NODE_PARAMS_v2){.func = w->kernel.f,
                                        .gridDimX = w->kernel.grid[0],
                                        .gridDimY = w->kernel.grid[1],
                                        .gridDimZ = w->kernel.grid[2],
                                        .blockDimX = w->kernel.block[0],
                                        .blockDimY = w->kernel.block[1],
                                        .blockDimZ = w->kernel.block[2],
                                        .sharedMemBytes = w->kernel.shared_bytes,
                                        .kernelParams = n->params};
}

static CUDA_MEMCPY3D copy_params(CUgraphNode n)
{
    if (n->copy.Depth)
        return n->copy;
    const struct sim_copy *c = &n->work.copy; /* captured: described by its addresses */
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = c->src,
                           .srcPitch = c->src_pitch,
                           .srcHeight = c->height,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = c->dst,
                           .dstPitch = c->dst_pitch,
                           .dstHeight = c->height,
                           .WidthInBytes = c->width,
                           .Height = c->height,
                           .Depth = c->depth};
}

NODE_GETTER(cuGraphKernelNodeGetParams_v2, CUDA_KERNEL_NODE_PARAMS_v2, CU_GRAPH_NODE_TYPE_KERNEL,
            *out = kernel_params(hNode))
NODE_GETTER(cuGraphKernelNodeGetParams, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL, {
    CUDA_KERNEL_NODE_PARAMS_v2 p = kernel_params(hNode);
    memcpy(out, &p, sizeof(*out)); /* v1 is the beginning of v2 */
})
NODE_GETTER(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY,
            *out = copy_params(hNode))
NODE_GETTER(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET, {
    const struct sim_work *w = &hNode->work;
    *out = (CUDA_MEMSET_NODE_PARAMS){.dst = w->memset.dst,
                                     .pitch = w->memset.pitch,
                                     .value = w->memset.value,
                                     .elementSize = w->memset.element,
                                     .width = w->memset.width,
                                     .height = w->memset.height};
})
NODE_GETTER(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, {
    out->fn = hNode->work.host.fn;
    out->userData = hNode->work.host.arg;
})
NODE_GETTER(cuGraphChildGraphNodeGetGraph, CUgraph, CU_GRAPH_NODE_TYPE_GRAPH, *out = hNode->child)
NODE_GETTER(cuGraphEventRecordNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            *out = hNode->work.record.event)
NODE_GETTER(cuGraphEventWaitNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            *out = hNode->work.record.event)
NODE_GETTER(cuGraphMemAllocNodeGetParams, CUDA_MEM_ALLOC_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            *out = hNode->alloc)
NODE_GETTER(cuGraphMemFreeNodeGetParams, CUdeviceptr, CU_GRAPH_NODE_TYPE_MEM_FREE,
            *out = hNode->work.address)
