/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that begin while the arbiter is away wait for it, say so where libsluice logs, and end somewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "integration/tenant_world.h"

static struct world world;
static struct tenant tenant;
static char log_path[128];

static int setup(void **state)
{
    (void)state;
    world_begin(&world);
    tenant_begin(&world, "waits", 10 * GIB, &tenant);
    (void)snprintf(log_path, sizeof(log_path), "%s/program.log", world.dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tenant_end(&tenant);
    world_end(&world);
    return 0;
}

static bool logged(const char *words)
{
    char line[512];
    bool found = false;
    FILE *f = fopen(log_path, "re");
    while (f && !found && fgets(line, sizeof(line), f))
        found = strstr(line, words);
    if (f)
        (void)fclose(f);
    return found;
}

static void start(struct program *p)
{
    char file[160];
    const char *argv[] = {"restart_tenant", NULL};
    const char *extra[] = {"SLUICE_LOG=warn", file, NULL};
    (void)snprintf(file, sizeof(file), "SLUICE_LOG_FILE=%s", log_path);
    program_start(&tenant, argv, extra, p);
}

/* Without a log: what the program prints on stderr goes into the file. */
static void start_plain(struct program *p, const char *wait)
{
    char set[64];
    const char *argv[] = {"restart_tenant", NULL};
    const char *extra[] = {set, NULL};
    (void)snprintf(set, sizeof(set), "SLUICE_ATTACH_WAIT=%s", wait);
    int old = dup(STDERR_FILENO);
    int file = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(old >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    program_start(&tenant, argv, extra, p);
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    (void)close(old);
    (void)close(file);
}

static void finish(struct program *p, const char *answer)
{
    char line[64];
    program_answer(p, line, sizeof(line));
    assert_string_equal(line, answer);
    assert_int_equal(program_end(p), 0);
}

/* Six seconds, which an upgrade takes easily. The time is part of what is tested: how long it is away. */
static void test_away(void **state)
{
    (void)state;
    struct program p[3];
    const struct timespec away = {.tv_sec = 6};
    world_kill(&world);
    for (int i = 0; i < 3; i++)
        start(&p[i]);
    EVENTUALLY(logged("the arbiter of the GPU does not answer"));
    (void)nanosleep(&away, NULL);
    world_start(&world);
    for (int i = 0; i < 3; i++)
        finish(&p[i], "ready 0\n");
    assert_false(logged("not attached"));
}

/* It never comes: the program is told so, in the end. */
static void test_never(void **state)
{
    (void)state;
    struct program p;
    world_stop(&world);
    start(&p);
    finish(&p, "ready 800\n");
    assert_true(logged("waiting up to 30 s for it"));
    assert_true(logged("not attached"));
    world_start(&world);
}

/* As many seconds as the environment says, and a line on stderr in the meantime. */
static void test_told(void **state)
{
    (void)state;
    struct program p;
    world_stop(&world);
    start_plain(&p, "3");
    finish(&p, "ready 800\n");
    assert_true(logged("sluice: the arbiter of the GPU does not answer"));
    assert_true(logged("waiting up to 3 s for it; SLUICE_ATTACH_WAIT changes this time"));
    assert_true(
        logged("sluice: this process is not attached to its tenant, and CUDA answers error 800"));
    world_start(&world);
}

/* No patience: refused at once, without a word about waiting. */
static void test_at_once(void **state)
{
    (void)state;
    struct program p;
    world_stop(&world);
    start_plain(&p, "0");
    finish(&p, "ready 800\n");
    assert_false(logged("does not answer"));
    assert_true(logged("not attached"));
    world_start(&world);
}

/* A text that is no number counts as none: the arbiter is back in time. */
static void test_no_number(void **state)
{
    (void)state;
    struct program p;
    world_stop(&world);
    start_plain(&p, "long");
    EVENTUALLY(logged("waiting up to 30 s for it"));
    world_start(&world);
    finish(&p, "ready 0\n");
    assert_false(logged("not attached"));
}

/* In ordinary days a program prints nothing. */
static void test_silent(void **state)
{
    (void)state;
    struct program p;
    start_plain(&p, "5");
    finish(&p, "ready 0\n");
    assert_false(logged("sluice"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_never, setup, teardown),
        cmocka_unit_test_setup_teardown(test_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_number, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silent, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
