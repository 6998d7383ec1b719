/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the cards' figures for metrics, on a thread where NVML may block. */
#include "agent/metrics/metrics_serve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/xalloc.h"

static double known(uint32_t value, double scale)
{
    return value == SL_GPU_UNKNOWN ? (double)NAN : (double)value * scale;
}

struct list {
    struct sl_gpu_sampled *item;
    size_t count;
};

/* Adds an entry with these fields; all others are not known. */
static struct sl_gpu_numbers *add(struct list *list, const char *uuid, uint64_t memory_bytes)
{
    list->item = sl_xreallocarray(list->item, list->count + 1, sizeof(*list->item));
    struct sl_gpu_sampled *x = &list->item[list->count++];
    (void)snprintf(x->uuid, sizeof(x->uuid), "%s", uuid);
    x->now = SL_GPU_NUMBERS_UNKNOWN;
    x->now.memory_total_bytes = (double)memory_bytes;
    return &x->now;
}

static void read_card(struct sl_gpu *gpu, size_t i, struct list *list)
{
    struct sl_gpu_info info;
    struct sl_gpu_mig_info mig;
    struct sl_gpu_memory memory;
    struct sl_gpu_sample sample;
    if (sl_gpu_info(gpu, i, &info, NULL) < 0)
        return; /* the card has fallen off the bus: health reports it */
    struct sl_gpu_numbers *x = add(list, info.uuid, info.memory_total_bytes);
    if (sl_gpu_memory(gpu, i, &memory, NULL) == 0) {
        x->memory_total_bytes = (double)memory.total_bytes;
        x->memory_used_bytes = (double)memory.used_bytes;
    }
    if (sl_gpu_sample(gpu, i, &sample, NULL) == 0) {
        x->utilisation_ratio = known(sample.gpu_percent, 0.01);
        x->power_watts = known(sample.power_mw, 0.001);
        x->temperature_celsius = known(sample.temperature_c, 1);
    }
    for (uint32_t slot = 0; slot < info.mig_slots; slot++) {
        if (sl_gpu_mig_info(gpu, i, slot, &mig, NULL) < 0)
            continue;
        x = add(list, mig.uuid, mig.memory_total_bytes);
        x->memory_used_bytes = (double)mig.memory_used_bytes;
    }
}

int sl_gpu_numbers_read(struct sl_gpu *gpu, struct sl_gpu_sampled **ret, size_t *ret_count,
                        struct sl_err *err)
{
    size_t count = 0;
    struct list list = {0};
    int rc = sl_gpu_count(gpu, &count, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        read_card(gpu, i, &list);
    if (rc < 0)
        return rc;
    *ret = list.item;
    *ret_count = list.count;
    return 0;
}
