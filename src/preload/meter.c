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
/* What a sample shows beyond the time of what is sampled, until that was measured here. */
#define ADDED_NS 3000U
#define OWN_MANY 17U
#define CALIBRATIONS 8U
#define ODD_BELIEVED 8U
#define MOST_OWN_NS (200 * SL_NS_PER_US)
#define MOST_ADDED_NS (20 * SL_NS_PER_US)
/* Less than this in the queue is no work without a pause, however long it takes: a program that waits for
 * each short kernel has one in the queue all the time, most of it spent waiting for its slice. */
#define DEEP_NS (4 * SL_NS_PER_MS)
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
#define UNBOUNDED_NS SL_NS_PER_S

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
    uint64_t key;
    uint32_t own; /* not 0: between the events are so many memsets of ours, to learn what a sample adds */
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
    _Atomic uint64_t added_ns;     /* by sampling: seen in samples of one memset and of several */
    uint64_t own_one_ns, own_many_ns;
    uint32_t odd; /* samples that were much longer than usual */
    _Atomic uint32_t calibrations;
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
    uint64_t uncounted_ns; /* launched, also while channels were off, and not counted as run */
    bool fresh;           /* something was launched since the last look */
    bool coming;          /* … while the queue was not empty */
    uint32_t unknown_seen, unknown_marked, unknown_done; /* likewise, of launches of unknown cost */
    uint64_t off_since_ns; /* 0: the channels are on */
    bool stopped;          /* since they went off: work is queued and stands still */
    bool moved;            /* … kernels ran all the same */
    bool settled;          /* … what is submitted from here on cannot run */
    uint64_t settled_launches;
    bool marked_later; /* the marks stand behind a launch of that kind */
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
    (void)atomic_compare_exchange_strong(&meter.last, &context, NULL);
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
        s->own = 0;
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

/*
 * What sampling adds to a kernel of a few microseconds is as much as the kernel. So a small memset of our
 * own is sampled alone and seventeen in a row: the sixteen more show what one takes among others.
 */
static void sample_own(const struct sl_launch *l, uint32_t count)
{
    __typeof__(&cuEventRecord) record = SL_REAL(cuEventRecord);
    __typeof__(&cuMemsetD8Async) set = SL_REAL(cuMemsetD8Async);
    struct sample *s = set ? take_sample(l->context) : NULL;
    if (!s)
        return;
    hold(s, l->stream);
    s->key = 0;
    s->own = count;
    bool ok = s->held && record(s->begin, l->stream) == CUDA_SUCCESS;
    for (uint32_t i = 0; ok && i < count; i++)
        ok = set(meter.hold_address + 2048, 0, 4, l->stream) == CUDA_SUCCESS;
    ok = ok && record(s->end, l->stream) == CUDA_SUCCESS;
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
    if (ok && held && atomic_load(&meter.calibrations) < CALIBRATIONS) {
        atomic_fetch_add(&meter.calibrations, 1);
        sample_own(l, 1);
        sample_own(l, OWN_MANY);
    }
    restore_capture(mode);
}

/* The least of several: whatever came between makes a sample longer, never shorter. */
static void learn_added(uint32_t count, uint64_t ns)
{
    uint64_t *least_ns = count == 1 ? &meter.own_one_ns : &meter.own_many_ns;
    if (ns > MOST_OWN_NS)
        return; /* somebody else's slice came between */
    if (*least_ns == 0 || ns < *least_ns)
        *least_ns = ns;
    if (!meter.own_one_ns || meter.own_many_ns <= meter.own_one_ns)
        return;
    uint64_t each = (meter.own_many_ns - meter.own_one_ns) / (OWN_MANY - 1);
    uint64_t added = meter.own_one_ns > each ? meter.own_one_ns - each : 1;
    if (added <= MOST_ADDED_NS)
        atomic_store(&meter.added_ns, added);
}

