/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, mipmapped arrays, and memory imported from other APIs. */
#include <stddef.h>

#include "preload/charge.h"
#include "preload/device.h"
#include "preload/pool.h"
#include "preload/track.h"
#include "shm/account.h"

#define FLAG_CUBEMAP          0x04U
#define FLAG_SPARSE           0x40U
#define FLAG_DEFERRED_MAPPING 0x80U

/* Bytes of one channel; formats we do not know are taken at the largest. */
static uint64_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4;
    }
}

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level, bool layered)
{
    uint64_t width = d->Width >> level, height = d->Height >> level;
    uint64_t depth = layered ? d->Depth : d->Depth >> level;
    uint64_t element = product(format_bytes(d->Format), d->NumChannels ? d->NumChannels : 1);
    return product(product(product(width ? width : 1, element), height ? height : 1),
                   depth ? depth : 1);
}

#define FLAG_LAYERED 0x01U

static uint64_t array_units(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
    uint64_t sum = 0;
    if (d->Flags & (FLAG_SPARSE | FLAG_DEFERRED_MAPPING))
        return 0; /* memory comes later, from cuMemCreate */
    bool layered = (d->Flags & (FLAG_LAYERED | FLAG_CUBEMAP)) != 0;
    for (unsigned int i = 0; i < levels && i < 32; i++)
        if (__builtin_add_overflow(sum, level_bytes(d, i, layered), &sum))
            sum = UINT64_MAX - SL_UNIT_BYTES;
    return sl_units_of_bytes(sum);
}

struct pending {
    struct sl_site place;
    uint64_t units;
    bool counted;
};

static CUresult begin(struct sl_process *p, uint64_t units, struct pending *ret)
{
    *ret = (struct pending){.units = units};
    if (!sl_site_current(p, &ret->place))
        return CUDA_SUCCESS;
    bool granted = sl_charge_try(p, ret->place.gpu, units);
    if (!granted) {
        sl_pool_reclaim(p, ret->place.gpu);
        granted = sl_charge_try(p, ret->place.gpu, units);
    }
    if (!granted)
        return sl_charge_refused(p);
    if (!sl_track_room()) {
        sl_charge_return(p, ret->place.gpu, units);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ret->counted = true;
    return CUDA_SUCCESS;
}

static CUresult end(struct sl_process *p, const struct pending *a, CUresult rc, enum sl_kind kind,
                    const void *handle)
{
    struct sl_track t = {.kind = kind,
                         .units = a->units,
                         .owner = a->place.context_id,
                         .gpu = a->place.gpu};
    if (!a->counted)
        return rc;
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        sl_charge_return(p, a->place.gpu, a->units);
        return rc;
    }
    t.key = (uint64_t)(uintptr_t) * (void *const *)handle;
    sl_track_put(&t);
    return rc;
}

static bool take(enum sl_kind kind, const void *handle, struct sl_track *ret)
{
    return sl_track_take(kind, (uint64_t)(uintptr_t)handle, ret);
}

static CUresult released(struct sl_process *p, const struct sl_track *t, CUresult rc)
{
    if (rc == CUDA_SUCCESS)
        sl_charge_return(p, t->gpu, t->units);
    else if (sl_track_room())
        sl_track_put(t);
    return rc;
}

/* ---- arrays ---- */

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *desc)
{
    SL_ENTER(cuArrayCreate, real, p, (pHandle, desc));
    struct pending a;
    CUDA_ARRAY3D_DESCRIPTOR d = {0};
    if (!desc)
        return real(pHandle, desc);
    d = (CUDA_ARRAY3D_DESCRIPTOR){.Width = desc->Width,
                                  .Height = desc->Height,
                                  .Format = desc->Format,
                                  .NumChannels = desc->NumChannels};
    CUresult rc = begin(p, array_units(&d, 1), &a);
    return rc == CUDA_SUCCESS ? end(p, &a, real(pHandle, desc), SL_KIND_ARRAY, pHandle) : rc;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    SL_ENTER(cuArrayCreate_v2, real, p, (pHandle, desc));
    struct pending a;
    if (!desc)
        return real(pHandle, desc);
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = desc->Width,
                                 .Height = desc->Height,
                                 .Format = desc->Format,
                                 .NumChannels = desc->NumChannels};
    CUresult rc = begin(p, array_units(&d, 1), &a);
    return rc == CUDA_SUCCESS ? end(p, &a, real(pHandle, desc), SL_KIND_ARRAY, pHandle) : rc;
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc)
{
    SL_ENTER(cuArray3DCreate, real, p, (pHandle, desc));
    struct pending a;
    if (!desc)
        return real(pHandle, desc);
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = desc->Width,
                                 .Height = desc->Height,
                                 .Depth = desc->Depth,
                                 .Format = desc->Format,
                                 .NumChannels = desc->NumChannels,
                                 .Flags = desc->Flags};
    CUresult rc = begin(p, array_units(&d, 1), &a);
    return rc == CUDA_SUCCESS ? end(p, &a, real(pHandle, desc), SL_KIND_ARRAY, pHandle) : rc;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    SL_ENTER(cuArray3DCreate_v2, real, p, (pHandle, desc));
    struct pending a;
    if (!desc)
        return real(pHandle, desc);
    CUresult rc = begin(p, array_units(desc, 1), &a);
    return rc == CUDA_SUCCESS ? end(p, &a, real(pHandle, desc), SL_KIND_ARRAY, pHandle) : rc;
}

CUresult cuArrayDestroy(CUarray array)
{
    SL_ENTER(cuArrayDestroy, real, p, (array));
    struct sl_track t;
    bool known = take(SL_KIND_ARRAY, array, &t);
    CUresult rc = real(array);
    return known ? released(p, &t, rc) : rc;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int numLevels)
{
    SL_ENTER(cuMipmappedArrayCreate, real, p, (pHandle, desc, numLevels));
    struct pending a;
    if (!desc)
        return real(pHandle, desc, numLevels);
    CUresult rc = begin(p, array_units(desc, numLevels), &a);
    return rc == CUDA_SUCCESS
               ? end(p, &a, real(pHandle, desc, numLevels), SL_KIND_MIPMAP, pHandle)
               : rc;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    SL_ENTER(cuMipmappedArrayDestroy, real, p, (array));
    struct sl_track t;
    bool known = take(SL_KIND_MIPMAP, array, &t);
    CUresult rc = real(array);
    return known ? released(p, &t, rc) : rc;
}

/* ---- imported from another API: nobody else in this tenant's books has it ---- */

CUresult cuImportExternalMemory(CUexternalMemory *extMem,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    SL_ENTER(cuImportExternalMemory, real, p, (extMem, desc));
    struct pending a;
    if (!desc)
        return real(extMem, desc);
    CUresult rc = begin(p, sl_units_of_bytes(desc->size), &a);
    return rc == CUDA_SUCCESS ? end(p, &a, real(extMem, desc), SL_KIND_EXTERNAL, extMem) : rc;
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
    SL_ENTER(cuDestroyExternalMemory, real, p, (extMem));
    struct sl_track t;
    bool known = take(SL_KIND_EXTERNAL, extMem, &t);
    CUresult rc = real(extMem);
    return known ? released(p, &t, rc) : rc;
}
