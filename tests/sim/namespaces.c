/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of another PID namespace holds the machine's lock, and its number is here the number of a process that was
 * told to stop: that one is none of the lock's affair, and stays stopped.
 *
 * Alone: the test. With the argument "inside": the process of the other namespace. It takes the lock as if it were
 * stopped at the instruction after, says so on stdout, and gives it back at the end of stdin.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/tenant.h"
#include "sim/state.h"

#define SKIPPED 77
/* A waiter looks at the owner ten times a second. */
#define LOOKS   20

static struct sl_sim_state *machine(void)
{
    struct sl_sim_state *st;
    CHECK(sl_sim_open(&st, NULL) == 0);
    return st;
}

static int inside(void)
{
    struct sl_sim_state *st = machine();
    char c;
    CHECK(pthread_mutex_lock(&st->lock) == 0);
    CHECK(write(STDOUT_FILENO, "x", 1) == 1);
    CHECK(read(STDIN_FILENO, &c, 1) == 0);
    CHECK(pthread_mutex_unlock(&st->lock) == 0);
    return 0;
}

/* The first process of the namespace: makes the one with that number, and is as it is. */
static int make_number(pid_t number, int in, int out)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%d", (int)number - 1), status;
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        return SKIPPED;
    pid_t pid = fork();
    if (pid == 0) {
        if (getpid() != number)
            _exit(SKIPPED);
        (void)dup2(in, STDIN_FILENO);
        (void)dup2(out, STDOUT_FILENO);
        (void)execl("/proc/self/exe", "namespaces", "inside", (char *)NULL);
        _exit(1);
    }
    (void)close(in);
    (void)close(out);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int in_another_namespace(pid_t number, int in, int out)
{
    int status;
    if (unshare(CLONE_NEWPID | (geteuid() ? CLONE_NEWUSER : 0)) != 0)
        return SKIPPED;
    pid_t pid = fork();
    if (pid == 0)
        _exit(make_number(number, in, out));
    (void)close(in);
    (void)close(out);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int ended(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void never_goes_on(pid_t pid)
{
    int status;
    for (int i = 0; i < LOOKS; i++) {
        (void)usleep(100000);
        CHECK(waitpid(pid, &status, WCONTINUED | WNOHANG) == 0);
    }
}

int main(int argc, char **argv)
{
    int in[2], out[2], status;
    char c;
    if (argc == 2 && strcmp(argv[1], "inside") == 0)
        return inside();
    struct sl_sim_state *st = machine();
    sl_sim_lock(st);
    sl_sim_unlock(st);
    pid_t stopped = fork();
    if (stopped == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)raise(SIGSTOP);
        for (;;)
            (void)pause();
    }
    CHECK(waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status));
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    pid_t other = fork();
    if (other == 0) {
        (void)close(in[1]);
        (void)close(out[0]);
        _exit(in_another_namespace(stopped, in[0], out[1]));
    }
    (void)close(in[0]);
    (void)close(out[1]);
    bool has_it = read(out[0], &c, 1) == 1;
    pid_t waiter = has_it ? fork() : -1;
    if (waiter == 0) {
        (void)close(in[1]);
        sl_sim_lock(st);
        sl_sim_unlock(st);
        _exit(0);
    }
    if (has_it)
        never_goes_on(stopped);
    (void)close(in[1]);
    int rc = ended(other);
    if (has_it)
        CHECK(ended(waiter) == 0);
    CHECK(kill(stopped, SIGKILL) == 0 && waitpid(stopped, &status, 0) == stopped);
    if (rc == SKIPPED)
        (void)puts("skipped: no PID namespace, or no choice of numbers in it");
    return rc;
}
