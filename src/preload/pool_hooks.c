/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped calls on pools and stream-ordered memory. */
#include <stddef.h>

#include "preload/alloc.h"
#include "preload/charge.h"
#include "preload/graph_mem.h"
#include "preload/pool.h"
#include "shm/account.h"

/* ---- finding the pool ---- */

static bool default_pool_of(CUmemoryPool handle, CUdevice *ret_device)
{
    __typeof__(&cuDeviceGetCount) get_count = SL_REAL(cuDeviceGetCount);
    __typeof__(&cuDeviceGetDefaultMemPool) get_pool = SL_REAL(cuDeviceGetDefaultMemPool);
    int count = 0;
    if (!get_count || !get_pool || get_count(&count) != CUDA_SUCCESS)
        return false;
    for (CUdevice d = 0; d < count; d++) {
        CUmemoryPool pool;
        if (get_pool(&pool, d) == CUDA_SUCCESS && pool == handle) {
            *ret_device = d;
            return true;
        }
    }
    return false;
}

/* A pool whose creation was not seen is a device's default pool; `device` is the guess otherwise. */
static struct sl_pool *pool_for(struct sl_process *p, CUmemoryPool handle, CUdevice device)
{
    struct sl_pool *pool = sl_pool_by_handle(handle);
    if (pool)
        return pool;
    (void)default_pool_of(handle, &device);
    struct sl_pool model = {.handle = handle, .device = device, .gpu = sl_device_gpu(p, device)};
    return sl_pool_add(&model);
}

/* ---- allocation ---- */

struct request {
    struct sl_pool *pool;
    uint64_t pending;
    uint64_t units;
};

static CUresult begin(struct sl_process *p, CUmemoryPool handle, CUdevice device, size_t bytes,
                      struct request *ret)
{
    *ret = (struct request){.pool = pool_for(p, handle, device), .units = sl_units_of_bytes(bytes)};
    if (!ret->pool || !sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (sl_pool_cover(p, ret->pool, bytes, &ret->pending))
        return CUDA_SUCCESS;
    sl_track_cancel();
    return sl_charge_refused(p);
}

static bool fits(struct sl_process *p, int gpu, void *unused)
{
    (void)unused;
    return sl_charge_fits(p, gpu);
}

static CUresult end(struct sl_process *p, struct request *r, CUresult rc, const CUdeviceptr *dptr,
                    CUstream stream, CUresult (*undo)(CUdeviceptr, CUstream))
{
    bool within = sl_pool_settle(p, r->pool, r->pending);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        return rc;
    }
    /* The driver grew the pool beyond the tenant's limit. */
    if (!within && undo && !sl_process_attempt(p, r->pool->gpu, fits, NULL)) {
        sl_track_cancel();
        (void)undo(*dptr, stream);
        sl_pool_expect_shrink();
        sl_pool_reclaim(p, r->pool->gpu);
        return sl_charge_refused(p);
    }
    struct sl_track t = {.kind = SL_KIND_ASYNC,
                         .key = *dptr,
                         .units = r->units,
                         .owner = r->pool->id,
                         .gpu = r->pool->gpu};
    sl_track_put(&t);
    return rc;
}

