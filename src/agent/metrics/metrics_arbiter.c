/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/metrics/metrics_arbiter.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "shm/packet.h"

struct sl_arbiter_query {
    struct sl_source source; /* fd -1: not connected */
    struct sl_loop *loop;
    struct sl_place place;
    sl_arbiter_query_done *done;
    void *data;
    bool asking;
    struct sl_client_status status;
};

static void hang_up(struct sl_arbiter_query *q)
{
    if (q->source.fd >= 0) {
        sl_loop_unwatch(q->loop, &q->source);
        (void)close(q->source.fd);
        q->source.fd = -1;
    }
    sl_client_status_free(&q->status);
    q->asking = false;
}

static void fail(struct sl_arbiter_query *q, const struct sl_err *err)
{
    bool asked = q->asking;
    hang_up(q);
    if (asked)
        q->done(q->data, NULL, err);
}

static void ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct sl_arbiter_query *q =
        (struct sl_arbiter_query *)(void *)((char *)source -
                                            offsetof(struct sl_arbiter_query, source));
    struct sl_err err = SL_ERR_INIT;
    int rc = 0;
    /* A batch at a time: the loop has others to serve. */
    for (unsigned i = 0; i < 64 && rc == 0; i++)
        rc = sl_client_status_next(source->fd, &q->status, &err);
    if (rc == 0 || rc == -EAGAIN)
        return;
    if (rc < 0 || !q->asking) {
        fail(q, &err);
        return;
    }
    struct sl_client_status status = q->status;
    q->status = (struct sl_client_status){0};
    q->asking = false;
    q->done(q->data, &status, NULL);
}

/* Unlike sl_client_connect() this never waits, not even for room in a hung arbiter's queue. */
static int connect_now(struct sl_arbiter_query *q, struct sl_err *err)
{
    int rc = sl_place_check(&q->place, err);
    if (rc < 0)
        return rc;
    SL_CLEANUP(close) int fd = sl_packet_connect_now(q->place.socket, err);
    if (fd < 0)
        return fd;
    q->source.fd = fd;
    rc = sl_loop_watch(q->loop, &q->source, EPOLLIN, err);
    if (rc < 0)
        q->source.fd = -1;
    else
        (void)sl_take_fd(fd);
    return rc;
}

void sl_arbiter_query_ask(struct sl_arbiter_query *query)
{
    struct sl_err err = SL_ERR_INIT;
    int rc = query->source.fd >= 0 ? 0 : connect_now(query, &err);
    if (rc == 0) {
        rc = sl_client_status_ask(query->source.fd, &err);
        if (rc == -ECONNRESET) { /* it was restarted since: once more */
            hang_up(query);
            rc = connect_now(query, &err);
            if (rc == 0)
                rc = sl_client_status_ask(query->source.fd, &err);
        }
    }
    query->asking = true;
    if (rc < 0)
        fail(query, &err);
}

void sl_arbiter_query_give_up(struct sl_arbiter_query *query)
{
    hang_up(query);
}

int sl_arbiter_query_create(struct sl_loop *loop, const struct sl_place *place,
                            sl_arbiter_query_done *done, void *data, struct sl_arbiter_query **ret,
                            struct sl_err *err)
{
    struct sl_arbiter_query *q = calloc(1, sizeof(*q));
    if (!q)
        return sl_err_set(err, -ENOMEM, "out of memory for metrics");
    q->loop = loop;
    q->place = *place;
    q->done = done;
    q->data = data;
    q->source = (struct sl_source){.fd = -1, .ready = ready};
    *ret = q;
    return 0;
}

void sl_arbiter_query_destroy(struct sl_arbiter_query *query)
{
    if (!query)
        return;
    hang_up(query);
    free(query);
}
