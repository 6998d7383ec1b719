/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's memory figures as the tenant sees them: the lease, as if the card had no more. */
#include <stddef.h>

#include "preload/charge.h"
#include "preload/device.h"
#include "preload/pool.h"
#include "preload/share.h"

/* free and total of the current context as the tenant sees them; unchanged where only the card limits. */
static void limit_view(struct sl_process *p, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct sl_site site;
    if (sl_site_current(p, &site) != CUDA_SUCCESS)
        site.gpu = SL_NOT_LEASED; /* better no figures than those of the card */
    sl_pool_settle_all(p, site.gpu);
    (void)sl_share_sweep(p);
    struct sl_budget b = sl_charge_budget(p, site.gpu);
    if (!b.limited)
        return;
    uint64_t left = b.limit_bytes > b.used_bytes ? b.limit_bytes - b.used_bytes : 0;
    *total_bytes = b.limit_bytes;
    if (left < *free_bytes)
        *free_bytes = left;
}

static uint64_t total_view(struct sl_process *p, CUdevice dev, uint64_t card_bytes)
{
    struct sl_budget b = sl_charge_budget(p, sl_device_gpu(p, dev));
    return b.limited ? b.limit_bytes : card_bytes;
}

static unsigned int clamp32(uint64_t bytes)
{
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)bytes;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    SL_ENTER(cuMemGetInfo_v2, real, p, (free, total));
    CUresult rc = real(free, total);
    if (rc != CUDA_SUCCESS)
        return rc;
    uint64_t free_bytes = free ? *free : UINT64_MAX, total_bytes = total ? *total : 0;
    limit_view(p, &free_bytes, &total_bytes);
    if (free)
        *free = free_bytes;
    if (total)
        *total = total_bytes;
    return rc;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total)
{
    SL_ENTER(cuMemGetInfo, real, p, (free, total));
    CUresult rc = real(free, total);
    if (rc != CUDA_SUCCESS)
        return rc;
    uint64_t free_bytes = free ? *free : UINT64_MAX, total_bytes = total ? *total : 0;
    limit_view(p, &free_bytes, &total_bytes);
    if (free)
        *free = clamp32(free_bytes);
    if (total)
        *total = clamp32(total_bytes);
    return rc;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    SL_ENTER(cuDeviceTotalMem_v2, real, p, (bytes, dev));
    CUresult rc = real(bytes, dev);
    if (rc == CUDA_SUCCESS && bytes)
        *bytes = total_view(p, dev, *bytes);
    return rc;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
    SL_ENTER(cuDeviceTotalMem, real, p, (bytes, dev));
    CUresult rc = real(bytes, dev);
    if (rc == CUDA_SUCCESS && bytes)
        *bytes = clamp32(total_view(p, dev, *bytes));
    return rc;
}
