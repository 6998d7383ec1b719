/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a launch: what is learnt, what is sampled, what is thrown away. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/cost.h"

#define US 1000ULL
#define MS 1000000ULL

static struct sl_cost *cost;

static int setup(void **state)
{
    (void)state;
    cost = calloc(1, sizeof(*cost));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(cost);
    return 0;
}

static uint64_t key_of(uintptr_t function, uint32_t grid)
{
    const uint32_t g[3] = {grid, 1, 1}, b[3] = {256, 1, 1};
    return sl_cost_key((const void *)function, g, b, 0);
}

/* Launches n times; every sample comes back at once. Returns how many there were. */
static unsigned launch(uint64_t key, unsigned n, uint64_t ns)
{
    unsigned samples = 0;
    for (unsigned i = 0; i < n; i++) {
        if (sl_cost_launch(cost, key).sample) {
            samples++;
            sl_cost_learn(cost, key, ns);
        }
    }
    return samples;
}

static void keys_differ_by_every_part(void **state)
{
    (void)state;
    uint64_t keys[16];
    unsigned n = 0;
    const uint32_t one[3] = {1, 1, 1};
    const void *f = (const void *)0x1000, *f2 = (const void *)0x1040;
    keys[n++] = sl_cost_key(f, one, one, 0);
    keys[n++] = sl_cost_key(f2, one, one, 0);
    keys[n++] = sl_cost_key(f, one, one, 64);
    for (unsigned i = 0; i < 3; i++) {
        uint32_t shape[3] = {1, 1, 1};
        shape[i] = 2;
        keys[n++] = sl_cost_key(f, shape, one, 0);
        keys[n++] = sl_cost_key(f, one, shape, 0);
    }
    keys[n++] = sl_cost_key_graph(f);
    keys[n++] = sl_cost_key_graph(f2);
    for (unsigned i = 0; i < n; i++) {
        assert_true(keys[i] != 0);
        for (unsigned j = 0; j < i; j++)
            assert_true(keys[i] != keys[j]);
    }
}

static void keys_spread_over_the_sets(void **state)
{
    (void)state;
    unsigned per_set[SL_COST_SETS] = {0}, most = 0;
    for (uintptr_t f = 0; f < 64; f++)
        for (uint32_t grid = 1; grid <= 32; grid++) {
            unsigned *n = &per_set[key_of(0x7f0000001000 + f * 64, grid * 4) & (SL_COST_SETS - 1)];
            if (++*n > most)
                most = *n;
        }
    /* 2048 keys, 4 a set on average */
    assert_in_range(most, 4, 16);
}

static void first_sight_is_sampled_and_cautious(void **state)
{
    (void)state;
    uint64_t key = key_of(1, 1);
    struct sl_cost_guess g = sl_cost_launch(cost, key);
    assert_true(g.sample);
    assert_false(g.known);
    assert_int_equal(g.ns, 1 * MS);
    sl_cost_learn(cost, key, 170 * US);
    g = sl_cost_launch(cost, key);
    assert_true(g.known);
    assert_int_equal(g.ns, 170 * US);
}

static void samples_get_rare(void **state)
{
    (void)state;
    uint64_t key = key_of(1, 1);
    assert_in_range(launch(key, 10, 100 * US), 4, 8);
    assert_in_range(launch(key, 1000, 100 * US), 4, 10);
    assert_in_range(launch(key, 100000, 100 * US), 90, 130); /* about one in 1024, for ever */
}

static void samples_get_rare_before_the_first_comes_back(void **state)
{
    (void)state;
    uint64_t key = key_of(1, 1);
    unsigned samples = 0;
    for (unsigned i = 0; i < 1000; i++)
        samples += sl_cost_launch(cost, key).sample;
    assert_in_range(samples, 8, 12);
}

static void one_odd_sample_changes_nothing(void **state)
{
    (void)state;
    uint64_t key = key_of(1, 1);
    launch(key, 5000, 100 * US);
    sl_cost_learn(cost, key, 50 * MS);
    assert_int_equal(sl_cost_peek(cost, key).ns, 100 * US);
    /* … but is looked into at once */
    assert_true(sl_cost_launch(cost, key).sample);
    sl_cost_learn(cost, key, 100 * US);
    sl_cost_learn(cost, key, 50 * MS);
    assert_int_equal(sl_cost_peek(cost, key).ns, 100 * US);
}

