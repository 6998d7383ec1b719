/* SPDX-License-Identifier: Apache-2.0 */
/* MIG: the mode, GPU instances, compute instances, and the MIG devices they make. */
#include "sim/nvml_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

static const struct sl_sim_device *desc(uint32_t index)
{
    return &nv_spec()->devices[index];
}

/* A card that can do MIG. */
static nvmlReturn_t mig_card(nvmlDevice_t device, uint32_t *index, const struct sl_sim_profile **p)
{
    TRY(nv_card(device, index));
    *p = nv_profile(desc(*index));
    return (*p)->mig ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* The row of a profile id on such a card. */
static nvmlReturn_t mig_row(nvmlDevice_t device, unsigned int id, uint32_t *index,
                            const struct sl_sim_profile **p, size_t *row)
{
    TRY(mig_card(device, index, p));
    int r = sl_sim_mig_row_by_id(*p, id);
    if (r < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *row = (size_t)r;
    return NVML_SUCCESS;
}

static nvmlReturn_t result_of(int code)
{
    switch (code) {
    case -ENOSPC:
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case -EBUSY:
        return NVML_ERROR_IN_USE;
    default:
        return code < 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
    }
}

/* ---- mode ---- */

NV_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                            unsigned int *pending)
{
    ENTER(nvmlDeviceGetMigMode);
    uint32_t i;
    const struct sl_sim_profile *p;
    REQUIRE(current && pending);
    TRY(mig_card(device, &i, &p));
    *current = *pending = nv_mig(i).enabled ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

/* Takes effect at once: a simulated card needs no reset. */
NV_EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                            nvmlReturn_t *activation)
{
    ENTER(nvmlDeviceSetMigMode);
    uint32_t i;
    const struct sl_sim_profile *p;
    REQUIRE(activation && mode <= NVML_DEVICE_MIG_ENABLE);
    TRY(mig_card(device, &i, &p));
    *activation = NVML_SUCCESS;
    if (nv_mig(i).enabled == mode)
        return NVML_SUCCESS;
    if (nv_in_use(i)) {
        *activation = NVML_ERROR_IN_USE;
        return NVML_ERROR_IN_USE;
    }
    struct sl_sim_mig_state *s = nv_mig_lock(i);
    bool empty = true;
    for (size_t k = 0; k < SL_SIM_MIG_MAX_GI; k++)
        empty &= !s->gi[k].used;
    if (empty)
        s->enabled = mode;
    nv_mig_unlock(i);
    if (!empty)
        *activation = NVML_ERROR_IN_USE;
    return empty ? NVML_SUCCESS : NVML_ERROR_IN_USE;
}

/* ---- GPU instances ---- */

static void fill_gi_profile(const struct sl_sim_profile *p, size_t row,
                            nvmlGpuInstanceProfileInfo_t *out)
{
    const struct sl_sim_mig_profile *m = &p->mig[row];
    *out = (nvmlGpuInstanceProfileInfo_t){
        .id = m->id,
        .isP2pSupported = 0,
        .sliceCount = m->gpu_slices,
        .instanceCount = m->max_instances,
        .multiprocessorCount = m->sm_count,
        .copyEngineCount = m->copy_engines,
        .decoderCount = m->decoders,
        .encoderCount = 0,
        .jpegCount = m->jpegs,
        .ofaCount = m->ofas,
        .memorySizeMB = m->memory_mib,
    };
}

static nvmlReturn_t gi_profile(nvmlDevice_t device, unsigned int profile,
                               const struct sl_sim_profile **p, size_t *row)
{
    uint32_t i;
    REQUIRE(profile < NVML_GPU_INSTANCE_PROFILE_COUNT);
    TRY(mig_card(device, &i, p));
    int r = sl_sim_mig_row_by_nvml(*p, profile);
    if (r < 0)
        return NVML_ERROR_NOT_SUPPORTED; /* a profile of other cards */
    *row = (size_t)r;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device,
                                                           unsigned int profile,
                                                           nvmlGpuInstanceProfileInfo_t *info)
{
    ENTER(nvmlDeviceGetGpuInstanceProfileInfo);
    const struct sl_sim_profile *p;
    size_t row;
    REQUIRE(info);
    TRY(gi_profile(device, profile, &p, &row));
    fill_gi_profile(p, row, info);
    return NVML_SUCCESS;
}

/* The version word says which of three layouts the caller means. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device,
                                                            unsigned int profile,
                                                            nvmlGpuInstanceProfileInfo_v2_t *info)
{
    ENTER(nvmlDeviceGetGpuInstanceProfileInfoV);
    const struct sl_sim_profile *p;
    size_t row;
    nvmlGpuInstanceProfileInfo_t v1;
    REQUIRE(info);
    unsigned int version = info->version;
    if (version != NVML_GPU_INSTANCE_PROFILE_INFO_V2 &&
        version != NVML_GPU_INSTANCE_PROFILE_INFO_V3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(gi_profile(device, profile, &p, &row));
    fill_gi_profile(p, row, &v1);
    char name[40], full[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    sl_sim_mig_name(p, row, name, sizeof(name));
    (void)snprintf(full, sizeof(full), "MIG %s", name);
    if (version == NVML_GPU_INSTANCE_PROFILE_INFO_V2) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){version,
                                                  v1.id,
                                                  v1.isP2pSupported,
                                                  v1.sliceCount,
                                                  v1.instanceCount,
                                                  v1.multiprocessorCount,
                                                  v1.copyEngineCount,
                                                  v1.decoderCount,
                                                  v1.encoderCount,
                                                  v1.jpegCount,
                                                  v1.ofaCount,
                                                  v1.memorySizeMB,
                                                  {0}};
        memcpy(info->name, full, sizeof(full));
    } else {
        nvmlGpuInstanceProfileInfo_v3_t v3 = {version,
                                              v1.id,
                                              v1.sliceCount,
                                              v1.instanceCount,
                                              v1.multiprocessorCount,
                                              v1.copyEngineCount,
                                              v1.decoderCount,
                                              v1.encoderCount,
                                              v1.jpegCount,
                                              v1.ofaCount,
                                              v1.memorySizeMB,
                                              {0},
                                              0};
        memcpy(v3.name, full, sizeof(full));
        memcpy(info, &v3, sizeof(v3));
    }
    return NVML_SUCCESS;
}

/* All placements of the profile, taken or not; needs no MIG mode. */
static nvmlReturn_t placements(nvmlDevice_t device, unsigned int id,
                               nvmlGpuInstancePlacement_t *out, unsigned int *count)
{
    uint32_t i;
    const struct sl_sim_profile *p;
    size_t row;
    unsigned int n = 0;
    REQUIRE(count);
    TRY(mig_row(device, id, &i, &p, &row));
    for (unsigned int start = 0; start < SL_SIM_MIG_SLICES; start++) {
        if (!(p->mig[row].starts >> start & 1))
            continue;
        if (out)
            out[n] = (nvmlGpuInstancePlacement_t){start, p->mig[row].size};
        n++;
    }
    *count = n;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device,
                                                                  unsigned int profile_id,
                                                                  nvmlGpuInstancePlacement_t *out,
                                                                  unsigned int *count)
{
    ENTER(nvmlDeviceGetGpuInstancePossiblePlacements);
    return placements(device, profile_id, out, count);
}

NV_EXPORT nvmlReturn_t
nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profile_id,
                                              nvmlGpuInstancePlacement_t *out, unsigned int *count)
{
    ENTER(nvmlDeviceGetGpuInstancePossiblePlacements_v2);
    return placements(device, profile_id, out, count);
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device,
                                                                 unsigned int profile_id,
                                                                 unsigned int *count)
{
    ENTER(nvmlDeviceGetGpuInstanceRemainingCapacity);
    uint32_t i;
    const struct sl_sim_profile *p;
    size_t row;
    REQUIRE(count);
    TRY(mig_row(device, profile_id, &i, &p, &row));
    struct sl_sim_mig_state s = nv_mig(i);
    if (!s.enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = sl_sim_mig_room(p, &s, row);
    return NVML_SUCCESS;
}

static nvmlReturn_t create_gi(nvmlDevice_t device, unsigned int id,
                              const nvmlGpuInstancePlacement_t *at, nvmlGpuInstance_t *out)
{
    uint32_t i;
    const struct sl_sim_profile *p;
    size_t row;
    REQUIRE(out);
    TRY(mig_row(device, id, &i, &p, &row));
    REQUIRE(!at || (at->size == p->mig[row].size && at->start < SL_SIM_MIG_SLICES));
    struct sl_sim_mig_state *s = nv_mig_lock(i);
    int slot = s->enabled ? sl_sim_mig_create_gi(p, s, row, at ? (int)at->start : -1) : -EPERM;
    nv_mig_unlock(i);
    if (slot == -EPERM)
        return NVML_ERROR_NOT_SUPPORTED;
    TRY(result_of(slot));
    *out = nv_gi_handle(i, (uint32_t)slot);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id,
                                                   nvmlGpuInstance_t *instance)
{
    ENTER(nvmlDeviceCreateGpuInstance);
    return create_gi(device, profile_id, NULL, instance);
}

NV_EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
    nvmlDevice_t device, unsigned int profile_id, const nvmlGpuInstancePlacement_t *placement,
    nvmlGpuInstance_t *instance)
{
    ENTER(nvmlDeviceCreateGpuInstanceWithPlacement);
    REQUIRE(placement);
    return create_gi(device, profile_id, placement, instance);
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    ENTER(nvmlGpuInstanceDestroy);
    uint32_t i, g;
    TRY(nv_gi(instance, &i, &g));
    struct sl_sim_mig_state *s = nv_mig_lock(i);
    int r = sl_sim_mig_destroy_gi(s, g);
    nv_mig_unlock(i);
    return result_of(r);
}

