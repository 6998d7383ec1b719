/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools, charged by what they really hold (reserved), not by what was asked of them: a pool
 * keeps freed memory, grows in steps of its own, and shrinks at synchronisation. The memory behind
 * graphs is one more pool per device.
 */
#ifndef SLUICE_PRELOAD_POOL_H
#define SLUICE_PRELOAD_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "preload/attach.h"
#include "preload/lock.h"
#include "preload/track.h"

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

/* The pool of all graphs on a device; NULL only without host memory. */
struct sl_pool *sl_pool_of_graphs(CUdevice device, int gpu);

/* Reserves units for `bytes` more in the pool, trimming idle pools if that helps. False: the
 * tenant cannot have them. What is reserved is given to sl_pool_settle after the driver call. */
bool sl_pool_cover(struct sl_process *p, struct sl_pool *pool, uint64_t bytes,
                   uint64_t *ret_pending);

/* Makes the charge what the pool holds now, using up or returning `pending`. False when the driver
 * took more than could be reserved: charged all the same, and the caller should undo. */
bool sl_pool_settle(struct sl_process *p, struct sl_pool *pool, uint64_t pending);
void sl_pool_settle_all(struct sl_process *p, int gpu);

/* All that may help a tenant that has reached its limit: hears what a new arbiter says of the limit,
 * settles, gives the idle memory of all pools on the GPU back to the card, and what only an exported
 * descriptor kept that is closed by now. */
void sl_pool_reclaim(struct sl_process *p, int gpu);
/* sl_charge, and once more after a reclaim. */
bool sl_pool_charge(struct sl_process *p, int gpu, uint64_t units);

/* A piece of a pool leaves for another process: an entry of that id pays for it from now on. */
void sl_pool_share(struct sl_process *p, struct sl_track *piece, uint64_t id);

/* An address from a pool was freed. */
void sl_pool_freed(struct sl_process *p, const struct sl_track *entry);

/* Something may shrink at the next synchronisation. */
void sl_pool_expect_shrink(void);

/* Is work put into this stream being captured, not run? `per_thread`: what stream 0 means. */
bool sl_stream_is_capturing(CUstream stream, bool per_thread);

void sl_pool_forget(void); /* in a forked child */

#endif
