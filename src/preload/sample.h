/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The duration of kernels, learnt from samples: now and then a launch gets an event before and an event behind it.
 */
#ifndef SLUICE_PRELOAD_SAMPLE_H
#define SLUICE_PRELOAD_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

struct sl_launch;

/* Around a launch whose GPU time is measured. known: it was measured before. */
void sl_sample_begin(struct sl_launch *l, bool known);
void sl_sample_end(struct sl_launch *l, bool ok);

/* Of all recent samples; 0: there were none. */
uint64_t sl_sample_mean_ns(void);

/* In the watch thread, every millisecond: releases streams whose holding thread hangs. It may wait for a lock of the
 * driver whose owner waits for that stream. */
void sl_sample_let_go_late(void);

/* In the look thread: learns from finished samples; contexts cannot end meanwhile. */
void sl_sample_collect(void);

/* From here on only the program itself uses the context or its events. */
void sl_sample_context_gone(CUcontext context);
void sl_sample_forget(void); /* in a forked child */

#endif
