/* SPDX-License-Identifier: Apache-2.0 */
/* Steering: a paused tenant is off the GPU, and counts for nothing until it is resumed. */
#include "steer_case.h"

static void pause_tenant(uint32_t id, bool paused)
{
    struct sl_steer_spec spec = world->t[id].spec;
    spec.paused = paused;
    world_set(world, id, spec);
}

static void its_share_goes_to_the_others(void **state)
{
    (void)state;
    add_one(0, spec_of(300, 1000), saturating(100 * US));
    add_one(1, spec_of(700, 1000), saturating(100 * US));
    world_run(world, 2 * S);
    pause_tenant(1, true);
    world_run(world, 100 * MS);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_int_equal(s.permille[1], 0);
    assert_in_range(s.permille[0], 990, 1000);
    pause_tenant(1, false);
    world_run(world, S);
    s = world_shares(world, 5 * S);
    assert_no_fault();
    assert_share(s, 0, 300, 15);
    assert_share(s, 1, 700, 15);
}

/* Orders end after a second. The next one comes before that, and the tenant does not notice. */
static void it_stays_off_in_one_piece(void **state)
{
    (void)state;
    add_one(0, spec_of(500, 1000), saturating(100 * US));
    world_run(world, S);
    uint64_t offs = world->t[0].offs, decides = world->decides, ran = world->t[0].ran_ns;
    pause_tenant(0, true);
    world_run(world, 20 * S);
    assert_no_fault();
    assert_true(world->t[0].longest_off_ns > 19 * S);
    assert_true(world->t[0].ran_ns - ran < 5 * MS);
    /* An order each half second, and hardly more work for the arbiter than that. */
    assert_in_range(world->t[0].offs - offs, 1, 42);
    assert_true(world->decides - decides < 100);
    pause_tenant(0, false);
    world_run(world, 10 * MS);
    assert_false(world_is_off(world, 0));
}

/* The lower ones do not wait until a paused tenant of a high priority counts as quiet. */
static void a_paused_high_holds_nobody_back(void **state)
{
    (void)state;
    add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(LOW), saturating(100 * US));
    add_one(2, spec_at(LOW), saturating(100 * US));
    world_run(world, 2 * S);
    pause_tenant(0, true);
    world_run(world, 200 * MS);
    uint64_t offs = world->t[1].offs + world->t[2].offs;
    struct world_shares s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_true(world->t[1].order.slice_us >= 1000);
    assert_int_equal(world->t[1].offs + world->t[2].offs, offs);
    assert_share(s, 1, 500, 15);
    assert_share(s, 2, 500, 15);
}

/* A pause is no waiting, and saves nothing up for a limit. */
static void a_limit_holds_after_a_pause(void **state)
{
    (void)state;
    add_one(0, spec_of(300, 300), saturating(100 * US));
    world_run(world, 2 * S);
    pause_tenant(0, true);
    world_run(world, 100 * MS);
    uint64_t off_ns = stats_of(0).off_ns;
    world_run(world, 10 * S);
    assert_int_equal(stats_of(0).off_ns, off_ns);
    assert_int_equal(stats_of(0).share_1s_permille, 0);
    pause_tenant(0, false);
    struct world_shares s = world_shares(world, S);
    assert_no_fault();
    assert_share(s, 0, 300, 40);
}

/* Windows, turns and slices are made for those who run. */
static void a_paused_one_gets_no_window(void **state)
{
    (void)state;
    add_one(0, spec_of(500, 1000), synchronising());
    add_one(1, spec_of(500, 1000), saturating(20 * MS));
    world_run(world, 4 * S);
    assert_true(stats_of(0).window_permille > 0);
    pause_tenant(0, true);
    world_run(world, 200 * MS);
    uint64_t offs = world->t[1].offs;
    struct world_shares s = world_shares(world, 5 * S);
    assert_no_fault();
    assert_int_equal(s.permille[0], 0);
    assert_int_equal(stats_of(0).window_permille, 0);
    assert_int_equal(world->t[1].offs, offs);
    assert_in_range(s.permille[1], 990, 1000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(its_share_goes_to_the_others),    T(it_stays_off_in_one_piece),
        T(a_paused_high_holds_nobody_back), T(a_limit_holds_after_a_pause),
        T(a_paused_one_gets_no_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
