/* SPDX-License-Identifier: Apache-2.0 */
#include "container/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "container/driver_internal.h"
#include "container/errors.h"
#include "base/cleanup.h"
#include "base/xalloc.h"

#define RESOLVE_TRIES 100

int sl_driver_join(char path[PATH_MAX], const char *root, const char *rel, struct sl_err *err)
{
    size_t n = strlen(root);
    while (n > 0 && root[n - 1] == '/')
        n--;
    rel += strspn(rel, "/");
    if ((size_t)snprintf(path, PATH_MAX, "%.*s/%s", (int)n, root, rel) >= PATH_MAX)
        return sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_PATH_LONG, root);
    return 0;
}

void sl_driver_warn(struct sl_driver *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    d->warning = sl_xreallocarray(d->warning, d->warning_count + 1, sizeof(*d->warning));
    d->warning[d->warning_count++] = sl_xvasprintf(fmt, ap);
    va_end(ap);
}

/* Links in a driver's tree may be absolute (Debian's alternatives are): they point to files of the tree. */
int sl_driver_open_in_root(const char *root, const char *rel, char real[PATH_MAX])
{
    char base[PATH_MAX], link[64];
    SL_CLEANUP(close) int rootfd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (rootfd < 0)
        return -errno;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    SL_CLEANUP(close) int fd = -1;
    int tries = 0;
    do /* EAGAIN: a mount or rename happened while ".." was followed */
        fd = (int)syscall(SYS_openat2, rootfd, rel, &how, sizeof(how));
    while (fd < 0 && errno == EAGAIN && ++tries < RESOLVE_TRIES);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) /* an old kernel, or an old seccomp filter */
        fd = openat(rootfd, rel, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", rootfd);
    ssize_t n = readlink(link, base, sizeof(base) - 1);
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t m = readlink(link, real, PATH_MAX - 1);
    if (n < 0 || m < 0)
        return -errno;
    base[n] = real[m] = '\0';
    size_t skip = strcmp(base, "/") == 0 ? 0 : (size_t)n;
    if (strncmp(real, base, skip) != 0 || real[skip] != '/')
        return -EXDEV;
    memmove(real, real + skip, (size_t)m - skip + 1);
    return sl_take_fd(fd);
}

static int set_roots(struct sl_driver *d, const struct sl_driver_options *o, struct sl_err *err)
{
    const char *root = o->root && *o->root ? o->root : "/";
    const char *root_host = o->root_host && *o->root_host ? o->root_host : root;
    const char *dev = o->dev_root && *o->dev_root ? o->dev_root : NULL;
    const char *dev_host = o->dev_root_host && *o->dev_root_host ? o->dev_root_host : dev;
    char path[PATH_MAX], real[PATH_MAX];

    d->root = sl_xstrdup(root);
    d->root_host = sl_xstrdup(root_host);
    int rc = sl_driver_join(path, dev ? dev : root, "dev", err);
    if (rc < 0)
        return rc;
    d->dev = sl_xstrdup(path);
    rc = sl_driver_join(path, dev_host ? dev_host : root_host, "dev", err);
    if (rc < 0)
        return rc;
    d->dev_host = sl_xstrdup(path);
    int fd = sl_driver_open_in_root(root, "sluice-sim", real);
    if (fd >= 0) {
        (void)close(fd);
        d->simulated = true;
    }
    /* A simulated driver has no kernel part: its tree has the files that the kernel would show. */
    rc = sl_driver_join(path, d->simulated ? root : "/", "proc", err);
    if (rc == 0)
        d->proc = sl_xstrdup(o->proc && *o->proc ? o->proc : path);
    return rc;
}

void sl_driver_options_set(struct sl_driver_options *o, const struct sl_config *config,
                           const char *version)
{
    char path[PATH_MAX];
    const char *host = config->driver_root && *config->driver_root ? config->driver_root : "/";
    const char *mounted = config->container_driver_root;
    bool inside = mounted && *mounted && access(mounted, F_OK) == 0;
    *o = (struct sl_driver_options){
        .root = inside ? mounted : host,
        .root_host = host,
        .version = version,
        .gdrcopy = config->gdrcopy,
        .gds = config->gds,
        .mofed = config->mofed,
    };
    o->dev_root_host = config->dev_root && *config->dev_root ? config->dev_root : host;
    /* A driver in a root of its own may use the machine's /dev. */
    if (sl_driver_join(path, o->root, "dev", NULL) == 0 && access(path, F_OK) != 0)
        o->dev_root = "/";
}

int sl_driver_find(const struct sl_driver_options *options, struct sl_driver **ret,
                   struct sl_err *err)
{
    struct sl_driver *d = sl_xcalloc(1, sizeof(*d));
    int rc = set_roots(d, options, err);
    const char *version = options->version ? options->version : "";
    if (rc == 0 && (strchr(version, '/') || (size_t)snprintf(d->version, sizeof(d->version), "%s",
                                                             version) >= sizeof(d->version)))
        rc = sl_err_set(err, -EINVAL, SL_E_DRIVER_VERSION, version);
    if (rc == 0)
        rc = sl_driver_find_files(d, err);
    if (rc == 0 && d->simulated)
        rc = sl_driver_find_simulation(d, err);
    if (rc == 0)
        rc = sl_driver_find_nodes(d, options, err);
    if (rc < 0) {
        sl_driver_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void sl_driver_free(struct sl_driver *d)
{
    if (!d)
        return;
    sl_edits_clear(&d->files);
    sl_edits_clear(&d->nodes);
    for (size_t i = 0; i < d->warning_count; i++)
        free(d->warning[i]);
    free(d->warning);
    free(d->root);
    free(d->root_host);
    free(d->dev);
    free(d->dev_host);
    free(d->proc);
    free(d);
}
