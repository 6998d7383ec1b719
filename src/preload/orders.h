/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out what the arbiter orders of this process: the length of its slices, and its channels off the GPU
 * until a moment. Finds out whether the driver allows that, and whether it has an effect. In the watch thread.
 */
#ifndef SLUICE_PRELOAD_ORDERS_H
#define SLUICE_PRELOAD_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/marks.h"

struct sl_process;

/* Brings slices and channels to what the lease says. Returns the ns until it wants to be called again. */
uint64_t sl_orders_obey(struct sl_process *p);

/* Are the channels off? */
bool sl_orders_off(void);

/* The queue as just looked at, while the channels are off: do kernels really stand still? */
void sl_orders_check(enum sl_queue queue, const struct sl_mark *done, uint64_t launches,
                     uint64_t now_ns);

void sl_orders_forget(void); /* in a forked child */

#endif
