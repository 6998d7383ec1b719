/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lease_named.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fsutil.h"
#include "base/words.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "container/cdi.h"

#define NAME_LETTERS   40 /* as the arbiter has it */
#define OPEN_ATTEMPTS  5  /* an arbiter that is just leaving takes the connection with it */
#define RETURN_LOOK_NS (20 * SL_NS_PER_MS)
#define FOLDERS        "lease"
#define CDI_DIR_MAX    400 /* it is part of the tenant's `about` */

/* --- names and places --- */

int sl_named_check(const char *name, struct sl_err *err)
{
    size_t n = strlen(name);
    bool good = n > 0 && n <= NAME_LETTERS && isalnum((unsigned char)name[0]) &&
                isalnum((unsigned char)name[n - 1]);
    for (size_t i = 0; good && i < n; i++)
        good = isalnum((unsigned char)name[i]) || strchr("._-", name[i]);
    return good ? 0 : sl_err_set(err, -EINVAL, SL_E_LEASE_NAME_BAD, name);
}

int sl_named_cdi_dir(const char *named, char *buf, size_t size, struct sl_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int n;
    if (named)
        n = snprintf(buf, size, "%s", named);
    else if (geteuid() == 0)
        n = snprintf(buf, size, "%s", SL_CDI_DIR);
    else if (runtime && runtime[0] == '/')
        n = snprintf(buf, size, "%s/cdi", runtime);
    else
        return sl_err_set(err, -ENOENT, SL_E_LEASE_NO_CDI_DIR);
    if ((size_t)n >= size || n >= CDI_DIR_MAX || buf[0] != '/' || strpbrk(buf, " \t\n"))
        return sl_err_set(err, -EINVAL, SL_E_LEASE_CDI_DIR_BAD, buf);
    for (; n > 1 && buf[n - 1] == '/'; n--)
        buf[n - 1] = '\0';
    return 0;
}

/* The folder with the files of one lease; of all of them for "". */
static void folder_path(const struct sl_named *n, const char *name, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s/" FOLDERS "%s%s", n->world->place.own, *name ? "/" : "", name);
}

bool sl_named_is_lease(const struct sl_msg_tenant *tenant)
{
    char name[SL_NAME_MAX];
    return (tenant->flags & SL_LEASE_KEEP) &&
           sl_client_about(tenant->about, "lease", name, sizeof(name)) &&
           strcmp(name, tenant->name) == 0;
}

bool sl_named_is_own(const struct sl_msg_tenant *tenant)
{
    return tenant->h.option == 0 || tenant->h.option == SL_OWNER_TOLD(geteuid());
}

static const struct sl_msg_tenant *find_tenant(const struct sl_named *n, const char *name)
{
    for (size_t i = 0; i < n->status.tenant_count; i++)
        if (strcmp(n->status.tenant[i].name, name) == 0)
            return &n->status.tenant[i];
    return NULL;
}

/* Whose the spec of that name in a folder is: 1 a lease of this arbiter, 0 nobody's. Else an error. */
static int spec_owner(const struct sl_named *n, const char *cdi_dir, const char *name,
                      struct sl_err *err)
{
    char ours[PATH_MAX], found[PATH_MAX];
    (void)snprintf(ours, sizeof(ours), "%s/%s/%s", n->world->place.dir,
                   n->world->place.system && geteuid() != 0 ? "u" : "k", name);
    int rc = sl_cdi_attach_dir(cdi_dir, SL_CDI_LEASE, name, found, sizeof(found), err);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    return strcmp(ours, found) == 0
               ? 1
               : sl_err_set(err, -EEXIST, SL_E_LEASE_OF_OTHER, name, cdi_dir, found);
}

bool sl_named_has_spec(const struct sl_named *n, const struct sl_msg_tenant *tenant)
{
    char dir[CDI_DIR_MAX];
    return sl_client_about(tenant->about, "cdi", dir, sizeof(dir)) &&
           spec_owner(n, dir, tenant->name, NULL) == 1;
}

