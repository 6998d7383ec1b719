/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channel groups of the simulated libcuda, seen as a preloaded library sees them: this program has an
 * `ioctl` of its own, before every library's, that keeps the calls, may change them, and passes them
 * on to libcuda's.
 */
#include "cuda_case.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "sim/engine.h"
#include "sim/rm.h"

#define MAX_CALLS 4096

typedef int (*ioctl_fn)(int fd, unsigned long request, ...);

static struct call {
    unsigned long request;
    int fd;
    union {
        struct sim_rm_alloc alloc;
        struct sim_rm_control control;
        struct sim_rm_free free;
    };
    uint32_t engine;   /* of an allocated group */
    uint64_t slice_us; /* of a set slice, as it came */
} calls[MAX_CALLS];
static size_t call_count;
static uint64_t slice_instead; /* put in place of libcuda's own */

static int pass_on(int fd, unsigned long request, void *arg)
{
    static ioctl_fn driver;
    if (!driver) {
        void *cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
        union {
            void *object;
            ioctl_fn function;
        } found = {.object = cuda ? dlsym(cuda, "ioctl") : NULL};
        CHECK(found.object);
        driver = found.function;
    }
    return driver(fd, request, arg);
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    if (_IOC_TYPE(request) != SIM_RM_TYPE)
        return (int)syscall(SYS_ioctl, fd, request, arg);
    CHECK(call_count < MAX_CALLS);
    struct call *c = &calls[call_count++];
    struct sim_rm_control *control = request == SIM_RM_CONTROL ? arg : NULL;
    if (control && control->cmd == SIM_RM_GROUP_SET_SLICE) {
        struct sim_rm_slice *slice = (struct sim_rm_slice *)(uintptr_t)control->params;
        c->slice_us = slice->us;
        if (slice_instead)
            slice->us = slice_instead;
    }
    int r = pass_on(fd, request, arg);
    c->request = request;
    c->fd = fd;
    memcpy(&c->alloc, arg, _IOC_SIZE(request));
    if (request == SIM_RM_ALLOC && c->alloc.class == SIM_RM_CLASS_GROUP)
        c->engine = ((struct sim_rm_group_params *)(uintptr_t)c->alloc.params)->engine;
    return r;
}

/* ---- what the recorder saw ---- */

struct groups {
    int fd;
    uint32_t root, device, subdevice, compute, copy[3];
    uint32_t channel[8], channels, copy_channels;
};

/* The objects of the last context made, from the recorded calls. */
static struct groups last_groups(void)
{
    struct groups g = {0};
    size_t copies = 0;
    for (size_t i = 0; i < call_count; i++) {
        const struct call *c = &calls[i];
        if (c->request != SIM_RM_ALLOC || c->alloc.status != SIM_RM_OK)
            continue;
        g.fd = c->fd;
        switch (c->alloc.class) {
        case SIM_RM_CLASS_ROOT:
            g.root = c->alloc.object;
            break;
        case SIM_RM_CLASS_DEVICE:
            g = (struct groups){.fd = c->fd, .root = g.root, .device = c->alloc.object};
            copies = 0;
            break;
        case SIM_RM_CLASS_SUBDEVICE:
            CHECK(c->alloc.parent == g.device);
            g.subdevice = c->alloc.object;
            break;
        case SIM_RM_CLASS_GROUP:
            CHECK(c->alloc.parent == g.device);
            if (c->engine == SIM_RM_ENGINE_COMPUTE)
                g.compute = c->alloc.object;
            else
                g.copy[copies++] = c->alloc.object;
            break;
        case SIM_RM_CLASS_CHANNEL:
            if (c->alloc.parent == g.compute)
                g.channel[g.channels++] = c->alloc.object;
            else
                g.copy_channels++;
            break;
        default:
            CHECK(false); /* a class nobody knows */
        }
    }
    return g;
}

static uint32_t control(const struct groups *g, uint32_t object, uint32_t cmd, void *params,
                        uint32_t size)
{
    struct sim_rm_control c = {.client = g->root,
                               .object = object,
                               .cmd = cmd,
                               .params = (uint64_t)(uintptr_t)params,
                               .size = size,
                               .status = 0xFF};
    CHECK(pass_on(g->fd, SIM_RM_CONTROL, &c) == 0);
    return c.status;
}

