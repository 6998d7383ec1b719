/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the GPU has come is told by stamps, which the launching thread writes: our own thread calls the driver rarely
 * while the program launches. Whatever a stamp cannot tell (another stream, a refusal, a broken context, a thread that
 * never writes it), events tell.
 */
#include "world.h"

#include <stdatomic.h>
#include <unistd.h>

#include "common/kernels_ptx.h"
#include "policy/times.h"
#include "preload/gate.h"
#include "preload/meter.h"
#include "preload/stamps.h"

#define LOOKS 160U

static CUcontext context;
static CUstream stream, other;
static CUfunction kernel;
static uint32_t turn = 1;
static _Atomic uint32_t *hold; /* words that hold the two streams */
static CUdeviceptr hold_at;
static uint32_t records, stamps;

static CUresult counted_record(CUcontext c, CUevent event)
{
    records++;
    return cuCtxRecordEvent(c, event);
}

static CUresult counted_stamp(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
    stamps++;
    return cuStreamWriteValue32_v2(s, at, value, flags);
}

static void gate(enum sl_gate state)
{
    world_gate(++turn, state);
}

static void launch(CUstream s)
{
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), CUDA_SUCCESS);
}

/* Is work queued, as far as the marks tell? */
static bool look(void)
{
    (void)sl_gate_look(&world_process);
    return sl_meter_pending();
}

/* A step of a program: a launch that is done when the look comes. */
static void step(void)
{
    launch(stream);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_false(look());
}

static void let_go(int word)
{
    atomic_store(&hold[word], 1);
}

static void hold_back(CUstream s, int word)
{
    atomic_store(&hold[word], 0);
    assert_int_equal(
        cuStreamWaitValue32_v2(s, hold_at + 4U * (unsigned)word, 1, CU_STREAM_WAIT_VALUE_EQ),
        CUDA_SUCCESS);
}

static void make_context(void)
{
    CUmodule module;
    void *words;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, sluice_kernels_ptx), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&kernel, module, "sluice_empty"), CUDA_SUCCESS);
    assert_int_equal(cuMemHostAlloc(&words, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    assert_int_equal(cuMemHostGetDevicePointer_v2(&hold_at, words, 0), CUDA_SUCCESS);
    hold = words;
}

/* The first launches are sampled, and the first mark is one of all streams. */
static void warm_up(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        launch(stream);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        (void)look();
    }
    records = stamps = 0;
}

static int begin(void **state)
{
    (void)state;
    world_restore();
    WORLD_ANSWER(cuCtxRecordEvent, counted_record);
    WORLD_ANSWER(cuStreamWriteValue32_v2, counted_stamp);
    atomic_store(&world_lease.meter, 1);
    gate(SL_GATE_METER);
    make_context();
    warm_up();
    return 0;
}

/* Whatever happened, it is seen in the end that all is done. */
static int end(void **state)
{
    (void)state;
    world_restore();
    let_go(0);
    let_go(1);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    bool pending = true;
    for (uint32_t i = 0; i < 100 && pending; i++) {
        usleep(1000);
        pending = look();
    }
    assert_false(pending);
    assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    atomic_store(&world_lease.meter, 0);
    return 0;
}

/* Behind a limit and behind a free gate: one record of a whole context in sixteen looks, where each look had one. */
static void test_steady_launches(void **state)
{
    (void)state;
    static const enum sl_gate states[] = {SL_GATE_METER, SL_GATE_FREE};
    for (int k = 0; k < 2; k++) {
        gate(states[k]);
        warm_up();
        for (uint32_t i = 0; i < LOOKS; i++) {
            for (uint32_t n = 0; n < 5; n++)
                launch(stream);
            assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
            assert_false(look());
        }
        assert_in_range(records, 1, LOOKS / SL_METER_ALL_LOOKS + 1);
        assert_in_range(stamps, LOOKS - records - 2, LOOKS);
    }
}

/* A program that launches and then waits is seen as busy at the next look but one, and idle when it is. */
static void test_launch_and_wait(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        hold_back(stream, 0);
        launch(stream);
        (void)look();
        assert_true(look());
        assert_true(look());
        let_go(0);
        assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_false(look());
    }
}

/* A queue that is never empty is seen as busy at each look, and what is done is seen to become more. */
static void test_deep_queue(void **state)
{
    (void)state;
    hold_back(stream, 0);
    launch(stream);
    (void)look();
    for (uint32_t i = 0; i < 100; i++) {
        launch(stream);
        if (i > 0)
            assert_true(look());
    }
    let_go(0);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_false(look());
}

/* Under a limit what is done is charged: several streams are marked by events, each time. */
static void test_streams_under_a_limit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < LOOKS; i++) {
        launch(stream);
        launch(other);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        (void)look();
    }
    assert_in_range(stamps, 0, 1); /* one was asked for before */
    assert_in_range(records, LOOKS - 1, LOOKS);
    launch(stream); /* one stream again: the next mark is the last one of all */
    for (uint32_t i = 0; i < 2 * SL_METER_ALL_LOOKS; i++) {
        launch(stream);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        (void)look();
    }
    assert_true(stamps > SL_METER_ALL_LOOKS);
}

