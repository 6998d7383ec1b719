/* SPDX-License-Identifier: Apache-2.0 */
/* How much GPU time a tenant got lately: the rings behind the figures of `sluice status`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "policy/ring.h"

#define MS 1000000ULL
#define S  1000000000ULL

static struct sl_ring ring_at(uint64_t now_ns)
{
    return (struct sl_ring){.began_ns = now_ns,
                            .newest = now_ns / SL_RING_FINE_NS,
                            .newest_coarse = now_ns / SL_RING_COARSE_NS};
}

/* In pieces of 3 ms, as a tick brings them. */
static uint64_t use(struct sl_ring *r, uint64_t from_ns, uint64_t ns, uint32_t permille)
{
    uint64_t to = from_ns + ns;
    for (uint64_t at = from_ns; at < to; at += 3 * MS)
        sl_ring_add(r, at, at + 3 * MS < to ? at + 3 * MS : to, permille);
    return to;
}

static void assert_near(uint32_t got, uint32_t want, uint32_t within)
{
    assert_in_range(got, want > within ? want - within : 0, want + within);
}

static void an_empty_ring_says_nothing(void **state)
{
    (void)state;
    struct sl_ring r = ring_at(7 * S);
    assert_int_equal(sl_ring_permille(&r, false, 7 * S), 0);
    assert_int_equal(sl_ring_permille(&r, true, 7 * S), 0);
    sl_ring_add(&r, 8 * S, 8 * S, 1000); /* no time */
    sl_ring_add(&r, 8 * S, 7 * S, 1000); /* backwards */
    assert_int_equal(sl_ring_permille(&r, false, 8 * S), 0);
}

static void a_steady_share_is_seen_at_any_moment(void **state)
{
    (void)state;
    struct sl_ring r = ring_at(7 * S);
    uint64_t now = use(&r, 7 * S, 3 * S, 300);
    for (int i = 0; i < 200; i++) {
        now = use(&r, now, 7 * MS, 300);
        assert_near(sl_ring_permille(&r, false, now), 300, 15);
        assert_near(sl_ring_permille(&r, true, now), 300, 5);
    }
}

static void the_second_forgets_and_the_minute_does_not(void **state)
{
    (void)state;
    struct sl_ring r = ring_at(100 * S);
    uint64_t now = use(&r, 100 * S, 30 * S, 1000);
    assert_near(sl_ring_permille(&r, false, now), 1000, 0);
    now = use(&r, now, S, 0);
    assert_near(sl_ring_permille(&r, false, now), 0, 3);
    now = use(&r, now, 29 * S, 0);
    assert_near(sl_ring_permille(&r, true, now), 500, 20);
    now = use(&r, now, 40 * S, 0);
    assert_near(sl_ring_permille(&r, true, now), 0, 20);
}

/* Nothing is added while a tenant is away: what it used before is not shown again. */
static void silence_counts_as_idle(void **state)
{
    (void)state;
    struct sl_ring r = ring_at(100 * S);
    uint64_t now = use(&r, 100 * S, 5 * S, 1000);
    assert_near(sl_ring_permille(&r, false, now + 500 * MS), 500, 50);
    assert_int_equal(sl_ring_permille(&r, false, now + 3 * S), 0);
    assert_int_equal(sl_ring_permille(&r, true, now + 200 * S), 0);
    /* The same buckets again, much later. */
    now = use(&r, now + 210 * S, 50 * MS, 1000);
    assert_near(sl_ring_permille(&r, false, now), 50, 3);
}

static void a_long_span_fills_all(void **state)
{
    (void)state;
    struct sl_ring r = ring_at(S);
    sl_ring_add(&r, S, 500 * S, 250);
    assert_near(sl_ring_permille(&r, false, 500 * S), 250, 15);
    assert_near(sl_ring_permille(&r, true, 500 * S), 250, 5);
}

/* Two spans that overlap are more than there is: a bucket holds no more than its width. */
static void never_more_than_all(void **state)
{
    (void)state;
    struct sl_ring r = ring_at(S);
    for (int i = 0; i < 5; i++)
        sl_ring_add(&r, S, 4 * S, 1000);
    assert_int_equal(sl_ring_permille(&r, false, 4 * S), 1000);
    assert_int_equal(sl_ring_permille(&r, true, 4 * S), 1000);
}

static void ends_of_time(void **state)
{
    (void)state;
    struct sl_ring r = ring_at(0);
    sl_ring_add(&r, 0, S, 500);
    assert_near(sl_ring_permille(&r, false, S), 500, 25);
    r = ring_at(UINT64_MAX - 2 * S);
    sl_ring_add(&r, UINT64_MAX - 2 * S, UINT64_MAX, 500);
    assert_near(sl_ring_permille(&r, false, UINT64_MAX), 500, 30);
    /* From one end to the other. */
    r = ring_at(0);
    sl_ring_add(&r, 0, UINT64_MAX, 1000);
    assert_in_range(sl_ring_permille(&r, true, UINT64_MAX), 950, 1000);
    assert_int_equal(sl_ring_permille(&r, false, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_ring_says_nothing),
        cmocka_unit_test(a_steady_share_is_seen_at_any_moment),
        cmocka_unit_test(the_second_forgets_and_the_minute_does_not),
        cmocka_unit_test(silence_counts_as_idle),
        cmocka_unit_test(a_long_span_fills_all),
        cmocka_unit_test(never_more_than_all),
        cmocka_unit_test(ends_of_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
