/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tenant/leases.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/tenant/errors.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fault.h"
#include "base/xalloc.h"
#include "shm/packet.h"

#define RECONNECT_NS (50 * SL_NS_PER_MS)
#define AGAIN_NS     SL_NS_PER_S /* for the room that an ended pod still has */
#define SLOW_NS      (10 * SL_NS_PER_S)

struct question {
    struct question *next;
    struct sl_msg_lease ask; /* STATUS needs its header only */
    uint64_t deadline_ns;
    bool now; /* fails at once where there is no arbiter */
    sl_leases_done *done;
    const struct sl_leases_item *items; /* to ask after this question */
    size_t more;
    const char *fault;
    struct sl_tenancy tenancy;          /* its spec comes after the last item; may have none */
    sl_leases_status_done *status_done; /* of STATUS */
    struct sl_client_status status;     /* the parts that have come so far */
    void *data;
};

struct sl_leases {
    struct sl_loop *loop;
    struct sl_source conn; /* fd -1: not connected */
    struct sl_timer timer;
    uint64_t timeout_ns;
    struct question *first, **last; /* in order */
    struct question *unsent;        /* the first question not sent on this connection yet */
    char path[256];
};

static void advance(struct sl_leases *l);

/* Puts the question behind the others. */
static void put(struct sl_leases *l, struct question *q, enum sl_msg_type type)
{
    sl_packet_init(&q->ask.h, type, sl_packet_size(type));
    q->deadline_ns = sl_loop_now(l->loop) + l->timeout_ns;
    q->next = NULL;
    *l->last = q;
    l->last = &q->next;
    if (!l->unsent)
        l->unsent = q;
}

static void put_item(struct sl_leases *l, struct question *q)
{
    const struct sl_leases_item *item = q->items++;
    q->more--;
    q->ask = *item->lease;
    q->fault = item->fault;
    put(l, q, item->type);
}

static int take_spec(const struct sl_tenancy *t, void *data, struct sl_err *err)
{
    int rc = t->spec ? t->spec(data, err) : 0;
    if (rc == 0 && t->spec_fault)
        SL_FAULT(t->spec_fault);
    return rc;
}

static void finish(struct sl_leases *l, struct question *q, int rc, const char *text,
                   const struct sl_err *err)
{
    struct sl_err own = SL_ERR_INIT;
    l->first = q->next;
    if (!l->first)
        l->last = &l->first;
    if (l->unsent == q)
        l->unsent = q->next;
    if (rc == 0 && q->fault)
        SL_FAULT(q->fault);
    if (rc == 0 && q->more) {
        put_item(l, q);
        return;
    }
    if (rc == 0 && q->tenancy.make) {
        if (q->tenancy.asked_fault)
            SL_FAULT(q->tenancy.asked_fault);
        rc = take_spec(&q->tenancy, q->data, &own);
        text = rc < 0 ? NULL : text;
        err = rc < 0 ? &own : err;
    }
    if (q->status_done)
        q->status_done(q->data, rc < 0 ? NULL : &q->status, err);
    else if (q->done)
        q->done(q->data, rc, text, err);
    if (rc < 0 || !q->status_done)
        sl_client_status_free(&q->status);
    free(q);
}

static void hang_up(struct sl_leases *l)
{
    if (l->conn.fd < 0)
        return;
    sl_loop_unwatch(l->loop, &l->conn);
    (void)close(l->conn.fd);
    l->conn.fd = -1;
    if (l->first && l->first != l->unsent && l->first->ask.h.type == SL_MSG_PING)
        finish(l, l->first, 0, "", NULL);
    l->unsent = l->first; /* send all again, on the next connection */
    if (l->first)
        sl_client_status_free(&l->first->status);
}

