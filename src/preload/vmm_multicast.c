/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multicast objects. One is addresses only and costs nothing, but what is bound to it stays on the card when its
 * handle is released and its mappings are gone: until it is unbound, or the object has neither handle nor mapping in
 * this process. So a binding keeps memory as a mapping does. (Other processes may keep the object longer: what the
 * driver then shows under this one is charged by the audit. So never more is counted than is held.)
 */
#include "preload/charge.h"
#include "preload/device.h"
#include "preload/track.h"
#include "preload/vmm.h"

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
                           const CUmulticastObjectProp *prop)
{
    SL_ENTER(cuMulticastCreate, real, p, (mcHandle, prop));
    __typeof__(&cuMemRelease) undo = SL_REAL(cuMemRelease);
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real(mcHandle, prop);
    if (rc == CUDA_SUCCESS && sl_vmm_add_multicast(*mcHandle))
        return rc;
    sl_track_cancel();
    if (rc == CUDA_SUCCESS && undo)
        (void)undo(*mcHandle);
    return rc == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : rc;
}

/* After the driver's answer, and after sl_track_room. `m` is held for the binding. */
static CUresult bound(struct sl_process *p, CUresult rc, CUmemGenericAllocationHandle object,
                      size_t offset, size_t size, struct physical *m)
{
    uint64_t id = rc == CUDA_SUCCESS && m ? sl_vmm_multicast_id(object) : 0;
    if (id) {
        struct sl_track t = {.kind = SL_KIND_BINDING,
                             .key = offset,
                             .units = size,
                             .owner = id,
                             .object = m,
                             .gpu = sl_vmm_gpu(m)};
        sl_track_put(&t);
        return rc;
    }
    sl_track_cancel();
    if (m)
        sl_vmm_let_go(p, m);
    return rc;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags)
{
    SL_ENTER(cuMulticastBindMem, real, p, (mcHandle, mcOffset, memHandle, memOffset, size, flags));
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = sl_vmm_hold(memHandle);
    CUresult rc = real(mcHandle, mcOffset, memHandle, memOffset, size, flags);
    return bound(p, rc, mcHandle, mcOffset, size, m);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags)
{
    SL_ENTER(cuMulticastBindAddr, real, p, (mcHandle, mcOffset, memptr, size, flags));
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = sl_vmm_hold_at(memptr);
    CUresult rc = real(mcHandle, mcOffset, memptr, size, flags);
    return bound(p, rc, mcHandle, mcOffset, size, m);
}

/* Bindings of an object; of one GPU and within a range, unless it is all of them. */
struct bindings {
    uint64_t id;
    bool all;
    int gpu;
    size_t offset, size;
};

static bool is_one_of(const struct sl_track *t, const void *arg)
{
    const struct bindings *b = arg;
    if (t->kind != SL_KIND_BINDING || t->owner != b->id)
        return false;
    return b->all || (t->gpu == b->gpu && t->key >= b->offset && t->units <= b->size &&
                      t->key - b->offset <= b->size - t->units);
}

static void unbind(struct sl_process *p, const struct bindings *which)
{
    struct sl_track t;
    while (sl_track_take_if(is_one_of, which, &t))
        sl_vmm_let_go(p, t.object);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size)
{
    SL_ENTER(cuMulticastUnbind, real, p, (mcHandle, dev, mcOffset, size));
    struct bindings which = {.id = sl_vmm_multicast_id(mcHandle),
                             .gpu = sl_device_gpu(p, dev),
                             .offset = mcOffset,
                             .size = size};
    CUresult rc = real(mcHandle, dev, mcOffset, size);
    if (rc == CUDA_SUCCESS && which.id)
        unbind(p, &which);
    return rc;
}

void sl_multicast_ended(struct sl_process *p, uint64_t id)
{
    struct bindings all = {.id = id, .all = true};
    unbind(p, &all);
}
