/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and memsets. Compiled twice: with the legacy and the per-thread default stream. */
#include "sim/cuda_int.h"

#include <stdlib.h>
#include <string.h>

#define STAGE_MAX 65536 /* pageable sources up to here are read at the call, as the driver does */

static uint64_t addr(const void *p)
{
    return (uintptr_t)p;
}

/* Pageable memory is the caller's again when the call returns: small sources are staged, anything
 * else is waited for. */
static CUresult submit_copy(CUstream s, struct sim_work *w, bool wait)
{
    struct sim_copy *c = &w->copy;
    bool dst_known = sim_alloc_find(c->dst) != NULL, src_known = sim_alloc_find(c->src) != NULL;
    if (s->capture)
        return sim_capture_add(s, w, NULL);
    CUresult r = sim_capture_stream_ok(s);
    if (r != CUDA_SUCCESS || sim_copy_bytes(c) == 0)
        return r;
    if (!dst_known)
        wait = true;
    if (!wait && !src_known) {
        if (c->height == 1 && c->depth == 1 && c->width <= STAGE_MAX)
            c->staging = malloc(c->width);
        if (c->staging) {
            memcpy(c->staging, (const void *)(uintptr_t)c->src, c->width);
            c->src = addr(c->staging);
        } else {
            wait = true;
        }
    }
    uint64_t seq;
    r = sim_submit(s, w, &seq);
    return r == CUDA_SUCCESS && wait ? sim_wait_seq(s->ctx, seq) : r;
}

static CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream h, bool wait)
{
    CUstream s;
    struct sim_work w;
    CUresult r = sim_stream(h, SIM_PT, &s);
    if (r == CUDA_SUCCESS && wait)
        r = sim_capture_stream_ok(s);
    if (r == CUDA_SUCCESS && wait)
        r = sim_capture_unsafe();
    if (r == CUDA_SUCCESS)
        r = sim_copy_linear(dst, src, bytes, &w);
    return r == CUDA_SUCCESS ? submit_copy(s, &w, wait) : r;
}

/* As copy(), where `device` says which sides must be device memory: 1 dst, 2 src. */
static CUresult copy_device(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream h, bool wait,
                            int device)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (bytes && (((device & 1) && !sim_alloc_find(dst)) || ((device & 2) && !sim_alloc_find(src))))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(dst, src, bytes, h, wait);
}

static CUresult copy3d(const CUDA_MEMCPY3D *p, CUstream h, bool wait)
{
    CUstream s;
    struct sim_work w;
    CUresult r = sim_stream(h, SIM_PT, &s);
    if (r == CUDA_SUCCESS && wait)
        r = sim_capture_stream_ok(s);
    if (r == CUDA_SUCCESS && wait)
        r = sim_capture_unsafe();
    if (r == CUDA_SUCCESS)
        r = p ? sim_copy_resolve(p, &w) : CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? submit_copy(s, &w, wait) : r;
}

static CUresult copy2d(const CUDA_MEMCPY2D *p, CUstream h, bool wait)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D c = {.srcXInBytes = p->srcXInBytes,
                       .srcY = p->srcY,
                       .srcMemoryType = p->srcMemoryType,
                       .srcHost = p->srcHost,
                       .srcDevice = p->srcDevice,
                       .srcArray = p->srcArray,
                       .srcPitch = p->srcPitch,
                       .srcHeight = p->Height,
                       .dstXInBytes = p->dstXInBytes,
                       .dstY = p->dstY,
                       .dstMemoryType = p->dstMemoryType,
                       .dstHost = p->dstHost,
                       .dstDevice = p->dstDevice,
                       .dstArray = p->dstArray,
                       .dstPitch = p->dstPitch,
                       .dstHeight = p->Height,
                       .WidthInBytes = p->WidthInBytes,
                       .Height = p->Height,
                       .Depth = 1};
    if (c.srcMemoryType != CU_MEMORYTYPE_ARRAY && c.srcPitch == 0)
        c.srcPitch = c.WidthInBytes;
    if (c.dstMemoryType != CU_MEMORYTYPE_ARRAY && c.dstPitch == 0)
        c.dstPitch = c.WidthInBytes;
    return copy3d(&c, h, wait);
}

static CUresult copy_peer3d(const CUDA_MEMCPY3D_PEER *p, CUstream h, bool wait)
{
    CUDA_MEMCPY3D c; /* the same layout, with contexts where this has reserved words */
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&c, p, sizeof(c));
    return copy3d(&c, h, wait);
}

