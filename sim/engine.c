/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine plays time in steps. At each instant it settles what takes no time (markers, waits,
 * operations becoming ready), then finds the next instant at which anything can change (a kernel
 * or copy ends, a context switch is done, a turn is over) and moves every card there together, so
 * that dependencies between cards and processes see causes before effects.
 */
#include "sim/engine.h"

#include <errno.h>
#include <string.h>

#define FOREVER    UINT64_MAX
#define MIN_RUN_NS 4000ULL /* on the card, before a turn ends however short the slice */

/* Measured on an H200: the slice libcuda sets, and what two busy tenants get together with slices of
 * 0.2 to 20 ms each. Shares of 29.7 : 70.3 for 3 : 7 ms say that about 90 us of a slice go into
 * putting the context on, sums that a change costs 160 us. bench/sim/slices.c compares. */
#define SLICE_US     2048U
#define SWITCH_NS    160000U
#define SWITCH_IN_NS 90000U

void sl_sim_times_init(struct sl_sim_state *st)
{
    st->slice_ns = (uint32_t)(SLICE_US * SL_SIM_SLICE_UNIT_NS);
    st->switch_ns = SWITCH_NS;
    st->switch_in_ns = SWITCH_IN_NS;
}

int sl_sim_queue_create(struct sl_sim_state *st, uint32_t proc, uint32_t card)
{
    return sl_sim_queue_create_in(st, proc, card, &(struct sl_sim_lane){.kind = SL_SIM_LANE_CARD});
}

int sl_sim_queue_create_in(struct sl_sim_state *st, uint32_t proc, uint32_t card,
                           const struct sl_sim_lane *like)
{
    int lane = sl_sim_lane_find(st, card, like);
    if (lane < 0)
        return lane;
    for (uint32_t i = 0; i < SL_SIM_MAX_QUEUES; i++) {
        struct sl_sim_queue *q = &st->queues[i];
        if (q->used)
            continue;
        uint32_t generation = q->generation + 1;
        memset(q, 0, sizeof(*q));
        q->generation = generation;
        q->proc = proc;
        q->card = card;
        q->lane = (uint32_t)lane;
        if (i >= st->queue_high)
            st->queue_high = i + 1;
        q->used = 1;
        return (int)i;
    }
    return -ENOSPC;
}

void sl_sim_queue_destroy(struct sl_sim_state *st, uint32_t queue)
{
    struct sl_sim_queue *q = &st->queues[queue];
    q->used = 0;
    q->generation++;
    sl_sim_lanes_repair(st, q->card);
}

static bool finished(struct sl_sim_state *st, uint32_t queue, uint64_t seq)
{
    const struct sl_sim_queue *q = &st->queues[queue];
    return seq <= q->first || seq <= q->head ||
           (seq <= q->tail && sl_sim_op_at(st, queue, seq)->state == SL_SIM_OP_DONE);
}

bool sl_sim_op_done(struct sl_sim_state *st, uint32_t queue, uint32_t generation, uint64_t seq)
{
    if (queue >= SL_SIM_MAX_QUEUES || !st->queues[queue].used ||
        st->queues[queue].generation != generation)
        return true;
    return finished(st, queue, seq);
}

uint64_t sl_sim_submit(struct sl_sim_state *st, uint32_t queue, const struct sl_sim_op *op)
{
    struct sl_sim_queue *q = &st->queues[queue];
    uint64_t seq = q->tail + 1;
    struct sl_sim_op *slot = sl_sim_op_at(st, queue, seq);
    *slot = *op;
    slot->stream = (uint16_t)(op->stream % SL_SIM_STREAM_SLOTS);
    slot->state = SL_SIM_OP_PENDING;
    slot->ready_ns = slot->start_ns = slot->end_ns = 0;
    if (q->pending[slot->stream]++ == 0)
        q->active_slots++;
    q->tail = seq; /* last: a death before this leaves the queue as it was */
    return seq;
}

static uint32_t room_of(const struct sl_sim_op *op)
{
    return op->room && op->room < SL_SIM_ROOM ? op->room : SL_SIM_ROOM;
}

static void leave(struct sl_sim_queue *q, const struct sl_sim_op *op, uint64_t seq)
{
    for (uint32_t i = 0; i < q->run_count; i++)
        if (q->run[i] == seq) {
            q->run[i] = q->run[--q->run_count];
            q->run_room -= room_of(op);
            return;
        }
}

