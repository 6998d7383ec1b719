/* SPDX-License-Identifier: Apache-2.0 */
/* Why there is no room for a request, for people: what is asked for, what is left, and what would help. */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "arbiter/errors.h"
#include "base/units.h"
#include "policy/turns.h"

/* On an empty card. */
static bool ever_fits(struct arbiter *a, const struct sl_msg_lease *ask, uint32_t gpu, uint32_t i)
{
    uint64_t bytes = 0;
    if ((ask->fields & SL_FIELD_CORES) && gpu >= SL_TURNS_MAX_GPUS)
        return false;
    return sl_arb_grant_asked(a, gpu, ask, i, &bytes) && bytes <= a->gpu[gpu].total_bytes;
}

static uint32_t count_ever(struct arbiter *a, const struct sl_msg_lease *ask,
                           const struct candidates *from)
{
    uint32_t fit = 0;
    for (uint32_t i = 0; i < from->count; i++)
        fit += ever_fits(a, ask, from->gpu[i], from->any ? 0 : i);
    return fit;
}

bool sl_arb_ever_fits(struct arbiter *a, const struct sl_msg_lease *ask)
{
    struct candidates from;
    return sl_arb_candidates(a, ask, &from, NULL) == 0 && count_ever(a, ask, &from) >= from.wanted;
}

/* What one GPU lacks. False: nothing. */
static bool lacks(struct arbiter *a, const struct sl_msg_lease *ask, uint32_t gpu, uint32_t i,
                  char *buf, size_t size)
{
    char want[32], left[32];
    uint64_t bytes = 0, left_bytes = sl_arb_grant_left(a, gpu, NULL);
    uint32_t cores = ask->fields & SL_FIELD_CORES ? ask->cores_request_permille : 0;
    uint32_t left_cores = sl_arb_cores_left(a, gpu, NULL);
    bool memory = ask->fields & SL_FIELD_MEMORY;
    (void)sl_arb_grant_asked(a, gpu, ask, i, &bytes);
    if (memory ? bytes > left_bytes : left_bytes == 0)
        (void)snprintf(buf, size, "%s asked, %s of GPU %u are left",
                       memory ? sl_format_bytes(bytes, want, sizeof(want)) : "some memory",
                       sl_format_bytes(left_bytes, left, sizeof(left)), a->gpu[gpu].index);
    else if (cores > left_cores)
        (void)snprintf(buf, size, "%s %% of the time asked, %s %% of GPU %u are left",
                       sl_format_cores(cores, cores, want, sizeof(want)),
                       sl_format_cores(left_cores, left_cores, left, sizeof(left)),
                       a->gpu[gpu].index);
    else
        return false;
    return true;
}

/* The candidate with the most memory left, and what all have together. */
static uint32_t most_left(const struct arbiter *a, const struct candidates *from,
                          uint64_t *ret_most, uint64_t *ret_sum)
{
    uint32_t best = 0;
    *ret_most = *ret_sum = 0;
    for (uint32_t i = 0; i < from->count; i++) {
        uint64_t left = sl_arb_grant_left(a, from->gpu[i], NULL);
        *ret_sum += left;
        if (left > *ret_most) {
            *ret_most = left;
            best = i;
        }
    }
    return best;
}

static bool lacks_some(struct arbiter *a, const struct sl_msg_lease *ask,
                       const struct candidates *from, char *buf, size_t size)
{
    struct candidates short_of = {.count = 0};
    uint64_t most, sum;
    for (uint32_t i = 0; i < from->count; i++)
        if (lacks(a, ask, from->gpu[i], 0, buf, size))
            short_of.gpu[short_of.count++] = from->gpu[i];
    uint32_t good = from->count - short_of.count;
    if (good >= from->wanted)
        return false;
    int n = from->wanted > 1 ? snprintf(buf, size, "%u GPUs asked, %u of %u %s room; ",
                                        from->wanted, good, from->count, good == 1 ? "has" : "have")
                             : 0;
    return lacks(a, ask, short_of.gpu[most_left(a, &short_of, &most, &sum)], 0, buf + n,
                 size - (size_t)n);
}

