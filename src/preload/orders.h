/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out the arbiter's orders for this process: the length of its slices, and its channels off the GPU until a
 * given time. Finds out whether the driver allows that, and whether it has an effect. In the watch thread.
 */
#ifndef SLUICE_PRELOAD_ORDERS_H
#define SLUICE_PRELOAD_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/marks.h"

struct sl_process;

/* Sets slices and channels as the lease says. Returns the ns until the next call. */
uint64_t sl_orders_obey(struct sl_process *p);

/* Are the channels off? */
bool sl_orders_off(void);

/* The queue as just checked, while the channels are off: do kernels really stand still? */
void sl_orders_check(enum sl_queue queue, const struct sl_mark *done, uint64_t launches,
                     uint64_t now_ns);

void sl_orders_forget(void); /* in a forked child */

#endif
