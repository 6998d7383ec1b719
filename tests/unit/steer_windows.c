/* SPDX-License-Identifier: Apache-2.0 */
/* Steering: windows of their own for tenants that lose their slice each time they wait, and only for those. */
#include "steer_case.h"

static uint32_t alone(struct world_load load)
{
    start_afresh();
    add_one(0, spec_of(500, 1000), load);
    struct world_shares s = world_shares(world, 2 * S);
    start_afresh();
    return s.permille[0];
}

static void who_synchronises_gets_its_share(void **state)
{
    (void)state;
    uint32_t whole = alone(synchronising());
    add_one(0, spec_of(500, 1000), synchronising());
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    world_run(world, 2 * S);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_in_range(s.permille[0] * 1000 / whole, 470, 530);
    assert_in_range(s.permille[1], 480, 1000);
}

/* With hard limits, too: while its neighbour is off for its own limit, it runs as fast as alone, and that says nothing
 * about the rest of the time. */
static void who_synchronises_beside_a_limit(void **state)
{
    (void)state;
    uint32_t whole = alone(synchronising());
    for (uint32_t limit = 300; limit <= 500; limit += 100) {
        start_afresh();
        add_one(0, spec_of(1000 - limit, 1000 - limit), synchronising());
        add_one(1, spec_of(limit, limit), saturating(170 * US));
        world_run(world, 2 * S);
        for (uint32_t i = 0; i < 5; i++) {
            struct world_shares s = world_shares(world, 4 * S);
            assert_no_fault();
            assert_in_range(s.permille[0] * 1000 / whole, (1000 - limit) * 95 / 100, 1000);
            assert_share(s, 1, limit, 15);
        }
    }
}

static void windows_end_when_it_stops(void **state)
{
    (void)state;
    uint32_t p = add_one(0, spec_of(500, 1000), synchronising());
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    world_run(world, 3 * S);
    assert_true(stats_of(0).window_permille > 300);
    world_stop(world, p);
    world_run(world, 500 * MS);
    uint64_t offs = world->t[1].offs;
    struct world_shares s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_int_equal(world->t[1].offs, offs);
    assert_false(world_is_off(world, 1));
    assert_int_equal(stats_of(0).window_permille, 0);
    assert_in_range(s.permille[1], 990, 1000);
}

/* A program that waits for each kernel, and works on its host for some time between steps, keeps its windows. */
static void windows_outlast_pauses(void **state)
{
    (void)state;
    for (uint64_t pause_ms = 5; pause_ms <= 65; pause_ms += 15) {
        start_afresh();
        uint32_t p = add_one(0, spec_of(500, 1000), synchronising());
        add_one(1, spec_of(500, 1000), saturating(170 * US));
        uint64_t permille = 0;
        for (uint32_t i = 0; i < 200; i++) {
            world_load_set(world, p, synchronising());
            permille += i < 100 ? 0 : world_shares(world, 37 * MS).permille[0];
            if (i < 100)
                world_run(world, 37 * MS);
            world_stop(world, p);
            world_run(world, pause_ms * MS);
        }
        assert_no_fault();
        assert_in_range(permille / 100, 380, 500);
    }
}

/* Its windows end as well when its neighbour stops, or becomes light. */
static void windows_end_when_the_neighbour_stops(void **state)
{
    (void)state;
    add_one(0, spec_of(500, 1000), synchronising());
    uint32_t p = add_one(1, spec_of(500, 1000), saturating(100 * US));
    world_run(world, 3 * S);
    world_stop(world, p);
    world_run(world, 500 * MS);
    assert_no_fault();
    assert_int_equal(stats_of(0).window_permille, 0);
    assert_false(world_is_off(world, 1));
}

/* A request each 10 ms waits for its slice now and then, and is not behind. */
static void a_request_is_not_behind(void **state)
{
    (void)state;
    world->deaf = true; /* what hardware slices alone do */
    add_one(0, spec_of(500, 1000), requests());
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    struct world_shares without = world_shares(world, 5 * S);
    start_afresh();
    add_one(0, spec_of(500, 1000), requests());
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    struct world_shares s = world_shares(world, 20 * S);
    assert_no_fault();
    assert_share(s, 0, 200, 5);
    assert_int_equal(stats_of(0).window_permille, 0);
    assert_in_range(s.permille[1], without.permille[1] * 90 / 100, 1000);
    /* Trials, if any: a few at first, then rarely. */
    assert_in_range(world->t[1].offs, 0, 30);
}

