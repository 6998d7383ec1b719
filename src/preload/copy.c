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

/* `bytes` are what it moves or sets. */
#define GATED(symbol, params, args, counts, bytes, stream)                                         \
    SL_GATED(symbol, params, args, counts, size_key((const void *)(uintptr_t)real, bytes), stream)

#define COPY_PARAMS CUdeviceptr dst, CUdeviceptr src, size_t bytes
#define COPY        dst, src, bytes

GATED(cuMemcpyDtoD_v2, (COPY_PARAMS), (COPY), true, bytes, CU_STREAM_LEGACY)
GATED(cuMemcpyDtoD_v2_ptds, (COPY_PARAMS), (COPY), true, bytes, CU_STREAM_PER_THREAD)
GATED(cuMemcpyDtoDAsync_v2, (COPY_PARAMS, CUstream s), (COPY, s), true, bytes, SL_LEGACY(s))
GATED(cuMemcpyDtoDAsync_v2_ptsz, (COPY_PARAMS, CUstream s), (COPY, s), true, bytes,
      SL_PER_THREAD(s))

#define ON_CARD (on_card(dst) && on_card(src))

GATED(cuMemcpy, (COPY_PARAMS), (COPY), ON_CARD, bytes, CU_STREAM_LEGACY)
GATED(cuMemcpy_ptds, (COPY_PARAMS), (COPY), ON_CARD, bytes, CU_STREAM_PER_THREAD)
GATED(cuMemcpyAsync, (COPY_PARAMS, CUstream s), (COPY, s), ON_CARD, bytes, SL_LEGACY(s))
GATED(cuMemcpyAsync_ptsz, (COPY_PARAMS, CUstream s), (COPY, s), ON_CARD, bytes, SL_PER_THREAD(s))

/* Memsets: of one dimension and of two, waiting or not, in both meanings of the default stream. */
#define SET(name, wait_v, params, args, bytes)                                                     \
    GATED(name##wait_v, (params), (args), true, bytes, CU_STREAM_LEGACY)                           \
    GATED(name##wait_v##_ptds, (params), (args), true, bytes, CU_STREAM_PER_THREAD)                \
    GATED(name##Async, (params, CUstream s), (args, s), true, bytes, SL_LEGACY(s))                 \
    GATED(name##Async_ptsz, (params, CUstream s), (args, s), true, bytes, SL_PER_THREAD(s))

#define GROUP(...) __VA_ARGS__
#define MEMSET(bits, type)                                                                         \
    SET(cuMemsetD##bits, _v2, GROUP(CUdeviceptr dst, type value, size_t n), GROUP(dst, value, n),  \
        n * sizeof(type))                                                                          \
    SET(cuMemsetD2D##bits, _v2,                                                                    \
        GROUP(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),             \
        GROUP(dst, pitch, value, width, height), width *height * sizeof(type))

MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned int)