static uint32_t set_slice(const struct groups *g, uint64_t us)
{
    struct sim_rm_slice s = {.us = us};
    return control(g, g->compute, SIM_RM_GROUP_SET_SLICE, &s, sizeof(s));
}

static uint64_t get_slice(const struct groups *g)
{
    struct sim_rm_slice s = {0};
    CHECK(control(g, g->compute, SIM_RM_GROUP_GET_SLICE, &s, sizeof(s)) == SIM_RM_OK);
    return s.us;
}

static uint32_t disable(const struct groups *g, bool off)
{
    struct sim_rm_disable d = {.disable = off, .count = g->channels};
    for (uint32_t i = 0; i < g->channels; i++) {
        d.client[i] = g->root;
        d.channel[i] = g->channel[i];
    }
    return control(g, g->subdevice, SIM_RM_DISABLE, &d, sizeof(d));
}

/* The queue of the only context of process `pid`, as it is now. */
static struct sl_sim_queue queue_of(pid_t pid, uint64_t *ret_now)
{
    struct sl_sim_state *st;
    struct sl_sim_queue found = {0};
    CHECK(sl_sim_open(&st, NULL) == 0);
    sl_sim_lock(st);
    sl_sim_reap(st, true);
    sl_sim_advance(st, sl_sim_now_ns());
    for (uint32_t i = 0; i < st->queue_high; i++)
        if (st->queues[i].used && st->procs[st->queues[i].proc].pid == pid)
            found = st->queues[i];
    if (ret_now)
        *ret_now = st->now_ns;
    sl_sim_unlock(st);
    return found;
}

/* ---- cases ---- */

static void calls_are_seen(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    CHECK(g.root && g.subdevice && g.compute && g.copy[0] && g.copy[1] && g.copy[2]);
    CHECK(g.channels == 8 && g.copy_channels == 6);
    CHECK(calls[0].alloc.class == SIM_RM_CLASS_ROOT && calls[0].alloc.root == 0);
    uint32_t engine = 0, sets = 0;
    for (size_t i = 0; i < call_count; i++) {
        const struct call *c = &calls[i];
        CHECK(c->request == SIM_RM_ALLOC || c->request == SIM_RM_CONTROL);
        if (c->request == SIM_RM_ALLOC && c->alloc.class == SIM_RM_CLASS_GROUP) {
            CHECK(c->engine == (engine == 0 ? 1 : engine + 8));
            engine++;
        }
        if (c->request == SIM_RM_CONTROL) {
            CHECK(c->control.cmd == SIM_RM_GROUP_SET_SLICE && c->control.object == g.compute);
            CHECK(c->slice_us == 2048);
            sets++;
        }
    }
    CHECK(engine == 4 && sets == 1);
    CHECK(get_slice(&g) == 2048);
    struct sl_sim_queue q = queue_of(getpid(), NULL);
    CHECK(q.channels == 0xff && q.channels_off == 0 && q.slice_ns == 2048 * SL_SIM_SLICE_UNIT_NS);
}

/* Contexts come and go: every handle is new, all that was made is freed, the root stays. */
static void contexts_come_and_go(void)
{
    CU_OK(cuInit(0));
    for (int i = 0; i < 20; i++) {
        CUcontext a, b;
        CU_OK(cuCtxCreate_v2(&a, 0, 0));
        CU_OK(cuCtxCreate_v2(&b, 0, 0));
        CU_OK(cuCtxDestroy_v2(a));
        CU_OK(cuCtxDestroy_v2(b));
    }
    size_t roots = 0, open = 0;
    for (size_t i = 0; i < call_count; i++) {
        if (calls[i].request == SIM_RM_FREE) {
            CHECK(calls[i].free.status == SIM_RM_OK);
            open--;
            continue;
        }
        if (calls[i].request != SIM_RM_ALLOC)
            continue;
        CHECK(calls[i].alloc.status == SIM_RM_OK);
        open++;
        roots += calls[i].alloc.class == SIM_RM_CLASS_ROOT;
        for (size_t k = 0; k < i; k++)
            CHECK(calls[k].request != SIM_RM_ALLOC ||
                  calls[k].alloc.object != calls[i].alloc.object);
    }
    CHECK(roots == 1 && open == 1);
    CHECK(!queue_of(getpid(), NULL).used);
}

