/* SPDX-License-Identifier: Apache-2.0 */
/* Start and stop, handles, errors, the system, and finding devices. */
#include "sim/nvml_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

/* ---- entry ---- */

static const struct {
    const char *name;
    uint32_t since;
} functions[FN_COUNT] = {
#define NVML_FN(name, since, params) [FN_##name] = {#name, since},
    NVML_FUNCTIONS(NVML_FN)
#undef NVML_FN
};

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint init_count;

static nvmlReturn_t enter_any(enum nv_fn fn)
{
    nvmlReturn_t fault = nv_fault(functions[fn].name);
    if (fault != NVML_SUCCESS)
        return fault;
    uint32_t branch = nv_abi_branch();
    return branch && functions[fn].since > branch ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_SUCCESS;
}

nvmlReturn_t nv_enter(enum nv_fn fn)
{
    TRY(enter_any(fn));
    return atomic_load(&init_count) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t init(enum nv_fn fn)
{
    TRY(enter_any(fn));
    nvmlReturn_t result = NVML_SUCCESS;
    (void)pthread_mutex_lock(&init_lock);
    if (atomic_load(&init_count) == 0)
        result = nv_state_attach();
    if (result == NVML_SUCCESS)
        atomic_fetch_add(&init_count, 1);
    (void)pthread_mutex_unlock(&init_lock);
    return result;
}

NV_EXPORT nvmlReturn_t nvmlInit(void)
{
    return init(FN_nvmlInit);
}

NV_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return init(FN_nvmlInit_v2);
}

NV_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags; /* both flags only make a start succeed that would not */
    return init(FN_nvmlInitWithFlags);
}

NV_EXPORT nvmlReturn_t nvmlShutdown(void)
{
    ENTER(nvmlShutdown);
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    (void)pthread_mutex_lock(&init_lock);
    if (atomic_load(&init_count) > 0) {
        if (atomic_fetch_sub(&init_count, 1) == 1)
            nv_state_detach();
        result = NVML_SUCCESS;
    }
    (void)pthread_mutex_unlock(&init_lock);
    return result;
}

/* Private tables of the real library (nvidia-smi uses them); a caller that asks must cope. */
NV_EXPORT nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id)
{
    ENTER(nvmlInternalGetExportTable);
    (void)id;
    REQUIRE(table);
    return NVML_ERROR_NOT_SUPPORTED;
}

