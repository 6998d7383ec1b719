/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuMemCreate and the references that keep its memory: handles (cuMemRelease, cuMemRetainAllocationHandle) and mappings
 * (cuMemMap, cuMemUnmap). The charge is returned when the last reference is gone.
 *
 * Exported memory becomes an entry that the tenant's processes share (share.h). An import joins the entry. If the
 * tenant has no such entry (for example, it is another tenant's memory), the import is charged like memory of this
 * process. An import of unknown size is charged by its mappings.
 */
#include <stdlib.h>

#include "preload/alloc.h"
#include "preload/charge.h"
#include "preload/device.h"
#include "preload/lock.h"
#include "preload/pool.h"
#include "preload/share.h"
#include "preload/track.h"
#include "shm/account.h"
#include "shm/tag.h"

struct physical {
    struct sl_cost cost;
    unsigned int handles;
    unsigned int mappings; /* and bindings to multicast objects */
    uint64_t multicast;    /* the id of its bindings; 0: it has none */
};

/* The charges to return with the last reference. */
struct last {
    struct sl_cost cost;
    uint64_t multicast;
};

/* For every struct physical, and for table operations that belong to one. */
static struct sl_lock lock;

static const struct last nothing = {.cost = {.gpu = SL_NOT_LEASED}};

/* With the lock held: returns the charges to give back, if this was the last reference. */
static struct last drop(struct physical *m)
{
    if (m->handles > 0 || m->mappings > 0)
        return nothing;
    struct last last = {m->cost, m->multicast};
    free(m);
    return last;
}

static void multicast_ended(struct sl_process *p, uint64_t id);

/* Without the lock. */
static void give_back(struct sl_process *p, const struct last *last)
{
    sl_share_end(p, &last->cost);
    if (last->multicast)
        multicast_ended(p, last->multicast);
}

/* Adds a reference to the memory of a handle; NULL: the handle is not known. */
static struct physical *hold(CUmemGenericAllocationHandle handle)
{
    struct sl_track t = {0};
    sl_lock_take(&lock);
    if (sl_track_get(SL_KIND_PHYSICAL, handle, &t))
        ((struct physical *)t.object)->mappings++;
    sl_lock_drop(&lock);
    return t.object;
}

static void let_go(struct sl_process *p, struct physical *m)
{
    sl_lock_take(&lock);
    m->mappings--;
    struct last last = drop(m);
    sl_lock_drop(&lock);
    give_back(p, &last);
}

static struct physical *reserve(struct sl_process *p, int gpu, uint64_t units, CUresult *ret_rc)
{
    *ret_rc = CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = malloc(sizeof(*m));
    if (!m)
        return NULL;
    *m = (struct physical){.cost = {.gpu = gpu, .units = units}, .handles = 1};
    if (!sl_pool_charge(p, gpu, units)) {
        *ret_rc = sl_charge_refused(p);
        free(m);
        return NULL;
    }
    if (!sl_track_room()) {
        sl_charge_return(p, gpu, units);
        free(m);
        return NULL;
    }
    return m;
}

static void put_handle(CUmemGenericAllocationHandle handle, struct physical *m)
{
    struct sl_track t = {.kind = SL_KIND_PHYSICAL,
                         .key = handle,
                         .units = m->cost.units,
                         .object = m,
                         .gpu = m->cost.gpu};
    sl_track_put(&t);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    SL_ENTER(cuMemCreate, real, p, (handle, size, prop, flags));
    if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return real(handle, size, prop, flags); /* host memory is not charged */
    CUresult rc;
    int gpu = sl_device_gpu(p, prop->location.id);
    struct physical *m = reserve(p, gpu, sl_units_of_bytes(size), &rc);
    if (!m)
        return rc;
    rc = real(handle, size, prop, flags);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        sl_charge_return(p, gpu, m->cost.units);
        free(m);
        return rc;
    }
    put_handle(*handle, m);
    sl_charge_peak(p, gpu);
    return rc;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SL_ENTER(cuMemRelease, real, p, (handle));
    struct sl_track t;
    struct physical *m = NULL;
    bool last = false;
    /* The driver may reuse a handle number as soon as it has released it: out of the table first. */
    sl_lock_take(&lock);
    if (sl_track_get(SL_KIND_PHYSICAL, handle, &t)) {
        m = t.object;
        last = --m->handles == 0;
        m->mappings++; /* keeps the memory until the driver has answered */
        if (last)
            (void)sl_track_take(SL_KIND_PHYSICAL, handle, &t);
    }
    sl_lock_drop(&lock);
    CUresult rc = real(handle);
    if (!m)
        return rc;
    bool put_back = rc != CUDA_SUCCESS && last && sl_track_room();
    sl_lock_take(&lock);
    m->mappings--;
    if (rc != CUDA_SUCCESS)
        m->handles++;
    if (put_back)
        sl_track_put(&t);
    struct last last_one = drop(m);
    sl_lock_drop(&lock);
    give_back(p, &last_one);
    return rc;
}

