/* SPDX-License-Identifier: Apache-2.0 */
/* One process: start, memory, copies, streams, events, kernels. */
#include "cuda_case.h"

#define MIB (1ULL << 20)

static void before_init(void)
{
    int n, version;
    CUdeviceptr p;
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&p, 1));
    CU_OK(cuDriverGetVersion(&version));
    CHECK(version == 13000);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    CU_OK(cuInit(0));
    CU_OK(cuDeviceGetCount(&n));
    CHECK(n == 1);
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&p, 1));
    CUdevice d;
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&d, 1));
}

static size_t free_bytes(void)
{
    size_t f, t;
    CU_OK(cuMemGetInfo_v2(&f, &t));
    CHECK(t == 143771 * MIB);
    return f;
}

static void memory(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    size_t start = free_bytes(), bytes;
    CHECK(start < 143771 * MIB && start > 143771 * MIB - 1024 * MIB);
    CUdeviceptr a, b, base;
    CU_OK(cuMemAlloc_v2(&a, 100));
    CHECK(a % 512 == 0);
    CHECK(free_bytes() == start - 2 * MIB);
    CU_OK(cuMemAlloc_v2(&b, 100)); /* the same block */
    CHECK(b != a && free_bytes() == start - 2 * MIB);
    CU_OK(cuMemGetAddressRange_v2(&base, &bytes, b + 50));
    CHECK(base == b && bytes == 100);
    CU_OK(cuMemFree_v2(a));
    CU_OK(cuMemFree_v2(b));
    CHECK(free_bytes() == start);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(b));
    CU_OK(cuMemFree_v2(0));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&a, 0));
    CU_OK(cuMemAlloc_v2(&a, 100ULL << 30)); /* costs no RAM */
    CHECK(free_bytes() == start - (100ULL << 30));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&b, 60ULL << 30));
    CHECK(free_bytes() == start - (100ULL << 30));
    CU_OK(cuMemFree_v2(a));
    CHECK(free_bytes() == start);
    size_t pitch;
    CU_OK(cuMemAllocPitch_v2(&a, &pitch, 1000, 5000, 4));
    CHECK(pitch == 1024 && free_bytes() == start - 6 * MIB);
    CU_OK(cuMemFree_v2(a));
    CU_OK(cuMemAllocManaged(&a, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(free_bytes() == start - 4 * MIB);
    *(volatile int *)(uintptr_t)a = 7; /* the CPU may touch it */
    CU_OK(cuMemFree_v2(a));
    sl_tenant_close(&t);
}

static void copies(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    uint32_t in[256], out[256];
    CUdeviceptr a, b;
    for (uint32_t i = 0; i < 256; i++)
        in[i] = i * 3;
    CU_OK(cuMemAlloc_v2(&a, sizeof(in)));
    CU_OK(cuMemAlloc_v2(&b, sizeof(in)));
    CU_OK(cuMemcpyHtoD_v2(a, in, sizeof(in)));
    CU_OK(cuMemcpyDtoD_v2(b, a, sizeof(in)));
    CU_OK(cuMemcpyDtoH_v2(out, b, sizeof(out)));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    CU_OK(cuMemsetD32_v2(b, 0x01020304, 256));
    CU_OK(cuMemcpyDtoH_v2(out, b, sizeof(out)));
    CHECK(out[255] == 0x01020304);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a, in, sizeof(in) + 1));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(12345, in, 4));
    /* A pageable source is the caller's again at once. */
    sl_tenant_fma(&t, NULL, 1000000);
    CU_OK(cuMemcpyHtoDAsync_v2(a, in, sizeof(in), NULL));
    memset(in, 0xff, sizeof(in));
    CU_OK(cuMemcpyDtoH_v2(out, a, sizeof(out)));
    CHECK(out[2] == 6);
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = a,
                       .srcPitch = 64,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = out,
                       .dstPitch = 32,
                       .WidthInBytes = 32,
                       .Height = 4};
    CU_OK(cuMemcpy2D_v2(&c));
    CHECK(out[8] == 16 * 3 && out[31] == (3 * 16 + 7) * 3);
    sl_tenant_close(&t);
}

