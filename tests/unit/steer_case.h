/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of steering: a world for each case, and programs of several kinds. */
#ifndef SLUICE_TESTS_STEER_CASE_H
#define SLUICE_TESTS_STEER_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "steer_world.h"

#define LOW    1U
#define NORMAL 2U
#define HIGH   3U

static struct world *world;

static inline struct sl_steer_spec spec_of(uint32_t request, uint32_t limit)
{
    return (struct sl_steer_spec){
        .gpu_mask = 1, .request_permille = request, .limit_permille = limit, .priority = NORMAL};
}

static inline struct sl_steer_spec spec_at(uint32_t priority)
{
    return (struct sl_steer_spec){
        .gpu_mask = 1, .request_permille = 0, .limit_permille = 1000, .priority = priority};
}

/* Queued work without an end. */
static inline struct world_load saturating(uint64_t kernel_ns)
{
    return (struct world_load){.kernel_ns = kernel_ns};
}

/* One short kernel, wait for it, the next. Alone the GPU is busy for 83 % of the time. */
static inline struct world_load synchronising(void)
{
    return (struct world_load){
        .kernel_ns = 100 * US, .count = 1, .launch_ns = 5 * US, .think_ns = 15 * US};
}

/* Eager inference: its host launches more slowly than the GPU runs. Alone 2.6 ms a step, 0.6 of it busy. */
static inline struct world_load launch_bound(void)
{
    return (struct world_load){
        .kernel_ns = 3 * US, .count = 200, .launch_ns = 10 * US, .think_ns = 600 * US};
}

/* Steps of 130 kernels, 480 us in all; the host launches a step in so many us, give or take a tenth. */
static inline struct world_load eager(uint64_t host_us)
{
    return (struct world_load){.kernel_ns = 3700,
                               .count = 130,
                               .launch_ns = host_us * US / 130,
                               .think_ns = 30 * US,
                               .uneven = 100};
}

/* A request of 2 ms of kernels each 10 ms. */
static inline struct world_load requests(void)
{
    return (struct world_load){
        .kernel_ns = 100 * US, .count = 20, .launch_ns = 4 * US, .period_ns = 10 * MS};
}

/* 30 ms of kernels, then 5 ms of the host's own work. */
static inline struct world_load training(void)
{
    return (struct world_load){
        .kernel_ns = 100 * US, .count = 300, .launch_ns = 5 * US, .think_ns = 5 * MS};
}

/* The same with a host that launches hardly faster than the GPU runs: its queue is never deep. */
static inline struct world_load launch_bound_training(void)
{
    return (struct world_load){
        .kernel_ns = 100 * US, .count = 170, .launch_ns = 95 * US, .think_ns = 6 * MS};
}

static inline uint32_t add_one(uint32_t id, struct sl_steer_spec spec, struct world_load load)
{
    world_add(world, id, spec);
    return world_start(world, id, 0, load);
}

static inline struct sl_steer_stats stats_of(uint32_t id)
{
    struct sl_steer_stats st = {0};
    assert_int_equal(sl_steer_stats(world->steer, id, &st), 0);
    return st;
}

#define assert_no_fault()                                                                          \
    do {                                                                                           \
        if (world->fault[0])                                                                       \
            fail_msg("%s", world->fault);                                                          \
    } while (0)

#define assert_share(shares, id, want, within)                                                     \
    do {                                                                                           \
        uint32_t got_ = (shares).permille[id];                                                     \
        if (got_ + (within) < (want) || got_ > (want) + (within))                                  \
            fail_msg("tenant %u got %u permille, not %u +- %u", (uint32_t)(id), got_,              \
                     (uint32_t)(want), (uint32_t)(within));                                        \
    } while (0)

static inline int setup(void **state)
{
    (void)state;
    world = calloc(1, sizeof(*world));
    world_init(world);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    world_fini(world);
    free(world);
    return 0;
}

static inline void start_afresh(void)
{
    world_fini(world);
    world_init(world);
}

#endif
