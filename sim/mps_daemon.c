/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/mps_daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

/* "[2026-11-15 07:00:00.123 Control 42] text", as the real one writes. */
void mps_log(FILE *f, const char *who, pid_t pid, const char *format, ...)
{
    struct timespec ts;
    struct tm tm;
    char stamp[32];
    va_list args;
    if (!f)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)localtime_r(&ts.tv_sec, &tm);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &tm);
    (void)fprintf(f, "[%s.%03ld %s %d] ", stamp, ts.tv_nsec / 1000000, who,
                  (int)(pid ? pid : getpid()));
    va_start(args, format);
    (void)vfprintf(f, format, args);
    va_end(args);
    (void)fputc('\n', f);
    (void)fflush(f);
}

static void accept_peer(struct mps_daemon *d)
{
    struct ucred who = {.pid = 0};
    socklen_t size = sizeof(who);
    int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    for (size_t i = 0; i < SL_SIM_MPS_PEERS; i++) {
        if (d->peers[i].fd >= 0)
            continue;
        (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
        d->peers[i] = (struct mps_peer){.fd = fd, .pid = who.pid, .uid = who.uid};
        mps_log(d->control_log, "Control", 0, "Accepting connection...");
        return;
    }
    (void)close(fd);
}

static void take_line(struct mps_daemon *d, struct mps_peer *p, char *line)
{
    unsigned int permille;
    if (p->server) /* a CUDA client has said all it has to say */
        return;
    if (sscanf(line, "client %u", &permille) == 1)
        mps_client_join(d, p, permille);
    else
        mps_command(d, p, line);
}

static void read_peer(struct mps_daemon *d, struct mps_peer *p)
{
    ssize_t n = recv(p->fd, p->line + p->len, sizeof(p->line) - 1 - p->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        p->len += (size_t)n;
    p->line[p->len] = '\0';
    char *line = p->line, *end;
    while (p->fd >= 0 && !d->ending && (end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        take_line(d, p, line);
        line = end + 1;
    }
    if (p->fd < 0)
        return;
    if (n <= 0 && *line && !p->server && !d->ending)
        take_line(d, p, line); /* echo -n */
    p->len = strlen(line);
    memmove(p->line, line, p->len + 1);
    if (p->fd >= 0 && (n <= 0 || p->len + 1 >= sizeof(p->line)))
        mps_peer_close(d, p);
}

static void reap(struct mps_daemon *d)
{
    int status;
    pid_t pid;
    char how[64];
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct mps_server *s = mps_server_by_pid(d, pid);
        /* Ended because it was told to (SIGTERM) is no failure. */
        bool asked = WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
        (void)snprintf(how, sizeof(how), "exited with status %d",
                       asked                 ? 0
                       : WIFEXITED(status)   ? WEXITSTATUS(status)
                       : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                             : 1);
        if (s)
            mps_server_end(d, s, how);
    }
}

static void take_signal(struct mps_daemon *d)
{
    struct signalfd_siginfo info;
    if (read(d->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (info.ssi_signo != SIGCHLD)
        d->ending = true;
}

static void end_all(struct mps_daemon *d)
{
    for (size_t i = 0; i < SL_SIM_MPS_SERVERS; i++)
        if (d->servers[i].pid) {
            (void)kill(d->servers[i].pid, SIGKILL);
            (void)waitpid(d->servers[i].pid, NULL, 0);
        }
    mps_log(d->control_log, "Control", 0, "Exit");
}

int mps_daemon_run(struct mps_daemon *d)
{
    struct pollfd fds[SL_SIM_MPS_PEERS + 2];
    while (!d->ending) {
        fds[0] = (struct pollfd){.fd = d->listener, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = d->signals, .events = POLLIN};
        for (size_t i = 0; i < SL_SIM_MPS_PEERS; i++)
            fds[i + 2] = (struct pollfd){.fd = d->peers[i].fd, .events = POLLIN};
        if (poll(fds, SL_ARRAY_LEN(fds), -1) < 0)
            continue;
        if (fds[1].revents)
            take_signal(d);
        reap(d);
        for (size_t i = 0; i < SL_SIM_MPS_PEERS && !d->ending; i++)
            if (fds[i + 2].revents && d->peers[i].fd == fds[i + 2].fd && d->peers[i].fd >= 0)
                read_peer(d, &d->peers[i]);
        if (fds[0].revents && !d->ending)
            accept_peer(d);
    }
    end_all(d);
    return 0;
}
