/* SPDX-License-Identifier: Apache-2.0 */
/* An arbiter that is held up can be ended, and the next one has everything. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "integration/arbiter_world.h"

static struct world world;

static int setup(void **state)
{
    (void)state;
    world_begin(&world);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

/* The system call it is in and its arguments; "" where the kernel does not say. */
static void system_call(char line[256])
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/syscall", world.arbiter);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(line, 256, f))
        line[0] = '\0';
    if (f)
        (void)fclose(f);
}

static bool waits_in_open(void)
{
    char first[256], second[256];
    system_call(first);
    (void)usleep(20000);
    system_call(second);
    return atol(first) == SYS_openat && strcmp(first, second) == 0;
}

/* What it writes next is a pipe that nobody reads: it waits in open(). */
static void hold_up(const char *tenant, char pipe_path[160])
{
    struct sl_msg_lease m = lease_ask(tenant, 2 * GIB);
    struct sl_err err = SL_ERR_INIT;
    (void)snprintf(pipe_path, 160, "%s/t/%s.lease.new", world.dir, tenant);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    m.h.type = SL_MSG_SET;
    int fd = world_connect(&world);
    assert_int_equal(sl_packet_send(fd, &m.h, NULL, 0, &err), 0);
    EVENTUALLY(waits_in_open());
    (void)close(fd);
}

static void ends_on(int number)
{
    union sl_packet p;
    char pipe_path[160];
    int status, fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("held", GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    hold_up("held", pipe_path);
    assert_int_equal(kill(world.arbiter, number), 0);
    pid_t ended = 0;
    EVENTUALLY((ended = ended ? ended : waitpid(world.arbiter, &status, WNOHANG)) == world.arbiter);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_int_equal(unlink(pipe_path), 0);
    world_start(&world);
    assert_int_equal(world_used(&world, "held", NULL), 0);
    (void)close(fd);
}

static void test_sigterm(void **state)
{
    (void)state;
    ends_on(SIGTERM);
}

static void test_sigint(void **state)
{
    (void)state;
    ends_on(SIGINT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sigterm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sigint, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
