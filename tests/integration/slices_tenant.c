/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that a scheduler of GPU time may hang, or trip over.
 *
 *   slices_tenant MODE [key=value …]
 *
 * MODE: host      `count` times: `kernels` kernels behind a host function, which returns when all are submitted
 *       value     the same behind a word in memory (cuStreamWaitValue32)
 *       event     the same behind an event of another process; side=0 waits, side=1 has the event
 *       lockstep  kernels on two GPUs, each waiting on the GPU for the other process's; side=0 and side=1
 *       gaps      one kernel, a host function of `gap_us`, a wait for both; `count` times
 *       frees     `kernels` kernels, then memory is freed, which waits for them; `count` times
 *       frees2    the same beside a thread that launches
 *       contexts  one thread launches, another makes and destroys `count` contexts
 *       forks     one thread launches, another makes `count` children; every other one has a context of its own
 *       capture   one thread launches, another records `count` graphs, slowly, and launches each
 *       flood     four threads launch as fast as they can, another records until it has seen `count` launches
 *
 * The sides of `event` and `lockstep` talk through the pipes dir=PATH/0 and PATH/1.
 * hold=1: when all is done, stay until the standard input ends.
 *
 * Says `ready PID` on stderr after a first kernel, and prints {"done": N} when all is done.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/kernels_ptx.h"
#include "common/tenant.h"

static struct {
    const char *mode, *dir, *self;
    unsigned count, kernels, kernel_us, gap_us, side, hold;
} opt = {.mode = "host", .dir = ".", .count = 10, .kernels = 32, .kernel_us = 100, .gap_us = 10000};

static struct sl_tenant tenant;
static _Atomic int stop;

static void kernel(CUstream s)
{
    sl_tenant_fma(&tenant, s, (uint64_t)opt.kernel_us * 1000);
}

static CUstream stream_new(void)
{
    CUstream s;
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    return s;
}

/* --- queued behind something ------------------------------------------------------------------- */

static void wait_for(void *semaphore)
{
    while (sem_wait(semaphore) != 0)
        ;
}

static void behind_host(void)
{
    CUstream s = stream_new();
    sem_t all;
    CHECK(sem_init(&all, 0, 0) == 0);
    for (unsigned i = 0; i < opt.count; i++) {
        CU_OK(cuLaunchHostFunc(s, wait_for, &all));
        for (unsigned k = 0; k < opt.kernels; k++)
            kernel(s);
        CHECK(sem_post(&all) == 0);
        CU_OK(cuStreamSynchronize(s));
    }
}

static void behind_value(void)
{
    CUstream s = stream_new();
    void *p;
    CUdeviceptr address;
    CU_OK(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    CU_OK(cuMemHostGetDevicePointer_v2(&address, p, 0));
    _Atomic uint32_t *word = p;
    atomic_store(word, 0);
    for (unsigned i = 0; i < opt.count; i++) {
        CU_OK(cuStreamWaitValue32_v2(s, address, i + 1, CU_STREAM_WAIT_VALUE_EQ));
        for (unsigned k = 0; k < opt.kernels; k++)
            kernel(s);
        atomic_store(word, i + 1);
        CU_OK(cuStreamSynchronize(s));
    }
}

/* --- two processes ----------------------------------------------------------------------------- */

static int pipe_end(unsigned side)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%u", opt.dir, side);
    int fd = open(path, O_RDWR | O_CLOEXEC); /* both ways: then opening waits for nobody */
    CHECK(fd >= 0);
    return fd;
}

static int in_fd, out_fd;

static void meet_other(void)
{
    in_fd = pipe_end(opt.side);
    out_fd = pipe_end(1 - opt.side);
}

static void tell(const void *what, size_t size)
{
    CHECK(write(out_fd, what, size) == (ssize_t)size);
}

static void hear(void *what, size_t size)
{
    CHECK(read(in_fd, what, size) == (ssize_t)size);
}

static void with_event(void)
{
    CUstream s = stream_new();
    CUevent event;
    CUipcEventHandle handle;
    sem_t queued;
    char c = 0;
    CHECK(sem_init(&queued, 0, 0) == 0);
    CU_OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CU_OK(cuIpcGetEventHandle(&handle, event));
    tell(&handle, sizeof(handle));
    for (unsigned i = 0; i < opt.count; i++) {
        CU_OK(cuLaunchHostFunc(s, wait_for, &queued));
        kernel(s);
        CU_OK(cuEventRecord(event, s));
        tell(&c, 1);
        hear(&c, 1); /* the other one has queued its kernels */
        CHECK(sem_post(&queued) == 0);
        CU_OK(cuStreamSynchronize(s));
    }
    hear(&c, 1); /* the event ends with this process */
}

