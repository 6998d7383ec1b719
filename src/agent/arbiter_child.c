/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "agent/errors.h"
#include "agent/tenant/errors.h"
#include "agent/tenant/leases.h"
#include "arbiter/arbiter.h"
#include "arbiter/client.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"

extern char **environ;

#define BACKOFF_MIN_NS (200 * SL_NS_PER_MS)
#define BACKOFF_MAX_NS (2 * SL_NS_PER_S) /* pods wait for the arbiter meanwhile */
#define TAKEN_NS       (500 * SL_NS_PER_MS)
/* An arbiter that ran this long started well: the next one starts without a long wait. */
#define STEADY_NS      (30 * SL_NS_PER_S)
/* The descriptor on which the child reports that it is ready. */
#define READY_FD       3
#define READY_FD_TEXT  "3"
/* Longer than a busy arbiter takes to end after SIGTERM. */
#define END_MS         5000
/* The agent asks the arbiter once a second whether it lives. The end of the process is visible to its parent; a hang or
 * a SIGSTOP is not, and then every pod of the node waits. */
#define ASK_NS         SL_NS_PER_S
/* After this many seconds in a row without an answer the arbiter counts as stuck. The seconds are counted one by one:
 * seconds in which the agent itself did not run do not count. */
#define SILENT_S       10
#define SOCKET_MAX     108                  /* bytes of a socket's path */
#define ANSWER_NS      (3600 * SL_NS_PER_S) /* longer than any silence: SILENT_S decides */

struct sl_arbiter_child {
    struct sl_loop *loop;
    struct sl_source pidfd;
    struct sl_source ready; /* reads R, or E and a text */
    struct sl_timer retry;
    struct sl_timer ask;     /* set while the arbiter is up */
    struct sl_leases *asked; /* NULL: there is no connection to ask on yet */
    bool owed;               /* an answer is outstanding */
    unsigned silent_s;
    pid_t pid; /* 0: there is none, or another agent started it */
    bool up;
    uint64_t started_ns, backoff_ns;
    char dir[256], library[512];
    char last_words[400]; /* of the arbiter that ended, or "" */
    void (*state)(void *data, bool up, const char *words);
    void *data;
};

static void stop_asking(struct sl_arbiter_child *c)
{
    sl_timer_stop(c->loop, &c->ask);
    sl_leases_destroy(c->asked);
    c->asked = NULL;
    c->owed = false;
    c->silent_s = 0;
}

static void tell(struct sl_arbiter_child *c, bool up, const char *words)
{
    c->up = up;
    if (!up)
        stop_asking(c);
    else if (!c->ask.set)
        sl_timer_set(c->loop, &c->ask, sl_loop_now(c->loop) + ASK_NS);
    if (c->state)
        c->state(c->data, up, words);
}

static void close_source(struct sl_arbiter_child *c, struct sl_source *s)
{
    if (s->fd < 0)
        return;
    sl_loop_unwatch(c->loop, s);
    (void)close(s->fd);
    s->fd = -1;
}

/* An arbiter that hangs, or was stopped, keeps every pod of the node waiting. The agent kills it, sees its end like any
 * other end, and starts a new arbiter. */
static void stuck(struct sl_arbiter_child *c, pid_t pid)
{
    if (c->pid > 0)
        pid = c->pid;
    if (pid <= 0) {
        sl_error(SL_E_ARBITER_FOREIGN_LOG, c->dir, SILENT_S);
        return;
    }
    sl_warn(SL_E_ARBITER_REPLACED_LOG, (int)pid, SILENT_S);
    (void)kill(pid, SIGKILL);
}

/* Any answer shows that the arbiter lives. If it has ended, its parent notices. -EAGAIN: it accepts no connection. */
static void heard(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct sl_arbiter_child *c = data;
    (void)text;
    (void)err;
    c->owed = rc == -EAGAIN;
    if (!c->owed)
        c->silent_s = 0;
}

