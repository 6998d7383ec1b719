/* SPDX-License-Identifier: Apache-2.0 */
/* Cards for tests of devices: they can hang, get lost, vanish, raise XIDs and refuse to open. Safe
 * to change from the test's thread while the code under test asks from its own. */
#ifndef SLUICE_TESTS_AGENT_CARDS_H
#define SLUICE_TESTS_AGENT_CARDS_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gpu/gpu.h"

#define CARDS_MAX  4
#define CARDS_MIGS 7

struct card {
    char uuid[SL_GPU_UUID_SIZE];
    bool lost;
    uint32_t migs;
    struct sl_gpu_mig_info mig[CARDS_MIGS];
};

struct cards {
    struct sl_gpu base;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct card card[CARDS_MAX];
    size_t count;
    bool hang, events_hang; /* calls do not return */
    unsigned hanging;       /* number of such calls */
    unsigned opens, closes, infos;
    int open_result, count_result, events_result;
    struct sl_gpu_event event[64];
    size_t event_count;
};

static inline struct cards *cards_of(struct sl_gpu *gpu)
{
    return (struct cards *)(void *)gpu;
}

/* With the lock held. */
static inline void cards_hang(struct cards *c, const bool *flag)
{
    c->hanging++;
    (void)pthread_cond_broadcast(&c->changed);
    while (*flag)
        (void)pthread_cond_wait(&c->changed, &c->lock);
    c->hanging--;
    (void)pthread_cond_broadcast(&c->changed);
}

static inline void cards_enter(struct cards *c)
{
    (void)pthread_mutex_lock(&c->lock);
    if (c->hang)
        cards_hang(c, &c->hang);
}

static inline int cards_leave(struct cards *c, int rc)
{
    (void)pthread_mutex_unlock(&c->lock);
    return rc;
}

static inline void cards_close(struct sl_gpu *gpu)
{
    struct cards *c = cards_of(gpu);
    (void)pthread_mutex_lock(&c->lock);
    c->closes++;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

static inline int cards_count(struct sl_gpu *gpu, size_t *ret, struct sl_err *err)
{
    struct cards *c = cards_of(gpu);
    cards_enter(c);
    *ret = c->count;
    int rc = c->count_result;
    return cards_leave(c, rc < 0 ? sl_err_set(err, rc, "the cards cannot be counted") : 0);
}

static inline int cards_info(struct sl_gpu *gpu, size_t i, struct sl_gpu_info *ret,
                             struct sl_err *err)
{
    struct cards *c = cards_of(gpu);
    cards_enter(c);
    c->infos++;
    if (i >= c->count || c->card[i].lost)
        return cards_leave(c, sl_err_set(err, -ENXIO, "GPU %zu: lost", i));
    *ret = (struct sl_gpu_info){.minor = (uint32_t)i, .memory_total_bytes = 1 << 30};
    (void)snprintf(ret->uuid, sizeof(ret->uuid), "%s", c->card[i].uuid);
    (void)snprintf(ret->name, sizeof(ret->name), "Test card");
    ret->mig_slots = c->card[i].migs;
    ret->mig_enabled = c->card[i].migs > 0;
    return cards_leave(c, 0);
}

static inline int cards_mig(struct sl_gpu *gpu, size_t i, uint32_t slot,
                            struct sl_gpu_mig_info *ret, struct sl_err *err)
{
    struct cards *c = cards_of(gpu);
    cards_enter(c);
    if (slot >= c->card[i].migs)
        return cards_leave(c, sl_err_set(err, -ENOENT, "slot %u is empty", slot));
    *ret = c->card[i].mig[slot];
    return cards_leave(c, 0);
}

static inline int cards_version(struct sl_gpu *gpu, char *buf, size_t size, struct sl_err *err)
{
    (void)gpu;
    (void)err;
    (void)snprintf(buf, size, "580.0");
    return 0;
}

static inline int cards_wait(struct sl_gpu *gpu, int timeout_ms, struct sl_gpu_event *ret,
                             struct sl_err *err)
{
    struct cards *c = cards_of(gpu);
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)timeout_ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&c->lock);
    if (c->events_hang)
        cards_hang(c, &c->events_hang);
    if (c->events_result < 0)
        return cards_leave(c, sl_err_set(err, c->events_result, "no events here"));
    if (c->event_count == 0)
        (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
    if (c->event_count == 0)
        return cards_leave(c, -ETIMEDOUT);
    *ret = c->event[0];
    c->event_count--;
    memmove(c->event, c->event + 1, c->event_count * sizeof(c->event[0]));
    return cards_leave(c, 0);
}

static const struct sl_gpu_ops cards_ops = {
    .close = cards_close,
    .count = cards_count,
    .info = cards_info,
    .mig_info = cards_mig,
    .driver_version = cards_version,
    .wait_event = cards_wait,
};

static inline int cards_open(void *data, struct sl_gpu **ret, struct sl_err *err)
{
    struct cards *c = data;
    cards_enter(c);
    c->opens++;
    if (c->open_result < 0)
        return cards_leave(c, sl_err_set(err, c->open_result, "no NVIDIA driver on this machine"));
    *ret = &c->base;
    return cards_leave(c, 0);
}

static inline void cards_init(struct cards *c, size_t count)
{
    memset(c, 0, sizeof(*c));
    c->base.ops = &cards_ops;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    c->count = count;
    for (size_t i = 0; i < CARDS_MAX; i++)
        (void)snprintf(c->card[i].uuid, sizeof(c->card[i].uuid), "GPU-%zu", i);
}

static inline void cards_add_mig(struct cards *c, size_t i, const char *uuid, uint32_t gi,
                                 uint32_t ci)
{
    struct sl_gpu_mig_info *m = &c->card[i].mig[c->card[i].migs++];
    (void)snprintf(m->uuid, sizeof(m->uuid), "%s", uuid);
    (void)snprintf(m->profile, sizeof(m->profile), "1g.18gb");
    m->gpu_instance = gi;
    m->compute_instance = ci;
}

/* Sets a flag under the lock and wakes the threads that hang on it. */
#define cards_set(c, field, value)                                                                 \
    do {                                                                                           \
        (void)pthread_mutex_lock(&(c)->lock);                                                      \
        (c)->field = (value);                                                                      \
        (void)pthread_cond_broadcast(&(c)->changed);                                               \
        (void)pthread_mutex_unlock(&(c)->lock);                                                    \
    } while (0)

#define cards_get(c, field)                                                                        \
    __extension__({                                                                                \
        (void)pthread_mutex_lock(&(c)->lock);                                                      \
        __typeof__((c)->field) got_ = (c)->field;                                                  \
        (void)pthread_mutex_unlock(&(c)->lock);                                                    \
        got_;                                                                                      \
    })

static inline void cards_raise(struct cards *c, size_t i, uint64_t xid, uint32_t gi, uint32_t ci)
{
    (void)pthread_mutex_lock(&c->lock);
    if (c->event_count < 64)
        c->event[c->event_count++] = (struct sl_gpu_event){.device = i,
                                                           .device_known = i < CARDS_MAX,
                                                           .xid = xid,
                                                           .gpu_instance = gi,
                                                           .compute_instance = ci};
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

#endif
