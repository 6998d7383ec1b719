/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The look thread: the only thread of ours that calls the driver by itself. A call may wait for a lock of the driver,
 * and a thread of the program may hold that lock until the GPU has done its work. So the watch thread, which turns
 * channels on again, never calls the driver: otherwise work that stands still would wait for a thread that waits for
 * that work.
 */
#ifndef SLUICE_PRELOAD_LOOK_H
#define SLUICE_PRELOAD_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct sl_process;

/* Runs look(p) in the look thread from now on, and again after the ns that it returns. UINT64_MAX: it sleeps until the
 * next call of this. Call this only in the watch thread. False: the process may not have another thread. */
bool sl_look_wake(struct sl_process *p, uint64_t (*look)(struct sl_process *p));

void sl_look_forget(void); /* in a forked child */

#endif
