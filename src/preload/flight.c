/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/flight.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "policy/cost.h"
#include "policy/times.h"
#include "preload/hooks.h"
#include "preload/lock.h"
#include "preload/marks.h"

#define LANES        64 /* streams in use; further ones share the last lane and are always marked */
#define MARKERS      256
#define BATCH_MAX    64 /* launches behind one marker at most: estimates may be wrong */
#define EVENTS_SPARE 128
/* … and so much estimated time: an eighth of a window is noticed late at most. */
#define BATCH_NS     (SL_TURN_WINDOW_NS / 8)

/* A stream with work in flight. */
struct lane {
    CUstream stream;
    CUcontext context;
    uint32_t in_flight; /* launches admitted and not seen done */
    uint32_t unmarked;  /* … without a marker behind them */
    uint64_t unmarked_ns;
};

/* An event behind a batch of launches of one lane. */
struct marker {
    CUevent event; /* NULL: it could not be recorded; done when due_ns has passed */
    CUevent start; /* of a measured launch */
    CUcontext context;
    uint64_t key;
    uint64_t batch_ns;
    uint64_t due_ns;
    uint32_t batch;
    uint32_t lane;
    bool done;
};

struct spare {
    CUevent event;
    CUcontext context;
};

static struct {
    struct sl_lock lock;
    _Atomic uint32_t polling; /* a thread is asking the driver about markers */
    _Atomic uint32_t tailing; /* a thread is in sl_flight_mark_tails … */
    CUstream _Atomic marking; /* … and records on this stream */
    struct lane lane[LANES];
    struct marker marker[MARKERS]; /* a ring: first … first + count */
    uint32_t first, count;
    uint32_t busy; /* launches inside the driver, markers being recorded */
    struct spare spare[EVENTS_SPARE];
    uint32_t spares;
    _Atomic uint64_t in_flight_ns;
    _Atomic uint32_t in_flight;
    _Atomic uint64_t progress_ns;
    _Atomic uint64_t last_launch_ns;
} board;

bool sl_flight_empty(void)
{
    return atomic_load(&board.in_flight) == 0;
}

uint64_t sl_flight_ns(void)
{
    return atomic_load(&board.in_flight_ns);
}

uint64_t sl_flight_progress_ns(void)
{
    return atomic_load(&board.progress_ns);
}

uint64_t sl_flight_last_launch_ns(void)
{
    return atomic_load(&board.last_launch_ns);
}

void sl_flight_reset(void)
{
    memset(&board, 0, sizeof(board));
}

/* --- events ----------------------------------------------------------------------------------- */

