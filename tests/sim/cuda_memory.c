/* SPDX-License-Identifier: Apache-2.0 */
/* Pools, virtual memory, arrays, host memory, external memory, questions about pointers. */
#include "cuda_case.h"

#define MIB (1ULL << 20)

static size_t free_bytes(void)
{
    size_t f, t;
    CU_OK(cuMemGetInfo_v2(&f, &t));
    return f;
}

static uint64_t pool_says(CUmemoryPool p, CUmemPool_attribute a)
{
    uint64_t v = 0;
    CU_OK(cuMemPoolGetAttribute(p, a, &v));
    return v;
}

static void pools(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUmemoryPool d, cur, own;
    CUdeviceptr a, b;
    size_t start = free_bytes();
    CU_OK(cuDeviceGetDefaultMemPool(&d, 0));
    CU_OK(cuDeviceGetMemPool(&cur, 0));
    CHECK(d == cur);
    CU_OK(cuMemAllocAsync(&a, 10 * MIB, NULL));
    CU_OK(cuMemAllocAsync_ptsz(&b, 10 * MIB, NULL));
    CHECK(pool_says(d, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 20 * MIB);
    uint64_t reserved = pool_says(d, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    CHECK(reserved >= 20 * MIB && free_bytes() == start - reserved);
    sl_tenant_fill(&t, NULL, a, 1, 10);
    CU_OK(cuMemFreeAsync(a, NULL));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(a, NULL));
    CU_OK(cuMemFreeAsync_ptsz(b, NULL));
    CU_OK(cuCtxSynchronize()); /* the threshold is 0: all of it goes back */
    CHECK(pool_says(d, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    CHECK(pool_says(d, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0 && free_bytes() == start);
    CHECK(pool_says(d, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 20 * MIB);
    uint64_t keep = UINT64_MAX;
    CU_OK(cuMemPoolSetAttribute(d, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CU_OK(cuMemAllocAsync(&a, 100 * MIB, NULL));
    CU_OK(cuMemFreeAsync(a, NULL));
    CU_OK(cuCtxSynchronize());
    CHECK(free_bytes() <= start - 100 * MIB); /* kept */
    CU_OK(cuMemAllocAsync(&a, 90 * MIB, NULL));
    CU_OK(cuMemFree_v2(a)); /* either free will do */
    CU_OK(cuMemPoolTrimTo(d, 0));
    CHECK(free_bytes() == start);
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&a, 200ULL << 30, NULL));
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .maxSize = 64 * MIB};
    CU_OK(cuMemPoolCreate(&own, &props));
    CU_OK(cuMemAllocFromPoolAsync(&a, 60 * MIB, own, NULL));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&b, 60 * MIB, own, NULL));
    CUmemoryPool of;
    CU_OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    CHECK(of == own);
    CU_OK(cuDeviceSetMemPool(0, own));
    CU_OK(cuMemPoolDestroy(own));
    CU_OK(cuDeviceGetMemPool(&cur, 0));
    CHECK(cur == d);
    CU_OK(cuMemFreeAsync(a, NULL));
    CU_OK(cuCtxSynchronize());
    CHECK(free_bytes() == start);
}

static void virtual_memory(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
                        got;
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h, again;
    CUdeviceptr va, alias;
    size_t unit, start = free_bytes();
    CU_OK(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(unit == 2 * MIB);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, unit + 1, &prop, 0));
    CU_OK(cuMemCreate(&h, 2 * unit, &prop, 0));
    CHECK(free_bytes() == start - 2 * unit);
    CU_OK(cuMemAddressReserve(&va, 4 * unit, 0, 0, 0));
    CU_OK(cuMemAddressReserve(&alias, 2 * unit, 0, 0, 0));
    CU_OK(cuMemMap(va, 2 * unit, 0, h, 0));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(va, 2 * unit, 0, h, 0)); /* taken */
    CU_OK(cuMemMap(alias, 2 * unit, 0, h, 0));
    CU_OK(cuMemSetAccess(va, 2 * unit, &access, 1));
    CU_OK(cuMemSetAccess(alias, 2 * unit, &access, 1));
    uint32_t v;
    sl_tenant_fill(&t, NULL, va + unit, 99, 4);
    CU_OK(cuMemcpyDtoH_v2(&v, alias + unit + 12, 4)); /* the same memory, elsewhere */
    CHECK(v == 99);
    CU_OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)va));
    CU_OK(cuMemGetAllocationPropertiesFromHandle(&got, again));
    CHECK(got.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    CU_OK(cuMemRelease(again));
    CU_OK(cuMemRelease(h)); /* mapped: still there */
    CHECK(free_bytes() == start - 2 * unit);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(va, 4 * unit));
    CU_OK(cuMemUnmap(va, 2 * unit));
    CHECK(free_bytes() == start - 2 * unit);
    CU_OK(cuMemUnmap(alias, 2 * unit));
    CHECK(free_bytes() == start);
    CU_OK(cuMemAddressFree(va, 4 * unit));
    CU_OK(cuMemAddressFree(alias, 2 * unit));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&h, 200ULL << 30, &prop, 0));
}

