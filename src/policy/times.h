/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time limits for sharing GPU time: every limit that is a decision, with its reason. The policy, the arbiter and
 * libsluice read them here. Names that begin with SL_TURN are for turns, the fallback where a driver does not let
 * slices be set.
 */
#ifndef SLUICE_POLICY_TIMES_H
#define SLUICE_POLICY_TIMES_H

#define SL_TIME_US 1000ULL
#define SL_TIME_MS 1000000ULL
#define SL_TIME_S  1000000000ULL

/* --- turns: how long -------------------------------------------------------------------------- */

/* The mean turn. A hand-over costs some 0.1 ms, so this loses half a percent to them. */
#define SL_TURN_QUANTUM_NS  (20 * SL_TIME_MS)
/* Each tenant gets a turn within this time, as long as turns are not shorter than the shortest. */
#define SL_TURN_ROUND_NS    (200 * SL_TIME_MS)
/* No turn is shorter: the hand-over would use it up. */
#define SL_TURN_SHORTEST_NS (2 * SL_TIME_MS)
/* A limited tenant that is alone goes on and off in this period. */
#define SL_TURN_PERIOD_NS   (50 * SL_TIME_MS)
/* The most that a limited tenant may save up: a neighbour's long kernel costs it nothing, and a whole second still
 * keeps the limit. */
#define SL_TURN_SAVED_NS    (80 * SL_TIME_MS)
/* A turn with less of the limit left does not go on. */
#define SL_TURN_LEFT_NS     (200 * SL_TIME_US)
/* The most that a tenant may claim from the others after a pause, in time at its full share. A pause between two steps
 * must not cost it its place; sleeping must earn it nothing. */
#define SL_TURN_CLAIM_NS    (200 * SL_TIME_MS)
/* The most that filling the gaps before a tenant on several GPUs may cost later, in the same kind of time. */
#define SL_TURN_FILLED_NS   (1 * SL_TIME_S)
/* No tenant owes more GPU time than this, nor pays its neighbours back for longer than that. */
#define SL_TURN_DEBT_NS     (10 * SL_TIME_S)
#define SL_TURN_REPAY_NS    (30 * SL_TIME_S)

/* --- turns: tenants that do not use their turn ---------------------------------------------- */

/* A tenant that does not begin its turn within this time is stopped, or its machine is overloaded. */
#define SL_TURN_COME_NS  (10 * SL_TIME_MS)
/* A holder without work keeps its turn this long. libsluice has waited SL_TURN_PAUSE_NS before it reports that. */
#define SL_TURN_IDLE_NS  (20 * SL_TIME_US)
/* In the process: a pause shorter than this is part of the work, not its end. */
#define SL_TURN_PAUSE_NS (100 * SL_TIME_US)
/* Work that does not end this long after its turn is passed over: then the hardware shares between it and others. */
#define SL_TURN_DRAIN_NS (50 * SL_TIME_MS)

/* --- turns: every wait of a launch ends ------------------------------------------------------- */

/* Work in flight, in estimated time: a neighbour waits for this when a turn ends. */
#define SL_TURN_WINDOW_NS      (4 * SL_TIME_MS)
/* In the process: how often work in flight is checked, at most and at least. More often costs a processor, less often
 * leaves the GPU idle at a turn's end. */
#define SL_TURN_LOOK_NS        (40 * SL_TIME_US)
#define SL_TURN_LOOK_MOST_NS   (500 * SL_TIME_US)
/* How often a launch at the closed gate checks whether one of the limits below is over. */
#define SL_TURN_WAIT_STEP_NS   (50 * SL_TIME_MS)
/* Work that makes no progress for this long, and twice the time that it should take, may be waiting for a
 * launch that stands at the gate (a host function, kernels of one collective on two GPUs). */
#define SL_TURN_STUCK_NS       (25 * SL_TIME_MS)
/* The estimate of the work in flight counts up to here: a kernel that once waited for another process looks like a long
 * kernel ever after. */
#define SL_TURN_STUCK_MOST_NS  (500 * SL_TIME_MS)
/* No launch waits at the closed gate for longer: a kernel of another tenant may be waiting for it, and both would run
 * into debt. Tenants on several GPUs often do that (collectives). */
#define SL_TURN_LATE_NS        (5 * SL_TIME_S)
#define SL_TURN_LATE_GANG_NS   (250 * SL_TIME_MS)
/* Launches that belong to that launch follow within this time. */
#define SL_TURN_LATE_FOLLOW_NS (10 * SL_TIME_MS)
/* Without an arbiter no process opens the gate: after this long it counts as free. */
#define SL_TURN_ORPHAN_NS      (200 * SL_TIME_MS)

/* --- slices ----------------------------------------------------------------------------------- */

/* A process without a launch for this long reports that it does not want the GPU. */
#define SL_QUIET_NS          (1 * SL_TIME_S)
/* How often a launch of a tenant without a limit is measured, while its use is metered. */
#define SL_SAMPLE_EVERY_NS   (10 * SL_TIME_MS)
/* While a launch is measured, its stream is held until all of the sample is submitted. No stream is held for longer,
 * even if its thread hangs. */
#define SL_SAMPLE_HELD_NS    (2 * SL_TIME_MS)
/* How soon a process tries again to turn its channels on, or checks that it was to turn them off. */
#define SL_ORDERS_AGAIN_NS   (1 * SL_TIME_MS)
/* Channels that were turned off stand still after this long: work that goes on then shows that the order has no effect. */
#define SL_ORDERS_SETTLED_NS (3 * SL_TIME_MS)
/* A process that kept the GPU busy counts as busy for this long when a tenant's slice is chosen. */
#define SL_BUSY_LASTS_NS     (500 * SL_TIME_MS)
/* A process without a report for this long is stopped: its last report expires. */
#define SL_SILENT_NS         (100 * SL_TIME_MS)
/* The effect of slices is measured when two busy tenants have been together for this long, … */
#define SL_EFFECT_FIRST_NS   (2 * SL_TIME_S)
/* … and again so long after it was seen. A measurement takes 2 s and costs 1 % of that time. */
#define SL_EFFECT_EVERY_NS   (600 * SL_TIME_S)
/* If there was none, two tenants take turns for this long, or until one of them goes: a measurement may err. */
#define SL_EFFECT_AGAIN_NS   (3600 * SL_TIME_S)
/* How often a process checks its queues, while its use is metered. */
#define SL_METER_LOOK_NS     (1 * SL_TIME_MS)
/* A stamp (preload/stamps.h) tells of one stream. Once in so many looks, events tell of all streams. So work of any
 * stream is seen soon, and to record such an event, which slows launches down, is rare. */
#define SL_METER_ALL_LOOKS   16U
/* A thread writes a stamp within a few microseconds. A thread that has not written it after so many looks hangs, or is
 * gone. */
#define SL_METER_LATE_LOOKS  16U
/* Less than this without a pause is no steady work: a program that waits for each short kernel has one in the queue all
 * the time, and that kernel mostly waits for its slice. */
#define SL_METER_DEEP_NS     (4 * SL_TIME_MS)
/* This much without a pause keeps the GPU busy in any case. Less counts only where more is launched before it is done:
 * a program that waits for each burst has the burst in its queue until its slice comes, and does not use its slice to
 * the end. */
#define SL_METER_PLENTY_NS   (12 * SL_TIME_MS)
/* Queued work counts for so many times its estimated time, and no longer: kernels behind a host function or an event
 * that does not come are in a queue, too, and use nothing. */
#define SL_METER_BELIEVED    32U
#define SL_METER_BELIEVED_NS (600 * SL_TIME_S)

#endif
