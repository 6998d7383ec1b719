/* SPDX-License-Identifier: Apache-2.0 */
/* Times in the past, as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cli/since.h"

#define NOW_MS 1794882000000ULL /* 2026-11-17 02:20:00 UTC */

static int utc(void **state)
{
    (void)state;
    int rc = setenv("TZ", "UTC", 1);
    tzset();
    return rc;
}

static void good_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {
        {"1s", NOW_MS - 1000},
        {"2h", NOW_MS - 7200000},
        {"1d", NOW_MS - 86400000},
        {"2026-11-17", 1794873600000},
        {"2026-11-17 02:20", NOW_MS},
        {"2026-11-17T02:19", NOW_MS - 60000},
        {"2026-11-17 02:19:59", NOW_MS - 1000},
        {"2024-02-29T00:00:01", 1709164801000},
        {"1970-01-01", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t ms = 1;
        struct sl_err err = SL_ERR_INIT;
        if (sl_since_parse(cases[i].text, NOW_MS, &ms, &err) < 0)
            fail_msg("%s", err.msg);
        assert_int_equal(ms, cases[i].ms);
    }
}

static void wrong_times(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "now",
        "2",
        "-2h",
        "0s",
        "2h ",
        " 2026-11-17",
        "2026-11-17 ",
        "2026-11",
        "2026-11-17 2:20",
        "26-11-17",
        "2026/11/17",
        "2026-11-17 02:20:00Z",
        "+026-11-17",
        "2026-13-01",
        "2026-00-10",
        "2026-11-00",
        "2025-02-29",
        "2026-11-17 24:00",
        "2026-11-17 02:60",
        "2026-11-17 02:20:01",
        "2026-11-18",
        "9999-12-31",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t ms = 42;
        struct sl_err err = SL_ERR_INIT;
        if (sl_since_parse(cases[i], NOW_MS, &ms, &err) == 0)
            fail_msg("was taken: \"%s\"", cases[i]);
        assert_true(err.msg[0] && ms == 42);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_times),
        cmocka_unit_test(wrong_times),
    };
    return cmocka_run_group_tests(tests, utc, NULL);
}
