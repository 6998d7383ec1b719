/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of turn-taking: a world for each case. */
#ifndef SLUICE_TESTS_TURNS_CASE_H
#define SLUICE_TESTS_TURNS_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "turns_world.h"

#define HANDOVER (100 * US)

static struct world *world;

static inline struct sl_steer_spec spec_on(uint32_t mask, uint32_t request, uint32_t limit)
{
    return (struct sl_steer_spec){.gpu_mask = mask,
                                  .request_permille = request,
                                  .limit_permille = limit,
                                  .priority = SL_TURNS_NORMAL};
}

static inline struct sl_steer_spec spec_of(uint32_t request, uint32_t limit)
{
    return spec_on(1, request, limit);
}

/* Queued work without an end. */
static inline struct world_load saturating(uint64_t kernel_ns)
{
    return (struct world_load){.kernel_ns = kernel_ns};
}

static inline int setup(void **state)
{
    (void)state;
    world = calloc(1, sizeof(*world));
    world_init(world, HANDOVER);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    world_fini(world);
    free(world);
    return 0;
}

#define assert_no_fault()                                                                          \
    do {                                                                                           \
        if (world->fault[0])                                                                       \
            fail_msg("%s", world->fault);                                                          \
    } while (0)

static inline void assert_share(uint32_t id, uint32_t want, uint32_t within, uint64_t from,
                                uint64_t to)
{
    uint32_t got = world_share(world, id, from, to);
    uint32_t miss = got > want ? got - want : want - got;
    if (miss > within)
        fail_msg("tenant %u: %u permille in [%llu, %llu) ms, not %u +- %u", id, got,
                 (unsigned long long)(from / MS), (unsigned long long)(to / MS), want, within);
}

static inline struct sl_turns_stats stats_of(uint32_t id)
{
    struct sl_turns_stats st = {0};
    assert_int_equal(sl_turns_stats(world->turns, id, world->now_ns, &st), 0);
    return st;
}

#endif
