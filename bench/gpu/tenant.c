/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant --work fma|graph|tiny|req|gemm|sync|mixed|copy|coop|eager|train|hostfn|waitvalue [options]
 *
 * Says {"ready": ...} on stdout when it could start, then obeys lines on stdin:
 *   go LOAD_FROM LOAD_UNTIL FROM UNTIL     (CLOCK_MONOTONIC ns) one interval of load; answered by one
 *                                          line of JSON about what was completed in [FROM, UNTIL)
 * and leaves at the end of stdin. --calibrate finds the iterations for a kernel length instead, --launch-pairs measures
 * a launch (tenant_pairs.c).
 * Several tenants given the same line overlap exactly, however long each takes to start.
 */
#include "tenant.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The kernels' PTX, as text with its terminating zero. */
__asm__(
    ".section .rodata\n.global tenant_ptx, tenant_stamped_ptx\ntenant_ptx:\n.incbin \"" KERNELS_PTX
    "\"\n.byte 0\ntenant_stamped_ptx:\n.incbin \"" STAMPED_PTX "\"\n.byte 0\n.previous\n");
extern const char tenant_ptx[], tenant_stamped_ptx[];

uint64_t tenant_now_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

void tenant_sleep_until(uint64_t when_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(when_ns / 1000000000U),
                          .tv_nsec = (long)(when_ns % 1000000000U)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        ;
}

/* Busy, as a program that computes is. On a clock that goes on only when everybody waits: waiting. */
void tenant_busy_until(uint64_t when_ns)
{
    static int waits = -1;
    if (waits < 0)
        waits = getenv("SLUICE_BENCH_CLOCK") != NULL;
    if (waits && tenant_now_ns() < when_ns)
        tenant_sleep_until(when_ns);
    while (tenant_now_ns() < when_ns)
        ;
}

