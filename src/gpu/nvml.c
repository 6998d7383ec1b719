/* SPDX-License-Identifier: Apache-2.0 */
/* Loads NVML, translates its errors, and reads whole cards. */
#include "gpu/errors.h"
#include "gpu/nvml_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

#define DEFAULT_LIBRARY "libnvidia-ml.so.1"

static const struct {
    nvmlReturn_t result;
    int code;
} result_codes[] = {
    {NVML_ERROR_UNINITIALIZED, -EBADFD},
    {NVML_ERROR_INVALID_ARGUMENT, -EINVAL},
    {NVML_ERROR_NOT_SUPPORTED, -EOPNOTSUPP},
    {NVML_ERROR_NO_PERMISSION, -EPERM},
    {NVML_ERROR_NOT_FOUND, -ENOENT},
    {NVML_ERROR_INSUFFICIENT_SIZE, -ENOSPC},
    {NVML_ERROR_DRIVER_NOT_LOADED, -ENODEV},
    {NVML_ERROR_TIMEOUT, -ETIMEDOUT},
    {NVML_ERROR_LIBRARY_NOT_FOUND, -ELIBACC},
    {NVML_ERROR_FUNCTION_NOT_FOUND, -ENOSYS},
    {NVML_ERROR_GPU_IS_LOST, -ENXIO},
    {NVML_ERROR_RESET_REQUIRED, -ENXIO},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, -ELIBBAD},
    {NVML_ERROR_IN_USE, -EBUSY},
    {NVML_ERROR_MEMORY, -ENOMEM},
    {NVML_ERROR_NO_DATA, -ENODATA},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, -ENOSPC},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, -EINVAL},
    {NVML_ERROR_GPU_NOT_FOUND, -ENOENT},
};

static int result_code(nvmlReturn_t result)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(result_codes); i++)
        if (result_codes[i].result == result)
            return result_codes[i].code;
    return -EIO;
}

static const char *result_text(const struct nvml_gpu *g, nvmlReturn_t result)
{
    const char *text = g->api.nvmlErrorString ? g->api.nvmlErrorString(result) : NULL;
    return text ? text : "no description";
}

int sl_nvml_check(const struct nvml_gpu *g, nvmlReturn_t result, const char *what,
                  struct sl_err *err)
{
    if (result == NVML_SUCCESS)
        return 0;
    return sl_err_set(err, result_code(result), SL_E_NVML_CALL, what, result_text(g, result),
                      (int)result);
}

int sl_nvml_missing(const char *function, struct sl_err *err)
{
    return sl_err_set(err, -ENOSYS, SL_E_NVML_OLD, function);
}

/* ---- open ---- */

