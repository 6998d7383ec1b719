/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of work, and the loop that keeps them back to back. */
#include <string.h>

#include "tenant.h"

static void launch_fma(struct tenant *t, uint64_t iters, CUstream s)
{
    CUdeviceptr none = 0;
    void *args[] = {&iters, &none};
    CU(t, cuLaunchKernel, t->fma, t->grid, 1, 1, 256, 1, 1, 0, s, args, NULL);
}

static void launch_cooperative(struct tenant *t, CUstream s)
{
    CUdeviceptr none = 0;
    void *args[] = {&t->opt.iters, &none};
    CU(t, cuLaunchCooperativeKernel, t->fma, t->grid, 1, 1, 256, 1, 1, 0, s, args);
}

/* With iters for 100 us: 50 us to 5 ms, in an order that looks random. */
static void launch_mixed(struct tenant *t, CUstream s)
{
    static const unsigned halves[] = {1, 20, 3, 100, 7, 2, 47, 12};
    for (unsigned i = 0; i < sizeof(halves) / sizeof(halves[0]); i++)
        launch_fma(t, t->opt.iters * halves[i] / 2, s);
}

/* The host is busy between launches, as an interpreter is. */
static void launch_eager(struct tenant *t, CUstream s)
{
    uint64_t next = tenant_now_ns();
    for (int i = 0; i < EAGER_KERNELS; i++) {
        launch_fma(t, t->opt.iters, s);
        next += t->opt.host_ns;
        tenant_busy_until(next);
    }
}

static void wait_for_flag(void *flag)
{
    while (*(volatile uint32_t *)flag == 0)
        ;
}

/* Nothing of this may run before all of it is queued: whoever holds a launch back waits for ever. */
static void launch_queued(struct tenant_lane *lane, CUstream s)
{
    struct tenant *t = lane->t;
    *lane->flag = 0;
    if (t->opt.work == WORK_HOSTFN)
        CU(t, cuLaunchHostFunc, s, wait_for_flag, (void *)(uintptr_t)lane->flag);
    else
        CU(t, cuStreamWaitValue32_v2, s, lane->flag_address, 1, CU_STREAM_WAIT_VALUE_GEQ);
    for (int i = 0; i < QUEUED_KERNELS; i++)
        launch_fma(t, t->opt.iters, s);
    *lane->flag = 1;
}

static bool stamping(const struct tenant *t)
{
    return t->stamped && t->opt.work == WORK_FMA && t->opt.unit_us >= STAMP_FROM_US;
}

static void launch_stamped(struct tenant_lane *lane, CUstream s)
{
    struct tenant *t = lane->t;
    CUdeviceptr out = lane->stamps + lane->own.launched % MAX_STAMPS * 16;
    void *args[] = {&t->opt.iters, &out};
    CU(t, cuLaunchKernel, t->stamped, t->grid, 1, 1, 256, 1, 1, 0, s, args, NULL);
}

