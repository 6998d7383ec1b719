/* SPDX-License-Identifier: Apache-2.0 */
/* Steering: priorities, tenants on several GPUs, and changes while they run. */
#include <errno.h>

#include "steer_case.h"

#define TINY_US 100U /* what counts as a tiny slice */

/* --- priorities -------------------------------------------------------------------------------- */

static void one_low_beside_a_high(void **state)
{
    (void)state;
    add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(LOW), saturating(20 * MS));
    world_run(world, S);
    world->t[0].latency_max_ns = 0;
    struct world_shares s = world_shares(world, 5 * S);
    assert_no_fault();
    assert_true(world->t[1].order.slice_us <= TINY_US);
    assert_true(world->t[0].order.slice_us >= 2000);
    assert_int_equal(world->t[1].offs, 0);
    assert_share(s, 0, 200, 5);
    assert_in_range(s.permille[1], 760, 1000); /* 95 % of the rest */
    /* Alone it takes 2.004 ms. */
    assert_true(world->t[0].latency_max_ns < 2300 * US);
}

/* Slices go back to normal when the high one has been away for some seconds. */
static void a_high_that_left_counts_no_more(void **state)
{
    (void)state;
    uint32_t p = add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(LOW), saturating(100 * US));
    add_one(2, spec_at(LOW), saturating(100 * US));
    world_run(world, 2 * S);
    assert_true(world->t[1].offs > 10);
    world_stop(world, p);
    world_run(world, 4 * S);
    uint64_t offs = world->t[1].offs + world->t[2].offs;
    struct world_shares s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_true(world->t[1].order.slice_us >= 1000);
    assert_int_equal(world->t[1].offs + world->t[2].offs, offs);
    assert_share(s, 1, 500, 15);
    assert_share(s, 2, 500, 15);
}

static void check_lows(uint32_t n)
{
    start_afresh();
    add_one(0, spec_at(HIGH), requests());
    for (uint32_t id = 1; id <= n; id++)
        add_one(id, spec_at(LOW), saturating(100 * US));
    world_run(world, S);
    uint64_t before[8], both_ns = 0, none_ns = 0;
    world->t[0].latency_max_ns = 0;
    for (uint32_t id = 1; id <= n; id++)
        before[id] = world->t[id].ran_ns;
    for (uint64_t ns = 0; ns < 4 * S; ns += 250 * US) {
        uint32_t on = 0;
        world_run(world, 250 * US);
        for (uint32_t id = 1; id <= n; id++)
            on += !world->p[id].off;
        both_ns += on > 1 ? 250 * US : 0;
        none_ns += on == 0 ? 250 * US : 0;
    }
    assert_no_fault();
    uint64_t sum = 0;
    for (uint32_t id = 1; id <= n; id++) {
        uint64_t ran = world->t[id].ran_ns - before[id];
        sum += ran;
        if (ran * n < 4 * S * 800 / 1000 * 80 / 100)
            fail_msg("low tenant %u of %u ran %llu ms of 4 s", id, n,
                     (unsigned long long)(ran / MS));
        assert_true(world->t[id].longest_off_ns < SL_STEER_MOST_OFF_NS);
    }
    assert_int_equal(both_ns, 0);
    assert_true(none_ns < 4 * S * 8 / 100);
    assert_true(sum > 4 * S * 800 / 1000 * 90 / 100);
    assert_true(world->t[0].latency_max_ns < 2600 * US);
}

static void lows_go_one_at_a_time(void **state)
{
    (void)state;
    check_lows(2);
    check_lows(4);
    check_lows(7);
}

static void lows_share_by_request(void **state)
{
    (void)state;
    struct sl_steer_spec third = spec_at(LOW), rest = spec_at(LOW);
    third.request_permille = 250;
    rest.request_permille = 500;
    add_one(0, spec_at(HIGH), requests());
    add_one(1, third, saturating(100 * US));
    add_one(2, rest, saturating(100 * US));
    world_run(world, S);
    struct world_shares s = world_shares(world, 6 * S);
    assert_no_fault();
    uint32_t sum = s.permille[1] + s.permille[2];
    assert_in_range(s.permille[1] * 1000 / sum, 303, 363);
}

/* A low tenant that synchronises after each kernel has turns like the others. */
static void a_low_that_synchronises_has_turns(void **state)
{
    (void)state;
    add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(LOW), synchronising());
    add_one(2, spec_at(LOW), saturating(100 * US));
    world_run(world, S);
    struct world_shares s = world_shares(world, 4 * S);
    assert_no_fault();
    assert_in_range(s.permille[1], 150, 1000);
    assert_in_range(s.permille[2], 250, 1000);
}

