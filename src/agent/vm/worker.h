/* SPDX-License-Identifier: Apache-2.0 */
/* Runs functions that may block for ever, one after the other, on a thread of its own; see ADR 17. */
#ifndef SLUICE_AGENT_VM_WORKER_H
#define SLUICE_AGENT_VM_WORKER_H

#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"

struct sl_worker;

struct sl_worker_task {
    void (*run)(void *arg);  /* on the thread */
    void (*done)(void *arg); /* on the loop, once `run` has returned; it owns arg */
    void (*drop)(void *arg); /* when the worker ends before `done`; on any thread; frees arg */
    void *arg;
};

int sl_worker_create(struct sl_loop *loop, struct sl_worker **ret,
                     struct sl_err *err) SL_MUST_CHECK;
/* Waits at most wait_ns for the task that runs now: a thread that hangs is left behind, and drops its task when it
 * returns. Not from a callback. NULL is fine. */
void sl_worker_destroy(struct sl_worker *worker, uint64_t wait_ns);
void sl_worker_submit(struct sl_worker *worker, const struct sl_worker_task *task);

#endif
