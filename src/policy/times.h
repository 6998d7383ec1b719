/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long things may take where GPU time is shared: every limit that is a decision, with its reason.
 * The policy, the arbiter and libsluice read them here. Names that begin with SL_TURN are for turns, the
 * fallback where a driver does not let slices be set.
 */
#ifndef SLUICE_POLICY_TIMES_H
#define SLUICE_POLICY_TIMES_H

#define SL_TIME_US 1000ULL
#define SL_TIME_MS 1000000ULL
#define SL_TIME_S  1000000000ULL

/* --- turns: how long -------------------------------------------------------------------------- */

/* The mean turn. A hand-over costs some 0.1 ms, so this loses half a percent to them. */
#define SL_TURN_QUANTUM_NS  (20 * SL_TIME_MS)
/* Everybody's turn comes within this, as long as turns are not shorter than the shortest. */
#define SL_TURN_ROUND_NS    (200 * SL_TIME_MS)
/* No turn is shorter: a hand-over would eat it. */
#define SL_TURN_SHORTEST_NS (2 * SL_TIME_MS)
/* A limited tenant that is alone goes on and off in this period. */
#define SL_TURN_PERIOD_NS   (50 * SL_TIME_MS)
/* What a limited tenant may save up: it loses nothing by a neighbour's long kernel, and a whole second is
 * not upset. */
#define SL_TURN_SAVED_NS    (80 * SL_TIME_MS)
/* A turn with less of the limit left is not worth going on with. */
#define SL_TURN_LEFT_NS     (200 * SL_TIME_US)
/* What a tenant that pauses may claim of the others afterwards, in time at its full share. A pause between
 * two steps must not cost it its place; sleeping must earn it nothing. */
#define SL_TURN_CLAIM_NS    (200 * SL_TIME_MS)
/* What filling the gaps before a tenant on several GPUs may cost later, in the same kind of time. */
#define SL_TURN_FILLED_NS   (1 * SL_TIME_S)
/* No tenant owes more GPU time than this, nor pays its neighbours back for longer than that. */
#define SL_TURN_DEBT_NS     (10 * SL_TIME_S)
#define SL_TURN_REPAY_NS    (30 * SL_TIME_S)

/* --- turns: holders that do not use theirs -------------------------------------------------- */

/* A tenant that was given a turn and does not begin within this is stopped, or its machine is swamped. */
#define SL_TURN_COME_NS  (10 * SL_TIME_MS)
/* A holder without work keeps its turn this long. libsluice has waited SL_TURN_PAUSE_NS before it says so. */
#define SL_TURN_IDLE_NS  (20 * SL_TIME_US)
/* In the process: a pause shorter than this is part of the work, not its end. */
#define SL_TURN_PAUSE_NS (100 * SL_TIME_US)
/* Work that does not end this long after its turn is passed over: the hardware shares between it and others. */
#define SL_TURN_DRAIN_NS (50 * SL_TIME_MS)

/* --- turns: no launch waits without an end ---------------------------------------------------- */

/* Work in flight, in estimated time: what a neighbour waits for when a turn ends. */
#define SL_TURN_WINDOW_NS      (4 * SL_TIME_MS)
/* In the process: so often work in flight is looked at, at the most and at the least. Sooner costs a processor,
 * later leaves the GPU idle at a turn's end. */
#define SL_TURN_LOOK_NS        (40 * SL_TIME_US)
#define SL_TURN_LOOK_MOST_NS   (500 * SL_TIME_US)
/* So often a launch at the closed gate sees whether one of the limits below is over. */
#define SL_TURN_WAIT_STEP_NS   (50 * SL_TIME_MS)
/* Work that makes no progress for this long, and twice the time that it should take, may be waiting for a
 * launch that stands at the gate (a host function, kernels of one collective on two GPUs). */
#define SL_TURN_STUCK_NS       (25 * SL_TIME_MS)
/* The estimate of what is in flight is believed up to here: a kernel that waited for another process once
 * seems to be a long one ever after. */
#define SL_TURN_STUCK_MOST_NS  (500 * SL_TIME_MS)
/* No launch stands at the closed gate for longer: a kernel of another tenant may be waiting for it, and run up
 * a debt for both. Tenants on several GPUs do that for a living (collectives). */
#define SL_TURN_LATE_NS        (5 * SL_TIME_S)
#define SL_TURN_LATE_GANG_NS   (250 * SL_TIME_MS)
/* What belongs to that launch follows it so soon. */
#define SL_TURN_LATE_FOLLOW_NS (10 * SL_TIME_MS)
/* Without an arbiter nobody opens the gate: after this long it counts as free. */
#define SL_TURN_ORPHAN_NS      (200 * SL_TIME_MS)

/* --- slices ----------------------------------------------------------------------------------- */

/* A process that launched nothing for this long says that it does not want the GPU. */
#define SL_QUIET_NS          (1 * SL_TIME_S)
/* Of a tenant without a limit one launch is measured so often, while somebody wants to know what it uses. */
#define SL_SAMPLE_EVERY_NS   (10 * SL_TIME_MS)
/* A process that kept the GPU busy counts for this long among those that a tenant's slice is for. */
#define SL_BUSY_LASTS_NS     (500 * SL_TIME_MS)
/* A process that says nothing for this long is stopped: what it said last does not go on for ever. */
#define SL_SILENT_NS         (100 * SL_TIME_MS)
/* So often a process looks at its queues, while somebody wants to know what it uses. */
#define SL_METER_LOOK_NS     (1 * SL_TIME_MS)
/* Less than this without a pause is no steady work, however long it takes: a program that waits for each short
 * kernel has one in the queue all the time, most of it spent waiting for its slice. */
#define SL_METER_DEEP_NS     (4 * SL_TIME_MS)
/* This much without a pause keeps the GPU busy in any case. Less does only where more is launched while it is not
 * done: a program that waits for each burst has the burst in its queue until its slice comes, and does not use
 * its slice to the end. */
#define SL_METER_PLENTY_NS   (12 * SL_TIME_MS)
/* Queued work is believed for so many times the time that it should take, and no longer: kernels behind a
 * host function or an event that does not come stand in a queue, too, and use nothing. */
#define SL_METER_BELIEVED    32U
#define SL_METER_BELIEVED_NS (600 * SL_TIME_S)

#endif
