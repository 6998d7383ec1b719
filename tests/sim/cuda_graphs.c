/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and stream capture. */
#include "cuda_case.h"

#include <pthread.h>

#define MIB (1ULL << 20)

static CUdeviceptr zeroed(size_t bytes)
{
    CUdeviceptr p;
    CU_OK(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
    CU_OK(cuMemsetD8_v2(p, 0, bytes));
    CU_OK(cuCtxSynchronize());
    return p;
}

static CUgraphNode add_node(struct sl_tenant *t, CUgraph g, const CUgraphNode *deps, size_t n,
                            CUdeviceptr p, uint32_t value)
{
    CUgraphNode node;
    uint32_t count = 1;
    void *args[] = {&p, &value, &count};
    CUDA_KERNEL_NODE_PARAMS_v2 k = {.func = t->add,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 32,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = args};
    CU_OK(cuGraphAddKernelNode_v2(&node, g, deps, n, &k));
    return node;
}

static void built(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr p = zeroed(4096);
    uint32_t *v = (uint32_t *)(uintptr_t)p, host = 100;
    CUgraph g, clone;
    CUgraphExec x;
    CU_OK(cuGraphCreate(&g, 0));
    /* Added in an order that only the edges put right: 100, then +1, then *stored* elsewhere. */
    CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = p + 8,
                         .WidthInBytes = 4,
                         .Height = 1,
                         .Depth = 1};
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = &host,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p,
                        .WidthInBytes = 4,
                        .Height = 1,
                        .Depth = 1};
    CUgraphNode n_out, n_in, found;
    CU_OK(cuGraphAddMemcpyNode(&n_out, g, NULL, 0, &out, t.ctx));
    CUgraphNode n_add = add_node(&t, g, NULL, 0, p, 1);
    CU_OK(cuGraphAddMemcpyNode(&n_in, g, NULL, 0, &in, t.ctx));
    CU_OK(cuGraphAddDependencies(g, &n_in, &n_add, 1));
    CU_OK(cuGraphAddDependencies(g, &n_add, &n_out, 1));
    size_t n = 0, edges = 0;
    CU_OK(cuGraphGetNodes(g, NULL, &n));
    CU_OK(cuGraphGetEdges(g, NULL, NULL, &edges));
    CHECK(n == 3 && edges == 2);
    CU_OK(cuGraphClone(&clone, g));
    CU_OK(cuGraphNodeFindInClone(&found, n_add, clone));
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS_v2 k;
    CU_OK(cuGraphNodeGetType(found, &type));
    CU_OK(cuGraphKernelNodeGetParams_v2(found, &k));
    CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL && k.func == t.add &&
          *(uint32_t *)k.kernelParams[1] == 1);
    CU_OK(cuGraphInstantiateWithFlags(&x, clone, 0));
    CU_OK(cuGraphDestroy(g));
    CU_OK(cuGraphLaunch(x, NULL));
    CU_OK(cuCtxSynchronize());
    CHECK(v[0] == 101 && v[2] == 101);
    /* Updated: the same shape with other numbers. */
    uint32_t value = 7, count = 1;
    void *args[] = {&p, &value, &count};
    k.kernelParams = args;
    CU_OK(cuGraphExecKernelNodeSetParams_v2(x, found, &k));
    CU_OK(cuGraphLaunch(x, NULL));
    CU_OK(cuCtxSynchronize());
    CHECK(v[2] == 107);
    CUgraph other;
    CUgraphExecUpdateResultInfo info;
    CU_OK(cuGraphCreate(&other, 0));
    (void)add_node(&t, other, NULL, 0, p, 1);
    CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(x, other, &info));
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    /* A cycle cannot be instantiated. */
    CUgraphNode a = add_node(&t, other, NULL, 0, p, 1), b = add_node(&t, other, &a, 1, p, 1);
    CU_OK(cuGraphAddDependencies(other, &b, &a, 1));
    CUgraphExec y;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&y, other, 0));
    CU_OK(cuGraphExecDestroy(x));
}