static void learn(const struct sample *s, uint64_t ns)
{
    if (s->own) {
        learn_added(s->own, ns);
        return;
    }
    uint64_t added = atomic_load(&meter.added_ns);
    added = added ? added : ADDED_NS;
    /* Something always remains: events tell time in steps of half a microsecond. */
    ns = ns > added + ns / 8 ? ns - added : ns / 8 + 1;
    struct sl_cost_guess guess = sl_cost_peek(&sl_gate_costs, s->key);
    /* A pair that was not held shows no more than an upper bound of a short kernel. */
    if (!s->held && ns < HELD_BELOW_NS && guess.known)
        return;
    /* Much longer than usual: most often somebody else's slice came between. Believed if it goes on. */
    if (guess.known && ns > 2 * guess.ns && ++meter.odd % ODD_BELIEVED != 0)
        return;
    sl_cost_learn(&sl_gate_costs, s->key, ns);
    if (!s->held && ns < HELD_BELOW_NS)
        return;
    uint64_t mean = atomic_load(&meter.mean_ns);
    atomic_store(&meter.mean_ns, mean ? (mean * 15 + ns) / 16 : ns);
}

static void let_go_late(void)
{
    uint64_t now = sl_now_ns();
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        uint64_t since = atomic_load(&meter.sample[i].held_since_ns);
        if (since && now > since + MOST_HELD_NS)
            let_go(&meter.sample[i]);
    }
}

