/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, mipmapped arrays, and memory imported from other APIs. */
#include <stddef.h>

#include "preload/alloc.h"
#include "preload/charge.h"
#include "preload/share.h"
#include "shm/account.h"
#include "shm/tag.h"

#define FLAG_LAYERED          0x01U
#define FLAG_CUBEMAP          0x04U
#define FLAG_SPARSE           0x40U
#define FLAG_DEFERRED_MAPPING 0x80U

/* Bytes of one channel; an unknown format counts as the largest. */
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

static uint64_t array_units(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
    uint64_t sum = 0;
    if (d->Flags & (FLAG_SPARSE | FLAG_DEFERRED_MAPPING))
        return 0; /* its memory comes later, from cuMemCreate */
    bool layered = (d->Flags & (FLAG_LAYERED | FLAG_CUBEMAP)) != 0;
    for (unsigned int i = 0; i < levels && i < 32; i++)
        if (__builtin_add_overflow(sum, level_bytes(d, i, layered), &sum))
            sum = UINT64_MAX - SL_UNIT_BYTES;
    return sl_units_of_bytes(sum);
}

static CUresult end(struct sl_process *p, const struct sl_alloc *a, CUresult rc, enum sl_kind kind,
                    const void *handle)
{
    return sl_alloc_end(p, a, rc, kind,
                        rc == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*(void *const *)handle : 0);
}

/* ---- arrays ---- */

/* The four calls differ only in their descriptors. */
#define CREATE(symbol, type, ...)                                                                  \
    CUresult symbol(CUarray *pHandle, const type *desc)                                            \
    {                                                                                              \
        SL_ENTER(symbol, real, p, (pHandle, desc));                                                \
        struct sl_alloc a;                                                                         \
        if (!desc)                                                                                 \
            return real(pHandle, desc);                                                            \
        CUDA_ARRAY3D_DESCRIPTOR d = {.Width = desc->Width,                                         \
                                     .Height = desc->Height,                                       \
                                     .Format = desc->Format,                                       \
                                     .NumChannels = desc->NumChannels,                             \
                                     __VA_ARGS__};                                                 \
        CUresult rc = sl_alloc_begin(p, array_units(&d, 1), &a);                                   \
        return rc == CUDA_SUCCESS ? end(p, &a, real(pHandle, desc), SL_KIND_ARRAY, pHandle) : rc;  \
    }

CREATE(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1, .Depth = 0)
CREATE(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR, .Depth = 0)
CREATE(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1, .Depth = desc->Depth, .Flags = desc->Flags)
CREATE(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR, .Depth = desc->Depth, .Flags = desc->Flags)

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int numLevels)
{
    SL_ENTER(cuMipmappedArrayCreate, real, p, (pHandle, desc, numLevels));
    struct sl_alloc a;
    if (!desc)
        return real(pHandle, desc, numLevels);
    CUresult rc = sl_alloc_begin(p, array_units(desc, numLevels), &a);
    return rc == CUDA_SUCCESS ? end(p, &a, real(pHandle, desc, numLevels), SL_KIND_MIPMAP, pHandle)
                              : rc;
}

#define DESTROY(symbol, type, kind)                                                                \
    CUresult symbol(type handle)                                                                   \
    {                                                                                              \
        SL_ENTER(symbol, real, p, (handle));                                                       \
        struct sl_track t;                                                                         \
        bool known = sl_track_take(kind, (uint64_t)(uintptr_t)handle, &t);                         \
        CUresult rc = real(handle);                                                                \
        return known ? sl_alloc_released(p, &t, rc) : rc;                                          \
    }

DESTROY(cuArrayDestroy, CUarray, SL_KIND_ARRAY)
DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray, SL_KIND_MIPMAP)
DESTROY(cuDestroyExternalMemory, CUexternalMemory, SL_KIND_EXTERNAL)

/* ---- imported from another API: charged to this process, unless a tag shows that the tenant has it already ---- */

static CUresult import_shared(struct sl_process *p, __typeof__(&cuImportExternalMemory) real,
                              CUexternalMemory *extMem,
                              const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc,
                              const struct sl_cost *cost)
{
    struct sl_site site;
    CUresult rc = sl_site_current(p, &site);
    if (rc == CUDA_SUCCESS && !sl_track_room())
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc != CUDA_SUCCESS) {
        sl_share_end(p, cost);
        return rc;
    }
    rc = real(extMem, desc);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        sl_share_end(p, cost);
        return rc;
    }
    struct sl_track t = {.kind = SL_KIND_EXTERNAL,
                         .key = (uint64_t)(uintptr_t)*extMem,
                         .units = cost->units,
                         .owner = site.context_id,
                         .gpu = cost->gpu,
                         .entry = cost->entry};
    sl_track_put(&t);
    return rc;
}

CUresult cuImportExternalMemory(CUexternalMemory *extMem,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    SL_ENTER(cuImportExternalMemory, real, p, (extMem, desc));
    struct sl_alloc a;
    struct sl_cost cost;
    uint64_t id, units;
    if (!desc)
        return real(extMem, desc);
    if (desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD &&
        sl_tag_read(desc->handle.fd, &id, &units) && sl_share_join(p, id, &cost))
        return import_shared(p, real, extMem, desc, &cost);
    CUresult rc = sl_alloc_begin(p, sl_units_of_bytes(desc->size), &a);
    return rc == CUDA_SUCCESS ? end(p, &a, real(extMem, desc), SL_KIND_EXTERNAL, extMem) : rc;
}
