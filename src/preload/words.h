/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page of host memory that the GPU reads and writes, in the middle of the program's streams: words that hold a stream
 * until they are set, and words that the GPU sets behind a launch. One page for the process, in the memory of the first
 * context that needs it.
 */
#ifndef SLUICE_PRELOAD_WORDS_H
#define SLUICE_PRELOAD_WORDS_H

#include <stdatomic.h>
#include <stdint.h>

#include "abi/cuda.h"

/* What the words are for, by the number of the first one. */
enum {
    SL_WORDS_HOLD = 0,     /* sample.c */
    SL_WORDS_STAMP = 64,   /* stamps.c */
    SL_WORDS_SCRATCH = 512 /* the target of memsets of our own */
};

struct sl_words {
    _Atomic uint32_t *at; /* NULL: not in this context */
    CUdeviceptr address;
};

/* Where the GPU finds a word of the page at this address. */
static inline CUdeviceptr sl_words_address(CUdeviceptr page, uint64_t word)
{
    return page + sizeof(uint32_t) * word;
}

/* Makes the page, unless there is one, or it could not be made before. Calls the driver. */
void sl_words_prepare(CUcontext context);

struct sl_words sl_words_of(CUcontext context);

/* The memory goes with its context. */
void sl_words_context_gone(CUcontext context);
void sl_words_forget(void); /* in a forked child */

#endif
