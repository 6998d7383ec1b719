/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership: which process belongs to which tenant. A process joins by connecting to the tenant's socket, and leaves
 * when the kernel reports its end; then its memory and its slot are returned.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "arbiter/lane.h"
#include "arbiter/peer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "shm/account.h"
#include "shm/protocol.h"
#include "shm/shared.h"

#define REAP_RETRY_NS (50 * SL_NS_PER_MS)
#define ACCEPT_BATCH  16

/* --- slots ------------------------------------------------------------------------------------ */

static bool slot_taken(const struct tenant *t, uint32_t slot)
{
    return t->slots[slot / 64] >> (slot % 64) & 1;
}

static void slot_mark(struct tenant *t, uint32_t slot, bool taken)
{
    uint64_t bit = 1ULL << (slot % 64);
    if (taken)
        t->slots[slot / 64] |= bit;
    else
        t->slots[slot / 64] &= ~bit;
    t->orphans[slot / 64] &= ~bit;
}

static bool slot_find(const struct tenant *t, bool orphans, uint32_t *ret)
{
    for (uint32_t w = 0; w < SL_PROCESS_SLOTS / 64; w++) {
        uint64_t unfit = t->slots[w] | (orphans ? 0 : t->orphans[w]);
        if (unfit == UINT64_MAX)
            continue;
        *ret = w * 64 + (uint32_t)__builtin_ctzll(~unfit);
        return true;
    }
    return false;
}

static bool slot_owned(const struct tenant *t, uint32_t slot)
{
    for (const struct member *m = t->members; m; m = m->next)
        if (m->slot == slot)
            return true;
    return false;
}

/* After a restart: reserved for the process that had the slot and has not returned yet. */
static bool slot_awaited(const struct tenant *t, uint32_t slot)
{
    return t->recover_until_ns && !slot_owned(t, slot);
}

static int slot_take(struct tenant *t, uint32_t wish, uint32_t *ret, struct sl_err *err)
{
    if (wish < SL_PROCESS_SLOTS && (!slot_taken(t, wish) || slot_awaited(t, wish))) {
        *ret = wish;
    } else if (!slot_find(t, false, ret) && !slot_find(t, true, ret)) {
        return sl_err_set(err, -EAGAIN, SL_E_TENANT_PROCESSES, t->name, SL_PROCESS_SLOTS);
    }
    slot_mark(t, *ret, true);
    return 0;
}

static bool is_slot(uint32_t slot, const void *arg)
{
    return slot == *(const uint32_t *)arg;
}

static void slot_reap(struct arbiter *a, struct tenant *t, uint32_t slot)
{
    struct sl_slot *s = &t->ledger.page->slot[slot];
    bool done = sl_shared_reap(t->ledger.page, is_slot, &slot, sl_arb_descriptor_exists);
    if (!sl_account_reap(t->ledger.page, slot) || !done) {
        t->reap_retry_ns = a->now_ns + REAP_RETRY_NS;
        return;
    }
    atomic_store(&s->pid, 0);
    atomic_store(&s->busy, SL_BUSY_IDLE);
    atomic_store(&s->control, SL_CONTROL_UNKNOWN);
    atomic_store(&s->stays, 0);
    slot_mark(t, slot, false);
}

static bool slot_in_use(const struct tenant *t, uint32_t slot)
{
    bool any = slot_taken(t, slot);
    for (uint32_t g = 0; g < t->gpu_count && !any; g++)
        any = sl_account_slot(t->ledger.page, slot, g) != 0;
    return any;
}

static bool is_orphan(uint32_t slot, const void *arg)
{
    return !slot_owned(arg, slot);
}

bool sl_arb_reap_orphans(struct arbiter *a, struct tenant *t)
{
    bool any = false;
    t->reap_retry_ns = 0;
    if (!sl_shared_reap(t->ledger.page, is_orphan, t, sl_arb_descriptor_exists))
        t->reap_retry_ns = a->now_ns + REAP_RETRY_NS;
    for (uint32_t slot = 0; slot < SL_PROCESS_SLOTS; slot++)
        if (slot_in_use(t, slot) && !slot_owned(t, slot)) {
            slot_reap(a, t, slot);
            t->orphans[slot / 64] |= 1ULL << (slot % 64);
            t->reaped_absent = true;
            any = true;
        }
    return any;
}

/* --- members ---------------------------------------------------------------------------------- */

