/* SPDX-License-Identifier: Apache-2.0 */
/* What a card is doing: memory, processes, load, and the figures that follow from load. */
#include "sim/nvml_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX_PROCESSES 512
#define MAX_SAMPLES   512

static const struct sl_sim_device *desc(uint32_t index)
{
    return &nv_spec()->devices[index];
}

/* ---- memory ---- */

static nvmlReturn_t memory_of(nvmlDevice_t device, uint64_t *total, uint64_t *used)
{
    struct nv_target t;
    TRY(nv_target(device, &t));
    if (!t.is_mig) {
        *total = desc(t.index)->memory_total_bytes;
        *used = nv_used_bytes(t.index);
    } else {
        struct sl_sim_mig_state s = nv_mig(t.index);
        *total = (uint64_t)nv_profile(desc(t.index))->mig[s.gi[t.gi].profile].memory_mib << 20;
        *used = nv_mig_used_bytes(t.index, s.gi[t.gi].id);
    }
    if (*used > *total)
        *used = *total;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    ENTER(nvmlDeviceGetMemoryInfo);
    uint64_t total, used;
    REQUIRE(memory);
    TRY(memory_of(device, &total, &used));
    *memory = (nvmlMemory_t){.total = total, .free = total - used, .used = used};
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    ENTER(nvmlDeviceGetMemoryInfo_v2);
    uint64_t total, used;
    REQUIRE(memory);
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(memory_of(device, &total, &used));
    memory->total = total;
    memory->reserved = 0;
    memory->free = total - used;
    memory->used = used;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    ENTER(nvmlDeviceGetBAR1MemoryInfo);
    uint32_t i;
    REQUIRE(memory);
    TRY(nv_card(device, &i));
    uint64_t total = nv_profile(desc(i))->bar1_bytes;
    *memory =
        (nvmlBAR1Memory_t){.bar1Total = total, .bar1Free = total - (1 << 20), .bar1Used = 1 << 20};
    return NVML_SUCCESS;
}

/* ---- processes ---- */

/*
 * The rule all lists share: *count is room on the way in and the number on the way out; too little
 * room is INSUFFICIENT_SIZE with *count telling how much is needed; *count 0 only asks, and
 * succeeds when there is nothing.
 */
static nvmlReturn_t processes_of(nvmlDevice_t device, bool mps_only, unsigned int *count,
                                 struct nv_process out[MAX_PROCESSES])
{
    struct nv_target t;
    REQUIRE(count);
    TRY(nv_target(device, &t));
    size_t n = nv_processes(t.index, out, MAX_PROCESSES), kept = 0;
    if (n > MAX_PROCESSES)
        n = MAX_PROCESSES;
    struct sl_sim_mig_state s = {0};
    if (t.is_mig)
        s = nv_mig(t.index);
    for (size_t i = 0; i < n; i++)
        if ((!mps_only || out[i].mps) &&
            (!t.is_mig || (out[i].gpu_instance == s.gi[t.gi].id &&
                           out[i].compute_instance == s.gi[t.gi].ci[t.ci].id)))
            out[kept++] = out[i];
    unsigned int room = *count;
    *count = (unsigned int)kept;
    return kept > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t compute_v1(nvmlDevice_t device, bool mps_only, unsigned int *count,
                               nvmlProcessInfo_v1_t *infos)
{
    struct nv_process list[MAX_PROCESSES];
    REQUIRE(count && (infos || *count == 0));
    TRY(processes_of(device, mps_only, count, list));
    for (unsigned int i = 0; i < *count; i++)
        infos[i] = (nvmlProcessInfo_v1_t){list[i].pid, list[i].used_bytes};
    return NVML_SUCCESS;
}

static nvmlReturn_t compute_v2(nvmlDevice_t device, bool mps_only, unsigned int *count,
                               nvmlProcessInfo_v2_t *infos)
{
    struct nv_process list[MAX_PROCESSES];
    REQUIRE(count && (infos || *count == 0));
    TRY(processes_of(device, mps_only, count, list));
    for (unsigned int i = 0; i < *count; i++)
        infos[i] = (nvmlProcessInfo_v2_t){list[i].pid, list[i].used_bytes, list[i].gpu_instance,
                                          list[i].compute_instance};
    return NVML_SUCCESS;
}

/* Graphics: the simulated cards have none. */
static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count)
{
    struct nv_target t;
    REQUIRE(count);
    TRY(nv_target(device, &t));
    *count = 0;
    return NVML_SUCCESS;
}

