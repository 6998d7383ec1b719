/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: making, finding, recording, waiting. What takes a stream is in
 * cuda_stream_pt.c, which is compiled once for each default stream. */
#include "sim/cuda_graph.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Handles are recycled, never freed: a stale one is told by its magic, and an event's generation
 * goes on counting, so that a record still in flight cannot complete its successor. */
static struct CUstream_st *spare_streams;
static struct CUevent_st *spare_events;

struct thread_stream {
    uint64_t ctx_id;
    CUstream stream;
};
static _Thread_local struct thread_stream thread_streams[SL_SIM_MAX_DEVICES];
static _Thread_local size_t thread_stream_count;

static uint16_t free_slot(CUcontext ctx)
{
    for (unsigned int tries = 1; tries < SL_SIM_STREAM_SLOTS; tries++) {
        uint16_t slot = (uint16_t)(1 + (ctx->next_slot++ - 1) % (SL_SIM_STREAM_SLOTS - 1));
        bool used = false;
        for (CUstream s = ctx->streams; s && !used; s = s->next)
            used = s->slot == slot;
        if (!used)
            return slot;
    }
    return (uint16_t)(1 + ctx->next_slot++ % (SL_SIM_STREAM_SLOTS - 1)); /* shared: over-ordered */
}

static CUresult stream_create(CUcontext ctx, unsigned int flags, int priority, CUstream *ret)
{
    CUstream s = spare_streams;
    if (s)
        spare_streams = s->next;
    else
        s = malloc(sizeof(*s));
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(s, 0, sizeof(*s));
    s->slot = free_slot(ctx);
    s->flags = flags;
    s->op_flags = flags & CU_STREAM_NON_BLOCKING ? 0 : SL_SIM_OPF_BLOCKING;
    s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    s->ctx = ctx;
    s->id = sim_next_id();
    s->next = ctx->streams;
    ctx->streams = s;
    s->magic = SIM_STR_MAGIC;
    *ret = s;
    return CUDA_SUCCESS;
}

static CUresult thread_stream(CUcontext ctx, CUstream *ret)
{
    size_t i = 0;
    while (i < thread_stream_count && thread_streams[i].ctx_id != ctx->id)
        i++;
    if (i == thread_stream_count) {
        CUresult r = stream_create(ctx, CU_STREAM_DEFAULT, 0, ret);
        if (r != CUDA_SUCCESS)
            return r;
        i %= SL_SIM_MAX_DEVICES; /* many contexts: forget the oldest, its stream lives on */
        thread_streams[i] = (struct thread_stream){.ctx_id = ctx->id, .stream = *ret};
        thread_stream_count = i + 1;
    }
    *ret = thread_streams[i].stream;
    return CUDA_SUCCESS;
}

CUresult sim_stream(CUstream h, bool per_thread, CUstream *ret)
{
    if (h == NULL || h == CU_STREAM_LEGACY || h == CU_STREAM_PER_THREAD) {
        CUcontext ctx;
        CUresult r = sim_need_ctx(&ctx);
        if (r != CUDA_SUCCESS)
            return r;
        if (h == CU_STREAM_PER_THREAD || (h == NULL && per_thread))
            return thread_stream(ctx, ret);
        *ret = &ctx->legacy;
        return CUDA_SUCCESS;
    }
    if (h->magic != SIM_STR_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    if (h->ctx->dead)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret = h;
    return sim_ctx_health(h->ctx);
}

CUresult sim_stream_do(CUstream s, const struct sim_work *w)
{
    if (s->capture)
        return sim_capture_add(s, w, NULL);
    CUresult r = sim_capture_stream_ok(s);
    return r == CUDA_SUCCESS ? sim_submit(s, w, NULL) : r;
}

static CUresult create_checked(CUstream *phStream, unsigned int flags, int priority)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!phStream || (flags & ~1u))
        return CUDA_ERROR_INVALID_VALUE;
    return stream_create(ctx, flags, priority, phStream);
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int flags)
{
    ENTER();
    return LOCKED(create_checked(phStream, flags, 0));
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    ENTER();
    return LOCKED(create_checked(phStream, flags, priority));
}

static CUresult stream_destroy(CUstream s)
{
    if (!s || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD || s->magic != SIM_STR_MAGIC ||
        s == &s->ctx->legacy)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_capture_stream_gone(s);
    for (struct CUstream_st **p = &s->ctx->streams; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    free(s->cap_deps);
    s->magic = 0; /* its work goes on: the engine knows only the slot */
    s->next = spare_streams;
    spare_streams = s;
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
    ENTER();
    return LOCKED(stream_destroy(hStream));
}

CUresult cuStreamDestroy(CUstream hStream)
{
    return cuStreamDestroy_v2(hStream);
}

/* ---- events ---- */

static CUresult event_create(CUevent *phEvent, unsigned int flags)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!phEvent || (flags & ~7u) ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent e = spare_events;
    if (e)
        spare_events = e->next;
    else
        e = calloc(1, sizeof(*e));
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *e = (struct CUevent_st){.magic = SIM_EVT_MAGIC,
                             .flags = flags,
                             .ctx = ctx,
                             .generation = e->generation + 1,
                             .next = ctx->events,
                             .at = &ctx->events};
    if (e->next)
        e->next->at = &e->next;
    ctx->events = e;
    *phEvent = e;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int flags)
{
    ENTER();
    return LOCKED(event_create(phEvent, flags));
}