/* One row of an array, from an offset in bytes. */
static CUresult array_copy(CUarray array, size_t offset, uint64_t other, size_t bytes,
                           bool to_array, CUstream h, bool wait)
{
    uint64_t base;
    size_t pitch, plane;
    CUresult r = sim_array_place(array, &base, &pitch, &plane);
    if (r != CUDA_SUCCESS)
        return r;
    return to_array ? copy(base + offset, other, bytes, h, wait)
                    : copy(other, base + offset, bytes, h, wait);
}

CUresult PTDS(cuMemcpy)(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    ENTER();
    return LOCKED(copy(dst, src, bytes, NULL, true));
}

CUresult PTSZ(cuMemcpyAsync)(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream hStream)
{
    ENTER();
    return LOCKED(copy(dst, src, bytes, hStream, false));
}

CUresult PTDS(cuMemcpyHtoD_v2)(CUdeviceptr dst, const void *src, size_t bytes)
{
    ENTER();
    return LOCKED(copy_device(dst, addr(src), bytes, NULL, true, 1));
}

CUresult PTSZ(cuMemcpyHtoDAsync_v2)(CUdeviceptr dst, const void *src, size_t bytes,
                                    CUstream hStream)
{
    ENTER();
    return LOCKED(copy_device(dst, addr(src), bytes, hStream, false, 1));
}

CUresult PTDS(cuMemcpyDtoH_v2)(void *dst, CUdeviceptr src, size_t bytes)
{
    ENTER();
    return LOCKED(copy_device(addr(dst), src, bytes, NULL, true, 2));
}

CUresult PTSZ(cuMemcpyDtoHAsync_v2)(void *dst, CUdeviceptr src, size_t bytes, CUstream hStream)
{
    ENTER();
    return LOCKED(copy_device(addr(dst), src, bytes, hStream, false, 2));
}

/* Device to device is asynchronous to the host even in its plain form. */
CUresult PTDS(cuMemcpyDtoD_v2)(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    ENTER();
    return LOCKED(copy_device(dst, src, bytes, NULL, false, 3));
}

CUresult PTSZ(cuMemcpyDtoDAsync_v2)(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                    CUstream hStream)
{
    ENTER();
    return LOCKED(copy_device(dst, src, bytes, hStream, false, 3));
}

static CUresult peer(CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t bytes,
                     CUstream h)
{
    if (!sim_ctx_ok(dc) || !sim_ctx_ok(sc))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy_device(dst, src, bytes, h, false, 3);
}

CUresult PTDS(cuMemcpyPeer)(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src,
                            CUcontext srcContext, size_t bytes)
{
    ENTER();
    return LOCKED(peer(dst, dstContext, src, srcContext, bytes, NULL));
}

CUresult PTSZ(cuMemcpyPeerAsync)(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src,
                                 CUcontext srcContext, size_t bytes, CUstream hStream)
{
    ENTER();
    return LOCKED(peer(dst, dstContext, src, srcContext, bytes, hStream));
}

CUresult PTDS(cuMemcpyDtoA_v2)(CUarray dst, size_t dstOffset, CUdeviceptr src, size_t bytes)
{
    ENTER();
    return LOCKED(array_copy(dst, dstOffset, src, bytes, true, NULL, false));
}

CUresult PTDS(cuMemcpyAtoD_v2)(CUdeviceptr dst, CUarray src, size_t srcOffset, size_t bytes)
{
    ENTER();
    return LOCKED(array_copy(src, srcOffset, dst, bytes, false, NULL, false));
}

CUresult PTDS(cuMemcpyHtoA_v2)(CUarray dst, size_t dstOffset, const void *src, size_t bytes)
{
    ENTER();
    return LOCKED(array_copy(dst, dstOffset, addr(src), bytes, true, NULL, true));
}

CUresult PTDS(cuMemcpyAtoH_v2)(void *dst, CUarray src, size_t srcOffset, size_t bytes)
{
    ENTER();
    return LOCKED(array_copy(src, srcOffset, addr(dst), bytes, false, NULL, true));
}

CUresult PTSZ(cuMemcpyHtoAAsync_v2)(CUarray dst, size_t dstOffset, const void *src, size_t bytes,
                                    CUstream hStream)
{
    ENTER();
    return LOCKED(array_copy(dst, dstOffset, addr(src), bytes, true, hStream, false));
}