static void bump(void *arg)
{
    ++*(int *)arg;
}

static void mixed(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr p = zeroed(4096);
    uint32_t *v = (uint32_t *)(uintptr_t)p;
    static int calls;
    CUgraph g, child;
    CUgraphNode n1, n2, n3;
    CUgraphExec x;
    CUevent e;
    CU_OK(cuEventCreate(&e, 0));
    CU_OK(cuGraphCreate(&child, 0));
    (void)add_node(&t, child, NULL, 0, p, 5);
    CU_OK(cuGraphCreate(&g, 0));
    CU_OK(cuGraphAddChildGraphNode(&n1, g, NULL, 0, child));
    CUDA_HOST_NODE_PARAMS host = {.fn = bump, .userData = &calls};
    CU_OK(cuGraphAddHostNode(&n2, g, &n1, 1, &host));
    CU_OK(cuGraphAddEventRecordNode(&n3, g, &n2, 1, e));
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    any.memset = (CUDA_MEMSET_NODE_PARAMS_v2){
        .dst = p + 16, .value = 9, .elementSize = 4, .width = 2, .height = 1};
    CUgraphNode n4;
    CU_OK(cuGraphAddNode(&n4, g, &n3, 1, &any));
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CU_OK(cuGraphInstantiateWithParams(&x, g, &params));
    CHECK(params.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
    for (int i = 0; i < 3; i++)
        CU_OK(cuGraphLaunch(x, NULL));
    CU_OK(cuEventSynchronize(e));
    CU_OK(cuCtxSynchronize());
    CHECK(calls == 3 && v[0] == 15 && v[5] == 9);
}

static void ten_thousand(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr p = zeroed(4096);
    CUgraph g;
    CUgraphExec x;
    CUgraphNode last;
    CU_OK(cuGraphCreate(&g, 0));
    last = add_node(&t, g, NULL, 0, p, 1);
    for (int i = 1; i < 10000; i++)
        last = add_node(&t, g, &last, 1, p, 1);
    CU_OK(cuGraphInstantiateWithFlags(&x, g, 0));
    CUevent a, b;
    float ms;
    CU_OK(cuEventCreate(&a, 0));
    CU_OK(cuEventCreate(&b, 0));
    CU_OK(cuEventRecord(a, NULL));
    CU_OK(cuGraphLaunch(x, NULL));
    CU_OK(cuEventRecord(b, NULL));
    CU_OK(cuEventSynchronize(b));
    CU_OK(cuEventElapsedTime(&ms, a, b));
    CHECK(*(uint32_t *)(uintptr_t)p == 10000 && ms >= 20); /* 2 us each */
}

static void memory_nodes(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    size_t start, now, total;
    CU_OK(cuMemGetInfo_v2(&start, &total));
    CUgraph g;
    CUgraphNode n_alloc, n_free;
    CUgraphExec x;
    CUDA_MEM_ALLOC_NODE_PARAMS a = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 64 * MIB};
    CU_OK(cuGraphCreate(&g, 0));
    CU_OK(cuGraphAddMemAllocNode(&n_alloc, g, NULL, 0, &a));
    CHECK(a.dptr != 0);
    CUgraphNode used = add_node(&t, g, &n_alloc, 1, a.dptr, 3);
    CU_OK(cuGraphInstantiateWithFlags(&x, g, 0));
    CU_OK(cuMemGetInfo_v2(&now, &total));
    CHECK(now == start); /* nothing until it is launched */
    CU_OK(cuGraphLaunch(x, NULL));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuMemGetInfo_v2(&now, &total));
    CHECK(now == start - 64 * MIB);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(x, NULL)); /* still out */
    uint64_t value;
    CU_OK(cuMemFreeAsync(a.dptr, NULL));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value));
    CHECK(value == 0);
    CU_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
    CHECK(value == 64 * MIB);
    CU_OK(cuGraphLaunch(x, NULL));
    CU_OK(cuMemFreeAsync(a.dptr, NULL));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuDeviceGraphMemTrim(0));
    CU_OK(cuMemGetInfo_v2(&now, &total));
    CHECK(now == start);
    CU_OK(cuGraphAddMemFreeNode(&n_free, g, &used, 1, a.dptr));
    a.bytesize = 200ULL << 30;
    CUgraph big;
    CU_OK(cuGraphCreate(&big, 0));
    CU_OK(cuGraphAddMemAllocNode(&n_alloc, big, NULL, 0, &a));
    CU_OK(cuGraphInstantiateWithFlags(&x, big, 0));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(x, NULL));
    CU_OK(cuMemGetInfo_v2(&now, &total));
    CHECK(now == start);
}

