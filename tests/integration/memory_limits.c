/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_limits PATH: for one way to get memory, through every way to look it up: what three
 * processes of a tenant get together is the limit to the piece; over it is OUT_OF_MEMORY; after
 * giving back, after a context reset, after exit and after SIGKILL the ledger is at zero.
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

#define MIB           (1ULL << 20)
#define PROCESSES     3
#define PIECES        10 /* of the tenant, beside its contexts */
#define OUT_OF_MEMORY 2

static const char *path;
static uint64_t piece_bytes;
static struct world world;

static void start_probe(const struct tenant *t, const char *lookup, struct program *p)
{
    const char *argv[] = {"memory_probe", path, lookup, NULL};
    char line[128];
    program_start(t, argv, NULL, p);
    program_answer(p, line, sizeof(line));
    if (sscanf(line, "ready 0 %lu", &piece_bytes) != 1)
        fail_msg("%s", line);
}

/* All ask for all at once; returns how many pieces they got together. */
static int fill_all(struct program *p)
{
    int sum = 0;
    for (int i = 0; i < PROCESSES; i++)
        program_say(&p[i], "fill");
    for (int i = 0; i < PROCESSES; i++) {
        char line[128];
        int got = -1, rc = -1;
        program_answer(&p[i], line, sizeof(line));
        if (sscanf(line, "got %d %d", &got, &rc) != 2 || rc != OUT_OF_MEMORY)
            fail_msg("process %d: %s", i, line);
        sum += got;
    }
    return sum;
}

static void give_all(struct program *p)
{
    for (int i = 0; i < PROCESSES; i++) {
        char line[128];
        int gave, rc = -1;
        program_ask(&p[i], "give", line, sizeof(line));
        if (sscanf(line, "gave %d %d", &gave, &rc) != 2 || rc != 0)
            fail_msg("process %d: %s", i, line);
    }
}

/* The view from inside: nothing left, and the limit as the card's size. */
static void check_view(struct program *p, uint64_t limit, bool full)
{
    char line[128];
    uint64_t free_bytes, total, device_total;
    int rc = -1;
    program_ask(p, "info", line, sizeof(line));
    if (sscanf(line, "info %lu %lu %lu %d", &free_bytes, &total, &device_total, &rc) != 4 ||
        rc != 0)
        fail_msg("%s", line);
    assert_int_equal(total, limit);
    assert_int_equal(device_total, limit);
    if (full)
        assert_true(free_bytes < piece_bytes);
    else
        assert_true(free_bytes >= PIECES * piece_bytes);
}

static void check_lookup(const char *lookup)
{
    struct tenant t;
    struct program p[PROCESSES];
    char line[128];
    tenant_begin(&world, lookup, 8 * GIB, &t);
    for (int i = 0; i < PROCESSES; i++)
        start_probe(&t, lookup, &p[i]);

    /* Contexts are part of the limit; what is left beside them is an exact number of pieces. */
    struct usage u = tenant_usage(&t);
    assert_true(u.overhead_bytes > 0);
    assert_int_equal(u.processes, PROCESSES);
    uint64_t limit = u.overhead_bytes + PIECES * piece_bytes + MIB;
    tenant_set_limit(&t, limit);

    assert_int_equal(fill_all(p), PIECES);
    u = tenant_usage(&t);
    assert_int_equal(u.used_bytes, PIECES * piece_bytes);
    assert_true(u.oom_count >= PROCESSES);
    check_view(&p[0], limit, true);
    give_all(p);
    assert_int_equal(tenant_usage(&t).used_bytes, 0);
    check_view(&p[0], limit, false);

    /* Again, and now the first one resets its context, the second dies, the third just ends. */
    assert_int_equal(fill_all(p), PIECES);
    program_ask(&p[0], "reset", line, sizeof(line));
    assert_string_equal(line, "reset 0\n");
    program_ask(&p[0], "give", line, sizeof(line));
    program_say(&p[1], "crash");
    assert_true(WIFSIGNALED(program_end(&p[1])));
    EVENTUALLY(tenant_usage(&t).processes == PROCESSES - 1);
    assert_int_equal(program_end(&p[2]), 0);
    EVENTUALLY(tenant_usage(&t).processes == PROCESSES - 2);
    assert_int_equal(program_end(&p[0]), 0);
    EVENTUALLY(tenant_usage(&t).processes == 0);
    assert_int_equal(tenant_usage(&t).used_bytes, 0);
    tenant_end(&t);
}

static void test_direct(void **state)
{
    (void)state;
    check_lookup("direct");
}

static void test_dlsym(void **state)
{
    (void)state;
    check_lookup("dlsym");
}

static void test_dlsym_default(void **state)
{
    (void)state;
    check_lookup("dlsym-default");
}

static void test_proc(void **state)
{
    (void)state;
    check_lookup("proc");
}

static void test_proc_v1(void **state)
{
    (void)state;
    check_lookup("proc-v1");
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct),        cmocka_unit_test(test_dlsym),
        cmocka_unit_test(test_dlsym_default), cmocka_unit_test(test_proc),
        cmocka_unit_test(test_proc_v1),
    };
    path = argc > 1 ? argv[1] : "alloc";
    return cmocka_run_group_tests_name(path, tests, begin, end);
}
