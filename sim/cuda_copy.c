/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: from the many ways to describe one to addresses, pitches and an engine. */
#include "sim/cuda_int.h"

static bool on_host(uint64_t address)
{
    const struct sim_alloc *a = sim_alloc_find(address);
    return !a || a->kind == SIM_HOST || a->kind == SIM_HOST_REGISTERED;
}

static bool one_card(uint64_t dst, uint64_t src)
{
    const struct sim_alloc *to = sim_alloc_find(dst), *from = sim_alloc_find(src);
    return to && from && to->card == from->card;
}

static uint8_t engine_for(uint64_t dst, uint64_t src)
{
    bool to_host = on_host(dst), from_host = on_host(src);
    if (to_host != from_host)
        return from_host ? SIM_COPY_IN : SIM_COPY_OUT;
    return !to_host && one_card(dst, src) ? SIM_COPY_WITHIN : SIM_COPY_BETWEEN;
}

CUresult sim_copy_linear(uint64_t dst, uint64_t src, size_t bytes, struct sim_work *ret)
{
    *ret = (struct sim_work){.type = SIM_WORK_COPY};
    ret->copy = (struct sim_copy){.dst = dst,
                                  .src = src,
                                  .width = bytes,
                                  .height = 1,
                                  .depth = 1,
                                  .engine = engine_for(dst, src)};
    if (bytes && (!dst || !src))
        return CUDA_ERROR_INVALID_VALUE;
    /* A known allocation must hold the whole range; what is unknown is the caller's own memory. */
    if (bytes && ((sim_alloc_find(dst) && !sim_range_ok(dst, bytes)) ||
                  (sim_alloc_find(src) && !sim_range_ok(src, bytes))))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

struct side {
    CUmemorytype type;
    uint64_t host, device;
    CUarray array;
    size_t x, y, z, pitch, height;
};

static CUresult resolve_side(const struct side *s, uint64_t *ret_at, size_t *ret_pitch,
                             size_t *ret_plane)
{
    uint64_t base = s->type == CU_MEMORYTYPE_HOST ? s->host : s->device;
    size_t pitch = s->pitch, plane = s->pitch * s->height;
    if (s->type == CU_MEMORYTYPE_ARRAY) {
        CUresult r = sim_array_place(s->array, &base, &pitch, &plane);
        if (r != CUDA_SUCCESS)
            return r;
    } else if (s->type != CU_MEMORYTYPE_HOST && s->type != CU_MEMORYTYPE_DEVICE &&
               s->type != CU_MEMORYTYPE_UNIFIED) {
        return CUDA_ERROR_INVALID_VALUE;
    } else if (s->type == CU_MEMORYTYPE_DEVICE && !sim_alloc_find(base)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!base)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_at = base + s->z * plane + s->y * pitch + s->x;
    *ret_pitch = pitch;
    *ret_plane = plane;
    return CUDA_SUCCESS;
}

CUresult sim_copy_resolve(const CUDA_MEMCPY3D *p, struct sim_work *ret)
{
    struct side src = {.type = p->srcMemoryType,
                       .host = (uintptr_t)p->srcHost,
                       .device = p->srcDevice,
                       .array = p->srcArray,
                       .x = p->srcXInBytes,
                       .y = p->srcY,
                       .z = p->srcZ,
                       .pitch = p->srcPitch,
                       .height = p->srcHeight};
    struct side dst = {.type = p->dstMemoryType,
                       .host = (uintptr_t)p->dstHost,
                       .device = p->dstDevice,
                       .array = p->dstArray,
                       .x = p->dstXInBytes,
                       .y = p->dstY,
                       .z = p->dstZ,
                       .pitch = p->dstPitch,
                       .height = p->dstHeight};
    *ret = (struct sim_work){.type = SIM_WORK_COPY};
    struct sim_copy *c = &ret->copy;
    c->width = p->WidthInBytes;
    c->height = p->Height;
    c->depth = p->Depth;
    CUresult r = resolve_side(&src, &c->src, &c->src_pitch, &c->src_plane);
    if (r == CUDA_SUCCESS)
        r = resolve_side(&dst, &c->dst, &c->dst_pitch, &c->dst_plane);
    if (r != CUDA_SUCCESS)
        return r;
    if (c->height > 1 && (c->width > c->src_pitch || c->width > c->dst_pitch))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_copy_bytes(c)) {
        uint64_t n_src = (c->depth - 1) * c->src_plane + (c->height - 1) * c->src_pitch + c->width;
        uint64_t n_dst = (c->depth - 1) * c->dst_plane + (c->height - 1) * c->dst_pitch + c->width;
        if ((sim_alloc_find(c->src) && !sim_range_ok(c->src, n_src)) ||
            (sim_alloc_find(c->dst) && !sim_range_ok(c->dst, n_dst)))
            return CUDA_ERROR_INVALID_VALUE;
    }
    c->engine = engine_for(c->dst, c->src);
    return CUDA_SUCCESS;
}

CUresult sim_memset_check(const struct sim_work *w)
{
    uint64_t row = (uint64_t)w->memset.width * w->memset.element;
    if (w->memset.dst % w->memset.element || (w->memset.height > 1 && w->memset.pitch < row))
        return CUDA_ERROR_INVALID_VALUE;
    if (row == 0 || w->memset.height == 0)
        return CUDA_SUCCESS;
    return sim_range_ok(w->memset.dst, (w->memset.height - 1) * w->memset.pitch + row)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
