/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA program in few words, for tests: context, kernels, streams. Calls the driver by its linked
 * names, so a preloaded libsluice sees them. Any failure ends the program with a line saying where. */
#ifndef SLUICE_TESTS_TENANT_H
#define SLUICE_TESTS_TENANT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/cuda.h"

#define CU_OK(call)                                                                                \
    do {                                                                                           \
        CUresult cu_ok_ = (call);                                                                  \
        if (cu_ok_ != CUDA_SUCCESS) {                                                              \
            (void)fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, (int)cu_ok_);     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CU_IS(want, call)                                                                          \
    do {                                                                                           \
        CUresult cu_is_ = (call);                                                                  \
        if (cu_is_ != (want)) {                                                                    \
            (void)fprintf(stderr, "%s:%d: %s = %d, not %d\n", __FILE__, __LINE__, #call,           \
                          (int)cu_is_, (int)(want));                                               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct sl_tenant {
    CUdevice dev;
    CUcontext ctx;
    CUmodule module;
    CUfunction empty, fma, fill, add, spin, forever, meet;
};

/* cuInit, the primary context of an ordinal made current, kernels loaded. */
void sl_tenant_open(struct sl_tenant *t, int ordinal);
void sl_tenant_close(struct sl_tenant *t);

/* Launches; sizes chosen for what the kernel is. */
void sl_tenant_empty(struct sl_tenant *t, CUstream s);
void sl_tenant_fma(struct sl_tenant *t, CUstream s, uint64_t iters);
void sl_tenant_fill(struct sl_tenant *t, CUstream s, CUdeviceptr p, uint32_t value, uint32_t count);
void sl_tenant_add(struct sl_tenant *t, CUstream s, CUdeviceptr p, uint32_t value, uint32_t count);
void sl_tenant_spin(struct sl_tenant *t, CUstream s, CUdeviceptr flag, uint32_t value);
void sl_tenant_forever(struct sl_tenant *t, CUstream s);
void sl_tenant_meet(struct sl_tenant *t, CUstream s, CUdeviceptr mine, CUdeviceptr theirs);

/* Milliseconds of CLOCK_MONOTONIC. */
double sl_tenant_now_ms(void);

#endif
