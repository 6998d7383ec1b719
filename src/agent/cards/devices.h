/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cards of this node, from NVML. A separate thread makes every NVML call: a call that hangs is noticed and
 * reported, and blocks nothing else. Callbacks run on the loop, never from inside sl_devices_*, except in
 * sl_devices_destroy, which must not be called from a callback.
 *
 * A question to NVML every second costs a tenant that keeps the card busy 1.6-2.2 % (measured on an H200), hence the
 * slow poll: urgent changes come as events.
 */
#ifndef SLUICE_AGENT_CARDS_DEVICES_H
#define SLUICE_AGENT_CARDS_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "gpu/gpu.h"
#include "gpu/inventory.h"

struct sl_devices;

/* Zero means the default in every field. */
struct sl_devices_options {
    const char *driver_root; /* where NVML is found; NULL, "" or "/": the machine's own */
    bool fail_on_init_error; /* no NVML at the start: report it and give up, do not retry */
    bool no_events;          /* no XIDs: health checks are off */
    uint64_t poll_ns;        /* 30 s */
    uint64_t stall_ns;       /* a call longer than this is stalled: 10 s */
    uint64_t retry_ns;       /* until NVML is opened again, doubling up to 60 s: 1 s */
    uint64_t stop_wait_ns;   /* how long destroy waits for the threads: 1 s */
    int event_wait_ms;       /* how long one wait for XIDs is: 500 */
    /* Tests bring their own cards: this replaces sl_gpu_open. */
    int (*open)(void *open_data, struct sl_gpu **ret, struct sl_err *err);
    void *open_data;
};

/* Any of them may be NULL. */
struct sl_devices_ops {
    /* After every successful read, changed or not, before `inventory`. asked_ns: loop time of the question; the answer
     * is younger. */
    void (*polled)(void *data, const struct sl_inventory *inv, uint64_t asked_ns);
    /* The first snapshot, and each one that differs from its predecessor. Borrowed: valid until the next call of
     * `inventory` returns. A card that is gone stays in its place, marked `lost`, with its MIG devices. */
    void (*inventory)(void *data, const struct sl_inventory *inv);
    /* uuid: the card's; NULL where the driver named no known card. Then a read follows. */
    void (*xid)(void *data, const char *uuid, const struct sl_gpu_event *event);
    /* NVML cannot be opened, at the start or later. retry_ns 0: no further attempt (fail_on_init_error, and no card was
     * ever seen). */
    void (*no_driver)(void *data, const struct sl_err *err, uint64_t retry_ns);
    /* A read failed, or there are no XIDs; the last snapshot stays valid. Each text is reported once. */
    void (*trouble)(void *data, const struct sl_err *err);
    /* A call has not returned for that long: the last snapshot stays valid, jobs are refused until `resumed`. Reported
     * once. */
    void (*stalled)(void *data, const char *what, uint64_t for_ns);
    void (*resumed)(void *data, uint64_t after_ns);
};

/* Returns at once; the first snapshot comes by callback. The options and their strings are copied. */
int sl_devices_create(struct sl_loop *loop, const struct sl_devices_options *options,
                      const struct sl_devices_ops *ops, void *data, struct sl_devices **ret,
                      struct sl_err *err) SL_MUST_CHECK;
/* Jobs that have not begun get done(-ECANCELED) from this call. Waits stop_wait_ns at most: a thread that hangs inside
 * NVML is left behind and cleans up when it returns. NULL is fine. */
void sl_devices_destroy(struct sl_devices *devices);

/* The last snapshot; NULL before the first. */
const struct sl_inventory *sl_devices_inventory(const struct sl_devices *devices);

/* Reads now instead of at the next poll. Several calls make one read. */
void sl_devices_refresh(struct sl_devices *devices);

/* The same, and opens NVML again for it: NVML sees cards that were bound to the driver later only then. */
void sl_devices_rescan(struct sl_devices *devices);

/*
 * Runs fn(gpu, arg, err) on the worker thread, one job at a time, in order; then done(arg, result, err) on the loop,
 * once, with fn's result. Refuses the job at once (done is not called) while NVML is not open (-ENODEV) or a call is
 * stalled (-ETIMEDOUT). An accepted job that never runs gets done with -ETIMEDOUT (a call before it stalled), -ENODEV
 * or -ECANCELED (sl_devices_destroy). A job that hangs during sl_devices_destroy stays with its thread: its done is
 * never called, arg stays.
 */
typedef int sl_devices_job_fn(struct sl_gpu *gpu, void *arg, struct sl_err *err);
typedef void sl_devices_done_fn(void *arg, int result, const struct sl_err *err);
int sl_devices_submit(struct sl_devices *devices, sl_devices_job_fn *fn, sl_devices_done_fn *done,
                      void *arg, struct sl_err *err) SL_MUST_CHECK;

/* For jobs: NVML's current number of a card. Numbers change when a card goes; -ENOENT: the card is not there. */
int sl_devices_find(struct sl_gpu *gpu, const char *uuid, size_t *ret,
                    struct sl_err *err) SL_MUST_CHECK;

#endif
