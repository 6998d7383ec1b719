/* SPDX-License-Identifier: Apache-2.0 */
/* Memory between processes: the shared table of blocks, IPC handles, external memory. */
#include "sim/cuda_int.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define IPC_MAGIC 0x534c4950434d454dULL

struct ipc_handle {
    uint64_t magic, id, cookie;
    uint64_t offset, size; /* of the allocation in its block */
    uint32_t index;
    int32_t pid;
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "an IPC handle has 64 bytes");

int sim_block_add(uint32_t card, uint64_t bytes, int fd)
{
    struct sl_sim_state *st = sim_p.st;
    struct stat sb;
    uint64_t cookie = 0;
    if (fstat(fd, &sb) != 0 || getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie))
        return -1;
    sl_sim_lock(st);
    int found = -1;
    for (uint32_t i = 0; i < SL_SIM_MAX_BLOCKS && found < 0; i++)
        if (!st->blocks[i].used)
            found = (int)i;
    if (found >= 0) {
        struct sl_sim_block *b = &st->blocks[found];
        *b = (struct sl_sim_block){.card = card,
                                   .owner = sim_p.slot,
                                   .id = ++st->next_id,
                                   .bytes = bytes,
                                   .inode = sb.st_ino,
                                   .device = sb.st_dev,
                                   .cookie = cookie};
        b->used = 1;
    }
    sl_sim_unlock(st);
    return found;
}

static void drop_if_free(struct sl_sim_block *b)
{
    uint64_t any = 0;
    for (size_t w = 0; w < SL_SIM_MAX_PROCS / 64; w++)
        any |= b->holders[w];
    if (b->owner == SL_SIM_NONE && !any)
        b->used = 0;
}

void sim_block_hold(uint32_t index, bool hold)
{
    /* How often this process holds it: imported twice and released once is still held. */
    static uint32_t times[SL_SIM_MAX_BLOCKS];
    struct sl_sim_state *st = sim_p.st;
    sl_sim_lock(st);
    struct sl_sim_block *b = &st->blocks[index];
    uint64_t bit = 1ULL << (sim_p.slot % 64);
    if (hold && times[index]++ == 0)
        b->holders[sim_p.slot / 64] |= bit;
    else if (!hold && --times[index] == 0)
        b->holders[sim_p.slot / 64] &= ~bit;
    drop_if_free(b);
    sl_sim_unlock(st);
}

static void block_path(uint64_t id, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s.ipc-%llu", sl_sim_path(), (unsigned long long)id);
}

void sim_block_disown(uint32_t index)
{
    struct sl_sim_state *st = sim_p.st;
    char path[PATH_MAX + 32];
    sl_sim_lock(st);
    struct sl_sim_block *b = &st->blocks[index];
    block_path(b->id, path, sizeof(path));
    b->owner = SL_SIM_NONE;
    drop_if_free(b);
    sl_sim_unlock(st);
    (void)unlink(path);
}

int sim_block_find_fd(int fd)
{
    struct sl_sim_state *st = sim_p.st;
    struct stat sb;
    int found = -1;
    if (fstat(fd, &sb) != 0)
        return -1;
    sl_sim_lock(st);
    for (uint32_t i = 0; i < SL_SIM_MAX_BLOCKS && found < 0; i++)
        if (st->blocks[i].used && st->blocks[i].inode == sb.st_ino &&
            st->blocks[i].device == sb.st_dev)
            found = (int)i;
    sl_sim_unlock(st);
    return found;
}

/* Private memory becomes a file that others can map: made, filled, and mapped in its place. */
static int share(uint32_t card, uint64_t address, size_t bytes)
{
    char tmp[PATH_MAX + 32], path[PATH_MAX + 32];
    (void)snprintf(tmp, sizeof(tmp), "%s.new-XXXXXX", sl_sim_path());
    int fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0)
        return -1;
    int block = -1;
    if (ftruncate(fd, (off_t)bytes) == 0)
        block = sim_block_add(card, bytes, fd);
    void *p =
        block >= 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p != MAP_FAILED) {
        memcpy(p, (const void *)(uintptr_t)address, bytes);
        (void)munmap(p, bytes);
        block_path(sim_p.st->blocks[block].id, path, sizeof(path));
        p = rename(tmp, path) == 0 ? mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_FIXED, fd, 0)
                                   : MAP_FAILED;
    }
    (void)close(fd);
    if (p == MAP_FAILED) {
        if (block >= 0)
            sim_block_disown((uint32_t)block);
        (void)unlink(tmp);
        return -1;
    }
    return block;
}

