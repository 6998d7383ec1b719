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
    bool counted; /* false: there is no context, and the driver will return the error */
};

/* On anything but CUDA_SUCCESS nothing is held, and the driver must not be called. */
CUresult sl_alloc_begin(struct sl_process *p, uint64_t units, struct sl_alloc *ret);

/* After the driver answered rc; `key` is read only on success. Returns rc. */
CUresult sl_alloc_end(struct sl_process *p, const struct sl_alloc *a, CUresult rc,
                      enum sl_kind kind, uint64_t key);

/* Memory leaves the table before the driver frees it, as the next allocation may get the same key. This takes the entry
 * of an address: memory of cuMemAlloc, of a pool, or of another process's pool. */
bool sl_alloc_take(CUdeviceptr address, struct sl_track *ret);
/* After the driver answered rc to its release: returns the charge, or puts it back. An IPC handle and a piece of
 * another process's pool are charged until they are closed as often as they were opened. Returns rc. */
CUresult sl_alloc_released(struct sl_process *p, struct sl_track *t, CUresult rc);

void sl_vmm_forget(void); /* vmm.c, in a forked child */

#endif
