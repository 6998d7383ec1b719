/* SPDX-License-Identifier: Apache-2.0 */
/* Device queries. */
#include "sim/cuda_int.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

CUresult sim_ordinal(CUdevice dev, uint32_t *ret_card)
{
    if (dev < 0 || dev >= sim_p.count)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret_card = sim_p.card[dev];
    return CUDA_SUCCESS;
}

/* The card's description, or NULL with *ret set. */
static const struct sl_sim_device *device(CUdevice dev, CUresult *ret)
{
    uint32_t card;
    *ret = sim_ordinal(dev, &card);
    return *ret == CUDA_SUCCESS ? &sim_p.st->cards[card].desc : NULL;
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
    ENTER();
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    if (ordinal < 0 || ordinal >= sim_p.count)
        return CUDA_ERROR_INVALID_DEVICE;
    *dev = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER();
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim_p.count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    ENTER();
    CUresult r;
    const struct sl_sim_device *d = device(dev, &r);
    if (!d)
        return r;
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_p.mig.on)
        (void)snprintf(name, (size_t)len, "%s MIG %s", d->name, sim_p.mig.name);
    else
        (void)snprintf(name, (size_t)len, "%s", d->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    ENTER();
    CUresult r;
    const struct sl_sim_device *d = device(dev, &r);
    if (!d)
        return r;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(uuid->bytes, sim_p.mig.on ? sim_p.mig.uuid : d->uuid, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    ENTER();
    CUresult r;
    const struct sl_sim_device *d = device(dev, &r);
    if (!d)
        return r;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = sim_total_bytes(sim_p.card[dev]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
    size_t full = 0;
    CUresult r = cuDeviceTotalMem_v2(&full, dev);
    if (r != CUDA_SUCCESS)
        return r;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = full > UINT32_MAX ? UINT32_MAX : (unsigned int)full;
    return CUDA_SUCCESS;
}

/* Attributes that are the same for every card simulated here. */
static bool constant_attribute(CUdevice_attribute attrib, int *pi)
{
    static const struct {
        int attrib, value;
    } table[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
        {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1},
        {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].attrib == (int)attrib) {
            *pi = table[i].value;
            return true;
        }
    return false;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    ENTER();
    CUresult r;
    const struct sl_sim_device *d = device(dev, &r);
    if (!d)
        return r;
    if (!pi || (int)attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sl_sim_profile *p = sl_sim_profile_at(d->profile);
    if (constant_attribute(attrib, pi))
        return CUDA_SUCCESS;
    *pi = 0;
    switch ((int)attrib) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *pi = (int)sim_sm_count(sim_p.card[dev]);
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *pi = (int)p->cc_major;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *pi = (int)p->cc_minor;
        break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        *pi = (int)p->sm_clock_max_mhz * 1000;
        break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        *pi = (int)p->memory_clock_max_mhz * 1000;
        break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        *pi = (int)p->memory_bus_bits;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *pi = (int)p->l2_cache_bytes;
        break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        *pi = (int)p->copy_engines;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *pi = (int)d->pci_bus;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *pi = (int)d->pci_device;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        *pi = (int)d->pci_domain;
        break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *pi = d->numa_node;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        *pi = (int)sim_p.st->cards[sim_p.card[dev]].compute_mode;
        break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
        *pi = sim_p.mps.on;
        break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS:
        *pi = p->cc_major >= 9;
        break;
    default: /* what a card does not have reads as 0 */
        break;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    CUresult r = cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
    return r != CUDA_SUCCESS
               ? r
               : cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    ENTER();
    CUresult r;
    const struct sl_sim_device *d = device(dev, &r);
    if (!d)
        return r;
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = (CUdevprop){.maxThreadsPerBlock = 1024,
                        .maxThreadsDim = {1024, 1024, 64},
                        .maxGridSize = {2147483647, 65535, 65535},
                        .sharedMemPerBlock = 49152,
                        .totalConstantMemory = 65536,
                        .SIMDWidth = 32,
                        .memPitch = 2147483647,
                        .regsPerBlock = 65536,
                        .clockRate = (int)sl_sim_profile_at(d->profile)->sm_clock_max_mhz * 1000,
                        .textureAlign = 512};
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    ENTER();
    CUresult r;
    const struct sl_sim_device *d = device(dev, &r);
    if (!d)
        return r;
    if (!pciBusId || len < 13)
        return CUDA_ERROR_INVALID_VALUE;
    (void)snprintf(pciBusId, (size_t)len, "%04X:%02X:%02X.0", d->pci_domain, d->pci_bus,
                   d->pci_device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    ENTER();
    if (!dev || !pciBusId)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < sim_p.count; i++) {
        const struct sl_sim_device *d = &sim_p.st->cards[sim_p.card[i]].desc;
        char have[24];
        (void)snprintf(have, sizeof(have), "%04X:%02X:%02X.0", d->pci_domain, d->pci_bus,
                       d->pci_device);
        if (strcasecmp(have, pciBusId) == 0 || strcasecmp(have + 5, pciBusId) == 0) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peerDev)
{
    ENTER();
    uint32_t a, b;
    CUresult r = sim_ordinal(dev, &a);
    if (r == CUDA_SUCCESS)
        r = sim_ordinal(peerDev, &b);
    if (r != CUDA_SUCCESS)
        return r;
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    *can = a != b && sim_p.st->cards[a].desc.profile == sim_p.st->cards[b].desc.profile;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice src,
                                 CUdevice dst)
{
    int can;
    CUresult r = cuDeviceCanAccessPeer(&can, src, dst);
    if (r != CUDA_SUCCESS)
        return r;
    if (!value || src == dst)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : can;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
    ENTER();
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (!pi || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    *pi = 0; /* only under MPS */
    return CUDA_SUCCESS;
}
