/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steering: tells the hardware how to share a GPU. The driver's own time slices share the GPU between tenants; nothing
 * here holds a launch back. A tenant can get two orders: the length of its slices, and to take its channels off the GPU
 * until a given time.
 *
 * Pure code: no I/O, no clock, no globals, nothing is allocated after create. The caller reports the tenants' use, asks
 * sl_steer_decide() for orders, and carries them out. Not thread-safe.
 *
 * Promises, where the driver obeys:
 *  - two or more tenants that keep the GPU busy get its time in the ratio of their requests;
 *  - a tenant with a limit uses no more GPU time than that, counted over periods of 50 ms. Time that it
 *    leaves idle is not counted;
 *  - a tenant that has work and runs slower than its request of the speed it has alone (it waits for
 *    each short kernel, so it loses its slice each time) gets windows in which the others are off;
 *  - a paused tenant is off, and the others share its part;
 *  - beside a tenant of a higher priority that was active lately, tenants of lower priority run in tiny
 *    slices and one at a time;
 *  - no tenant is held back otherwise. A tenant on several GPUs is taken off all of them together, and all
 *    limits are applied in the same periods, so that tenants that wait for each other meet.
 */
#ifndef SLUICE_POLICY_STEER_H
#define SLUICE_POLICY_STEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SL_STEER_MAX_TENANTS 1024U
#define SL_STEER_MAX_GPUS    16U
#define SL_STEER_NEVER       UINT64_MAX

#define SL_STEER_PERIOD_NS   50000000ULL /* limits, windows and slices change in this rhythm */
#define SL_STEER_DEFAULT_US  2048U       /* the slice that the driver itself gives */
/* No order takes a tenant off for longer. The process that carries it out checks this limit, too. A longer time off
 * needs another order before the last one ends. */
#define SL_STEER_MOST_OFF_NS 1000000000ULL

struct sl_steer_spec {
    uint32_t gpu_mask;
    uint32_t request_permille; /* 0: no request, it gets the time that others leave */
    uint32_t limit_permille;   /* 1000 or more: no limit */
    uint32_t priority;         /* higher numbers go first */
    bool paused;               /* off the GPU until this is false again; others share its part */
    bool billed; /* its use is counted also where nothing depends on it: alone, without a limit */
};

/* The sum over a tenant's processes; times and counts only grow. */
struct sl_steer_seen {
    uint64_t saturated_ns; /* time in which work was queued without a pause, channels on */
    uint64_t work_ns;      /* GPU time of its kernels outside that */
    uint64_t done_ns;      /* estimated GPU time of all finished kernels. Not reported: 0 */
    uint64_t launches;
    uint32_t groups; /* channel groups that keep the GPU busy, at least 1 counts */
    bool active;     /* launched something within the last second, or has work queued */
    bool pending;    /* has work queued now */
};

/* An order for a tenant. Sent when it changes. */
struct sl_steer_order {
    uint32_t id;
    uint32_t slice_us;     /* of each of its compute groups */
    uint64_t off_until_ns; /* its channels are off from now until here; 0: they are on */
    bool meter;            /* its processes must report their use */
};

struct sl_steer_stats {
    uint32_t share_1s_permille, share_60s_permille;
    uint64_t used_ns; /* GPU time in all */
    uint64_t off_ns;  /* time that it was held off the GPU */
    uint64_t debt_ns; /* GPU time over its limit */
    uint32_t slice_us;
    bool heavy;               /* keeps the GPU busy */
    uint32_t window_permille; /* of the time others are off for it */
};

struct sl_steer;

struct sl_steer *sl_steer_create(void) SL_MUST_CHECK;
void sl_steer_destroy(struct sl_steer *steer);

/* -EINVAL, -ERANGE (id), -EEXIST. */
int sl_steer_add(struct sl_steer *steer, uint32_t id, const struct sl_steer_spec *spec,
                 uint64_t now_ns, struct sl_err *err) SL_MUST_CHECK;
/* In force at the next decide. -EINVAL, -ENOENT. */
int sl_steer_set(struct sl_steer *steer, uint32_t id, const struct sl_steer_spec *spec,
                 struct sl_err *err) SL_MUST_CHECK;
/* Unknown ids are ignored here and below: a report may be late. */
void sl_steer_remove(struct sl_steer *steer, uint32_t id);

/* The use of its processes up to now. Every value is checked: it may be a lie. */
void sl_steer_report(struct sl_steer *steer, uint32_t id, const struct sl_steer_seen *seen);

/* Charges the use since the last call, and fills up to max orders (at least 1); returns their number. *ret_next_ns:
 * when to report and decide again (SL_STEER_NEVER: when a tenant becomes active; now_ns: there was no room for all
 * orders). A clock that steps back, or a day ahead, counts as a new clock: no time is charged, and everything goes on
 * from there. */
size_t sl_steer_decide(struct sl_steer *steer, uint64_t now_ns, struct sl_steer_order *orders,
                       size_t max, uint64_t *ret_next_ns);

/* Was it measured, since the last call, that slices have no effect between two tenants? Then their ids. */
bool sl_steer_no_effect(struct sl_steer *steer, uint32_t ret_ids[2]);

/* -ENOENT if there is no such tenant. */
int sl_steer_stats(const struct sl_steer *steer, uint32_t id,
                   struct sl_steer_stats *ret) SL_MUST_CHECK;

#endif