static void drift_is_followed(void **state)
{
    (void)state;
    uint64_t key = key_of(1, 1);
    launch(key, 100000, 100 * US);
    launch(key, 2000, 1 * MS);
    assert_int_equal(sl_cost_peek(cost, key).ns, 1 * MS);
    launch(key, 100000, 1 * MS);
    launch(key, 3000, 20 * US);
    assert_int_equal(sl_cost_peek(cost, key).ns, 20 * US);
    /* slow drift, within a factor of two */
    for (uint64_t ns = 20 * US; ns < 60 * US; ns += US)
        launch(key, 5000, ns);
    assert_in_range(sl_cost_peek(cost, key).ns, 50 * US, 60 * US);
}

static void first_launch_that_loads_code_is_forgotten(void **state)
{
    (void)state;
    uint64_t key = key_of(1, 1);
    assert_true(sl_cost_launch(cost, key).sample);
    sl_cost_learn(cost, key, 30 * MS);
    launch(key, 4, 50 * US);
    assert_int_equal(sl_cost_peek(cost, key).ns, 50 * US);
}

static void noise_is_averaged(void **state)
{
    (void)state;
    uint64_t key = key_of(1, 1), x = 12345;
    for (unsigned i = 0; i < 500; i++) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        sl_cost_learn(cost, key, 80 * US + (x >> 33) % (40 * US));
    }
    assert_in_range(sl_cost_peek(cost, key).ns, 92 * US, 108 * US);
}

/* A gemm of a fixed grid takes 40 us or 160, by its matrices, in the same order in every step. What it takes in all is
 * what counts, and sampling must not keep step with it. */
static void launches_of_one_key_may_differ(void **state)
{
    (void)state;
    uint64_t key = key_of(0x1000, 132), truth = 0, told = 0;
    static const uint64_t step[] = {40, 160, 40, 40, 160, 40, 40, 40};
    for (uint32_t i = 0; i < 200000; i++) {
        uint64_t ns = step[i % 8] * US;
        struct sl_cost_guess g = sl_cost_launch(cost, key);
        if (i >= 20000) {
            truth += ns;
            told += g.ns;
        }
        if (g.sample)
            sl_cost_learn_mean(cost, key, ns);
    }
    assert_in_range(told * 100 / truth, 75, 125);
}

/* The first launch loads code, or another tenant's slice falls into one of the first samples: the estimate of a kernel
 * of 4 us must not be milliseconds for the next thousands of launches. */
static void a_disturbed_first_sample_is_soon_forgotten(void **state)
{
    (void)state;
    uint64_t key = key_of(0x1000, 7), other = key_of(0x1000, 8);
    assert_true(sl_cost_launch(cost, key).sample);
    sl_cost_learn_bound(cost, key, 5 * MS);
    assert_int_equal(sl_cost_peek(cost, key).ns, 5 * MS);
    assert_true(sl_cost_launch(cost, key).sample);
    sl_cost_learn_mean(cost, key, 4 * US);
    assert_int_equal(sl_cost_peek(cost, key).ns, 4 * US);
    sl_cost_learn_bound(cost, key, 1 * US); /* it knows better now */
    assert_int_equal(sl_cost_peek(cost, key).ns, 4 * US);

    sl_cost_learn_mean(cost, other, 5 * MS);
    sl_cost_learn_mean(cost, other, 4 * US);
    assert_int_equal(sl_cost_peek(cost, other).ns, 4 * US);
}

static void the_unknown_costs_twice_the_median(void **state)
{
    (void)state;
    for (uintptr_t f = 1; f <= 30; f++)
        launch(key_of(f, 1), 3, f <= 20 ? 100 * US : 10 * MS);
    uint64_t ns = sl_cost_default_ns(cost);
    assert_in_range(ns, 200 * US, 300 * US);
    struct sl_cost_guess g = sl_cost_launch(cost, key_of(99, 1));
    assert_false(g.known);
    assert_int_equal(g.ns, ns);
    /* another phase of the program: the old one fades */
    for (uintptr_t f = 100; f <= 1200; f++)
        launch(key_of(f, 1), 3, 5 * MS);
    assert_in_range(sl_cost_default_ns(cost), 10 * MS, 16 * MS);
}

