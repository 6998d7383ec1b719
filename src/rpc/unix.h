/* SPDX-License-Identifier: Apache-2.0 */
/* Unix stream sockets by path. */
#ifndef SLUICE_RPC_UNIX_H
#define SLUICE_RPC_UNIX_H

#include <sys/types.h>
#include <sys/un.h>

#include "base/err.h"

/* A listening socket and the file that bind() made. */
struct sl_rpc_unix {
    int fd;
    dev_t dev;
    ino_t ino;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* Replaces an existing socket; refuses to remove any other file. */
int sl_rpc_unix_listen(const char *path, mode_t mode, struct sl_rpc_unix *ret,
                       struct sl_err *err) SL_MUST_CHECK;

/* Closes the socket. Removes the file only if this socket made it: another process may have replaced the file by now,
 * or kubelet may have removed it. */
void sl_rpc_unix_close(struct sl_rpc_unix *at);

/* A connected, non-blocking descriptor, or a negative error. Does not wait. */
int sl_rpc_unix_connect(const char *path, struct sl_err *err) SL_MUST_CHECK;

#endif
