/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies within the card and memsets take GPU time as kernels do, and pass the same gate. Copies between host and card
 * have engines of their own and cost the neighbours nothing: they pass freely. Copies of two and three dimensions and
 * of arrays are not counted.
 */
#include "policy/cost.h"
#include "preload/gate.h"
#include "preload/hooks.h"

/* Equal functions with equal sizes take about the same time. */
static uint64_t size_key(const void *function, uint64_t bytes)
{
    const uint32_t size[3] = {(uint32_t)bytes, (uint32_t)(bytes >> 32), 1};
    const uint32_t none[3] = {0, 0, 0};
    return sl_cost_key(function, size, none, 0);
}

static bool on_card(CUdeviceptr address)
{
    __typeof__(&cuPointerGetAttribute) ask = SL_REAL(cuPointerGetAttribute);
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    return ask && ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

#define GATED(symbol, counts, bytes, stream, ...)                                                  \
    SL_GATED(symbol, counts, size_key((const void *)(uintptr_t)real, bytes), stream, __VA_ARGS__)

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    GATED(cuMemcpyDtoD_v2, true, bytes, CU_STREAM_LEGACY, dst, src, bytes);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    GATED(cuMemcpyDtoD_v2_ptds, true, bytes, CU_STREAM_PER_THREAD, dst, src, bytes);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s)
{
    GATED(cuMemcpyDtoDAsync_v2, true, bytes, SL_LEGACY(s), dst, src, bytes, s);
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s)
{
    GATED(cuMemcpyDtoDAsync_v2_ptsz, true, bytes, SL_PER_THREAD(s), dst, src, bytes, s);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    GATED(cuMemcpy, on_card(dst) && on_card(src), bytes, CU_STREAM_LEGACY, dst, src, bytes);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    GATED(cuMemcpy_ptds, on_card(dst) && on_card(src), bytes, CU_STREAM_PER_THREAD, dst, src,
          bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s)
{
    GATED(cuMemcpyAsync, on_card(dst) && on_card(src), bytes, SL_LEGACY(s), dst, src, bytes, s);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s)
{
    GATED(cuMemcpyAsync_ptsz, on_card(dst) && on_card(src), bytes, SL_PER_THREAD(s), dst, src,
          bytes, s);
}

/* Memsets: of one dimension and of two, waiting or not, in both meanings of the default stream. */
#define MEMSET(bits, type, wait_v)                                                                 \
    CUresult cuMemsetD##bits##wait_v(CUdeviceptr dst, type value, size_t n)                        \
    {                                                                                              \
        GATED(cuMemsetD##bits##wait_v, true, n * sizeof(type), CU_STREAM_LEGACY, dst, value, n);   \
    }                                                                                              \
    CUresult cuMemsetD##bits##wait_v##_ptds(CUdeviceptr dst, type value, size_t n)                 \
    {                                                                                              \
        GATED(cuMemsetD##bits##wait_v##_ptds, true, n * sizeof(type), CU_STREAM_PER_THREAD, dst,   \
              value, n);                                                                           \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t n, CUstream s)             \
    {                                                                                              \
        GATED(cuMemsetD##bits##Async, true, n * sizeof(type), SL_LEGACY(s), dst, value, n, s);     \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr dst, type value, size_t n, CUstream s)        \
    {                                                                                              \
        GATED(cuMemsetD##bits##Async_ptsz, true, n * sizeof(type), SL_PER_THREAD(s), dst, value,   \
              n, s);                                                                               \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##wait_v(CUdeviceptr dst, size_t pitch, type value, size_t width,    \
                                       size_t height)                                              \
    {                                                                                              \
        GATED(cuMemsetD2D##bits##wait_v, true, width *height * sizeof(type), CU_STREAM_LEGACY,     \
              dst, pitch, value, width, height);                                                   \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##wait_v##_ptds(CUdeviceptr dst, size_t pitch, type value,           \
                                              size_t width, size_t height)                         \
    {                                                                                              \
        GATED(cuMemsetD2D##bits##wait_v##_ptds, true, width *height * sizeof(type),                \
              CU_STREAM_PER_THREAD, dst, pitch, value, width, height);                             \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value, size_t width,     \
                                      size_t height, CUstream s)                                   \
    {                                                                                              \
        GATED(cuMemsetD2D##bits##Async, true, width *height * sizeof(type), SL_LEGACY(s), dst,     \
              pitch, value, width, height, s);                                                     \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr dst, size_t pitch, type value,              \
                                           size_t width, size_t height, CUstream s)                \
    {                                                                                              \
        GATED(cuMemsetD2D##bits##Async_ptsz, true, width *height * sizeof(type), SL_PER_THREAD(s), \
              dst, pitch, value, width, height, s);                                                \
    }

MEMSET(8, unsigned char, _v2)
MEMSET(16, unsigned short, _v2)
MEMSET(32, unsigned int, _v2)
