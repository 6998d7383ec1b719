/* SPDX-License-Identifier: Apache-2.0 */
/* Channel groups that come and go while they are taken off the GPU and put back. */
#include "world.h"

#include <pthread.h>
#include <unistd.h>

#include "common/kernels_ptx.h"
#include "preload/channels.h"
#include "preload/meter.h"
#include "preload/orders.h"
#include "preload/sample.h"

#define ROUNDS 20

static void *destroy(void *context)
{
    return cuCtxDestroy_v2(context) == CUDA_SUCCESS ? context : NULL;
}

/* A kernel in the context is done within two seconds. */
static bool runs(CUcontext context)
{
    CUmodule module;
    CUfunction kernel;
    CUstream stream;
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, sluice_kernels_ptx), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&kernel, module, "sluice_empty"), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
    for (int i = 0; i < 2000 && cuStreamQuery(stream) != CUDA_SUCCESS; i++)
        usleep(1000);
    return cuStreamQuery(stream) == CUDA_SUCCESS;
}

/* While channels are put back one context ends: those of the other are put back all the same. */
static void test_one_goes_meanwhile(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        CUcontext goes, stays;
        pthread_t thread;
        void *gone;
        assert_int_equal(cuCtxCreate_v2(&goes, 0, 0), CUDA_SUCCESS);
        assert_int_equal(cuCtxCreate_v2(&stays, 0, 0), CUDA_SUCCESS);
        assert_int_equal(sl_channels_groups(), 2);
        assert_int_equal(sl_channels_set_off(true), 0);
        assert_int_equal(pthread_create(&thread, NULL, destroy, goes), 0);
        assert_int_equal(sl_channels_set_off(false), 0);
        assert_int_equal(pthread_join(thread, &gone), 0);
        assert_non_null(gone);
        assert_int_equal(sl_channels_groups(), 1);
        assert_true(runs(stays));
        assert_int_equal(cuCtxDestroy_v2(stays), CUDA_SUCCESS);
        assert_int_equal(sl_channels_groups(), 0);
    }
}

/* More contexts than a program is likely to have: none of them escapes. */
static void test_many(void **state)
{
    (void)state;
    CUcontext context[40];
    for (int i = 0; i < 40; i++)
        assert_int_equal(cuCtxCreate_v2(&context[i], 0, 0), CUDA_SUCCESS);
    assert_int_equal(sl_channels_groups(), 40);
    for (int i = 0; i < 40; i++)
        assert_int_equal(cuCtxDestroy_v2(context[i]), CUDA_SUCCESS);
    assert_int_equal(sl_channels_groups(), 0);
}

/* The end of a context in which nothing was launched does not keep the orders from the others. */
static void test_orders_after_another_ends(void **state)
{
    (void)state;
    CUcontext works, ends;
    struct sl_slot *slot = &world_ledger.slot[atomic_load(&world_process.slot)];
    assert_int_equal(cuCtxCreate_v2(&works, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxCreate_v2(&ends, 0, 0), CUDA_SUCCESS);
    sl_meter_launched(works, 1000, true);
    assert_int_equal(cuCtxDestroy_v2(ends), CUDA_SUCCESS);
    (void)sl_orders_obey(&world_process);
    assert_int_equal(atomic_load(&slot->control), SL_CONTROL_WORKS);
    assert_int_equal(cuCtxDestroy_v2(works), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_goes_meanwhile),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_orders_after_another_ends),
    };
    world_open("h200", 64 * GIB);
    world_gate(1, SL_GATE_FREE);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    world_close();
    return rc;
}
