/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_tenant [DEVICE]: what a tenant's process sees of memory and of processes, in CUDA and in NVML.
 * One line on stdin is one request:
 *
 *   hold BYTES  allocates                → "held RESULT"
 *   memory      → "memory CUDA_FREE CUDA_TOTAL DEVICE_TOTAL NVML_FREE NVML_USED NVML_TOTAL
 *                 V2_RESERVED V2_USED V2_TOTAL"
 *   processes   → "processes PID…" once all calls and buffer sizes agree, else "wrong …"
 *   device N    → "device N CTX_RESULT DEVICE_TOTAL NVML_RESULT PROCESSES" for another device
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/cuda.h"
#include "abi/nvml.h"

#define NVML_API(F)                                                                                \
    F(nvmlInit_v2)                                                                                 \
    F(nvmlDeviceGetHandleByIndex_v2)                                                               \
    F(nvmlDeviceGetMemoryInfo)                                                                     \
    F(nvmlDeviceGetMemoryInfo_v2)                                                                  \
    F(nvmlDeviceGetComputeRunningProcesses)                                                        \
    F(nvmlDeviceGetComputeRunningProcesses_v2)                                                     \
    F(nvmlDeviceGetComputeRunningProcesses_v3)                                                     \
    F(nvmlDeviceGetGraphicsRunningProcesses_v3)                                                    \
    F(nvmlDeviceGetMPSComputeRunningProcesses_v3)                                                  \
    F(nvmlDeviceGetRunningProcessDetailList)                                                       \
    F(nvmlDeviceGetProcessUtilization)                                                             \
    F(nvmlDeviceGetProcessesUtilizationInfo)

static struct {
#define NVML_MEMBER(name) __typeof__(&name) name;
    NVML_API(NVML_MEMBER)
} nv;

static nvmlDevice_t device;
static CUdevice cuda_device;

static void memory(void)
{
    size_t free_bytes = 0, total = 0, device_total = 0;
    nvmlMemory_t m = {0};
    nvmlMemory_v2_t m2 = {.version = NVML_MEMORY_V2};
    CUresult rc = cuMemGetInfo_v2(&free_bytes, &total);
    if (rc == CUDA_SUCCESS)
        rc = cuDeviceTotalMem_v2(&device_total, cuda_device);
    nvmlReturn_t nrc = nv.nvmlDeviceGetMemoryInfo(device, &m);
    if (nrc == NVML_SUCCESS)
        nrc = nv.nvmlDeviceGetMemoryInfo_v2(device, &m2);
    if (rc != CUDA_SUCCESS || nrc != NVML_SUCCESS)
        (void)printf("wrong: CUDA %d, NVML %d\n", (int)rc, (int)nrc);
    else
        (void)printf("memory %zu %zu %zu %llu %llu %llu %llu %llu %llu\n", free_bytes, total,
                     device_total, m.free, m.used, m.total, m2.reserved, m2.used, m2.total);
}

#define WRONG(...)                                                                                 \
    do {                                                                                           \
        (void)printf("wrong: " __VA_ARGS__);                                                       \
        (void)printf("\n");                                                                        \
        return;                                                                                    \
    } while (0)

/* The buffer protocol, then the list itself, in all three ABIs: they must tell the same. */
static void processes(void)
{
    nvmlProcessInfo_t v3[64];
    nvmlProcessInfo_v2_t v2[64];
    nvmlProcessInfo_v1_t v1[64];
    nvmlProcessDetail_v1_t detail[64];
    unsigned int need = 0, n1 = 64, n2 = 64, n3 = 64;
    nvmlReturn_t rc = nv.nvmlDeviceGetComputeRunningProcesses_v3(device, &need, NULL);
    if (rc != (need ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS))
        WRONG("size query: %d for %u", (int)rc, need);
    if (nv.nvmlDeviceGetComputeRunningProcesses_v3(device, &n3, v3) != NVML_SUCCESS || n3 != need)
        WRONG("v3: %u instead of %u", n3, need);
    if (nv.nvmlDeviceGetComputeRunningProcesses_v2(device, &n2, v2) != NVML_SUCCESS || n2 != need)
        WRONG("v2: %u instead of %u", n2, need);
    if (nv.nvmlDeviceGetComputeRunningProcesses(device, &n1, v1) != NVML_SUCCESS || n1 != need)
        WRONG("v1: %u instead of %u", n1, need);
    if (need > 1) {
        unsigned int small = need - 1;
        rc = nv.nvmlDeviceGetComputeRunningProcesses_v3(device, &small, v3 + 32);
        if (rc != NVML_ERROR_INSUFFICIENT_SIZE || small != need)
            WRONG("short buffer: %d, %u", (int)rc, small);
    }
    nvmlProcessDetailList_v1_t list = {.version = NVML_PROCESS_DETAIL_LIST_V1,
                                       .mode = NVML_PROCESS_MODE_COMPUTE,
                                       .numProcArrayEntries = 64,
                                       .procArray = detail};
    rc = nv.nvmlDeviceGetRunningProcessDetailList(device, &list);
    if (rc != NVML_SUCCESS || list.numProcArrayEntries != need)
        WRONG("details: %d, %u instead of %u", (int)rc, list.numProcArrayEntries, need);
    unsigned int graphics = 64, mps = 64;
    (void)nv.nvmlDeviceGetGraphicsRunningProcesses_v3(device, &graphics, v3 + 32);
    (void)nv.nvmlDeviceGetMPSComputeRunningProcesses_v3(device, &mps, v3 + 32);
    (void)printf("processes");
    for (unsigned int i = 0; i < need; i++) {
        if (v1[i].pid != v3[i].pid || v2[i].pid != v3[i].pid || detail[i].pid != v3[i].pid)
            WRONG("the lists differ");
        (void)printf(" %u", v3[i].pid);
    }
    (void)printf("\n");
}