void sl_sim_kernel_repair(struct sl_sim_state *st, uint32_t queue, uint64_t seq)
{
    struct sl_sim_queue *q = &st->queues[queue];
    struct sl_sim_op *op = sl_sim_op_at(st, queue, seq);
    if (op->kind == SL_SIM_OP_MARK && op->state == SL_SIM_OP_READY)
        q->marks++;
    if (op->kind != SL_SIM_OP_KERNEL)
        return;
    if (op->state == SL_SIM_OP_RUNNING && q->run_count < SL_SIM_RESIDENT) {
        q->run[q->run_count++] = seq;
        q->run_room += room_of(op);
    } else if (op->state != SL_SIM_OP_PENDING) {
        op->state = SL_SIM_OP_READY;
        q->ready++;
    }
}

static void complete(struct sl_sim_state *st, uint32_t queue, uint64_t seq, uint64_t t)
{
    struct sl_sim_queue *q = &st->queues[queue];
    struct sl_sim_op *op = sl_sim_op_at(st, queue, seq);
    if (op->kind == SL_SIM_OP_SPIN && op->state != SL_SIM_OP_PENDING && q->spinning)
        q->spinning--;
    if (op->kind == SL_SIM_OP_MARK && op->state == SL_SIM_OP_READY && q->marks)
        q->marks--;
    op->end_ns = t;
    if (op->start_ns == 0)
        op->start_ns = t;
    op->left_ns = 0;
    op->state = SL_SIM_OP_DONE;
    if (q->pending[op->stream] && --q->pending[op->stream] == 0)
        q->active_slots--;
    if (op->kind == SL_SIM_OP_KERNEL)
        leave(q, op, seq);
    q->ahead++;
    while (q->first < q->tail && sl_sim_op_at(st, queue, q->first + 1)->state == SL_SIM_OP_DONE) {
        q->first++;
        q->ahead--;
    }
}

void sl_sim_op_finish(struct sl_sim_state *st, uint32_t queue, uint64_t seq)
{
    if (!finished(st, queue, seq))
        complete(st, queue, seq, st->now_ns);
}

static uint64_t scaled(const struct sl_sim_card *c, uint64_t ns)
{
    return c->slow_permille > 1000 ? ns * c->slow_permille / 1000 : ns;
}

/* An operation all of whose predecessors are over, at time t. True if it is now over, too. */
static bool make_ready(struct sl_sim_state *st, uint32_t queue, uint64_t seq, uint64_t t)
{
    struct sl_sim_queue *q = &st->queues[queue];
    struct sl_sim_card *c = &st->cards[q->card];
    struct sl_sim_op *op = sl_sim_op_at(st, queue, seq);
    op->ready_ns = t;
    switch (op->kind) {
    case SL_SIM_OP_KERNEL:
        op->left_ns = op->left_ns ? scaled(c, op->left_ns) : 1;
        op->state = SL_SIM_OP_READY;
        q->ready++;
        return false;
    case SL_SIM_OP_SPIN:
        op->state = SL_SIM_OP_READY;
        q->spinning++;
        return false;
    case SL_SIM_OP_HOST:
    case SL_SIM_OP_POLL:
        if (op->flags & SL_SIM_OPF_MET) {
            complete(st, queue, seq, t);
            return true;
        }
        op->start_ns = t;
        op->state = SL_SIM_OP_RUNNING;
        return false;
    case SL_SIM_OP_COPY: {
        uint64_t *free_at = &c->copy_free_ns[op->engine % 3];
        op->start_ns = *free_at > t ? *free_at : t;
        op->end_ns = *free_at = op->start_ns + op->left_ns;
        op->state = SL_SIM_OP_RUNNING;
        return false;
    }
    default: /* MARK, and WAIT whose dependency is over */
        if (op->flags & SL_SIM_OPF_LANE) {
            op->state = SL_SIM_OP_READY;
            q->marks++;
            return false;
        }
        complete(st, queue, seq, t);
        return true;
    }
}

