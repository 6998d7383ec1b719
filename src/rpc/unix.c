/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/unix.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "rpc/errors.h"

static int fill_address(const char *path, struct sockaddr_un *ret, struct sl_err *err)
{
    size_t size = strlen(path) + 1;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (size == 1 || size > sizeof(ret->sun_path))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_RPC_SOCKET_PATH, sizeof(ret->sun_path) - 1,
                          size - 1, path);
    memcpy(ret->sun_path, path, size);
    return 0;
}

/* A socket to bind or connect, or the error; *ret_address becomes the address of path. */
static int open_socket(const char *path, struct sockaddr_un *ret_address, struct sl_err *err)
{
    int rc = fill_address(path, ret_address, err);
    if (rc < 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? sl_err_errno(err, errno, "cannot make a socket") : fd;
}

static int make_way(const char *path, struct sl_err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? 0 : sl_err_errno(err, errno, "cannot look at %s", path);
    if (!S_ISSOCK(st.st_mode))
        return sl_err_set(err, -EEXIST, SL_E_RPC_NOT_A_SOCKET, path);
    if (unlink(path) != 0 && errno != ENOENT)
        return sl_err_errno(err, errno, "cannot remove the old socket %s", path);
    return 0;
}

int sl_rpc_unix_listen(const char *path, mode_t mode, struct sl_rpc_unix *ret, struct sl_err *err)
{
    struct sockaddr_un address;
    SL_CLEANUP(close) int fd = open_socket(path, &address, err);
    if (fd < 0)
        return fd;
    int rc = make_way(path, err);
    if (rc < 0)
        return rc;
    /* The file has the descriptor's mode from its first moment; chmod adds the bits that umask removed. */
    if (fchmod(fd, mode) != 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return sl_err_errno(err, errno, "cannot bind %s", path);
    struct stat st;
    if (lstat(path, &st) != 0 || chmod(path, mode) != 0 || listen(fd, SOMAXCONN) != 0) {
        rc = sl_err_errno(err, errno, "cannot listen on %s", path);
        (void)unlink(path);
        return rc;
    }
    *ret = (struct sl_rpc_unix){.fd = sl_take_fd(fd), .dev = st.st_dev, .ino = st.st_ino};
    memcpy(ret->path, address.sun_path, sizeof(ret->path));
    return 0;
}

void sl_rpc_unix_close(struct sl_rpc_unix *at)
{
    struct stat st;
    if (lstat(at->path, &st) == 0 && st.st_dev == at->dev && st.st_ino == at->ino)
        (void)unlink(at->path);
    (void)close(at->fd);
    at->fd = -1;
}

int sl_rpc_unix_connect(const char *path, struct sl_err *err)
{
    struct sockaddr_un address;
    SL_CLEANUP(close) int fd = open_socket(path, &address, err);
    if (fd < 0)
        return fd;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return sl_err_errno(err, errno, "cannot connect to %s", path);
    return sl_take_fd(fd);
}
