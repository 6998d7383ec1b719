/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of one tenant that are busy at the same time count once, however their reports fall. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "policy/once.h"

#define US    1000ULL
#define MS    1000000ULL
#define S     1000000000ULL
#define PROCS 8U

/* A process looks each millisecond, at a moment of its own, and reports what was up to then. */
struct proc {
    uint64_t phase_ns, distance_ns, told_ns;
    uint64_t busy_from_ns, busy_until_ns, stopped_from_ns, stopped_until_ns;
};

static uint64_t overlap(uint64_t a, uint64_t b, uint64_t from, uint64_t until)
{
    uint64_t lo = a > from ? a : from, hi = b < until ? b : until;
    return hi > lo ? hi - lo : 0;
}

/* What it has watched in all when somebody reads its counters at now_ns. */
static uint64_t watched(const struct proc *p, uint64_t now_ns)
{
    uint64_t looked = now_ns < p->phase_ns ? 0 : now_ns - (now_ns - p->phase_ns) % MS;
    if (looked > p->stopped_from_ns && looked < p->stopped_until_ns)
        looked = p->stopped_from_ns;
    uint64_t missed = looked > p->stopped_from_ns ? p->stopped_until_ns - p->stopped_from_ns : 0;
    return looked - (looked < missed ? 0 : missed);
}

/* The arbiter reads all of them each 5 ms, or each 5 ms and a bit. Returns the busy time that was counted. */
static uint64_t run(struct proc *p, uint32_t n, uint64_t step_ns, uint64_t ns)
{
    struct sl_once once = {0};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        p[i].distance_ns = sl_once_came(&once, 0);
    for (uint64_t now = step_ns; now <= ns; now += step_ns) {
        for (uint32_t i = 0; i < n; i++) {
            uint64_t w = watched(&p[i], now);
            uint64_t busy = overlap(p[i].told_ns, w, p[i].busy_from_ns, p[i].busy_until_ns);
            p[i].told_ns = w;
            sl_once_report(&once, &p[i].distance_ns, w, busy);
        }
        sum += sl_once_count(&once);
    }
    return sum;
}

static void all_busy_at_once_count_once(void **state)
{
    (void)state;
    static const uint64_t steps[] = {5 * MS, 5300 * US, 4900 * US, 700 * US, 50 * MS};
    for (uint32_t n = 1; n <= PROCS; n++)
        for (uint32_t k = 0; k < 5; k++) {
            struct proc p[PROCS] = {{0}};
            for (uint32_t i = 0; i < n; i++) {
                p[i].phase_ns = i * 137 * US;
                p[i].busy_until_ns = S;
            }
            uint64_t got = run(p, n, steps[k], S);
            if (got < S * 98 / 100 - steps[k] || got > S)
                fail_msg("%u processes, read each %llu us: %llu us of a second", n,
                         (unsigned long long)(steps[k] / US), (unsigned long long)(got / US));
        }
}

static void one_busy_among_idle_ones_counts_in_full(void **state)
{
    (void)state;
    for (uint32_t busy = 0; busy < 4; busy++) {
        struct proc p[4] = {{0}};
        for (uint32_t i = 0; i < 4; i++)
            p[i].phase_ns = i * 230 * US;
        p[busy].busy_until_ns = S;
        uint64_t got = run(p, 4, 5 * MS, S);
        assert_in_range(got, S * 98 / 100, S);
    }
}

static void one_after_the_other_adds_up(void **state)
{
    (void)state;
    struct proc p[2] = {
        {.busy_until_ns = 400 * MS},
        {.phase_ns = 600 * US, .busy_from_ns = 500 * MS, .busy_until_ns = 900 * MS}};
    uint64_t got = run(p, 2, 5 * MS, S);
    assert_in_range(got, 790 * MS, 810 * MS);
}

/* The process that was ahead is stopped for a while: the others go on counting, and it does not count twice. */
static void a_stopped_process_holds_nothing_up(void **state)
{
    (void)state;
    struct proc p[2] = {
        {.busy_until_ns = 2 * S, .stopped_from_ns = 200 * MS, .stopped_until_ns = 700 * MS},
        {.phase_ns = 300 * US, .busy_until_ns = 2 * S}};
    uint64_t got = run(p, 2, 5 * MS, S);
    assert_in_range(got, 980 * MS, S);
}

/* After the process that was ahead has ended, the others lead within a few milliseconds. */
static void the_end_of_the_first_loses_little(void **state)
{
    (void)state;
    struct sl_once once = {0};
    uint64_t distance = sl_once_came(&once, 0), other = sl_once_came(&once, 0), sum = 0;
    sl_once_report(&once, &distance, 100 * MS, 100 * MS);
    sum += sl_once_count(&once);
    for (uint64_t w = 5 * MS; w <= 500 * MS; w += 5 * MS) {
        sl_once_report(&once, &other, w, 5 * MS);
        sum += sl_once_count(&once);
    }
    assert_in_range(sum, 590 * MS, 600 * MS);
}

/* A tenant writes its counters itself: any value does no more than count as time for this tenant. */
static void lies_do_no_harm(void **state)
{
    (void)state;
    struct sl_once once = {0};
    uint64_t distance = sl_once_came(&once, 0);
    static const uint64_t told[] = {UINT64_MAX, 0, 1, UINT64_MAX / 2, 5, UINT64_MAX - 7, 0};
    for (uint32_t i = 0; i < 7; i++) {
        sl_once_report(&once, &distance, told[i], told[6 - i]);
        (void)sl_once_count(&once);
    }
    uint64_t sum = 0, honest = sl_once_came(&once, 0);
    for (uint64_t w = 5 * MS; w <= 100 * MS; w += 5 * MS) {
        sl_once_report(&once, &honest, w, 5 * MS);
        sum += sl_once_count(&once);
    }
    assert_in_range(sum, 95 * MS, 103 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_busy_at_once_count_once),
        cmocka_unit_test(one_busy_among_idle_ones_counts_in_full),
        cmocka_unit_test(one_after_the_other_adds_up),
        cmocka_unit_test(a_stopped_process_holds_nothing_up),
        cmocka_unit_test(the_end_of_the_first_loses_little),
        cmocka_unit_test(lies_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
