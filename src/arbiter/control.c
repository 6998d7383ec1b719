/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket: create, change and list tenants. A slow client must not slow the arbiter down. */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/container.h"
#include "base/xalloc.h"
#include "shm/account.h"

/* An answer that did not fit into the socket yet. */
struct outgoing {
    struct outgoing *next;
    union sl_packet packet;
};

void sl_arb_client_remove(struct arbiter *a, struct client *c)
{
    for (struct client **p = &a->clients; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            a->client_count--;
            break;
        }
    sl_arb_line_left(a, c);
    while (c->out_head) {
        struct outgoing *o = c->out_head;
        c->out_head = o->next;
        free(o);
    }
    sl_arb_hang_up(a, NULL, &c->conn);
    free(c->gids);
    free(c);
}

int sl_arb_client_send(struct arbiter *a, struct client *c, const struct sl_msg *msg)
{
    if (!c->out_head) {
        int rc = sl_packet_send(c->conn.fd, msg, NULL, 0, NULL);
        if (rc != -EAGAIN)
            return rc;
        /* Read no more questions until this answer is sent: answers would pile up here. */
        struct epoll_event e = {.events = EPOLLOUT, .data.ptr = &c->conn};
        (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, c->conn.fd, &e);
    }
    struct outgoing *o = sl_xcalloc(1, sizeof(*o));
    memcpy(&o->packet, msg, msg->size);
    if (c->out_head)
        c->out_tail->next = o;
    else
        c->out_head = o;
    c->out_tail = o;
    return 0;
}

static int flush(struct arbiter *a, struct client *c)
{
    while (c->out_head) {
        struct outgoing *o = c->out_head;
        int rc = sl_packet_send(c->conn.fd, &o->packet.h, NULL, 0, NULL);
        if (rc == -EAGAIN)
            return 0;
        if (rc < 0)
            return rc;
        c->out_head = o->next;
        free(o);
    }
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &c->conn};
    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, c->conn.fd, &e);
    return 0;
}

static int answer_text(struct arbiter *a, struct client *c, enum sl_msg_type type, int code,
                       const char *text)
{
    struct sl_msg_text m = {.code = code};
    sl_packet_init(&m.h, type, sizeof(m));
    (void)snprintf(m.text, sizeof(m.text), "%s", text);
    return sl_arb_client_send(a, c, &m.h);
}

/* The result of a request: OK with a text, or the error. */
static int answer_result(struct arbiter *a, struct client *c, int rc, const struct sl_err *err,
                         const char *text)
{
    return rc < 0 ? answer_text(a, c, SL_MSG_ERROR, rc, err->msg)
                  : answer_text(a, c, SL_MSG_OK, 0, text);
}

static int make_tenant(struct arbiter *a, struct client *c, const struct sl_msg_lease *ask,
                       struct tenant **ret, struct sl_err *err)
{
    if ((ask->flags & (SL_LEASE_WAIT | SL_LEASE_KEEP)) == SL_LEASE_WAIT)
        return sl_arb_line_ask(a, c, ask, ret, err);
    struct sl_line_gpus barred = sl_arb_line_barred(a, ask);
    int rc = sl_arb_tenant_create(a, ask, c, &barred, ret, err);
    if (rc != -ENOSPC || (ask->flags & SL_LEASE_KEEP))
        return rc;
    return sl_arb_ever_fits(a, ask) ? rc : -EFBIG; /* waiting would be of no use */
}

static int on_create(struct arbiter *a, struct client *c, const struct sl_msg_lease *asked)
{
    struct sl_err err = SL_ERR_INIT;
    struct tenant *t = NULL;
    struct sl_msg_lease ask = *asked;
    sl_arb_limits_priority(a, c, &ask);
    int rc = make_tenant(a, c, &ask, &t, &err);
    if (rc == 1) /* it stands in line, and is told so by line.c */
        return 0;
    if (rc < 0)
        return answer_text(a, c, SL_MSG_ERROR, rc, err.msg);
    sl_arb_use_begin(a, t, c->uid);
    struct sl_msg_created m = {.gpu_count = t->gpu_count};
    sl_packet_init(&m.h, SL_MSG_CREATED, sizeof(m));
    memcpy(m.name, t->name, sizeof(m.name));
    sl_arb_attach_path(a, t, m.attach_path, sizeof(m.attach_path));
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        memcpy(m.gpu[i], a->gpu[t->gpu[i]].uuid, sizeof(m.gpu[i]));
        m.memory_limit_bytes[i] = atomic_load(&t->lease.page->gpu[i].memory_limit_bytes);
    }
    rc = sl_arb_client_send(a, c, &m.h);
    if (rc < 0 && !t->kept) { /* the creator is gone: no process would ever use or end the tenant */
        sl_arb_unwatch(a, &t->creator);
        t->left = true;
    }
    return rc;
}

