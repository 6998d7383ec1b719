/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/marks.h"

#include <string.h>

#include "policy/times.h"
#include "preload/hooks.h"
#include "preload/lock.h"
#include "preload/stamps.h"

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
    struct {
        struct sl_mark of;
        uint32_t stamp; /* 0: events */
    } ring[RING];
    uint32_t head, tail;   /* marks from tail up to head are not done */
    struct sl_mark newest; /* set last … */
    struct sl_mark asked;  /* … and the figures for the stamp that was asked for */
    uint32_t looks;        /* since events were recorded */
    uint32_t open_looks;   /* since a thread took the request for a stamp */
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
    if (!w->pending)
        return;
    CUstreamCaptureMode mode = sl_capture_relax();
    for (uint32_t m = marks.tail; m != marks.head; m++) {
        if (!(w->pending & bit_of(m)))
            continue;
        if (ask(w->event[m % RING]) == CUDA_ERROR_NOT_READY)
            break;
        w->pending &= ~bit_of(m);
    }
    sl_capture_restore(mode);
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
    uint32_t stamp = marks.ring[mark % RING].stamp;
    if (stamp)
        return !sl_stamps_reached(stamp);
    for (uint32_t i = 0; i < MAX_CONTEXTS; i++)
        if (marks.watched[i].pending & bit_of(mark))
            return true;
    return false;
}

/* Events stand behind all that was submitted before them. A stamp stands behind the work of one stream, so it counts
 * when the marks before it are done. */
static void advance(struct sl_mark *done)
{
    uint32_t end = marks.tail;
    for (uint32_t m = marks.tail; m != marks.head; m++) {
        bool stamp = marks.ring[m % RING].stamp != 0, pending = is_pending(m);
        if (pending && !stamp)
            break;
        if (!pending && (!stamp || m == end))
            end = m + 1;
    }
    if (end != marks.tail)
        *done = marks.ring[(end - 1) % RING].of;
    marks.tail = end;
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

static void add(struct sl_mark of, uint32_t stamp)
{
    marks.newest = of.launches > marks.newest.launches ? of : marks.newest;
    marks.ring[marks.head % RING].of = marks.newest;
    marks.ring[marks.head++ % RING].stamp = stamp;
}

/* One place is kept for a stamp that is on its way. */
static bool has_room(void)
{
    return marks.head - marks.tail < RING - 1;
}

/* Records events in all contexts. A broken context refuses: nothing of it will ever run. */
static void mark_all(const struct sl_mark *now)
{
    struct watched *w;
    bool recorded = false;
    uint32_t at = 0;
    if (!has_room())
        return;
    marks.looks = 0;
    sl_stamps_several_done();
    CUstreamCaptureMode mode = sl_capture_relax();
    while ((w = next_context(&at)) != NULL)
        recorded |= record(w);
    sl_capture_restore(mode);
    if (recorded)
        add(*now, 0);
    else
        sl_stamps_drop();
}

/* Takes the answer to the request of the last look. Returns whether a thread is about to write the stamp. */
static bool take_stamp(const struct sl_mark *now)
{
    uint32_t stamp;
    switch (sl_stamps_collect(&stamp)) {
    case SL_STAMP_WRITTEN:
        add(marks.asked, stamp);
        break;
    case SL_STAMP_OPEN:
        return ++marks.open_looks < SL_METER_LATE_LOOKS;
    case SL_STAMP_NONE: /* the program waits: no launch of it is held up now */
        mark_all(now);
        break;
    case SL_STAMP_NOT_ASKED:
        break;
    }
    marks.open_looks = 0;
    return false;
}

static void mark_now(const struct sl_mark *now, CUcontext only, bool exact)
{
    bool fresh = now->launches != marks.newest.launches;
    /* Nothing else shows that a context with nothing but stamps is broken. */
    bool only_stamps = marks.tail != marks.head && marks.ring[(marks.head - 1) % RING].stamp != 0;
    bool all = marks.looks++ >= SL_METER_ALL_LOOKS;
    if (!has_room() || !(fresh || (only_stamps && all)))
        return;
    if (all || marks.open_looks || !only || (exact && sl_stamps_several()) ||
        !sl_stamps_possible(only)) {
        mark_all(now);
        return;
    }
    marks.asked = *now;
    sl_stamps_ask(only);
}

enum sl_queue sl_marks_look(const struct sl_mark *now, bool exact, struct sl_mark *done)
{
    struct watched *w;
    CUcontext only = NULL;
    uint32_t at = 0, contexts = 0;
    if (!supported())
        return SL_QUEUE_UNKNOWN;
    bool open = take_stamp(now);
    for (; (w = next_context(&at)) != NULL; only = w->context) {
        query(w);
        contexts++;
    }
    advance(done);
    enum sl_queue found = contexts == 0                       ? SL_QUEUE_UNKNOWN
                          : marks.tail == marks.head && !open ? SL_QUEUE_EMPTY
                                                              : SL_QUEUE_BUSY;
    if (contexts && !open)
        mark_now(now, contexts == 1 ? only : NULL, exact);
    return found;
}
