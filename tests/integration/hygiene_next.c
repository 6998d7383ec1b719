/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that stands in front of the driver itself, as profilers do: it defines cuMemAlloc_v2 and
 * passes on to what RTLD_NEXT gives. Preloaded before or after libsluice, the limit must hold and
 * its own call must count.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cuda.h"

int hygiene_next_calls(void) __attribute__((visibility("default")));
extern __typeof__(cuMemAlloc_v2) cuMemAlloc_v2 __attribute__((visibility("default")));

static int calls;

int hygiene_next_calls(void)
{
    return calls;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    __typeof__(&cuMemAlloc_v2) next =
        (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    calls++;
    return next ? next(dptr, bytesize) : CUDA_ERROR_NOT_FOUND;
}
