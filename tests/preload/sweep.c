/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep PATH…: one program that calls every hook, run again and again: with each driver symbol missing,
 * with each one failing, with host memory running out at the n-th request, without a tenant, refused,
 * without any memory left. Nothing crashes, every answer is one CUDA has, and when the driver is whole
 * again and everything is given back, the books are empty.
 */
#include "world.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/kernels_ptx.h"
#include "integration/memory_paths.h"
#include "preload/pool.h"

#define MAX_PATHS 64

static struct taken {
    const struct memory_path *path;
    struct piece piece[2];
    bool held[2];
} taken[MAX_PATHS];
static int path_count;
static CUcontext context;
static CUfunction kernel;
static CUgraphExec execs[16];
static int exec_count;
static unsigned int answers_800, answers_801, answers_2, answers_ok, answers_other;

static bool note(CUresult rc)
{
    answers_ok += rc == CUDA_SUCCESS;
    answers_2 += rc == CUDA_ERROR_OUT_OF_MEMORY;
    answers_800 += rc == CUDA_ERROR_NOT_PERMITTED;
    answers_801 += rc == CUDA_ERROR_NOT_SUPPORTED;
    answers_other += rc != CUDA_SUCCESS && rc != CUDA_ERROR_OUT_OF_MEMORY &&
                     rc != CUDA_ERROR_NOT_PERMITTED && rc != CUDA_ERROR_NOT_SUPPORTED;
    return rc == CUDA_SUCCESS;
}

static void contexts(void)
{
    CUresult (*const destroy[])(CUcontext) = {cuCtxDestroy, cuCtxDetach, cuCtxDestroy_v2,
                                              cuCtxDestroy_v2};
    CUcontext c[6] = {NULL};
    (void)note(cuCtxCreate(&c[0], 0, 0));
    (void)note(cuCtxCreate_v2(&c[1], 0, 0));
    (void)note(cuCtxCreate_v3(&c[2], NULL, 0, 0, 0));
    (void)note(cuCtxCreate_v4(&c[3], NULL, 0, 0));
    for (int i = 3; i >= 0; i--)
        if (c[i] && !note(destroy[i](c[i])))
            (void)(i >= 2 ? cuCtxDestroy : cuCtxDestroy_v2)(c[i]);
    (void)note(cuDevicePrimaryCtxRetain(&context, 0));
    (void)note(cuDevicePrimaryCtxRetain(&c[4], 0));
    (void)note(cuDevicePrimaryCtxRelease(0));
    (void)note(cuDevicePrimaryCtxRetain(&c[4], 0));
    (void)note(cuDevicePrimaryCtxRelease_v2(0));
    (void)note(cuDevicePrimaryCtxRetain(&c[5], 1));
    (void)cuCtxSetCurrent(context);
}

static void take_all(void)
{
    for (int i = 0; i < path_count; i++)
        for (int k = 0; k < 2; k++) {
            memset(&taken[i].piece[k], 0, sizeof(taken[i].piece[k]));
            taken[i].held[k] = note(taken[i].path->take(&taken[i].piece[k]));
        }
}

static void give_all(void)
{
    for (int i = 0; i < path_count; i++)
        for (int k = 0; k < 2; k++)
            if (taken[i].held[k] && note(taken[i].path->give(&taken[i].piece[k])))
                taken[i].held[k] = false;
}

