/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/once.h"

#include "policy/times.h"

/* Reports are late by different times, up to about this. A process that is further behind was stopped. What is busy and
 * not counted for longer was busy beside another process. */
#define LATE_NS (3 * SL_METER_LOOK_NS)

uint64_t sl_once_came(const struct sl_once *once, uint64_t watched_ns)
{
    return once->clock_ns - watched_ns;
}

void sl_once_report(struct sl_once *once, uint64_t *distance_ns, uint64_t watched_ns,
                    uint64_t busy_ns)
{
    int64_t ahead = (int64_t)(watched_ns + *distance_ns - once->clock_ns);
    if (ahead > 0)
        once->clock_ns += (uint64_t)ahead;
    else if (ahead < -(int64_t)LATE_NS) /* it leads again soon after the others end */
        *distance_ns = once->clock_ns - LATE_NS - watched_ns;
    once->owed_ns += busy_ns;
}

uint64_t sl_once_count(struct sl_once *once)
{
    uint64_t watched = once->clock_ns - once->counted_ns;
    uint64_t busy = once->owed_ns < watched ? once->owed_ns : watched;
    once->counted_ns = once->clock_ns;
    once->owed_ns -= busy;
    if (once->owed_ns > LATE_NS)
        once->owed_ns = LATE_NS;
    return busy;
}
