/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/ring.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add(uint32_t *buckets, uint32_t count, uint64_t *newest, uint64_t width, uint64_t from,
                uint64_t to, uint32_t permille)
{
    uint64_t last = (to - 1) / width;
    uint64_t first = from / width;
    if (last - first >= count)
        first = last - count + 1;
    if (last > *newest) {
        uint64_t stale = least(last - *newest, count);
        for (uint64_t i = 0; i < stale; i++)
            buckets[(last - i) % count] = 0;
        *newest = last;
    }
    for (uint64_t b = first; b <= last; b++) {
        uint64_t lo = most(from, b * width);
        uint64_t hi = least(to, (b + 1) * width);
        uint32_t *at = &buckets[b % count];
        *at = (uint32_t)least(*at + (hi - lo) * permille / 1000, width);
    }
}

void sl_ring_add(struct sl_ring *ring, uint64_t from_ns, uint64_t to_ns, uint32_t used_permille)
{
    if (to_ns <= from_ns)
        return;
    add(ring->fine, SL_RING_FINE_N, &ring->newest, SL_RING_FINE_NS, from_ns, to_ns, used_permille);
    add(ring->coarse, SL_RING_COARSE_N, &ring->newest_coarse, SL_RING_COARSE_NS, from_ns, to_ns,
        used_permille);
}

static uint64_t sum_of(const uint32_t *buckets, uint32_t count, uint64_t newest, uint64_t width,
                       uint64_t now_ns)
{
    uint64_t current = now_ns / width;
    uint64_t sum = 0;
    for (uint64_t k = 0; k < count && k <= current; k++) {
        uint64_t b = current - k;
        if (b > newest || newest - b >= count)
            continue;
        uint64_t value = buckets[b % count];
        if (k == count - 1) /* only the part that is still inside the window */
            value = value * (width - now_ns % width) / width;
        sum += value;
    }
    return sum;
}

uint32_t sl_ring_permille(const struct sl_ring *ring, bool minute, uint64_t now_ns)
{
    uint64_t sum, window;
    if (minute) {
        sum =
            sum_of(ring->coarse, SL_RING_COARSE_N, ring->newest_coarse, SL_RING_COARSE_NS, now_ns);
        /* For a younger tenant: since it came. */
        window = least(SL_RING_COARSE_NS * (SL_RING_COARSE_N - 1),
                       most(now_ns - ring->began_ns, SL_RING_COARSE_NS));
    } else {
        sum = sum_of(ring->fine, SL_RING_FINE_N, ring->newest, SL_RING_FINE_NS, now_ns);
        window = SL_RING_FINE_NS * (SL_RING_FINE_N - 1);
    }
    return (uint32_t)least(sum * 1000 / window, 1000);
}
