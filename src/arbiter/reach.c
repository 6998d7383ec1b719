/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of dividing GPU time: so many tenants, so many GPUs and MIG instances. Beyond these limits a tenant may be
 * alone on a GPU and have all its time; a tenant that wants to share the GPU, or a part of its time, is refused.
 */
#include "arbiter/arbiter_internal.h"

#include <assert.h>
#include <errno.h>

#include "arbiter/errors.h"
#include "base/log.h"
#include "policy/turns.h"

/* Slices and turns have the same limits: a GPU may change from one to the other. */
static_assert(SL_STEER_MAX_GPUS == SL_TURNS_MAX_GPUS, "as many GPUs");
static_assert(SL_STEER_MAX_TENANTS == SL_TURNS_MAX_TENANTS, "as many tenants");

static bool shares_gpu(const struct arbiter *a, const struct tenant *t, uint32_t gpu)
{
    for (const struct tenant *o = a->tenants; o; o = o->next)
        for (uint32_t i = 0; i < o->gpu_count && o != t; i++)
            if (o->gpu[i] == gpu)
                return true;
    return false;
}

int sl_arb_reach_check(const struct arbiter *a, const struct tenant *t, bool divided,
                       struct sl_err *err)
{
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        const struct gpu *g = &a->gpu[t->gpu[i]];
        if (t->gpu[i] >= SL_TURNS_MAX_GPUS && (divided || shares_gpu(a, t, t->gpu[i])))
            return sl_err_set(err, -ENOSPC, SL_E_TIME_NOT_DIVIDED, g->uuid, g->index,
                              SL_TURNS_MAX_GPUS, a->gpu_count);
    }
    return 0;
}

int sl_arb_reach_room(const struct arbiter *a, struct sl_err *err)
{
    if (a->tenant_count < SL_TURNS_MAX_TENANTS)
        return 0;
    return sl_err_set(err, -EUSERS, SL_E_TENANTS_FULL, a->tenant_count);
}

/* A tenant of an earlier arbiter runs already, so this only warns. */
void sl_arb_reach_warn(const struct arbiter *a, const struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    bool divided = atomic_load(&t->lease.page->cores_request_permille) > 0 ||
                   atomic_load(&t->lease.page->cores_limit_permille) < 1000;
    if (sl_arb_reach_check(a, t, divided, &err) < 0 || a->tenant_count > SL_TURNS_MAX_TENANTS)
        sl_warn("the share of GPU time of tenant %s is not enforced: %s", t->name,
                err.code ? err.msg : "there are too many tenants");
}
