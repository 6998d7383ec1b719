/* SPDX-License-Identifier: Apache-2.0 */
/* Steering against clocks that jump and processes that lie, and with as many tenants as there can be. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "steer_case.h"

#define HUGE (1ULL << 63)

/* --- clocks ------------------------------------------------------------------------------------ */

/* The policy alone: the world's time does not jump. */
struct bare {
    struct sl_steer *s;
    struct sl_steer_seen seen[SL_STEER_MAX_TENANTS];
    uint64_t off_until_ns[SL_STEER_MAX_TENANTS];
    uint32_t slice_us[SL_STEER_MAX_TENANTS];
    uint32_t n;
    uint64_t now_ns;
};

static struct bare *bare;

static int setup_bare(void **state)
{
    (void)state;
    bare = calloc(1, sizeof(*bare));
    bare->now_ns = 100 * S;
    bare->s = sl_steer_create();
    return 0;
}

static int teardown_bare(void **state)
{
    (void)state;
    sl_steer_destroy(bare->s);
    free(bare);
    return 0;
}

static void bare_add(struct sl_steer_spec spec)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_steer_add(bare->s, bare->n, &spec, bare->now_ns, &err), 0);
    bare->seen[bare->n].active = bare->seen[bare->n].pending = true;
    bare->n++;
}

static uint64_t bare_decide(uint64_t now_ns)
{
    struct sl_steer_order orders[7];
    uint64_t next;
    size_t n;
    bare->now_ns = now_ns;
    for (uint32_t id = 0; id < bare->n; id++)
        sl_steer_report(bare->s, id, &bare->seen[id]);
    do {
        n = sl_steer_decide(bare->s, now_ns, orders, 7, &next);
        for (size_t i = 0; i < n; i++) {
            assert_true(orders[i].id < bare->n);
            if (orders[i].off_until_ns > now_ns + SL_STEER_MOST_OFF_NS)
                fail_msg("tenant %u is off for %llu ms", orders[i].id,
                         (unsigned long long)((orders[i].off_until_ns - now_ns) / MS));
            assert_in_range(orders[i].slice_us, 20, 100000);
            bare->off_until_ns[orders[i].id] = orders[i].off_until_ns;
            bare->slice_us[orders[i].id] = orders[i].slice_us;
        }
    } while (n == 7);
    assert_true(next > now_ns);
    return next;
}

/* Everybody keeps its queue full while it is on. */
static void bare_run(uint64_t ns)
{
    for (uint64_t end = bare->now_ns + ns; bare->now_ns < end;) {
        uint64_t now = bare->now_ns + MS;
        for (uint32_t id = 0; id < bare->n; id++)
            if (bare->off_until_ns[id] <= bare->now_ns) {
                bare->seen[id].saturated_ns += MS;
                bare->seen[id].launches += 10;
            }
        (void)bare_decide(now);
    }
}

static void check_on_soon(void)
{
    uint64_t last[8] = {0}, end = bare->now_ns + 2 * S;
    uint32_t on = 0;
    for (; bare->now_ns < end; bare_run(MS))
        for (uint32_t id = 0; id < bare->n; id++)
            if (bare->off_until_ns[id] <= bare->now_ns) {
                last[id] = bare->now_ns;
                on |= 1U << id;
            }
    for (uint32_t id = 0; id < bare->n; id++)
        if (!(on & 1U << id) || last[id] + S < bare->now_ns)
            fail_msg("tenant %u stays off after the clock jumped to %llu", id,
                     (unsigned long long)(end - 2 * S));
}

