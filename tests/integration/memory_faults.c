/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_faults CALLS PATH…: the n-th driver call fails, for every n up to CALLS. The ledger never
 * shows less than the process holds, and nothing once all is given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tenant_world.h"

static struct world world;
static int last_call;
static char **paths;

static void check_nth(const struct tenant *t, int nth)
{
    struct program p;
    const char *argv[70] = {"memory_faults_tenant", "direct"};
    char fault[64], line[128];
    uint64_t held = 0, left = 0;
    for (int i = 0; paths[i] && i < 60; i++)
        argv[i + 2] = paths[i];
    (void)snprintf(fault, sizeof(fault), "SLUICE_SIM_FAULT=any:%d=999", nth);
    const char *extra[] = {fault, NULL};
    program_start(t, argv, extra, &p);
    if (!fgets(line, sizeof(line), p.out)) { /* the first calls of all failed twice: it gave up */
        assert_int_equal(WEXITSTATUS(program_end(&p)), 3);
        return;
    }
    assert_int_equal(sscanf(line, "held %lu", &held), 1);
    struct usage u = tenant_usage(t);
    if (u.used_bytes < held)
        fail_msg("call %d failed: %lu bytes are held, %lu in the ledger", nth, held, u.used_bytes);
    program_ask(&p, "go", line, sizeof(line));
    assert_int_equal(sscanf(line, "done %lu", &left), 1);
    u = tenant_usage(t);
    if (u.used_bytes != left)
        fail_msg("call %d failed: %lu bytes left, %lu in the ledger", nth, left, u.used_bytes);
    program_say(&p, "go");
    assert_int_equal(program_end(&p), 0);
    EVENTUALLY(tenant_usage(t).processes == 0);
    assert_int_equal(tenant_usage(t).used_bytes, 0);
}

static void test_every_call(void **state)
{
    (void)state;
    struct tenant t;
    tenant_begin(&world, "faulty", 8 * GIB, &t);
    for (int nth = 1; nth <= last_call; nth++)
        check_nth(&t, nth);
    tenant_end(&t);
}

static int begin(void **state)
{
    (void)state;
    world_begin(&world);
    return 0;
}

static int end(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call)};
    last_call = argc > 1 ? atoi(argv[1]) : 50;
    paths = argv + (argc > 1 ? 2 : 1);
    return cmocka_run_group_tests(tests, begin, end);
}
