/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/mps/mps_internal.h"
#include "base/cleanup.h"
#include "base/xalloc.h"

static int pidfd_of(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

void sl_mps_process_kill(int pidfd, int signal)
{
    (void)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* ---- in the child: system calls only, since other threads may hold any lock ---- */

static _Noreturn void die(int status, const char *what)
{
    const char *why = strerrorname_np(errno);
    (void)!write(STDERR_FILENO, what, strlen(what));
    if (why)
        (void)!write(STDERR_FILENO, why, strlen(why));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(status);
}

static void place_fd(int fd, int as)
{
    if (fd < 0)
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd == as)
        (void)fcntl(fd, F_SETFD, 0);
    else if (fd >= 0)
        (void)dup2(fd, as);
}

static void give_own_shm(const char *dir)
{
    if (unshare(CLONE_NEWNS) != 0)
        die(126,
            "cannot make a mount namespace for a private /dev/shm (this needs CAP_SYS_ADMIN): ");
    /* In a chroot "/" is no mount point; then it is enough to make the mount of /dev/shm private. */
    if (mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0 &&
        mount("none", "/dev/shm", NULL, MS_REC | MS_SLAVE, NULL) != 0)
        die(126, "cannot make the mounts private: ");
    if (mount(dir, "/dev/shm", NULL, MS_BIND, NULL) != 0)
        die(126, "cannot mount a private /dev/shm: ");
}

static _Noreturn void become(const struct mps_spawn *spawn)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int s = 1; s < NSIG; s++)
        if (s != SIGKILL && s != SIGSTOP)
            (void)signal(s, SIG_DFL);
    place_fd(spawn->in_fd, STDIN_FILENO);
    place_fd(spawn->out_fd, STDOUT_FILENO);
    place_fd(spawn->out_fd, STDERR_FILENO);
    (void)syscall(SYS_close_range, 3U, ~0U, 0U);
    (void)setsid();
    if (spawn->own_shm)
        give_own_shm(spawn->own_shm);
    (void)execve(spawn->path, spawn->argv, spawn->envp);
    die(127, "cannot start the control program: ");
}

int sl_mps_spawn(const struct mps_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, struct sl_err *err)
{
    pid_t pid = fork();
    if (pid < 0)
        return sl_err_errno(err, errno, "cannot start %s", spawn->path);
    if (pid == 0)
        become(spawn);
    int fd = pidfd_of(pid); /* our child, not reaped: the PID is still its own */
    if (fd < 0) {
        int rc = sl_err_errno(err, errno, "cannot watch process %d", (int)pid);
        (void)kill(pid, SIGKILL);
        return rc;
    }
    *ret_pid = pid;
    *ret_pidfd = fd;
    return 0;
}

/* ---- other processes ---- */

static bool has_variable(pid_t pid, const char *variable)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    SL_CLEANUP(free) char *entry = NULL;
    size_t room = 0;
    while (f && getdelim(&entry, &room, '\0', f) > 0)
        if (strcmp(entry, variable) == 0)
            return true;
    return false;
}

int sl_mps_process_find(pid_t pid, const char *variable, int *ret_pidfd)
{
    if (pid <= 1)
        return -ESRCH;
    int fd = pidfd_of(pid);
    if (fd < 0)
        return -ESRCH;
    /* Check after the descriptor is open: it is the same process, or a dead one. */
    if (!has_variable(pid, variable)) {
        (void)close(fd);
        return -ESRCH;
    }
    *ret_pidfd = fd;
    return 0;
}

/* ---- environments ---- */

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(b, "=");
    return strncmp(a, b, n) == 0 && a[n] == '=';
}

static bool is_set_anew(const char *entry, const char *const *set, size_t set_count)
{
    for (size_t i = 0; i < set_count; i++)
        if (same_name(entry, set[i]))
            return true;
    return false;
}

char **sl_mps_env(char *const *base, const char *const *set, size_t set_count)
{
    size_t n = 0, count = 0;
    while (base && base[n])
        n++;
    char **env = sl_xcalloc(n + set_count + 1, sizeof(*env));
    for (size_t i = 0; i < n; i++)
        if (!is_set_anew(base[i], set, set_count))
            env[count++] = sl_xstrdup(base[i]);
    for (size_t i = 0; i < set_count; i++)
        env[count++] = sl_xstrdup(set[i]);
    return env;
}

void sl_mps_env_free(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}