CUresult PTSZ(cuMemcpyAtoHAsync_v2)(void *dst, CUarray src, size_t srcOffset, size_t bytes,
                                    CUstream hStream)
{
    ENTER();
    return LOCKED(array_copy(src, srcOffset, addr(dst), bytes, false, hStream, false));
}

static CUresult array_to_array(CUarray dst, size_t dstOffset, CUarray src, size_t srcOffset,
                               size_t bytes)
{
    uint64_t base;
    size_t pitch, plane;
    CUresult r = sim_array_place(src, &base, &pitch, &plane);
    return r == CUDA_SUCCESS
               ? array_copy(dst, dstOffset, base + srcOffset, bytes, true, NULL, false)
               : r;
}

CUresult PTDS(cuMemcpyAtoA_v2)(CUarray dst, size_t dstOffset, CUarray src, size_t srcOffset,
                               size_t bytes)
{
    ENTER();
    return LOCKED(array_to_array(dst, dstOffset, src, srcOffset, bytes));
}

CUresult PTDS(cuMemcpy2D_v2)(const CUDA_MEMCPY2D *p)
{
    ENTER();
    return LOCKED(copy2d(p, NULL, true));
}

CUresult PTDS(cuMemcpy2DUnaligned_v2)(const CUDA_MEMCPY2D *p)
{
    ENTER();
    return LOCKED(copy2d(p, NULL, true));
}

CUresult PTSZ(cuMemcpy2DAsync_v2)(const CUDA_MEMCPY2D *p, CUstream hStream)
{
    ENTER();
    return LOCKED(copy2d(p, hStream, false));
}

CUresult PTDS(cuMemcpy3D_v2)(const CUDA_MEMCPY3D *p)
{
    ENTER();
    return LOCKED(copy3d(p, NULL, true));
}

CUresult PTSZ(cuMemcpy3DAsync_v2)(const CUDA_MEMCPY3D *p, CUstream hStream)
{
    ENTER();
    return LOCKED(copy3d(p, hStream, false));
}

CUresult PTDS(cuMemcpy3DPeer)(const CUDA_MEMCPY3D_PEER *p)
{
    ENTER();
    return LOCKED(copy_peer3d(p, NULL, true));
}

CUresult PTSZ(cuMemcpy3DPeerAsync)(const CUDA_MEMCPY3D_PEER *p, CUstream hStream)
{
    ENTER();
    return LOCKED(copy_peer3d(p, hStream, false));
}

/* ---- memset ---- */

static CUresult set(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element, size_t width,
                    size_t height, CUstream h)
{
    CUstream s;
    struct sim_work w = {.type = SIM_WORK_MEMSET};
    w.memset.dst = dst;
    w.memset.pitch = pitch;
    w.memset.value = value;
    w.memset.element = element;
    w.memset.width = width;
    w.memset.height = height;
    CUresult r = sim_stream(h, SIM_PT, &s);
    if (r == CUDA_SUCCESS)
        r = sim_memset_check(&w);
    if (r != CUDA_SUCCESS || width == 0 || height == 0)
        return r;
    return sim_stream_do(s, &w);
}

#define MEMSET_CALLS(bits, type)                                                                   \
    CUresult PTDS(cuMemsetD##bits##_v2)(CUdeviceptr dst, type value, size_t n)                     \
    {                                                                                              \
        ENTER();                                                                                   \
        return LOCKED(set(dst, 0, value, bits / 8, n, 1, NULL));                                   \
    }                                                                                              \
    CUresult PTSZ(cuMemsetD##bits##Async)(CUdeviceptr dst, type value, size_t n, CUstream hStream) \
    {                                                                                              \
        ENTER();                                                                                   \
        return LOCKED(set(dst, 0, value, bits / 8, n, 1, hStream));                                \
    }                                                                                              \
    CUresult PTDS(cuMemsetD2D##bits##_v2)(CUdeviceptr dst, size_t pitch, type value, size_t width, \
                                          size_t height)                                           \
    {                                                                                              \
        ENTER();                                                                                   \
        return LOCKED(set(dst, pitch, value, bits / 8, width, height, NULL));                      \
    }                                                                                              \
    CUresult PTSZ(cuMemsetD2D##bits##Async)(CUdeviceptr dst, size_t pitch, type value,             \
                                            size_t width, size_t height, CUstream hStream)         \
    {                                                                                              \
        ENTER();                                                                                   \
        return LOCKED(set(dst, pitch, value, bits / 8, width, height, hStream));                   \
    }

MEMSET_CALLS(8, unsigned char)
MEMSET_CALLS(16, unsigned short)
MEMSET_CALLS(32, unsigned int)
