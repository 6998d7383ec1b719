/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that leave in the middle of something: the tenant goes with them, and the arbiter does not touch
 * what is gone. Freed memory is overwritten (MALLOC_PERTURB_, set by ctest), so that a use of it is seen
 * without a sanitizer too.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
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

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

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

/* Says HELLO and, with `deaf`, can be told nothing. */
static bool hello(int fd, bool deaf)
{
    struct sl_msg_hello m = {.slot = SL_NO_SLOT};
    sl_packet_init(&m.h, SL_MSG_HELLO, sizeof(m));
    if (deaf)
        (void)shutdown(fd, SHUT_RD);
    return send(fd, &m, sizeof(m), MSG_NOSIGNAL) == (ssize_t)sizeof(m);
}

/* A process of its own that says HELLO, can be told nothing, and stays. */
static bool deaf_process(const char *path)
{
    char byte;
    int said[2];
    if (pipe(said) != 0)
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = sl_packet_connect(path, NULL);
        if (fd < 0 || !hello(fd, true) || write(said[1], "k", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    (void)close(said[1]);
    bool ok = pid > 0 && read(said[0], &byte, 1) == 1;
    (void)close(said[0]);
    return ok;
}

/* Joins. Told to go on, in a recovery, it makes processes that say HELLO and hear no answer. */
static bool come_back(const char *path, int told, int go)
{
    char byte, packet[4096];
    int fd = sl_packet_connect(path, NULL);
    if (fd < 0 || !hello(fd, false) || recv(fd, packet, sizeof(packet), 0) <= 0 ||
        write(told, "k", 1) != 1 || read(go, &byte, 1) != 1)
        return false;
    for (int i = 0; i < PARKED; i++)
        if (!deaf_process(path))
            return false;
    return write(told, "k", 1) == 1;
}

/* Says HELLO again and again. The last time, which is beyond the first batch, it can be told nothing. */
static bool call_often(const char *path, int told, int go)
{
    (void)go;
    for (int i = 0; i < CALLS; i++) {
        int fd = sl_packet_connect(path, NULL);
        if (fd < 0 || !hello(fd, i == CALLS - 1))
            return false;
    }
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

static void arbiter_go_on(void)
{
    assert_int_equal(kill(world.arbiter, SIGCONT), 0);
}

/*
 * From here on this process, and every arbiter that it starts, has a kernel without pidfds (before Linux 5.3; no
 * SO_PEERPIDFD before 6.5). Only there the end of a connection is the end of a member, so only there a process that
 * cannot be welcomed takes its tenant along while the arbiter is in the middle of something.
 */
static int setup_old_kernel(void **state)
{
    static const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_PEERPIDFD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]),
                                 .filter = (struct sock_filter *)(uintptr_t)code};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    assert_int_equal(syscall(SYS_pidfd_open, getpid(), 0), -1);
    return world_setup(state);
}

#define OLD_KERNEL_CASE(test)                                                                      \
    cmocka_unit_test_setup_teardown(test, setup_old_kernel, world_teardown)

/*
 * The last process of a tenant cannot be welcomed again, and more is to be read from the tenant's socket. All of it
 * happens while the arbiter stands still, so that it finds a batch of HELLOs, and the HELLO that takes the tenant
 * along while it is at the tenant's socket.
 */
static void test_deaf_last_process(void **state)
{
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        struct attack x;
        creator_begin(&x.creator, "", 130 * GIB);
        world_stop_process(world.arbiter);
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
        world_stop_process(world.arbiter);
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
    world_stop_process(world.arbiter);
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
        WORLD_CASE(test_ghost),
        WORLD_CASE(test_ghost_with_heir),
        OLD_KERNEL_CASE(test_deaf_last_process), /* last: nothing brings the new kernel back */
        OLD_KERNEL_CASE(test_deaf_in_recovery),
    };
    return WORLD_MAIN(tests, argc, argv);
}
