/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of every plain allocation: reserve, call the driver, keep or roll back. */
#ifndef SLUICE_PRELOAD_ALLOC_H
#define SLUICE_PRELOAD_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "preload/device.h"
#include "preload/track.h"

/* An allocation under way: units in the ledger and room in the table are taken. */
struct sl_alloc {
    struct sl_site site;
    uint64_t units;
    bool counted; /* false: there is no context, and the driver will say so */
};

/* On anything but CUDA_SUCCESS nothing is held, and the driver is not to be called. */
CUresult sl_alloc_begin(struct sl_process *p, uint64_t units, struct sl_alloc *ret);

/* After the driver answered rc; `key` is looked at only when it succeeded. Returns rc. */
CUresult sl_alloc_end(struct sl_process *p, const struct sl_alloc *a, CUresult rc,
                      enum sl_kind kind, uint64_t key);

/* Releasing: out of the table before the driver frees, as its next allocation may be the same. */
bool sl_alloc_release_begin(enum sl_kind kind, uint64_t key, struct sl_track *ret);
CUresult sl_alloc_release_end(struct sl_process *p, const struct sl_track *entry, CUresult rc);

#endif