static void a_low_that_comes_late_gets_no_more_than_its_part(void **state)
{
    (void)state;
    add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(LOW), saturating(100 * US));
    world_run(world, 20 * S);
    add_one(2, spec_at(LOW), saturating(100 * US));
    world_run(world, S);
    struct world_shares s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_in_range(s.permille[1], 300, 1000);
    assert_in_range(s.permille[2], 300, 1000);
}

/* Its turn is over when it has nothing to run: others do not wait for a tenant that thinks. */
static void a_low_with_little_work_does_not_hold_up_others(void **state)
{
    (void)state;
    struct world_load now_and_then = {
        .kernel_ns = 100 * US, .count = 20, .launch_ns = 4 * US, .period_ns = 100 * MS};
    add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(LOW), now_and_then);
    add_one(2, spec_at(LOW), saturating(100 * US));
    world_run(world, S);
    world->t[1].latency_max_ns = 0;
    struct world_shares s = world_shares(world, 4 * S);
    assert_no_fault();
    assert_share(s, 1, 20, 2);
    assert_in_range(s.permille[2], 600, 1000);
    assert_true(world->t[1].latency_max_ns < 60 * MS);
}

/* A tenant on two GPUs has its turns although others have theirs on each of them. */
static void a_low_on_two_gpus_has_turns(void **state)
{
    (void)state;
    struct sl_steer_spec high = spec_at(HIGH), both = spec_at(LOW), one = spec_at(LOW);
    high.gpu_mask = both.gpu_mask = 3;
    world_add(world, 0, high);
    world_start(world, 0, 0, requests());
    world_start(world, 0, 1, requests());
    world_add(world, 1, both);
    world_start(world, 1, 0, saturating(100 * US));
    world_start(world, 1, 1, saturating(100 * US));
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        one.gpu_mask = 1U << gpu;
        world_add(world, 2 + gpu, one);
        world_start(world, 2 + gpu, gpu, saturating(100 * US));
    }
    world_run(world, S);
    struct world_shares s = world_shares(world, 4 * S);
    assert_no_fault();
    assert_in_range(s.permille[1], 600, 1000); /* of two GPUs */
    assert_in_range(s.permille[2], 300, 1000);
    assert_in_range(s.permille[3], 300, 1000);
}

/* The one in the middle comes before the low one, which does not starve. */
static void three_priorities(void **state)
{
    (void)state;
    add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(NORMAL), saturating(100 * US));
    add_one(2, spec_at(LOW), saturating(100 * US));
    world_run(world, S);
    world->t[0].latency_max_ns = 0;
    struct world_shares s = world_shares(world, 4 * S);
    assert_no_fault();
    assert_share(s, 0, 200, 5);
    assert_in_range(s.permille[1], 550, 1000);
    assert_in_range(s.permille[2], 20, 100);
    assert_true(world->t[0].latency_max_ns < 2600 * US);
}

static void requests_in_the_middle(void **state)
{
    (void)state;
    add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(NORMAL), requests());
    add_one(2, spec_at(LOW), saturating(100 * US));
    world_run(world, S);
    struct world_shares s = world_shares(world, 4 * S);
    assert_no_fault();
    assert_share(s, 0, 200, 5);
    assert_share(s, 1, 200, 5);
    assert_in_range(s.permille[2], 20, 1000);
}

/* --- several GPUs ------------------------------------------------------------------------------ */

static struct sl_steer_spec on_gpus(uint32_t mask, uint32_t request, uint32_t limit)
{
    struct sl_steer_spec spec = spec_of(request, limit);
    spec.gpu_mask = mask;
    return spec;
}

static struct world_load in_step(uint32_t gang)
{
    struct world_load load = saturating(100 * US);
    load.gang = gang;
    return load;
}

/* Each waits for the other on the GPU: progress is what both are on for at the same time. */
static void check_lock_step(uint32_t first, uint32_t second)
{
    uint32_t less = first < second ? first : second;
    start_afresh();
    world_add(world, 0, on_gpus(1, first, first));
    world_run(world, 33 * MS); /* one comes later: periods are the same for all */
    world_add(world, 1, on_gpus(2, second, second));
    world_start(world, 0, 0, in_step(1));
    world_start(world, 1, 1, in_step(1));
    world_run(world, S);
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t before = world->t[0].progress_ns;
        world_run(world, 4 * SL_STEER_PERIOD_NS);
        uint64_t went = world->t[0].progress_ns - before;
        if (went * 1000 < 4 * SL_STEER_PERIOD_NS * less * 7 / 10)
            fail_msg("limits %u and %u: went on for %llu us of 200 ms", first, second,
                     (unsigned long long)(went / US));
    }
    assert_no_fault();
}