/* A break changes nothing about how it gets on: trials stay as rare as they were. */
static void breaks_bring_no_trials(void **state)
{
    (void)state;
    const struct world_load neighbours[] = {saturating(100 * US), training(),
                                            launch_bound_training()};
    for (uint32_t k = 0; k < 3; k++) {
        start_afresh();
        uint32_t light = add_one(0, spec_of(500, 1000), launch_bound());
        uint32_t busy = add_one(1, spec_of(500, 1000), neighbours[k]);
        world_run(world, 20 * S);
        uint64_t offs = world->t[0].offs + world->t[1].offs;
        for (uint32_t i = 0; i < 20; i++) {
            world_stop(world, light);
            world_stop(world, busy);
            world_run(world, 10 * S);
            world_load_set(world, light, launch_bound());
            world_load_set(world, busy, neighbours[k]);
            world_run(world, 1 * S);
        }
        assert_no_fault();
        assert_int_equal(stats_of(0).window_permille, 0);
        /* two in a row, every 8 s at work at the most */
        assert_in_range(world->t[0].offs + world->t[1].offs - offs, 1, 12);
    }
}

/* Light work that needs less than its share gets on by itself. */
static void inference_beside_saturating_work(void **state)
{
    (void)state;
    uint32_t whole = alone(launch_bound());
    add_one(0, spec_of(500, 1000), launch_bound());
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    world_run(world, 2 * S);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_in_range(s.permille[0] * 1000 / whole, 800, 1000);
    assert_in_range(s.permille[1], 600, 1000);
    assert_int_equal(stats_of(0).window_permille, 0);
}

/* A hard limit beside light work: what it loses to switches is not charged, so it comes out where it should, and the
 * light one has the rest of the time to itself. */
static void limits_beside_inference(void **state)
{
    (void)state;
    static const uint32_t limits[] = {200, 300, 500};
    uint32_t whole = alone(launch_bound());
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t limit = limits[i % 3];
        struct world_load busy = i < 3 ? saturating(170 * US) : training();
        start_afresh();
        world->deaf = true;
        add_one(0, spec_of(500, 1000), launch_bound());
        add_one(1, spec_of(limit, 1000), busy);
        struct world_shares sliced = world_shares(world, 5 * S);
        start_afresh();
        add_one(0, spec_of(500, 500), launch_bound());
        add_one(1, spec_of(limit, limit), busy);
        world_run(world, 2 * S);
        struct world_shares s = world_shares(world, 10 * S);
        assert_no_fault();
        assert_share(s, 1, limit, 15);
        uint32_t got = s.permille[0] * 1000 / whole, had = sliced.permille[0] * 1000 / whole;
        assert_in_range(got, had + 50 < 970 ? had + 50 : 970, 1010);
    }
}

/* A step that is a little longer than the driver's slice takes two of them. A shorter slice costs the limited neighbour
 * nothing that it could use, and the step ends soon after its last launch. */
static void limits_beside_slower_inference(void **state)
{
    (void)state;
    struct world_load slower = launch_bound();
    for (slower.launch_ns = 8 * US; slower.launch_ns <= 20 * US; slower.launch_ns += 2 * US) {
        start_afresh();
        uint32_t whole = alone(slower);
        start_afresh();
        add_one(0, spec_of(500, 500), slower);
        add_one(1, spec_of(500, 500), saturating(170 * US));
        world_run(world, 4 * S);
        struct world_shares s = world_shares(world, 10 * S);
        assert_no_fault();
        assert_share(s, 1, 500, 15);
        assert_in_range(s.permille[0] * 1000 / whole, 900, 1010);
    }
}

/* Light work waits for one busy neighbour at a time, however many there are. */
static void inference_beside_several(void **state)
{
    (void)state;
    uint32_t whole = alone(launch_bound());
    for (uint32_t n = 2; n <= 4; n++) {
        start_afresh();
        add_one(0, spec_of(500, 1000), launch_bound());
        for (uint32_t i = 1; i <= n; i++)
            add_one(i, spec_of(i == 1 ? 200 : 300 / (n - 1), 1000), saturating(100 * US));
        world_run(world, 2 * S);
        struct world_shares s = world_shares(world, 10 * S);
        assert_no_fault();
        assert_in_range(s.permille[0] * 1000 / whole, 800, 1010);
        for (uint32_t i = 1; i <= n; i++)
            assert_in_range(s.permille[i], i == 1 ? 200 : 300 / (n - 1), 1000);
    }
}

/* … also where one of them leaves the GPU idle now and then: it uses more than its part all the same. */
static void inference_beside_training_and_another(void **state)
{
    (void)state;
    uint32_t whole = alone(launch_bound());
    add_one(0, spec_of(500, 1000), launch_bound());
    add_one(1, spec_of(200, 1000), launch_bound_training());
    add_one(2, spec_of(290, 1000), saturating(100 * US));
    world_run(world, 2 * S);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_in_range(s.permille[0] * 1000 / whole, 800, 1010);
    assert_in_range(s.permille[1], 200, 1000);
    assert_in_range(s.permille[2], 290, 1000);
}

