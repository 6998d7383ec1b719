/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of one tenant that keep the GPU busy at the same time count once: the GPU has no more time for four of them
 * than for one. Each process reports how long it watched its queue and how long the queue was full, each in steps of its
 * own, up to a millisecond late. So the longest report of each look is too long by a step, look after look. Here the
 * reports become one clock of the tenant, the clock of the process that is ahead, and no more busy time is counted than
 * that clock went on.
 */
#ifndef SLUICE_POLICY_ONCE_H
#define SLUICE_POLICY_ONCE_H

#include <stdint.h>

/* Of a tenant. All zero: no process was seen yet. */
struct sl_once {
    uint64_t clock_ns;   /* the time that its processes watched, counted once */
    uint64_t counted_ns; /* … up to the last count */
    uint64_t owed_ns;    /* busy, and not counted yet */
};

/* A process came, or its counters began anew. Returns the distance of its counter from the tenant's clock. */
uint64_t sl_once_came(const struct sl_once *once, uint64_t watched_ns);

/* The process has watched for so long in all, and was busy for so long since the last report. */
void sl_once_report(struct sl_once *once, uint64_t *distance_ns, uint64_t watched_ns,
                    uint64_t busy_ns);

/* After all processes have reported: the busy time since the last count. */
uint64_t sl_once_count(struct sl_once *once);

#endif