void sl_arb_member_remove(struct arbiter *a, struct member *m)
{
    struct tenant *t = m->tenant;
    for (struct member **p = &t->members; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            t->member_count--;
            break;
        }
    sl_arb_hang_up(a, t, &m->conn);
    sl_arb_unwatch(a, &m->pidfd);
    free(m);
}

/* No process maps the ledger any more: the next processes start with an empty one, whatever was written into it. */
static void fresh_ledger(struct tenant *t)
{
    struct sl_ledger_map fresh = SL_LEDGER_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    if (sl_ledger_create(t->cookie, t->gpu_count, &fresh, &err) < 0) {
        sl_warn("tenant %s keeps its old ledger, because a new one cannot be made: %s", t->name,
                err.msg);
        sl_account_clear(t->ledger.page);
        sl_shared_clear(t->ledger.page);
    } else {
        sl_ledger_close(&t->ledger);
        t->ledger = fresh;
        memset(t->orphans, 0, sizeof(t->orphans));
        t->reaped_absent = false;
    }
    memset(t->slots, 0, sizeof(t->slots));
    t->reap_retry_ns = 0;
}

/* The slot's next owner begins at zero; the tenant's sums go on. */
static void keep_counters(struct tenant *t, uint32_t slot)
{
    struct sl_slot *s = &t->ledger.page->slot[slot];
    t->past.waited_ns += atomic_exchange(&s->waited_ns, 0);
    t->past.launches += atomic_exchange(&s->launches, 0);
    t->past.oom_count += atomic_exchange(&s->oom_count, 0);
}

static void member_gone(struct arbiter *a, struct member *m)
{
    struct tenant *t = m->tenant;
    uint32_t slot = m->slot;
    keep_counters(t, slot);
    sl_arb_use_left(a, t);
    /* The unexplained part may have been this process's; the next audit tells. */
    memset(t->unexplained_bytes, 0, sizeof(t->unexplained_bytes));
    sl_debug("tenant %s: process %d is gone", t->name, m->pid);
    a->changes++;
    a->ends++;
    sl_arb_member_remove(a, m);
    slot_reap(a, t, slot);
    if (!t->members)
        fresh_ledger(t);
    sl_arb_tenant_overhead(t);
    sl_arb_turnstile_look(a, t);
    t->left = true;
}

static void pidfd_ready(struct arbiter *a, struct source *s)
{
    member_gone(a, sl_container_of(s, struct member, pidfd));
}

/*
 * A live process closed its connection: did it exec (its GPU memory is gone with the old image), or did it only close
 * our descriptor (it still maps the ledger, and nothing changes)? An exec moves program, stack and arguments; the
 * kernel tells their addresses in one line of fixed size. (The list of mappings would tell too, but the process decides
 * how long that is.) Without address randomisation the same command may look the same: then its slot is kept until it
 * ends, or says HELLO as a new program.
 */
static struct image image_of(pid_t pid)
{
    char path[64], line[1024];
    struct image i = {0};
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, pid);
    SL_CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof(line) - 1) : 0;
    line[n > 0 ? n : 0] = '\0';
    const char *p = strrchr(line, ')'); /* the second field; a command may contain anything */
    for (int field = 2; p && field < 48; field++) {
        p = strchr(p + 1, ' ');
        if (p && field + 1 == 23)
            i.bytes = strtoull(p, NULL, 10);
        else if (p && field + 1 == 26)
            i.code = strtoull(p, NULL, 10);
        else if (p && field + 1 == 28)
            i.stack = strtoull(p, NULL, 10);
        else if (p && field + 1 == 48)
            i.arguments = strtoull(p, NULL, 10);
    }
    return i;
}

static bool has_execed(const struct member *m)
{
    struct image now = image_of(m->pid);
    /* No memory at all: the process is about to end, and the pidfd will tell. */
    return now.bytes && (now.code != m->image.code || now.stack != m->image.stack ||
                         now.arguments != m->image.arguments);
}

static void member_hangup(struct arbiter *a, struct member *m)
{
    sl_arb_hang_up(a, m->tenant, &m->conn);
    m->measure_pending = 0;
    if (m->pidfd.fd < 0 || has_execed(m))
        member_gone(a, m);
    /* Otherwise the pidfd reports its end, or the process returns with another HELLO. */
}

static void member_ready(struct arbiter *a, struct source *s)
{
    struct member *m = sl_container_of(s, struct member, conn);
    union sl_packet p;
    int rc = sl_packet_recv(s->fd, &p, NULL, NULL);
    if (rc == -EAGAIN)
        return;
    if (rc == 0 && p.h.type == SL_MSG_MEASURE && p.measure.gpu < m->tenant->gpu_count) {
        sl_arb_measure_ask(a, m, &p.measure);
        sl_arb_heard(a, m);
        return;
    }
    member_hangup(a, m);
}

