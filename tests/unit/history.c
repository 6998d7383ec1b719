/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of an ended tenant: its line, damage to that line, and the advice that entries give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/rng.h"
#include "base/hash.h"
#include "policy/history.h"

#define GIB (1ULL << 30)

static struct sl_history_entry sample(void)
{
    struct sl_history_entry e = {.id = 0x123456789abcdefULL,
                                 .name = "train-1",
                                 .command = "python3.11",
                                 .uid = 1000,
                                 .started_ms = 1794881956120,
                                 .ended_ms = 1794881999999,
                                 .waited_ms = 12000,
                                 .cores_request_permille = 300,
                                 .cores_limit_permille = 1000,
                                 .work_ms = 40000,
                                 .measured_ms = 30000,
                                 .used_ms = 9000,
                                 .end = SL_HISTORY_EXIT,
                                 .code = 3,
                                 .gpu_count = 2};
    (void)snprintf(e.gpu[0].uuid, sizeof(e.gpu[0].uuid), "GPU-1d2c44f7-5291-5410");
    (void)snprintf(e.gpu[1].uuid, sizeof(e.gpu[1].uuid), "MIG-0000");
    e.gpu[0].asked_bytes = 40 * GIB;
    e.gpu[0].peak_bytes = 3 * GIB;
    e.gpu[1].index = 7;
    e.gpu[1].asked_bytes = SL_HISTORY_NO_LIMIT;
    e.gpu[1].peak_bytes = 512;
    return e;
}

static void assert_same(const struct sl_history_entry *a, const struct sl_history_entry *b)
{
    char one[SL_HISTORY_LINE_MAX], two[SL_HISTORY_LINE_MAX];
    (void)sl_history_format(a, one);
    (void)sl_history_format(b, two);
    assert_string_equal(one, two);
}

static void a_line_comes_back(void **state)
{
    (void)state;
    struct sl_history_entry e = sample(), back;
    char line[SL_HISTORY_LINE_MAX];
    for (int end = SL_HISTORY_UNKNOWN; end <= SL_HISTORY_REMOVED; end++) {
        e.end = (enum sl_history_end)end;
        size_t n = sl_history_format(&e, line);
        assert_int_equal(n, strlen(line));
        memset(&back, 0xff, sizeof(back));
        assert_true(sl_history_parse(line, n, &back));
        assert_same(&e, &back);
        assert_int_equal(back.end, end);
        assert_int_equal(back.id, e.id);
        assert_int_equal(back.gpu[1].asked_bytes, SL_HISTORY_NO_LIMIT);
        assert_int_equal(back.gpu[0].peak_bytes, 3 * GIB);
        assert_string_equal(back.command, "python3.11");
    }
}

/* The longest that there can be fits. */
static void every_field_at_its_most(void **state)
{
    (void)state;
    struct sl_history_entry e, back;
    char line[SL_HISTORY_LINE_MAX];
    memset(&e, 0xff, sizeof(e));
    memset(e.name, 'n', sizeof(e.name) - 1);
    e.name[sizeof(e.name) - 1] = '\0';
    memset(e.command, 'c', sizeof(e.command) - 1);
    e.command[sizeof(e.command) - 1] = '\0';
    e.end = SL_HISTORY_UNKNOWN;
    e.gpu_count = SL_HISTORY_GPUS;
    for (int i = 0; i < SL_HISTORY_GPUS; i++) {
        memset(e.gpu[i].uuid, 'u', sizeof(e.gpu[i].uuid) - 1);
        e.gpu[i].uuid[sizeof(e.gpu[i].uuid) - 1] = '\0';
        e.gpu[i].asked_bytes = UINT64_MAX - 1;
    }
    size_t n = sl_history_format(&e, line);
    assert_true(n < SL_HISTORY_LINE_MAX - 1);
    assert_true(sl_history_parse(line, n, &back));
    assert_same(&e, &back);
}

static void characters_that_a_line_cannot_have(void **state)
{
    (void)state;
    struct sl_history_entry e = sample(), back;
    char line[SL_HISTORY_LINE_MAX];
    (void)snprintf(e.command, sizeof(e.command), "a b=c:d,e\nf\x1b[2J\xc3\xa9");
    size_t n = sl_history_format(&e, line);
    assert_null(memchr(line, '\n', n));
    assert_true(sl_history_parse(line, n, &back));
    assert_string_equal(back.command, "a?b?c?d?e?f?[2J??");
}

/* Each change of one byte, and each cut, is noticed. */
static void damage_is_noticed(void **state)
{
    (void)state;
    struct sl_history_entry e = sample(), back;
    char line[SL_HISTORY_LINE_MAX], bad[SL_HISTORY_LINE_MAX];
    size_t n = sl_history_format(&e, line);
    for (size_t i = 0; i < n; i++) {
        assert_false(sl_history_parse(line, i, &back));
        memcpy(bad, line, n);
        bad[i] = (char)(bad[i] ^ 1);
        assert_false(sl_history_parse(bad, n, &back));
        bad[i] = '\0';
        assert_false(sl_history_parse(bad, n, &back));
    }
    assert_true(sl_history_parse(line, n, &back));
    assert_false(sl_history_parse("", 0, &back));
    memset(bad, 'x', sizeof(bad));
    assert_false(sl_history_parse(bad, sizeof(bad), &back));
}

