/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/dir.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/hash.h"
#include "sluice/attach.h"

static int too_long(struct sl_err *err, const char *what)
{
    return sl_err_set(err, -ENAMETOOLONG, SL_E_PLACE_LONG, what, SL_CONTROL_SOCKET);
}

/* Only root can have put such a socket there: the directory is checked like every other (check_dir). */
bool sl_arbiter_dir_is_system(const char *dir, gid_t *ret_group)
{
    char path[PATH_MAX];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, SL_CONTROL_SOCKET);
    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode) || st.st_uid != 0 || !(st.st_mode & S_IWGRP))
        return false;
    if (ret_group)
        *ret_group = st.st_gid;
    return true;
}

/* The directory for real GPUs. An XDG_RUNTIME_DIR of another user (su, sudo) is ignored. */
static void default_base(char *buf, size_t size)
{
    uid_t uid = geteuid();
    if (uid == 0) {
        (void)snprintf(buf, size, SL_SYSTEM_DIR);
        return;
    }
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    if (runtime && runtime[0] == '/' && stat(runtime, &st) == 0 && S_ISDIR(st.st_mode) &&
        st.st_uid == uid && (size_t)snprintf(buf, size, "%s/sluice", runtime) < size)
        return;
    (void)snprintf(buf, size, "/tmp/sluice-%u", (unsigned)uid);
}

/* A file name for simulated cards: the words themselves where they are valid, else their valid characters and a
 * hash. */
static void sim_name(const char *sim, char *buf, size_t size)
{
    uint64_t hash = sl_hash_text(sim);
    char safe[33];
    size_t n = 0;
    bool exact = true;
    const char *tail = strrchr(sim, '/');
    for (const char *p = tail ? tail + 1 : sim; *p; p++) {
        bool plain = isalnum((unsigned char)*p) || (n > 0 && strchr(".@,_-", *p));
        if (plain && n + 1 < sizeof(safe))
            safe[n++] = *p;
        else
            exact = false;
    }
    safe[n] = '\0';
    if (exact && !tail && n > 0)
        (void)snprintf(buf, size, "sim-%s", safe);
    else
        (void)snprintf(buf, size, "sim-%.16s-%08x", safe, (unsigned)(hash ^ (hash >> 32)));
}

static int find_sim(const char *sim, struct sl_arbiter_dir *p, struct sl_err *err)
{
    const char *text = sim;
    SL_CLEANUP(free) char *real = NULL;
    if (strchr(sim, '/')) {
        real = realpath(sim, NULL);
        if (!real)
            return sl_err_errno(err, errno, SL_E_SIM_FILE, sim);
        text = real;
    }
    if (text[0] == '\0')
        return sl_err_set(err, -EINVAL, SL_E_SIM_UNNAMED);
    if ((size_t)snprintf(p->sim, sizeof(p->sim), "%s", text) >= sizeof(p->sim))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_SIM_LONG, text);
    return 0;
}

static int absolute(const char *dir, char *buf, size_t size, struct sl_err *err)
{
    char cwd[PATH_MAX];
    int n;
    if (dir[0] == '\0')
        return sl_err_set(err, -EINVAL, SL_E_PLACE_EMPTY);
    if (dir[0] == '/')
        n = snprintf(buf, size, "%s", dir);
    else if (getcwd(cwd, sizeof(cwd)))
        n = snprintf(buf, size, "%s/%s", cwd, dir);
    else
        return sl_err_errno(err, errno, "cannot tell the current directory");
    if ((size_t)n >= size)
        return too_long(err, dir);
    for (; n > 1 && buf[n - 1] == '/'; n--)
        buf[n - 1] = '\0';
    return 0;
}

