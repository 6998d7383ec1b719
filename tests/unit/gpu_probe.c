/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_probe [LIBRARY]: what src/gpu says about this machine, and whether NVML's structs are as large
 * as our declarations have them. Every struct is handed out with marked bytes behind it; a library
 * that writes there has another layout. Needs no test framework, so that it also runs on a bare
 * machine with a real card: exit status 0 means that everything checked out.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/nvml.h"
#include "base/cleanup.h"
#include "gpu/gpu.h"

#define MARK 0x5a
#define TAIL 512

static int failures;

static void *symbol(void *library, const char *name)
{
    void *s = dlsym(library, name);
    if (!s)
        (void)printf("  %-48s not in this library\n", name);
    return s;
}

static void verdict(const char *name, nvmlReturn_t result, const unsigned char *tail)
{
    size_t spilled = 0;
    for (size_t i = 0; i < TAIL; i++)
        if (tail[i] != MARK)
            spilled = i + 1;
    if (spilled)
        failures++;
    (void)printf("  %-48s result %d%s", name, (int)result, spilled ? "  TOO SMALL by " : "\n");
    if (spilled)
        (void)printf("%zu\n", spilled);
}

/* Calls `fn` of the library with a struct of `type` (set up by `setup`) as its last argument. */
#define CHECK(library, fn, type, setup, ...)                                                       \
    do {                                                                                           \
        struct {                                                                                   \
            type value;                                                                            \
            unsigned char tail[TAIL];                                                              \
        } out;                                                                                     \
        __typeof__(&fn) call;                                                                      \
        void *sym = symbol((library), #fn);                                                        \
        memset(&out, MARK, sizeof(out));                                                           \
        setup;                                                                                     \
        memcpy(&call, &sym, sizeof(call));                                                         \
        if (call)                                                                                  \
            verdict(#fn, call(__VA_ARGS__, &out.value),                                            \
                    (unsigned char *)&out + sizeof(out.value));                                    \
    } while (0)

static void check_layouts(void *library)
{
    nvmlDevice_t dev;
    __typeof__(&nvmlDeviceGetHandleByIndex_v2) by_index;
    void *found = symbol(library, "nvmlDeviceGetHandleByIndex_v2");
    memcpy(&by_index, &found, sizeof(by_index));
    if (!by_index || by_index(0, &dev) != NVML_SUCCESS) {
        (void)printf("  no card to ask\n");
        failures++;
        return;
    }
    unsigned int one = 1;
    CHECK(library, nvmlDeviceGetPciInfo_v2, nvmlPciInfo_v2_t, , dev);
    CHECK(library, nvmlDeviceGetPciInfo_v3, nvmlPciInfo_t, , dev);
    CHECK(library, nvmlDeviceGetMemoryInfo, nvmlMemory_t, , dev);
    CHECK(library, nvmlDeviceGetMemoryInfo_v2, nvmlMemory_v2_t, out.value.version = NVML_MEMORY_V2,
          dev);
    CHECK(library, nvmlDeviceGetBAR1MemoryInfo, nvmlBAR1Memory_t, , dev);
    CHECK(library, nvmlDeviceGetUtilizationRates, nvmlUtilization_t, , dev);
    CHECK(library, nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, one = 1, dev, &one);
    CHECK(library, nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, one = 1, dev,
          &one);
    CHECK(library, nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, one = 1, dev, &one);
    CHECK(library, nvmlDeviceGetRunningProcessDetailList, nvmlProcessDetailList_v1_t,
          out.value = ((nvmlProcessDetailList_v1_t){.version = NVML_PROCESS_DETAIL_LIST_V1}), dev);
    CHECK(library, nvmlDeviceGetProcessesUtilizationInfo, nvmlProcessesUtilizationInfo_v1_t,
          out.value =
              ((nvmlProcessesUtilizationInfo_v1_t){.version = NVML_PROCESSES_UTILIZATION_INFO_V1}),
          dev);
    CHECK(library, nvmlDeviceGetGpuInstanceProfileInfo, nvmlGpuInstanceProfileInfo_t, , dev, 0);
    CHECK(library, nvmlDeviceGetGpuInstanceProfileInfoV, nvmlGpuInstanceProfileInfo_v2_t,
          out.value.version = NVML_GPU_INSTANCE_PROFILE_INFO_V2, dev, 0);
    CHECK(library, nvmlDeviceGetAttributes_v2, nvmlDeviceAttributes_t, , dev);
}

static void show_card(struct sl_gpu *gpu, size_t i)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu_info info;
    struct sl_gpu_memory m;
    SL_CLEANUP(free) struct sl_gpu_process *list = NULL;
    size_t n = 0;
    if (sl_gpu_info(gpu, i, &info, &err) < 0 || sl_gpu_memory(gpu, i, &m, &err) < 0 ||
        sl_gpu_processes(gpu, i, &list, &n, &err) < 0) {
        (void)printf("%zu: %s\n", i, err.msg);
        failures++;
        return;
    }
    (void)printf("%zu: %s %s pci %s device %08x minor %u numa %d sms %u cc %d.%d mig %d/%d\n", i,
                 info.uuid, info.name, info.pci_bus_id, info.pci_device_id, info.minor,
                 info.numa_node, info.sm_count, info.cc_major, info.cc_minor, info.mig_capable,
                 info.mig_enabled);
    (void)printf("   memory total %llu used %llu reserved %llu free %llu\n",
                 (unsigned long long)m.total_bytes, (unsigned long long)m.used_bytes,
                 (unsigned long long)m.reserved_bytes, (unsigned long long)m.free_bytes);
    if (m.used_bytes + m.reserved_bytes + m.free_bytes != m.total_bytes) {
        (void)printf("   these do not add up\n");
        failures++;
    }
    for (size_t k = 0; k < n; k++)
        (void)printf("   pid %u %s %llu\n", list[k].pid, list[k].used_known ? "uses" : "unknown",
                     (unsigned long long)list[k].used_bytes);
    for (uint32_t slot = 0; slot < info.mig_slots; slot++) {
        struct sl_gpu_mig_info mig;
        if (sl_gpu_mig_info(gpu, i, slot, &mig, &err) == 0)
            (void)printf("   %s %s sms %u memory %llu\n", mig.uuid, mig.profile, mig.sm_count,
                         (unsigned long long)mig.memory_total_bytes);
    }
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    struct sl_err err = SL_ERR_INIT;
    struct sl_gpu *gpu = NULL;
    char version[80] = "";
    size_t count = 0;
    int cuda = 0;
    if (sl_gpu_open(name, &gpu, &err) < 0 || sl_gpu_count(gpu, &count, &err) < 0 ||
        sl_gpu_driver_version(gpu, version, sizeof(version), &err) < 0 ||
        sl_gpu_cuda_version(gpu, &cuda, &err) < 0) {
        (void)fprintf(stderr, "gpu_probe: %s\n", err.msg);
        sl_gpu_close(gpu);
        return 1;
    }
    (void)printf("driver %s cuda %d cards %zu\n", version, cuda, count);
    for (size_t i = 0; i < count; i++)
        show_card(gpu, i);
    void *library = dlopen(name ? name : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    (void)printf("layouts:\n");
    if (library)
        check_layouts(library);
    else
        failures++;
    struct sl_gpu_event event;
    int r = sl_gpu_wait_event(gpu, 10, &event, &err);
    (void)printf("events: %s\n", r == 0 ? "one came" : r == -ETIMEDOUT ? "none came" : err.msg);
    sl_gpu_close(gpu);
    (void)printf("%d failures\n", failures);
    return failures ? 1 : 0;
}
