/* SPDX-License-Identifier: Apache-2.0 */
/* Linear memory: reserve in the ledger, call the driver, roll back when it fails. */
#include <stdint.h>

#include "preload/alloc.h"
#include "preload/charge.h"
#include "preload/pool.h"
#include "shm/account.h"

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    SL_ENTER(cuMemAlloc, real, p, (dptr, bytesize));
    struct sl_alloc a;
    CUresult rc = sl_alloc_begin(p, sl_units_of_bytes(bytesize), &a);
    if (rc == CUDA_SUCCESS)
        rc = real(dptr, bytesize);
    return sl_alloc_end(p, &a, rc, SL_KIND_LINEAR, rc == CUDA_SUCCESS ? *dptr : 0);
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    SL_ENTER(cuMemAlloc_v2, real, p, (dptr, bytesize));
    struct sl_alloc a;
    CUresult rc = sl_alloc_begin(p, sl_units_of_bytes(bytesize), &a);
    if (rc == CUDA_SUCCESS)
        rc = real(dptr, bytesize);
    return sl_alloc_end(p, &a, rc, SL_KIND_LINEAR, rc == CUDA_SUCCESS ? *dptr : 0);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    SL_ENTER(cuMemAllocManaged, real, p, (dptr, bytesize, flags));
    struct sl_alloc a;
    CUresult rc = sl_alloc_begin(p, sl_units_of_bytes(bytesize), &a);
    if (rc == CUDA_SUCCESS)
        rc = real(dptr, bytesize, flags);
    return sl_alloc_end(p, &a, rc, SL_KIND_LINEAR, rc == CUDA_SUCCESS ? *dptr : 0);
}

/* ---- pitched: the driver chooses the pitch, so the cost is known only afterwards ---- */

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

/* True when the charge now equals the driver's actual size. */
static bool settle_pitch(struct sl_process *p, struct sl_alloc *a, uint64_t pitch, uint64_t height)
{
    uint64_t units = pitched_units(pitch, height);
    if (!a->counted)
        return true;
    if (units > a->units && !sl_pool_charge(p, a->site.gpu, units - a->units))
        return false;
    if (units < a->units)
        sl_charge_return(p, a->site.gpu, a->units - units);
    a->units = units;
    return true;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int widthInBytes,
                         unsigned int height, unsigned int elementSizeBytes)
{
    SL_ENTER(cuMemAllocPitch, real, p, (dptr, pPitch, widthInBytes, height, elementSizeBytes));
    struct sl_alloc a;
    CUresult rc = sl_alloc_begin(p, pitched_guess(widthInBytes, height), &a);
    if (rc == CUDA_SUCCESS)
        rc = real(dptr, pPitch, widthInBytes, height, elementSizeBytes);
    if (rc == CUDA_SUCCESS && !settle_pitch(p, &a, *pPitch, height)) {
        __typeof__(&cuMemFree) undo = SL_REAL(cuMemFree);
        if (undo)
            (void)undo(*dptr);
        rc = sl_charge_refused(p);
    }
    return sl_alloc_end(p, &a, rc, SL_KIND_LINEAR, rc == CUDA_SUCCESS ? *dptr : 0);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t widthInBytes, size_t height,
                            unsigned int elementSizeBytes)
{
    SL_ENTER(cuMemAllocPitch_v2, real, p, (dptr, pPitch, widthInBytes, height, elementSizeBytes));
    struct sl_alloc a;
    CUresult rc = sl_alloc_begin(p, pitched_guess(widthInBytes, height), &a);
    if (rc == CUDA_SUCCESS)
        rc = real(dptr, pPitch, widthInBytes, height, elementSizeBytes);
    if (rc == CUDA_SUCCESS && !settle_pitch(p, &a, *pPitch, height)) {
        __typeof__(&cuMemFree_v2) undo = SL_REAL(cuMemFree_v2);
        if (undo)
            (void)undo(*dptr);
        rc = sl_charge_refused(p);
    }
    return sl_alloc_end(p, &a, rc, SL_KIND_LINEAR, rc == CUDA_SUCCESS ? *dptr : 0);
}

/* ---- free ---- */

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
    SL_ENTER(cuMemFree, real, p, (dptr));
    struct sl_track t;
    bool known = sl_alloc_take(dptr, &t);
    CUresult rc = real(dptr);
    return known ? sl_alloc_released(p, &t, rc) : rc;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    SL_ENTER(cuMemFree_v2, real, p, (dptr));
    struct sl_track t;
    bool known = sl_alloc_take(dptr, &t);
    CUresult rc = real(dptr);
    return known ? sl_alloc_released(p, &t, rc) : rc;
}
