/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steering: the slice of a busy tenant beside a program that is bound by its launches. Such a program ends its step
 * with one of its neighbour's slices or with the next. On an H200 its steps took 2.90 ms or 5.33 ms beside the driver's
 * own slices, and the speed of its host decided which of the two. The world here has the same two lengths.
 */
#include "steer_case.h"

#define PROMISE 30 /* nobody gets less than under plain time-slicing by more than 3 points */

struct seen {
    uint64_t steps;
    uint32_t busy_permille;
};

static struct seen watch(uint64_t ns)
{
    uint64_t before = world->t[0].bursts;
    struct world_shares s = world_shares(world, ns);
    return (struct seen){world->t[0].bursts - before, s.permille[1]};
}

/* As the hardware shares by itself, and as it is steered. */
static void compare(struct world_load light, struct world_load busy, struct seen *sliced,
                    struct seen *steered)
{
    for (uint32_t i = 0; i < 2; i++) {
        start_afresh();
        world->deaf = i == 0;
        add_one(0, spec_of(500, 1000), light);
        add_one(1, spec_of(500, 1000), busy);
        world_run(world, 2 * S);
        *(i == 0 ? sliced : steered) = watch(10 * S);
        assert_no_fault();
    }
}

static void two_lengths_of_a_step(void **state)
{
    (void)state;
    static const struct {
        uint64_t host_us, step_us;
    } seen[] = {{1700, 2820}, {2400, 2820}, {3300, 5190}};
    for (uint32_t i = 0; i < 3; i++) {
        struct seen sliced, steered;
        compare(eager(seen[i].host_us), saturating(170 * US), &sliced, &steered);
        assert_in_range(10 * S / sliced.steps, (seen[i].step_us - 60) * US,
                        (seen[i].step_us + 60) * US);
    }
}

/* Where the driver's slice is a little too short for a step, a longer one lets the step end a whole round earlier. */
static void a_slow_host_gets_a_longer_slice(void **state)
{
    (void)state;
    for (uint32_t host_us = 2700; host_us <= 3400; host_us += 100) {
        struct seen sliced, steered;
        compare(eager(host_us), saturating(170 * US), &sliced, &steered);
        if (steered.steps * 10 < sliced.steps * 11 ||
            steered.busy_permille + PROMISE < sliced.busy_permille)
            fail_msg("host of %u us: %lu steps for %lu, neighbour %u for %u", host_us,
                     (unsigned long)steered.steps, (unsigned long)sliced.steps,
                     steered.busy_permille, sliced.busy_permille);
        assert_true(world->t[1].order.slice_us > SL_STEER_DEFAULT_US);
    }
}

/* Whatever the host's speed, and whether the neighbour is gemm or training: neither loses. */
static void neither_loses_to_plain_slices(void **state)
{
    (void)state;
    for (uint32_t host_us = 1500; host_us <= 6000; host_us += 500)
        for (uint32_t i = 0; i < 2; i++) {
            struct seen sliced, steered;
            compare(eager(host_us), i ? training() : saturating(170 * US), &sliced, &steered);
            if (steered.steps * 100 < sliced.steps * 97 ||
                steered.busy_permille + PROMISE < sliced.busy_permille)
                fail_msg("host of %u us: %lu steps for %lu, neighbour %u for %u", host_us,
                         (unsigned long)steered.steps, (unsigned long)sliced.steps,
                         steered.busy_permille, sliced.busy_permille);
        }
}

/* On a fast host the neighbour's slices leave such a program half of its speed. Windows would help it to no more, and
 * make one step in ten wait for the neighbour's windows. */
static void a_fast_host_has_no_windows(void **state)
{
    (void)state;
    for (uint32_t host_us = 1000; host_us <= 1500; host_us += 100)
        for (uint32_t i = 0; i < 2; i++) {
            struct seen sliced, steered;
            compare(eager(host_us), i ? training() : saturating(170 * US), &sliced, &steered);
            assert_int_equal(stats_of(0).window_permille, 0);
            if (steered.steps * 100 < sliced.steps * 98 ||
                steered.busy_permille + PROMISE < sliced.busy_permille)
                fail_msg("host of %u us: %lu steps for %lu, neighbour %u for %u", host_us,
                         (unsigned long)steered.steps, (unsigned long)sliced.steps,
                         steered.busy_permille, sliced.busy_permille);
        }
}

/* A limited neighbour has time to lose to switches, so a shorter slice lets each step end sooner. 17 ms of work and 5 ms
 * of the host's own leave training little room below its limit: it reaches 50 % with some slices only. */
static void a_limit_makes_a_fast_host_faster(void **state)
{
    (void)state;
    struct world_load steps_of_17_ms = training();
    steps_of_17_ms.count = 170;
    for (uint32_t host_us = 1300; host_us <= 2500; host_us += 100)
        for (uint32_t i = 0; i < 2; i++) {
            struct world_load busy = i ? steps_of_17_ms : saturating(170 * US);
            struct seen sliced, steered;
            start_afresh();
            add_one(0, spec_of(500, 500), eager(host_us));
            world_run(world, 1 * S);
            uint64_t alone = watch(10 * S).steps;
            compare(eager(host_us), busy, &sliced, &steered);
            start_afresh();
            add_one(0, spec_of(500, 500), eager(host_us));
            add_one(1, spec_of(500, 500), busy);
            world_run(world, 3 * S);
            steered = watch(10 * S);
            assert_no_fault();
            uint64_t had = 100 * sliced.steps / alone, got = 100 * steered.steps / alone;
            assert_in_range(steered.busy_permille, 480, 520);
            if (got < (had + 5 < 85 ? had + 5 : 85))
                fail_msg("host of %u us: %lu %% of its steps, %lu %% by slices alone", host_us,
                         (unsigned long)got, (unsigned long)had);
        }
}

