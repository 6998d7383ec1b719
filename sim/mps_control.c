/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvidia-cuda-mps-control for simulated GPUs. With -d (background) or -f (foreground) it is the
 * daemon of CUDA_MPS_PIPE_DIRECTORY; without, it passes its standard input to that daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "sim/mps_daemon.h"
#include "sim/tree.h"

#define PID_FILE "nvidia-cuda-mps-control.pid"

static struct mps_daemon daemon_state;

static const char *env_or(const char *name, const char *fallback)
{
    const char *v = getenv(name);
    return v && *v ? v : fallback;
}

static int fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

/* ---- the control program ---- */

static int control(const char *pipe_dir)
{
    char buf[4096];
    ssize_t n;
    SL_CLEANUP(close) int fd = sl_sim_mps_connect(pipe_dir);
    if (fd < 0) {
        (void)puts("Cannot find MPS control daemon process");
        return 1;
    }
    while ((n = read(STDIN_FILENO, buf, sizeof(buf))) > 0)
        if (send(fd, buf, (size_t)n, MSG_NOSIGNAL) != n)
            return 0; /* it ended: "quit" was among the lines */
    (void)shutdown(fd, SHUT_WR);
    while ((n = read(fd, buf, sizeof(buf))) > 0)
        if (fwrite(buf, 1, (size_t)n, stdout) != (size_t)n)
            return 1;
    return 0;
}

/* ---- the daemon ---- */

static FILE *open_log(const char *dir, const char *name)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return fopen(path, "ae");
}

/* One daemon to a directory: the lock goes with the process. */
static int lock_pipe(const char *pipe_dir)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/control_lock", pipe_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)puts("An instance of this daemon is already running");
        (void)close(fd);
        return 1;
    }
    return 0; /* stays open as long as we live */
}

static int find_cards(struct mps_daemon *d)
{
    struct sl_err err = SL_ERR_INIT;
    uint32_t seen[SL_SIM_MAX_DEVICES], n = 0;
    if (!sl_sim_sees_node("nvidiactl") || sl_sim_open(&d->st, &err) < 0)
        return fail("cannot find the simulated driver", err.msg);
    for (uint32_t i = 0; i < d->st->card_count; i++)
        if (sl_sim_sees_card(i) && !d->st->cards[i].mig.enabled)
            seen[n++] = i;
    d->count = sl_sim_choose_cards(d->st, getenv("CUDA_VISIBLE_DEVICES"), seen, n, d->card);
    return d->count ? 0 : fail("CUDA_VISIBLE_DEVICES", "no device");
}

static void block_signals(struct mps_daemon *d)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    d->signals = signalfd(-1, &set, SFD_CLOEXEC);
}

static void write_pid(const char *pipe_dir)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/" PID_FILE, pipe_dir);
    SL_CLEANUP(fclose) FILE *f = fopen(path, "we");
    if (f)
        (void)fprintf(f, "%d\n", (int)getpid());
}

/* Everything that can go wrong does so before the caller is told that the daemon runs. */
static int prepare(struct mps_daemon *d, bool foreground)
{
    struct sl_err err = SL_ERR_INIT;
    const char *log_dir = env_or("CUDA_MPS_LOG_DIRECTORY", SL_SIM_MPS_LOG);
    const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (sl_fs_mkdirs(d->pipe_dir, 0755, &err) < 0 ||
        (!foreground && sl_fs_mkdirs(log_dir, 0755, &err) < 0))
        return fail("cannot make the directories", err.msg);
    if (lock_pipe(d->pipe_dir) != 0 || find_cards(d) != 0)
        return 1;
    d->control_log = foreground ? stdout : open_log(log_dir, "control.log");
    d->server_log = foreground ? stdout : open_log(log_dir, "server.log");
    if (!d->control_log || !d->server_log)
        return fail(log_dir, strerror(errno));
    d->limits.permille = 1000;
    if (percent && !sl_sim_mps_percent(percent, &d->limits.permille))
        return fail("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "not a percentage");
    for (size_t i = 0; i < SL_SIM_MPS_PEERS; i++)
        d->peers[i].fd = -1;
    d->listener = sl_sim_mps_listen(d->pipe_dir);
    return d->listener < 0 ? fail(d->pipe_dir, strerror(-d->listener)) : 0;
}

static int serve(struct mps_daemon *d)
{
    char path[1024];
    block_signals(d);
    write_pid(d->pipe_dir);
    mps_log(d->control_log, "Control", 0, "Starting control daemon using socket %s/%s", d->pipe_dir,
            SL_SIM_MPS_SOCKET);
    mps_log(d->control_log, "Control", 0,
            "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s",
            d->pipe_dir);
    int r = mps_daemon_run(d);
    (void)snprintf(path, sizeof(path), "%s/%s", d->pipe_dir, SL_SIM_MPS_SOCKET);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/" PID_FILE, d->pipe_dir);
    (void)unlink(path);
    return r;
}

/* The lock, the socket and the mapped machine go with the child; it has not registered yet. */
static int background(struct mps_daemon *d)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid > 0 ? 0 : fail("cannot go to the background", strerror(errno));
    (void)setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        (void)dup2(null, fd);
    _exit(serve(d));
}

int main(int argc, char **argv)
{
    bool foreground = false, daemonise = false;
    struct mps_daemon *d = &daemon_state;
    d->pipe_dir = env_or("CUDA_MPS_PIPE_DIRECTORY", SL_SIM_MPS_PIPE);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-f") == 0)
            foreground = true;
        else if (strcmp(argv[i], "-d") == 0)
            daemonise = true;
        else if (strcmp(argv[i], "-multiuser-server") == 0)
            d->many_users = true;
        else
            return fail(argv[i],
                        "unknown option; this simulated MPS has -d, -f, -multiuser-server");
    }
    if (!foreground && !daemonise)
        return control(d->pipe_dir);
    int r = prepare(d, foreground);
    if (r != 0)
        return r;
    return foreground ? serve(d) : background(d);
}
