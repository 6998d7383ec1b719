/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs: flattening, memory at launch, launching, updating. */
#include "sim/cuda_graph.h"

#include <stdlib.h>
#include <string.h>

static void program_unref(struct sim_graph_program *p)
{
    if (p && --p->refs == 0) {
        free(p->works);
        free(p);
    }
}

/* What cannot be folded into one operation of the card. */
static bool stands_alone(const struct sim_work *w)
{
    switch ((enum sim_work_type)w->type) {
    case SIM_WORK_KERNEL:
        return w->kernel.f->id == SIM_K_SPIN || w->kernel.f->id == SIM_K_FOREVER ||
               w->kernel.f->id == SIM_K_MEET;
    case SIM_WORK_HOST:
    case SIM_WORK_CALLBACK:
    case SIM_WORK_RECORD:
    case SIM_WORK_WAIT:
    case SIM_WORK_WRITE_VALUE:
    case SIM_WORK_WAIT_VALUE:
        return true;
    case SIM_WORK_COPY:
    case SIM_WORK_MEMSET:
    case SIM_WORK_ALLOC:
    case SIM_WORK_FREE:
    case SIM_WORK_GRAPH:
    case SIM_WORK_EMPTY:
        break;
    }
    return false;
}

static size_t works_in(CUgraph g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++)
        n += g->nodes[i]->child         ? works_in(g->nodes[i]->child)
             : g->nodes[i]->batch_count ? g->nodes[i]->batch_count
                                        : 1;
    return n;
}

static bool flatten(struct sim_graph_program *p, CUgraph g)
{
    CUgraphNode *order = sim_graph_order(g);
    bool ok = order != NULL;
    for (size_t i = 0; ok && i < g->count; i++) {
        CUgraphNode n = order[i];
        if (n->child) {
            ok = flatten(p, n->child);
            continue;
        }
        const struct sim_work *from = n->batch_count ? n->batch : &n->work;
        for (size_t k = 0; k < (n->batch_count ? n->batch_count : 1); k++) {
            if (from[k].type == SIM_WORK_EMPTY)
                continue;
            p->one_by_one |= stands_alone(&from[k]);
            p->works[p->count++] = from[k];
        }
    }
    free(order);
    return ok;
}

static struct sim_graph_program *compile(CUgraph g)
{
    struct sim_graph_program *p = calloc(1, sizeof(*p));
    if (p)
        p->works = calloc(works_in(g) + 1, sizeof(*p->works));
    if (!p || !p->works || !flatten(p, g)) {
        if (p)
            free(p->works);
        free(p);
        return NULL;
    }
    p->refs = 1;
    return p;
}

uint64_t sim_program_ns(const struct sim_graph_program *p, uint32_t card)
{
    uint64_t sum = 1;
    uint8_t kind;
    for (size_t i = 0; i < p->count; i++)
        sum += sim_work_ns(&p->works[i], card, &kind);
    return sum;
}

bool sim_program_writes(const struct sim_graph_program *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (sim_writes_memory(&p->works[i]))
            return true;
    return false;
}

void sim_program_apply(CUcontext ctx, struct sim_graph_program *p, uint64_t end_ns)
{
    for (size_t i = 0; i < p->count; i++)
        sim_apply(ctx, &p->works[i], end_ns);
    program_unref(p);
}

static bool exec_ok(CUgraphExec e)
{
    return e && e->magic == SIM_EXEC_MAGIC;
}

