/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: physical handles, reserved addresses, mappings, sharing by fd. */
#include "sim/cuda_int.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PHYS_MAGIC   0x50485953u
#define FABRIC_MAGIC 0x46414252u
#define SHAREABLE    (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)

/* Exportable memory has a file of its own; the rest are stretches of one file per process. */
struct phys {
    uint32_t magic;
    uint32_t card;
    size_t size;
    CUmemAllocationProp prop;
    unsigned int refs; /* handles and mappings */
    int fd;
    off_t offset;
    uint32_t block; /* index + 1, once exported or imported */
    bool imported;
    bool multicast;           /* addresses only: … */
    struct binding *bindings; /* … what is bound to it stays */
};

struct binding {
    struct binding *next;
    struct phys *memory;
    size_t offset, size;
};

struct reserved {
    uint64_t address;
    size_t size;
    struct reserved *next;
};
static struct reserved *reservations;
static int arena_fd = -1;
static off_t arena_end;

static struct phys *phys_of(CUmemGenericAllocationHandle h)
{
    struct phys *p = (struct phys *)(uintptr_t)h;
    return p && p->magic == PHYS_MAGIC ? p : NULL;
}

static void phys_unref(struct phys *p);

/* Those of one card in this stretch; of all cards: UINT32_MAX. */
static void unbind(struct phys *object, uint32_t card, size_t offset, size_t size)
{
    for (struct binding **b = &object->bindings; *b;) {
        struct binding *one = *b;
        if ((card != UINT32_MAX && one->memory->card != card) || one->offset < offset ||
            one->offset + one->size > offset + size) {
            b = &one->next;
            continue;
        }
        *b = one->next;
        phys_unref(one->memory);
        free(one);
    }
}

static void phys_unref(struct phys *p)
{
    if (--p->refs)
        return;
    if (p->multicast) {
        unbind(p, UINT32_MAX, 0, p->size);
    } else if (p->imported) {
        sim_block_hold(p->block - 1, false);
    } else {
        sim_uncharge(p->card, p->size);
        if (p->block)
            sim_block_disown(p->block - 1);
    }
    if (p->fd == arena_fd)
        (void)fallocate(arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p->offset,
                        (off_t)p->size);
    else
        (void)close(p->fd);
    p->magic = 0;
    free(p);
}

static CUresult check_prop(const CUmemAllocationProp *prop, uint32_t *ret_card)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned int)prop->requestedHandleTypes & ~(unsigned int)SHAREABLE)
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_ordinal(prop->location.id, ret_card);
}

