/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turn-taking against a hostile caller: random events in any order, at times that jump, with too
 * little room for the actions. A model of the gates, fed by nothing but the actions, checks after
 * each step that no two open gates share a GPU and that no turn begins before the last one ended.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "turns_world.h"

#define TENANTS 12U

struct gate {
    bool there, open, closing;
    uint32_t want_mask; /* in force at the next grant */
    uint32_t mask;
    uint64_t turn;
};

struct fuzz {
    struct sl_turns *turns;
    struct rng rng;
    struct gate gates[TENANTS];
    uint64_t now_ns, began_ns, seed;
    bool jumps; /* the clock may jump */
};

#define FAIL(f, ...)                                                                               \
    do {                                                                                           \
        print_message("seed %llu: ", (unsigned long long)(f)->seed);                               \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)

static struct sl_steer_spec random_spec(struct rng *r)
{
    static const uint32_t limits[] = {1, 100, 500, 999, 1000, 1000, 1000};
    return (struct sl_steer_spec){.gpu_mask = 1 + (uint32_t)rng_below(r, 15),
                                  .request_permille = (uint32_t)rng_below(r, 1001),
                                  .limit_permille = limits[rng_below(r, 7)],
                                  .priority = (uint32_t)rng_below(r, 3),
                                  .paused = rng_below(r, 8) == 0};
}

static void random_time(struct fuzz *f)
{
    static const uint64_t steps[] = {0, 1, US, 100 * US, MS, 10 * MS, 60 * MS, 300 * MS, 2 * S};
    uint64_t kind = rng_below(&f->rng, 200);
    if (f->jumps && kind == 0)
        f->now_ns += 5 * 3600 * S;
    else if (f->jumps && kind == 1)
        f->now_ns -= rng_below(&f->rng, f->now_ns + 1);
    else if (f->jumps && kind == 2)
        f->now_ns = rng_next(&f->rng);
    else
        f->now_ns += rng_below(&f->rng, steps[rng_below(&f->rng, 9)] + 1);
}

static void model_close(struct fuzz *f, struct gate *g, const struct sl_turns_action *a)
{
    if (g->closing)
        FAIL(f, "CLOSE twice for tenant %u", a->id);
    if (g->open && a->turn != g->turn)
        FAIL(f, "CLOSE of another turn for tenant %u", a->id);
    g->open = false;
    g->closing = true;
}

static void model_open(struct fuzz *f, struct gate *g, const struct sl_turns_action *a)
{
    if (g->closing)
        FAIL(f, "tenant %u is opened before it released", a->id);
    if (g->open)
        FAIL(f, "tenant %u goes from turn to turn without a CLOSE", a->id);
    if (a->turn <= g->turn)
        FAIL(f, "tenant %u has turn %llu again", a->id, (unsigned long long)a->turn);
    g->mask = g->want_mask;
    g->open = true;
    g->turn = a->turn;
}

static void check_gates(struct fuzz *f)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < TENANTS; i++) {
        if (!f->gates[i].open)
            continue;
        if (used & f->gates[i].mask)
            FAIL(f, "two open gates on one GPU, one is %u's", i);
        used |= f->gates[i].mask;
    }
    struct sl_err err = SL_ERR_INIT;
    if (turns_check(f->turns, &err) < 0)
        FAIL(f, "%s", err.msg);
}

static void check_stats(struct fuzz *f)
{
    uint64_t held[4] = {0};
    for (uint32_t i = 0; i < TENANTS; i++) {
        struct sl_turns_stats st;
        int r = sl_turns_stats(f->turns, i, f->now_ns, &st);
        if (r != (f->gates[i].there ? 0 : -ENOENT))
            FAIL(f, "statistics of %u: %d", i, r);
        if (r < 0)
            continue;
        if (st.debt_ns > 10 * S || st.share_1s_permille > 1000 || st.share_60s_permille > 1000)
            FAIL(f, "statistics of %u out of bounds", i);
        for (uint32_t g = 0; g < 4; g++)
            if (f->gates[i].want_mask == 1U << g)
                held[g] += st.held_ns;
    }
    for (uint32_t g = 0; g < 4 && !f->jumps; g++)
        if (held[g] > f->now_ns - f->began_ns)
            FAIL(f, "GPU %u was held for longer than there was time", g);
}

static void step_decide(struct fuzz *f)
{
    struct sl_turns_action actions[TENANTS];
    size_t max = rng_below(&f->rng, 4) ? TENANTS : rng_below(&f->rng, 3);
    uint64_t wake = 0;
    size_t n = sl_turns_decide(f->turns, f->now_ns, actions, max, &wake);
    assert_true(n <= max);
    for (size_t i = 0; i < n; i++) {
        struct gate *g = &f->gates[actions[i].id];
        assert_true(actions[i].id < TENANTS && g->there);
        if (actions[i].kind == SL_TURNS_CLOSE)
            model_close(f, g, &actions[i]);
        else
            model_open(f, g, &actions[i]);
    }
    if (wake < f->now_ns || (wake == f->now_ns && n < max))
        FAIL(f, "a wake-up in the past");
}