static void a_changed_slice_holds(void)
{
    struct sl_tenant t;
    slice_instead = 7000;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    CHECK(get_slice(&g) == 7000);
    CHECK(queue_of(getpid(), NULL).slice_ns == 7000 * SL_SIM_SLICE_UNIT_NS);
    double before = sl_tenant_now_ms();
    CHECK(set_slice(&g, 5000) == SIM_RM_OK);
    CHECK(sl_tenant_now_ms() - before >= 0.3); /* never faster than a real one */
    before = sl_tenant_now_ms();
    CHECK(disable(&g, true) == SIM_RM_OK && disable(&g, false) == SIM_RM_OK);
    CHECK(sl_tenant_now_ms() - before >= 1.0);
    CHECK(control(&g, g.compute, SIM_RM_GROUP_PREEMPT, NULL, 0) == SIM_RM_OK);
    CHECK(control(&g, g.compute, SIM_RM_GROUP_SCHEDULE, NULL, 0) == SIM_RM_OK);
    CHECK(get_slice(&g) == 5000);
}

static void what_is_refused(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    struct sim_rm_slice s = {.us = 1000};
    CHECK(control(&g, 0x1234, SIM_RM_GROUP_SET_SLICE, &s, sizeof(s)) == SIM_RM_NOT_FOUND);
    CHECK(control(&g, g.subdevice, SIM_RM_GROUP_SET_SLICE, &s, sizeof(s)) == SIM_RM_NOT_SUPPORTED);
    CHECK(control(&g, g.compute, 0xA06C0199U, &s, sizeof(s)) == SIM_RM_NOT_SUPPORTED);
    CHECK(control(&g, g.compute, SIM_RM_GROUP_SET_SLICE, &s, 4) == SIM_RM_INVALID);
    CHECK(control(&g, g.compute, SIM_RM_GROUP_SET_SLICE, NULL, 8) == SIM_RM_INVALID);
    CHECK(set_slice(&g, 0) == SIM_RM_INVALID && get_slice(&g) == 2048);
    struct groups other = g;
    other.root = 0x4321;
    CHECK(set_slice(&other, 1000) == SIM_RM_NOT_FOUND);
    other = g;
    other.channel[7] = 0x1234; /* one unknown channel: nothing is done to the others */
    CHECK(disable(&other, true) == SIM_RM_NOT_FOUND);
    CHECK(queue_of(getpid(), NULL).channels_off == 0);
    struct sim_rm_disable many = {.disable = 1, .count = 65};
    CHECK(control(&g, g.subdevice, SIM_RM_DISABLE, &many, sizeof(many)) == SIM_RM_INVALID);

    struct sim_rm_alloc32 a = {
        .root = g.root, .parent = g.device, .object = g.compute, .class = SIM_RM_CLASS_SUBDEVICE};
    CHECK(pass_on(g.fd, SIM_RM_ALLOC32, &a) == 0 && a.status == SIM_RM_IN_USE);
    a.object = 0x77;
    CHECK(pass_on(g.fd, SIM_RM_ALLOC32, &a) == 0 && a.status == SIM_RM_OK && a.object == 0x77);
    struct sim_rm_free f = {.root = g.root, .parent = g.device, .object = 0x77};
    CHECK(pass_on(g.fd, SIM_RM_FREE, &f) == 0 && f.status == SIM_RM_OK);
    CHECK(pass_on(g.fd, SIM_RM_FREE, &f) == 0 && f.status == SIM_RM_NOT_FOUND);

    /* A copy of the descriptor is the same; every other one is the kernel's business. */
    struct groups copy = g;
    copy.fd = dup(g.fd);
    CHECK(set_slice(&copy, 1500) == SIM_RM_OK && get_slice(&g) == 1500);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct sim_rm_control c = {.client = g.root, .object = g.compute};
    CHECK(pass_on(null, SIM_RM_CONTROL, &c) == -1 && errno == ENOTTY);
    CHECK(pass_on(-1, SIM_RM_CONTROL, &c) == -1 && errno == EBADF);
    pid_t pid = fork();
    if (pid == 0)
        _exit(pass_on(g.fd, SIM_RM_CONTROL, &c) == -1 && errno == ENOTTY ? 0 : 1);
    case_join(pid);
}

