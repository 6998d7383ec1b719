/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that record a graph. While there is one, the look thread does not touch the contexts of the process
 * (gate.c): the driver refuses to mark a context then, and this was seen to end a program. A recording also ends with
 * its stream, and with its stream's context.
 */
#ifndef SLUICE_PRELOAD_CAPTURE_H
#define SLUICE_PRELOAD_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

struct sl_recording;

/* Around the call that destroys a stream: the driver may reuse its handle for another stream at once. */
struct sl_recording *sl_capture_stream_leaves(CUstream stream);
void sl_capture_stream_left(struct sl_recording *r, bool gone);

void sl_capture_context_ended(uint64_t context_id);

void sl_capture_forget(void); /* in a forked child */

#endif
