/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant that keeps a GPU busy and counts what it got done. Plain driver API by dlopen, so the same
 * program runs on a simulated and on a real GPU.
 *
 *   compute_tenant MODE [key=value …]
 *
 * ns_per_iter=N says how long a turn of the kernel's loop takes: 1 on the simulated GPU; `calibrate`
 * measures it on a real one.
 *
 * MODE: steady   kernels back to back, two batches of `batch_us` in flight (kernel_us, seconds, streams)
 *       graph    graphs of `nodes` kernels       (kernel_us, nodes, seconds)
 *       long     one kernel of kernel_us, then steady
 *       forever  one kernel that never ends, until killed
 *       tiny     `count` empty kernels, as fast as they go
 *       calibrate  print ns_per_iter
 *       meet     pairs of kernels on two GPUs that wait for each other (count)
 *       churn    contexts made, used and destroyed with work in flight (kernel_us, seconds)
 *       primary  the same with the second GPU's primary context, released or reset
 *       garbage  steady, while every word of its ledger page is overwritten again and again
 *       closed   steady; rests; closes every descriptor and takes the numbers itself; steady again
 *
 * threads=N: steady, graph and churn run in that many threads at once, each with its own streams.
 * rest=SECONDS: nothing is done for so long afterwards.
 *
 * Prints one JSON line: work done (launches, GPU ns) in all and in each tenth of a second.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "common/kernels_ptx.h"
#include "sluice/pages.h"

#define BINS 600

static struct {
    const char *mode;
    double kernel_us, batch_us, seconds, rest, ns_per_iter;
    unsigned nodes, count, streams, threads;
} opt = {"steady", 100, 2000, 3, 0, 1, 20, 1000, 1, 1};

static void *driver;
static uint64_t begin_ns, done_launches, done_ns, bin_ns[BINS];
static unsigned last_bin;
static pthread_mutex_t done_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void *sym(const char *name)
{
    void *p = dlsym(driver, name);
    if (!p) {
        fprintf(stderr, "no %s\n", name);
        exit(3);
    }
    return p;
}

