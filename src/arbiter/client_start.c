/* SPDX-License-Identifier: Apache-2.0 */
/* Starts an arbiter from a client: fork, leave the terminal, wait until the arbiter listens. */
#include "arbiter/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/xalloc.h"

#define READY_FD         3
#define READY_TIMEOUT_NS (60 * SL_NS_PER_S) /* the driver may load firmware into eight cards */
#define RETRY_NS         (10 * SL_NS_PER_MS)
#define SYSTEM_BACK_NS   (10 * SL_NS_PER_S)

#define EXIT_LOST 74 /* it could not even report why */

enum outcome { STARTED, TAKEN };

/*
 * The environment without a tenant's variables: `sluice run` inside a tenant starts an arbiter that must see all GPUs.
 * The caller owns the array, but not its strings.
 */
static char **arbiter_environment(void)
{
    static const char *const tenant_only[] = {
        "LD_PRELOAD=", "CUDA_VISIBLE_DEVICES=", SL_ATTACH_ENV "=", SL_DIR_ENV "="};
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **list = sl_xcalloc(n + 1, sizeof(*list));
    for (size_t i = 0; i < n; i++) {
        bool drop = false;
        for (size_t k = 0; k < SL_ARRAY_LEN(tenant_only); k++)
            drop |= strncmp(environ[i], tenant_only[k], strlen(tenant_only[k])) == 0;
        if (!drop)
            list[kept++] = environ[i];
    }
    return list;
}

/* Closes all descriptors above READY_FD: an inherited pipe would keep its reader waiting as long as the arbiter
 * lives. */
static void close_others(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)READY_FD + 1, ~0U, 0U) == 0)
        return;
#endif
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = READY_FD + 1; fd < (most > 0 && most < 65536 ? (int)most : 65536); fd++)
        (void)close(fd);
}

/* It serves all tenants: the processors of the first one (taskset) are not its own. The kernel leaves out those that it
 * may not use. */
static void use_all_processors(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof(all));
    (void)sched_setaffinity(0, sizeof(all), &all);
}

/* After fork, before exec: async-signal-safe calls only. */
static void become_arbiter(char *const argv[], char *const envp[], int ready)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    static const int ours[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD};
    for (size_t i = 0; i < SL_ARRAY_LEN(ours); i++)
        (void)signal(ours[i], SIG_DFL);
    (void)setsid();
    use_all_processors();
    if (chdir("/") != 0)
        _exit(EXIT_LOST);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        _exit(EXIT_LOST);
    if (ready == READY_FD) /* dup2 onto itself would keep close-on-exec */
        (void)fcntl(ready, F_SETFD, 0);
    else if (dup2(ready, READY_FD) < 0)
        _exit(EXIT_LOST);
    close_others();
    execve(argv[0], argv, envp);
    static const char text[] = "Ecannot execute the sluice program again as the arbiter";
    ssize_t put = write(READY_FD, text, sizeof(text) - 1);
    _exit(put < 0 ? EXIT_LOST : 1);
}

