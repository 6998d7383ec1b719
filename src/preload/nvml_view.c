/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML as the tenant sees it: the lease's memory, and only the tenant's own processes. Devices outside the lease are
 * still counted and keep their names; their memory is hidden (NVML_ERROR_NO_PERMISSION), and no process of the tenant
 * is on them.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/charge.h"
#include "preload/device.h"

#define SL_NVML_ENTER(symbol, real, p, args)                                                       \
    __typeof__(&symbol) real = SL_REAL(symbol);                                                    \
    if (!real)                                                                                     \
        return NVML_ERROR_FUNCTION_NOT_FOUND;                                                      \
    struct sl_process *p = sl_process_get();                                                       \
    if ((p)->mode != SL_MODE_TENANT)                                                               \
    return (p)->mode == SL_MODE_NONE ? real args : NVML_ERROR_NO_PERMISSION

static nvmlReturn_t gpu_of(struct sl_process *p, nvmlDevice_t device, int *ret_gpu)
{
    __typeof__(&nvmlDeviceGetUUID) get_uuid = SL_REAL(nvmlDeviceGetUUID);
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    *ret_gpu = SL_NOT_LEASED;
    if (!get_uuid)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlReturn_t rc = get_uuid(device, uuid, sizeof(uuid));
    if (rc == NVML_SUCCESS)
        *ret_gpu = sl_device_gpu_by_uuid(p, uuid);
    return rc;
}

/* ---- memory ---- */

static nvmlReturn_t leased_memory(struct sl_process *p, nvmlDevice_t device, struct sl_budget *ret)
{
    int gpu;
    nvmlReturn_t rc = gpu_of(p, device, &gpu);
    if (rc != NVML_SUCCESS)
        return rc;
    if (gpu < 0)
        return NVML_ERROR_NO_PERMISSION;
    *ret = sl_charge_budget(p, gpu);
    if (ret->limited && ret->used_bytes > ret->limit_bytes)
        ret->used_bytes = ret->limit_bytes;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    SL_NVML_ENTER(nvmlDeviceGetMemoryInfo, real, p, (device, memory));
    struct sl_budget b;
    nvmlReturn_t rc = real(device, memory);
    if (rc == NVML_SUCCESS)
        rc = leased_memory(p, device, &b);
    if (rc != NVML_SUCCESS || !b.limited)
        return rc;
    memory->total = b.limit_bytes;
    memory->used = b.used_bytes;
    memory->free = b.limit_bytes - b.used_bytes;
    return rc;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    SL_NVML_ENTER(nvmlDeviceGetMemoryInfo_v2, real, p, (device, memory));
    struct sl_budget b;
    nvmlReturn_t rc = real(device, memory);
    if (rc == NVML_SUCCESS)
        rc = leased_memory(p, device, &b);
    if (rc != NVML_SUCCESS || !b.limited)
        return rc;
    memory->total = b.limit_bytes;
    memory->reserved = 0;
    memory->used = b.used_bytes;
    memory->free = b.limit_bytes - b.used_bytes;
    return rc;
}

/* ---- processes ---- */

struct members {
    uint32_t *pid;
    size_t count;
    uint32_t own[2];
};

static void find_members(struct sl_process *p, struct members *m)
{
    const struct sl_ledger_page *ledger = atomic_load(&p->ledger);
    *m = (struct members){.own = {(uint32_t)getpid(), p->host_pid}};
    m->pid = malloc(SL_MAX_SLOTS * sizeof(*m->pid));
    for (size_t i = 0; m->pid && i < SL_MAX_SLOTS; i++) {
        uint32_t pid = atomic_load_explicit(&ledger->slot[i].pid, memory_order_relaxed);
        if (pid != 0)
            m->pid[m->count++] = pid;
    }
}

static bool is_member(const struct members *m, uint32_t pid)
{
    if (pid == m->own[0] || pid == m->own[1])
        return true;
    for (size_t i = 0; i < m->count; i++)
        if (m->pid[i] == pid)
            return true;
    return false;
}

/* Keeps the entries of our processes, in order; returns how many. */
static unsigned int keep_members(struct sl_process *p, void *entries, unsigned int count,
                                 size_t size, size_t pid_offset)
{
    struct members m;
    unsigned int kept = 0;
    find_members(p, &m);
    for (unsigned int i = 0; i < count; i++) {
        char *entry = (char *)entries + (size_t)i * size;
        uint32_t pid;
        memcpy(&pid, entry + pid_offset, sizeof(pid));
        if (!is_member(&m, pid))
            continue;
        memmove((char *)entries + (size_t)kept * size, entry, size);
        kept++;
    }
    free(m.pid);
    return kept;
}

/*
 * Every list call of NVML returns the number of entries when the buffer is too small. The driver fills a buffer of
 * ours, and the program then gets the same protocol for the remaining entries. `ask` fills up to *count entries and
 * sets *count.
 */
struct list_call {
    nvmlReturn_t (*ask)(const struct list_call *call, void *entries, unsigned int *count);
    nvmlDevice_t device;
    void *real;
    const void *extra;
    size_t entry_size;
    size_t pid_offset;
};

#define LIST_CALL(function, more, type)                                                            \
    {.ask = function,                                                                              \
     .device = device,                                                                             \
     .real = (void *)(uintptr_t)real,                                                              \
     .extra = more,                                                                                \
     .entry_size = sizeof(type),                                                                   \
     .pid_offset = offsetof(type, pid)}

