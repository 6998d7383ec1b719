/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to start a kernel, through the gate. */
#include "policy/cost.h"
#include "preload/capture.h"
#include "preload/flight.h"
#include "preload/gate.h"
#include "preload/hooks.h"

static uint64_t shape_key(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                          unsigned int bx, unsigned int by, unsigned int bz)
{
    return sl_cost_key(f, (const uint32_t[3]){gx, gy, gz}, (const uint32_t[3]){bx, by, bz}, 0);
}

static uint64_t config_key(const CUlaunchConfig *c, CUfunction f)
{
    return c ? shape_key(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
                         c->blockDimZ)
             : 0;
}

#define LAUNCH_ARGS                                                                                \
    CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,              \
        unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params

CUresult cuLaunchKernel(LAUNCH_ARGS, void **extra)
{
    SL_GATED(cuLaunchKernel, true, shape_key(f, gx, gy, gz, bx, by, bz), SL_LEGACY(stream), f, gx,
             gy, gz, bx, by, bz, shared, stream, params, extra);
}

CUresult cuLaunchKernel_ptsz(LAUNCH_ARGS, void **extra)
{
    SL_GATED(cuLaunchKernel_ptsz, true, shape_key(f, gx, gy, gz, bx, by, bz), SL_PER_THREAD(stream),
             f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

CUresult cuLaunchCooperativeKernel(LAUNCH_ARGS)
{
    SL_GATED(cuLaunchCooperativeKernel, true, shape_key(f, gx, gy, gz, bx, by, bz),
             SL_LEGACY(stream), f, gx, gy, gz, bx, by, bz, shared, stream, params);
}

CUresult cuLaunchCooperativeKernel_ptsz(LAUNCH_ARGS)
{
    SL_GATED(cuLaunchCooperativeKernel_ptsz, true, shape_key(f, gx, gy, gz, bx, by, bz),
             SL_PER_THREAD(stream), f, gx, gy, gz, bx, by, bz, shared, stream, params);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    SL_GATED(cuLaunchKernelEx, true, config_key(config, f),
             SL_LEGACY(config ? config->hStream : NULL), config, f, params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params,
                               void **extra)
{
    SL_GATED(cuLaunchKernelEx_ptsz, true, config_key(config, f),
             SL_PER_THREAD(config ? config->hStream : NULL), config, f, params, extra);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                              unsigned int flags)
{
    /* One call submits to several GPUs, to all or to none: the first entry stands for it. */
    SL_GATED(cuLaunchCooperativeKernelMultiDevice, true,
             count && list ? sl_cost_key_graph(list->function) : 0,
             SL_LEGACY(count && list ? list->hStream : NULL), list, count, flags);
}

/* The launches of CUDA before 4.0: the shape was set before, so the function alone is the key. */
CUresult cuLaunch(CUfunction f)
{
    SL_GATED(cuLaunch, true, sl_cost_key_graph(f), CU_STREAM_LEGACY, f);
}

CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
    SL_GATED(cuLaunchGrid, true, shape_key(f, (unsigned)width, (unsigned)height, 1, 0, 0, 0),
             CU_STREAM_LEGACY, f, width, height);
}

CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
    SL_GATED(cuLaunchGridAsync, true, shape_key(f, (unsigned)width, (unsigned)height, 1, 0, 0, 0),
             SL_LEGACY(stream), f, width, height, stream);
}

/* ---- a stream may end with work in flight, which is still followed to its end ---- */

static CUresult destroy(CUstream stream, CUresult (*real)(CUstream))
{
    sl_flight_stream_gone(stream);
    struct sl_recording *r = sl_capture_stream_leaves(stream);
    CUresult rc = real(stream);
    sl_capture_stream_left(r, rc == CUDA_SUCCESS);
    return rc;
}

CUresult cuStreamDestroy(CUstream stream)
{
    SL_REAL_OR_RETURN(cuStreamDestroy, real);
    return destroy(stream, real);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    SL_REAL_OR_RETURN(cuStreamDestroy_v2, real);
    return destroy(stream, real);
}
