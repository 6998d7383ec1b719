/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a daemon: the process that an earlier agent left running, or a new one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/mps/errors.h"
#include "agent/mps/mps_internal.h"
#include "base/cleanup.h"
#include "base/fsutil.h"

#define RECORD   "daemon.pid"                  /* of the agent, in the card's directory */
#define PID_FILE "nvidia-cuda-mps-control.pid" /* of the daemon, in the pipe directory */

/* In the order of attempts: a driver that does not know an option ends at once. */
static const struct variant {
    const char *args[2];
    bool background;
} variants[] = {
    {{"-f", "-multiuser-server"}, false},
    {{"-f", NULL}, false},
    {{"-d", NULL}, true},
};

const char *sl_mps_control_path(const struct sl_mps *mps, char *buf, size_t size)
{
    static const char *const places[] = {"/usr/bin", "/bin", "/usr/local/nvidia/bin",
                                         "/usr/local/bin", "/opt/bin"};
    const char *root = mps->driver_root;
    if (mps->control)
        return mps->control;
    for (size_t i = 0; i < SL_ARRAY_LEN(places); i++) {
        (void)snprintf(buf, size, "%s%s/nvidia-cuda-mps-control", root, places[i]);
        if (access(buf, X_OK) == 0)
            return buf;
    }
    return NULL;
}

bool sl_mps_daemon_next_variant(struct daemon *d)
{
    d->variant = (d->variant + 1) % (unsigned)SL_ARRAY_LEN(variants);
    return d->variant != 0;
}

/* ---- the process of an earlier agent ---- */

static pid_t read_pid(const char *dir, const char *name)
{
    char path[MPS_PATH_SIZE + 64], text[32] = "";
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    if (!f || !fgets(text, sizeof(text), f))
        return 0;
    long pid = strtol(text, NULL, 10);
    return pid > 1 && pid < INT32_MAX ? (pid_t)pid : 0;
}

