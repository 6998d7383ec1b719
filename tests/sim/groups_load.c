/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that loads libcuda itself and keeps its names to itself, with no `ioctl` before the C
 * library's: nobody passes libcuda's calls on to it, and its groups are there all the same.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "sim/engine.h"

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    void *cuda = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
    CUresult (*init)(unsigned int);
    CUresult (*create)(CUcontext *, unsigned int, CUdevice);
    CUresult (*destroy)(CUcontext);
    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&create = dlsym(cuda, "cuCtxCreate_v2");
    *(void **)&destroy = dlsym(cuda, "cuCtxDestroy_v2");
    CHECK(init && create && destroy && dlsym(cuda, "ioctl"));
    CHECK(init(0) == CUDA_SUCCESS);
    CUcontext ctx;
    CHECK(create(&ctx, 0, 0) == CUDA_SUCCESS);
    struct sl_sim_state *st;
    CHECK(sl_sim_open(&st, NULL) == 0);
    sl_sim_lock(st);
    uint32_t groups = 0;
    for (uint32_t i = 0; i < st->queue_high; i++)
        groups +=
            st->queues[i].used && st->queues[i].channels == 0xff && st->queues[i].slice_us == 2048;
    sl_sim_unlock(st);
    CHECK(groups == 1);
    CHECK(destroy(ctx) == CUDA_SUCCESS);
    return 0;
}
