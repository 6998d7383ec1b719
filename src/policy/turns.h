/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turn-taking: which tenant may submit GPU work now. The fallback where the hardware's slices cannot be set
 * (docs/adr/0007). Weighted exclusive turns. Pure code: no I/O, no clock, no globals, nothing is allocated after
 * create. The caller reports events with their time, then asks sl_turns_decide() for actions and carries them out. Not
 * thread-safe: one owner.
 *
 * Promises, for tenants whose gates obey:
 *  - at most one tenant that is not in overrun holds a GPU; a tenant on several GPUs gets them all
 *    at the same moment or none, and keeps its place in the queue while it waits for the last one;
 *  - among tenants of one priority that have work, GPU time follows the requests (their ratio, so
 *    an overcommitted GPU scales); time that a tenant leaves idle goes to the others at once;
 *  - no tenant exceeds its limit by more than a limited burst; a kernel that outlives its turn is debt
 *    and is paid back by waiting;
 *  - a higher priority goes first, and ends the turn of a lower one as soon as that has drained;
 *  - a holder that does not begin, or does not drain in time, is passed over (OVERRUN): the hardware's own
 *    slicing takes over, its time goes on being charged, and it gets no new turn before it has released.
 *
 * A turn is charged from its grant to its release, on each GPU of the tenant alike. The times are in times.h.
 */
#ifndef SLUICE_POLICY_TURNS_H
#define SLUICE_POLICY_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "policy/steer.h"

#define SL_TURNS_MAX_TENANTS 1024U
#define SL_TURNS_MAX_GPUS    16U
#define SL_TURNS_NEVER       UINT64_MAX

/* The spec is the same as for slices. Here a limit is 1 to 1000, and a priority one of these. */
enum { SL_TURNS_LOW, SL_TURNS_NORMAL, SL_TURNS_HIGH };

enum sl_turns_action_kind {
    SL_TURNS_CLOSE, /* stop submitting; call sl_turns_released() when nothing is in flight */
    SL_TURNS_OPEN,  /* submit, until a CLOSE */
};

struct sl_turns_action {
    enum sl_turns_action_kind kind;
    uint32_t id;
    uint64_t turn; /* counts the tenant's turns; the same for a turn's OPEN and its CLOSE */
};

/* The state of a tenant. The gate is open in CALLED and RUNNING only. */
enum sl_turns_state {
    SL_TURNS_NONE,    /* there is no such tenant */
    SL_TURNS_IDLE,    /* no work */
    SL_TURNS_WOKEN,   /* has work again, and has not had a turn since */
    SL_TURNS_WAITING, /* has work */
    SL_TURNS_CALLED,  /* has its turn, and has not begun to use it */
    SL_TURNS_RUNNING, /* uses its turn */
    SL_TURNS_CLOSING, /* told to stop, draining */
    SL_TURNS_OVERRUN, /* did not drain in time, passed over */
};

struct sl_turns_stats {
    enum sl_turns_state state;
    uint64_t held_ns;            /* charged as the holder */
    uint64_t overrun_ns;         /* charged in overrun: its part of a sliced GPU */
    uint64_t waited_ns;          /* had work and no open gate */
    uint64_t turns;              /* turns begun */
    uint64_t overruns;           /* turns that were not drained in time */
    uint64_t debt_ns;            /* GPU time it owes, to its limit or to its neighbours */
    uint32_t share_1s_permille;  /* of the last second */
    uint32_t share_60s_permille; /* of the last minute, or of its life if that is shorter */
};

struct sl_turns;

struct sl_turns *sl_turns_create(void) SL_MUST_CHECK;
void sl_turns_destroy(struct sl_turns *turns);

/* The caller chooses ids, densely: the cost of a call grows with the number of tenants. A request above the limit is
 * cut to it. -EINVAL, -ERANGE (id), -EEXIST. */
int sl_turns_add(struct sl_turns *turns, uint32_t id, const struct sl_steer_spec *spec,
                 uint64_t now_ns, struct sl_err *err) SL_MUST_CHECK;

/* Changes a tenant while it runs; in force at the next decide. -EINVAL, -ENOENT. */
int sl_turns_set(struct sl_turns *turns, uint32_t id, const struct sl_steer_spec *spec,
                 uint64_t now_ns, struct sl_err *err) SL_MUST_CHECK;

/* Its GPUs are free at once. Unknown ids are ignored here and in every event below: a report may be late. */
void sl_turns_remove(struct sl_turns *turns, uint32_t id, uint64_t now_ns);

/* want: launches wait or work is in flight; !want: neither. A repeated report is harmless, except that a tenant that
 * missed its turn gets no other before this reports that it wants one. */
void sl_turns_want(struct sl_turns *turns, uint32_t id, bool want, uint64_t now_ns);

/* The first submission of the turn has reached the GPU. */
void sl_turns_started(struct sl_turns *turns, uint32_t id, uint64_t now_ns);

/* The gate is shut and nothing is in flight. Ends a turn that was told to CLOSE; otherwise changes nothing, so a stray
 * message cannot leave an open gate unaccounted for. */
void sl_turns_released(struct sl_turns *turns, uint32_t id, uint64_t now_ns);

/*
 * The actions to take now: fills up to max actions, CLOSEs first, and returns their number. *ret_next_wake_ns is when
 * to call again if nothing happens before (SL_TURNS_NEVER: no need; now_ns: there was no room for all actions). Time
 * that goes back counts as no time.
 */
size_t sl_turns_decide(struct sl_turns *turns, uint64_t now_ns, struct sl_turns_action *actions,
                       size_t max, uint64_t *ret_next_wake_ns);

/* -ENOENT if there is no such tenant. */
int sl_turns_stats(struct sl_turns *turns, uint32_t id, uint64_t now_ns,
                   struct sl_turns_stats *ret) SL_MUST_CHECK;

#endif
