/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of other processes. A process may pass any descriptor along with any packet, and a connection that is
 * closed also closes the descriptors that lie unread in it. The loop looks at packets before it takes them, and leaves
 * packets with descriptors to a lane.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "arbiter/lane.h"
#include "base/cleanup.h"

static struct sl_lane *lane_of(struct arbiter *a, struct tenant *t)
{
    struct sl_lane **lane = t ? &t->lane : &a->own_lane;
    if (!*lane)
        *lane = sl_lane_open(a->lanes);
    return *lane;
}

void sl_arb_hang_up(struct arbiter *a, struct tenant *t, struct source *s)
{
    if (s->fd < 0)
        return;
    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    if (!sl_packet_hang_up(s->fd))
        sl_lane_drop(lane_of(a, t), s->fd);
    s->fd = -1;
}

/* The queues of connections that are not accepted yet may hold descriptors too. */
void sl_arb_hang_up_listener(struct arbiter *a, struct tenant *t)
{
    if (t->listener.fd < 0)
        return;
    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, t->listener.fd, NULL);
    (void)shutdown(t->listener.fd, SHUT_RDWR); /* no new process can connect */
    struct source conn;
    while ((conn.fd = accept4(t->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
        sl_arb_hang_up(a, t, &conn);
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        sl_lane_drop(lane_of(a, t), t->listener.fd); /* a connection may still be in its queue */
    else
        (void)close(t->listener.fd);
    t->listener.fd = -1;
}

void sl_arb_receive(struct arbiter *a, struct tenant *t, int sock, const struct sl_peer *peer)
{
    sl_lane_receive(lane_of(a, t), sock, t->id, peer);
}

static void received_ready(struct arbiter *a, struct source *s)
{
    uint64_t count;
    ssize_t ignored = read(s->fd, &count, sizeof(count));
    (void)ignored;
    for (struct sl_received *r = sl_lanes_take(a->lanes); r; r = sl_lanes_take(a->lanes)) {
        struct tenant *t = a->tenants;
        while (t && t->id != r->tenant)
            t = t->next;
        if (t) {
            sl_arb_visitor_received(a, t, r);
        } else {
            sl_cleanup_close(&r->page_fd);
            sl_arb_hang_up(a, NULL, &(struct source){.fd = r->sock});
        }
        free(r);
    }
}

int sl_arb_foreign_open(struct arbiter *a, struct sl_err *err)
{
    a->received =
        (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = received_ready};
    if (a->received.fd < 0)
        return sl_err_errno(err, errno, "cannot create an event descriptor");
    a->lanes = sl_lanes_open(a->received.fd);
    return sl_arb_watch(a, &a->received, err);
}

void sl_arb_foreign_close(struct arbiter *a)
{
    sl_lane_close(a->own_lane);
    sl_lanes_close(a->lanes);
    sl_arb_unwatch(a, &a->received);
}
