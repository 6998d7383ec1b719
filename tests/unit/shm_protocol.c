/* SPDX-License-Identifier: Apache-2.0 */
/* Which protocol two builds agree on, and what is said where there is none. */
#include "shm/protocol.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"

static void two_versions_back_are_served(void **state)
{
    (void)state;
    assert_true(SL_PROTOCOL - SL_PROTOCOL_OLDEST == SL_PROTOCOL_BACK);
    /* Arbiter and process of every pair of versions: newest, and the two before it. */
    for (uint32_t arbiter = 1; arbiter < 9; arbiter++)
        for (uint32_t process = 1; process < 9; process++) {
            struct sl_protocols a = {arbiter > 2 ? arbiter - 2 : 1, arbiter};
            struct sl_protocols p = {process > 2 ? process - 2 : 1, process};
            struct sl_err err = SL_ERR_INIT;
            uint32_t got = 0, taken = 0;
            int rc = sl_protocol_agree(a, p, &got, &err);
            uint32_t apart = arbiter > process ? arbiter - process : process - arbiter;
            assert_int_equal(rc, apart <= 2 ? 0 : -EPROTONOSUPPORT);
            if (rc == 0) {
                assert_int_equal(got, arbiter < process ? arbiter : process);
                assert_int_equal(sl_protocol_accept(p, got, &taken, &err), 0);
                assert_int_equal(taken, got);
            } else {
                assert_non_null(strstr(err.msg, "start the pod or the command again"));
            }
        }
}

static void what_is_told_is_heard(void **state)
{
    (void)state;
    static const struct {
        uint32_t option, oldest, newest;
    } cases[] = {
        {0, 1, 1},          {0x00010003, 1, 3}, {0x00050007, 5, 7},          {0x00000004, 4, 4},
        {0x00090004, 4, 4}, {0xffff0000, 1, 1}, {0xffffffff, 0xffff, 0xffff}};
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sl_protocols p = sl_protocols_heard(cases[i].option);
        assert_int_equal(p.oldest, cases[i].oldest);
        assert_int_equal(p.newest, cases[i].newest);
    }
    struct sl_protocols own = sl_protocols_heard(sl_protocols_told(SL_PROTOCOLS_OWN));
    assert_int_equal(own.oldest, SL_PROTOCOL_OLDEST);
    assert_int_equal(own.newest, SL_PROTOCOL);
}

static void an_arbiter_that_takes_what_we_do_not_know(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    uint32_t got = 0;
    assert_int_equal(sl_protocol_accept((struct sl_protocols){3, 5}, 0, &got, &err),
                     -EPROTONOSUPPORT); /* it tells nothing: protocol 1 */
    assert_non_null(strstr(err.msg, "protocol 1"));
    assert_int_equal(sl_protocol_accept((struct sl_protocols){3, 5}, 6, &got, &err),
                     -EPROTONOSUPPORT);
    assert_non_null(strstr(err.msg, "3 to 5"));
    assert_int_equal(sl_protocol_accept((struct sl_protocols){1, 3}, 0, &got, &err), 0);
    assert_int_equal(got, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_versions_back_are_served),
        cmocka_unit_test(what_is_told_is_heard),
        cmocka_unit_test(an_arbiter_that_takes_what_we_do_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
