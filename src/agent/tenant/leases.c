/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tenant/leases.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "shm/packet.h"

#define RECONNECT_NS (50 * SL_NS_PER_MS)
#define REFUSALS     256

struct question {
    struct question *next;
    struct sl_msg_lease ask; /* STATUS uses its header alone */
    uint64_t deadline_ns;
    sl_leases_done *done;
    void (*each)(void *data, const struct sl_msg_tenant *tenant);
    void *data;
};

/* A question there was no memory for: told in the next turn of the loop, from memory that is always there. */
struct refusal {
    sl_leases_done *done;
    void *data;
};

struct sl_leases {
    struct sl_loop *loop;
    struct refusal refusal[REFUSALS];
    size_t refused_first, refused_count; /* a ring */
    struct sl_timer refusing;
    struct sl_source conn; /* fd -1: not connected */
    struct sl_timer timer;
    uint64_t timeout_ns;
    struct question *first, **last; /* in order */
    struct question *unsent;        /* the first that is not on this connection yet */
    char path[256];
};

#define of(ptr, field) ((struct sl_leases *)(void *)((char *)(ptr)-offsetof(struct sl_leases, field)))

static void advance(struct sl_leases *l);

uint32_t sl_leases_compute(enum sl_config_compute compute)
{
    switch (compute) {
    case SL_CONFIG_COMPUTE_SLICES:
        return SL_LEASE_SLICES;
    case SL_CONFIG_COMPUTE_TURNS:
        return SL_LEASE_TURNS;
    case SL_CONFIG_COMPUTE_AUTO:
        break;
    }
    return 0;
}

static void hang_up(struct sl_leases *l)
{
    if (l->conn.fd < 0)
        return;
    sl_loop_unwatch(l->loop, &l->conn);
    (void)close(l->conn.fd);
    l->conn.fd = -1;
    l->unsent = l->first; /* all of them again, on the next connection */
}

static void finish(struct sl_leases *l, struct question *q, int rc, const char *text,
                   const struct sl_err *err)
{
    l->first = q->next;
    if (!l->first)
        l->last = &l->first;
    if (l->unsent == q)
        l->unsent = q->next;
    q->done(q->data, rc, text, err);
    free(q);
}

