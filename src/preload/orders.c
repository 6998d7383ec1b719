/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/orders.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "policy/steer.h"
#include "policy/times.h"
#include "preload/attach.h"
#include "preload/channels.h"
#include "preload/lock.h"

#define STRIKE 2U
#define STRUCK 3U

static struct {
    struct sl_lock lock;   /* of the next two; never held in a driver call */
    uint64_t off_since_ns; /* 0: the channels are on */
    uint64_t off_ns;       /* of all times off that are over */
    /* used only by the watch thread */
    uint32_t slice_us; /* as set last */
    uint32_t strikes;
    /* written by the look thread: in the time off that began then, … */
    _Atomic uint64_t stopped_in; /* … queued work stood still */
    _Atomic uint64_t moved_in;   /* … kernels ran although the channels were off */
    /* used only by the look thread: in the time off that began then, … */
    uint64_t settled_in;
    uint64_t settled_launches; /* … launches after this number cannot run */
} orders;

void sl_orders_forget(void)
{
    memset(&orders, 0, sizeof(orders));
}

static uint64_t off_since(void)
{
    sl_lock_take(&orders.lock);
    uint64_t since = orders.off_since_ns;
    sl_lock_drop(&orders.lock);
    return since;
}

bool sl_orders_off(void)
{
    return off_since() != 0;
}

uint64_t sl_orders_off_ns(uint64_t now_ns)
{
    sl_lock_take(&orders.lock);
    uint64_t since = orders.off_since_ns, sum = orders.off_ns;
    sl_lock_drop(&orders.lock);
    return sum + (since && now_ns > since ? now_ns - since : 0);
}

/* since_ns: 0 when they are on again, at now_ns. */
static void note_off(uint64_t since_ns, uint64_t now_ns)
{
    sl_lock_take(&orders.lock);
    if (orders.off_since_ns && now_ns > orders.off_since_ns)
        orders.off_ns += now_ns - orders.off_since_ns;
    orders.off_since_ns = since_ns;
    sl_lock_drop(&orders.lock);
}

/*
 * Only a launch that was made after the channels went off, and is done before they come back, proves that the order has
 * no effect: copies and host functions rightly go on meanwhile. The check itself may have waited in the driver until
 * the channels were on again: then this is another time off, or none.
 */
void sl_orders_check(enum sl_queue queue, const struct sl_mark *done, uint64_t launches,
                     uint64_t now_ns)
{
    uint64_t since = off_since();
    if (!since || now_ns < since + SL_ORDERS_SETTLED_NS || queue == SL_QUEUE_UNKNOWN)
        return;
    if (orders.settled_in != since) {
        orders.settled_in = since;
        orders.settled_launches = launches;
        return;
    }
    if (queue == SL_QUEUE_BUSY)
        atomic_store(&orders.stopped_in, since);
    if (done->surely > orders.settled_launches)
        atomic_store(&orders.moved_in, since);
}

/* One time off is short, and the queue may be longer: kernels that ran are noticed only now and then. So a time with
 * such kernels weighs as much as two times without. */
static void judge_effect(struct sl_slot *slot, uint64_t since_ns)
{
    uint32_t before = orders.strikes;
    if (atomic_load(&orders.moved_in) == since_ns)
        orders.strikes += STRIKE;
    else if (atomic_load(&orders.stopped_in) == since_ns && orders.strikes > 0)
        orders.strikes--;
    if (before < STRUCK && orders.strikes >= STRUCK) {
        sl_warn("the driver accepts that channels are taken off the GPU, and kernels run on");
        atomic_store(&slot->control, SL_CONTROL_NO_EFFECT);
    }
}

/* Once there is a context: does the driver allow control? */
static void try_control(struct sl_slot *slot, uint32_t slice_us)
{
    uint32_t groups = sl_channels_groups(), status = 0;
    if (!groups && !sl_marks_any())
        return; /* the context ended meanwhile, and its groups with it */
    if (groups)
        status = sl_channels_slice(slice_us);
    atomic_store(&slot->control_status, status);
    atomic_store(&slot->groups, groups);
    orders.slice_us = slice_us;
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
    note_off(now, now);
    atomic_store(&slot->off, 1);
}

static bool come_back(struct sl_slot *slot, uint64_t now)
{
    uint64_t since = off_since();
    note_off(0, now); /* first: kernels that run from here on prove nothing */
    uint32_t status = sl_channels_set_off(false);
    if (status) {
        refused(slot, status);
        note_off(now, now);
        return false; /* try again in a moment: never leave them off */
    }
    judge_effect(slot, since);
    atomic_store(&slot->off, 0);
    return true;
}

static uint64_t stay_off(struct sl_slot *slot, uint64_t until, uint64_t now)
{
    if (now >= until)
        return come_back(slot, now) ? 0 : SL_ORDERS_AGAIN_NS;
    return until - now;
}

/* 0: the channels are to be on. A time further away than any order may say is no order. */
static uint64_t off_until(const struct sl_lease_page *lease, uint64_t now)
{
    uint64_t until = atomic_load(&lease->off_until_ns);
    return until > now && until - now <= SL_STEER_MOST_OFF_NS ? until : 0;
}

uint64_t sl_orders_obey(struct sl_process *p)
{
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    struct sl_slot *slot = sl_process_slot(p);
    uint32_t slice = atomic_load(&lease->slice_us);
    uint64_t now = sl_now_ns(), until = off_until(lease, now);
    bool off = sl_orders_off();
    if (!sl_marks_any() && !off)
        return UINT64_MAX; /* no launch yet */
    if (atomic_load(&slot->control) == SL_CONTROL_UNKNOWN ||
        (atomic_load(&slot->control) == SL_CONTROL_NO_GROUP && sl_channels_groups()))
        try_control(slot, slice);
    bool works = atomic_load(&slot->control) == SL_CONTROL_WORKS && sl_process_connected();
    if (off)
        return stay_off(slot, works ? until : 0, now);
    if (!works)
        return UINT64_MAX;
    if (until > now) {
        go_off(slot, now);
        return SL_ORDERS_AGAIN_NS;
    }
    if (slice != orders.slice_us) {
        orders.slice_us = slice;
        refused(slot, sl_channels_slice(slice));
    }
    atomic_store(&slot->groups, sl_channels_groups());
    return UINT64_MAX;
}
