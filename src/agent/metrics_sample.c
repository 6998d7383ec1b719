/* SPDX-License-Identifier: Apache-2.0 */
/* The cards' numbers for metrics, read where NVML may block. */
#include "agent/metrics_serve.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double known(uint32_t value, double scale)
{
    return value == SL_GPU_UNKNOWN ? (double)NAN : (double)value * scale;
}

int sl_gpu_numbers_read(struct sl_gpu *gpu, struct sl_gpu_numbers **ret, size_t *ret_count,
                        struct sl_err *err)
{
    size_t count = 0, n = 0;
    int rc = sl_gpu_count(gpu, &count, err);
    if (rc < 0)
        return rc;
    struct sl_gpu_numbers *list = calloc(count + 1, sizeof(*list));
    if (!list)
        return sl_err_set(err, -ENOMEM, "out of memory for metrics");
    for (size_t i = 0; i < count; i++) {
        struct sl_gpu_info info;
        struct sl_gpu_memory memory;
        struct sl_gpu_sample sample;
        struct sl_gpu_numbers *x = &list[n];
        if (sl_gpu_info(gpu, i, &info, NULL) < 0)
            continue; /* it has fallen off the bus: health tells */
        (void)snprintf(x->uuid, sizeof(x->uuid), "%s", info.uuid);
        x->memory_total_bytes = (double)info.memory_total_bytes;
        x->memory_used_bytes = x->utilisation_ratio = x->power_watts = x->temperature_celsius =
            (double)NAN;
        if (sl_gpu_memory(gpu, i, &memory, NULL) == 0) {
            x->memory_total_bytes = (double)memory.total_bytes;
            x->memory_used_bytes = (double)memory.used_bytes;
        }
        if (sl_gpu_sample(gpu, i, &sample, NULL) == 0) {
            x->utilisation_ratio = known(sample.gpu_percent, 0.01);
            x->power_watts = known(sample.power_mw, 0.001);
            x->temperature_celsius = known(sample.temperature_c, 1);
        }
        n++;
    }
    *ret = list;
    *ret_count = n;
    return 0;
}