/* What is bound to a multicast object stays on the card without handle and mapping. */
static void multicast(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    size_t start = free_bytes();
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmulticastObjectProp object = {.numDevices = 1, .size = 8 * MIB};
    CUmemGenericAllocationHandle mc, h;
    CU_OK(cuMulticastCreate(&mc, &object));
    CU_OK(cuMulticastAddDevice(mc, 0));
    CHECK(free_bytes() == start);
    CU_OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(h, 0, mc, 0, 4 * MIB, 0));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(mc, 6 * MIB, h, 0, 4 * MIB, 0));
    CU_OK(cuMulticastBindMem(mc, 4 * MIB, h, 0, 4 * MIB, 0));
    CU_OK(cuMemRelease(h));
    CHECK(free_bytes() == start - 4 * MIB);
    CU_OK(cuMulticastUnbind(mc, 0, 0, 4 * MIB)); /* nothing is bound there */
    CHECK(free_bytes() == start - 4 * MIB);
    CU_OK(cuMulticastUnbind(mc, 0, 4 * MIB, 4 * MIB));
    CHECK(free_bytes() == start);
    CU_OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
    CU_OK(cuMulticastBindMem(mc, 0, h, 0, 4 * MIB, 0));
    CU_OK(cuMemRelease(h));
    CU_OK(cuMemRelease(mc));
    CHECK(free_bytes() == start);
}

static void arrays(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    size_t start = free_bytes();
    CUarray a, level;
    CUmipmappedArray m;
    CUDA_ARRAY_DESCRIPTOR d = {.Width = 1024,
                               .Height = 1024,
                               .Format = CU_AD_FORMAT_FLOAT,
                               .NumChannels = 4},
                          got;
    CUDA_ARRAY3D_DESCRIPTOR d3 = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    uint32_t in[64], out[64] = {0};
    CU_OK(cuArrayCreate_v2(&a, &d));
    CHECK(free_bytes() == start - 16 * MIB);
    CU_OK(cuArrayGetDescriptor_v2(&got, a));
    CHECK(memcmp(&got, &d, sizeof(d)) == 0);
    for (uint32_t i = 0; i < 64; i++)
        in[i] = i;
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = in,
                       .srcPitch = 32,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = a,
                       .dstY = 5,
                       .WidthInBytes = 32,
                       .Height = 8};
    CU_OK(cuMemcpy2D_v2(&c));
    CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = a,
                          .srcY = 5,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 32,
                          .WidthInBytes = 32,
                          .Height = 8};
    CU_OK(cuMemcpy2D_v2(&back));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    CU_OK(cuMemcpyHtoA_v2(a, 0, in, 64));
    CU_OK(cuMemcpyAtoH_v2(out, a, 4, 8));
    CHECK(out[0] == 1 && out[1] == 2);
    CU_OK(cuArrayDestroy(a));
    CHECK(free_bytes() == start);
    CU_OK(cuMipmappedArrayCreate(&m, &d3, 11));
    CHECK(free_bytes() < start - 5 * MIB);
    CU_OK(cuMipmappedArrayGetLevel(&level, m, 2));
    CU_OK(cuArrayGetDescriptor_v2(&got, level));
    CHECK(got.Width == 256 && got.Height == 256);
    CU_OK(cuArrayDestroy(level)); /* does nothing: it belongs to m */
    CU_OK(cuArrayGetDescriptor_v2(&got, level));
    CU_OK(cuMipmappedArrayDestroy(m));
    CHECK(free_bytes() == start);
    d.Width = 1u << 30;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2(&a, &d));
}

