/* SPDX-License-Identifier: Apache-2.0 */
/* A vGPU as the guest's driver sees it. */
#include "gpu/nvml_internal.h"

#include <errno.h>
#include <stdio.h>

/* The feature that the vGPU's type needs; else the first that is licensed; else the first. NULL: none. */
static const nvmlGridLicensableFeature_t *choose(const nvmlGridLicensableFeatures_t *f)
{
    const nvmlGridLicensableFeature_t *best = NULL;
    for (unsigned int i = 0; i < f->licensableFeaturesCount; i++) {
        const nvmlGridLicensableFeature_t *x = &f->gridLicensableFeatures[i];
        if (i == NVML_GRID_LICENSE_FEATURE_MAX_COUNT)
            break;
        if (x->featureEnabled)
            return x;
        if (!best || (x->featureState && !best->featureState))
            best = x;
    }
    return best;
}

static void read_licence(const nvmlGridLicensableFeatures_t *f, struct sl_gpu_vgpu *ret)
{
    const nvmlGridLicensableFeature_t *x = choose(f);
    if (!f->isGridLicenseSupported || !x)
        return;
    ret->licence = x->featureState ? SL_GPU_LICENCE_VALID : SL_GPU_LICENCE_NONE;
    (void)snprintf(ret->product, sizeof(ret->product), "%.*s", (int)sizeof(x->productName) - 1,
                   x->productName);
    const nvmlGridLicenseExpiry_t *e = &x->licenseExpiry;
    if (x->featureState && e->status == NVML_GRID_LICENSE_EXPIRY_VALID)
        (void)snprintf(ret->until, sizeof(ret->until), "%04u-%02u-%02u", e->year % 10000, e->month,
                       e->day);
}

int sl_nvml_vgpu(struct sl_gpu *gpu, size_t i, struct sl_gpu_vgpu *ret, struct sl_err *err)
{
    struct nvml_gpu *g = nvml_of(gpu);
    nvmlDevice_t dev = NULL;
    unsigned int mode = 0;
    int r = sl_nvml_handle(g, i, &dev, err);
    if (r < 0)
        return r;
    *ret = (struct sl_gpu_vgpu){0};
    r = NVML_CALL(g, err, nvmlDeviceGetVirtualizationMode, dev, &mode);
    if (r < 0) /* a driver that does not know the question has no vGPUs */
        return r == -ENXIO ? r : 0;
    ret->guest = mode == NVML_GPU_VIRTUALIZATION_MODE_VGPU;
    nvmlGridLicensableFeatures_t features = {0};
    if (ret->guest &&
        NVML_CALL(g, NULL, nvmlDeviceGetGridLicensableFeatures_v4, dev, &features) == 0)
        read_licence(&features, ret);
    return 0;
}