static nvmlReturn_t fetch(const struct list_call *call, void **ret_entries, unsigned int *ret_count)
{
    unsigned int count = 0;
    nvmlReturn_t rc = call->ask(call, NULL, &count);
    *ret_entries = NULL;
    *ret_count = 0;
    for (int tries = 0; rc == NVML_ERROR_INSUFFICIENT_SIZE && tries < 8; tries++) {
        unsigned int room = count + 16; /* more processes may come meanwhile */
        void *entries = calloc(room, call->entry_size);
        if (!entries)
            return NVML_ERROR_MEMORY;
        count = room;
        rc = call->ask(call, entries, &count);
        if (rc == NVML_SUCCESS) {
            *ret_entries = entries;
            *ret_count = count < room ? count : room;
            return rc;
        }
        free(entries);
    }
    return rc;
}

static nvmlReturn_t list_members(struct sl_process *p, const struct list_call *call, void *entries,
                                 unsigned int *count)
{
    int gpu;
    void *all = NULL;
    unsigned int kept = 0, room = *count;
    nvmlReturn_t rc = gpu_of(p, call->device, &gpu);
    if (rc == NVML_SUCCESS)
        rc = fetch(call, &all, &kept);
    if (rc != NVML_SUCCESS) {
        free(all);
        return rc;
    }
    kept = gpu < 0 || !all ? 0 : keep_members(p, all, kept, call->entry_size, call->pid_offset);
    *count = kept;
    if (kept > room || (kept > 0 && !entries))
        rc = NVML_ERROR_INSUFFICIENT_SIZE;
    else if (kept > 0)
        memcpy(entries, all, (size_t)kept * call->entry_size);
    free(all);
    return rc;
}

static nvmlReturn_t ask_running(const struct list_call *call, void *entries, unsigned int *count)
{
    return ((nvmlReturn_t(*)(nvmlDevice_t, unsigned int *, void *))(uintptr_t)call->real)(
        call->device, count, entries);
}

/* The six calls differ only in their entries. */
#define RUNNING(symbol, type)                                                                      \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, type *infos)                     \
    {                                                                                              \
        SL_NVML_ENTER(symbol, real, p, (device, count, infos));                                    \
        struct list_call call = LIST_CALL(ask_running, NULL, type);                                \
        if (!count || (*count > 0 && !infos)) /* the library returns its own error */              \
            return real(device, count, infos);                                                     \
        return list_members(p, &call, infos, count);                                               \
    }

RUNNING(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

static nvmlReturn_t ask_details(const struct list_call *call, void *entries, unsigned int *count)
{
    nvmlProcessDetailList_v1_t list = *(const nvmlProcessDetailList_v1_t *)call->extra;
    list.procArray = entries;
    list.numProcArrayEntries = *count;
    nvmlReturn_t rc = ((__typeof__(&nvmlDeviceGetRunningProcessDetailList))(uintptr_t)call->real)(
        call->device, &list);
    *count = list.numProcArrayEntries;
    return rc;
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_v1_t *list)
{
    SL_NVML_ENTER(nvmlDeviceGetRunningProcessDetailList, real, p, (device, list));
    struct list_call call = LIST_CALL(ask_details, list, nvmlProcessDetail_v1_t);
    if (!list || list->version != NVML_PROCESS_DETAIL_LIST_V1)
        return real(device, list);
    return list_members(p, &call, list->procArray, &list->numProcArrayEntries);
}

/* ---- utilisation by process: without a sample of the tenant "not found", as the library does ---- */

static nvmlReturn_t ask_samples(const struct list_call *call, void *entries, unsigned int *count)
{
    return ((__typeof__(&nvmlDeviceGetProcessUtilization))(uintptr_t)call->real)(
        call->device, entries, count, *(const unsigned long long *)call->extra);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count,
                                             unsigned long long lastSeenTimeStamp)
{
    SL_NVML_ENTER(nvmlDeviceGetProcessUtilization, real, p,
                  (device, samples, count, lastSeenTimeStamp));
    struct list_call call =
        LIST_CALL(ask_samples, &lastSeenTimeStamp, nvmlProcessUtilizationSample_t);
    if (!count)
        return real(device, samples, count, lastSeenTimeStamp);
    nvmlReturn_t rc = list_members(p, &call, samples, count);
    return rc == NVML_SUCCESS && *count == 0 ? NVML_ERROR_NOT_FOUND : rc;
}

static nvmlReturn_t ask_infos(const struct list_call *call, void *entries, unsigned int *count)
{
    nvmlProcessesUtilizationInfo_v1_t info =
        *(const nvmlProcessesUtilizationInfo_v1_t *)call->extra;
    info.procUtilArray = entries;
    info.processSamplesCount = *count;
    nvmlReturn_t rc = ((__typeof__(&nvmlDeviceGetProcessesUtilizationInfo))(uintptr_t)call->real)(
        call->device, &info);
    *count = info.processSamplesCount;
    return rc;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_v1_t *info)
{
    SL_NVML_ENTER(nvmlDeviceGetProcessesUtilizationInfo, real, p, (device, info));
    struct list_call call = LIST_CALL(ask_infos, info, nvmlProcessUtilizationInfo_v1_t);
    if (!info || info->version != NVML_PROCESSES_UTILIZATION_INFO_V1)
        return real(device, info);
    nvmlReturn_t rc = list_members(p, &call, info->procUtilArray, &info->processSamplesCount);
    return rc == NVML_SUCCESS && info->processSamplesCount == 0 ? NVML_ERROR_NOT_FOUND : rc;
}
