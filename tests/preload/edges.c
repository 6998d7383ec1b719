/* SPDX-License-Identifier: Apache-2.0 */
/* Drivers that answer oddly: larger than asked for, other handles for the same memory, ranges over
 * several mappings, graphs in graphs. The books follow what the driver did, not what was asked. */
#include "world.h"

#include "preload/device.h"
#include "preload/pool.h"
#include "preload/track.h"

static CUcontext context;
static CUstream stream;

static int begin(void **state)
{
    (void)state;
    world_restore();
    (void)nth_malloc_set(0);
    world_limit(GIB);
    world_process.mode = SL_MODE_TENANT;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    world_restore();
    world_limit(GIB);
    assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
    return 0;
}

/* ---- pitch: 64 KiB a row, whatever was asked ---- */

static unsigned int undone;

static CUresult wide_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                           unsigned int e)
{
    (void)width;
    (void)height;
    (void)e;
    *dptr = 0x7000000;
    *pitch = 65536;
    return CUDA_SUCCESS;
}

static CUresult wide_pitch_v1(CUdeviceptr_v1 *dptr, unsigned int *pitch, unsigned int width,
                              unsigned int height, unsigned int e)
{
    (void)width;
    (void)height;
    (void)e;
    *dptr = 0x7000000;
    *pitch = 65536;
    return CUDA_SUCCESS;
}

static CUresult narrow_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                             unsigned int e)
{
    (void)height;
    (void)e;
    *dptr = 0x7000000;
    *pitch = width;
    return CUDA_SUCCESS;
}

static CUresult undo(CUdeviceptr dptr)
{
    assert_int_equal(dptr, 0x7000000);
    undone++;
    return CUDA_SUCCESS;
}

static CUresult undo_v1(CUdeviceptr_v1 dptr)
{
    return undo(dptr);
}

static void test_pitch(void **state)
{
    (void)state;
    CUdeviceptr p;
    CUdeviceptr_v1 p1;
    size_t pitch;
    unsigned int pitch1;
    WORLD_ANSWER(cuMemAllocPitch_v2, wide_pitch);
    WORLD_ANSWER(cuMemAllocPitch, wide_pitch_v1);
    WORLD_ANSWER(cuMemFree_v2, undo);
    WORLD_ANSWER(cuMemFree, undo_v1);
    assert_int_equal(cuMemAllocPitch_v2(&p, &pitch, 512, 16, 4), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), MIB);
    assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
    assert_int_equal(cuMemAllocPitch(&p1, &pitch1, 512, 16, 4), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), MIB);
    assert_int_equal(cuMemFree(p1), CUDA_SUCCESS);
    /* What it takes does not fit: it is given back and refused. */
    world_limit(MIB / 2);
    undone = 0;
    assert_int_equal(cuMemAllocPitch_v2(&p, &pitch, 512, 16, 4), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAllocPitch(&p1, &pitch1, 512, 16, 4), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(undone, 2);
    assert_int_equal(world_used_bytes(), 0);
    world_missing(SL_SYMBOL_cuMemFree_v2);
    world_missing(SL_SYMBOL_cuMemFree);
    assert_int_equal(cuMemAllocPitch_v2(&p, &pitch, 512, 16, 4), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAllocPitch(&p1, &pitch1, 512, 16, 4), CUDA_ERROR_OUT_OF_MEMORY);
    /* Less than expected. */
    WORLD_ANSWER(cuMemAllocPitch_v2, narrow_pitch);
    WORLD_ANSWER(cuMemFree_v2, undo);
    assert_int_equal(cuMemAllocPitch_v2(&p, &pitch, 256, 16, 4), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 256 * 16);
    assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

/* ---- pools that grow in larger steps than known ---- */

static cuuint64_t pool_reserved, pool_used, pool_step;
static unsigned int pool_shrunk_by_free;

static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute what, void *value)
{
    (void)pool;
    *(cuuint64_t *)value = what == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool_reserved : pool_used;
    return CUDA_SUCCESS;
}

