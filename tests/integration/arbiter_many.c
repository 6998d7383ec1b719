/* SPDX-License-Identifier: Apache-2.0 */
/* As many tenants as GPU time can be divided among, and one more. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter_world.h"

#define MOST 1024

static void test_one_too_many(void **state)
{
    (void)state;
    struct world world;
    union sl_packet p;
    world_begin(&world);
    int fd = world_connect(&world);
    for (int i = 0; i < MOST; i++) {
        struct sl_msg_lease m = lease_ask("", 0);
        assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    }
    struct sl_msg_lease m = lease_ask("beyond", 0);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_ERROR);
    assert_int_equal(p.text.code, -EUSERS);
    assert_non_null(strstr(p.text.text, "there are 1024 tenants already"));
    (void)close(fd);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