static void odd_arguments(void)
{
    CUarray array;
    CUmipmappedArray mipmap;
    CUexternalMemory external = NULL;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUDA_ARRAY3D_DESCRIPTOR sparse = {.Width = 64, .Flags = 0x40, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR huge = {SIZE_MAX, SIZE_MAX, SIZE_MAX, CU_AD_FORMAT_FLOAT, 4, 1};
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc;
    CUdeviceptr p = 0;
    size_t pitch;
    (void)note(cuArrayCreate(&array, NULL));
    (void)note(cuArrayCreate_v2(&array, NULL));
    (void)note(cuArray3DCreate(&array, NULL));
    (void)note(cuArray3DCreate_v2(&array, NULL));
    if (note(cuArray3DCreate_v2(&array, &sparse)))
        (void)note(cuArrayDestroy(array));
    (void)note(cuArray3DCreate_v2(&array, &huge));
    (void)note(cuMipmappedArrayCreate(&mipmap, NULL, 1));
    (void)note(cuMipmappedArrayCreate(&mipmap, &huge, 40));
    (void)note(cuArrayDestroy(NULL));
    (void)note(cuMipmappedArrayDestroy(NULL));
    (void)note(cuImportExternalMemory(&external, NULL));
    memset(&desc, 0, sizeof(desc));
    desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    desc.size = MIB;
    desc.handle.fd = memfd_create("external", MFD_CLOEXEC);
    (void)!ftruncate(desc.handle.fd, (off_t)MIB);
    if (note(cuImportExternalMemory(&external, &desc))) {
        if (!note(cuDestroyExternalMemory(external)))
            (void)note(cuDestroyExternalMemory(external));
    } else {
        (void)close(desc.handle.fd);
    }
    (void)note(cuDestroyExternalMemory(NULL));
    (void)note(cuMemCreate(&handle, MIB, NULL, 0));
    (void)note(cuMemCreate(&handle, 2 * MIB, &host, 0));
    (void)note(cuMemRelease(0));
    (void)note(cuMemMap(0x1000, 4096, 0, 0, 0));
    (void)note(cuMemUnmap(0x1000, 4096));
    (void)note(cuMemRetainAllocationHandle(&handle, (void *)0x1000));
    (void)note(cuMemFree_v2(0x123));
    (void)note(cuMemFree(0x123));
    (void)note(cuMemAllocPitch_v2(&p, &pitch, SIZE_MAX, SIZE_MAX, 4));
    (void)note(cuMemAlloc_v2(&p, SIZE_MAX));
    (void)note(cuMemAllocManaged(&p, 512 * GIB, CU_MEM_ATTACH_GLOBAL));
    (void)note(cuMemFreeAsync(0x123, path_stream));
    (void)note(cuMemFreeAsync_ptsz(0x123, NULL));
    if (note(cuMemAlloc_v2(&p, MIB)) && !note(cuMemFreeAsync(p, path_stream)))
        (void)note(cuMemFree_v2(p));
    (void)note(cuDevicePrimaryCtxRetain(NULL, 99));
    (void)note(cuCtxDetach(NULL));
    (void)note(cuCtxDestroy_v2(NULL));
}

static void pools(void)
{
    CUmemoryPool pool = NULL, imported = NULL;
    CUmemPoolProps props;
    CUdeviceptr p = 0;
    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int fd = -1;
    if (note(cuMemPoolCreate(&pool, &props))) {
        if (cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0) == CUDA_SUCCESS)
            (void)note(cuMemPoolImportFromShareableHandle(
                &imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        if (note(cuMemAllocFromPoolAsync(&p, MIB, pool, path_stream))) {
            (void)note(cuMemPoolTrimTo(pool, 0));
            if (!note(cuMemPoolDestroy(pool)))
                (void)note(cuMemPoolDestroy(pool));
            if (!note(cuMemFreeAsync(p, path_stream)))
                (void)note(cuMemFreeAsync_ptsz(p, path_stream));
        } else {
            (void)note(cuMemPoolDestroy(pool));
        }
    }
    if (imported) {
        (void)note(cuMemAllocFromPoolAsync(&p, MIB, imported, path_stream));
        (void)cuMemPoolDestroy(imported);
    }
    if (fd >= 0)
        (void)close(fd);
    (void)note(cuMemAllocFromPoolAsync_ptsz(&p, MIB, NULL, NULL));
    props.location.type = CU_MEM_LOCATION_TYPE_HOST;
    if (cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS)
        (void)cuMemPoolDestroy(pool);
    (void)note(cuMemPoolTrimTo(NULL, 0));
    (void)note(cuMemPoolDestroy(NULL));
    (void)note(cuCtxSynchronize());
    (void)note(cuStreamSynchronize(path_stream));
    (void)note(cuStreamSynchronize_ptsz(NULL));
}

static CUgraph memory_graph(void)
{
    CUgraph inner = NULL, outer = NULL;
    CUgraphNode alloc, release, child;
    CUDA_MEM_ALLOC_NODE_PARAMS a;
    memset(&a, 0, sizeof(a));
    a.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    a.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    a.bytesize = 2 * MIB;
    if (cuGraphCreate(&inner, 0) != CUDA_SUCCESS)
        return NULL;
    if (note(cuGraphAddMemAllocNode(&alloc, inner, NULL, 0, &a)))
        (void)cuGraphAddMemFreeNode(&release, inner, &alloc, 1, a.dptr);
    CUgraphNodeParams empty;
    memset(&empty, 0, sizeof(empty));
    empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
    (void)note(cuGraphAddNode(&child, inner, NULL, 0, &empty));
    (void)note(cuGraphAddNode_v2(&child, inner, NULL, NULL, 0, &empty));
    (void)note(cuGraphAddNode(&child, inner, NULL, 0, NULL));
    (void)note(cuGraphAddNode_v2(&child, inner, NULL, NULL, 0, NULL));
    if (cuGraphCreate(&outer, 0) == CUDA_SUCCESS)
        (void)cuGraphAddChildGraphNode(&child, outer, NULL, 0, inner);
    if (outer)
        (void)cuGraphDestroy(outer);
    return inner;
}

static void graphs(void)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    CUgraph graph = memory_graph();
    CUgraphExec e[5] = {NULL};
    char log[64];
    memset(&params, 0, sizeof(params));
    (void)note(cuGraphInstantiate(&e[0], graph, NULL, log, sizeof(log)));
    (void)note(cuGraphInstantiate_v2(&e[1], graph, NULL, log, sizeof(log)));
    (void)note(cuGraphInstantiateWithFlags(&e[2], graph, 0));
    (void)note(cuGraphInstantiateWithParams(&e[3], graph, &params));
    (void)note(cuGraphInstantiateWithParams_ptsz(&e[4], graph, &params));
    for (int i = 0; i < 5; i++) {
        if (!e[i])
            continue;
        (void)note(i & 1 ? cuGraphUpload(e[i], path_stream)
                         : cuGraphUpload_ptsz(e[i], path_stream));
        (void)note(i & 1 ? cuGraphLaunch(e[i], path_stream)
                         : cuGraphLaunch_ptsz(e[i], path_stream));
        (void)note(i & 1 ? cuGraphLaunch(e[i], NULL) : cuGraphLaunch_ptsz(e[i], NULL));
        (void)note(cuCtxSynchronize());
        if (!note(cuGraphExecDestroy(e[i])) && exec_count < 16)
            execs[exec_count++] = e[i];
    }
    if (graph)
        (void)cuGraphDestroy(graph);
    (void)note(cuDeviceGraphMemTrim(0));
}

static void launches(void)
{
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = path_stream};
    CUDA_LAUNCH_PARAMS multi = {.function = kernel,
                                .gridDimX = 1,
                                .gridDimY = 1,
                                .gridDimZ = 1,
                                .blockDimX = 1,
                                .blockDimY = 1,
                                .blockDimZ = 1,
                                .hStream = path_stream};
    (void)note(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, path_stream, NULL, NULL));
    (void)note(cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    (void)note(cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, path_stream, NULL, NULL));
    (void)note(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    (void)note(cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, path_stream, NULL));
    (void)note(cuLaunchCooperativeKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    (void)note(cuLaunchKernelEx(&config, kernel, NULL, NULL));
    (void)note(cuLaunchKernelEx_ptsz(&config, kernel, NULL, NULL));
    (void)note(cuLaunchKernelEx(NULL, kernel, NULL, NULL));
    (void)note(cuLaunchKernelEx_ptsz(NULL, kernel, NULL, NULL));
    (void)note(cuLaunchCooperativeKernelMultiDevice(&multi, 1, 0));
    (void)note(cuLaunchCooperativeKernelMultiDevice(NULL, 1, 0));
    (void)note(cuLaunchCooperativeKernelMultiDevice(&multi, 0, 0));
    if (kernel)
        (void)cuFuncSetBlockShape(kernel, 1, 1, 1);
    (void)note(cuLaunch(kernel));
    (void)note(cuLaunchGrid(kernel, 1, 1));
    (void)note(cuLaunchGridAsync(kernel, 1, 1, path_stream));
    (void)note(cuCtxSynchronize());
}

