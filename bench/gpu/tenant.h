/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmark's tenant: a plain CUDA driver-API program with no idea of Sluice. It keeps the GPU
 * busy with one kind of work over an interval that the harness names, and says what was completed
 * when. Builds with `cc` alone; libcuda and cuBLAS are opened at run time.
 */
#ifndef SLUICE_BENCH_TENANT_H
#define SLUICE_BENCH_TENANT_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"

#define TENANT_CUDA(X)                                                                             \
    X(cuInit)                                                                                      \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleGetFunction)                                                                         \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemcpyHtoD_v2)                                                                             \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuMemsetD8_v2)                                                                               \
    X(cuMemcpyDtoDAsync_v2)                                                                        \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuLaunchHostFunc)                                                                            \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemHostGetDevicePointer_v2)                                                                \
    X(cuStreamWaitValue32_v2)                                                                      \
    X(cuStreamCreate)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamBeginCapture_v2)                                                                     \
    X(cuStreamEndCapture)                                                                          \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphLaunch)                                                                               \
    X(cuEventCreate)                                                                               \
    X(cuEventRecord)                                                                               \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuGetErrorName)

struct tenant_api {
#define MEMBER(name) __typeof__(&(name)) name;
    TENANT_CUDA(MEMBER)
#undef MEMBER
};

enum tenant_work {
    WORK_FMA,
    WORK_GRAPH,
    WORK_TINY,
    WORK_REQ,
    WORK_GEMM,
    WORK_SYNC,  /* one kernel, synchronise, again */
    WORK_MIXED, /* a unit is eight kernels from half to fifty times `iters` */
    WORK_COPY,  /* within the card */
    WORK_COOP,  /* cooperative launches */
    WORK_EAGER, /* many short kernels with the host's work between them, then a wait: bound by launches */
    WORK_TRAIN,     /* kernels for 17 ms, a wait, then 5 ms of work on the host */
    WORK_HOSTFN,    /* kernels queued behind a host function that waits until all are queued */
    WORK_WAITVALUE, /* the same behind a value in memory */
};

#define EAGER_KERNELS  150
#define EAGER_HOST_NS  14000
#define TRAIN_KERNELS  100
#define TRAIN_HOST_NS  5000000
#define QUEUED_KERNELS 32

#define GRAPH_KERNELS 20
#define TINY_BURST    256 /* launches timed from an empty queue: no back-pressure in the figure */
#define MAX_BUCKETS   4096
#define MAX_SAMPLES   32768
#define MAX_STAMPS    4096
#define STAMP_FROM_US 1000 /* kernels this long say themselves how long they ran */
#define MAX_LANES     64
#define COPY_BYTES    (256ULL << 20)

struct tenant_options {
    enum tenant_work work;
    uint64_t iters;     /* of each fma kernel */
    double unit_us;     /* how long one unit of work runs alone; 0: found out at start */
    double target_us;   /* --calibrate: find the iters for this */
    double queue_ms;    /* work kept in the queue */
    uint64_t period_ns; /* req: one request per period */
    uint64_t bucket_ns;
    unsigned processes, threads, streams;
    unsigned blocks;  /* of each fma kernel; 0: every SM full */
    uint64_t host_ns; /* eager: the host's work before each launch */
    bool calibrate, count, launch_pairs;
    bool ones; /* gemm: of ones, which costs less power than random numbers */
    const char *cublas;
};

/* One interval of load and what of it is measured, on CLOCK_MONOTONIC. */
struct tenant_go {
    uint64_t load_from_ns, load_until_ns, from_ns, until_ns;
};

/* What one process completed; lies in memory shared with the parent of several. */
struct tenant_result {
    uint32_t buckets, samples, latencies, kernels;
    uint64_t launched, finished, counted, expected; /* units; and what the GPU itself counted */
    double first_call_ms;
    double done[MAX_BUCKETS];
    float sample_us[MAX_SAMPLES];  /* time per unit (tiny: host ns per launch) */
    float latency_ms[MAX_SAMPLES]; /* req */
    float kernel_us[MAX_STAMPS];   /* by the kernels' own stamps */
};

/* The program, once per process. */
struct tenant {
    struct tenant_options opt;
    struct tenant_api cu;
    void *lib;
    CUdevice dev;
    CUcontext ctx;
    CUfunction fma, stamped, empty, add; /* stamped: NULL without */
    unsigned grid;
    double first_call_ms;
    struct tenant_blas *blas;
};

/* A thread with its streams. Events bound the queue and date its completions by the GPU's clock. */
#define LANE_EVENTS 64
#define MAX_STREAMS 8
struct tenant_lane {
    struct tenant *t;
    CUstream stream[MAX_STREAMS];
    CUevent event[LANE_EVENTS], ref;
    CUgraphExec graph;
    CUdeviceptr counter, stamps; /* begin and end of each kernel, a ring */
    CUdeviceptr copy_from, copy_to;
    volatile uint32_t *flag; /* what queued kernels wait for */
    CUdeviceptr flag_address;
    uint64_t ref_ns, prev_end_ns[MAX_STREAMS];
    unsigned per_chunk, chunks; /* units between events, events outstanding */
    struct tenant_go go;
    struct tenant_result *out;
    struct tenant_result own;
};

uint64_t tenant_now_ns(void);
void tenant_sleep_until(uint64_t when_ns);
void tenant_busy_until(uint64_t when_ns);
_Noreturn void tenant_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void tenant_check(struct tenant *t, CUresult r, const char *what);
#define CU(t, call, ...) tenant_check((t), (t)->cu.call(__VA_ARGS__), #call)

/* tenant_work.c */
void tenant_lane_open(struct tenant_lane *lane, struct tenant *t);
void tenant_lane_run(struct tenant_lane *lane, const struct tenant_go *go);
double tenant_unit_us(struct tenant_lane *lane, uint64_t iters, unsigned units);

/* tenant_pairs.c */
void tenant_launch_pairs(struct tenant *t, void *lib);

/* tenant_gemm.c: cuBLAS bf16 4096 x 4096 x 4096 */
struct tenant_blas *tenant_gemm_open(struct tenant *t);
void tenant_gemm_launch(struct tenant *t, CUstream stream);

#endif