static void write_handle(const struct sim_alloc *a, uint64_t base, uint32_t block, void *out)
{
    const struct sl_sim_block *b = &sim_p.st->blocks[block - 1];
    struct ipc_handle h = {.magic = IPC_MAGIC,
                           .id = b->id,
                           .cookie = b->cookie,
                           .offset = a->address - base,
                           .size = a->size,
                           .index = block - 1,
                           .pid = getpid()};
    memset(out, 0, sizeof(CUipcMemHandle));
    memcpy(out, &h, sizeof(h));
}

CUresult sim_ipc_export(struct sim_alloc *a, size_t bytes, void *handle)
{
    if (!a->block)
        a->block = (uint32_t)(share(a->card, a->address, bytes) + 1);
    if (!a->block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    write_handle(a, a->address, a->block, handle);
    return CUDA_SUCCESS;
}

static CUresult get_handle(CUipcMemHandle *out, CUdeviceptr dptr)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    struct sim_alloc *a = sim_alloc_find(dptr);
    if (!out || !a || a->kind != SIM_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!a->chunk)
        return sim_ipc_export(a, a->charged, out);
    uint64_t base;
    size_t bytes = sim_chunk_range(a->chunk, &base);
    uint32_t block = sim_chunk_block(a->chunk, 0);
    if (!block)
        block = sim_chunk_block(a->chunk, (uint32_t)(share(a->card, base, bytes) + 1));
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    write_handle(a, base, block, out);
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    ENTER();
    return LOCKED(get_handle(pHandle, dptr));
}

/* One mapping of a block per process, however often it is opened. */
struct opened {
    uint64_t id;
    uint32_t index;
    uint64_t address;
    size_t bytes;
    unsigned int refs;
    struct opened *next;
};
static struct opened *opened;

static struct opened *open_block(const struct ipc_handle *h, CUresult *ret)
{
    struct sl_sim_state *st = sim_p.st;
    for (struct opened *o = opened; o; o = o->next)
        if (o->id == h->id)
            return o;
    sl_sim_lock(st);
    sl_sim_reap(st, true);
    struct sl_sim_block b = st->blocks[h->index];
    sl_sim_unlock(st);
    *ret = CUDA_ERROR_INVALID_VALUE;
    if (!b.used || b.id != h->id || b.cookie != h->cookie || b.owner == SL_SIM_NONE)
        return NULL;
    if (b.owner == sim_p.slot) {
        *ret = CUDA_ERROR_INVALID_CONTEXT; /* not in the process it came from */
        return NULL;
    }
    char path[PATH_MAX + 32];
    block_path(b.id, path, sizeof(path));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, b.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    struct opened *o = p == MAP_FAILED ? NULL : calloc(1, sizeof(*o));
    *ret = CUDA_ERROR_MAP_FAILED;
    if (!o)
        return NULL;
    *o = (struct opened){
        .id = b.id, .index = h->index, .address = (uintptr_t)p, .bytes = b.bytes, .next = opened};
    opened = o;
    sim_block_hold(h->index, true);
    return o;
}