/* The member of this living process. If an ended process had the same PID, its end is noticed here first. */
static struct member *member_find(struct arbiter *a, struct tenant *t, pid_t pid)
{
    struct member *m = t->members;
    while (m && m->pid != pid)
        m = m->next;
    if (!m || !sl_peer_ended(m->pidfd.fd))
        return m;
    member_gone(a, m);
    return NULL;
}

/* Takes *pidfd; -1 where the kernel has no pidfds. */
static int member_add(struct arbiter *a, struct tenant *t, const struct visitor *v, int *pidfd,
                      struct member **ret, struct sl_err *err)
{
    struct member *m = sl_xcalloc(1, sizeof(*m));
    m->tenant = t;
    m->pid = v->peer.pid;
    (void)snprintf(m->command, sizeof(m->command), "%.*s", (int)sizeof(m->command) - 1,
                   v->hello.command);
    m->conn.fd = -1;
    m->pidfd = (struct source){.fd = sl_take_fd(*pidfd), .ready = pidfd_ready};
    int rc = m->pidfd.fd >= 0 ? sl_arb_watch(a, &m->pidfd, err) : 0;
    if (rc == 0)
        rc = slot_take(t, v->hello.slot, &m->slot, err);
    if (rc < 0) {
        sl_arb_unwatch(a, &m->pidfd);
        free(m);
        return rc;
    }
    sl_arb_compute_member_came(t, m);
    m->next = t->members;
    t->members = m;
    t->member_count++;
    a->changes++;
    sl_arb_measure_joined(a, m,
                          v->hello.slot != SL_NO_SLOT && sl_arb_process_start(m->pid) <= a->born);
    *ret = m;
    return 0;
}

/* The process is known: it lost its connection, or it is a new program with the same PID. */
static void member_again(struct arbiter *a, struct member *m, const struct visitor *v)
{
    sl_arb_hang_up(a, m->tenant, &m->conn);
    m->measure_pending = 0;
    if (v->hello.slot != m->slot) {
        (void)sl_shared_reap(m->tenant->ledger.page, is_slot, &m->slot, sl_arb_descriptor_exists);
        (void)sl_account_reap(m->tenant->ledger.page, m->slot);
        memset(m->overhead_bytes, 0, sizeof(m->overhead_bytes));
        memset(m->reading_bytes, 0, sizeof(m->reading_bytes));
        sl_arb_tenant_overhead(m->tenant);
    }
}

/* --- visitors --------------------------------------------------------------------------------- */

void sl_arb_visitor_remove(struct arbiter *a, struct visitor *v)
{
    for (struct visitor **p = &v->tenant->visitors; *p; p = &(*p)->next)
        if (*p == v) {
            *p = v->next;
            v->tenant->visitor_count--;
            break;
        }
    sl_arb_hang_up(a, v->tenant, &v->conn);
    free(v);
}

static int welcome_send(const struct tenant *t, const struct member *m, struct sl_err *err)
{
    struct sl_msg_welcome w = {.slot = m->slot, .host_pid = (uint32_t)m->pid};
    sl_packet_init(&w.h, SL_MSG_WELCOME, sizeof(w));
    w.h.option = m->protocol;
    const int fds[] = {t->lease.fd, t->ledger.fd, t->doorbell.fd};
    return sl_packet_send(m->conn.fd, &w.h, fds, 3, err);
}

