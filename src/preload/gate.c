/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/gate.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "policy/cost.h"
#include "preload/attach.h"
#include "preload/flight.h"
#include "preload/hooks.h"
#include "preload/lock.h"
#include "preload/meter.h"
#include "preload/orders.h"
#include "preload/sample.h"

/* A pause shorter than this is part of the work, not its end. A tenant of high priority comes back
 * at once when it wants to, so it may leave sooner. */
#define IDLE_NS              (100 * SL_NS_PER_US)
#define IDLE_HIGH_NS         (40 * SL_NS_PER_US)
/* What it waits for is a kernel of somebody else's: not worth falling asleep. */
#define SPIN_PROCESSORS      4
#define SPIN_HIGH_NS         (400 * SL_NS_PER_US)
/* Work that makes no progress for this long, and twice the time that it should take, may be waiting for a
 * launch that stands at the gate (a host function, kernels of one collective on two GPUs). */
#define STUCK_NS             (25 * SL_NS_PER_MS)
/* The estimate of what is in flight is believed up to here: a kernel that waited for another process once
 * seems to be a long one ever after. */
#define STUCK_MOST_NS        (500 * SL_NS_PER_MS)
/* No launch stands at the closed gate for longer: a kernel of another tenant may be waiting for it, and run up
 * a debt for both. Tenants on several GPUs do that for a living (collectives). */
#define LONGEST_WAIT_NS      (5 * SL_NS_PER_S)
#define LONGEST_WAIT_GANG_NS (250 * SL_NS_PER_MS)
/* What belongs to that launch follows it so soon. */
#define LATE_NS              (10 * SL_NS_PER_MS)
/* Without an arbiter nobody opens the gate: after this long it counts as free. */
#define ORPHAN_NS            (200 * SL_NS_PER_MS)
/* A free gate behind which nothing was launched for this long is given up. */
#define FREE_IDLE_NS         SL_NS_PER_S
/* Behind a free gate one launch is measured so often, if somebody wants to know what is used. */
#define SAMPLE_NS            (10 * SL_NS_PER_MS)
#define LOOK_AGAIN_NS        SL_NS_PER_MS
#define NOT_PASSED           UINT32_MAX

static const _Atomic uint32_t unattached = SL_GATE_WORD(0, SL_GATE_CLOSED);
static const _Atomic uint32_t nobody = SL_GATE_WORD(0, SL_GATE_FREE);

struct sl_gate_view sl_gate_view = {&unattached, NOT_PASSED};

struct sl_cost sl_gate_costs;
_Thread_local struct sl_gate_count *sl_gate_mine;
static struct sl_gate_count counts[SL_GATE_COUNTS];

struct sl_gate_count *sl_gate_take_count(void)
{
    static _Atomic uint32_t threads;
    sl_gate_mine = &counts[atomic_fetch_add(&threads, 1) % SL_GATE_COUNTS];
    return sl_gate_mine;
}

static uint64_t launches_so_far(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < SL_GATE_COUNTS; i++)
        sum += __atomic_load_n(&counts[i].launches, __ATOMIC_RELAXED);
    return sum;
}

static struct {
    struct sl_lock lock;
    _Atomic uint32_t waiting;       /* threads at the gate */
    _Atomic uint32_t turn;          /* the turn the process last submitted in */
    _Atomic bool ran_free;          /* work of a free gate may be in flight, untracked */
    _Atomic bool marking;           /* the watch thread is about to use contexts it was not given */
    _Atomic uint64_t late_until_ns; /* launches waited too long: they pass until here */
    _Atomic int ending;             /* threads in which a primary context ends */
    _Atomic int captures;           /* streams that record */
    CUcontext free_context;         /* … submitted in this context last; under the lock */
    uint64_t free_launches;         /* the counter when the watch thread last looked at it */
    _Atomic uint64_t free_since_ns;
    uint64_t sampled_ns; /* when the watch thread last asked for a sample */
    _Atomic bool wants_sample;
} gate = {.turn = UINT32_MAX};

