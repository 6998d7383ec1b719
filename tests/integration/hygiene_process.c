/* SPDX-License-Identifier: Apache-2.0 */
/* What libsluice does to the process it lives in: nothing a program could notice. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tenant_world.h"

#define LIMIT (2 * GIB)

static struct world world;

/* Runs a tenant program to its end; its output is shown when it fails. stderr must stay empty. */
static void run(const struct tenant *t, const char *const *argv, const char *const *extra)
{
    struct program p;
    char line[512], all[4096] = "";
    program_start(t, argv, extra, &p);
    while (fgets(line, sizeof(line), p.out))
        if (strlen(all) + strlen(line) < sizeof(all))
            (void)strcat(all, line);
    int status = program_end(&p);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s %s: status %#x\n%s", argv[0], argv[1] ? argv[1] : "", (unsigned)status, all);
}

static void run_case(const char *name, const char *const *extra)
{
    struct tenant t;
    const char *argv[] = {"hygiene_tenant", name, NULL};
    tenant_begin(&world, name, LIMIT, &t);
    run(&t, argv, extra);
    EVENTUALLY(tenant_usage(&t).processes == 0);
    assert_int_equal(tenant_usage(&t).used_bytes, 0);
    tenant_end(&t);
}

#define CASE(function, name)                                                                       \
    static void function(void **state)                                                             \
    {                                                                                              \
        (void)state;                                                                               \
        run_case(name, NULL);                                                                      \
    }

CASE(test_hygiene, "hygiene")
CASE(test_thread, "thread")
CASE(test_threads, "threads")
CASE(test_fork_first, "fork-first")
CASE(test_fork_later, "fork-later")
CASE(test_fork_threads, "fork-threads")
CASE(test_exec, "exec")
CASE(test_close_all, "close-all")

/* Nothing on stdout or stderr, whether attached or refused. */
static void test_silent(void **state)
{
    (void)state;
    struct tenant t;
    tenant_begin(&world, "silent", LIMIT, &t);
    const char *attach[] = {t.attach_path, "/nonexistent/attach.sock"};
    const char *arguments[] = {"hygiene", "expect 800"};
    for (int i = 0; i < 2; i++) {
        char preload[2048], command[4096], line[256];
        tenant_preload("", preload, sizeof(preload));
        (void)snprintf(command, sizeof(command),
                       "%s LD_LIBRARY_PATH=%s SLUICE_ATTACH=%s %s/hygiene_tenant %s 2>&1", preload,
                       getenv("SLUICE_TEST_DRIVER"), attach[i], getenv("SLUICE_TEST_BIN"),
                       arguments[i]);
        FILE *out = popen(command, "r");
        assert_non_null(out);
        /* A program that gets no GPU is told why, in one line. */
        if (i == 1) {
            assert_non_null(fgets(line, sizeof(line), out));
            assert_non_null(strstr(line, "sluice: this process is not attached to its tenant"));
        }
        if (fgets(line, sizeof(line), out))
            fail_msg("%s", line);
        assert_int_equal(pclose(out), 0);
    }
    tenant_end(&t);
}

/* Others come and go meanwhile, so that the arbiter measures every second. */
static void test_churn(void **state)
{
    (void)state;
    struct tenant t, other;
    struct program p;
    siginfo_t ended = {0};
    int passing = 0;
    const char *argv[] = {"hygiene_tenant", "churn", NULL};
    tenant_begin(&world, "churn", LIMIT, &t);
    program_start(&t, argv, NULL, &p);
    while (waitid(P_PID, (id_t)p.pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0) {
        char name[32];
        (void)snprintf(name, sizeof(name), "passing-%d", passing++);
        tenant_begin(&world, name, LIMIT / 64, &other); /* there as long as this process is */
        usleep(400000);
        tenant_end(&other);
    }
    assert_int_equal(program_end(&p), 0);
    tenant_end(&t);
}

static void test_lookup(void **state)
{
    (void)state;
    struct tenant t;
    const char *argv[] = {"hygiene_lookup", NULL};
    const char *without[] = {"hygiene_lookup", "without-driver", NULL};
    const char *reopen[] = {"hygiene_lookup", "reopen", NULL};
    tenant_begin(&world, "lookup", LIMIT, &t);
    run(&t, argv, NULL);
    run(&t, without, NULL);
    run(&t, reopen, NULL);
    run(NULL, reopen, NULL);
    run(NULL, argv, NULL);
    run(NULL, without, NULL);
    tenant_end(&t);
}

static void test_next(void **state)
{
    (void)state;
    char next[512], before[2048];
    (void)snprintf(next, sizeof(next), "%s/libhygiene_next.so:", getenv("SLUICE_TEST_BIN"));
    tenant_preload(next, before, sizeof(before));
    const char *extra_before[] = {before, NULL};
    run_case("next", extra_before);
}

static void test_no_tenant(void **state)
{
    (void)state;
    const char *argv[] = {"hygiene_tenant", "expect", "0", NULL};
    run(NULL, argv, NULL);
}

static void test_no_arbiter(void **state)
{
    (void)state;
    const char *argv[] = {"hygiene_tenant", "expect", "800", NULL};
    const char *extra[] = {"SLUICE_ATTACH=/nonexistent/attach.sock", NULL};
    run(NULL, argv, extra);
}

/* A tenant whose arbiter dies goes on under its last limit, and comes back to the next one. */
static void test_arbiter_dies(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    char line[128];
    const char *argv[] = {"memory_probe", "alloc", "direct", NULL};
    tenant_begin(&world, "orphan", LIMIT, &t);
    program_start(&t, argv, NULL, &p);
    program_answer(&p, line, sizeof(line));
    assert_string_equal(line, "ready 0 2097152\n");
    program_ask(&p, "take 10", line, sizeof(line));
    assert_string_equal(line, "got 10 0\n");
    world_kill(&world);
    program_ask(&p, "take 10", line, sizeof(line));
    assert_string_equal(line, "got 20 0\n");
    program_ask(&p, "fill", line, sizeof(line));
    assert_non_null(strstr(line, " 2\n"));
    int pieces = 0;
    (void)sscanf(line, "got %d", &pieces);
    assert_true(pieces > 100 && (uint64_t)pieces * 2 * 1024 * 1024 <= LIMIT);
    world_start(&world);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    EVENTUALLY(tenant_usage(&t).used_bytes == (uint64_t)pieces * 2 * 1024 * 1024);
    program_ask(&p, "give", line, sizeof(line));
    assert_int_equal(tenant_usage(&t).used_bytes, 0);
    program_ask(&p, "take 3", line, sizeof(line));
    assert_string_equal(line, "got 3 0\n");
    assert_int_equal(tenant_usage(&t).used_bytes, 3 * 2 * 1024 * 1024);
    assert_int_equal(program_end(&p), 0);
    EVENTUALLY(tenant_usage(&t).processes == 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),     cmocka_unit_test(test_hygiene),
        cmocka_unit_test(test_silent),     cmocka_unit_test(test_thread),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_fork_first),
        cmocka_unit_test(test_fork_later), cmocka_unit_test(test_fork_threads),
        cmocka_unit_test(test_exec),       cmocka_unit_test(test_close_all),
        cmocka_unit_test(test_next),       cmocka_unit_test(test_no_tenant),
        cmocka_unit_test(test_no_arbiter), cmocka_unit_test(test_arbiter_dies),
        cmocka_unit_test(test_churn),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