static void samples(void)
{
    nvmlProcessUtilizationSample_t sample[64];
    nvmlProcessUtilizationInfo_v1_t info[64];
    unsigned int count = 64;
    nvmlReturn_t rc = nv.nvmlDeviceGetProcessUtilization(device, sample, &count, 0);
    nvmlProcessesUtilizationInfo_v1_t list = {.version = NVML_PROCESSES_UTILIZATION_INFO_V1,
                                              .processSamplesCount = 64,
                                              .procUtilArray = info};
    nvmlReturn_t rc2 = nv.nvmlDeviceGetProcessesUtilizationInfo(device, &list);
    (void)printf("samples %d %d", (int)rc, (int)rc2);
    for (unsigned int i = 0; rc == NVML_SUCCESS && i < count; i++)
        (void)printf(" %u", sample[i].pid);
    for (unsigned int i = 0; rc2 == NVML_SUCCESS && i < list.processSamplesCount; i++)
        (void)printf(" %u", info[i].pid);
    (void)printf("\n");
}

static void other_device(int index)
{
    CUcontext other = NULL;
    size_t total = 1;
    nvmlDevice_t handle = NULL;
    nvmlMemory_t m;
    nvmlProcessInfo_t list[64];
    unsigned int count = 64;
    CUresult rc = cuDevicePrimaryCtxRetain(&other, index);
    (void)cuDeviceTotalMem_v2(&total, index);
    nvmlReturn_t nrc = nv.nvmlDeviceGetHandleByIndex_v2((unsigned int)index, &handle);
    if (nrc == NVML_SUCCESS)
        nrc = nv.nvmlDeviceGetMemoryInfo(handle, &m);
    if (nv.nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, list) != NVML_SUCCESS)
        count = 999;
    (void)printf("device %d %d %zu %d %u\n", index, (int)rc, total, (int)nrc, count);
}

int main(int argc, char **argv)
{
    char line[64];
    CUcontext context = NULL;
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    cuda_device = argc > 1 ? atoi(argv[1]) : 0;
#define NVML_LOAD(name) nv.name = (__typeof__(nv.name))(uintptr_t)dlsym(nvml, #name);
    NVML_API(NVML_LOAD)
    setvbuf(stdout, NULL, _IOLBF, 0);
    CUresult rc = cuInit(0);
    if (rc == CUDA_SUCCESS)
        rc = cuDevicePrimaryCtxRetain(&context, cuda_device);
    if (rc == CUDA_SUCCESS)
        rc = cuCtxSetCurrent(context);
    nvmlReturn_t nrc = nv.nvmlInit_v2();
    if (nrc == NVML_SUCCESS)
        nrc = nv.nvmlDeviceGetHandleByIndex_v2((unsigned int)cuda_device, &device);
    (void)printf("ready %d %d\n", (int)rc, (int)nrc);
    while (fgets(line, sizeof(line), stdin)) {
        size_t bytes;
        int index;
        CUdeviceptr p;
        if (sscanf(line, "hold %zu", &bytes) == 1)
            (void)printf("held %d\n", (int)cuMemAlloc_v2(&p, bytes));
        else if (strncmp(line, "memory", 6) == 0)
            memory();
        else if (strncmp(line, "processes", 9) == 0)
            processes();
        else if (strncmp(line, "samples", 7) == 0)
            samples();
        else if (sscanf(line, "device %d", &index) == 1)
            other_device(index);
        else
            break;
    }
    return 0;
}