CUresult sim_graph_instantiate(CUgraphExec *ret, CUgraph g, unsigned long long flags)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ret || !g || g->magic != SIM_GRAPH_MAGIC || (flags & ~15ULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraph copy;
    r = sim_graph_copy(g, &copy);
    if (r != CUDA_SUCCESS)
        return r;
    CUgraphExec e = calloc(1, sizeof(*e));
    struct sim_graph_program *p = compile(copy);
    if (!e || !p) {
        free(e);
        program_unref(p);
        sim_graph_free(copy);
        return CUDA_ERROR_INVALID_VALUE; /* a cycle */
    }
    *e = (struct CUgraphExec_st){
        .magic = SIM_EXEC_MAGIC, .ctx = ctx, .flags = flags, .graph = copy, .program = p};
    *ret = e;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags)
{
    ENTER();
    return LOCKED(sim_graph_instantiate(phGraphExec, hGraph, flags));
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize)
{
    ENTER();
    if (phErrorNode)
        *phErrorNode = NULL;
    if (logBuffer && bufferSize)
        logBuffer[0] = '\0';
    return LOCKED(sim_graph_instantiate(phGraphExec, hGraph, 0));
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize)
{
    return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    ENTER();
    if (!exec_ok(hGraphExec) || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = hGraphExec->flags;
    return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUgraphExec e)
{
    if (!exec_ok(e))
        return CUDA_ERROR_INVALID_VALUE;
    program_unref(e->program);
    sim_graph_free(e->graph);
    e->magic = 0;
    free(e);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    ENTER();
    return LOCKED(exec_destroy(hGraphExec));
}

/* ---- launching ---- */

static void give_back(const struct sim_graph_program *p, size_t upto)
{
    for (size_t i = 0; i < upto; i++) {
        struct sim_alloc *a =
            p->works[i].type == SIM_WORK_ALLOC ? sim_alloc_find(p->works[i].address) : NULL;
        if (a && a->charged) {
            (void)sim_graph_mem(a->card, -(int64_t)a->charged);
            a->charged = 0;
        }
    }
}

/* The memory of allocation nodes is taken when the graph is launched. Still out from last time is an
 * error, unless the graph frees by itself on launch. */
static CUresult take_memory(CUgraphExec e)
{
    const struct sim_graph_program *p = e->program;
    bool auto_free = e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    bool still_out = false;
    for (size_t i = 0; i < p->count; i++) {
        const struct sim_alloc *a =
            p->works[i].type == SIM_WORK_ALLOC ? sim_alloc_find(p->works[i].address) : NULL;
        still_out |= a && a->charged;
    }
    if (still_out) {
        CUcontext ctx = e->ctx;
        (void)sim_wait_ctx(ctx); /* perhaps its free node has not been reached yet */
        for (size_t i = 0; i < p->count && !auto_free; i++) {
            const struct sim_alloc *a =
                p->works[i].type == SIM_WORK_ALLOC ? sim_alloc_find(p->works[i].address) : NULL;
            if (a && a->charged)
                return CUDA_ERROR_INVALID_VALUE;
        }
        give_back(p, p->count);
    }
    for (size_t i = 0; i < p->count; i++) {
        struct sim_alloc *a =
            p->works[i].type == SIM_WORK_ALLOC ? sim_alloc_find(p->works[i].address) : NULL;
        if (!a)
            continue;
        uint64_t bytes = (a->size + SIM_BLOCK - 1) & ~(SIM_BLOCK - 1);
        CUresult r = sim_graph_mem(a->card, (int64_t)bytes);
        if (r != CUDA_SUCCESS) {
            give_back(p, i);
            return r;
        }
        a->charged = bytes;
    }
    return CUDA_SUCCESS;
}

static CUresult launch_one_by_one(const struct sim_graph_program *p, CUstream s)
{
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < p->count && r == CUDA_SUCCESS; i++) {
        const struct sim_work *w = &p->works[i];
        if (w->type == SIM_WORK_RECORD)
            r = sim_event_record(w->record.event, s, false);
        else if (w->type == SIM_WORK_WAIT)
            r = sim_event_wait(s, w->record.event, true);
        else
            r = sim_submit(s, w, NULL);
    }
    return r;
}