void tenant_die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fputs("tenant: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

void tenant_check(struct tenant *t, CUresult r, const char *what)
{
    const char *name = NULL;
    if (r == CUDA_SUCCESS)
        return;
    (void)t->cu.cuGetErrorName(r, &name);
    tenant_die("%s: %s (%d)", what, name ? name : "unknown error", (int)r);
}

static void open_gpu(struct tenant *t)
{
    CUmodule module, stamped;
    int sms = 0, threads = 0;
    uint64_t start = tenant_now_ns();
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!lib)
        tenant_die("%s", dlerror());
    t->lib = lib;
#define LOOK(name)                                                                                 \
    *(void **)&t->cu.name = dlsym(lib, #name);                                                     \
    if (!t->cu.name)                                                                               \
        tenant_die("the driver has no %s", #name);
    TENANT_CUDA(LOOK)
#undef LOOK
    CU(t, cuInit, 0);
    CU(t, cuDeviceGet, &t->dev, 0);
    CU(t, cuDevicePrimaryCtxRetain, &t->ctx, t->dev);
    CU(t, cuCtxSetCurrent, t->ctx);
    t->first_call_ms = (double)(tenant_now_ns() - start) / 1e6;
    CU(t, cuModuleLoadData, &module, tenant_ptx);
    CU(t, cuModuleGetFunction, &t->fma, module, "sluice_fma");
    if (t->cu.cuModuleLoadData(&stamped, tenant_stamped_ptx) != CUDA_SUCCESS ||
        t->cu.cuModuleGetFunction(&t->stamped, stamped, "sluice_fma") != CUDA_SUCCESS) {
        (void)fputs("tenant: no stamped kernels here: lengths come from events\n", stderr);
        t->stamped = NULL;
    }
    CU(t, cuModuleGetFunction, &t->empty, module, "sluice_empty");
    CU(t, cuModuleGetFunction, &t->add, module, "sluice_add_u32");
    CU(t, cuDeviceGetAttribute, &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, t->dev);
    CU(t, cuDeviceGetAttribute, &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
       t->dev);
    /* Every SM full, one wave, unless told otherwise. */
    t->grid = t->opt.blocks ? t->opt.blocks : (unsigned)(sms * (threads / 256));
    if (t->opt.work == WORK_GEMM)
        t->blas = tenant_gemm_open(t);
}

/* ---- one process ---- */

static struct tenant_lane *lanes;

static void merge(struct tenant_result *to, const struct tenant_result *from)
{
    to->buckets = from->buckets;
    to->launched += from->launched;
    to->finished += from->finished;
    to->counted += from->counted;
    to->expected += from->expected;
    if (from->first_call_ms > to->first_call_ms)
        to->first_call_ms = from->first_call_ms;
    for (uint32_t i = 0; i < from->buckets; i++)
        to->done[i] += from->done[i];
    for (uint32_t i = 0; i < from->samples && to->samples < MAX_SAMPLES; i++)
        to->sample_us[to->samples++] = from->sample_us[i];
    for (uint32_t i = 0; i < from->latencies && to->latencies < MAX_SAMPLES; i++)
        to->latency_ms[to->latencies++] = from->latency_ms[i];
    for (uint32_t i = 0; i < from->kernels && to->kernels < MAX_STAMPS; i++)
        to->kernel_us[to->kernels++] = from->kernel_us[i];
}

static void *lane_main(void *arg)
{
    struct tenant_lane *lane = arg;
    tenant_lane_run(lane, &lane->go);
    return NULL;
}

static void process_open(struct tenant *t)
{
    open_gpu(t);
    lanes = calloc(t->opt.threads, sizeof(*lanes));
    if (!lanes)
        tenant_die("out of memory");
    for (unsigned i = 0; i < t->opt.threads; i++)
        tenant_lane_open(&lanes[i], t);
    if (!t->opt.calibrate && t->opt.unit_us <= 0)
        t->opt.unit_us = tenant_unit_us(&lanes[0], t->opt.iters, 2);
    CU(t, cuCtxSynchronize);
}

static void process_run(struct tenant *t, const struct tenant_go *go, struct tenant_result *out)
{
    pthread_t thread[MAX_LANES];
    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < t->opt.threads; i++) {
        lanes[i].go = *go;
        if (i > 0 && pthread_create(&thread[i], NULL, lane_main, &lanes[i]) != 0)
            tenant_die("cannot start a thread");
    }
    tenant_lane_run(&lanes[0], go);
    for (unsigned i = 0; i < t->opt.threads; i++) {
        if (i > 0)
            (void)pthread_join(thread[i], NULL);
        merge(out, &lanes[i].own);
    }
    out->first_call_ms = t->first_call_ms;
}

/* ---- several processes: the parent only hands on what it is told ---- */

struct child {
    int sock;
    pid_t pid;
    struct tenant_result *out;
};

static void child_main(struct tenant *t, int sock, struct tenant_result *out)
{
    struct tenant_go go;
    char byte = 'r';
    process_open(t);
    while (write(sock, &byte, 1) == 1 && read(sock, &go, sizeof(go)) == (ssize_t)sizeof(go)) {
        process_run(t, &go, out);
        byte = 'd';
    }
}

static void child_wait(const struct child *c)
{
    char byte;
    if (read(c->sock, &byte, 1) != 1)
        tenant_die("process %d ended early", (int)c->pid);
}

static struct child *children_start(struct tenant *t)
{
    unsigned n = t->opt.processes;
    struct child *list = calloc(n, sizeof(*list));
    for (unsigned i = 0; list && i < n; i++) {
        int pair[2];
        void *shared = mmap(NULL, sizeof(struct tenant_result), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
            tenant_die("%s", strerror(errno));
        list[i] = (struct child){.sock = pair[0], .out = shared, .pid = fork()};
        if (list[i].pid == 0) {
            for (unsigned k = 0; k <= i; k++)
                (void)close(list[k].sock);
            child_main(t, pair[1], shared);
            exit(0);
        }
        (void)close(pair[1]);
    }
    for (unsigned i = 0; list && i < n; i++)
        child_wait(&list[i]);
    return list;
}

static void children_run(struct child *list, unsigned n, const struct tenant_go *go,
                         struct tenant_result *out)
{
    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < n; i++)
        if (write(list[i].sock, go, sizeof(*go)) != (ssize_t)sizeof(*go))
            tenant_die("process %d is gone", (int)list[i].pid);
    for (unsigned i = 0; i < n; i++) {
        child_wait(&list[i]);
        merge(out, list[i].out);
    }
}

/* ---- the answer ---- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_percentiles(const char *key, float *v, uint32_t n)
{
    if (n == 0)
        return;
    qsort(v, n, sizeof(*v), by_value);
#define AT(q) ((double)v[(uint32_t)((double)(n - 1) * (q) + 0.5)])
    (void)printf(", \"%s\": {\"n\": %" PRIu32 ", \"p10\": %.4f, \"p50\": %.4f, \"p90\": %.4f, "
                 "\"p99\": %.4f, \"max\": %.4f}",
                 key, n, AT(0.1), AT(0.5), AT(0.9), AT(0.99), AT(1.0));
#undef AT
}

/*
 * How long a unit of work ran: the mean of those samples that nothing came between. A batch with a
 * turn of somebody else's or a wait at a gate in it is far longer than the shortest ones; the same
 * work at a lower clock is not. `v` is sorted.
 */
static double undisturbed_mean(const float *v, uint32_t n)
{
    double sum = 0, limit = n ? 1.25 * (double)v[(n - 1) / 10] : 0;
    uint32_t i = 0;
    for (; i < n && (double)v[i] <= limit; i++)
        sum += (double)v[i];
    return i ? sum / i : 0;
}

static void print_unit(struct tenant_result *r, double rate)
{
    bool own = r->kernels > 0;
    double unit_us;
    if (own)
        qsort(r->kernel_us, r->kernels, sizeof(*r->kernel_us), by_value);
    unit_us = own ? undisturbed_mean(r->kernel_us, r->kernels)
                  : undisturbed_mean(r->sample_us, r->samples);
    if (unit_us > 0)
        (void)printf(", \"unit_us\": %.4f, \"unit_from\": \"%s\", \"time_share\": %.4f", unit_us,
                     own ? "kernel" : "events", 100 * rate * unit_us / 1e6);
}

static void print_result(const struct tenant *t, const struct tenant_go *go,
                         struct tenant_result *r)
{
    double done = 0, seconds = (double)(go->until_ns - go->from_ns) / 1e9;
    for (uint32_t i = 0; i < r->buckets; i++)
        done += r->done[i];
    (void)printf("{\"done\": %.3f, \"rate\": %.4f, \"seconds\": %.3f, \"launched\": %" PRIu64
                 ", \"finished\": %" PRIu64 ", \"expected\": %" PRIu64 ", \"counted\": %" PRIu64
                 ", \"unit_alone_us\": %.3f, \"first_call_ms\": %.2f",
                 done, done / seconds, seconds, r->launched, r->finished, r->expected, r->counted,
                 t->opt.unit_us, r->first_call_ms);
    print_percentiles(t->opt.work == WORK_TINY ? "launch_ns" : "batch_us", r->sample_us,
                      r->samples);
    if (t->opt.work != WORK_TINY)
        print_unit(r, done / seconds);
    print_percentiles("latency_ms", r->latency_ms, r->latencies);
    (void)printf(", \"bucket_ms\": %.1f, \"buckets\": [", (double)t->opt.bucket_ns / 1e6);
    for (uint32_t i = 0; i < r->buckets; i++)
        (void)printf("%s%.3f", i ? ", " : "", r->done[i]);
    (void)printf("]}\n");
    (void)fflush(stdout);
}

static void serve(struct tenant *t)
{
    static struct tenant_result result;
    struct child *children = NULL;
    char line[256];
    if (t->opt.processes > 1)
        children = children_start(t);
    else
        process_open(t);
    if (t->opt.launch_pairs) {
        tenant_launch_pairs(t, t->lib);
        return;
    }
    (void)printf("{\"ready\": true, \"unit_alone_us\": %.3f, \"first_call_ms\": %.2f}\n",
                 t->opt.unit_us, t->first_call_ms);
    (void)fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        struct tenant_go go;
        if (sscanf(line, "go %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &go.load_from_ns,
                   &go.load_until_ns, &go.from_ns, &go.until_ns) != 4 ||
            go.until_ns <= go.from_ns)
            tenant_die("not understood: %s", line);
        if (children)
            children_run(children, t->opt.processes, &go, &result);
        else
            process_run(t, &go, &result);
        print_result(t, &go, &result);
    }
    for (unsigned i = 0; children && i < t->opt.processes; i++) {
        (void)close(children[i].sock);
        (void)waitpid(children[i].pid, NULL, 0);
    }
}

