/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of include/sluice/attach.h over SOCK_SEQPACKET, with descriptors beside them. */
#ifndef SLUICE_SHM_PACKET_H
#define SLUICE_SHM_PACKET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "sluice/attach.h"

#define SL_PACKET_FDS 4

/* Large enough for every message. */
union sl_packet {
    struct sl_msg h;
    struct sl_msg_hello hello;
    struct sl_msg_welcome welcome;
    struct sl_msg_measure measure;
    struct sl_msg_lease lease;
    struct sl_msg_created created;
    struct sl_msg_text text;
    struct sl_msg_tenant tenant;
    struct sl_msg_gpu gpu;
    struct sl_msg_audit audit;
    struct sl_msg_process process;
    struct sl_msg_waiting waiting;
    struct sl_msg_waiter waiter;
    struct sl_msg_ended ended;
    struct sl_msg_history history;
};

/* Descriptors received with a packet; sl_packet_fds_close closes those that were not taken. */
struct sl_packet_fds {
    int fd[SL_PACKET_FDS];
    int count;
};

/* Fills the header: sl_packet_init(&m.h, SL_MSG_X, sizeof(m)). */
void sl_packet_init(struct sl_msg *h, enum sl_msg_type type, size_t size);

/* Size a message of this type must have, 0 for an unknown type. */
size_t sl_packet_size(enum sl_msg_type type);

int sl_packet_connect(const char *path, struct sl_err *err) SL_MUST_CHECK; /* fd or -errno */
/* The same without waiting, and the descriptor does not block: -EAGAIN while the server's queue of connections is
 * full. */
int sl_packet_connect_now(const char *path, struct sl_err *err) SL_MUST_CHECK;
int sl_packet_listen(const char *path, int backlog,
                     struct sl_err *err) SL_MUST_CHECK; /* likewise; non-blocking */

int sl_packet_send(int sock, const struct sl_msg *msg, const int *fds, int fd_count,
                   struct sl_err *err) SL_MUST_CHECK;

/*
 * Receives one checked packet. 0 and *packet filled; -EAGAIN on a non-blocking socket without a packet; -ECONNRESET
 * when the peer is gone; -EPROTO when the packet is malformed; -EPROTONOSUPPORT when it is of another SL_MSG_VERSION
 * (*packet then has its header, for sl_packet_refuse). With `fds` NULL a packet that brings descriptors is
 * malformed too: it is refused and stays in the queue, so that nothing in it is ever closed here.
 *
 * With `fds` this may block for as long as a hostile peer likes: unwanted descriptors are closed in the call, by us or
 * by the kernel, and close() of a lingering socket or of a file on a foreign file system waits. A loop that serves
 * others asks sl_packet_brings_fds first.
 */
int sl_packet_recv(int sock, union sl_packet *packet, struct sl_packet_fds *fds,
                   struct sl_err *err) SL_MUST_CHECK;

/* Sends ERROR, in the version of the one who asked: every build reads it. */
void sl_packet_refuse(int sock, uint16_t version, int code, const char *text);

/* Does the next packet bring descriptors? 1, 0, or -errno (-EAGAIN: there is no packet). Takes nothing, closes nothing,
 * never blocks on a non-blocking socket. */
int sl_packet_brings_fds(int sock) SL_MUST_CHECK;

/* Ends a connection (non-blocking) and closes it. False when descriptors lie unread in it: then it is shut down but
 * still open, because close() would close those descriptors too, and may block. */
bool sl_packet_hang_up(int sock) SL_MUST_CHECK;

void sl_packet_fds_close(struct sl_packet_fds *fds);

/* Waits up to timeout_ms for the socket to be readable: 0, -ETIMEDOUT or -errno. */
int sl_packet_wait(int sock, int timeout_ms, struct sl_err *err) SL_MUST_CHECK;

#endif