typedef CUresult alloc_function(CUdeviceptr *, size_t, CUstream);
typedef CUresult alloc_from_function(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
typedef CUresult free_function(CUdeviceptr, CUstream);

static CUresult alloc_async(struct sl_process *p, alloc_function *real, free_function *undo,
                            bool per_thread, CUdeviceptr *dptr, size_t bytesize, CUstream stream)
{
    struct request r;
    struct sl_site site;
    CUmemoryPool pool;
    __typeof__(&cuDeviceGetMemPool) get_pool = SL_REAL(cuDeviceGetMemPool);
    if (sl_stream_is_capturing(stream, per_thread)) {
        sl_graph_mem_seen();
        return real(dptr, bytesize, stream);
    }
    CUresult rc = sl_site_stream(p, stream, &site);
    if (rc == CUDA_SUCCESS && !site.context)
        return real(dptr, bytesize, stream); /* the driver returns the right error */
    if (rc == CUDA_SUCCESS)
        rc = get_pool ? get_pool(&pool, site.device) : CUDA_ERROR_NOT_SUPPORTED;
    if (rc == CUDA_SUCCESS)
        rc = begin(p, pool, site.device, bytesize, &r);
    return rc != CUDA_SUCCESS ? rc : end(p, &r, real(dptr, bytesize, stream), dptr, stream, undo);
}

static CUresult alloc_from(struct sl_process *p, alloc_from_function *real, free_function *undo,
                           bool per_thread, CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                           CUstream stream)
{
    struct request r;
    struct sl_site site;
    if (sl_stream_is_capturing(stream, per_thread)) {
        sl_graph_mem_seen();
        return real(dptr, bytesize, pool, stream);
    }
    CUresult rc = sl_site_stream(p, stream, &site);
    if (!pool || (rc == CUDA_SUCCESS && !site.context))
        return real(dptr, bytesize, pool, stream);
    if (rc == CUDA_SUCCESS)
        rc = begin(p, pool, site.device, bytesize, &r);
    return rc != CUDA_SUCCESS ? rc
                              : end(p, &r, real(dptr, bytesize, pool, stream), dptr, stream, undo);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    SL_ENTER(cuMemAllocAsync, real, p, (dptr, bytesize, hStream));
    return alloc_async(p, real, SL_REAL(cuMemFreeAsync), false, dptr, bytesize, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    SL_ENTER(cuMemAllocAsync_ptsz, real, p, (dptr, bytesize, hStream));
    return alloc_async(p, real, SL_REAL(cuMemFreeAsync_ptsz), true, dptr, bytesize, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream)
{
    SL_ENTER(cuMemAllocFromPoolAsync, real, p, (dptr, bytesize, pool, hStream));
    return alloc_from(p, real, SL_REAL(cuMemFreeAsync), false, dptr, bytesize, pool, hStream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream)
{
    SL_ENTER(cuMemAllocFromPoolAsync_ptsz, real, p, (dptr, bytesize, pool, hStream));
    return alloc_from(p, real, SL_REAL(cuMemFreeAsync_ptsz), true, dptr, bytesize, pool, hStream);
}

/* ---- free ---- */

static CUresult free_async(struct sl_process *p, free_function *real, bool per_thread,
                           CUdeviceptr dptr, CUstream stream)
{
    struct sl_track t;
    if (sl_stream_is_capturing(stream, per_thread))
        return real(dptr, stream);
    bool known = sl_alloc_take(dptr, &t);
    CUresult rc = real(dptr, stream);
    if (known)
        return sl_alloc_released(p, &t, rc);
    sl_pool_expect_shrink(); /* perhaps memory of a graph */
    return rc;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    SL_ENTER(cuMemFreeAsync, real, p, (dptr, hStream));
    return free_async(p, real, false, dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    SL_ENTER(cuMemFreeAsync_ptsz, real, p, (dptr, hStream));
    return free_async(p, real, true, dptr, hStream);
}

/* ---- pools themselves ---- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    SL_ENTER(cuMemPoolCreate, real, p, (pool, props));
    CUresult rc = real(pool, props);
    if (rc != CUDA_SUCCESS)
        return rc;
    bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct sl_pool model = {.handle = *pool,
                            .device = props->location.id,
                            .gpu = on_device ? sl_device_gpu(p, props->location.id) : SL_NOT_LEASED,
                            .free_of_charge = !on_device};
    (void)sl_pool_add(&model);
    return rc;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    SL_ENTER(cuMemPoolImportFromShareableHandle, real, p, (pool_out, handle, type, flags));
    CUresult rc = real(pool_out, handle, type, flags);
    /* The process that made the pool pays; its pieces are imported one by one (ipc.c). */
    struct sl_pool model = {.gpu = SL_NOT_LEASED, .free_of_charge = true};
    if (rc == CUDA_SUCCESS) {
        model.handle = *pool_out;
        (void)sl_pool_add(&model);
    }
    return rc;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SL_ENTER(cuMemPoolDestroy, real, p, (pool));
    struct sl_pool *known = sl_pool_by_handle(pool);
    CUresult rc = real(pool);
    if (rc == CUDA_SUCCESS && known)
        sl_pool_died(p, known);
    return rc;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    SL_ENTER(cuMemPoolTrimTo, real, p, (pool, minBytesToKeep));
    CUresult rc = real(pool, minBytesToKeep);
    struct sl_pool *known = sl_pool_by_handle(pool);
    if (rc == CUDA_SUCCESS && known)
        (void)sl_pool_settle(p, known, 0);
    return rc;
}

/* ---- synchronisation ---- */

CUresult cuCtxSynchronize(void)
{
    SL_REAL_OR_RETURN(cuCtxSynchronize, real);
    return sl_pool_synchronised(real());
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    SL_REAL_OR_RETURN(cuStreamSynchronize, real);
    return sl_pool_synchronised(real(hStream));
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream)
{
    SL_REAL_OR_RETURN(cuStreamSynchronize_ptsz, real);
    return sl_pool_synchronised(real(hStream));
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    SL_REAL_OR_RETURN(cuEventSynchronize, real);
    return sl_pool_synchronised(real(hEvent));
}
