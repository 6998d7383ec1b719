/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/peer.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arbiter/arbiter_internal.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int pidfd_of_socket(int sock)
{
    int fd = -1;
    socklen_t size = sizeof(fd);
    return getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0 ? fd : -errno;
}

/* Tested once, with a socket pair of our own. */
static bool kernel_tells(void)
{
    static enum { UNKNOWN, NO, YES } known;
    int pair[2];
    if (known != UNKNOWN || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return known == YES;
    int fd = pidfd_of_socket(pair[0]);
    if (fd >= 0)
        (void)close(fd);
    if (fd >= 0 || fd == -ENOPROTOOPT) /* else no descriptors left: test again */
        known = fd >= 0 ? YES : NO;
    (void)close(pair[0]);
    (void)close(pair[1]);
    return known == YES;
}

struct sl_peer sl_peer_of(int sock)
{
    struct ucred who;
    socklen_t size = sizeof(who);
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.pid <= 0)
        return (struct sl_peer){0};
    return (struct sl_peer){.pid = who.pid,
                            .uid = who.uid,
                            .start = kernel_tells() ? 0 : sl_arb_process_start(who.pid)};
}

bool sl_peer_may_see(uid_t uid, uid_t owner)
{
    return uid == owner || uid == 0 || uid == geteuid();
}

bool sl_peer_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&p, 1, 0) == 1;
}

int sl_peer_watch_by_start(pid_t pid, uint64_t start)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return -errno;
    /* Check after the pidfd is open: now the PID cannot go to another process. */
    if (start != 0 && sl_arb_process_start(pid) == start && !sl_peer_ended(fd))
        return fd;
    (void)close(fd);
    return -ESRCH;
}

int sl_peer_watch(int sock, const struct sl_peer *peer)
{
    if (peer->start != 0)
        return sl_peer_watch_by_start(peer->pid, peer->start);
    if (!kernel_tells()) /* the process ended before the connection was accepted */
        return -ESRCH;
    int fd = pidfd_of_socket(sock);
    if (fd >= 0 && sl_peer_ended(fd)) {
        (void)close(fd);
        return -ESRCH;
    }
    bool scarce = fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM;
    return fd >= 0 || scarce ? fd : -ESRCH;
}
