/* SPDX-License-Identifier: Apache-2.0 */
/* Turn-taking: a paused tenant gets no turn, and counts for nothing until it is resumed. */
#include "turns_case.h"

static void pause_tenant(uint32_t id, bool paused)
{
    struct sl_steer_spec spec = world->t[id].spec;
    spec.paused = paused;
    world_set(world, id, spec);
}

static void its_turns_go_to_the_others(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(300, 1000), saturating(170 * US));
    world_add(world, 1, spec_of(700, 1000), saturating(170 * US));
    world_run(world, 2 * S);
    pause_tenant(1, true);
    world_run(world, S);
    uint64_t grants = world->t[1].grants, steps = world->steps;
    world_run(world, 10 * S);
    assert_no_fault();
    assert_int_equal(world->t[1].grants, grants);
    assert_share(1, 0, 0, 3 * S, 13 * S);
    assert_share(0, 1000, 1, 3 * S, 13 * S);
    /* Alone, it has one turn without an end: nothing is decided for the one that is paused. */
    assert_true(world->steps - steps < 2 * 10 * S / (170 * US));
    pause_tenant(1, false);
    world_run(world, 6 * S);
    assert_no_fault();
    assert_share(0, 300, 15, 14 * S, 19 * S);
    assert_share(1, 700, 15, 14 * S, 19 * S);
}

/* Nobody else is there: the gate closes all the same, and nothing keeps the arbiter awake. */
static void it_leaves_an_empty_gpu_too(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(300, 300), saturating(170 * US));
    world_run(world, S);
    pause_tenant(0, true);
    world_run(world, S);
    uint64_t steps = world->steps;
    world_run(world, 10 * S);
    assert_no_fault();
    assert_share(0, 0, 0, 2 * S, 12 * S);
    assert_true(world->steps - steps < 300); /* two for each sample of 100 ms */
    pause_tenant(0, false);
    world_run(world, 3 * S);
    assert_no_fault();
    assert_share(0, 300, 15, 13 * S, 15 * S);
}

/* Those who wait for several GPUs do not reserve them while they are paused. */
static void it_reserves_nothing(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(3, 500, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(1, 500, 1000), saturating(170 * US));
    world_add(world, 2, spec_on(2, 500, 1000), saturating(170 * US));
    world_run(world, S);
    pause_tenant(0, true);
    world_run(world, 5 * S);
    assert_no_fault();
    assert_share(1, 1000, 1, 2 * S, 6 * S);
    assert_share(2, 1000, 1, 2 * S, 6 * S);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(its_turns_go_to_the_others),
        T(it_leaves_an_empty_gpu_too),
        T(it_reserves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
