/* SPDX-License-Identifier: Apache-2.0 */
/* Turn-taking: do shares hold? Named cases, then a few hundred random ones on virtual time. */
#include "turns_case.h"

static void alone_without_limit_has_one_turn(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(300, 1000), saturating(100 * US));
    world_run(world, 2 * S);
    assert_no_fault();
    assert_share(0, 1000, 1, 0, 2 * S);
    assert_int_equal(world->t[0].grants, 1);
    assert_int_equal(world->t[0].closes, 0);
    struct sl_turns_stats st;
    assert_int_equal(sl_turns_stats(world->turns, 0, world->now_ns, &st), 0);
    assert_int_equal(st.state, SL_TURNS_RUNNING);
    assert_in_range(st.share_1s_permille, 990, 1000);
    assert_in_range(st.share_60s_permille, 990, 1000); /* of the two seconds it has been here */
}

static void shares_of_a_minute(void **state)
{
    (void)state;
    struct sl_turns_stats st;
    world_add(world, 0, spec_of(250, 250), saturating(100 * US));
    for (int i = 0; i < 3; i++) {
        world_run(world, 30 * S);
        assert_int_equal(sl_turns_stats(world->turns, 0, world->now_ns, &st), 0);
        assert_in_range(st.share_60s_permille, 240, 260);
    }
    assert_no_fault();
}

static void caps_hold_alone(void **state)
{
    (void)state;
    static const uint32_t limits[] = {10, 100, 250, 500, 750, 900, 990};
    static const uint64_t kernels[] = {10 * US, 170 * US, 2 * MS, 20 * MS, 50 * MS};
    for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
        for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
            world_fini(world);
            world_init(world, HANDOVER);
            world_add(world, 0, spec_of(limits[l], limits[l]), saturating(kernels[k]));
            world_run(world, 11 * S);
            assert_no_fault();
            assert_share(0, limits[l], 5 + (uint32_t)(kernels[k] / (20 * MS)), S, 11 * S);
            assert_in_range(world_worst_second(world, 0, limits[l], 0, 11 * S), 0, 100);
        }
    }
}

static void two_tenants(void **state)
{
    (void)state;
    static const uint32_t shares[][2] = {{300, 700}, {100, 900}, {500, 500}, {20, 980}};
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        for (uint32_t hard = 0; hard < 2; hard++) {
            world_fini(world);
            world_init(world, HANDOVER);
            for (uint32_t id = 0; id < 2; id++)
                world_add(world, id, spec_of(shares[i][id], hard ? shares[i][id] : 1000),
                          saturating(170 * US));
            world_run(world, 11 * S);
            assert_no_fault();
            for (uint32_t id = 0; id < 2; id++)
                assert_share(id, shares[i][id], 10, S, 11 * S);
            uint32_t sum = world_share(world, 0, S, 11 * S) + world_share(world, 1, S, 11 * S);
            assert_in_range(sum, 985, 1001);
        }
    }
}

static void long_kernels_cost_latency_not_share(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(250, 250), saturating(20 * MS));
    world_add(world, 1, spec_of(750, 750), saturating(170 * US));
    world_run(world, 11 * S);
    assert_no_fault();
    assert_share(0, 250, 10, S, 11 * S);
    assert_share(1, 750, 10, S, 11 * S);
}

static void eight_equal_tenants(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 8; id++)
        world_add(world, id, spec_of(125, 125), saturating((uint64_t)(1 + id * id) * 100 * US));
    world_run(world, 11 * S);
    assert_no_fault();
    uint32_t sum = 0;
    for (uint32_t id = 0; id < 8; id++) {
        assert_share(id, 125, 5, S, 11 * S);
        sum += world_share(world, id, S, 11 * S);
    }
    assert_in_range(sum, 970, 1000);
}

static void burst_gives_way_and_comes_back(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(300, 1000), saturating(170 * US));
    world_run(world, 3 * S);
    assert_share(0, 1000, 10, 0, 3 * S);
    world_add(world, 1, spec_of(700, 1000), saturating(170 * US));
    world_run(world, 3 * S);
    assert_share(0, 300, 15, 3 * S, 4 * S);
    assert_share(1, 700, 15, 3 * S, 4 * S);
    world_remove(world, 1);
    world_run(world, 3 * S);
    assert_no_fault();
    assert_share(0, 1000, 10, 6 * S, 7 * S);
    assert_share(0, 1000, 10, 7 * S, 9 * S);
}

