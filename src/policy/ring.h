/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant's recent GPU time: in the last second, and in the last minute. */
#ifndef SLUICE_POLICY_RING_H
#define SLUICE_POLICY_RING_H

#include <stdbool.h>
#include <stdint.h>

#define SL_RING_FINE_NS   50000000ULL   /* buckets of the 1 s window */
#define SL_RING_FINE_N    21U           /* one more than the window: the oldest counts in part */
#define SL_RING_COARSE_NS 1000000000ULL /* buckets of the 60 s window */
#define SL_RING_COARSE_N  61U

struct sl_ring {
    uint64_t began_ns;
    uint64_t newest; /* bucket number (time / width) of the newest bucket */
    uint32_t fine[SL_RING_FINE_N];
    uint64_t newest_coarse;
    uint32_t coarse[SL_RING_COARSE_N];
};

/* The tenant used used_permille of the GPU's time from `from_ns` to `to_ns`. */
void sl_ring_add(struct sl_ring *ring, uint64_t from_ns, uint64_t to_ns, uint32_t used_permille);

/* Of the last minute (or since the tenant came, if that is shorter), else of the last second. */
uint32_t sl_ring_permille(const struct sl_ring *ring, bool minute, uint64_t now_ns);

#endif
