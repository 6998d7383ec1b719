/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks that the launching thread sets itself: behind a launch it has the GPU write a number into a word of host memory.
 * A thread of ours that calls the driver while the program launches makes the program wait for the driver's lock: on an
 * H200 one event a millisecond, recorded by our thread, added 154 ns to each launch. A stamp takes no lock from anybody,
 * and to see whether it is written is to read memory. But it tells of one stream only.
 *
 * The look thread asks for a stamp, the next launch takes the request and writes the stamp, and the look thread collects
 * it at its next look. One request is open at a time.
 */
#ifndef SLUICE_PRELOAD_STAMPS_H
#define SLUICE_PRELOAD_STAMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

/* --- in the thread that launches ---------------------------------------------------------------- */

/* Notes that this stream launches. */
void sl_stamps_saw(CUstream stream);

/* Should this launch be stamped? Then sl_stamps_write() must follow, behind the launch. */
bool sl_stamps_take(CUcontext context);
void sl_stamps_write(CUcontext context, CUstream stream);

/* --- in the look thread; contexts cannot end meanwhile ----------------------------------------- */

enum sl_stamp_answer {
    SL_STAMP_NOT_ASKED,
    SL_STAMP_WRITTEN, /* behind a launch that came after the request */
    SL_STAMP_OPEN,    /* a thread is about to write it */
    SL_STAMP_NONE,    /* no launch came, or the driver refused: the request is withdrawn */
};

/* Can launches of this context be stamped? */
bool sl_stamps_possible(CUcontext context);
void sl_stamps_ask(CUcontext context);
enum sl_stamp_answer sl_stamps_collect(uint32_t *ret_stamp);

/* Is a request open that no launch has taken? From any thread. */
bool sl_stamps_wanted(void);

/* The GPU has come to this stamp, or its context is gone. */
bool sl_stamps_reached(uint32_t stamp);

/* Nothing will ever run in the context: all stamps so far count as reached. */
void sl_stamps_drop(void);

/* Launches came from several streams since the last call; the stamps of one of them do not tell of the others. */
bool sl_stamps_several(void);
void sl_stamps_several_done(void);

/* --- in any thread ------------------------------------------------------------------------------- */

/* Before the words of this context are gone (words.h). */
void sl_stamps_context_gone(CUcontext context);
void sl_stamps_forget(void); /* in a forked child */

#endif