static uint32_t flags_of(const struct tenant *t)
{
    uint32_t flags = t->kept ? SL_LEASE_KEEP : 0;
    if (t->recover_until_ns)
        flags |= SL_LEASE_RETURNING;
    if (t->compute == SL_COMPUTE_SLICES)
        flags |= SL_LEASE_SLICES;
    if (t->compute == SL_COMPUTE_TURNS)
        flags |= SL_LEASE_TURNS;
    if (t->terms.paused)
        flags |= SL_LEASE_PAUSED;
    return flags;
}

static void describe_tenant(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m)
{
    const struct sl_lease_page *p = t->lease.page;
    const struct sl_ledger_page *l = t->ledger.page;
    *m = (struct sl_msg_tenant){
        .processes = t->member_count,
        .priority = atomic_load(&p->priority),
        .cores_request_permille = atomic_load(&p->cores_request_permille),
        .cores_limit_permille = atomic_load(&p->cores_limit_permille),
        .gate = SL_GATE_STATE(atomic_load(&p->gate)),
        .creator_pid = (uint32_t)t->creator_pid,
        .age_ns = a->now_ns - t->created_ns,
        .gpu_count = t->gpu_count,
        .flags = flags_of(t),
        .used_ns = t->use.used_ns + sl_arb_compute_used(a, t),
        .waited_ns = t->past.waited_ns,
        .launches = t->past.launches,
        .oom_count = t->past.oom_count,
    };
    sl_packet_init(&m->h, SL_MSG_TENANT, sizeof(*m));
    m->h.option = SL_OWNER_TOLD(t->owner);
    memcpy(m->about, t->about, sizeof(m->about));
    memcpy(m->name, t->name, sizeof(m->name));
    for (const struct member *k = t->members; k && l; k = k->next) {
        const struct sl_slot *s = &l->slot[k->slot];
        m->waited_ns += atomic_load(&s->waited_ns);
        m->launches += atomic_load(&s->launches);
        m->oom_count += atomic_load(&s->oom_count);
    }
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        memcpy(m->gpu[i].uuid, p->gpu[i].uuid, sizeof(m->gpu[i].uuid));
        m->gpu[i].limit_bytes = atomic_load(&p->gpu[i].memory_limit_bytes);
        m->gpu[i].used_bytes = l ? sl_account_total(l, i) * SL_UNIT_BYTES : 0;
        m->gpu[i].overhead_bytes = atomic_load(&p->gpu[i].overhead_bytes);
    }
    sl_arb_compute_status(a, t, m);
}

static void describe_gpu(struct arbiter *a, uint32_t index, struct sl_msg_gpu *m)
{
    const struct gpu *g = &a->gpu[index];
    *m = (struct sl_msg_gpu){.index = g->index,
                             .total_bytes = g->total_bytes,
                             .used_bytes = g->used_bytes,
                             .compute = g->turns ? SL_COMPUTE_TURNS : SL_COMPUTE_SLICES};
    if (g->turns)
        memcpy(m->compute_why, g->why, sizeof(m->compute_why));
    sl_packet_init(&m->h, SL_MSG_GPU, sizeof(*m));
    memcpy(m->uuid, g->uuid, sizeof(m->uuid));
    memcpy(m->name, g->name, sizeof(m->name));
    for (struct tenant *t = a->tenants; t; t = t->next)
        for (uint32_t i = 0; i < t->gpu_count; i++) {
            uint64_t limit = t->terms.memory_bytes[i];
            if (t->gpu[i] != index)
                continue;
            m->tenants++;
            m->promised_bytes += limit == SL_NO_LIMIT ? 0 : limit;
            m->promised_permille += atomic_load(&t->lease.page->cores_request_permille);
        }
}

static int on_status(struct arbiter *a, struct client *c, uint32_t option)
{
    int rc = 0;
    for (const struct tenant *t = a->tenants; t && rc == 0; t = t->next) {
        struct sl_msg_tenant m;
        describe_tenant(a, t, &m);
        rc = sl_arb_client_send(a, c, &m.h);
    }
    for (uint32_t i = 0; i < a->gpu_count && rc == 0; i++) {
        struct sl_msg_gpu m;
        describe_gpu(a, i, &m);
        rc = sl_arb_client_send(a, c, &m.h);
    }
    for (const struct audit_finding *f = a->findings; f && rc == 0; f = f->next)
        rc = sl_arb_client_send(a, c, &f->msg.h);
    if (rc == 0 && (option & SL_STATUS_LINE))
        rc = sl_arb_line_status(a, c);
    struct sl_msg end;
    sl_packet_init(&end, SL_MSG_END, sizeof(end));
    return rc < 0 ? rc : sl_arb_client_send(a, c, &end);
}