static void clocks_that_jump(void **state)
{
    (void)state;
    static const uint64_t hour = 3600 * S;
    struct sl_steer_spec low = spec_of(300, 1000), limited = spec_of(300, 300);
    low.priority = limited.priority = LOW;
    bare_add(limited);
    bare_add(spec_at(HIGH));
    bare_add(low);
    bare_add(low);
    for (uint64_t i = 0; i < 12; i++) {
        bare_run(700 * MS + i * 7 * MS);
        uint64_t now = bare->now_ns;
        static const uint64_t jumps[] = {1, 3 * MS, 50 * MS, 10 * S, 90 * S, 0};
        if (i % 2 == 0)
            (void)bare_decide(jumps[i / 2] ? now - jumps[i / 2] : 1);
        else
            (void)bare_decide(now + i * i * i * hour);
        check_on_soon();
    }
    (void)bare_decide(UINT64_MAX - 10 * S);
    bare_run(S);
}

/* --- lies -------------------------------------------------------------------------------------- */

static void goes_back(struct sl_steer_seen *seen, uint64_t now_ns)
{
    uint64_t k = now_ns / MS % 3;
    seen->saturated_ns = seen->saturated_ns * k / 2;
    seen->work_ns = seen->work_ns * k / 2;
    seen->launches = seen->launches * k / 2;
}

static void jumps(struct sl_steer_seen *seen, uint64_t now_ns)
{
    seen->saturated_ns += now_ns / MS % 2 ? HUGE : 0;
    seen->work_ns += now_ns / MS % 3 ? HUGE : 0;
    seen->launches += now_ns / MS % 5 ? HUGE : 0;
}

static void beyond_wall_time(struct sl_steer_seen *seen, uint64_t now_ns)
{
    seen->saturated_ns = now_ns * 1000;
    seen->work_ns = now_ns * 1000;
    seen->launches = now_ns * 1000;
}

static void many_groups(struct sl_steer_seen *seen, uint64_t now_ns)
{
    (void)now_ns;
    seen->groups = UINT32_MAX;
}

static void all_ones(struct sl_steer_seen *seen, uint64_t now_ns)
{
    (void)now_ns;
    memset(seen, 0xff, sizeof(*seen));
    seen->active = seen->pending = true;
}

static void says_nothing(struct sl_steer_seen *seen, uint64_t now_ns)
{
    (void)now_ns;
    memset(seen, 0, sizeof(*seen));
}

static void always_waits(struct sl_steer_seen *seen, uint64_t now_ns)
{
    seen->saturated_ns = 0;
    seen->pending = seen->active = true;
    /* As if it got on only while others are off. */
    seen->launches = now_ns / MS % 50 > 40 ? now_ns / US : now_ns / (50 * MS) * 50000;
}

typedef void lie_fn(struct sl_steer_seen *, uint64_t);
static lie_fn *const lies[] = {goes_back, jumps,        beyond_wall_time, many_groups,
                               all_ones,  always_waits, says_nothing};
#define LIES (sizeof(lies) / sizeof(lies[0]))

/* What it costs to switch more often is nobody's gain. */
#define SWITCHES 80U

static struct world_shares shares_with(lie_fn *lie, uint32_t liar, void (*make)(void))
{
    start_afresh();
    make();
    world->t[liar].lie = lie;
    world_run(world, S);
    struct world_shares s = world_shares(world, 4 * S);
    assert_no_fault();
    return s;
}

/* Nobody loses more by a lie than the liar wins by it. */
static void check_lies(uint32_t liar, size_t n_lies, void (*make)(void))
{
    struct world_shares honest = shares_with(NULL, liar, make);
    for (size_t i = 0; i < n_lies; i++) {
        struct world_shares s = shares_with(lies[i], liar, make);
        uint32_t gain =
            s.permille[liar] > honest.permille[liar] ? s.permille[liar] - honest.permille[liar] : 0;
        for (uint32_t id = 0; id < 4; id++)
            if (id != liar && s.permille[id] + gain + SWITCHES < honest.permille[id])
                fail_msg("lie %zu: the liar has %u instead of %u, tenant %u has %u instead of %u",
                         i, s.permille[liar], honest.permille[liar], id, s.permille[id],
                         honest.permille[id]);
    }
}

static void make_pair(void)
{
    add_one(0, spec_of(500, 1000), saturating(100 * US));
    add_one(1, spec_of(500, 1000), saturating(100 * US));
}