static void launch_unit(struct tenant_lane *lane, CUstream s)
{
    struct tenant *t = lane->t;
    switch (t->opt.work) {
    case WORK_FMA:
        if (stamping(t))
            launch_stamped(lane, s);
        else
            launch_fma(t, t->opt.iters, s);
        break;
    case WORK_GRAPH:
        CU(t, cuGraphLaunch, lane->graph, s);
        break;
    case WORK_TINY:
        CU(t, cuLaunchKernel, t->empty, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
        break;
    case WORK_GEMM:
        tenant_gemm_launch(t, s);
        break;
    case WORK_EAGER:
        launch_eager(t, s);
        break;
    case WORK_TRAIN:
        for (int i = 0; i < TRAIN_KERNELS; i++)
            launch_fma(t, t->opt.iters, s);
        break;
    case WORK_HOSTFN:
    case WORK_WAITVALUE:
        launch_queued(lane, s);
        break;
    case WORK_SYNC:
        launch_fma(t, t->opt.iters, s);
        break;
    case WORK_MIXED:
        launch_mixed(t, s);
        break;
    case WORK_COPY:
        CU(t, cuMemcpyDtoDAsync_v2, lane->copy_to, lane->copy_from, COPY_BYTES, s);
        break;
    case WORK_COOP:
        launch_cooperative(t, s);
        break;
    case WORK_REQ:
        for (int i = 0; i < GRAPH_KERNELS; i++)
            launch_fma(t, t->opt.iters, s);
        break;
    }
}

/* Adds one on the GPU: what it counted at the end must be what was submitted. */
static void launch_count(struct tenant_lane *lane, CUstream s)
{
    struct tenant *t = lane->t;
    uint32_t one = 1, words = 1;
    void *args[] = {&lane->counter, &one, &words};
    CU(t, cuLaunchKernel, t->add, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
    lane->own.expected++;
}

static void capture_graph(struct tenant_lane *lane)
{
    struct tenant *t = lane->t;
    CUgraph graph;
    CU(t, cuStreamBeginCapture_v2, lane->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 0; i < GRAPH_KERNELS; i++)
        launch_fma(t, t->opt.iters, lane->stream[0]);
    CU(t, cuStreamEndCapture, lane->stream[0], &graph);
    CU(t, cuGraphInstantiateWithFlags, &lane->graph, graph, 0);
}

void tenant_lane_open(struct tenant_lane *lane, struct tenant *t)
{
    lane->t = t;
    CU(t, cuCtxSetCurrent, t->ctx);
    for (unsigned i = 0; i < t->opt.streams; i++)
        CU(t, cuStreamCreate, &lane->stream[i], CU_STREAM_NON_BLOCKING);
    CU(t, cuEventCreate, &lane->ref, CU_EVENT_DEFAULT);
    for (unsigned i = 0; i < LANE_EVENTS; i++)
        CU(t, cuEventCreate, &lane->event[i], CU_EVENT_BLOCKING_SYNC);
    CU(t, cuMemAlloc_v2, &lane->counter, 256);
    CU(t, cuMemsetD8_v2, lane->counter, 0, 256);
    CU(t, cuMemAlloc_v2, &lane->stamps, MAX_STAMPS * 16);
    if (t->opt.work == WORK_GRAPH)
        capture_graph(lane);
    if (t->opt.work == WORK_HOSTFN || t->opt.work == WORK_WAITVALUE) {
        void *flag;
        CU(t, cuMemHostAlloc, &flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
        CU(t, cuMemHostGetDevicePointer_v2, &lane->flag_address, flag, 0);
        lane->flag = flag;
    }
    if (t->opt.work == WORK_COPY) {
        CU(t, cuMemAlloc_v2, &lane->copy_from, COPY_BYTES);
        CU(t, cuMemAlloc_v2, &lane->copy_to, COPY_BYTES);
    }
}

/* The GPU's time of one unit of `iters`, the mean over `units` in a row. */
double tenant_unit_us(struct tenant_lane *lane, uint64_t iters, unsigned units)
{
    struct tenant *t = lane->t;
    float ms = 0;
    t->opt.iters = iters;
    launch_unit(lane, lane->stream[0]);
    CU(t, cuEventRecord, lane->event[0], lane->stream[0]);
    for (unsigned i = 0; i < units; i++)
        launch_unit(lane, lane->stream[0]);
    CU(t, cuEventRecord, lane->event[1], lane->stream[0]);
    CU(t, cuEventSynchronize, lane->event[1]);
    CU(t, cuEventElapsedTime, &ms, lane->event[0], lane->event[1]);
    return (double)ms * 1e3 / units;
}

/* ---- what was completed when ---- */

static void set_reference(struct tenant_lane *lane)
{
    struct tenant *t = lane->t;
    CU(t, cuEventRecord, lane->ref, lane->stream[0]);
    CU(t, cuEventSynchronize, lane->ref);
    lane->ref_ns = tenant_now_ns();
    for (unsigned i = 0; i < MAX_STREAMS; i++)
        lane->prev_end_ns[i] = lane->ref_ns;
}

/* Spreads `units` evenly over [from, to) of the clock, as far as that is measured. */
static void credit(struct tenant_lane *lane, double units, uint64_t from, uint64_t to)
{
    const struct tenant_go *go = &lane->go;
    struct tenant_result *r = &lane->own;
    uint64_t width = lane->t->opt.bucket_ns;
    if (to <= from)
        from = to - 1;
    double per_ns = units / (double)(to - from);
    uint64_t lo = from > go->from_ns ? from : go->from_ns;
    uint64_t hi = to < go->until_ns ? to : go->until_ns;
    while (lo < hi) {
        uint64_t b = (lo - go->from_ns) / width;
        uint64_t edge = go->from_ns + (b + 1) * width;
        uint64_t part = (edge < hi ? edge : hi) - lo;
        if (b < r->buckets)
            r->done[b] += per_ns * (double)part;
        lo += part;
    }
}

static void sample(struct tenant_result *r, double value)
{
    if (r->samples < MAX_SAMPLES)
        r->sample_us[r->samples++] = (float)value;
}

/*
 * A chunk ended at `end`. It ran no longer than it runs alone, and not before the chunk ahead of
 * it ended: within a turn that dates its units well, whenever this thread comes to look.
 */
static void chunk_done(struct tenant_lane *lane, unsigned slot, unsigned stream)
{
    struct tenant *t = lane->t;
    float ms = 0;
    CU(t, cuEventSynchronize, lane->event[slot]);
    CU(t, cuEventElapsedTime, &ms, lane->ref, lane->event[slot]);
    uint64_t end = lane->ref_ns + (uint64_t)((double)ms * 1e6);
    uint64_t prev = lane->prev_end_ns[stream];
    uint64_t alone = (uint64_t)(lane->per_chunk * t->opt.unit_us * 1e3);
    uint64_t begin = end - alone > prev ? end - alone : prev;
    credit(lane, lane->per_chunk, begin < end ? begin : end, end);
    if (end > lane->go.from_ns && end <= lane->go.until_ns && end > prev)
        sample(&lane->own, (double)(end - prev) / 1e3 / lane->per_chunk);
    lane->prev_end_ns[stream] = end > prev ? end : prev;
    lane->own.finished += lane->per_chunk;
}

/* About 1 ms of work between events, and queue_ms of it outstanding, so the queue never runs dry. */
static void size_chunks(struct tenant_lane *lane)
{
    const struct tenant_options *o = &lane->t->opt;
    double per = 1000.0 / o->unit_us;
    lane->per_chunk = per < 1 ? 1 : per > 256 ? 256 : (unsigned)per;
    /* Streams run side by side: what is queued in all of them is over in the time of one. */
    double chunks = o->streams * o->queue_ms * 1e3 / (lane->per_chunk * o->unit_us);
    lane->chunks = chunks < 2 ? 2 : chunks > LANE_EVENTS ? LANE_EVENTS : (unsigned)chunks;
}

static void run_back_to_back(struct tenant_lane *lane)
{
    struct tenant *t = lane->t;
    unsigned streams = t->opt.streams;
    uint64_t head = 0, tail = 0;
    while (tenant_now_ns() < lane->go.load_until_ns) {
        CUstream s = lane->stream[head % streams];
        if (t->opt.count)
            launch_count(lane, s);
        for (unsigned i = 0; i < lane->per_chunk; i++, lane->own.launched++)
            launch_unit(lane, s);
        CU(t, cuEventRecord, lane->event[head % lane->chunks], s);
        if (++head - tail == lane->chunks) {
            chunk_done(lane, (unsigned)(tail % lane->chunks), (unsigned)(tail % streams));
            tail++;
        }
    }
    for (; tail < head; tail++)
        chunk_done(lane, (unsigned)(tail % lane->chunks), (unsigned)(tail % streams));
}

/* Bursts from an empty queue: the host's time per launch, undisturbed by back-pressure. */
static void run_tiny(struct tenant_lane *lane)
{
    struct tenant *t = lane->t;
    uint64_t now = tenant_now_ns();
    while (now < lane->go.load_until_ns) {
        uint64_t start = now;
        for (unsigned i = 0; i < TINY_BURST; i++)
            launch_unit(lane, lane->stream[0]);
        uint64_t submitted = tenant_now_ns();
        CU(t, cuStreamSynchronize, lane->stream[0]);
        now = tenant_now_ns();
        credit(lane, TINY_BURST, start, now);
        lane->own.launched += TINY_BURST;
        lane->own.finished += TINY_BURST;
        if (start >= lane->go.from_ns && now <= lane->go.until_ns)
            sample(&lane->own, (double)(submitted - start) / TINY_BURST);
    }
}

/* Work that waits for each unit. The queue is empty after each: whoever shares the GPU by the driver's slices loses its slice. */
static void run_synchronised(struct tenant_lane *lane)
{
    struct tenant *t = lane->t;
    struct tenant_result *r = &lane->own;
    uint64_t now = tenant_now_ns();
    while (now < lane->go.load_until_ns) {
        if (t->opt.work == WORK_TRAIN)
            tenant_sleep_until(now + TRAIN_HOST_NS);
        uint64_t start = tenant_now_ns();
        launch_unit(lane, lane->stream[0]);
        CU(t, cuStreamSynchronize, lane->stream[0]);
        now = tenant_now_ns();
        credit(lane, 1, start, now);
        r->launched++;
        r->finished++;
        if (start >= lane->go.from_ns && now <= lane->go.until_ns) {
            sample(r, (double)(now - start) / 1e3);
            if (r->latencies < MAX_SAMPLES)
                r->latency_ms[r->latencies++] = (float)((double)(now - start) / 1e6);
        }
    }
}

/*
 * One request per period. Its latency counts from when it was due if the one before it took too
 * long, so a stall is seen by every request it delays.
 */
static void run_requests(struct tenant_lane *lane)
{
    struct tenant *t = lane->t;
    struct tenant_result *r = &lane->own;
    uint64_t due = lane->go.load_from_ns;
    for (; due < lane->go.load_until_ns; due += t->opt.period_ns) {
        uint64_t now = tenant_now_ns();
        bool late = now > due;
        if (!late) {
            tenant_sleep_until(due - 150000);
            tenant_busy_until(due);
            now = tenant_now_ns();
        }
        uint64_t start = late ? due : now;
        launch_unit(lane, lane->stream[0]);
        r->launched++;
        CU(t, cuStreamSynchronize, lane->stream[0]);
        uint64_t end = tenant_now_ns();
        r->finished++;
        credit(lane, 1, end - 1, end);
        if (start >= lane->go.from_ns && start < lane->go.until_ns && r->latencies < MAX_SAMPLES)
            r->latency_ms[r->latencies++] = (float)((double)(end - start) / 1e6);
    }
}

/* How long each kernel of this run took by its own stamps; the simulated GPU leaves none. */
static void read_stamps(struct tenant_lane *lane)
{
    static _Thread_local uint64_t stamp[MAX_STAMPS][2];
    struct tenant_result *r = &lane->own;
    CU(lane->t, cuMemcpyDtoH_v2, stamp, lane->stamps, sizeof(stamp));
    for (unsigned i = 0; i < MAX_STAMPS && i < r->launched; i++)
        if (stamp[i][0] != 0 && stamp[i][1] > stamp[i][0])
            r->kernel_us[r->kernels++] = (float)((double)(stamp[i][1] - stamp[i][0]) / 1e3);
}

void tenant_lane_run(struct tenant_lane *lane, const struct tenant_go *go)
{
    struct tenant *t = lane->t;
    uint32_t counted = 0;
    lane->go = *go;
    memset(&lane->own, 0, sizeof(lane->own));
    lane->own.buckets = (uint32_t)((go->until_ns - go->from_ns) / t->opt.bucket_ns);
    if (lane->own.buckets > MAX_BUCKETS)
        lane->own.buckets = MAX_BUCKETS;
    CU(t, cuCtxSetCurrent, t->ctx);
    CU(t, cuMemsetD8_v2, lane->counter, 0, 256);
    CU(t, cuMemsetD8_v2, lane->stamps, 0, MAX_STAMPS * 16);
    size_chunks(lane);
    tenant_sleep_until(go->load_from_ns);
    set_reference(lane);
    if (t->opt.work == WORK_REQ)
        run_requests(lane);
    else if (t->opt.work == WORK_TINY)
        run_tiny(lane);
    else if (t->opt.work == WORK_SYNC || t->opt.work >= WORK_EAGER)
        run_synchronised(lane);
    else
        run_back_to_back(lane);
    CU(t, cuMemcpyDtoH_v2, &counted, lane->counter, sizeof(counted));
    lane->own.counted = counted;
    if (stamping(t))
        read_stamps(lane);
}