static void behind_event(void)
{
    CUstream s = stream_new();
    CUevent event;
    CUipcEventHandle handle;
    char c = 0;
    hear(&handle, sizeof(handle));
    CU_OK(cuIpcOpenEventHandle(&event, handle));
    for (unsigned i = 0; i < opt.count; i++) {
        hear(&c, 1);
        CU_OK(cuStreamWaitEvent(s, event, 0));
        for (unsigned k = 0; k < opt.kernels; k++)
            kernel(s);
        tell(&c, 1);
        CU_OK(cuStreamSynchronize(s));
    }
    tell(&c, 1);
}

/* Each pair of kernels has words of its own, so that nothing is reset between them. */
static void lockstep(void)
{
    CUstream s = stream_new();
    CUdeviceptr mine, theirs;
    CUipcMemHandle handle;
    char c = 0;
    CU_OK(cuMemAlloc_v2(&mine, 4UL * opt.count));
    CU_OK(cuMemsetD32_v2(mine, 0, opt.count));
    CU_OK(cuCtxSynchronize());
    CU_OK(cuIpcGetMemHandle(&handle, mine));
    tell(&handle, sizeof(handle));
    hear(&handle, sizeof(handle));
    CU_OK(cuIpcOpenMemHandle_v2(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    for (unsigned i = 0; i < opt.count; i++) {
        kernel(s);
        sl_tenant_meet(&tenant, s, mine + 4UL * i, theirs + 4UL * i);
        if (i % 4 == 3)
            CU_OK(cuStreamSynchronize(s));
    }
    CU_OK(cuStreamSynchronize(s));
    tell(&c, 1); /* the memory ends with its process */
    hear(&c, 1);
}

static void take_time(void *us)
{
    usleep(*(unsigned *)us);
}

static void gaps(void)
{
    CUstream s = stream_new();
    for (unsigned i = 0; i < opt.count; i++) {
        kernel(s);
        CU_OK(cuLaunchHostFunc(s, take_time, &opt.gap_us));
        CU_OK(cuStreamSynchronize(s));
    }
}

static void frees(void)
{
    CUstream s = stream_new();
    for (unsigned i = 0; i < opt.count; i++) {
        CUdeviceptr memory;
        CU_OK(cuMemAlloc_v2(&memory, 1U << 20));
        for (unsigned k = 0; k < opt.kernels; k++)
            kernel(s);
        CU_OK(cuMemFree_v2(memory));
    }
}

/* --- beside a thread that launches ------------------------------------------------------------- */

static void *launches(void *unused)
{
    CU_OK(cuCtxSetCurrent(tenant.ctx));
    CUstream s = stream_new();
    for (unsigned i = 0; !stop; i++) {
        kernel(s);
        if (i % 8 == 7)
            CU_OK(cuStreamSynchronize(s));
    }
    CU_OK(cuStreamSynchronize(s));
    return unused;
}

/* Recording in the global mode forbids other threads to wait: they only launch, and not too much. */
static void *launches_blindly(void *unused)
{
    CU_OK(cuCtxSetCurrent(tenant.ctx));
    CUstream s = stream_new();
    while (!stop) {
        kernel(s);
        usleep(2000);
    }
    return unused;
}

static void contexts(void)
{
    for (unsigned i = 0; i < opt.count; i++) {
        CUcontext c;
        CU_OK(cuCtxCreate_v2(&c, 0, tenant.dev));
        if (i % 16 == 0) { /* some of them have work when they go */
            struct sl_tenant t = {.dev = tenant.dev, .ctx = c};
            CU_OK(cuModuleLoadData(&t.module, sluice_kernels_ptx));
            CU_OK(cuModuleGetFunction(&t.fma, t.module, "sluice_fma"));
            sl_tenant_fma(&t, NULL, (uint64_t)opt.kernel_us * 1000);
        }
        CU_OK(cuCtxDestroy_v2(c));
    }
}

static void forks(void)
{
    for (unsigned i = 0; i < opt.count;) {
        pid_t child[8];
        unsigned n = 0;
        for (; n < 8 && i < opt.count; n++, i++) {
            child[n] = fork();
            CHECK(child[n] >= 0);
            if (child[n] == 0 && i % 2)
                _exit(0);
            if (child[n] == 0) {
                (void)execl(opt.self, opt.self, "host", "count=1", (char *)NULL);
                _exit(127);
            }
        }
        for (unsigned k = 0; k < n; k++) {
            int status = -1;
            CHECK(waitpid(child[k], &status, 0) == child[k]);
            CHECK(status == 0);
        }
    }
}

static void capture(void)
{
    CUstream s = stream_new();
    for (unsigned i = 0; i < opt.count; i++) {
        CUgraph graph;
        CUgraphExec exec;
        CUstreamCaptureStatus status;
        CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (unsigned k = 0; k < opt.kernels; k++) {
            kernel(s);
            usleep(500); /* long enough for whoever watches to look in between */
        }
        CU_OK(cuStreamIsCapturing(s, &status));
        CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CU_OK(cuStreamEndCapture(s, &graph));
        CU_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CU_OK(cuGraphLaunch(exec, s));
        CU_OK(cuStreamSynchronize(s));
        CU_OK(cuGraphExecDestroy(exec));
        CU_OK(cuGraphDestroy(graph));
    }
}

static _Atomic unsigned flooded;

static void *floods(void *unused)
{
    CU_OK(cuCtxSetCurrent(tenant.ctx));
    CUstream s = stream_new();
    while (!stop) {
        sl_tenant_empty(&tenant, s);
        flooded++;
    }
    return unused;
}

/* The one that records waits for the one that launches. */
static void capture_flooded(void)
{
    CUstream s = stream_new();
    CUgraph graph;
    pthread_t more[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&more[i], NULL, floods, NULL) == 0);
    CU_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    kernel(s);
    for (unsigned begin = flooded; flooded - begin < opt.count;)
        usleep(1000);
    CU_OK(cuStreamEndCapture(s, &graph));
    CU_OK(cuGraphDestroy(graph));
    stop = 1;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(more[i], NULL) == 0);
}

