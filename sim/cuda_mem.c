/* SPDX-License-Identifier: Apache-2.0 */
/* Device and host memory: what is charged to the card, where it lies, and who asks about it. */
#include "sim/cuda_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_UNITS (SIM_BLOCK / SIM_UNIT)

/* A block of the card that small allocations share. */
struct sim_chunk {
    uint64_t address;
    uint32_t card;
    CUcontext ctx;
    unsigned int used;
    uint64_t taken[CHUNK_UNITS / 64];
    uint32_t block; /* shared block + 1, once exported */
    struct sim_chunk *next;
};

static struct sim_chunk *chunks;
static struct sim_alloc **allocs; /* by address */
static size_t alloc_count, alloc_room;

CUresult sim_charge(uint32_t card, uint64_t bytes)
{
    struct sl_sim_state *st = sim_p.st;
    CUresult r = CUDA_SUCCESS;
    sl_sim_lock(st);
    sl_sim_reap(st, false);
    if (!sim_fits(card, bytes)) {
        sl_sim_reap(st, true);
        if (!sim_fits(card, bytes))
            r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r == CUDA_SUCCESS)
        st->procs[sim_p.slot].card[card].memory_bytes += bytes;
    sl_sim_unlock(st);
    return r;
}

void sim_uncharge(uint32_t card, uint64_t bytes)
{
    struct sl_sim_state *st = sim_p.st;
    sl_sim_lock(st);
    uint64_t *have = &st->procs[sim_p.slot].card[card].memory_bytes;
    *have -= bytes < *have ? bytes : *have;
    sl_sim_unlock(st);
}

/* Reserved and untouched memory costs nothing; 2 MiB aligned, as the card's blocks are. */
void *sim_map_memory(uint64_t bytes)
{
    uint64_t room = bytes + SIM_BLOCK;
    char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    uint64_t lead = (SIM_BLOCK - (uintptr_t)p % SIM_BLOCK) % SIM_BLOCK;
    if (lead)
        (void)munmap(p, lead);
    if (room - lead - bytes)
        (void)munmap(p + lead + bytes, room - lead - bytes);
    return p + lead;
}

/* The calls of CUDA 2 have 32-bit addresses: a place below 4 GiB, above what kernels keep free. */
static void *map_low(uint64_t bytes)
{
    const uint64_t first = 256 * SIM_MIB, end = 1ULL << 32;
    static uint64_t next;
    if (bytes > end - first)
        return NULL;
    if (next < first || next > end - bytes)
        next = first;
    for (uint64_t tried = 0; tried < end - first; tried += SIM_BLOCK) {
        void *p = mmap((void *)(uintptr_t)next, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != MAP_FAILED && (uintptr_t)p == next) {
            next += bytes;
            return p;
        }
        if (p != MAP_FAILED)
            (void)munmap(p, bytes); /* kernels before 4.17 take the address as a wish */
        next = next + SIM_BLOCK > end - bytes ? first : next + SIM_BLOCK;
    }
    return NULL;
}

void sim_unmap_memory(void *p, uint64_t bytes)
{
    (void)munmap(p, bytes);
}

/* ---- the table of allocations ---- */

