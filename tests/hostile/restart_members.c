/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that leave in the middle of something: the tenant goes with them, and the arbiter does not touch
 * what is gone. Freed memory is overwritten (MALLOC_PERTURB_, set by ctest), so that a use of it is seen
 * without a sanitizer too.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter/internal.h"
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

static void creator_begin(struct creator *c, const char *name)
{
    int told[2], go[2];
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(go), 0);
    c->pid = fork();
    if (c->pid == 0) {
        union sl_packet p;
        char byte;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct sl_msg_lease m = lease_ask(name, 60 * GIB);
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

static int connect_to(const char *path)
{
    int fd;
    while ((fd = sl_packet_connect(path, NULL)) < 0)
        (void)usleep(1000);
    return fd;
}

/*
 * The connection of a process that is gone already: it shared its descriptors with us, and the arbiter knows
 * it by its PID. Returns the PID, -1 on failure.
 */
static pid_t ghost_connect(const char *path, int *ret_fd)
{
    int status = -1, up[2], fd;
    if (pipe(up) != 0)
        return -1;
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        fd = connect_to(path);
        _exit(write(up[1], &fd, sizeof(fd)) != (ssize_t)sizeof(fd));
    }
    bool ok = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 &&
              read(up[0], ret_fd, sizeof(*ret_fd)) == (ssize_t)sizeof(*ret_fd);
    (void)close(up[0]);
    (void)close(up[1]);
    return ok ? pid : -1;
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

/* Joins, and waits. Then it says HELLO again and hears no answer; in a recovery so do `parked` ghosts. */
static pid_t attacker_begin(const char *path, int told, int go, int parked)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    char byte, packet[4096];
    int ghost, fds[2] = {connect_to(path), connect_to(path)};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!hello(fds[0], false) || recv(fds[0], packet, sizeof(packet), 0) <= 0 || write(told, "k", 1) != 1 ||
        read(go, &byte, 1) != 1)
        _exit(1);
    if (parked == 0 && !hello(fds[1], true))
        _exit(1);
    for (int i = 0; i < parked; i++)
        if (ghost_connect(path, &ghost) < 0 || !hello(ghost, true))
            _exit(1);
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

static void attack_begin(struct attack *x, int parked)
{
    char byte;
    creator_begin(&x->creator, "");
    assert_int_equal(pipe(x->told), 0);
    assert_int_equal(pipe(x->go), 0);
    x->pid = attacker_begin(x->creator.path, x->told[1], x->go[0], parked);
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
        attack_begin(&x, 0);
        assert_int_equal(tenants(), 1); /* and by now the creator's end was seen */
        attack_run(&x);
        attack_end(&x);
        EVENTUALLY(tenants() == 0);
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

/* A PID changes hands: the new process takes `pid` and joins the tenant at `path`. It tells when its HELLO is on
 * its way, and when it is a member, and waits. */
static pid_t successor_begin(pid_t pid, const char *path, int told)
{
    /* struct clone_args of the kernel, version 1 */
    uint64_t args[10] = {[4] = SIGCHLD, [8] = (uint64_t)(uintptr_t)&(pid_t){pid}, [9] = 1};
    pid_t child = (pid_t)syscall(SYS_clone3, args, sizeof(args));
    if (child != 0)
        return child;
    char packet[4096];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = connect_to(path);
    if (!hello(fd, false) || write(told, "h", 1) != 1 || recv(fd, packet, sizeof(packet), 0) <= 0 ||
        write(told, "k", 1) != 1)
        _exit(1);
    for (;;)
        (void)pause();
}

/*
 * A process of one tenant connects and ends; somebody else keeps the connection until a process of another
 * tenant has its PID, and says HELLO on it. The arbiter must not take that other process for its own.
 */
static void test_pid_of_another(void **state)
{
    (void)state;
    struct creator victim, thief;
    int ghost = -1, told[2];
    char byte, packet[4096];
    uint32_t processes = 99;
    creator_begin(&victim, "victim");
    creator_begin(&thief, "thief");
    assert_int_equal(pipe(told), 0);
    pid_t pid = ghost_connect(thief.path, &ghost);
    assert_true(pid > 0);
    pid_t heir = successor_begin(pid, victim.path, told[1]);
    if (heir < 0 && errno == EPERM)
        skip(); /* choosing a PID takes CAP_CHECKPOINT_RESTORE */
    assert_int_equal(heir, pid);
    for (int i = 0; i < 2; i++)
        assert_int_equal(read(told[0], &byte, 1), 1);
    assert_true(hello(ghost, false));
    assert_int_equal(recv(ghost, packet, sizeof(packet), 0), 0); /* hung up on */
    (void)world_used(&world, "thief", &processes);
    assert_int_equal(processes, 0);
    (void)world_used(&world, "victim", &processes);
    assert_int_equal(processes, 1);
    (void)kill(heir, SIGKILL);
    assert_int_equal(waitpid(heir, NULL, 0), heir);
    creator_end(&victim);
    creator_end(&thief);
    (void)close(ghost);
}

/* A process ends, and a new one of the tenant has its PID before the arbiter looked: each is itself. */
static void test_pid_again(void **state)
{
    (void)state;
    struct creator c;
    int told[2], status;
    char byte;
    uint32_t processes = 99;
    creator_begin(&c, "again");
    assert_int_equal(pipe(told), 0);
    pid_t first = attacker_begin(c.path, told[1], told[0], 0);
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_int_equal(kill(world.arbiter, SIGSTOP), 0);
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(waitpid(first, &status, 0), first);
    pid_t second = successor_begin(first, c.path, told[1]);
    int why = errno;
    if (second > 0) /* its HELLO lies there when the arbiter goes on */
        assert_int_equal(read(told[0], &byte, 1), 1);
    assert_int_equal(kill(world.arbiter, SIGCONT), 0);
    if (second < 0 && why == EPERM)
        skip();
    assert_int_equal(second, first);
    assert_int_equal(read(told[0], &byte, 1), 1);
    for (int i = 0; i < 20; i++) { /* the end of the first has been seen by now, whatever came of it */
        (void)world_used(&world, "again", &processes);
        assert_int_equal(processes, 1);
    }
    assert_int_equal(kill(second, SIGKILL), 0);
    assert_int_equal(waitpid(second, &status, 0), second);
    EVENTUALLY((world_used(&world, "again", &processes), processes == 0));
    creator_end(&c);
}

/* Where the kernel does not tell who connected, the start time does. */
static void test_peer_by_start(void **state)
{
    (void)state;
    uint64_t start = sl_arb_process_start(getpid());
    int fd = sl_peer_watch_by_start(getpid(), start);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(sl_peer_watch_by_start(getpid(), start + 1), -ESRCH);
    assert_int_equal(sl_peer_watch_by_start(getpid(), 0), -ESRCH);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(sl_peer_watch_by_start(child, sl_arb_process_start(child)), -ESRCH);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(sl_peer_watch_by_start(child, start), -ESRCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_deaf_last_process, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deaf_in_recovery, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ghost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ghost_with_heir, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pid_of_another, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pid_again, setup, teardown),
        cmocka_unit_test(test_peer_by_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
