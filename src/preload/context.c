/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context costs memory, and only the driver knows how much: the arbiter measures it when the context is made. A
 * context that takes its tenant over the limit is destroyed and reported as out of memory. When a context ends, its
 * allocations are freed, and their charges too.
 */
#include <stddef.h>

#include "preload/charge.h"
#include "preload/device.h"
#include "preload/gate.h"

#define MAX_DEVICES  64
/* The possible cost of a context until it is measured. 120 to 600 MiB were seen. */
#define PUT_BY_UNITS ((640ULL << 20) / SL_UNIT_BYTES)

/* A primary context is released by its device. The number of retains tells which release ends it; the driver decides in
 * the end. */
static CUcontext _Atomic primary[MAX_DEVICES];
static _Atomic int retained[MAX_DEVICES];

/*
 * Before a context is made: charges this much until it is measured. A tenant with a limit waits for the measurement. A
 * tenant without a limit does not wait, and others could be promised the memory meanwhile; a charge that is a little
 * too large refuses it nothing.
 */
static uint64_t put_by(struct sl_process *p, CUdevice device)
{
    int gpu = sl_device_gpu(p, device);
    if (gpu < 0 || sl_charge_budget(p, gpu).limited || !sl_process_connected())
        return 0;
    return sl_charge_estimate(p, gpu, PUT_BY_UNITS) ? PUT_BY_UNITS : 0;
}

struct measured {
    const struct sl_lease_page *by; /* the page of the arbiter that was asked; NULL at first */
    uint64_t put_by_units;
};

/* Each arbiter measures the new context once. */
static bool measure_and_fit(struct sl_process *p, int gpu, void *arg)
{
    struct measured *m = arg;
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    if (m->by != lease) {
        m->by = lease;
        (void)sl_process_measure(p, (uint32_t)gpu, sl_charge_budget(p, gpu).limited,
                                 m->put_by_units);
        m->put_by_units = 0;
    }
    return sl_charge_fits(p, gpu);
}

/* True if the new context on this device fits into the tenant's limit. */
static bool context_made(struct sl_process *p, CUcontext context, CUdevice device,
                         uint64_t put_by_units)
{
    sl_context_enter(p, context, device);
    int gpu = sl_device_gpu(p, device);
    if (gpu < 0)
        return false;
    struct measured m = {.put_by_units = put_by_units};
    bool fits = sl_process_attempt(p, gpu, measure_and_fit, &m);
    if (fits)
        sl_charge_peak(p, gpu);
    return fits;
}

static CUresult finish_create(struct sl_process *p, CUresult rc, CUcontext *pctx, CUdevice device,
                              uint64_t put_by_units)
{
    struct sl_site place;
    if (rc != CUDA_SUCCESS)
        sl_charge_estimate_end(p, sl_device_gpu(p, device), put_by_units);
    if (rc != CUDA_SUCCESS || context_made(p, *pctx, device, put_by_units))
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
    uint64_t units = put_by(p, dev);
    return finish_create(p, real(pctx, flags, dev), pctx, dev, units);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    SL_ENTER(cuCtxCreate_v2, real, p, (pctx, flags, dev));
    uint64_t units = put_by(p, dev);
    return finish_create(p, real(pctx, flags, dev), pctx, dev, units);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *params, int numParams,
                        unsigned int flags, CUdevice dev)
{
    SL_ENTER(cuCtxCreate_v3, real, p, (pctx, params, numParams, flags, dev));
    uint64_t units = put_by(p, dev);
    return finish_create(p, real(pctx, params, numParams, flags, dev), pctx, dev, units);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned int flags,
                        CUdevice dev)
{
    SL_ENTER(cuCtxCreate_v4, real, p, (pctx, params, flags, dev));
    uint64_t units = put_by(p, dev);
    return finish_create(p, real(pctx, params, flags, dev), pctx, dev, units);
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
    /* A context that is attached more than once lives on and stays current. */
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

static bool primary_active(CUdevice dev)
{
    __typeof__(&cuDevicePrimaryCtxGetState) get_state = SL_REAL(cuDevicePrimaryCtxGetState);
    unsigned int flags;
    int active = 0;
    return !get_state || get_state(dev, &flags, &active) != CUDA_SUCCESS || active;
}

/*
 * A call that ends a device's primary context. Before the driver destroys the context, libsluice must stop using it and
 * its events. If the context lives on after all, it is entered again.
 */
static CUresult end_primary(struct sl_process *p, CUresult (*real)(CUdevice), CUdevice dev,
                            bool surely)
{
    struct sl_site place;
    CUcontext context = atomic_load(&primary[dev]);
    sl_gate_context_ends(true);
    bool known = context && sl_context_leave(context, &place);
    CUresult rc = real(dev);
    bool ended = rc == CUDA_SUCCESS && (surely || !primary_active(dev));
    sl_gate_context_ends(false);
    if (ended) {
        atomic_store(&retained[dev], 0);
        (void)atomic_compare_exchange_strong(&primary[dev], &context, NULL);
    }
    if (known && ended)
        sl_context_ended(p, &place);
    else if (known && !sl_context_known(context))
        sl_context_back(&place);
    return rc;
}

static CUresult release_with(struct sl_process *p, CUresult (*real)(CUdevice), CUdevice dev)
{
    if (dev < 0 || dev >= MAX_DEVICES)
        return real(dev);
    bool last = atomic_fetch_sub(&retained[dev], 1) <= 1;
    CUresult rc = last ? end_primary(p, real, dev, false) : real(dev);
    if (rc != CUDA_SUCCESS)
        atomic_fetch_add(&retained[dev], 1);
    else if (atomic_load(&retained[dev]) < 0) /* some retains were not seen */
        atomic_store(&retained[dev], 0);
    return rc;
}

static CUresult reset_with(struct sl_process *p, CUresult (*real)(CUdevice), CUdevice dev)
{
    return dev < 0 || dev >= MAX_DEVICES ? real(dev) : end_primary(p, real, dev, true);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxRetain, real, p, (pctx, dev));
    bool in_range = dev >= 0 && dev < MAX_DEVICES;
    uint64_t units = in_range && !atomic_load(&primary[dev]) ? put_by(p, dev) : 0;
    CUresult rc = real(pctx, dev);
    bool made = rc == CUDA_SUCCESS && in_range && !sl_context_known(*pctx);
    if (!made)
        sl_charge_estimate_end(p, sl_device_gpu(p, dev), units);
    if (rc != CUDA_SUCCESS || !in_range)
        return rc;
    atomic_fetch_add(&retained[dev], 1);
    if (!made)
        return rc;
    atomic_store(&primary[dev], *pctx);
    if (context_made(p, *pctx, dev, units))
        return rc;
    (void)end_primary(p, release_primary, dev, true);
    *pctx = NULL;
    return sl_charge_refused(p);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxRelease, real, p, (dev));
    return release_with(p, real, dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxRelease_v2, real, p, (dev));
    return release_with(p, real, dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxReset, real, p, (dev));
    return reset_with(p, real, dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    SL_ENTER(cuDevicePrimaryCtxReset_v2, real, p, (dev));
    return reset_with(p, real, dev);
}

void sl_context_forget(void)
{
    for (int i = 0; i < MAX_DEVICES; i++) {
        atomic_store(&primary[i], NULL);
        atomic_store(&retained[i], 0);
    }
}