CUresult sim_ipc_import(const void *handle, CUcontext ctx, enum sim_alloc_kind kind,
                        CUdeviceptr *ret)
{
    struct ipc_handle h;
    CUresult r;
    memcpy(&h, handle, sizeof(h));
    if (h.magic != IPC_MAGIC || h.index >= SL_SIM_MAX_BLOCKS)
        return CUDA_ERROR_INVALID_VALUE;
    struct opened *o = open_block(&h, &r);
    if (!o)
        return r;
    uint64_t address = o->address + h.offset;
    if (h.offset + h.size > o->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_alloc *have = sim_alloc_find(address);
    if (have) {
        have->flags++; /* opened again */
    } else {
        struct sim_alloc a = {.address = address,
                              .size = h.size,
                              .kind = kind,
                              .card = ctx->card,
                              .ctx = ctx,
                              .owner = o,
                              .flags = 1};
        if (!sim_alloc_add(&a))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    o->refs++;
    *ret = address;
    return CUDA_SUCCESS;
}

static CUresult open_handle(CUdeviceptr *pdptr, const CUipcMemHandle *in, unsigned int flags)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!pdptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_ipc_import(in, ctx, SIM_IMPORTED, pdptr);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
{
    ENTER();
    return LOCKED(open_handle(pdptr, &handle, flags));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(pdptr, handle, flags);
}

void sim_ipc_close(struct sim_alloc *a)
{
    struct opened *o = a->owner;
    if (--a->flags == 0)
        sim_alloc_remove(a);
    if (--o->refs)
        return;
    for (struct opened **p = &opened; *p; p = &(*p)->next)
        if (*p == o) {
            *p = o->next;
            break;
        }
    (void)munmap((void *)(uintptr_t)o->address, o->bytes);
    sim_block_hold(o->index, false);
    free(o);
}

static CUresult close_handle(CUdeviceptr dptr)
{
    struct sim_alloc *a = sim_alloc_find(dptr);
    if (!a || a->kind != SIM_IMPORTED || a->address != dptr || !a->owner)
        return CUDA_ERROR_INVALID_VALUE;
    sim_wait_card(a->card);
    sim_ipc_close(a);
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    ENTER();
    return LOCKED(close_handle(dptr));
}

/* ---- external memory: a file descriptor of someone else's, mapped ---- */

struct CUextMemory_st {
    uint32_t magic;
    int fd;
    uint64_t size;
    CUcontext ctx;
    int block;
};
#define EXT_MAGIC 0x45585431u

static CUresult import_external(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    struct stat sb;
    if (!out || !d || d->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (d->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fstat(d->handle.fd, &sb) != 0 || (uint64_t)sb.st_size < d->size)
        return CUDA_ERROR_INVALID_VALUE;
    CUexternalMemory m = calloc(1, sizeof(*m));
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* The descriptor is ours from here on, as with the real driver. */
    *m = (struct CUextMemory_st){.magic = EXT_MAGIC,
                                 .fd = d->handle.fd,
                                 .size = d->size,
                                 .ctx = ctx,
                                 .block = sim_block_find_fd(d->handle.fd)};
    if (m->block >= 0)
        sim_block_hold((uint32_t)m->block, true);
    *out = m;
    return CUDA_SUCCESS;
}

CUresult cuImportExternalMemory(CUexternalMemory *extMem,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    ENTER();
    return LOCKED(import_external(extMem, desc));
}

static CUresult mapped_buffer(CUdeviceptr *out, CUexternalMemory m,
                              const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d)
{
    if (!m || m->magic != EXT_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || !d || d->flags || d->size == 0 || d->offset % 4096 || d->offset + d->size > m->size)
        return CUDA_ERROR_INVALID_VALUE;
    void *p = mmap(NULL, d->size, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, (off_t)d->offset);
    if (p == MAP_FAILED)
        return CUDA_ERROR_MAP_FAILED;
    /* Freed by cuMemFree like the caller's own; it was never charged to the card here. */
    struct sim_alloc a = {.address = (uintptr_t)p,
                          .size = d->size,
                          .kind = SIM_MANAGED,
                          .card = m->ctx->card,
                          .ctx = m->ctx};
    if (!sim_alloc_add(&a))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = a.address;
    return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    ENTER();
    return LOCKED(mapped_buffer(devPtr, extMem, desc));
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
    ENTER();
    if (!extMem || extMem->magic != EXT_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    if (extMem->block >= 0)
        sim_block_hold((uint32_t)extMem->block, false);
    (void)close(extMem->fd);
    extMem->magic = 0;
    free(extMem);
    sim_unlock();
    return CUDA_SUCCESS;
}
