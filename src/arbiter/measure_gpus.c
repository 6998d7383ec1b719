/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs and MIG instances the arbiter serves. */
#include "arbiter/measure_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "arbiter/errors.h"
#include "base/log.h"

static void add_gpu(struct arbiter *a, const struct gpu *g)
{
    if (a->gpu_count < SL_ARB_MAX_GPUS)
        a->gpu[a->gpu_count++] = *g;
    else
        sl_warn(SL_E_GPU_LEFT_OUT_LOG, g->uuid, SL_ARB_MAX_GPUS);
}

int sl_measure_gpus(struct arbiter *a, struct sl_err *err)
{
    size_t count = 0;
    int rc = sl_gpu_count(a->measure->gpu, &count, err);
    if (rc < 0)
        return rc;
    if (count > SL_MAX_GPUS) {
        sl_warn(SL_E_CARDS_LEFT_OUT_LOG, SL_MAX_GPUS, count - 1, SL_MAX_GPUS);
        count = SL_MAX_GPUS;
    }
    a->measure->cards = (uint32_t)count;
    if (sl_gpu_driver_version(a->measure->gpu, a->driver, sizeof(a->driver), NULL) < 0)
        a->driver[0] = '\0';
    memset(a->measure->nobodys_bytes, 0xff, sizeof(a->measure->nobodys_bytes)); /* not known */
    for (size_t i = 0; i < count; i++) {
        struct sl_gpu_info info;
        if (sl_gpu_info(a->measure->gpu, i, &info, err) < 0) {
            sl_warn(SL_E_GPU_UNREADABLE_LOG, i, err->msg);
            continue;
        }
        struct gpu g = {
            .index = (uint32_t)i, .instance = UINT32_MAX, .total_bytes = info.memory_total_bytes};
        (void)snprintf(g.uuid, sizeof(g.uuid), "%.63s", info.uuid);
        (void)snprintf(g.name, sizeof(g.name), "%.63s", info.name);
        if (!info.mig_enabled)
            add_gpu(a, &g);
        for (uint32_t slot = 0; slot < info.mig_slots; slot++) {
            struct sl_gpu_mig_info mig;
            if (sl_gpu_mig_info(a->measure->gpu, i, slot, &mig, NULL) < 0)
                continue;
            g.instance = mig.gpu_instance;
            g.total_bytes = mig.memory_total_bytes;
            (void)snprintf(g.uuid, sizeof(g.uuid), "%.63s", mig.uuid);
            (void)snprintf(g.name, sizeof(g.name), "%.40s %.20s", info.name, mig.profile);
            add_gpu(a, &g);
        }
    }
    if (a->gpu_count == 0)
        return sl_err_set(err, -ENODEV, SL_E_NO_GPU);
    return 0;
}