#define PROCESS_CALL(function, type, answer)                                                       \
    NV_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, type *infos)         \
    {                                                                                              \
        ENTER(function);                                                                           \
        (void)infos;                                                                               \
        return answer;                                                                             \
    }

PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t,
             compute_v1(device, false, count, infos))
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t,
             compute_v2(device, false, count, infos))
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t,
             compute_v2(device, false, count, infos))
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t,
             no_processes(device, count))
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t,
             no_processes(device, count))
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t,
             no_processes(device, count))
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t,
             compute_v1(device, true, count, infos))
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t,
             compute_v2(device, true, count, infos))
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t,
             compute_v2(device, true, count, infos))

NV_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                             nvmlProcessDetailList_v1_t *list)
{
    ENTER(nvmlDeviceGetRunningProcessDetailList);
    struct nv_process found[MAX_PROCESSES];
    REQUIRE(list);
    if (list->version != NVML_PROCESS_DETAIL_LIST_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REQUIRE(list->mode <= NVML_PROCESS_MODE_MPS);
    if (list->mode == NVML_PROCESS_MODE_GRAPHICS)
        return no_processes(device, &list->numProcArrayEntries);
    REQUIRE(list->procArray || list->numProcArrayEntries == 0);
    TRY(processes_of(device, list->mode == NVML_PROCESS_MODE_MPS, &list->numProcArrayEntries,
                     found));
    for (unsigned int i = 0; i < list->numProcArrayEntries; i++)
        list->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = found[i].pid,
            .usedGpuMemory = found[i].used_bytes,
            .gpuInstanceId = found[i].gpu_instance,
            .computeInstanceId = found[i].compute_instance,
        };
    return NVML_SUCCESS;
}

/* ---- load ---- */

NV_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    ENTER(nvmlDeviceGetUtilizationRates);
    struct nv_target t;
    REQUIRE(out);
    TRY(nv_target(device, &t));
    if (t.is_mig || nv_mig(t.index).enabled)
        return NVML_ERROR_NOT_SUPPORTED; /* as on hardware: not on or under MIG */
    *out = (nvmlUtilization_t){.gpu = nv_busy_percent(t.index)};
    return NVML_SUCCESS;
}

static nvmlReturn_t codec(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    uint32_t i;
    REQUIRE(utilization && period_us);
    TRY(nv_card(device, &i));
    *utilization = 0;
    *period_us = 167000;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device,
                                                       unsigned int *utilization,
                                                       unsigned int *period_us)
{
    ENTER(nvmlDeviceGetEncoderUtilization);
    return codec(device, utilization, period_us);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device,
                                                       unsigned int *utilization,
                                                       unsigned int *period_us)
{
    ENTER(nvmlDeviceGetDecoderUtilization);
    return codec(device, utilization, period_us);
}

