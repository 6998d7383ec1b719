/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for turn-taking on virtual time: GPUs that run one context at a time (or slice evenly
 * when several have work), tenants with a gate that obeys the actions, a cost for each hand-over.
 * Nothing waits: the world jumps from event to event.
 */
#ifndef SLUICE_TESTS_TURNS_WORLD_H
#define SLUICE_TESTS_TURNS_WORLD_H

#include "policy/times.h"
#include "policy/turns.h"
#include "../support/rng.h"

#define US 1000ULL
#define MS 1000000ULL
#define S  1000000000ULL

#define WORLD_TENANTS   64U
#define WORLD_SAMPLES   1300U
#define WORLD_SAMPLE_NS (100 * MS)

struct world_load {
    uint64_t kernel_ns;
    uint64_t burst_ns; /* GPU time of one burst of work; 0: never out of work */
    uint64_t think_ns; /* pause after a burst */
    bool stopped;      /* as after SIGSTOP: gate, queue and messages frozen */
};

struct world_tenant {
    bool used;
    struct sl_steer_spec spec;
    struct world_load load;
    /* the gate */
    bool open, closing;
    uint64_t ready_ns;
    bool started;
    /* the work */
    bool wants;
    uint64_t left_ns, in_flight_ns, think_until_ns;
    /* the results */
    uint64_t done_ns; /* GPU time really got, on each of its GPUs */
    uint64_t grants, closes;
    uint64_t asked_ns; /* when the present burst began */
    uint64_t first_ns; /* … and its first kernel ran */
    uint64_t bursts, delay_sum_ns, delay_max_ns;
    uint64_t done_at[WORLD_SAMPLES];
};

struct world {
    struct sl_turns *turns;
    uint64_t now_ns, wake_ns, start_ns;
    uint64_t handover_ns;
    uint64_t steps, samples;
    uint32_t last_on[SL_TURNS_MAX_GPUS];
    struct world_tenant t[WORLD_TENANTS];
    char fault[512]; /* the first broken invariant, empty if none */
};

void world_init(struct world *w, uint64_t handover_ns);
void world_fini(struct world *w);
void world_add(struct world *w, uint32_t id, struct sl_steer_spec spec, struct world_load load);
void world_set(struct world *w, uint32_t id, struct sl_steer_spec spec);
void world_remove(struct world *w, uint32_t id);
/* A new load from now on; burst and pause start afresh. */
void world_load_set(struct world *w, uint32_t id, struct world_load load);
void world_run(struct world *w, uint64_t ns);

/* Permille of [from, to) after the world's start, in samples of 100 ms. */
uint32_t world_share(const struct world *w, uint32_t id, uint64_t from_ns, uint64_t to_ns);
/* The widest miss of any 1 s window in [from, to) against a share, in permille. */
uint32_t world_worst_second(const struct world *w, uint32_t id, uint32_t share_permille,
                            uint64_t from_ns, uint64_t to_ns);
/* The expected shares of saturating tenants on GPU 0 with these specs: weights, then caps. */
void world_expected(const struct world *w, uint32_t *ret_permille);

/* Checks the invariants inside turn-taking (turns_check.c): 0 or -EPROTO. */
int turns_check(const struct sl_turns *turns, struct sl_err *err);

#endif