static void set_is_in_force_within_a_second(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(250, 250), saturating(170 * US));
    world_add(world, 1, spec_of(250, 1000), saturating(2 * MS));
    world_run(world, 3 * S);
    assert_share(0, 250, 10, S, 3 * S);
    world_set(world, 0, spec_of(500, 500));
    world_run(world, 3 * S);
    assert_share(0, 500, 15, 3 * S, 4 * S);
    assert_share(0, 500, 10, 4 * S, 6 * S);
    world_set(world, 0, spec_of(100, 100));
    world_run(world, 3 * S);
    assert_no_fault();
    assert_share(0, 100, 15, 6 * S, 7 * S);
    assert_share(0, 100, 10, 7 * S, 9 * S);
    assert_share(1, 900, 10, 7 * S, 9 * S);
}

static void best_effort_gets_the_rest_and_never_nothing(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(300, 300), saturating(170 * US));
    world_add(world, 1, spec_of(0, 1000), saturating(170 * US));
    world_run(world, 5 * S);
    assert_share(0, 300, 10, S, 5 * S);
    assert_share(1, 700, 10, S, 5 * S);
    world_set(world, 0, spec_of(1000, 1000));
    world_run(world, 5 * S);
    assert_no_fault();
    assert_in_range(world_share(world, 1, 6 * S, 10 * S), 5, 30);
}

/* It lived on what the other left; when the other stops leaving any, it must not pay for that. */
static void best_effort_survives_the_end_of_pauses(void **state)
{
    (void)state;
    struct world_load pausing = {.kernel_ns = 170 * US, .burst_ns = 50 * MS, .think_ns = 50 * MS};
    world_add(world, 0, spec_of(900, 1000), pausing);
    world_add(world, 1, spec_of(0, 1000), saturating(20 * MS));
    world_run(world, 60 * S);
    assert_in_range(world_share(world, 1, 0, 60 * S), 300, 600);
    world_load_set(world, 0, saturating(170 * US));
    world_run(world, 20 * S);
    assert_no_fault();
    for (uint64_t from = 60; from < 80; from += 5)
        assert_in_range(world_share(world, 1, from * S, (from + 5) * S), 2, 40);
}

/* Pauses between steps must not cost a tenant the share it asked for. */
static void short_pauses_keep_the_share(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(500, 1000),
              (struct world_load){.kernel_ns = 170 * US, .burst_ns = 5 * MS, .think_ns = 300 * US});
    world_add(world, 1, spec_of(500, 1000), saturating(170 * US));
    world_run(world, 11 * S);
    assert_no_fault();
    assert_in_range(world_share(world, 0, S, 11 * S), 430, 520);
    uint32_t sum = world_share(world, 0, S, 11 * S) + world_share(world, 1, S, 11 * S);
    assert_in_range(sum, 960, 1001);
}

static void sleepers_bank_nothing(void **state)
{
    (void)state;
    world_add(world, 0, spec_of(500, 1000), saturating(170 * US));
    world_add(world, 1, spec_of(500, 1000),
              (struct world_load){.kernel_ns = 170 * US, .burst_ns = 5 * MS, .think_ns = 30 * S});
    world_run(world, 20 * S);
    world_load_set(world, 1, saturating(170 * US));
    world_run(world, 2 * S);
    assert_no_fault();
    assert_share(0, 500, 100, 20 * S, 21 * S);
    assert_share(0, 500, 15, 21 * S, 22 * S);
}

static void high_interrupts_low(void **state)
{
    (void)state;
    struct sl_steer_spec high = spec_of(0, 1000), low = spec_of(0, 1000);
    high.priority = SL_TURNS_HIGH;
    low.priority = SL_TURNS_LOW;
    world_add(world, 0, high,
              (struct world_load){.kernel_ns = 100 * US, .burst_ns = 2 * MS, .think_ns = 8 * MS});
    world_add(world, 1, low, saturating(170 * US));
    world_run(world, 5 * S);
    assert_no_fault();
    struct world_tenant *t = &world->t[0];
    assert_true(t->bursts > 330); /* of 2 ms, after 8 ms and the wait for a turn */
    /* what is in flight, and the hand-over */
    assert_in_range(t->delay_max_ns, 0, SL_TURN_WINDOW_NS + 400 * US);
    uint32_t left = 1000 - world_share(world, 0, S, 5 * S);
    assert_in_range(world_share(world, 1, S, 5 * S), left * 95 / 100, left);
}

