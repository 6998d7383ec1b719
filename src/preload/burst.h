/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What launches in a row take together, against the sum of what each is taken to take. The gaps between kernels, and
 * small errors of all samples, show only there. Measured now and then while the queue is deep, so that the GPU does
 * not wait for the host in between.
 */
#ifndef SLUICE_PRELOAD_BURST_H
#define SLUICE_PRELOAD_BURST_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

struct sl_launch;

/* Before a launch; cheap while none is measured. True: call sl_burst_end() after it. known: its cost was measured. */
bool sl_burst_launches(const struct sl_launch *l, bool known);
void sl_burst_end(const struct sl_launch *l, bool ok);

/* The estimated time, corrected by what was seen. */
uint64_t sl_burst_correct(uint64_t estimate_ns);

/* In the watch thread, contexts cannot end meanwhile. deep: the queue is, so the next launches can be measured. */
void sl_burst_look(bool deep, uint64_t now_ns);

/* From here on nobody but the program uses the context or an event of it. */
void sl_burst_context_gone(CUcontext context);
void sl_burst_forget(void); /* in a forked child */

#endif