static void tenants_in_lock_step_go_on(void **state)
{
    (void)state;
    check_lock_step(500, 500);
    check_lock_step(300, 300);
    check_lock_step(100, 100);
    check_lock_step(250, 600);
    check_lock_step(50, 900);
}

static void lock_step_beside_neighbours(void **state)
{
    (void)state;
    world_add(world, 0, on_gpus(1, 500, 500));
    world_add(world, 1, on_gpus(2, 500, 500));
    world_add(world, 2, on_gpus(1, 500, 1000));
    world_add(world, 3, on_gpus(2, 500, 500));
    world_start(world, 0, 0, in_step(1));
    world_start(world, 1, 1, in_step(1));
    world_start(world, 2, 0, saturating(100 * US));
    world_start(world, 3, 1, saturating(20 * MS));
    world_run(world, S);
    uint64_t before = world->t[0].progress_ns;
    world_run(world, 5 * S);
    assert_no_fault();
    assert_true(world->t[0].progress_ns - before > 5 * S / 20);
}

/* Each waits for the other on the GPU and for the host after each kernel, and each has a neighbour that does the same
 * alone. Windows may not let the two run at different times. */
static void lock_step_beside_who_synchronises(void **state)
{
    (void)state;
    static const uint32_t orders[][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {2, 0, 1, 3}, {2, 3, 0, 1}};
    struct world_load pair = synchronising();
    pair.gang = 1;
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t went[2];
        for (uint32_t deaf = 2; deaf-- > 0;) {
            start_afresh();
            world->deaf = deaf;
            for (uint32_t k = 0; k < 4; k++) {
                uint32_t id = orders[i % 4][k], gpu = id % 2;
                world_add(world, id, on_gpus(1U << gpu, i < 4 ? 500 : 250, 1000));
                world_start(world, id, gpu, id < 2 ? pair : synchronising());
            }
            world_run(world, 2 * S);
            went[deaf] = world->t[0].progress_ns;
            world_run(world, 10 * S);
            went[deaf] = world->t[0].progress_ns - went[deaf];
            assert_no_fault();
        }
        if (went[0] * 10 < went[1] * 8)
            fail_msg("world %u: went on for %llu ms, %llu by slices alone", i,
                     (unsigned long long)(went[0] / MS), (unsigned long long)(went[1] / MS));
    }
}

static void a_tenant_is_off_all_its_gpus_together(void **state)
{
    (void)state;
    world_add(world, 0, on_gpus(3, 250, 250));
    world_start(world, 0, 0, in_step(1));
    world_start(world, 0, 1, in_step(1));
    world_add(world, 1, on_gpus(1, 500, 1000));
    world_start(world, 1, 0, saturating(100 * US));
    world_run(world, S);
    uint64_t apart = 0, before = world->t[0].progress_ns;
    for (uint64_t ns = 0; ns < 4 * S; ns += 100 * US) {
        world_run(world, 100 * US);
        apart += world->p[0].off != world->p[1].off ? 100 * US : 0;
    }
    assert_no_fault();
    assert_int_equal(apart, 0);
    assert_true(world->t[0].offs > 10);
    assert_true(world->t[0].progress_ns - before > 2 * 4 * S * 125 / 1000);
}

static void gpus_apart_do_not_matter_to_each_other(void **state)
{
    (void)state;
    world_add(world, 0, on_gpus(1, 500, 1000));
    world_add(world, 1, on_gpus(2, 100, 1000));
    world_start(world, 0, 0, synchronising());
    world_start(world, 1, 1, saturating(100 * US));
    world_run(world, S);
    struct world_shares s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_int_equal(world->t[0].offs + world->t[1].offs, 0);
    assert_in_range(s.permille[1], 999, 1000);
    assert_in_range(s.permille[0], 820, 850);
    assert_int_equal(world->t[1].order.slice_us, SL_STEER_DEFAULT_US);
}

/* --- changes ----------------------------------------------------------------------------------- */

static void set_while_they_run(void **state)
{
    (void)state;
    add_one(0, spec_of(300, 1000), saturating(100 * US));
    add_one(1, spec_of(700, 1000), saturating(100 * US));
    world_run(world, S);
    world_set(world, 0, spec_of(700, 1000));
    world_set(world, 1, spec_of(300, 1000));
    world_run(world, 100 * MS);
    struct world_shares s = world_shares(world, 2 * S);
    assert_share(s, 0, 700, 20);
    assert_share(s, 1, 300, 20);
    world_set(world, 0, spec_of(200, 200));
    world_run(world, 200 * MS);
    s = world_shares(world, 4 * S);
    assert_share(s, 0, 200, 15);
    assert_true(s.permille[1] > 750);
    struct sl_steer_spec high = spec_of(300, 1000);
    high.priority = HIGH;
    world_set(world, 0, spec_of(500, 1000));
    world_set(world, 1, high);
    world_run(world, 100 * MS);
    assert_true(world->t[0].order.slice_us <= TINY_US);
    world_set(world, 1, spec_of(500, 1000));
    world_run(world, 200 * MS);
    s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_share(s, 0, 500, 20);
    assert_share(s, 1, 500, 20);
}

