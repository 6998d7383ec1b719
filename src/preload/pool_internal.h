/* SPDX-License-Identifier: Apache-2.0 */
/* Between pool.c (accounts) and pool_hooks.c (the wrapped calls). */
#ifndef SLUICE_PRELOAD_POOL_INTERNAL_H
#define SLUICE_PRELOAD_POOL_INTERNAL_H

#include <stdatomic.h>

#include "preload/lock.h"
#include "preload/pool.h"

struct sl_pool {
    struct sl_pool *next;
    uint64_t id;
    CUmemoryPool handle; /* not of graphs */
    CUdevice device;
    int gpu;
    bool graphs;
    bool free_of_charge; /* imported, or on the host: not this process's device memory */
    _Atomic bool dead;
    struct sl_lock lock;    /* over the four below */
    uint64_t charged_units; /* in the ledger for this pool */
    uint64_t shared_units;  /* held by it too, and paid for by entries of their own: see share.h */
    uint64_t settled;       /* counts settlements */
    uint64_t step_units;    /* the least the driver grows it by */
};

/* A copy of model joins the list; NULL without host memory. */
struct sl_pool *sl_pool_add(const struct sl_pool *model);
struct sl_pool *sl_pool_by_handle(CUmemoryPool handle);
void sl_pool_died(struct sl_process *p, struct sl_pool *pool);

/* A stream, an event or a context was waited for, with this result, which is returned. One load where no pool is in
 * use. */
CUresult sl_pool_synchronised(CUresult rc);

#endif
