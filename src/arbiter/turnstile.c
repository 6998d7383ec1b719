/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns between processes: carries what tenants' pages say to the turn-taking (src/policy/turns.h)
 * and its decisions to the lease pages, where a futex wakes who waits. A tenant can only ask and
 * report; the gate word it obeys is in a page it cannot write.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "policy/turns.h"

#define TURN_MASK         0x3fffffffU
/* A doorbell rung more often than this in ten milliseconds is noise or malice: it is read again
 * when the ten milliseconds are over. */
#define RINGS_MAX         500U
#define RINGS_NS          (10 * SL_NS_PER_MS)
/* Windows this short are given beside a tenant of high priority. */
#define SHORT_WINDOW_NS   SL_NS_PER_MS
/* How long a turn's end may be waited for with nothing else done. */
#define AWAIT_NS          (300 * SL_NS_PER_US)
/* What a tenant on standby may have in flight: its turn follows at once. */
#define STANDBY_WINDOW_NS (4 * SL_NS_PER_MS)
/* A tenant that said it waits and does not come within this is stopped, or its machine is swamped:
 * its turn goes on to the next. */
#define COME_NS           (10 * SL_NS_PER_MS)
/*
 * A tenant of high priority that rests while others run comes back to a GPU in use, and every request of it
 * would begin with the arbiter's waking up: 0.1 ms and more on a virtual machine. So the arbiter stays
 * awake for it: only this long after its last turn, and only where there are processors to spare.
 */
#define AWAKE_NS          (100 * SL_NS_PER_MS)
#define AWAKE_PROCESSORS  8

struct turnstile {
    struct sl_turns *turns;
    bool may_stay_awake; /* there are processors enough */
    struct tenant *by_id[SL_TURNS_MAX_TENANTS];
};

static uint32_t gpu_mask(const struct tenant *t)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        mask |= t->gpu[i] < SL_TURNS_MAX_GPUS ? 1U << t->gpu[i] : 0;
    return mask;
}

static struct sl_turns_spec spec_of(const struct tenant *t)
{
    const struct sl_lease_page *p = t->lease.page;
    return (struct sl_turns_spec){
        .gpu_mask = gpu_mask(t),
        .request_permille = atomic_load(&p->cores_request_permille),
        .limit_permille = atomic_load(&p->cores_limit_permille),
        .priority = (enum sl_turns_priority)atomic_load(&p->priority),
    };
}

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

/* What its processes say, summed up: does anyone want the GPU, is anyone still on it? */
static void look(struct arbiter *a, struct tenant *t)
{
    if (t->turn.id == UINT32_MAX || !t->ledger.page)
        return;
    struct sl_turns *turns = a->turnstile->turns;
    bool want = false, undrained = false;
    uint64_t started = 0;
    uint32_t turn = SL_GATE_TURN(atomic_load(&t->lease.page->gate));
    for (const struct member *m = t->members; m; m = m->next) {
        const struct sl_slot *s = &t->ledger.page->slot[m->slot];
        uint32_t busy = atomic_load(&s->busy);
        want |= busy != SL_BUSY_IDLE;
        if (busy == SL_BUSY_RUNNING) {
            undrained |= atomic_load(&s->drained_turn) != turn;
            uint64_t at = atomic_load(&s->started_ns);
            started = at > started ? at : started;
        }
    }
    t->turn.running = started >= t->turn.granted_ns && started;
    sl_turns_want(turns, t->turn.id, want && !t->turn.absent, a->now_ns);
    if (t->turn.running && !t->turn.waiting_release)
        sl_turns_started(turns, t->turn.id, a->now_ns);
    if (t->turn.waiting_release && !undrained) {
        t->turn.waiting_release = false;
        sl_turns_released(turns, t->turn.id, a->now_ns);
    }
}

/* Does somebody of a higher priority stand at the gate of one of its GPUs? */
static bool makes_way(const struct arbiter *a, const struct tenant *t)
{
    uint32_t own = atomic_load(&t->lease.page->priority);
    for (const struct tenant *o = a->tenants; o; o = o->next) {
        const struct sl_lease_page *p = o->lease.page;
        if (o == t || atomic_load(&p->priority) <= own || !(gpu_mask(o) & gpu_mask(t)) ||
            !o->ledger.page)
            continue;
        for (const struct member *m = o->members; m; m = m->next)
            if (atomic_load(&o->ledger.page->slot[m->slot].busy) != SL_BUSY_IDLE)
                return true;
    }
    return false;
}

/*
 * It makes way for a high priority, and all it has in flight is a kernel or two: hearing of their end
 * through the loop would take as long as they do. Letting the other in beside them was worse on an H200
 * (docs/measurements/2026-11-15-compute-h200).
 */
static void await_drain(struct arbiter *a, struct tenant *t)
{
    uint64_t begin = a->now_ns = sl_now_ns();
    while (t->turn.waiting_release && a->now_ns - begin < AWAIT_NS) {
        a->now_ns = sl_now_ns();
        look(a, t);
    }
}