/* A limit that is lifted brings its tenant back at once, not at the end of the order. */
static void a_lifted_limit_lets_go_at_once(void **state)
{
    (void)state;
    add_one(0, spec_of(10, 10), saturating(100 * US));
    world_run(world, S);
    while (!world_is_off(world, 0) || world->t[0].order.off_until_ns < world->now_ns + 20 * MS)
        world_run(world, MS);
    world_set(world, 0, spec_of(10, 1000));
    world_run(world, 2 * MS);
    assert_no_fault();
    assert_false(world_is_off(world, 0));
    assert_false(world->p[0].off);
}

static void a_removed_tenant_leaves_nothing_behind(void **state)
{
    (void)state;
    add_one(0, spec_of(500, 1000), synchronising());
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    add_one(2, spec_at(HIGH), requests());
    world_run(world, 3 * S);
    world_remove(world, 2);
    world_remove(world, 0);
    world_run(world, 200 * MS);
    struct world_shares s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_in_range(s.permille[1], 998, 1000);
    assert_false(world_is_off(world, 1));
    assert_true(world->t[1].order.slice_us >= 1000);
    /* The number can be used again, and carries nothing over. */
    add_one(0, spec_of(500, 1000), saturating(100 * US));
    assert_int_equal(stats_of(0).used_ns, 0);
    world_run(world, 200 * MS);
    s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_share(s, 0, 500, 15);
}

static void ids_and_specs_are_checked(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_steer *s = world->steer;
    struct sl_steer_spec spec = spec_of(500, 1000), bad = spec;
    struct sl_steer_seen seen = {.saturated_ns = 1, .active = true, .pending = true};
    struct sl_steer_stats st;
    static const uint32_t ids[] = {SL_STEER_MAX_TENANTS, SL_STEER_MAX_TENANTS + 1, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sl_steer_add(s, ids[i], &spec, S, &err), -ERANGE);
        assert_int_equal(sl_steer_set(s, ids[i], &spec, &err), -ENOENT);
        assert_int_equal(sl_steer_stats(s, ids[i], &st), -ENOENT);
        sl_steer_remove(s, ids[i]);
        sl_steer_report(s, ids[i], &seen);
    }
    assert_int_equal(sl_steer_set(s, 7, &spec, &err), -ENOENT);
    assert_int_equal(sl_steer_stats(s, 7, &st), -ENOENT);
    sl_steer_remove(s, 7);
    sl_steer_report(s, 7, &seen);
    bad.gpu_mask = 0;
    assert_int_equal(sl_steer_add(s, 7, &bad, S, &err), -EINVAL);
    bad.gpu_mask = 1U << SL_STEER_MAX_GPUS;
    assert_int_equal(sl_steer_add(s, 7, &bad, S, &err), -EINVAL);
    bad = spec_of(500, 0);
    assert_int_equal(sl_steer_add(s, 7, &bad, S, &err), -EINVAL);
    assert_int_equal(sl_steer_add(s, 1023, &spec, S, &err), 0);
    assert_int_equal(sl_steer_add(s, 1023, &spec, S, &err), -EEXIST);
    assert_int_equal(sl_steer_set(s, 1023, &bad, &err), -EINVAL);
    sl_steer_remove(s, 1023);
    assert_int_equal(sl_steer_stats(s, 1023, &st), -ENOENT);
    struct sl_steer_order order;
    uint64_t next;
    assert_int_equal(sl_steer_decide(s, S, &order, 1, &next), 0);
    assert_true(next == SL_STEER_NEVER);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(one_low_beside_a_high),
        T(a_high_that_left_counts_no_more),
        T(lows_go_one_at_a_time),
        T(lows_share_by_request),
        T(a_low_that_synchronises_has_turns),
        T(a_low_that_comes_late_gets_no_more_than_its_part),
        T(a_low_with_little_work_does_not_hold_up_others),
        T(a_low_on_two_gpus_has_turns),
        T(three_priorities),
        T(requests_in_the_middle),
        T(tenants_in_lock_step_go_on),
        T(lock_step_beside_neighbours),
        T(lock_step_beside_who_synchronises),
        T(a_tenant_is_off_all_its_gpus_together),
        T(gpus_apart_do_not_matter_to_each_other),
        T(set_while_they_run),
        T(a_lifted_limit_lets_go_at_once),
        T(a_removed_tenant_leaves_nothing_behind),
        T(ids_and_specs_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
