/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation. Compiled twice: with the legacy and the per-thread default stream. */
#include "sim/cuda_int.h"

static CUresult alloc(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, bool any, CUstream h)
{
    CUstream s;
    CUresult r = sim_stream(h, SIM_PT, &s);
    return r == CUDA_SUCCESS ? sim_alloc_async(dptr, bytes, pool, any, s) : r;
}

CUresult PTSZ(cuMemAllocAsync)(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    ENTER();
    return LOCKED(alloc(dptr, bytesize, NULL, true, hStream));
}

CUresult PTSZ(cuMemAllocFromPoolAsync)(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                       CUstream hStream)
{
    ENTER();
    return LOCKED(alloc(dptr, bytesize, pool, false, hStream));
}

static CUresult release(CUdeviceptr dptr, CUstream h)
{
    CUstream s;
    CUresult r = sim_stream(h, SIM_PT, &s);
    return r == CUDA_SUCCESS ? sim_free_async(dptr, s) : r;
}

CUresult PTSZ(cuMemFreeAsync)(CUdeviceptr dptr, CUstream hStream)
{
    ENTER();
    return LOCKED(release(dptr, hStream));
}