/* ---- two processes ---- */

struct shared {
    _Atomic int ready, go, stop;
};
static struct shared *sh;

static void wait_for(_Atomic int *what, int value)
{
    for (int i = 0; *what < value; i++) {
        CHECK(i < 20000);
        (void)usleep(1000);
    }
}

/* Ten seconds of work, given at once, with a slice of `arg` us. */
static void busy_child(void *arg)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    CHECK(set_slice(&g, (uint64_t)(uintptr_t)arg) == SIM_RM_OK);
    sh->ready++;
    wait_for(&sh->go, 1);
    for (int i = 0; i < 100; i++)
        sl_tenant_fma(&t, NULL, 100000000);
    sh->ready++;
    wait_for(&sh->stop, 1);
}

/* Percent of the card's own time that each got from now until `ms` later. */
static void shares(const pid_t pid[2], unsigned int ms, double ret[2])
{
    uint64_t from, to = 0, before[2], after[2];
    before[0] = queue_of(pid[0], NULL).running_ns;
    before[1] = queue_of(pid[1], &from).running_ns;
    (void)usleep(ms * 1000);
    after[0] = queue_of(pid[0], NULL).running_ns;
    after[1] = queue_of(pid[1], &to).running_ns;
    for (int i = 0; i < 2; i++)
        ret[i] = (double)(after[i] - before[i]) * 100 / (double)(to - from);
}

static void two_busy(pid_t pid[2])
{
    sh = case_shared(sizeof(*sh));
    pid[0] = case_child(busy_child, (void *)3000);
    pid[1] = case_child(busy_child, (void *)7000);
    wait_for(&sh->ready, 2);
    sh->go = 1;
    wait_for(&sh->ready, 4);
}

/* On an H200: 28.8 + 68.0. */
static void slices_divide_the_card(void)
{
    pid_t pid[2];
    double share[2];
    two_busy(pid);
    shares(pid, 1000, share);
    (void)fprintf(stderr, "shares %.1f %.1f\n", share[0], share[1]);
    CHECK(share[0] > 26.5 && share[0] < 31 && share[1] > 65.5 && share[1] < 70.5);
    sh->stop = 1;
    case_join(pid[0]);
    case_join(pid[1]);
}

static void slices_without_effect(void)
{
    pid_t pid[2];
    double share[2];
    two_busy(pid); /* both read back what they set: that is asserted where they set it */
    CHECK(queue_of(pid[0], NULL).slice_us == 3000 && queue_of(pid[1], NULL).slice_us == 7000);
    shares(pid, 500, share);
    (void)fprintf(stderr, "shares %.1f %.1f\n", share[0], share[1]);
    CHECK(share[0] > 44 && share[0] < 49 && share[1] > 44 && share[1] < 49);
    sh->stop = 1;
    case_join(pid[0]);
    case_join(pid[1]);
}

/* Off in the middle of a kernel: it gets nothing, the other all; on again, and its kernel ends. */
static void off_and_on(void)
{
    struct sl_tenant t;
    sh = case_shared(sizeof(*sh));
    pid_t pid[2] = {getpid(), case_child(busy_child, (void *)2048)};
    wait_for(&sh->ready, 1);
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    sh->go = 1;
    wait_for(&sh->ready, 2);
    sl_tenant_fma(&t, NULL, 500000000); /* half a second */
    (void)usleep(10000);
    CHECK(disable(&g, true) == SIM_RM_OK);
    double share[2];
    uint64_t ran = queue_of(getpid(), NULL).running_ns;
    CHECK(ran > 0 && ran < 500000000);
    shares(pid, 200, share);
    CHECK(queue_of(getpid(), NULL).running_ns == ran);
    CHECK(share[0] == 0 && share[1] > 99); /* the switch to it may still be under way */
    CHECK(cuCtxGetDevice(&t.dev) == CUDA_SUCCESS && cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY);
    CHECK(disable(&g, false) == SIM_RM_OK);
    CU_OK(cuCtxSynchronize());
    CHECK(queue_of(getpid(), NULL).running_ns == 500000000);
    sh->stop = 1;
    case_join(pid[1]);
}

