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

#define SHAPE_PARAMS                                                                               \
    CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,              \
        unsigned int by, unsigned int bz, unsigned int shared, CUstream s, void **params
#define SHAPE     f, gx, gy, gz, bx, by, bz, shared, s, params
#define SHAPE_KEY shape_key(f, gx, gy, gz, bx, by, bz)

SL_GATED(cuLaunchKernel, (SHAPE_PARAMS, void **extra), (SHAPE, extra), true, SHAPE_KEY,
         SL_LEGACY(s))
SL_GATED(cuLaunchKernel_ptsz, (SHAPE_PARAMS, void **extra), (SHAPE, extra), true, SHAPE_KEY,
         SL_PER_THREAD(s))
SL_GATED(cuLaunchCooperativeKernel, (SHAPE_PARAMS), (SHAPE), true, SHAPE_KEY, SL_LEGACY(s))
SL_GATED(cuLaunchCooperativeKernel_ptsz, (SHAPE_PARAMS), (SHAPE), true, SHAPE_KEY, SL_PER_THREAD(s))

#define CONFIG_PARAMS (const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
#define CONFIG        (config, f, params, extra)

SL_GATED(cuLaunchKernelEx, CONFIG_PARAMS, CONFIG, true, config_key(config, f),
         SL_LEGACY(config ? config->hStream : NULL))
SL_GATED(cuLaunchKernelEx_ptsz, CONFIG_PARAMS, CONFIG, true, config_key(config, f),
         SL_PER_THREAD(config ? config->hStream : NULL))

/* One call submits to several GPUs, to all or to none: the first entry stands for it. */
SL_GATED(cuLaunchCooperativeKernelMultiDevice,
         (CUDA_LAUNCH_PARAMS * list, unsigned int count, unsigned int flags), (list, count, flags),
         true, count &&list ? sl_cost_key_graph(list->function) : 0,
         SL_LEGACY(count &&list ? list->hStream : NULL))

/* The launches of CUDA before 4.0: the shape was set before, so the function alone is the key. */
SL_GATED(cuLaunch, (CUfunction f), (f), true, sl_cost_key_graph(f), CU_STREAM_LEGACY)

#define GRID_KEY shape_key(f, (unsigned)width, (unsigned)height, 1, 0, 0, 0)

SL_GATED(cuLaunchGrid, (CUfunction f, int width, int height), (f, width, height), true, GRID_KEY,
         CU_STREAM_LEGACY)
SL_GATED(cuLaunchGridAsync, (CUfunction f, int width, int height, CUstream s),
         (f, width, height, s), true, GRID_KEY, SL_LEGACY(s))

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
