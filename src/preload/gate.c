/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/gate.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "policy/cost.h"
#include "policy/times.h"
#include "preload/attach.h"
#include "preload/flight.h"
#include "preload/hooks.h"
#include "preload/look.h"
#include "preload/meter.h"
#include "preload/orders.h"
#include "preload/sample.h"
#include "preload/stamps.h"
#include "preload/turn.h"

#define NOT_PASSED UINT32_MAX

static const _Atomic uint32_t unattached = SL_GATE_WORD(0, SL_GATE_CLOSED);
static const _Atomic uint32_t nobody = SL_GATE_WORD(0, SL_GATE_FREE);

struct sl_gate_view sl_gate_view = {&unattached, NOT_PASSED, NOT_PASSED};

struct sl_cost sl_gate_costs;
_Thread_local struct sl_gate_count *sl_gate_mine;
static struct sl_gate_count counts[SL_GATE_COUNTS];

static struct {
    _Atomic bool marking;      /* the look thread is about to use the program's contexts */
    _Atomic int ending;        /* threads that are ending a primary context */
    _Atomic int captures;      /* streams that record */
    _Atomic bool wants_sample; /* the next launch behind a free gate is measured */
    /* used only by the watch thread */
    uint64_t seen_launches; /* the counter when it last looked at it … */
    uint64_t seen_ns;       /* … and when that last went up */
    uint64_t sampled_ns;    /* when it last asked for a sample */
} gate;

struct sl_gate_count *sl_gate_take_count(void)
{
    static _Atomic uint32_t threads;
    sl_gate_mine = &counts[atomic_fetch_add(&threads, 1) % SL_GATE_COUNTS];
    return sl_gate_mine;
}

uint64_t sl_gate_launches(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < SL_GATE_COUNTS; i++)
        sum += __atomic_load_n(&counts[i].launches, __ATOMIC_RELAXED);
    return sum;
}

void sl_gate_ring(const struct sl_process *p)
{
    int saved = errno, fd = p->doorbell_fd;
    uint64_t one = 1;
    struct stat st;
    /* The program may have closed the descriptor and have a file of its own under this number. */
    if (fstat(fd, &st) == 0 && st.st_ino == p->doorbell_inode && st.st_dev == p->doorbell_device) {
        ssize_t ignored = write(fd, &one, sizeof(one));
        (void)ignored;
    }
    errno = saved;
}

static bool shares_by_slices(uint32_t word)
{
    return SL_GATE_STATE(word) == SL_GATE_FREE || SL_GATE_STATE(word) == SL_GATE_METER;
}

/* --- the watch thread's part ------------------------------------------------------------------- */

/* Makes the next launch take the slow path. */
static void look_again(void)
{
    atomic_store(&sl_gate_view.passed, NOT_PASSED);
    atomic_store(&sl_gate_view.metered, NOT_PASSED);
}

static void say_busy(struct sl_process *p, enum sl_busy busy)
{
    if (atomic_exchange(&sl_process_slot(p)->busy, busy) != (uint32_t)busy)
        sl_gate_ring(p);
}

