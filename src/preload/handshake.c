/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "preload/errors.h"
#include "shm/packet.h"
#include "shm/protocol.h"

#define HIGH_FD 500

struct sl_own_fd sl_own_fd_take(int fd)
{
    struct sl_own_fd own = SL_OWN_FD_INIT;
    struct stat st;
    if (fd < 0)
        return own;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high >= 0) {
        (void)close(fd);
        fd = high;
    }
    own.fd = fd;
    if (fstat(fd, &st) == 0) {
        own.device = st.st_dev;
        own.inode = st.st_ino;
    }
    return own;
}

bool sl_own_fd_same_file(const struct sl_own_fd *own, int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == own->device && st.st_ino == own->inode;
}

bool sl_own_fd_valid(const struct sl_own_fd *own)
{
    return sl_own_fd_same_file(own, own->fd);
}

void sl_own_fd_replace(struct sl_own_fd *own, int fd)
{
    struct stat st;
    if (sl_own_fd_valid(own) && fstat(fd, &st) == 0 && dup3(fd, own->fd, O_CLOEXEC) >= 0) {
        own->device = st.st_dev;
        own->inode = st.st_ino;
        (void)close(fd);
        return;
    }
    *own = sl_own_fd_take(fd);
}

void sl_own_fd_close(struct sl_own_fd *own)
{
    if (sl_own_fd_valid(own))
        (void)close(own->fd);
    *own = (struct sl_own_fd)SL_OWN_FD_INIT;
}

static int say_hello(int sock, uint32_t old_slot, int old_ledger, struct sl_err *err)
{
    struct sl_msg_hello hello;
    memset(&hello, 0, sizeof(hello));
    sl_packet_init(&hello.h, SL_MSG_HELLO, sizeof(hello));
    hello.h.option = sl_protocols_told(SL_PROTOCOLS_OWN);
    hello.slot = old_slot;
    hello.own_pid = (uint32_t)getpid();
    (void)snprintf(hello.command, sizeof(hello.command), "%s", program_invocation_short_name);
    return sl_packet_send(sock, &hello.h, &old_ledger, old_ledger >= 0 ? 1 : 0, err);
}

/* The three descriptors of a WELCOME become pages and a doorbell. */
static int take_pages(struct sl_packet_fds *fds, struct sl_link *link, struct sl_err *err)
{
    if (fds->count != 3)
        return sl_err_set(err, -EPROTO, SL_E_WELCOME_DESCRIPTORS, fds->count);
    int rc = sl_lease_attach(fds->fd[0], &link->lease, err);
    if (rc < 0)
        return rc;
    fds->fd[0] = -1;
    rc = sl_ledger_attach(fds->fd[1], link->lease.page->cookie, &link->ledger, err);
    if (rc < 0)
        return rc;
    fds->fd[1] = -1;
    link->doorbell = sl_take_fd(fds->fd[2]);
    return 0;
}

int sl_link_open(const char *path, uint32_t old_slot, int old_ledger, int timeout_ms,
                 struct sl_link *ret, struct sl_err *err)
{
    struct sl_link link = {-1, -1, SL_LEASE_MAP_INIT, SL_LEDGER_MAP_INIT, SL_NO_SLOT, 0, 0};
    union sl_packet packet = {.h = {0}};
    struct sl_packet_fds fds = {.count = 0};
    SL_CLEANUP(close) int sock = sl_packet_connect(path, err);
    if (sock < 0)
        return sock;
    int rc = say_hello(sock, old_slot, old_ledger, err);
    if (rc == -EPIPE)
        rc = 0; /* the arbiter hung up before our HELLO: its reason can still be read */
    if (rc == 0)
        rc = sl_packet_wait(sock, timeout_ms, err);
    if (rc == 0)
        rc = sl_packet_recv(sock, &packet, &fds, err);
    if (rc == 0 && packet.h.type == SL_MSG_ERROR)
        rc = sl_err_set(err, packet.text.code == -EPROTONOSUPPORT ? -EPROTONOSUPPORT : -EACCES,
                        SL_E_ATTACH_REFUSED, (int)sizeof(packet.text.text) - 1, packet.text.text);
    else if (rc == 0 && (packet.h.type != SL_MSG_WELCOME || packet.welcome.slot >= SL_MAX_SLOTS))
        rc = sl_err_set(err, -EPROTO, SL_E_WELCOME_WRONG);
    if (rc == 0)
        rc = sl_protocol_accept(SL_PROTOCOLS_OWN, packet.h.option, &link.protocol, err);
    if (rc == 0)
        rc = take_pages(&fds, &link, err);
    sl_packet_fds_close(&fds);
    if (rc < 0) {
        sl_link_close(&link);
        return rc;
    }
    link.slot = packet.welcome.slot;
    link.host_pid = packet.welcome.host_pid;
    link.sock = sl_take_fd(sock);
    *ret = link;
    return 0;
}

void sl_link_close(struct sl_link *link)
{
    sl_cleanup_close(&link->sock);
    sl_cleanup_close(&link->doorbell);
    sl_lease_close(&link->lease);
    sl_ledger_close(&link->ledger);
    link->sock = link->doorbell = -1;
}