static void the_slice_follows_the_host(void **state)
{
    (void)state;
    uint32_t light = add_one(0, spec_of(500, 1000), eager(2000));
    add_one(1, spec_of(500, 1000), saturating(170 * US));
    world_run(world, 2 * S);
    uint64_t fast = watch(10 * S).steps;
    assert_int_equal(world->t[1].order.slice_us, SL_STEER_DEFAULT_US);
    world_load_set(world, light, eager(3100));
    world_run(world, 30 * S);
    uint64_t slow = watch(10 * S).steps;
    assert_true(slow * S / 10 >
                10 * S / 45 * 100); /* 4.5 ms a step at most; 5.2 with the driver's slice */
    assert_true(world->t[1].order.slice_us > SL_STEER_DEFAULT_US);
    world_load_set(world, light, eager(2000));
    world_run(world, 60 * S);
    assert_in_range(watch(10 * S).steps, fast * 97 / 100, fast * 103 / 100);
    assert_no_fault();
}

/* Work with long kernels ends its steps where its work ends. Nothing is tried out on it. */
static void long_kernels_are_left_alone(void **state)
{
    (void)state;
    add_one(0, spec_of(500, 1000), requests());
    add_one(1, spec_of(500, 1000), saturating(170 * US));
    for (uint32_t i = 0; i < 1000; i++) {
        world_run(world, 10 * MS);
        assert_int_equal(world->t[1].order.slice_us, SL_STEER_DEFAULT_US);
    }
    assert_no_fault();
}

/* What is known of slices outlasts a break of both, and a limit that nobody could reach meanwhile lacks no time. */
static void breaks_cost_nothing(void **state)
{
    (void)state;
    uint32_t light = add_one(0, spec_of(500, 500), eager(2000));
    uint32_t busy = add_one(1, spec_of(500, 500), saturating(170 * US));
    world_run(world, 3 * S);
    for (uint32_t i = 0; i < 10; i++) {
        world_stop(world, light);
        world_stop(world, busy);
        world_run(world, 10 * S);
        world_load_set(world, light, eager(2000));
        world_load_set(world, busy, saturating(170 * US));
        world_run(world, 200 * MS);
        for (uint32_t k = 0; k < 10; k++) {
            assert_true(world->t[1].order.slice_us < SL_STEER_DEFAULT_US);
            world_run(world, 100 * MS);
        }
    }
    assert_no_fault();
}

#define STRETCHES 20
#define COUNTED   17

/* Programs that work for a second and then stop for one. The periods in which they begin and end say nothing about
 * slices. */
static uint64_t steps_in_stretches(uint64_t host_us, struct world_load busy_load, uint32_t limit,
                                   uint64_t *ret_neighbour)
{
    start_afresh();
    uint32_t light = add_one(0, spec_of(500, limit), eager(host_us));
    uint32_t busy = add_one(1, spec_of(500, limit), busy_load);
    uint64_t steps = 0, permille = 0;
    for (uint32_t i = 0; i < STRETCHES; i++) {
        world_load_set(world, light, eager(host_us));
        world_load_set(world, busy, busy_load);
        world_run(world, (300 + 7 * i) * MS);
        struct seen seen = watch(800 * MS);
        steps += i >= STRETCHES - COUNTED ? seen.steps : 0;
        permille += i >= STRETCHES - COUNTED ? seen.busy_permille : 0;
        world_stop(world, light);
        world_run(world, 3 * MS);
        world_stop(world, busy);
        world_run(world, (100 + 97 * i) * MS);
    }
    assert_no_fault();
    *ret_neighbour = permille / COUNTED;
    return steps;
}

/* Which slice suits is found out later, and is the same one. */
static void stretches_of_work_choose_as_long_ones_do(void **state)
{
    (void)state;
    uint64_t all_steady = 0, all_steps = 0;
    for (uint64_t host_us = 1500; host_us <= 3300; host_us += 300)
        for (uint32_t i = 0; i < 4; i++) {
            struct world_load busy = i % 2 ? training() : saturating(170 * US);
            uint32_t limit = i < 2 ? 1000 : 500;
            start_afresh();
            add_one(0, spec_of(500, limit), eager(host_us));
            add_one(1, spec_of(500, limit), busy);
            world_run(world, 5 * S);
            uint64_t steady = watch(COUNTED * 800 * MS).steps, neighbour;
            uint64_t steps = steps_in_stretches(host_us, busy, limit, &neighbour);
            if (steps * 100 < steady * 88 || (limit < 1000 && (neighbour < 480 || neighbour > 520)))
                fail_msg("host of %lu us: %lu steps for %lu, neighbour %lu", (unsigned long)host_us,
                         (unsigned long)steps, (unsigned long)steady, (unsigned long)neighbour);
            all_steady += steady;
            all_steps += steps;
        }
    assert_true(all_steps * 100 >= all_steady * 99);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(two_lengths_of_a_step),
        T(a_slow_host_gets_a_longer_slice),
        T(neither_loses_to_plain_slices),
        T(a_fast_host_has_no_windows),
        T(a_limit_makes_a_fast_host_faster),
        T(the_slice_follows_the_host),
        T(long_kernels_are_left_alone),
        T(breaks_cost_nothing),
        T(stretches_of_work_choose_as_long_ones_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
