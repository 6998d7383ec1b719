/* SPDX-License-Identifier: Apache-2.0 */
/* Turn-taking on bad days: stuck, frozen, killed and lying tenants, many tenants, many GPUs. */
#include "turns_case.h"

static void a_kernel_that_never_ends_freezes_nobody(void **state)
{
    (void)state;
    world_add(world, 1, spec_on(1, 300, 1000), saturating(170 * US));
    world_add(world, 2, spec_on(1, 300, 1000), saturating(170 * US));
    world_run(world, S);
    world_add(world, 0, spec_on(1, 300, 1000), saturating(3600 * S));
    world_run(world, 10 * S);
    assert_no_fault();
    struct sl_turns_stats st = stats_of(0);
    assert_int_equal(st.state, SL_TURNS_OVERRUN);
    assert_int_equal(st.overruns, 1);
    assert_int_equal(world->t[0].grants, 1);
    assert_in_range(st.debt_ns, S, 10 * S);
    /* the hardware gives the stuck one half; the others take turns in the rest */
    assert_share(0, 500, 20, 2 * S, 11 * S);
    assert_share(1, 250, 20, 2 * S, 11 * S);
    assert_share(2, 250, 20, 2 * S, 11 * S);
    world_run(world, 60 * S);
    assert_no_fault();
    assert_in_range(stats_of(0).debt_ns, S, 10 * S);
    world_remove(world, 0);
    world_run(world, 2 * S);
    assert_no_fault();
    assert_share(1, 500, 10, 72 * S, 73 * S);
    assert_share(2, 500, 10, 72 * S, 73 * S);
}

static void five_second_kernels_are_paid_back(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(1, 250, 1000), saturating(5 * S));
    world_add(world, 1, spec_on(1, 750, 1000), saturating(170 * US));
    world_run(world, 100 * S);
    assert_no_fault();
    assert_share(0, 250, 50, 0, 100 * S);
    assert_in_range(world_share(world, 1, 0, 100 * S), 690, 790);
}

static void a_long_kernel_under_a_cap_is_paid_back(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(1, 100, 100), saturating(S));
    world_run(world, 101 * S);
    assert_no_fault();
    assert_share(0, 100, 10, 0, 100 * S);
    assert_true(stats_of(0).debt_ns <= 10 * S);
}

static void a_frozen_holder_is_passed_over_and_comes_back(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(1, 500, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(1, 500, 1000), saturating(170 * US));
    world_run(world, S);
    while (!world->t[0].open || !world->t[0].in_flight_ns)
        world_run(world, MS);
    struct world_load frozen = saturating(170 * US);
    frozen.stopped = true;
    world_load_set(world, 0, frozen);
    uint64_t before = world->t[1].done_ns;
    world_run(world, S);
    assert_no_fault();
    assert_int_equal(stats_of(0).state, SL_TURNS_OVERRUN);
    /* the rest of a turn and the drain, no more */
    assert_in_range(world->t[1].done_ns - before, 900 * MS, S);
    world_load_set(world, 0, saturating(170 * US));
    world_run(world, 10 * S);
    assert_no_fault();
    assert_share(0, 500, 15, 7 * S, 12 * S);
}

static void a_killed_holder_frees_its_gpu_at_once(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(3, 500, 1000), saturating(50 * MS));
    world_add(world, 1, spec_on(1, 500, 1000), saturating(170 * US));
    world_run(world, S);
    while (!world->t[0].open)
        world_run(world, MS);
    assert_false(world->t[1].open);
    world_remove(world, 0);
    world_run(world, 1);
    assert_true(world->t[1].open);
    world_run(world, S);
    assert_no_fault();
    assert_share(1, 1000, 1, 1100 * MS, 2 * S);
}

static void sixty_four_tenants(void **state)
{
    (void)state;
    struct rng r = {64};
    for (uint32_t round = 0; round < 2; round++) {
        world_fini(world);
        world_init(world, HANDOVER);
        uint32_t total = 0;
        for (uint32_t id = 0; id < 64; id++) {
            uint32_t request = round ? 5 + (uint32_t)rng_below(&r, 30) : 15;
            total += request;
            world_add(world, id, spec_on(1, request, 1000), saturating(100 * US));
        }
        world_run(world, 11 * S);
        assert_no_fault();
        uint32_t sum = 0;
        for (uint32_t id = 0; id < 64; id++) {
            uint32_t want = world->t[id].spec.request_permille * 1000 / total;
            assert_share(id, want, 10, S, 11 * S);
            assert_in_range(world_share(world, id, S, 11 * S), want / 2, want * 2 + 1);
            sum += world_share(world, id, S, 11 * S);
        }
        assert_in_range(sum, 930, 1010);
    }
}

static void two_tenants_on_two_gpus_alternate(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(3, 500, 1000), saturating(2 * MS));
    world_add(world, 1, spec_on(3, 500, 1000), saturating(170 * US));
    world_run(world, 11 * S);
    assert_no_fault();
    assert_share(0, 500, 10, S, 11 * S);
    assert_share(1, 500, 10, S, 11 * S);
}