/* Two corrections from a first guess: the time is linear in the iterations but for a constant. */
static void calibrate(struct tenant *t)
{
    uint64_t iters = 10000;
    double us = 0;
    process_open(t);
    (void)tenant_unit_us(&lanes[0], iters, 200); /* clocks up */
    for (int i = 0; i < 4; i++) {
        unsigned units = (unsigned)(40000 / t->opt.target_us) + 2;
        us = tenant_unit_us(&lanes[0], iters, i == 0 ? 50 : units);
        if (i < 3)
            iters = (uint64_t)((double)iters * t->opt.target_us / us + 0.5);
        if (iters == 0)
            iters = 1;
    }
    (void)printf("{\"iters\": %" PRIu64 ", \"us\": %.3f}\n", iters, us);
}

static enum tenant_work work_named(const char *name)
{
    static const char *const names[] = {"fma",   "graph",  "tiny",     "req",  "gemm",
                                        "sync",  "mixed",  "copy",     "coop", "eager",
                                        "train", "hostfn", "waitvalue"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return (enum tenant_work)i;
    tenant_die("unknown work \"%s\"", name);
}

static unsigned number_in(const char *text, unsigned most)
{
    unsigned long v = strtoul(text, NULL, 10);
    if (v < 1 || v > most)
        tenant_die("\"%s\": 1 to %u", text, most);
    return (unsigned)v;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"work", 1, NULL, 'w'},      {"iters", 1, NULL, 'i'},        {"unit-us", 1, NULL, 'u'},
        {"target-us", 1, NULL, 'T'}, {"queue-ms", 1, NULL, 'q'},     {"period-ms", 1, NULL, 'p'},
        {"bucket-ms", 1, NULL, 'b'}, {"processes", 1, NULL, 'k'},    {"threads", 1, NULL, 't'},
        {"streams", 1, NULL, 's'},   {"cublas", 1, NULL, 'c'},       {"calibrate", 0, NULL, 'C'},
        {"count", 0, NULL, 'n'},     {"ones", 0, NULL, 'o'},         {"blocks", 1, NULL, 'B'},
        {"host-us", 1, NULL, 'h'},   {"launch-pairs", 0, NULL, 'l'}, {NULL, 0, NULL, 0}};
    static struct tenant tenant;
    struct tenant_options *o = &tenant.opt;
    *o = (struct tenant_options){.iters = 1000,
                                 .queue_ms = 12,
                                 .period_ns = 10000000,
                                 .bucket_ns = 50000000,
                                 .host_ns = EAGER_HOST_NS,
                                 .processes = 1,
                                 .threads = 1,
                                 .streams = 1};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'w':
            o->work = work_named(optarg);
            break;
        case 'i':
            o->iters = strtoull(optarg, NULL, 10);
            break;
        case 'u':
            o->unit_us = strtod(optarg, NULL);
            break;
        case 'T':
            o->target_us = strtod(optarg, NULL);
            break;
        case 'q':
            o->queue_ms = strtod(optarg, NULL);
            break;
        case 'p':
            o->period_ns = (uint64_t)(strtod(optarg, NULL) * 1e6);
            break;
        case 'b':
            o->bucket_ns = (uint64_t)(strtod(optarg, NULL) * 1e6);
            break;
        case 'k':
            o->processes = number_in(optarg, MAX_LANES);
            break;
        case 't':
            o->threads = number_in(optarg, MAX_LANES);
            break;
        case 's':
            o->streams = number_in(optarg, MAX_STREAMS);
            break;
        case 'c':
            o->cublas = optarg;
            break;
        case 'C':
            o->calibrate = true;
            break;
        case 'n':
            o->count = true;
            break;
        case 'o':
            o->ones = true;
            break;
        case 'h':
            o->host_ns = (uint64_t)(strtod(optarg, NULL) * 1e3);
            break;
        case 'l':
            o->launch_pairs = true;
            break;
        case 'B':
            o->blocks = number_in(optarg, 65535);
            break;
        default:
            return 2;
        }
    }
    if (o->bucket_ns == 0 || o->period_ns == 0 || (o->calibrate && o->target_us <= 0))
        tenant_die("a time of zero");
    if (o->calibrate)
        calibrate(&tenant);
    else
        serve(&tenant);
    return 0;
}
