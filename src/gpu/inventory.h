/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cards of this machine, as one value: read from NVML once, then passed around, compared and freed. Other code does
 * not ask the driver again.
 */
#ifndef SLUICE_GPU_INVENTORY_H
#define SLUICE_GPU_INVENTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gpu/gpu.h"

/* One MIG device (a compute instance in a GPU instance). */
struct sl_inv_mig {
    struct sl_gpu_mig_info info;
};

struct sl_inv_gpu {
    struct sl_gpu_info info;
    /* NVML's index at the last read, as CUDA and the container toolkit use it. Not the place in the inventory: a card
     * that never answered has no place there. */
    size_t index;
    bool lost;          /* fell off the bus: info has the last known data, if any */
    char clique[96];    /* "<cluster uuid>.<clique id>", empty where there is no fabric */
    uint32_t pci_class; /* 0x0302 compute, 0x0300 graphics, 0: not known */
    struct sl_inv_mig *mig;
    size_t mig_count;
};

struct sl_inventory {
    char driver_version[80];
    int cuda_version; /* 13000 is 13.0 */
    struct sl_inv_gpu *gpu;
    size_t gpu_count;
    uint8_t *nvlinks; /* gpu_count × gpu_count: active NVLinks, as sl_gpu_nvlinks() has them */
};

/* Reads everything. A card that does not answer is `lost`, not an error. */
int sl_inventory_read(struct sl_gpu *gpu, struct sl_inventory **ret,
                      struct sl_err *err) SL_MUST_CHECK;

void sl_inventory_free(struct sl_inventory *inv); /* NULL is fine */
/* The place of the card with this UUID; SIZE_MAX: no such card. inv may be NULL. */
size_t sl_inventory_find(const struct sl_inventory *inv, const char *uuid);
/* Are the same cards in the machine, in the same state? Figures that vary (memory used) do not count. */
bool sl_inventory_equal(const struct sl_inventory *a, const struct sl_inventory *b);

#endif
