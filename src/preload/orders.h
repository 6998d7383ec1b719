/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out the arbiter's orders for this process: the length of its slices, and its channels off the GPU until a
 * given time. Finds out whether the driver allows that, and whether it has an effect.
 */
#ifndef SLUICE_PRELOAD_ORDERS_H
#define SLUICE_PRELOAD_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/marks.h"

struct sl_process;

/* In the watch thread: sets slices and channels as the lease says. Calls no function of the driver's library: one could
 * wait for work that stands still until this thread turns the channels on. Returns the ns until the next call. */
uint64_t sl_orders_obey(struct sl_process *p);

/* Are the channels off? And for how long were they, up to now, in all? From any thread. */
bool sl_orders_off(void);
uint64_t sl_orders_off_ns(uint64_t now_ns);

/* In the look thread: the queue as just checked, while the channels are off: do kernels really stand still? */
void sl_orders_check(enum sl_queue queue, const struct sl_mark *done, uint64_t launches,
                     uint64_t now_ns);

void sl_orders_forget(void); /* in a forked child */

#endif
