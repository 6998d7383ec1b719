/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds. Policy code never calls this: its callers pass `now_ns`. */
#ifndef SLUICE_BASE_CLOCK_H
#define SLUICE_BASE_CLOCK_H

#include <stdint.h>

#define SL_NS_PER_US 1000ULL
#define SL_NS_PER_MS 1000000ULL
#define SL_NS_PER_S  1000000000ULL

uint64_t sl_now_ns(void);
void sl_sleep_ns(uint64_t ns);

#endif
