/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steering finds out by itself whether slices have an effect: on a GPU that accepts them and shares as before, two busy
 * tenants show it within seconds. Where slices work, nobody is ever wrongly told, and the shares stay what they are.
 */
#include "steer_case.h"

/* Within so many seconds the first measurements are over. */
#define FOUND_S 20

static bool found(uint64_t seconds, uint32_t ids[2])
{
    for (uint64_t i = 0; i < 10 * seconds; i++) {
        world_run(world, 100 * MS);
        if (sl_steer_no_effect(world->steer, ids))
            return true;
    }
    return false;
}

static void add_busy(const uint32_t *requests, uint32_t n, uint64_t kernel_ns)
{
    for (uint32_t i = 0; i < n; i++)
        add_one(i, spec_of(requests[i], 1000), saturating(kernel_ns * (i + 1)));
}

static const struct {
    uint32_t n, requests[4], pair[2];
} mixes[] = {
    {2, {500, 500}, {0, 1}},      {2, {300, 700}, {0, 1}},           {2, {900, 100}, {1, 0}},
    {3, {200, 300, 500}, {0, 2}}, {4, {250, 250, 250, 250}, {0, 3}}, {2, {0, 0}, {0, 1}},
};
#define MIXES (sizeof(mixes) / sizeof(mixes[0]))

static void inert_slices_are_found(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < MIXES; m++)
        for (uint64_t kernel_us = 100; kernel_us <= 300; kernel_us += 100) {
            uint32_t ids[2] = {99, 99};
            start_afresh();
            world->inert = true;
            add_busy(mixes[m].requests, mixes[m].n, kernel_us * US);
            if (!found(FOUND_S, ids))
                fail_msg("mix %u, kernels of %lu us: not found", m, (unsigned long)kernel_us);
            assert_int_equal(ids[0], mixes[m].pair[0]);
            assert_int_equal(ids[1], mixes[m].pair[1]);
            assert_false(sl_steer_no_effect(world->steer, ids)); /* told once */
        }
}

/* Also with long kernels and short ones, and over hours in which it is measured again and again. */
static void slices_that_work_are_believed(void **state)
{
    (void)state;
    uint32_t ids[2];
    for (uint32_t m = 0; m < MIXES; m++)
        for (uint64_t kernel_us = 50; kernel_us <= 30000; kernel_us *= 5) {
            start_afresh();
            add_busy(mixes[m].requests, mixes[m].n, kernel_us * US);
            if (found(60, ids))
                fail_msg("mix %u, kernels of %lu us", m, (unsigned long)kernel_us);
            assert_no_fault();
        }
}

static void shares_stay_while_it_is_measured(void **state)
{
    (void)state;
    static const uint32_t requests[] = {100, 300, 500};
    for (uint32_t i = 0; i < 3; i++) {
        start_afresh();
        add_one(0, spec_of(requests[i], 1000), saturating(170 * US));
        add_one(1, spec_of(1000 - requests[i], 1000), saturating(170 * US));
        world_run(world, 1 * S);
        struct world_shares s = world_shares(world, 5 * S); /* a measurement is in it */
        assert_share(s, 0, requests[i], 25);
        assert_share(s, 1, 1000 - requests[i], 25);
        assert_true(s.permille[0] + s.permille[1] >= 975);
        s = world_shares(world, 10 * S);
        assert_share(s, 0, requests[i], 12);
        assert_no_fault();
    }
}

/* It is measured once in ten minutes, for two seconds. */
static void it_is_measured_rarely(void **state)
{
    (void)state;
    uint32_t other = 0, times = 0;
    add_one(0, spec_of(500, 1000), saturating(170 * US));
    add_one(1, spec_of(500, 1000), saturating(170 * US));
    world_run(world, 1 * S);
    uint32_t usual_us = world->t[0].order.slice_us;
    for (uint32_t i = 0; i < 1500 * 20; i++) {
        bool before = world->t[0].order.slice_us != usual_us;
        world_run(world, 50 * MS);
        bool now = world->t[0].order.slice_us != usual_us;
        other += now;
        times += now && !before;
    }
    assert_int_equal(times, 3);
    assert_in_range(other, 3 * 39, 3 * 41);
    assert_no_fault();
}

/* Programs that do not keep the GPU busy, or change what they do, prove nothing. */
static void other_programs_prove_nothing(void **state)
{
    (void)state;
    const struct world_load loads[] = {training(),     launch_bound_training(),
                                       launch_bound(), synchronising(),
                                       requests(),     saturating(170 * US)};
    uint32_t ids[2];
    for (uint32_t a = 0; a < 6; a++)
        for (uint32_t b = 0; b < 6; b++) {
            start_afresh();
            add_one(0, spec_of(300, 1000), loads[a]);
            add_one(1, spec_of(700, 1000), loads[b]);
            if (found(40, ids))
                fail_msg("loads %u and %u", a, b);
            assert_no_fault();
        }
}

static void launch_in_lumps(struct sl_steer_seen *seen, uint64_t now_ns)
{
    seen->launches = now_ns / (130 * MS) * 1300;
}

/* Work that comes in lumps, some of them as long as several runs: launches show when a lump came, not how fast it runs,
 * even where slices have no effect. */