static int keep_record(const struct daemon *d, struct sl_err *err)
{
    char text[32];
    SL_CLEANUP(close) int fd = open(d->dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot open %s", d->dir);
    int n = snprintf(text, sizeof(text), "%d\n", (int)d->pid);
    return sl_fs_replace(fd, RECORD, text, (size_t)n, 0644, err);
}

void sl_mps_daemon_forget(const struct daemon *d)
{
    char path[MPS_PATH_SIZE + 64];
    (void)snprintf(path, sizeof(path), "%s/%s", d->dir, RECORD);
    (void)unlink(path);
}

static int watch_process(struct daemon *d, pid_t pid, int pidfd, struct sl_err *err)
{
    d->pid = pid;
    d->exit = (struct sl_source){.fd = pidfd, .ready = sl_mps_daemon_exited};
    int rc = sl_loop_watch(d->mps->loop, &d->exit, EPOLLIN, err);
    return rc == 0 ? keep_record(d, err) : rc;
}

/* A process that has our pipe directory in its environment is the daemon of this card. */
static int find_old(struct daemon *d, struct sl_err *err)
{
    pid_t pids[] = {read_pid(d->dir, RECORD), read_pid(d->pipe, PID_FILE)};
    for (size_t i = 0; i < SL_ARRAY_LEN(pids); i++) {
        int pidfd = -1;
        if (sl_mps_process_find(pids[i], d->variable, &pidfd) == 0)
            return watch_process(d, pids[i], pidfd, err);
    }
    return -ENOENT;
}

int sl_mps_daemon_background(struct daemon *d, struct sl_err *err)
{
    int rc = find_old(d, err);
    return rc == -ENOENT && variants[d->variant].background ? -EAGAIN : rc;
}

/* ---- a new process ---- */

/* Removes files of a dead daemon whose name begins with prefix ("": all). */
static void clean(const char *path, const char *prefix)
{
    SL_CLEANUP(closedir) DIR *dir = opendir(path);
    struct dirent *e;
    int at = dir ? dirfd(dir) : -1;
    while (at >= 0 && (e = readdir(dir)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            (void)unlinkat(at, e->d_name, 0);
}

void sl_mps_daemon_sweep(const struct daemon *d)
{
    sl_mps_daemon_forget(d);
    const char *const dirs[] = {d->pipe, d->log_dir, d->shm, d->dir};
    for (size_t i = 0; i < SL_ARRAY_LEN(dirs); i++) {
        clean(dirs[i], "");
        (void)rmdir(dirs[i]); /* fails while a tenant has it mounted, or has made directories */
    }
}

/* Every tenant must be able to read it, with any UID and any umask of ours. */
static int make_dir(const char *path, mode_t mode, struct sl_err *err)
{
    int rc = sl_fs_mkdirs(path, 0755, err);
    if (rc == 0 && chmod(path, mode) != 0)
        rc = sl_err_errno(err, errno, "cannot open %s to tenants", path);
    return rc;
}

static int make_dirs(const struct daemon *d, struct sl_err *err)
{
    int rc = make_dir(d->mps->root, 0755, err);
    if (rc == 0)
        rc = make_dir(d->dir, 0755, err);
    if (rc == 0)
        rc = make_dir(d->pipe, 0755, err);
    if (rc == 0)
        rc = make_dir(d->log_dir, 0755, err);
    if (rc == 0 && !d->mps->options.no_own_shm)
        rc = make_dir(d->shm, 01777, err);
    if (rc != -EROFS && rc != -EACCES && rc != -EPERM)
        return rc;
    char why[200];
    (void)snprintf(why, sizeof(why), "%.199s", err->msg);
    return sl_err_set(err, rc, SL_E_MPS_NOT_MOUNTED, why, d->mps->root);
}

static int spawn_new(struct daemon *d, struct sl_err *err)
{
    char buf[MPS_PATH_SIZE + 64], out_path[MPS_PATH_SIZE + 16];
    const char *path = sl_mps_control_path(d->mps, buf, sizeof(buf));
    if (!path)
        return sl_err_set(err, -ENOENT, SL_E_MPS_NO_PROGRAM,
                          d->mps->driver_root[0] ? d->mps->driver_root : "/");
    const struct variant *v = &variants[d->variant];
    clean(d->pipe, "");
    if (!d->mps->options.no_own_shm)
        clean(d->shm, "cuda."); /* the rest belongs to tenants: this is their /dev/shm */
    (void)snprintf(out_path, sizeof(out_path), "%s/daemon.out", d->log_dir);
    SL_CLEANUP(close)
    int out =
        open(out_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (out < 0)
        return sl_err_errno(err, errno, "cannot write %s", out_path);
    /* execve wants strings that are not const. */
    char name[] = "nvidia-cuda-mps-control", first[8], second[24] = "";
    (void)snprintf(first, sizeof(first), "%s", v->args[0]);
    if (v->args[1])
        (void)snprintf(second, sizeof(second), "%s", v->args[1]);
    char *argv[] = {name, first, second[0] ? second : NULL, NULL};
    struct mps_spawn spawn = {
        .path = path,
        .argv = argv,
        .envp = d->env,
        .in_fd = -1,
        .out_fd = out,
        .own_shm = d->mps->options.no_own_shm ? NULL : d->shm,
    };
    pid_t pid;
    int pidfd = -1;
    int rc = sl_mps_spawn(&spawn, &pid, &pidfd, err);
    if (rc < 0)
        return rc;
    d->child = true;
    return watch_process(d, pid, pidfd, err);
}

int sl_mps_daemon_process(struct daemon *d, struct sl_err *err)
{
    d->adopted = d->child = false;
    int rc = make_dirs(d, err);
    if (rc < 0)
        return rc;
    rc = find_old(d, err);
    d->adopted = rc == 0;
    return rc == -ENOENT ? spawn_new(d, err) : rc;
}
