/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process as a member of its tenant. It attaches at the first CUDA or NVML call, never in a constructor: a program
 * that does not use the GPU pays nothing for libsluice.
 */
#ifndef SLUICE_PRELOAD_ATTACH_H
#define SLUICE_PRELOAD_ATTACH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "sluice/pages.h"

enum sl_mode {
    SL_MODE_NONE,    /* no tenant: all calls pass through unchanged */
    SL_MODE_TENANT,  /* attached; stays so when the arbiter dies */
    SL_MODE_REFUSED, /* a tenant whose arbiter could not be reached: no call may run unlimited */
};

struct sl_process {
    enum sl_mode mode;
    /* In tenant mode never NULL. After an arbiter restart they may point to new pages; the old pages stay mapped, so a
     * reader may go on with its pointer. */
    struct sl_lease_page *_Atomic lease;
    struct sl_ledger_page *_Atomic ledger;
    _Atomic uint32_t slot;
    _Atomic int doorbell_fd; /* an eventfd; the number mostly stays when the arbiter comes back */
    _Atomic uint64_t doorbell_device, doorbell_inode; /* of its file while it is ours */
    _Atomic uint32_t host_pid;
};

extern struct sl_process *_Atomic sl_process_current;
struct sl_process *sl_process_attach(void);

/* The process; attaches it first if needed. Never NULL: look at ->mode, or at ->lease (NULL unless in tenant mode). One
 * load once attached. */
static inline struct sl_process *sl_process_get(void)
{
    struct sl_process *p = atomic_load_explicit(&sl_process_current, memory_order_acquire);
    return __builtin_expect(p != NULL, 1) ? p : sl_process_attach();
}

/* Tries again after a refusal (cuInit called again). */
struct sl_process *sl_process_retry(void);

/* This process's slot in the ledger; tenant mode only. */
static inline struct sl_slot *sl_process_slot(const struct sl_process *p)
{
    return &atomic_load_explicit(&p->ledger, memory_order_relaxed)
                ->slot[atomic_load_explicit(&p->slot, memory_order_relaxed) % SL_MAX_SLOTS];
}

/* Asks the arbiter to measure the process's overhead on a GPU of the lease. With `wait`, returns when it is measured
 * (true), or after two seconds, or at once when there is no arbiter. `put_by_units` were charged in advance for the
 * overhead: they are returned when the arbiter has answered. */
bool sl_process_measure(struct sl_process *p, uint32_t gpu, bool wait, uint64_t put_by_units);

/*
 * The one way to a refusal: calls `attempt` until it returns true, or until the figures that it failed by are certain
 * (then false). They are not certain
 * - while memory of another process may count twice (sl_lease_page.settling),
 * - for a few seconds after the arbiter ended: the limit may have been raised by an arbiter that ended before this
 *   process was attached to it, and memory of dead processes still counts.
 * Then this asks the arbiter to measure again, or waits a little for the next arbiter: no longer than until four seconds
 * after the beginning of the first attempt. The last attempt is always made after the figures were found certain: the
 * process may have come back to an arbiter between an attempt and that question.
 */
typedef bool sl_attempt(struct sl_process *p, int gpu, void *arg);
bool sl_process_attempt(struct sl_process *p, int gpu, sl_attempt *attempt, void *arg);

/* Is the process connected to an arbiter now? */
bool sl_process_connected(void);

/* Call this before a refusal: a new arbiter may have raised the limit, and this process may know only the old limit.
 * Connects now instead of at the next regular attempt. True if that changed anything. Returns at once where the
 * connection is up or no arbiter listens; within a handshake's time limit in any case. Not for the watch thread, and
 * not with a lock held that the watch thread takes. */
bool sl_process_catch_up(void);

/* ---- the watch thread, one per attached process ---- */

/* `poll` runs in the watch thread whenever the thread wakes, and again after the ns it returns (UINT64_MAX: when
 * kicked). Set it before or after attaching; NULL removes it. */
void sl_watch_set_poll(uint64_t (*poll)(struct sl_process *p));
void sl_watch_kick(void);

#endif
