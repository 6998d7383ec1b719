/* SPDX-License-Identifier: Apache-2.0 */
/* A PID that changes hands: the arbiter takes nobody for the one who had it before. */
#include <errno.h>
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

#include "arbiter/arbiter_internal.h"

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

static bool hello(int fd)
{
    struct sl_msg_hello m = {.slot = SL_NO_SLOT};
    sl_packet_init(&m.h, SL_MSG_HELLO, sizeof(m));
    return send(fd, &m, sizeof(m), MSG_NOSIGNAL) == (ssize_t)sizeof(m);
}

/* Joins the tenant at `path`, and waits. It tells when its HELLO is on its way, and when it is a member. */
static _Noreturn void stay(const char *path, int told)
{
    char packet[4096];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = connect_to(path);
    if (!hello(fd) || write(told, "h", 1) != 1 || recv(fd, packet, sizeof(packet), 0) <= 0 ||
        write(told, "k", 1) != 1)
        _exit(1);
    for (;;)
        (void)pause();
}

static pid_t member_begin(const char *path, int told)
{
    pid_t pid = fork();
    if (pid == 0)
        stay(path, told);
    return pid;
}

/* A PID changes hands: the new process takes `pid`. */
static pid_t successor_begin(pid_t pid, const char *path, int told)
{
    /* struct clone_args of the kernel, version 1 */
    uint64_t args[10] = {[4] = SIGCHLD, [8] = (uint64_t)(uintptr_t)&(pid_t){pid}, [9] = 1};
    pid_t child = (pid_t)syscall(SYS_clone3, args, sizeof(args));
    if (child != 0)
        return child;
    stay(path, told);
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
    creator_begin(&victim, "victim", 60 * GIB);
    creator_begin(&thief, "thief", 60 * GIB);
    assert_int_equal(pipe(told), 0);
    pid_t pid = ghost_connect(thief.path, &ghost);
    assert_true(pid > 0);
    pid_t heir = successor_begin(pid, victim.path, told[1]);
    if (heir < 0 && errno == EPERM)
        skip(); /* choosing a PID takes CAP_CHECKPOINT_RESTORE */
    assert_int_equal(heir, pid);
    for (int i = 0; i < 2; i++)
        assert_int_equal(read(told[0], &byte, 1), 1);
    assert_true(hello(ghost));
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
    creator_begin(&c, "again", 60 * GIB);
    assert_int_equal(pipe(told), 0);
    pid_t first = member_begin(c.path, told[1]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(read(told[0], &byte, 1), 1);
    world_stop_process(world.arbiter);
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
    for (int i = 0; i < 20;
         i++) { /* the end of the first has been seen by now, whatever came of it */
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WORLD_CASE(test_pid_of_another),
        WORLD_CASE(test_pid_again),
        cmocka_unit_test(test_peer_by_start),
    };
    return WORLD_MAIN(tests, argc, argv);
}