static void views(void)
{
    size_t a, b;
    unsigned int c, d;
    (void)note(cuMemGetInfo_v2(&a, &b));
    (void)note(cuMemGetInfo_v2(NULL, NULL));
    (void)note(cuMemGetInfo(&c, &d));
    (void)note(cuMemGetInfo(NULL, NULL));
    (void)note(cuDeviceTotalMem_v2(&a, 0));
    (void)note(cuDeviceTotalMem_v2(NULL, 0));
    (void)note(cuDeviceTotalMem(&c, 0));
    (void)note(cuDeviceTotalMem(NULL, 0));
    (void)note(cuDeviceTotalMem_v2(&a, 1));
}

static void program(void)
{
    contexts();
    take_all();
    views();
    launches();
    give_all();
    pools();
    graphs();
    odd_arguments();
    CUstream s = NULL;
    if (cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        (void)note(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
        if (!note(cuStreamDestroy(s)))
            (void)note(cuStreamDestroy_v2(s));
    }
    CUevent event = NULL;
    if (cuEventCreate(&event, 0) == CUDA_SUCCESS) {
        (void)note(cuEventSynchronize(event));
        (void)cuEventDestroy_v2(event);
    }
}

/* What this process holds on the card beside its primary context, by the driver's own count. */
static uint64_t driver_holds(void)
{
    static size_t free_at_first;
    size_t free_now = 0, total = 0;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(SL_REAL(cuMemGetInfo_v2)(&free_now, &total), CUDA_SUCCESS);
    if (!free_at_first)
        free_at_first = free_now;
    return free_at_first - free_now;
}

/* The driver is whole again: what could be given back is, and the books say what it still has. */
static void check_clean(const char *when)
{
    CUmemoryPool pool;
    CUgraph unfinished;
    world_restore();
    (void)nth_malloc_set(0);
    world_process.mode = SL_MODE_TENANT;
    world_limit(64 * GIB);
    (void)cuDevicePrimaryCtxRetain(&context, 0);
    (void)cuCtxSetCurrent(context);
    /* A driver that could not end a recording goes on with it, and refuses much meanwhile. */
    if (cuStreamEndCapture(path_stream, &unfinished) == CUDA_SUCCESS)
        (void)cuGraphDestroy(unfinished);
    give_all();
    for (int i = 0; i < exec_count; i++)
        (void)cuGraphExecDestroy(execs[i]);
    exec_count = 0;
    (void)cuCtxSynchronize();
    if (path_pool)
        (void)cuMemPoolDestroy(path_pool);
    path_pool = NULL;
    if (cuDeviceGetMemPool(&pool, 0) == CUDA_SUCCESS)
        (void)cuMemPoolTrimTo(pool, 0);
    (void)cuDeviceGraphMemTrim(0);
    (void)cuCtxSynchronize();
    (void)cuDevicePrimaryCtxReset_v2(0);
    uint64_t held = driver_holds();
    if (world_used_bytes() != held)
        fail_msg("%s: %lu bytes are on the books, %lu are held", when, world_used_bytes(), held);
    (void)cuDevicePrimaryCtxReset(0);
    (void)cuDevicePrimaryCtxRelease_v2(0);
}

static void begin_program(void)
{
    CUmodule module;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&path_stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, sluice_kernels_ptx), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&kernel, module, "sluice_empty"), CUDA_SUCCESS);
    answers_ok = answers_2 = answers_800 = answers_801 = answers_other = 0;
}

