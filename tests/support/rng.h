/* SPDX-License-Identifier: Apache-2.0 */
/* A seeded generator for property tests: the same seed gives the same test on every machine. */
#ifndef SLUICE_TESTS_SUPPORT_RNG_H
#define SLUICE_TESTS_SUPPORT_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state; /* any seed will do */
};

/* splitmix64 */
static inline uint64_t rng_next(struct rng *r)
{
    uint64_t x = r->state += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* 0 … bound-1, or 0 if bound is 0; the bias does not matter for a test. */
static inline uint64_t rng_below(struct rng *r, uint64_t bound)
{
    return bound ? rng_next(r) % bound : 0;
}

#endif