int sl_arbiter_dir_find(const char *dir, const char *sim, struct sl_arbiter_dir *ret,
                        struct sl_err *err)
{
    struct sl_arbiter_dir p = {.dir = ""};
    char name[64] = "";
    int rc;
    if (sim) {
        rc = find_sim(sim, &p, err);
        if (rc < 0)
            return rc;
        sim_name(p.sim, name, sizeof(name));
    }
    const char *env = getenv(SL_DIR_ENV);
    if (!dir && env && env[0])
        dir = env;
    if (dir) {
        rc = absolute(dir, p.dir, sizeof(p.dir), err);
        if (rc < 0)
            return rc;
    } else {
        char base[sizeof(p.dir) - sizeof(name)];
        (void)snprintf(p.dir, sizeof(p.dir), SL_SYSTEM_DIR "%s%s", sim ? "/" : "", name);
        if (sl_arbiter_dir_is_system(p.dir, NULL))
            (void)snprintf(base, sizeof(base), SL_SYSTEM_DIR);
        else
            default_base(base, sizeof(base));
        if (sim) {
            (void)snprintf(p.parent, sizeof(p.parent), "%s", base);
            (void)snprintf(p.dir, sizeof(p.dir), "%s/%s", base, name);
        } else {
            (void)snprintf(p.dir, sizeof(p.dir), "%s", base);
        }
    }
    if ((size_t)snprintf(p.socket, sizeof(p.socket), "%s/%s", p.dir, SL_CONTROL_SOCKET) >=
        sizeof(p.socket))
        return too_long(err, p.dir);
    p.system = sl_arbiter_dir_is_system(p.dir, &p.group);
    if (p.system && geteuid() != 0) {
        char base[sizeof(p.own) - sizeof(name)];
        default_base(base, sizeof(base));
        (void)snprintf(p.own, sizeof(p.own), "%s%s%s", base, sim ? "/" : "", name);
    } else {
        memcpy(p.own, p.dir, sizeof(p.own));
    }
    /* The file's name contains the cards' name: with --dir, simulations of different cards must not share a file. */
    if (sim)
        (void)snprintf(p.sim_state, sizeof(p.sim_state), "%s/%s.state", p.dir, name);
    *ret = p;
    return 0;
}

static int check_dir(const char *path, struct sl_err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return sl_err_errno(err, errno, SL_E_PLACE_LOOK, path);
    if (S_ISLNK(st.st_mode)) {
        /* Follow a link only if no other user could have put it there. */
        if (st.st_uid != geteuid() && st.st_uid != 0)
            return sl_err_set(err, -EPERM, SL_E_PLACE_LINK, path, (unsigned)st.st_uid);
        if (stat(path, &st) != 0)
            return sl_err_errno(err, errno, SL_E_PLACE_LOOK, path);
    }
    if (!S_ISDIR(st.st_mode))
        return sl_err_set(err, -ENOTDIR, SL_E_PLACE_FILE, path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return sl_err_set(err, -EPERM, SL_E_PLACE_FOREIGN, path, (unsigned)st.st_uid);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return sl_err_set(err, -EPERM, SL_E_PLACE_OPEN, path, (unsigned)st.st_mode & 0777);
    return 0;
}

int sl_arbiter_dir_check(const struct sl_arbiter_dir *place, struct sl_err *err)
{
    if (place->parent[0]) {
        int rc = check_dir(place->parent, err);
        if (rc < 0)
            return rc;
    }
    return check_dir(place->dir, err);
}

/* Makes one of our directories: mkdir does not follow a link, and an existing directory is checked afterwards. */
static int make_one(const char *path, struct sl_err *err)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return sl_err_errno(err, errno, SL_E_PLACE_MAKE, path);
    return check_dir(path, err);
}

int sl_arbiter_dir_own(const struct sl_arbiter_dir *place, struct sl_err *err)
{
    if (strcmp(place->own, place->dir) == 0)
        return 0; /* checked already */
    int rc = sl_fs_mkdirs(place->own, 0700, err);
    return rc < 0 ? rc : check_dir(place->own, err);
}

int sl_arbiter_dir_make(const struct sl_arbiter_dir *place, struct sl_err *err)
{
    int rc;
    if (place->parent[0] && (rc = make_one(place->parent, err)) < 0)
        return rc;
    struct stat st;
    if (lstat(place->dir, &st) != 0) {
        rc = sl_fs_mkdirs(place->dir, 0700, err);
        if (rc < 0)
            return sl_err_wrap(err, "the arbiter has no usable directory (name one with --dir)");
    }
    rc = make_one(place->dir, err);
    if (rc < 0)
        return rc;
    if (faccessat(AT_FDCWD, place->dir, R_OK | W_OK | X_OK, AT_EACCESS) != 0)
        return sl_err_errno(err, errno, SL_E_PLACE_USE, place->dir);
    return 0;
}