bool sl_arb_lacks(struct arbiter *a, const struct sl_msg_lease *ask, char *buf, size_t size)
{
    struct candidates from;
    if (sl_arb_candidates(a, ask, &from, NULL) < 0)
        return false;
    if (from.any)
        return lacks_some(a, ask, &from, buf, size);
    for (uint32_t i = 0; i < from.count; i++)
        if (lacks(a, ask, from.gpu[i], i, buf, size))
            return true;
    return false;
}

/* --- refusals --- */

/* Those whose memory is enough when they are empty. */
static uint32_t count_large(struct arbiter *a, const struct sl_msg_lease *ask,
                            const struct candidates *from)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < from->count; i++) {
        uint64_t bytes = 0;
        count += sl_arb_grant_asked(a, from->gpu[i], ask, 0, &bytes) &&
                 bytes <= a->gpu[from->gpu[i]].total_bytes;
    }
    return count;
}

/* The largest card is too small, or too few are large enough. */
static int too_large(struct arbiter *a, const struct sl_msg_lease *ask,
                     const struct candidates *from, uint32_t large_enough, struct sl_err *err)
{
    char want[32], has[32];
    uint64_t bytes = 0, sum = 0;
    uint32_t largest = from->gpu[0];
    for (uint32_t i = 0; i < from->count; i++) {
        sum += a->gpu[from->gpu[i]].total_bytes;
        if (a->gpu[from->gpu[i]].total_bytes > a->gpu[largest].total_bytes)
            largest = from->gpu[i];
    }
    const struct gpu *g = &a->gpu[largest];
    (void)sl_arb_grant_asked(a, largest, ask, 0, &bytes);
    (void)sl_format_bytes(bytes, want, sizeof(want));
    if (from->wanted > 1)
        return sl_err_set(err, -ENOSPC, SL_E_GPUS_SMALL, from->wanted, want, large_enough,
                          from->count);
    return sl_err_set(err, -ENOSPC, SL_E_NO_GPU_SO_LARGE, want, g->index, g->name,
                      sl_format_bytes(g->total_bytes, has, sizeof(has)),
                      sum >= bytes ? ", or for a part on each of several GPUs with --gpus" : "");
}

static void list_left(const struct arbiter *a, const struct candidates *from, char *buf,
                      size_t size)
{
    buf[0] = '\0';
    for (uint32_t i = 0; i < from->count; i++) {
        size_t n = strlen(buf);
        uint32_t left = sl_arb_cores_left(a, from->gpu[i], NULL);
        char memory[32], cores[16];
        if (n + 80 > size) {
            (void)snprintf(buf + n, size - n, ", ...");
            return;
        }
        (void)snprintf(
            buf + n, size - n, "%sGPU %u has %s and %s %%", i ? ", " : "",
            a->gpu[from->gpu[i]].index,
            sl_format_bytes(sl_arb_grant_left(a, from->gpu[i], NULL), memory, sizeof(memory)),
            sl_format_cores(left, left, cores, sizeof(cores)));
    }
}

int sl_arb_none_fits(struct arbiter *a, const struct sl_msg_lease *ask,
                     const struct candidates *from, uint32_t fit, struct sl_err *err)
{
    char text[240], want[32], has[32], together[32];
    uint64_t bytes = 0, most, sum;
    uint32_t large = count_large(a, ask, from), best = most_left(a, from, &most, &sum);
    (void)sl_arb_grant_asked(a, from->gpu[best], ask, 0, &bytes);
    if (large < from->wanted)
        return too_large(a, ask, from, large, err);
    if (from->wanted == 1 && bytes > most) {
        (void)sl_format_bytes(bytes, want, sizeof(want));
        (void)sl_format_bytes(most, has, sizeof(has));
        uint32_t index = a->gpu[from->gpu[best]].index;
        if (sum < bytes)
            return sl_err_set(err, -ENOSPC, SL_E_NO_GPU_SO_MUCH, from->count, want, index, has);
        return sl_err_set(err, -ENOSPC, SL_E_NO_SINGLE_GPU, want, index, has, from->count,
                          sl_format_bytes(sum, together, sizeof(together)));
    }
    list_left(a, from, text, sizeof(text));
    if (from->wanted > 1)
        return sl_err_set(err, -ENOSPC, SL_E_GPUS_NO_ROOM, from->wanted, fit,
                          fit == 1 ? "has" : "have", from->count, text);
    return sl_err_set(err, -ENOSPC, SL_E_NO_GPU_HAS_ROOM, from->count, text);
}
