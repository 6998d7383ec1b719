/* SPDX-License-Identifier: Apache-2.0 */
/* MIG: the existing devices, the profiles of a card, and making and destroying instances. */
#include "gpu/errors.h"
#include "gpu/nvml_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

/* GPU instances of one profile; seven is the most any card has. */
#define INSTANCES_MAX 16

/* ---- MIG devices ---- */

/* The driver names a size in eighths of the card's whole GiB, rounded half up. */
static void computed_name(const nvmlDeviceAttributes_t *a, uint64_t card_bytes, char *buf,
                          size_t size)
{
    uint64_t card_mib = card_bytes >> 20, card_gib = (card_bytes + (1ULL << 30) - 1) >> 30;
    uint64_t eighths = card_mib ? (8 * a->memorySizeMB + card_mib - 1) / card_mib : 0;
    uint64_t gb = (2 * card_gib * eighths + 8) / 16;
    if (a->computeInstanceSliceCount == a->gpuInstanceSliceCount)
        (void)snprintf(buf, size, "%ug.%llugb", a->gpuInstanceSliceCount, (unsigned long long)gb);
    else
        (void)snprintf(buf, size, "%uc.%ug.%llugb", a->computeInstanceSliceCount,
                       a->gpuInstanceSliceCount, (unsigned long long)gb);
}

/* "NVIDIA H200 MIG 1g.18gb+me", "MIG 1g.18gb": only the driver knows the text after the size. */
static bool name_after_mig(const char *text, char *buf, size_t size)
{
    const char *p = strstr(text, "MIG ");
    p = p ? p + 4 : NULL;
    if (!p || *p < '0' || *p > '9' || strlen(p) >= size)
        return false;
    (void)snprintf(buf, size, "%s", p);
    return true;
}

static void mig_placement(struct nvml_gpu *g, nvmlDevice_t dev, struct sl_gpu_mig_info *out)
{
    nvmlGpuInstance_t gi = NULL;
    nvmlGpuInstanceInfo_t info = {0};
    if (NVML_CALL(g, NULL, nvmlDeviceGetGpuInstanceById, dev, out->gpu_instance, &gi) == 0 &&
        NVML_CALL(g, NULL, nvmlGpuInstanceGetInfo, gi, &info) == 0) {
        out->placement_start = info.placement.start;
        out->placement_size = info.placement.size;
    }
}

int sl_nvml_mig_info(struct sl_gpu *gpu, size_t i, uint32_t slot, struct sl_gpu_mig_info *ret,
                     struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL, mig = NULL;
    struct sl_gpu_mig_info out = {0};
    nvmlDeviceAttributes_t attributes = {0};
    nvmlMemory_t card = {0}, memory = {0};
    char name[SL_GPU_NAME_SIZE] = "";

    int r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetMemoryInfo, dev, &card);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetMigDeviceHandleByIndex, dev, slot, &mig);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetUUID, mig, out.uuid, sizeof(out.uuid));
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetAttributes_v2, mig, &attributes);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetGpuInstanceId, mig, &out.gpu_instance);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetComputeInstanceId, mig, &out.compute_instance);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetMemoryInfo, mig, &memory);
    if (r < 0)
        return r;
    out.gpu_slices = attributes.gpuInstanceSliceCount;
    out.compute_slices = attributes.computeInstanceSliceCount;
    out.sm_count = attributes.multiprocessorCount;
    out.memory_total_bytes = memory.total;
    out.memory_used_bytes = memory.used;
    out.copy_engines = attributes.sharedCopyEngineCount;
    out.decoders = attributes.sharedDecoderCount;
    out.encoders = attributes.sharedEncoderCount;
    out.jpegs = attributes.sharedJpegCount;
    out.ofas = attributes.sharedOfaCount;
    if (NVML_CALL(g, NULL, nvmlDeviceGetName, mig, name, sizeof(name)) < 0 ||
        !name_after_mig(name, out.profile, sizeof(out.profile)))
        computed_name(&attributes, card.total, out.profile, sizeof(out.profile));
    mig_placement(g, dev, &out);
    *ret = out;
    return 0;
}