static void kernels(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr a;
    uint32_t out[100];
    CU_OK(cuMemAlloc_v2(&a, sizeof(out)));
    sl_tenant_fill(&t, NULL, a, 40, 100);
    sl_tenant_add(&t, NULL, a, 2, 99);
    CU_OK(cuMemcpyDtoH_v2(out, a, sizeof(out)));
    CHECK(out[0] == 42 && out[98] == 42 && out[99] == 40);
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernel(t.empty, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(t.fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CUfunction f;
    CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, t.module, "nothing"));
    CUmodule m;
    CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, "this is not PTX"));
    CU_IS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&m, ".version 7.0\n.target sm_70\n{"));
    /* Legacy launches and packed arguments. */
    struct {
        uint64_t p;
        uint32_t value, count;
    } packed = {a, 7, 100};
    size_t bytes = sizeof(packed);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CU_OK(cuLaunchKernel(t.fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    CU_OK(cuFuncSetBlockShape(t.add, 32, 1, 1));
    CU_OK(cuParamSetv(t.add, 0, &a, 8));
    CU_OK(cuParamSeti(t.add, 8, 3));
    CU_OK(cuParamSeti(t.add, 12, 100));
    CU_OK(cuParamSetSize(t.add, 16));
    CU_OK(cuLaunchGrid(t.add, 4, 1));
    CU_OK(cuMemcpyDtoH_v2(out, a, sizeof(out)));
    CHECK(out[99] == 10);
    /* An illegal address ends the context. */
    sl_tenant_fill(&t, NULL, 4096, 1, 1);
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&a, 1));
}

static void event_times(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUevent a, b, never;
    float ms;
    CU_OK(cuEventCreate(&a, 0));
    CU_OK(cuEventCreate(&b, 0));
    CU_OK(cuEventCreate(&never, 0));
    CU_OK(cuEventQuery(never));        /* nothing recorded: complete */
    sl_tenant_fma(&t, NULL, 20000000); /* long enough for all of it to be queued behind */
    CU_OK(cuEventRecord(a, NULL));
    sl_tenant_fma(&t, NULL, 30000000);
    CU_OK(cuEventRecord(b, NULL));
    CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(b));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    CU_IS(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, a, b));
    CU_OK(cuEventSynchronize(b));
    CU_OK(cuEventElapsedTime(&ms, a, b));
    CHECK(ms > 29.999f && ms < 30.001f); /* exact, however late we look */
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, a, never));
    CU_OK(cuStreamQuery(NULL));
    CU_OK(cuEventDestroy_v2(a));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(a));
}

/* A program need not destroy them first; what is left of a queue finds no event that came after. */
static void events_go_with_their_context(void)
{
    CUcontext a, b;
    CUevent of_a[3], of_b, later;
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CU_OK(cuEventCreate(&of_b, 0));
    CU_OK(cuCtxGetCurrent(&b));
    CU_OK(cuCtxCreate_v2(&a, 0, 0));
    for (int i = 0; i < 3; i++)
        CU_OK(cuEventCreate(&of_a[i], 0));
    CU_OK(cuEventDestroy_v2(of_a[1])); /* from between the two */
    CU_OK(cuEventRecord(of_a[0], NULL));
    CU_OK(cuCtxDestroy_v2(a));
    for (int i = 0; i < 3; i++)
        CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(of_a[i]));
    CU_OK(cuCtxSetCurrent(b));
    sl_tenant_fma(&t, NULL, 20000000);
    CU_OK(cuEventRecord(of_b, NULL));
    for (int i = 0; i < 3; i++) {
        CU_OK(cuEventCreate(&later, 0));
        CU_OK(cuEventRecord(later, NULL));
        CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(later));
    }
    CU_OK(cuEventSynchronize(of_b));
    CU_OK(cuEventSynchronize(later));
    sl_tenant_close(&t);
}