/* Samples as libsluice takes them, beside a busy neighbour: nothing of the neighbour's time is in them, on
 * whatever moment of its slice they fall. */
static void samples_beside_others(void)
{
    struct sl_tenant t;
    CUevent begin, end;
    CUstream s;
    CUdeviceptr at;
    sh = case_shared(sizeof(*sh));
    pid_t other = case_child(busy_child, (void *)2048);
    wait_for(&sh->ready, 1);
    sl_tenant_open(&t, 0);
    sh->go = 1;
    wait_for(&sh->ready, 2);
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CU_OK(cuEventCreate(&begin, 0));
    CU_OK(cuEventCreate(&end, 0));
    _Atomic uint32_t *word = case_words(&at);
    for (uint32_t i = 1; i <= 20; i++) {
        float ms = 0;
        CU_OK(cuStreamWaitValue32(s, at, i, CU_STREAM_WAIT_VALUE_EQ));
        CU_OK(cuEventRecord(begin, s));
        sl_tenant_fma(&t, s, 100000);
        CU_OK(cuEventRecord(end, s));
        *word = i;
        CU_OK(cuStreamSynchronize(s));
        CU_OK(cuEventElapsedTime(&ms, begin, end));
        CHECK(ms > 0.0999F && ms < 0.1001F);
    }
    sh->stop = 1;
    case_join(other);
}

/* A value that is there before the stream comes to wait for it costs nothing: what is behind it goes on in the
 * same turn. So it is where the stream writes another word before. */
