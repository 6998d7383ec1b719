/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools, charged by their actual size (reserved), not by the requested sizes: a pool keeps freed memory, grows
 * in steps of its own, and shrinks at synchronisation. The memory of graphs is one more pool per device.
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
    CUmemoryPool handle; /* unused for graphs */
    CUdevice device;
    int gpu;
    bool graphs;
    bool free_of_charge; /* imported, or on the host: not this process's device memory */
    _Atomic bool dead;
    struct sl_lock lock;    /* for the four fields below */
    uint64_t charged_units; /* in the ledger for this pool */
    uint64_t shared_units;  /* in the pool, but paid for by entries: see share.h */
    uint64_t settled;       /* counts settlements */
    uint64_t step_units;    /* the smallest step by which the driver grows it */
};

/* Adds a copy of model to the list; NULL without host memory. */
struct sl_pool *sl_pool_add(const struct sl_pool *model);
struct sl_pool *sl_pool_by_handle(CUmemoryPool handle);
void sl_pool_died(struct sl_process *p, struct sl_pool *pool);

/* A stream, an event or a context was synchronised, with this result, which is returned. One load where no pool is in
 * use. */
CUresult sl_pool_synchronised(CUresult rc);

/* The pool of all graphs on a device; NULL only without host memory. */
struct sl_pool *sl_pool_of_graphs(CUdevice device, int gpu);

/* Reserves units for `bytes` more in the pool; trims idle pools if that helps. False: the limit does not allow it. Pass
 * the reservation to sl_pool_settle after the driver call. */
bool sl_pool_cover(struct sl_process *p, struct sl_pool *pool, uint64_t bytes,
                   uint64_t *ret_pending);

/* Sets the charge to the pool's actual size, using up or returning `pending`. False when the driver took more than
 * could be reserved: it is charged all the same, and the caller should undo the call. */
bool sl_pool_settle(struct sl_process *p, struct sl_pool *pool, uint64_t pending);
void sl_pool_settle_all(struct sl_process *p, int gpu);

/* Tries everything that may help a tenant at its limit: reads the limit of a new arbiter, settles, gives the idle
 * memory of all pools on the GPU back to the card, and frees entries that only a closed descriptor kept. */
void sl_pool_reclaim(struct sl_process *p, int gpu);
/* sl_charge, and a second attempt after a reclaim. */
bool sl_pool_charge(struct sl_process *p, int gpu, uint64_t units);

/* A piece of a pool goes to another process: an entry of that id pays for it from now on. */
void sl_pool_share(struct sl_process *p, struct sl_track *piece, uint64_t id);

/* An address from a pool was freed. */
void sl_pool_freed(struct sl_process *p, const struct sl_track *entry);

/* A pool may shrink at the next synchronisation. */
void sl_pool_expect_shrink(void);

/* Does this stream capture its work instead of running it? `per_thread`: the meaning of stream 0. */
bool sl_stream_is_capturing(CUstream stream, bool per_thread);

void sl_pool_forget(void); /* in a forked child */

#endif