static void high_goes_first(void **state)
{
    (void)state;
    struct sl_steer_spec high = spec_of(500, 1000), low = spec_of(500, 1000);
    high.priority = SL_TURNS_HIGH;
    low.priority = SL_TURNS_LOW;
    world_add(world, 1, low, saturating(170 * US));
    world_add(world, 2, spec_of(500, 1000), saturating(170 * US));
    world_run(world, S);
    assert_in_range(world_share(world, 1, 0, S), 0, 30); /* the normal one goes first */
    world_add(world, 0, high, saturating(170 * US));
    world_run(world, 5 * S);
    assert_no_fault();
    assert_share(0, 1000, 10, 1200 * MS, 6 * S);
}

static void high_obeys_its_limit(void **state)
{
    (void)state;
    struct sl_steer_spec high = spec_of(300, 300);
    high.priority = SL_TURNS_HIGH;
    world_add(world, 0, high, saturating(170 * US));
    world_add(world, 1, spec_of(100, 1000), saturating(170 * US));
    world_run(world, 6 * S);
    assert_no_fault();
    assert_share(0, 300, 10, S, 6 * S);
    assert_in_range(world_share(world, 1, S, 6 * S), 670, 700);
}

static uint64_t random_kernel(struct rng *r)
{
    static const uint64_t scale[] = {10 * US, 100 * US, MS, 10 * MS, 50 * MS};
    uint64_t i = rng_below(r, 4);
    return scale[i] + rng_below(r, scale[i + 1] - scale[i]);
}

static void random_tenant(struct rng *r, uint32_t id, uint32_t n)
{
    uint32_t request = 20 + (uint32_t)rng_below(r, 2000 / n);
    if (request > 1000)
        request = 1000;
    uint32_t limit = 1000;
    if (rng_below(r, 3) == 0)
        limit = request;
    else if (rng_below(r, 3) == 0)
        limit = request + (uint32_t)rng_below(r, 1001 - request);
    world_add(world, id, spec_of(request, limit), saturating(random_kernel(r)));
}

static void check_random(uint64_t seed)
{
    struct rng r = {seed};
    uint32_t n = 1 + (uint32_t)rng_below(&r, 8);
    for (uint32_t id = 0; id < n; id++)
        random_tenant(&r, id, n);
    world_run(world, 11 * S);
    if (world->fault[0])
        fail_msg("seed %llu: %s", (unsigned long long)seed, world->fault);
    uint32_t expected[WORLD_TENANTS] = {0};
    world_expected(world, expected);
    for (uint32_t id = 0; id < n; id++) {
        uint32_t got = world_share(world, id, S, 11 * S);
        uint32_t miss = got > expected[id] ? got - expected[id] : expected[id] - got;
        uint32_t worst = world_worst_second(world, id, expected[id], S, 11 * S);
        if (miss <= 10 && worst <= 100)
            continue;
        for (uint32_t i = 0; i < n; i++)
            print_message("  %u: %u:%u kernel %llu us: expected %u, got %u\n", i,
                          world->t[i].spec.request_permille, world->t[i].spec.limit_permille,
                          (unsigned long long)(world->t[i].load.kernel_ns / US), expected[i],
                          world_share(world, i, S, 11 * S));
        fail_msg("seed %llu, tenant %u: off by %u permille, worst second by %u",
                 (unsigned long long)seed, id, miss, worst);
    }
}

static void random_shares_converge(void **state)
{
    (void)state;
    const char *given = getenv("SLUICE_SEED");
    if (given) {
        check_random(strtoull(given, NULL, 0));
        return;
    }
    const char *count = getenv("SLUICE_SEEDS");
    uint64_t last = count ? strtoull(count, NULL, 0) : 300;
    for (uint64_t seed = 1; seed <= last; seed++) {
        world_fini(world);
        world_init(world, HANDOVER);
        check_random(seed);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(alone_without_limit_has_one_turn),
        T(shares_of_a_minute),
        T(caps_hold_alone),
        T(two_tenants),
        T(long_kernels_cost_latency_not_share),
        T(eight_equal_tenants),
        T(burst_gives_way_and_comes_back),
        T(set_is_in_force_within_a_second),
        T(best_effort_gets_the_rest_and_never_nothing),
        T(best_effort_survives_the_end_of_pauses),
        T(short_pauses_keep_the_share),
        T(sleepers_bank_nothing),
        T(high_interrupts_low),
        T(high_goes_first),
        T(high_obeys_its_limit),
        T(random_shares_converge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