static void welcome(struct arbiter *a, struct visitor *v)
{
    struct tenant *t = v->tenant;
    struct sl_err err = SL_ERR_INIT;
    SL_CLEANUP(close) int pidfd = sl_peer_watch(v->conn.fd, &v->peer);
    if (pidfd == -ESRCH) { /* the kernel may have given its PID to another process */
        sl_debug("tenant %s: process %d ended before its HELLO was read", t->name, v->peer.pid);
        sl_arb_visitor_remove(a, v);
        return;
    }
    struct member *m = member_find(a, t, v->peer.pid);
    int rc = 0;
    if (pidfd < 0 && pidfd != -ENOSYS)
        rc = sl_err_set(&err, pidfd, SL_E_ARBITER_DESCRIPTORS_NOW);
    else if (m)
        member_again(a, m, v);
    else
        rc = member_add(a, t, v, &pidfd, &m, &err);
    if (rc < 0 || !m) {
        sl_warn("tenant %s: process %d is refused: %s", t->name, v->peer.pid, err.msg);
        sl_arb_send_error(v->conn.fd, err.code, err.msg);
        sl_arb_visitor_remove(a, v);
        return;
    }
    m->image = image_of(m->pid);
    m->protocol = v->protocol;
    atomic_store(&t->ledger.page->slot[m->slot].pid, v->hello.own_pid);
    /* Until it says that it is behind the lock, nobody starts without an arbiter. */
    if (v->hello.slot == SL_NO_SLOT)
        atomic_store(&t->ledger.page->slot[m->slot].stays, 0);
    if (!atomic_load(&t->ledger.page->slot[m->slot].stays))
        sl_arb_alone_close(a, t);

    /* The connection changes owner: same descriptor, other source. */
    m->conn = (struct source){.fd = v->conn.fd, .ready = member_ready};
    m->hear_again_ns = 0;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &m->conn};
    (void)epoll_ctl(a->epoll_fd, v->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, m->conn.fd, &e);
    v->conn.fd = -1;
    sl_arb_visitor_remove(a, v);
    if (welcome_send(t, m, &err) < 0)
        member_hangup(a, m);
}

static void welcome_parked(struct arbiter *a, struct tenant *t)
{
    for (struct visitor *v = t->visitors, *after; v; v = after) {
        after = v->next;
        if (v->parked)
            welcome(a, v);
    }
}

/* After a restart the first old process that returns brings the ledger. It is the tenant's own page, so the tenant can
 * only lie about itself, as before. */
static bool adopt_ledger(struct tenant *t, int *page_fd)
{
    struct sl_err err = SL_ERR_INIT;
    if (*page_fd < 0)
        return false;
    if (sl_ledger_attach(*page_fd, t->cookie, &t->ledger, &err) < 0) {
        sl_warn("tenant %s: a ledger that a process brought is refused: %s", t->name, err.msg);
        return false;
    }
    *page_fd = -1;
    /* Until the recovery ends, used slots belong to their old owners: new processes get unused slots. */
    for (uint32_t slot = 0; slot < SL_PROCESS_SLOTS; slot++)
        if (slot_in_use(t, slot) || atomic_load(&t->ledger.page->slot[slot].pid) != 0)
            slot_mark(t, slot, true);
    return true;
}

void sl_arb_recovery_end(struct arbiter *a, struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    bool lost = !t->ledger.page;
    t->recover_until_ns = 0;
    if (!t->ledger.page && sl_ledger_create(t->cookie, t->gpu_count, &t->ledger, &err) < 0) {
        sl_error("tenant %s: %s", t->name, err.msg);
        t->recover_until_ns = a->now_ns + SL_NS_PER_S;
        return;
    }
    a->changes++; /* processes that did not return are checked soon */
    sl_arb_overheads_forget(t);
    if (sl_arb_reap_orphans(a, t) || lost) {
        t->doubt = (1U << t->gpu_count) - 1;
        t->doubt_since_ns = a->now_ns;
    }
    sl_arb_grant_share(a, t->gpu, t->gpu_count);
    welcome_parked(a, t);
}

static void visitor_ready(struct arbiter *a, struct source *s);

/* Keeps the visitor for a while: until its HELLO comes, or a recovery is over. */
static bool visitor_keep(struct arbiter *a, struct visitor *v)
{
    v->conn.ready = visitor_ready;
    if (!v->watched && sl_arb_watch(a, &v->conn, NULL) < 0) {
        sl_arb_visitor_remove(a, v);
        return false;
    }
    v->watched = true;
    return true;
}

/* No packet is there. The first time, other silent visitors may have to make room. */
static void visitor_wait(struct arbiter *a, struct visitor *v)
{
    bool first = !v->watched;
    if (visitor_keep(a, v) && first)
        sl_arb_silence(a, v);
}

/* A process waits only once: it has given up an older HELLO. */
static void visitor_park(struct arbiter *a, struct visitor *v)
{
    for (struct visitor *o = v->tenant->visitors, *after; o; o = after) {
        after = o->next;
        if (o != v && o->parked && o->peer.pid == v->peer.pid)
            sl_arb_visitor_remove(a, o);
    }
    v->parked = true;
    (void)visitor_keep(a, v);
}

