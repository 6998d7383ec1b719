/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts cost memory of their own, which only the driver knows: the arbiter measures it when one is
 * made. A context that takes its tenant over the limit is undone and reported as out of memory. A
 * context that ends frees what was allocated in it, and so do the books.
 */
#include "preload/context.h"

#include <stddef.h>

#include "preload/charge.h"
#include "preload/device.h"

#define MAX_DEVICES 64

/* Primary contexts are named by their device when they are released. */
static CUcontext _Atomic primary[MAX_DEVICES];

static bool fits(struct sl_process *p, int gpu)
{
    struct sl_budget b = sl_charge_budget(p, gpu);
    return !b.limited || b.used_bytes <= b.limit_bytes;
}

/* True if the tenant can afford the context just made on this device. */
static bool context_made(struct sl_process *p, CUcontext context, CUdevice device)
{
    sl_context_enter(p, context, device);
    int gpu = sl_device_gpu(p, device);
    if (gpu < 0)
        return false;
    (void)sl_process_measure(p, (uint32_t)gpu, sl_charge_budget(p, gpu).limited);
    return fits(p, gpu);
}

static CUresult finish_create(struct sl_process *p, CUresult rc, CUcontext *pctx, CUdevice device)
{
    struct sl_site place;
    if (rc != CUDA_SUCCESS || context_made(p, *pctx, device))
        return rc;
    __typeof__(&cuCtxDestroy_v2) destroy = SL_REAL(cuCtxDestroy_v2);
    if (!destroy)
        destroy = SL_REAL(cuCtxDestroy);
    bool known = sl_context_leave(*pctx, &place);
    if (destroy)
        (void)destroy(*pctx);
    if (known)
        sl_context_ended(p, &place);
    *pctx = NULL;
    return sl_charge_refused(p);
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    SL_ENTER(cuCtxCreate, real, p, (pctx, flags, dev));
    return finish_create(p, real(pctx, flags, dev), pctx, dev);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    SL_ENTER(cuCtxCreate_v2, real, p, (pctx, flags, dev));
    return finish_create(p, real(pctx, flags, dev), pctx, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *params, int numParams,
                        unsigned int flags, CUdevice dev)
{
    SL_ENTER(cuCtxCreate_v3, real, p, (pctx, params, numParams, flags, dev));
    return finish_create(p, real(pctx, params, numParams, flags, dev), pctx, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
    SL_ENTER(cuCtxCreate_v4, real, p, (pctx, params, flags, dev));
    return finish_create(p, real(pctx, params, flags, dev), pctx, dev);
}

static CUresult destroy_with(struct sl_process *p, CUresult (*real)(CUcontext), CUcontext ctx)
{
    struct sl_site place;
    bool known = sl_context_leave(ctx, &place);
    CUresult rc = real(ctx);
    if (known && rc == CUDA_SUCCESS)
        sl_context_ended(p, &place);
    else if (known)
        sl_context_back(&place);
    return rc;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    SL_ENTER(cuCtxDestroy, real, p, (ctx));
    return destroy_with(p, real, ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    SL_ENTER(cuCtxDestroy_v2, real, p, (ctx));
    return destroy_with(p, real, ctx);
}

CUresult cuCtxDetach(CUcontext ctx)
{
    SL_ENTER(cuCtxDetach, real, p, (ctx));
    struct sl_site place;
    CUcontext current = NULL;
    __typeof__(&cuCtxGetCurrent) get_current = SL_REAL(cuCtxGetCurrent);
    bool known = sl_context_leave(ctx, &place);
    CUresult rc = real(ctx);
    if (!known)
        return rc;
    /* Attached more than once, it lives on and stays current. */
    bool alive = rc != CUDA_SUCCESS ||
                 (get_current && get_current(&current) == CUDA_SUCCESS && current == ctx);
    if (alive)
        sl_context_back(&place);
    else
        sl_context_ended(p, &place);
    return rc;
}

/* ---- primary contexts ---- */

static CUresult release_primary(CUdevice dev)
{
    __typeof__(&cuDevicePrimaryCtxRelease_v2) release = SL_REAL(cuDevicePrimaryCtxRelease_v2);
    if (!release)
        release = SL_REAL(cuDevicePrimaryCtxRelease);
    return release ? release(dev) : CUDA_ERROR_NOT_SUPPORTED;
}

static void primary_ended(struct sl_process *p, CUdevice dev)
{
    struct sl_site place;
    if (dev < 0 || dev >= MAX_DEVICES)
        return;
    CUcontext context = atomic_exchange(&primary[dev], NULL);
    if (context && sl_context_leave(context, &place))
        sl_context_ended(p, &place);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxRetain, real, p, (pctx, dev));
    CUresult rc = real(pctx, dev);
    if (rc != CUDA_SUCCESS || dev < 0 || dev >= MAX_DEVICES || sl_context_known(*pctx))
        return rc;
    atomic_store(&primary[dev], *pctx);
    if (context_made(p, *pctx, dev))
        return rc;
    (void)release_primary(dev);
    primary_ended(p, dev);
    *pctx = NULL;
    return sl_charge_refused(p);
}

static CUresult after_release(struct sl_process *p, CUresult rc, CUdevice dev)
{
    __typeof__(&cuDevicePrimaryCtxGetState) get_state = SL_REAL(cuDevicePrimaryCtxGetState);
    unsigned int flags;
    int active = 0;
    if (rc == CUDA_SUCCESS && get_state && get_state(dev, &flags, &active) == CUDA_SUCCESS && !active)
        primary_ended(p, dev);
    return rc;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxRelease, real, p, (dev));
    return after_release(p, real(dev), dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxRelease_v2, real, p, (dev));
    return after_release(p, real(dev), dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxReset, real, p, (dev));
    CUresult rc = real(dev);
    if (rc == CUDA_SUCCESS)
        primary_ended(p, dev);
    return rc;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxReset_v2, real, p, (dev));
    CUresult rc = real(dev);
    if (rc == CUDA_SUCCESS)
        primary_ended(p, dev);
    return rc;
}

void sl_context_forget(void)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        atomic_store(&primary[i], NULL);
}
