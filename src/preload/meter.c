/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/meter.h"

#include <string.h>

#include "base/clock.h"
#include "policy/times.h"
#include "preload/attach.h"
#include "preload/gate.h"
#include "preload/marks.h"
#include "preload/orders.h"
#include "preload/sample.h"
#include "preload/stamps.h"
#include "preload/words.h"

static struct {
    _Atomic uint64_t launched_ns; /* estimates of launches since the last tick */
    _Atomic uint32_t unknown;     /* launches whose cost was not known */
    _Atomic bool pending;
    /* used only by the look thread */
    uint64_t looked_ns;    /* time of the last tick; 0: the time before now does not count */
    uint64_t off_ns;       /* time with channels off, up to the last tick */
    struct sl_mark all;    /* all launches, as of the last tick … */
    struct sl_mark done;   /* … and those known to be done */
    uint64_t drained_ns;   /* done when the queue was last empty */
    uint64_t believed_ns;  /* how long the queue still counts as busy */
    uint64_t uncounted_ns; /* launched, also while channels were off, and not counted as run */
    bool coming;           /* launches came while the queue was not empty */
} meter;

void sl_meter_launched(CUcontext context, uint64_t estimate_ns, bool known)
{
    sl_marks_watch(context);
    atomic_fetch_add_explicit(&meter.launched_ns, estimate_ns, memory_order_relaxed);
    if (!known)
        atomic_fetch_add_explicit(&meter.unknown, 1, memory_order_relaxed);
}

void sl_meter_context_gone(CUcontext context)
{
    sl_stamps_context_gone(context);
    sl_words_context_gone(context);
    sl_marks_context_gone(context);
    sl_sample_context_gone(context);
}

void sl_meter_forget(void)
{
    memset(&meter, 0, sizeof(meter));
    sl_stamps_forget();
    sl_words_forget();
    sl_marks_forget();
    sl_sample_forget();
    sl_orders_forget();
}

bool sl_meter_pending(void)
{
    return atomic_load(&meter.pending);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool metered(const struct sl_lease_page *lease)
{
    return SL_GATE_STATE(atomic_load(&lease->gate)) == SL_GATE_METER;
}

/* Is the cost of all queued work known? Behind a free gate only samples are seen, and their mean stands for all. */
static bool costs_known(const struct sl_lease_page *lease)
{
    return meter.all.work_ns && (!metered(lease) || meter.all.unknown == meter.done.unknown);
}

/*
 * The span between two ticks. Either the queue was deep all the time, and the process used all the time of its slices;
 * or kernels came and went, and used their own time.
 */
static void count(struct sl_slot *slot, enum sl_queue queue, uint64_t span, bool known)
{
    uint64_t in_a_row = meter.all.work_ns - meter.drained_ns;
    bool deep = in_a_row >= SL_METER_PLENTY_NS || (in_a_row >= SL_METER_DEEP_NS && meter.coming);
    atomic_fetch_add(&slot->watched_ns, span);
    if (queue == SL_QUEUE_BUSY && (!known || deep)) {
        uint64_t busy = known ? least(span, meter.believed_ns) : span;
        meter.believed_ns -= least(meter.believed_ns, busy);
        atomic_fetch_add(&slot->saturated_ns, busy);
        meter.uncounted_ns -= least(meter.uncounted_ns, busy);
        return;
    }
    uint64_t ran = least(meter.uncounted_ns, span);
    atomic_fetch_add(&slot->work_ns, ran);
    /* The finished work took no longer than this. */
    meter.uncounted_ns = least(meter.uncounted_ns - ran, meter.all.work_ns - meter.done.work_ns);
}

/* The estimated time of the launches since the last tick. */
static uint64_t launched_since(const struct sl_lease_page *lease, uint64_t launches)
{
    uint64_t ns = atomic_exchange(&meter.launched_ns, 0), n = launches - meter.all.launches;
    meter.all.surely =
        meter.all.launches; /* counted before they are submitted, but that was a tick ago */
    meter.all.launches = launches;
    meter.all.unknown = atomic_load(&meter.unknown);
    /* Behind a free gate launches are not measured: the mean of the samples stands for them. */
    return metered(lease) ? ns : n * sl_sample_mean_ns();
}

/* A driver without such events, or a stream that records: the launches count as queued for their estimated time. */
static enum sl_queue believe(uint64_t on_ns)
{
    if (meter.all.work_ns - meter.done.work_ns > on_ns)
        return SL_QUEUE_BUSY;
    meter.done = meter.all;
    return SL_QUEUE_EMPTY;
}

/* The watch thread's clock may be read a moment before ours: no time counts twice. */
static uint64_t off_since_last(uint64_t now_ns)
{
    uint64_t off_ns = sl_orders_off_ns(now_ns), before_ns = meter.off_ns;
    meter.off_ns = off_ns > before_ns ? off_ns : before_ns;
    return meter.off_ns - before_ns;
}

uint64_t sl_meter_tick(struct sl_process *p, uint64_t launches, bool may_look)
{
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    struct sl_slot *slot = sl_process_slot(p);
    uint64_t now = sl_now_ns(), span = meter.looked_ns ? now - meter.looked_ns : 0;
    uint64_t on = span - least(span, off_since_last(now));
    if (!atomic_load(&lease->meter) && !sl_orders_off()) {
        meter.looked_ns = 0;
        return UINT64_MAX;
    }
    uint64_t fresh = launched_since(lease, launches), was_done_ns = meter.done.work_ns;
    meter.all.work_ns += fresh;
    meter.uncounted_ns += fresh;
    meter.believed_ns = least(meter.believed_ns + SL_METER_BELIEVED * fresh, SL_METER_BELIEVED_NS);
    enum sl_queue queue = SL_QUEUE_UNKNOWN;
    if (may_look) {
        queue = sl_marks_look(&meter.all, metered(lease), &meter.done);
        sl_sample_collect();
    }
    sl_orders_check(queue, &meter.done, launches, now);
    if (queue == SL_QUEUE_UNKNOWN)
        queue = believe(on);
    if (queue == SL_QUEUE_EMPTY)
        meter.drained_ns = meter.done.work_ns;
    meter.coming = queue == SL_QUEUE_BUSY && (meter.coming || fresh > 0);
    bool known = costs_known(lease);
    if (on)
        count(slot, queue, on, known);
    meter.looked_ns = now;
    atomic_store(&meter.pending, queue == SL_QUEUE_BUSY);
    atomic_store(&slot->pending, queue == SL_QUEUE_BUSY);
    atomic_store(&slot->launches, launches);
    /* Work of unknown cost may take any time: then estimates are no limit of the use. */
    uint64_t done = meter.done.work_ns - was_done_ns;
    atomic_fetch_add(&slot->done_ns, (known && metered(lease)) || done > span ? done : span);
    atomic_store(&slot->metered_ns, now);
    return SL_METER_LOOK_NS;
}
