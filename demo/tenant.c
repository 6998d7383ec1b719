/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant of the demo: an ordinary CUDA program that finds the driver by itself and knows nothing of
 * Sluice. It looks at its GPU, takes all the memory it can get down to the last 512 bytes, asks
 * for more, gives everything back, and then computes as fast as it may beside the others.
 *
 *   demo_tenant --probe               is there a GPU? prints its name and memory
 *   demo_tenant DIR NAME SECONDS      writes key=value lines to DIR/NAME; computes once DIR/go is there
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "kernels.h"

#define KERNEL_NS 200000ULL
#define BATCH     5
#define RING      4
#define MOST      512 /* allocations kept */

static struct {
    CUresult (*init)(unsigned int);
    CUresult (*device_count)(int *);
    CUresult (*device_name)(char *, int, CUdevice);
    CUresult (*device_total)(size_t *, CUdevice);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*module)(CUmodule *, const void *);
    CUresult (*function)(CUfunction *, CUmodule, const char *);
    CUresult (*launch)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                       unsigned int, unsigned int, unsigned int, CUstream, void **, void **);
    CUresult (*synchronize)(void);
    CUresult (*event)(CUevent *, unsigned int);
    CUresult (*record)(CUevent, CUstream);
    CUresult (*wait)(CUevent);
    CUresult (*info)(size_t *, size_t *);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*free)(CUdeviceptr);
    CUresult (*error_name)(CUresult, const char **);
} cu;

static bool find_driver(void)
{
    const struct {
        void *slot;
        const char *name;
    } wanted[] = {
        {&cu.init, "cuInit"},
        {&cu.device_count, "cuDeviceGetCount"},
        {&cu.device_name, "cuDeviceGetName"},
        {&cu.device_total, "cuDeviceTotalMem_v2"},
        {&cu.retain, "cuDevicePrimaryCtxRetain"},
        {&cu.set_current, "cuCtxSetCurrent"},
        {&cu.module, "cuModuleLoadData"},
        {&cu.function, "cuModuleGetFunction"},
        {&cu.launch, "cuLaunchKernel"},
        {&cu.synchronize, "cuCtxSynchronize"},
        {&cu.event, "cuEventCreate"},
        {&cu.record, "cuEventRecord"},
        {&cu.wait, "cuEventSynchronize"},
        {&cu.info, "cuMemGetInfo_v2"},
        {&cu.alloc, "cuMemAlloc_v2"},
        {&cu.free, "cuMemFree_v2"},
        {&cu.error_name, "cuGetErrorName"},
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; lib && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *f = dlsym(lib, wanted[i].name);
        if (!f)
            return false;
        memcpy(wanted[i].slot, &f, sizeof(f));
    }
    return lib != NULL;
}

static void must(CUresult rc, const char *what)
{
    const char *name = NULL;
    if (rc == CUDA_SUCCESS)
        return;
    (void)cu.error_name(rc, &name);
    (void)fprintf(stderr, "demo tenant: %s: %s\n", what, name ? name : "unknown error");
    exit(1);
}

static int probe(void)
{
    int count = 0;
    char name[128] = "";
    size_t total = 0;
    if (!find_driver() || cu.init(0) != CUDA_SUCCESS || cu.device_count(&count) != CUDA_SUCCESS ||
        count == 0 || cu.device_name(name, sizeof(name), 0) != CUDA_SUCCESS ||
        cu.device_total(&total, 0) != CUDA_SUCCESS)
        return 1;
    (void)printf("%zu %s\n", total, name);
    return 0;
}