/* An import of unknown size costs its mapped size at most. True if that is granted. */
static bool cover(struct sl_process *p, struct physical *m, size_t size)
{
    sl_lock_take(&lock);
    uint64_t units = sl_units_of_bytes(size);
    bool own = m->cost.entry == SL_NOT_SHARED && m->cost.gpu != SL_NOT_LEASED;
    uint64_t more = own && units > m->cost.units ? units - m->cost.units : 0;
    m->cost.units += more;
    sl_lock_drop(&lock);
    if (sl_pool_charge(p, m->cost.gpu, more))
        return true;
    sl_lock_take(&lock);
    m->cost.units -= more;
    sl_lock_drop(&lock);
    return false;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    SL_ENTER(cuMemMap, real, p, (ptr, size, offset, handle, flags));
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = hold(handle);
    CUresult rc =
        m && !cover(p, m, size) ? sl_charge_refused(p) : real(ptr, size, offset, handle, flags);
    if (m && rc == CUDA_SUCCESS) {
        struct sl_track mapping = {
            .kind = SL_KIND_MAPPING, .key = ptr, .units = size, .object = m, .gpu = m->cost.gpu};
        sl_track_put(&mapping);
        return rc;
    }
    sl_track_cancel();
    if (m)
        let_go(p, m);
    return rc;
}

struct range {
    CUdeviceptr start;
    size_t size;
};

static bool is_mapped_within(const struct sl_track *t, const void *arg)
{
    const struct range *r = arg;
    return t->kind == SL_KIND_MAPPING && t->key - r->start < r->size;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    SL_ENTER(cuMemUnmap, real, p, (ptr, size));
    struct sl_track t;
    struct range rest = {ptr, size};
    CUresult rc = real(ptr, size);
    if (rc != CUDA_SUCCESS)
        return rc;
    /* Usually one mapping, exactly as it was made; a range may also cover several. */
    while (sl_track_take(SL_KIND_MAPPING, rest.start, &t) ||
           (rest.size > 0 && sl_track_take_if(is_mapped_within, &rest, &t))) {
        let_go(p, t.object);
        if (t.key == rest.start && t.units <= rest.size) {
            rest.start += t.units;
            rest.size -= t.units;
        }
        if (rest.size == 0)
            return rc;
    }
    return rc;
}

struct address {
    CUdeviceptr at;
};

static bool is_mapping_of(const struct sl_track *t, const void *arg)
{
    return t->kind == SL_KIND_MAPPING && ((const struct address *)arg)->at - t->key < t->units;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    SL_ENTER(cuMemRetainAllocationHandle, real, p, (handle, addr));
    struct sl_track t;
    struct address where = {(CUdeviceptr)(uintptr_t)addr};
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real(handle, addr);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        return rc;
    }
    sl_lock_take(&lock);
    bool same_handle = sl_track_get(SL_KIND_PHYSICAL, *handle, &t);
    bool found = same_handle || sl_track_get_if(is_mapping_of, &where, &t);
    if (found)
        ((struct physical *)t.object)->handles++;
    if (found && !same_handle) { /* the last handle was released, or this is another one */
        put_handle(*handle, t.object);
    } else {
        sl_track_cancel();
    }
    sl_lock_drop(&lock);
    return rc;
}

