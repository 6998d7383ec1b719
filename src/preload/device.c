/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/gate.h"
#include "preload/device.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "preload/capture.h"
#include "preload/charge.h"
#include "preload/lock.h"
#include "preload/pool.h"
#include "preload/share.h"
#include "preload/track.h"

#define MAX_DEVICES 64

/* 0: not known yet; else index in the lease + 2 (so SL_NOT_LEASED is 1). */
static _Atomic int device_gpu[MAX_DEVICES];

/* The UUID without "GPU-" or "MIG-". */
static const char *bare(const char *uuid)
{
    return strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0 ? uuid + 4 : uuid;
}

int sl_device_gpu_by_uuid(const struct sl_process *p, const char *uuid)
{
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    int gpu = SL_NOT_LEASED;
    for (uint32_t i = 0; i < lease->gpu_count && i < SL_MAX_GPUS; i++)
        if (strcasecmp(bare(lease->gpu[i].uuid), bare(uuid)) == 0)
            gpu = (int)i;
    return gpu;
}

static void format_uuid(const CUuuid *uuid, char text[40])
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            text[at++] = '-';
        at += (size_t)snprintf(text + at, 40 - at, "%02x", (unsigned char)uuid->bytes[i]);
    }
}

int sl_device_gpu(struct sl_process *p, CUdevice device)
{
    if (device < 0 || device >= MAX_DEVICES)
        return SL_NOT_LEASED;
    int known = atomic_load_explicit(&device_gpu[device], memory_order_relaxed);
    if (known != 0)
        return known - 2;

    /* The second version names the MIG instance, the first version its card. */
    __typeof__(&cuDeviceGetUuid_v2) ask = SL_REAL(cuDeviceGetUuid_v2);
    if (!ask)
        ask = SL_REAL(cuDeviceGetUuid);
    CUuuid uuid;
    if (!ask || ask(&uuid, device) != CUDA_SUCCESS)
        return SL_NOT_LEASED;
    char text[40];
    format_uuid(&uuid, text);
    int gpu = sl_device_gpu_by_uuid(p, text);
    atomic_store_explicit(&device_gpu[device], gpu + 2, memory_order_relaxed);
    return gpu;
}

/* Increases whenever a context ends, or a forked child forgets all contexts. */
static _Atomic uint64_t context_epoch = 1;

static void site_from(const struct sl_track *t, struct sl_site *ret)
{
    *ret = (struct sl_site){.context = (CUcontext)(uintptr_t)t->key,
                            .device = (CUdevice)t->units,
                            .context_id = t->owner,
                            .gpu = t->gpu};
}

void sl_context_enter(struct sl_process *p, CUcontext context, CUdevice device)
{
    struct sl_track t = {.kind = SL_KIND_CONTEXT,
                         .key = (uint64_t)(uintptr_t)context,
                         .units = (uint64_t)(unsigned int)device,
                         .owner = sl_track_new_id(),
                         .gpu = sl_device_gpu(p, device)};
    if (sl_track_room())
        sl_track_put(&t);
}

static CUresult site_of_context(struct sl_process *p, CUcontext context, struct sl_site *ret)
{
    struct sl_track t;
    if (sl_track_get(SL_KIND_CONTEXT, (uint64_t)(uintptr_t)context, &t)) {
        site_from(&t, ret);
        return CUDA_SUCCESS;
    }
    /* Its creation was not seen (for example a green context); it is current now, so ask the driver. */
    __typeof__(&cuCtxGetDevice) get_device = SL_REAL(cuCtxGetDevice);
    CUdevice device;
    CUresult rc = get_device ? get_device(&device) : CUDA_ERROR_NOT_SUPPORTED;
    if (rc != CUDA_SUCCESS)
        return rc;
    sl_context_enter(p, context, device);
    if (!sl_track_get(SL_KIND_CONTEXT, (uint64_t)(uintptr_t)context, &t))
        t = (struct sl_track){.key = (uint64_t)(uintptr_t)context,
                              .units = (uint64_t)(unsigned int)device,
                              .gpu = sl_device_gpu(p, device)};
    site_from(&t, ret);
    return CUDA_SUCCESS;
}