static void test_whole(void **state)
{
    (void)state;
    begin_program();
    program();
    assert_true(answers_ok > 100);
    assert_int_equal(answers_800, 0);
    check_clean("nothing failed");
}

static void test_missing(void **state)
{
    (void)state;
    for (int s = 0; s < SL_SYMBOL_COUNT; s++) {
        begin_program();
        world_missing((enum sl_symbol)s);
        program();
        assert_true(answers_ok > 10);
        check_clean(world_name((enum sl_symbol)s));
    }
}

static void test_failing(void **state)
{
    (void)state;
    for (int s = 0; s < SL_SYMBOL_COUNT; s++) {
        begin_program();
        world_failing((enum sl_symbol)s);
        program();
        assert_true(answers_ok > 10);
        check_clean(world_name((enum sl_symbol)s));
    }
}

static void test_no_host_memory(void **state)
{
    (void)state;
    char when[64];
    begin_program();
    (void)nth_malloc_set(0);
    program();
    unsigned long total = nth_malloc_set(0);
    check_clean("counting");
    assert_true(total > 10);
    for (unsigned long n = 1; n <= total; n++) {
        begin_program();
        (void)nth_malloc_set(n);
        program();
        (void)snprintf(when, sizeof(when), "host memory request %lu", n);
        check_clean(when);
    }
}