/* ---- between processes ---- */

#define FABRIC_BYTES 64

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    SL_ENTER(cuMemExportToShareableHandle, real, p, (shareableHandle, handle, type, flags));
    struct sl_track t;
    CUresult rc = real(shareableHandle, handle, type, flags);
    bool by_descriptor = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (rc != CUDA_SUCCESS || (!by_descriptor && type != CU_MEM_HANDLE_TYPE_FABRIC))
        return rc;
    uint64_t id = by_descriptor ? sl_share_new_id() : sl_share_id_of(shareableHandle, FABRIC_BYTES);
    uint64_t units = 0;
    sl_lock_take(&lock);
    if (sl_track_get(SL_KIND_PHYSICAL, handle, &t) && t.gpu != SL_NOT_LEASED) {
        struct physical *m = t.object;
        (void)sl_share_begin(p, &m->cost, id, by_descriptor);
        id = sl_share_id(&m->cost);
        units = m->cost.units;
    }
    sl_lock_drop(&lock);
    /* Without a tag the importing process pays too: more than due, never less. */
    if (by_descriptor && units > 0 && id != 0)
        (void)sl_tag_put(*(const int *)shareableHandle, id, units);
    return rc;
}

/* The charge of an import: a part of the tenant's entry, else its whole size; nothing for host memory. */
static bool pay_import(struct sl_process *p, CUmemGenericAllocationHandle handle, uint64_t id,
                       uint64_t units, struct sl_cost *ret)
{
    __typeof__(&cuMemGetAllocationPropertiesFromHandle) ask =
        SL_REAL(cuMemGetAllocationPropertiesFromHandle);
    CUmemAllocationProp prop;
    if (id != 0 && sl_share_join(p, id, ret))
        return true;
    if (!ask || ask(&prop, handle) != CUDA_SUCCESS)
        return false; /* memory of an unknown place is not given out */
    bool on_device = prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    *ret = (struct sl_cost){.gpu = on_device ? sl_device_gpu(p, prop.location.id) : SL_NOT_LEASED,
                            .units = on_device ? units : 0};
    return sl_pool_charge(p, ret->gpu, ret->units);
}