static bool event_ok(CUevent e)
{
    if (!e || e->magic != SIM_EVT_MAGIC)
        return false;
    if (e->capture && e->capture->ended) /* then it stands for nothing any more */
        sim_capture_forget(e);
    return true;
}

static CUresult event_destroy(CUevent e)
{
    if (!event_ok(e))
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->ipc && !e->imported) {
        sl_sim_lock(sim_p.st);
        if (sim_p.st->ipc_events[e->ipc - 1].id == e->ipc_id)
            sim_p.st->ipc_events[e->ipc - 1].used = 0;
        sl_sim_unlock(sim_p.st);
    }
    sim_capture_forget(e);
    free(e->cap_deps);
    e->cap_deps = NULL;
    e->magic = 0;
    e->generation++;
    *e->at = e->next;
    if (e->next)
        e->next->at = e->at;
    e->next = spare_events;
    spare_events = e;
    return CUDA_SUCCESS;
}

void sim_events_of_ctx_gone(CUcontext ctx)
{
    while (ctx->events)
        (void)event_destroy(ctx->events);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    ENTER();
    return LOCKED(event_destroy(hEvent));
}

CUresult cuEventDestroy(CUevent hEvent)
{
    return cuEventDestroy_v2(hEvent);
}

void sim_event_done(CUevent e, uint64_t generation, uint64_t end_ns)
{
    if (e->generation != generation)
        return; /* recorded again since, or gone */
    e->done = true;
    e->time_ns = end_ns;
}

CUresult sim_event_record(CUevent e, CUstream s, bool external)
{
    if (!event_ok(e))
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture && !external)
        return sim_capture_record(e, s);
    if (e->ctx->card != s->ctx->card)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_work w = {.type = SIM_WORK_RECORD};
    w.record.event = e;
    if (s->capture)
        return sim_capture_add(s, &w, NULL);
    CUresult r = sim_capture_stream_ok(s);
    if (r != CUDA_SUCCESS)
        return r;
    sim_capture_forget(e);
    e->done = e->whole = false;
    e->generation++;
    w.record.generation = e->generation;
    uint64_t seq;
    r = sim_submit(s, &w, &seq);
    if (r != CUDA_SUCCESS)
        return r;
    e->recorded = true;
    e->queue = s->ctx->queue;
    e->queue_generation = s->ctx->queue_generation;
    e->seq = seq;
    if (e->ipc) {
        sl_sim_lock(sim_p.st);
        struct sl_sim_ipc_event *x = &sim_p.st->ipc_events[e->ipc - 1];
        if (x->used && x->id == e->ipc_id) {
            x->queue = e->queue;
            x->generation = e->queue_generation;
            x->seq = seq;
        }
        sl_sim_unlock(sim_p.st);
    }
    return CUDA_SUCCESS;
}

/* Behind all streams of a context at once; of an idle one it is done at once, too. Waiting for it on the GPU
 * is not simulated. */
