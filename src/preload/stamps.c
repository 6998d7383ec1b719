/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/stamps.h"

#include <stdatomic.h>
#include <string.h>

#include "preload/hooks.h"
#include "preload/marks.h"
#include "preload/words.h"

/* More than there can be marks that the GPU has not reached: a word is written by one stamp at a time. */
#define WORDS    64U
/* A driver that refuses so many in a row does not write words. */
#define REFUSALS 3U

enum state { NOT_ASKED, ASKED, TAKEN, WRITTEN, REFUSED };

static struct {
    _Atomic uint32_t state;    /* enum state */
    _Atomic uint32_t number;   /* of the newest stamp that was asked for; 0 is none */
    _Atomic uint32_t gone;     /* stamps up to this number count as reached */
    _Atomic uint32_t refusals; /* in a row */
    CUstream _Atomic stream;   /* launched last, of the launches that are seen */
    _Atomic bool several;
    CUcontext context; /* of the newest stamp; used only by the look thread */
} stamps;

void sl_stamps_saw(CUstream stream)
{
    if (atomic_load_explicit(&stamps.stream, memory_order_relaxed) == stream)
        return;
    atomic_store_explicit(&stamps.stream, stream, memory_order_relaxed);
    atomic_store_explicit(&stamps.several, true, memory_order_relaxed);
}

bool sl_stamps_several(void)
{
    return atomic_load(&stamps.several);
}

void sl_stamps_several_done(void)
{
    atomic_store(&stamps.several, false);
}

bool sl_stamps_take(CUcontext context)
{
    uint32_t asked = ASKED;
    return atomic_load_explicit(&stamps.state, memory_order_relaxed) == ASKED &&
           sl_words_of(context).at && atomic_compare_exchange_strong(&stamps.state, &asked, TAKEN);
}

void sl_stamps_write(CUcontext context, CUstream stream)
{
    __typeof__(&cuStreamWriteValue32_v2) write = SL_REAL(cuStreamWriteValue32_v2);
    uint32_t number = atomic_load(&stamps.number);
    struct sl_words words = sl_words_of(context);
    bool ok = false;
    if (write && words.at) {
        CUstreamCaptureMode mode = sl_capture_relax();
        CUdeviceptr at = sl_words_address(words.address, SL_WORDS_STAMP + number % WORDS);
        ok = write(stream, at, number, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS;
        sl_capture_restore(mode);
    }
    atomic_store(&stamps.refusals, ok ? 0 : atomic_load(&stamps.refusals) + 1);
    atomic_store(&stamps.state, ok ? WRITTEN : REFUSED);
}

bool sl_stamps_possible(CUcontext context)
{
    return SL_REAL(cuStreamWriteValue32_v2) && sl_words_of(context).at &&
           atomic_load(&stamps.refusals) < REFUSALS;
}

void sl_stamps_ask(CUcontext context)
{
    uint32_t number = atomic_load(&stamps.number) + 1;
    stamps.context = context;
    atomic_store(&stamps.number, number ? number : 1);
    atomic_store(&stamps.state, ASKED);
}

bool sl_stamps_wanted(void)
{
    return atomic_load(&stamps.state) == ASKED;
}

enum sl_stamp_answer sl_stamps_collect(uint32_t *ret_stamp)
{
    uint32_t state = ASKED;
    *ret_stamp = atomic_load(&stamps.number);
    if (atomic_compare_exchange_strong(&stamps.state, &state, NOT_ASKED))
        return SL_STAMP_NONE;
    if (state == TAKEN)
        return SL_STAMP_OPEN;
    atomic_store(&stamps.state, NOT_ASKED);
    return state == WRITTEN   ? SL_STAMP_WRITTEN
           : state == REFUSED ? SL_STAMP_NONE
                              : SL_STAMP_NOT_ASKED;
}

bool sl_stamps_reached(uint32_t stamp)
{
    struct sl_words words = sl_words_of(stamps.context);
    return !words.at || (int32_t)(stamp - atomic_load(&stamps.gone)) <= 0 ||
           atomic_load(&words.at[SL_WORDS_STAMP + stamp % WORDS]) == stamp;
}

void sl_stamps_drop(void)
{
    atomic_store(&stamps.gone, atomic_load(&stamps.number));
}

void sl_stamps_context_gone(CUcontext context)
{
    if (!sl_words_of(context).at)
        return;
    sl_stamps_drop();
    atomic_store(&stamps.refusals, 0);
}

void sl_stamps_forget(void)
{
    memset(&stamps, 0, sizeof(stamps));
}
