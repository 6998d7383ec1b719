/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes may connect now. Descriptors are the arbiter's scarcest good, and every process that reaches a
 * tenant's socket can ask for any number. So: a tenant may take one more only while it holds fewer than are left over
 * (one greedy tenant ends with half, two with a third each, and some are always left for the next tenant); a process
 * that connects must say HELLO soon; and a tenant that connects too often waits.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "arbiter/errors.h"
#include "arbiter/lane.h"
#include "base/clock.h"
#include "base/log.h"

/* The arbiter's own descriptors: its own, the driver's, files for a moment. */
#define OWN_DESCRIPTORS    64
/* The descriptors of a tenant without processes: socket, doorbell, creator, two pages. */
#define TENANT_DESCRIPTORS 5
/* Reserved for control clients and new tenants: an eighth, at most this. */
#define RESERVE_MAX        512
/* Connections without a HELLO: of one tenant, of one process of it, and the longest time for a HELLO. libsluice says
 * HELLO at once; newer connections push it out only where hundreds are silent. */
#define SILENT_MAX         256
#define SILENT_PEER_MAX    4
#define HELLO_NS           (5 * SL_NS_PER_S)
/* The rate of a tenant's connections: thousands may start at once, but not again and again. */
#define CONNECT_NS         SL_NS_PER_MS
#define CONNECT_BURST      4096
#define CONNECT_PAUSE_NS   (10 * SL_NS_PER_MS) /* then several pass at once: fewer wake-ups */
/* The rate of packets of one attached process: contexts come and go, but not thousands a second. */
#define HEAR_NS            (10 * SL_NS_PER_MS)
#define HEAR_BURST         64
#define HEAR_PAUSE_NS      (50 * SL_NS_PER_MS)
/* The rates of control connections and of requests of one user of a shared arbiter. A `sluice status` is one connection
 * and one request. */
#define CLIENT_NS          SL_NS_PER_MS
#define CLIENT_BURST       1024
#define ASK_NS             (2 * SL_NS_PER_MS)
#define ASK_BURST          512
#define ASK_PAUSE_NS       (20 * SL_NS_PER_MS)
/* After the kernel refused a descriptor. */
#define PAUSE_NS           (100 * SL_NS_PER_MS)

/* Returns 0 if one more event may pass, or the time before which none may: `burst` events at once, then one each
 * `each_ns`. */
static uint64_t bucket(uint64_t *filled_ns, uint64_t now_ns, uint64_t each_ns, uint64_t burst)
{
    uint64_t at = *filled_ns > now_ns ? *filled_ns : now_ns;
    if (at - now_ns >= each_ns * burst)
        return at - each_ns * burst + 1;
    *filled_ns = at + each_ns;
    return 0;
}

static int64_t held_by(const struct tenant *t)
{
    return 2 * (int64_t)t->member_count + t->visitor_count + sl_lane_held(t->lane);
}

static int64_t left_over(const struct arbiter *a, int64_t *ret_limit)
{
    struct rlimit r;
    int64_t limit = getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < INT32_MAX
                        ? (int64_t)r.rlim_cur
                        : INT32_MAX;
    int64_t used = OWN_DESCRIPTORS + a->client_count + sl_lane_held(a->own_lane);
    for (const struct tenant *t = a->tenants; t; t = t->next)
        used += TENANT_DESCRIPTORS + held_by(t);
    *ret_limit = limit;
    return limit - used;
}

static int64_t held_by_person(const struct arbiter *a, uid_t uid)
{
    int64_t n = 0;
    for (const struct tenant *t = a->tenants; t; t = t->next)
        n += t->owner == uid ? TENANT_DESCRIPTORS + held_by(t) : 0;
    for (const struct client *c = a->clients; c; c = c->next)
        n += c->uid == uid;
    return n;
}

