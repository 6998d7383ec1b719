/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/packet.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "shm/errors.h"

void sl_packet_init(struct sl_msg *h, enum sl_msg_type type, size_t size)
{
    *h = (struct sl_msg){.magic = SL_MSG_MAGIC,
                         .version = SL_MSG_VERSION,
                         .type = (uint16_t)type,
                         .size = (uint32_t)size};
}

size_t sl_packet_size(enum sl_msg_type type)
{
    switch (type) {
    case SL_MSG_HELLO:
        return sizeof(struct sl_msg_hello);
    case SL_MSG_WELCOME:
        return sizeof(struct sl_msg_welcome);
    case SL_MSG_MEASURE:
    case SL_MSG_MEASURED:
        return sizeof(struct sl_msg_measure);
    case SL_MSG_CREATE:
    case SL_MSG_SET:
    case SL_MSG_REMOVE:
    case SL_MSG_PROCESSES:
        return sizeof(struct sl_msg_lease);
    case SL_MSG_CREATED:
        return sizeof(struct sl_msg_created);
    case SL_MSG_OK:
    case SL_MSG_ERROR:
        return sizeof(struct sl_msg_text);
    case SL_MSG_TENANT:
        return sizeof(struct sl_msg_tenant);
    case SL_MSG_GPU:
        return sizeof(struct sl_msg_gpu);
    case SL_MSG_AUDIT:
        return sizeof(struct sl_msg_audit);
    case SL_MSG_PROCESS:
        return sizeof(struct sl_msg_process);
    case SL_MSG_WAITING:
        return sizeof(struct sl_msg_waiting);
    case SL_MSG_WAITER:
        return sizeof(struct sl_msg_waiter);
    case SL_MSG_ENDED:
        return sizeof(struct sl_msg_ended);
    case SL_MSG_HISTORY_LINES:
        return sizeof(struct sl_msg_history);
    case SL_MSG_GATE:
    case SL_MSG_STATUS:
    case SL_MSG_PING:
    case SL_MSG_HISTORY:
    case SL_MSG_END:
        return sizeof(struct sl_msg);
    }
    return 0;
}

static int make_address(const char *path, struct sockaddr_un *ret, struct sl_err *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof(ret->sun_path))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_SOCKET_PATH, path, sizeof(ret->sun_path) - 1);
    memcpy(ret->sun_path, path, n + 1);
    return 0;
}

static int connect_to(const char *path, int flags, struct sl_err *err)
{
    struct sockaddr_un addr;
    int rc = make_address(path, &addr, err);
    if (rc < 0)
        return rc;
    SL_CLEANUP(close) int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    if (sock < 0)
        return sl_err_errno(err, errno, "cannot make a socket");
    while (connect(sock, (const struct sockaddr *)&addr, sizeof(addr)) != 0)
        if (errno != EINTR)
            return sl_err_errno(err, errno, SL_E_ARBITER_UNREACHABLE, path);
    return sl_take_fd(sock);
}

int sl_packet_connect(const char *path, struct sl_err *err)
{
    return connect_to(path, 0, err);
}

int sl_packet_connect_now(const char *path, struct sl_err *err)
{
    return connect_to(path, SOCK_NONBLOCK, err);
}

int sl_packet_listen(const char *path, int backlog, struct sl_err *err)
{
    struct sockaddr_un addr;
    int rc = make_address(path, &addr, err);
    if (rc < 0)
        return rc;
    SL_CLEANUP(close) int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return sl_err_errno(err, errno, "cannot make a socket");
    if (unlink(path) != 0 && errno != ENOENT)
        return sl_err_errno(err, errno, "cannot replace the old socket %s", path);
    if (bind(sock, (const struct sockaddr *)&addr, sizeof(addr)) != 0)
        return sl_err_errno(err, errno, "cannot make the socket %s", path);
    if (listen(sock, backlog) != 0)
        return sl_err_errno(err, errno, "cannot listen on %s", path);
    return sl_take_fd(sock);
}

int sl_packet_send(int sock, const struct sl_msg *msg, const int *fds, int fd_count,
                   struct sl_err *err)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int) * SL_PACKET_FDS)];
    } control;
    /* sendmsg does not write through the iovec. */
    struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = msg->size};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        mh.msg_control = control.buf;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)fd_count);
    }
    for (;;) {
        ssize_t n = sendmsg(sock, &mh, MSG_NOSIGNAL);
        if (n == (ssize_t)msg->size)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        return sl_err_errno(err, n < 0 ? errno : EIO, "cannot send to the peer");
    }
}

