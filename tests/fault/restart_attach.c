/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that begin while the arbiter is away wait for it, say so where libsluice logs, and end somewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    EVENTUALLY(logged("the arbiter does not answer"));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_never, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
