/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "cli/doctor.h"
#include "shm/find.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Try each feature instead of guessing from the version: distributions backport features, sandboxes remove them. */
static void check_kernel(struct sl_doctor *d)
{
    struct utsname u;
    (void)uname(&u);
    SL_CLEANUP(close) int page = (int)syscall(SYS_memfd_create, "sluice-doctor", 0x0002U | 0x0001U);
    SL_CLEANUP(close) int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (page < 0)
        sl_doctor_add(d, "kernel", SL_DOCTOR_PROBLEM,
                      "use Linux 5.1 or newer; in a sandbox, allow memfd_create",
                      "Linux %s has no memory files (memfd_create)", u.release);
    else if (fcntl(page, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0)
        sl_doctor_add(d, "kernel", SL_DOCTOR_PROBLEM, "use Linux 5.1 or newer",
                      "Linux %s cannot seal a page against writing", u.release);
    else if (self < 0)
        sl_doctor_add(d, "kernel", SL_DOCTOR_WARNING,
                      "use Linux 5.3 or newer; in a sandbox, allow pidfd_open",
                      "Linux %s has no process descriptors: a tenant's end is noticed later",
                      u.release);
    else
        sl_doctor_add(d, "kernel", SL_DOCTOR_OK, NULL,
                      "Linux %s: sealed pages, process descriptors", u.release);
}

static void check_libc(struct sl_doctor *d)
{
    const char *v = gnu_get_libc_version();
    char *rest;
    long major = strtol(v, &rest, 10), minor = *rest == '.' ? strtol(rest + 1, NULL, 10) : 0;
    bool fine = major > 2 || (major == 2 && minor >= 31);
    sl_doctor_add(d, "libc", fine ? SL_DOCTOR_OK : SL_DOCTOR_PROBLEM,
                  fine ? NULL : "use a system with glibc 2.31 or newer (Debian 11, Ubuntu 20.04)",
                  "glibc %s", v);
}

static void check_limits(struct sl_doctor *d)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    /* The arbiter raises the soft limit to the hard one; it needs two descriptors a process. */
    if (r.rlim_max != RLIM_INFINITY && r.rlim_max < 4096)
        sl_doctor_add(d, "limits", SL_DOCTOR_WARNING, "raise the limit: ulimit -Hn 65536",
                      "at most %llu open files: enough for about %llu processes in all tenants",
                      (unsigned long long)r.rlim_max, (unsigned long long)r.rlim_max / 2);
    else
        sl_doctor_add(d, "limits", SL_DOCTOR_OK, NULL, "open files: %llu",
                      (unsigned long long)r.rlim_max);
}

/* Which arbiter serves this user, and why: the system's, because its socket is there. */
static void check_system(struct sl_doctor *d)
{
    const struct sl_arbiter_dir *p = &d->world->place;
    struct sl_err err = SL_ERR_INIT;
    const struct group *g = getgrgid(p->group);
    SL_CLEANUP(close) int fd = sl_client_connect(p, &err);
    if (fd >= 0)
        sl_doctor_add(d, "arbiter", SL_DOCTOR_OK, NULL,
                      "the system's, in %s, for the group %s: process %d", p->dir,
                      g ? g->gr_name : "that owns its socket", sl_client_peer_pid(fd));
    else if (fd == -EACCES)
        sl_doctor_add(d, "arbiter", SL_DOCTOR_PROBLEM, "join the group, and log in again", "%s",
                      err.msg);
    else
        sl_doctor_add(d, "arbiter", SL_DOCTOR_PROBLEM,
                      "start it: systemctl start sluice-arbiter, or sluice arbiter --system",
                      "the system's, in %s, which does not run: %s", p->dir, err.msg);
}

/* Looks only: creates nothing. */
static void check_directory(struct sl_doctor *d)
{
    const struct sl_arbiter_dir *p = &d->world->place;
    struct sl_err err = SL_ERR_INIT;
    if (p->system) {
        check_system(d);
        return;
    }
    if (!p->sim[0] && sl_arbiter_dir_is_system(SL_SYSTEM_DIR, NULL)) {
        sl_doctor_add(d, "arbiter", SL_DOCTOR_PROBLEM, "leave --dir and SLUICE_DIR out",
                      "the system's arbiter (" SL_SYSTEM_DIR
                      ") serves these GPUs, and none of your own may start in %s",
                      p->dir);
        return;
    }
    static const char cure[] = "name a directory of your own with --dir or SLUICE_DIR";
    int rc = sl_arbiter_dir_check(p, &err);
    if (rc < 0 && rc != -ENOENT) {
        sl_doctor_add(d, "directory", SL_DOCTOR_PROBLEM, cure, "%s", err.msg);
        return;
    }
    /* The nearest directory that exists decides whether the rest can be made. */
    char path[sizeof(p->dir)];
    memcpy(path, p->dir, sizeof(path));
    struct stat st;
    while (stat(path, &st) != 0 && errno == ENOENT && strrchr(path, '/') > path)
        *strrchr(path, '/') = '\0';
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0)
        sl_doctor_add(d, "directory", SL_DOCTOR_PROBLEM, cure, "%s cannot be written: %s", path,
                      strerror(errno));
    else
        sl_doctor_add(d, "directory", SL_DOCTOR_OK, NULL, "%s%s", p->dir,
                      rc == 0 ? "" : " (made when needed)");
    SL_CLEANUP(close) int fd = sl_client_connect(p, NULL);
    if (fd >= 0)
        sl_doctor_add(d, "arbiter", SL_DOCTOR_OK, NULL, "running, process %d",
                      sl_client_peer_pid(fd));
    else
        sl_doctor_add(d, "arbiter", SL_DOCTOR_OK, NULL, "not running; `sluice run` starts it");
}

