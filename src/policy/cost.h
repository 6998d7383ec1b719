/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates the GPU time of a launch before it runs. Learnt from samples: event pairs that the gate puts around some
 * launches, keyed by function and shape, or by graph.
 *
 * Made for the launch path inside another program's process: fixed size, no allocation, no lock, no syscall. Every
 * function may be called from any thread at any time; races lose a sample or, while an entry changes its key, give one
 * launch another kernel's estimate. With turns, estimates control how much is in flight, so a wrong estimate costs
 * latency. With slices, a tenant beside others is charged for finished kernels by their estimates, between half and all
 * of the time of its slices.
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
        _Atomic uint64_t odd_ns;      /* the last sample, if it did not fit; else 0 */
        _Atomic uint32_t countdown;   /* launches until the next sample */
        _Atomic uint8_t step;         /* samples are 2^step launches apart */
        _Atomic uint8_t samples;      /* up to 255 */
        _Atomic uint16_t heat;        /* launches, ageing: the entry with least makes room */
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
 * The estimate for this launch, and whether to time it: the first launches always, then more and more rarely (2, 4, …
 * 1024 launches apart), often again when a sample does not fit.
 */
struct sl_cost_guess sl_cost_launch(struct sl_cost *cost, uint64_t key);

/* The same without counting a launch: no sample is asked for. */
struct sl_cost_guess sl_cost_peek(struct sl_cost *cost, uint64_t key);

/* The result of a sample. A sample whose events failed is not reported. */
void sl_cost_learn(struct sl_cost *cost, uint64_t key, uint64_t measured_ns);

/* The same for a measurement that was certainly not disturbed: the mean counts, because launches of one key may differ
 * (kernels with a fixed grid, for matrices of any size). */
void sl_cost_learn_mean(struct sl_cost *cost, uint64_t key, uint64_t measured_ns);

/* The same for a measurement that is only an upper limit: it counts until a better one comes. */
void sl_cost_learn_bound(struct sl_cost *cost, uint64_t key, uint64_t measured_ns);

/* The handle of the key is gone, and a new object may get the same handle. */
void sl_cost_forget(struct sl_cost *cost, uint64_t key);

/* The assumed cost of an unknown launch: twice the median of this process's samples. */
uint64_t sl_cost_default_ns(const struct sl_cost *cost);

#endif
