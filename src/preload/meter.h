/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process uses of the GPU, where the hardware's slices share it: nothing is held back, so it must be
 * known afterwards. Three figures go to the ledger. Time in which work was queued without a pause: then the
 * process used all that its slices gave it. Outside that, the GPU time of its kernels, as learnt from samples:
 * gaps between them are nobody's cost. And the GPU time of all kernels that are done, estimated the same way.
 */
#ifndef SLUICE_PRELOAD_METER_H
#define SLUICE_PRELOAD_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

struct sl_process;

/* A launch of this cost goes to a context. known: the cost was measured before. */
void sl_meter_launched(CUcontext context, uint64_t estimate_ns, bool known);

/* In the watch thread, contexts cannot end meanwhile: looks at the queues and writes the ledger.
 * launches: of this process so far. may_look: no stream records; else what was launched is believed to
 * run as long as it should. Returns the ns until the next look. */
uint64_t sl_meter_tick(struct sl_process *p, uint64_t launches, bool may_look);

/* In the watch thread: the channels go off, or are on again, now. */
void sl_meter_off(struct sl_process *p, uint64_t now_ns);
void sl_meter_on(uint64_t now_ns);

/* Does it have queued work, as far as the last look showed? */
bool sl_meter_pending(void);

/* From here on nobody but the program uses the context or an event of it. */
void sl_meter_context_gone(CUcontext context);
void sl_meter_forget(void); /* in a forked child */

#endif