/* --- opening: what killed processes left is removed --- */

static int read_status(struct sl_named *n, struct sl_err *err)
{
    sl_client_status_free(&n->status);
    return sl_client_status(n->fd, &n->status, err);
}

static int find_lost(struct sl_named *n, struct sl_err *err)
{
    char **names = NULL;
    size_t count = 0, kept = 0;
    int rc = sl_cdi_list(n->cdi_dir, SL_CDI_LEASE, &names, &count, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count; i++)
        if (spec_owner(n, n->cdi_dir, names[i], NULL) == 1 && !find_tenant(n, names[i]))
            names[kept++] = names[i];
        else
            free(names[i]);
    sl_cdi_list_free(n->lost, n->lost_count);
    n->lost = names;
    n->lost_count = kept;
    return 0;
}

static bool is_lost(const struct sl_named *n, const char *name)
{
    for (size_t i = 0; i < n->lost_count; i++)
        if (strcmp(n->lost[i], name) == 0)
            return true;
    return false;
}

/* A lease without processes that has no spec, and the folder where that should be. NULL: there is none. */
static const struct sl_msg_tenant *half_made(const struct sl_named *n, char dir[CDI_DIR_MAX])
{
    for (size_t i = 0; i < n->status.tenant_count; i++) {
        const struct sl_msg_tenant *t = &n->status.tenant[i];
        if (sl_named_is_lease(t) && sl_named_is_own(t) && t->processes == 0 &&
            sl_client_about(t->about, "cdi", dir, CDI_DIR_MAX) &&
            spec_owner(n, dir, t->name, NULL) == 0)
            return t;
    }
    return NULL;
}

/* After a restart the processes of a tenant come back within a second. */
static int wait_for_return(struct sl_named *n, struct sl_err *err)
{
    sl_sleep_ns(RETURN_LOOK_NS);
    return read_status(n, err);
}

static int heal_tenants(struct sl_named *n, struct sl_err *err)
{
    const struct sl_msg_tenant *t;
    char dir[CDI_DIR_MAX];
    int rc = 0;
    while (rc == 0 && (t = half_made(n, dir))) {
        if (t->flags & SL_LEASE_RETURNING) {
            rc = wait_for_return(n, err);
            continue;
        }
        rc = sl_cdi_remove(dir, SL_CDI_LEASE, t->name, err); /* half of a spec */
        if (rc == 0)
            rc = sl_client_remove(n->fd, t->name, err);
        sl_cli_complain(SL_E_LEASE_HALF, t->name, dir);
        if (rc == 0)
            rc = read_status(n, err);
    }
    return rc;
}

static void heal_folders(struct sl_named *n)
{
    char path[PATH_MAX];
    folder_path(n, "", path, sizeof(path));
    SL_CLEANUP(closedir) DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
        const char *name = d->d_name;
        if (name[0] == '.' || find_tenant(n, name) || is_lost(n, name))
            continue;
        folder_path(n, name, path, sizeof(path));
        sl_cdi_uninstall_sluice(path);
    }
    folder_path(n, "", path, sizeof(path));
    (void)rmdir(path);
}

/* Did an arbiter leave tenants here? They are its state files. */
static bool left_tenants(const struct sl_named *n)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/t", n->world->place.dir);
    SL_CLEANUP(closedir) DIR *dir = opendir(path);
    bool found = false;
    for (struct dirent *d = dir ? readdir(dir) : NULL; d && !found; d = readdir(dir)) {
        const char *dot = strrchr(d->d_name, '.');
        found = dot && strcmp(dot, ".lease") == 0;
    }
    return found;
}

