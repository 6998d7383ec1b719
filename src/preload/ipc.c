/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IPC handles, and pieces of pools: memory of one process that is opened in another. The memory stays on the card until
 * both processes have released it, so it is an entry of the tenant from the moment a handle is made.
 */
#include "preload/alloc.h"
#include "preload/charge.h"
#include "preload/device.h"
#include "preload/lock.h"
#include "preload/pool.h"
#include "preload/share.h"
#include "preload/track.h"
#include "shm/account.h"

static bool is_linear_around(const struct sl_track *t, const void *arg)
{
    uint64_t address = *(const CUdeviceptr *)arg;
    return t->kind == SL_KIND_LINEAR && address - t->key < t->units * SL_UNIT_BYTES;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    SL_ENTER(cuIpcGetMemHandle, real, p, (pHandle, dptr));
    struct sl_track t;
    CUresult rc = real(pHandle, dptr);
    if (rc != CUDA_SUCCESS || !sl_track_room())
        return rc; /* without room this process pays, and one that opens it pays too */
    if (!sl_track_take(SL_KIND_LINEAR, dptr, &t) &&
        !sl_track_take_if(is_linear_around, &dptr, &t)) {
        sl_track_cancel();
        return rc;
    }
    struct sl_cost cost = {t.gpu, t.units, t.entry};
    (void)sl_share_begin(p, &cost, sl_share_id_of(pHandle, sizeof(*pHandle)), false);
    t.entry = cost.entry;
    sl_track_put(&t);
    return rc;
}

/* The charge for opened memory: a part of the tenant's entry, or its size where no process of the tenant has charged
 * it. */
static bool pay(struct sl_process *p, uint64_t id, CUdeviceptr address, struct sl_cost *ret)
{
    __typeof__(&cuMemGetAddressRange_v2) get_range = SL_REAL(cuMemGetAddressRange_v2);
    struct sl_site site;
    size_t size = 0;
    if (sl_share_join(p, id, ret))
        return true;
    if (sl_site_current(p, &site) != CUDA_SUCCESS || !get_range ||
        get_range(NULL, &size, address) != CUDA_SUCCESS)
        return false;
    *ret = (struct sl_cost){site.gpu, sl_units_of_bytes(size), SL_NOT_SHARED};
    return sl_pool_charge(p, ret->gpu, ret->units);
}

static CUresult opened(struct sl_process *p, enum sl_kind kind, uint64_t id, CUdeviceptr address)
{
    static struct sl_lock lock; /* for two threads that open one handle */
    struct sl_site site;
    struct sl_track t;
    sl_lock_take(&lock);
    bool again = sl_track_take(kind, address, &t);
    if (again) {
        t.times++;
        sl_track_put(&t);
    }
    sl_lock_drop(&lock);
    if (again)
        return CUDA_SUCCESS;
    struct sl_cost cost;
    if (!pay(p, id, address, &cost)) {
        sl_track_cancel();
        return sl_charge_refused(p);
    }
    CUresult rc = sl_site_current(p, &site);
    t = (struct sl_track){.kind = kind,
                          .key = address,
                          .units = cost.units,
                          .owner = rc == CUDA_SUCCESS ? site.context_id : 0,
                          .gpu = cost.gpu,
                          .entry = cost.entry,
                          .times = 1};
    sl_track_put(&t);
    return CUDA_SUCCESS;
}

static CUresult open_handle(struct sl_process *p, __typeof__(&cuIpcOpenMemHandle_v2) real,
                            CUdeviceptr *pdptr, const CUipcMemHandle *handle, unsigned int flags)
{
    __typeof__(&cuIpcCloseMemHandle) undo = SL_REAL(cuIpcCloseMemHandle);
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real(pdptr, *handle, flags);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        return rc;
    }
    rc = opened(p, SL_KIND_IPC, sl_share_id_of(handle, sizeof(*handle)), *pdptr);
    if (rc != CUDA_SUCCESS && undo)
        (void)undo(*pdptr);
    return rc;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
{
    SL_ENTER(cuIpcOpenMemHandle, real, p, (pdptr, handle, flags));
    return open_handle(p, real, pdptr, &handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
{
    SL_ENTER(cuIpcOpenMemHandle_v2, real, p, (pdptr, handle, flags));
    return open_handle(p, real, pdptr, &handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    SL_ENTER(cuIpcCloseMemHandle, real, p, (dptr));
    struct sl_track t;
    bool known = sl_track_take(SL_KIND_IPC, dptr, &t);
    CUresult rc = real(dptr);
    return known ? sl_alloc_released(p, &t, rc) : rc;
}

/* ---- pieces of pools ---- */

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data_out, CUdeviceptr ptr)
{
    SL_ENTER(cuMemPoolExportPointer, real, p, (data_out, ptr));
    struct sl_track t;
    CUresult rc = real(data_out, ptr);
    if (rc != CUDA_SUCCESS || !sl_track_room())
        return rc; /* without room the pool goes on paying, and an importing process pays too */
    if (!sl_track_take(SL_KIND_ASYNC, ptr, &t)) {
        sl_track_cancel();
        return rc;
    }
    sl_pool_share(p, &t, sl_share_id_of(data_out, sizeof(*data_out)));
    sl_track_put(&t);
    return rc;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData *data)
{
    SL_ENTER(cuMemPoolImportPointer, real, p, (ptr_out, pool, data));
    __typeof__(&cuMemFree_v2) undo = SL_REAL(cuMemFree_v2);
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real(ptr_out, pool, data);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        return rc;
    }
    rc = opened(p, SL_KIND_PIECE, sl_share_id_of(data, sizeof(*data)), *ptr_out);
    if (rc != CUDA_SUCCESS && undo)
        (void)undo(*ptr_out);
    return rc;
}
