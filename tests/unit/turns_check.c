/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold in turn-taking after every call, whatever the caller does. */
#include <errno.h>

#include "policy/turns_internal.h"
#include "turns_world.h"

static int check_gpu(const struct sl_turns *s, uint32_t g, struct sl_err *err)
{
    const struct gpu *gpu = &s->gpu[g];
    uint32_t holders = 0, overruns = 0;
    for (uint32_t i = 0; i < s->n_ids; i++) {
        const struct tenant *t = &s->tenants[s->ids[i]];
        if (!(t->hold_mask & (1U << g)))
            continue;
        overruns += t->state == SL_TURNS_OVERRUN;
        holders += t->state != SL_TURNS_OVERRUN;
        if (t->state != SL_TURNS_OVERRUN && gpu->holder != s->ids[i])
            return sl_err_set(err, -EPROTO, "GPU %u is held by %u, not by %u", g, gpu->holder,
                              s->ids[i]);
    }
    if (holders != (gpu->holder == NOBODY ? 0 : 1) || overruns != gpu->overruns)
        return sl_err_set(err, -EPROTO, "GPU %u has %u holders and %u of %u overruns", g, holders,
                          overruns, gpu->overruns);
    return 0;
}

int turns_check(const struct sl_turns *turns, struct sl_err *err)
{
    for (uint32_t i = 0; i < turns->n_ids; i++) {
        const struct tenant *t = &turns->tenants[turns->ids[i]];
        if (t->state == SL_TURNS_NONE || is_busy(t) != (t->hold_mask != 0))
            return sl_err_set(err, -EPROTO, "tenant %u is busy without a GPU, or does not exist",
                              turns->ids[i]);
        if (capped(t) && (t->tokens > (int64_t)(SL_TURN_SAVED_NS * 1000) ||
                          t->tokens < -(int64_t)(SL_TURN_DEBT_NS * 1000)))
            return sl_err_set(err, -EPROTO, "tenant %u: the account of the limit is out of bounds",
                              turns->ids[i]);
    }
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        int r = check_gpu(turns, g, err);
        if (r < 0)
            return r;
    }
    return 0;
}
