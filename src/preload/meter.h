/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the GPU this process uses, where the hardware's slices share it: nothing is held back, so the use must be
 * known afterwards. Three figures go to the ledger. First, the time in which work was queued without a pause: then the
 * process used all the time of its slices. Second, outside of that, the GPU time of its kernels, as learnt from
 * samples: gaps between kernels cost nothing. Third, the GPU time of all finished kernels, estimated in the same way.
 */
#ifndef SLUICE_PRELOAD_METER_H
#define SLUICE_PRELOAD_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

struct sl_process;

/* A launch of this cost goes to a context. known: the cost was measured before. */
void sl_meter_launched(CUcontext context, uint64_t estimate_ns, bool known);

/* In the look thread, contexts cannot end meanwhile: checks the queues and writes the ledger. launches: of this
 * process so far. may_look: no stream records; otherwise launches count as running for their estimated time. Returns
 * the ns until the next tick. */
uint64_t sl_meter_tick(struct sl_process *p, uint64_t launches, bool may_look);

/* Was work queued at the last tick? */
bool sl_meter_pending(void);

/* From here on only the program itself uses the context or its events. */
void sl_meter_context_gone(CUcontext context);
void sl_meter_forget(void); /* in a forked child */

#endif