int64_t sl_arb_room(const struct arbiter *a, const struct tenant *t)
{
    int64_t limit, left = left_over(a, &limit);
    int64_t held = sl_arb_is_shared(a, t->owner) ? held_by_person(a, t->owner) : held_by(t);
    return left - (limit / 8 < RESERVE_MAX ? limit / 8 : RESERVE_MAX) - held;
}

int sl_arb_admit_client(struct arbiter *a, const struct client *c, struct sl_err *err)
{
    int64_t limit, left = left_over(a, &limit);
    if (!sl_arb_is_shared(a, c->uid))
        return left > (int64_t)a->client_count ? 0
                                               : sl_err_set(err, -EMFILE, SL_E_ARBITER_DESCRIPTORS);
    if (bucket(&sl_arb_person(a, c->uid)->connected_ns, a->now_ns, CLIENT_NS, CLIENT_BURST))
        return sl_err_set(err, -EBUSY, SL_E_PERSON_BUSY);
    if (left <= held_by_person(a, c->uid))
        return sl_err_set(err, -EMFILE, SL_E_PERSON_DESCRIPTORS);
    return 0;
}

void sl_arb_send_error(int sock, int code, const char *text)
{
    struct sl_msg_text m = {.code = code};
    sl_packet_init(&m.h, SL_MSG_ERROR, sizeof(m));
    (void)snprintf(m.text, sizeof(m.text), "%s", text);
    if (sl_packet_send(sock, &m.h, NULL, 0, NULL) < 0)
        sl_debug("the peer closed the connection before the error could be sent");
}

void sl_arb_refuse(struct arbiter *a, struct tenant *t, int sock, int code, const char *text)
{
    sl_arb_send_error(sock, code, text);
    sl_arb_hang_up(a, t, &(struct source){.fd = sock});
}

/* Accepts no connection until then: the listener is level-triggered and would wake us again at once. */
static void pause_listener(struct arbiter *a, struct source *listener, uint64_t *again_ns,
                           uint64_t until_ns)
{
    struct epoll_event e = {.events = 0, .data.ptr = listener};
    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, listener->fd, &e);
    *again_ns = until_ns;
}

static void resume_listener(struct arbiter *a, struct source *listener, uint64_t *again_ns)
{
    if (*again_ns == 0 || a->now_ns < *again_ns)
        return;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = listener};
    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, listener->fd, &e);
    *again_ns = 0;
}

int sl_arb_accept(struct arbiter *a, struct source *listener, uint64_t *again_ns)
{
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        sl_warn("cannot accept a connection now: the arbiter has no free descriptors or memory");
        pause_listener(a, listener, again_ns, a->now_ns + PAUSE_NS);
    }
    return fd;
}

bool sl_arb_may_connect(struct arbiter *a, struct tenant *t)
{
    uint64_t wait = bucket(&t->connected_ns, a->now_ns, CONNECT_NS, CONNECT_BURST);
    if (wait)
        pause_listener(a, &t->listener, &t->listen_again_ns, wait + CONNECT_PAUSE_NS);
    return wait == 0;
}

void sl_arb_not_counted(struct tenant *t)
{
    t->connected_ns -= CONNECT_NS;
}

void sl_arb_heard(struct arbiter *a, struct member *m)
{
    uint64_t wait = bucket(&m->heard_ns, a->now_ns, HEAR_NS, HEAR_BURST);
    if (!wait)
        return;
    struct tenant *t = m->tenant;
    pause_listener(a, &m->conn, &m->hear_again_ns, wait + HEAR_PAUSE_NS);
    if (t->hear_due_ns == 0 || m->hear_again_ns < t->hear_due_ns)
        t->hear_due_ns = m->hear_again_ns;
}

void sl_arb_asked_again(struct arbiter *a, struct client *c)
{
    if (!sl_arb_is_shared(a, c->uid))
        return;
    struct person *p = sl_arb_person(a, c->uid);
    uint64_t wait = bucket(&p->asked_ns, a->now_ns, ASK_NS, ASK_BURST);
    if (!wait)
        return;
    p->asked_ns += ASK_NS; /* it was answered: it counts */
    if (c->out_head)       /* a client with unread answers is not heard anyway */
        return;
    pause_listener(a, &c->conn, &c->hear_again_ns, wait + ASK_PAUSE_NS);
    if (a->ask_again_ns == 0 || c->hear_again_ns < a->ask_again_ns)
        a->ask_again_ns = c->hear_again_ns;
}

