/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/argv.h"

static void splits(void **state)
{
    (void)state;
    struct sl_option o;
    char longest[70] = "--", over[70] = "--";
    memset(longest + 2, 'x', 63);
    memset(over + 2, 'x', 64);
    assert_true(sl_option_split("--name", &o));
    assert_string_equal(o.name, "name");
    assert_null(o.value);
    assert_true(sl_option_split("--name=", &o));
    assert_string_equal(o.value, "");
    assert_true(sl_option_split("--name=a=b", &o));
    assert_string_equal(o.name, "name");
    assert_string_equal(o.value, "a=b");
    assert_true(sl_option_split(longest, &o));
    assert_int_equal(strlen(o.name), 63);
    static const char *const none[] = {"",   "-",    "--",     "--=", "--=x",
                                       "-x", "name", "name=x", " --x"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_false(sl_option_split(none[i], &o));
    assert_false(sl_option_split(over, &o));
}

static void values(void **state)
{
    (void)state;
    char a[] = "--a", minus[] = "-1", b[] = "--b", c[] = "--c", d[] = "--d=x", e[] = "--e";
    char *argv[] = {a, minus, b, c, d, e, NULL};
    struct sl_option o;
    int at = 0;
    assert_true(sl_option_split(argv[0], &o));
    assert_string_equal(sl_option_value(&o, 6, argv, &at), "-1"); /* one dash may begin a value */
    assert_int_equal(at, 1);
    at = 2;
    assert_true(sl_option_split(argv[2], &o));
    assert_null(sl_option_value(&o, 6, argv, &at)); /* the next word is an option */
    assert_int_equal(at, 2);
    at = 4;
    assert_true(sl_option_split(argv[4], &o));
    assert_string_equal(sl_option_value(&o, 6, argv, &at), "x");
    assert_int_equal(at, 4);
    at = 5;
    assert_true(sl_option_split(argv[5], &o));
    assert_null(sl_option_value(&o, 6, argv, &at)); /* there is no next word */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(splits), cmocka_unit_test(values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