static void a_tenant_on_two_gpus_does_not_starve(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(3, 300, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(1, 700, 1000), saturating(5 * MS));
    world_add(world, 2, spec_on(2, 700, 1000), saturating(170 * US));
    world_run(world, 11 * S);
    assert_no_fault();
    assert_in_range(world_share(world, 0, S, 11 * S), 280, 320);
    assert_in_range(world_share(world, 1, S, 11 * S), 650, 710);
    assert_in_range(world_share(world, 2, S, 11 * S), 650, 710);
}

static void a_ring_of_tenants_goes_round(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(3, 300, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(6, 300, 1000), saturating(MS));
    world_add(world, 2, spec_on(5, 300, 1000), saturating(3 * MS));
    world_run(world, 11 * S);
    assert_no_fault();
    for (uint32_t id = 0; id < 3; id++)
        assert_share(id, 333, 25, S, 11 * S);
}

/* What GPUs did while apart must not count when a tenant ties them together. */
static void races_that_were_apart_start_even(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(1, 20, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(2, 900, 1000), saturating(170 * US));
    world_run(world, 20 * S);
    world_add(world, 2, spec_on(3, 500, 1000), saturating(170 * US));
    world_run(world, 3 * S);
    assert_no_fault();
    for (uint32_t id = 0; id < 3; id++)
        assert_true(world_share(world, id, 20 * S, 22 * S) > 10);
    world_remove(world, 0);
    world_run(world, 3 * S);
    assert_no_fault();
    assert_share(1, 643, 30, 24 * S, 26 * S);
    assert_share(2, 357, 30, 24 * S, 26 * S);
}

/* GPU 0 ran fast, GPU 1 slowly; the newcomer must not be owed the difference. */
static void a_newcomer_is_owed_nothing_by_the_faster_race(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(1, 100, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(2, 900, 1000), saturating(170 * US));
    world_run(world, 20 * S);
    world_add(world, 2, spec_on(3, 300, 1000), saturating(170 * US));
    world_run(world, S);
    world_remove(world, 1);
    world_run(world, 4 * S);
    assert_no_fault();
    assert_share(0, 250, 25, 22 * S, 25 * S);
    assert_share(2, 750, 25, 22 * S, 25 * S);
}

/* Using what nobody else can is not held against a tenant later. */
static void filling_gaps_is_free(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(3, 300, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(1, 300, 1000), saturating(170 * US));
    world_add(world, 2, spec_on(2, 700, 1000), saturating(170 * US));
    world_run(world, 20 * S);
    assert_share(0, 300, 30, S, 20 * S);
    assert_in_range(world_share(world, 1, S, 20 * S), 620, 720);
    world_remove(world, 2);
    world_run(world, 3 * S);
    assert_no_fault();
    assert_share(0, 500, 40, 21 * S, 23 * S);
    assert_share(1, 500, 40, 21 * S, 23 * S);
}

/* A frozen neighbour uses nothing: nobody's cap gets wider by it. */
static void caps_hold_beside_a_frozen_tenant(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(1, 500, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(1, 300, 300), saturating(170 * US));
    world_run(world, S);
    while (!world->t[0].open)
        world_run(world, MS);
    struct world_load frozen = saturating(170 * US);
    frozen.stopped = true;
    world_load_set(world, 0, frozen);
    world_run(world, 10 * S);
    assert_no_fault();
    assert_int_equal(stats_of(0).state, SL_TURNS_OVERRUN);
    assert_share(1, 300, 10, 3 * S, 10 * S);
}

static void debt_is_paid_but_bounded(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(1, 300, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(1, 700, 1000), saturating(170 * US));
    world_run(world, S);
    while (!world->t[0].open)
        world_run(world, MS);
    struct world_load frozen = saturating(170 * US);
    frozen.stopped = true;
    world_load_set(world, 0, frozen);
    world_run(world, 60 * S); /* half the GPU for a minute, as far as anyone can tell */
    world_load_set(world, 0, saturating(170 * US));
    uint64_t from_ns = world->now_ns - world->start_ns;
    world_run(world, 30 * S);
    assert_no_fault();
    /* 30 s at its neighbour's share of 70 % */
    assert_in_range(world_share(world, 0, from_ns + S, from_ns + 19 * S), 0, 10);
    assert_share(0, 300, 20, from_ns + 23 * S, from_ns + 29 * S);
}

static void debt_melts_asleep(void **state)
{
    (void)state;
    world_add(world, 1, spec_on(1, 900, 1000), saturating(170 * US));
    world_run(world, S);
    world_add(world, 0, spec_on(1, 100, 1000),
              (struct world_load){.kernel_ns = 2 * S, .burst_ns = 2 * S, .think_ns = 30 * S});
    world_run(world, 6 * S);
    assert_true(stats_of(0).debt_ns > S);
    /* somebody else comes and goes, so that there are plans to make meanwhile */
    world_add(world, 2, spec_on(1, 900, 1000),
              (struct world_load){.kernel_ns = MS, .burst_ns = MS, .think_ns = 500 * MS});
    world_run(world, 20 * S);
    world_remove(world, 2);
    world_load_set(world, 0, saturating(170 * US));
    world_run(world, 4 * S);
    assert_no_fault();
    assert_share(0, 100, 40, 27 * S, 30 * S);
}

