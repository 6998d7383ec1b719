/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/find.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sluice/attach.h"

/*
 * Without containers, root's own arbiter has the same path, in a directory of mode 0700. The agent's mount is open to
 * all and read-only, so no process in a container can make it look like that.
 */
static bool is_private_of_another(void)
{
    char dir[] = SL_ATTACH_DEFAULT;
    struct stat st;
    *strrchr(dir, '/') = '\0';
    /* fstat, not stat: libsluice also loads with a C library that has no stat of that name. */
    SL_CLEANUP(close) int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fstat(fd, &st) == 0 && st.st_uid != geteuid() &&
           (st.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

/* The agent mounts the directory of the socket read-only. While an arbiter makes the socket again, or after it has lost the
 * tenant, the directory is empty: a program that starts then has a limit all the same. */
static bool is_mounted(void)
{
    char dir[] = SL_ATTACH_DEFAULT;
    struct statvfs fs;
    *strrchr(dir, '/') = '\0';
    SL_CLEANUP(close) int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_RDONLY);
}

enum sl_attach_found sl_attach_find(void)
{
    if (access(SL_ATTACH_DEFAULT, F_OK) == 0)
        return SL_ATTACH_MOUNTED;
    int why = errno;
    if (why == ENOENT && is_mounted())
        return SL_ATTACH_GONE;
    if (why == ENOENT || why == ENOTDIR)
        return SL_ATTACH_NONE;
    if (why == EACCES && is_private_of_another())
        return SL_ATTACH_FOREIGN;
    errno = why;
    return SL_ATTACH_HIDDEN;
}