/* ---- mode ---- */

int sl_nvml_mig_mode(struct sl_gpu *gpu, size_t i, bool *ret_on, bool *ret_pending_on,
                     struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    unsigned int current = 0, pending = 0;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetMigMode, dev, &current, &pending);
    if (r < 0)
        return r;
    *ret_on = current == NVML_DEVICE_MIG_ENABLE;
    *ret_pending_on = pending == NVML_DEVICE_MIG_ENABLE;
    return 0;
}

int sl_nvml_mig_set_mode(struct sl_gpu *gpu, size_t i, bool on, bool *ret_pending,
                         struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    nvmlReturn_t activation = NVML_SUCCESS;
    bool now = false, later = false;
    unsigned int want = on ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceSetMigMode, dev, want, &activation);
    /* Accepted, but not in force yet: the card is in use, or must be reset first. */
    if (r == 0)
        r = sl_nvml_mig_mode(gpu, i, &now, &later, err);
    if (r == 0)
        *ret_pending = now != on;
    return r;
}

/* ---- profiles ---- */

/* One row; false when the card has no such profile. Newer drivers name it themselves. */
static bool read_profile(struct nvml_gpu *g, nvmlDevice_t dev, unsigned int profile,
                         uint64_t card_bytes, struct sl_gpu_mig_profile *out)
{
    nvmlGpuInstanceProfileInfo_t v1 = {0};
    nvmlGpuInstanceProfileInfo_v2_t v2 = {.version = NVML_GPU_INSTANCE_PROFILE_INFO_V2};
    if (NVML_CALL(g, NULL, nvmlDeviceGetGpuInstanceProfileInfo, dev, profile, &v1) < 0)
        return false;
    *out = (struct sl_gpu_mig_profile){
        .id = v1.id,
        .gpu_slices = v1.sliceCount,
        .max_instances = v1.instanceCount,
        .sm_count = v1.multiprocessorCount,
        .memory_bytes = (uint64_t)v1.memorySizeMB << 20,
        .copy_engines = v1.copyEngineCount,
        .decoders = v1.decoderCount,
        .encoders = v1.encoderCount,
        .jpegs = v1.jpegCount,
        .ofas = v1.ofaCount,
    };
    if (NVML_CALL(g, NULL, nvmlDeviceGetGpuInstanceProfileInfoV, dev, profile, &v2) == 0 &&
        name_after_mig(v2.name, out->name, sizeof(out->name)))
        return true;
    nvmlDeviceAttributes_t a = {.gpuInstanceSliceCount = v1.sliceCount,
                                .computeInstanceSliceCount = v1.sliceCount,
                                .memorySizeMB = v1.memorySizeMB};
    computed_name(&a, card_bytes, out->name, sizeof(out->name));
    if (profile == NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 ||
        profile == NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1)
        (void)strncat(out->name, "+me", sizeof(out->name) - strlen(out->name) - 1);
    return true;
}

static void read_placements(struct nvml_gpu *g, nvmlDevice_t dev, struct sl_gpu_mig_profile *p)
{
    nvmlGpuInstancePlacement_t *places = NULL;
    unsigned int n = 0, room;
    if (NVML_CALL(g, NULL, nvmlDeviceGetGpuInstancePossiblePlacements_v2, dev, p->id, NULL, &n) <
            0 ||
        n == 0 || n > 1024)
        return;
    room = n;
    places = sl_xcalloc(n, sizeof(*places));
    if (NVML_CALL(g, NULL, nvmlDeviceGetGpuInstancePossiblePlacements_v2, dev, p->id, places, &n) ==
        0)
        for (unsigned int k = 0; k < n && k < room && k < SL_GPU_MIG_PLACEMENTS; k++)
            p->placements[p->placement_count++] =
                (struct sl_gpu_mig_place){places[k].start, places[k].size};
    free(places);
}