/* A process of a version that does not fit: it is told so, in words that every version reads. */
static void refuse_version(const struct tenant *t, int sock, const struct sl_peer *peer,
                           const struct sl_msg *h, const char *why)
{
    sl_warn("tenant %s: process %d is refused: %s", t->name, peer->pid, why);
    sl_packet_refuse(sock, h->version, -EPROTONOSUPPORT, why);
}

/* Its HELLO, perhaps with a page. Takes page_fd. */
static void visitor_hello(struct arbiter *a, struct visitor *v, const struct sl_msg_hello *hello,
                          int page_fd)
{
    struct tenant *t = v->tenant;
    struct sl_err err = SL_ERR_INIT;
    v->hello = *hello;
    if (sl_protocol_agree(SL_PROTOCOLS_OWN, sl_protocols_heard(hello->h.option), &v->protocol,
                          &err) < 0) {
        sl_cleanup_close(&page_fd);
        refuse_version(t, v->conn.fd, &v->peer, &hello->h, err.msg);
        sl_arb_visitor_remove(a, v);
        return;
    }
    bool adopted = !t->ledger.page && adopt_ledger(t, &page_fd);
    sl_cleanup_close(&page_fd);
    if (!t->ledger.page) {
        visitor_park(a, v);
        return;
    }
    welcome(a, v);
    if (adopted) {
        sl_arb_grant_share(a, t->gpu, t->gpu_count);
        welcome_parked(a, t);
    }
}

static void visitor_read(struct arbiter *a, struct visitor *v)
{
    union sl_packet p;
    if (!v->parked && sl_packet_brings_fds(v->conn.fd) == 1) {
        if (v->watched)
            (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, v->conn.fd, NULL);
        sl_arb_receive(a, v->tenant, sl_take_fd(v->conn.fd), &v->peer);
        sl_arb_visitor_remove(a, v);
        return;
    }
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_packet_recv(v->conn.fd, &p, NULL, &err);
    if (rc == -EPROTONOSUPPORT)
        refuse_version(v->tenant, v->conn.fd, &v->peer, &p.h, err.msg);
    if (rc == -EAGAIN)
        visitor_wait(a, v);
    else if (rc < 0 || v->parked || p.h.type != SL_MSG_HELLO)
        sl_arb_visitor_remove(a, v);
    else
        visitor_hello(a, v, &p.hello, -1);
}

static void visitor_ready(struct arbiter *a, struct source *s)
{
    visitor_read(a, sl_container_of(s, struct visitor, conn));
}

static struct visitor *visitor_add(struct tenant *t, int sock, const struct sl_peer *peer)
{
    struct visitor *v = sl_xcalloc(1, sizeof(*v));
    v->peer = *peer;
    v->tenant = t;
    v->conn = (struct source){.fd = sock};
    v->next = t->visitors;
    t->visitors = v;
    t->visitor_count++;
    return v;
}

void sl_arb_visitor_received(struct arbiter *a, struct tenant *t, const struct sl_received *r)
{
    if (r->rc == 0 && r->packet.h.type == SL_MSG_HELLO) {
        visitor_hello(a, visitor_add(t, r->sock, &r->peer), &r->packet.hello, r->page_fd);
        return;
    }
    if (r->rc == -EPROTONOSUPPORT)
        refuse_version(t, r->sock, &r->peer, &r->packet.h, r->why);
    sl_cleanup_close(&r->page_fd);
    sl_arb_hang_up(a, t, &(struct source){.fd = r->sock});
}

void sl_arb_attach_ready(struct arbiter *a, struct source *s)
{
    struct tenant *t = sl_container_of(s, struct tenant, listener);
    int64_t room = sl_arb_room(a, t);
    for (int i = 0; i < ACCEPT_BATCH && sl_arb_may_connect(a, t); i++) {
        int fd = sl_arb_accept(a, s, &t->listen_again_ns);
        if (fd < 0)
            return;
        if (room-- <= 0) {
            sl_arb_refuse(a, t, fd, -EMFILE, SL_E_TENANT_DESCRIPTORS);
            continue;
        }
        struct sl_peer peer = sl_peer_of(fd);
        if (peer.pid > 0 && !sl_arb_may_attach(t, peer.uid)) {
            sl_arb_not_counted(t);
            sl_arb_refuse(a, t, fd, -EPERM, SL_E_ATTACH_FOREIGN);
        } else if (peer.pid > 0)
            visitor_read(a, visitor_add(t, fd, &peer)); /* usually the HELLO is there already */
        else
            sl_arb_hang_up(a, t, &(struct source){.fd = fd});
    }
}
