/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuMemCreate and what keeps its memory alive: handles (cuMemRelease, cuMemRetainAllocationHandle) and
 * mappings (cuMemMap, cuMemUnmap). The charge goes back when the last of both is gone. Imported
 * handles are not in the table: their exporter pays.
 */
#include "preload/vmm.h"

#include <stdlib.h>

#include "preload/charge.h"
#include "preload/device.h"
#include "preload/lock.h"
#include "preload/pool.h"
#include "preload/track.h"
#include "shm/account.h"

struct physical {
    int gpu;
    uint64_t units;
    unsigned int handles;
    unsigned int mappings;
};

/* Over every struct physical, and over table operations that belong together with one. */
static struct sl_lock lock;

/* With the lock held: returns the units to give back, if this was the last reference. */
static uint64_t drop(struct physical *m, int *ret_gpu)
{
    if (m->handles > 0 || m->mappings > 0)
        return 0;
    uint64_t units = m->units;
    *ret_gpu = m->gpu;
    free(m);
    return units;
}

static struct physical *reserve(struct sl_process *p, int gpu, uint64_t units, CUresult *ret_rc)
{
    *ret_rc = CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = malloc(sizeof(*m));
    if (!m)
        return NULL;
    *m = (struct physical){.gpu = gpu, .units = units, .handles = 1};
    bool granted = sl_charge_try(p, gpu, units);
    if (!granted) {
        sl_pool_reclaim(p, gpu);
        granted = sl_charge_try(p, gpu, units);
    }
    if (!granted) {
        *ret_rc = sl_charge_refused(p);
        free(m);
        return NULL;
    }
    if (!sl_track_room()) {
        sl_charge_return(p, gpu, units);
        free(m);
        return NULL;
    }
    return m;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    SL_ENTER(cuMemCreate, real, p, (handle, size, prop, flags));
    if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return real(handle, size, prop, flags); /* host memory is not the GPU's */
    CUresult rc;
    int gpu = sl_device_gpu(p, prop->location.id);
    struct physical *m = reserve(p, gpu, sl_units_of_bytes(size), &rc);
    if (!m)
        return rc;
    rc = real(handle, size, prop, flags);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        sl_charge_return(p, gpu, m->units);
        free(m);
        return rc;
    }
    struct sl_track t = {
        .kind = SL_KIND_PHYSICAL, .key = *handle, .units = m->units, .object = m, .gpu = gpu};
    sl_track_put(&t);
    return rc;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SL_ENTER(cuMemRelease, real, p, (handle));
    struct sl_track t;
    struct physical *m = NULL;
    bool last = false;
    /* A handle number may come back as soon as the driver has released it: out of the table first. */
    sl_lock_take(&lock);
    if (sl_track_get(SL_KIND_PHYSICAL, handle, &t)) {
        m = t.object;
        last = --m->handles == 0;
        m->mappings++; /* keeps it until the driver has answered */
        if (last)
            (void)sl_track_take(SL_KIND_PHYSICAL, handle, &t);
    }
    sl_lock_drop(&lock);
    CUresult rc = real(handle);
    if (!m)
        return rc;
    int gpu = SL_NOT_LEASED;
    bool put_back = rc != CUDA_SUCCESS && last && sl_track_room();
    sl_lock_take(&lock);
    m->mappings--;
    if (rc != CUDA_SUCCESS)
        m->handles++;
    if (put_back)
        sl_track_put(&t);
    uint64_t units = drop(m, &gpu);
    sl_lock_drop(&lock);
    sl_charge_return(p, gpu, units);
    return rc;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    SL_ENTER(cuMemMap, real, p, (ptr, size, offset, handle, flags));
    struct sl_track t;
    struct physical *m = NULL;
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    sl_lock_take(&lock);
    if (sl_track_get(SL_KIND_PHYSICAL, handle, &t)) {
        m = t.object;
        m->mappings++;
    }
    sl_lock_drop(&lock);
    CUresult rc = real(ptr, size, offset, handle, flags);
    if (!m || rc != CUDA_SUCCESS)
        sl_track_cancel();
    if (!m)
        return rc;
    int gpu = SL_NOT_LEASED;
    uint64_t units = 0;
    sl_lock_take(&lock);
    if (rc == CUDA_SUCCESS) {
        struct sl_track mapping = {
            .kind = SL_KIND_MAPPING, .key = ptr, .units = size, .object = m, .gpu = m->gpu};
        sl_track_put(&mapping);
    } else {
        m->mappings--;
        units = drop(m, &gpu);
    }
    sl_lock_drop(&lock);
    sl_charge_return(p, gpu, units);
    return rc;
}

struct range {
    CUdeviceptr start;
    size_t size;
};

static bool is_mapped_within(const struct sl_track *t, const void *arg)
{
    const struct range *r = arg;
    return t->kind == SL_KIND_MAPPING && t->key - r->start < r->size;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    SL_ENTER(cuMemUnmap, real, p, (ptr, size));
    struct sl_track t;
    struct range rest = {ptr, size};
    CUresult rc = real(ptr, size);
    if (rc != CUDA_SUCCESS)
        return rc;
    for (;;) {
        int gpu = SL_NOT_LEASED;
        uint64_t units = 0;
        sl_lock_take(&lock);
        /* Usually one mapping, exactly as it was made; a range may also cover several. */
        bool found = sl_track_take(SL_KIND_MAPPING, rest.start, &t) ||
                     (rest.size > 0 && sl_track_take_if(is_mapped_within, &rest, &t));
        if (found) {
            struct physical *m = t.object;
            m->mappings--;
            units = drop(m, &gpu);
        }
        sl_lock_drop(&lock);
        sl_charge_return(p, gpu, units);
        if (!found)
            return rc;
        if (t.key == rest.start && t.units <= rest.size) {
            rest.start += t.units;
            rest.size -= t.units;
        }
        if (rest.size == 0)
            return rc;
    }
}

struct address {
    CUdeviceptr at;
};

static bool is_mapping_of(const struct sl_track *t, const void *arg)
{
    return t->kind == SL_KIND_MAPPING && ((const struct address *)arg)->at - t->key < t->units;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    SL_ENTER(cuMemRetainAllocationHandle, real, p, (handle, addr));
    struct sl_track t;
    struct address where = {(CUdeviceptr)(uintptr_t)addr};
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real(handle, addr);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        return rc;
    }
    sl_lock_take(&lock);
    bool same_handle = sl_track_get(SL_KIND_PHYSICAL, *handle, &t);
    bool found = same_handle || sl_track_get_if(is_mapping_of, &where, &t);
    if (found)
        ((struct physical *)t.object)->handles++;
    if (found && !same_handle) { /* the last handle was released, or this is another for the same */
        struct sl_track again = {.kind = SL_KIND_PHYSICAL,
                                 .key = *handle,
                                 .units = ((struct physical *)t.object)->units,
                                 .object = t.object,
                                 .gpu = t.gpu};
        sl_track_put(&again);
    } else {
        sl_track_cancel();
    }
    sl_lock_drop(&lock);
    return rc;
}

void sl_vmm_forget(void)
{
    sl_lock_reset(&lock);
}