CUresult sim_graph_launch(CUgraphExec e, CUstream s)
{
    if (!exec_ok(e))
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture) {
        CUgraphNode n;
        struct sim_work w = {.type = SIM_WORK_GRAPH};
        CUgraph copy;
        CUresult r = sim_graph_copy(e->graph, &copy);
        if (r != CUDA_SUCCESS)
            return r;
        r = sim_capture_add(s, &w, &n);
        if (r == CUDA_SUCCESS)
            n->child = copy;
        else
            sim_graph_free(copy);
        return r;
    }
    CUresult r = sim_capture_stream_ok(s);
    if (r == CUDA_SUCCESS)
        r = take_memory(e);
    if (r != CUDA_SUCCESS || e->program->count == 0)
        return r;
    struct sim_graph_program *p = e->program;
    if (p->one_by_one)
        return launch_one_by_one(p, s);
    struct sim_work w = {.type = SIM_WORK_GRAPH};
    w.program = p;
    p->refs++;
    r = sim_submit(s, &w, NULL);
    if (r != CUDA_SUCCESS)
        program_unref(p);
    return r;
}

CUresult sim_graph_upload(CUgraphExec e, CUstream s)
{
    struct sim_work w = {.type = SIM_WORK_EMPTY};
    if (!exec_ok(e))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_stream_do(s, &w);
}

/* ---- updating ---- */

static CUgraphExecUpdateResult same_shape(CUgraph a, CUgraph b, CUgraphNode *ret_bad)
{
    *ret_bad = NULL;
    if (a->count != b->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < a->count; i++) {
        const struct CUgraphNode_st *x = a->nodes[i], *y = b->nodes[i];
        *ret_bad = b->nodes[i];
        if (x->type != y->type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (x->dep_count != y->dep_count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (size_t k = 0; k < x->dep_count; k++)
            if (x->deps[k]->index != y->deps[k]->index)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    *ret_bad = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult replace_graph(CUgraphExec e, CUgraph copy)
{
    struct sim_graph_program *p = compile(copy);
    if (!p) {
        sim_graph_free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    program_unref(e->program);
    e->program = p;
    sim_graph_free(e->graph);
    e->graph = copy;
    return CUDA_SUCCESS;
}

static CUresult exec_update(CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
    if (!exec_ok(e) || !g || g->magic != SIM_GRAPH_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode bad;
    CUgraphExecUpdateResult result = same_shape(e->graph, g, &bad);
    if (info)
        *info = (CUgraphExecUpdateResultInfo){.result = result, .errorNode = bad};
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    CUgraph copy;
    CUresult r = sim_graph_copy(g, &copy);
    return r == CUDA_SUCCESS ? replace_graph(e, copy) : r;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo)
{
    ENTER();
    return LOCKED(exec_update(hGraphExec, hGraph, resultInfo));
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out)
{
    ENTER();
    CUgraphExecUpdateResultInfo info = {0};
    CUresult r = LOCKED(exec_update(hGraphExec, hGraph, &info));
    if (hErrorNode_out)
        *hErrorNode_out = info.errorNode;
    if (updateResult_out)
        *updateResult_out = info.result;
    return r;
}

/* The node of the executable graph that stands for a node of the graph it was made from. */
static CUgraphNode counterpart(CUgraph g, CUgraphNode n)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->origin == n)
            return g->nodes[i];
    return NULL;
}

static CUresult recompile(CUgraphExec e)
{
    struct sim_graph_program *p = compile(e->graph);
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    program_unref(e->program);
    e->program = p;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
    ENTER();
    sim_lock();
    CUgraphNode n = exec_ok(hGraphExec) ? counterpart(hGraphExec->graph, hNode) : NULL;
    sim_unlock();
    CUresult r = n ? cuGraphKernelNodeSetParams_v2(n, nodeParams) : CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? LOCKED(recompile(hGraphExec)) : r;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS_v2 p = {0};
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&p, nodeParams, sizeof(*nodeParams));
    return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &p);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams *nodeParams)
{
    ENTER();
    sim_lock();
    CUgraphNode n = exec_ok(hGraphExec) ? counterpart(hGraphExec->graph, hNode) : NULL;
    sim_unlock();
    CUresult r = n ? cuGraphNodeSetParams(n, nodeParams) : CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? LOCKED(recompile(hGraphExec)) : r;
}