static void ring(const struct sl_process *p)
{
    int saved = errno, fd = p->doorbell_fd;
    uint64_t one = 1;
    struct stat st;
    /* The program may have closed it and have a file of its own there. */
    if (fstat(fd, &st) == 0 && st.st_ino == p->doorbell_inode && st.st_dev == p->doorbell_device) {
        ssize_t ignored = write(fd, &one, sizeof(one));
        (void)ignored;
    }
    errno = saved;
}

/* Another process sets the word, so the futex is not private. */
static void wait_word(const _Atomic uint32_t *word, uint32_t seen, uint64_t ns)
{
    int saved = errno;
    struct timespec ts = {.tv_sec = (time_t)(ns / SL_NS_PER_S),
                          .tv_nsec = (long)(ns % SL_NS_PER_S)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
    errno = saved;
}

/* On few processors whoever is waited for may want this very one. */
static bool may_spin(void)
{
    static _Atomic int known; /* 0: not yet */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        cpu_set_t ours;
        bool told = sched_getaffinity(0, sizeof(ours), &ours) == 0;
        answer = told && CPU_COUNT(&ours) >= SPIN_PROCESSORS ? 1 : -1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer > 0;
}

static void relax(void)
{
    if (!may_spin()) {
        (void)sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void nap(uint64_t ns)
{
    if (ns < 20 * SL_NS_PER_US)
        (void)sched_yield();
    else
        sl_sleep_ns(ns);
}

/* --- what the arbiter is told ------------------------------------------------------------------ */

/* Brings the slot's `busy` up to date and rings if that is news. */
static void report(struct sl_process *p, bool linger)
{
    struct sl_slot *slot = sl_process_slot(p);
    uint32_t word = atomic_load(atomic_load(&sl_gate_view.word));
    sl_lock_take(&gate.lock);
    bool running = !sl_flight_empty() || atomic_load(&gate.ran_free);
    uint32_t busy = running || linger            ? SL_BUSY_RUNNING
                    : atomic_load(&gate.waiting) ? SL_BUSY_WAITING
                                                 : SL_BUSY_IDLE;
    bool drained = !running && SL_GATE_STATE(word) == SL_GATE_CLOSED;
    if (drained && busy == SL_BUSY_RUNNING)
        busy = atomic_load(&gate.waiting) ? SL_BUSY_WAITING : SL_BUSY_IDLE;
    bool news = atomic_exchange(&slot->busy, busy) != busy;
    if (drained)
        news |= atomic_exchange(&slot->drained_turn, SL_GATE_TURN(word)) != SL_GATE_TURN(word);
    atomic_store(&slot->inflight_ns, sl_flight_ns());
    sl_lock_drop(&gate.lock);
    if (news)
        ring(p);
}

/* The first submission of a turn. True: the arbiter and the watch thread are to be told, which can
 * wait until the submission is on its way. */
static bool begin_turn(struct sl_process *p, uint32_t turn)
{
    struct sl_slot *slot = sl_process_slot(p);
    if (atomic_exchange(&gate.turn, turn) == turn && atomic_load(&slot->busy) == SL_BUSY_RUNNING)
        return false;
    atomic_store(&slot->started_ns, sl_now_ns());
    atomic_store(&slot->busy, SL_BUSY_RUNNING);
    return true;
}

static void announce(struct sl_process *p)
{
    ring(p);
    sl_watch_kick();
}

/* --- the watch thread's part ------------------------------------------------------------------- */

/* Behind a free gate nothing is tracked; when it closes, everything submitted so far is marked. */
static void mark_contexts(struct sl_process *p)
{
    __typeof__(&cuDevicePrimaryCtxGetState) state = SL_REAL(cuDevicePrimaryCtxGetState);
    __typeof__(&cuDevicePrimaryCtxRetain) retain = SL_REAL(cuDevicePrimaryCtxRetain);
    __typeof__(&cuDevicePrimaryCtxRelease_v2) release = SL_REAL(cuDevicePrimaryCtxRelease_v2);
    sl_lock_take(&gate.lock);
    CUcontext first = gate.free_context;
    sl_lock_drop(&gate.lock);
    uint32_t devices = atomic_load(&p->lease)->gpu_count;
    if (first)
        sl_flight_mark_context(first);
    for (int d = 0; state && retain && release && d < (int)devices; d++) {
        unsigned int flags;
        int active = 0;
        CUcontext context;
        if (state(d, &flags, &active) != CUDA_SUCCESS || !active ||
            retain(&context, d) != CUDA_SUCCESS)
            continue;
        if (context != first)
            sl_flight_mark_context(context);
        (void)release(d);
    }
}

static void mark_free_work(struct sl_process *p)
{
    if (!atomic_load(&gate.ran_free))
        return;
    /* Whoever ends a context takes it from us first, and then waits for us. */
    atomic_store(&gate.marking, true);
    if (atomic_load(&gate.ending) == 0 && atomic_exchange(&gate.ran_free, false))
        mark_contexts(p);
    atomic_store(&gate.marking, false);
}

static uint64_t poll_free(struct sl_process *p)
{
    uint64_t launches = launches_so_far(), now = sl_now_ns();
    atomic_store(&sl_process_slot(p)->launches, launches);
    if (launches != gate.free_launches || sl_meter_pending()) {
        gate.free_launches = launches;
        atomic_store(&gate.free_since_ns, now);
    } else if (now > atomic_load(&gate.free_since_ns) + FREE_IDLE_NS) {
        /* The next launch takes the long way and says that the GPU is wanted again. */
        atomic_store(&sl_gate_view.passed, NOT_PASSED);
        atomic_store(&gate.ran_free, false);
        report(p, false);
        return UINT64_MAX;
    }
    return FREE_IDLE_NS / 4;
}

static bool is_high(struct sl_process *p)
{
    return atomic_load_explicit(&atomic_load(&p->lease)->priority, memory_order_relaxed) ==
           SL_PRIORITY_HIGH;
}

static uint64_t watch_turns(struct sl_process *p, enum sl_gate state)
{
    mark_free_work(p);
    uint64_t idle_ns = is_high(p) ? IDLE_HIGH_NS : IDLE_NS;
    if (sl_flight_empty()) {
        /* Since the last launch, or since its end was seen. */
        uint64_t last = sl_flight_last_launch_ns(), end = sl_flight_progress_ns();
        uint64_t quiet = sl_now_ns() - (end > last ? end : last);
        bool linger = state == SL_GATE_OPEN && quiet < idle_ns;
        report(p, linger);
        /* A launch came meanwhile and saw us still busy: nobody kicks. */
        if (!sl_flight_empty() || atomic_load(&gate.ran_free))
            return 40 * SL_NS_PER_US;
        return linger ? idle_ns - quiet + SL_NS_PER_US : UINT64_MAX;
    }
    if (state == SL_GATE_CLOSED || sl_now_ns() - sl_flight_last_launch_ns() > idle_ns / 2)
        sl_flight_mark_tails();
    sl_flight_poll();
    report(p, state == SL_GATE_OPEN);
    if (state == SL_GATE_CLOSED)
        return 20 * SL_NS_PER_US;
    uint64_t next = sl_flight_ns() / 4;
    if (is_high(p) && next > 40 * SL_NS_PER_US)
        next = 40 * SL_NS_PER_US; /* somebody waits for the rest of our turn */
    return next < 40 * SL_NS_PER_US    ? 40 * SL_NS_PER_US
           : next > 500 * SL_NS_PER_US ? 500 * SL_NS_PER_US
                                       : next;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Where slices share: what is used, and what is ordered. */
static uint64_t watch_slices(struct sl_process *p, uint32_t word)
{
    struct sl_slot *slot = sl_process_slot(p);
    uint32_t control = atomic_load(&slot->control);
    uint64_t obey_ns = sl_orders_obey(p), meter_ns = LOOK_AGAIN_NS;
    /* Whoever ends a context takes it from us first, and then waits for us. */
    atomic_store(&gate.marking, true);
    if (atomic_load(&gate.ending) == 0)
        meter_ns = sl_meter_tick(p, launches_so_far(), !sl_gate_records());
    atomic_store(&gate.marking, false);
    if (atomic_load(&slot->control) != control)
        ring(p);
    uint64_t now = sl_now_ns();
    if (SL_GATE_STATE(word) == SL_GATE_FREE && meter_ns != UINT64_MAX &&
        now > gate.sampled_ns + SAMPLE_NS) {
        gate.sampled_ns = now;
        atomic_store(&gate.wants_sample, true);
        atomic_store(&sl_gate_view.passed, NOT_PASSED);
    }
    return sooner(sooner(obey_ns, meter_ns), poll_free(p));
}

static uint64_t watch(struct sl_process *p)
{
    if (p->mode != SL_MODE_TENANT)
        return UINT64_MAX;
    uint32_t word = atomic_load(atomic_load(&sl_gate_view.word));
    enum sl_gate state = SL_GATE_STATE(word);
    if (state == SL_GATE_FREE || state == SL_GATE_METER)
        return watch_slices(p, word);
    uint64_t obey_ns = sl_orders_obey(p); /* channels that were off come back */
    return sooner(obey_ns ? obey_ns : 1, watch_turns(p, state));
}

/* --- attaching --------------------------------------------------------------------------------- */

void sl_gate_replaced(struct sl_process *p)
{
    atomic_store(&sl_gate_view.passed, NOT_PASSED);
    atomic_store(&sl_gate_view.word, &atomic_load(&p->lease)->gate);
}

void sl_gate_forget(void)
{
    sl_lock_reset(&gate.lock);
    atomic_store(&sl_gate_view.word, &unattached);
    atomic_store(&sl_gate_view.passed, NOT_PASSED);
    memset(counts, 0, sizeof(counts));
    atomic_store(&gate.waiting, 0);
    atomic_store(&gate.turn, UINT32_MAX);
    atomic_store(&gate.ran_free, false);
    atomic_store(&gate.marking, false);
    atomic_store(&gate.ending, 0);
    atomic_store(&gate.captures, 0);
    gate.free_context = NULL;
    sl_flight_reset();
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
    sl_lock_take(&gate.lock);
    if (gate.free_context == context)
        gate.free_context = NULL;
    sl_lock_drop(&gate.lock);
    /* The watch thread does not look at contexts until this one is off all lists. */
    atomic_fetch_add(&gate.ending, 1);
    while (atomic_load(&gate.marking))
        (void)sched_yield();
    sl_meter_context_gone(context);
    sl_flight_context_gone(context);
    atomic_fetch_sub(&gate.ending, 1);
}

void sl_gate_primary_ends(bool begins)
{
    atomic_fetch_add(&gate.ending, begins ? 1 : -1);
    while (begins && atomic_load(&gate.marking))
        (void)sched_yield();
}

bool sl_gate_records(void)
{
    return atomic_load(&gate.captures) > 0;
}

void sl_gate_capture(bool begins)
{
    atomic_fetch_add(&gate.captures, begins ? 1 : -1);
    while (begins && atomic_load(&gate.marking))
        (void)sched_yield();
}

/* --- the caller's thread ----------------------------------------------------------------------- */

static void pass_free(struct sl_process *p, uint32_t word, const struct sl_launch *l)
{
    sl_lock_take(&gate.lock);
    gate.free_context = l->context;
    atomic_store(&gate.free_since_ns, sl_now_ns());
    atomic_store(&gate.ran_free, true);
    sl_lock_drop(&gate.lock);
    if (begin_turn(p, SL_GATE_TURN(word)))
        announce(p);
    if (SL_GATE_STATE(word) == SL_GATE_METER)
        return;
    /* Last: from here on other threads pass without looking. The gate may have closed meanwhile;
     * then the words differ and they look. */
    atomic_store(&sl_gate_view.passed, word);
}

/* What is in flight makes no progress. It may be waiting for this very launch, through a host function, a
 * value in memory or another GPU: so no launch waits for it any longer, until progress is seen. */
static bool flight_stuck(void)
{
    uint64_t progress = sl_flight_progress_ns(), now = sl_now_ns();
    uint64_t should_ns = 2 * sl_flight_ns();
    return !sl_flight_empty() && now > progress &&
           now - progress > STUCK_NS + (should_ns < STUCK_MOST_NS ? should_ns : STUCK_MOST_NS);
}

static bool pass_stuck(struct sl_launch *l)
{
    return flight_stuck() && sl_flight_admit(l, &(struct sl_flight_window){0});
}

static struct sl_flight_window window_of(struct sl_process *p)
{
    const struct sl_lease_page *lease = atomic_load(&p->lease);
    /* Each GPU of a tenant has its own queue to keep full. */
    return (struct sl_flight_window){.ns = atomic_load(&lease->window_ns) * lease->gpu_count,
                                     .kernels =
                                         atomic_load(&lease->window_kernels) * lease->gpu_count};
}

/* It waited too long, or follows one that did. It takes no more than a turn would let it. */
static bool pass_late(struct sl_process *p, struct sl_launch *l, uint64_t since)
{
    uint64_t now = sl_now_ns();
    bool gang = atomic_load(&p->lease)->gpu_count > 1;
    bool late = now - since > (gang ? LONGEST_WAIT_GANG_NS : LONGEST_WAIT_NS);
    struct sl_flight_window w = window_of(p);
    if (!late && now >= atomic_load(&gate.late_until_ns))
        return false;
    if (late)
        atomic_store(&gate.late_until_ns, now + LATE_NS);
    return sl_flight_admit(l, &w);
}

/* Stands at the closed gate until the word changes. True: go through all the same. */
static bool wait_closed(struct sl_process *p, const _Atomic uint32_t *word, uint32_t seen,
                        struct sl_launch *l)
{
    uint64_t since = sl_now_ns();
    bool escape = false;
    atomic_fetch_add(&gate.waiting, 1);
    report(p, false);
    /* Also when that is no news: a turn we came too late for was taken back, and is asked for again. */
    ring(p);
    sl_watch_kick();
    while (atomic_load(word) == seen && atomic_load(&sl_gate_view.word) == word && !escape) {
        if (pass_late(p, l, since)) {
            escape = true;
            continue;
        }
        if (!sl_flight_empty()) {
            sl_flight_mark_tails();
            sl_flight_poll();
            if (sl_flight_empty())
                report(p, false);
            else if (pass_stuck(l))
                escape = true;
            else if (window_of(p).ns < SL_NS_PER_MS)
                relax(); /* a high priority waits for this */
            else
                nap(20 * SL_NS_PER_US);
            continue;
        }
        if (is_high(p) && may_spin() && sl_now_ns() - since < SPIN_HIGH_NS) {
            relax();
            continue;
        }
        wait_word(word, seen, 50 * SL_NS_PER_MS);
        if (!sl_process_connected() && sl_now_ns() - since > ORPHAN_NS)
            break;
    }
    atomic_fetch_sub(&gate.waiting, 1);
    atomic_fetch_add(&sl_process_slot(p)->waited_ns, sl_now_ns() - since);
    return escape;
}

/* In an open turn: waits for room in the window. False: the gate changed, look again. */
static bool wait_window(struct sl_process *p, const _Atomic uint32_t *word, uint32_t seen,
                        struct sl_launch *l)
{
    uint64_t since = 0;
    while (atomic_load(word) == seen) {
        struct sl_flight_window w = window_of(p);
        if (sl_flight_admit(l, &w)) {
            if (since)
                atomic_fetch_add(&sl_process_slot(p)->waited_ns, sl_now_ns() - since);
            return true;
        }
        if (!since)
            since = sl_now_ns();
        sl_flight_poll();
        uint64_t ahead = sl_flight_ns();
        /* A short window is there for a neighbour's latency: then the end must be seen at once. */
        if (w.ns >= SL_NS_PER_MS && ahead > w.ns / 2)
            nap((ahead - w.ns / 2) / 4);
        else if (w.ns >= SL_NS_PER_MS)
            nap(0);
        else
            relax();
        if (pass_stuck(l))
            return true;
    }
    return false;
}

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    __typeof__(&cuStreamIsCapturing) ask = SL_REAL(cuStreamIsCapturing);
    return ask && ask(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult sl_gate_enter(struct sl_launch *l, uint64_t key, CUstream stream)
{
    struct sl_process *p = sl_process_get();
    CUresult rc = prepare(p);
    *l = (struct sl_launch){.key = key, .stream = stream};
    if (rc != CUDA_SUCCESS || p->mode == SL_MODE_NONE)
        return rc;
    /* Recording a graph is not running it. */
    if (is_captured(stream))
        return CUDA_SUCCESS;
    __typeof__(&cuCtxGetCurrent) current = SL_REAL(cuCtxGetCurrent);
    if (!current || current(&l->context) != CUDA_SUCCESS || !l->context)
        return CUDA_SUCCESS; /* the driver will say what is wrong */

    struct sl_cost_guess guess = sl_cost_launch(&sl_gate_costs, key);
    l->estimate_ns = guess.ns;
    sl_gate_count();
    for (;;) {
        const _Atomic uint32_t *word = atomic_load(&sl_gate_view.word);
        uint32_t seen = atomic_load(word);
        if (SL_GATE_STATE(seen) == SL_GATE_FREE || SL_GATE_STATE(seen) == SL_GATE_METER) {
            pass_free(p, seen, l);
            bool asked = atomic_exchange(&gate.wants_sample, false);
            sl_meter_launched(l->context, guess.ns, guess.known);
            if (asked || (guess.sample && SL_GATE_STATE(seen) == SL_GATE_METER))
                sl_sample_begin(l, guess.known);
            return CUDA_SUCCESS;
        }
        if (SL_GATE_STATE(seen) == SL_GATE_OPEN) {
            if (!wait_window(p, word, seen, l))
                continue;
            l->begins = begin_turn(p, SL_GATE_TURN(seen));
            break;
        }
        if (wait_closed(p, word, seen, l))
            break;
        if (!sl_process_connected() && atomic_load(word) == seen)
            return CUDA_SUCCESS; /* no arbiter, no turns */
    }
    l->metered = true;
    if (guess.sample)
        sl_flight_measure(l);
    return CUDA_SUCCESS;
}

CUresult sl_gate_leave(struct sl_launch *l, CUresult rc)
{
    if (l->sample)
        sl_sample_end(l, rc == CUDA_SUCCESS);
    if (!l->metered)
        return rc;
    struct sl_process *p = sl_process_get();
    if (p->mode != SL_MODE_TENANT)
        return rc;
    struct sl_flight_window w = window_of(p);
    bool closing = SL_GATE_STATE(atomic_load(atomic_load(&sl_gate_view.word))) == SL_GATE_CLOSED;
    sl_flight_left(l, rc == CUDA_SUCCESS, closing, &w);
    atomic_store_explicit(&sl_process_slot(p)->launches, launches_so_far(), memory_order_relaxed);
    if (l->begins)
        announce(p);
    return rc;
}