/* One pass in submission order; stops once every stream with work has been seen blocked. */
static bool settle_queue(struct sl_sim_state *st, uint32_t queue, uint64_t t)
{
    struct sl_sim_queue *q = &st->queues[queue];
    uint64_t blocked[SL_SIM_STREAM_SLOTS / 64] = {0};
    uint32_t blocked_count = 0;
    bool legacy_open = false, blocking_open = false, changed = false;

    for (uint64_t s = q->first + 1; s <= q->tail && blocked_count < q->active_slots; s++) {
        struct sl_sim_op *op = sl_sim_op_at(st, queue, s);
        uint64_t bit = 1ULL << (op->stream % 64);
        if (op->state == SL_SIM_OP_DONE)
            continue;
        bool held = (blocked[op->stream / 64] & bit) != 0 ||
                    ((op->flags & SL_SIM_OPF_LEGACY) && blocking_open) ||
                    ((op->flags & SL_SIM_OPF_BLOCKING) && legacy_open);
        if (op->state == SL_SIM_OP_PENDING && !held &&
            (op->kind != SL_SIM_OP_WAIT ||
             sl_sim_op_done(st, op->dep_queue, op->dep_generation, op->dep_seq))) {
            changed = true;
            if (make_ready(st, queue, s, t))
                continue;
        }
        if (!(blocked[op->stream / 64] & bit)) {
            blocked[op->stream / 64] |= bit;
            blocked_count++;
        }
        legacy_open |= (op->flags & SL_SIM_OPF_LEGACY) != 0;
        blocking_open |= (op->flags & SL_SIM_OPF_BLOCKING) != 0;
    }
    return changed;
}

static void settle(struct sl_sim_state *st, uint64_t t)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < st->queue_high; i++)
            if (st->queues[i].used && st->queues[i].active_slots)
                changed |= settle_queue(st, i, t);
    }
}

/* The kernel to begin next: the most urgent one, the earliest ready among those. 0: none is ready. */
static uint64_t next_kernel(struct sl_sim_state *st, uint32_t queue)
{
    struct sl_sim_queue *q = &st->queues[queue];
    uint64_t best = 0;
    uint32_t seen = 0;
    for (uint64_t s = q->first + 1; s <= q->tail && seen < q->ready; s++) {
        const struct sl_sim_op *op = sl_sim_op_at(st, queue, s);
        if (op->kind != SL_SIM_OP_KERNEL || op->state != SL_SIM_OP_READY)
            continue;
        seen++;
        const struct sl_sim_op *b = best ? sl_sim_op_at(st, queue, best) : NULL;
        if (!b || op->priority < b->priority ||
            (op->priority == b->priority && op->ready_ns < b->ready_ns))
            best = s;
    }
    return best;
}

/* Kernels begin in that order while there is room. None passes another that has to wait for room. */
static void begin_kernels(struct sl_sim_state *st, uint32_t queue, uint64_t t)
{
    struct sl_sim_queue *q = &st->queues[queue];
    while (q->ready && q->run_room < SL_SIM_ROOM && q->run_count < SL_SIM_RESIDENT) {
        uint64_t seq = next_kernel(st, queue);
        struct sl_sim_op *op = seq ? sl_sim_op_at(st, queue, seq) : NULL;
        if (!op || (q->run_count && q->run_room + room_of(op) > SL_SIM_ROOM))
            return;
        op->state = SL_SIM_OP_RUNNING;
        op->start_ns = t;
        q->ready--;
        q->run[q->run_count++] = seq;
        q->run_room += room_of(op);
    }
}

static bool wants_card(const struct sl_sim_queue *q)
{
    return q->used && (q->run_count || q->ready || q->spinning || q->marks) && sl_sim_queue_runs(q);
}

/* The next queue of a lane in turn after `after` that wants the card, or NONE. */
static uint32_t next_in_turn(struct sl_sim_state *st, uint32_t card, uint32_t lane, uint32_t after)
{
    uint32_t n = st->queue_high;
    uint32_t start = after == SL_SIM_NONE ? 0 : after + 1;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (start + k) % n;
        if (i != after && st->queues[i].used && st->queues[i].card == card &&
            st->queues[i].lane == lane && wants_card(&st->queues[i]))
            return i;
    }
    return SL_SIM_NONE;
}

