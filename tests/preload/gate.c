/* SPDX-License-Identifier: Apache-2.0 */
/* The gate with its word in the test's hand: what is closed holds every kind of launch, what is open
 * counts it, and whatever becomes of streams and contexts, nothing stays in flight for ever. */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "common/kernels_ptx.h"
#include "preload/flight.h"
#include "preload/gate.h"
#include "preload/meter.h"
#include "preload/orders.h"
#include "preload/sample.h"

#define STREAMS 80

static CUcontext context;
static CUstream stream;
static CUfunction kernel;
static uint32_t turn = 1;

static int begin(void **state)
{
    (void)state;
    CUmodule module;
    world_restore();
    atomic_store(&world_lease.priority, SL_PRIORITY_NORMAL);
    atomic_store(&world_lease.window_ns, 4000000);
    world_gate(++turn, SL_GATE_OPEN);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, sluice_kernels_ptx), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&kernel, module, "sluice_empty"), CUDA_SUCCESS);
    assert_int_equal(cuFuncSetBlockShape(kernel, 1, 1, 1), CUDA_SUCCESS);
    return 0;
}

/* Everything submitted is seen done. */
static void drain(void)
{
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    for (int i = 0; i < 500 && !sl_flight_empty(); i++) {
        sl_flight_mark_tails();
        sl_flight_poll();
        usleep(1000);
    }
    assert_true(sl_flight_empty());
    assert_int_equal(sl_flight_ns(), 0);
}

static int end(void **state)
{
    (void)state;
    world_restore();
    drain();
    assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    return 0;
}

static struct sl_slot *slot(void)
{
    return sl_process_slot(&world_process);
}

static CUlaunchConfig config(void)
{
    return (CUlaunchConfig){.gridDimX = 1,
                            .gridDimY = 1,
                            .gridDimZ = 1,
                            .blockDimX = 1,
                            .blockDimY = 1,
                            .blockDimZ = 1,
                            .hStream = stream};
}

/* Every way to launch; `way` counts up until it returns false. */
static bool launch(int way, CUresult *ret)
{
    CUlaunchConfig c = config();
    CUDA_LAUNCH_PARAMS multi = {.function = kernel,
                                .gridDimX = 1,
                                .gridDimY = 1,
                                .gridDimZ = 1,
                                .blockDimX = 1,
                                .blockDimY = 1,
                                .blockDimZ = 1,
                                .hStream = stream};
    switch (way) {
    case 0:
        *ret = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        return true;
    case 1:
        *ret = cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        return true;
    case 2:
        *ret = cuLaunchKernelEx(&c, kernel, NULL, NULL);
        return true;
    case 3:
        *ret = cuLaunchKernelEx_ptsz(&c, kernel, NULL, NULL);
        return true;
    case 4:
        *ret = cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL);
        return true;
    case 5:
        *ret = cuLaunchCooperativeKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
        return true;
    case 6:
        *ret = cuLaunchCooperativeKernelMultiDevice(&multi, 1, 0);
        return true;
    case 7:
        *ret = cuLaunch(kernel);
        return true;
    case 8:
        *ret = cuLaunchGrid(kernel, 1, 1);
        return true;
    case 9:
        *ret = cuLaunchGridAsync(kernel, 1, 1, stream);
        return true;
    default:
        return false;
    }
}

static _Atomic bool opened;

static void *open_later(void *arg)
{
    (void)arg;
    usleep(5000);
    atomic_store(&opened, true);
    world_gate(++turn, SL_GATE_OPEN);
    return NULL;
}

static void test_closed(void **state)
{
    (void)state;
    CUresult rc;
    for (int way = 0;; way++) {
        pthread_t thread;
        uint64_t waited = atomic_load(&slot()->waited_ns),
                 launches = atomic_load(&slot()->launches);
        if (way % 2)
            atomic_store(&world_lease.priority, SL_PRIORITY_HIGH);
        world_gate(++turn, SL_GATE_CLOSED);
        atomic_store(&opened, false);
        assert_int_equal(pthread_create(&thread, NULL, open_later, NULL), 0);
        bool more = launch(way, &rc);
        if (more)
            assert_true(atomic_load(&opened)); /* not one moment before */
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (!more)
            break;
        assert_int_equal(rc, CUDA_SUCCESS);
        assert_true(atomic_load(&slot()->waited_ns) > waited);
        assert_int_equal(atomic_load(&slot()->launches), launches + 1);
        drain();
    }
}

static void test_refused_by_driver(void **state)
{
    (void)state;
    static const enum sl_symbol symbols[] = {SL_SYMBOL_cuLaunchKernel,
                                             SL_SYMBOL_cuLaunchKernel_ptsz,
                                             SL_SYMBOL_cuLaunchKernelEx,
                                             SL_SYMBOL_cuLaunchKernelEx_ptsz,
                                             SL_SYMBOL_cuLaunchCooperativeKernel,
                                             SL_SYMBOL_cuLaunchCooperativeKernel_ptsz,
                                             SL_SYMBOL_cuLaunchCooperativeKernelMultiDevice,
                                             SL_SYMBOL_cuLaunch,
                                             SL_SYMBOL_cuLaunchGrid,
                                             SL_SYMBOL_cuLaunchGridAsync};
    CUresult rc;
    for (int way = 0; launch(way, &rc); way++) {
        drain();
        world_failing(symbols[way]);
        assert_true(launch(way, &rc));
        assert_int_equal(rc, 999);
        assert_true(sl_flight_empty()); /* what did not start is not in flight */
        world_restore();
    }
}

