/* SPDX-License-Identifier: Apache-2.0 */
#include "share/share.h"
#include "share/errors.h"

#include <errno.h>
#include <string.h>

const char *const sl_priority_words[] = {
    [SL_PRIORITY_LOW] = "low", [SL_PRIORITY_NORMAL] = "normal", [SL_PRIORITY_HIGH] = "high", NULL};
const char *const sl_strategy_words[] = {[SL_SHARE_LIBSLUICE] = "libsluice",
                                         [SL_SHARE_MPS] = "mps",
                                         [SL_SHARE_TIME_SLICING] = "timeSlicing",
                                         NULL};
const char *const sl_compute_words[] = {
    [SL_COMPUTE_AUTO] = "auto", [SL_COMPUTE_SLICES] = "slices", [SL_COMPUTE_TURNS] = "turns", NULL};

const char *sl_priority_name(unsigned priority)
{
    return priority <= SL_PRIORITY_HIGH ? sl_priority_words[priority] : "?";
}

int sl_word_find(const char *const *words, const char *text)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    return -1;
}

int sl_priority_parse(const char *text, enum sl_priority *ret, struct sl_err *err)
{
    int i = sl_word_find(sl_priority_words, text);
    if (i < 0)
        return sl_err_set(err, -EINVAL, SL_E_PRIORITY_UNKNOWN, text);
    *ret = (enum sl_priority)i;
    return 0;
}

bool sl_share_whole(const struct sl_share *s)
{
    return s->cores_permille == 1000 && s->memory_bytes == 0 && s->memory_percent == 100;
}

bool sl_share_same(const struct sl_share *a, const struct sl_share *b)
{
    return strcmp(a->gpu, b->gpu) == 0 && a->memory_bytes == b->memory_bytes &&
           a->memory_percent == b->memory_percent && a->cores_permille == b->cores_permille &&
           a->limit_permille == b->limit_permille && a->priority == b->priority &&
           a->strategy == b->strategy && a->compute == b->compute;
}

uint64_t sl_share_memory(const struct sl_share *s, uint64_t card_bytes)
{
    /* In MiB, as in the nodes' annotations and in leases. */
    return s->memory_bytes ? s->memory_bytes : (card_bytes >> 20) * s->memory_percent / 100 << 20;
}
