/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/meter.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "policy/cost.h"
#include "policy/steer.h"
#include "preload/attach.h"
#include "preload/channels.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/lock.h"

#define LOOK_NS      SL_NS_PER_MS
#define MAX_CONTEXTS 16
#define MAX_SAMPLES  32
/* Kernels are measured with their stream held until all of the sample is submitted: else the time that the
 * program takes to submit it, and the slice that it loses meanwhile, would count as the kernel's. A sample
 * without that (a first launch) says little about a kernel shorter than this. */
#define HELD_BELOW_NS (20 * SL_NS_PER_MS)
/* No stream is held for longer, whatever becomes of the thread that holds it. */
#define MOST_HELD_NS (2 * SL_NS_PER_MS)
/* What an event pair with nothing between it shows, until that was measured here. */
#define PAIR_NS 1500U
/* Less than this in the queue is no work without a pause, however long it takes: a program that waits for
 * each short kernel has one in the queue all the time, most of it spent waiting for its slice. */
#define DEEP_NS SL_NS_PER_MS
/* This much in the queue keeps the GPU busy in any case. Less does only where more is launched while it is not
 * done: a program that waits for each burst has the burst in its queue until its slice comes, and does not use
 * its slice to the end. */
#define PLENTY_NS (20 * SL_NS_PER_MS)
/* Queued work is believed for so many times the time that it should take, and no longer: kernels behind a
 * host function or an event that does not come stand in a queue, too, and use nothing. */
#define BELIEVED 32U
#define MOST_BELIEVED_NS (600 * SL_NS_PER_S)
/* After channels went off: what is queued now is not going on. */
#define SETTLED_NS (3 * SL_NS_PER_MS)
#define STRIKES    3U

struct watched {
    CUcontext context;
    CUevent mark; /* behind everything that was submitted when it was recorded */
    bool marked;
};

enum sample_state { SAMPLE_UNUSED, SAMPLE_OPEN, SAMPLE_CLOSED };

struct sample {
    _Atomic uint32_t state; /* enum sample_state */
    CUcontext context;
    CUevent begin, end;
    uint64_t key; /* 0: nothing between the events */
    bool held;
    _Atomic uint64_t held_since_ns; /* 0: the stream is not held */
};

static struct {
    struct sl_lock lock; /* of the lists; never held in the driver */
    struct watched watched[MAX_CONTEXTS];
    CUcontext _Atomic last; /* was watched when last looked at */
    struct sample sample[MAX_SAMPLES];
    /* Streams are held by these words, which lie in the memory of one context. */
    CUcontext hold_context;
    _Atomic uint32_t *hold;
    CUdeviceptr hold_address;
    bool hold_tried;
    _Atomic uint64_t pair_ns;
    _Atomic uint64_t launched_ns; /* estimates of all launches */
    _Atomic uint32_t unknown;     /* launches whose cost was not known */
    _Atomic uint64_t mean_ns;     /* of sampled launches */
    _Atomic bool pending;
    /* the watch thread's own */
    uint64_t looked_ns, seen_launches;
    uint64_t total_ns;    /* estimated time of all launches, as of the last look … */
    uint64_t marked_ns;   /* … of those that the marks stand behind */
    uint64_t done_ns;     /* … and of those known to be done */
    uint64_t believed_ns; /* what the queue is still believed for */
    uint64_t owed_ns;     /* launched, and not counted yet */
    bool coming;          /* launched more while the queue was not empty */
    uint32_t unknown_seen, unknown_marked, unknown_done; /* likewise, of launches of unknown cost */
    uint64_t off_since_ns; /* 0: the channels are on */
    bool stopped;          /* since they went off: work is queued and stands still */
    bool moved;            /* … and some of it went on all the same */
    uint32_t strikes, slice_us, groups;
} meter;

/* --- contexts ---------------------------------------------------------------------------------- */

static void watch_context(CUcontext context)
{
    uint32_t empty = MAX_CONTEXTS;
    sl_lock_take(&meter.lock);
    for (uint32_t i = 0; i < MAX_CONTEXTS; i++) {
        if (meter.watched[i].context == context)
            empty = MAX_CONTEXTS + 1;
        else if (!meter.watched[i].context && empty == MAX_CONTEXTS)
            empty = i;
    }
    if (empty < MAX_CONTEXTS)
        meter.watched[empty] = (struct watched){.context = context};
    sl_lock_drop(&meter.lock);
    atomic_store_explicit(&meter.last, context, memory_order_relaxed);
}