static uint64_t now_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* Takes all there is: the largest pieces that fit, then ever smaller ones. */
static void memory(FILE *out)
{
    size_t total = 0, available = 0, got = 0, count = 0;
    static CUdeviceptr piece[MOST];
    must(cu.info(&available, &total), "cuMemGetInfo");
    for (size_t size = 1ULL << 30; size >= 512 && count < MOST;) {
        if (cu.alloc(&piece[count], size) == CUDA_SUCCESS) {
            got += size;
            count++;
        } else {
            size /= 2;
        }
    }
    CUdeviceptr extra = 0;
    const char *answer = NULL;
    (void)cu.error_name(cu.alloc(&extra, 1), &answer);
    (void)fprintf(out, "total=%zu\nfree=%zu\ngot=%zu\nmore=%s\n", total, available, got,
                  answer ? answer : "?");
    while (count > 0)
        must(cu.free(piece[--count]), "cuMemFree");
}

static void batch(CUfunction kernel, CUdeviceptr sink)
{
    uint64_t ns = KERNEL_NS;
    void *args[] = {&ns, &sink};
    for (int i = 0; i < BATCH; i++)
        must(cu.launch(kernel, KERNEL_GRID, 1, 1, KERNEL_BLOCK, 1, 1, 0, NULL, args, NULL),
             "cuLaunchKernel");
}

/* Several batches in flight: the GPU never waits for the host. */
static uint64_t compute(CUfunction kernel, CUdeviceptr sink, uint64_t until_ns)
{
    CUevent done[RING];
    uint64_t finished = 0;
    for (int i = 0; i < RING; i++) {
        must(cu.event(&done[i], 0), "cuEventCreate");
        batch(kernel, sink);
        must(cu.record(done[i], NULL), "cuEventRecord");
    }
    for (int i = 0;; i = (i + 1) % RING) {
        must(cu.wait(done[i]), "cuEventSynchronize");
        if (now_ns() >= until_ns)
            break;
        finished += BATCH;
        batch(kernel, sink);
        must(cu.record(done[i], NULL), "cuEventRecord");
    }
    must(cu.synchronize(), "cuCtxSynchronize");
    return finished;
}

/* Says that it is ready and waits for the others. */
static void meet(const char *dir, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s.ready", dir, name);
    FILE *f = fopen(path, "w");
    if (f)
        (void)fclose(f);
    (void)snprintf(path, sizeof(path), "%s/go", dir);
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int i = 0; access(path, F_OK) != 0 && i < 30000; i++)
        (void)nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--probe") == 0)
        return probe();
    if (argc != 4) {
        (void)fprintf(stderr, "usage: demo_tenant --probe | DIR NAME SECONDS\n");
        return 2;
    }
    if (!find_driver()) {
        (void)fprintf(stderr, "demo tenant: no CUDA driver: %s\n", dlerror());
        return 1;
    }
    char path[512], name[128] = "";
    (void)snprintf(path, sizeof(path), "%s/%s", argv[1], argv[2]);
    FILE *out = fopen(path, "w");
    if (!out)
        return 1;
    CUcontext ctx;
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr sink;
    must(cu.init(0), "cuInit");
    must(cu.device_name(name, sizeof(name), 0), "cuDeviceGetName");
    must(cu.retain(&ctx, 0), "cuDevicePrimaryCtxRetain");
    must(cu.set_current(ctx), "cuCtxSetCurrent");
    must(cu.module(&module, kernel_ptx), "cuModuleLoadData");
    must(cu.function(&kernel, module, KERNEL_NAME), "cuModuleGetFunction");
    must(cu.alloc(&sink, 512), "cuMemAlloc");
    batch(kernel, sink); /* contexts and modules take their memory at the first launch */
    must(cu.synchronize(), "cuCtxSynchronize");
    (void)fprintf(out, "device=%s\n", name);
    memory(out);

    meet(argv[1], argv[2]);
    uint64_t start = now_ns(), length = strtoull(argv[3], NULL, 10) * 1000000000ULL;
    uint64_t kernels = compute(kernel, sink, start + length);
    (void)fprintf(out, "kernels=%" PRIu64 "\nkernel_ns=%llu\nwindow_ns=%" PRIu64 "\n", kernels,
                  KERNEL_NS, length);
    return fclose(out) == 0 ? 0 : 1;
}