/* Reads the arbiter's text until it is ready, closes its end, or the time is up. */
static int read_ready(int fd, uint64_t deadline_ns, char *buf, size_t size, struct sl_err *err)
{
    size_t n = 0;
    while (n + 1 < size) {
        uint64_t now = sl_now_ns();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int left_ms = now < deadline_ns ? (int)((deadline_ns - now) / SL_NS_PER_MS) : 0;
        int rc = poll(&p, 1, left_ms);
        if (rc < 0 && errno == EINTR)
            continue;
        if (rc <= 0)
            return sl_err_set(err, -ETIMEDOUT, SL_E_ARBITER_NOT_READY);
        ssize_t got = read(fd, buf + n, size - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
        if (buf[0] == SL_READY_YES)
            break;
    }
    buf[n] = '\0';
    return 0;
}

static int exit_code(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Finds out why the arbiter is not ready. */
static int judge(pid_t pid, const char *said, enum outcome *ret, struct sl_err *err)
{
    int code = exit_code(pid);
    if (code == SL_ARBITER_EXIT_TAKEN) {
        *ret = TAKEN;
        return 0;
    }
    if (said[0] == SL_READY_NO) {
        const char *text = said + 1 + strspn(said + 1, " ");
        return sl_err_set(err, -EIO, "%s", text);
    }
    return sl_err_set(err, -EIO, code > 128 ? SL_E_ARBITER_KILLED_EARLY : SL_E_ARBITER_ENDED_EARLY,
                      code > 128 ? code - 128 : code);
}

static int spawn(const struct sl_arbiter_dir *place, const struct sl_client_start *how,
                 enum outcome *ret, struct sl_err *err)
{
    char idle[16], ready_fd[16];
    (void)snprintf(idle, sizeof(idle), "%u", how->idle_exit_s);
    (void)snprintf(ready_fd, sizeof(ready_fd), "%d", READY_FD);
    const char *words[] = {how->program, "arbiter", "--dir", place->dir, "--idle-exit", idle,
                           "--ready-fd", ready_fd,  NULL,    NULL,       NULL};
    if (place->sim[0]) {
        words[8] = "--sim";
        words[9] = place->sim;
    }
    /* exec wants char *const[] for historical reasons, and writes to none of the strings. */
    char *argv[SL_ARRAY_LEN(words)];
    memcpy(argv, words, sizeof(argv));
    SL_CLEANUP(free) char **envp = arbiter_environment();
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return sl_err_errno(err, errno, "cannot make a pipe to the arbiter");
    SL_CLEANUP(close) int reader = ends[0];
    SL_CLEANUP(close) int writer = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return sl_err_errno(err, errno, "cannot start the arbiter");
    if (pid == 0)
        become_arbiter(argv, envp, writer);
    (void)close(sl_take_fd(writer));

    char said[512] = "";
    int rc = read_ready(reader, sl_now_ns() + READY_TIMEOUT_NS, said, sizeof(said), err);
    if (rc < 0) {
        (void)kill(pid, SIGKILL);
        (void)exit_code(pid);
        return rc;
    }
    if (said[0] == SL_READY_YES) {
        *ret = STARTED; /* no need to wait for it: init inherits it, or the caller reaps it */
        return 0;
    }
    return judge(pid, said, ret, err);
}

/* The system's arbiter is started by the system. One that was killed comes back soon. */
static int await_system(const struct sl_arbiter_dir *place, struct sl_err *err)
{
    uint64_t deadline_ns = sl_now_ns() + SYSTEM_BACK_NS;
    int fd = sl_client_connect(place, err);
    while (fd == -ENOENT && sl_now_ns() < deadline_ns) {
        sl_sleep_ns(RETRY_NS);
        fd = sl_client_connect(place, err);
    }
    return fd == -ENOENT ? sl_err_set(err, -ENOENT, SL_E_SYSTEM_DOWN, place->dir) : fd;
}

int sl_client_start(const struct sl_arbiter_dir *place, const struct sl_client_start *how,
                    struct sl_err *err)
{
    if (place->system)
        return await_system(place, err);
    int rc = sl_arbiter_dir_make(place, err);
    if (rc < 0)
        return rc;
    uint64_t deadline_ns = sl_now_ns() + READY_TIMEOUT_NS;
    do {
        int fd = sl_client_connect(place, err);
        if (fd != -ENOENT)
            return fd;
        enum outcome outcome = TAKEN;
        rc = spawn(place, how, &outcome, err);
        if (rc < 0)
            return rc;
        /* Taken: the arbiter of another starter is about to be ready (or an idle arbiter is about to end). */
        if (outcome == TAKEN)
            sl_sleep_ns(RETRY_NS);
    } while (sl_now_ns() < deadline_ns);
    return sl_err_set(err, -ETIMEDOUT, SL_E_ARBITER_HUNG, place->dir);
}