/* libsluice prefers a socket that the agent mounted to the socket that `sluice run` names. */
static void check_attach(struct sl_doctor *d)
{
    switch (sl_attach_find()) {
    case SL_ATTACH_NONE:
        break;
    case SL_ATTACH_FOREIGN:
        sl_doctor_add(d, "attach", SL_DOCTOR_OK, NULL,
                      "/run/sluice belongs to the arbiter of another user; your programs use your "
                      "own arbiter");
        break;
    case SL_ATTACH_MOUNTED:
        sl_doctor_add(d, "attach", SL_DOCTOR_WARNING,
                      "change this container's share where its pod asks for it",
                      "the node's agent gave this container a share (" SL_ATTACH_DEFAULT
                      "): programs are held to it, whatever `sluice run` asks for");
        break;
    case SL_ATTACH_GONE:
        sl_doctor_add(
            d, "attach", SL_DOCTOR_PROBLEM, "start the pod again",
            "the node's agent gave this container a share, and its socket (" SL_ATTACH_DEFAULT
            ") is gone: programs are refused the GPU");
        break;
    case SL_ATTACH_HIDDEN:
        sl_doctor_add(d, "attach", SL_DOCTOR_PROBLEM,
                      "let every user pass through /run: chmod 755 /run",
                      "cannot look for " SL_ATTACH_DEFAULT " (%s): programs are refused the GPU",
                      strerror(errno));
        break;
    }
}

static void check_libsluice(struct sl_doctor *d)
{
    char path[PATH_MAX];
    struct sl_err err = SL_ERR_INIT;
    struct sl_load_result r;
    if (sl_world_libsluice(d->world, d->libsluice, path, sizeof(path), &err) < 0) {
        sl_doctor_add(d, "libsluice", SL_DOCTOR_PROBLEM, "install libsluice with `make install`",
                      "%s", err.msg);
        return;
    }
    sl_doctor_load(path, false, &r);
    if (r.loaded)
        sl_doctor_add(d, "libsluice", SL_DOCTOR_OK, NULL, "%s", path);
    else
        sl_doctor_add(d, "libsluice", SL_DOCTOR_PROBLEM, "install libsluice again: `make install`",
                      "cannot be loaded: %s",
                      r.crashed ? "libsluice crashed the process" : r.message);
}

/* Two libraries that count the same calls disagree sooner or later. */
static void check_interposers(struct sl_doctor *d)
{
    SL_CLEANUP(free) char *file = NULL;
    const char *env = getenv("LD_PRELOAD");
    static const char *const others[] = {"libvgpu", "libgemhook", "libnvshare", "libcuda-control",
                                         "libnvtaskset"};
    if (sl_fs_read(AT_FDCWD, "/etc/ld.so.preload", 65536, &file, NULL, NULL) < 0)
        file = NULL;
    for (size_t i = 0; i < SL_ARRAY_LEN(others); i++)
        if ((env && strstr(env, others[i])) || (file && strstr(file, others[i]))) {
            sl_doctor_add(d, "preload", SL_DOCTOR_WARNING,
                          "remove that library from LD_PRELOAD or /etc/ld.so.preload",
                          "%s is preloaded and limits GPUs too", others[i]);
            return;
        }
}

static void check_container(struct sl_doctor *d)
{
    const char *kind = access("/.dockerenv", F_OK) == 0            ? "Docker"
                       : access("/run/.containerenv", F_OK) == 0   ? "Podman"
                       : getenv("KUBERNETES_SERVICE_HOST") != NULL ? "Kubernetes"
                                                                   : NULL;
    if (kind && !d->world->place.sim[0])
        sl_doctor_add(
            d, "container", SL_DOCTOR_WARNING,
            "nothing has to be done: limits hold; to measure the context overhead exactly, use "
            "the host's PID namespace",
            "inside %s: the driver uses the host's process numbers, not those of this container",
            kind);
}

void sl_doctor_system(struct sl_doctor *d)
{
    check_kernel(d);
    check_libc(d);
    check_limits(d);
    check_directory(d);
    check_attach(d);
    check_libsluice(d);
    check_interposers(d);
    check_container(d);
}
