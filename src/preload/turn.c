/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/turn.h"

#include <string.h>

#include "base/clock.h"
#include "policy/cost.h"
#include "policy/steer.h"
#include "policy/times.h"
#include "preload/attach.h"
#include "preload/flight.h"
#include "preload/lock.h"

static struct {
    struct sl_lock lock;
    _Atomic uint32_t waiting;       /* threads at the gate */
    _Atomic uint32_t turn;          /* the turn in which the process last submitted */
    _Atomic uint64_t late_until_ns; /* launches waited too long: they pass until then */
} turn = {.turn = UINT32_MAX};

static uint32_t gate_word(void)
{
    return atomic_load(atomic_load(&sl_gate_view.word));
}

/* How soon to check work that should take so long. */
static uint64_t pace_ns(uint64_t ahead_ns)
{
    uint64_t ns = ahead_ns / 4;
    return ns < SL_TURN_LOOK_NS        ? SL_TURN_LOOK_NS
           : ns > SL_TURN_LOOK_MOST_NS ? SL_TURN_LOOK_MOST_NS
                                       : ns;
}

/* --- reports to the arbiter --------------------------------------------------------------------- */

/* Updates the slot's `busy`, and rings if it changed. */
static void report(struct sl_process *p, bool linger)
{
    struct sl_slot *slot = sl_process_slot(p);
    uint32_t word = gate_word();
    sl_lock_take(&turn.lock);
    bool drained = sl_flight_empty() && SL_GATE_STATE(word) == SL_GATE_CLOSED;
    bool running = !sl_flight_empty() || (linger && !drained);
    uint32_t busy = running                      ? SL_BUSY_RUNNING
                    : atomic_load(&turn.waiting) ? SL_BUSY_WAITING
                                                 : SL_BUSY_IDLE;
    bool news = atomic_exchange(&slot->busy, busy) != busy;
    if (drained)
        news |= atomic_exchange(&slot->drained_turn, SL_GATE_TURN(word)) != SL_GATE_TURN(word);
    sl_lock_drop(&turn.lock);
    if (news)
        sl_gate_ring(p);
}

/* The first submission of a turn. True: tell the arbiter and the watch thread, after the submission. */
static bool begin_turn(struct sl_process *p, uint32_t number)
{
    struct sl_slot *slot = sl_process_slot(p);
    if (atomic_exchange(&turn.turn, number) == number &&
        atomic_load(&slot->busy) == SL_BUSY_RUNNING)
        return false;
    atomic_store(&slot->started_ns, sl_now_ns());
    atomic_store(&slot->busy, SL_BUSY_RUNNING);
    return true;
}

uint64_t sl_turn_watch(struct sl_process *p)
{
    bool open = SL_GATE_STATE(gate_word()) == SL_GATE_OPEN;
    uint64_t launched_ns = sl_flight_last_launch_ns();
    if (sl_flight_empty()) {
        /* Since the last launch, or since its end was noticed. */
        uint64_t end_ns = sl_flight_progress_ns();
        uint64_t quiet = sl_now_ns() - (end_ns > launched_ns ? end_ns : launched_ns);
        bool linger = open && quiet < SL_TURN_PAUSE_NS;
        report(p, linger);
        /* A launch came meanwhile and saw us still busy: there will be no kick. */
        if (!sl_flight_empty())
            return SL_TURN_LOOK_NS;
        return linger ? SL_TURN_PAUSE_NS - quiet + SL_NS_PER_US : UINT64_MAX;
    }
    if (!open || sl_now_ns() - launched_ns > SL_TURN_PAUSE_NS / 2)
        sl_flight_mark_tails();
    sl_flight_poll();
    report(p, open);
    return open ? pace_ns(sl_flight_ns()) : SL_TURN_LOOK_NS;
}

void sl_turn_forget(void)
{
    memset(&turn, 0, sizeof(turn));
    atomic_store(&turn.turn, UINT32_MAX);
    sl_flight_reset();
}

/* --- the caller's thread ----------------------------------------------------------------------- */

/* Each GPU of a tenant has its own queue to keep full. */
static uint64_t window_ns(struct sl_process *p)
{
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    return atomic_load(&lease->window_ns) * lease->gpu_count;
}

/* The work in flight makes no progress. It may be waiting for this very launch, through a host function, a value in
 * memory or another GPU: so no launch waits for it any longer, until there is progress. */
static bool pass_stuck(struct sl_launch *l)
{
    uint64_t progress = sl_flight_progress_ns(), now = sl_now_ns(), should_ns = 2 * sl_flight_ns();
    should_ns = should_ns < SL_TURN_STUCK_MOST_NS ? should_ns : SL_TURN_STUCK_MOST_NS;
    return !sl_flight_empty() && now > progress && now - progress > SL_TURN_STUCK_NS + should_ns &&
           sl_flight_admit(l, 0);
}

