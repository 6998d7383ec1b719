/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns at the gate, where the hardware's slices cannot be set. In a turn the work in flight is limited by its
 * estimated time; outside a turn the caller's thread waits. Every wait ends: policy/times.h has the times.
 */
#ifndef SLUICE_PRELOAD_TURN_H
#define SLUICE_PRELOAD_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/gate.h"

struct sl_process;

/* Waits for the tenant's turn and for room in it. False: there are no turns any more, check the gate again. */
bool sl_turn_enter(struct sl_process *p, struct sl_launch *l);

/* The launch is in the driver (ok), or was refused by it. */
void sl_turn_leave(struct sl_launch *l, bool ok);

/* In the watch thread: notices the end of work, and tells the arbiter. Returns the ns until the next check. */
uint64_t sl_turn_watch(struct sl_process *p);

void sl_turn_forget(void); /* in a forked child */

#endif
