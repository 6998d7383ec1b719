/* SPDX-License-Identifier: Apache-2.0 */
/* A directory, a loop, a fake kubelet, and the plugins under test. */
#ifndef SLUICE_TESTS_AGENT_PLUGIN_WORLD_H
#define SLUICE_TESTS_AGENT_PLUGIN_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "agent/kubelet/plugin.h"
#include "fake_kubelet.h"

struct world {
    char dir[80], socket[100];
    struct sl_loop *loop;
    struct fake_kubelet kubelet;
    struct sl_plugins *plugins;
    struct sl_inventory inv;
    unsigned started, notices;
    char notice[512];
    unsigned allocated;    /* calls of the callback */
    size_t allocated_ids;  /* of the last one */
    const char *bad_value; /* for an environment variable of the answer */
    bool allocate_fails;
    bool allocate_kills;          /* the process, with SIGKILL */
    unsigned prestarts;           /* calls of the callback */
    size_t prestart_ids;          /* of the last one */
    struct sl_prestart *prestart; /* of the last one, not answered; NULL: none */
    bool prestart_at_once;        /* answered in the callback */
};

/* gpus cards, two NUMA nodes, NVLinks between cards of the same half. */
void world_open(struct world *w, size_t gpus);
/* The same, where time passes only in world_pass(). */
void world_open_timeless(struct world *w, size_t gpus);
void world_pass(struct world *w, uint64_t ms);
uint64_t world_clock(void); /* the time in there */
void world_tick(uint64_t ms);
void world_close(struct world *w);
struct sl_plugins *world_plugins(struct world *w); /* another set of them */
struct sl_plugins *world_plugins_or_null(struct world *w);

struct world_resource {
    const char *name;
    size_t gpus;       /* the first n */
    unsigned replicas; /* 1: whole cards */
    bool fail_more_than_one;
    bool fractions; /* shares are, instead of time slices */
    bool mps;       /* or shares of an MPS daemon */
};
struct sl_plan *world_plan(const struct world *w, const struct world_resource *r, size_t n);
void world_plan_free(struct sl_plan *plan);
void world_apply(struct world *w, const struct world_resource *r, size_t n);
void world_apply_one(struct world *w, const char *name, size_t gpus, unsigned replicas);

void world_step(struct world *w, int timeout_ms);
void world_settle(struct world *w);
/* Steps until the condition holds; fails after ten seconds. */
#define world_until(w, condition)                                                                  \
    do {                                                                                           \
        uint64_t end_ = sl_now_ns() + 10 * SL_NS_PER_S;                                            \
        while (!(condition)) {                                                                     \
            world_step(w, 100);                                                                    \
            if (sl_now_ns() > end_)                                                                \
                fail_msg("never came true: %s", #condition);                                       \
        }                                                                                          \
    } while (0)
/* … and the plugins are ready, the resource has this many devices at kubelet's, all healthy. */
struct fake_resource *world_wait(struct world *w, const char *name, size_t devices);
void world_call_end(struct world *w, struct fake_call *call);

#endif