/* One answer to the oldest question. Returns false when the answer does not fit. */
static bool answered(struct sl_leases *l, union sl_packet *p)
{
    struct question *q = l->first;
    struct sl_err err = SL_ERR_INIT;
    if (!q || q == l->unsent)
        return false;
    uint16_t asked = q->ask.h.type;
    if (asked == SL_MSG_STATUS) {
        int rc = sl_client_status_take(&q->status, p, &err);
        if (rc != 0)
            finish(l, q, rc < 0 ? rc : 0, "", &err);
        return rc >= 0 || p->h.type == SL_MSG_ERROR;
    }
    if (p->h.type == SL_MSG_ERROR) {
        p->text.text[sizeof(p->text.text) - 1] = '\0';
        int rc = p->text.code < 0 ? p->text.code : -EIO;
        if (asked == SL_MSG_REMOVE && rc == -ENOENT)
            rc = 0;
        else
            (void)sl_err_set(&err, rc, "%s", p->text.text);
        finish(l, q, rc, "", &err);
        return true;
    }
    if (p->h.type != (asked == SL_MSG_CREATE ? SL_MSG_CREATED : SL_MSG_OK))
        return false;
    p->text.text[sizeof(p->text.text) - 1] = '\0';
    finish(l, q, 0, p->h.type == SL_MSG_OK ? p->text.text : "", &err);
    return true;
}

static int send_all(struct sl_leases *l)
{
    while (l->unsent) {
        int rc = sl_packet_send(l->conn.fd, &l->unsent->ask.h, NULL, 0, NULL);
        if (rc == -EAGAIN)
            break;
        if (rc < 0)
            return rc;
        l->unsent = l->unsent->next;
    }
    return sl_loop_watch(l->loop, &l->conn, EPOLLIN | (l->unsent ? (uint32_t)EPOLLOUT : 0), NULL);
}

static void conn_ready(struct sl_source *s, uint32_t events)
{
    struct sl_leases *l = sl_container_of(s, struct sl_leases, conn);
    (void)events;
    for (;;) {
        union sl_packet p;
        int rc = sl_packet_recv(l->conn.fd, &p, NULL, NULL);
        if (rc == -EAGAIN)
            break;
        if (rc < 0 || !answered(l, &p)) {
            hang_up(l);
            break;
        }
    }
    advance(l);
}

static void dial(struct sl_leases *l)
{
    /* A stopped arbiter accepts no connection: try again later, the loop goes on. */
    struct sl_err err = SL_ERR_INIT;
    int fd = sl_packet_connect_now(l->path, &err);
    while (fd < 0 && l->first && l->first->now)
        finish(l, l->first, fd, "", &err);
    if (fd < 0)
        return;
    l->conn = (struct sl_source){.fd = fd, .ready = conn_ready};
    l->unsent = l->first;
}

/* Sends unsent questions, and sets the timer for the next deadline. */
static void advance(struct sl_leases *l)
{
    if (l->first && l->conn.fd < 0)
        dial(l);
    if (l->conn.fd >= 0 && send_all(l) < 0)
        hang_up(l);
    if (!l->first) {
        sl_timer_stop(l->loop, &l->timer);
        return;
    }
    uint64_t at = l->first->deadline_ns, again = sl_loop_now(l->loop) + RECONNECT_NS;
    sl_timer_set(l->loop, &l->timer, l->conn.fd < 0 && again < at ? again : at);
}

static void timer_fired(struct sl_timer *t)
{
    struct sl_leases *l = sl_container_of(t, struct sl_leases, timer);
    uint64_t now = sl_loop_now(l->loop);
    if (l->first && l->first->deadline_ns <= now)
        hang_up(l); /* a late answer would belong to a question that is over */
    while (l->first && l->first->deadline_ns <= now) {
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_err_set(&err, -ETIMEDOUT, SL_E_ARBITER_NO_ANSWER, l->path);
        finish(l, l->first, rc, "", &err);
    }
    advance(l);
}

