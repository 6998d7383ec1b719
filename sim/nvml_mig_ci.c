/* SPDX-License-Identifier: Apache-2.0 */
/* MIG: compute instances. Their profile ids are the NVML enumeration values. */
#include "sim/nvml_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

static const struct sl_sim_profile *profile_of(uint32_t index)
{
    return nv_profile(&nv_spec()->devices[index]);
}

/* A compute-instance profile that this GPU instance has at all. */
static nvmlReturn_t ci_profile(nvmlGpuInstance_t instance, unsigned int profile, uint32_t *index,
                               uint32_t *gi, struct sl_sim_mig_state *s)
{
    TRY(nv_gi(instance, index, gi));
    *s = nv_mig(*index);
    uint32_t slices = sl_sim_mig_ci_slices(profile);
    uint32_t total = profile_of(*index)->mig[s->gi[*gi].profile].gpu_slices;
    return slices && slices <= total ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t fill_profile(nvmlGpuInstance_t instance, unsigned int profile,
                                 unsigned int engine, nvmlComputeInstanceProfileInfo_t *out,
                                 char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE])
{
    uint32_t i, g;
    struct sl_sim_mig_state s;
    REQUIRE(profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT &&
            engine == NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED);
    TRY(ci_profile(instance, profile, &i, &g, &s));
    const struct sl_sim_profile *p = profile_of(i);
    const struct sl_sim_mig_profile *m = &p->mig[s.gi[g].profile];
    struct sl_sim_mig_gi empty = s.gi[g];
    memset(empty.ci, 0, sizeof(empty.ci));
    uint32_t slices = sl_sim_mig_ci_slices(profile);
    *out = (nvmlComputeInstanceProfileInfo_t){
        .id = profile,
        .sliceCount = slices,
        .instanceCount = sl_sim_mig_ci_room(p, &empty, profile),
        .multiprocessorCount = sl_sim_mig_ci_sms(p, s.gi[g].profile, slices),
        .sharedCopyEngineCount = m->copy_engines,
        .sharedDecoderCount = m->decoders,
        .sharedJpegCount = m->jpegs,
        .sharedOfaCount = m->ofas,
    };
    char text[40];
    sl_sim_mig_ci_name(p, s.gi[g].profile, slices, text, sizeof(text));
    (void)snprintf(name, NVML_DEVICE_NAME_V2_BUFFER_SIZE, "MIG %s", text);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine_profile,
    nvmlComputeInstanceProfileInfo_t *info)
{
    ENTER(nvmlGpuInstanceGetComputeInstanceProfileInfo);
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    REQUIRE(info);
    return fill_profile(instance, profile, engine_profile, info, name);
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine_profile,
    nvmlComputeInstanceProfileInfo_v2_t *info)
{
    ENTER(nvmlGpuInstanceGetComputeInstanceProfileInfoV);
    nvmlComputeInstanceProfileInfo_t v1;
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    REQUIRE(info);
    unsigned int version = info->version;
    if (version != NVML_COMPUTE_INSTANCE_PROFILE_INFO_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(fill_profile(instance, profile, engine_profile, &v1, name));
    *info = (nvmlComputeInstanceProfileInfo_v2_t){version,
                                                  v1.id,
                                                  v1.sliceCount,
                                                  v1.instanceCount,
                                                  v1.multiprocessorCount,
                                                  v1.sharedCopyEngineCount,
                                                  v1.sharedDecoderCount,
                                                  v1.sharedEncoderCount,
                                                  v1.sharedJpegCount,
                                                  v1.sharedOfaCount,
                                                  {0}};
    memcpy(info->name, name, sizeof(name));
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
    nvmlGpuInstance_t instance, unsigned int profile_id, unsigned int *count)
{
    ENTER(nvmlGpuInstanceGetComputeInstanceRemainingCapacity);
    uint32_t i, g;
    struct sl_sim_mig_state s;
    REQUIRE(count);
    TRY(ci_profile(instance, profile_id, &i, &g, &s));
    *count = sl_sim_mig_ci_room(profile_of(i), &s.gi[g], profile_id);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t instance, unsigned int profile_id, nvmlComputeInstancePlacement_t *out,
    unsigned int *count)
{
    ENTER(nvmlGpuInstanceGetComputeInstancePossiblePlacements);
    uint32_t i, g;
    struct sl_sim_mig_state s;
    unsigned int n = 0;
    REQUIRE(count);
    TRY(ci_profile(instance, profile_id, &i, &g, &s));
    /* Fill the instance with this profile: where they land is where they can be. */
    memset(s.gi[g].ci, 0, sizeof(s.gi[g].ci));
    for (int at; (at = sl_sim_mig_create_ci(profile_of(i), &s, g, profile_id, -1)) >= 0; n++)
        if (out)
            out[n] = (nvmlComputeInstancePlacement_t){s.gi[g].ci[at].start, s.gi[g].ci[at].slices};
    *count = n;
    return NVML_SUCCESS;
}

static nvmlReturn_t create_ci(nvmlGpuInstance_t instance, unsigned int profile_id,
                              const nvmlComputeInstancePlacement_t *at, nvmlComputeInstance_t *out)
{
    uint32_t i, g;
    struct sl_sim_mig_state copy;
    REQUIRE(out);
    TRY(ci_profile(instance, profile_id, &i, &g, &copy));
    REQUIRE(!at || (at->size == sl_sim_mig_ci_slices(profile_id) && at->start < SL_SIM_MIG_SLICES));
    struct sl_sim_mig_state *s = nv_mig_lock(i);
    int slot = s->gi[g].used && s->gi[g].generation == copy.gi[g].generation
                   ? sl_sim_mig_create_ci(profile_of(i), s, g, profile_id, at ? (int)at->start : -1)
                   : -ENOENT;
    nv_mig_unlock(i);
    if (slot < 0)
        return slot == -ENOSPC   ? NVML_ERROR_INSUFFICIENT_RESOURCES
               : slot == -ENOENT ? NVML_ERROR_NOT_FOUND
                                 : NVML_ERROR_INVALID_ARGUMENT;
    *out = nv_ci_handle(i, g, (uint32_t)slot);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance,
                                                            unsigned int profile_id,
                                                            nvmlComputeInstance_t *compute)
{
    ENTER(nvmlGpuInstanceCreateComputeInstance);
    return create_ci(instance, profile_id, NULL, compute);
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t instance, unsigned int profile_id,
    const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *compute)
{
    ENTER(nvmlGpuInstanceCreateComputeInstanceWithPlacement);
    REQUIRE(placement);
    return create_ci(instance, profile_id, placement, compute);
}

NV_EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    ENTER(nvmlComputeInstanceDestroy);
    uint32_t i, g, c;
    TRY(nv_ci(compute, &i, &g, &c));
    struct sl_sim_mig_state s = nv_mig(i);
    if (nv_mig_in_use(i, s.gi[g].id, s.gi[g].ci[c].id))
        return NVML_ERROR_IN_USE;
    sl_sim_mig_destroy_ci(nv_mig_lock(i), g, c);
    nv_mig_unlock(i);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance,
                                                          unsigned int profile_id,
                                                          nvmlComputeInstance_t *computes,
                                                          unsigned int *count)
{
    ENTER(nvmlGpuInstanceGetComputeInstances);
    uint32_t i, g;
    struct sl_sim_mig_state s;
    unsigned int n = 0;
    REQUIRE(computes && count);
    TRY(ci_profile(instance, profile_id, &i, &g, &s));
    for (uint32_t c = 0; c < SL_SIM_MIG_MAX_CI; c++)
        if (s.gi[g].ci[c].used && s.gi[g].ci[c].profile == profile_id)
            computes[n++] = nv_ci_handle(i, g, c);
    *count = n;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance,
                                                             unsigned int id,
                                                             nvmlComputeInstance_t *compute)
{
    ENTER(nvmlGpuInstanceGetComputeInstanceById);
    uint32_t i, g;
    REQUIRE(compute);
    TRY(nv_gi(instance, &i, &g));
    struct sl_sim_mig_state s = nv_mig(i);
    for (uint32_t c = 0; c < SL_SIM_MIG_MAX_CI; c++)
        if (s.gi[g].ci[c].used && s.gi[g].ci[c].id == id) {
            *compute = nv_ci_handle(i, g, c);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t info_of(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *out)
{
    uint32_t i, g, c;
    TRY(nv_ci(compute, &i, &g, &c));
    struct sl_sim_mig_state s = nv_mig(i);
    *out = (nvmlComputeInstanceInfo_t){
        .device = nv_card_handle(i),
        .gpuInstance = nv_gi_handle(i, g),
        .id = s.gi[g].ci[c].id,
        .profileId = s.gi[g].ci[c].profile,
        .placement = {s.gi[g].ci[c].start, s.gi[g].ci[c].slices},
    };
    return NVML_SUCCESS;
}

/* The first version's struct ends before the placement. */
NV_EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t compute,
                                                  nvmlComputeInstanceInfo_t *info)
{
    ENTER(nvmlComputeInstanceGetInfo);
    nvmlComputeInstanceInfo_t full;
    REQUIRE(info);
    TRY(info_of(compute, &full));
    memcpy(info, &full, offsetof(nvmlComputeInstanceInfo_t, placement));
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute,
                                                     nvmlComputeInstanceInfo_t *info)
{
    ENTER(nvmlComputeInstanceGetInfo_v2);
    REQUIRE(info);
    return info_of(compute, info);
}