void sl_meter_launched(CUcontext context, uint64_t estimate_ns, bool known)
{
    if (atomic_load_explicit(&meter.last, memory_order_relaxed) != context)
        watch_context(context);
    atomic_fetch_add_explicit(&meter.launched_ns, estimate_ns, memory_order_relaxed);
    if (!known)
        atomic_fetch_add_explicit(&meter.unknown, 1, memory_order_relaxed);
}

void sl_meter_context_gone(CUcontext context)
{
    sl_lock_take(&meter.lock);
    for (uint32_t i = 0; i < MAX_CONTEXTS; i++)
        if (meter.watched[i].context == context)
            meter.watched[i] = (struct watched){0};
    for (uint32_t i = 0; i < MAX_SAMPLES; i++)
        if (meter.sample[i].context == context)
            meter.sample[i] = (struct sample){0};
    if (meter.hold_context == context) {
        meter.hold_context = NULL;
        meter.hold = NULL;
        meter.hold_tried = false;
    }
    sl_lock_drop(&meter.lock);
    atomic_store(&meter.last, NULL);
}

void sl_meter_forget(void)
{
    memset(&meter, 0, sizeof(meter));
}

bool sl_meter_pending(void)
{
    return atomic_load(&meter.pending);
}

/* --- samples ----------------------------------------------------------------------------------- */

static CUstreamCaptureMode relax_capture(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    __typeof__(&cuThreadExchangeStreamCaptureMode) exchange =
        SL_REAL(cuThreadExchangeStreamCaptureMode);
    if (exchange)
        (void)exchange(&mode);
    return mode;
}

static void restore_capture(CUstreamCaptureMode mode)
{
    __typeof__(&cuThreadExchangeStreamCaptureMode) exchange =
        SL_REAL(cuThreadExchangeStreamCaptureMode);
    if (exchange)
        (void)exchange(&mode);
}

