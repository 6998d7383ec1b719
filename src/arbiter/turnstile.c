/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns between processes: carries the figures of tenants' pages to the turn-taking (src/policy/turns.h) and its
 * decisions to the lease pages, where a futex wakes waiting processes. A tenant can only ask and report; the gate word
 * that it obeys is in a page that it cannot write.
 */
#include "arbiter/arbiter_internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "policy/times.h"
#include "policy/turns.h"

#define TURN_MASK 0x3fffffffU
/* A doorbell that rings more often than this in ten milliseconds is noise or malice: it is ignored until the ten
 * milliseconds are over. */
#define RINGS_MAX 500U
#define RINGS_NS  (10 * SL_NS_PER_MS)

struct turnstile {
    struct sl_turns *turns;
    struct tenant *by_id[SL_TURNS_MAX_TENANTS];
};

void sl_arb_gate_set(struct tenant *t, uint32_t turn, enum sl_gate state)
{
    _Atomic uint32_t *gate = &t->lease.page->gate;
    uint32_t word = SL_GATE_WORD(turn & TURN_MASK, state);
    if (atomic_exchange(gate, word) != word)
        (void)syscall(SYS_futex, gate, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sl_arb_tell_gate(const struct tenant *t)
{
    struct sl_msg m;
    sl_packet_init(&m, SL_MSG_GATE, sizeof(m));
    for (const struct member *k = t->members; k; k = k->next)
        if (k->conn.fd >= 0 && sl_packet_send(k->conn.fd, &m, NULL, 0, NULL) < 0)
            sl_debug("process %d is not reading", k->pid);
}

/* The sum over its processes: does a process want the GPU, is a process still on it? */
struct said {
    bool wants, undrained;
    uint64_t started_ns; /* when the last process began its turn */
};

static struct said listen_to(const struct tenant *t)
{
    struct said said = {0};
    uint32_t turn = SL_GATE_TURN(atomic_load(&t->lease.page->gate));
    for (const struct member *m = t->ledger.page ? t->members : NULL; m; m = m->next) {
        const struct sl_slot *s = &t->ledger.page->slot[m->slot];
        uint32_t busy = atomic_load(&s->busy);
        said.wants |= busy != SL_BUSY_IDLE;
        if (busy != SL_BUSY_RUNNING)
            continue;
        said.undrained |= atomic_load(&s->drained_turn) != turn;
        uint64_t at = atomic_load(&s->started_ns);
        said.started_ns = at > said.started_ns ? at : said.started_ns;
    }
    return said;
}

static void look_drained(struct arbiter *a, struct tenant *t, const struct said *said)
{
    if (!t->turn.waiting_release || said->undrained)
        return;
    t->turn.waiting_release = false;
    sl_turns_released(a->turnstile->turns, t->turn.id, a->now_ns);
}

void sl_arb_turnstile_look(struct arbiter *a, struct tenant *t)
{
    if (t->turn.id == UINT32_MAX)
        return;
    struct said said = listen_to(t);
    sl_turns_want(a->turnstile->turns, t->turn.id, said.wants, a->now_ns);
    if (said.started_ns >= t->turn.granted_ns && !t->turn.waiting_release)
        sl_turns_started(a->turnstile->turns, t->turn.id, a->now_ns);
    look_drained(a, t, &said);
}

static void carry_out(struct arbiter *a, const struct sl_turns_action *act)
{
    struct tenant *t = a->turnstile->by_id[act->id];
    if (act->kind == SL_TURNS_OPEN) {
        t->turn.granted_ns = a->now_ns;
        atomic_store(&t->lease.page->window_ns, SL_TURN_WINDOW_NS);
        sl_arb_gate_set(t, (uint32_t)act->turn, SL_GATE_OPEN);
        return;
    }
    t->turn.waiting_release = true;
    sl_arb_gate_set(t, (uint32_t)act->turn, SL_GATE_CLOSED);
    struct said said = listen_to(t);
    look_drained(a, t, &said); /* no process was on the GPU: released at once */
}

/* Listens again to a tenant that rang too often; returns the time of the next call. */
static uint64_t unmute(struct arbiter *a, struct tenant *t)
{
    if (!t->turn.muted)
        return UINT64_MAX;
    if (a->now_ns - t->turn.rings_since_ns < RINGS_NS)
        return t->turn.rings_since_ns + RINGS_NS;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &t->doorbell};
    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, t->doorbell.fd, &e);
    t->turn.muted = false;
    return UINT64_MAX;
}