static void streams(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUstream s1, s2, nb;
    CUdeviceptr flag, data;
    CU_OK(cuStreamCreate(&s1, 0));
    CU_OK(cuStreamCreate(&s2, 0));
    CU_OK(cuStreamCreate(&nb, CU_STREAM_NON_BLOCKING));
    CU_OK(cuMemAllocManaged(&flag, 4096, CU_MEM_ATTACH_GLOBAL));
    CU_OK(cuMemAllocManaged(&data, 4096, CU_MEM_ATTACH_GLOBAL));
    _Atomic uint32_t *f = (_Atomic uint32_t *)(uintptr_t)flag;
    volatile uint32_t *d = (volatile uint32_t *)(uintptr_t)data;
    /* A waiting kernel does not hold up another stream; its own stream stays in order. */
    sl_tenant_spin(&t, s1, flag, 1);
    sl_tenant_fill(&t, s1, data, 1, 1);
    sl_tenant_fill(&t, s2, data + 4, 2, 1);
    CU_OK(cuStreamSynchronize(s2));
    CHECK(d[1] == 2 && d[0] == 0);
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(s1));
    /* The legacy stream waits for blocking streams, a non-blocking one does not wait for it. */
    sl_tenant_fill(&t, NULL, data + 8, 3, 1);
    sl_tenant_fill(&t, s2, data + 12, 4, 1);
    sl_tenant_fill(&t, nb, data + 16, 5, 1);
    CU_OK(cuStreamSynchronize(nb));
    CHECK(d[4] == 5 && d[2] == 0 && d[3] == 0);
    /* An event carries order from one stream to another. */
    CUevent e;
    CU_OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    CU_OK(cuEventRecord(e, s1));
    CU_OK(cuStreamWaitEvent(nb, e, 0));
    sl_tenant_add(&t, nb, data, 10, 1);
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(nb));
    *f = 1;
    CU_OK(cuCtxSynchronize());
    CHECK(d[0] == 11 && d[2] == 3 && d[3] == 4);
    CU_OK(cuStreamDestroy_v2(s1));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(s1));
    sl_tenant_close(&t);
}

static void per_thread_streams(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr flag;
    CU_OK(cuMemAllocManaged(&flag, 4096, CU_MEM_ATTACH_GLOBAL));
    _Atomic uint32_t *f = (_Atomic uint32_t *)(uintptr_t)flag;
    CUstream nb;
    CU_OK(cuStreamCreate(&nb, CU_STREAM_NON_BLOCKING));
    unsigned long long legacy_id, thread_id, id;
    CU_OK(cuStreamGetId(NULL, &legacy_id));
    CU_OK(cuStreamGetId_ptsz(NULL, &thread_id));
    CHECK(legacy_id != thread_id);
    CU_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
    CHECK(id == thread_id);
    CU_OK(cuStreamGetId_ptsz(CU_STREAM_LEGACY, &id));
    CHECK(id == legacy_id);
    /* Work in the thread's stream: NULL means that one only in the _ptsz twin. */
    sl_tenant_spin(&t, CU_STREAM_PER_THREAD, flag, 1);
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery_ptsz(NULL));
    CU_OK(cuStreamQuery(nb));
    *f = 1;
    CU_OK(cuStreamSynchronize_ptsz(NULL));
    CU_OK(cuStreamQuery(NULL));
}

static void host_fn(void *arg)
{
    ++*(int *)arg;
}

static void callback(CUstream s, CUresult status, void *arg)
{
    (void)s;
    *(int *)arg += status == CUDA_SUCCESS ? 10 : 1000;
}

static void host_functions(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    static int count;
    CUstream s;
    CU_OK(cuStreamCreate(&s, 0));
    for (int i = 0; i < 5; i++)
        CU_OK(cuLaunchHostFunc(s, host_fn, &count));
    CU_OK(cuStreamAddCallback(s, callback, &count, 0));
    CU_OK(cuStreamSynchronize(s));
    CHECK(count == 15);
    CUdeviceptr word;
    CU_OK(cuMemAlloc_v2(&word, 8));
    CU_OK(cuMemsetD32_v2(word, 0, 2));
    CUstream w;
    CU_OK(cuStreamCreate(&w, CU_STREAM_NON_BLOCKING));
    CU_OK(cuStreamWaitValue32_v2(w, word, 5, CU_STREAM_WAIT_VALUE_GEQ));
    CU_OK(cuLaunchHostFunc(w, host_fn, &count));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(w));
    CU_OK(cuStreamWriteValue32_v2(s, word, 5, 0));
    CU_OK(cuStreamSynchronize(w));
    CHECK(count == 16);
}

static void full_queue(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr p;
    uint32_t v;
    CU_OK(cuMemAlloc_v2(&p, 4));
    CU_OK(cuMemsetD32_v2(p, 0, 1));
    for (int i = 0; i < 5000; i++)
        sl_tenant_add(&t, NULL, p, 1, 1);
    CU_OK(cuMemcpyDtoH_v2(&v, p, 4));
    CHECK(v == 5000);
}

