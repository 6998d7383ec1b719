/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/pool.h"

#include <stdlib.h>

#include "preload/attach.h"
#include "preload/charge.h"
#include "preload/graph_mem.h"
#include "preload/share.h"
#include "shm/account.h"

/* A pool grows by 32 MiB at least, for a larger request by its size in blocks of 2 MiB; the memory of graphs grows by
 * blocks. A smaller reservation would let the driver take too much. */
#define BLOCK_UNITS ((2ULL << 20) / SL_UNIT_BYTES)
#define STEP_UNITS  ((32ULL << 20) / SL_UNIT_BYTES)

/* Newest first. Pools are few and stay in the list, so it is walked without a lock. */
static struct sl_pool *_Atomic pools;
static struct sl_lock list_lock;
static _Atomic bool shrink_expected;

struct sl_pool *sl_pool_by_handle(CUmemoryPool handle)
{
    for (struct sl_pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (!pool->graphs && pool->handle == handle && !atomic_load(&pool->dead))
            return pool;
    return NULL;
}

static struct sl_pool *find_graphs(CUdevice device)
{
    for (struct sl_pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (pool->graphs && pool->device == device)
            return pool;
    return NULL;
}

struct sl_pool *sl_pool_add(const struct sl_pool *model)
{
    struct sl_pool *pool = malloc(sizeof(*pool));
    if (!pool)
        return NULL;
    *pool = *model;
    pool->id = sl_track_new_id();
    pool->step_units = pool->graphs ? BLOCK_UNITS : STEP_UNITS;
    sl_lock_take(&list_lock);
    struct sl_pool *known =
        pool->graphs ? find_graphs(pool->device) : sl_pool_by_handle(pool->handle);
    if (!known) {
        pool->next = atomic_load(&pools);
        atomic_store(&pools, pool);
    }
    sl_lock_drop(&list_lock);
    if (known)
        free(pool);
    return known ? known : pool;
}

static struct sl_pool *find_id(uint64_t id)
{
    struct sl_pool *pool = atomic_load(&pools);
    while (pool && pool->id != id)
        pool = pool->next;
    return pool;
}

struct sl_pool *sl_pool_of_graphs(CUdevice device, int gpu)
{
    struct sl_pool *pool = find_graphs(device);
    struct sl_pool model = {.graphs = true, .device = device, .gpu = gpu};
    return pool ? pool : sl_pool_add(&model);
}

/* ---- the driver's figures ---- */

static bool query(const struct sl_pool *pool, CUmemPool_attribute of_pool,
                  CUgraphMem_attribute of_graphs, uint64_t *ret_bytes)
{
    __typeof__(&cuMemPoolGetAttribute) get = SL_REAL(cuMemPoolGetAttribute);
    __typeof__(&cuDeviceGetGraphMemAttribute) get_graphs = SL_REAL(cuDeviceGetGraphMemAttribute);
    cuuint64_t bytes = 0;
    CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
    if (pool->graphs && get_graphs)
        rc = get_graphs(pool->device, of_graphs, &bytes);
    else if (!pool->graphs && get)
        rc = get(pool->handle, of_pool, &bytes);
    *ret_bytes = bytes;
    return rc == CUDA_SUCCESS;
}

static bool query_reserved(const struct sl_pool *pool, uint64_t *ret_bytes)
{
    return query(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                 ret_bytes);
}

static bool query_used(const struct sl_pool *pool, uint64_t *ret_bytes)
{
    return query(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
                 ret_bytes);
}

static bool has_slack(const struct sl_pool *pool, uint64_t bytes)
{
    uint64_t reserved, used;
    return query_reserved(pool, &reserved) && query_used(pool, &used) && reserved >= used &&
           reserved - used >= bytes;
}

static void trim(const struct sl_pool *pool)
{
    __typeof__(&cuMemPoolTrimTo) trim_pool = SL_REAL(cuMemPoolTrimTo);
    __typeof__(&cuDeviceGraphMemTrim) trim_graphs = SL_REAL(cuDeviceGraphMemTrim);
    if (pool->graphs && trim_graphs)
        (void)trim_graphs(pool->device);
    else if (!pool->graphs && trim_pool)
        (void)trim_pool(pool->handle, 0);
}

/* ---- settling ---- */

/* With the pool's lock held: sets the charge to the pool's size, from `pending` first. */
static bool adjust(struct sl_process *p, struct sl_pool *pool, uint64_t held, uint64_t *pending)
{
    bool within = true;
    uint64_t want = held > pool->shared_units ? held - pool->shared_units : 0;
    if (want < pool->charged_units) {
        sl_charge_return(p, pool->gpu, pool->charged_units - want);
    } else {
        uint64_t more = want - pool->charged_units;
        uint64_t from_pending = more < *pending ? more : *pending;
        *pending -= from_pending;
        more -= from_pending;
        if (more > 0) {
            within = sl_charge(p, pool->gpu, more, false);
            if (!within)
                (void)sl_charge(p, pool->gpu, more, true);
            /* This driver grows pools in larger steps than we know: reserve as much the next time. */
            if (want - pool->charged_units > pool->step_units)
                pool->step_units = want - pool->charged_units;
        }
    }
    pool->charged_units = want;
    pool->settled++;
    return within;
}

bool sl_pool_settle(struct sl_process *p, struct sl_pool *pool, uint64_t pending)
{
    bool within = true;
    if (pool->free_of_charge)
        return true;
    /* The query is a driver call, so it is made without the lock; if another thread settled meanwhile, its figure may
     * be newer than ours, and we ask again. */
    for (int tries = 0; tries < 100; tries++) {
        uint64_t bytes;
        sl_lock_take(&pool->lock);
        uint64_t seen = pool->settled;
        sl_lock_drop(&pool->lock);
        if (atomic_load(&pool->dead))
            break;
        if (!query_reserved(pool, &bytes)) {
            /* Unknown: the driver may have taken the reservation. The next settlement will tell. */
            sl_lock_take(&pool->lock);
            pool->charged_units += pending;
            pool->settled++;
            sl_lock_drop(&pool->lock);
            sl_pool_expect_shrink();
            return true;
        }
        sl_lock_take(&pool->lock);
        bool current = pool->settled == seen && !atomic_load(&pool->dead);
        if (current)
            within = adjust(p, pool, sl_units_of_bytes(bytes), &pending);
        sl_lock_drop(&pool->lock);
        if (current)
            break;
    }
    sl_charge_return(p, pool->gpu, pending);
    sl_charge_peak(p, pool->gpu);
    return within;
}

void sl_pool_settle_all(struct sl_process *p, int gpu)
{
    for (struct sl_pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (pool->gpu == gpu && !atomic_load(&pool->dead))
            (void)sl_pool_settle(p, pool, 0);
}

void sl_pool_reclaim(struct sl_process *p, int gpu)
{
    (void)sl_process_catch_up();
    (void)sl_share_sweep(p);
    for (struct sl_pool *pool = atomic_load(&pools); pool; pool = pool->next) {
        if (pool->gpu != gpu || atomic_load(&pool->dead) || pool->free_of_charge)
            continue;
        trim(pool);
        (void)sl_pool_settle(p, pool, 0);
    }
}

struct last_charge {
    uint64_t units;
    bool reclaimed;
};

static bool reclaim_once_and_charge(struct sl_process *p, int gpu, void *arg)
{
    struct last_charge *c = arg;
    if (!c->reclaimed)
        sl_pool_reclaim(p, gpu);
    c->reclaimed = true;
    return sl_charge(p, gpu, c->units, false);
}

/* The last attempts before a refusal. */
static bool reclaim_and_charge(struct sl_process *p, int gpu, uint64_t units)
{
    struct last_charge c = {.units = units};
    return sl_process_attempt(p, gpu, reclaim_once_and_charge, &c);
}

bool sl_pool_charge(struct sl_process *p, int gpu, uint64_t units)
{
    return sl_charge(p, gpu, units, false) || reclaim_and_charge(p, gpu, units);
}

bool sl_pool_cover(struct sl_process *p, struct sl_pool *pool, uint64_t bytes,
                   uint64_t *ret_pending)
{
    *ret_pending = 0;
    if (pool->free_of_charge)
        return true;
    uint64_t need = sl_units_of_bytes(bytes);
    need += (BLOCK_UNITS - need % BLOCK_UNITS) % BLOCK_UNITS;
    if (need < pool->step_units)
        need = pool->step_units;
    bool covered = sl_charge(p, pool->gpu, need, false);
    if (!covered) {
        sl_pool_settle_all(p, pool->gpu);
        covered = sl_charge(p, pool->gpu, need, false);
    }
    if (!covered && has_slack(pool, bytes))
        return true;
    covered = covered || reclaim_and_charge(p, pool->gpu, need);
    if (covered)
        *ret_pending = need;
    return covered;
}

void sl_pool_share(struct sl_process *p, struct sl_track *piece, uint64_t id)
{
    struct sl_pool *pool = find_id(piece->owner);
    if (!pool || pool->free_of_charge || piece->entry != SL_NOT_SHARED)
        return;
    struct sl_cost cost = {pool->gpu, piece->units, SL_NOT_SHARED};
    sl_lock_take(&pool->lock);
    if (pool->charged_units >= piece->units && sl_share_begin(p, &cost, id, false)) {
        piece->entry = cost.entry;
        pool->charged_units -= piece->units;
        pool->shared_units += piece->units;
    }
    sl_lock_drop(&pool->lock);
}

/* True: the pool pays for the piece again. False: another process holds it, and its entry goes on paying. */
static bool unshare(struct sl_process *p, struct sl_pool *pool, const struct sl_track *piece)
{
    struct sl_cost cost = {pool->gpu, piece->units, piece->entry};
    sl_lock_take(&pool->lock);
    bool back = sl_share_take_back(p, &cost);
    pool->shared_units -= piece->units < pool->shared_units ? piece->units : pool->shared_units;
    if (back)
        pool->charged_units += piece->units;
    sl_lock_drop(&pool->lock);
    return back;
}

void sl_pool_freed(struct sl_process *p, const struct sl_track *entry)
{
    struct sl_pool *pool = find_id(entry->owner);
    if (!pool || pool->free_of_charge)
        return;
    bool pays = entry->entry == SL_NOT_SHARED || unshare(p, pool, entry);
    if (!atomic_load(&pool->dead)) {
        sl_pool_expect_shrink();
        (void)sl_pool_settle(p, pool, 0);
        return;
    }
    if (!pays)
        return;
    /* The pool was destroyed while this was allocated: the allocation has its own charge since then. */
    sl_lock_take(&pool->lock);
    uint64_t units = entry->units < pool->charged_units ? entry->units : pool->charged_units;
    pool->charged_units -= units;
    sl_lock_drop(&pool->lock);
    sl_charge_return(p, pool->gpu, units);
}

static bool is_from_pool(const struct sl_track *t, const void *arg)
{
    return t->kind == SL_KIND_ASYNC && t->owner == ((const struct sl_pool *)arg)->id &&
           t->entry == SL_NOT_SHARED;
}

void sl_pool_died(struct sl_process *p, struct sl_pool *pool)
{
    atomic_store(&pool->dead, true);
    uint64_t left = sl_track_sum_if(is_from_pool, pool), back = 0;
    sl_lock_take(&pool->lock);
    if (pool->charged_units > left) {
        back = pool->charged_units - left;
        pool->charged_units = left;
    }
    sl_lock_drop(&pool->lock);
    sl_charge_return(p, pool->gpu, back);
}

/* ---- synchronisation ---- */

void sl_pool_expect_shrink(void)
{
    atomic_store_explicit(&shrink_expected, true, memory_order_relaxed);
}

CUresult sl_pool_synchronised(CUresult rc)
{
    if (__builtin_expect(!atomic_load_explicit(&shrink_expected, memory_order_relaxed), 1))
        return rc;
    struct sl_process *p = sl_process_get();
    bool more = false;
    if (p->mode != SL_MODE_TENANT)
        return rc;
    atomic_store(&shrink_expected, false);
    for (struct sl_pool *pool = atomic_load(&pools); pool; pool = pool->next) {
        if (atomic_load(&pool->dead) || pool->free_of_charge)
            continue;
        (void)sl_pool_settle(p, pool, 0);
        more = more || has_slack(pool, 1);
    }
    if (more)
        sl_pool_expect_shrink();
    return rc;
}

bool sl_stream_is_capturing(CUstream stream, bool per_thread)
{
    __typeof__(&cuStreamIsCapturing) ask =
        per_thread ? SL_REAL(cuStreamIsCapturing_ptsz) : SL_REAL(cuStreamIsCapturing);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!ask)
        return false;
    if (ask(stream, &status) != CUDA_SUCCESS) {
        sl_graph_mem_seen(); /* perhaps it captures: examine graphs from now on */
        return false;
    }
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void sl_pool_forget(void)
{
    sl_lock_reset(&list_lock);
    atomic_store(&pools, NULL);
    atomic_store(&shrink_expected, false);
}