uint64_t sl_arb_turnstile_tick(struct arbiter *a)
{
    struct sl_turns_action act[16];
    uint64_t next = UINT64_MAX;
    size_t n;
    do {
        n = sl_turns_decide(a->turnstile->turns, a->now_ns, act, 16, &next);
        for (size_t i = 0; i < n; i++)
            carry_out(a, &act[i]);
    } while (n > 0);
    for (struct tenant *t = a->tenants; t; t = t->next)
        next = least(next, unmute(a, t));
    return next;
}

void sl_arb_doorbell_ready(struct arbiter *a, struct source *s)
{
    struct tenant *t = sl_container_of(s, struct tenant, doorbell);
    uint64_t count;
    ssize_t ignored = read(s->fd, &count, sizeof(count));
    (void)ignored;
    if (a->now_ns - t->turn.rings_since_ns >= RINGS_NS) {
        t->turn.rings_since_ns = a->now_ns;
        t->turn.rings = 0;
    }
    if (++t->turn.rings > RINGS_MAX) {
        struct epoll_event e = {.events = 0, .data.ptr = s};
        (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, s->fd, &e);
        t->turn.muted = true;
    }
    sl_arb_turnstile_look(a, t);
}

void sl_arb_turnstile_add(struct arbiter *a, struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_steer_spec spec = sl_arb_spec_of(t);
    t->turn.id = UINT32_MAX;
    uint32_t id = 0;
    while (id < SL_TURNS_MAX_TENANTS && a->turnstile->by_id[id])
        id++;
    /* A MIG instance beyond the limits of turn-taking has a GPU of its own already. */
    if (id == SL_TURNS_MAX_TENANTS || spec.gpu_mask == 0)
        return;
    if (sl_turns_add(a->turnstile->turns, id, &spec, a->now_ns, &err) < 0) {
        sl_error("tenant %s gets no turns: %s", t->name, err.msg);
        return;
    }
    t->turn.id = id;
    a->turnstile->by_id[id] = t;
    sl_arb_gate_set(t, 0, SL_GATE_CLOSED);
}

void sl_arb_turnstile_set(struct arbiter *a, struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_steer_spec spec = sl_arb_spec_of(t);
    if (t->turn.id != UINT32_MAX &&
        sl_turns_set(a->turnstile->turns, t->turn.id, &spec, a->now_ns, &err) < 0)
        sl_error("tenant %s keeps its old cores: %s", t->name, err.msg);
}

void sl_arb_turnstile_remove(struct arbiter *a, struct tenant *t)
{
    struct sl_turns_stats s;
    if (t->turn.id == UINT32_MAX)
        return;
    if (sl_turns_stats(a->turnstile->turns, t->turn.id, a->now_ns, &s) == 0)
        t->past.turns_ns += s.held_ns + s.overrun_ns;
    sl_turns_remove(a->turnstile->turns, t->turn.id, a->now_ns);
    a->turnstile->by_id[t->turn.id] = NULL;
    t->turn.id = UINT32_MAX;
    /* Its processes may outlive the tenant (an arbiter that ends drops tenants): let them run. */
    sl_arb_gate_set(t, 0, SL_GATE_FREE);
}

void sl_arb_turnstile_status(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m)
{
    struct sl_turns_stats s;
    if (t->turn.id == UINT32_MAX ||
        sl_turns_stats(a->turnstile->turns, t->turn.id, a->now_ns, &s) < 0)
        return;
    m->used_ns += s.held_ns + s.overrun_ns;
    m->share_1s_permille = s.share_1s_permille;
    m->share_60s_permille = s.share_60s_permille;
    m->debt_ns = (int64_t)s.debt_ns;
}

void sl_arb_turnstile_open(struct arbiter *a)
{
    a->turnstile = sl_xcalloc(1, sizeof(*a->turnstile));
    a->turnstile->turns = sl_turns_create();
}

void sl_arb_turnstile_close(struct arbiter *a)
{
    sl_turns_destroy(a->turnstile->turns);
    free(a->turnstile);
    a->turnstile = NULL;
}