static CUresult pool_alloc(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream s)
{
    (void)pool;
    (void)s;
    pool_used += bytes;
    if (pool_used > pool_reserved)
        pool_reserved += pool_step;
    *dptr = 0x9000000 + pool_used;
    return CUDA_SUCCESS;
}

static CUresult pool_free(CUdeviceptr dptr, CUstream s)
{
    (void)dptr;
    (void)s;
    pool_shrunk_by_free++;
    pool_used = 0;
    return CUDA_SUCCESS;
}

static CUresult pool_trim(CUmemoryPool pool, size_t keep)
{
    (void)pool;
    pool_reserved = pool_used > keep ? pool_used : keep;
    return CUDA_SUCCESS;
}

static CUresult pool_create(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    (void)props;
    *pool = (CUmemoryPool)(uintptr_t)0x4440;
    return CUDA_SUCCESS;
}

static CUresult pool_import(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
    (void)handle;
    (void)type;
    (void)flags;
    *pool = (CUmemoryPool)(uintptr_t)0x4450;
    return CUDA_SUCCESS;
}

static CUresult pool_destroy(CUmemoryPool pool)
{
    (void)pool;
    return CUDA_SUCCESS;
}

static void make_pools(void)
{
    WORLD_ANSWER(cuMemPoolGetAttribute, pool_attribute);
    WORLD_ANSWER(cuMemAllocFromPoolAsync, pool_alloc);
    WORLD_ANSWER(cuMemFreeAsync, pool_free);
    WORLD_ANSWER(cuMemPoolTrimTo, pool_trim);
    WORLD_ANSWER(cuMemPoolCreate, pool_create);
    WORLD_ANSWER(cuMemPoolImportFromShareableHandle, pool_import);
    WORLD_ANSWER(cuMemPoolDestroy, pool_destroy);
    pool_reserved = pool_used = 0;
}