static int connect_arbiter(struct sl_named *n, bool start, struct sl_err *err)
{
    if (!start) {
        n->fd = sl_client_connect(&n->world->place, err);
        if (n->fd != -ENOENT)
            return n->fd < 0 ? n->fd : 0;
        int rc = find_lost(n, err);
        if (rc < 0 || (n->lost_count == 0 && !left_tenants(n)))
            return rc;
        n->restarted = true;
    }
    n->fd = sl_world_start(n->world, err);
    return n->fd < 0 ? n->fd : 0;
}

static int take_lock(struct sl_named *n, struct sl_err *err)
{
    int rc = sl_arbiter_dir_own(&n->world->place, err);
    if (rc < 0)
        return rc;
    n->lock = open(n->world->place.own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = n->lock < 0 ? -1 : 0;
    do
        rc = n->lock < 0 ? rc : flock(n->lock, LOCK_EX);
    while (rc < 0 && errno == EINTR);
    return rc < 0 ? sl_err_errno(err, errno, "cannot lock %s", n->world->place.own) : 0;
}

/* Before an arbiter is started or anything is made. */
static int check_cdi_dir(const char *dir, struct sl_err *err)
{
    struct sl_err cause = SL_ERR_INIT;
    if (sl_fs_mkdirs(dir, 0755, &cause) < 0)
        return sl_err_set(err, cause.code, SL_E_LEASE_CDI_DIR, dir, cause.msg);
    if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) != 0)
        return sl_err_set(err, -errno, SL_E_LEASE_CDI_DIR, dir, strerror(errno));
    return 0;
}

int sl_named_open(struct sl_named *n, const struct sl_world *world, const char *cdi_dir, bool start,
                  struct sl_err *err)
{
    *n = (struct sl_named){.world = world, .cdi_dir = cdi_dir, .lock = -1, .fd = -1};
    int rc = start ? check_cdi_dir(cdi_dir, err) : 0;
    if (rc < 0)
        return rc;
    rc = -ECONNRESET;
    for (int i = 0; i < OPEN_ATTEMPTS && rc == -ECONNRESET; i++) {
        sl_named_close(n);
        rc = connect_arbiter(n, start, err);
        if (rc < 0 || n->fd < 0)
            break;
        rc = take_lock(n, err);
        if (rc == 0)
            rc = read_status(n, err);
    }
    if (rc == 0 && n->fd >= 0) {
        rc = heal_tenants(n, err);
        if (rc == 0)
            rc = find_lost(n, err);
        if (rc == 0)
            heal_folders(n);
    }
    if (rc < 0)
        sl_named_close(n);
    return rc;
}

void sl_named_close(struct sl_named *n)
{
    sl_client_status_free(&n->status);
    sl_cdi_list_free(n->lost, n->lost_count);
    n->lost = NULL;
    n->lost_count = 0;
    sl_cleanup_close(&n->fd);
    sl_cleanup_close(&n->lock);
    n->fd = n->lock = -1;
}

/* --- making and deleting --- */

static int check_free(const struct sl_named *n, const char *name, struct sl_err *err)
{
    const struct sl_msg_tenant *t = find_tenant(n, name);
    if (t && sl_named_is_lease(t))
        return sl_err_set(err, -EEXIST, SL_E_LEASE_TAKEN, name, name, name);
    if (t)
        return sl_err_set(err, -EEXIST, SL_E_LEASE_NAME_TENANT, name);
    int rc = spec_owner(n, n->cdi_dir, name, err);
    return rc < 0 ? rc : 0; /* a lost lease is made anew */
}

static int write_spec(const struct sl_named *n, const struct sl_named_gear *gear,
                      const struct sl_msg_created *tenant, const char *folder, struct sl_err *err)
{
    struct sl_cdi_device device = {.name = ""};
    int rc = sl_named_edits(gear, n->world, tenant, folder, &device.edits, err);
    if (rc == 0)
        rc = sl_cdi_write(n->cdi_dir, SL_CDI_LEASE, tenant->name, &device, 1, NULL, err);
    sl_edits_clear(&device.edits);
    return rc;
}