static void captured(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr p = zeroed(4096);
    uint32_t *v = (uint32_t *)(uintptr_t)p;
    CUstream s, side;
    CUevent fork_event, join_event;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph g, seen;
    const CUgraphNode *deps;
    size_t n;
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CU_OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CU_OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    CU_OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    sl_tenant_add(&t, s, p, 1, 1);
    CU_OK(cuEventRecord(fork_event, s));
    CU_OK(cuStreamWaitEvent(side, fork_event, 0));
    CU_OK(cuStreamIsCapturing(side, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    sl_tenant_add(&t, side, p + 4, 2, 1);
    CU_OK(cuEventRecord(join_event, side));
    CU_OK(cuMemsetD32Async(p + 8, 6, 1, s));
    CU_OK(cuStreamWaitEvent(s, join_event, 0));
    CU_OK(cuStreamGetCaptureInfo_v2(s, &status, &id, &seen, &deps, &n));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && n == 2);
    sl_tenant_add(&t, s, p + 8, 1, 1);
    CU_OK(cuStreamEndCapture(s, &g));
    CHECK(g == seen && v[0] == 0);
    CU_OK(cuGraphGetNodes(g, NULL, &n));
    CHECK(n == 4);
    CU_OK(cuStreamIsCapturing(side, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    CUgraphExec x;
    CU_OK(cuGraphInstantiate_v2(&x, g, NULL, NULL, 0));
    CU_OK(cuGraphLaunch(x, s));
    CU_OK(cuGraphLaunch_ptsz(x, NULL));
    CU_OK(cuCtxSynchronize());
    CHECK(v[0] == 2 && v[1] == 4 && v[2] == 7);
}

static void *other_thread(void *arg)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr p;
    CU_OK(cuCtxSetCurrent(arg));
    CU_OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU_OK(cuMemAlloc_v2(&p, 1)); /* relaxed: allowed */
    CU_OK(cuThreadExchangeStreamCaptureMode(&mode));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&p, 1)); /* global again */
    return NULL;
}

