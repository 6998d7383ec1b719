/* SPDX-License-Identifier: Apache-2.0 */
/* Steering: do limits and shares hold? */
#include "steer_case.h"

static const uint32_t limits[] = {100, 250, 500, 750};

static void check_limit(uint32_t limit, struct world_load load)
{
    start_afresh();
    add_one(0, spec_of(limit, limit), load);
    world_run(world, S);
    struct world_shares s = world_shares(world, 5 * S);
    assert_no_fault();
    assert_share(s, 0, limit, 10);
}

static void limits_of_a_saturating_tenant(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        check_limit(limits[i], saturating(100 * US));
        check_limit(limits[i], saturating(20 * MS));
        check_limit(limits[i], saturating(2 * S));
    }
}

static void limits_of_training(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++)
        check_limit(limits[i], training());
}

/* Alone it uses about 230 permille, in gaps of its host: those are free. */
static void a_light_tenant_pays_for_what_it_uses(void **state)
{
    (void)state;
    static const uint32_t above[] = {300, 500, 750};
    add_one(0, spec_of(1000, 1000), launch_bound());
    struct world_shares alone = world_shares(world, 2 * S);
    uint64_t steps = world->t[0].bursts;
    assert_in_range(alone.permille[0], 200, 260);
    for (size_t i = 0; i < 3; i++) {
        start_afresh();
        add_one(0, spec_of(above[i], above[i]), launch_bound());
        world_run(world, 2 * S);
        assert_no_fault();
        assert_int_equal(world->t[0].offs, 0);
        assert_in_range(world->t[0].bursts, steps * 99 / 100, steps * 101 / 100);
    }
    check_limit(100, launch_bound());
    check_limit(alone.permille[0] / 2, launch_bound());
}

static void pairs_by_request(void **state)
{
    (void)state;
    static const uint32_t first[] = {300, 100, 500};
    for (size_t i = 0; i < 3; i++) {
        start_afresh();
        add_one(0, spec_of(first[i], 1000), saturating(100 * US));
        add_one(1, spec_of(1000 - first[i], 1000), saturating(20 * MS));
        world_run(world, S);
        struct world_shares s = world_shares(world, 5 * S);
        assert_no_fault();
        assert_share(s, 0, first[i], 15);
        assert_share(s, 1, 1000 - first[i], 15);
        assert_int_equal(world->t[0].offs + world->t[1].offs, 0);
    }
}

static void three_by_request(void **state)
{
    (void)state;
    static const uint32_t requests_of[] = {200, 300, 500};
    for (uint32_t id = 0; id < 3; id++)
        add_one(id, spec_of(requests_of[id], 1000), saturating(100 * US));
    world_run(world, S);
    struct world_shares s = world_shares(world, 5 * S);
    assert_no_fault();
    for (uint32_t id = 0; id < 3; id++)
        assert_share(s, id, requests_of[id], 15);
}

static void pairs_by_limit(void **state)
{
    (void)state;
    static const uint32_t first[] = {300, 100, 500};
    for (size_t i = 0; i < 3; i++) {
        start_afresh();
        add_one(0, spec_of(first[i], first[i]), saturating(100 * US));
        add_one(1, spec_of(1000 - first[i], 1000 - first[i]), saturating(100 * US));
        world_run(world, S);
        struct world_shares s = world_shares(world, 5 * S);
        assert_no_fault();
        assert_share(s, 0, first[i], 15);
        assert_share(s, 1, 1000 - first[i], 15);
    }
}

/* A limit holds beside others as well, whatever part of the GPU its tenant's slices would give it. */
static void limits_beside_a_saturating_tenant(void **state)
{
    (void)state;
    static const uint32_t own[] = {50, 100, 200, 250, 300, 400, 500},
                          other[] = {100, 300, 500, 800};
    for (size_t i = 0; i < 28; i++) {
        uint32_t limit = own[i / 4], request = other[i % 4];
        uint32_t fair = 1000 * limit / (limit + request);
        start_afresh();
        add_one(0, spec_of(limit, limit), saturating(100 * US));
        add_one(1, spec_of(request, 1000), saturating(100 * US));
        world_run(world, S);
        struct world_shares s = world_shares(world, 5 * S);
        assert_no_fault();
        assert_share(s, 0, fair < limit ? fair : limit, 20);
        assert_in_range(s.permille[0] + s.permille[1], 970, 1000);
        assert_int_equal(world->t[1].offs, 0);
    }
}

/* Four processes of one tenant count as one. */
static void processes_of_a_tenant_share_its_part(void **state)
{
    (void)state;
    add_one(0, spec_of(250, 250), saturating(100 * US));
    for (int i = 0; i < 3; i++)
        world_start(world, 0, 0, saturating(100 * US));
    add_one(1, spec_of(750, 750), saturating(100 * US));
    world_run(world, S);
    struct world_shares s = world_shares(world, 5 * S);
    assert_no_fault();
    assert_share(s, 0, 250, 20);
    assert_share(s, 1, 750, 20);
}

/* With nobody to share with, their slices stay the driver's: shorter ones would only cost switches. */
static void processes_of_a_tenant_alone(void **state)
{
    (void)state;
    add_one(0, spec_of(250, 250), saturating(100 * US));
    for (int i = 0; i < 3; i++)
        world_start(world, 0, 0, saturating(100 * US));
    world_run(world, S);
    struct world_shares s = world_shares(world, 5 * S);
    assert_no_fault();
    assert_share(s, 0, 250 * 2048 / (2048 + 160), 15);
}

/* What a tenant leaves idle is the others', at once. */
static void nobody_is_held_back_while_nobody_is_behind(void **state)
{
    (void)state;
    add_one(0, spec_of(500, 1000), saturating(100 * US));
    uint32_t p = add_one(1, spec_of(500, 1000), saturating(100 * US));
    world_run(world, S);
    world_stop(world, p);
    struct world_shares s = world_shares(world, S);
    assert_no_fault();
    assert_in_range(s.permille[0], 990, 1000);
    assert_int_equal(world->t[0].offs, 0);
}

/* Alone and without a limit nothing depends on what it uses. It is counted only for who pays for it, and costs nothing of
 * its speed. */
static void what_a_lone_tenant_uses_is_counted_for_the_bill(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 2; id++) {
        struct sl_steer_spec spec = spec_of(300, 1000);
        spec.gpu_mask = 1U << id;
        spec.billed = id == 1;
        world_add(world, id, spec);
        (void)world_start(world, id, id, saturating(100 * US));
    }
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_in_range(s.permille[0], 990, 1000);
    assert_in_range(s.permille[1], 990, 1000);
    assert_int_equal(stats_of(0).used_ns, 0);
    assert_in_range(stats_of(1).used_ns, 9800 * MS, 10000 * MS);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_a_lone_tenant_uses_is_counted_for_the_bill),
        T(limits_of_a_saturating_tenant),
        T(limits_of_training),
        T(a_light_tenant_pays_for_what_it_uses),
        T(pairs_by_request),
        T(three_by_request),
        T(pairs_by_limit),
        T(limits_beside_a_saturating_tenant),
        T(processes_of_a_tenant_share_its_part),
        T(processes_of_a_tenant_alone),
        T(nobody_is_held_back_while_nobody_is_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