int sl_leases_create(struct sl_loop *loop, const char *arbiter_dir, uint64_t timeout_ns,
                     struct sl_leases **ret, struct sl_err *err)
{
    struct sl_leases *l = sl_xcalloc(1, sizeof(*l));
    l->loop = loop;
    l->conn.fd = -1;
    l->last = &l->first;
    l->timeout_ns = timeout_ns;
    l->timer.fire = timer_fired;
    if ((size_t)snprintf(l->path, sizeof(l->path), "%s/%s", arbiter_dir, SL_CONTROL_SOCKET) >=
        sizeof(l->path)) {
        free(l);
        return sl_err_set(err, -ENAMETOOLONG, SL_E_TENANT_DIR_LONG, arbiter_dir);
    }
    *ret = l;
    return 0;
}

void sl_leases_destroy(struct sl_leases *l)
{
    if (!l)
        return;
    sl_timer_stop(l->loop, &l->timer);
    while (l->first) {
        struct question *q = l->first;
        l->first = q->next;
        sl_client_status_free(&q->status);
        free(q);
    }
    hang_up(l);
    free(l);
}

static void ask(struct sl_leases *l, const struct question *model, enum sl_msg_type type)
{
    struct question *q = sl_xmalloc(sizeof(*q));
    *q = *model;
    put(l, q, type);
    advance(l);
}

void sl_leases_ask(struct sl_leases *l, const struct sl_leases_item *items, size_t count,
                   sl_leases_done *done, void *data)
{
    sl_leases_tenancy(l, &(struct sl_tenancy){.items = items, .count = count}, done, data);
}

void sl_leases_tenancy(struct sl_leases *l, const struct sl_tenancy *t, sl_leases_done *done,
                       void *data)
{
    struct sl_err err = SL_ERR_INIT;
    if (t->make && t->count == 0 && t->asked_fault)
        SL_FAULT(t->asked_fault);
    int rc = t->make && t->count ? 0 : take_spec(t, data, &err);
    if (rc < 0 || t->count == 0) {
        done(data, rc, rc < 0 ? NULL : "", &err);
        return;
    }
    struct question *q = sl_xcalloc(1, sizeof(*q));
    *q = (struct question){
        .items = t->items, .more = t->count, .tenancy = *t, .done = done, .data = data};
    put_item(l, q);
    advance(l);
}

void sl_leases_remove(struct sl_leases *l, const char *name, sl_leases_done *done, void *data)
{
    struct question q = {.done = done, .data = data};
    (void)snprintf(q.ask.name, sizeof(q.ask.name), "%s", name);
    ask(l, &q, SL_MSG_REMOVE);
}

void sl_leases_status(struct sl_leases *l, bool now, sl_leases_status_done *done, void *data)
{
    ask(l, &(struct question){.status_done = done, .data = data, .now = now}, SL_MSG_STATUS);
}

void sl_leases_ping(struct sl_leases *l, sl_leases_done *done, void *data)
{
    ask(l, &(struct question){.done = done, .data = data, .now = true}, SL_MSG_PING);
}

pid_t sl_leases_peer(const struct sl_leases *l)
{
    return l->conn.fd < 0 ? 0 : sl_client_peer_pid(l->conn.fd);
}

void sl_leases_forget(struct sl_leases *l, const void *data)
{
    for (struct question *q = l->first; q; q = q->next)
        if (q->data == data) {
            q->done = NULL;
            q->status_done = NULL;
            q->more = 0;
            q->tenancy.make = false;
        }
}

bool sl_leases_may_pass(int rc)
{
    static const int passing[] = {-ETIMEDOUT, -EAGAIN, -ENOSPC, -EDQUOT,
                                  -EMFILE,    -ENFILE, -ENOMEM, -EIO};
    for (size_t i = 0; i < SL_ARRAY_LEN(passing); i++)
        if (rc == passing[i])
            return true;
    return false;
}

uint64_t sl_leases_again_ns(unsigned failures)
{
    return failures < SL_LEASES_TRIES ? AGAIN_NS : SLOW_NS;
}
