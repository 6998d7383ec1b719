/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate that every submission passes: kernels in all variants, graphs, copies within the card, memsets. With the
 * hardware's slices it holds nothing back: a launch is counted, and a launch of a tenant with a limit adds its
 * estimated cost. With turns (turn.h), a launch may wait. Nothing is ever moved to another thread.
 */
#ifndef SLUICE_PRELOAD_GATE_H
#define SLUICE_PRELOAD_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

struct sample;
struct sl_cost;

/* The data that a launch reads first; one cache line, written only when something changes. */
struct sl_gate_view {
    const _Atomic uint32_t *_Atomic word; /* the lease's gate, or a stand-in */
    _Atomic uint32_t passed;              /* behind this word launches are only counted … */
    _Atomic uint32_t metered;             /* … and behind this word their cost is added up */
} __attribute__((aligned(64)));

extern struct sl_gate_view sl_gate_view;

/* Launches, counted by each thread without a locked instruction: right after the driver's own write to the card, a
 * locked instruction would wait until that write has crossed the bus, a hundred nanoseconds. Threads that share a line
 * lose a count now and then. */
struct sl_gate_count {
    uint64_t launches;
} __attribute__((aligned(64)));
#define SL_GATE_COUNTS 16U
extern _Thread_local struct sl_gate_count *sl_gate_mine;
struct sl_gate_count *sl_gate_take_count(void);

static inline void sl_gate_add(struct sl_gate_count *mine)
{
    uint64_t n = __atomic_load_n(&mine->launches, __ATOMIC_RELAXED);
    __atomic_store_n(&mine->launches, n + 1, __ATOMIC_RELAXED);
}

static inline void sl_gate_count(void)
{
    sl_gate_add(sl_gate_mine ? sl_gate_mine : sl_gate_take_count());
}

/* Calls nothing: see SL_GATED. A thread's first launch passes slowly. */
static inline bool sl_gate_is_free(void)
{
    const _Atomic uint32_t *word = atomic_load_explicit(&sl_gate_view.word, memory_order_acquire);
    struct sl_gate_count *mine = sl_gate_mine;
    if (__builtin_expect(atomic_load_explicit(word, memory_order_relaxed) !=
                             atomic_load_explicit(&sl_gate_view.passed, memory_order_relaxed),
                         0) ||
        __builtin_expect(!mine, 0))
        return false;
    sl_gate_add(mine);
    return true;
}

/* One submission on its way through the gate. */
struct sl_launch {
    uint64_t key; /* of the cost model */
    uint64_t estimate_ns;
    CUstream stream; /* explicit: CU_STREAM_LEGACY or _PER_THREAD for the default ones */
    CUcontext context;
    CUevent start;         /* recorded before it, when this launch is measured */
    struct sample *sample; /* … with slices */
    uint32_t lane;         /* of the flight board */
    bool in_turn;          /* it is on that board … */
    bool begins;           /* … and the first of its turn */
    bool stamp;            /* to be stamped (stamps.h) */
    bool after;            /* call sl_gate_leave() after the driver's call */
};

/* The costs of this process's launches; keys by sl_cost_key() and sl_cost_key_graph(). */
extern struct sl_cost sl_gate_costs;

/* Launches so far, of all threads. */
uint64_t sl_gate_launches(void);

/* Tells the arbiter to read this process's slot. */
struct sl_process;
void sl_gate_ring(const struct sl_process *p);

/* In the look thread: how far has the GPU come? Returns the ns until the next look. */
uint64_t sl_gate_look(struct sl_process *p);

/* The pages were replaced after an arbiter restart; in the watch thread. */
void sl_gate_replaced(struct sl_process *p);

/* In a forked child, which passes the gate as a process of its own. */
void sl_gate_forget(void);

/* The context is gone, and its events with it. */
void sl_gate_context_gone(CUcontext context);

/* Around the end of a context: the look thread then touches no context. */
void sl_gate_context_ends(bool begins);

/* A stream begins to record a graph, or has ended. */
void sl_gate_capture(bool begins);
bool sl_gate_records(void); /* does any stream record? */

/* Waits until the submission may go. Anything but CUDA_SUCCESS: it may not; return this code. */
CUresult sl_gate_enter(struct sl_launch *l, uint64_t key, CUstream stream);

/* After the driver's own call, if l->after: takes its result and returns it. */
CUresult sl_gate_leave(struct sl_launch *l, CUresult rc);

/* The default stream by its explicit name, as the variant of the call means it. */
#define SL_LEGACY(s)     ((s) ? (s) : CU_STREAM_LEGACY)
#define SL_PER_THREAD(s) ((s) ? (s) : CU_STREAM_PER_THREAD)

/*
 * A hook that submits work. Where the gate is free, it calls nothing of ours, so the compiler makes it a dozen
 * instructions and a jump to the driver; all else is in a function of its own. `counts` is evaluated only there: false
 * lets the call pass. `real` is the driver's function.
 */
#define SL_GATED(symbol, params, args, counts, key, stream)                                        \
    static __attribute__((noinline)) CUresult symbol##_gated params                                \
    {                                                                                              \
        SL_REAL_OR_RETURN(symbol, real);                                                           \
        struct sl_launch launch_;                                                                  \
        if (!(counts))                                                                             \
            return real args;                                                                      \
        CUresult rc_ = sl_gate_enter(&launch_, key, stream);                                       \
        if (rc_ == CUDA_SUCCESS)                                                                   \
            rc_ = real args;                                                                       \
        return launch_.after ? sl_gate_leave(&launch_, rc_) : rc_;                                 \
    }                                                                                              \
    CUresult symbol params                                                                         \
    {                                                                                              \
        __typeof__(&symbol) real = SL_REAL_KNOWN(symbol);                                          \
        if (__builtin_expect(real == NULL, 0) || !sl_gate_is_free())                               \
            real = symbol##_gated;                                                                 \
        return real args;                                                                          \
    }

#endif
