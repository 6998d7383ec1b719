/* SPDX-License-Identifier: Apache-2.0 */
/* Texts in base64: as the API server writes them, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "controller/base64.h"

static void there_and_back(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"\xff\xfe?>", "//4/Pg=="}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        char *coded = sl_base64_encode(pairs[i][0]), *text = sl_base64_decode(pairs[i][1]);
        assert_string_equal(coded, pairs[i][1]);
        assert_string_equal(text, pairs[i][0]);
        free(coded);
        free(text);
    }
}

static void a_long_text_stays_on_one_line(void **state)
{
    (void)state;
    char text[5000] = "";
    memset(text, 'x', sizeof(text) - 1);
    char *coded = sl_base64_encode(text);
    assert_non_null(coded);
    assert_null(strchr(coded, '\n'));
    char *back = sl_base64_decode(coded);
    assert_string_equal(back, text);
    free(back);
    free(coded);
}

static void what_is_no_text_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"Zg",       "Z",   "Zg=", "Z!==", "AAAA" /* NULs */,
                                      "Zm8AZm8A", "===="};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_null(sl_base64_decode(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(a_long_text_stays_on_one_line),
        cmocka_unit_test(what_is_no_text_is_refused),
    };
    return cmocka_run_group_tests_name("base64", tests, NULL, NULL);
}
