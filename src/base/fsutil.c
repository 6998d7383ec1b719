/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fsutil.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/errors.h"

int sl_fs_mkdirs(const char *path, mode_t mode, struct sl_err *err)
{
    char buf[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof(buf))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_DIRECTORY_PATH, path);
    memcpy(buf, path, n + 1);
    for (char *p = buf + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char held = *p;
        *p = '\0';
        if (mkdir(buf, mode) != 0 && errno != EEXIST)
            return sl_err_errno(err, errno, "cannot make directory %s", buf);
        *p = held;
        if (held == '\0')
            break;
    }
    struct stat st;
    if (stat(path, &st) != 0)
        return sl_err_errno(err, errno, "cannot look at %s", path);
    if (!S_ISDIR(st.st_mode))
        return sl_err_set(err, -ENOTDIR, SL_E_NOT_A_DIRECTORY, path);
    if (st.st_uid != geteuid())
        return sl_err_set(err, -EPERM, SL_E_FOREIGN_DIRECTORY, path, (unsigned)st.st_uid);
    return 0;
}

int sl_fs_read(int dirfd, const char *name, size_t max, char **ret_text, size_t *ret_size,
               struct sl_err *err)
{
    SL_CLEANUP(close) int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot open %s", name);
    SL_CLEANUP(free) char *buf = malloc(max + 1);
    if (!buf)
        return sl_err_set(err, -ENOMEM, "out of memory reading %s", name);
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, buf + n, max + 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sl_err_errno(err, errno, "cannot read %s", name);
        if (got == 0)
            break;
        n += (size_t)got;
        if (n > max)
            return sl_err_set(err, -EFBIG, SL_E_FILE_LARGE, name, max);
    }
    buf[n] = '\0';
    *ret_text = sl_take_ptr(buf);
    if (ret_size)
        *ret_size = n;
    return 0;
}

int sl_fs_replace(int dirfd, const char *name, const void *data, size_t size, mode_t mode,
                  struct sl_err *err)
{
    char tmp[NAME_MAX + 1];
    if ((size_t)snprintf(tmp, sizeof(tmp), "%s" SL_FS_HALF, name) >= sizeof(tmp))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_FILE_NAME_LONG, name);
    SL_CLEANUP(close) int fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot write %s", tmp);
    const char *p = data;
    for (size_t left = size; left > 0;) {
        ssize_t put = write(fd, p, left);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            int cause = put < 0 ? errno : ENOSPC;
            (void)unlinkat(dirfd, tmp, 0);
            return sl_err_errno(err, cause, "cannot write %s", name);
        }
        p += put;
        left -= (size_t)put;
    }
    if (renameat(dirfd, tmp, dirfd, name) != 0) {
        int cause = errno;
        (void)unlinkat(dirfd, tmp, 0);
        return sl_err_errno(err, cause, "cannot replace %s", name);
    }
    return 0;
}