static void hear_clients_again(struct arbiter *a)
{
    a->ask_again_ns = 0;
    for (struct client *c = a->clients; c; c = c->next) {
        if (c->out_head) /* its connection waits to be written to */
            c->hear_again_ns = 0;
        resume_listener(a, &c->conn, &c->hear_again_ns);
        if (c->hear_again_ns && (a->ask_again_ns == 0 || c->hear_again_ns < a->ask_again_ns))
            a->ask_again_ns = c->hear_again_ns;
    }
    sl_arb_people_forget(a, false);
}

static void hear_again(struct arbiter *a, struct tenant *t)
{
    t->hear_due_ns = 0;
    for (struct member *m = t->members; m; m = m->next) {
        if (m->conn.fd < 0)
            m->hear_again_ns = 0;
        resume_listener(a, &m->conn, &m->hear_again_ns);
        if (m->hear_again_ns && (t->hear_due_ns == 0 || m->hear_again_ns < t->hear_due_ns))
            t->hear_due_ns = m->hear_again_ns;
    }
}

/* The oldest silent visitor; of one process, unless pid is 0. The newest are at the front of the list. */
static struct visitor *oldest_silent(const struct tenant *t, pid_t pid, uint32_t *ret_count)
{
    struct visitor *oldest = NULL;
    *ret_count = 0;
    for (struct visitor *v = t->visitors; v; v = v->next)
        if (!v->parked && (pid == 0 || v->peer.pid == pid)) {
            oldest = v;
            ++*ret_count;
        }
    return oldest;
}

void sl_arb_silence(struct arbiter *a, struct visitor *v)
{
    struct tenant *t = v->tenant;
    uint32_t count;
    v->silent_until_ns = a->now_ns + HELLO_NS;
    if (t->hello_due_ns == 0)
        t->hello_due_ns = v->silent_until_ns;
    struct visitor *oldest = oldest_silent(t, v->peer.pid, &count);
    if (count <= SILENT_PEER_MAX) {
        oldest = oldest_silent(t, 0, &count);
        if (count <= SILENT_MAX)
            return;
    }
    if (oldest != v)
        sl_arb_visitor_remove(a, oldest);
}

static void end_silence(struct arbiter *a, struct tenant *t)
{
    t->hello_due_ns = 0;
    for (struct visitor *v = t->visitors, *after; v; v = after) {
        after = v->next;
        if (v->parked)
            continue;
        if (a->now_ns >= v->silent_until_ns)
            sl_arb_visitor_remove(a, v);
        else if (t->hello_due_ns == 0 || v->silent_until_ns < t->hello_due_ns)
            t->hello_due_ns = v->silent_until_ns;
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return b && b < a ? b : a;
}

uint64_t sl_arb_admit_tick(struct arbiter *a)
{
    resume_listener(a, &a->control, &a->control_again_ns);
    if (a->ask_again_ns && a->now_ns >= a->ask_again_ns)
        hear_clients_again(a);
    uint64_t next = sooner(sooner(UINT64_MAX, a->control_again_ns), a->ask_again_ns);
    for (struct tenant *t = a->tenants; t; t = t->next) {
        resume_listener(a, &t->listener, &t->listen_again_ns);
        if (t->hello_due_ns && a->now_ns >= t->hello_due_ns)
            end_silence(a, t);
        if (t->hear_due_ns && a->now_ns >= t->hear_due_ns)
            hear_again(a, t);
        next = sooner(sooner(next, t->listen_again_ns), t->hello_due_ns);
        next = sooner(next, t->hear_due_ns);
    }
    return next;
}
