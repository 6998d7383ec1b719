/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cards of this node, from NVML. Every NVML call is made on a thread of its own: one that
 * hangs is noticed and said, and holds up nobody. Callbacks run on the loop, never inside a call
 * to sl_devices_* but the one said at sl_devices_destroy, which must not be called from a
 * callback.
 *
 * Asking NVML costs a tenant that keeps the card busy 1.6-2.2 % when done once a second (measured
 * on an H200), hence the slow poll: what is urgent comes as an event.
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

/* Zero is the default of everything. */
struct sl_devices_options {
    const char *driver_root; /* where NVML is found; NULL, "" or "/": the machine's own */
    bool fail_on_init_error; /* no NVML at the start: say so and give up, instead of trying on */
    bool no_events;          /* no XIDs: health checks are off */
    uint64_t poll_ns;        /* 30 s */
    uint64_t stall_ns;       /* a call longer than this is stalled: 10 s */
    uint64_t retry_ns;       /* until NVML is tried again, doubling up to 60 s: 1 s */
    uint64_t stop_wait_ns;   /* how long destroy waits for the threads: 1 s */
    int event_wait_ms;       /* how long one wait for XIDs is: 500 */
    /* Tests bring their own cards: opens what sl_gpu_open would. */
    int (*open)(void *open_data, struct sl_gpu **ret, struct sl_err *err);
    void *open_data;
};

/* Any of them may be NULL. */
struct sl_devices_ops {
    /* Every read that succeeded, changed or not, before `inventory`. asked_ns: loop time at which
     * the question was put; the answer is younger. */
    void (*polled)(void *data, const struct sl_inventory *inv, uint64_t asked_ns);
    /* The first snapshot and every one that differs from the one before. Borrowed: it stays valid
     * until the next call of `inventory` returns. A card that has gone stays in it, `lost`, at its
     * place, with its MIG devices. */
    void (*inventory)(void *data, const struct sl_inventory *inv);
    /* uuid: the card's; NULL where the driver did not name one we know. Then a read follows. */
    void (*xid)(void *data, const char *uuid, const struct sl_gpu_event *event);
    /* NVML cannot be opened, at the start or later. retry_ns 0: it is not tried again
     * (fail_on_init_error, and no card was ever seen). */
    void (*no_driver)(void *data, const struct sl_err *err, uint64_t retry_ns);
    /* A read failed, or XIDs cannot be had; the last snapshot stands. Said once a text. */
    void (*trouble)(void *data, const struct sl_err *err);
    /* A call has not returned for that long: the last snapshot stands, jobs are refused until
     * `resumed`. Said once. */
    void (*stalled)(void *data, const char *what, uint64_t for_ns);
    void (*resumed)(void *data, uint64_t after_ns);
};

/* Returns at once; the first snapshot comes by callback. options and its strings are copied. */
int sl_devices_create(struct sl_loop *loop, const struct sl_devices_options *options,
                      const struct sl_devices_ops *ops, void *data, struct sl_devices **ret,
                      struct sl_err *err) SL_MUST_CHECK;
/* Jobs that have not begun get done(-ECANCELED) from here. Waits stop_wait_ns at most: a thread
 * that hangs inside NVML is left behind and cleans up when it returns. NULL is fine. */
void sl_devices_destroy(struct sl_devices *devices);

/* The last snapshot; NULL before the first. */
const struct sl_inventory *sl_devices_inventory(const struct sl_devices *devices);

/* Reads now instead of at the next poll. Many calls at once make one read. */
void sl_devices_refresh(struct sl_devices *devices);

/*
 * Runs fn(gpu, arg, err) on the worker thread, one job at a time, in order; then done(arg, result,
 * err) on the loop, once, with fn's result. Refused at once (and done not called) while NVML is
 * not open (-ENODEV) or a call is stalled (-ETIMEDOUT). A job accepted and never run gets done
 * with -ETIMEDOUT (a call before it stalled), -ENODEV or -ECANCELED (the owner goes). A job that
 * is itself stuck when the owner goes is left with its thread: its done is never called, arg
 * stays.
 */
typedef int sl_devices_job_fn(struct sl_gpu *gpu, void *arg, struct sl_err *err);
typedef void sl_devices_done_fn(void *arg, int result, const struct sl_err *err);
int sl_devices_submit(struct sl_devices *devices, sl_devices_job_fn *fn, sl_devices_done_fn *done,
                      void *arg, struct sl_err *err) SL_MUST_CHECK;

/* For jobs: NVML's number of a card now. Numbers move when a card goes; -ENOENT: not there. */
int sl_devices_find(struct sl_gpu *gpu, const char *uuid, size_t *ret,
                    struct sl_err *err) SL_MUST_CHECK;

#endif