/* The context must be current. */
static CUevent event_get(CUcontext context)
{
    CUevent event = NULL;
    sl_lock_take(&board.lock);
    for (uint32_t i = 0; i < board.spares && !event; i++)
        if (board.spare[i].context == context) {
            event = board.spare[i].event;
            board.spare[i] = board.spare[--board.spares];
        }
    sl_lock_drop(&board.lock);
    if (event)
        return event;
    __typeof__(&cuEventCreate) create = SL_REAL(cuEventCreate);
    return create && create(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : NULL;
}

/* With the lock held. A surplus event is forgotten: destroying it needs its context. */
static void event_put(CUevent event, CUcontext context)
{
    if (event && board.spares < EVENTS_SPARE)
        board.spare[board.spares++] = (struct spare){event, context};
}

static bool capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    __typeof__(&cuStreamIsCapturing) ask = SL_REAL(cuStreamIsCapturing);
    CUresult rc = ask ? ask(stream, &status) : CUDA_ERROR_NOT_SUPPORTED;
    /* The legacy stream answers with an error while another stream that it waits for records. */
    return rc != CUDA_ERROR_NOT_SUPPORTED &&
           (rc != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* An event at the end of the stream, or NULL. */
static CUevent event_record(CUcontext context, CUstream stream)
{
    __typeof__(&cuEventRecord) record = SL_REAL(cuEventRecord);
    CUstreamCaptureMode mode = sl_capture_relax();
    CUevent event = NULL;
    if (record && !capturing(stream))
        event = event_get(context);
    if (event && record(event, stream) != CUDA_SUCCESS) {
        sl_lock_take(&board.lock);
        event_put(event, context);
        sl_lock_drop(&board.lock);
        event = NULL;
    }
    sl_capture_restore(mode);
    return event;
}

/* --- the board -------------------------------------------------------------------------------- */

static uint32_t lane_find(CUstream stream, CUcontext context)
{
    uint32_t empty = LANES - 1;
    for (uint32_t i = 0; i < LANES - 1; i++) {
        if (board.lane[i].stream == stream && board.lane[i].context == context)
            return i;
        if (empty == LANES - 1 && board.lane[i].in_flight == 0)
            empty = i;
    }
    struct lane *lane = &board.lane[empty];
    if (lane->in_flight == 0)
        *lane = (struct lane){.stream = stream, .context = context};
    return empty;
}

bool sl_flight_admit(struct sl_launch *l, uint64_t window_ns)
{
    sl_lock_take(&board.lock);
    uint32_t i = lane_find(l->stream, l->context);
    struct lane *lane = &board.lane[i];
    uint64_t ns = atomic_load(&board.in_flight_ns);
    uint32_t n = atomic_load(&board.in_flight);
    bool room = window_ns == 0 || ns + l->estimate_ns <= window_ns || lane->in_flight == 0;
    if (room) {
        l->lane = i;
        lane->in_flight++;
        board.busy++;
        atomic_store(&board.in_flight, n + 1);
        atomic_store(&board.in_flight_ns, ns + l->estimate_ns);
        uint64_t now = sl_now_ns();
        if (n == 0)
            atomic_store(&board.progress_ns, now);
        atomic_store(&board.last_launch_ns, now);
    }
    sl_lock_drop(&board.lock);
    return room;
}

/* With the lock held: launches are done. */
static void land(uint32_t lane, uint32_t launches, uint64_t ns)
{
    uint64_t have = atomic_load(&board.in_flight_ns);
    board.lane[lane].in_flight -= launches;
    atomic_store(&board.in_flight_ns, have > ns ? have - ns : 0);
    uint32_t left = atomic_load(&board.in_flight) - launches;
    if (left == 0)
        atomic_store(&board.in_flight_ns, 0);
    atomic_store(&board.in_flight, left);
    atomic_store(&board.progress_ns, sl_now_ns());
}

/* Takes a lane's unmarked batch off it; the caller marks it. */
static bool batch_take(uint32_t lane, struct marker *ret)
{
    struct lane *l = &board.lane[lane];
    if (l->unmarked == 0 || board.count + board.busy >= MARKERS)
        return false;
    *ret = (struct marker){
        .context = l->context, .batch = l->unmarked, .batch_ns = l->unmarked_ns, .lane = lane};
    l->unmarked = 0;
    l->unmarked_ns = 0;
    board.busy++;
    return true;
}

/* The context must be current in this thread, except for explicit streams. If the stream has no name here (NULL), or no
 * event can be recorded, the batch counts as done after twice its estimated time. */
static void mark(struct marker *m, CUstream stream)
{
    m->event = stream ? event_record(m->context, stream) : NULL;
    if (!m->event)
        m->due_ns = sl_now_ns() + 2 * m->batch_ns;
    sl_lock_take(&board.lock);
    board.busy--;
    board.marker[(board.first + board.count++) % MARKERS] = *m;
    sl_lock_drop(&board.lock);
}

void sl_flight_measure(struct sl_launch *l)
{
    l->start = event_record(l->context, l->stream);
}

void sl_flight_left(struct sl_launch *l, bool ok, bool closing)
{
    struct marker m;
    sl_lock_take(&board.lock);
    struct lane *lane = &board.lane[l->lane];
    board.busy--;
    if (!ok) {
        land(l->lane, 1, l->estimate_ns);
        event_put(l->start, l->context);
        sl_lock_drop(&board.lock);
        return;
    }
    lane->unmarked++;
    lane->unmarked_ns += l->estimate_ns;
    /* Only this thread can name its own default stream, and a shared lane has no name for it. */
    bool now = closing || l->start || l->lane == LANES - 1 || l->stream == CU_STREAM_PER_THREAD ||
               lane->unmarked >= BATCH_MAX || lane->unmarked_ns >= BATCH_NS;
    now = now && batch_take(l->lane, &m);
    if (!now)
        event_put(l->start, l->context);
    sl_lock_drop(&board.lock);
    if (!now)
        return;
    m.context = l->context;
    m.start = l->start;
    m.key = l->key;
    mark(&m, l->stream);
}

void sl_flight_mark_tails(void)
{
    __typeof__(&cuCtxPushCurrent_v2) push = SL_REAL(cuCtxPushCurrent_v2);
    __typeof__(&cuCtxPopCurrent_v2) pop = SL_REAL(cuCtxPopCurrent_v2);
    uint32_t idle = 0;
    if (sl_flight_empty() || !atomic_compare_exchange_strong(&board.tailing, &idle, 1))
        return; /* another thread does it */
    for (uint32_t i = 0; i < LANES; i++) {
        struct marker m;
        CUcontext popped;
        sl_lock_take(&board.lock);
        CUstream stream = board.lane[i].stream;
        bool take = batch_take(i, &m);
        if (take)
            atomic_store(&board.marking, stream);
        sl_lock_drop(&board.lock);
        if (!take)
            continue;
        if (i == LANES - 1 || !stream || stream == CU_STREAM_PER_THREAD || !push || !pop ||
            push(m.context) != CUDA_SUCCESS) {
            mark(&m, NULL);
            continue;
        }
        mark(&m, stream);
        (void)pop(&popped);
        atomic_store(&board.marking, NULL);
    }
    atomic_store(&board.marking, NULL);
    atomic_store(&board.tailing, 0);
}

void sl_flight_stream_gone(CUstream stream)
{
    if (sl_flight_empty())
        return;
    for (uint32_t i = 0; i < LANES - 1; i++) {
        struct marker m;
        sl_lock_take(&board.lock);
        bool take = board.lane[i].stream == stream && batch_take(i, &m);
        if (board.lane[i].stream == stream)
            board.lane[i].stream = NULL; /* a new stream may get the same handle */
        sl_lock_drop(&board.lock);
        if (take)
            mark(&m, stream);
    }
    /* Another thread may be about to record on the stream. */
    while (atomic_load(&board.marking) == stream)
        (void)sched_yield();
}

/* --- seeing the end --------------------------------------------------------------------------- */

static bool marker_done(const struct marker *m)
{
    if (!m->event)
        return sl_now_ns() >= m->due_ns;
    __typeof__(&cuEventQuery) query = SL_REAL(cuEventQuery);
    /* An error is an end too: the context is broken or gone, nothing runs in it. */
    return !query || query(m->event) != CUDA_ERROR_NOT_READY;
}

static void learn(const struct marker *m)
{
    float ms = 0;
    __typeof__(&cuEventElapsedTime) elapsed = SL_REAL(cuEventElapsedTime);
    if (m->start && m->event && elapsed && elapsed(&ms, m->start, m->event) == CUDA_SUCCESS &&
        ms >= 0)
        sl_cost_learn(&sl_gate_costs, m->key, (uint64_t)((double)ms * 1e6));
}

void sl_flight_poll(void)
{
    uint32_t idle = 0;
    if (sl_flight_empty() || !atomic_compare_exchange_strong(&board.polling, &idle, 1))
        return;
    CUstreamCaptureMode mode = sl_capture_relax();
    uint64_t blocked = 0; /* lanes whose oldest marker is not done: skip the later ones */
    sl_lock_take(&board.lock);
    uint32_t first = board.first, count = board.count;
    sl_lock_drop(&board.lock);
    for (uint32_t k = 0; k < count; k++) {
        /* Only the poller changes a marker once it is on the ring. */
        struct marker *m = &board.marker[(first + k) % MARKERS];
        bool shared = m->lane == LANES - 1;
        if (m->done || (!shared && (blocked >> m->lane & 1)))
            continue;
        if (!marker_done(m)) {
            blocked |= 1ULL << m->lane;
            continue;
        }
        learn(m);
        sl_lock_take(&board.lock);
        m->done = true;
        land(m->lane, m->batch, m->batch_ns);
        event_put(m->event, m->context);
        event_put(m->start, m->context);
        sl_lock_drop(&board.lock);
    }
    sl_lock_take(&board.lock);
    while (board.count > 0 && board.marker[board.first].done) {
        board.first = (board.first + 1) % MARKERS;
        board.count--;
    }
    sl_lock_drop(&board.lock);
    sl_capture_restore(mode);
    atomic_store(&board.polling, 0);
}

/* Waits until the thread with this role is finished, then takes the role. */
static void take_over(_Atomic uint32_t *role)
{
    uint32_t idle = 0;
    while (!atomic_compare_exchange_strong(role, &idle, 1)) {
        idle = 0;
        (void)sched_yield();
    }
}

void sl_flight_context_gone(CUcontext context)
{
    /* After this only the program itself uses the context or its events. */
    take_over(&board.tailing);
    take_over(&board.polling);
    sl_lock_take(&board.lock);
    for (uint32_t k = 0; k < board.count; k++) {
        struct marker *m = &board.marker[(board.first + k) % MARKERS];
        if (m->context != context || m->done)
            continue;
        m->done = true;
        land(m->lane, m->batch, m->batch_ns);
    }
    for (uint32_t i = 0; i < LANES; i++)
        if (board.lane[i].context == context && board.lane[i].unmarked > 0) {
            land(i, board.lane[i].unmarked, board.lane[i].unmarked_ns);
            board.lane[i].unmarked = 0;
            board.lane[i].unmarked_ns = 0;
        }
    for (uint32_t i = 0; i < board.spares;)
        if (board.spare[i].context == context)
            board.spare[i] = board.spare[--board.spares];
        else
            i++;
    sl_lock_drop(&board.lock);
    atomic_store(&board.polling, 0);
    atomic_store(&board.tailing, 0);
}