void sl_packet_refuse(int sock, uint16_t version, int code, const char *text)
{
    struct sl_msg_text m = {.code = code};
    sl_packet_init(&m.h, SL_MSG_ERROR, sizeof(m));
    m.h.version = version;
    (void)snprintf(m.text, sizeof(m.text), "%s", text);
    (void)!sl_packet_send(sock, &m.h, NULL, 0, NULL); /* the peer may be gone */
}

static void collect_fds(struct msghdr *mh, struct sl_packet_fds *ret)
{
    ret->count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (ret->count < SL_PACKET_FDS)
                ret->fd[ret->count++] = fd;
            else
                (void)close(fd);
        }
    }
}

/* Looks at the next packet and leaves it in the queue. The kernel drops descriptors that find no room in `control`, but
 * the packet keeps its own references to them: nothing is closed. */
static int look_at(int sock, struct msghdr *mh)
{
    char first;
    struct iovec iov = {.iov_base = &first, .iov_len = 1};
    mh->msg_iov = &iov;
    mh->msg_iovlen = 1;
    ssize_t n;
    do
        n = recvmsg(sock, mh, MSG_PEEK);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

int sl_packet_brings_fds(int sock)
{
    struct msghdr mh = {.msg_flags = 0};
    int rc = look_at(sock, &mh);
    return rc < 0 ? rc : (mh.msg_flags & MSG_CTRUNC) != 0;
}

bool sl_packet_hang_up(int sock)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    int on = 1;
    (void)shutdown(sock, SHUT_RDWR); /* from now on no packet can be added */
    /* With the sender's credentials beside it, even an empty packet differs from the end. */
    bool fds = setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0;
    while (!fds) {
        char first;
        struct msghdr mh = {.msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
        if (look_at(sock, &mh) < 0 || mh.msg_controllen == 0)
            break;
        fds = mh.msg_flags & MSG_CTRUNC;
        if (!fds && recv(sock, &first, sizeof(first), MSG_DONTWAIT) < 0)
            break;
    }
    if (!fds)
        (void)close(sock);
    return !fds;
}

static int check_packet(const union sl_packet *packet, ssize_t n, int flags, struct sl_err *err)
{
    if (n == 0)
        return sl_err_set(err, -ECONNRESET, SL_E_PEER_CLOSED);
    if ((size_t)n < sizeof(struct sl_msg) || (flags & (MSG_TRUNC | MSG_CTRUNC)) ||
        packet->h.magic != SL_MSG_MAGIC || packet->h.size != (size_t)n)
        return sl_err_set(err, -EPROTO, SL_E_PEER_PACKET);
    if (packet->h.version != SL_MSG_VERSION) /* its messages may have other sizes */
        return sl_err_set(err, -EPROTONOSUPPORT, SL_E_PEER_VERSION, packet->h.version,
                          SL_MSG_VERSION);
    if (sl_packet_size((enum sl_msg_type)packet->h.type) != (size_t)n)
        return sl_err_set(err, -EPROTO, SL_E_PEER_PACKET);
    return 0;
}

int sl_packet_recv(int sock, union sl_packet *packet, struct sl_packet_fds *fds, struct sl_err *err)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int) * SL_PACKET_FDS)];
    } control;
    struct iovec iov = {.iov_base = packet, .iov_len = sizeof(*packet)};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = fds ? control.buf : NULL,
                        .msg_controllen = fds ? sizeof(control.buf) : 0};
    if (!fds && sl_packet_brings_fds(sock) == 1)
        return sl_err_set(err, -EPROTO, SL_E_PEER_DESCRIPTORS);
    ssize_t n;
    do
        n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? -EAGAIN
                                                       : sl_err_errno(err, errno, "receiving");
    struct sl_packet_fds got = {.count = 0};
    if (fds)
        collect_fds(&mh, &got);
    int rc = check_packet(packet, n, mh.msg_flags, err);
    if (rc < 0)
        sl_packet_fds_close(&got);
    else if (fds)
        *fds = got;
    return rc;
}

void sl_packet_fds_close(struct sl_packet_fds *fds)
{
    for (int i = 0; i < fds->count; i++)
        sl_cleanup_close(&fds->fd[i]);
    fds->count = 0;
}

int sl_packet_wait(int sock, int timeout_ms, struct sl_err *err)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    int rc;
    do
        rc = poll(&p, 1, timeout_ms);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        return sl_err_errno(err, errno, SL_E_PEER_WAIT);
    return rc == 0 ? sl_err_set(err, -ETIMEDOUT, SL_E_PEER_SILENT, timeout_ms) : 0;
}
