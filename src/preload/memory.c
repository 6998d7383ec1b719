/* SPDX-License-Identifier: Apache-2.0 */
/* Linear memory: reserve in the ledger, call the driver, roll back when it fails. */
#include <stdint.h>

#include "preload/charge.h"
#include "preload/device.h"
#include "preload/pool.h"
#include "preload/track.h"
#include "shm/account.h"

/* An allocation under way: room in the table and units in the ledger are taken, or nothing is. */
struct pending {
    struct sl_site place;
    uint64_t units;
    bool counted;
};

static CUresult begin(struct sl_process *p, uint64_t units, struct pending *ret)
{
    *ret = (struct pending){.units = units};
    if (!sl_site_current(p, &ret->place))
        return CUDA_SUCCESS; /* no context: the driver has the right error for it */
    if (!sl_charge_try(p, ret->place.gpu, units)) {
        sl_pool_reclaim(p, ret->place.gpu);
        if (!sl_charge_try(p, ret->place.gpu, units))
            return sl_charge_refused(p);
    }
    if (!sl_track_room()) {
        sl_charge_return(p, ret->place.gpu, units);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ret->counted = true;
    return CUDA_SUCCESS;
}

static void fail(struct sl_process *p, const struct pending *a)
{
    if (!a->counted)
        return;
    sl_track_cancel();
    sl_charge_return(p, a->place.gpu, a->units);
}

static void succeed(const struct pending *a, CUdeviceptr address)
{
    struct sl_track t = {.kind = SL_KIND_LINEAR,
                         .key = address,
                         .units = a->units,
                         .owner = a->place.context_id,
                         .gpu = a->place.gpu};
    if (a->counted)
        sl_track_put(&t);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    SL_ENTER(cuMemAlloc, real, p, (dptr, bytesize));
    struct pending a;
    CUresult rc = begin(p, sl_units_of_bytes(bytesize), &a);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = real(dptr, bytesize);
    if (rc == CUDA_SUCCESS)
        succeed(&a, *dptr);
    else
        fail(p, &a);
    return rc;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    SL_ENTER(cuMemAlloc_v2, real, p, (dptr, bytesize));
    struct pending a;
    CUresult rc = begin(p, sl_units_of_bytes(bytesize), &a);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = real(dptr, bytesize);
    if (rc == CUDA_SUCCESS)
        succeed(&a, *dptr);
    else
        fail(p, &a);
    return rc;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    SL_ENTER(cuMemAllocManaged, real, p, (dptr, bytesize, flags));
    struct pending a;
    CUresult rc = begin(p, sl_units_of_bytes(bytesize), &a);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = real(dptr, bytesize, flags);
    if (rc == CUDA_SUCCESS)
        succeed(&a, *dptr);
    else
        fail(p, &a);
    return rc;
}

/* ---- pitched: the driver chooses the pitch, so what it costs is known only afterwards ---- */

#define PITCH_BYTES 512 /* the coarsest alignment cards use; more is settled afterwards */

static uint64_t pitched_units(uint64_t pitch, uint64_t height)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(pitch, height, &bytes))
        return UINT64_MAX / SL_UNIT_BYTES;
    return sl_units_of_bytes(bytes);
}

static uint64_t pitched_guess(uint64_t width, uint64_t height)
{
    uint64_t rounded = width + (PITCH_BYTES - width % PITCH_BYTES) % PITCH_BYTES;
    return pitched_units(rounded < width ? UINT64_MAX : rounded, height);
}

/* True when the charge now is what the driver really took. */
static bool settle_pitch(struct sl_process *p, struct pending *a, uint64_t pitch, uint64_t height)
{
    uint64_t units = pitched_units(pitch, height);
    if (!a->counted)
        return true;
    if (units > a->units && !sl_charge_try(p, a->place.gpu, units - a->units))
        return false;
    if (units < a->units)
        sl_charge_return(p, a->place.gpu, a->units - units);
    a->units = units;
    return true;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int widthInBytes,
                         unsigned int height, unsigned int elementSizeBytes)
{
    SL_ENTER(cuMemAllocPitch, real, p, (dptr, pPitch, widthInBytes, height, elementSizeBytes));
    struct pending a;
    CUresult rc = begin(p, pitched_guess(widthInBytes, height), &a);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = real(dptr, pPitch, widthInBytes, height, elementSizeBytes);
    if (rc != CUDA_SUCCESS) {
        fail(p, &a);
        return rc;
    }
    if (settle_pitch(p, &a, *pPitch, height)) {
        succeed(&a, *dptr);
        return rc;
    }
    __typeof__(&cuMemFree) undo = SL_REAL(cuMemFree);
    if (undo)
        (void)undo(*dptr);
    fail(p, &a);
    return sl_charge_refused(p);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t widthInBytes, size_t height,
                            unsigned int elementSizeBytes)
{
    SL_ENTER(cuMemAllocPitch_v2, real, p, (dptr, pPitch, widthInBytes, height, elementSizeBytes));
    struct pending a;
    CUresult rc = begin(p, pitched_guess(widthInBytes, height), &a);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = real(dptr, pPitch, widthInBytes, height, elementSizeBytes);
    if (rc != CUDA_SUCCESS) {
        fail(p, &a);
        return rc;
    }
    if (settle_pitch(p, &a, *pPitch, height)) {
        succeed(&a, *dptr);
        return rc;
    }
    __typeof__(&cuMemFree_v2) undo = SL_REAL(cuMemFree_v2);
    if (undo)
        (void)undo(*dptr);
    fail(p, &a);
    return sl_charge_refused(p);
}

/* ---- free ---- */

/* Out of the table before the driver frees: its next allocation may get the same address. */
struct freeing {
    struct sl_track entry;
    bool linear;
    bool from_pool;
};

static void free_begin(CUdeviceptr address, struct freeing *f)
{
    *f = (struct freeing){0};
    f->linear = sl_track_take(SL_KIND_LINEAR, address, &f->entry);
    f->from_pool = !f->linear && sl_track_take(SL_KIND_ASYNC, address, &f->entry);
}

static void free_end(struct sl_process *p, const struct freeing *f, CUresult rc)
{
    if (!f->linear && !f->from_pool)
        return;
    if (rc != CUDA_SUCCESS) {
        if (sl_track_room())
            sl_track_put(&f->entry);
        return;
    }
    if (f->linear)
        sl_charge_return(p, f->entry.gpu, f->entry.units);
    else
        sl_pool_freed(p, &f->entry);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
    SL_ENTER(cuMemFree, real, p, (dptr));
    struct freeing f;
    free_begin(dptr, &f);
    CUresult rc = real(dptr);
    free_end(p, &f, rc);
    return rc;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    SL_ENTER(cuMemFree_v2, real, p, (dptr));
    struct freeing f;
    free_begin(dptr, &f);
    CUresult rc = real(dptr);
    free_end(p, &f, rc);
    return rc;
}