static void step_tenancy(struct fuzz *f, uint32_t id)
{
    struct gate *g = &f->gates[id];
    struct sl_steer_spec spec = random_spec(&f->rng);
    uint64_t kind = rng_below(&f->rng, 3);
    if (kind == 0) {
        sl_turns_remove(f->turns, id, f->now_ns);
        *g = (struct gate){0};
    } else if (kind == 1) {
        int r = sl_turns_add(f->turns, id, &spec, f->now_ns, NULL);
        assert_int_equal(r, g->there ? -EEXIST : 0);
        if (!r)
            *g = (struct gate){.there = true, .want_mask = spec.gpu_mask};
    } else {
        int r = sl_turns_set(f->turns, id, &spec, f->now_ns, NULL);
        assert_int_equal(r, g->there ? 0 : -ENOENT);
        if (!r)
            g->want_mask = spec.gpu_mask;
    }
}

/* Ends what was told to close. From an open gate it must end nothing. */
static void step_release(struct fuzz *f, uint32_t id)
{
    struct gate *g = &f->gates[id];
    sl_turns_released(f->turns, id, f->now_ns);
    g->closing = false;
    struct sl_turns_stats st;
    if (g->open && sl_turns_stats(f->turns, id, f->now_ns, &st) == 0 && st.state < SL_TURNS_CALLED)
        FAIL(f, "tenant %u was released with its gate open", id);
}

static void step(struct fuzz *f)
{
    uint32_t id = (uint32_t)rng_below(&f->rng, TENANTS);
    switch (rng_below(&f->rng, 12)) {
    case 0:
        if (rng_below(&f->rng, 4) == 0)
            step_tenancy(f, id);
        break;
    case 1:
    case 2:
    case 3:
        sl_turns_want(f->turns, id, true, f->now_ns);
        break;
    case 4:
        sl_turns_want(f->turns, id, false, f->now_ns);
        break;
    case 5:
        sl_turns_started(f->turns, id, f->now_ns);
        break;
    case 6:
    case 7:
        step_release(f, id);
        break;
    case 8:
        sl_turns_want(f->turns, TENANTS + id, true, f->now_ns);
        sl_turns_released(f->turns, UINT32_MAX, f->now_ns);
        sl_turns_started(f->turns, TENANTS + id, f->now_ns);
        break;
    default:
        step_decide(f);
        break;
    }
}

static void run_fuzz(uint64_t seed, bool jumps, unsigned steps)
{
    struct fuzz f = {.rng = {seed}, .seed = seed, .jumps = jumps};
    f.turns = sl_turns_create();
    f.now_ns = f.began_ns = rng_below(&f.rng, 1000 * S);
    for (unsigned i = 0; i < steps; i++) {
        random_time(&f);
        step(&f);
        check_gates(&f);
        if (i % 64 == 0)
            check_stats(&f);
    }
    sl_turns_destroy(f.turns);
}

static void run_seeds(bool jumps)
{
    const char *given = getenv("SLUICE_SEED");
    if (given) {
        run_fuzz(strtoull(given, NULL, 0), jumps, 2000);
        return;
    }
    for (uint64_t seed = 1; seed <= 500; seed++)
        run_fuzz(seed, jumps, 1000);
}

static void any_order_keeps_the_invariants(void **state)
{
    (void)state;
    run_seeds(false);
}

static void clock_jumps_keep_the_invariants(void **state)
{
    (void)state;
    run_seeds(true);
}

static struct sl_turns *small(struct sl_steer_spec spec)
{
    struct sl_turns *turns = sl_turns_create();
    assert_int_equal(sl_turns_add(turns, 0, &spec, S, NULL), 0);
    assert_int_equal(sl_turns_add(turns, 1, &spec, S, NULL), 0);
    return turns;
}

static const struct sl_steer_spec half = {
    .gpu_mask = 1, .request_permille = 500, .limit_permille = 1000, .priority = SL_TURNS_NORMAL};

/* The machine slept for hours in the middle of a turn. */
static void turns_go_on_after_a_clock_jump(void **state)
{
    (void)state;
    struct sl_turns *turns = small(half);
    struct sl_turns_action a[4];
    uint64_t wake, now = 1000 * S;
    sl_turns_want(turns, 0, true, now);
    sl_turns_want(turns, 1, true, now);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 1);
    assert_int_equal(a[0].kind, SL_TURNS_OPEN);
    uint32_t first = a[0].id;
    sl_turns_started(turns, first, now);
    assert_int_equal(sl_turns_decide(turns, now - S, a, 4, &wake), 0); /* back: no time */
    do {
        now = wake;
    } while (sl_turns_decide(turns, now, a, 4, &wake) == 0);
    assert_int_equal(now, 1000 * S + SL_TURN_QUANTUM_NS);
    assert_int_equal(a[0].kind, SL_TURNS_CLOSE);
    assert_int_equal(a[0].id, first);
    now += 3 * 3600 * S; /* ahead by hours: not drained in time, and no more than its bound owed */
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 1);
    assert_int_equal(a[0].kind, SL_TURNS_OPEN);
    assert_int_equal(a[0].id, 1 - first);
    struct sl_turns_stats st;
    assert_int_equal(sl_turns_stats(turns, first, now, &st), 0);
    assert_int_equal(st.state, SL_TURNS_OVERRUN);
    assert_true(st.debt_ns <= 10 * S);
    sl_turns_destroy(turns);
}

