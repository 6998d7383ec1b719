/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/burst.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/marks.h"

/* So much work in a row shows the gaps and is rarely cut by somebody else's slice. */
#define LENGTH_NS        (SL_NS_PER_MS / 2)
#define MOST_LAUNCHES    64U
#define FIRST_BURSTS     16U
#define FIRST_EVERY_NS   (10 * SL_NS_PER_MS)
#define EVERY_NS         (200 * SL_NS_PER_MS)
#define GIVEN_UP_NS      (100 * SL_NS_PER_MS)
#define ONE              1024U /* corrections are in 1/1024 */
#define LEAST_CORRECTION (ONE / 2)
#define MOST_CORRECTION  (2 * ONE)
#define ODD_LEAST_NS     (250 * SL_NS_PER_US)
#define ODD_WEIGHT       3U /* more than one in four: each counts three up, the others one down */
#define ODD_BELIEVED     24U
#define ODD_MOST         32U

enum state {
    NONE,   /* nothing is measured */
    WANTED, /* the next launch may begin one */
    HELD,   /* a thread works on it */
    OPEN,   /* launches of one thread and stream are added up */
    CLOSED, /* its last event is recorded */
};

static struct {
    _Atomic uint32_t state; /* enum state */
    CUcontext context;
    CUevent begin, end;
    CUstream stream;
    const void *thread; /* an address that no other thread has */
    uint64_t estimate_ns;
    uint32_t launches;
    _Atomic uint32_t correction; /* 0: none yet */
    /* the watch thread's own */
    uint64_t asked_ns;
    uint32_t learnt, odd;
} burst;

static const void *this_thread(void)
{
    static _Thread_local char here;
    return &here;
}

static bool move(enum state from, enum state to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong(&burst.state, &expected, to);
}

static bool has_events(CUcontext context)
{
    __typeof__(&cuEventCreate) create = SL_REAL(cuEventCreate);
    if (burst.context && burst.context != context)
        return false; /* the first context's kernels stand for all */
    if (burst.end)
        return true;
    burst.context = context;
    return create && create(&burst.begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
           create(&burst.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
}

static bool record(CUevent event, CUstream stream)
{
    __typeof__(&cuEventRecord) real = SL_REAL(cuEventRecord);
    CUstreamCaptureMode mode = sl_capture_relax();
    bool ok = real && real(event, stream) == CUDA_SUCCESS;
    sl_capture_restore(mode);
    return ok;
}

static void begin(const struct sl_launch *l)
{
    if (!move(WANTED, HELD))
        return;
    burst.thread = this_thread();
    burst.stream = l->stream;
    burst.estimate_ns = burst.launches = 0;
    bool ok = has_events(l->context) && record(burst.begin, l->stream);
    atomic_store(&burst.state, ok ? OPEN : NONE);
}

bool sl_burst_launches(const struct sl_launch *l, bool known)
{
    uint32_t state = atomic_load_explicit(&burst.state, memory_order_relaxed);
    if (state == WANTED && known && !l->sample) {
        begin(l);
        state = atomic_load(&burst.state);
    }
    if (state != OPEN || burst.thread != this_thread() || burst.stream != l->stream ||
        burst.context != l->context)
        return false;
    if (!known || l->sample) { /* of unknown length, or with events of its own around it */
        (void)move(OPEN, NONE);
        return false;
    }
    burst.estimate_ns += l->estimate_ns;
    return ++burst.launches >= MOST_LAUNCHES || burst.estimate_ns >= LENGTH_NS;
}

void sl_burst_end(const struct sl_launch *l, bool ok)
{
    __typeof__(&cuEventQuery) query = SL_REAL(cuEventQuery);
    if (!move(OPEN, HELD))
        return; /* given up meanwhile */
    ok = ok && burst.launches > 1 && record(burst.end, l->stream);
    /* Had the GPU begun with it before all of it was there, it may have waited for the host. */
    CUstreamCaptureMode mode = sl_capture_relax();
    ok = ok && query && query(burst.begin) == CUDA_ERROR_NOT_READY;
    sl_capture_restore(mode);
    atomic_store(&burst.state, ok ? CLOSED : NONE);
}

uint64_t sl_burst_correct(uint64_t estimate_ns)
{
    uint32_t correction = atomic_load_explicit(&burst.correction, memory_order_relaxed);
    return correction ? estimate_ns * correction / ONE : estimate_ns;
}

/* Somebody else's slice makes it longer by two switches at least, rarely. If that is often so, it is the work. */
static bool is_odd(uint64_t ns, uint64_t usual_ns)
{
    if (ns <= usual_ns + usual_ns / 4 + ODD_LEAST_NS) {
        burst.odd = burst.odd ? burst.odd - 1 : 0;
        return false;
    }
    burst.odd = burst.odd < ODD_MOST ? burst.odd + ODD_WEIGHT : burst.odd;
    return burst.odd < ODD_BELIEVED;
}

static void learn(uint64_t ns)
{
    uint32_t now = atomic_load(&burst.correction);
    uint64_t estimate = burst.estimate_ns ? burst.estimate_ns : 1, seen = ns * ONE / estimate;
    if (is_odd(ns, estimate * (now ? now : ONE) / ONE))
        return;
    seen = seen < LEAST_CORRECTION  ? LEAST_CORRECTION
           : seen > MOST_CORRECTION ? MOST_CORRECTION
                                    : seen;
    burst.learnt++;
    int64_t weight = burst.learnt < FIRST_BURSTS ? burst.learnt : FIRST_BURSTS,
            was = now ? now : ONE;
    atomic_store(&burst.correction, (uint32_t)(was + ((int64_t)seen - was) / weight));
}

static void collect(void)
{
    __typeof__(&cuEventQuery) query = SL_REAL(cuEventQuery);
    __typeof__(&cuEventElapsedTime) elapsed = SL_REAL(cuEventElapsedTime);
    float ms = 0;
    CUresult rc = query(burst.end);
    if (rc == CUDA_ERROR_NOT_READY)
        return;
    if (rc == CUDA_SUCCESS && elapsed && elapsed(&ms, burst.begin, burst.end) == CUDA_SUCCESS &&
        ms > 0)
        learn((uint64_t)((double)ms * 1e6));
    atomic_store(&burst.state, NONE);
}

void sl_burst_look(bool deep, uint64_t now_ns)
{
    uint32_t state = atomic_load(&burst.state);
    uint64_t every = burst.learnt < FIRST_BURSTS ? FIRST_EVERY_NS : EVERY_NS;
    if (state == CLOSED)
        collect();
    else if (state == OPEN && now_ns > burst.asked_ns + GIVEN_UP_NS)
        (void)move(OPEN, NONE); /* the program launches no more */
    else if (state == WANTED && !deep)
        (void)move(WANTED, NONE);
    else if (state == NONE && deep && now_ns > burst.asked_ns + every && move(NONE, WANTED))
        burst.asked_ns = now_ns;
}

void sl_burst_context_gone(CUcontext context)
{
    if (burst.context != context)
        return;
    burst.begin = burst.end = NULL;
    burst.context = NULL;
    atomic_store(&burst.state, NONE);
}

void sl_burst_forget(void)
{
    memset(&burst, 0, sizeof(burst));
}