int sl_nvml_mig_profiles(struct sl_gpu *gpu, size_t i, struct sl_gpu_mig_profile **ret,
                         size_t *ret_count, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    nvmlMemory_t card = {0};
    size_t n = 0;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetMemoryInfo, dev, &card);
    if (r < 0)
        return r;
    SL_CLEANUP(free)
    struct sl_gpu_mig_profile *list = sl_xcalloc(NVML_GPU_INSTANCE_PROFILE_COUNT, sizeof(*list));
    for (unsigned int p = 0; p < NVML_GPU_INSTANCE_PROFILE_COUNT; p++)
        if (read_profile(g, dev, p, card.total, &list[n]))
            read_placements(g, dev, &list[n++]);
    *ret = n ? sl_take_ptr(list) : NULL;
    *ret_count = n;
    return 0;
}

/* ---- instances ---- */

static int by_id(const void *a, const void *b)
{
    const struct sl_gpu_mig_instance *p = a, *q = b;
    return p->id < q->id ? -1 : p->id > q->id;
}

int sl_nvml_mig_instances(struct sl_gpu *gpu, size_t i, struct sl_gpu_mig_instance **ret,
                          size_t *ret_count, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    SL_CLEANUP(free) struct sl_gpu_mig_profile *profiles = NULL;
    size_t profile_count = 0, n = 0;
    bool on = false, later = false;
    *ret = NULL;
    *ret_count = 0;
    int r = sl_nvml_mig_mode(gpu, i, &on, &later, err);
    if (r < 0 || !on)
        return r == -EOPNOTSUPP || r == -ENOSYS ? 0 : r;
    r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0)
        r = sl_nvml_mig_profiles(gpu, i, &profiles, &profile_count, err);
    if (r < 0)
        return r;
    SL_CLEANUP(free)
    struct sl_gpu_mig_instance *list = sl_xcalloc(profile_count * INSTANCES_MAX + 1, sizeof(*list));
    for (size_t p = 0; p < profile_count; p++) {
        nvmlGpuInstance_t gis[INSTANCES_MAX];
        unsigned int count = 0;
        if (profiles[p].max_instances > INSTANCES_MAX)
            continue; /* the call cannot be told the size of the buffer */
        r = NVML_CALL(g, err, nvmlDeviceGetGpuInstances, dev, profiles[p].id, gis, &count);
        if (r < 0)
            return r;
        for (unsigned int k = 0; k < count && k < INSTANCES_MAX; k++) {
            nvmlGpuInstanceInfo_t info = {0};
            if (NVML_CALL(g, NULL, nvmlGpuInstanceGetInfo, gis[k], &info) == 0)
                list[n++] = (struct sl_gpu_mig_instance){
                    info.id, info.profileId, {info.placement.start, info.placement.size}};
        }
    }
    qsort(list, n, sizeof(*list), by_id);
    *ret_count = n;
    *ret = n ? sl_take_ptr(list) : NULL;
    return 0;
}

/* The size of a profile's placements; -EINVAL when it cannot start there. */
static int placement_of(struct nvml_gpu *g, nvmlDevice_t dev, uint32_t profile_id, uint32_t start,
                        nvmlGpuInstancePlacement_t *ret, struct sl_err *err)
{
    struct sl_gpu_mig_profile p = {.id = profile_id};
    read_placements(g, dev, &p);
    for (uint32_t k = 0; k < p.placement_count; k++)
        if (p.placements[k].start == start) {
            *ret = (nvmlGpuInstancePlacement_t){start, p.placements[k].size};
            return 0;
        }
    return sl_err_set(err, -EINVAL, SL_E_MIG_NO_PLACEMENT, profile_id, start);
}

/* The compute instance that takes the whole GPU instance. */
static int create_whole_ci(struct nvml_gpu *g, nvmlGpuInstance_t gi, uint32_t slices,
                           nvmlComputeInstance_t *ret, struct sl_err *err)
{
    for (unsigned int p = 0; p < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; p++) {
        nvmlComputeInstanceProfileInfo_t info = {0};
        if (NVML_CALL(g, NULL, nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, p,
                      NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &info) < 0 ||
            info.sliceCount != slices)
            continue;
        return NVML_CALL(g, err, nvmlGpuInstanceCreateComputeInstance, gi, info.id, ret);
    }
    return sl_err_set(err, -EOPNOTSUPP, SL_E_MIG_NO_COMPUTE, slices);
}