/* The array has room for the profile's instanceCount: the ABI has no way to say otherwise. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
                                                 nvmlGpuInstance_t *instances, unsigned int *count)
{
    ENTER(nvmlDeviceGetGpuInstances);
    uint32_t i;
    const struct sl_sim_profile *p;
    size_t row;
    unsigned int n = 0;
    REQUIRE(instances && count);
    TRY(mig_row(device, profile_id, &i, &p, &row));
    struct sl_sim_mig_state s = nv_mig(i);
    if (!s.enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    for (uint32_t g = 0; g < SL_SIM_MIG_MAX_GI; g++)
        if (s.gi[g].used && s.gi[g].profile == row)
            instances[n++] = nv_gi_handle(i, g);
    *count = n;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                                    nvmlGpuInstance_t *instance)
{
    ENTER(nvmlDeviceGetGpuInstanceById);
    uint32_t i;
    const struct sl_sim_profile *p;
    REQUIRE(instance);
    TRY(mig_card(device, &i, &p));
    struct sl_sim_mig_state s = nv_mig(i);
    if (!s.enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    for (uint32_t g = 0; g < SL_SIM_MIG_MAX_GI; g++)
        if (s.gi[g].used && s.gi[g].id == id) {
            *instance = nv_gi_handle(i, g);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance,
                                              nvmlGpuInstanceInfo_t *info)
{
    ENTER(nvmlGpuInstanceGetInfo);
    uint32_t i, g;
    REQUIRE(info);
    TRY(nv_gi(instance, &i, &g));
    struct sl_sim_mig_state s = nv_mig(i);
    *info = (nvmlGpuInstanceInfo_t){
        .device = nv_card_handle(i),
        .id = s.gi[g].id,
        .profileId = nv_profile(desc(i))->mig[s.gi[g].profile].id,
        .placement = {s.gi[g].start, s.gi[g].size},
    };
    return NVML_SUCCESS;
}

/* ---- MIG devices ---- */