/* A text with the checksum that belongs to it. */
static bool parse_with_sum(const char *text, struct sl_history_entry *ret)
{
    char line[SL_HISTORY_LINE_MAX];
    uint64_t h = sl_hash_text(text);
    (void)snprintf(line, sizeof(line), "%s sum=%08x", text, (unsigned)(uint32_t)(h ^ h >> 32));
    return sl_history_parse(line, strlen(line), ret);
}

static void what_a_line_may_say(void **state)
{
    (void)state;
    struct sl_history_entry e;
    assert_true(parse_with_sum("t1 name=a", &e));
    assert_string_equal(e.name, "a");
    assert_int_equal(e.cores_limit_permille, 1000);
    assert_int_equal(e.end, SL_HISTORY_UNKNOWN);
    assert_true(parse_with_sum("t1 name=a later=1,2:3 gpus=0:GPU-1:-:5", &e));
    assert_int_equal(e.gpu_count, 1);

    static const char *const wrong[] = {
        "t2 name=a",
        "t1",
        "t1 name=",
        "t1 name=a word",
        "t1 name=a uid=4294967296",
        "t1 name=a uid=-1",
        "t1 name=a uid=",
        "t1 name=a uid=1x",
        "t1 name=a start=18446744073709551616",
        "t1 name=a id=g",
        "t1 name=a ended=exit",
        "t1 name=a ended=exit:",
        "t1 name=a ended=never:1",
        "t1 name=a gpus=",
        "t1 name=a gpus=0:GPU:1",
        "t1 name=a gpus=0:GPU:1:",
        "t1 name=a gpus=0:GPU:-1:1",
        "t1 name=a gpus=0:GPU:1:1,",
        "t1 name=a gpus=0:GPU:1:1 gpus=0:GPU:1:1",
        "t1 name=a command=123456789012345678901234567890123",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (parse_with_sum(wrong[i], &e))
            fail_msg("was taken: %s", wrong[i]);
}

static void cores_on_average(void **state)
{
    (void)state;
    struct sl_history_entry e = {.measured_ms = 0, .used_ms = 5};
    uint32_t got = 0;
    assert_false(sl_history_got(&e, &got));
    e.measured_ms = 1000;
    e.used_ms = 295;
    assert_true(sl_history_got(&e, &got));
    assert_int_equal(got, 295);
    e.used_ms = UINT64_MAX;
    assert_true(sl_history_got(&e, &got));
    assert_int_equal(got, 1000);
    e.measured_ms = UINT64_MAX;
    assert_true(sl_history_got(&e, &got));
    assert_int_equal(got, 1000);
}

/* --- advice --- */

static struct sl_history_entry run_of(const char *name, uint64_t asked, uint64_t peak)
{
    struct sl_history_entry e = {.gpu_count = 1, .uid = 1000};
    (void)snprintf(e.name, sizeof(e.name), "%s", name);
    e.gpu[0].asked_bytes = asked;
    e.gpu[0].peak_bytes = peak;
    return e;
}

static void far_more_memory_than_used(void **state)
{
    (void)state;
    struct sl_history_hint h[2];
    struct sl_history_entry e = run_of("a", 40 * GIB, 31 * GIB / 10);
    assert_int_equal(sl_history_hints(&e, 1, h, 2), 1);
    assert_true(h[0].memory);
    assert_string_equal(h[0].name, "a");
    assert_int_equal(h[0].asked, 40 * GIB);
    assert_int_equal(h[0].used, 31 * GIB / 10);
    assert_int_equal(h[0].enough, 4 * GIB);
    assert_int_equal(h[0].runs, 1);

    static const struct {
        uint64_t asked, peak;
        size_t hints;
    } cases[] = {
        {40 * GIB, 20 * GIB, 0},       /* half is well asked */
        {40 * GIB, 20 * GIB - 1, 1},   /* less is not */
        {GIB, GIB / 4, 0},             /* too little to speak of */
        {SL_HISTORY_NO_LIMIT, GIB, 0}, /* nothing was asked for */
        {40 * GIB, 0, 0},              /* it never came to the GPU */
        {UINT64_MAX - 1, GIB, 1},      /* no overflow */
        {UINT64_MAX - 1, UINT64_MAX, 0},
        {2 * GIB, GIB / 10, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        e = run_of("a", cases[i].asked, cases[i].peak);
        if (sl_history_hints(&e, 1, h, 2) != cases[i].hints)
            fail_msg("case %zu", i);
    }
}

/* One run that needed the memory is enough to say nothing, as long as it is among the latest. */
static void the_latest_runs_count(void **state)
{
    (void)state;
    struct sl_history_entry e[SL_HINT_RUNS + 1];
    struct sl_history_hint h[2];
    for (size_t i = 0; i <= SL_HINT_RUNS; i++)
        e[i] = run_of("a", 40 * GIB, (1 + i % 2) * GIB);
    e[1] = run_of("a", 40 * GIB, 39 * GIB);
    assert_int_equal(sl_history_hints(e, SL_HINT_RUNS + 1, h, 2), 0);
    e[1] = run_of("a", 40 * GIB, 4 * GIB);
    e[0] = run_of("a", 40 * GIB, 39 * GIB);
    assert_int_equal(sl_history_hints(e, SL_HINT_RUNS + 1, h, 2), 1);
    assert_int_equal(h[0].runs, SL_HINT_RUNS);
    assert_int_equal(h[0].used, 4 * GIB);
    assert_int_equal(h[0].enough, 5 * GIB);
    /* Somebody who asks for less by now needs no advice. */
    e[SL_HINT_RUNS] = run_of("a", 5 * GIB, 4 * GIB);
    assert_int_equal(sl_history_hints(e, SL_HINT_RUNS + 1, h, 2), 0);
}

static void users_and_names_apart(void **state)
{
    (void)state;
    struct sl_history_entry e[] = {run_of("a", 40 * GIB, GIB), run_of("a", 40 * GIB, 39 * GIB),
                                   run_of("b", 40 * GIB, GIB)};
    struct sl_history_hint h[1];
    e[1].uid = 1001;
    assert_int_equal(sl_history_hints(e, 3, h, 1), 2); /* more than there is room for */
    assert_string_equal(h[0].name, "b");               /* the latest first */
    assert_int_equal(sl_history_hints(e, 3, NULL, 0), 2);
}

static void of_several_gpus_the_fullest_counts(void **state)
{
    (void)state;
    struct sl_history_entry e = run_of("a", 40 * GIB, GIB);
    struct sl_history_hint h[1];
    e.gpu_count = 3;
    e.gpu[1].asked_bytes = 40 * GIB;
    e.gpu[1].peak_bytes = 39 * GIB;
    e.gpu[2].asked_bytes = SL_HISTORY_NO_LIMIT;
    e.gpu[2].peak_bytes = 100 * GIB;
    assert_int_equal(sl_history_fullest(&e), 1);
    assert_int_equal(sl_history_hints(&e, 1, h, 1), 0);
}

static void far_more_cores_than_used(void **state)
{
    (void)state;
    struct sl_history_hint h[1];
    struct sl_history_entry e = run_of("a", SL_HISTORY_NO_LIMIT, GIB);
    e.cores_request_permille = e.cores_limit_permille = 500;
    e.measured_ms = SL_HINT_LEAST_MS;
    e.used_ms = SL_HINT_LEAST_MS * 8 / 100;
    assert_int_equal(sl_history_hints(&e, 1, h, 1), 1);
    assert_false(h[0].memory);
    assert_int_equal(h[0].asked, 500);
    assert_int_equal(h[0].used, 80);
    assert_int_equal(h[0].enough, 100);
    e.measured_ms--; /* too short to tell */
    assert_int_equal(sl_history_hints(&e, 1, h, 1), 0);
    e.measured_ms++;
    e.used_ms = SL_HINT_LEAST_MS * 25 / 100; /* half of what it asked for */
    assert_int_equal(sl_history_hints(&e, 1, h, 1), 0);
    e.cores_request_permille = 60;
    e.used_ms = SL_HINT_LEAST_MS * 2 / 100; /* too little to speak of */
    assert_int_equal(sl_history_hints(&e, 1, h, 1), 0);
}

/* Whatever the figures, a hint proposes less than was asked for and no less than was used. */
static void no_hint_is_nonsense(void **state)
{
    (void)state;
    struct rng r = {.state = 42};
    for (int round = 0; round < 20000; round++) {
        struct sl_history_entry e[4];
        struct sl_history_hint h[8];
        size_t count = rng_below(&r, 5);
        for (size_t i = 0; i < count; i++) {
            e[i] = run_of(rng_below(&r, 2) ? "a" : "b", rng_next(&r) >> rng_below(&r, 64),
                          rng_next(&r) >> rng_below(&r, 64));
            e[i].cores_request_permille = (uint32_t)(rng_next(&r) >> (32 + rng_below(&r, 32)));
            e[i].measured_ms = rng_next(&r) >> rng_below(&r, 64);
            e[i].used_ms = rng_next(&r) >> rng_below(&r, 64);
        }
        size_t n = sl_history_hints(e, count, h, 8);
        assert_true(n <= 4);
        for (size_t i = 0; i < n; i++) {
            assert_true(h[i].enough < h[i].asked && h[i].enough >= h[i].used);
            assert_true(h[i].runs >= 1 && h[i].runs <= count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_comes_back),
        cmocka_unit_test(every_field_at_its_most),
        cmocka_unit_test(characters_that_a_line_cannot_have),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(what_a_line_may_say),
        cmocka_unit_test(cores_on_average),
        cmocka_unit_test(far_more_memory_than_used),
        cmocka_unit_test(the_latest_runs_count),
        cmocka_unit_test(users_and_names_apart),
        cmocka_unit_test(of_several_gpus_the_fullest_counts),
        cmocka_unit_test(far_more_cores_than_used),
        cmocka_unit_test(no_hint_is_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