static void pointers(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr d, dev;
    void *host;
    static char mine[8192];
    unsigned int type, flags;
    int managed, ordinal;
    CUcontext ctx;
    CU_OK(cuMemAlloc_v2(&d, 1000));
    CU_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 999));
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                          (CUdeviceptr)(uintptr_t)mine));
    CU_OK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, d));
    CHECK(ctx == t.ctx);
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *answers[] = {&managed, &ordinal};
    CU_OK(cuPointerGetAttributes(2, which, answers, d));
    CHECK(managed == 0 && ordinal == 0);
    CU_OK(cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_DEVICEMAP));
    CU_OK(cuMemHostGetDevicePointer_v2(&dev, host, 0));
    CU_OK(cuMemHostGetFlags(&flags, host));
    CHECK(flags & CU_MEMHOSTALLOC_DEVICEMAP);
    CU_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dev));
    CHECK(type == CU_MEMORYTYPE_HOST);
    sl_tenant_fill(&t, NULL, dev, 3, 2);
    CU_OK(cuCtxSynchronize());
    CHECK(((uint32_t *)host)[1] == 3);
    CU_OK(cuMemFreeHost(host));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
    CU_OK(cuMemHostRegister_v2(mine, sizeof(mine), 0));
    CU_IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(mine, sizeof(mine), 0));
    CU_OK(cuMemHostUnregister(mine));
    CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(mine));
}

static void contexts(void)
{
    CUcontext a, b, now;
    CUdeviceptr p;
    CU_OK(cuInit(0));
    CU_OK(cuCtxCreate_v2(&a, 0, 0));
    CU_OK(cuCtxGetCurrent(&now));
    CHECK(now == a);
    size_t one = free_bytes();
    CU_OK(cuMemAlloc_v2(&p, 64 * MIB));
    CU_OK(cuCtxCreate_v4(&b, NULL, 0, 1));
    CU_OK(cuCtxGetCurrent(&now));
    CHECK(now == b);
    CU_OK(cuCtxPopCurrent_v2(&now));
    CHECK(now == b);
    CU_OK(cuCtxGetCurrent(&now));
    CHECK(now == a);
    int can;
    CU_OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 1);
    CU_OK(cuCtxEnablePeerAccess(b, 0));
    CU_IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(b, 0));
    CU_OK(cuCtxDisablePeerAccess(b));
    CU_IS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(b));
    CU_OK(cuCtxPushCurrent_v2(b));
    CU_OK(cuCtxDestroy_v2(b));
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(b));
    CU_OK(cuMemFree_v2(p));
    CHECK(free_bytes() == one);
    CU_OK(cuMemAlloc_v2(&p, 64 * MIB)); /* goes with the context */
    CU_OK(cuDevicePrimaryCtxRetain(&b, 0));
    CU_OK(cuCtxDestroy_v2(a));
    CU_OK(cuCtxSetCurrent(b));
    CHECK(free_bytes() == one);
    CU_OK(cuDevicePrimaryCtxRelease_v2(0));
    CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    CUdevice d;
    unsigned int flags;
    int active;
    CU_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active);
    char id[16];
    CU_OK(cuDeviceGetPCIBusId(id, sizeof(id), 1));
    CU_OK(cuDeviceGetByPCIBusId(&d, id));
    CHECK(d == 1);
}

int main(int argc, char **argv)
{
    static const struct cuda_case cases[] = {
        {.name = "pools", .run = pools},
        {.name = "virtual_memory", .run = virtual_memory},
        {.name = "multicast", .run = multicast},
        {.name = "arrays", .run = arrays},
        {.name = "pointers", .run = pointers},
        {.name = "contexts", .run = contexts, .sim = "h200x2"},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