static void load_symbols(struct nvml_gpu *g)
{
/* POSIX lets a void pointer hold a function; ISO C has no cast for it, hence the copy. */
#define NVML_FN(name, since, params)                                                               \
    do {                                                                                           \
        void *symbol = dlsym(g->library, #name);                                                   \
        memcpy(&g->api.name, &symbol, sizeof(symbol));                                             \
    } while (0);
    NVML_FUNCTIONS(NVML_FN)
    NVML_FN(nvmlErrorString, 0, (void))
#undef NVML_FN
}

static bool driver_present(const char *root)
{
    static const char *const signs[] = {"/proc/driver/nvidia/version", "/dev/nvidiactl",
                                        "/dev/dxg"};
    for (size_t i = 0; i < SL_ARRAY_LEN(signs); i++) {
        char path[512];
        (void)snprintf(path, sizeof(path), "%s%s", root, signs[i]);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* If a library was named, simulated GPUs are not searched: sluiced has no --sim. */
static int explain_no_library(bool named, const char *root, const char *why, struct sl_err *err)
{
    if (driver_present(root))
        return sl_err_set(err, -ELIBACC, SL_E_NO_NVML, why);
    return sl_err_set(err, -ENODEV, SL_E_NO_DRIVER, why,
                      named ? "" : ", or use simulated GPUs (sluice run --sim h200)");
}

static int explain_init(const struct nvml_gpu *g, nvmlReturn_t result, struct sl_err *err)
{
    switch (result) {
    case NVML_SUCCESS:
        return 0;
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return sl_err_set(err, -ENODEV, SL_E_DRIVER_NOT_LOADED);
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return sl_err_set(err, -ELIBBAD, SL_E_DRIVER_MISMATCH);
    case NVML_ERROR_NO_PERMISSION:
        return sl_err_set(err, -EPERM, SL_E_DRIVER_PERMISSION);
    default:
        return sl_err_set(err, result_code(result), SL_E_NVML_START, result_text(g, result),
                          (int)result);
    }
}

static void gpu_close(struct sl_gpu *gpu)
{
    struct nvml_gpu *g = nvml_of(gpu);
    if (g->events && g->api.nvmlEventSetFree)
        (void)g->api.nvmlEventSetFree(g->events);
    if (g->api.nvmlShutdown)
        (void)g->api.nvmlShutdown();
    /* The library stays mapped: NVML's own threads and exit handlers may still be in it. */
    free(g);
}

/* ---- whole cards ---- */

int sl_nvml_handle(struct nvml_gpu *g, size_t i, nvmlDevice_t *ret, struct sl_err *err)
{
    int r = NVML_CALL(g, err, nvmlDeviceGetHandleByIndex_v2, (unsigned int)i, ret);
    return r < 0 ? sl_err_wrap(err, "GPU %zu", i) : 0;
}

int sl_nvml_count(struct sl_gpu *gpu, size_t *ret, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    unsigned int n = 0;
    int r = NVML_CALL(g, err, nvmlDeviceGetCount_v2, &n);
    if (r == 0)
        *ret = n;
    return r;
}

/* CUDA cores per multiprocessor by compute capability; 0 for an unknown chip. */
static unsigned int cores_per_sm(int major, int minor)
{
    if (major == 7 || ((major == 6 || major == 8) && minor == 0))
        return 64;
    return major >= 6 && major <= 12 ? 128 : 0;
}

static int numa_from_sysfs(const nvmlPciInfo_t *pci)
{
    char path[96];
    char text[16], *end;
    (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node",
                   pci->domain, pci->bus, pci->device);
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    if (!f || !fgets(text, sizeof(text), f))
        return -1;
    long node = strtol(text, &end, 10);
    return end != text && node >= 0 && node < 1024 ? (int)node : -1;
}

/* The NUMA node near the card: not nvmlDeviceGetNumaNodeId, which is about cards that are themselves NUMA nodes. */
static void info_location(struct nvml_gpu *g, nvmlDevice_t dev, struct sl_gpu_info *out)
{
    nvmlPciInfo_t pci = {0};
    unsigned long nodes = 0;
    out->numa_node = -1;
    if (NVML_CALL(g, NULL, nvmlDeviceGetMemoryAffinity, dev, 1, &nodes, NVML_AFFINITY_SCOPE_NODE) ==
            0 &&
        __builtin_popcountl(nodes) == 1)
        out->numa_node = __builtin_ctzl(nodes);
    if (NVML_CALL(g, NULL, nvmlDeviceGetPciInfo_v3, dev, &pci) == 0) {
        (void)snprintf(out->pci_bus_id, sizeof(out->pci_bus_id), "%.31s", pci.busId);
        out->pci_device_id = pci.pciDeviceId;
        if (out->numa_node < 0)
            out->numa_node = numa_from_sysfs(&pci);
    }
}

static void info_brand(struct nvml_gpu *g, nvmlDevice_t dev, struct sl_gpu_info *out)
{
    /* By NVML's numbers. */
    static const char *const names[] = {
        "",          "Quadro",      "Tesla",     "NVS",        "Grid",      "GeForce",
        "Titan",     "NvidiaVApps", "NvidiaVPC", "NvidiaVCS",  "NvidiaVWS", "NvidiaVGaming",
        "QuadroRTX", "NvidiaRTX",   "Nvidia",    "GeForceRTX", "TitanRTX"};
    unsigned int brand = 0;
    if (NVML_CALL(g, NULL, nvmlDeviceGetBrand, dev, &brand) == 0 &&
        brand < sizeof(names) / sizeof(names[0]))
        (void)snprintf(out->brand, sizeof(out->brand), "%s", names[brand]);
}

static void info_mig(struct nvml_gpu *g, nvmlDevice_t dev, struct sl_gpu_info *out)
{
    unsigned int current = 0, pending = 0, slots = 0;
    if (NVML_CALL(g, NULL, nvmlDeviceGetMigMode, dev, &current, &pending) < 0)
        return;
    out->mig_capable = true;
    out->mig_enabled = current == NVML_DEVICE_MIG_ENABLE;
    if (out->mig_enabled && NVML_CALL(g, NULL, nvmlDeviceGetMaxMigDeviceCount, dev, &slots) == 0)
        out->mig_slots = slots;
}

int sl_nvml_info(struct sl_gpu *gpu, size_t i, struct sl_gpu_info *ret, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    struct sl_gpu_info out = {0};
    struct sl_gpu_memory memory = {0};
    unsigned int cores = 0;

    int r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetUUID, dev, out.uuid, sizeof(out.uuid));
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetName, dev, out.name, sizeof(out.name));
    if (r == 0)
        r = sl_nvml_memory(gpu, i, &memory, err);
    if (r < 0)
        return r;
    out.memory_total_bytes = memory.total_bytes;
    (void)NVML_CALL(g, NULL, nvmlDeviceGetMinorNumber, dev, &out.minor);
    (void)NVML_CALL(g, NULL, nvmlDeviceGetCudaComputeCapability, dev, &out.cc_major, &out.cc_minor);
    unsigned int per_sm = cores_per_sm(out.cc_major, out.cc_minor);
    if (per_sm && NVML_CALL(g, NULL, nvmlDeviceGetNumGpuCores, dev, &cores) == 0)
        out.sm_count = cores / per_sm;
    info_brand(g, dev, &out);
    info_location(g, dev, &out);
    info_mig(g, dev, &out);
    *ret = out;
    return 0;
}

int sl_nvml_memory(struct sl_gpu *gpu, size_t i, struct sl_gpu_memory *ret, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r < 0)
        return r;
    nvmlMemory_v2_t v2 = {.version = NVML_MEMORY_V2};
    r = NVML_CALL(g, err, nvmlDeviceGetMemoryInfo_v2, dev, &v2);
    if (r == 0) {
        *ret = (struct sl_gpu_memory){v2.total, v2.used, v2.reserved, v2.free};
        return 0;
    }
    if (r != -ENOSYS && r != -EINVAL && r != -EOPNOTSUPP)
        return r;
    nvmlMemory_t v1 = {0};
    r = NVML_CALL(g, err, nvmlDeviceGetMemoryInfo, dev, &v1);
    if (r == 0)
        *ret = (struct sl_gpu_memory){v1.total, v1.used, 0, v1.free};
    return r;
}