static uint32_t power_mw(uint32_t index, uint32_t busy_percent)
{
    const struct sl_sim_profile *p = nv_profile(desc(index));
    return p->power_idle_mw + (p->power_limit_mw - p->power_idle_mw) / 100 * busy_percent;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type,
                                            unsigned long long last_seen, unsigned int *value_type,
                                            unsigned int *count, nvmlSample_t *samples)
{
    ENTER(nvmlDeviceGetSamples);
    struct nv_sample list[MAX_SAMPLES];
    uint32_t i;
    REQUIRE(value_type && count);
    TRY(nv_card(device, &i));
    if (type > NVML_MEMORY_UTILIZATION_SAMPLES)
        return NVML_ERROR_NOT_SUPPORTED;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples) {
        *count = MAX_SAMPLES; /* as the real one: how much to bring, not how much there is */
        return NVML_SUCCESS;
    }
    size_t n = nv_device_samples(i, last_seen, list, MAX_SAMPLES);
    if (n == 0)
        return NVML_ERROR_NOT_FOUND;
    if (n > *count)
        n = *count;
    for (size_t k = 0; k < n; k++) {
        samples[k] = (nvmlSample_t){.timeStamp = list[k].timestamp_us};
        samples[k].sampleValue.uiVal =
            type == NVML_TOTAL_POWER_SAMPLES       ? power_mw(i, list[k].sm_percent)
            : type == NVML_GPU_UTILIZATION_SAMPLES ? list[k].sm_percent
                                                   : list[k].memory_percent;
    }
    *count = (unsigned int)n;
    return NVML_SUCCESS;
}

/* Fetches samples under the list rule; nothing newer than last_seen is NOT_FOUND. */
static nvmlReturn_t process_samples(nvmlDevice_t device, unsigned long long last_seen, bool array,
                                    unsigned int *count, struct nv_sample out[MAX_SAMPLES])
{
    uint32_t i;
    TRY(nv_card(device, &i));
    if (nv_mig(i).enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    size_t n = nv_process_samples(i, last_seen, out, MAX_SAMPLES);
    if (n > MAX_SAMPLES)
        n = MAX_SAMPLES;
    unsigned int room = array ? *count : 0;
    *count = (unsigned int)n;
    if (n == 0)
        return NVML_ERROR_NOT_FOUND;
    return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                       nvmlProcessUtilizationSample_t *samples,
                                                       unsigned int *count,
                                                       unsigned long long last_seen)
{
    ENTER(nvmlDeviceGetProcessUtilization);
    struct nv_sample list[MAX_SAMPLES];
    REQUIRE(count);
    TRY(process_samples(device, last_seen, samples != NULL, count, list));
    for (unsigned int k = 0; k < *count; k++)
        samples[k] = (nvmlProcessUtilizationSample_t){
            .pid = list[k].pid,
            .timeStamp = list[k].timestamp_us,
            .smUtil = list[k].sm_percent,
            .memUtil = list[k].memory_percent,
        };
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t
nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info)
{
    ENTER(nvmlDeviceGetProcessesUtilizationInfo);
    struct nv_sample list[MAX_SAMPLES];
    REQUIRE(info);
    if (info->version != NVML_PROCESSES_UTILIZATION_INFO_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(process_samples(device, info->lastSeenTimeStamp, info->procUtilArray != NULL,
                        &info->processSamplesCount, list));
    for (unsigned int k = 0; k < info->processSamplesCount; k++)
        info->procUtilArray[k] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = list[k].timestamp_us,
            .pid = list[k].pid,
            .smUtil = list[k].sm_percent,
            .memUtil = list[k].memory_percent,
        };
    return NVML_SUCCESS;
}

/* ---- modes ---- */

/* One number out of a card, `i` its index. */
#define CARD_VALUE(function, value)                                                                \
    NV_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *out)                        \
    {                                                                                              \
        ENTER(function);                                                                           \
        uint32_t i;                                                                                \
        REQUIRE(out);                                                                              \
        TRY(nv_card(device, &i));                                                                  \
        *out = (value);                                                                            \
        return NVML_SUCCESS;                                                                       \
    }

CARD_VALUE(nvmlDeviceGetComputeMode, nv_compute_mode(i))
CARD_VALUE(nvmlDeviceGetPersistenceMode, nv_persistence(i))
CARD_VALUE(nvmlDeviceGetPerformanceState, nv_busy_percent(i) ? NVML_PSTATE_0 : NVML_PSTATE_8)
CARD_VALUE(nvmlDeviceGetPowerUsage, power_mw(i, nv_busy_percent(i)))
CARD_VALUE(nvmlDeviceGetPowerManagementLimit, nv_profile(desc(i))->power_limit_mw)
CARD_VALUE(nvmlDeviceGetPowerManagementDefaultLimit, nv_profile(desc(i))->power_limit_mw)
CARD_VALUE(nvmlDeviceGetEnforcedPowerLimit, nv_profile(desc(i))->power_limit_mw)