NV_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    ENTER(nvmlDeviceIsMigDeviceHandle);
    struct nv_target t;
    REQUIRE(is_mig);
    TRY(nv_target(device, &t));
    *is_mig = t.is_mig;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    ENTER(nvmlDeviceGetGpuInstanceId);
    struct nv_target t;
    REQUIRE(id);
    TRY(nv_target(device, &t));
    if (!t.is_mig)
        return NVML_ERROR_NOT_SUPPORTED;
    *id = nv_mig(t.index).gi[t.gi].id;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    ENTER(nvmlDeviceGetComputeInstanceId);
    struct nv_target t;
    REQUIRE(id);
    TRY(nv_target(device, &t));
    if (!t.is_mig)
        return NVML_ERROR_NOT_SUPPORTED;
    *id = nv_mig(t.index).gi[t.gi].ci[t.ci].id;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    ENTER(nvmlDeviceGetMaxMigDeviceCount);
    uint32_t i;
    REQUIRE(count);
    TRY(nv_card(device, &i));
    *count = nv_profile(desc(i))->mig ? 7 : 0;
    return NVML_SUCCESS;
}

/* The index counts existing MIG devices; past the last one there is nothing. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                           nvmlDevice_t *mig_device)
{
    ENTER(nvmlDeviceGetMigDeviceHandleByIndex);
    uint32_t i;
    const struct sl_sim_profile *p;
    REQUIRE(mig_device);
    TRY(mig_card(device, &i, &p));
    REQUIRE(index < 7);
    struct sl_sim_mig_state s = nv_mig(i);
    if (!s.enabled)
        return NVML_ERROR_NOT_FOUND;
    for (uint32_t g = 0; g < SL_SIM_MIG_MAX_GI; g++)
        for (uint32_t c = 0; s.gi[g].used && c < SL_SIM_MIG_MAX_CI; c++)
            if (s.gi[g].ci[c].used && nv_sees_mig(i, s.gi[g].id, s.gi[g].ci[c].id) &&
                index-- == 0) {
                *mig_device = nv_mig_handle(i, g, c);
                return NVML_SUCCESS;
            }
    return NVML_ERROR_NOT_FOUND;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device,
                                                                    nvmlDevice_t *device)
{
    ENTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    struct nv_target t;
    REQUIRE(device);
    TRY(nv_target(mig_device, &t));
    REQUIRE(t.is_mig);
    *device = nv_card_handle(t.index);
    return NVML_SUCCESS;
}

static nvmlReturn_t attributes_of(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    struct nv_target t;
    TRY(nv_target(device, &t));
    if (!t.is_mig)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct sl_sim_profile *p = nv_profile(desc(t.index));
    struct sl_sim_mig_state s = nv_mig(t.index);
    const struct sl_sim_mig_gi *g = &s.gi[t.gi];
    const struct sl_sim_mig_profile *m = &p->mig[g->profile];
    *out = (nvmlDeviceAttributes_t){
        .multiprocessorCount = sl_sim_mig_ci_sms(p, g->profile, g->ci[t.ci].slices),
        .sharedCopyEngineCount = m->copy_engines,
        .sharedDecoderCount = m->decoders,
        .sharedJpegCount = m->jpegs,
        .sharedOfaCount = m->ofas,
        .gpuInstanceSliceCount = m->gpu_slices,
        .computeInstanceSliceCount = g->ci[t.ci].slices,
        .memorySizeMB = m->memory_mib,
    };
    return NVML_SUCCESS;
}

/* The first version's struct ends before memorySizeMB. */
NV_EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    ENTER(nvmlDeviceGetAttributes);
    nvmlDeviceAttributes_t full;
    REQUIRE(out);
    TRY(attributes_of(device, &full));
    memcpy(out, &full, offsetof(nvmlDeviceAttributes_t, memorySizeMB));
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    ENTER(nvmlDeviceGetAttributes_v2);
    REQUIRE(out);
    return attributes_of(device, out);
}