/* Where the bytes are. */
static bool back(struct phys *p)
{
    if ((unsigned int)p->prop.requestedHandleTypes & (unsigned int)SHAREABLE) {
        p->fd = memfd_create("sluice-sim-memory", MFD_CLOEXEC);
        return p->fd >= 0 && ftruncate(p->fd, (off_t)p->size) == 0;
    }
    if (arena_fd < 0)
        arena_fd = memfd_create("sluice-sim-arena", MFD_CLOEXEC);
    if (arena_fd < 0 || ftruncate(arena_fd, arena_end + (off_t)p->size) != 0)
        return false;
    p->fd = arena_fd;
    p->offset = arena_end;
    arena_end += (off_t)p->size;
    return true;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
                       const CUmemAllocationProp *prop)
{
    uint32_t card;
    CUresult r = check_prop(prop, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (!handle || size == 0 || size % SIM_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    r = sim_charge(card, size);
    if (r != CUDA_SUCCESS)
        return r;
    struct phys *p = calloc(1, sizeof(*p));
    if (!p) {
        sim_uncharge(card, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *p = (struct phys){
        .magic = PHYS_MAGIC, .card = card, .size = size, .prop = *prop, .refs = 1, .fd = -1};
    if (!back(p)) {
        sim_uncharge(card, size);
        if (p->fd >= 0)
            (void)close(p->fd);
        free(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    ENTER();
    return flags ? CUDA_ERROR_INVALID_VALUE : LOCKED(create(handle, size, prop));
}

static CUresult release(CUmemGenericAllocationHandle h)
{
    struct phys *p = phys_of(h);
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    phys_unref(p);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER();
    return LOCKED(release(handle));
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    ENTER();
    uint32_t card;
    CUresult r = check_prop(prop, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (!granularity || (unsigned int)option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = SIM_BLOCK;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    ENTER();
    const struct phys *p = phys_of(handle);
    if (!p || !prop)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = p->prop;
    return CUDA_SUCCESS;
}

/* ---- addresses ---- */

static CUresult address_reserve(CUdeviceptr *ptr, size_t size, size_t alignment)
{
    if (!ptr || size == 0 || size % SIM_BLOCK || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    size_t align = alignment < SIM_BLOCK ? SIM_BLOCK : alignment;
    struct reserved *r = malloc(sizeof(*r));
    char *p =
        mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!r || p == MAP_FAILED) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t lead = (align - (uintptr_t)p % align) % align;
    if (lead)
        (void)munmap(p, lead);
    if (align - lead)
        (void)munmap(p + lead + size, align - lead);
    *r = (struct reserved){.address = (uintptr_t)p + lead, .size = size, .next = reservations};
    reservations = r;
    *ptr = r->address;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    ENTER();
    (void)hint; /* a wish: the driver need not follow it */
    return flags ? CUDA_ERROR_INVALID_VALUE : LOCKED(address_reserve(ptr, size, alignment));
}

static bool anything_mapped(uint64_t address, size_t size)
{
    for (uint64_t a = address; a < address + size; a += SIM_BLOCK)
        if (sim_alloc_find(a))
            return true;
    return false;
}

static CUresult address_free(CUdeviceptr ptr, size_t size)
{
    for (struct reserved **p = &reservations; *p; p = &(*p)->next) {
        struct reserved *r = *p;
        if (r->address != ptr || r->size != size)
            continue;
        if (anything_mapped(ptr, size))
            return CUDA_ERROR_INVALID_VALUE;
        (void)munmap((void *)(uintptr_t)ptr, size);
        *p = r->next;
        free(r);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    ENTER();
    return LOCKED(address_free(ptr, size));
}

static bool inside_reservation(uint64_t ptr, size_t size)
{
    for (const struct reserved *r = reservations; r; r = r->next)
        if (ptr >= r->address && ptr + size <= r->address + r->size)
            return true;
    return false;
}

static CUresult map(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle h)
{
    struct phys *p = phys_of(h);
    if (!p || size == 0 || size % SIM_BLOCK || ptr % SIM_BLOCK || offset != 0 || size > p->size ||
        !inside_reservation(ptr, size) || anything_mapped(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    void *at =
        mmap((void *)(uintptr_t)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, p->offset);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_alloc a = {
        .address = ptr, .size = size, .kind = SIM_MAPPED, .card = p->card, .owner = p};
    if (!sim_alloc_add(&a))
        return CUDA_ERROR_OUT_OF_MEMORY;
    p->refs++;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    ENTER();
    return flags ? CUDA_ERROR_INVALID_VALUE : LOCKED(map(ptr, size, offset, handle));
}

static CUresult unmap(CUdeviceptr ptr, size_t size)
{
    const struct sim_alloc *first = sim_alloc_find(ptr);
    if (!first || first->kind != SIM_MAPPED || first->address != ptr ||
        !inside_reservation(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    sim_wait_card(first->card);
    for (uint64_t at = ptr; at < ptr + size;) {
        struct sim_alloc *a = sim_alloc_find(at);
        if (!a) {
            at += SIM_BLOCK;
            continue;
        }
        if (a->address + a->size > ptr + size)
            return CUDA_ERROR_INVALID_VALUE; /* whole mappings only */
        struct phys *p = a->owner;
        at = a->address + a->size;
        if (mmap((void *)(uintptr_t)a->address, a->size, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
            return CUDA_ERROR_OUT_OF_MEMORY;
        sim_alloc_remove(a);
        phys_unref(p);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    ENTER();
    return LOCKED(unmap(ptr, size));
}

static CUresult set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    unsigned int flags = 0;
    if (!desc || count == 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        flags |= (unsigned int)desc[i].flags;
    for (uint64_t at = ptr; at < ptr + size;) {
        struct sim_alloc *a = sim_alloc_find(at);
        if (!a || a->kind != SIM_MAPPED)
            return CUDA_ERROR_INVALID_VALUE;
        int prot = flags == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
        (void)mprotect((void *)(uintptr_t)a->address, a->size, prot);
        a->flags = flags;
        at = a->address + a->size;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    ENTER();
    return LOCKED(set_access(ptr, size, desc, count));
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    ENTER();
    sim_lock();
    const struct sim_alloc *a = sim_alloc_find(ptr);
    bool ok = flags && location && a && a->kind == SIM_MAPPED;
    if (ok)
        *flags = a->flags;
    sim_unlock();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    ENTER();
    sim_lock();
    const struct sim_alloc *a = sim_alloc_find((uintptr_t)addr);
    bool ok = handle && a && a->kind == SIM_MAPPED;
    if (ok) {
        struct phys *p = a->owner;
        p->refs++;
        *handle = (uintptr_t)p;
    }
    sim_unlock();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- sharing ---- */

/* Within one machine: the maker's own descriptor, under a name that others can open. */
struct fabric_handle {
    uint32_t magic;
    int32_t pid, fd;
    uint64_t cookie; /* of its block */
    unsigned char unused[40];
};
_Static_assert(sizeof(struct fabric_handle) == 64, "the size of a fabric handle");

static CUresult export(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type)
{
    struct phys *p = phys_of(h);
    if (!p || !out || p->multicast ||
        !((unsigned int)p->prop.requestedHandleTypes & (unsigned int)type))
        return CUDA_ERROR_INVALID_VALUE;
    if (!p->block) {
        int b = sim_block_add(p->card, p->size, p->fd);
        if (b < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        p->block = (uint32_t)b + 1;
    }
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        struct fabric_handle f = {.magic = FABRIC_MAGIC,
                                  .pid = getpid(),
                                  .fd = p->fd,
                                  .cookie = sim_p.st->blocks[p->block - 1].cookie};
        memcpy(out, &f, sizeof(f));
        return CUDA_SUCCESS;
    }
    int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    ENTER();
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && type != CU_MEM_HANDLE_TYPE_FABRIC)
        return CUDA_ERROR_NOT_SUPPORTED;
    return flags ? CUDA_ERROR_INVALID_VALUE : LOCKED(export(shareableHandle, handle, type));
}

static CUresult import_fd(CUmemGenericAllocationHandle *handle, int fd)
{
    int b = handle ? sim_block_find_fd(fd) : -1;
    if (b < 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct phys *p = calloc(1, sizeof(*p));
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (!p || own < 0) {
        free(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const struct sl_sim_block *block = &sim_p.st->blocks[b];
    CUdevice ordinal = 0;
    for (int i = 0; i < sim_p.count; i++)
        if (sim_p.card[i] == block->card)
            ordinal = i;
    *p = (struct phys){.magic = PHYS_MAGIC,
                       .card = block->card,
                       .size = block->bytes,
                       .refs = 1,
                       .fd = own,
                       .block = (uint32_t)b + 1,
                       .imported = true};
    p->prop =
        (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
    sim_block_hold((uint32_t)b, true);
    *handle = (uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult import_fabric(CUmemGenericAllocationHandle *handle, const void *from)
{
    struct fabric_handle f;
    char path[64];
    if (!from)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&f, from, sizeof(f));
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", f.pid, f.fd);
    int fd = f.magic == FABRIC_MAGIC ? open(path, O_RDWR | O_CLOEXEC) : -1;
    int b = fd >= 0 ? sim_block_find_fd(fd) : -1;
    CUresult r = b >= 0 && sim_p.st->blocks[b].cookie == f.cookie ? import_fd(handle, fd)
                                                                  : CUDA_ERROR_INVALID_VALUE;
    if (fd >= 0)
        (void)close(fd);
    return r;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType type)
{
    ENTER();
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return LOCKED(import_fabric(handle, osHandle));
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return LOCKED(import_fd(handle, (int)(intptr_t)osHandle));
}

/* ---- multicast objects ---- */

static struct phys *object_of(CUmemGenericAllocationHandle h)
{
    struct phys *p = phys_of(h);
    return p && p->multicast ? p : NULL;
}

static CUresult multicast_create(CUmemGenericAllocationHandle *handle,
                                 const CUmulticastObjectProp *prop)
{
    if (!handle || !prop || prop->numDevices == 0 || prop->flags || prop->size == 0 ||
        prop->size % SIM_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    struct phys *p = calloc(1, sizeof(*p));
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *p = (struct phys){
        .magic = PHYS_MAGIC, .size = prop->size, .refs = 1, .fd = -1, .multicast = true};
    if (!back(p)) {
        free(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
                           const CUmulticastObjectProp *prop)
{
    ENTER();
    return LOCKED(multicast_create(mcHandle, prop));
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
    ENTER();
    uint32_t card;
    return object_of(mcHandle) ? sim_ordinal(dev, &card) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult bind(struct phys *object, size_t offset, struct phys *memory, size_t memory_offset,
                     size_t size)
{
    if (!object || !memory || memory->multicast || size == 0 || size % SIM_BLOCK ||
        offset % SIM_BLOCK || offset > object->size || size > object->size - offset ||
        memory_offset > memory->size || size > memory->size - memory_offset)
        return CUDA_ERROR_INVALID_VALUE;
    struct binding *b = malloc(sizeof(*b));
    if (!b)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *b = (struct binding){object->bindings, memory, offset, size};
    object->bindings = b;
    memory->refs++;
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags)
{
    ENTER();
    return flags ? CUDA_ERROR_INVALID_VALUE
                 : LOCKED(bind(object_of(mcHandle), mcOffset, phys_of(memHandle), memOffset, size));
}

static struct phys *mapped_at(CUdeviceptr ptr)
{
    const struct sim_alloc *a = sim_alloc_find(ptr);
    return a && a->kind == SIM_MAPPED ? a->owner : NULL;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags)
{
    ENTER();
    return flags ? CUDA_ERROR_INVALID_VALUE
                 : LOCKED(bind(object_of(mcHandle), mcOffset, mapped_at(memptr), 0, size));
}

static CUresult unbind_from(struct phys *object, CUdevice dev, size_t offset, size_t size)
{
    uint32_t card;
    CUresult r = object ? sim_ordinal(dev, &card) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        unbind(object, card, offset, size);
    return r;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size)
{
    ENTER();
    return LOCKED(unbind_from(object_of(mcHandle), dev, mcOffset, size));
}
