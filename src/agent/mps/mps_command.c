/* SPDX-License-Identifier: Apache-2.0 */
/* The control program speaks on stdin and stdout. It may hang, so it runs beside the loop, with a time limit. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/mps/mps_internal.h"
#include "base/cleanup.h"
#include "base/container.h"
#include "base/xalloc.h"

struct mps_command {
    struct mps_command *next, **link;
    struct sl_loop *loop;
    struct sl_source exit; /* the pidfd */
    struct sl_timer timer;
    int out_fd;
    mps_command_done *done; /* NULL: no caller waits for it any more */
    void *data;
};

enum { OUTPUT_MAX = 2048 };

static void command_free(struct mps_command *c)
{
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    sl_loop_unwatch(c->loop, &c->exit);
    sl_timer_stop(c->loop, &c->timer);
    (void)close(c->exit.fd);
    (void)close(c->out_fd);
    free(c);
}

/* The output fits into the pipe, so it is read after the program has ended. */
static void read_output(int fd, char *buf, size_t size)
{
    size_t n = 0;
    while (n < size - 1) {
        ssize_t got = read(fd, buf + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == ' '))
        n--;
    buf[n] = '\0';
}

static void exit_ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct mps_command *c = sl_container_of(source, struct mps_command, exit);
    char output[OUTPUT_MAX];
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)source->fd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
        return;
    mps_command_done *done = c->done;
    void *data = c->data;
    read_output(c->out_fd, output, sizeof(output));
    int result = info.si_code == CLD_EXITED && info.si_status == 0 ? 0 : -EIO;
    command_free(c);
    if (done)
        done(data, result, output);
}

static void timer_fire(struct sl_timer *timer)
{
    struct mps_command *c = sl_container_of(timer, struct mps_command, timer);
    mps_command_done *done = c->done;
    void *data = c->data;
    sl_mps_command_cancel(c);
    done(data, -ETIMEDOUT, "");
}

void sl_mps_command_cancel(struct mps_command *c)
{
    if (!c)
        return;
    c->done = NULL; /* and exit_ready reaps it */
    sl_timer_stop(c->loop, &c->timer);
    sl_mps_process_kill(c->exit.fd, SIGKILL);
}

void sl_mps_commands_end(struct mps_command **all)
{
    while (*all) {
        struct mps_command *c = *all;
        siginfo_t info = {0};
        sl_mps_command_cancel(c);
        /* After SIGKILL it ends at once, unless the driver holds it: then init reaps it after us. */
        for (int i = 0; i < 50 && info.si_pid == 0; i++) {
            if (waitid(P_PIDFD, (id_t)c->exit.fd, &info, WEXITED | WNOHANG) != 0)
                break;
            if (info.si_pid == 0)
                (void)usleep(1000);
        }
        command_free(c);
    }
}

static int make_pipes(int in[2], int out[2], struct sl_err *err)
{
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        return sl_err_errno(err, errno, "cannot make a pipe");
    (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(in[1], F_SETFL, O_NONBLOCK);
    return 0;
}

int sl_mps_command(struct mps_command **all, struct sl_loop *loop, const char *path,
                   char *const *envp, const char *text, uint64_t timeout_ns, mps_command_done *done,
                   void *data, struct mps_command **ret, struct sl_err *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    char name[] = "nvidia-cuda-mps-control";
    char *argv[] = {name, NULL};
    struct mps_command *c = sl_xcalloc(1, sizeof(*c));
    int rc = make_pipes(in, out, err);
    if (rc == 0) { /* a few hundred bytes: they fit into the pipe */
        struct mps_spawn spawn = {
            .path = path, .argv = argv, .envp = envp, .in_fd = in[0], .out_fd = out[1]};
        pid_t pid;
        ssize_t ignored = write(in[1], text, strlen(text));
        (void)ignored;
        rc = sl_mps_spawn(&spawn, &pid, &c->exit.fd, err);
    }
    sl_cleanup_close(&in[0]);
    sl_cleanup_close(&in[1]);
    sl_cleanup_close(&out[1]);
    if (rc < 0) {
        sl_cleanup_close(&out[0]);
        free(c);
        return rc;
    }
    c->loop = loop;
    c->out_fd = out[0];
    c->exit.ready = exit_ready;
    c->timer.fire = timer_fire;
    c->done = done;
    c->data = data;
    c->link = all;
    c->next = *all;
    if (c->next)
        c->next->link = &c->next;
    *all = c;
    sl_timer_set(loop, &c->timer, sl_loop_now(loop) + timeout_ns);
    rc = sl_loop_watch(loop, &c->exit, EPOLLIN, err);
    if (rc < 0) {
        sl_mps_process_kill(c->exit.fd, SIGKILL);
        command_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}