static void the_default_is_bounded(void **state)
{
    (void)state;
    launch(key_of(1, 1), 3, 0);
    assert_int_equal(sl_cost_default_ns(cost), 10 * US);
    memset(cost, 0, sizeof(*cost));
    launch(key_of(1, 1), 3, 5000 * MS);
    assert_int_equal(sl_cost_default_ns(cost), 20 * MS);
    assert_int_equal(sl_cost_peek(cost, key_of(1, 1)).ns, 5000 * MS);
}

static void broken_samples_are_dropped(void **state)
{
    (void)state;
    uint64_t key = key_of(1, 1);
    launch(key, 10, 100 * US);
    sl_cost_learn(cost, key, UINT64_MAX);
    sl_cost_learn(cost, key, UINT64_MAX);
    assert_int_equal(sl_cost_peek(cost, key).ns, 100 * US);
    sl_cost_learn(cost, key_of(2, 1), 0);
    assert_true(sl_cost_peek(cost, key_of(2, 1)).ns > 0);
}

static void hot_kernels_survive_a_flood(void **state)
{
    (void)state;
    uint64_t hot = key_of(1, 1);
    launch(hot, 1000, 100 * US);
    unsigned lost = 0;
    for (uintptr_t f = 2; f < 200000; f++) {
        launch(key_of(f, 1), 1, 10 * US);
        struct sl_cost_guess g = sl_cost_launch(cost, hot);
        lost += !g.known;
        if (g.sample)
            sl_cost_learn(cost, hot, 100 * US);
    }
    assert_int_equal(lost, 0);
    /* What was hot once and is not launched any more makes room. */
    unsigned known = 0;
    for (uintptr_t f = 300000; f < 300000 + 512; f++)
        launch(key_of(f, 1), 50, 10 * US);
    for (uintptr_t f = 300000; f < 300000 + 512; f++)
        known += sl_cost_peek(cost, key_of(f, 1)).known;
    assert_in_range(known, 500, 512);
}

static void forgotten_is_unknown(void **state)
{
    (void)state;
    uint64_t key = sl_cost_key_graph((const void *)0x4000);
    launch(key, 10, 20 * MS);
    sl_cost_forget(cost, key);
    sl_cost_forget(cost, key);
    assert_false(sl_cost_peek(cost, key).known);
    assert_true(sl_cost_launch(cost, key).sample);
}

static void *launch_many(void *arg)
{
    uintptr_t salt = (uintptr_t)arg;
    for (uintptr_t i = 0; i < 100000; i++) {
        uintptr_t f = i % 16 == 0 ? 1000 * salt + i : 1 + i % 8; /* some new, most shared */
        uint64_t key = key_of(f, 1);
        if (sl_cost_launch(cost, key).sample)
            sl_cost_learn(cost, key, 100 * US);
        if (i % 1000 == 0)
            sl_cost_forget(cost, key);
    }
    return NULL;
}

static void threads_share_the_model(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, launch_many, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uintptr_t f = 1; f <= 8; f++)
        assert_int_equal(sl_cost_peek(cost, key_of(f, 1)).ns, 100 * US);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(keys_differ_by_every_part),
        T(keys_spread_over_the_sets),
        T(first_sight_is_sampled_and_cautious),
        T(samples_get_rare),
        T(samples_get_rare_before_the_first_comes_back),
        T(one_odd_sample_changes_nothing),
        T(drift_is_followed),
        T(first_launch_that_loads_code_is_forgotten),
        T(noise_is_averaged),
        T(launches_of_one_key_may_differ),
        T(a_disturbed_first_sample_is_soon_forgotten),
        T(the_unknown_costs_twice_the_median),
        T(the_default_is_bounded),
        T(broken_samples_are_dropped),
        T(hot_kernels_survive_a_flood),
        T(forgotten_is_unknown),
        T(threads_share_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