/* The launch waited too long, or follows one that did. It takes no more than a turn would allow. */
static bool pass_late(struct sl_process *p, struct sl_launch *l, uint64_t since)
{
    uint64_t now = sl_now_ns();
    bool gang = atomic_load(&p->lease)->gpu_count > 1;
    bool late = now - since > (gang ? SL_TURN_LATE_GANG_NS : SL_TURN_LATE_NS);
    if (!late && now >= atomic_load(&turn.late_until_ns))
        return false;
    if (late)
        atomic_store(&turn.late_until_ns, now + SL_TURN_LATE_FOLLOW_NS);
    return sl_flight_admit(l, window_ns(p));
}

/* A launch of a paused tenant is not late. */
static bool paused(struct sl_process *p)
{
    uint64_t until = atomic_load(&atomic_load(&p->lease)->paused_until_ns), now = sl_now_ns();
    return until > now && until - now <= SL_STEER_MOST_OFF_NS && sl_process_connected();
}

/* Waits at the closed gate until the word changes. True: go through all the same. */
static bool wait_closed(struct sl_process *p, const _Atomic uint32_t *word, uint32_t seen,
                        struct sl_launch *l)
{
    uint64_t since = sl_now_ns(), late_from = since;
    bool escape = false;
    atomic_fetch_add(&turn.waiting, 1);
    report(p, false);
    /* Ring even without a change: a turn that we missed was taken back, and must be requested again. */
    sl_gate_ring(p);
    sl_watch_kick();
    while (!escape && atomic_load(word) == seen && atomic_load(&sl_gate_view.word) == word) {
        if (paused(p))
            late_from = sl_now_ns();
        else
            escape = pass_late(p, l, late_from);
        if (!escape && sl_flight_empty()) {
            sl_futex_wait(word, seen, SL_TURN_WAIT_STEP_NS, true);
            if (!sl_process_connected() && sl_now_ns() - since > SL_TURN_ORPHAN_NS)
                break;
        } else if (!escape) {
            sl_flight_mark_tails();
            sl_flight_poll();
            escape = pass_stuck(l);
            if (sl_flight_empty())
                report(p, false);
            else if (!escape)
                sl_sleep_ns(SL_TURN_LOOK_NS);
        }
    }
    atomic_fetch_sub(&turn.waiting, 1);
    atomic_fetch_add(&sl_process_slot(p)->waited_ns, sl_now_ns() - since);
    return escape;
}

/* In an open turn: waits for room in the window. False: the gate changed, check again. */
static bool wait_window(struct sl_process *p, const _Atomic uint32_t *word, uint32_t seen,
                        struct sl_launch *l)
{
    uint64_t since = sl_flight_admit(l, window_ns(p)) ? 0 : sl_now_ns();
    bool room = since == 0;
    while (!room && atomic_load(word) == seen) {
        sl_flight_poll();
        room = sl_flight_admit(l, window_ns(p)) || pass_stuck(l);
        if (!room)
            sl_sleep_ns(pace_ns(sl_flight_ns() / 2));
    }
    if (since)
        atomic_fetch_add(&sl_process_slot(p)->waited_ns, sl_now_ns() - since);
    return room;
}

bool sl_turn_enter(struct sl_process *p, struct sl_launch *l)
{
    struct sl_cost_guess guess = sl_cost_launch(&sl_gate_costs, l->key);
    l->estimate_ns = guess.ns;
    while (!l->in_turn) {
        const _Atomic uint32_t *word = atomic_load(&sl_gate_view.word);
        uint32_t seen = atomic_load(word);
        if (SL_GATE_STATE(seen) == SL_GATE_OPEN) {
            l->in_turn = wait_window(p, word, seen, l);
            l->begins = l->in_turn && begin_turn(p, SL_GATE_TURN(seen));
        } else if (SL_GATE_STATE(seen) != SL_GATE_CLOSED) {
            return false;
        } else {
            l->in_turn = wait_closed(p, word, seen, l);
            if (!l->in_turn && !sl_process_connected() && atomic_load(word) == seen)
                break; /* no arbiter, no turns */
        }
    }
    sl_gate_count();
    l->after = l->in_turn;
    if (l->in_turn && guess.sample)
        sl_flight_measure(l);
    return true;
}

void sl_turn_leave(struct sl_launch *l, bool ok)
{
    struct sl_process *p = sl_process_get();
    if (p->mode != SL_MODE_TENANT)
        return;
    sl_flight_left(l, ok, SL_GATE_STATE(gate_word()) == SL_GATE_CLOSED);
    atomic_store_explicit(&sl_process_slot(p)->launches, sl_gate_launches(), memory_order_relaxed);
    if (l->begins) {
        sl_gate_ring(p);
        sl_watch_kick();
    }
}