/* CU(cuInit, 0): looks the function up once and calls it; any error ends the program. */
#define CU(function, ...)                                                                          \
    do {                                                                                           \
        static _Atomic(__typeof__(&function)) cache_;                                              \
        __typeof__(&function) p_ = cache_;                                                         \
        if (!p_)                                                                                   \
            cache_ = p_ = (__typeof__(&function))(uintptr_t)sym(#function);                        \
        CUresult rc_ = p_(__VA_ARGS__);                                                            \
        if (rc_ != CUDA_SUCCESS) {                                                                 \
            fprintf(stderr, "%s: error %d\n", #function, (int)rc_);                                \
            exit(4);                                                                               \
        }                                                                                          \
    } while (0)

static void completed(unsigned launches, uint64_t ns)
{
    uint64_t bin = (now_ns() - begin_ns) / 100000000ULL;
    (void)pthread_mutex_lock(&done_lock);
    done_launches += launches;
    done_ns += ns;
    if (bin < BINS) {
        bin_ns[bin] += ns;
        if (bin > last_bin)
            last_bin = (unsigned)bin;
    }
    (void)pthread_mutex_unlock(&done_lock);
}

static void report(void)
{
    printf("{\"launches\": %llu, \"done_ns\": %llu, \"elapsed_ns\": %llu, \"tenths\": [",
           (unsigned long long)done_launches, (unsigned long long)done_ns,
           (unsigned long long)(now_ns() - begin_ns));
    for (unsigned i = 0; i <= last_bin; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)bin_ns[i]);
    printf("]}\n");
    fflush(stdout);
}

static uint64_t kernel_ns(void)
{
    return (uint64_t)(opt.kernel_us * 1000);
}

static uint64_t iterations(void)
{
    return (uint64_t)(opt.kernel_us * 1000 / opt.ns_per_iter);
}

static void launch(CUfunction f, CUstream stream, uint64_t *args, int n)
{
    void *params[4];
    for (int i = 0; i < n; i++)
        params[i] = &args[i];
    CU(cuLaunchKernel, f, 132, 1, 1, 256, 1, 1, 0, stream, params, NULL);
}

/* Keeps two batches in flight, so that the GPU is never without work. */
static void steady(CUfunction fma, CUdeviceptr out)
{
    CUstream stream[16];
    CUevent event[2][16];
    uint64_t args[2] = {iterations(), out};
    unsigned batch = (unsigned)(opt.batch_us / opt.kernel_us);
    batch = batch < 1 ? 1 : batch > 64 ? 64 : batch;
    for (unsigned s = 0; s < opt.streams; s++) {
        CU(cuStreamCreate, &stream[s], CU_STREAM_NON_BLOCKING);
        for (int k = 0; k < 2; k++)
            CU(cuEventCreate, &event[k][s], CU_EVENT_DEFAULT);
    }
    for (unsigned i = 0; now_ns() - begin_ns < (uint64_t)(opt.seconds * 1e9); i++)
        for (unsigned s = 0; s < opt.streams; s++) {
            for (unsigned k = 0; k < batch; k++)
                launch(fma, stream[s], args, 2);
            CU(cuEventRecord, event[i % 2][s], stream[s]);
            if (i == 0)
                continue;
            CU(cuEventSynchronize, event[(i + 1) % 2][s]);
            completed(batch, batch * kernel_ns());
        }
    CU(cuCtxSynchronize);
    for (unsigned s = 0; s < opt.streams; s++) {
        CU(cuStreamDestroy_v2, stream[s]);
        for (int k = 0; k < 2; k++)
            CU(cuEventDestroy_v2, event[k][s]);
    }
}

static void calibrate(CUfunction fma, CUdeviceptr out)
{
    uint64_t args[2] = {10000000, out};
    CUevent event[2];
    float ms = 0;
    for (int k = 0; k < 2; k++)
        CU(cuEventCreate, &event[k], CU_EVENT_DEFAULT);
    for (int i = 0; i < 3; i++) { /* the first ones raise the clocks */
        CU(cuEventRecord, event[0], NULL);
        for (int k = 0; k < 5; k++)
            launch(fma, NULL, args, 2);
        CU(cuEventRecord, event[1], NULL);
        CU(cuEventSynchronize, event[1]);
        CU(cuEventElapsedTime, &ms, event[0], event[1]);
    }
    printf("%.5f\n", (double)ms * 1e6 / 5 / (double)args[0]);
}

static void graphs(CUfunction fma, CUdeviceptr out)
{
    uint64_t args[2] = {iterations(), out};
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUevent event[2];
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CU(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (unsigned i = 0; i < opt.nodes; i++)
        launch(fma, stream, args, 2);
    CU(cuStreamEndCapture, stream, &graph);
    CU(cuGraphInstantiateWithFlags, &exec, graph, 0);
    for (int k = 0; k < 2; k++)
        CU(cuEventCreate, &event[k], CU_EVENT_DEFAULT);
    for (unsigned i = 0; now_ns() - begin_ns < (uint64_t)(opt.seconds * 1e9); i++) {
        CU(cuGraphLaunch, exec, stream);
        CU(cuEventRecord, event[i % 2], stream);
        if (i == 0)
            continue;
        CU(cuEventSynchronize, event[(i + 1) % 2]);
        completed(1, opt.nodes * kernel_ns());
    }
    CU(cuCtxSynchronize);
    CU(cuGraphExecDestroy, exec);
    CU(cuGraphDestroy, graph);
    CU(cuStreamDestroy_v2, stream);
    for (int k = 0; k < 2; k++)
        CU(cuEventDestroy_v2, event[k]);
}

static void use_and_leave(void)
{
    CUmodule module;
    CUfunction fma;
    CUdeviceptr out;
    CUstream stream[2];
    CU(cuModuleLoadData, &module, sluice_kernels_ptx);
    CU(cuModuleGetFunction, &fma, module, "sluice_fma");
    CU(cuMemAlloc_v2, &out, 4096);
    uint64_t args[2] = {iterations(), out};
    for (int s = 0; s < 2; s++)
        CU(cuStreamCreate, &stream[s], CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 20; i++)
        launch(fma, stream[i % 2], args, 2);
    launch(fma, NULL, args, 2);
}

/* A context takes its events and its work along, whoever still looks at them. */
static void churn(void)
{
    do {
        CUcontext context;
        CU(cuCtxCreate_v2, &context, 0, 0);
        use_and_leave();
        CU(cuCtxDestroy_v2, context);
        completed(21, 0);
    } while (now_ns() - begin_ns < (uint64_t)(opt.seconds * 1e9));
}

static void primary(void)
{
    unsigned i = 0;
    do {
        CUcontext context;
        CU(cuDevicePrimaryCtxRetain, &context, 1);
        CU(cuCtxSetCurrent, context);
        use_and_leave();
        if (i++ % 2)
            CU(cuDevicePrimaryCtxReset_v2, 1);
        else
            CU(cuDevicePrimaryCtxRelease_v2, 1);
        completed(21, 0);
    } while (now_ns() - begin_ns < (uint64_t)(opt.seconds * 1e9));
}

struct work {
    CUcontext context;
    CUfunction fma;
    CUdeviceptr out;
};

static void *in_thread(void *arg)
{
    const struct work *w = arg;
    if (strcmp(opt.mode, "churn") == 0) {
        churn();
        return NULL;
    }
    CU(cuCtxSetCurrent, w->context);
    if (strcmp(opt.mode, "graph") == 0)
        graphs(w->fma, w->out);
    else
        steady(w->fma, w->out);
    return NULL;
}

static void in_threads(struct work w)
{
    pthread_t thread[64];
    for (unsigned i = 0; i + 1 < opt.threads; i++)
        if (pthread_create(&thread[i], NULL, in_thread, &w) != 0)
            exit(5);
    (void)in_thread(&w);
    for (unsigned i = 0; i + 1 < opt.threads; i++)
        (void)pthread_join(thread[i], NULL);
}

static void meet(CUmodule *module, CUcontext *context)
{
    CUfunction f[2];
    CUstream stream[2];
    CUdeviceptr flag[2];
    for (int d = 0; d < 2; d++) {
        CU(cuCtxSetCurrent, context[d]);
        CU(cuModuleGetFunction, &f[d], module[d], "sluice_meet");
        CU(cuStreamCreate, &stream[d], CU_STREAM_NON_BLOCKING);
        CU(cuMemAlloc_v2, &flag[d], 4096);
    }
    for (unsigned i = 0; i < opt.count; i++) {
        for (int d = 0; d < 2; d++) {
            CU(cuCtxSetCurrent, context[d]);
            CU(cuMemsetD32_v2, flag[d], 0, 16);
            CU(cuCtxSynchronize); /* the streams do not wait for the default one */
        }
        for (int d = 0; d < 2; d++) {
            uint64_t args[2] = {flag[d], flag[1 - d]};
            CU(cuCtxSetCurrent, context[d]);
            launch(f[d], stream[d], args, 2);
        }
        for (int d = 0; d < 2; d++) {
            CU(cuCtxSetCurrent, context[d]);
            CU(cuStreamSynchronize, stream[d]);
        }
        completed(2, 0);
    }
}

static _Atomic int stop_writing;

static void *write_garbage(void *page)
{
    uint64_t *word = page, x = 88172645463325252ULL;
    size_t words = sizeof(struct sl_ledger_page) / sizeof(*word);
    for (size_t n = 0; !stop_writing; n++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        /* The header and the first slots, one of which is ours, more often than the rest. */
        size_t at = (size_t)(x >> 20) % (n % 4 ? 4096 / sizeof(*word) : words);
        __atomic_store_n(&word[at], n % 3 ? x : x & 3, __ATOMIC_RELAXED);
        if (n % 512 == 0)
            usleep(100);
    }
    return NULL;
}

static void garbage(CUfunction fma, CUdeviceptr out)
{
    pthread_t thread;
    char line[512];
    void *page = NULL;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !page && fgets(line, sizeof(line), maps))
        if (strstr(line, "sluice-ledger"))
            page = (void *)(uintptr_t)strtoull(line, NULL, 16);
    if (maps)
        (void)fclose(maps);
    if (!page || pthread_create(&thread, NULL, write_garbage, page) != 0)
        exit(5);
    steady(fma, out);
    stop_writing = 1;
    (void)pthread_join(thread, NULL);
}

/* Without these there is no CUDA at all. */
static int drivers_own(int fd)
{
    char link[64], target[4096];
    const char *state = getenv("SLUICE_SIM_STATE");
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof(target) - 1);
    if (n < 0)
        return 0;
    target[n] = '\0';
    return strstr(target, "nvidia") || (state && strcmp(target, state) == 0);
}