static void begin_spins(struct sl_sim_state *st, uint32_t queue, uint64_t t)
{
    struct sl_sim_queue *q = &st->queues[queue];
    for (uint64_t s = q->first + 1; q->spinning && s <= q->tail; s++) {
        struct sl_sim_op *op = sl_sim_op_at(st, queue, s);
        if (op->kind == SL_SIM_OP_SPIN && op->state == SL_SIM_OP_READY) {
            op->start_ns = t;
            op->state = SL_SIM_OP_RUNNING;
        }
    }
}

/* What takes no time, but a turn. True if something was waiting for that. */
static bool do_marks(struct sl_sim_state *st, uint32_t queue, uint64_t t)
{
    struct sl_sim_queue *q = &st->queues[queue];
    bool any = q->marks > 0;
    for (uint64_t s = q->first + 1; q->marks && s <= q->tail; s++) {
        const struct sl_sim_op *op = sl_sim_op_at(st, queue, s);
        if (op->kind == SL_SIM_OP_MARK && op->state == SL_SIM_OP_READY)
            complete(st, queue, s, t);
    }
    return any;
}

/* Card time as time on a lane: what takes a whole card 1 ms takes 7 on a seventh of one. */
static uint64_t stretched(const struct sl_sim_lane *lane, uint64_t ns)
{
    return lane->rate_permille == 1000
               ? ns
               : (ns * 1000 + lane->rate_permille - 1) / lane->rate_permille;
}

static uint64_t slice_of(const struct sl_sim_state *st, uint32_t queue)
{
    uint64_t own = st->queues[queue].slice_ns;
    return own ? own : st->slice_ns;
}

/* When the turn of whoever has the lane is over. The slice began before the context was on: one that
 * is shorter than putting it on still leaves it a moment. */
static uint64_t slice_end(const struct sl_sim_state *st, const struct sl_sim_lane *c)
{
    uint64_t end = c->slice_start_ns + slice_of(st, c->running);
    uint64_t least = c->switch_until_ns + MIN_RUN_NS;
    return end > least ? end : least;
}

/* Gives the lane to another queue. What is on it in the middle of a kernel must be put away first. */
static void change(struct sl_sim_state *st, struct sl_sim_lane *c, uint32_t to, uint64_t t)
{
    uint64_t takes = 0;
    if (c->running != SL_SIM_NONE) {
        const struct sl_sim_queue *from = &st->queues[c->running];
        takes = from->run_count || from->spinning ? st->switch_ns : st->switch_in_ns;
    }
    c->running = to;
    c->switch_until_ns = t + takes;
    c->slice_start_ns = t + (takes > st->switch_in_ns ? takes - st->switch_in_ns : 0);
}

/* Decides who has a lane at time t, and begins what it runs. Returns when that must be looked at
 * again for another reason than a kernel's end: a switch is done, or a turn over. t itself: more has become
 * ready just now. */
static uint64_t decide(struct sl_sim_state *st, uint32_t card, uint32_t lane, uint64_t t)
{
    struct sl_sim_lane *c = &st->cards[card].lanes[lane];
    if (c->switch_until_ns > t)
        return c->switch_until_ns;

    uint32_t run = c->running;
    bool has_work = run != SL_SIM_NONE && wants_card(&st->queues[run]);
    uint32_t other = next_in_turn(st, card, lane, run);
    if (has_work && t >= slice_end(st, c)) {
        uint64_t slice = slice_of(st, run);
        if (other == SL_SIM_NONE) /* alone: the turns go on, unseen */
            c->slice_start_ns += (t - c->slice_start_ns) / slice * slice;
        else
            has_work = false;
    }
    if (!has_work) {
        if (other == SL_SIM_NONE)
            return FOREVER;
        change(st, c, other, t);
        if (c->switch_until_ns > t)
            return c->switch_until_ns;
        run = other;
        other = next_in_turn(st, card, lane, run);
    }
    begin_spins(st, run, t);
    begin_kernels(st, run, t);
    if (do_marks(st, run, t))
        return t;
    return other == SL_SIM_NONE ? FOREVER : slice_end(st, c);
}

void sl_sim_queue_slice(struct sl_sim_state *st, uint32_t queue, uint64_t slice_ns)
{
    st->queues[queue].slice_ns = slice_ns;
}

