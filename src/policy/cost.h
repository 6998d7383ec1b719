/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launch costs in GPU time, before it runs. Learnt from samples: event pairs that the gate
 * puts around some launches, keyed by function and shape, or by graph.
 *
 * Made for the launch path inside somebody else's process: fixed size, no allocation, no lock, no
 * syscall. Every function may be called from any thread at any time; races lose a sample or, while
 * an entry changes hands, give one launch another kernel's estimate. By turns, estimates
 * steer how much is in flight, so a wrong one costs latency. Where slices share, a tenant beside others is
 * charged for kernels that are done by their estimates, between half and all of what its slices gave it.
 */
#ifndef SLUICE_POLICY_COST_H
#define SLUICE_POLICY_COST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SL_COST_WAYS    8U
#define SL_COST_SETS    512U /* a power of two: 4096 kernels in 128 KiB */
#define SL_COST_CLASSES 96U

struct sl_cost_set {
    _Atomic uint64_t keys[SL_COST_WAYS]; /* one cache line to look through; 0: unused */
    struct {
        _Atomic uint64_t estimate_ns; /* 0: not known yet */
        _Atomic uint64_t odd_ns;      /* the last sample that did not fit, 0: it did fit */
        _Atomic uint32_t countdown;   /* launches until the next sample */
        _Atomic uint8_t step;         /* samples are 2^step launches apart */
        _Atomic uint8_t samples;      /* up to 255 */
        _Atomic uint16_t heat;        /* launches, ageing: the coldest makes room */
    } ways[SL_COST_WAYS];
};

/* All zero is an empty model. */
struct sl_cost {
    struct sl_cost_set sets[SL_COST_SETS];
    _Atomic uint32_t seen[SL_COST_CLASSES]; /* samples by size, half octaves */
    _Atomic uint32_t seen_total;
    _Atomic uint64_t default_ns;
};

struct sl_cost_guess {
    uint64_t ns; /* never 0 */
    bool known;  /* from samples of this very key, not the default */
    bool sample; /* put an event pair around this launch and report it with sl_cost_learn() */
};

/* Never 0. Grid and block are x, y, z. */
uint64_t sl_cost_key(const void *function, const uint32_t grid[3], const uint32_t block[3],
                     uint32_t shared_bytes);
uint64_t sl_cost_key_graph(const void *graph_exec);

/*
 * What to expect of this launch, and whether to time it: the first ones always, then ever more
 * rarely (2, 4, … 1024 launches apart), often again when a sample does not fit.
 */
struct sl_cost_guess sl_cost_launch(struct sl_cost *cost, uint64_t key);

/* The same without counting a launch: no sample is asked for. */
struct sl_cost_guess sl_cost_peek(struct sl_cost *cost, uint64_t key);

/* A sample's outcome. A sample whose events failed is simply not reported. */
void sl_cost_learn(struct sl_cost *cost, uint64_t key, uint64_t measured_ns);

/* The same, of a measurement that is known to be undisturbed: the mean counts, because launches of one key may
 * differ (kernels of a fixed grid, whatever the matrices are like). */
void sl_cost_learn_mean(struct sl_cost *cost, uint64_t key, uint64_t measured_ns);

/* The same, of a measurement that shows no more than an upper bound: it stands until a better one comes. */
void sl_cost_learn_bound(struct sl_cost *cost, uint64_t key, uint64_t measured_ns);

/* The handle behind the key is gone and may come back as something else. */
void sl_cost_forget(struct sl_cost *cost, uint64_t key);

/* What an unknown launch is taken to cost: twice the median of what was seen in this process. */
uint64_t sl_cost_default_ns(const struct sl_cost *cost);

#endif