/* Without a limit the stamps may all be of a stream that is done, while another one has work: events show that. */
static void test_another_stream_is_busy(void **state)
{
    (void)state;
    gate(SL_GATE_FREE);
    warm_up();
    hold_back(other, 1);
    launch(other);
    bool seen = false;
    for (uint32_t i = 0; i < LOOKS; i++) {
        launch(stream);
        assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
        bool busy = look();
        seen |= busy;
        assert_int_equal(busy, seen); /* once seen, it stays */
        if (i > SL_METER_ALL_LOOKS + 1)
            assert_true(busy);
    }
    let_go(1);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    launch(stream);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    (void)look();
    assert_false(look());
}

/* A driver without such writes, or one that refuses them, is asked no more, and events do it all. */
static void test_refused(void **state)
{
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        if (missing)
            world_missing(SL_SYMBOL_cuStreamWriteValue32_v2);
        else
            world_failing(SL_SYMBOL_cuStreamWriteValue32_v2);
        records = 0;
        for (uint32_t i = 0; i < LOOKS; i++)
            step();
        assert_true(records > LOOKS - 8);
        records = 0;
        hold_back(stream, 0);
        launch(stream);
        (void)look();
        assert_true(look());
        let_go(0);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        assert_false(look());
    }
}

/* In a broken context nothing runs any more: stamps that were not written do not keep it busy. */
static void test_broken_context(void **state)
{
    (void)state;
    launch(stream);
    (void)look(); /* asks */
    hold_back(stream, 0);
    launch(stream);
    assert_true(stamps > 0);
    assert_true(look());
    world_failing(SL_SYMBOL_cuCtxRecordEvent);
    world_failing(SL_SYMBOL_cuEventQuery);
    world_failing(SL_SYMBOL_cuStreamWriteValue32_v2);
    bool busy = true;
    for (uint32_t i = 0; i < 2 * SL_METER_ALL_LOOKS && busy; i++)
        busy = look();
    assert_false(busy);
}

/* A context that ends with a stamp asked for, taken or not written. */
static void test_context_ends(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        launch(stream);
        (void)look(); /* asks */
        bool taken = how == 1 && sl_stamps_take(context);
        assert_int_equal(taken, how == 1);
        if (how == 2) {
            hold_back(stream, 0);
            launch(stream);
            assert_true(look());
            let_go(0);
        }
        assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        if (taken)
            sl_stamps_write(context, stream); /* too late: the words are gone */
        (void)look();
        assert_false(look());
        make_context();
        warm_up();
        for (uint32_t i = 0; i < 8; i++)
            step();
        assert_true(stamps > 0);
    }
}

/* A thread took the request and hangs. Its process counts as busy for a moment; then events do it all, until the stamp
 * comes after all. */
static void test_thread_hangs(void **state)
{
    (void)state;
    launch(stream);
    (void)look();
    assert_true(sl_stamps_take(context));
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_true(look());
    for (uint32_t i = 0; i < SL_METER_LATE_LOOKS; i++)
        (void)look();
    records = stamps = 0;
    for (uint32_t i = 0; i < 100; i++)
        step();
    assert_int_equal(stamps, 0);
    assert_in_range(records, 99, 100);
    sl_stamps_write(context, stream);
    for (uint32_t i = 0; i < 100; i++)
        step();
    assert_true(stamps > 80);
}

/* Launches, holds and looks in any order: a stream that stands still is never taken for done for long, and in the end
 * nothing is queued (end()). */
static void test_any_order(void **state)
{
    (void)state;
    CUstream streams[2] = {stream, other};
    bool held[2] = {false, false};
    uint32_t since = 0;
    uint64_t x = 88172645463325252ULL;
    for (uint32_t i = 0; i < 4000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        int s = x >> 8 & 1;
        if (x % 7 == 0) {
            if (held[s])
                let_go(s);
            else
                hold_back(streams[s], s);
            held[s] = !held[s];
            launch(streams[s]);
            since = 0;
        } else if (x % 7 < 4) {
            launch(streams[s]);
        }
        if (x % 501 == 0)
            gate(x >> 9 & 1 ? SL_GATE_FREE : SL_GATE_METER);
        bool busy = look();
        since = held[0] || held[1] ? since + 1 : 0;
        if (since > 2 * SL_METER_ALL_LOOKS)
            assert_true(busy);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(test_steady_launches),
        CASE(test_launch_and_wait),
        CASE(test_deep_queue),
        CASE(test_streams_under_a_limit),
        CASE(test_another_stream_is_busy),
        CASE(test_refused),
        CASE(test_broken_context),
        CASE(test_context_ends),
        CASE(test_thread_hangs),
        CASE(test_any_order),
    };
    world_open("h200", GIB);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    world_close();
    return rc;
}
