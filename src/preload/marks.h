/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the GPU has come with this process's launches. Once a millisecond a mark is set behind the work that was
 * submitted, and the newest mark that the GPU has reached shows which work is done. Mostly the mark is a stamp of the
 * thread that launches (stamps.h). Where that is not possible, and once in a while in any case, it is an event behind
 * all work of every context that launched.
 */
#ifndef SLUICE_PRELOAD_MARKS_H
#define SLUICE_PRELOAD_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

enum sl_queue { SL_QUEUE_EMPTY, SL_QUEUE_BUSY, SL_QUEUE_UNKNOWN };

/* The launches up to some moment. */
struct sl_mark {
    uint64_t work_ns;  /* their estimated GPU time */
    uint64_t launches; /* their number; the last of them may not be submitted yet … */
    uint64_t surely;   /* … but so many certainly are */
    uint32_t unknown;  /* how many of them have an unknown cost */
};

/* This context launches. Cheap if it was also the last to launch. */
void sl_marks_watch(CUcontext context);

/* Is there a context that has launched? */
bool sl_marks_any(void);

/* In the look thread; contexts cannot end meanwhile. Returns whether marked work is not done, and moves *done on to
 * the newest mark that is. Then has `now` marked if there were launches since the last mark. exact: all launches are
 * seen, and what is done is charged, so launches on several streams are marked by events. SL_QUEUE_UNKNOWN: no context,
 * or a driver that has no such events. */
enum sl_queue sl_marks_look(const struct sl_mark *now, bool exact, struct sl_mark *done);

/* From here on only the program itself uses the context or its events. */
void sl_marks_context_gone(CUcontext context);
void sl_marks_forget(void); /* in a forked child */

/* While a stream records a graph, the driver refuses many calls of other threads, unless those
 * threads switch to relaxed mode. */
CUstreamCaptureMode sl_capture_relax(void);
void sl_capture_restore(CUstreamCaptureMode mode);

#endif