NV_EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    ENTER(nvmlDeviceSetComputeMode);
    uint32_t i;
    REQUIRE(mode <= NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
    TRY(nv_card(device, &i));
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
        return NVML_ERROR_NOT_SUPPORTED; /* gone since CUDA 8 */
    nv_set_compute_mode(i, mode);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned int mode)
{
    ENTER(nvmlDeviceSetPersistenceMode);
    uint32_t i;
    REQUIRE(mode <= NVML_FEATURE_ENABLED);
    TRY(nv_card(device, &i));
    nv_set_persistence(i, mode);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                                    unsigned int *min_mw,
                                                                    unsigned int *max_mw)
{
    ENTER(nvmlDeviceGetPowerManagementLimitConstraints);
    uint32_t i;
    REQUIRE(min_mw && max_mw);
    TRY(nv_card(device, &i));
    *max_mw = nv_profile(desc(i))->power_limit_mw;
    *min_mw = *max_mw / 5 * 2;
    return NVML_SUCCESS;
}

/* From 30 degrees idle to 75 under full load. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor,
                                                unsigned int *celsius)
{
    ENTER(nvmlDeviceGetTemperature);
    uint32_t i;
    REQUIRE(celsius && sensor == NVML_TEMPERATURE_GPU);
    TRY(nv_card(device, &i));
    *celsius = 30 + nv_busy_percent(i) * 45 / 100;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                                         unsigned int threshold,
                                                         unsigned int *celsius)
{
    ENTER(nvmlDeviceGetTemperatureThreshold);
    uint32_t i;
    REQUIRE(celsius);
    TRY(nv_card(device, &i));
    if (threshold > NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = threshold == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN ? 92 : 89;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
    ENTER(nvmlDeviceGetFanSpeed);
    (void)device, (void)percent;
    return NVML_ERROR_NOT_SUPPORTED; /* the chassis has the fans */
}

static nvmlReturn_t clock_of(nvmlDevice_t device, unsigned int type, bool now, unsigned int *mhz)
{
    uint32_t i;
    REQUIRE(mhz && type <= NVML_CLOCK_VIDEO);
    TRY(nv_card(device, &i));
    const struct sl_sim_profile *p = nv_profile(desc(i));
    if (type == NVML_CLOCK_MEM)
        *mhz = p->memory_clock_max_mhz;
    else
        *mhz = now && nv_busy_percent(i) == 0 ? 345 : p->sm_clock_max_mhz;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type,
                                              unsigned int *mhz)
{
    ENTER(nvmlDeviceGetClockInfo);
    return clock_of(device, type, true, mhz);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type,
                                                 unsigned int *mhz)
{
    ENTER(nvmlDeviceGetMaxClockInfo);
    return clock_of(device, type, false, mhz);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                                 unsigned long long *reasons)
{
    ENTER(nvmlDeviceGetCurrentClocksThrottleReasons);
    uint32_t i;
    REQUIRE(reasons);
    TRY(nv_card(device, &i));
    *reasons = nv_busy_percent(i) ? 0 : 1; /* 1: idle */
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current,
                                            unsigned int *pending)
{
    ENTER(nvmlDeviceGetEccMode);
    uint32_t i;
    REQUIRE(current && pending);
    TRY(nv_card(device, &i));
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type,
                                                   unsigned int counter, unsigned long long *count)
{
    ENTER(nvmlDeviceGetTotalEccErrors);
    uint32_t i;
    REQUIRE(count && type <= 1 && counter <= 1);
    TRY(nv_card(device, &i));
    *count = nv_ecc_errors(i, type);
    return NVML_SUCCESS;
}
