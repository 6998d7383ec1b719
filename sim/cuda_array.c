/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays: device memory with a shape. */
#include "sim/cuda_int.h"

#include <stdlib.h>
#include <string.h>

#define ARRAY_MAGIC 0x41525231u
#define MAX_LEVELS  16

struct CUarray_st {
    uint32_t magic;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    uint64_t address;
    size_t pitch, plane, bytes;
    bool part; /* a level of a mipmapped array: not freed alone */
};

struct CUmipmappedArray_st {
    uint32_t magic;
    unsigned int levels;
    uint64_t address;
    struct CUarray_st level[MAX_LEVELS];
};

static size_t element_bytes(CUarray_format f)
{
    switch (f) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    case CU_AD_FORMAT_NV12:
        break;
    }
    return 0;
}

/* Fills sizes; false for a shape that is none. */
static bool shape(struct CUarray_st *a, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    size_t e = element_bytes(d->Format) * d->NumChannels;
    if (e == 0 || d->Width == 0 || d->Width > 1u << 20 || d->Height > 1u << 20 ||
        d->Depth > 1u << 16 || (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4))
        return false;
    *a = (struct CUarray_st){.magic = ARRAY_MAGIC, .desc = *d};
    a->pitch = (d->Width * e + 127) & ~(size_t)127;
    a->plane = a->pitch * (d->Height ? d->Height : 1);
    a->bytes = a->plane * (d->Depth ? d->Depth : 1);
    return true;
}

static CUresult array_create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    CUcontext ctx;
    struct CUarray_st a;
    CUresult r = sim_need_ctx(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_unsafe();
    if (r != CUDA_SUCCESS)
        return r;
    if (!out || !d || !shape(&a, d))
        return CUDA_ERROR_INVALID_VALUE;
    r = sim_device_alloc(ctx, a.bytes, SIM_ARRAY, &a.address);
    if (r != CUDA_SUCCESS)
        return r;
    CUarray kept = malloc(sizeof(*kept));
    if (!kept) {
        sim_device_free(sim_alloc_find(a.address));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *kept = a;
    *out = kept;
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    ENTER();
    return LOCKED(array_create(pHandle, desc));
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    ENTER();
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = desc->Width,
                                 .Height = desc->Height,
                                 .Format = desc->Format,
                                 .NumChannels = desc->NumChannels};
    return LOCKED(array_create(pHandle, &d));
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *desc)
{
    ENTER();
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = desc->Width,
                                 .Height = desc->Height,
                                 .Format = desc->Format,
                                 .NumChannels = desc->NumChannels};
    return LOCKED(array_create(pHandle, &d));
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc)
{
    ENTER();
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = desc->Width,
                                 .Height = desc->Height,
                                 .Depth = desc->Depth,
                                 .Format = desc->Format,
                                 .NumChannels = desc->NumChannels,
                                 .Flags = desc->Flags};
    return LOCKED(array_create(pHandle, &d));
}

static bool array_ok(CUarray a)
{
    return a && a->magic == ARRAY_MAGIC;
}

static CUresult array_destroy(CUarray a)
{
    if (!array_ok(a))
        return CUDA_ERROR_INVALID_HANDLE;
    if (a->part)
        return CUDA_SUCCESS; /* a level goes with its mipmapped array; the real driver is silent, too */
    struct sim_alloc *m = sim_alloc_find(a->address);
    if (m) {
        sim_wait_card(m->card);
        m = sim_alloc_find(a->address);
    }
    if (m)
        sim_device_free(m);
    a->magic = 0;
    free(a);
    return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray array)
{
    ENTER();
    return LOCKED(array_destroy(array));
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
    ENTER();
    if (!array_ok(array))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = array->desc;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
    ENTER();
    if (!array_ok(array))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = (CUDA_ARRAY_DESCRIPTOR){.Width = array->desc.Width,
                                    .Height = array->desc.Height,
                                    .Format = array->desc.Format,
                                    .NumChannels = array->desc.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *req, CUarray array,
                                      CUdevice device)
{
    ENTER();
    uint32_t card;
    CUresult r = sim_ordinal(device, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (!array_ok(array) || !req)
        return CUDA_ERROR_INVALID_VALUE;
    *req = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = (array->bytes + SIM_BLOCK - 1) & ~(size_t)(SIM_BLOCK - 1), .alignment = SIM_BLOCK};
    return CUDA_SUCCESS;
}

CUresult sim_array_place(CUarray a, uint64_t *ret_address, size_t *ret_pitch, size_t *ret_plane)
{
    if (!array_ok(a))
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_address = a->address;
    *ret_pitch = a->pitch;
    *ret_plane = a->plane;
    return CUDA_SUCCESS;
}

/* ---- mipmapped arrays: all levels in one allocation ---- */

static size_t half(size_t n)
{
    return n == 0 ? 0 : n / 2 ? n / 2 : 1;
}

static CUresult mip_create(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
                           unsigned int levels)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_unsafe();
    if (r != CUDA_SUCCESS)
        return r;
    if (!out || !d || levels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUmipmappedArray m = calloc(1, sizeof(*m));
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->magic = ARRAY_MAGIC;
    size_t total = 0, offset[MAX_LEVELS] = {0};
    CUDA_ARRAY3D_DESCRIPTOR level = *d;
    for (unsigned int i = 0; i < levels && i < MAX_LEVELS; i++) {
        if (!shape(&m->level[i], &level)) {
            free(m);
            return CUDA_ERROR_INVALID_VALUE;
        }
        m->level[i].part = true;
        offset[i] = total;
        total += (m->level[i].bytes + 511) & ~(size_t)511;
        m->levels = i + 1;
        if (level.Width <= 1 && level.Height <= 1 && level.Depth <= 1)
            break;
        level.Width = half(level.Width);
        level.Height = half(level.Height);
        level.Depth = half(level.Depth);
    }
    r = sim_device_alloc(ctx, total, SIM_ARRAY, &m->address);
    if (r != CUDA_SUCCESS) {
        free(m);
        return r;
    }
    for (unsigned int i = 0; i < m->levels; i++)
        m->level[i].address = m->address + offset[i];
    *out = m;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int numLevels)
{
    ENTER();
    return LOCKED(mip_create(pHandle, desc, numLevels));
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevel, CUmipmappedArray array, unsigned int level)
{
    ENTER();
    if (!array || array->magic != ARRAY_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pLevel || level >= array->levels)
        return CUDA_ERROR_INVALID_VALUE;
    *pLevel = &array->level[level];
    return CUDA_SUCCESS;
}

static CUresult mip_destroy(CUmipmappedArray m)
{
    if (!m || m->magic != ARRAY_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_alloc *a = sim_alloc_find(m->address);
    if (a) {
        sim_wait_card(a->card);
        a = sim_alloc_find(m->address);
    }
    if (a)
        sim_device_free(a);
    m->magic = 0;
    free(m);
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    ENTER();
    return LOCKED(mip_destroy(array));
}
