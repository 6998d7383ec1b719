/* SPDX-License-Identifier: Apache-2.0 */
/* NVML's answers in lists: processes and events. */
#include "gpu/errors.h"
#include "gpu/nvml_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

/* A list may grow between the question for its size and the reading; after so many attempts report an error. */
#define LIST_TRIES 8
#define LIST_MAX   65536u

enum process_kind { KIND_COMPUTE, KIND_MPS, KIND_GRAPHICS, KIND_COUNT };

/* One of the running-process calls, in the newest form that this driver has: _v2 and _v3 differ in name only. A library
 * newer than its driver exports _v3 and answers that there is no such function. */
static nvmlReturn_t read_kind(const struct nvml_gpu *g, enum process_kind kind, nvmlDevice_t dev,
                              unsigned int *count, nvmlProcessInfo_t *infos)
{
    const struct nvml_api *api = &g->api;
    const __typeof__(api->nvmlDeviceGetComputeRunningProcesses_v3) calls[KIND_COUNT][2] = {
        [KIND_COMPUTE] = {api->nvmlDeviceGetComputeRunningProcesses_v3,
                          api->nvmlDeviceGetComputeRunningProcesses_v2},
        [KIND_MPS] = {api->nvmlDeviceGetMPSComputeRunningProcesses_v3,
                      api->nvmlDeviceGetMPSComputeRunningProcesses_v2},
        [KIND_GRAPHICS] = {api->nvmlDeviceGetGraphicsRunningProcesses_v3,
                           api->nvmlDeviceGetGraphicsRunningProcesses_v2},
    };
    unsigned int room = *count;
    nvmlReturn_t result = NVML_ERROR_FUNCTION_NOT_FOUND;
    for (size_t i = 0; i < 2 && result == NVML_ERROR_FUNCTION_NOT_FOUND; i++) {
        *count = room;
        if (calls[kind][i])
            result = calls[kind][i](dev, count, infos);
    }
    return result;
}

static void merge(struct sl_gpu_process *list, size_t *count, const nvmlProcessInfo_t *p)
{
    bool known = p->usedGpuMemory != NVML_VALUE_NOT_AVAILABLE;
    for (size_t i = 0; i < *count; i++) {
        struct sl_gpu_process *q = &list[i];
        if (q->pid != p->pid || q->gpu_instance != p->gpuInstanceId ||
            q->compute_instance != p->computeInstanceId)
            continue;
        /* The same context seen through two lists, not two contexts. */
        if (known && (!q->used_known || p->usedGpuMemory > q->used_bytes)) {
            q->used_known = true;
            q->used_bytes = p->usedGpuMemory;
        }
        return;
    }
    list[(*count)++] = (struct sl_gpu_process){
        .pid = p->pid,
        .used_known = known,
        .used_bytes = known ? p->usedGpuMemory : 0,
        .gpu_instance = p->gpuInstanceId,
        .compute_instance = p->computeInstanceId,
    };
}

static int by_pid(const void *a, const void *b)
{
    const struct sl_gpu_process *p = a, *q = b;
    if (p->pid != q->pid)
        return p->pid < q->pid ? -1 : 1;
    return p->gpu_instance < q->gpu_instance ? -1 : p->gpu_instance > q->gpu_instance;
}

/* Reads the whole list of one kind into a new buffer; the caller frees it. */
static int read_whole(const struct nvml_gpu *g, enum process_kind kind, nvmlDevice_t dev,
                      nvmlProcessInfo_t **ret, unsigned int *ret_count, struct sl_err *err)
{
    unsigned int room = 32;
    for (int i = 0; i < LIST_TRIES; i++) {
        SL_CLEANUP(free) nvmlProcessInfo_t *buf = sl_xcalloc(room, sizeof(*buf));
        unsigned int n = room;
        nvmlReturn_t result = read_kind(g, kind, dev, &n, buf);
        if (result == NVML_SUCCESS) {
            *ret_count = n < room ? n : room;
            *ret = sl_take_ptr(buf);
            return 0;
        }
        if (result != NVML_ERROR_INSUFFICIENT_SIZE)
            return sl_nvml_check(g, result, "listing GPU processes", err);
        room = (n > room ? n : room) + room / 2;
        if (room > LIST_MAX)
            break;
    }
    return sl_err_set(err, -EAGAIN, SL_E_PROCESSES_GROW);
}

int sl_nvml_processes(struct sl_gpu *gpu, size_t i, struct sl_gpu_process **ret, size_t *ret_count,
                      struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    SL_CLEANUP(free) struct sl_gpu_process *list = NULL;
    size_t count = 0;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r < 0)
        return r;
    for (enum process_kind kind = 0; kind < KIND_COUNT; kind++) {
        SL_CLEANUP(free) nvmlProcessInfo_t *infos = NULL;
        unsigned int n = 0;
        r = read_whole(g, kind, dev, &infos, &n, err);
        if ((r == -EOPNOTSUPP || r == -ENOSYS) && kind != KIND_COMPUTE)
            continue;
        if (r < 0)
            return r;
        if (n == 0)
            continue;
        list = sl_xreallocarray(list, count + n, sizeof(*list));
        for (unsigned int k = 0; k < n; k++)
            merge(list, &count, &infos[k]);
    }
    if (count)
        qsort(list, count, sizeof(*list), by_pid);
    *ret = sl_take_ptr(list);
    *ret_count = count;
    return 0;
}

/* ---- events ---- */

static int subscribe(struct nvml_gpu *g, struct sl_err *err)
{
    nvmlEventSet_t set = NULL;
    unsigned int count = 0;
    int r = NVML_CALL(g, err, nvmlDeviceGetCount_v2, &count);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlEventSetCreate, &set);
    if (r < 0)
        return r;
    unsigned int subscribed = 0;
    for (unsigned int i = 0; i < count; i++) {
        nvmlDevice_t dev = NULL;
        /* One card without events (or lost) must not prevent the events of the others. */
        if (sl_nvml_handle(g, i, &dev, err) == 0 &&
            NVML_CALL(g, err, nvmlDeviceRegisterEvents, dev, nvmlEventTypeXidCriticalError, set) ==
                0)
            subscribed++;
    }
    if (subscribed == 0) {
        (void)NVML_CALL(g, NULL, nvmlEventSetFree, set);
        return sl_err_set(err, -EOPNOTSUPP, SL_E_NO_XIDS);
    }
    g->events = set;
    return 0;
}

int sl_nvml_wait_event(struct sl_gpu *gpu, int timeout_ms, struct sl_gpu_event *ret,
                       struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlEventData_t data = {0};
    unsigned int index = 0;
    if (!g->events) {
        int r = subscribe(g, err);
        if (r < 0)
            return r;
    }
    int r = NVML_CALL(g, err, nvmlEventSetWait_v2, g->events, &data,
                      timeout_ms < 0 ? 0xffffffffu : (unsigned int)timeout_ms);
    if (r < 0)
        return r;
    bool known = NVML_CALL(g, NULL, nvmlDeviceGetIndex, data.device, &index) == 0;
    *ret = (struct sl_gpu_event){
        .device = known ? index : 0,
        .device_known = known,
        .xid = data.eventData,
        .gpu_instance = data.gpuInstanceId,
        .compute_instance = data.computeInstanceId,
    };
    return 0;
}
