/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/sample.h"

#include <string.h>

#include "base/clock.h"
#include "policy/cost.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/lock.h"
#include "preload/marks.h"

#define MAX_SAMPLES   32
/* Kernels are measured with their stream held until the whole sample is submitted: otherwise the time that the program
 * takes to submit it, and the slice that it loses meanwhile, would count as the kernel's. A sample without that (a
 * first launch) says little about a kernel shorter than this. */
#define HELD_BELOW_NS (20 * SL_NS_PER_MS)
/* No stream is held for longer, even if its thread hangs. */
#define MOST_HELD_NS  (2 * SL_NS_PER_MS)
/* The overhead of a sample, until it is measured here. */
#define ADDED_NS      3000U
#define OWN_MANY      17U
#define CALIBRATIONS  16U
#define ODD_KEYS      64U
#define ODD_LEAST_NS  (250 * SL_NS_PER_US)
/* More than one in four: each odd sample counts three up, the others one down. */
#define ODD_WEIGHT    3U
#define ODD_BELIEVED  24U
#define ODD_MOST      32U
#define MOST_OWN_NS   (200 * SL_NS_PER_US)
#define MOST_ADDED_NS (20 * SL_NS_PER_US)

enum sample_state { SAMPLE_UNUSED, SAMPLE_OPEN, SAMPLE_CLOSED };

struct sample {
    _Atomic uint32_t state; /* enum sample_state */
    CUcontext context;
    CUevent begin, end;
    uint64_t key;
    uint32_t own; /* not 0: number of our own memsets between the events, to learn the overhead */
    /* The word that holds its stream: NULL where the word is not in this context. */
    _Atomic uint32_t *word;
    CUdeviceptr words_at;
    bool held;
    _Atomic uint64_t held_since_ns; /* 0: the stream is not held */
};

static struct {
    struct sl_lock lock; /* of the list; never held in a driver call */
    struct sample sample[MAX_SAMPLES];
    /* The words that hold streams; they lie in the memory of one context. */
    CUcontext hold_context;
    _Atomic uint32_t *hold;
    CUdeviceptr hold_address;
    bool hold_tried;
    _Atomic uint64_t added_ns; /* overhead of a sample: from samples of one memset and of several */
    _Atomic uint32_t calibrations;
    _Atomic uint64_t mean_ns; /* of sampled launches */
    /* used only by the look thread */
    uint64_t own_one_ns, own_many_ns;     /* means of … */
    uint32_t own_one_seen, own_many_seen; /* … so many */
    uint8_t odd[ODD_KEYS];                /* by key: are many samples much longer than usual? */
} samples;

uint64_t sl_sample_mean_ns(void)
{
    return atomic_load(&samples.mean_ns);
}

void sl_sample_context_gone(CUcontext context)
{
    sl_lock_take(&samples.lock);
    for (uint32_t i = 0; i < MAX_SAMPLES; i++)
        if (samples.sample[i].context == context)
            samples.sample[i] = (struct sample){0};
    if (samples.hold_context == context) {
        samples.hold_context = NULL;
        samples.hold = NULL;
        samples.hold_tried = false;
    }
    sl_lock_drop(&samples.lock);
}

void sl_sample_forget(void)
{
    memset(&samples, 0, sizeof(samples));
}

