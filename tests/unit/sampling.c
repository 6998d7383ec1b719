/* SPDX-License-Identifier: Apache-2.0 */
/* What is learned from measured launches: kernels of a microsecond, disturbed samples, kernels that vary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "policy/cost.h"
#include "policy/sampling.h"

#define US  1000ULL
#define MS  1000000ULL
#define KEY 77U

static struct sl_cost cost;
static struct sl_sampling sampling;

static int setup(void **state)
{
    (void)state;
    cost = (struct sl_cost){0};
    sampling = (struct sl_sampling){0};
    return 0;
}

static uint64_t known(void)
{
    struct sl_cost_guess g = sl_cost_peek(&cost, KEY);
    assert_true(g.known);
    return g.ns;
}

static void learn(uint64_t ns, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        sl_sampling_learn(&sampling, &cost, KEY, ns, true);
}

/* A memset takes 1.5 us here, and sampling it 4 us more. */
static void calibrate(void)
{
    for (uint32_t i = 0; i < 8; i++) {
        sl_sampling_own(&sampling, 1, 5500);
        sl_sampling_own(&sampling, SL_SAMPLING_MANY, 4000 + 1500 * SL_SAMPLING_MANY);
    }
}

static void the_overhead_is_taken_off(void **state)
{
    (void)state;
    calibrate();
    assert_in_range(sampling.added_ns, 3990, 4010);
    learn(2 * US + 4 * US, 8);
    assert_in_range(known(), 1950, 2050);
    assert_in_range(sampling.mean_ns, 1950, 2050);
}

static void interrupted_memsets_do_not_count(void **state)
{
    (void)state;
    calibrate();
    sl_sampling_own(&sampling, 1, 330 * US);
    sl_sampling_own(&sampling, SL_SAMPLING_MANY, 2400 * US);
    sl_sampling_own(&sampling, 1, 60 * US);
    assert_in_range(sampling.added_ns, 3990, 4010);
}

/* The first samples were disturbed, the later ones show it. */
static void a_disturbed_beginning_is_forgotten(void **state)
{
    (void)state;
    sl_sampling_own(&sampling, 1, 19 * US);
    sl_sampling_own(&sampling, SL_SAMPLING_MANY, 90 * US);
    calibrate();
    assert_in_range(sampling.added_ns, 3900, 4100);
}

static void a_sample_shorter_than_its_overhead_leaves_a_rest(void **state)
{
    (void)state;
    calibrate();
    learn(3 * US, 4);
    assert_in_range(known(), 1, 1000);
}

/* Another process's slice falls into one sample of twenty. */
static void rare_interruptions_are_left_out(void **state)
{
    (void)state;
    calibrate();
    learn(104 * US, 8);
    for (uint32_t i = 0; i < 20; i++) {
        learn(104 * US + 2368 * US, 1);
        learn(104 * US, 19);
    }
    assert_in_range(known(), 99 * US, 101 * US);
}

/* Half of the launches of one function are long, by their data: then the length is between the two. */
static void kernels_that_vary_are_believed(void **state)
{
    (void)state;
    calibrate();
    learn(104 * US, 8);
    for (uint32_t i = 0; i < 200; i++) {
        learn(1004 * US, 1);
        learn(104 * US, 1);
    }
    assert_in_range(known(), 350 * US, 750 * US);
}

/* Without a held stream, the program's own pace is part of a sample: it is an upper limit, until a real one comes. */
static void a_sample_that_was_not_held_is_a_limit(void **state)
{
    (void)state;
    calibrate();
    sl_sampling_learn(&sampling, &cost, KEY, 9 * MS, false);
    assert_in_range(known(), 8 * MS, 9 * MS);
    assert_int_equal(sampling.mean_ns, 0);
    learn(104 * US, 4);
    assert_in_range(known(), 95 * US, 110 * US);
}

/* … but a kernel of half a second is long whatever came between. */
static void a_long_kernel_needs_no_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        sl_sampling_learn(&sampling, &cost, KEY, 500 * MS, false);
    assert_in_range(known(), 495 * MS, 500 * MS);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        T(the_overhead_is_taken_off),
        T(interrupted_memsets_do_not_count),
        T(a_disturbed_beginning_is_forgotten),
        T(a_sample_shorter_than_its_overhead_leaves_a_rest),
        T(rare_interruptions_are_left_out),
        T(kernels_that_vary_are_believed),
        T(a_sample_that_was_not_held_is_a_limit),
        T(a_long_kernel_needs_no_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
