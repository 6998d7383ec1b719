/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/marks.h"

#include <string.h>

#include "preload/hooks.h"
#include "preload/lock.h"

#define MAX_CONTEXTS 64
/* A queue may be deeper than so many marks: then marks are further apart. */
#define RING         32U

struct watched {
    CUcontext context;
    CUevent event[RING];
    uint32_t pending; /* marks whose events are recorded and not known to be done */
};

static struct {
    struct sl_lock lock; /* of the list; never held in a driver call */
    struct watched watched[MAX_CONTEXTS];
    CUcontext _Atomic last; /* was watched at the last check */
    /* used only by the look thread */
    struct sl_mark ring[RING];
    uint32_t head, tail; /* marks from tail up to head are not done */
    uint64_t marked_launches;
} marks;

CUstreamCaptureMode sl_capture_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    __typeof__(&cuThreadExchangeStreamCaptureMode) exchange =
        SL_REAL(cuThreadExchangeStreamCaptureMode);
    if (exchange)
        (void)exchange(&mode);
    return mode;
}

void sl_capture_restore(CUstreamCaptureMode mode)
{
    __typeof__(&cuThreadExchangeStreamCaptureMode) exchange =
        SL_REAL(cuThreadExchangeStreamCaptureMode);
    if (exchange)
        (void)exchange(&mode);
}

static void add_context(CUcontext context)
{
    struct watched *empty = NULL;
    bool there = false;
    sl_lock_take(&marks.lock);
    for (uint32_t i = 0; i < MAX_CONTEXTS; i++) {
        there |= marks.watched[i].context == context;
        if (!marks.watched[i].context && !empty)
            empty = &marks.watched[i];
    }
    if (!there && empty)
        empty->context = context; /* the other fields are zero, and the look thread's */
    sl_lock_drop(&marks.lock);
}

void sl_marks_watch(CUcontext context)
{
    if (atomic_load_explicit(&marks.last, memory_order_relaxed) == context)
        return;
    add_context(context);
    atomic_store_explicit(&marks.last, context, memory_order_relaxed);
}

bool sl_marks_any(void)
{
    return atomic_load(&marks.last) != NULL;
}

void sl_marks_context_gone(CUcontext context)
{
    sl_lock_take(&marks.lock);
    for (uint32_t i = 0; i < MAX_CONTEXTS; i++)
        if (marks.watched[i].context == context)
            marks.watched[i] = (struct watched){0};
    sl_lock_drop(&marks.lock);
    (void)atomic_compare_exchange_strong(&marks.last, &context, NULL);
}

void sl_marks_forget(void)
{
    memset(&marks, 0, sizeof(marks));
}

static uint32_t bit_of(uint32_t mark)
{
    return 1U << (mark % RING);
}

/* Checks which of its events are done. An error comes from the context: nothing of it will ever run. */
static void query(struct watched *w)
{
    __typeof__(&cuEventQuery) ask = SL_REAL(cuEventQuery);
    for (uint32_t m = marks.tail; m != marks.head; m++) {
        if (!(w->pending & bit_of(m)))
            continue;
        if (ask(w->event[m % RING]) == CUDA_ERROR_NOT_READY)
            return;
        w->pending &= ~bit_of(m);
    }
}

static bool record(struct watched *w)
{
    __typeof__(&cuCtxPushCurrent_v2) push = SL_REAL(cuCtxPushCurrent_v2);
    __typeof__(&cuCtxPopCurrent_v2) pop = SL_REAL(cuCtxPopCurrent_v2);
    __typeof__(&cuEventCreate) create = SL_REAL(cuEventCreate);
    __typeof__(&cuCtxRecordEvent) record_in = SL_REAL(cuCtxRecordEvent);
    CUevent *event = &w->event[marks.head % RING];
    CUcontext popped;
    if (push(w->context) != CUDA_SUCCESS)
        return false;
    if (!*event && create(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        *event = NULL;
    bool ok = *event && record_in(w->context, *event) == CUDA_SUCCESS;
    (void)pop(&popped);
    if (ok)
        w->pending |= bit_of(marks.head);
    return ok;
}

static bool supported(void)
{
    return SL_REAL(cuCtxRecordEvent) && SL_REAL(cuEventQuery) && SL_REAL(cuEventCreate) &&
           SL_REAL(cuCtxPushCurrent_v2) && SL_REAL(cuCtxPopCurrent_v2);
}

static bool is_pending(uint32_t mark)
{
    for (uint32_t i = 0; i < MAX_CONTEXTS; i++)
        if (marks.watched[i].pending & bit_of(mark))
            return true;
    return false;
}

/* Other threads only add contexts meanwhile. */
static struct watched *next_context(uint32_t *at)
{
    struct watched *w = NULL;
    sl_lock_take(&marks.lock);
    while (*at < MAX_CONTEXTS && !w) {
        w = marks.watched[*at].context ? &marks.watched[*at] : NULL;
        (*at)++;
    }
    sl_lock_drop(&marks.lock);
    return w;
}

/* Fails in a context that records a graph: then its launches stand behind the next mark. */
static void mark_now(const struct sl_mark *now)
{
    struct watched *w;
    bool recorded = false;
    uint32_t at = 0;
    if (now->launches == marks.marked_launches || marks.head - marks.tail == RING)
        return;
    while ((w = next_context(&at)) != NULL)
        recorded |= record(w);
    if (!recorded)
        return;
    marks.ring[marks.head++ % RING] = *now;
    marks.marked_launches = now->launches;
}

enum sl_queue sl_marks_look(const struct sl_mark *now, struct sl_mark *done)
{
    struct watched *w;
    uint32_t at = 0;
    bool any = false;
    if (!supported())
        return SL_QUEUE_UNKNOWN;
    CUstreamCaptureMode mode = sl_capture_relax();
    for (; (w = next_context(&at)) != NULL; any = true)
        query(w);
    while (marks.tail != marks.head && !is_pending(marks.tail))
        *done = marks.ring[marks.tail++ % RING];
    enum sl_queue found = !any                       ? SL_QUEUE_UNKNOWN
                          : marks.tail == marks.head ? SL_QUEUE_EMPTY
                                                     : SL_QUEUE_BUSY;
    if (any)
        mark_now(now);
    sl_capture_restore(mode);
    return found;
}