static void carry_out(struct arbiter *a, const struct sl_turns_action *act)
{
    struct tenant *t = a->turnstile->by_id[act->id];
    struct sl_lease_page *p = t->lease.page;
    bool was_free = SL_GATE_STATE(atomic_load(&p->gate)) == SL_GATE_FREE;
    switch (act->kind) {
    case SL_TURNS_FREE:
        /* Others are attached, if idle: what is in flight when they come must stay bounded. */
        if (act->window_ns == 0) {
            sl_arb_gate_set(t, (uint32_t)act->turn, SL_GATE_FREE);
            break;
        }
        __attribute__((fallthrough));
    case SL_TURNS_GRANT:
        if (SL_GATE_STATE(atomic_load(&p->gate)) != SL_GATE_OPEN) {
            t->turn.granted_ns = a->now_ns;
            t->turn.running = false;
        }
        atomic_store(&p->window_ns, act->window_ns);
        atomic_store(&p->window_kernels, act->window_kernels);
        atomic_store(&p->turn_end_ns, act->until_ns);
        sl_arb_gate_set(t, (uint32_t)act->turn, SL_GATE_OPEN);
        if (was_free)
            sl_arb_tell_gate(t);
        break;
    case SL_TURNS_CLOSE:
        t->turn.waiting_release = true;
        sl_arb_gate_set(t, (uint32_t)act->turn, SL_GATE_CLOSED);
        if (was_free)
            sl_arb_tell_gate(t);
        look(a, t); /* nobody was on the GPU: released at once */
        /* On few processors the spinning would take the one that the end is seen with. */
        if (a->turnstile->may_stay_awake && atomic_load(&p->window_ns) < SHORT_WINDOW_NS &&
            makes_way(a, t))
            await_drain(a, t);
        break;
    }
}

/* Who was given a turn and does not come; returns when to look again. */
static uint64_t pass_over_absent(struct arbiter *a)
{
    uint64_t next = UINT64_MAX;
    for (struct tenant *t = a->tenants; t; t = t->next) {
        bool open = SL_GATE_STATE(atomic_load(&t->lease.page->gate)) == SL_GATE_OPEN;
        if (!open || t->turn.running || t->turn.absent || t->turn.id == UINT32_MAX)
            continue;
        uint64_t due = t->turn.granted_ns + COME_NS;
        if (a->now_ns >= due) {
            t->turn.absent = true;
            look(a, t);
        } else if (due < next) {
            next = due;
        }
    }
    return next;
}

/* Is anybody else on, or waiting for, one of its GPUs? */
static bool company(const struct arbiter *a, const struct tenant *t)
{
    for (const struct tenant *o = a->tenants; o; o = o->next) {
        struct sl_turns_stats s;
        if (o != t && o->turn.id != UINT32_MAX && (gpu_mask(o) & gpu_mask(t)) &&
            sl_turns_stats(a->turnstile->turns, o->turn.id, a->now_ns, &s) == 0 &&
            (s.want || s.state != SL_TURNS_IDLE))
            return true;
    }
    return false;
}

/*
 * Standby: with nobody else on its GPUs, an idle tenant of high priority finds its gate open. It begins
 * without asking, and its bell makes the turn official. If that cannot be, its gate closes again.
 */
static void stand_by(struct arbiter *a, struct tenant *t)
{
    struct sl_turns_stats s;
    if (t->turn.id == UINT32_MAX || atomic_load(&t->lease.page->priority) != SL_PRIORITY_HIGH ||
        sl_turns_stats(a->turnstile->turns, t->turn.id, a->now_ns, &s) < 0 ||
        s.state != SL_TURNS_IDLE || t->turn.waiting_release)
        return;
    struct sl_lease_page *p = t->lease.page;
    bool ready = !s.want && s.debt_ns == 0 && !company(a, t);
    if (ready) {
        atomic_store(&p->window_ns, STANDBY_WINDOW_NS);
        atomic_store(&p->window_kernels, 1);
        t->turn.running = true; /* it is not late for anything */
    }
    uint32_t turn = SL_GATE_TURN(atomic_load(&p->gate));
    sl_arb_gate_set(t, turn, ready ? SL_GATE_OPEN : SL_GATE_CLOSED);
}

/* Is this a tenant to stay awake for? */
static bool expected(const struct arbiter *a, const struct tenant *t)
{
    struct sl_turns_stats s;
    return t->turn.id != UINT32_MAX && t->members && t->ledger.page && t->turn.granted_ns &&
           atomic_load(&t->lease.page->priority) == SL_PRIORITY_HIGH &&
           a->now_ns < t->turn.granted_ns + AWAKE_NS &&
           sl_turns_stats(a->turnstile->turns, t->turn.id, a->now_ns, &s) == 0 &&
           s.state == SL_TURNS_IDLE && !s.want && company(a, t);
}

