/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered memory: pools that reserve from the card and keep what is freed, up to a threshold;
 * and the memory of graphs, which is kept the same way, per card. */
#include "sim/cuda_int.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL_STEP  (32 * SIM_MIB)
#define POOL_MAGIC 0x504f4f4cu

struct CUmemPoolHandle_st {
    uint32_t magic;
    uint32_t card;
    CUdevice ordinal;
    bool is_default, gone; /* gone: destroyed, with allocations still out */
    bool exportable, imported;
    uint64_t threshold, reserved, reserved_high, used, used_high, max_bytes;
    int reuse[4];
    CUmemAccess_flags access[SL_SIM_MAX_DEVICES];
    struct CUmemPoolHandle_st *next;
};

static struct CUmemPoolHandle_st *pools;
static CUmemoryPool default_pool[SL_SIM_MAX_DEVICES], current_pool[SL_SIM_MAX_DEVICES];
static struct {
    uint64_t reserved, reserved_high, used, used_high;
} graph_mem[SL_SIM_MAX_DEVICES];

static CUmemoryPool pool_new(CUdevice ordinal, bool is_default)
{
    CUmemoryPool p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->magic = POOL_MAGIC;
    p->ordinal = ordinal;
    p->card = sim_p.card[ordinal];
    p->is_default = is_default;
    p->reuse[1] = p->reuse[2] = p->reuse[3] = 1;
    p->access[ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    p->next = pools;
    pools = p;
    return p;
}

static CUmemoryPool pool_default(CUdevice dev)
{
    if (!default_pool[dev])
        default_pool[dev] = pool_new(dev, true);
    return default_pool[dev];
}

static bool pool_ok(CUmemoryPool p)
{
    return p && p->magic == POOL_MAGIC && !p->gone;
}

static uint64_t up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void trim(CUmemoryPool p, uint64_t keep)
{
    uint64_t floor = up(p->used > keep ? p->used : keep, SIM_BLOCK);
    if (p->reserved > floor) {
        sim_uncharge(p->card, p->reserved - floor);
        p->reserved = floor;
    }
}

void sim_pool_sync(void)
{
    for (CUmemoryPool p = pools; p; p = p->next)
        if (p->reserved > p->threshold)
            trim(p, p->threshold);
}

void sim_pools_of_ctx_gone(uint32_t card)
{
    for (CUmemoryPool p = pools; p; p = p->next)
        if (p->card == card)
            trim(p, 0);
}

static CUresult reserve(CUmemoryPool p, uint64_t bytes)
{
    if (p->max_bytes && p->used + bytes > p->max_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (p->used + bytes > p->reserved) {
        uint64_t more = p->used + bytes - p->reserved;
        uint64_t step = up(more, more < POOL_STEP ? POOL_STEP : SIM_BLOCK);
        CUresult r = sim_charge(p->card, step);
        if (r != CUDA_SUCCESS) {
            step = up(more, SIM_BLOCK);
            r = sim_charge(p->card, step);
        }
        if (r != CUDA_SUCCESS) { /* what other pools only keep is there for the taking */
            for (CUmemoryPool o = pools; o; o = o->next)
                if (o->card == p->card)
                    trim(o, 0);
            more = p->used + bytes - p->reserved;
            step = up(more, SIM_BLOCK);
            r = sim_charge(p->card, step);
        }
        if (r != CUDA_SUCCESS)
            return r;
        p->reserved += step;
    }
    p->used += bytes;
    if (p->reserved > p->reserved_high)
        p->reserved_high = p->reserved;
    if (p->used > p->used_high)
        p->used_high = p->used;
    return CUDA_SUCCESS;
}

static void unreserve(CUmemoryPool p, uint64_t bytes)
{
    p->used -= bytes < p->used ? bytes : p->used;
    if (p->gone)
        trim(p, 0);
}

static CUresult pool_alloc(CUmemoryPool p, size_t bytes, CUstream s, CUdeviceptr *ret)
{
    uint64_t size = up(bytes, SIM_UNIT);
    struct sim_alloc a = {
        .size = bytes, .kind = SIM_POOL, .card = p->card, .ctx = s->ctx, .owner = p};
    CUresult r = reserve(p, size);
    if (r != CUDA_SUCCESS)
        return r;
    a.address = (uintptr_t)sim_map_memory(up(bytes, SIM_BLOCK));
    if (!a.address || !sim_alloc_add(&a)) {
        unreserve(p, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = a.address;
    struct sim_work w = {.type = SIM_WORK_ALLOC};
    w.address = a.address;
    return sim_submit(s, &w, NULL);
}

/* In a capture the address is fixed now; the memory is taken at each launch. */
static CUresult captured_alloc(CUstream s, size_t bytes, CUdeviceptr *ret)
{
    struct sim_alloc a = {.size = bytes, .kind = SIM_GRAPH, .card = s->ctx->card, .ctx = s->ctx};
    a.address = (uintptr_t)sim_map_memory(up(bytes, SIM_BLOCK));
    if (!a.address || !sim_alloc_add(&a))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_work w = {.type = SIM_WORK_ALLOC};
    w.address = a.address;
    *ret = a.address;
    return sim_capture_add(s, &w, NULL);
}

CUresult sim_alloc_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool p, bool any, CUstream s)
{
    if (!dptr || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (any)
        p = current_pool[s->ctx->ordinal] ? current_pool[s->ctx->ordinal]
                                          : pool_default(s->ctx->ordinal);
    if (!pool_ok(p) || p->imported) /* an imported pool makes nothing new */
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > 1ULL << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = CUDA_SUCCESS;
    if (s->capture)
        return captured_alloc(s, bytes, dptr);
    r = sim_capture_stream_ok(s);
    return r == CUDA_SUCCESS ? pool_alloc(p, bytes, s, dptr) : r;
}

CUresult sim_free_async(CUdeviceptr dptr, CUstream s)
{
    struct sim_alloc *a = sim_alloc_find(dptr);
    if (dptr == 0)
        return CUDA_SUCCESS;
    if (!a || a->address != dptr || (a->pending_free && a->kind != SIM_GRAPH) ||
        (a->kind != SIM_POOL && a->kind != SIM_DEVICE && a->kind != SIM_GRAPH &&
         a->kind != SIM_POOL_IMPORTED))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work w = {.type = SIM_WORK_FREE};
    w.address = dptr;
    CUresult r = sim_stream_do(s, &w);
    if (r == CUDA_SUCCESS && !s->capture && (a = sim_alloc_find(dptr)) != NULL)
        a->pending_free = true;
    return r;
}

bool sim_pool_free(struct sim_alloc *a)
{
    CUmemoryPool p = a->owner;
    uint64_t size = up(a->size, SIM_UNIT);
    if (a->block) { /* others may have it still: it does not come back to the pool */
        sim_block_disown(a->block - 1);
        p->reserved -= size;
        sim_uncharge(p->card, size);
    }
    unreserve(p, size);
    sim_unmap_memory((void *)(uintptr_t)a->address, up(a->size, SIM_BLOCK));
    sim_alloc_remove(a);
    return true;
}

void sim_pool_work(struct sim_work *w)
{
    struct sim_alloc *a = sim_alloc_find(w->address);
    if (w->type != SIM_WORK_FREE || !a)
        return; /* an allocation was usable since its call: real memory is, too, after its stream */
    if (a->kind == SIM_POOL)
        (void)sim_pool_free(a);
    else if (a->kind == SIM_POOL_IMPORTED)
        sim_ipc_close(a);
    else if (a->kind == SIM_DEVICE)
        sim_device_free(a);
    else if (a->kind == SIM_GRAPH && a->charged) {
        (void)sim_graph_mem(a->card, -(int64_t)a->charged);
        a->charged = 0;
    }
}

/* ---- pools ---- */

static CUresult pool_create(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    if (!pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t card;
    CUresult r = sim_ordinal(props->location.id, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        props->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    *pool = pool_new(props->location.id, false);
    if (!*pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*pool)->max_bytes = props->maxSize;
    (*pool)->exportable = props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    ENTER();
    return LOCKED(pool_create(pool, props));
}

static CUresult pool_destroy(CUmemoryPool p)
{
    if (!pool_ok(p) || p->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    p->gone = true; /* kept in the list: what is still out counts until it is freed */
    for (int i = 0; i < sim_p.count; i++)
        if (current_pool[i] == p)
            current_pool[i] = NULL;
    trim(p, 0);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ENTER();
    return LOCKED(pool_destroy(pool));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    ENTER();
    sim_lock();
    bool ok = pool_ok(pool);
    if (ok) {
        sim_poll(); /* what has been reached is free now */
        trim(pool, minBytesToKeep);
    }
    sim_unlock();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static uint64_t *counter(CUmemoryPool p, CUmemPool_attribute attr)
{
    switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &p->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &p->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &p->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &p->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &p->used_high;
    default:
        return NULL;
    }
}

static CUresult pool_attribute(CUmemoryPool p, CUmemPool_attribute attr, void *value, bool set)
{
    if (!pool_ok(p) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if ((int)attr >= 1 && (int)attr <= 3) {
        if (set)
            p->reuse[attr] = *(int *)value;
        else
            *(int *)value = p->reuse[attr];
        return CUDA_SUCCESS;
    }
    uint64_t *c = counter(p, attr);
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    sim_poll();
    if (!set) {
        memcpy(value, c, sizeof(*c));
        return CUDA_SUCCESS;
    }
    uint64_t v;
    memcpy(&v, value, sizeof(v));
    if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *c = v;
    else if (v != 0)
        return CUDA_ERROR_INVALID_VALUE;
    else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        p->reserved_high = p->reserved;
    else if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        p->used_high = p->used;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    ENTER();
    return LOCKED(pool_attribute(pool, attr, value, true));
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    ENTER();
    return LOCKED(pool_attribute(pool, attr, value, false));
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    ENTER();
    if (!pool_ok(pool) || (count && !map))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[i].location.id < 0 ||
            map[i].location.id >= sim_p.count)
            return CUDA_ERROR_INVALID_VALUE;
        pool->access[map[i].location.id] = map[i].flags;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    ENTER();
    if (!flags || !pool_ok(pool) || !location || location->id < 0 || location->id >= sim_p.count)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = pool->access[location->id];
    return CUDA_SUCCESS;
}

static CUresult device_pool(CUmemoryPool *get, CUmemoryPool set, CUdevice dev, bool is_default)
{
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (get) {
        *get = !is_default && current_pool[dev] ? current_pool[dev] : pool_default(dev);
        return *get ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!pool_ok(set) || set->card != card || set->imported)
        return CUDA_ERROR_INVALID_VALUE;
    current_pool[dev] = set;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
    ENTER();
    return pool ? LOCKED(device_pool(pool, NULL, dev, true)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    ENTER();
    return pool ? LOCKED(device_pool(pool, NULL, dev, false)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    ENTER();
    return LOCKED(device_pool(NULL, pool, dev, false));
}

/* ---- pools of other processes ---- */

/* What the descriptor of an exported pool holds. Its memory goes from process to process piece by piece. */
struct exported {
    uint64_t magic;
    uint32_t card;
};
#define EXPORT_MAGIC 0x534c504f4f4c4558ULL

static CUresult pool_export(void *out, CUmemoryPool p)
{
    if (!out || !pool_ok(p) || !p->exportable)
        return CUDA_ERROR_INVALID_VALUE;
    struct exported e = {.magic = EXPORT_MAGIC, .card = p->card};
    int fd = memfd_create("sluice-sim-pool", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &e, sizeof(e)) != (ssize_t)sizeof(e)) {
        if (fd >= 0)
            (void)close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType type, unsigned long long flags)
{
    ENTER();
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return flags ? CUDA_ERROR_INVALID_VALUE : LOCKED(pool_export(handle_out, pool));
}

static CUresult pool_import(CUmemoryPool *out, int fd)
{
    struct exported e = {0};
    CUdevice ordinal = 0;
    if (!out || pread(fd, &e, sizeof(e), 0) != (ssize_t)sizeof(e) || e.magic != EXPORT_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    while (ordinal < sim_p.count && sim_p.card[ordinal] != e.card)
        ordinal++;
    if (ordinal == sim_p.count)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = pool_new(ordinal, false);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->imported = true;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    ENTER();
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return flags ? CUDA_ERROR_INVALID_VALUE : LOCKED(pool_import(pool_out, (int)(intptr_t)handle));
}

static CUresult pointer_export(CUmemPoolPtrExportData *data, CUdeviceptr ptr)
{
    struct sim_alloc *a = sim_alloc_find(ptr);
    if (!data || !a || a->kind != SIM_POOL || a->address != ptr ||
        !((CUmemoryPool)a->owner)->exportable)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_ipc_export(a, up(a->size, SIM_BLOCK), data);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data_out, CUdeviceptr ptr)
{
    ENTER();
    return LOCKED(pointer_export(data_out, ptr));
}

static CUresult pointer_import(CUdeviceptr *out, CUmemoryPool p, const CUmemPoolPtrExportData *data)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!out || !data || !pool_ok(p) || !p->imported)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_ipc_import(data, ctx, SIM_POOL_IMPORTED, out);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData *data)
{
    ENTER();
    return LOCKED(pointer_import(ptr_out, pool, data));
}

/* ---- memory of graphs ---- */

/* Counts what launched graphs use, more or less; charges the card when it was never as much. */
CUresult sim_graph_mem(uint32_t card, int64_t used_bytes)
{
    if (used_bytes > 0) {
        uint64_t want = graph_mem[card].used + (uint64_t)used_bytes;
        if (want > graph_mem[card].reserved) {
            CUresult r = sim_charge(card, want - graph_mem[card].reserved);
            if (r != CUDA_SUCCESS)
                return r;
            graph_mem[card].reserved = want;
        }
    }
    graph_mem[card].used = (uint64_t)((int64_t)graph_mem[card].used + used_bytes);
    if (graph_mem[card].used > graph_mem[card].used_high)
        graph_mem[card].used_high = graph_mem[card].used;
    if (graph_mem[card].reserved > graph_mem[card].reserved_high)
        graph_mem[card].reserved_high = graph_mem[card].reserved;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
    ENTER();
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    sim_lock();
    sim_poll();
    sim_uncharge(card, graph_mem[card].reserved - graph_mem[card].used);
    graph_mem[card].reserved = graph_mem[card].used;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value)
{
    ENTER();
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    sim_poll();
    const uint64_t all[] = {graph_mem[card].used, graph_mem[card].used_high,
                            graph_mem[card].reserved, graph_mem[card].reserved_high};
    sim_unlock();
    if ((unsigned int)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, &all[attr], sizeof(uint64_t));
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value)
{
    ENTER();
    uint32_t card;
    uint64_t v;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (!value || (memcpy(&v, value, sizeof(v)), v != 0))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        graph_mem[card].used_high = graph_mem[card].used;
    else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        graph_mem[card].reserved_high = graph_mem[card].reserved;
    else
        r = CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return r;
}