NV_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t result;
        const char *text;
    } texts[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
        {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
        {NVML_ERROR_OPERATING_SYSTEM, "GPU access blocked by the operating system"},
        {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
        {NVML_ERROR_IN_USE, "In use by another client"},
        {NVML_ERROR_MEMORY, "Insufficient Memory"},
        {NVML_ERROR_NO_DATA, "No data"},
        {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
        {NVML_ERROR_GPU_NOT_FOUND, "GPU not found"},
        {NVML_ERROR_INVALID_STATE, "Invalid state"},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(texts); i++)
        if (texts[i].result == result)
            return texts[i].text;
    return "Unknown Error";
}

/* ---- handles ---- */

struct nvmlDevice_st {
    char unused;
};
struct nvmlGpuInstance_st {
    char unused;
};
struct nvmlComputeInstance_st {
    char unused;
};

#define MIG_PER_CARD (SL_SIM_MIG_MAX_GI * SL_SIM_MIG_MAX_CI)

/* The position in the table is the handle's meaning. Generations are what the slot held when the
 * handle was given out: an instance destroyed since then is not found, even if its slot is used
 * again. */
static struct nvmlDevice_st cards[SL_SIM_MAX_DEVICES];
static struct nvmlDevice_st migs[SL_SIM_MAX_DEVICES * MIG_PER_CARD];
static struct nvmlGpuInstance_st gis[SL_SIM_MAX_DEVICES * SL_SIM_MIG_MAX_GI];
static struct nvmlComputeInstance_st cis[SL_SIM_MAX_DEVICES * MIG_PER_CARD];
static atomic_uint mig_generation[SL_SIM_MAX_DEVICES * MIG_PER_CARD];
static atomic_uint gi_generation[SL_SIM_MAX_DEVICES * SL_SIM_MIG_MAX_GI];
static atomic_uint ci_generation[SL_SIM_MAX_DEVICES * MIG_PER_CARD];

/* Where a pointer stands in a table, or -1; compares addresses only. */
static ptrdiff_t position(const void *p, const void *table, size_t size)
{
    uintptr_t at = (uintptr_t)p, base = (uintptr_t)table;
    return at >= base && at < base + size ? (ptrdiff_t)(at - base) : -1;
}

static nvmlReturn_t check_card(uint32_t index)
{
    if (index >= nv_spec()->count || !nv_sees(index))
        return NVML_ERROR_INVALID_ARGUMENT;
    return nv_lost(index) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

static nvmlReturn_t check_instance(uint32_t index, uint32_t gi, int ci, uint32_t generation)
{
    TRY(check_card(index));
    struct sl_sim_mig_state s = nv_mig(index);
    const struct sl_sim_mig_gi *g = &s.gi[gi];
    if (!s.enabled || !g->used)
        return NVML_ERROR_NOT_FOUND;
    if (ci < 0)
        return g->generation == generation ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
    return g->ci[ci].used && g->ci[ci].generation == generation ? NVML_SUCCESS
                                                                : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nv_target(nvmlDevice_t handle, struct nv_target *ret)
{
    ptrdiff_t at = position(handle, cards, sizeof(cards));
    if (at >= 0) {
        *ret = (struct nv_target){.index = (uint32_t)at};
        return check_card((uint32_t)at);
    }
    at = position(handle, migs, sizeof(migs));
    if (at < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *ret = (struct nv_target){
        .index = (uint32_t)at / MIG_PER_CARD,
        .is_mig = true,
        .gi = (uint32_t)at % MIG_PER_CARD / SL_SIM_MIG_MAX_CI,
        .ci = (uint32_t)at % SL_SIM_MIG_MAX_CI,
    };
    return check_instance(ret->index, ret->gi, (int)ret->ci, atomic_load(&mig_generation[at]));
}

nvmlReturn_t nv_card(nvmlDevice_t handle, uint32_t *ret_index)
{
    struct nv_target t;
    TRY(nv_target(handle, &t));
    if (t.is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    *ret_index = t.index;
    return NVML_SUCCESS;
}

nvmlReturn_t nv_gi(nvmlGpuInstance_t handle, uint32_t *ret_index, uint32_t *ret_gi)
{
    ptrdiff_t at = position(handle, gis, sizeof(gis));
    if (at < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *ret_index = (uint32_t)at / SL_SIM_MIG_MAX_GI;
    *ret_gi = (uint32_t)at % SL_SIM_MIG_MAX_GI;
    return check_instance(*ret_index, *ret_gi, -1, atomic_load(&gi_generation[at]));
}

nvmlReturn_t nv_ci(nvmlComputeInstance_t handle, uint32_t *ret_index, uint32_t *ret_gi,
                   uint32_t *ret_ci)
{
    ptrdiff_t at = position(handle, cis, sizeof(cis));
    if (at < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *ret_index = (uint32_t)at / MIG_PER_CARD;
    *ret_gi = (uint32_t)at % MIG_PER_CARD / SL_SIM_MIG_MAX_CI;
    *ret_ci = (uint32_t)at % SL_SIM_MIG_MAX_CI;
    return check_instance(*ret_index, *ret_gi, (int)*ret_ci, atomic_load(&ci_generation[at]));
}

nvmlDevice_t nv_card_handle(uint32_t index)
{
    return &cards[index];
}

nvmlDevice_t nv_mig_handle(uint32_t index, uint32_t gi, uint32_t ci)
{
    uint32_t at = (index * SL_SIM_MIG_MAX_GI + gi) * SL_SIM_MIG_MAX_CI + ci;
    atomic_store(&mig_generation[at], nv_mig(index).gi[gi].ci[ci].generation);
    return &migs[at];
}

nvmlGpuInstance_t nv_gi_handle(uint32_t index, uint32_t gi)
{
    uint32_t at = index * SL_SIM_MIG_MAX_GI + gi;
    atomic_store(&gi_generation[at], nv_mig(index).gi[gi].generation);
    return &gis[at];
}

nvmlComputeInstance_t nv_ci_handle(uint32_t index, uint32_t gi, uint32_t ci)
{
    uint32_t at = (index * SL_SIM_MIG_MAX_GI + gi) * SL_SIM_MIG_MAX_CI + ci;
    atomic_store(&ci_generation[at], nv_mig(index).gi[gi].ci[ci].generation);
    return &cis[at];
}

nvmlReturn_t nv_copy_text(char *buf, unsigned int length, const char *text)
{
    REQUIRE(buf);
    size_t n = strlen(text) + 1;
    if (n > length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(buf, text, n);
    return NVML_SUCCESS;
}

/* ---- the system ---- */

NV_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER(nvmlSystemGetDriverVersion);
    return nv_copy_text(version, length, nv_spec()->driver_version);
}

NV_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    ENTER(nvmlSystemGetNVMLVersion);
    char text[64];
    (void)snprintf(text, sizeof(text), "%u.%s", nv_spec()->cuda_version / 1000,
                   nv_spec()->driver_version);
    return nv_copy_text(version, length, text);
}

static nvmlReturn_t cuda_version(int *version)
{
    REQUIRE(version);
    *version = (int)nv_spec()->cuda_version;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER(nvmlSystemGetCudaDriverVersion);
    return cuda_version(version);
}

NV_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER(nvmlSystemGetCudaDriverVersion_v2);
    return cuda_version(version);
}

NV_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    ENTER(nvmlSystemGetProcessName);
    REQUIRE(name && length > 0);
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    if (!f)
        return NVML_ERROR_NOT_FOUND;
    /* The first word of the command line; longer names are cut, as the real one does. */
    size_t n = fread(name, 1, length - 1, f);
    name[n] = '\0';
    return n ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* ---- finding devices ---- */

static nvmlReturn_t count(unsigned int *out)
{
    REQUIRE(out);
    *out = nv_seen_count();
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *ret)
{
    ENTER(nvmlDeviceGetCount);
    return count(ret);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *ret)
{
    ENTER(nvmlDeviceGetCount_v2);
    return count(ret);
}

static nvmlReturn_t by_card(uint32_t index, nvmlDevice_t *device)
{
    if (!nv_sees(index))
        return NVML_ERROR_NOT_FOUND;
    if (nv_lost(index))
        return NVML_ERROR_GPU_IS_LOST;
    *device = nv_card_handle(index);
    return NVML_SUCCESS;
}

static nvmlReturn_t by_index(unsigned int index, nvmlDevice_t *device)
{
    REQUIRE(device && index < nv_seen_count());
    return by_card(nv_seen(index), device);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    ENTER(nvmlDeviceGetHandleByIndex);
    return by_index(index, device);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    ENTER(nvmlDeviceGetHandleByIndex_v2);
    return by_index(index, device);
}

static nvmlReturn_t mig_by_uuid(const char *uuid, nvmlDevice_t *device)
{
    const struct sl_sim_spec *spec = nv_spec();
    for (uint32_t i = 0; i < spec->count; i++) {
        struct sl_sim_mig_state s = nv_mig(i);
        for (uint32_t g = 0; s.enabled && g < SL_SIM_MIG_MAX_GI; g++)
            for (uint32_t c = 0; s.gi[g].used && c < SL_SIM_MIG_MAX_CI; c++) {
                uint8_t bytes[16];
                char text[48];
                if (!s.gi[g].ci[c].used || !nv_sees_mig(i, s.gi[g].id, s.gi[g].ci[c].id))
                    continue;
                sl_sim_mig_uuid(&spec->devices[i], &s.gi[g], &s.gi[g].ci[c], bytes);
                sl_sim_uuid_format("MIG-", bytes, text, sizeof(text));
                if (strcasecmp(text, uuid) == 0) {
                    *device = nv_mig_handle(i, g, c);
                    return NVML_SUCCESS;
                }
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    ENTER(nvmlDeviceGetHandleByUUID);
    REQUIRE(uuid && device);
    if (strncasecmp(uuid, "MIG-", 4) == 0)
        return mig_by_uuid(uuid, device);
    for (uint32_t i = 0; i < nv_spec()->count; i++)
        if (strcasecmp(uuid, nv_spec()->devices[i].uuid_text) == 0)
            return by_card(i, device);
    return NVML_ERROR_NOT_FOUND;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    ENTER(nvmlDeviceGetHandleBySerial);
    REQUIRE(serial && device);
    for (uint32_t i = 0; i < nv_spec()->count; i++)
        if (strcmp(serial, nv_spec()->devices[i].serial) == 0)
            return by_card(i, device);
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t by_pci(const char *bus_id, nvmlDevice_t *device)
{
    uint32_t domain, bus, dev;
    REQUIRE(bus_id && device && sl_sim_pci_parse(bus_id, &domain, &bus, &dev));
    for (uint32_t i = 0; i < nv_spec()->count; i++) {
        const struct sl_sim_device *d = &nv_spec()->devices[i];
        if (d->pci_domain == domain && d->pci_bus == bus && d->pci_device == dev)
            return by_card(i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    ENTER(nvmlDeviceGetHandleByPciBusId);
    return by_pci(bus_id, device);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    ENTER(nvmlDeviceGetHandleByPciBusId_v2);
    return by_pci(bus_id, device);
}