/* Stopped, or short of processors: its turn goes on to the next, and it is asked for again when it asks. */
static void who_does_not_come_is_passed_over(void **state)
{
    (void)state;
    struct sl_turns *turns = small(half);
    struct sl_turns_action a[4];
    uint64_t wake, now = 2 * S;
    sl_turns_want(turns, 0, true, now);
    sl_turns_want(turns, 1, true, now);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 1);
    uint32_t first = a[0].id;
    do {
        now = wake;
    } while (sl_turns_decide(turns, now, a, 4, &wake) == 0);
    assert_int_equal(now, 2 * S + SL_TURN_COME_NS);
    assert_int_equal(a[0].kind, SL_TURNS_CLOSE);
    assert_int_equal(a[0].id, first);
    sl_turns_released(turns, first, now);
    for (int i = 0; i < 50; i++) {
        size_t n = sl_turns_decide(turns, now, a, 4, &wake);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(a[k].id, 1 - first);
        sl_turns_started(turns, 1 - first, now);
        now += 10 * MS;
    }
    sl_turns_want(turns, first, true, now);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 1);
    assert_int_equal(a[0].kind, SL_TURNS_CLOSE);
    sl_turns_released(turns, 1 - first, now);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 1);
    assert_int_equal(a[0].kind, SL_TURNS_OPEN);
    assert_int_equal(a[0].id, first);
    sl_turns_destroy(turns);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    struct sl_turns *turns = small(half);
    struct sl_err err = SL_ERR_INIT;
    static const struct sl_steer_spec bad[] = {
        {.gpu_mask = 0, .limit_permille = 1000},
        {.gpu_mask = 1U << 16, .limit_permille = 1000},
        {.gpu_mask = 1, .limit_permille = 0},
        {.gpu_mask = 1, .limit_permille = 1001},
        {.gpu_mask = 1, .limit_permille = 1000, .request_permille = 1001},
        {.gpu_mask = 1, .limit_permille = 1000, .priority = (uint32_t)3},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(sl_turns_add(turns, 2, &bad[i], S, &err), -EINVAL);
        assert_int_equal(sl_turns_set(turns, 0, &bad[i], S, &err), -EINVAL);
    }
    assert_int_equal(sl_turns_add(turns, 0, &half, S, &err), -EEXIST);
    assert_int_equal(sl_turns_add(turns, SL_TURNS_MAX_TENANTS, &half, S, &err), -ERANGE);
    assert_int_equal(sl_turns_set(turns, 7, &half, S, &err), -ENOENT);
    sl_turns_destroy(NULL);
    sl_turns_destroy(turns);
}

/* Nobody else there: one turn without an end, whatever it does; company ends it. */
static void alone_one_turn_lasts(void **state)
{
    (void)state;
    struct sl_turns *turns = small(half);
    struct sl_turns_action a[4];
    uint64_t wake, now = S;
    struct sl_steer_spec high = half;
    high.priority = SL_TURNS_HIGH;
    sl_turns_want(turns, 0, true, now);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 1);
    assert_int_equal(a[0].kind, SL_TURNS_OPEN);
    sl_turns_started(turns, 0, now);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 0);
    assert_int_equal(wake, SL_TURNS_NEVER);
    sl_turns_want(turns, 0, false, now += S);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 0);
    sl_turns_want(turns, 0, true, now += 10 * S);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 0);
    struct sl_turns_stats st;
    assert_int_equal(sl_turns_stats(turns, 0, now, &st), 0);
    assert_int_equal(st.held_ns, S); /* an open gate that nobody uses costs nothing */
    assert_int_equal(sl_turns_set(turns, 1, &high, now, NULL), 0);
    sl_turns_want(turns, 1, true, now += 10 * US);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 1);
    assert_int_equal(a[0].kind, SL_TURNS_CLOSE);
    assert_int_equal(a[0].id, 0);
    sl_turns_released(turns, 0, now);
    assert_int_equal(sl_turns_decide(turns, now, a, 4, &wake), 1);
    assert_int_equal(a[0].kind, SL_TURNS_OPEN);
    assert_int_equal(a[0].id, 1);
    sl_turns_destroy(turns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_keeps_the_invariants),
        cmocka_unit_test(clock_jumps_keep_the_invariants),
        cmocka_unit_test(turns_go_on_after_a_clock_jump),
        cmocka_unit_test(who_does_not_come_is_passed_over),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(alone_one_turn_lasts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
