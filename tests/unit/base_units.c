/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities: what is accepted and to which value, and that everything else is refused with a cure. */
#include "base/units.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "../support/rng.h"
#include "base/cleanup.h"

static void memory_accepts(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
        uint32_t percent;
    } good[] = {
        {"1", 1, 0},
        {"512", 512, 0},
        {"1k", 1000, 0},
        {"3M", 3000000, 0},
        {"2G", 2000000000ULL, 0},
        {"1T", 1000000000000ULL, 0},
        {"1P", 1000000000000000ULL, 0},
        {"1Ki", 1024, 0},
        {"512Mi", 512ULL << 20, 0},
        {"10Gi", 10ULL << 30, 0},
        {"10gi", 10ULL << 30, 0},
        {"10GI", 10ULL << 30, 0},
        {"1.5ki", 1536, 0},
        {"2tI", 2ULL << 40, 0},
        {"1.5Gi", 3ULL << 29, 0},
        {"0.1Gi", 107374182, 0},
        {"0.000000001G", 1, 0},
        {"1.9999999999", 1, 0},
        {"2Ti", 2ULL << 40, 0},
        {"8191Pi", 8191ULL << 50, 0},
        {"007Gi", 7ULL << 30, 0},
        {"9223372036854775807", INT64_MAX, 0},
        {"1%", 0, 1},
        {"25%", 0, 25},
        {"100%", 0, 100},
        {"50.0%", 0, 50},
    };
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(good); i++) {
        struct sl_memory_amount a = {99, 99};
        struct sl_err err = SL_ERR_INIT;
        if (sl_parse_memory(good[i].text, &a, &err) != 0)
            fail_msg("\"%s\" refused: %s", good[i].text, err.msg);
        if (a.bytes != good[i].bytes || a.percent != good[i].percent)
            fail_msg("\"%s\" is %llu bytes, %u %%", good[i].text, (unsigned long long)a.bytes,
                     a.percent);
        assert_int_equal(err.code, 0);
    }
}

static void memory_refuses(void **state)
{
    /* The last column is a part of the message: what the user needs to put it right. */
    static const struct {
        const char *text;
        int code;
        const char *cure;
    } bad[] = {
        {"", -EINVAL, "10Gi"},
        {" ", -EINVAL, "10Gi"},
        {"0", -EINVAL, "1Gi"},
        {"0Gi", -EINVAL, "1Gi"},
        {"0.0", -EINVAL, "1Gi"},
        {"0.9", -EINVAL, "1Gi"},
        {"-1", -EINVAL, "10Gi"},
        {"-1Gi", -EINVAL, "10Gi"},
        {"+1Gi", -EINVAL, "10Gi"},
        {"10Gb", -EINVAL, "10Gi"},
        {"10GB", -EINVAL, "10Gi"},
        {"512Mb", -EINVAL, "512Mi"},
        {"512MB", -EINVAL, "512Mi"},
        {"Gb", -EINVAL, "10Gi"},
        {"xGB", -EINVAL, "Gi"},
        {"10gib", -EINVAL, "10Gi"},
        {"gi", -EINVAL, "10Gi"},
        {"10mi5", -EINVAL, "10Gi"},
        {"10g", -EINVAL, "10Gi"},
        {"10K", -EINVAL, "10Gi"},
        {"10 Gi", -EINVAL, "10Gi"},
        {"10Gi ", -EINVAL, "10Gi"},
        {" 10Gi", -EINVAL, "10Gi"},
        {"10GiB", -EINVAL, "10Gi"},
        {"10Gi10", -EINVAL, "10Gi"},
        {"10E", -EINVAL, "10Gi"},
        {"1e30", -EINVAL, "10Gi"},
        {"1e3", -EINVAL, "10Gi"},
        {"0x10", -EINVAL, "10Gi"},
        {"inf", -EINVAL, "10Gi"},
        {"nan", -EINVAL, "10Gi"},
        {"ten", -EINVAL, "10Gi"},
        {".5Gi", -EINVAL, "10Gi"},
        {"5.Gi", -EINVAL, "10Gi"},
        {"1.2.3Gi", -EINVAL, "10Gi"},
        {"1,5Gi", -EINVAL, "10Gi"},
        {"\xef\xbc\x91Gi", -EINVAL, "10Gi"},
        {"9223372036854775808", -ERANGE, "more than any GPU"},
        {"8192Pi", -ERANGE, "more than any GPU"},
        {"18446744073709551615Pi", -ERANGE, "more than any GPU"},
        {"18446744073709551616", -EINVAL, "10Gi"},
        {"99999999999999999999999999Gi", -EINVAL, "10Gi"},
        {"0%", -EINVAL, "1%"},
        {"101%", -EINVAL, "100%"},
        {"25.5%", -EINVAL, "whole number"},
        {"0.5%", -EINVAL, "whole number"},
        {"%", -EINVAL, "25%"},
        {"25%%", -EINVAL, "25%"},
        {"25 %", -EINVAL, "25%"},
        {"-25%", -EINVAL, "25%"},
    };
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        struct sl_memory_amount a = {42, 43};
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_parse_memory(bad[i].text, &a, &err);
        if (rc != bad[i].code || err.code != rc)
            fail_msg("\"%s\": %d (\"%s\")", bad[i].text, rc, err.msg);
        if (!strstr(err.msg, bad[i].cure))
            fail_msg("\"%s\": no \"%s\" in: %s", bad[i].text, bad[i].cure, err.msg);
        if (*bad[i].text && !strstr(err.msg, bad[i].text))
            fail_msg("\"%s\" is not quoted in: %s", bad[i].text, err.msg);
        assert_true(a.bytes == 42 && a.percent == 43); /* untouched on failure */
        assert_int_equal(sl_parse_memory(bad[i].text, &a, NULL), bad[i].code);
    }
}