static CUresult imported(struct sl_process *p, CUmemGenericAllocationHandle handle, uint64_t id,
                         uint64_t units)
{
    struct sl_track t;
    struct physical *m = calloc(1, sizeof(*m));
    if (!m) {
        sl_track_cancel();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->handles = 1;
    if (!pay_import(p, handle, id, units, &m->cost)) {
        sl_track_cancel();
        free(m);
        return sl_charge_refused(p);
    }
    sl_lock_take(&lock);
    bool known = sl_track_get(SL_KIND_PHYSICAL, handle, &t);
    if (known) { /* this driver has one number for one memory */
        ((struct physical *)t.object)->handles++;
        sl_track_cancel();
    } else {
        put_handle(handle, m);
    }
    sl_lock_drop(&lock);
    if (known) {
        sl_share_end(p, &m->cost);
        free(m);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType type)
{
    SL_ENTER(cuMemImportFromShareableHandle, real, p, (handle, osHandle, type));
    __typeof__(&cuMemRelease) undo = SL_REAL(cuMemRelease);
    uint64_t id = 0, units = 0;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        (void)sl_tag_read((int)(intptr_t)osHandle, &id, &units);
    else if (type == CU_MEM_HANDLE_TYPE_FABRIC && osHandle)
        id = sl_share_id_of(osHandle, FABRIC_BYTES);
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real(handle, osHandle, type);
    if (rc != CUDA_SUCCESS) {
        sl_track_cancel();
        return rc;
    }
    rc = imported(p, *handle, id, units);
    if (rc != CUDA_SUCCESS && undo)
        (void)undo(*handle);
    return rc;
}

/* ---- multicast objects ---- */

/*
 * A multicast object is addresses only and costs nothing. But memory that is bound to it stays on the card when its
 * handle is released and its mappings are gone: until it is unbound, or until the object has neither handle nor mapping
 * in this process. So a binding keeps memory as a mapping does. (Other processes may keep the object longer: the audit
 * charges the memory that the driver then shows under this process. So never more is counted than is held.)
 */

/* … or to the memory of a mapped address. */
static struct physical *hold_at(CUdeviceptr at)
{
    struct sl_track t = {0};
    struct address where = {at};
    sl_lock_take(&lock);
    if (sl_track_get_if(is_mapping_of, &where, &t))
        ((struct physical *)t.object)->mappings++;
    sl_lock_drop(&lock);
    return t.object;
}

static bool add_multicast(CUmemGenericAllocationHandle handle)
{
    struct physical *m = malloc(sizeof(*m));
    if (!m)
        return false;
    *m = (struct physical){.cost = nothing.cost, .handles = 1, .multicast = sl_track_new_id()};
    put_handle(handle, m);
    return true;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
                           const CUmulticastObjectProp *prop)
{
    SL_ENTER(cuMulticastCreate, real, p, (mcHandle, prop));
    __typeof__(&cuMemRelease) undo = SL_REAL(cuMemRelease);
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real(mcHandle, prop);
    if (rc == CUDA_SUCCESS && add_multicast(*mcHandle))
        return rc;
    sl_track_cancel();
    if (rc == CUDA_SUCCESS && undo)
        (void)undo(*mcHandle);
    return rc == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : rc;
}

/* The id of the object's bindings, from now on; 0: the handle is not known. */
static uint64_t multicast_id(CUmemGenericAllocationHandle handle)
{
    struct sl_track t;
    uint64_t id = 0;
    sl_lock_take(&lock);
    if (sl_track_get(SL_KIND_PHYSICAL, handle, &t)) {
        struct physical *m = t.object;
        if (!m->multicast) /* imported: only now its kind is known */
            m->multicast = sl_track_new_id();
        id = m->multicast;
    }
    sl_lock_drop(&lock);
    return id;
}

/* After the driver's answer, and after sl_track_room. The binding holds `m`. */
static CUresult bound(struct sl_process *p, CUresult rc, CUmemGenericAllocationHandle object,
                      size_t offset, size_t size, struct physical *m)
{
    uint64_t id = rc == CUDA_SUCCESS && m ? multicast_id(object) : 0;
    if (id) {
        struct sl_track t = {.kind = SL_KIND_BINDING,
                             .key = offset,
                             .units = size,
                             .owner = id,
                             .object = m,
                             .gpu = m->cost.gpu};
        sl_track_put(&t);
        return rc;
    }
    sl_track_cancel();
    if (m)
        let_go(p, m);
    return rc;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags)
{
    SL_ENTER(cuMulticastBindMem, real, p, (mcHandle, mcOffset, memHandle, memOffset, size, flags));
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = hold(memHandle);
    CUresult rc = real(mcHandle, mcOffset, memHandle, memOffset, size, flags);
    return bound(p, rc, mcHandle, mcOffset, size, m);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags)
{
    SL_ENTER(cuMulticastBindAddr, real, p, (mcHandle, mcOffset, memptr, size, flags));
    if (!sl_track_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = hold_at(memptr);
    CUresult rc = real(mcHandle, mcOffset, memptr, size, flags);
    return bound(p, rc, mcHandle, mcOffset, size, m);
}

/* Selects bindings of an object: all, or those of one GPU and within a range. */
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
        let_go(p, t.object);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size)
{
    SL_ENTER(cuMulticastUnbind, real, p, (mcHandle, dev, mcOffset, size));
    struct bindings which = {.id = multicast_id(mcHandle),
                             .gpu = sl_device_gpu(p, dev),
                             .offset = mcOffset,
                             .size = size};
    CUresult rc = real(mcHandle, dev, mcOffset, size);
    if (rc == CUDA_SUCCESS && which.id)
        unbind(p, &which);
    return rc;
}

/* The object is gone: so are its bindings. */
static void multicast_ended(struct sl_process *p, uint64_t id)
{
    struct bindings all = {.id = id, .all = true};
    unbind(p, &all);
}

void sl_vmm_forget(void)
{
    sl_lock_reset(&lock);
}