static size_t place_of(uint64_t address)
{
    size_t lo = 0, hi = alloc_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (allocs[mid]->address <= address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct sim_alloc *sim_alloc_add(const struct sim_alloc *a)
{
    if (alloc_count == alloc_room) {
        size_t room = alloc_room ? alloc_room * 2 : 256;
        struct sim_alloc **grown = realloc(allocs, room * sizeof(struct sim_alloc *));
        if (!grown)
            return NULL;
        allocs = grown;
        alloc_room = room;
    }
    struct sim_alloc *copy = malloc(sizeof(*copy));
    if (!copy)
        return NULL;
    *copy = *a;
    copy->id = sim_next_id();
    size_t i = place_of(a->address);
    memmove(&allocs[i + 1], &allocs[i], (alloc_count - i) * sizeof(struct sim_alloc *));
    allocs[i] = copy;
    alloc_count++;
    return copy;
}

struct sim_alloc *sim_alloc_find(uint64_t address)
{
    size_t i = place_of(address);
    if (i == 0)
        return NULL;
    struct sim_alloc *a = allocs[i - 1];
    return address < a->address + a->size ? a : NULL;
}

void sim_alloc_remove(struct sim_alloc *a)
{
    size_t i = place_of(a->address);
    while (i > 0 && allocs[i - 1] != a)
        i--;
    if (i == 0)
        return;
    memmove(&allocs[i - 1], &allocs[i], (alloc_count - i) * sizeof(struct sim_alloc *));
    alloc_count--;
    free(a);
}

bool sim_range_ok(uint64_t address, uint64_t bytes)
{
    const struct sim_alloc *a = sim_alloc_find(address);
    if (!a || (a->kind == SIM_MAPPED && !a->flags)) /* mapped, and no access given */
        return false;
    if (address + bytes <= a->address + a->size)
        return true;
    /* Neighbouring mappings of one reserved range are used as one. */
    return a->kind == SIM_MAPPED &&
           sim_range_ok(a->address + a->size, address + bytes - (a->address + a->size));
}

/* ---- device memory ---- */

static struct sim_chunk *chunk_create(CUcontext ctx)
{
    struct sim_chunk *c = calloc(1, sizeof(*c));
    if (!c || sim_charge(ctx->card, SIM_BLOCK) != CUDA_SUCCESS) {
        free(c);
        return NULL;
    }
    void *p = sim_map_memory(SIM_BLOCK);
    if (!p) {
        sim_uncharge(ctx->card, SIM_BLOCK);
        free(c);
        return NULL;
    }
    c->address = (uintptr_t)p;
    c->card = ctx->card;
    c->ctx = ctx;
    c->next = chunks;
    chunks = c;
    return c;
}

static void chunk_destroy(struct sim_chunk *c)
{
    for (struct sim_chunk **p = &chunks; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    sim_unmap_memory((void *)(uintptr_t)c->address, SIM_BLOCK);
    sim_uncharge(c->card, SIM_BLOCK);
    if (c->block)
        sim_block_disown(c->block - 1);
    free(c);
}

static bool taken(const struct sim_chunk *c, size_t unit)
{
    return (c->taken[unit / 64] >> (unit % 64)) & 1;
}

static void mark(struct sim_chunk *c, size_t from, size_t n, bool on)
{
    for (size_t u = from; u < from + n; u++) {
        if (on)
            c->taken[u / 64] |= 1ULL << (u % 64);
        else
            c->taken[u / 64] &= ~(1ULL << (u % 64));
    }
    c->used = on ? c->used + (unsigned int)n : c->used - (unsigned int)n;
}

/* First fit; CHUNK_UNITS when there is none. */
static size_t chunk_room(const struct sim_chunk *c, size_t units)
{
    size_t run = 0;
    if (CHUNK_UNITS - c->used < units)
        return CHUNK_UNITS;
    for (size_t u = 0; u < CHUNK_UNITS; u++) {
        if (c->taken[u / 64] == UINT64_MAX && run == 0 && u % 64 == 0) {
            u += 63;
            continue;
        }
        run = taken(c, u) ? 0 : run + 1;
        if (run == units)
            return u + 1 - units;
    }
    return CHUNK_UNITS;
}

static CUresult small_alloc(CUcontext ctx, struct sim_alloc *a)
{
    size_t units = (a->size + SIM_UNIT - 1) / SIM_UNIT;
    size_t at = CHUNK_UNITS;
    struct sim_chunk *c = chunks;
    for (; c; c = c->next)
        if (c->ctx == ctx && !c->block && (at = chunk_room(c, units)) < CHUNK_UNITS)
            break;
    if (!c) {
        c = chunk_create(ctx);
        at = 0;
    }
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mark(c, at, units, true);
    a->chunk = c;
    a->address = c->address + at * SIM_UNIT;
    return CUDA_SUCCESS;
}

/* Whole blocks of its own, at an address that `map` finds. */
static CUresult large_alloc(CUcontext ctx, struct sim_alloc *a, void *(*map)(uint64_t))
{
    a->charged = (a->size + SIM_BLOCK - 1) & ~(SIM_BLOCK - 1);
    CUresult r = sim_charge(ctx->card, a->charged);
    if (r != CUDA_SUCCESS)
        return r;
    void *p = map(a->charged);
    if (!p) {
        sim_uncharge(ctx->card, a->charged);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    a->address = (uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult alloc_at(CUcontext ctx, uint64_t bytes, enum sim_alloc_kind kind, bool low,
                         uint64_t *ret)
{
    struct sim_alloc a = {.size = bytes, .kind = kind, .card = ctx->card, .ctx = ctx};
    CUresult r;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > 1ULL << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!low && bytes <= SIM_MIB && (kind == SIM_DEVICE || kind == SIM_ARRAY))
        r = small_alloc(ctx, &a);
    else
        r = large_alloc(ctx, &a, low ? map_low : sim_map_memory);
    if (r != CUDA_SUCCESS)
        return r;
    struct sim_alloc *kept = sim_alloc_add(&a);
    if (!kept)
        return CUDA_ERROR_OUT_OF_MEMORY; /* the host is out of memory: the block stays, unused */
    *ret = a.address;
    return CUDA_SUCCESS;
}

CUresult sim_device_alloc(CUcontext ctx, uint64_t bytes, enum sim_alloc_kind kind, uint64_t *ret)
{
    return alloc_at(ctx, bytes, kind, false, ret);
}

void sim_device_free(struct sim_alloc *a)
{
    if (a->chunk) {
        struct sim_chunk *c = a->chunk;
        uint64_t units = (a->size + SIM_UNIT - 1) / SIM_UNIT;
        mark(c, (a->address - c->address) / SIM_UNIT, units, false);
        if (c->used == 0)
            chunk_destroy(c);
    } else {
        sim_unmap_memory((void *)(uintptr_t)a->address, a->charged ? a->charged : a->size);
        sim_uncharge(a->card, a->charged);
        if (a->block)
            sim_block_disown(a->block - 1);
    }
    sim_alloc_remove(a);
}

size_t sim_chunk_range(struct sim_chunk *c, uint64_t *ret_address)
{
    *ret_address = c->address;
    return SIM_BLOCK;
}

uint32_t sim_chunk_block(struct sim_chunk *c, uint32_t set_block)
{
    if (set_block)
        c->block = set_block;
    return c->block;
}

void sim_ctx_free_memory(CUcontext ctx)
{
    for (size_t i = alloc_count; i > 0; i--) {
        if (i > alloc_count)
            continue;
        struct sim_alloc *a = allocs[i - 1];
        if (a->ctx == ctx &&
            (a->kind == SIM_DEVICE || a->kind == SIM_MANAGED || a->kind == SIM_ARRAY))
            sim_device_free(a);
    }
}

/* ---- the calls ---- */

static CUresult device_alloc(CUdeviceptr *dptr, size_t bytes, enum sim_alloc_kind kind,
                             unsigned int flags)
{
    CUcontext ctx;
    uint64_t address = 0;
    CUresult r = sim_need_ctx(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_unsafe();
    if (r == CUDA_SUCCESS)
        r = dptr ? sim_device_alloc(ctx, bytes, kind, &address) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        sim_alloc_find(address)->flags = flags;
        *dptr = address;
    }
    return r;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    ENTER();
    return LOCKED(device_alloc(dptr, bytesize, SIM_DEVICE, 0));
}

static CUresult low_alloc(CUdeviceptr_v1 *dptr, uint64_t bytes)
{
    CUcontext ctx;
    uint64_t address = 0;
    CUresult r = sim_need_ctx(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_unsafe();
    if (r == CUDA_SUCCESS)
        r = dptr ? alloc_at(ctx, bytes, SIM_DEVICE, true, &address) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *dptr = (CUdeviceptr_v1)address;
    return r;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    ENTER();
    return LOCKED(low_alloc(dptr, bytesize));
}

static CUresult pitch_of(size_t width, size_t height, unsigned int element, size_t *ret_pitch,
                         size_t *ret_bytes)
{
    if (width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_pitch = (width + 511) & ~(size_t)511;
    if (*ret_pitch < width || __builtin_mul_overflow(*ret_pitch, height, ret_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int widthInBytes,
                         unsigned int height, unsigned int elementSizeBytes)
{
    ENTER();
    size_t pitch = 0, bytes = 0;
    if (!pPitch)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = pitch_of(widthInBytes, height, elementSizeBytes, &pitch, &bytes);
    if (r == CUDA_SUCCESS && pitch > UINT32_MAX)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = LOCKED(low_alloc(dptr, bytes));
    if (r == CUDA_SUCCESS)
        *pPitch = (unsigned int)pitch;
    return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t widthInBytes, size_t height,
                            unsigned int elementSizeBytes)
{
    ENTER();
    size_t pitch = 0, bytes = 0;
    if (!pPitch)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = pitch_of(widthInBytes, height, elementSizeBytes, &pitch, &bytes);
    if (r == CUDA_SUCCESS)
        r = LOCKED(device_alloc(dptr, bytes, SIM_DEVICE, 0));
    if (r == CUDA_SUCCESS)
        *pPitch = pitch;
    return r;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    ENTER();
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return LOCKED(device_alloc(dptr, bytesize, SIM_MANAGED, flags));
}

static CUresult mem_free(CUdeviceptr dptr)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (dptr == 0)
        return CUDA_SUCCESS;
    r = sim_capture_unsafe();
    if (r != CUDA_SUCCESS)
        return r;
    struct sim_alloc *a = sim_alloc_find(dptr);
    if (!a || a->address != dptr ||
        (a->kind != SIM_DEVICE && a->kind != SIM_MANAGED && a->kind != SIM_POOL &&
         a->kind != SIM_POOL_IMPORTED))
        return CUDA_ERROR_INVALID_VALUE;
    sim_wait_card(a->card); /* freeing waits for the work that may use it */
    a = sim_alloc_find(dptr);
    if (!a || a->address != dptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (a->kind == SIM_POOL_IMPORTED) {
        sim_ipc_close(a);
        return CUDA_SUCCESS;
    }
    if (a->kind == SIM_POOL)
        return sim_pool_free(a) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    sim_device_free(a);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    ENTER();
    return LOCKED(mem_free(dptr));
}

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
    return cuMemFree_v2(dptr);
}

static CUresult get_info(size_t *free_bytes, size_t *total)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    struct sl_sim_state *st = sim_p.st;
    sl_sim_lock(st);
    sl_sim_reap(st, false);
    uint64_t all = sim_total_bytes(ctx->card);
    uint64_t used = sim_used_bytes(ctx->card);
    sl_sim_unlock(st);
    if (total)
        *total = all;
    if (free_bytes)
        *free_bytes = used < all ? all - used : 0;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER();
    return LOCKED(get_info(free_bytes, total));
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
    size_t f = 0, t = 0;
    CUresult r = cuMemGetInfo_v2(&f, &t);
    if (r == CUDA_SUCCESS && free_bytes)
        *free_bytes = f > UINT32_MAX ? UINT32_MAX : (unsigned int)f;
    if (r == CUDA_SUCCESS && total)
        *total = t > UINT32_MAX ? UINT32_MAX : (unsigned int)t;
    return r;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    ENTER();
    sim_lock();
    const struct sim_alloc *a = sim_alloc_find(dptr);
    bool ok = a && a->kind != SIM_HOST && a->kind != SIM_HOST_REGISTERED;
    if (ok && pbase)
        *pbase = a->address;
    if (ok && psize)
        *psize = a->size;
    sim_unlock();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ---- host memory ---- */

static CUresult host_alloc(void **pp, size_t bytes, unsigned int flags)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!pp || bytes == 0 || (flags & ~7u))
        return CUDA_ERROR_INVALID_VALUE;
    size_t rounded = (bytes + 4095) & ~(size_t)4095;
    void *p = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_alloc a = {.address = (uintptr_t)p,
                          .size = bytes,
                          .charged = rounded,
                          .kind = SIM_HOST,
                          .card = ctx->card,
                          .ctx = ctx,
                          .flags = flags};
    if (!sim_alloc_add(&a)) {
        (void)munmap(p, rounded);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pp = p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags)
{
    ENTER();
    return LOCKED(host_alloc(pp, bytesize, flags));
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    ENTER();
    return LOCKED(host_alloc(pp, bytesize, 0));
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
    return cuMemAllocHost_v2(pp, bytesize);
}

static CUresult host_free(void *p, enum sim_alloc_kind kind, CUresult unknown)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    struct sim_alloc *a = sim_alloc_find((uintptr_t)p);
    if (!a || a->address != (uintptr_t)p || a->kind != kind)
        return unknown;
    sim_wait_card(a->card);
    a = sim_alloc_find((uintptr_t)p);
    if (!a)
        return unknown;
    if (kind == SIM_HOST)
        (void)munmap(p, a->charged);
    sim_alloc_remove(a);
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p)
{
    ENTER();
    return LOCKED(host_free(p, SIM_HOST, CUDA_ERROR_INVALID_VALUE));
}

static CUresult host_register(void *p, size_t bytes, unsigned int flags)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!p || bytes == 0 || (flags & ~15u))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_alloc_find((uintptr_t)p) || sim_alloc_find((uintptr_t)p + bytes - 1))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct sim_alloc a = {.address = (uintptr_t)p,
                          .size = bytes,
                          .kind = SIM_HOST_REGISTERED,
                          .card = ctx->card,
                          .ctx = ctx,
                          .flags = flags};
    return sim_alloc_add(&a) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int flags)
{
    ENTER();
    return LOCKED(host_register(p, bytesize, flags));
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int flags)
{
    return cuMemHostRegister_v2(p, bytesize, flags);
}

CUresult cuMemHostUnregister(void *p)
{
    ENTER();
    return LOCKED(host_free(p, SIM_HOST_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
}

static bool is_host(const struct sim_alloc *a)
{
    return a && (a->kind == SIM_HOST || a->kind == SIM_HOST_REGISTERED);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int flags)
{
    ENTER();
    if (!pdptr || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool ok = is_host(sim_alloc_find((uintptr_t)p));
    sim_unlock();
    if (!ok)
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = (uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
    ENTER();
    sim_lock();
    const struct sim_alloc *a = sim_alloc_find((uintptr_t)p);
    bool ok = is_host(a) && flags;
    if (ok)
        *flags = a->flags;
    sim_unlock();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