static void capture_rules(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr p = zeroed(4096), q;
    CUstream s, nb;
    CUgraph g;
    CUevent outside;
    CU_OK(cuStreamCreate(&s, 0));
    CU_OK(cuStreamCreate(&nb, CU_STREAM_NON_BLOCKING));
    CU_OK(cuEventCreate(&outside, 0));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, 0));
    CU_IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &g));
    /* An unsafe call kills a global capture, and says so at both ends. */
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&q, 1));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD32Async(p, 1, 1, s));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
    CHECK(g == NULL);
    CU_OK(cuMemAlloc_v2(&q, 1));
    /* A relaxed one survives. */
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(cuMemAlloc_v2(&q, 1));
    CU_OK(cuStreamEndCapture(s, &g));
    CHECK(g != NULL);
    /* Waiting for the stream, using the legacy one beside it, leaving work unjoined. */
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32Async(p, 1, 1, NULL));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(cuMemsetD32Async(p, 1, 1, s));
    CU_OK(cuEventRecord(outside, s));
    CU_IS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(outside));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(cuMemsetD32Async(p, 1, 1, s));
    CU_OK(cuEventRecord(outside, s));
    CU_OK(cuStreamWaitEvent(nb, outside, 0));
    CU_OK(cuMemsetD32Async(p + 4, 1, 1, nb));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(nb, &g));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(cuMemsetD32Async(p, 1, 1, s));
    CU_OK(cuEventRecord(outside, s));
    CU_OK(cuStreamWaitEvent(nb, outside, 0));
    CU_OK(cuMemsetD32Async(p + 4, 1, 1, nb));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &g));
    /* An event from outside. */
    CU_OK(cuEventRecord(outside, NULL));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, outside, 0));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
    /* Other threads. */
    pthread_t other;
    CU_OK(cuStreamBeginCapture_v2(nb, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(pthread_create(&other, NULL, other_thread, t.ctx) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(nb, &g));
    CHECK(((uint32_t *)(uintptr_t)p)[0] == 0); /* captured work never ran */
}

/* A capture goes with the stream it began on, and with that stream's context: nothing is forbidden after it. */
static void capture_ends_with_its_stream(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr p = zeroed(4096), q;
    CUstream s, joined;
    CUevent e;
    CUgraph g;
    CUcontext other;
    CUstreamCaptureStatus status;
    CU_OK(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
    CU_OK(cuEventCreate(&e, 0));
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(cuMemsetD32Async(p, 1, 1, s));
    CU_OK(cuEventRecord(e, s));
    CU_OK(cuStreamWaitEvent(joined, e, 0));
    CU_OK(cuStreamDestroy_v2(s));
    CU_OK(cuMemAlloc_v2(&q, 1));
    CU_OK(cuStreamIsCapturing(joined, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    /* A stream that only joined takes the capture along no further than to be invalid. */
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(cuEventRecord(e, s));
    CU_OK(cuStreamWaitEvent(joined, e, 0));
    CU_OK(cuStreamDestroy_v2(joined));
    CU_OK(cuStreamIsCapturing(s, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
    CU_OK(cuCtxCreate_v2(&other, 0, 0));
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(cuCtxDestroy_v2(other));
    CU_OK(cuCtxSetCurrent(t.ctx));
    CU_OK(cuMemAlloc_v2(&q, 1));
}

static void captured_allocation(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUstream s;
    CUgraph g;
    CUgraphExec x;
    CUdeviceptr p;
    size_t before, now, total;
    uint32_t out = 0;
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CU_OK(cuMemGetInfo_v2(&before, &total));
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(cuMemAllocAsync(&p, 4 * MIB, s));
    sl_tenant_fill(&t, s, p, 21, 1);
    sl_tenant_add(&t, s, p, 21, 1);
    CU_OK(cuMemcpyDtoHAsync_v2(&out, p, 4, s));
    CU_OK(cuMemFreeAsync(p, s));
    CU_OK(cuStreamEndCapture(s, &g));
    CU_OK(cuGraphInstantiateWithFlags(&x, g, 0));
    CU_OK(cuGraphLaunch(x, s));
    CU_OK(cuGraphLaunch(x, s));
    CU_OK(cuStreamSynchronize(s));
    CHECK(out == 42);
    CU_OK(cuDeviceGraphMemTrim(0));
    CU_OK(cuMemGetInfo_v2(&now, &total));
    CHECK(now == before);
}

int main(int argc, char **argv)
{
    static const struct cuda_case cases[] = {
        {.name = "built", .run = built},
        {.name = "mixed", .run = mixed},
        {.name = "ten_thousand", .run = ten_thousand},
        {.name = "memory_nodes", .run = memory_nodes},
        {.name = "captured", .run = captured},
        {.name = "capture_rules", .run = capture_rules},
        {.name = "capture_ends_with_its_stream", .run = capture_ends_with_its_stream},
        {.name = "captured_allocation", .run = captured_allocation},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