static void ask(struct sl_timer *timer)
{
    struct sl_arbiter_child *c = sl_container_of(timer, struct sl_arbiter_child, ask);
    sl_timer_set(c->loop, timer, sl_loop_now(c->loop) + ASK_NS);
    if (c->owed && ++c->silent_s >= SILENT_S) {
        pid_t pid = sl_leases_peer(c->asked);
        stop_asking(c);
        sl_timer_set(c->loop, timer, sl_loop_now(c->loop) + ASK_NS);
        stuck(c, pid);
        return;
    }
    if (!c->asked && sl_leases_create(c->loop, c->dir, ANSWER_NS, &c->asked, NULL) < 0)
        return;
    if (!c->owed || sl_leases_peer(c->asked) == 0) {
        c->owed = true;
        sl_leases_ping(c->asked, heard, c);
    }
}

static void try_later(struct sl_arbiter_child *c)
{
    sl_timer_set(c->loop, &c->retry, sl_loop_now(c->loop) + c->backoff_ns);
    c->backoff_ns = c->backoff_ns * 2 < BACKOFF_MAX_NS ? c->backoff_ns * 2 : BACKOFF_MAX_NS;
}

static void said(struct sl_source *s, uint32_t events)
{
    (void)events;
    struct sl_arbiter_child *c = sl_container_of(s, struct sl_arbiter_child, ready);
    char text[512];
    ssize_t n = read(s->fd, text, sizeof(text) - 1);
    close_source(c, s);
    if (n > 0 && text[0] == SL_READY_YES) {
        tell(c, true, "the arbiter is running");
    } else if (n > 1) {
        text[n] = '\0'; /* logged after its end: it may only have found another arbiter */
        (void)snprintf(c->last_words, sizeof(c->last_words), "%.399s", text + 1);
    }
}

static void ended(struct sl_source *s, uint32_t events)
{
    (void)events;
    struct sl_arbiter_child *c = sl_container_of(s, struct sl_arbiter_child, pidfd);
    int status = 0;
    char words[500];
    (void)waitpid(c->pid, &status, 0);
    bool taken = WIFEXITED(status) && WEXITSTATUS(status) == SL_ARBITER_EXIT_TAKEN;
    close_source(c, &c->pidfd);
    if (c->ready.fd >= 0)
        said(&c->ready, 0); /* both events may come in one turn of the loop */
    if (taken)
        (void)snprintf(words, sizeof(words),
                       "another arbiter serves %s already: the agent uses it and checks it again",
                       c->dir);
    else if (c->last_words[0])
        (void)snprintf(words, sizeof(words), "cannot start the arbiter: %s", c->last_words);
    else if (WIFSIGNALED(status))
        (void)snprintf(words, sizeof(words),
                       "signal %d ended the arbiter: the agent starts another", WTERMSIG(status));
    else
        (void)snprintf(words, sizeof(words),
                       "the arbiter ended with status %d: the agent starts "
                       "another",
                       WEXITSTATUS(status));
    c->last_words[0] = '\0';
    if (sl_loop_now(c->loop) - c->started_ns > STEADY_NS)
        c->backoff_ns = BACKOFF_MIN_NS;
    if (taken) /* an older agent's arbiter, which ends soon: tenants wait for ours */
        c->backoff_ns = TAKEN_NS;
    c->pid = 0;
    if (!taken)
        sl_warn("%s", words);
    else if (!c->up)
        sl_info("%s", words);
    tell(c, taken, words);
    try_later(c);
}

/* exec, not fork alone: this process has threads, and the arbiter shall be a small process. */
static int launch(struct sl_arbiter_child *c, int ready_fd, struct sl_err *err)
{
    char *const argv[] = {(char *)(uintptr_t)"sluiced",
                          (char *)(uintptr_t)"arbiter",
                          c->dir,
                          (char *)(uintptr_t)READY_FD_TEXT,
                          c->library,
                          NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    int rc = posix_spawn_file_actions_init(&files);
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(&files, ready_fd, READY_FD);
        if (rc == 0)
            rc = posix_spawn(&c->pid, "/proc/self/exe", &files, &attr, argv, environ);
        (void)posix_spawn_file_actions_destroy(&files);
    }
    (void)posix_spawnattr_destroy(&attr);
    if (rc != 0) {
        c->pid = 0;
        return sl_err_errno(err, rc, "cannot start the arbiter");
    }
    return 0;
}