static void changing_gpus_and_priority_live(void **state)
{
    (void)state;
    world_add(world, 0, spec_on(1, 500, 1000), saturating(170 * US));
    world_add(world, 1, spec_on(1, 500, 1000), saturating(170 * US));
    world_run(world, 2 * S);
    assert_share(0, 500, 15, S, 2 * S);
    struct sl_steer_spec high = spec_on(1, 500, 1000);
    high.priority = SL_TURNS_HIGH;
    world_set(world, 1, high);
    world_run(world, 2 * S);
    assert_in_range(world_share(world, 1, 2 * S, 4 * S), 960, 1000);
    world_set(world, 1, spec_on(1, 500, 1000));
    world_run(world, 2 * S);
    assert_no_fault();
    assert_share(0, 500, 30, 5 * S, 6 * S);
    assert_share(1, 500, 30, 5 * S, 6 * S);
}

/*
 * Whoever wants all the time gets at least half of its part of everybody it can ever meet. Not all
 * of it: a tenant on several GPUs waits for each of them to drain, and the gaps this leaves go to
 * those whose kernels fit.
 */
static void check_random_gpus(uint64_t seed)
{
    struct rng r = {seed};
    uint32_t n = 2 + (uint32_t)rng_below(&r, 7), gpus = 1 + (uint32_t)rng_below(&r, 4);
    static const uint64_t kernels[] = {50 * US, 170 * US, 2 * MS, 20 * MS};
    for (uint32_t id = 0; id < n; id++) {
        uint32_t mask = 1 + (uint32_t)rng_below(&r, (1U << gpus) - 1);
        uint32_t request = 50 + (uint32_t)rng_below(&r, 400);
        struct world_load load = saturating(kernels[rng_below(&r, 4)]);
        if (rng_below(&r, 4) == 0) {
            load.burst_ns = 100 * US + rng_below(&r, 50 * MS);
            load.think_ns = rng_below(&r, 200 * MS);
        }
        world_add(world, id, spec_on(mask, request, 1000), load);
    }
    world_run(world, 11 * S);
    if (world->fault[0])
        fail_msg("seed %llu: %s", (unsigned long long)seed, world->fault);
    if (getenv("SLUICE_SEED"))
        for (uint32_t id = 0; id < n; id++)
            print_message("  %u: GPUs %x request %u, kernel %llu us, burst %llu us, think %llu us: "
                          "%llu turns, got %u\n",
                          id, world->t[id].spec.gpu_mask, world->t[id].spec.request_permille,
                          (unsigned long long)(world->t[id].load.kernel_ns / US),
                          (unsigned long long)(world->t[id].load.burst_ns / US),
                          (unsigned long long)(world->t[id].load.think_ns / US),
                          (unsigned long long)world->t[id].grants,
                          world_share(world, id, S, 11 * S));
    for (uint32_t id = 0; id < n; id++) {
        uint32_t meets = 0;
        for (uint32_t i = 0; i < n; i++)
            if (world->t[i].spec.gpu_mask & world->t[id].spec.gpu_mask)
                meets += world->t[i].spec.request_permille;
        uint32_t fair = world->t[id].spec.request_permille * 1000 / meets;
        uint32_t got = world_share(world, id, S, 11 * S);
        if (world->t[id].load.burst_ns == 0 && got < fair * 50 / 100)
            fail_msg("seed %llu: tenant %u got %u permille of at least %u",
                     (unsigned long long)seed, id, got, fair);
        if (world->t[id].grants < 2 && !world->t[id].open)
            fail_msg("seed %llu: tenant %u had %llu turns", (unsigned long long)seed, id,
                     (unsigned long long)world->t[id].grants);
    }
}

static void random_gpus_starve_nobody(void **state)
{
    (void)state;
    const char *given = getenv("SLUICE_SEED");
    if (given) {
        check_random_gpus(strtoull(given, NULL, 0));
        return;
    }
    const char *count = getenv("SLUICE_SEEDS");
    uint64_t last = count ? strtoull(count, NULL, 0) : 200;
    for (uint64_t seed = 1; seed <= last; seed++) {
        world_fini(world);
        world_init(world, HANDOVER);
        check_random_gpus(seed);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_kernel_that_never_ends_freezes_nobody),
        T(five_second_kernels_are_paid_back),
        T(a_long_kernel_under_a_cap_is_paid_back),
        T(a_frozen_holder_is_passed_over_and_comes_back),
        T(a_killed_holder_frees_its_gpu_at_once),
        T(sixty_four_tenants),
        T(two_tenants_on_two_gpus_alternate),
        T(a_tenant_on_two_gpus_does_not_starve),
        T(a_ring_of_tenants_goes_round),
        T(races_that_were_apart_start_even),
        T(a_newcomer_is_owed_nothing_by_the_faster_race),
        T(filling_gaps_is_free),
        T(caps_hold_beside_a_frozen_tenant),
        T(debt_is_paid_but_bounded),
        T(debt_melts_asleep),
        T(changing_gpus_and_priority_live),
        T(random_gpus_starve_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