bool sl_arb_turnstile_awake(const struct arbiter *a)
{
    if (!a->turnstile->may_stay_awake)
        return false;
    for (const struct tenant *t = a->tenants; t; t = t->next)
        if (expected(a, t))
            return true;
    return false;
}

bool sl_arb_turnstile_glance(struct arbiter *a)
{
    bool came = false;
    for (struct tenant *t = a->tenants; t; t = t->next) {
        bool here = false;
        if (atomic_load_explicit(&t->lease.page->priority, memory_order_relaxed) !=
                SL_PRIORITY_HIGH ||
            !t->ledger.page || t->turn.absent)
            continue;
        for (const struct member *m = t->members; m && !here; m = m->next)
            here = atomic_load(&t->ledger.page->slot[m->slot].busy) != SL_BUSY_IDLE;
        if (here)
            look(a, t);
        came |= here;
    }
    return came;
}

uint64_t sl_arb_turnstile_tick(struct arbiter *a)
{
    struct sl_turns_action act[16];
    uint64_t next = UINT64_MAX;
    size_t n;
    (void)pass_over_absent(a);
    do {
        n = sl_turns_decide(a->turnstile->turns, a->now_ns, act, 16, &next);
        for (size_t i = 0; i < n; i++)
            carry_out(a, &act[i]);
    } while (n > 0);
    for (struct tenant *t = a->tenants; t; t = t->next)
        stand_by(a, t);
    uint64_t absent = pass_over_absent(a); /* of those who were just given one */
    next = absent < next ? absent : next;
    for (struct tenant *t = a->tenants; t; t = t->next)
        if (t->turn.muted) {
            if (a->now_ns - t->turn.rings_since_ns >= RINGS_NS) {
                struct epoll_event e = {.events = EPOLLIN, .data.ptr = &t->doorbell};
                (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, t->doorbell.fd, &e);
                t->turn.muted = false;
            } else if (t->turn.rings_since_ns + RINGS_NS < next) {
                next = t->turn.rings_since_ns + RINGS_NS;
            }
        }
    return next;
}

void sl_arb_doorbell_ready(struct arbiter *a, struct source *s, uint32_t events)
{
    (void)events;
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
    t->turn.absent = false;
    look(a, t);
}

void sl_arb_turnstile_member_gone(struct arbiter *a, struct tenant *t)
{
    look(a, t);
}

void sl_arb_turnstile_add(struct arbiter *a, struct tenant *t)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_turns_spec spec = spec_of(t);
    t->turn.id = UINT32_MAX;
    uint32_t id = 0;
    while (id < SL_TURNS_MAX_TENANTS && a->turnstile->by_id[id])
        id++;
    /* A MIG instance beyond the turn-taking's reach is a GPU of its own already. */
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
    struct sl_turns_spec spec = spec_of(t);
    if (t->turn.id != UINT32_MAX &&
        sl_turns_set(a->turnstile->turns, t->turn.id, &spec, a->now_ns, &err) < 0)
        sl_error("tenant %s keeps its old cores: %s", t->name, err.msg);
}

void sl_arb_turnstile_remove(struct arbiter *a, struct tenant *t)
{
    if (t->turn.id == UINT32_MAX)
        return;
    sl_turns_remove(a->turnstile->turns, t->turn.id, a->now_ns);
    a->turnstile->by_id[t->turn.id] = NULL;
    t->turn.id = UINT32_MAX;
    /* Its processes may outlive it (a dying arbiter drops tenants): let them run. */
    sl_arb_gate_set(t, 0, SL_GATE_FREE);
}

void sl_arb_turnstile_status(struct arbiter *a, const struct tenant *t, struct sl_msg_tenant *m)
{
    struct sl_turns_stats s;
    if (t->turn.id == UINT32_MAX ||
        sl_turns_stats(a->turnstile->turns, t->turn.id, a->now_ns, &s) < 0)
        return;
    m->share_1s_permille = s.share_1s_permille;
    m->share_60s_permille = s.share_60s_permille;
    m->debt_ns = (int64_t)s.debt_ns;
}

int sl_arb_turnstile_open(struct arbiter *a, struct sl_err *err)
{
    a->turnstile = calloc(1, sizeof(*a->turnstile));
    if (!a->turnstile)
        return sl_err_set(err, -ENOMEM, "out of memory");
    cpu_set_t ours;
    a->turnstile->may_stay_awake =
        sched_getaffinity(0, sizeof(ours), &ours) == 0 && CPU_COUNT(&ours) >= AWAKE_PROCESSORS;
    /* libsluice waits a moment itself before it says that a process is idle. */
    const struct sl_turns_config config = {.idle_ns = 20 * SL_NS_PER_US};
    return sl_turns_create(&config, &a->turnstile->turns, err);
}

void sl_arb_turnstile_close(struct arbiter *a)
{
    sl_turns_destroy(a->turnstile->turns);
    free(a->turnstile);
    a->turnstile = NULL;
}