int sl_named_create(struct sl_named *n, const struct sl_msg_lease *ask, const char *libsluice,
                    struct sl_msg_created *ret, struct sl_err *err)
{
    struct sl_msg_lease lease = *ask;
    struct sl_named_gear *gear = NULL;
    struct sl_err undo = SL_ERR_INIT;
    char folder[PATH_MAX];
    int rc = check_free(n, lease.name, err);
    if (rc == 0)
        rc = sl_named_gear_find(n->world, &gear, err);
    if (rc < 0)
        return rc;
    lease.flags |= SL_LEASE_KEEP | SL_LEASE_NEW;
    (void)snprintf(lease.about, sizeof(lease.about), "lease=%s cdi=%s", lease.name, n->cdi_dir);
    folder_path(n, lease.name, folder, sizeof(folder));
    rc = sl_client_create(n->fd, &lease, ret, err);
    if (rc == 0) {
        rc = sl_cdi_install_sluice(folder, libsluice, err);
        if (rc == 0)
            rc = write_spec(n, gear, ret, folder, err);
        if (rc < 0 && sl_cdi_remove(n->cdi_dir, SL_CDI_LEASE, lease.name, &undo) == 0 &&
            sl_client_remove(n->fd, lease.name, &undo) == 0)
            sl_cdi_uninstall_sluice(folder);
    }
    sl_named_gear_free(gear);
    return rc;
}

static int unknown(const struct sl_named *n, const char *name, struct sl_err *err)
{
    size_t count = 0;
    const char **names =
        sl_xcalloc(n->status.tenant_count + n->lost_count + 1, sizeof(const char *));
    for (size_t i = 0; i < n->status.tenant_count; i++)
        if (sl_named_is_lease(&n->status.tenant[i]))
            names[count++] = n->status.tenant[i].name;
    for (size_t i = 0; i < n->lost_count; i++)
        names[count++] = n->lost[i];
    const char *close = sl_word_closest(name, names);
    int rc = close ? sl_err_set(err, -ENOENT, SL_E_LEASE_UNKNOWN_NEAR, name, close)
                   : sl_err_set(err, -ENOENT, SL_E_LEASE_UNKNOWN, name);
    free(names);
    return rc;
}

int sl_named_delete(struct sl_named *n, const char *name, bool force, struct sl_err *err)
{
    const struct sl_msg_tenant *t = NULL;
    char dir[PATH_MAX], folder[PATH_MAX];
    int rc = 0;
    while (rc == 0 && (t = find_tenant(n, name)) && (t->flags & SL_LEASE_RETURNING) &&
           t->processes == 0)
        rc = wait_for_return(n, err);
    if (rc < 0)
        return rc;
    if (t && !sl_named_is_lease(t))
        return sl_err_set(err, -EPERM, SL_E_LEASE_IS_TENANT, name);
    if (!t && !is_lost(n, name))
        return unknown(n, name, err);
    if (t && t->processes > 0 && !force)
        return sl_err_set(err, -EBUSY, SL_E_LEASE_BUSY, t->processes,
                          t->processes == 1 ? " uses" : "es use", name);
    /* Root may end the lease of another user, but touches no file that the other user names. */
    if (t && !sl_named_is_own(t))
        return sl_client_remove(n->fd, name, err);
    if (!t || !sl_client_about(t->about, "cdi", dir, sizeof(dir)))
        (void)snprintf(dir, sizeof(dir), "%s", n->cdi_dir);
    rc = sl_cdi_remove(dir, SL_CDI_LEASE, name, err);
    if (rc == 0 && t)
        rc = sl_client_remove(n->fd, name, err);
    if (rc < 0)
        return rc;
    folder_path(n, name, folder, sizeof(folder));
    sl_cdi_uninstall_sluice(folder);
    folder_path(n, "", folder, sizeof(folder));
    (void)rmdir(folder);
    return 0;
}
