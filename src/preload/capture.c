/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "preload/device.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/lock.h"

struct sl_recording {
    CUstream stream; /* CU_STREAM_PER_THREAD: the default stream of `thread` in that context */
    uint64_t context_id;
    pthread_t thread;
    struct sl_recording *next;
};

static struct sl_recording *_Atomic recordings; /* changed under the lock */
static struct sl_lock lock;

static CUstream name_of(CUstream stream, bool per_thread)
{
    return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

static uint64_t context_id_of(CUstream stream)
{
    struct sl_process *p = sl_process_get();
    struct sl_site site;
    bool known = p->mode == SL_MODE_TENANT && sl_site_stream(p, stream, &site) == CUDA_SUCCESS;
    return known ? site.context_id : 0;
}

static bool is_same(const struct sl_recording *r, const struct sl_recording *wanted)
{
    if (!wanted->stream) /* any of the context */
        return r->context_id == wanted->context_id;
    return r->stream == wanted->stream &&
           (r->stream != CU_STREAM_PER_THREAD ||
            (r->context_id == wanted->context_id && pthread_equal(r->thread, wanted->thread)));
}

static struct sl_recording *take(const struct sl_recording *wanted)
{
    struct sl_recording *before = NULL, *r;
    sl_lock_take(&lock);
    for (r = atomic_load(&recordings); r && !is_same(r, wanted); r = r->next)
        before = r;
    if (r && before)
        before->next = r->next;
    else if (r)
        atomic_store(&recordings, r->next);
    sl_lock_drop(&lock);
    return r;
}

static void put(struct sl_recording *r)
{
    sl_lock_take(&lock);
    r->next = atomic_load(&recordings);
    atomic_store(&recordings, r);
    sl_lock_drop(&lock);
}

static void over(struct sl_recording *r)
{
    sl_gate_capture(false);
    free(r);
}

struct sl_recording *sl_capture_stream_leaves(CUstream stream)
{
    struct sl_recording wanted = {.stream = stream};
    bool has_handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
    return has_handle && atomic_load(&recordings) ? take(&wanted) : NULL;
}

void sl_capture_stream_left(struct sl_recording *r, bool gone)
{
    if (r && gone)
        over(r);
    else if (r)
        put(r);
}

void sl_capture_context_ended(uint64_t context_id)
{
    struct sl_recording wanted = {.context_id = context_id}, *r;
    while (context_id && atomic_load(&recordings) && (r = take(&wanted)) != NULL)
        over(r);
}

void sl_capture_forget(void)
{
    sl_lock_reset(&lock);
    atomic_store(&recordings, NULL); /* they belong to the parent */
}

/* ---- the calls ---- */

/* NULL: no host memory. The recording counts before the driver begins it. */
static struct sl_recording *begin(CUstream stream, bool per_thread)
{
    struct sl_recording *r = malloc(sizeof(*r));
    if (!r)
        return NULL;
    CUstream name = name_of(stream, per_thread);
    *r = (struct sl_recording){
        .stream = name, .context_id = context_id_of(name), .thread = pthread_self()};
    sl_gate_capture(true);
    return r;
}

static CUresult begun(struct sl_recording *r, CUresult rc)
{
    if (rc == CUDA_SUCCESS)
        put(r);
    else
        over(r);
    return rc;
}

/* An invalid recording ends, too. A recording of another stream or thread goes on. */
static CUresult ended(CUstream stream, bool per_thread, CUresult rc)
{
    if (rc == CUDA_ERROR_ILLEGAL_STATE || rc == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD ||
        rc == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
        return rc;
    struct sl_recording wanted = {.stream = name_of(stream, per_thread), .thread = pthread_self()};
    if (wanted.stream == CU_STREAM_PER_THREAD)
        wanted.context_id = context_id_of(wanted.stream);
    struct sl_recording *r = wanted.stream ? take(&wanted) : NULL;
    if (r)
        over(r);
    return rc;
}

#define BEGIN(symbol, per_thread, s, ...)                                                          \
    do {                                                                                           \
        SL_REAL_OR_RETURN(symbol, real);                                                           \
        struct sl_recording *r_ = begin(s, per_thread);                                            \
        return r_ ? begun(r_, real(s, ##__VA_ARGS__)) : CUDA_ERROR_OUT_OF_MEMORY;                  \
    } while (0)

CUresult cuStreamBeginCapture(CUstream s)
{
    BEGIN(cuStreamBeginCapture, false, s);
}

CUresult cuStreamBeginCapture_ptsz(CUstream s)
{
    BEGIN(cuStreamBeginCapture_ptsz, true, s);
}

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    BEGIN(cuStreamBeginCapture_v2, false, s, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream s, CUstreamCaptureMode mode)
{
    BEGIN(cuStreamBeginCapture_v2_ptsz, true, s, mode);
}

#define TO_GRAPH_ARGS                                                                              \
    CUstream s, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t n,   \
        CUstreamCaptureMode mode

CUresult cuStreamBeginCaptureToGraph(TO_GRAPH_ARGS)
{
    BEGIN(cuStreamBeginCaptureToGraph, false, s, graph, nodes, edges, n, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(TO_GRAPH_ARGS)
{
    BEGIN(cuStreamBeginCaptureToGraph_ptsz, true, s, graph, nodes, edges, n, mode);
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    SL_REAL_OR_RETURN(cuStreamEndCapture, real);
    return ended(s, false, real(s, graph));
}

CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph *graph)
{
    SL_REAL_OR_RETURN(cuStreamEndCapture_ptsz, real);
    return ended(s, true, real(s, graph));
}
