/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process at the other end of a connection. A PID alone is not enough: a process may connect, leave the connection
 * to a child and end, and its PID may go to a process of another user. So a peer is watched by a pidfd from the
 * kernel's own record of the connection, where the kernel has that (Linux 6.5); else it is known by its PID and start
 * time, which are read when the connection is accepted.
 */
#ifndef SLUICE_ARBITER_PEER_H
#define SLUICE_ARBITER_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sl_peer {
    pid_t pid;
    uid_t uid;
    uint64_t start; /* sl_arb_process_start; 0 where the socket has the pidfd */
};

/* The process that connected. pid 0: no process that is visible from here. */
struct sl_peer sl_peer_of(int sock);

/* A pidfd of a living peer. -ESRCH: it has ended; -ENOSYS: the kernel has no pidfds (before 5.3); or another negative
 * errno, when descriptors or memory run out. */
int sl_peer_watch(int sock, const struct sl_peer *peer);

/* The second way, by PID and start time. */
int sl_peer_watch_by_start(pid_t pid, uint64_t start);

/* May a client of this user see what belongs to a tenant of `owner`? Its own; root and the arbiter's user see all. */
bool sl_peer_may_see(uid_t uid, uid_t owner);

/* Has the process of a pidfd ended? */
bool sl_peer_ended(int pidfd);

#endif