static void test_other_modes(void **state)
{
    (void)state;
    uint64_t before = world_used_bytes();
    begin_program();
    world_process.mode = SL_MODE_NONE;
    program();
    assert_int_equal(answers_800, 0);
    assert_int_equal(world_used_bytes(), before);
    check_clean("no tenant");
    begin_program();
    world_process.mode = SL_MODE_REFUSED;
    sl_gate_forget();
    program();
    assert_true(answers_800 > 80);
    assert_int_equal(world_used_bytes(), before);
    check_clean("refused");
}

static void test_no_memory(void **state)
{
    (void)state;
    static const uint64_t limits[] = {0, 1, MIB, 3 * MIB, 33 * MIB, SL_NO_LIMIT};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        begin_program();
        world_limit(limits[i]);
        program();
        if (limits[i] < MIB)
            assert_true(answers_2 > 20);
        check_clean("little memory");
    }
}

/* Does the hook submit work, record a graph, or make or end a context? */
static bool is_about_launches(const char *name)
{
    static const char *const stems[] = {
        "cuLaunch",    "cuStreamDestroy",   "cuStreamBeginCapture", "cuStreamEndCapture",
        "cuMemcpy",    "cuMemset",          "cuCtxCreate",          "cuCtxDestroy",
        "cuCtxDetach", "cuDevicePrimaryCtx"};
    for (size_t i = 0; i < sizeof(stems) / sizeof(stems[0]); i++)
        if (strncmp(name, stems[i], strlen(stems[i])) == 0)
            return true;
    return false;
}

/* Metered: no launch is lost, and when all is done nothing is in flight. */
static void test_metered(void **state)
{
    (void)state;
    begin_program();
    sl_gate_forget();
    world_gate(1, SL_GATE_OPEN);
    for (int i = 0; i < 40; i++)
        launches();
    program();
    check_clean("metered");
    for (int s = 0; s < SL_SYMBOL_COUNT; s++) {
        if (s < SL_HOOK_COUNT && !is_about_launches(sl_hooks[s].name))
            continue;
        for (int how = 0; how < 2; how++) {
            begin_program();
            if (how)
                world_failing((enum sl_symbol)s);
            else
                world_missing((enum sl_symbol)s);
            launches();
            graphs();
            check_clean(world_name((enum sl_symbol)s));
        }
    }
    world_gate(2, SL_GATE_FREE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),       cmocka_unit_test(test_missing),
        cmocka_unit_test(test_failing),     cmocka_unit_test(test_no_host_memory),
        cmocka_unit_test(test_other_modes), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_metered),
    };
    for (int i = 1; i < argc && path_count < MAX_PATHS; i++) {
        taken[path_count].path = memory_path_find(argv[i]);
        path_count += taken[path_count].path != NULL;
    }
    (void)test_api_load("direct");
    world_open("h200x2", 64 * GIB);
    (void)driver_holds();
    (void)cuDevicePrimaryCtxReset_v2(0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    world_close();
    return rc;
}
