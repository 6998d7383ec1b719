/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: primary ones, created ones, and each thread's stack of current ones. */
#include "sim/cuda_int.h"

#include <stdlib.h>
#include <string.h>

#define STACK_MAX 64

static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local int depth;

bool sim_ctx_ok(CUcontext ctx)
{
    return ctx && ctx->magic == SIM_CTX_MAGIC && !ctx->dead;
}

CUcontext sim_current(void)
{
    return depth > 0 && sim_ctx_ok(stack[depth - 1]) ? stack[depth - 1] : NULL;
}

CUresult sim_ctx_health(CUcontext ctx)
{
    if (ctx->sticky == CUDA_SUCCESS && sim_p.st->cards[ctx->card].lost)
        ctx->sticky = CUDA_ERROR_UNKNOWN;
    return ctx->sticky;
}

CUresult sim_need_ctx(CUcontext *ret)
{
    if (depth == 0 || !stack[depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack[depth - 1]->dead)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret = stack[depth - 1];
    return sim_ctx_health(*ret);
}

static CUresult push(CUcontext ctx)
{
    if (depth >= STACK_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

static CUresult queue_for(CUcontext ctx)
{
    struct sl_sim_state *st = sim_p.st;
    uint64_t overhead = sim_context_bytes(ctx->card);
    struct sl_sim_lane lane = sim_lane(ctx->card);
    sl_sim_lock(st);
    sl_sim_reap(st, true);
    CUresult r = sim_may_use(ctx->card);
    sl_sim_unlock(st);
    if (r == CUDA_SUCCESS)
        r = sim_charge(ctx->card, overhead);
    if (r != CUDA_SUCCESS)
        return r;
    sl_sim_lock(st);
    sl_sim_advance(st, sl_sim_now_ns());
    int q = sl_sim_queue_create_in(st, sim_p.slot, ctx->card, &lane);
    if (q >= 0) {
        ctx->queue = (uint32_t)q;
        ctx->queue_generation = st->queues[q].generation;
        st->procs[sim_p.slot].card[ctx->card].contexts++;
    }
    sl_sim_unlock(st);
    if (q < 0) {
        sim_uncharge(ctx->card, overhead);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static void queue_gone(CUcontext ctx)
{
    struct sl_sim_state *st = sim_p.st;
    sl_sim_lock(st);
    sl_sim_advance(st, sl_sim_now_ns());
    if (st->queues[ctx->queue].generation == ctx->queue_generation)
        sl_sim_queue_destroy(st, ctx->queue);
    if (st->procs[sim_p.slot].card[ctx->card].contexts)
        st->procs[sim_p.slot].card[ctx->card].contexts--;
    sl_sim_unlock(st);
    sim_uncharge(ctx->card, sim_context_bytes(ctx->card));
}

static CUresult create(CUdevice dev, unsigned int flags, CUcontext *ret)
{
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    CUcontext ctx = calloc(1, sizeof(*ctx));
    if (ctx)
        ctx->ops = calloc(SL_SIM_RING, sizeof(*ctx->ops));
    if (!ctx || !ctx->ops) {
        free(ctx);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->card = card;
    ctx->ordinal = dev;
    ctx->flags = flags;
    r = queue_for(ctx);
    if (r == CUDA_SUCCESS && !sim_groups_make(ctx)) {
        queue_gone(ctx);
        r = CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (r != CUDA_SUCCESS) {
        free(ctx->ops);
        free(ctx);
        return r;
    }
    ctx->magic = SIM_CTX_MAGIC;
    ctx->refs = 1;
    ctx->id = sim_next_id();
    ctx->legacy = (struct CUstream_st){
        .magic = SIM_STR_MAGIC, .op_flags = SL_SIM_OPF_LEGACY, .ctx = ctx, .id = sim_next_id()};
    ctx->next_slot = 1;
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7340032;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    ctx->next = sim_p.contexts;
    sim_p.contexts = ctx;
    *ret = ctx;
    return CUDA_SUCCESS;
}

/* Off the list of the living, which every call goes through. It keeps its `next`: a loop that waits may stand at it. */
static void bury(CUcontext ctx)
{
    CUcontext *at = &sim_p.contexts;
    while (*at && *at != ctx)
        at = &(*at)->next;
    if (*at)
        *at = ctx->next;
    ctx->next_dead = sim_p.dead_contexts;
    sim_p.dead_contexts = ctx;
}

/* The context, its events, its queue and its memory go; the small handle stays, so that a stale one is told. */
static void destroy(CUcontext ctx)
{
    ctx->dead = true;
    bury(ctx);
    for (CUstream s = ctx->streams; s; s = s->next)
        sim_capture_stream_gone(s);
    sim_events_of_ctx_gone(ctx);
    sim_ctx_free_memory(ctx);
    sim_groups_drop(ctx);
    queue_gone(ctx);
    bool more = false;
    for (CUcontext c = sim_p.contexts; c; c = c->next)
        more |= !c->dead && c->card == ctx->card;
    if (!more)
        sim_pools_of_ctx_gone(ctx->card);
    if (ctx->primary)
        sim_p.primary[ctx->ordinal] = NULL;
}

/* ---- primary contexts ---- */

static CUresult primary_retain(CUcontext *pctx, CUdevice dev)
{
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    CUcontext ctx = sim_p.primary[dev];
    if (ctx) {
        ctx->refs++;
    } else {
        r = create(dev, sim_p.primary_flags[dev], &ctx);
        if (r != CUDA_SUCCESS)
            return r;
        ctx->primary = true;
        sim_p.primary[dev] = ctx;
    }
    *pctx = ctx;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    ENTER();
    return pctx ? LOCKED(primary_retain(pctx, dev)) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult primary_drop(CUdevice dev, bool all)
{
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    CUcontext ctx = sim_p.primary[dev];
    if (!ctx)
        return all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (all || --ctx->refs == 0)
        destroy(ctx);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    ENTER();
    return LOCKED(primary_drop(dev, false));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    ENTER();
    return LOCKED(primary_drop(dev, true));
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    ENTER();
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    sim_lock();
    sim_p.primary_flags[dev] = flags;
    if (sim_p.primary[dev])
        sim_p.primary[dev]->flags = flags;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    ENTER();
    uint32_t card;
    CUresult r = sim_ordinal(dev, &card);
    if (r != CUDA_SUCCESS)
        return r;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    *flags = sim_p.primary_flags[dev];
    *active = sim_p.primary[dev] != NULL;
    sim_unlock();
    return CUDA_SUCCESS;
}

/* ---- created contexts ---- */

static CUresult ctx_create(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    if (!pctx || (flags & ~(unsigned int)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = LOCKED(create(dev, flags, pctx));
    return r == CUDA_SUCCESS ? push(*pctx) : r;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    ENTER();
    return ctx_create(pctx, flags, dev);
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    ENTER();
    return ctx_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *params, int numParams,
                        unsigned int flags, CUdevice dev)
{
    ENTER();
    if (numParams > 0)
        return params ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE; /* needs MPS */
    return ctx_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned int flags,
                        CUdevice dev)
{
    ENTER();
    if (params && (params->numExecAffinityParams > 0 || params->cigParams))
        return CUDA_ERROR_NOT_SUPPORTED;
    return ctx_create(pctx, flags, dev);
}

static CUresult ctx_destroy(CUcontext ctx)
{
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_ctx_ok(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    destroy(ctx);
    if (depth > 0 && stack[depth - 1] == ctx)
        depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    ENTER();
    return LOCKED(ctx_destroy(ctx));
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    ENTER();
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!pctx || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    ctx->refs++;
    sim_unlock();
    *pctx = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
    ENTER();
    if (!sim_ctx_ok(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_lock();
    CUresult r = --ctx->refs == 0 ? ctx_destroy(ctx) : CUDA_SUCCESS;
    sim_unlock();
    return r;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    ENTER();
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_ctx_ok(ctx) ? push(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    ENTER();
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (pctx)
        *pctx = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    return cuCtxPopCurrent_v2(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    ENTER();
    if (!ctx) {
        if (depth > 0)
            depth--;
        return CUDA_SUCCESS;
    }
    if (!sim_ctx_ok(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == 0)
        return push(ctx);
    stack[depth - 1] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    ENTER();
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = depth > 0 ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
    ENTER();
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    *dev = ctx->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    ENTER();
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
    ENTER();
    if (!ctx)
        ctx = sim_current();
    if (!sim_ctx_ok(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = ctx->id;
    return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_unsafe();
    return r == CUDA_SUCCESS ? sim_wait_ctx(ctx) : r;
}

CUresult cuCtxSynchronize(void)
{
    ENTER();
    return LOCKED(synchronize());
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    ENTER();
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if ((unsigned int)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    ctx->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    ENTER();
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if ((unsigned int)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    *value = ctx->limits[limit];
    return CUDA_SUCCESS;
}

/* Hints that change nothing here. */
static CUresult hint(void)
{
    CUcontext ctx;
    return sim_need_ctx(&ctx);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    ENTER();
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return hint();
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    ENTER();
    (void)config;
    return hint();
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    ENTER();
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    return hint();
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    ENTER();
    (void)config;
    return hint();
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    ENTER();
    return hint();
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    ENTER();
    if (!ctx)
        ctx = sim_current();
    if (!sim_ctx_ok(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER();
    CUresult r = hint();
    if (r != CUDA_SUCCESS)
        return r;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

static CUresult peer(CUcontext other, bool enable)
{
    CUcontext ctx;
    CUresult r = sim_need_ctx(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!sim_ctx_ok(other) || other == ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    const struct sl_sim_state *st = sim_p.st;
    if (other->card == ctx->card ||
        st->cards[other->card].desc.profile != st->cards[ctx->card].desc.profile)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    uint64_t bit = 1ULL << other->card;
    if (enable && (ctx->peers & bit))
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (!enable && !(ctx->peers & bit))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    ctx->peers ^= bit;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned int flags)
{
    ENTER();
    return flags ? CUDA_ERROR_INVALID_VALUE : LOCKED(peer(other, true));
}

CUresult cuCtxDisablePeerAccess(CUcontext other)
{
    ENTER();
    return LOCKED(peer(other, false));
}