static void collect_samples(void)
{
    __typeof__(&cuEventQuery) query = SL_REAL(cuEventQuery);
    __typeof__(&cuEventElapsedTime) elapsed = SL_REAL(cuEventElapsedTime);
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        struct sample *s = &meter.sample[i];
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
static void count(struct sl_slot *slot, enum queue queue, uint64_t span, bool seen_all)
{
    /* Behind a free gate only samples are seen: their mean stands for all. */
    bool known = meter.total_ns && (!seen_all || meter.unknown_seen == meter.unknown_done);
    uint64_t queued = meter.total_ns - meter.done_ns;
    meter.coming = queue == QUEUE_BUSY && (meter.coming || meter.fresh);
    bool deep = queued >= PLENTY_NS || (queued >= DEEP_NS && meter.coming);
    atomic_fetch_add(&slot->watched_ns, span);
    if (queue == QUEUE_BUSY && (!known || deep)) {
        uint64_t busy = known ? least(span, meter.believed_ns) : span;
        meter.believed_ns -= least(meter.believed_ns, busy);
        atomic_fetch_add(&slot->saturated_ns, busy);
        meter.uncounted_ns -= least(meter.uncounted_ns, busy);
        return;
    }
    uint64_t ran = least(meter.uncounted_ns, span);
    atomic_fetch_add(&slot->work_ns, ran);
    /* What is known to be done took no longer than this. */
    meter.uncounted_ns = least(meter.uncounted_ns - ran, queued);
}

/*
 * Before the arbiter relies on it: do kernels really stand still while their channels are off? Only a launch
 * that was made after they went off, and is done before they come back, proves the contrary: copies and
 * host functions go on meanwhile, rightly. launched: at the look before this one, so surely submitted.
 */
static void check_effect(enum queue queue, uint64_t now, uint64_t launched)
{
    if (!meter.off_since_ns || now < meter.off_since_ns + SETTLED_NS || queue == QUEUE_UNKNOWN)
        return;
    if (!meter.settled) {
        meter.settled = true;
        meter.settled_launches = meter.seen_launches;
        return;
    }
    if (queue == QUEUE_BUSY) {
        meter.stopped = true;
        return;
    }
    meter.moved |= meter.marked_later;
    meter.marked_later = launched > meter.settled_launches; /* marked anew in this look */
}

static void judge_effect(struct sl_slot *slot)
{
    if (meter.moved)
        meter.strikes++;
    else if (meter.stopped)
        meter.strikes = 0;
    if (meter.moved && meter.strikes == STRIKES) {
        sl_warn("the driver accepts that channels are taken off the GPU, and kernels run on");
        atomic_store(&slot->control, SL_CONTROL_NO_EFFECT);
    }
}

static bool metered(const struct sl_lease_page *lease)
{
    return SL_GATE_STATE(atomic_load(&lease->gate)) == SL_GATE_METER;
}

/* The estimated time of what was launched since the last look. */
static uint64_t launched_since(const struct sl_lease_page *lease, uint64_t launches)
{
    uint64_t ns = atomic_exchange(&meter.launched_ns, 0), n = launches - meter.seen_launches;
    meter.seen_launches = launches;
    /* Behind a free gate launches pass unseen: what the sampled ones took stands for them. */
    return metered(lease) ? ns : n * atomic_load(&meter.mean_ns);
}

uint64_t sl_meter_tick(struct sl_process *p, uint64_t launches, bool may_look)
{
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    struct sl_slot *slot = sl_process_slot(p);
    uint64_t now = sl_now_ns(), span = meter.looked_ns ? now - meter.looked_ns : 0;
    let_go_late(); /* also while a stream records: that may last, and wait for the thread that holds */
    if (!atomic_load(&lease->meter) && !meter.off_since_ns) {
        meter.looked_ns = 0;
        return UINT64_MAX;
    }
    uint64_t launched = meter.seen_launches, fresh = launched_since(lease, launches);
    meter.unknown_seen = atomic_load(&meter.unknown);
    enum queue queue = may_look ? look_at_all() : QUEUE_UNKNOWN;
    check_effect(queue, now, launched);
    if (may_look)
        collect_samples();
    meter.total_ns += fresh;
    meter.uncounted_ns += fresh;
    meter.fresh = fresh > 0;
    meter.believed_ns = least(meter.believed_ns + BELIEVED * fresh, MOST_BELIEVED_NS);
    if (queue == QUEUE_UNKNOWN) /* an older driver: what was launched is believed to be in the queue */
        queue = meter.total_ns - meter.done_ns > span ? QUEUE_BUSY : QUEUE_EMPTY;
    if (queue == QUEUE_EMPTY) {
        meter.done_ns = meter.marked_ns;
        meter.unknown_done = meter.unknown_marked;
    }
    meter.marked_ns = meter.total_ns;
    meter.unknown_marked = meter.unknown_seen;
    if (!meter.off_since_ns && span)
        count(slot, queue, span, metered(lease));
    meter.looked_ns = now;
    atomic_store(&meter.pending, queue == QUEUE_BUSY);
    atomic_store(&slot->pending, queue == QUEUE_BUSY);
    atomic_store(&slot->launches, launches);
    /* Work of unknown cost may be anything: then what was submitted is no bound of what is used. */
    bool bounded = metered(lease) && meter.unknown_seen == meter.unknown_done;
    atomic_fetch_add(&slot->submitted_ns, bounded ? fresh : fresh + UNBOUNDED_NS);
    atomic_store(&slot->metered_ns, now);
    return LOOK_NS;
}

/* --- orders ------------------------------------------------------------------------------------ */

/* Once a context is there: does the driver let us? */
static void try_control(struct sl_slot *slot, uint32_t slice_us)
{
    uint32_t groups = sl_channels_groups(), status = 0;
    if (!groups && !atomic_load(&meter.last))
        return; /* the context went meanwhile, and its groups with it */
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

static void go_off(struct sl_process *p, struct sl_slot *slot, uint64_t now)
{
    uint32_t status = sl_channels_set_off(true);
    refused(slot, status); /* some may be off all the same: they come back like the others */
    /* What ran until here was used. */
    if (meter.looked_ns && now > meter.looked_ns)
        count(slot, atomic_load(&meter.pending) ? QUEUE_BUSY : QUEUE_UNKNOWN, now - meter.looked_ns,
              metered(atomic_load(&p->lease)));
    meter.off_since_ns = now;
    meter.stopped = meter.moved = meter.settled = meter.marked_later = false;
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
    if (!atomic_load(&meter.last) && !meter.off_since_ns)
        return UINT64_MAX; /* nothing was launched yet */
    if (atomic_load(&slot->control) == SL_CONTROL_UNKNOWN ||
        (atomic_load(&slot->control) == SL_CONTROL_NO_GROUP && sl_channels_groups()))
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
        go_off(p, slot, now);
        return LOOK_NS;
    }
    if (slice != meter.slice_us) {
        meter.slice_us = slice;
        refused(slot, sl_channels_slice(slice));
    }
    atomic_store(&slot->groups, sl_channels_groups());
    return UINT64_MAX;
}