/* The program's own file must stay empty: nobody else may think that one of its numbers is theirs. */
static void closed(CUfunction fma, CUdeviceptr out)
{
    struct stat st;
    struct rlimit limit;
    char name[] = "/tmp/sluice-closed-XXXXXX";
    double all = opt.seconds;
    opt.seconds = all / 3;
    steady(fma, out);
    usleep(400000); /* nothing to do: whoever watches us has gone to sleep */
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    int own = mkstemp(name);
    (void)unlink(name);
    for (int fd = 3; fd < 700 && fd < (int)limit.rlim_cur - 50; fd++)
        if (fd != own && !drivers_own(fd))
            /* Not by dup2(): ThreadSanitizer would call what is tried here, numbers that others use, a race. */
            (void)syscall(SYS_dup3, own, fd, 0);
    opt.seconds = all;
    steady(fma, out);
    if (fstat(own, &st) != 0 || st.st_size != 0) {
        fprintf(stderr, "somebody wrote %lld bytes into the program's file\n",
                (long long)st.st_size);
        exit(6);
    }
}

static void parse(int argc, char **argv)
{
    if (argc > 1)
        opt.mode = argv[1];
    for (int i = 2; i < argc; i++) {
        const char *eq = strchr(argv[i], '=');
        double v = eq ? atof(eq + 1) : 0;
        if (strncmp(argv[i], "kernel_us=", 10) == 0)
            opt.kernel_us = v;
        else if (strncmp(argv[i], "batch_us=", 9) == 0)
            opt.batch_us = v;
        else if (strncmp(argv[i], "seconds=", 8) == 0)
            opt.seconds = v;
        else if (strncmp(argv[i], "rest=", 5) == 0)
            opt.rest = v;
        else if (strncmp(argv[i], "ns_per_iter=", 12) == 0)
            opt.ns_per_iter = v;
        else if (strncmp(argv[i], "nodes=", 6) == 0)
            opt.nodes = (unsigned)v;
        else if (strncmp(argv[i], "count=", 6) == 0)
            opt.count = (unsigned)v;
        else if (strncmp(argv[i], "streams=", 8) == 0)
            opt.streams = (unsigned)v;
        else if (strncmp(argv[i], "threads=", 8) == 0 && v >= 1 && v <= 64)
            opt.threads = (unsigned)v;
        else {
            fprintf(stderr, "unknown option %s\n", argv[i]);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    CUcontext context[2];
    CUmodule module[2];
    CUfunction fma, empty, forever;
    CUdeviceptr out;
    parse(argc, argv);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    CU(cuInit, 0);
    int devices = strcmp(opt.mode, "meet") == 0 ? 2 : 1;
    for (int d = devices - 1; d >= 0; d--) {
        CU(cuDevicePrimaryCtxRetain, &context[d], d);
        CU(cuCtxSetCurrent, context[d]);
        CU(cuModuleLoadData, &module[d], sluice_kernels_ptx);
    }
    CU(cuModuleGetFunction, &fma, module[0], "sluice_fma");
    CU(cuModuleGetFunction, &empty, module[0], "sluice_empty");
    CU(cuModuleGetFunction, &forever, module[0], "sluice_forever");
    CU(cuMemAlloc_v2, &out, 1 << 20);
    begin_ns = now_ns();
    fprintf(stderr, "ready %d\n", (int)getpid());

    if (strcmp(opt.mode, "steady") == 0 || strcmp(opt.mode, "graph") == 0 ||
        strcmp(opt.mode, "churn") == 0) {
        in_threads((struct work){context[0], fma, out});
    } else if (strcmp(opt.mode, "long") == 0) {
        uint64_t args[2] = {iterations(), out};
        launch(fma, NULL, args, 2);
        opt.kernel_us = 100;
        steady(fma, out);
    } else if (strcmp(opt.mode, "forever") == 0) {
        launch(forever, NULL, NULL, 0);
        pause();
    } else if (strcmp(opt.mode, "calibrate") == 0) {
        calibrate(fma, out);
        return 0;
    } else if (strcmp(opt.mode, "tiny") == 0) {
        for (unsigned i = 0; i < opt.count; i++)
            launch(empty, NULL, NULL, 0);
        CU(cuCtxSynchronize);
        completed(opt.count, 0);
    } else if (strcmp(opt.mode, "primary") == 0) {
        primary();
        CU(cuCtxSetCurrent, context[0]);
    } else if (strcmp(opt.mode, "garbage") == 0) {
        garbage(fma, out);
    } else if (strcmp(opt.mode, "closed") == 0) {
        closed(fma, out);
    } else if (strcmp(opt.mode, "meet") == 0) {
        meet(module, context);
    } else {
        fprintf(stderr, "unknown mode %s\n", opt.mode);
        return 2;
    }
    if (opt.rest > 0)
        usleep((useconds_t)(opt.rest * 1e6));
    report();
    for (int d = 0; d < devices; d++)
        CU(cuModuleUnload, module[d]);
    return 0;
}