static void a_value_that_is_there(void)
{
    struct sl_tenant t;
    CUevent begin, end;
    CUstream s;
    CUdeviceptr at;
    float ms = 0;
    sl_tenant_open(&t, 0);
    CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CU_OK(cuEventCreate(&begin, 0));
    CU_OK(cuEventCreate(&end, 0));
    _Atomic uint32_t *word = case_words(&at);
    for (int writes = 0; writes < 2; writes++) {
        *word = 0;
        sl_tenant_fma(&t, s, 300000000); /* all of it is queued before this is over */
        CU_OK(cuEventRecord(begin, s));
        if (writes)
            CU_OK(cuStreamWriteValue32(s, at + 64, 1, 0));
        CU_OK(cuStreamWaitValue32(s, at, 1, CU_STREAM_WAIT_VALUE_EQ));
        sl_tenant_fma(&t, s, 1000000);
        CU_OK(cuEventRecord(end, s));
        *word = 1;
        CHECK(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
        CU_OK(cuStreamSynchronize(s));
        CU_OK(cuEventElapsedTime(&ms, begin, end));
        CHECK(ms > 0.999F && ms < 1.001F);
    }
    /* What comes before it in the stream may take the value away again: not looked at too early. */
    CU_OK(cuStreamWriteValue32(s, at, 0, 0));
    CU_OK(cuStreamWaitValue32(s, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    CU_OK(cuEventRecord(end, s));
    (void)usleep(20000);
    CHECK(cuEventQuery(end) == CUDA_ERROR_NOT_READY && *word == 0);
    *word = 1;
    CU_OK(cuEventSynchronize(end));
}

/* What the compute channels would do stands still with them: records, and words that are written. */
static void marks_stand_still(void)
{
    struct sl_tenant t;
    CUevent event;
    CUdeviceptr at;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    CU_OK(cuEventCreate(&event, 0));
    _Atomic uint32_t *word = case_words(&at);
    CHECK(disable(&g, true) == SIM_RM_OK);
    CU_OK(cuStreamWriteValue32(NULL, at, 7, 0));
    CU_OK(cuEventRecord(event, NULL));
    (void)usleep(20000);
    CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY && *word == 0);
    CHECK(disable(&g, false) == SIM_RM_OK);
    CU_OK(cuEventSynchronize(event));
    CHECK(*word == 7);
    /* An event that tells no time needs nothing of the card where nothing is before it. */
    CUevent plain;
    CU_OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    CHECK(disable(&g, true) == SIM_RM_OK);
    CU_OK(cuEventRecord(plain, NULL));
    CU_OK(cuEventSynchronize(plain));
    CHECK(disable(&g, false) == SIM_RM_OK);
    /* Behind a copy between host and card they are the copy engine's. */
    CHECK(disable(&g, true) == SIM_RM_OK);
    CU_OK(cuMemcpyHtoDAsync_v2(at + 64, word, 16, NULL));
    CU_OK(cuEventRecord(event, NULL));
    CU_OK(cuEventSynchronize(event));
    CHECK(disable(&g, false) == SIM_RM_OK);
}

static void stopped_child(void *arg)
{
    struct sl_sim_state *st = arg;
    sl_sim_lock(st);
    CHECK(raise(SIGSTOP) == 0);
    sl_sim_unlock(st);
    for (;;)
        (void)pause();
}

/* At the instruction after the one that takes the door. */
static void stopped_early_child(void *arg)
{
    struct sl_sim_state *st = arg;
    CHECK(pthread_mutex_lock(&sl_sim_door(st)->lock) == 0);
    CHECK(raise(SIGSTOP) == 0);
    CHECK(pthread_mutex_lock(&st->lock) == 0);
    sl_sim_unlock(st);
    for (;;)
        (void)pause();
}

static void stopped_in(void (*child)(void *))
{
    struct sl_sim_state *st;
    int status;
    CHECK(sl_sim_open(&st, NULL) == 0);
    pid_t pid = case_child(child, st);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    sl_sim_lock(st);
    sl_sim_unlock(st);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status)); /* as it was told to */
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

/* Takes the lock, says so, and has it until it is told to go on. */
static void waiting_child(void *arg)
{
    struct sl_sim_state *st = arg;
    sl_sim_lock(st);
    sh->ready++;
    wait_for(&sh->go, 1);
    sl_sim_unlock(st);
}

/* Two wait for one that is stopped inside. It stops again once: when it is told to go on after that, it goes on. */
static void stopped_once_more(void)
{
    struct sl_sim_state *st;
    int status;
    sh = case_shared(sizeof(*sh));
    CHECK(sl_sim_open(&st, NULL) == 0);
    pid_t pid = case_child(stopped_child, st);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    pid_t waiter[] = {case_child(waiting_child, st), case_child(waiting_child, st)};
    wait_for(&sh->ready, 1);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    CHECK(kill(pid, SIGCONT) == 0);
    sh->go = 1;
    case_join(waiter[0]);
    case_join(waiter[1]);
    CHECK(waitpid(pid, &status, WUNTRACED | WNOHANG) == 0);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

/* Whoever is stopped inside the driver leaves it first, as with a real one: the others go on. */
static void stopped_inside(void)
{
    stopped_in(stopped_child);
    stopped_in(stopped_early_child);
    for (int i = 0; i < 5; i++)
        stopped_once_more();
}

static void copies_that_move_nothing(void)
{
    struct sl_tenant t;
    CUdeviceptr from, to;
    uint32_t word = 7, seen = 0;
    sl_tenant_open(&t, 0);
    CU_OK(cuMemAlloc_v2(&from, 1 << 20));
    CU_OK(cuMemAlloc_v2(&to, 1 << 20));
    CU_OK(cuMemcpyHtoD_v2(from, &word, sizeof(word)));
    CU_OK(cuMemsetD32_v2(to, 9, 1));
    CU_OK(cuCtxSynchronize());
    uint64_t before = queue_of(getpid(), NULL).running_ns;
    CU_OK(cuMemcpyDtoD_v2(to, from, 1 << 20));
    CU_OK(cuCtxSynchronize());
    CHECK(queue_of(getpid(), NULL).running_ns > before);
    CU_OK(cuMemcpyDtoH_v2(&seen, to, sizeof(seen)));
    CHECK(seen == 9);
    CU_OK(cuMemcpyDtoH_v2(&seen, from, sizeof(seen)));
    CHECK(seen == 7);
}

static void off_and_killed_child(void *arg)
{
    (void)arg;
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    sl_tenant_fma(&t, NULL, 1000000000);
    CHECK(disable(&g, true) == SIM_RM_OK);
    sh->ready++;
    (void)pause();
}

/* Whoever dies with its channels off leaves nothing behind. */
static void off_and_killed(void)
{
    struct sl_tenant t;
    sh = case_shared(sizeof(*sh));
    pid_t pid = case_child(off_and_killed_child, NULL);
    wait_for(&sh->ready, 1);
    CHECK(queue_of(pid, NULL).channels_off == 0xff);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK(!queue_of(pid, NULL).used);
    sl_tenant_open(&t, 0);
    struct sl_sim_queue q = queue_of(getpid(), NULL);
    CHECK(q.channels == 0xff && q.channels_off == 0 && q.slice_us == 2048);
    sl_tenant_fma(&t, NULL, 1000000);
    CU_OK(cuCtxSynchronize());
}

/* ---- faults ---- */

static void refused_all(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0); /* works all the same */
    struct groups g = last_groups();
    CHECK(set_slice(&g, 3000) == SIM_RM_NOT_SUPPORTED);
    CHECK(disable(&g, true) == SIM_RM_NOT_SUPPORTED);
    CHECK(control(&g, g.compute, SIM_RM_GROUP_PREEMPT, NULL, 0) == SIM_RM_NOT_SUPPORTED);
    struct sl_sim_queue q = queue_of(getpid(), NULL);
    CHECK(q.slice_us == 0 && q.slice_ns == 0 && q.channels_off == 0);
}

static void refused_from_the_third(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0); /* libcuda's own call is the first */
    struct groups g = last_groups();
    CHECK(set_slice(&g, 3000) == SIM_RM_OK);
    CHECK(set_slice(&g, 4000) == SIM_RM_NOT_SUPPORTED);
    CHECK(disable(&g, true) == SIM_RM_NOT_SUPPORTED);
    CHECK(queue_of(getpid(), NULL).slice_ns == 3000 * SL_SIM_SLICE_UNIT_NS);
}