CUresult sl_site_current(struct sl_process *p, struct sl_site *ret)
{
    /* A thread stays with its context: the last answer is valid until any context ends. */
    static _Thread_local struct {
        struct sl_site site;
        uint64_t epoch;
    } last;
    __typeof__(&cuCtxGetCurrent) get_current = SL_REAL(cuCtxGetCurrent);
    CUcontext context = NULL;
    CUresult rc = get_current ? get_current(&context) : CUDA_ERROR_NOT_SUPPORTED;
    uint64_t epoch = atomic_load_explicit(&context_epoch, memory_order_acquire);
    if (rc == CUDA_SUCCESS && context && last.site.context == context && last.epoch == epoch) {
        *ret = last.site;
        return CUDA_SUCCESS;
    }
    *ret = (struct sl_site){.context = context, .gpu = SL_NOT_LEASED};
    if (rc != CUDA_SUCCESS || !context)
        return rc;
    rc = site_of_context(p, context, ret);
    if (rc == CUDA_SUCCESS) {
        last.site = *ret;
        last.epoch = epoch;
    }
    return rc;
}

CUresult sl_site_stream(struct sl_process *p, CUstream stream, struct sl_site *ret)
{
    __typeof__(&cuStreamGetCtx) get_context = SL_REAL(cuStreamGetCtx);
    CUcontext context = NULL;
    struct sl_track t;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || !get_context ||
        get_context(stream, &context) != CUDA_SUCCESS || !context ||
        !sl_track_get(SL_KIND_CONTEXT, (uint64_t)(uintptr_t)context, &t))
        return sl_site_current(p, ret);
    site_from(&t, ret);
    return CUDA_SUCCESS;
}

bool sl_context_known(CUcontext context)
{
    struct sl_track t;
    return sl_track_get(SL_KIND_CONTEXT, (uint64_t)(uintptr_t)context, &t);
}

bool sl_context_leave(CUcontext context, struct sl_site *ret)
{
    struct sl_track t;
    if (!sl_track_take(SL_KIND_CONTEXT, (uint64_t)(uintptr_t)context, &t))
        return false;
    site_from(&t, ret);
    atomic_fetch_add(&context_epoch, 1);
    sl_gate_context_gone(context);
    return true;
}

void sl_context_back(const struct sl_site *place)
{
    struct sl_track t = {.kind = SL_KIND_CONTEXT,
                         .key = (uint64_t)(uintptr_t)place->context,
                         .units = (uint64_t)(unsigned int)place->device,
                         .owner = place->context_id,
                         .gpu = place->gpu};
    if (sl_track_room())
        sl_track_put(&t);
}

static bool dies_with_context(const struct sl_track *t, const void *arg)
{
    const struct sl_site *place = arg;
    return t->owner == place->context_id &&
           (t->kind == SL_KIND_LINEAR || t->kind == SL_KIND_ARRAY || t->kind == SL_KIND_MIPMAP ||
            t->kind == SL_KIND_EXTERNAL || t->kind == SL_KIND_IPC);
}

void sl_context_ended(struct sl_process *p, const struct sl_site *place)
{
    struct sl_track t;
    while (sl_track_take_if(dies_with_context, place, &t))
        sl_share_end_of(p, &t);
    sl_capture_context_ended(place->context_id);
    sl_pool_settle_all(p, place->gpu);
    if (place->gpu >= 0)
        (void)sl_process_measure(p, (uint32_t)place->gpu, false, 0);
}

void sl_device_forget(void)
{
    atomic_fetch_add(&context_epoch, 1);
    for (int i = 0; i < MAX_DEVICES; i++)
        atomic_store(&device_gpu[i], 0);
}