/* Is the GPU still in use? Returns the time of the next check. */
static uint64_t watch_quiet(struct sl_process *p)
{
    uint64_t launches = sl_gate_launches(), now = sl_now_ns();
    atomic_store(&sl_process_slot(p)->launches, launches);
    if (launches != gate.seen_launches || sl_meter_pending()) {
        gate.seen_launches = launches;
        gate.seen_ns = now;
    } else if (now > gate.seen_ns + SL_QUIET_NS) {
        look_again();
        say_busy(p, SL_BUSY_IDLE);
        if (sl_gate_launches() == launches)
            return UINT64_MAX;
        say_busy(p, SL_BUSY_RUNNING); /* a launch passed meanwhile, and saw us still busy */
    }
    return SL_QUIET_NS / 4;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A thread that ends a context first takes the context from us, and then waits for us. */
uint64_t sl_gate_look(struct sl_process *p)
{
    uint64_t next_ns = SL_NS_PER_MS;
    atomic_store(&gate.marking, true);
    if (atomic_load(&gate.ending) == 0)
        next_ns = sl_meter_tick(p, sl_gate_launches(), !sl_gate_records());
    atomic_store(&gate.marking, false);
    if (sl_stamps_wanted())
        look_again(); /* behind a free gate, launches do not check whether a stamp is wanted */
    return next_ns;
}

/* With slices: carries out orders, and has the use metered. */
static uint64_t watch_slices(struct sl_process *p, uint32_t word)
{
    struct sl_slot *slot = sl_process_slot(p);
    uint32_t control = atomic_load(&slot->control);
    uint64_t next_ns = sl_orders_obey(p);
    if (atomic_load(&slot->control) != control)
        sl_gate_ring(p);
    if (atomic_load(&atomic_load(&p->lease)->meter) || sl_orders_off()) {
        if (!sl_look_wake(p, sl_gate_look))
            (void)sl_gate_look(p); /* the process may not have another thread */
        next_ns = sooner(next_ns, SL_METER_LOOK_NS);
        uint64_t now = sl_now_ns();
        if (SL_GATE_STATE(word) == SL_GATE_FREE && now > gate.sampled_ns + SL_SAMPLE_EVERY_NS) {
            gate.sampled_ns = now;
            atomic_store(&gate.wants_sample, true);
            look_again();
        }
    }
    return sooner(next_ns, watch_quiet(p));
}

static uint64_t watch(struct sl_process *p)
{
    if (p->mode != SL_MODE_TENANT)
        return UINT64_MAX;
    uint32_t word = atomic_load(atomic_load(&sl_gate_view.word));
    sl_sample_let_go_late();
    if (shares_by_slices(word))
        return watch_slices(p, word);
    uint64_t obey_ns = sl_orders_obey(p); /* channels that were off come back */
    return sooner(obey_ns ? obey_ns : 1, sl_turn_watch(p));
}

/* --- attaching --------------------------------------------------------------------------------- */

void sl_gate_replaced(struct sl_process *p)
{
    look_again();
    atomic_store(&sl_gate_view.word, &atomic_load(&p->lease)->gate);
}

void sl_gate_forget(void)
{
    atomic_store(&sl_gate_view.word, &unattached);
    look_again();
    memset(counts, 0, sizeof(counts));
    memset(&gate, 0, sizeof(gate));
    sl_turn_forget();
    sl_look_forget();
    sl_meter_forget();
}

static CUresult prepare(struct sl_process *p)
{
    if (p->mode == SL_MODE_REFUSED)
        return CUDA_ERROR_NOT_PERMITTED;
    if (p->mode == SL_MODE_NONE) {
        atomic_store(&sl_gate_view.word, &nobody);
        atomic_store(&sl_gate_view.passed, SL_GATE_WORD(0, SL_GATE_FREE));
        return CUDA_SUCCESS;
    }
    if (atomic_load(&sl_gate_view.word) == &unattached) {
        sl_gate_replaced(p);
        sl_watch_set_poll(watch);
    }
    return CUDA_SUCCESS;
}

void sl_gate_context_gone(CUcontext context)
{
    /* The look thread does not touch contexts until this context is off all lists. */
    sl_gate_context_ends(true);
    sl_meter_context_gone(context);
    sl_flight_context_gone(context);
    sl_gate_context_ends(false);
}

void sl_gate_context_ends(bool begins)
{
    atomic_fetch_add(&gate.ending, begins ? 1 : -1);
    while (begins && atomic_load(&gate.marking))
        (void)sched_yield();
}

bool sl_gate_records(void)
{
    return atomic_load_explicit(&gate.captures, memory_order_relaxed) > 0;
}

void sl_gate_capture(bool begins)
{
    atomic_fetch_add(&gate.captures, begins ? 1 : -1);
    while (begins && atomic_load(&gate.marking))
        (void)sched_yield();
}

/* --- the caller's thread ----------------------------------------------------------------------- */

/* To record a graph is not to run it. */
static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    __typeof__(&cuStreamIsCapturing) ask = SL_REAL(cuStreamIsCapturing);
    return sl_gate_records() && ask && ask(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Will the launch run? Without a context the driver returns the error. */
static inline bool runs(struct sl_launch *l)
{
    __typeof__(&cuCtxGetCurrent) current = SL_REAL(cuCtxGetCurrent);
    return !is_captured(l->stream) && current && current(&l->context) == CUDA_SUCCESS && l->context;
}

/* With slices: the launch goes at once, and its cost is added up. */
static inline void meter(struct sl_launch *l, bool limited, bool sample)
{
    struct sl_cost_guess guess = sl_cost_launch(&sl_gate_costs, l->key);
    l->estimate_ns = guess.ns;
    sl_gate_count();
    sl_meter_launched(l->context, guess.ns, guess.known);
    if (sample || (limited && guess.sample))
        sl_sample_begin(l, guess.known);
    sl_stamps_saw(l->stream);
    l->stamp = sl_stamps_take(l->context);
    l->after = l->sample || l->stamp;
}

/* The first launch since the gate changed, since a pause, or since a sample was requested. */
static void pass(struct sl_process *p, uint32_t word, struct sl_launch *l)
{
    bool limited = SL_GATE_STATE(word) == SL_GATE_METER;
    meter(l, limited, atomic_exchange(&gate.wants_sample, false));
    if (atomic_exchange(&sl_process_slot(p)->busy, SL_BUSY_RUNNING) != SL_BUSY_RUNNING) {
        sl_gate_ring(p);
        sl_watch_kick();
    }
    /* Last: from here on other threads pass without a check. If the gate has changed meanwhile, the words differ, and
     * they check. */
    atomic_store(limited ? &sl_gate_view.metered : &sl_gate_view.passed, word);
}

/* The slow path: attaching, a changed gate, turns. */
static CUresult enter_slowly(struct sl_launch *l)
{
    struct sl_process *p = sl_process_get();
    CUresult rc = prepare(p);
    if (!sl_gate_mine) /* behind a free gate this thread then passes fast */
        (void)sl_gate_take_count();
    if (rc != CUDA_SUCCESS || p->mode == SL_MODE_NONE || !runs(l))
        return rc;
    for (;;) {
        uint32_t word = atomic_load(atomic_load(&sl_gate_view.word));
        if (shares_by_slices(word)) {
            pass(p, word, l);
            return CUDA_SUCCESS;
        }
        if (sl_turn_enter(p, l))
            return CUDA_SUCCESS;
    }
}

CUresult sl_gate_enter(struct sl_launch *l, uint64_t key, CUstream stream)
{
    *l = (struct sl_launch){.key = key, .stream = stream};
    const _Atomic uint32_t *word = atomic_load_explicit(&sl_gate_view.word, memory_order_acquire);
    if (atomic_load_explicit(word, memory_order_relaxed) !=
        atomic_load_explicit(&sl_gate_view.metered, memory_order_relaxed))
        return enter_slowly(l);
    if (runs(l))
        meter(l, true, false);
    return CUDA_SUCCESS;
}

CUresult sl_gate_leave(struct sl_launch *l, CUresult rc)
{
    if (l->sample)
        sl_sample_end(l, rc == CUDA_SUCCESS);
    if (l->stamp)
        sl_stamps_write(l->context, l->stream);
    if (l->in_turn)
        sl_turn_leave(l, rc == CUDA_SUCCESS);
    return rc;
}
