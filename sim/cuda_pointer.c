/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about pointers, and hints about managed memory. */
#include "sim/cuda_int.h"

#include <string.h>

static CUdevice ordinal_of(uint32_t card)
{
    for (int i = 0; i < sim_p.count; i++)
        if (sim_p.card[i] == card)
            return i;
    return -1;
}

static bool host(const struct sim_alloc *a)
{
    return a->kind == SIM_HOST || a->kind == SIM_HOST_REGISTERED;
}

static CUresult attribute(void *data, CUpointer_attribute attribute_id, CUdeviceptr ptr)
{
    const struct sim_alloc *a = sim_alloc_find(ptr);
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    if (!a) {
        /* Plain host memory is a known answer to a few questions, an error to the rest. */
        if (attribute_id == CU_POINTER_ATTRIBUTE_MAPPED ||
            attribute_id == CU_POINTER_ATTRIBUTE_IS_MANAGED) {
            memset(data, 0, sizeof(int));
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned int word = 0;
    uint64_t wide = 0;
    size_t bytes = sizeof(word);
    switch (attribute_id) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        wide = (uintptr_t)a->ctx;
        bytes = sizeof(wide);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        word = host(a) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host(a) && a->kind != SIM_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        wide = ptr;
        bytes = sizeof(wide);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        wide = ptr;
        bytes = sizeof(wide);
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        wide = a->id;
        bytes = sizeof(wide);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        wide = a->address;
        bytes = sizeof(wide);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        wide = a->size;
        bytes = sizeof(wide);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        wide = a->kind == SIM_POOL ? (uintptr_t)a->owner : 0;
        bytes = sizeof(wide);
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        word = a->kind == SIM_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        word = (unsigned int)ordinal_of(a->card);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        word = a->kind == SIM_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        word = 1;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        word = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (bytes == sizeof(wide))
        memcpy(data, &wide, bytes);
    else
        memcpy(data, &word, bytes);
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute_id, CUdeviceptr ptr)
{
    ENTER();
    return LOCKED(attribute(data, attribute_id, ptr));
}

CUresult cuPointerGetAttributes(unsigned int num, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr)
{
    ENTER();
    if (!num || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    for (unsigned int i = 0; i < num;
         i++) /* what has no answer reads as nothing, not as an error */
        if (data[i] && attribute(data[i], attributes[i], ptr) != CUDA_SUCCESS)
            memset(data[i], 0,
                   attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT ? sizeof(void *) : sizeof(int));
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute_id, CUdeviceptr ptr)
{
    ENTER();
    sim_lock();
    bool ok = value && attribute_id == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && sim_alloc_find(ptr);
    sim_unlock();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult advise(CUdeviceptr ptr, size_t count)
{
    const struct sim_alloc *a = sim_alloc_find(ptr);
    return a && a->kind == SIM_MANAGED && count && ptr + count <= a->address + a->size
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    ENTER();
    (void)advice;
    (void)device;
    return LOCKED(advise(devPtr, count));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location)
{
    ENTER();
    (void)advice;
    (void)location;
    return LOCKED(advise(devPtr, count));
}
