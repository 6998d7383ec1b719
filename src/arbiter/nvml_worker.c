/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/measure_internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/xalloc.h"

struct nvml_worker {
    struct sl_gpu *gpu;
    int doorbell_fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint32_t wanted;                /* bit per card */
    uint64_t asked_ns[SL_MAX_GPUS]; /* the latest question for each */
    struct snapshot *ready, **ready_tail;
    bool stop;
};

static struct snapshot *take_snapshot(struct sl_gpu *gpu, uint32_t card, uint64_t asked_ns)
{
    struct snapshot *s = sl_xcalloc(1, sizeof(*s));
    struct sl_gpu_memory memory;
    s->card = card;
    s->asked_ns = asked_ns;
    uint64_t begin = sl_now_ns();
    s->rc = sl_gpu_processes(gpu, card, &s->process, &s->count, NULL);
    if (sl_gpu_memory(gpu, card, &memory, NULL) == 0)
        s->used_bytes = memory.used_bytes;
    s->took_ns = sl_now_ns() - begin;
    return s;
}

static void *work(void *arg)
{
    struct nvml_worker *w = arg;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (!w->wanted) {
            (void)pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        uint32_t card = (uint32_t)__builtin_ctz(w->wanted);
        uint64_t asked_ns = w->asked_ns[card];
        w->wanted &= ~(1U << card);
        (void)pthread_mutex_unlock(&w->lock);
        struct snapshot *s = take_snapshot(w->gpu, card, asked_ns);
        (void)pthread_mutex_lock(&w->lock);
        *w->ready_tail = s;
        w->ready_tail = &s->next;
        uint64_t one = 1;
        ssize_t ignored = write(w->doorbell_fd, &one, sizeof(one));
        (void)ignored;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct nvml_worker *sl_nvml_worker_start(struct sl_gpu *gpu, int doorbell_fd)
{
    struct nvml_worker *w = sl_xcalloc(1, sizeof(*w));
    w->gpu = gpu;
    w->doorbell_fd = doorbell_fd;
    w->ready_tail = &w->ready;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->wake, NULL);
    /* Signals belong to the loop's thread. */
    sigset_t all, old;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&w->thread, NULL, work, w);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        free(w);
        return NULL;
    }
    return w;
}

void sl_nvml_worker_stop(struct nvml_worker *w)
{
    if (!w)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_signal(&w->wake);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    while (w->ready) {
        struct snapshot *s = w->ready;
        w->ready = s->next;
        sl_snapshot_free(s);
    }
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_cond_destroy(&w->wake);
    free(w);
}

void sl_nvml_worker_ask(struct nvml_worker *w, uint32_t card, uint64_t now_ns)
{
    (void)pthread_mutex_lock(&w->lock);
    w->wanted |= 1U << card;
    w->asked_ns[card] = now_ns;
    (void)pthread_cond_signal(&w->wake);
    (void)pthread_mutex_unlock(&w->lock);
}

struct snapshot *sl_nvml_worker_take(struct nvml_worker *w)
{
    (void)pthread_mutex_lock(&w->lock);
    struct snapshot *s = w->ready;
    if (s) {
        w->ready = s->next;
        if (!w->ready)
            w->ready_tail = &w->ready;
        s->next = NULL;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return s;
}

void sl_snapshot_free(struct snapshot *s)
{
    free(s->process);
    free(s);
}
