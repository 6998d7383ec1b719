/* SPDX-License-Identifier: Apache-2.0 */
/* A condition variable whose timeouts count on the clock of sl_now_ns(). */
#ifndef SLUICE_BASE_COND_H
#define SLUICE_BASE_COND_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"

static inline void sl_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

/* With the lock held; returns with it held. False: the time is over. */
static inline bool sl_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock,
                                      uint64_t until_ns)
{
    struct timespec at = {(time_t)(until_ns / SL_NS_PER_S), (long)(until_ns % SL_NS_PER_S)};
    return pthread_cond_timedwait(cond, lock, &at) == 0;
}

#endif