int sl_nvml_driver_version(struct sl_gpu *gpu, char *buf, size_t size, struct sl_err *err)
{
    return NVML_CALL(nvml_of(gpu), err, nvmlSystemGetDriverVersion, buf, (unsigned int)size);
}

int sl_nvml_cuda_version(struct sl_gpu *gpu, int *ret, struct sl_err *err)
{
    int version = 0;
    int r = NVML_CALL(nvml_of(gpu), err, nvmlSystemGetCudaDriverVersion_v2, &version);
    if (r == 0)
        *ret = version;
    return r;
}

static const struct sl_gpu_ops ops = {
    .close = gpu_close,
#define OP(name, params, args) .name = sl_nvml_##name,
#include "gpu/ops.def"
#undef OP
};

int sl_gpu_open_at(const char *library, const char *root, struct sl_gpu **ret, struct sl_err *err)
{
    const char *name = library ? library : DEFAULT_LIBRARY;
    SL_CLEANUP(free) struct nvml_gpu *g = sl_xcalloc(1, sizeof(*g));
    g->base.ops = &ops;
    g->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!g->library)
        return explain_no_library(library != NULL, root, dlerror(), err);
    load_symbols(g);
    if (!g->api.nvmlInit_v2 || !g->api.nvmlShutdown) {
        (void)dlclose(g->library);
        return sl_err_set(err, -ELIBBAD, SL_E_NVML_WRONG, name);
    }
    int r = explain_init(g, g->api.nvmlInit_v2(), err);
    if (r < 0) {
        (void)dlclose(g->library);
        return r;
    }
    *ret = &g->base;
    sl_take_ptr(g);
    return 0;
}

int sl_gpu_open(const char *library, struct sl_gpu **ret, struct sl_err *err)
{
    return sl_gpu_open_at(library, "", ret, err);
}