static void beside(void *(*launching)(void *), void (*work)(void))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, launching, NULL) == 0);
    work();
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* --- which, and with what ---------------------------------------------------------------------- */

static void parse(int argc, char **argv)
{
    const struct {
        const char *name;
        unsigned *value;
    } numbers[] = {{"count=", &opt.count},   {"kernels=", &opt.kernels},
                   {"side=", &opt.side},     {"kernel_us=", &opt.kernel_us},
                   {"gap_us=", &opt.gap_us}, {"hold=", &opt.hold}};
    opt.self = argv[0];
    if (argc > 1)
        opt.mode = argv[1];
    for (int i = 2; i < argc; i++) {
        int known = strncmp(argv[i], "dir=", 4) == 0;
        if (known)
            opt.dir = argv[i] + 4;
        for (size_t k = 0; k < sizeof(numbers) / sizeof(*numbers); k++)
            if (strncmp(argv[i], numbers[k].name, strlen(numbers[k].name)) == 0) {
                *numbers[k].value = (unsigned)atoi(strchr(argv[i], '=') + 1);
                known = 1;
            }
        CHECK(known);
    }
}

static int is(const char *mode)
{
    return strcmp(opt.mode, mode) == 0;
}

int main(int argc, char **argv)
{
    char c;
    parse(argc, argv);
    if (is("event") || is("lockstep"))
        meet_other();
    sl_tenant_open(&tenant, is("lockstep") ? (int)opt.side : 0);
    kernel(NULL);
    CU_OK(cuCtxSynchronize());
    (void)fprintf(stderr, "ready %d\n", (int)getpid());
    if (is("host"))
        behind_host();
    else if (is("value"))
        behind_value();
    else if (is("event"))
        opt.side ? with_event() : behind_event();
    else if (is("lockstep"))
        lockstep();
    else if (is("gaps"))
        gaps();
    else if (is("frees"))
        frees();
    else if (is("frees2"))
        beside(launches, frees);
    else if (is("contexts"))
        beside(launches, contexts);
    else if (is("forks"))
        beside(launches, forks);
    else if (is("capture"))
        beside(launches_blindly, capture);
    else if (is("flood"))
        beside(floods, capture_flooded);
    else
        return 2;
    CU_OK(cuCtxSynchronize());
    printf("{\"done\": %u}\n", opt.count);
    (void)fflush(stdout);
    while (opt.hold && read(STDIN_FILENO, &c, 1) > 0)
        ;
    return 0;
}
