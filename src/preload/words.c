/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/words.h"

#include <stdbool.h>
#include <string.h>

#include "preload/hooks.h"
#include "preload/lock.h"

#define PAGE 4096U

static struct {
    struct sl_lock lock; /* never held in a driver call */
    CUcontext context;
    struct sl_words words;
    bool tried;
} page;

static bool is_first(void)
{
    sl_lock_take(&page.lock);
    bool first = !page.tried;
    page.tried = true;
    sl_lock_drop(&page.lock);
    return first;
}

void sl_words_prepare(CUcontext context)
{
    __typeof__(&cuMemHostAlloc) alloc = SL_REAL(cuMemHostAlloc);
    __typeof__(&cuMemHostGetDevicePointer_v2) address_of = SL_REAL(cuMemHostGetDevicePointer_v2);
    void *words = NULL;
    CUdeviceptr address = 0;
    if (!is_first() || !alloc || !address_of ||
        alloc(&words, PAGE, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
        address_of(&address, words, 0) != CUDA_SUCCESS)
        return;
    memset(words, 0, PAGE);
    sl_lock_take(&page.lock);
    page.words = (struct sl_words){words, address};
    page.context = context;
    sl_lock_drop(&page.lock);
}

struct sl_words sl_words_of(CUcontext context)
{
    struct sl_words words = {0};
    sl_lock_take(&page.lock);
    if (page.words.at && page.context == context)
        words = page.words;
    sl_lock_drop(&page.lock);
    return words;
}

void sl_words_context_gone(CUcontext context)
{
    sl_lock_take(&page.lock);
    if (page.context == context) {
        page.context = NULL;
        page.words = (struct sl_words){0};
        page.tried = false;
    }
    sl_lock_drop(&page.lock);
}

void sl_words_forget(void)
{
    memset(&page, 0, sizeof(page));
}