static void refused_slice_only(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    CHECK(set_slice(&g, 3000) == SIM_RM_NOT_SUPPORTED);
    CHECK(disable(&g, true) == SIM_RM_OK && queue_of(getpid(), NULL).channels_off == 0xff);
}

static void refused_disable_only(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    CHECK(set_slice(&g, 3000) == SIM_RM_OK);
    CHECK(disable(&g, true) == SIM_RM_NOT_SUPPORTED && queue_of(getpid(), NULL).channels_off == 0);
}

static void ctl(const char *arguments)
{
    char line[512];
    (void)snprintf(line, sizeof(line), "%s %s", SIM_CTL, arguments);
    CHECK(system(line) == 0); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static void faults_of_the_machine(void)
{
    struct sl_tenant t;
    sl_tenant_open(&t, 0);
    struct groups g = last_groups();
    ctl("groups 0 refused-slice");
    CHECK(set_slice(&g, 3000) == SIM_RM_NOT_SUPPORTED && disable(&g, true) == SIM_RM_OK);
    ctl("groups 0 refused-disable");
    CHECK(set_slice(&g, 3000) == SIM_RM_OK && disable(&g, false) == SIM_RM_NOT_SUPPORTED);
    ctl("show | grep -q 'slice 3000 us  channels 8  disabled 8 '");
    ctl("groups 0 inert");
    CHECK(set_slice(&g, 9000) == SIM_RM_OK && get_slice(&g) == 9000);
    ctl("show | grep -q 'slice 3000 us .*set to 9000 us, without effect'");
    ctl("groups 0 normal");
    CHECK(disable(&g, false) == SIM_RM_OK && queue_of(getpid(), NULL).channels_off == 0);
}

/* ---- what costs the card's time ---- */

static void copies_and_time(void)
{
    struct sl_tenant t;
    CUdeviceptr a, b;
    void *host;
    const size_t bytes = 64 << 20;
    sl_tenant_open(&t, 0);
    CU_OK(cuMemAlloc_v2(&a, bytes));
    CU_OK(cuMemAlloc_v2(&b, bytes));
    CU_OK(cuMemHostAlloc(&host, bytes, 0));
    uint64_t before = queue_of(getpid(), NULL).running_ns;
    CU_OK(cuMemcpyHtoDAsync_v2(a, host, bytes, NULL));
    CU_OK(cuMemcpyDtoHAsync_v2(host, a, bytes, NULL));
    CU_OK(cuCtxSynchronize());
    CHECK(queue_of(getpid(), NULL).running_ns == before);
    CU_OK(cuMemcpyDtoDAsync_v2(b, a, bytes, NULL));
    CU_OK(cuCtxSynchronize());
    uint64_t ns = queue_of(getpid(), NULL).running_ns - before;
    CHECK(ns > 27000 &&
          ns < 32000); /* each byte read and written at 4.8 TB/s: 28 us, and a start */
    before += ns;
    CU_OK(cuMemsetD8Async(a, 1, bytes, NULL));
    CU_OK(cuCtxSynchronize());
    ns = queue_of(getpid(), NULL).running_ns - before;
    CHECK(ns > 13000 && ns < 18000);
}

/* Kernels of one block in four streams take as long as one; kernels that fill the card add up. */
static void side_by_side(void)
{
    struct sl_tenant t;
    CUstream s[4];
    sl_tenant_open(&t, 0);
    CUevent gate;
    CU_OK(cuEventCreate(&gate, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 4; i++)
        CU_OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    /* They wait for a long kernel, to begin at one instant however slowly they are submitted. */
    sl_tenant_fma(&t, s[0], 300000000);
    CU_OK(cuEventRecord(gate, s[0]));
    uint64_t iters = 5000000;
    CUdeviceptr nowhere = 0;
    void *args[] = {&iters, &nowhere};
    for (int i = 0; i < 4; i++) {
        CU_OK(cuStreamWaitEvent(s[i], gate, 0));
        CU_OK(cuLaunchKernel(t.fma, 1, 1, 1, 256, 1, 1, 0, s[i], args, NULL));
    }
    CU_OK(cuCtxSynchronize());
    uint64_t before = queue_of(getpid(), NULL).running_ns;
    CHECK(before == 305000000);
    for (int i = 0; i < 4; i++)
        sl_tenant_fma(&t, s[i], 5000000);
    CU_OK(cuCtxSynchronize());
    CHECK(queue_of(getpid(), NULL).running_ns - before == 20000000);
}

int main(int argc, char **argv)
{
    const struct cuda_case cases[] = {
        {"calls_are_seen", calls_are_seen, NULL, NULL},
        {"contexts_come_and_go", contexts_come_and_go, NULL, NULL},
        {"a_changed_slice_holds", a_changed_slice_holds, NULL, NULL},
        {"what_is_refused", what_is_refused, NULL, NULL},
        {"slices_divide_the_card", slices_divide_the_card, NULL, NULL},
        {"slices_without_effect", slices_without_effect, NULL, "groups=inert"},
        {"off_and_on", off_and_on, NULL, NULL},
        {"samples_beside_others", samples_beside_others, NULL, NULL},
        {"a_value_that_is_there", a_value_that_is_there, NULL, NULL},
        {"marks_stand_still", marks_stand_still, NULL, NULL},
        {"stopped_inside", stopped_inside, NULL, NULL},
        {"copies_that_move_nothing", copies_that_move_nothing, NULL, "copies=empty"},
        {"off_and_killed", off_and_killed, NULL, NULL},
        {"refused_all", refused_all, NULL, "groups=refused"},
        {"refused_from_the_third", refused_from_the_third, NULL, "groups=refused@3"},
        {"refused_slice_only", refused_slice_only, NULL, "groups=refused:slice"},
        {"refused_disable_only", refused_disable_only, NULL, "groups=refused:disable"},
        {"faults_of_the_machine", faults_of_the_machine, NULL, NULL},
        {"copies_and_time", copies_and_time, NULL, NULL},
        {"side_by_side", side_by_side, NULL, NULL},
    };
    return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