static void cores_accepts(void **state)
{
    static const struct {
        const char *text;
        uint32_t request, limit;
    } good[] = {
        {"30", 300, 300},        {"100", 1000, 1000},     {"0.1", 1, 1},
        {"12.5", 125, 125},      {"30:100", 300, 1000},   {"30:30", 300, 300},
        {"0.1:0.2", 1, 2},       {"99.9", 999, 999},      {"1.000", 10, 10},
        {"100:100", 1000, 1000}, {"030", 300, 300},       {"5.50:10.0", 55, 100},
        {"30%", 300, 300},       {"30%:100%", 300, 1000}, {"30:50%", 300, 500},
    };
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(good); i++) {
        uint32_t request = 0, limit = 0;
        struct sl_err err = SL_ERR_INIT;
        if (sl_parse_cores(good[i].text, &request, &limit, &err) != 0)
            fail_msg("\"%s\" refused: %s", good[i].text, err.msg);
        assert_int_equal(request, good[i].request);
        assert_int_equal(limit, good[i].limit);
    }
}

static void cores_refuses(void **state)
{
    static const char *const bad[] = {
        "",
        "0",
        "0.0",
        "-1",
        "+30",
        "100.1",
        "101",
        "1000",
        "12.55",
        "0.05",
        "30%%",
        "%",
        "30%:",
        "101%",
        "%30",
        "30 ",
        " 30",
        "30:",
        ":100",
        ":",
        "30:0",
        "30:20",
        "30:101",
        "30::",
        "x",
        "30:x",
        "30:40:50",
        "1e1",
        "3O",
        "30-100",
        "30,5",
        ".5",
        "5.",
        "0x1e",
        "nan",
        "inf",
        "18446744073709551617",
        "99999999999999999999999",
        "30:99999999999999999999999",
    };
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        uint32_t request = 7, limit = 8;
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_parse_cores(bad[i], &request, &limit, &err);
        if (rc != -EINVAL)
            fail_msg("\"%s\": %d", bad[i], rc);
        if (!strstr(err.msg, "30:100"))
            fail_msg("\"%s\": no example in: %s", bad[i], err.msg);
        assert_true(request == 7 && limit == 8);
    }
}

static void formats(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0"},
        {1, "1 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {10ULL << 30, "10.0 GiB"},
        {512ULL << 20, "512 MiB"},
        {143771ULL << 20, "140 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    static const struct {
        uint32_t request, limit;
        const char *text;
    } cores[] = {{300, 300, "30"}, {300, 1000, "30:100"}, {125, 125, "12.5"}, {1, 999, "0.1:99.9"}};
    static const struct {
        uint64_t ns;
        const char *text;
    } times[] = {{0, "0 ns"},
                 {999, "999 ns"},
                 {850000, "850 us"},
                 {1500000, "1.5 ms"},
                 {1500000000, "1.5 s"},
                 {119000000000, "119.0 s"},
                 {120000000000, "2 min"},
                 {7199000000000, "120 min"},
                 {7200000000000, "2.0 h"},
                 {172800000000000, "2.0 d"}};
    char buf[32];
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++)
        assert_string_equal(sl_format_bytes(sizes[i].bytes, buf, sizeof(buf)), sizes[i].text);
    for (size_t i = 0; i < SL_ARRAY_LEN(cores); i++)
        assert_string_equal(sl_format_cores(cores[i].request, cores[i].limit, buf, sizeof(buf)),
                            cores[i].text);
    for (size_t i = 0; i < SL_ARRAY_LEN(times); i++)
        assert_string_equal(sl_format_duration(times[i].ns, buf, sizeof(buf)), times[i].text);
}

static void formats_fit_small_buffers(void **state)
{
    char buf[4] = "xxx";
    (void)state;
    (void)sl_format_bytes(10ULL << 30, buf, sizeof(buf));
    assert_string_equal(buf, "10.");
    (void)sl_format_cores(300, 1000, buf, 3);
    assert_int_equal(strlen(buf), 2);
    (void)sl_format_cores(125, 1000, buf, sizeof(buf));
    assert_string_equal(buf, "12.");
    (void)sl_format_duration(1500000000, buf, sizeof(buf));
    assert_string_equal(buf, "1.5");
}

/* What is printed for cores is read back to the same value, for every value there is. */
static void cores_survive_a_round_trip(void **state)
{
    (void)state;
    struct rng r = {1};
    for (uint32_t request = 1; request <= 1000; request++) {
        uint32_t limit = request + (uint32_t)rng_below(&r, 1001 - request), got_request, got_limit;
        char buf[32];
        assert_int_equal(sl_parse_cores(sl_format_cores(request, limit, buf, sizeof(buf)),
                                        &got_request, &got_limit, NULL),
                         0);
        assert_int_equal(got_request, request);
        assert_int_equal(got_limit, limit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_accepts),
        cmocka_unit_test(memory_refuses),
        cmocka_unit_test(cores_accepts),
        cmocka_unit_test(cores_refuses),
        cmocka_unit_test(formats),
        cmocka_unit_test(formats_fit_small_buffers),
        cmocka_unit_test(cores_survive_a_round_trip),
    };
    return cmocka_run_group_tests_name("base units", tests, NULL, NULL);
}
