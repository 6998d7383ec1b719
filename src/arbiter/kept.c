/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants that stay until they are removed: the tenants of containers. Each has a directory of its own with only its
 * socket and SL_LEASE_FILE in it, so that the directory can be mounted into the container: a mounted socket would stay
 * that of the old arbiter for ever. Every process that sees the directory belongs to the tenant; the directories above
 * are closed, and a mount does not pass through them.
 */
#include "arbiter/arbiter_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"

struct asked sl_arb_asked(const struct sl_msg_lease *ask)
{
    struct asked k = {.fields = ask->fields};
    if (ask->fields & SL_FIELD_MEMORY) {
        k.memory_percent = ask->memory_percent;
        k.memory_bytes = ask->memory_percent ? 0 : ask->memory_bytes;
        memcpy(k.gpu_memory_bytes, ask->gpu_memory_bytes, sizeof(k.gpu_memory_bytes));
    }
    if (ask->fields & SL_FIELD_CORES) {
        k.cores_request_permille = ask->cores_request_permille;
        k.cores_limit_permille = ask->cores_limit_permille;
    }
    if (ask->fields & SL_FIELD_PRIORITY)
        k.priority = ask->priority;
    return k;
}

static bool asked_same(const struct asked *a, const struct asked *b)
{
    return a->fields == b->fields && a->memory_percent == b->memory_percent &&
           a->memory_bytes == b->memory_bytes &&
           a->cores_request_permille == b->cores_request_permille &&
           a->cores_limit_permille == b->cores_limit_permille && a->priority == b->priority &&
           memcmp(a->gpu_memory_bytes, b->gpu_memory_bytes, sizeof(a->gpu_memory_bytes)) == 0;
}

/* By UUID only: the agent, which makes kept tenants, knows the UUIDs. */
static bool same_gpus(const struct arbiter *a, const struct sl_msg_lease *ask,
                      const struct tenant *t)
{
    bool same = ask->gpu_count == t->gpu_count;
    for (uint32_t i = 0; same && i < t->gpu_count; i++)
        same = strncmp(ask->gpu[i], a->gpu[t->gpu[i]].uuid, SL_UUID_MAX) == 0;
    return same;
}

int sl_arb_kept_find(struct arbiter *a, const struct sl_msg_lease *ask, struct tenant **ret,
                     struct sl_err *err)
{
    char name[SL_NAME_MAX];
    (void)snprintf(name, sizeof(name), "%.63s", ask->name);
    if (!name[0] || ask->gpu_count == 0)
        return sl_err_set(err, -EINVAL, SL_E_TENANT_KEPT_INCOMPLETE);
    struct tenant *t = sl_arb_tenant_find(a, name);
    struct asked wanted = sl_arb_asked(ask);
    if (t && (!t->kept || !same_gpus(a, ask, t) || !asked_same(&t->asked, &wanted)))
        return sl_err_set(err, -EEXIST, SL_E_TENANT_OTHER_LEASE, name);
    *ret = t;
    return 0;
}

/* Nobody but our own user reaches k. A user's own container tool must reach u: there the kernel's word on who connects
 * keeps the others out (sl_arb_may_attach). */
int sl_arb_kept_dir(const struct arbiter *a, const struct tenant *t)
{
    return sl_arb_is_foreign(t) ? a->users_fd : a->kept_fd;
}

int sl_arb_kept_mkdir(struct arbiter *a, const struct tenant *t, struct sl_err *err)
{
    int dir = sl_arb_kept_dir(a, t);
    if (mkdirat(dir, t->name, 0755) != 0 && errno != EEXIST)
        return sl_err_errno(err, errno, "cannot make a directory for %s in %s", t->name,
                            a->opt.dir);
    /* With any umask of ours: every user of the container must pass through this directory. */
    if (fchmodat(dir, t->name, 0755, 0) != 0)
        return sl_err_errno(err, errno, "cannot open the directory of %s to its container",
                            t->name);
    return 0;
}

void sl_arb_kept_rmdir(int dir_fd, const char *name)
{
    static const char *const files[] = {SL_ATTACH_FILE, SL_LEASE_FILE, SL_LEASE_FILE SL_FS_HALF};
    char path[NAME_MAX + sizeof(SL_ATTACH_FILE) + 2];
    for (size_t i = 0; i < SL_ARRAY_LEN(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", name, files[i]);
        (void)unlinkat(dir_fd, path, 0);
    }
    (void)unlinkat(dir_fd, name, AT_REMOVEDIR);
}

static void sweep(struct arbiter *a, int dir_fd)
{
    int fd = dup(dir_fd);
    SL_CLEANUP(closedir) DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        return;
    rewinddir(dir);
    for (struct dirent *d = readdir(dir); d; d = readdir(dir))
        if (d->d_name[0] != '.' && !sl_arb_tenant_find(a, d->d_name))
            sl_arb_kept_rmdir(dir_fd, d->d_name);
}

void sl_arb_kept_sweep(struct arbiter *a)
{
    sweep(a, a->kept_fd);
    sweep(a, a->users_fd);
}
