/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes receive and close the descriptors that tenants pass. Both may block for as long as the
 * sender likes (a socket that lingers, a file on a file system of the sender). So each tenant has a
 * lane, with a thread of its own: a tenant that blocks it holds up only itself.
 */
#ifndef SLUICE_ARBITER_LANE_H
#define SLUICE_ARBITER_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "arbiter/peer.h"
#include "shm/packet.h"

struct sl_lanes; /* all lanes, the packets they received, and the bell */
struct sl_lane;

/* A packet that came with descriptors. The caller of sl_lanes_take owns both descriptors. */
struct sl_received {
    struct sl_received *next;
    uint64_t tenant; /* as given to sl_lane_receive */
    struct sl_peer peer;
    int sock;
    int rc;        /* of sl_packet_recv */
    char why[400]; /* where that is not 0 */
    union sl_packet packet;
    int page_fd; /* the first descriptor, when it is a sealed page; else -1 and closed */
};

struct sl_lanes *sl_lanes_open(int bell_fd); /* the caller's eventfd */
/* Does not wait: a thread that blocks stays behind, and ends with the process. NULL is fine. */
void sl_lanes_close(struct sl_lanes *l);
struct sl_received *sl_lanes_take(struct sl_lanes *l); /* NULL: none ready */

struct sl_lane *sl_lane_open(struct sl_lanes *l);
void sl_lane_close(struct sl_lane *lane);    /* its jobs are still done; NULL is fine */
uint32_t sl_lane_held(struct sl_lane *lane); /* descriptors that it has not closed yet */

/* Both take the descriptor, and never block. */
void sl_lane_drop(struct sl_lane *lane, int fd);
void sl_lane_receive(struct sl_lane *lane, int sock, uint64_t tenant, const struct sl_peer *peer);

#endif