static void test_pool_of_large_steps(void **state)
{
    (void)state;
    CUmemoryPool pool;
    CUdeviceptr p;
    CUmemPoolProps props;
    memset(&props, 0, sizeof(props));
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    make_pools();
    pool_step = 256 * MIB;
    assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, pool, stream), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 256 * MIB);
    /* Beyond the limit: undone, and the pool is trimmed. */
    assert_int_equal(cuMemFreeAsync(p, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
    pool_step = 512 * MIB;
    pool_shrunk_by_free = 0;
    world_limit(300 * MIB);
    assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(pool_shrunk_by_free, 1);
    assert_int_equal(world_used_bytes(), 0);
    /* Destroyed with memory still allocated: that pays for itself until it is freed. */
    world_limit(GIB);
    assert_int_equal(cuMemAllocFromPoolAsync(&p, 8 * MIB, pool, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 8 * MIB);
    assert_int_equal(cuMemFreeAsync(p, stream), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
}

static void test_pools_of_others(void **state)
{
    (void)state;
    CUmemoryPool imported, host;
    CUdeviceptr p;
    CUmemPoolProps props;
    make_pools();
    pool_step = 32 * MIB;
    assert_int_equal(cuMemPoolImportFromShareableHandle(&imported, NULL, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, imported, stream), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0); /* its maker pays */
    assert_int_equal(cuMemFreeAsync(p, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(imported, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    sl_pool_reclaim(&world_process, SL_NOT_LEASED);
    assert_int_equal(cuMemPoolDestroy(imported), CUDA_SUCCESS);
    memset(&props, 0, sizeof(props));
    props.location.type = CU_MEM_LOCATION_TYPE_HOST;
    assert_int_equal(cuMemPoolCreate(&host, &props), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, host, stream), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
    assert_int_equal(cuMemFreeAsync(p, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(host), CUDA_SUCCESS);
}

static void test_no_slack(void **state)
{
    (void)state;
    CUmemoryPool pool;
    CUdeviceptr p, q;
    CUmemPoolProps props;
    memset(&props, 0, sizeof(props));
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    make_pools();
    pool_step = 64 * MIB;
    assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, pool, stream), CUDA_SUCCESS);
    world_limit(65 * MIB); /* no further step fits, but the pool has room */
    assert_int_equal(cuMemAllocFromPoolAsync(&q, MIB, pool, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&q, 63 * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemFreeAsync(p, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(q, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static CUresult is_active(CUstream s, CUstreamCaptureStatus *status)
{
    (void)s;
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

static void test_captured(void **state)
{
    (void)state;
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)0x4460;
    CUdeviceptr p;
    make_pools();
    pool_step = 32 * MIB;
    WORLD_ANSWER(cuStreamIsCapturing, is_active);
    assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, pool, stream), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0); /* recorded, not allocated */
    assert_int_equal(cuMemFreeAsync(p, stream), CUDA_SUCCESS);
}

/* ---- virtual memory ---- */

static void test_mappings(void **state)
{
    (void)state;
    const size_t piece = 2 * MIB;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle h[3], again, other;
    CUdeviceptr base;
    assert_int_equal(cuMemAddressReserve(&base, 3 * piece, 0, 0, 0), CUDA_SUCCESS);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(cuMemCreate(&h[i], piece, &prop, 0), CUDA_SUCCESS);
        assert_int_equal(cuMemMap(base + i * piece, piece, 0, h[i], 0), CUDA_SUCCESS);
    }
    assert_int_equal(world_used_bytes(), 3 * piece);
    /* A handle is held twice: the first release changes nothing. */
    assert_int_equal(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)base), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(again), CUDA_SUCCESS);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(cuMemRelease(h[i]), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 3 * piece); /* mapped */
    assert_int_equal(cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)(base + piece)),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(base, 3 * piece), CUDA_SUCCESS); /* all three at once */
    assert_int_equal(world_used_bytes(), piece);
    assert_int_equal(cuMemRelease(other), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
    assert_int_equal(cuMemAddressFree(base, 3 * piece), CUDA_SUCCESS);
}

static CUresult accept_unmap(CUdeviceptr ptr, size_t size)
{
    (void)ptr;
    (void)size;
    return CUDA_SUCCESS;
}

static CUresult accept_map(CUdeviceptr ptr, size_t size, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)ptr;
    (void)size;
    (void)offset;
    (void)handle;
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult foreign_handle(CUmemGenericAllocationHandle *handle, void *address)
{
    (void)address;
    *handle = 0x5550;
    return CUDA_SUCCESS;
}

static void test_unmap_with_gaps(void **state)
{
    (void)state;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle h, foreign;
    WORLD_ANSWER(cuMemMap, accept_map);
    WORLD_ANSWER(cuMemUnmap, accept_unmap);
    assert_int_equal(cuMemCreate(&h, 2 * MIB, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(0x40000000, 2 * MIB, 0, h, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(0x50000000, 2 * MIB, 0, h, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(h), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(0x60000000, MIB), CUDA_SUCCESS); /* nothing of ours is there */
    assert_int_equal(world_used_bytes(), 2 * MIB);
    assert_int_equal(cuMemUnmap(0x3ff00000, 0x20000000), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
    /* Memory nobody here allocated: not ours to count. */
    WORLD_ANSWER(cuMemRetainAllocationHandle, foreign_handle);
    assert_int_equal(cuMemRetainAllocationHandle(&foreign, (void *)0x40000000), CUDA_SUCCESS);
    assert_int_equal(world_used_bytes(), 0);
}

/* ---- graphs ---- */

static CUgraph graph_with_allocations(unsigned int count)
{
    CUgraph graph;
    CUgraphNode node[2];
    CUDA_MEM_ALLOC_NODE_PARAMS a;
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    for (unsigned int i = 0; i < count; i++) {
        memset(&a, 0, sizeof(a));
        a.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        a.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        a.bytesize = MIB;
        assert_int_equal(cuGraphAddMemAllocNode(&node[0], graph, NULL, 0, &a), CUDA_SUCCESS);
        if (i % 2 == 0)
            assert_int_equal(cuGraphAddMemFreeNode(&node[1], graph, &node[0], 1, a.dptr),
                             CUDA_SUCCESS);
    }
    return graph;
}

static void test_large_graph(void **state)
{
    (void)state;
    CUgraphExec exec = NULL;
    CUgraph graph = graph_with_allocations(150);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphUpload(exec, stream), CUDA_SUCCESS);
    world_limit(MIB);
    CUresult rc = cuGraphLaunch(exec, stream);
    assert_true(rc == CUDA_ERROR_OUT_OF_MEMORY || world_used_bytes() > 0);
    (void)cuGraphUpload_ptsz(exec, NULL);
    world_limit(GIB);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    for (unsigned long n = 1; n <= 4; n++) {
        graph = graph_with_allocations(150);
        (void)nth_malloc_set(n);
        rc = cuGraphInstantiateWithFlags(&exec, graph, 0);
        (void)nth_malloc_set(0);
        assert_true(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY);
        if (rc == CUDA_SUCCESS)
            assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
        assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    }
    (void)cuCtxSynchronize();
    (void)cuDeviceGraphMemTrim(0);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Graphs within graphs, of a driver that allows memory there; the same one, without end. */
static CUresult always_child(CUgraphNode node, CUgraphNodeType *type)
{
    (void)node;
    *type = CU_GRAPH_NODE_TYPE_GRAPH;
    return CUDA_SUCCESS;
}

static unsigned int descents;

static CUresult same_again(CUgraphNode node, CUgraph *child)
{
    (void)node;
    descents++;
    *child = (CUgraph)(uintptr_t)0x6660;
    return CUDA_SUCCESS;
}

static CUresult one_node(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    (void)graph;
    if (nodes)
        nodes[0] = (CUgraphNode)(uintptr_t)0x6670;
    *count = 1;
    return CUDA_SUCCESS;
}

static void test_graph_without_end(void **state)
{
    (void)state;
    CUgraphExec exec = NULL;
    CUgraph graph = graph_with_allocations(1);
    WORLD_ANSWER(cuGraphGetNodes, one_node);
    WORLD_ANSWER(cuGraphNodeGetType, always_child);
    WORLD_ANSWER(cuGraphChildGraphNodeGetGraph, same_again);
    descents = 0;
    (void)cuGraphInstantiateWithFlags(&exec, graph, 0);
    assert_in_range(descents, 2, 20);
    if (exec)
        (void)cuGraphExecDestroy(exec);
    world_failing(SL_SYMBOL_cuGraphChildGraphNodeGetGraph);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), 999);
    world_missing(SL_SYMBOL_cuGraphChildGraphNodeGetGraph);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    world_restore();
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    (void)cuDeviceGraphMemTrim(0);
}

/* ---- which device ---- */

static CUresult no_context(CUcontext *c)
{
    *c = NULL;
    return CUDA_SUCCESS;
}

static void test_no_context(void **state)
{
    (void)state;
    CUdeviceptr p = 0;
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)0x4470;
    struct sl_site site;
    WORLD_ANSWER(cuCtxGetCurrent, no_context);
    WORLD_ANSWER(cuMemAllocFromPoolAsync, pool_alloc);
    assert_int_equal(cuMemAlloc_v2(&p, MIB), CUDA_SUCCESS); /* the driver has one all the same */
    assert_int_equal(world_used_bytes(), 0);
    assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&p, MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(sl_site_stream(&world_process, CU_STREAM_LEGACY, &site), CUDA_SUCCESS);
    assert_int_equal(site.gpu, SL_NOT_LEASED);
    assert_int_equal(sl_site_stream(&world_process, CU_STREAM_PER_THREAD, &site), CUDA_SUCCESS);
}

static CUresult strange_context(CUcontext *c)
{
    *c = (CUcontext)(uintptr_t)0x8880;
    return CUDA_SUCCESS;
}

static CUresult context_of_stream(CUstream s, CUcontext *c)
{
    (void)s;
    *c = (CUcontext)(uintptr_t)0x8881;
    return CUDA_SUCCESS;
}

static CUresult device_first(CUdevice *d)
{
    *d = 0;
    return CUDA_SUCCESS;
}

static void test_strange_context(void **state)
{
    (void)state;
    struct sl_site site;
    WORLD_ANSWER(cuCtxGetCurrent, strange_context);
    world_failing(SL_SYMBOL_cuCtxGetDevice);
    assert_int_equal(sl_site_current(&world_process, &site), 999);
    world_missing(SL_SYMBOL_cuCtxGetDevice);
    assert_int_equal(sl_site_current(&world_process, &site), CUDA_ERROR_NOT_SUPPORTED);
    WORLD_ANSWER(cuCtxGetDevice, device_first);
    WORLD_ANSWER(cuStreamGetCtx, context_of_stream); /* one we never saw: the current one counts */
    assert_int_equal(sl_site_stream(&world_process, stream, &site), CUDA_SUCCESS);
    assert_int_equal(site.gpu, 0);
    assert_true(sl_context_leave((CUcontext)(uintptr_t)0x8880, &site));
    assert_false(sl_context_leave((CUcontext)(uintptr_t)0x8880, &site));
    WORLD_ANSWER(cuStreamGetCtx, no_context);
    world_failing(SL_SYMBOL_cuStreamGetCtx);
    assert_int_equal(sl_site_stream(&world_process, stream, &site), CUDA_SUCCESS);
    assert_true(sl_context_leave((CUcontext)(uintptr_t)0x8880, &site));
}

/* Is this UUID that of the lease's only GPU? */
static bool is_leased(const char *lease_uuid, const char *uuid)
{
    struct sl_lease_page *lease = calloc(1, sizeof(*lease));
    struct sl_process p = {.lease = lease};
    lease->gpu_count = 1;
    (void)snprintf(lease->gpu[0].uuid, sizeof(lease->gpu[0].uuid), "%s", lease_uuid);
    int gpu = sl_device_gpu_by_uuid(&p, uuid);
    free(lease);
    return gpu == 0;
}

static void test_devices(void **state)
{
    (void)state;
    assert_int_equal(sl_device_gpu(&world_process, -1), SL_NOT_LEASED);
    assert_int_equal(sl_device_gpu(&world_process, 64), SL_NOT_LEASED);
    assert_true(is_leased("GPU-ab", "AB"));
    assert_true(is_leased("MIG-ab", "MIG-Ab"));
    assert_true(is_leased("ab", "GPU-ab"));
    assert_false(is_leased("GPU-ab", "GPU-abc"));
    sl_device_forget();
    world_failing(SL_SYMBOL_cuDeviceGetUuid_v2);
    assert_int_equal(sl_device_gpu(&world_process, 0), SL_NOT_LEASED); /* not learnt for ever */
    world_missing(SL_SYMBOL_cuDeviceGetUuid_v2);
    assert_int_equal(sl_device_gpu(&world_process, 0), 0); /* the older call */
    sl_device_forget();
    world_missing(SL_SYMBOL_cuDeviceGetUuid);
    assert_int_equal(sl_device_gpu(&world_process, 0), SL_NOT_LEASED);
    world_restore();
    assert_int_equal(sl_device_gpu(&world_process, 0), 0);
}

/* A context that does not fit is undone, by whichever call this driver has for it. */
static void test_context_over_limit(void **state)
{
    (void)state;
    CUcontext c = NULL;
    atomic_store(&world_lease.gpu[0].overhead_bytes, 2 * GIB);
    assert_int_equal(cuCtxCreate_v2(&c, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_null(c);
    world_missing(SL_SYMBOL_cuCtxDestroy_v2);
    assert_int_equal(cuCtxCreate_v2(&c, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_OUT_OF_MEMORY);
    world_missing(SL_SYMBOL_cuDevicePrimaryCtxRelease_v2);
    assert_int_equal(cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_OUT_OF_MEMORY);
    atomic_store(&world_lease.gpu[0].overhead_bytes, 0);
    assert_int_equal(cuDevicePrimaryCtxReset_v2(-1), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuDevicePrimaryCtxReset(99), CUDA_ERROR_INVALID_DEVICE);
    world_restore();
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
}

/* ---- the books themselves ---- */

static bool is_array(const struct sl_track *t, const void *arg)
{
    (void)arg;
    return t->kind == SL_KIND_ARRAY;
}

static void test_track(void **state)
{
    (void)state;
    struct sl_track t = {.kind = SL_KIND_ARRAY, .units = 1}, got;
    for (uint64_t k = 1; k <= 3000; k++) {
        t.key = k * 4096;
        assert_true(sl_track_room());
        sl_track_put(&t);
    }
    t.units = 5; /* the driver gave the same handle out again: the newest counts */
    assert_true(sl_track_room());
    sl_track_put(&t);
    assert_true(sl_track_get(SL_KIND_ARRAY, 3000 * 4096, &got));
    assert_int_equal(got.units, 5);
    assert_int_equal(sl_track_sum_if(is_array, NULL), 2999 + 5);
    for (uint64_t k = 1; k <= 3000; k += 2)
        assert_true(sl_track_take(SL_KIND_ARRAY, k * 4096, &got));
    for (uint64_t k = 2; k <= 3000; k += 2)
        assert_true(sl_track_get(SL_KIND_ARRAY, k * 4096, &got));
    while (sl_track_take_if(is_array, NULL, &got))
        ;
    assert_false(sl_track_get(SL_KIND_ARRAY, 8192, &got));
    assert_false(sl_track_get_if(is_array, NULL, &got));
}

static void test_charge(void **state)
{
    (void)state;
    static struct sl_ledger_page other;
    assert_true(sl_charge(&world_process, 0, 100, false));
    sl_charge_return(&world_process, 0, 1000); /* more than is held: what is held */
    assert_int_equal(world_used_bytes(), 0);
    sl_charge_return(&world_process, SL_MAX_GPUS, 1);
    assert_false(sl_charge(&world_process, SL_NOT_LEASED, 1, false));
    assert_true(sl_charge(&world_process, SL_NOT_LEASED, 0, false));
    assert_true(sl_charge_budget(&world_process, SL_MAX_GPUS).limited);
    /* An arbiter that lost the ledger: what this process holds moves to the new one. */
    assert_true(sl_charge(&world_process, 0, 300, false));
    sl_charge_move(&world_process, &other, 3);
    assert_int_equal(world_used_bytes(), 300 * SL_UNIT_BYTES);
    sl_charge_return(&world_process, 0, 100);
    /* … and back to one that still says the old. */
    sl_charge_move(&world_process, &world_ledger, 7);
    assert_int_equal(world_used_bytes(), 200 * SL_UNIT_BYTES);
    sl_charge_return(&world_process, 0, 200);
    assert_int_equal(world_used_bytes(), 0);
    (void)sl_charge(&world_process, 0, UINT32_MAX, true); /* over the limit all the same */
    assert_int_equal(world_used_bytes(), UINT32_MAX * SL_UNIT_BYTES);
    sl_charge_return(&world_process, 0, UINT32_MAX);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(test_pitch),
        CASE(test_pool_of_large_steps),
        CASE(test_pools_of_others),
        CASE(test_no_slack),
        CASE(test_captured),
        CASE(test_mappings),
        CASE(test_unmap_with_gaps),
        CASE(test_large_graph),
        CASE(test_graph_without_end),
        CASE(test_no_context),
        CASE(test_strange_context),
        CASE(test_devices),
        CASE(test_context_over_limit),
        CASE(test_track),
        CASE(test_charge),
    };
    world_open("h200", GIB);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    world_close();
    return rc;
}