void sl_sim_queue_preempt(struct sl_sim_state *st, uint32_t queue)
{
    const struct sl_sim_queue *q = &st->queues[queue];
    struct sl_sim_lane *c = &st->cards[q->card].lanes[q->lane % SL_SIM_LANES];
    uint64_t slice = slice_of(st, queue);
    if (c->running == queue && c->switch_until_ns <= st->now_ns && st->now_ns > slice)
        c->slice_start_ns = st->now_ns - slice;
}

void sl_sim_queue_marked(struct sl_sim_state *st, uint32_t queue)
{
    const struct sl_sim_queue *q = &st->queues[queue];
    struct sl_sim_lane *c = &st->cards[q->card].lanes[q->lane % SL_SIM_LANES];
    if (q->first != q->tail || c->running == queue || !sl_sim_lane_plays(st, c, st->now_ns))
        return;
    c->switch_until_ns = st->now_ns + st->switch_ns;
    c->slice_start_ns += st->switch_ns;
}

/* All lanes of a card at time t; when the next thing happens on any of them. */
static uint64_t schedule(struct sl_sim_state *st, uint32_t card, uint64_t t)
{
    struct sl_sim_card *c = &st->cards[card];
    uint64_t next = FOREVER;
    if (c->lost)
        return FOREVER;
    for (uint32_t l = 0; l < SL_SIM_LANES; l = sl_sim_lane_next(c, l)) {
        uint64_t at = decide(st, card, l, t);
        if (at < next)
            next = at;
    }
    sl_sim_lanes_rate(st, card, t);
    for (uint32_t l = 0; l < SL_SIM_LANES; l = sl_sim_lane_next(c, l)) {
        const struct sl_sim_lane *lane = &c->lanes[l];
        if (!sl_sim_lane_plays(st, lane, t))
            continue;
        const struct sl_sim_queue *q = &st->queues[lane->running];
        for (uint32_t i = 0; i < q->run_count; i++) {
            uint64_t end = t + stretched(lane, sl_sim_op_at(st, lane->running, q->run[i])->left_ns);
            if (end < next)
                next = end;
        }
    }
    return next;
}

/* Notes that from..to was used at a rate: on half a card, half the time counts. */
static void use(struct sl_sim_usage *u, uint64_t from, uint64_t to, uint32_t rate_permille)
{
    u->busy_ns += (to - from) * rate_permille / 1000;
    /* A long unobserved stretch: only the buckets still kept matter. */
    uint64_t span = SL_SIM_BUCKET_NS * SL_SIM_HISTORY;
    if (to - from > span)
        from = to - span;
    while (from < to) {
        uint64_t b = from / SL_SIM_BUCKET_NS;
        uint64_t end = (b + 1) * SL_SIM_BUCKET_NS;
        if (end > to)
            end = to;
        size_t i = b % SL_SIM_HISTORY;
        if (u->history[i].bucket != b) {
            u->history[i].bucket = b;
            u->history[i].busy_ns = 0;
        }
        u->history[i].busy_ns += (end - from) * rate_permille / 1000;
        from = end;
    }
}

static void play_lane(struct sl_sim_state *st, uint32_t card, uint32_t l, uint64_t t, uint64_t t2)
{
    struct sl_sim_lane *lane = &st->cards[card].lanes[l];
    if (!sl_sim_lane_plays(st, lane, t))
        return;
    struct sl_sim_queue *q = &st->queues[lane->running];
    use(&st->cards[card].usage, t, t2, lane->rate_permille);
    use(&st->procs[q->proc].card[card].usage, t, t2, lane->rate_permille);
    uint64_t done = (t2 - t) * lane->rate_permille / 1000;
    q->running_ns += done;
    for (uint32_t i = 0; i < q->run_count;) {
        uint64_t seq = q->run[i];
        struct sl_sim_op *op = sl_sim_op_at(st, lane->running, seq);
        op->left_ns -= done < op->left_ns ? done : op->left_ns;
        if (op->left_ns == 0)
            complete(st, lane->running, seq, t2); /* another is at i now */
        else
            i++;
    }
}

/* Moves a card from t to t2, between which nothing changes. */
static void play(struct sl_sim_state *st, uint32_t card, uint64_t t, uint64_t t2)
{
    struct sl_sim_card *c = &st->cards[card];
    if (c->lost || t2 == t)
        return;
    for (uint32_t l = 0; l < SL_SIM_LANES; l = sl_sim_lane_next(c, l))
        play_lane(st, card, l, t, t2);
}