static void training_beside_saturating_work(void **state)
{
    (void)state;
    uint32_t whole = alone(training());
    add_one(0, spec_of(500, 1000), training());
    add_one(1, spec_of(500, 1000), saturating(100 * US));
    world_run(world, 2 * S);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_in_range(s.permille[0] * 1000 / whole, 470, 1000);
    assert_in_range(s.permille[1], 480, 1000);
}

/* Two of them beside a saturating tenant: each has its third. */
static void two_that_synchronise(void **state)
{
    (void)state;
    uint32_t whole = alone(synchronising());
    add_one(0, spec_of(333, 1000), synchronising());
    add_one(1, spec_of(333, 1000), synchronising());
    add_one(2, spec_of(333, 1000), saturating(100 * US));
    world_run(world, 4 * S);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_in_range(s.permille[0] * 1000 / whole, 300, 400);
    assert_in_range(s.permille[1] * 1000 / whole, 300, 400);
    assert_in_range(s.permille[2], 300, 1000);
}

/* Two of them and nobody else: the hardware switches at each kernel, so each would have a quarter of its speed. */
static void two_that_synchronise_with_each_other(void **state)
{
    (void)state;
    static const uint32_t requests_of[][2] = {{500, 500}, {700, 300}, {800, 200}};
    uint32_t whole = alone(synchronising());
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t *request = requests_of[i];
        start_afresh();
        add_one(0, spec_of(request[0], 1000), synchronising());
        add_one(1, spec_of(request[1], 1000), synchronising());
        world_run(world, 4 * S);
        struct world_shares s = world_shares(world, 10 * S);
        assert_no_fault();
        for (uint32_t k = 0; k < 2; k++)
            assert_in_range(s.permille[k] * 1000 / whole, request[k] * 9 / 10, request[k] + 100);
    }
}

static void five_that_synchronise_with_each_other(void **state)
{
    (void)state;
    uint32_t whole = alone(synchronising());
    for (uint32_t id = 0; id < 5; id++)
        add_one(id, spec_of(200, 1000), synchronising());
    world_run(world, 6 * S);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    for (uint32_t id = 0; id < 5; id++)
        assert_in_range(s.permille[id] * 1000 / whole, 170, 240);
}

/* The GPU belongs to the one that goes on, soon after the other stops; and to both in turn when that one returns. */
static void it_is_alone_when_the_other_stops(void **state)
{
    (void)state;
    uint32_t whole = alone(synchronising());
    add_one(0, spec_of(500, 1000), synchronising());
    uint32_t p = add_one(1, spec_of(500, 1000), synchronising());
    world_run(world, 4 * S);
    world_stop(world, p);
    world_run(world, 200 * MS);
    struct world_shares s = world_shares(world, 2 * S);
    assert_no_fault();
    assert_in_range(s.permille[0] * 1000 / whole, 990, 1010);
    world_load_set(world, p, synchronising());
    world_run(world, 4 * S);
    s = world_shares(world, 4 * S);
    assert_in_range(s.permille[0] * 1000 / whole, 450, 600);
    assert_in_range(s.permille[1] * 1000 / whole, 450, 600);
}

/* Neither loses to the other as much as windows would cost it: steps of 2 ms wait for one step of the other, and
 * launch-bound programs fill each other's gaps. */
static void programs_that_get_on_have_no_windows(void **state)
{
    (void)state;
    struct world_load graph = {
        .kernel_ns = 2 * MS, .count = 1, .launch_ns = 10 * US, .think_ns = 20 * US};
    struct world_load pairs[][2] = {{launch_bound(), launch_bound()},
                                    {graph, graph},
                                    {requests(), requests()},
                                    {launch_bound(), synchronising()},
                                    {launch_bound(), graph},
                                    {requests(), synchronising()},
                                    {requests(), graph}};
    for (uint32_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct world_shares with[2];
        for (uint32_t k = 0; k < 2; k++) {
            start_afresh();
            world->deaf = k == 0;
            add_one(0, spec_of(500, 1000), pairs[i][0]);
            add_one(1, spec_of(500, 1000), pairs[i][1]);
            world_run(world, 2 * S);
            with[k] = world_shares(world, 20 * S);
            assert_no_fault();
        }
        for (uint32_t id = 0; id < 2; id++) {
            uint32_t had = with[0].permille[id], got = with[1].permille[id];
            if (got * 100 < had * 97)
                fail_msg("pair %u: tenant %u got %u permille; %u by slices alone", i, id, got, had);
        }
        /* Trials, if any: a few at first, then rarely. */
        assert_in_range(world->t[0].offs, 0, 16);
        assert_in_range(world->t[1].offs, 0, 16);
    }
}

/* More of them than windows suit, or beside programs that need little: nobody has less than its part of the speed it has
 * alone and at the same time 3 points less than slices alone would give it. */