static void proc_address(void)
{
    void *p = NULL, *q = NULL;
    CUdriverProcAddressQueryResult st;
    CU_OK(cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, &st));
    CHECK(p == (void *)(uintptr_t)cuMemAlloc_v2 && st == CU_GET_PROC_ADDRESS_SUCCESS);
    CU_OK(cuGetProcAddress_v2("cuMemAlloc", &p, 2000, 0, &st));
    CHECK(p == (void *)(uintptr_t)cuMemAlloc);
    CU_OK(cuGetProcAddress_v2("cuLaunchKernel", &p, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &st));
    CU_OK(cuGetProcAddress_v2("cuLaunchKernel", &q, 12000,
                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &st));
    CHECK(p == (void *)(uintptr_t)cuLaunchKernel && q == (void *)(uintptr_t)cuLaunchKernel_ptsz);
    CU_OK(
        cuGetProcAddress("cuMemcpyHtoD", &q, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
    CHECK(q == (void *)(uintptr_t)cuMemcpyHtoD_v2_ptds);
    CU_IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuchThing", &p, 12000, 0));
    CU_OK(cuGetProcAddress_v2("cuNoSuchThing", &p, 12000, 0, &st)); /* the status tells */
    CHECK(p == NULL && st == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CU_OK(cuGetProcAddress_v2("cuMemAllocAsync", &p, 11000, 0, &st));
    CHECK(p == NULL && st == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    /* Names with a version in them are not what is looked up. */
    CU_IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuMemAlloc_v2", &p, 12000, 0));
}

static void old_abi(void)
{
    int v;
    void *p;
    CU_OK(cuDriverGetVersion(&v));
    CHECK(v == 12020);
    CU_OK(cuInit(0));
    CU_OK(cuDriverGetVersion(&v));
    CHECK(v == 12020);
    CU_OK(cuGetProcAddress("cuCtxCreate", &p, 13000, 0));
    CHECK(p == (void *)(uintptr_t)cuCtxCreate_v3);
    CU_IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuFuncLoad", &p, 13000, 0));
}

static void nth_fails(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUdeviceptr p;
    CU_OK(cuMemAlloc_v2(&p, 1));
    CU_OK(cuMemAlloc_v2(&p, 1));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 1));
    CU_OK(cuMemAlloc_v2(&p, 1));
}

static void lost_card(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    sl_tenant_forever(&t, NULL);
    CU_IS(CUDA_ERROR_UNKNOWN, cuCtxSynchronize());
    CUdeviceptr p;
    CU_IS(CUDA_ERROR_UNKNOWN, cuMemAlloc_v2(&p, 1));
}

static void slow_card(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    CUevent a, b;
    float ms;
    CU_OK(cuEventCreate(&a, 0));
    CU_OK(cuEventCreate(&b, 0));
    sl_tenant_fma(&t, NULL, 10000000); /* so that all of it is queued behind */
    CU_OK(cuEventRecord(a, NULL));
    sl_tenant_fma(&t, NULL, 2000000);
    CU_OK(cuEventRecord(b, NULL));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuEventElapsedTime(&ms, a, b));
    CHECK(ms > 5.99f && ms < 6.01f);
}

static void forked_child(void *arg)
{
    (void)arg;
    int n;
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
}

static void after_fork(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    case_join(case_child(forked_child, NULL));
    sl_tenant_empty(&t, NULL);
    CU_OK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    static const struct cuda_case cases[] = {
        {.name = "before_init", .run = before_init},
        {.name = "memory", .run = memory},
        {.name = "copies", .run = copies},
        {.name = "kernels", .run = kernels},
        {.name = "event_times", .run = event_times},
        {.name = "events_go_with_their_context", .run = events_go_with_their_context},
        {.name = "streams", .run = streams},
        {.name = "per_thread_streams", .run = per_thread_streams},
        {.name = "host_functions", .run = host_functions},
        {.name = "full_queue", .run = full_queue},
        {.name = "proc_address", .run = proc_address},
        {.name = "old_abi", .run = old_abi, .fault = "abi=12020"},
        {.name = "nth_fails", .run = nth_fails, .fault = "cuMemAlloc_v2:3=2"},
        {.name = "lost_card", .run = lost_card, .fault = "lost:0@0.2s"},
        {.name = "slow_card", .run = slow_card, .fault = "slow:0=3x"},
        {.name = "after_fork", .run = after_fork},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