static int start(struct sl_arbiter_child *c, struct sl_err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return sl_err_errno(err, errno, "cannot start the arbiter");
    int rc = launch(c, fds[1], err);
    (void)close(fds[1]);
    if (rc < 0) {
        (void)close(fds[0]);
        return rc;
    }
    c->started_ns = sl_loop_now(c->loop);
    c->ready.fd = fds[0];
    c->pidfd.fd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    if (c->pidfd.fd < 0)
        rc = sl_err_errno(err, errno, "cannot watch the arbiter (Linux 5.3 is needed)");
    if (rc == 0)
        rc = sl_loop_watch(c->loop, &c->pidfd, EPOLLIN, err);
    if (rc == 0)
        rc = sl_loop_watch(c->loop, &c->ready, EPOLLIN, err);
    if (rc < 0) {
        (void)kill(c->pid, SIGKILL);
        (void)waitpid(c->pid, NULL, 0);
        c->pid = 0;
        close_source(c, &c->pidfd);
        close_source(c, &c->ready);
    }
    return rc;
}

static void again(struct sl_timer *timer)
{
    struct sl_arbiter_child *c = sl_container_of(timer, struct sl_arbiter_child, retry);
    struct sl_err err = SL_ERR_INIT;
    if (start(c, &err) < 0) {
        sl_error("%s", err.msg);
        try_later(c);
    }
}

int sl_arbiter_child_create(struct sl_loop *loop, const struct sl_arbiter_child_options *opt,
                            struct sl_arbiter_child **ret, struct sl_err *err)
{
    struct sl_arbiter_child *c = sl_xcalloc(1, sizeof(*c));
    c->loop = loop;
    c->pidfd = (struct sl_source){.fd = -1, .ready = ended};
    c->ready = (struct sl_source){.fd = -1, .ready = said};
    c->retry.fire = again;
    c->ask.fire = ask;
    c->backoff_ns = BACKOFF_MIN_NS;
    c->state = opt->state;
    c->data = opt->data;
    (void)snprintf(c->dir, sizeof(c->dir), "%s", opt->dir);
    (void)snprintf(c->library, sizeof(c->library), "%s",
                   opt->nvml_library ? opt->nvml_library : "");
    int rc = strlen(opt->dir) + sizeof("/" SL_CONTROL_SOCKET) > SOCKET_MAX
                 ? sl_err_set(err, -ENAMETOOLONG, SL_E_TENANT_DIR_LONG, opt->dir)
                 : start(c, err);
    if (rc < 0)
        free(c);
    else
        *ret = c;
    return rc;
}

void sl_arbiter_child_destroy(struct sl_arbiter_child *c)
{
    if (!c)
        return;
    sl_timer_stop(c->loop, &c->retry);
    stop_asking(c);
    if (c->pid > 0) {
        struct pollfd end = {.fd = c->pidfd.fd, .events = POLLIN};
        (void)kill(c->pid, SIGTERM);
        if (poll(&end, 1, END_MS) <= 0)
            (void)kill(c->pid, SIGKILL);
        (void)waitpid(c->pid, NULL, 0);
    }
    close_source(c, &c->pidfd);
    close_source(c, &c->ready);
    free(c);
}

int sl_arbiter_child_main(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    if (argc < 3)
        return 2;
    /* The arbiter has a name of its own in `ps`. It does not end with the agent: tenants keep their turns. */
    (void)prctl(PR_SET_NAME, "sluice-arbiter", 0, 0, 0);
    const struct sl_arbiter_options opt = {
        .dir = argv[0], .ready_fd = atoi(argv[1]), .nvml_library = *argv[2] ? argv[2] : NULL};
    int rc = sl_arbiter_serve(&opt, &err);
    if (rc == SL_ARBITER_TAKEN)
        return SL_ARBITER_EXIT_TAKEN;
    if (rc < 0)
        sl_error("%s", err.msg);
    return rc < 0;
}