static void test_many_streams(void **state)
{
    (void)state;
    CUstream s[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        assert_int_equal(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < STREAMS; i++)
            assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s[i], NULL, NULL),
                             CUDA_SUCCESS);
    drain();
    for (int i = 0; i < STREAMS; i++) { /* destroyed with work on it */
        assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s[i], NULL, NULL),
                         CUDA_SUCCESS);
        assert_int_equal(cuStreamDestroy_v2(s[i]), CUDA_SUCCESS);
    }
    drain();
}

static void test_batches(void **state)
{
    (void)state;
    atomic_store(&world_lease.window_ns,
                 1000000000); /* wide: markers only every so many launches */
    for (int i = 0; i < 1000; i++)
        assert_int_equal(
            cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, i & 1 ? stream : NULL, NULL, NULL),
            CUDA_SUCCESS);
    drain();
    atomic_store(&world_lease.window_ns, 1000); /* narrow: each is waited for */
    for (int i = 0; i < 50; i++)
        assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                         CUDA_SUCCESS);
    atomic_store(&world_lease.window_ns, 0); /* none given: only the gate counts */
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
}

static void test_context_gone(void **state)
{
    (void)state;
    CUcontext other;
    CUstream s;
    CUmodule module;
    CUfunction f;
    assert_int_equal(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, sluice_kernels_ptx), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&f, module, "sluice_empty"), CUDA_SUCCESS);
    atomic_store(&world_lease.window_ns, 1000000000);
    for (int i = 0; i < 30; i++)
        assert_int_equal(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), CUDA_SUCCESS);
    assert_false(sl_flight_empty());
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_true(sl_flight_empty()); /* it took its work with it */
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static struct {
    CUresult answer;
    bool asked, was_empty;
} ending;

/* What the driver finds when it is about to take a primary context apart. */
static CUresult take_apart(CUdevice device)
{
    (void)device;
    ending.asked = true;
    ending.was_empty = sl_flight_empty();
    return ending.answer;
}

static void launch_some(void)
{
    atomic_store(&world_lease.window_ns, 1000000000);
    for (int i = 0; i < 30; i++)
        assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                         CUDA_SUCCESS);
    assert_false(sl_flight_empty());
    ending.asked = false;
}

/* Before the driver ends a primary context, nobody of ours looks at its events any more; a release that
 * does not end it changes nothing. */
static void test_primary_ends(void **state)
{
    (void)state;
    static CUresult (*const end_it[])(CUdevice) = {
        cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset,
        cuDevicePrimaryCtxReset_v2};
    CUcontext again;
    for (int way = 0; way < 4; way++)
        for (int fails = 0; fails < 2; fails++) {
            WORLD_ANSWER(cuDevicePrimaryCtxRelease, take_apart);
            WORLD_ANSWER(cuDevicePrimaryCtxRelease_v2, take_apart);
            WORLD_ANSWER(cuDevicePrimaryCtxReset, take_apart);
            WORLD_ANSWER(cuDevicePrimaryCtxReset_v2, take_apart);
            ending.answer = fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
            launch_some();
            if (way < 2 && !fails) {
                assert_int_equal(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
                assert_int_equal(end_it[way](0), ending.answer);
                assert_true(ending.asked && !ending.was_empty);
            }
            assert_int_equal(end_it[way](0), ending.answer);
            assert_true(ending.asked && ending.was_empty);
            world_restore();
            /* In truth it lived on, and is used again. */
            assert_int_equal(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
            assert_ptr_equal(again, context);
            assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                             CUDA_SUCCESS);
            drain();
            assert_int_equal(end(NULL), 0);
            assert_int_equal(begin(NULL), 0);
        }
}

/* Whatever the driver does not have, or refuses, the end of all work is seen. */
static void test_marks_fail(void **state)
{
    (void)state;
    static const enum sl_symbol symbols[] = {
        SL_SYMBOL_cuEventRecord,       SL_SYMBOL_cuEventCreate,
        SL_SYMBOL_cuCtxPushCurrent_v2, SL_SYMBOL_cuCtxPopCurrent_v2,
        SL_SYMBOL_cuEventQuery,        SL_SYMBOL_cuThreadExchangeStreamCaptureMode};
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
        for (int how = 0; how < 3; how++) {
            if (how == 1)
                world_missing(symbols[i]);
            else if (how == 2)
                world_failing(symbols[i]);
            assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                             CUDA_SUCCESS);
            sl_flight_mark_tails();
            sl_flight_poll();
            world_restore();
            drain();
        }
    for (int i = 0; i < 400;
         i++) { /* more than the board has room for: then nothing is lost either */
        assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                         CUDA_SUCCESS);
        sl_flight_mark_tails();
    }
    drain();
}

