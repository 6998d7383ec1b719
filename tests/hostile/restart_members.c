/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that leave in the middle of something: the tenant goes with them, and the arbiter does not touch
 * what is gone. Freed memory is overwritten (MALLOC_PERTURB_, set by ctest), so that a use of it is seen
 * without a sanitizer too.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "integration/arbiter_world.h"

#define TRIES  10
#define PARKED 4

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
    world_end(&world); /* asserts that it ended in good order */
    return 0;
}

static uint32_t tenants(void)
{
    struct sl_msg ask;
    union sl_packet p;
    uint32_t found = 0;
    int fd = world_connect(&world);
    sl_packet_init(&ask, SL_MSG_STATUS, sizeof(ask));
    for (enum sl_msg_type t = world_call(fd, &ask, &p); t != SL_MSG_END;) {
        found += t == SL_MSG_TENANT;
        struct sl_err err = SL_ERR_INIT;
        if (sl_packet_recv(fd, &p, NULL, &err) < 0)
            fail_msg("%s", err.msg);
        t = (enum sl_msg_type)p.h.type;
    }
    (void)close(fd);
    return found;
}

/* A child that makes a tenant and waits to be told to end. */
struct creator {
    pid_t pid;
    int go;
    char path[256];
};

static void creator_begin(struct creator *c)
{
    int told[2], go[2];
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(go), 0);
    c->pid = fork();
    if (c->pid == 0) {
        union sl_packet p;
        char byte;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct sl_msg_lease m = lease_ask("", 130 * GIB);
        if (world_call(world_connect(&world), &m.h, &p) != SL_MSG_CREATED ||
            write(told[1], p.created.attach_path, 256) != 256)
            _exit(1);
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    assert_int_equal(read(told[0], c->path, 256), 256);
    (void)close(told[0]);
    (void)close(told[1]);
    (void)close(go[0]);
    c->go = go[1];
}

static void creator_end(struct creator *c)
{
    int status;
    assert_int_equal(write(c->go, "g", 1), 1);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_int_equal(status, 0);
    (void)close(c->go);
}

/* A connection that says HELLO and, with `deaf`, can be told nothing. */
static int hello(const char *path, bool deaf)
{
    struct sl_msg_hello m = {.slot = SL_NO_SLOT};
    sl_packet_init(&m.h, SL_MSG_HELLO, sizeof(m));
    int fd = sl_packet_connect(path, NULL);
    if (fd >= 0 && deaf)
        (void)shutdown(fd, SHUT_RD);
    if (fd >= 0)
        (void)send(fd, &m, sizeof(m), MSG_NOSIGNAL);
    return fd;
}

/* The attacker is a child: its PID is what the arbiter knows it by, and it maps no ledger. */
static pid_t attacker_begin(const char *path, int told, int go, int deaf_calls)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    char byte, packet[4096];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = hello(path, false);
    if (fd < 0 || recv(fd, packet, sizeof(packet), 0) <= 0 || write(told, "k", 1) != 1 ||
        read(go, &byte, 1) != 1)
        _exit(1);
    for (int i = 0; i < deaf_calls; i++)
        while (hello(path, true) < 0)
            (void)usleep(1000);
    if (write(told, "k", 1) != 1)
        _exit(1);
    for (;;)
        (void)pause();
}

struct attack {
    struct creator creator;
    pid_t pid;
    int told[2], go[2];
};

static void attack_begin(struct attack *x, int deaf_calls)
{
    char byte;
    creator_begin(&x->creator);
    assert_int_equal(pipe(x->told), 0);
    assert_int_equal(pipe(x->go), 0);
    x->pid = attacker_begin(x->creator.path, x->told[1], x->go[0], deaf_calls);
    assert_int_equal(read(x->told[0], &byte, 1), 1);
    creator_end(&x->creator);
}

static void attack_run(struct attack *x)
{
    char byte;
    assert_int_equal(write(x->go[1], "g", 1), 1);
    assert_int_equal(read(x->told[0], &byte, 1), 1);
}

static void attack_end(struct attack *x)
{
    (void)kill(x->pid, SIGKILL);
    (void)waitpid(x->pid, NULL, 0);
    for (int i = 0; i < 2; i++) {
        (void)close(x->told[i]);
        (void)close(x->go[i]);
    }
}

/* The last process of a tenant whose creator is gone cannot be welcomed again. */
static void test_deaf_last_process(void **state)
{
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        struct attack x;
        attack_begin(&x, 1);
        assert_int_equal(tenants(), 1); /* and by now the creator's end was seen */
        attack_run(&x);
        EVENTUALLY(tenants() == 0);
        attack_end(&x);
    }
}

/* The same for several that waited for a recovery to end. */
static void test_deaf_in_recovery(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct attack x;
        attack_begin(&x, PARKED);
        world_kill(&world);
        world_start(&world);
        attack_run(&x);
        EVENTUALLY(tenants() == 0);
        attack_end(&x);
    }
}

/* What the ghost asked for is there for others. */
static void all_is_left(void)
{
    union sl_packet p;
    struct sl_msg_lease m = lease_ask("honest", 130 * GIB);
    int fd = world_connect(&world);
    assert_int_equal(world_call(fd, &m.h, &p), SL_MSG_CREATED);
    (void)close(fd);
}

/* A client that is gone before its CREATE is read: nobody would ever end that tenant. */
static void test_ghost(void **state)
{
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        assert_int_equal(kill(world.arbiter, SIGSTOP), 0);
        pid_t client = fork();
        if (client == 0) {
            struct sl_msg_lease m = lease_ask("ghost", 130 * GIB);
            int fd = world_connect(&world);
            _exit(send(fd, &m, sizeof(m), 0) != (ssize_t)sizeof(m));
        }
        int status = -1;
        assert_int_equal(waitpid(client, &status, 0), client);
        assert_int_equal(status, 0);
        assert_int_equal(kill(world.arbiter, SIGCONT), 0);
        EVENTUALLY(tenants() == 0);
    }
    all_is_left();
}

/* The same with a child of it that holds the connection, so that the answer arrives. */
static void test_ghost_with_heir(void **state)
{
    (void)state;
    int hold[2];
    assert_int_equal(pipe(hold), 0);
    assert_int_equal(kill(world.arbiter, SIGSTOP), 0);
    pid_t client = fork();
    if (client == 0) {
        struct sl_msg_lease m = lease_ask("ghost", 130 * GIB);
        int fd = world_connect(&world);
        if (fork() == 0) {
            char byte;
            (void)close(hold[1]);
            (void)!read(hold[0], &byte, 1); /* until the test ends */
            _exit(0);
        }
        _exit(send(fd, &m, sizeof(m), 0) != (ssize_t)sizeof(m));
    }
    assert_int_equal(waitpid(client, NULL, 0), client);
    assert_int_equal(kill(world.arbiter, SIGCONT), 0);
    EVENTUALLY(tenants() == 0);
    all_is_left();
    (void)close(hold[0]);
    (void)close(hold[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_deaf_last_process, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deaf_in_recovery, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ghost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ghost_with_heir, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