/* The first copy to end after t, and with `until` the end of those that do by then. */
static uint64_t copies(struct sl_sim_state *st, uint64_t t, bool finish)
{
    uint64_t next = FOREVER;
    for (uint32_t i = 0; i < st->queue_high; i++) {
        struct sl_sim_queue *q = &st->queues[i];
        if (!q->used || !q->active_slots)
            continue;
        const struct sl_sim_card *c = &st->cards[q->card];
        if (c->lost || (c->copy_free_ns[0] < t && c->copy_free_ns[1] < t && c->copy_free_ns[2] < t))
            continue;
        uint32_t seen = 0;
        for (uint64_t s = q->first + 1; s <= q->tail && seen < q->active_slots; s++) {
            struct sl_sim_op *op = sl_sim_op_at(st, i, s);
            if (op->state != SL_SIM_OP_READY && op->state != SL_SIM_OP_RUNNING)
                continue;
            seen++;
            if (op->kind != SL_SIM_OP_COPY)
                continue;
            if (op->end_ns <= t && finish)
                complete(st, i, s, op->end_ns);
            else if (op->end_ns < next)
                next = op->end_ns;
        }
    }
    return next;
}

static void lose(struct sl_sim_state *st, uint64_t now)
{
    for (uint32_t i = 0; i < st->card_count; i++) {
        struct sl_sim_card *c = &st->cards[i];
        if (c->lost_at_ns && !c->lost && c->lost_at_ns <= now) {
            c->lost = 1;
            sl_sim_event_add(st, i, 0x8 /* critical XID */, 79, SL_SIM_NONE, SL_SIM_NONE);
        }
    }
}

/* Everything that happens at time t on all cards; when the next thing does. What takes no time may let
 * something else begin: each round ends at least one operation. */
static uint64_t happen(struct sl_sim_state *st, uint64_t t)
{
    uint64_t next;
    uint32_t rounds = 0;
    do {
        settle(st, t);
        next = FOREVER;
        for (uint32_t i = 0; i < st->card_count; i++) {
            uint64_t at = schedule(st, i, t);
            if (at < next)
                next = at;
        }
    } while (next <= t && ++rounds < SL_SIM_RING);
    return next;
}

void sl_sim_advance(struct sl_sim_state *st, uint64_t now_ns)
{
    lose(st, now_ns);
    uint64_t t = st->now_ns;
    for (;;) {
        uint64_t next = happen(st, t), at = copies(st, t, false);
        if (at < next)
            next = at;
        if (next > now_ns)
            next = now_ns;
        if (next < t)
            next = t;
        for (uint32_t i = 0; i < st->card_count; i++)
            play(st, i, t, next);
        bool stuck = next == t;
        t = next;
        (void)copies(st, t, true);
        st->now_ns = t;
        if (t >= now_ns)
            break;
        if (stuck) /* cannot be: something was due and did not happen */
            t++;
    }
    (void)happen(st, t);
}

uint64_t sl_sim_op_eta_ns(struct sl_sim_state *st, uint32_t queue, uint64_t seq)
{
    struct sl_sim_queue *q = &st->queues[queue];
    uint64_t sum = 0;
    struct sl_sim_lane lane = st->cards[q->card].lanes[q->lane % SL_SIM_LANES];
    lane.rate_permille = lane.share_permille;
    uint16_t stream = sl_sim_op_at(st, queue, seq)->stream;
    for (uint64_t s = q->first + 1; s <= seq; s++) {
        const struct sl_sim_op *op = sl_sim_op_at(st, queue, s);
        if (op->state == SL_SIM_OP_DONE || op->stream != stream)
            continue;
        if (op->kind == SL_SIM_OP_KERNEL)
            sum += stretched(&lane, op->left_ns);
        else if (op->kind == SL_SIM_OP_COPY)
            sum += op->state == SL_SIM_OP_RUNNING && op->end_ns > st->now_ns
                       ? op->end_ns - st->now_ns
                       : op->left_ns;
        else if (op->kind != SL_SIM_OP_MARK)
            return FOREVER;
    }
    return sum;
}
