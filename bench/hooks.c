/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks launch N | hooks alloc N FREES: N launches of an empty kernel, or N allocations of which
 * FREES are freed. Run under callgrind with two N's: the difference is what one call costs.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/cuda.h"

__asm__(".section .rodata\n.global bench_ptx\nbench_ptx:\n.incbin \"" KERNELS_PTX
        "\"\n.byte 0\n.previous\n");
extern const char bench_ptx[];

#define SYNC_EVERY 512 /* launches; the driver's queue holds twice as many */

static void *lib;

static void *look(const char *name)
{
    void *p = dlsym(lib, name);
    if (!p) {
        (void)fprintf(stderr, "hooks: %s\n", dlerror());
        exit(1);
    }
    return p;
}

static void check(CUresult r, const char *what)
{
    if (r == CUDA_SUCCESS)
        return;
    (void)fprintf(stderr, "hooks: %s: error %d\n", what, (int)r);
    exit(1);
}

#define FN(name)                                                                                   \
    __typeof__(&(name)) name##_p;                                                                  \
    *(void **)&name##_p = look(#name)

static void launches(unsigned long n)
{
    CUmodule module;
    CUfunction empty;
    FN(cuModuleLoadData);
    FN(cuModuleGetFunction);
    FN(cuLaunchKernel);
    FN(cuStreamSynchronize);
    check(cuModuleLoadData_p(&module, bench_ptx), "cuModuleLoadData");
    check(cuModuleGetFunction_p(&empty, module, "sluice_empty"), "cuModuleGetFunction");
    for (unsigned long i = 1; i <= n; i++) {
        check(cuLaunchKernel_p(empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        if (i % SYNC_EVERY == 0)
            check(cuStreamSynchronize_p(NULL), "cuStreamSynchronize");
    }
    check(cuStreamSynchronize_p(NULL), "cuStreamSynchronize");
}

static void allocs(unsigned long n, unsigned long frees)
{
    CUdeviceptr *p = calloc(n + 1, sizeof(*p));
    FN(cuMemAlloc_v2);
    FN(cuMemFree_v2);
    if (!p)
        exit(1);
    for (unsigned long i = 0; i < n; i++)
        check(cuMemAlloc_v2_p(&p[i], 1 << 16), "cuMemAlloc_v2");
    for (unsigned long i = 0; i < frees && i < n; i++)
        check(cuMemFree_v2_p(p[i]), "cuMemFree_v2");
    free(p);
}

int main(int argc, char **argv)
{
    CUdevice dev;
    CUcontext ctx;
    if (argc < 3)
        return 2;
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) {
        (void)fprintf(stderr, "hooks: %s\n", dlerror());
        return 1;
    }
    FN(cuInit);
    FN(cuDeviceGet);
    FN(cuDevicePrimaryCtxRetain);
    FN(cuCtxSetCurrent);
    check(cuInit_p(0), "cuInit");
    check(cuDeviceGet_p(&dev, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain_p(&ctx, dev), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent_p(ctx), "cuCtxSetCurrent");
    if (strcmp(argv[1], "launch") == 0)
        launches(strtoul(argv[2], NULL, 10));
    else
        allocs(strtoul(argv[2], NULL, 10), argc > 3 ? strtoul(argv[3], NULL, 10) : 0);
    _exit(0); /* what happens at exit is not what is counted */
}
