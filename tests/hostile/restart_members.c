/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that leave in the middle of something: the tenant goes with them, and the arbiter does not touch
 * what is gone. Freed memory is overwritten (MALLOC_PERTURB_, set by ctest), so that a use of it is seen
 * without a sanitizer too.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostile/creator.h"

#define TRIES  10
#define PARKED 4
#define BATCH  16 /* connections that the arbiter takes before it looks at anything else */
#define CALLS  (BATCH + 1)

static void count_tenant(const union sl_packet *p, void *arg)
{
    *(uint32_t *)arg += p->h.type == SL_MSG_TENANT;
}

static uint32_t tenants(void)
{
    uint32_t found = 0;
    world_status(count_tenant, &found);
    return found;
}

/*
 * Connections of a process that is gone already: it shared its descriptors with us, and the arbiter knows
 * them by its PID. It is not taken for a member.
 */
static bool ghost_connect(const char *path, int *ret_fds, int count)
{
    int status = -1, up[2], fds[CALLS];
    size_t bytes = sizeof(*fds) * (size_t)count;
    if (pipe(up) != 0)
        return false;
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        for (int i = 0; i < count; i++)
            while ((fds[i] = sl_packet_connect(path, NULL)) < 0)
                (void)usleep(1000);
        _exit(write(up[1], fds, bytes) != (ssize_t)bytes);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 &&
           read(up[0], ret_fds, bytes) == (ssize_t)bytes;
}

/* Says HELLO and, with `deaf`, can be told nothing. */
static bool hello(int fd, bool deaf)
{
    struct sl_msg_hello m = {.slot = SL_NO_SLOT};
    sl_packet_init(&m.h, SL_MSG_HELLO, sizeof(m));
    if (deaf)
        (void)shutdown(fd, SHUT_RD);
    return send(fd, &m, sizeof(m), MSG_NOSIGNAL) == (ssize_t)sizeof(m);
}

/* Joins. Told to go on, in a recovery, it makes ghosts that say HELLO and hear no answer. */
static bool come_back(const char *path, int told, int go)
{
    char byte, packet[4096];
    int ghost, fd = sl_packet_connect(path, NULL);
    if (fd < 0 || !hello(fd, false) || recv(fd, packet, sizeof(packet), 0) <= 0 ||
        write(told, "k", 1) != 1 || read(go, &byte, 1) != 1)
        return false;
    for (int i = 0; i < PARKED; i++)
        if (!ghost_connect(path, &ghost, 1) || !hello(ghost, true))
            return false;
    return write(told, "k", 1) == 1;
}

/* Joins as a ghost and says HELLO again and again. The last time, which is beyond the first batch, it can be
 * told nothing. */
static bool call_often(const char *path, int told, int go)
{
    int fds[CALLS];
    (void)go;
    if (!ghost_connect(path, fds, CALLS))
        return false;
    for (int i = 0; i < CALLS; i++)
        if (!hello(fds[i], i == CALLS - 1))
            return false;
    return write(told, "k", 1) == 1;
}

static pid_t attacker_begin(const char *path, int told, int go,
                            bool (*attack)(const char *, int, int))
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!attack(path, told, go))
        _exit(1);
    for (;;)
        (void)pause();
}

struct attack {
    struct creator creator;
    pid_t pid;
    int told[2], go[2];
};

static void attack_begin(struct attack *x, bool (*attack)(const char *, int, int))
{
    char byte;
    assert_int_equal(pipe(x->told), 0);
    assert_int_equal(pipe(x->go), 0);
    x->pid = attacker_begin(x->creator.path, x->told[1], x->go[0], attack);
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

static void arbiter_stop(void)
{
    int status;
    assert_int_equal(kill(world.arbiter, SIGSTOP), 0);
    assert_int_equal(waitpid(world.arbiter, &status, WUNTRACED), world.arbiter);
    assert_true(WIFSTOPPED(status));
}

static void arbiter_go_on(void)
{
    assert_int_equal(kill(world.arbiter, SIGCONT), 0);
}

/*
 * The last process of a tenant whose creator is gone cannot be welcomed again, and more is to be read from the
 * tenant's socket. All of it happens while the arbiter stands still, so that it finds: a batch of HELLOs, the
 * creator's end, and the HELLO that takes the tenant along while it is at the tenant's socket.
 */
static void test_deaf_last_process(void **state)
{
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        struct attack x;
        creator_begin(&x.creator, "", 130 * GIB);
        arbiter_stop();
        attack_begin(&x, call_often);
        arbiter_go_on();
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
        creator_begin(&x.creator, "", 130 * GIB);
        attack_begin(&x, come_back);
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
        arbiter_stop();
        pid_t client = fork();
        if (client == 0) {
            struct sl_msg_lease m = lease_ask("ghost", 130 * GIB);
            int fd = world_connect(&world);
            _exit(send(fd, &m, sizeof(m), 0) != (ssize_t)sizeof(m));
        }
        int status = -1;
        assert_int_equal(waitpid(client, &status, 0), client);
        assert_int_equal(status, 0);
        arbiter_go_on();
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
    arbiter_stop();
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
    arbiter_go_on();
    EVENTUALLY(tenants() == 0);
    all_is_left();
    (void)close(hold[0]);
    (void)close(hold[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WORLD_CASE(test_deaf_last_process),
        WORLD_CASE(test_deaf_in_recovery),
        WORLD_CASE(test_ghost),
        WORLD_CASE(test_ghost_with_heir),
    };
    return WORLD_MAIN(tests, argc, argv);
}
