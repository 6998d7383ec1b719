/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks for far more than it uses. Runs of one user and one name count as one program. */
#include <string.h>

#include "policy/history.h"

#define GIB (1ULL << 30)
#define MIB (1ULL << 20)

static bool same(const struct sl_history_entry *a, const struct sl_history_entry *b)
{
    return a->uid == b->uid && strcmp(a->name, b->name) == 0;
}

/* What a run asked for and used, of memory or of cores. False: it says nothing about that. */
static bool use_of(const struct sl_history_entry *e, bool memory, uint64_t *asked, uint64_t *used)
{
    uint32_t got;
    if (memory) {
        uint32_t i = sl_history_fullest(e);
        *asked = e->gpu_count ? e->gpu[i].asked_bytes : SL_HISTORY_NO_LIMIT;
        *used = e->gpu[i].peak_bytes;
        /* A run that never came to the GPU says nothing about its need. */
        return *asked != SL_HISTORY_NO_LIMIT && *used > 0;
    }
    *asked = e->cores_request_permille;
    if (*asked == 0 || e->measured_ms < SL_HINT_LEAST_MS || !sl_history_got(e, &got))
        return false;
    *used = got;
    return true;
}

/* The smallest round amount that is not below: people type it. */
static uint64_t round_up(uint64_t amount, bool memory)
{
    uint64_t step = !memory ? 10 : amount > GIB ? GIB : 64 * MIB;
    uint64_t least = memory ? amount : amount < step ? step : amount;
    return (least + step - 1) / step * step;
}

/* From the run `last` backwards. */
static bool hint_about(const struct sl_history_entry *entries, size_t last, bool memory,
                       struct sl_history_hint *ret)
{
    struct sl_history_hint h = {.uid = entries[last].uid, .memory = memory};
    memcpy(h.name, entries[last].name, sizeof(h.name));
    for (size_t i = last + 1; i-- > 0 && h.runs < SL_HINT_RUNS;) {
        uint64_t asked, used;
        if (!same(&entries[i], &entries[last]) || !use_of(&entries[i], memory, &asked, &used))
            continue;
        if (h.runs++ == 0)
            h.asked = asked;
        h.used = used > h.used ? used : h.used;
    }
    /* Division: a request may be as large as a number can be. */
    uint64_t least = memory ? SL_HINT_LEAST_BYTES : SL_HINT_LEAST_PERMILLE;
    if (h.runs == 0 || h.used >= h.asked / SL_HINT_RATIO || h.asked - h.used < least)
        return false;
    h.enough = round_up(h.used + h.used / SL_HINT_SPARE, memory);
    *ret = h;
    return h.enough < h.asked;
}

static bool runs_again(const struct sl_history_entry *entries, size_t count, size_t i)
{
    for (size_t k = i + 1; k < count; k++)
        if (same(&entries[k], &entries[i]))
            return true;
    return false;
}

size_t sl_history_hints(const struct sl_history_entry *entries, size_t count,
                        struct sl_history_hint *ret, size_t max)
{
    size_t n = 0;
    for (size_t i = count; i-- > 0;) {
        if (runs_again(entries, count, i))
            continue;
        for (int about = 0; about < 2; about++) {
            struct sl_history_hint h;
            if (!hint_about(entries, i, about == 0, &h))
                continue;
            if (n < max)
                ret[n] = h;
            n++;
        }
    }
    return n;
}
