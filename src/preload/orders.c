/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/orders.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "policy/steer.h"
#include "preload/attach.h"
#include "preload/channels.h"
#include "preload/meter.h"

#define AGAIN_NS   SL_NS_PER_MS
/* This long after channels went off, queued work stands still. */
#define SETTLED_NS (3 * SL_NS_PER_MS)
#define STRIKE     2U
#define STRUCK     3U

static struct {
    uint64_t off_since_ns; /* 0: the channels are on */
    uint32_t slice_us;     /* as set last */
    uint32_t strikes;
    /* since the channels went off: */
    bool settled;              /* work submitted from here on cannot run … */
    uint64_t settled_launches; /* … that is, the launches after this number */
    bool stopped;              /* work is queued and stands still */
    bool moved;                /* kernels ran although the channels were off */
} orders;

void sl_orders_forget(void)
{
    memset(&orders, 0, sizeof(orders));
}

bool sl_orders_off(void)
{
    return orders.off_since_ns != 0;
}

/*
 * Only a launch that was made after the channels went off, and is done before they come back, proves that the order has
 * no effect: copies and host functions rightly go on meanwhile.
 */
void sl_orders_check(enum sl_queue queue, const struct sl_mark *done, uint64_t launches,
                     uint64_t now_ns)
{
    if (!orders.off_since_ns || now_ns < orders.off_since_ns + SETTLED_NS ||
        queue == SL_QUEUE_UNKNOWN)
        return;
    if (!orders.settled) {
        orders.settled = true;
        orders.settled_launches = launches;
        return;
    }
    orders.stopped |= queue == SL_QUEUE_BUSY;
    orders.moved |= done->surely > orders.settled_launches;
}

/* One time off is short, and the queue may be longer: kernels that ran are noticed only now and then. So a time with
 * such kernels weighs as much as two times without. */
static void judge_effect(struct sl_slot *slot)
{
    uint32_t before = orders.strikes;
    if (orders.moved)
        orders.strikes += STRIKE;
    else if (orders.stopped && orders.strikes > 0)
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

static void go_off(struct sl_process *p, struct sl_slot *slot, uint64_t now)
{
    uint32_t status = sl_channels_set_off(true);
    refused(slot, status); /* some may be off all the same: they come back like the others */
    sl_meter_off(p, now);
    orders.off_since_ns = now;
    orders.stopped = orders.moved = orders.settled = false;
    atomic_store(&slot->off, 1);
}

static bool come_back(struct sl_slot *slot, uint64_t now)
{
    uint32_t status = sl_channels_set_off(false);
    if (status) {
        refused(slot, status);
        return false; /* try again in a moment: never leave them off */
    }
    judge_effect(slot);
    orders.off_since_ns = 0;
    sl_meter_on(now);
    atomic_store(&slot->off, 0);
    return true;
}

static uint64_t stay_off(struct sl_slot *slot, uint64_t until, uint64_t now)
{
    if (now >= until)
        return come_back(slot, now) ? 0 : AGAIN_NS;
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
    if (!sl_marks_any() && !orders.off_since_ns)
        return UINT64_MAX; /* no launch yet */
    if (atomic_load(&slot->control) == SL_CONTROL_UNKNOWN ||
        (atomic_load(&slot->control) == SL_CONTROL_NO_GROUP && sl_channels_groups()))
        try_control(slot, slice);
    bool works = atomic_load(&slot->control) == SL_CONTROL_WORKS && sl_process_connected();
    if (orders.off_since_ns)
        return stay_off(slot, works ? until : 0, now);
    if (!works)
        return UINT64_MAX;
    if (until > now) {
        go_off(p, slot, now);
        return AGAIN_NS;
    }
    if (slice != orders.slice_us) {
        orders.slice_us = slice;
        refused(slot, sl_channels_slice(slice));
    }
    atomic_store(&slot->groups, sl_channels_groups());
    return UINT64_MAX;
}