static CUresult never_ready(CUevent event)
{
    (void)event;
    return CUDA_ERROR_NOT_READY;
}

/* Work that waits for a launch that stands at the gate: after a while it passes. */
static void test_stuck(void **state)
{
    (void)state;
    WORLD_ANSWER(cuEventQuery, never_ready);
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
    world_gate(++turn, SL_GATE_CLOSED);
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&world_lease.gate), SL_GATE_WORD(turn, SL_GATE_CLOSED));
    /* The same in an open turn whose window is full. */
    world_gate(++turn, SL_GATE_OPEN);
    atomic_store(&world_lease.window_ns, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                         CUDA_SUCCESS);
    assert_false(sl_flight_empty());
}

/* Without an arbiter nobody opens the gate: it counts as free after a while. */
static void test_orphan(void **state)
{
    (void)state;
    uint64_t waited = atomic_load(&slot()->waited_ns);
    world_gate(++turn, SL_GATE_CLOSED);
    assert_false(sl_process_connected());
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
    assert_true(atomic_load(&slot()->waited_ns) - waited >= 200000000);
    assert_true(sl_flight_empty());
}

static void test_captured(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    world_gate(++turn, SL_GATE_OPEN);
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
    drain();
    uint64_t launches = atomic_load(&slot()->launches);
    world_gate(++turn, SL_GATE_CLOSED); /* recording waits for nobody's turn */
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&slot()->launches), launches);
    assert_true(sl_flight_empty());
    world_gate(++turn, SL_GATE_OPEN);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&slot()->launches), launches + 1);
    assert_int_equal(cuGraphLaunch_ptsz(exec, NULL), CUDA_SUCCESS);
    /* Another stream records while ours is metered: our events keep out of it. */
    CUstream other;
    assert_int_equal(cuStreamCreate(&other, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
    sl_flight_mark_tails();
    sl_flight_poll();
    CUgraph second;
    assert_int_equal(cuStreamEndCapture(other, &second), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

static CUresult refuses(CUstream s)
{
    (void)s;
    return CUDA_ERROR_INVALID_HANDLE;
}

/* A recording is over with its stream, and with the context of its stream; not when the driver refuses that. */
static void test_recording_dies(void **state)
{
    (void)state;
    CUstream other;
    CUcontext own;
    assert_false(sl_gate_records());
    assert_int_equal(cuStreamCreate(&other, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_true(sl_gate_records());
    WORLD_ANSWER(cuStreamDestroy_v2, refuses);
    assert_int_equal(cuStreamDestroy_v2(other), CUDA_ERROR_INVALID_HANDLE);
    assert_true(sl_gate_records());
    world_restore();
    assert_int_equal(cuStreamDestroy_v2(other), CUDA_SUCCESS);
    assert_false(sl_gate_records());
    /* Two of a context, one of another: the first two go with their context. */
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&other, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    assert_int_equal(cuCtxDestroy_v2(own), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_true(sl_gate_records());
    CUgraph graph;
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_false(sl_gate_records());
    /* The default stream of a thread, by either name. */
    assert_int_equal(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    assert_true(sl_gate_records());
    assert_int_equal(cuStreamEndCapture_ptsz(NULL, &graph), CUDA_SUCCESS);
    assert_false(sl_gate_records());
}

/* A stream that is held for a sample goes on in time, although no thread looks at the GPU: another stream records. */
static void test_held_while_recording(void **state)
{
    (void)state;
    struct sl_launch l = {.key = 1, .stream = stream, .context = context};
    atomic_store(&world_lease.meter, 1);
    sl_sample_begin(&l, true);
    assert_non_null(l.sample);
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    for (int i = 0; i < 100 && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY; i++) {
        usleep(1000);
        sl_sample_let_go_late();
    }
    CUresult went_on = cuStreamQuery(stream);
    sl_sample_end(&l, true);
    assert_int_equal(went_on, CUDA_SUCCESS);
    atomic_store(&world_lease.meter, 0);
}

static void *own_stream(void *arg)
{
    (void)arg;
    bool ok = cuCtxSetCurrent(context) == CUDA_SUCCESS;
    for (int i = 0; i < 20 && ok; i++)
        ok = cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS;
    return ok ? arg : NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, own_stream, &turn), 0);
    for (int i = 0; i < 4; i++) {
        void *ok = NULL;
        assert_int_equal(pthread_join(thread[i], &ok), 0);
        assert_non_null(ok);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(test_closed),         CASE(test_refused_by_driver),
        CASE(test_many_streams),   CASE(test_batches),
        CASE(test_context_gone),   CASE(test_marks_fail),
        CASE(test_stuck),          CASE(test_orphan),
        CASE(test_captured),       CASE(test_threads),
        CASE(test_primary_ends),   CASE(test_held_while_recording),
        CASE(test_recording_dies),
    };
    world_open("h200", GIB);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    world_close();
    return rc;
}