static void make_limited(void)
{
    add_one(0, spec_of(300, 300), saturating(100 * US));
    add_one(1, spec_of(300, 300), saturating(100 * US));
    add_one(2, spec_of(300, 1000), launch_bound());
}

static void make_lows(void)
{
    add_one(0, spec_at(HIGH), requests());
    add_one(1, spec_at(LOW), saturating(100 * US));
    add_one(2, spec_at(LOW), saturating(100 * US));
}

static void a_liar_gains_what_others_lose(void **state)
{
    (void)state;
    check_lies(0, LIES, make_pair);
    check_lies(0, LIES, make_limited);
    /* One that says nothing takes no turns: it is like a process without the library. */
    check_lies(1, LIES - 1, make_lows);
}

static void a_liar_that_stops_lying_is_forgiven(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIES; i++) {
        start_afresh();
        add_one(0, spec_of(500, 500), saturating(100 * US));
        world->t[0].lie = lies[i];
        world_run(world, S);
        world->t[0].lie = NULL;
        world_run(world, 500 * MS);
        struct world_shares s = world_shares(world, 2 * S);
        assert_no_fault();
        assert_share(s, 0, 500, 15);
    }
}

/* --- many -------------------------------------------------------------------------------------- */

static void sixty_four_tenants(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 64; id++)
        add_one(id, spec_of(15, 1000), saturating(100 * US));
    world_run(world, 500 * MS);
    struct world_shares s = world_shares(world, 2 * S);
    assert_no_fault();
    uint32_t sum = 0;
    for (uint32_t id = 0; id < 64; id++) {
        assert_share(s, id, 15, 4);
        sum += s.permille[id];
    }
    assert_in_range(sum, 850, 1000);
}

static void sixty_four_of_all_kinds(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 64; id++) {
        struct sl_steer_spec spec = spec_of(15, id % 3 ? 1000 : 15);
        struct world_load kinds[] = {saturating(100 * US), launch_bound(), requests(), training()};
        spec.priority = id % 16 == 0 ? HIGH : id % 2 ? LOW : NORMAL;
        spec.gpu_mask = 1U << id % 4;
        world_add(world, id, spec);
        world_start(world, id, id % 4, kinds[id / 4 % 4]);
    }
    world_run(world, 2 * S);
    assert_no_fault();
    for (uint32_t id = 0; id < 64; id++)
        if (world->t[id].ran_ns == 0)
            fail_msg("tenant %u did not run", id);
}

static void check_many(uint32_t n, bool limits)
{
    for (uint32_t id = 0; id < n; id++) {
        struct sl_steer_spec spec = spec_of(1 + id % 7, limits && id % 2 ? 1 + id % 400 : 1000);
        spec.priority = 1 + id % 3;
        spec.gpu_mask = 1 + id % 65535;
        bare_add(spec);
    }
    bare_run(60 * MS);
}

static void a_thousand_tenants(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_steer_spec spec = spec_of(500, 1000);
    check_many(SL_STEER_MAX_TENANTS, true);
    assert_int_equal(sl_steer_add(bare->s, SL_STEER_MAX_TENANTS, &spec, S, &err), -ERANGE);
    for (uint32_t id = 0; id < SL_STEER_MAX_TENANTS; id += 2)
        sl_steer_remove(bare->s, id);
    for (uint32_t id = 0; id < SL_STEER_MAX_TENANTS; id += 2)
        assert_int_equal(sl_steer_add(bare->s, id, &spec, bare->now_ns, &err), 0);
    bare_run(10 * MS);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define B(f) cmocka_unit_test_setup_teardown(f, setup_bare, teardown_bare)
    const struct CMUnitTest tests[] = {
        B(clocks_that_jump),
        T(a_liar_gains_what_others_lose),
        T(a_liar_that_stops_lying_is_forgiven),
        T(sixty_four_tenants),
        T(sixty_four_of_all_kinds),
        B(a_thousand_tenants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
