/* SPDX-License-Identifier: Apache-2.0 */
/* Packets: any bytes, with any number of descriptors, are one of our messages or are refused; no
 * descriptor stays open either way. The first byte says how many descriptors travel along. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "shm/packet.h"

static int pair[2] = {-1, -1};
static int next_fd; /* the lowest free descriptor: it must be free again after each input */

static void send_bytes(const uint8_t *data, size_t size, int fd_count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)];
    memset(control, 0, sizeof(control));
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count > 0) {
        mh.msg_control = control;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
        for (int i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &pair[0], sizeof(int));
    }
    FUZZ_CHECK(sendmsg(pair[0], &mh, MSG_NOSIGNAL) == (ssize_t)size);
}

static int lowest_free_fd(void)
{
    int fd = fcntl(pair[0], F_DUPFD, 0);
    FUZZ_CHECK(fd >= 0);
    (void)close(fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (pair[0] < 0) {
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
        next_fd = lowest_free_fd();
    }
    if (size < 2)
        return 0;
    int fd_count = data[0] % 9;
    send_bytes(data + 1, size - 1, fd_count);

    union sl_packet packet;
    struct sl_packet_fds fds = {.count = -1};
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_packet_recv(pair[1], &packet, &fds, &err);
    if (rc == 0) {
        FUZZ_CHECK(packet.h.magic == SL_MSG_MAGIC && packet.h.version == SL_MSG_VERSION);
        FUZZ_CHECK(packet.h.size == size - 1);
        FUZZ_CHECK(packet.h.size == sl_packet_size((enum sl_msg_type)packet.h.type));
        FUZZ_CHECK(memcmp(&packet, data + 1, size - 1) == 0);
        FUZZ_CHECK(fds.count == fd_count && fd_count <= SL_PACKET_FDS);
        sl_packet_fds_close(&fds);
    } else {
        struct sl_msg h = {.magic = 0};
        memcpy(&h, data + 1, size - 1 < sizeof(h) ? size - 1 : sizeof(h));
        /* Descriptors that do not fit make a packet malformed, whatever its version is. */
        bool other = size - 1 >= sizeof(h) && size - 1 <= sizeof(packet) &&
                     h.magic == SL_MSG_MAGIC && h.size == size - 1 && h.version != SL_MSG_VERSION &&
                     fd_count <= SL_PACKET_FDS;
        FUZZ_CHECK(rc == (other ? -EPROTONOSUPPORT : -EPROTO));
        FUZZ_CHECK(err.code == rc && fds.count == -1);
    }
    FUZZ_CHECK(lowest_free_fd() == next_fd);
    FUZZ_CHECK(sl_packet_recv(pair[1], &packet, NULL, &err) == -EAGAIN); /* one input, one packet */
    return 0;
}
