/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of this process on the GPU: a board of streams with launches in flight, and markers (CUDA events recorded
 * behind batches of launches) that show when the launches are done. Only used with turns. No lock is held across a
 * driver call.
 */
#ifndef SLUICE_PRELOAD_FLIGHT_H
#define SLUICE_PRELOAD_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/gate.h"

/* Takes a launch onto the board if the window (0: no limit) has room, or if its stream has nothing in flight: kernels
 * on two streams may wait for each other, and to hold the second one back would never end. */
bool sl_flight_admit(struct sl_launch *l, uint64_t window_ns);

/* The launch is in the driver (ok) or was refused by it. Records a marker when the batch is large
 * enough, when it is measured, or when `closing`. */
void sl_flight_left(struct sl_launch *l, bool ok, bool closing);

/* Records an event in front of the launch, so that its duration is learnt. */
void sl_flight_measure(struct sl_launch *l);

/* Checks which markers are done. One thread at a time does it; other threads return at once. */
void sl_flight_poll(void);

/* Marks unmarked launches, so that their end is noticed. From any thread. */
void sl_flight_mark_tails(void);

bool sl_flight_empty(void);
uint64_t sl_flight_ns(void);          /* estimated time in flight */
uint64_t sl_flight_progress_ns(void); /* when a marker was last seen done, or the board empty */
uint64_t sl_flight_last_launch_ns(void);

/* The stream is about to be destroyed: marks its launches in flight while that is possible. */
void sl_flight_stream_gone(CUstream stream);

/* The context is destroyed: its work and its events are gone. */
void sl_flight_context_gone(CUcontext context);

void sl_flight_reset(void); /* in a forked child: the board belongs to the parent */

#endif