/* An unused sample, with events of this context if there is one that has. */
static struct sample *take_sample(CUcontext context)
{
    struct sample *s = NULL;
    sl_lock_take(&meter.lock);
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        struct sample *k = &meter.sample[i];
        if (atomic_load(&k->state) != SAMPLE_UNUSED || (k->context && k->context != context))
            continue;
        if (!s || k->context)
            s = k;
    }
    if (s) {
        s->context = context;
        s->held = false;
        atomic_store(&s->state, SAMPLE_OPEN);
    }
    sl_lock_drop(&meter.lock);
    __typeof__(&cuEventCreate) create = SL_REAL(cuEventCreate);
    if (s && !s->begin && (!create || create(&s->begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
                           create(&s->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS)) {
        s->begin = NULL;
        atomic_store(&s->state, SAMPLE_UNUSED);
        return NULL;
    }
    return s;
}

/* The words that streams are held by: once, in the first context that needs them. */
static void prepare_hold(CUcontext context)
{
    __typeof__(&cuMemHostAlloc) alloc = SL_REAL(cuMemHostAlloc);
    __typeof__(&cuMemHostGetDevicePointer_v2) address = SL_REAL(cuMemHostGetDevicePointer_v2);
    void *words = NULL;
    CUdeviceptr at = 0;
    sl_lock_take(&meter.lock);
    bool mine = !meter.hold_tried;
    meter.hold_tried = true;
    sl_lock_drop(&meter.lock);
    if (!mine || !alloc || !address ||
        alloc(&words, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
        address(&at, words, 0) != CUDA_SUCCESS)
        return;
    memset(words, 0, 4096);
    sl_lock_take(&meter.lock);
    meter.hold = words;
    meter.hold_address = at;
    meter.hold_context = context;
    sl_lock_drop(&meter.lock);
}

static _Atomic uint32_t *hold_word(const struct sample *s)
{
    return meter.hold && s->context == meter.hold_context ? meter.hold + (s - meter.sample) : NULL;
}

static void hold(struct sample *s, CUstream stream)
{
    __typeof__(&cuStreamWaitValue32_v2) wait = SL_REAL(cuStreamWaitValue32_v2);
    _Atomic uint32_t *word = hold_word(s);
    if (!word || !wait)
        return;
    atomic_store(word, 0);
    atomic_store(&s->held_since_ns, sl_now_ns());
    s->held = wait(stream, meter.hold_address + 4U * (CUdeviceptr)(s - meter.sample), 1,
                   CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS;
    if (!s->held)
        atomic_store(&s->held_since_ns, 0);
}

static void let_go(struct sample *s)
{
    _Atomic uint32_t *word = hold_word(s);
    if (atomic_exchange(&s->held_since_ns, 0) && word)
        atomic_store(word, 1);
}

void sl_meter_sample_begin(struct sl_launch *l, bool known)
{
    __typeof__(&cuEventRecord) record = SL_REAL(cuEventRecord);
    struct sample *s = record ? take_sample(l->context) : NULL;
    if (!s)
        return;
    CUstreamCaptureMode mode = relax_capture();
    if (!meter.hold_tried)
        prepare_hold(l->context);
    /* A first launch may load code and wait for the whole GPU: never behind a stream that waits for us. */
    if (known)
        hold(s, l->stream);
    s->key = l->key;
    bool ok = record(s->begin, l->stream) == CUDA_SUCCESS;
    restore_capture(mode);
    if (!ok) {
        let_go(s);
        atomic_store(&s->state, SAMPLE_UNUSED);
        return;
    }
    l->sample = s;
}

/* How long a pair with nothing in it seems to take: measured like the others, now and then. */
static void sample_nothing(const struct sl_launch *l)
{
    __typeof__(&cuEventRecord) record = SL_REAL(cuEventRecord);
    struct sample *s = take_sample(l->context);
    if (!s)
        return;
    hold(s, l->stream);
    s->key = 0;
    bool ok = s->held && record(s->begin, l->stream) == CUDA_SUCCESS &&
              record(s->end, l->stream) == CUDA_SUCCESS;
    let_go(s);
    atomic_store(&s->state, ok ? SAMPLE_CLOSED : SAMPLE_UNUSED);
}

void sl_meter_sample_end(struct sl_launch *l, bool ok)
{
    __typeof__(&cuEventRecord) record = SL_REAL(cuEventRecord);
    struct sample *s = l->sample;
    CUstreamCaptureMode mode = relax_capture();
    ok = ok && record(s->end, l->stream) == CUDA_SUCCESS;
    let_go(s);
    bool held = s->held;
    atomic_store(&s->state, ok ? SAMPLE_CLOSED : SAMPLE_UNUSED);
    if (ok && held && (sl_now_ns() >> 10) % 8 == 0)
        sample_nothing(l);
    restore_capture(mode);
}

static void learn(const struct sample *s, uint64_t ns)
{
    uint64_t pair = atomic_load(&meter.pair_ns);
    if (s->key == 0) {
        if (!pair || ns < pair)
            atomic_store(&meter.pair_ns, ns);
        return;
    }
    pair = pair ? pair : PAIR_NS;
    ns = ns > pair ? ns - pair : 1;
    /* A pair that was not held shows no more than an upper bound of a short kernel. */
    if (!s->held && ns < HELD_BELOW_NS && sl_cost_peek(&sl_gate_costs, s->key).known)
        return;
    sl_cost_learn(&sl_gate_costs, s->key, ns);
    if (!s->held && ns < HELD_BELOW_NS)
        return;
    uint64_t mean = atomic_load(&meter.mean_ns);
    atomic_store(&meter.mean_ns, mean ? (mean * 15 + ns) / 16 : ns);
}

static void collect_samples(void)
{
    __typeof__(&cuEventQuery) query = SL_REAL(cuEventQuery);
    __typeof__(&cuEventElapsedTime) elapsed = SL_REAL(cuEventElapsedTime);
    uint64_t now = sl_now_ns();
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        struct sample *s = &meter.sample[i];
        uint64_t since = atomic_load(&s->held_since_ns);
        if (since && now > since + MOST_HELD_NS)
            let_go(s);
        if (atomic_load(&s->state) != SAMPLE_CLOSED || !query || !elapsed)
            continue;
        CUresult rc = query(s->end);
        float ms = 0;
        if (rc == CUDA_ERROR_NOT_READY)
            continue;
        if (rc == CUDA_SUCCESS && elapsed(&ms, s->begin, s->end) == CUDA_SUCCESS && ms >= 0)
            learn(s, (uint64_t)((double)ms * 1e6));
        atomic_store(&s->state, SAMPLE_UNUSED);
    }
}

/* --- looking at the queues --------------------------------------------------------------------- */

enum queue { QUEUE_EMPTY, QUEUE_BUSY, QUEUE_UNKNOWN };

/* Whether what was submitted up to the last look is still not done; and marks anew. */
static enum queue look_at(struct watched *w)
{
    __typeof__(&cuCtxRecordEvent) record = SL_REAL(cuCtxRecordEvent);
    __typeof__(&cuEventQuery) query = SL_REAL(cuEventQuery);
    __typeof__(&cuEventCreate) create = SL_REAL(cuEventCreate);
    __typeof__(&cuCtxPushCurrent_v2) push = SL_REAL(cuCtxPushCurrent_v2);
    __typeof__(&cuCtxPopCurrent_v2) pop = SL_REAL(cuCtxPopCurrent_v2);
    CUcontext popped;
    if (!record || !query || !create || !push || !pop || push(w->context) != CUDA_SUCCESS)
        return QUEUE_UNKNOWN;
    enum queue found = QUEUE_UNKNOWN;
    if (!w->mark && create(&w->mark, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        w->mark = NULL;
    if (w->mark && w->marked)
        found = query(w->mark) == CUDA_ERROR_NOT_READY ? QUEUE_BUSY : QUEUE_EMPTY;
    /* Refused while the program records a graph: then the old mark stays, and says a little less. */
    if (w->mark && (!meter.off_since_ns || found != QUEUE_BUSY) &&
        record(w->context, w->mark) == CUDA_SUCCESS)
        w->marked = true;
    (void)pop(&popped);
    return found;
}

static enum queue look_at_all(void)
{
    enum queue all = QUEUE_UNKNOWN;
    CUstreamCaptureMode mode = relax_capture();
    for (uint32_t i = 0; i < MAX_CONTEXTS; i++) {
        sl_lock_take(&meter.lock);
        bool there = meter.watched[i].context != NULL;
        sl_lock_drop(&meter.lock);
        enum queue one = there ? look_at(&meter.watched[i]) : QUEUE_UNKNOWN;
        if (one == QUEUE_BUSY || (one == QUEUE_EMPTY && all == QUEUE_UNKNOWN))
            all = one;
    }
    restore_capture(mode);
    return all;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/*
 * One span between two looks. Either the queue was deep all the time, and the process used all that its
 * slices gave it; or kernels came and went, and took what they take.
 */
static void count(struct sl_slot *slot, enum queue queue, uint64_t span, uint64_t launched_ns)
{
    bool known = meter.unknown_seen == meter.unknown_done && meter.total_ns;
    uint64_t queued = meter.total_ns - meter.done_ns;
    meter.coming = queue == QUEUE_BUSY && (meter.coming || launched_ns);
    bool deep = queued >= PLENTY_NS || (queued >= DEEP_NS && meter.coming);
    atomic_fetch_add(&slot->watched_ns, span);
    if (queue == QUEUE_BUSY && (!known || deep)) {
        uint64_t busy = known ? least(span, meter.believed_ns) : span;
        meter.believed_ns -= least(meter.believed_ns, busy);
        meter.owed_ns = 0;
        atomic_fetch_add(&slot->saturated_ns, busy);
    } else {
        /* A burst takes longer than one span. */
        uint64_t work = least(meter.owed_ns, span);
        meter.owed_ns -= work;
        atomic_fetch_add(&slot->work_ns, work);
    }
}

/* Before the arbiter relies on it: does work really stand still while its channels are off? */
static void check_effect(enum queue queue, uint64_t now)
{
    if (!meter.off_since_ns || now < meter.off_since_ns + SETTLED_NS || queue == QUEUE_UNKNOWN)
        return;
    if (queue == QUEUE_BUSY)
        meter.stopped = true;
    else if (meter.stopped)
        meter.moved = true;
}

static void judge_effect(struct sl_slot *slot)
{
    if (!meter.stopped)
        return;
    meter.strikes = meter.moved ? meter.strikes + 1 : 0;
    if (meter.strikes >= STRIKES) {
        sl_warn("the driver accepts that channels are taken off the GPU, and kernels run on");
        atomic_store(&slot->control, SL_CONTROL_NO_EFFECT);
    }
}

/* The estimated time of what was launched since the last look. */
static uint64_t launched_since(const struct sl_lease_page *lease, uint64_t launches)
{
    bool metered = SL_GATE_STATE(atomic_load(&lease->gate)) == SL_GATE_METER;
    uint64_t ns = atomic_exchange(&meter.launched_ns, 0), n = launches - meter.seen_launches;
    meter.seen_launches = launches;
    /* Behind a free gate launches pass unseen: what the sampled ones took stands for them. */
    return metered ? ns : n * atomic_load(&meter.mean_ns);
}

uint64_t sl_meter_tick(struct sl_process *p, uint64_t launches, bool may_look)
{
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    struct sl_slot *slot = sl_process_slot(p);
    uint64_t now = sl_now_ns(), span = meter.looked_ns ? now - meter.looked_ns : 0;
    if (!atomic_load(&lease->meter) && !meter.off_since_ns) {
        meter.looked_ns = 0;
        return UINT64_MAX;
    }
    uint64_t fresh = launched_since(lease, launches);
    meter.unknown_seen = atomic_load(&meter.unknown);
    enum queue queue = may_look ? look_at_all() : QUEUE_UNKNOWN;
    if (may_look)
        collect_samples();
    meter.total_ns += fresh;
    meter.owed_ns += fresh;
    meter.believed_ns = least(meter.believed_ns + BELIEVED * fresh, MOST_BELIEVED_NS);
    if (queue == QUEUE_UNKNOWN) /* an older driver: what was launched is believed to be in the queue */
        queue = meter.total_ns - meter.done_ns > span ? QUEUE_BUSY : QUEUE_EMPTY;
    if (queue == QUEUE_EMPTY) {
        meter.done_ns = meter.marked_ns;
        meter.unknown_done = meter.unknown_marked;
    }
    meter.marked_ns = meter.total_ns;
    meter.unknown_marked = meter.unknown_seen;
    check_effect(queue, now);
    if (!meter.off_since_ns && span)
        count(slot, queue, span, fresh);
    meter.looked_ns = now;
    atomic_store(&meter.pending, queue == QUEUE_BUSY);
    atomic_store(&slot->pending, queue == QUEUE_BUSY);
    atomic_store(&slot->launches, launches);
    atomic_store(&slot->metered_ns, now);
    return LOOK_NS;
}

/* --- orders ------------------------------------------------------------------------------------ */

/* Once a context is there: does the driver let us? */
static void try_control(struct sl_slot *slot, uint32_t slice_us)
{
    bool any;
    uint32_t groups = sl_channels_groups(&any), status = 0;
    if (groups)
        status = sl_channels_slice(slice_us);
    atomic_store(&slot->control_status, status);
    atomic_store(&slot->groups, groups);
    meter.groups = groups;
    meter.slice_us = slice_us;
    atomic_store(&slot->control, !groups  ? SL_CONTROL_NO_GROUP
                                 : status ? SL_CONTROL_REFUSED
                                          : SL_CONTROL_WORKS);
}

static void refused(struct sl_slot *slot, uint32_t status)
{
    if (status == 0)
        return;
    atomic_store(&slot->control_status, status);
    atomic_store(&slot->control, SL_CONTROL_REFUSED);
}

static void go_off(struct sl_slot *slot, uint64_t now)
{
    uint32_t status = sl_channels_set_off(true);
    refused(slot, status); /* some may be off all the same: they come back like the others */
    /* What ran until here was used. */
    if (meter.looked_ns && now > meter.looked_ns)
        count(slot, atomic_load(&meter.pending) ? QUEUE_BUSY : QUEUE_EMPTY, now - meter.looked_ns, 0);
    meter.off_since_ns = now;
    meter.stopped = meter.moved = false;
    atomic_store(&slot->off, 1);
}

static bool come_back(struct sl_slot *slot, uint64_t now)
{
    uint32_t status = sl_channels_set_off(false);
    if (status) {
        refused(slot, status);
        return false; /* tried again in a moment: never left off */
    }
    judge_effect(slot);
    meter.off_since_ns = 0;
    if (meter.looked_ns)
        meter.looked_ns = now; /* they run again from here on */
    atomic_store(&slot->off, 0);
    return true;
}

uint64_t sl_meter_obey(struct sl_process *p)
{
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    struct sl_slot *slot = sl_process_slot(p);
    uint32_t slice = atomic_load(&lease->slice_us);
    uint64_t until = atomic_load(&lease->off_until_ns), now = sl_now_ns();
    bool any;
    if (!atomic_load(&meter.last) && !meter.off_since_ns)
        return UINT64_MAX; /* nothing was launched yet */
    if (atomic_load(&slot->control) == SL_CONTROL_UNKNOWN ||
        (atomic_load(&slot->control) == SL_CONTROL_NO_GROUP && sl_channels_groups(&any)))
        try_control(slot, slice);
    bool works = atomic_load(&slot->control) == SL_CONTROL_WORKS && sl_process_connected();
    if (meter.off_since_ns) {
        uint64_t latest = meter.off_since_ns + SL_STEER_MOST_OFF_NS;
        until = works ? least(until, latest) : 0;
        if (now >= until)
            return come_back(slot, now) ? 0 : LOOK_NS;
        return until - now;
    }
    if (!works)
        return UINT64_MAX;
    if (until > now) {
        go_off(slot, now);
        return LOOK_NS;
    }
    if (slice != meter.slice_us) {
        meter.slice_us = slice;
        refused(slot, sl_channels_slice(slice));
    }
    atomic_store(&slot->groups, sl_channels_groups(&any));
    return UINT64_MAX;
}
