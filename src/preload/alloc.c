/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/alloc.h"

#include "preload/charge.h"
#include "preload/pool.h"
#include "preload/share.h"

CUresult sl_alloc_begin(struct sl_process *p, uint64_t units, struct sl_alloc *ret)
{
    ret->units = units;
    ret->counted = false;
    CUresult rc = sl_site_current(p, &ret->site);
    if (rc != CUDA_SUCCESS || !ret->site.context)
        return rc;
    if (!sl_pool_charge(p, ret->site.gpu, units))
        return sl_charge_refused(p);
    if (!sl_track_room()) {
        sl_charge_return(p, ret->site.gpu, units);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ret->counted = true;
    return CUDA_SUCCESS;
}

CUresult sl_alloc_end(struct sl_process *p, const struct sl_alloc *a, CUresult rc,
                      enum sl_kind kind, uint64_t key)
{
    struct sl_track t = {.kind = kind,
                         .key = key,
                         .units = a->units,
                         .owner = a->site.context_id,
                         .gpu = a->site.gpu};
    if (!a->counted)
        return rc;
    if (rc == CUDA_SUCCESS) {
        sl_track_put(&t);
        sl_charge_peak(p, a->site.gpu);
    } else {
        sl_track_cancel();
        sl_charge_return(p, a->site.gpu, a->units);
    }
    return rc;
}

bool sl_alloc_take(CUdeviceptr address, struct sl_track *ret)
{
    return sl_track_take(SL_KIND_LINEAR, address, ret) ||
           sl_track_take(SL_KIND_ASYNC, address, ret) || sl_track_take(SL_KIND_PIECE, address, ret);
}

CUresult sl_alloc_released(struct sl_process *p, struct sl_track *t, CUresult rc)
{
    bool counted = t->kind == SL_KIND_IPC || t->kind == SL_KIND_PIECE;
    bool stays = rc != CUDA_SUCCESS || (counted && --t->times > 0);
    if (stays && sl_track_room())
        sl_track_put(t);
    else if (!stays && t->kind == SL_KIND_ASYNC)
        sl_pool_freed(p, t);
    else if (!stays)
        sl_share_end_of(p, t);
    return rc;
}