static CUresult record_context(CUcontext ctx, CUevent e)
{
    if (!event_ok(e) || e->ctx != ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = sim_capture_unsafe();
    if (r == CUDA_SUCCESS)
        r = sim_ctx_health(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    sim_capture_forget(e);
    e->generation++;
    e->whole = e->recorded = true;
    e->done = false;
    e->queue = ctx->queue;
    e->queue_generation = ctx->queue_generation;
    e->seq = sim_ctx_tail(ctx);
    if (!(e->flags & CU_EVENT_DISABLE_TIMING)) {
        sl_sim_lock(sim_p.st);
        sl_sim_advance(sim_p.st, sl_sim_now_ns());
        sl_sim_queue_marked(sim_p.st, ctx->queue);
        sl_sim_unlock(sim_p.st);
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    ENTER();
    return LOCKED(record_context(hCtx, hEvent));
}

/* What an event stands for now; the other process may have recorded it since. */
static void refresh_ipc(CUevent e)
{
    if (!e->ipc)
        return;
    sl_sim_lock(sim_p.st);
    const struct sl_sim_ipc_event *x = &sim_p.st->ipc_events[e->ipc - 1];
    if (x->used && x->id == e->ipc_id && x->seq) {
        e->recorded = true;
        e->queue = x->queue;
        e->queue_generation = x->generation;
        e->seq = x->seq;
        sl_sim_advance(sim_p.st, sl_sim_now_ns());
        e->done = sl_sim_op_done(sim_p.st, e->queue, e->queue_generation, e->seq);
    } else if (!(x->used && x->id == e->ipc_id)) {
        e->done = true; /* its owner is gone, and its work with it */
    }
    sl_sim_unlock(sim_p.st);
}

CUresult sim_event_wait(CUstream s, CUevent e, bool external)
{
    if (!event_ok(e))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!external && (s->capture || e->capture))
        return sim_capture_wait(s, e);
    struct sim_work w = {.type = SIM_WORK_WAIT};
    if (s->capture) {
        w.record.event = e; /* in a graph: whatever it stands for at each launch */
        return sim_capture_add(s, &w, NULL);
    }
    refresh_ipc(e);
    if (!e->recorded || e->done)
        return sim_capture_stream_ok(s);
    w.wait.queue = e->queue;
    w.wait.generation = e->queue_generation;
    w.wait.seq = e->seq;
    return sim_stream_do(s, &w);
}

static CUresult event_query(CUevent e)
{
    if (!event_ok(e))
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->capture) {
        sim_capture_invalidate(e->capture);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    CUresult r = sim_capture_unsafe();
    if (r == CUDA_SUCCESS)
        r = sim_ctx_health(e->ctx);
    if (r != CUDA_SUCCESS)
        return r;
    sim_poll();
    refresh_ipc(e);
    if (e->whole)
        e->done = e->ctx->retired >= e->seq;
    return e->ctx->sticky != CUDA_SUCCESS ? e->ctx->sticky
           : !e->recorded || e->done      ? CUDA_SUCCESS
                                          : CUDA_ERROR_NOT_READY;
}

CUresult cuEventQuery(CUevent hEvent)
{
    ENTER();
    return LOCKED(event_query(hEvent));
}

static CUcontext ctx_of_queue(uint32_t queue, uint32_t generation)
{
    for (CUcontext c = sim_p.contexts; c; c = c->next)
        if (!c->dead && c->queue == queue && c->queue_generation == generation)
            return c;
    return NULL;
}

static CUresult event_synchronize(CUevent e)
{
    CUresult r = event_query(e);
    while (r == CUDA_ERROR_NOT_READY) {
        CUcontext ctx = ctx_of_queue(e->queue, e->queue_generation);
        if (ctx)
            return sim_wait_seq(ctx, e->seq);
        /* Another process's work: nothing to apply here, look again. */
        sim_unlock();
        struct timespec ts = {.tv_nsec = 100000};
        (void)nanosleep(&ts, NULL);
        sim_lock();
        r = event_query(e);
    }
    return r;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    ENTER();
    return LOCKED(event_synchronize(hEvent));
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    if (!event_ok(start) || !event_ok(end))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (start->capture || end->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !start->recorded || !end->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_poll();
    if (!start->done || !end->done)
        return start->ctx->sticky != CUDA_SUCCESS ? start->ctx->sticky : CUDA_ERROR_NOT_READY;
    *ms = (float)(((double)end->time_ns - (double)start->time_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    ENTER();
    return LOCKED(elapsed(ms, start, end));
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(ms, start, end);
}

/* ---- between processes ---- */

struct ipc_event_handle {
    uint64_t magic, id, cookie;
    uint32_t index, card;
};
#define IPC_EVENT_MAGIC 0x534c49504345564eULL

static CUresult ipc_event_get(CUipcEventHandle *h, CUevent e)
{
    struct sl_sim_state *st = sim_p.st;
    if (!event_ok(e))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!h || !(e->flags & CU_EVENT_INTERPROCESS) || e->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (!e->ipc) {
        uint32_t i = 0;
        sl_sim_lock(st);
        while (i < SL_SIM_MAX_IPC_EVENTS && st->ipc_events[i].used)
            i++;
        if (i < SL_SIM_MAX_IPC_EVENTS) {
            e->ipc_id = ++st->next_id;
            st->ipc_events[i] = (struct sl_sim_ipc_event){.used = 1,
                                                          .owner = sim_p.slot,
                                                          .id = e->ipc_id,
                                                          .queue = e->queue,
                                                          .generation = e->queue_generation,
                                                          .seq = e->recorded ? e->seq : 0};
            e->ipc = i + 1;
        }
        sl_sim_unlock(st);
        if (!e->ipc)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct ipc_event_handle body = {
        .magic = IPC_EVENT_MAGIC, .id = e->ipc_id, .index = e->ipc - 1, .card = e->ctx->card};
    memset(h, 0, sizeof(*h));
    memcpy(h, &body, sizeof(body));
    return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    ENTER();
    return LOCKED(ipc_event_get(pHandle, event));
}

static CUresult ipc_event_open(CUevent *phEvent, CUipcEventHandle h)
{
    struct ipc_event_handle body;
    memcpy(&body, &h, sizeof(body));
    if (!phEvent || body.magic != IPC_EVENT_MAGIC || body.index >= SL_SIM_MAX_IPC_EVENTS)
        return CUDA_ERROR_INVALID_VALUE;
    sl_sim_lock(sim_p.st);
    const struct sl_sim_ipc_event *x = &sim_p.st->ipc_events[body.index];
    bool ok = x->used && x->id == body.id;
    sl_sim_unlock(sim_p.st);
    if (!ok)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = event_create(phEvent, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS) {
        (*phEvent)->ipc = body.index + 1;
        (*phEvent)->ipc_id = body.id;
        (*phEvent)->imported = true;
    }
    return r;
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    ENTER();
    return LOCKED(ipc_event_open(phEvent, handle));
}