/* An unused sample, with events of this context if possible. */
static struct sample *take_sample(CUcontext context)
{
    struct sample *s = NULL;
    sl_lock_take(&samples.lock);
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        struct sample *k = &samples.sample[i];
        if (atomic_load(&k->state) != SAMPLE_UNUSED || (k->context && k->context != context))
            continue;
        if (!s || k->context)
            s = k;
    }
    if (s) {
        bool here = samples.hold && context == samples.hold_context;
        s->word = here ? samples.hold + (s - samples.sample) : NULL;
        s->words_at = here ? samples.hold_address : 0;
        s->context = context;
        s->held = false;
        s->own = 0;
        atomic_store(&s->state, SAMPLE_OPEN);
    }
    sl_lock_drop(&samples.lock);
    __typeof__(&cuEventCreate) create = SL_REAL(cuEventCreate);
    if (s && !s->begin &&
        (!create || create(&s->begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
         create(&s->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS)) {
        s->begin = NULL;
        atomic_store(&s->state, SAMPLE_UNUSED);
        return NULL;
    }
    return s;
}

/* Makes the words that hold streams: once, in the first context that needs them. */
static void prepare_hold(CUcontext context)
{
    __typeof__(&cuMemHostAlloc) alloc = SL_REAL(cuMemHostAlloc);
    __typeof__(&cuMemHostGetDevicePointer_v2) address = SL_REAL(cuMemHostGetDevicePointer_v2);
    void *words = NULL;
    CUdeviceptr at = 0;
    sl_lock_take(&samples.lock);
    bool mine = !samples.hold_tried;
    samples.hold_tried = true;
    sl_lock_drop(&samples.lock);
    if (!mine || !alloc || !address ||
        alloc(&words, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
        address(&at, words, 0) != CUDA_SUCCESS)
        return;
    memset(words, 0, 4096);
    sl_lock_take(&samples.lock);
    samples.hold = words;
    samples.hold_address = at;
    samples.hold_context = context;
    sl_lock_drop(&samples.lock);
}

static void hold(struct sample *s, CUstream stream)
{
    __typeof__(&cuStreamWaitValue32_v2) wait = SL_REAL(cuStreamWaitValue32_v2);
    if (!s->word || !wait)
        return;
    atomic_store(s->word, 0);
    atomic_store(&s->held_since_ns, sl_now_ns());
    s->held = wait(stream, s->words_at + 4U * (CUdeviceptr)(s - samples.sample), 1,
                   CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS;
    if (!s->held)
        atomic_store(&s->held_since_ns, 0);
}

static void let_go(struct sample *s)
{
    if (atomic_exchange(&s->held_since_ns, 0))
        atomic_store(s->word, 1);
}

void sl_sample_begin(struct sl_launch *l, bool known)
{
    __typeof__(&cuEventRecord) record = SL_REAL(cuEventRecord);
    if (!record)
        return;
    CUstreamCaptureMode mode = sl_capture_relax();
    prepare_hold(l->context);
    struct sample *s = take_sample(l->context);
    if (!s) {
        sl_capture_restore(mode);
        return;
    }
    /* A first launch may load code and wait for the whole GPU: never hold its stream. */
    if (known)
        hold(s, l->stream);
    s->key = l->key;
    bool ok = record(s->begin, l->stream) == CUDA_SUCCESS;
    sl_capture_restore(mode);
    if (!ok) {
        let_go(s);
        atomic_store(&s->state, SAMPLE_UNUSED);
        return;
    }
    l->sample = s;
}

/*
 * For a kernel of a few microseconds the overhead of sampling is as large as the kernel. So a small memset of our own
 * is sampled alone and seventeen in a row: the sixteen more show the time of one memset.
 */
static void sample_own(const struct sl_launch *l, uint32_t count)
{
    __typeof__(&cuEventRecord) record = SL_REAL(cuEventRecord);
    __typeof__(&cuMemsetD8Async) set = SL_REAL(cuMemsetD8Async);
    struct sample *s = set ? take_sample(l->context) : NULL;
    if (!s)
        return;
    hold(s, l->stream);
    s->key = 0;
    s->own = count;
    bool ok = s->held && record(s->begin, l->stream) == CUDA_SUCCESS;
    for (uint32_t i = 0; ok && i < count; i++)
        ok = set(s->words_at + 2048, 0, 4, l->stream) == CUDA_SUCCESS;
    ok = ok && record(s->end, l->stream) == CUDA_SUCCESS;
    let_go(s);
    atomic_store(&s->state, ok ? SAMPLE_CLOSED : SAMPLE_UNUSED);
}

void sl_sample_end(struct sl_launch *l, bool ok)
{
    __typeof__(&cuEventRecord) record = SL_REAL(cuEventRecord);
    struct sample *s = l->sample;
    CUstreamCaptureMode mode = sl_capture_relax();
    ok = ok && record(s->end, l->stream) == CUDA_SUCCESS;
    let_go(s);
    bool held = s->held;
    atomic_store(&s->state, ok ? SAMPLE_CLOSED : SAMPLE_UNUSED);
    if (ok && held && atomic_load(&samples.calibrations) < CALIBRATIONS) {
        atomic_fetch_add(&samples.calibrations, 1);
        sample_own(l, 1);
        sample_own(l, OWN_MANY);
    }
    sl_capture_restore(mode);
}

/* Means, as for kernels: an interruption makes a sample longer, and such a sample is left out. */
static void learn_added(uint32_t count, uint64_t ns)
{
    uint64_t *mean_ns = count == 1 ? &samples.own_one_ns : &samples.own_many_ns;
    uint32_t *seen = count == 1 ? &samples.own_one_seen : &samples.own_many_seen;
    if (ns > MOST_OWN_NS || (*mean_ns && ns > *mean_ns + *mean_ns / 4))
        return; /* another process's slice came between */
    if (!*mean_ns || ns < *mean_ns - *mean_ns / 4)
        *seen = 0; /* earlier samples were disturbed */
    (*seen)++;
    *mean_ns = *seen == 1 ? ns : (*mean_ns * (*seen - 1) + ns) / *seen;
    if (!samples.own_one_ns || samples.own_many_ns <= samples.own_one_ns)
        return;
    uint64_t each = (samples.own_many_ns - samples.own_one_ns) / (OWN_MANY - 1);
    uint64_t added = samples.own_one_ns > each ? samples.own_one_ns - each : 1;
    if (added <= MOST_ADDED_NS)
        atomic_store(&samples.added_ns, added);
}

/*
 * Another process's slice makes a sample longer by two switches of 160 us at least. That is rare for short kernels. So
 * a sample that is longer by that counts only if many are: then the kernel itself varies.
 */
static bool is_odd(uint64_t key, uint64_t ns, uint64_t usual_ns)
{
    uint8_t *many = &samples.odd[key % ODD_KEYS];
    if (ns <= usual_ns + usual_ns / 4 + ODD_LEAST_NS) {
        *many = *many ? (uint8_t)(*many - 1) : 0;
        return false;
    }
    *many = *many < ODD_MOST ? (uint8_t)(*many + ODD_WEIGHT) : *many;
    return *many < ODD_BELIEVED;
}

static void learn(const struct sample *s, uint64_t ns)
{
    if (s->own) {
        learn_added(s->own, ns);
        return;
    }
    uint64_t added = atomic_load(&samples.added_ns);
    added = added ? added : ADDED_NS;
    /* Keep at least a small rest: events tell time in steps of half a microsecond. */
    ns = ns > added + ns / 8 ? ns - added : ns / 8 + 1;
    struct sl_cost_guess guess = sl_cost_peek(&sl_gate_costs, s->key);
    /* A sample that was not held is only an upper limit for a short kernel. */
    if (!s->held && ns < HELD_BELOW_NS) {
        sl_cost_learn_bound(&sl_gate_costs, s->key, ns);
        return;
    }
    if (guess.known && is_odd(s->key, ns, guess.ns))
        return;
    if (s->held)
        sl_cost_learn_mean(&sl_gate_costs, s->key, ns);
    else
        sl_cost_learn(&sl_gate_costs, s->key, ns);
    uint64_t mean = atomic_load(&samples.mean_ns);
    atomic_store(&samples.mean_ns, mean ? (mean * 15 + ns) / 16 : ns);
}

/* Under the lock: the words go with their context. */
void sl_sample_let_go_late(void)
{
    uint64_t now = sl_now_ns();
    sl_lock_take(&samples.lock);
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        uint64_t since = atomic_load(&samples.sample[i].held_since_ns);
        if (since && now > since + MOST_HELD_NS)
            let_go(&samples.sample[i]);
    }
    sl_lock_drop(&samples.lock);
}

void sl_sample_collect(void)
{
    __typeof__(&cuEventQuery) query = SL_REAL(cuEventQuery);
    __typeof__(&cuEventElapsedTime) elapsed = SL_REAL(cuEventElapsedTime);
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        struct sample *s = &samples.sample[i];
        if (atomic_load(&s->state) != SAMPLE_CLOSED || !query || !elapsed)
            continue;
        CUresult rc = query(s->end);
        float ms = 0;
        if (rc == CUDA_ERROR_NOT_READY)
            continue;
        if (rc == CUDA_SUCCESS && elapsed(&ms, s->begin, s->end) == CUDA_SUCCESS && ms >= 0)
            learn(s, (uint64_t)((double)ms * 1e6));
        atomic_store(&s->state, SAMPLE_UNUSED);
    }
}
