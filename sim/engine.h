/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time on the simulated cards: a discrete-event simulation in the shared state, played forward to the
 * present by whoever looks. Contexts with work take turns, each of the slice of its channel group;
 * operations get exact start and end times. All functions need sl_sim_lock() held.
 */
#ifndef SLUICE_SIM_ENGINE_H
#define SLUICE_SIM_ENGINE_H

#include "sim/state.h"

/* What slices and switches take on a real card. */
void sl_sim_times_init(struct sl_sim_state *st);

/* Plays every card from state->now_ns to now_ns. */
void sl_sim_advance(struct sl_sim_state *st, uint64_t now_ns);

/* A queue for a new context of process slot `proc` on the whole card; its index, or -ENOSPC. */
int sl_sim_queue_create(struct sl_sim_state *st, uint32_t proc, uint32_t card);

/* The same on a part of the card: the lane with this kind and these instances, made if need be. */
int sl_sim_queue_create_in(struct sl_sim_state *st, uint32_t proc, uint32_t card,
                           const struct sl_sim_lane *like);

/* Drops a queue with whatever is in it. */
void sl_sim_queue_destroy(struct sl_sim_state *st, uint32_t queue);

static inline struct sl_sim_op *sl_sim_op_at(struct sl_sim_state *st, uint32_t queue, uint64_t seq)
{
    return &st->rings[queue][seq % SL_SIM_RING];
}

static inline bool sl_sim_queue_full(const struct sl_sim_queue *q)
{
    return q->tail - q->head >= SL_SIM_RING;
}

/* Whether the queue may be on the card: not with all of its compute channels disabled. */
static inline bool sl_sim_queue_runs(const struct sl_sim_queue *q)
{
    return !q->channels || (q->channels & ~q->channels_off) != 0;
}

/* Its slice, from now on; 0 is the machine's own. */
void sl_sim_queue_slice(struct sl_sim_state *st, uint32_t queue, uint64_t slice_ns);

/* Ends the turn of the queue, if it has the card and somebody else wants it. */
void sl_sim_queue_preempt(struct sl_sim_state *st, uint32_t queue);

/* The time is taken of the whole context: if it has nothing to do, whoever has the card is interrupted. */
void sl_sim_queue_marked(struct sl_sim_state *st, uint32_t queue);

/* After a death inside the lock: counts what is ready or running again. */
void sl_sim_kernel_repair(struct sl_sim_state *st, uint32_t queue, uint64_t seq);

/* Appends an operation (kind, flags, engine, priority, stream, room, dep_*, left_ns set) to a queue
 * that is not full; returns its seq. Time must have been played to now. */
uint64_t sl_sim_submit(struct sl_sim_state *st, uint32_t queue, const struct sl_sim_op *op);

/* Whether operation seq of that queue is over; true if the queue is no more. */
bool sl_sim_op_done(struct sl_sim_state *st, uint32_t queue, uint32_t generation, uint64_t seq);

/* The owner of a SPIN, HOST or POLL operation says it is over, now. */
void sl_sim_op_finish(struct sl_sim_state *st, uint32_t queue, uint64_t seq);

/* The least time from now until seq can be over, if nobody else wants the card: a good first
 * sleep. UINT64_MAX when it depends on something else than time. */
uint64_t sl_sim_op_eta_ns(struct sl_sim_state *st, uint32_t queue, uint64_t seq);

/* ---- lanes.c ---- */

void sl_sim_lanes_init(struct sl_sim_card *c);
/* After a death inside the lock, and when a queue is gone. */
void sl_sim_lanes_repair(struct sl_sim_state *st, uint32_t card);

/* The lane's number, or -ENOSPC. */
int sl_sim_lane_find(struct sl_sim_state *st, uint32_t card, const struct sl_sim_lane *like);

/* Whether something of a lane is on the card at t. */
bool sl_sim_lane_plays(const struct sl_sim_state *st, const struct sl_sim_lane *lane, uint64_t t);

/* How fast each lane of a card runs, given which of them have something on the card. */
void sl_sim_lanes_rate(struct sl_sim_state *st, uint32_t card, uint64_t t);

/* The lanes of a card, one by one: 0 first. */
static inline uint32_t sl_sim_lane_next(const struct sl_sim_card *c, uint32_t after)
{
    uint64_t rest = after + 1 < SL_SIM_LANES ? c->lanes_used >> (after + 1) << (after + 1) : 0;
    return rest ? (uint32_t)__builtin_ctzll(rest) : SL_SIM_LANES;
}

#endif
