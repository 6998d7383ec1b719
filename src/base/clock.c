/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

uint64_t sl_now_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * SL_NS_PER_S + (uint64_t)ts.tv_nsec;
}

void sl_sleep_ns(uint64_t ns)
{
    int saved = errno;
    struct timespec ts = {.tv_sec = (time_t)(ns / SL_NS_PER_S),
                          .tv_nsec = (long)(ns % SL_NS_PER_S)};
    while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
        ;
    errno = saved;
}
