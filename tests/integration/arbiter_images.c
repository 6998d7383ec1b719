/* SPDX-License-Identifier: Apache-2.0 */
/* Processes whose connection ends while they live: exec, or only a closed descriptor, and at what cost. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter_world.h"
#include "shm/account.h"

#define UNITS    7
#define HELLOS   300
#define MAPPINGS 60000

static struct world world;
static char path[256];

static int setup(void **state)
{
    (void)state;
    union sl_packet p;
    world_begin(&world);
    int fd = world_connect(&world);
    struct sl_msg_lease m = lease_ask("tenant", GIB);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    memcpy(path, p.created.attach_path, sizeof(path));
    (void)close(fd);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

static uint64_t used(void)
{
    return world_used(&world, "tenant", NULL);
}

static void reserve(struct peer *p)
{
    if (peer_attach(path, SL_NO_SLOT, -1, p) != 0 ||
        sl_account_reserve(p->ledger.page, p->slot, 0, UNITS, UINT64_MAX) != 0)
        _exit(1);
}

static void test_exec_returns_the_memory(void **state)
{
    (void)state;
    int ready[2], end[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(end), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct peer p;
        reserve(&p);
        (void)close(ready[0]);
        (void)close(end[1]);
        (void)!write(ready[1], "x", 1);
        (void)dup2(end[0], STDIN_FILENO);
        (void)execl("/bin/cat", "cat", (char *)NULL); /* until the pipe closes */
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    EVENTUALLY(used() == 0);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it lives: not its end gave it back */
    (void)close(end[0]);
    (void)close(end[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void test_a_closed_descriptor_changes_nothing(void **state)
{
    (void)state;
    struct peer p, again;
    reserve(&p);
    (void)close(p.sock);
    /* A later connection of the same tenant is served after that end was seen. */
    assert_int_equal(used(), UNITS * SL_UNIT_BYTES);
    assert_int_equal(peer_attach(path, p.slot, -1, &again), 0);
    assert_int_equal(again.slot, p.slot);
    assert_int_equal(used(), UNITS * SL_UNIT_BYTES);
    sl_account_release(p.ledger.page, p.slot, 0, UNITS);
    peer_close(&again);
    (void)close(p.doorbell);
}

static double cpu_seconds(void)
{
    clockid_t id;
    struct timespec ts;
    assert_int_equal(clock_getcpuclockid(world.arbiter, &id), 0);
    assert_int_equal(clock_gettime(id, &ts), 0);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Says HELLO with its own ear shut: the welcome fails, and the arbiter has to find out what happened. */
static void say_and_hang_up(void)
{
    struct sl_msg_hello m = {.slot = SL_NO_SLOT};
    struct sl_err err = SL_ERR_INIT;
    sl_packet_init(&m.h, SL_MSG_HELLO, sizeof(m));
    int sock = sl_packet_connect(path, &err);
    if (sock < 0)
        fail_msg("%s", err.msg);
    (void)shutdown(sock, SHUT_RD);
    (void)send(sock, &m, sizeof(m), MSG_NOSIGNAL);
    (void)close(sock);
}

static double cost_of_hellos(void)
{
    struct peer p;
    double before = cpu_seconds();
    for (int i = 0; i < HELLOS; i++)
        say_and_hang_up();
    assert_int_equal(peer_attach(path, SL_NO_SLOT, -1, &p), 0); /* all before it are done */
    double cost = cpu_seconds() - before;
    peer_close(&p);
    return cost;
}

/* However many mappings a process has: what it costs the arbiter stays the same. */
static void test_mappings_cost_nothing(void **state)
{
    (void)state;
    double few = cost_of_hellos();
    for (int i = 0; i < MAPPINGS; i++)
        if (mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
            MAP_FAILED)
            break;
    double many = cost_of_hellos();
    print_message("%d hellos: %.3f s of the arbiter, %.3f s with %d mappings\n", HELLOS, few, many,
                  MAPPINGS);
    assert_true(many < 5 * few + 0.05);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_exec_returns_the_memory),
        CASE(test_a_closed_descriptor_changes_nothing),
        CASE(test_mappings_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