static void lumps_prove_nothing(void **state)
{
    (void)state;
    world->inert = true;
    add_one(0, spec_of(400, 1000), saturating(100 * US));
    add_one(1, spec_of(600, 1000), saturating(100 * US));
    world->t[0].lie = world->t[1].lie = launch_in_lumps;
    uint32_t none[2];
    assert_false(found(300, none));
    static const uint32_t lengths_ms[] = {40, 120, 200, 640, 1280};
    uint32_t ids[2];
    for (uint32_t i = 0; i < 5; i++)
        for (uint64_t launch_us = 2; launch_us <= 82; launch_us += 40) {
            struct world_load lumps = {.kernel_ns = 100 * US,
                                       .count = lengths_ms[i] * 10,
                                       .launch_ns = launch_us * US,
                                       .think_ns = 10 * US};
            start_afresh();
            add_one(0, spec_of(400, 1000), lumps);
            add_one(1, spec_of(600, 1000), lumps);
            if (found(100, ids))
                fail_msg("lumps of %u ms, a launch in %lu us", lengths_ms[i],
                         (unsigned long)launch_us);
        }
}

static void programs_that_change_prove_nothing(void **state)
{
    (void)state;
    uint32_t ids[2];
    for (uint64_t seed = 1; seed <= 10; seed++) {
        uint64_t random = seed;
        start_afresh();
        uint32_t a = add_one(0, spec_of(500, 1000), saturating(100 * US));
        uint32_t b = add_one(1, spec_of(500, 1000), saturating(100 * US));
        for (uint32_t i = 0; i < 300; i++) {
            uint64_t us = 50 + world_random(&random) % 400;
            if (world_random(&random) % 4 == 0)
                world_load_set(world, world_random(&random) % 2 ? a : b, saturating(us * US));
            world_run(world, 200 * MS);
            if (sl_steer_no_effect(world->steer, ids))
                fail_msg("seed %lu, after %u steps", (unsigned long)seed, i);
        }
    }
}

/* Limits, priorities and a light neighbour decide, too: it is not measured there. */
static void only_where_slices_decide(void **state)
{
    (void)state;
    uint32_t ids[2];
    for (uint32_t i = 0; i < 4; i++) {
        start_afresh();
        world->inert = true;
        add_one(0, i == 0 ? spec_of(300, 300) : spec_of(300, 1000), saturating(170 * US));
        add_one(1, i == 1 ? spec_at(HIGH) : spec_of(500, 1000), saturating(170 * US));
        if (i == 2)
            add_one(2, spec_of(200, 1000), launch_bound());
        if (i == 3)
            world_start(world, 1, 0, saturating(170 * US)); /* a second process of the tenant */
        assert_false(found(FOUND_S, ids));
    }
}

/* Whoever leaves takes what was found so far along. */
static void a_new_pair_begins_anew(void **state)
{
    (void)state;
    uint32_t ids[2];
    world->inert = true;
    add_one(0, spec_of(500, 1000), saturating(170 * US));
    for (uint32_t i = 0; i < 10; i++) {
        add_one(1, spec_of(500, 1000), saturating(170 * US));
        if (i < 9)
            assert_false(found(6, ids));
        else
            assert_true(found(FOUND_S, ids));
        world_remove(world, 1);
        world_run(world, 100 * MS);
    }
    assert_int_equal(ids[0] + ids[1], 1);
}

/* Pauses in between only delay it. */
static void pauses_delay_it(void **state)
{
    (void)state;
    uint32_t ids[2];
    world->inert = true;
    uint32_t a = add_one(0, spec_of(500, 1000), saturating(170 * US));
    add_one(1, spec_of(500, 1000), saturating(170 * US));
    for (uint32_t i = 0; i < 20; i++) {
        if (found(5, ids))
            return;
        world_stop(world, a);
        world_run(world, 300 * MS);
        world_load_set(world, a, saturating(170 * US));
    }
    fail_msg("not found");
}

/* A liar that reports what would show no effect: its neighbour's launches say otherwise. */
static void lie(struct sl_steer_seen *seen, uint64_t now_ns)
{
    seen->launches = now_ns / (100 * US); /* the same with any slice */
}

static void a_liar_proves_nothing(void **state)
{
    (void)state;
    uint32_t ids[2];
    add_one(0, spec_of(500, 1000), saturating(100 * US));
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    world->t[0].lie = lie;
    assert_false(found(60, ids));
}

/* A liar that follows its slice by any factor: figures of that size must not break the arithmetic (UBSan sees it). */
static uint64_t claimed;

static void claim_too_much(struct sl_steer_seen *seen, uint64_t now_ns)
{
    static uint64_t before_ns;
    uint64_t span_ns = now_ns - before_ns;
    before_ns = now_ns;
    claimed += world->t[0].order.slice_us > 12000
                   ? span_ns * 22000000
                   : now_ns / (8 * MS) - (now_ns - span_ns) / (8 * MS);
    seen->launches = claimed;
}

static void a_liar_breaks_nothing(void **state)
{
    (void)state;
    uint32_t ids[2];
    claimed = 0;
    add_one(0, spec_of(500, 1000), saturating(100 * US));
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    world->t[0].lie = claim_too_much;
    assert_false(found(60, ids));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(inert_slices_are_found),
        T(slices_that_work_are_believed),
        T(shares_stay_while_it_is_measured),
        T(it_is_measured_rarely),
        T(other_programs_prove_nothing),
        T(lumps_prove_nothing),
        T(programs_that_change_prove_nothing),
        T(only_where_slices_decide),
        T(a_new_pair_begins_anew),
        T(pauses_delay_it),
        T(a_liar_proves_nothing),
        T(a_liar_breaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