/* The MIG device on (gi, ci). */
static int find_device(struct sl_gpu *gpu, size_t i, uint32_t gi, uint32_t ci,
                       struct sl_gpu_mig_info *ret, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    unsigned int slots = 0;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetMaxMigDeviceCount, dev, &slots);
    if (r < 0)
        return r;
    for (unsigned int slot = 0; slot < slots; slot++)
        if (sl_nvml_mig_info(gpu, i, slot, ret, NULL) == 0 && ret->gpu_instance == gi &&
            ret->compute_instance == ci)
            return 0;
    return sl_err_set(err, -EIO, SL_E_MIG_NOT_LISTED);
}

static uint32_t slices_of(struct nvml_gpu *g, nvmlDevice_t dev, uint32_t profile_id)
{
    for (unsigned int p = 0; p < NVML_GPU_INSTANCE_PROFILE_COUNT; p++) {
        nvmlGpuInstanceProfileInfo_t info = {0};
        if (NVML_CALL(g, NULL, nvmlDeviceGetGpuInstanceProfileInfo, dev, p, &info) == 0 &&
            info.id == profile_id)
            return info.sliceCount;
    }
    return 0;
}

int sl_nvml_mig_create(struct sl_gpu *gpu, size_t i, uint32_t profile_id, uint32_t start,
                       struct sl_gpu_mig_info *ret, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    nvmlGpuInstance_t gi = NULL;
    nvmlComputeInstance_t ci = NULL;
    nvmlGpuInstancePlacement_t at = {0};
    nvmlGpuInstanceInfo_t gi_info = {0};
    nvmlComputeInstanceInfo_t ci_info = {0};
    struct sl_gpu_mig_info out = {0};

    int r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0 && start != SL_GPU_MIG_ANYWHERE)
        r = placement_of(g, dev, profile_id, start, &at, err);
    if (r < 0)
        return r;
    r = start == SL_GPU_MIG_ANYWHERE
            ? NVML_CALL(g, err, nvmlDeviceCreateGpuInstance, dev, profile_id, &gi)
            : NVML_CALL(g, err, nvmlDeviceCreateGpuInstanceWithPlacement, dev, profile_id, &at,
                        &gi);
    if (r < 0)
        return r;
    r = NVML_CALL(g, err, nvmlGpuInstanceGetInfo, gi, &gi_info);
    if (r == 0)
        r = create_whole_ci(g, gi, slices_of(g, dev, profile_id), &ci, err);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlComputeInstanceGetInfo_v2, ci, &ci_info);
    if (r == 0)
        r = find_device(gpu, i, gi_info.id, ci_info.id, &out, err);
    if (r < 0) { /* undo what was made; report the first error */
        if (ci)
            (void)NVML_CALL(g, NULL, nvmlComputeInstanceDestroy, ci);
        (void)NVML_CALL(g, NULL, nvmlGpuInstanceDestroy, gi);
        return r;
    }
    *ret = out;
    return 0;
}

int sl_nvml_mig_destroy(struct sl_gpu *gpu, size_t i, uint32_t gpu_instance,
                        uint32_t compute_instance, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    nvmlGpuInstance_t gi = NULL;
    nvmlComputeInstance_t ci = NULL;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r == 0)
        r = NVML_CALL(g, err, nvmlDeviceGetGpuInstanceById, dev, gpu_instance, &gi);
    if (r == 0 && compute_instance != SL_GPU_NO_INSTANCE) {
        r = NVML_CALL(g, err, nvmlGpuInstanceGetComputeInstanceById, gi, compute_instance, &ci);
        if (r == 0)
            r = NVML_CALL(g, err, nvmlComputeInstanceDestroy, ci);
        if (r == 0) {
            r = NVML_CALL(g, err, nvmlGpuInstanceDestroy, gi);
            return r == -EBUSY ? 0 : r; /* another compute instance is on it */
        }
        return r;
    }
    return r == 0 ? NVML_CALL(g, err, nvmlGpuInstanceDestroy, gi) : r;
}
