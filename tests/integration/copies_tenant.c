/* SPDX-License-Identifier: Apache-2.0 */
/* Calls every copy within the card and every memset once, says how many calls counted, and waits for its input to end. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/cuda.h"

#define BYTES (1U << 20)

static void *driver;

static void *entry(const char *name)
{
    void *found = dlsym(driver, name);
    if (!found) {
        (void)fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}

static void check(const char *name, CUresult rc)
{
    if (rc == CUDA_SUCCESS)
        return;
    (void)fprintf(stderr, "%s: %d\n", name, (int)rc);
    exit(3);
}

typedef CUresult copy_call(CUdeviceptr, CUdeviceptr, size_t);
typedef CUresult copy_queue(CUdeviceptr, CUdeviceptr, size_t, CUstream);

static unsigned copies(CUdeviceptr a, CUdeviceptr b, CUdeviceptr host)
{
    static const char *const waiting[] = {"cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds", "cuMemcpy",
                                          "cuMemcpy_ptds"};
    static const char *const queued[] = {"cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2_ptsz",
                                         "cuMemcpyAsync", "cuMemcpyAsync_ptsz"};
    for (unsigned i = 0; i < 4; i++) {
        check(waiting[i], ((copy_call *)(uintptr_t)entry(waiting[i]))(a, b, BYTES));
        check(queued[i], ((copy_queue *)(uintptr_t)entry(queued[i]))(a, b, BYTES, NULL));
        if (i < 2)
            continue;
        /* Copies from and to the host have engines of their own: they do not count. */
        check(waiting[i], ((copy_call *)(uintptr_t)entry(waiting[i]))(a, host, BYTES));
        check(queued[i], ((copy_queue *)(uintptr_t)entry(queued[i]))(host, b, BYTES, NULL));
    }
    return 8;
}

/* A value of 8 or 16 bits is passed like one of 32. */
typedef CUresult set_call(CUdeviceptr, unsigned, size_t);
typedef CUresult set_queue(CUdeviceptr, unsigned, size_t, CUstream);
typedef CUresult set_2d_call(CUdeviceptr, size_t, unsigned, size_t, size_t);
typedef CUresult set_2d_queue(CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream);

static unsigned memsets(CUdeviceptr a)
{
    unsigned calls = 0;
    char name[40];
    for (unsigned bits = 8; bits <= 32; bits *= 2)
        for (unsigned i = 0; i < 2; i++, calls += 4) {
            (void)snprintf(name, sizeof(name), "cuMemsetD%u_v2%s", bits, i ? "_ptds" : "");
            check(name, ((set_call *)(uintptr_t)entry(name))(a, 7, 1024));
            (void)snprintf(name, sizeof(name), "cuMemsetD%uAsync%s", bits, i ? "_ptsz" : "");
            check(name, ((set_queue *)(uintptr_t)entry(name))(a, 7, 1024, NULL));
            (void)snprintf(name, sizeof(name), "cuMemsetD2D%u_v2%s", bits, i ? "_ptds" : "");
            check(name, ((set_2d_call *)(uintptr_t)entry(name))(a, 4096, 7, 16, 16));
            (void)snprintf(name, sizeof(name), "cuMemsetD2D%uAsync%s", bits, i ? "_ptsz" : "");
            check(name, ((set_2d_queue *)(uintptr_t)entry(name))(a, 4096, 7, 16, 16, NULL));
        }
    return calls;
}

int main(void)
{
    CUcontext context;
    CUdeviceptr a, b;
    void *host;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return 1;
    check("cuInit", ((__typeof__(&cuInit))(uintptr_t)entry("cuInit"))(0));
    check("retain", ((__typeof__(&cuDevicePrimaryCtxRetain))(uintptr_t)entry(
                        "cuDevicePrimaryCtxRetain"))(&context, 0));
    check("current", ((__typeof__(&cuCtxSetCurrent))(uintptr_t)entry("cuCtxSetCurrent"))(context));
    __typeof__(&cuMemAlloc_v2) alloc = (__typeof__(alloc))(uintptr_t)entry("cuMemAlloc_v2");
    check("alloc", alloc(&a, BYTES));
    check("alloc", alloc(&b, BYTES));
    check("host",
          ((CUresult(*)(void **, size_t))(uintptr_t)entry("cuMemAllocHost_v2"))(&host, BYTES));
    unsigned calls = copies(a, b, (CUdeviceptr)(uintptr_t)host) + memsets(a);
    check("synchronize", ((CUresult(*)(void))(uintptr_t)entry("cuCtxSynchronize"))());
    (void)printf("%u\n", calls);
    (void)fflush(stdout);
    (void)getchar();
    return 0;
}
