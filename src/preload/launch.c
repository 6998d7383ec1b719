/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to start a kernel, through the gate. */
#include "policy/cost.h"
#include "preload/capture.h"
#include "preload/flight.h"
#include "preload/gate.h"
#include "preload/hooks.h"

/* The default stream by its explicit name, as the variant of the call means it. */
static CUstream legacy(CUstream s)
{
    return s ? s : CU_STREAM_LEGACY;
}

static CUstream per_thread(CUstream s)
{
    return s ? s : CU_STREAM_PER_THREAD;
}

/* The body of a launch hook: fast when the gate is free, accounted otherwise. */
#define GATED(symbol, key, stream, ...)                                                            \
    do {                                                                                           \
        SL_REAL_OR_RETURN(symbol, real);                                                           \
        if (sl_gate_is_free())                                                                     \
            return real(__VA_ARGS__);                                                              \
        SL_GATE_LAUNCH(key, stream, real(__VA_ARGS__));                                            \
    } while (0)

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
    GATED(cuLaunchKernel, shape_key(f, gx, gy, gz, bx, by, bz), legacy(stream), f, gx, gy, gz, bx,
          by, bz, shared, stream, params, extra);
}

CUresult cuLaunchKernel_ptsz(LAUNCH_ARGS, void **extra)
{
    GATED(cuLaunchKernel_ptsz, shape_key(f, gx, gy, gz, bx, by, bz), per_thread(stream), f, gx, gy,
          gz, bx, by, bz, shared, stream, params, extra);
}

CUresult cuLaunchCooperativeKernel(LAUNCH_ARGS)
{
    GATED(cuLaunchCooperativeKernel, shape_key(f, gx, gy, gz, bx, by, bz), legacy(stream), f, gx,
          gy, gz, bx, by, bz, shared, stream, params);
}

CUresult cuLaunchCooperativeKernel_ptsz(LAUNCH_ARGS)
{
    GATED(cuLaunchCooperativeKernel_ptsz, shape_key(f, gx, gy, gz, bx, by, bz), per_thread(stream),
          f, gx, gy, gz, bx, by, bz, shared, stream, params);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    GATED(cuLaunchKernelEx, config_key(config, f), legacy(config ? config->hStream : NULL), config,
          f, params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params,
                               void **extra)
{
    GATED(cuLaunchKernelEx_ptsz, config_key(config, f), per_thread(config ? config->hStream : NULL),
          config, f, params, extra);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                              unsigned int flags)
{
    /* One call submits to several GPUs, together or not at all: the first entry stands for it. */
    GATED(cuLaunchCooperativeKernelMultiDevice,
          count && list ? sl_cost_key_graph(list->function) : 0,
          legacy(count && list ? list->hStream : NULL), list, count, flags);
}

/* The launches of CUDA before 4.0: the shape was set beforehand, so the function alone is the key. */
CUresult cuLaunch(CUfunction f)
{
    GATED(cuLaunch, sl_cost_key_graph(f), CU_STREAM_LEGACY, f);
}

CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
    GATED(cuLaunchGrid, shape_key(f, (unsigned)width, (unsigned)height, 1, 0, 0, 0),
          CU_STREAM_LEGACY, f, width, height);
}

CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
    GATED(cuLaunchGridAsync, shape_key(f, (unsigned)width, (unsigned)height, 1, 0, 0, 0),
          legacy(stream), f, width, height, stream);
}

/* ---- streams end with work in flight, which is seen to its end all the same ---- */

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
