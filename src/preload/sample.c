/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/sample.h"

#include <string.h>

#include "base/clock.h"
#include "policy/sampling.h"
#include "policy/times.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/lock.h"
#include "preload/marks.h"
#include "preload/words.h"

#define MAX_SAMPLES 32

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
    _Atomic uint32_t calibrations;
    struct sl_sampling learned; /* used only by the look thread */
} samples;

uint64_t sl_sample_mean_ns(void)
{
    return samples.learned.mean_ns;
}

void sl_sample_context_gone(CUcontext context)
{
    sl_lock_take(&samples.lock);
    for (uint32_t i = 0; i < MAX_SAMPLES; i++)
        if (samples.sample[i].context == context)
            samples.sample[i] = (struct sample){0};
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
        struct sl_words words = sl_words_of(context);
        s->word = words.at ? words.at + SL_WORDS_HOLD + (s - samples.sample) : NULL;
        s->words_at = words.address;
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

static void hold(struct sample *s, CUstream stream)
{
    __typeof__(&cuStreamWaitValue32_v2) wait = SL_REAL(cuStreamWaitValue32_v2);
    if (!s->word || !wait)
        return;
    atomic_store(s->word, 0);
    atomic_store(&s->held_since_ns, sl_now_ns());
    uint64_t word = SL_WORDS_HOLD + (uint64_t)(s - samples.sample);
    s->held = wait(stream, sl_words_address(s->words_at, word), 1, CU_STREAM_WAIT_VALUE_EQ) ==
              CUDA_SUCCESS;
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
    sl_words_prepare(l->context);
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

/* To learn the overhead of a sample (policy/sampling.h). */
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
        ok = set(sl_words_address(s->words_at, SL_WORDS_SCRATCH), 0, 4, l->stream) == CUDA_SUCCESS;
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
    if (ok && held && atomic_load(&samples.calibrations) < SL_SAMPLING_CALIBRATIONS) {
        atomic_fetch_add(&samples.calibrations, 1);
        sample_own(l, 1);
        sample_own(l, SL_SAMPLING_MANY);
    }
    sl_capture_restore(mode);
}

/* Under the lock: the words go with their context. */
void sl_sample_let_go_late(void)
{
    uint64_t now = sl_now_ns();
    sl_lock_take(&samples.lock);
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        uint64_t since = atomic_load(&samples.sample[i].held_since_ns);
        if (since && now > since + SL_SAMPLE_HELD_NS)
            let_go(&samples.sample[i]);
    }
    sl_lock_drop(&samples.lock);
}

static void learn(const struct sample *s, uint64_t ns)
{
    if (s->own)
        sl_sampling_own(&samples.learned, s->own, ns);
    else
        sl_sampling_learn(&samples.learned, &sl_gate_costs, s->key, ns, s->held);
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
