/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU backend for tests: the test fills the struct in, the code under test asks. */
#ifndef SLUICE_TESTS_GPU_FAKE_H
#define SLUICE_TESTS_GPU_FAKE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"

#define GPU_FAKE_DEVICES   4
#define GPU_FAKE_PROCESSES 32

struct gpu_fake_device {
    struct sl_gpu_info info;
    struct sl_gpu_memory memory;
    struct sl_gpu_process processes[GPU_FAKE_PROCESSES];
    size_t process_count;
    bool lost; /* every question about it fails with -ENXIO */
};

struct gpu_fake {
    struct sl_gpu base;
    size_t count;
    struct gpu_fake_device devices[GPU_FAKE_DEVICES];
    bool closed;
};

static inline struct gpu_fake *gpu_fake_of(struct sl_gpu *gpu)
{
    return (struct gpu_fake *)(void *)gpu;
}

static inline void gpu_fake_close(struct sl_gpu *gpu)
{
    gpu_fake_of(gpu)->closed = true;
}

static inline int gpu_fake_count(struct sl_gpu *gpu, size_t *ret, struct sl_err *err)
{
    (void)err;
    *ret = gpu_fake_of(gpu)->count;
    return 0;
}

static inline int gpu_fake_device(struct sl_gpu *gpu, size_t i, struct gpu_fake_device **ret,
                                  struct sl_err *err)
{
    struct gpu_fake *f = gpu_fake_of(gpu);
    if (i >= f->count)
        return sl_err_set(err, -ENOENT, "GPU %zu: not there", i);
    if (f->devices[i].lost)
        return sl_err_set(err, -ENXIO, "GPU %zu: lost", i);
    *ret = &f->devices[i];
    return 0;
}

static inline int gpu_fake_info(struct sl_gpu *gpu, size_t i, struct sl_gpu_info *ret,
                                struct sl_err *err)
{
    struct gpu_fake_device *d = NULL;
    int r = gpu_fake_device(gpu, i, &d, err);
    if (r == 0)
        *ret = d->info;
    return r;
}

static inline int gpu_fake_memory(struct sl_gpu *gpu, size_t i, struct sl_gpu_memory *ret,
                                  struct sl_err *err)
{
    struct gpu_fake_device *d = NULL;
    int r = gpu_fake_device(gpu, i, &d, err);
    if (r == 0)
        *ret = d->memory;
    return r;
}

static inline int gpu_fake_processes(struct sl_gpu *gpu, size_t i, struct sl_gpu_process **ret,
                                     size_t *ret_count, struct sl_err *err)
{
    struct gpu_fake_device *d = NULL;
    int r = gpu_fake_device(gpu, i, &d, err);
    if (r < 0)
        return r;
    *ret = NULL;
    if (d->process_count) {
        *ret = calloc(d->process_count, sizeof(**ret));
        if (!*ret)
            return sl_err_set(err, -ENOMEM, "out of memory");
        memcpy(*ret, d->processes, d->process_count * sizeof(**ret));
    }
    *ret_count = d->process_count;
    return 0;
}

static const struct sl_gpu_ops gpu_fake_ops = {
    .close = gpu_fake_close,
    .count = gpu_fake_count,
    .info = gpu_fake_info,
    .memory = gpu_fake_memory,
    .processes = gpu_fake_processes,
};

#endif