static void companies_are_no_worse_off(void **state)
{
    (void)state;
    struct world_load kinds[] = {synchronising(), launch_bound(), launch_bound_training()};
    static const uint32_t company[][3] = {{2, 1, 0},  {1, 2, 0},  {3, 2, 0}, {0, 8, 0}, {8, 0, 0},
                                          {12, 0, 0}, {20, 4, 0}, {0, 1, 2}, {1, 1, 1}, {0, 2, 2}};
    uint32_t whole[3];
    for (uint32_t kind = 0; kind < 3; kind++)
        whole[kind] = alone(kinds[kind]);
    for (uint32_t i = 0; i < sizeof(company) / sizeof(company[0]); i++) {
        uint32_t n = company[i][0] + company[i][1] + company[i][2], of[24];
        struct world_shares with[2];
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t id = 0;
            start_afresh();
            world->deaf = k == 0;
            for (uint32_t kind = 0; kind < 3; kind++)
                for (uint32_t m = 0; m < company[i][kind]; m++, id++) {
                    of[id] = kind;
                    add_one(id, spec_of(1000 / n, 1000), kinds[kind]);
                }
            world_run(world, 4 * S);
            with[k] = world_shares(world, 20 * S);
            assert_no_fault();
        }
        for (uint32_t id = 0; id < n; id++) {
            uint32_t had = with[0].permille[id] * 1000 / whole[of[id]];
            uint32_t got = with[1].permille[id] * 1000 / whole[of[id]];
            if (got + 30 < had && got * n < 950)
                fail_msg("company %u: tenant %u has %u permille of its speed; %u by slices alone",
                         i, id, got, had);
        }
    }
}

/* A limit is kept among them, too, and what it leaves goes to the other. */
static void who_synchronises_beside_a_limited_one(void **state)
{
    (void)state;
    uint32_t whole = alone(synchronising());
    add_one(0, spec_of(500, 1000), synchronising());
    add_one(1, spec_of(200, 200), synchronising());
    world_run(world, 4 * S);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_in_range(s.permille[0] * 1000 / whole, 650, 1000);
    assert_in_range(s.permille[1], 120, 205);
}

/* With a limit it gets no windows beyond that, and the windows that bring it there. Alone it has 833. */
static void windows_keep_to_the_limit(void **state)
{
    (void)state;
    add_one(0, spec_of(200, 200), synchronising());
    add_one(1, spec_of(800, 1000), saturating(100 * US));
    world_run(world, 3 * S);
    struct world_shares s = world_shares(world, 10 * S);
    assert_no_fault();
    assert_in_range(s.permille[0], 150, 210);
    assert_in_range(s.permille[1], 750, 1000);
}

/* Who waits for each burst of some milliseconds does not keep the GPU busy, though its burst stands in the queue
 * until its slice comes: long slices for its neighbour would only let it wait longer. */
static void bursts_are_no_full_queue(void **state)
{
    (void)state;
    static const uint32_t kernels[] = {2, 5};
    for (uint32_t i = 0; i < 4; i++) {
        struct world_load load = {.kernel_ns = kernels[i % 2] * MS,
                                  .count = 1,
                                  .launch_ns = 10 * US,
                                  .think_ns = 20 * US};
        struct world_load each_10_ms = requests();
        each_10_ms.count = 30 + 10 * (i % 2);
        start_afresh();
        add_one(0, spec_of(500, 1000), i < 2 ? load : each_10_ms);
        add_one(1, spec_of(500, 1000), saturating(100 * US));
        world_run(world, 2 * S);
        struct world_shares s = world_shares(world, 8 * S);
        assert_no_fault();
        if (i < 2)
            assert_in_range(s.permille[0], 440, 540);
        else
            assert_share(s, 0, each_10_ms.count * 10, 10);
        assert_in_range(s.permille[1], 460, 1000);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(who_synchronises_gets_its_share),
        T(who_synchronises_beside_a_limit),
        T(windows_end_when_it_stops),
        T(windows_end_when_the_neighbour_stops),
        T(windows_outlast_pauses),
        T(a_request_is_not_behind),
        T(breaks_bring_no_trials),
        T(inference_beside_saturating_work),
        T(limits_beside_inference),
        T(limits_beside_slower_inference),
        T(inference_beside_several),
        T(inference_beside_training_and_another),
        T(training_beside_saturating_work),
        T(two_that_synchronise),
        T(two_that_synchronise_with_each_other),
        T(five_that_synchronise_with_each_other),
        T(it_is_alone_when_the_other_stops),
        T(programs_that_get_on_have_no_windows),
        T(who_synchronises_beside_a_limited_one),
        T(companies_are_no_worse_off),
        T(windows_keep_to_the_limit),
        T(bursts_are_no_full_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
