/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for steering, on virtual time: GPUs that run channel groups round robin by slice, programs of
 * several kinds, processes that look at their queues each millisecond and obey orders, and an arbiter
 * that carries reports and orders between them. Nothing waits: the world jumps from event to event.
 */
#ifndef SLUICE_TESTS_STEER_WORLD_H
#define SLUICE_TESTS_STEER_WORLD_H

#include "policy/once.h"
#include "policy/steer.h"

#define US 1000ULL
#define MS 1000000ULL
#define S  1000000000ULL

#define WORLD_TENANTS   64U
#define WORLD_PROCS     80U
#define WORLD_GPUS      4U
#define WORLD_LATENCIES 512U

/* The work of a program: bursts of kernels, launched one after the other, then it waits for them. */
struct world_load {
    uint64_t kernel_ns;
    uint32_t count;     /* kernels in a burst; 0: its queue is never empty */
    uint64_t launch_ns; /* host time of one launch */
    uint32_t uneven;    /* permille: in a burst, launches take up to so much more or less */
    uint64_t think_ns;  /* host time after a burst, give or take a tenth */
    uint64_t period_ns; /* a burst begins so often; 0: after think_ns */
    uint32_t
        gang; /* kernels of processes with the same number go on together or not at all; 0: none */
};

struct world_proc {
    bool used;
    uint32_t tenant, gpu;
    struct world_load load;
    /* the program */
    uint32_t left;       /* of a burst, still to launch … */
    uint64_t launch_ns;  /* … one each */
    bool waits;          /* for its burst to be done */
    uint64_t host_at_ns; /* its next step */
    uint64_t asked_ns;   /* when the burst began */
    uint64_t launched_at_ns;
    /* its channels */
    uint64_t queue_ns;
    bool off;              /* in force, after the call into the driver */
    uint64_t switch_at_ns; /* when the call that turns them off or on is through */
    /* its meter, as in src/preload/meter.c */
    uint64_t submitted_ns, executed_ns, launches, launches_rest_ns;
    uint64_t look_at_ns, looked_ns, fresh_from_ns, total_ns, marked_ns, mark_ns, done_ns,
        believed_ns;
    uint64_t obey_at_ns, off_since_ns;
    bool pending, coming;
    uint64_t owed_ns;
    uint64_t saturated_ns, work_ns, watched_ns, seen_launches, metered_ns,
        told_done_ns; /* its ledger */
    uint64_t before_saturated_ns, before_work_ns, distance_ns, before_launches, before_done_ns,
        busy_until_ns;
};

struct world_tenant {
    bool used;
    struct sl_steer_spec spec;
    struct sl_steer_order order;
    struct sl_steer_seen seen;
    struct sl_once once;
    bool was_active;
    void (*lie)(struct sl_steer_seen *seen, uint64_t now_ns);
    /* the results */
    uint64_t ran_ns;      /* GPU time it had, on all of its GPUs together */
    uint64_t progress_ns; /* … in which its kernels went on: a gang's spin while they wait */
    uint64_t bursts, latency_max_ns, latency_sum_ns;
    /* how many bursts took so many times 50 us; the last: longer, too */
    uint32_t latencies[WORLD_LATENCIES];
    uint64_t orders, offs; /* told; … of which took it off */
    uint64_t off_at_ns, longest_off_ns;
};

struct world_gpu {
    uint32_t on, last; /* process numbers */
    uint64_t ready_ns; /* the switch to it is through */
    uint64_t slice_end_ns;
    uint64_t
        starved_at_ns; /* since when no process with work is on, though there is no limit; 0: not so */
};

struct world {
    struct sl_steer *steer;
    uint64_t now_ns, wake_ns, jitter;
    uint64_t decides, orders;
    bool deaf;  /* no process obeys: the hardware alone shares */
    bool inert; /* slices are accepted and do nothing */
    uint32_t n_gpus, n_procs;
    struct world_gpu gpu[WORLD_GPUS];
    struct world_tenant t[WORLD_TENANTS];
    struct world_proc p[WORLD_PROCS];
    char fault[512]; /* the first broken invariant, empty if none */
};

/* The same seed gives the same world everywhere. */
uint64_t world_random(uint64_t *state);

void world_init(struct world *w);
void world_fini(struct world *w);
void world_add(struct world *w, uint32_t id, struct sl_steer_spec spec);
/* A process of a tenant; returns its number. */
uint32_t world_start(struct world *w, uint32_t tenant, uint32_t gpu, struct world_load load);
void world_set(struct world *w, uint32_t id, struct sl_steer_spec spec);
void world_remove(struct world *w, uint32_t id);
/* Gives it another load from now on. */
void world_load_set(struct world *w, uint32_t proc, struct world_load load);
/* It ends its work and launches nothing more. */
void world_stop(struct world *w, uint32_t proc);
void world_run(struct world *w, uint64_t ns);

/* Runs, and returns each tenant's part of that time on the GPU, in permille. */
struct world_shares {
    uint32_t permille[WORLD_TENANTS];
};
struct world_shares world_shares(struct world *w, uint64_t ns);

/* Has its order taken it off? */
bool world_is_off(const struct world *w, uint32_t id);

#endif