/* One answer to the oldest question. Returns false on one that makes no sense. */
static bool answered(struct sl_leases *l, union sl_packet *p)
{
    struct question *q = l->first;
    struct sl_err err = SL_ERR_INIT;
    if (!q || q == l->unsent)
        return false;
    uint16_t asked = q->ask.h.type;
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
    if (asked == SL_MSG_STATUS) {
        if (p->h.type == SL_MSG_TENANT) {
            p->tenant.name[SL_NAME_MAX - 1] = p->tenant.about[SL_ABOUT_MAX - 1] = '\0';
            q->each(q->data, &p->tenant);
        } else if (p->h.type == SL_MSG_END) {
            finish(l, q, 0, "", &err);
        }
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
    struct sl_leases *l = of(s, conn);
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

static void tell_refusal(struct sl_leases *l)
{
    struct sl_err err = SL_ERR_INIT;
    struct refusal r = l->refusal[l->refused_first];
    l->refused_first = (l->refused_first + 1) % REFUSALS;
    l->refused_count--;
    r.done(r.data, sl_err_set(&err, -ENOMEM, "out of memory"), "", &err);
}

static void refusing_fired(struct sl_timer *t)
{
    struct sl_leases *l = of(t, refusing);
    for (size_t n = l->refused_count; n > 0; n--) /* those that are refused meanwhile: next time */
        tell_refusal(l);
}

static void refuse(struct sl_leases *l, sl_leases_done *done, void *data)
{
    /* So many in one turn, and no memory: the oldest asker's call is long over, so that one is told now. */
    if (l->refused_count == REFUSALS)
        tell_refusal(l);
    l->refusal[(l->refused_first + l->refused_count++) % REFUSALS] = (struct refusal){done, data};
    sl_timer_set(l->loop, &l->refusing, sl_loop_now(l->loop));
}

static void dial(struct sl_leases *l)
{
    /* A stopped arbiter accepts nobody: then it is tried again, and the loop goes on. */
    int fd = sl_packet_connect_now(l->path, NULL);
    if (fd < 0)
        return;
    l->conn = (struct sl_source){.fd = fd, .ready = conn_ready};
    l->unsent = l->first;
}

/* Sends what there is to send, and sees to it that somebody comes back in time. */
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
    struct sl_leases *l = of(t, timer);
    uint64_t now = sl_loop_now(l->loop);
    if (l->first && l->first->deadline_ns <= now)
        hang_up(l); /* what it still says belongs to a question that is over */
    while (l->first && l->first->deadline_ns <= now) {
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_err_set(&err, -ETIMEDOUT,
                            "the arbiter at %s does not answer: see whether `sluice status` does, and "
                            "the agent's log",
                            l->path);
        finish(l, l->first, rc, "", &err);
    }
    advance(l);
}

int sl_leases_create(struct sl_loop *loop, const char *arbiter_dir, uint64_t timeout_ns,
                     struct sl_leases **ret, struct sl_err *err)
{
    struct sl_leases *l = calloc(1, sizeof(*l));
    if (!l)
        return sl_err_set(err, -ENOMEM, "out of memory");
    l->loop = loop;
    l->conn.fd = -1;
    l->last = &l->first;
    l->timeout_ns = timeout_ns;
    l->timer.fire = timer_fired;
    l->refusing.fire = refusing_fired;
    if ((size_t)snprintf(l->path, sizeof(l->path), "%s/%s", arbiter_dir, SL_CONTROL_SOCKET) >=
        sizeof(l->path)) {
        free(l);
        return sl_err_set(err, -ENAMETOOLONG, "the arbiter's directory %s is too long a name",
                          arbiter_dir);
    }
    *ret = l;
    return 0;
}

void sl_leases_destroy(struct sl_leases *l)
{
    if (!l)
        return;
    hang_up(l);
    sl_timer_stop(l->loop, &l->timer);
    sl_timer_stop(l->loop, &l->refusing);
    while (l->first) {
        struct question *q = l->first;
        l->first = q->next;
        free(q);
    }
    free(l);
}

static void ask(struct sl_leases *l, const struct sl_msg_lease *lease, enum sl_msg_type type,
                size_t size, void (*each)(void *, const struct sl_msg_tenant *),
                sl_leases_done *done, void *data)
{
    struct question *q = calloc(1, sizeof(*q));
    if (!q) {
        refuse(l, done, data);
        return;
    }
    if (lease)
        q->ask = *lease;
    sl_packet_init(&q->ask.h, type, size);
    q->done = done;
    q->each = each;
    q->data = data;
    q->deadline_ns = sl_loop_now(l->loop) + l->timeout_ns;
    *l->last = q;
    l->last = &q->next;
    if (!l->unsent)
        l->unsent = q;
    advance(l);
}

void sl_leases_make(struct sl_leases *l, const struct sl_msg_lease *lease, sl_leases_done *done,
                    void *data)
{
    ask(l, lease, SL_MSG_CREATE, sizeof(*lease), NULL, done, data);
}

void sl_leases_set(struct sl_leases *l, const struct sl_msg_lease *lease, sl_leases_done *done,
                   void *data)
{
    ask(l, lease, SL_MSG_SET, sizeof(*lease), NULL, done, data);
}

void sl_leases_remove(struct sl_leases *l, const char *name, sl_leases_done *done, void *data)
{
    struct sl_msg_lease m = {0};
    (void)snprintf(m.name, sizeof(m.name), "%s", name);
    ask(l, &m, SL_MSG_REMOVE, sizeof(m), NULL, done, data);
}

void sl_leases_list(struct sl_leases *l,
                    void (*each)(void *data, const struct sl_msg_tenant *tenant),
                    sl_leases_done *done, void *data)
{
    ask(l, NULL, SL_MSG_STATUS, sizeof(struct sl_msg), each, done, data);
}