static int on_processes(struct arbiter *a, struct client *c, const struct sl_msg_lease *ask)
{
    struct sl_err err = SL_ERR_INIT;
    char name[SL_NAME_MAX];
    (void)snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, ask->name);
    const struct tenant *t = sl_arb_tenant_find(a, name);
    if (!t) {
        (void)sl_err_set(&err, -ENOENT, SL_E_TENANT_UNKNOWN, name);
        return answer_text(a, c, SL_MSG_ERROR, -ENOENT, err.msg);
    }
    int rc = 0;
    for (const struct member *k = t->members; k && rc == 0; k = k->next) {
        struct sl_msg_process m = {.pid = (uint32_t)k->pid, .gpu_count = t->gpu_count};
        const struct sl_ledger_page *l = t->ledger.page;
        sl_packet_init(&m.h, SL_MSG_PROCESS, sizeof(m));
        m.h.option = k->protocol;
        memcpy(m.command, k->command, sizeof(m.command));
        m.launches = l ? atomic_load(&l->slot[k->slot].launches) : 0;
        m.waited_ns = l ? atomic_load(&l->slot[k->slot].waited_ns) : 0;
        for (uint32_t i = 0; i < t->gpu_count; i++) {
            m.gpu[i].used_bytes = l ? sl_account_slot(l, k->slot, i) * SL_UNIT_BYTES : 0;
            m.gpu[i].overhead_bytes = k->overhead_bytes[i];
        }
        rc = sl_arb_client_send(a, c, &m.h);
    }
    struct sl_msg end;
    sl_packet_init(&end, SL_MSG_END, sizeof(end));
    return rc < 0 ? rc : sl_arb_client_send(a, c, &end);
}

static int on_request(struct arbiter *a, struct client *c, const union sl_packet *p)
{
    struct sl_err err = SL_ERR_INIT;
    char remark[400] = "";
    switch (p->h.type) {
    case SL_MSG_CREATE:
        return on_create(a, c, &p->lease);
    case SL_MSG_SET:
        return answer_result(a, c, sl_arb_tenant_set(a, c, &p->lease, remark, sizeof(remark), &err),
                             &err, remark);
    case SL_MSG_REMOVE:
        return answer_result(a, c, sl_arb_tenant_remove(a, c, &p->lease, &err), &err, "");
    case SL_MSG_STATUS:
        return on_status(a, c, p->h.option);
    case SL_MSG_PROCESSES:
        return on_processes(a, c, &p->lease);
    case SL_MSG_ENDED:
        sl_arb_history_ended(a, c, &p->ended);
        return 0;
    case SL_MSG_HISTORY:
        return sl_arb_history_send(a, c);
    case SL_MSG_PING:
        return answer_text(a, c, SL_MSG_OK, 0, "");
    default:
        return -EPROTO;
    }
}

static void client_ready(struct arbiter *a, struct source *s)
{
    struct client *c = sl_container_of(s, struct client, conn);
    if (c->out_head) { /* the client must read its answers first; no question is read until then */
        if (flush(a, c) < 0)
            sl_arb_client_remove(a, c);
        return;
    }
    union sl_packet p;
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_packet_recv(s->fd, &p, NULL, &err);
    if (rc == -EAGAIN)
        return;
    if (rc == -EPROTONOSUPPORT)
        sl_packet_refuse(s->fd, p.h.version, rc, err.msg);
    if (rc < 0 || on_request(a, c, &p) < 0)
        sl_arb_client_remove(a, c);
    else
        sl_arb_asked_again(a, c);
}

void sl_arb_client_last_words(struct arbiter *a, pid_t pid)
{
    for (struct client *c = a->clients, *after; c; c = after) {
        after = c->next;
        if (c->pid == pid && !c->out_head)
            client_ready(a, &c->conn);
    }
}

void sl_arb_control_ready(struct arbiter *a, struct source *s)
{
    int fd = sl_arb_accept(a, s, &a->control_again_ns);
    if (fd < 0)
        return;
    struct client *c = sl_xcalloc(1, sizeof(*c));
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_arb_identify(a, c, fd, &err);
    if (rc == 0)
        rc = sl_arb_admit_client(a, c, &err);
    if (rc < 0) {
        sl_arb_refuse(a, NULL, fd, rc, err.msg);
        free(c->gids);
        free(c);
        return;
    }
    c->conn = (struct source){.fd = fd, .ready = client_ready};
    c->next = a->clients;
    a->clients = c;
    a->client_count++;
    if (sl_arb_watch(a, &c->conn, NULL) < 0)
        sl_arb_client_remove(a, c);
}
