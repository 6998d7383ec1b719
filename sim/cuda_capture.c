/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: which calls go into a graph, which are forbidden meanwhile, and what that costs. */
#include "sim/cuda_graph.h"

#include <stdlib.h>
#include <string.h>

static struct sim_capture *captures; /* in progress */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void sim_capture_invalidate(struct sim_capture *c)
{
    c->invalid = true;
}

/* The documented rule: a call that may be unsafe is forbidden while this thread captures otherwise
 * than relaxed, or (for a thread in global mode) anyone captures in global mode. The capture dies. */
CUresult sim_capture_unsafe(void)
{
    CUresult r = CUDA_SUCCESS;
    if (!captures || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return r;
    for (struct sim_capture *c = captures; c; c = c->next) {
        bool mine =
            pthread_equal(c->thread, pthread_self()) && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool any = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                   c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (mine || any) {
            sim_capture_invalidate(c);
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return r;
}

/* The legacy stream would have to wait for a blocking stream that is not running at all. */
CUresult sim_capture_stream_ok(CUstream s)
{
    if (!captures || !(s->op_flags & SL_SIM_OPF_LEGACY))
        return CUDA_SUCCESS;
    for (CUstream o = s->ctx->streams; o; o = o->next)
        if (o->capture && (o->op_flags & SL_SIM_OPF_BLOCKING)) {
            sim_capture_invalidate(o->capture);
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return CUDA_SUCCESS;
}

CUresult sim_capture_forbid(CUstream s)
{
    if (!s->capture)
        return sim_capture_stream_ok(s);
    sim_capture_invalidate(s->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static bool set_deps(CUgraphNode **deps, size_t *count, const CUgraphNode *from, size_t n)
{
    CUgraphNode *copy = malloc((n ? n : 1) * sizeof(CUgraphNode));
    if (!copy)
        return false;
    if (n)
        memcpy(copy, from, n * sizeof(CUgraphNode));
    free(*deps);
    *deps = copy;
    *count = n;
    return true;
}

static bool join_deps(CUstream s, const CUgraphNode *from, size_t n)
{
    CUgraphNode *grown = realloc(s->cap_deps, (s->cap_count + n + 1) * sizeof(CUgraphNode));
    if (!grown)
        return false;
    s->cap_deps = grown;
    for (size_t i = 0; i < n; i++) {
        bool have = false;
        for (size_t k = 0; k < s->cap_count && !have; k++)
            have = s->cap_deps[k] == from[i];
        if (!have)
            s->cap_deps[s->cap_count++] = from[i];
    }
    return true;
}

static CUgraphNodeType node_type(const struct sim_work *w)
{
    switch ((enum sim_work_type)w->type) {
    case SIM_WORK_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case SIM_WORK_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SIM_WORK_MEMSET:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SIM_WORK_HOST:
    case SIM_WORK_CALLBACK:
        return CU_GRAPH_NODE_TYPE_HOST;
    case SIM_WORK_RECORD:
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    case SIM_WORK_WAIT:
        return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    case SIM_WORK_ALLOC:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case SIM_WORK_FREE:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    case SIM_WORK_WRITE_VALUE:
    case SIM_WORK_WAIT_VALUE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    case SIM_WORK_GRAPH:
        return CU_GRAPH_NODE_TYPE_GRAPH;
    case SIM_WORK_EMPTY:
        break;
    }
    return CU_GRAPH_NODE_TYPE_EMPTY;
}

CUresult sim_capture_add(CUstream s, const struct sim_work *w, CUgraphNode *ret)
{
    struct sim_capture *c = s->capture;
    CUgraphNode n;
    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult r = sim_graph_add(c->graph, s->cap_deps, s->cap_count, node_type(w), w, &n);
    if (r != CUDA_SUCCESS)
        return r;
    if (w->type == SIM_WORK_ALLOC) {
        const struct sim_alloc *a = sim_alloc_find(w->address);
        n->alloc.dptr = w->address;
        n->alloc.bytesize = a ? a->size : 0;
    }
    if (w->type == SIM_WORK_KERNEL && w->kernel.f->param_count <= 3) {
        void *args[3] = {&n->work.kernel.arg[0], &n->work.kernel.arg[1], &n->work.kernel.arg[2]};
        r = sim_node_keep_params(n, args, NULL);
        if (r != CUDA_SUCCESS)
            return r;
    }
    if (ret)
        *ret = n;
    return set_deps(&s->cap_deps, &s->cap_count, &n, 1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_record(CUevent e, CUstream s)
{
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!set_deps(&e->cap_deps, &e->cap_count, s->cap_deps, s->cap_count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    s->capture->events++;
    sim_capture_forget(e);
    e->capture = s->capture;
    return CUDA_SUCCESS;
}

static void free_if_over(struct sim_capture *c)
{
    if (c->ended && c->events == 0)
        free(c);
}

void sim_capture_forget(CUevent e)
{
    struct sim_capture *c = e->capture;
    e->capture = NULL;
    if (!c)
        return;
    c->events--;
    free_if_over(c);
}

CUresult sim_capture_wait(CUstream s, CUevent e)
{
    struct sim_capture *c = e->capture;
    if (s->capture && !c) {
        sim_capture_invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (s->capture && s->capture != c) {
        sim_capture_invalidate(s->capture);
        sim_capture_invalidate(c);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s->op_flags & SL_SIM_OPF_LEGACY) {
        sim_capture_invalidate(c);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!s->capture) {
        s->capture = c; /* the stream joins */
        s->cap_count = 0;
    }
    return join_deps(s, e->cap_deps, e->cap_count) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_begin(CUstream s, CUstreamCaptureMode mode, CUgraph into,
                           const CUgraphNode *deps, size_t count)
{
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (count && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    if (s->op_flags & SL_SIM_OPF_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *c = calloc(1, sizeof(*c));
    CUgraph g = into ? into : sim_graph_new();
    if (!c || !g || !set_deps(&s->cap_deps, &s->cap_count, deps, count)) {
        free(c);
        if (g && !into)
            sim_graph_free(g);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *c = (struct sim_capture){.graph = g,
                              .mode = mode,
                              .origin = s,
                              .thread = pthread_self(),
                              .id = sim_next_id(),
                              .into = into != NULL,
                              .next = captures};
    captures = c;
    s->capture = c;
    return CUDA_SUCCESS;
}

/* Every last node must be one the origin's next would depend on. */
static bool joined(const struct sim_capture *c)
{
    CUgraph g = c->graph;
    for (size_t i = 0; i < g->count; i++)
        g->nodes[i]->visit = 0;
    for (size_t i = 0; i < g->count; i++)
        for (size_t k = 0; k < g->nodes[i]->dep_count; k++)
            g->nodes[i]->deps[k]->visit = 1;
    for (size_t k = 0; k < c->origin->cap_count; k++)
        c->origin->cap_deps[k]->visit = 1;
    for (size_t i = 0; i < g->count; i++)
        if (!g->nodes[i]->visit)
            return false;
    return true;
}

/* The graph is the caller's. The record stays while events point at it. */
static void end(struct sim_capture *c)
{
    c->ended = true;
    for (struct sim_capture **p = &captures; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    for (CUcontext x = sim_p.contexts; x; x = x->next)
        for (CUstream s = x->streams; s; s = s->next)
            if (s->capture == c) {
                s->capture = NULL;
                s->cap_count = 0;
            }
    free_if_over(c);
}

CUresult sim_capture_end(CUstream s, CUgraph *phGraph)
{
    struct sim_capture *c = s->capture;
    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = NULL;
    if (!c)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s) {
        sim_capture_invalidate(c);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult r = c->invalid   ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                 : !joined(c) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                              : CUDA_SUCCESS;
    if (r == CUDA_SUCCESS)
        *phGraph = c->graph;
    else if (!c->into)
        sim_graph_free(c->graph);
    end(c);
    return r;
}

void sim_capture_stream_gone(CUstream s)
{
    struct sim_capture *c = s->capture;
    if (!c)
        return;
    sim_capture_invalidate(c);
    s->capture = NULL;
    if (c->origin != s)
        return; /* the origin's end says so */
    if (!c->into)
        sim_graph_free(c->graph);
    end(c);
}

CUresult sim_capture_info(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                          const CUgraphNode **deps, size_t *count)
{
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = s->capture ? CUDA_SUCCESS : sim_capture_stream_ok(s);
    if (r != CUDA_SUCCESS)
        return r;
    const struct sim_capture *c = s->capture;
    *status = !c           ? CU_STREAM_CAPTURE_STATUS_NONE
              : c->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = c->id;
    if (graph)
        *graph = c->graph;
    if (deps)
        *deps = s->cap_deps;
    if (count)
        *count = s->cap_count;
    return CUDA_SUCCESS;
}

CUresult sim_capture_update(CUstream s, const CUgraphNode *deps, size_t count, unsigned int flags)
{
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    if (!s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    bool ok = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
                  ? set_deps(&s->cap_deps, &s->cap_count, deps, count)
                  : join_deps(s, deps, count);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    ENTER();
    if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
