/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The published protocol: pods in random order, drawn again with replacement when the trace is used
 * up, until their demand reaches the wanted share of capacity; nothing leaves, nothing is retried.
 * With churn each pod also has a lifetime, the same for every policy, and leaves when it is over.
 */
#include "cli/simulate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/xalloc.h"
#include "cli/errors.h"

struct running {
    double ends;
    uint32_t pod;
    struct sl_place_decision at;
};

struct run {
    const struct sim_cluster *cluster;
    const struct sim_pods *pods;
    const struct sim_options *options;
    struct sl_placer *place;
    struct sim_result *result;
    uint32_t *order; /* shuffled pod numbers */
    uint64_t rng;
    uint64_t served;      /* milli-GPU that running pods asked for */
    struct running *heap; /* by `ends`, soonest first */
    size_t heap_count, heap_room;
};

static double uniform(uint64_t *state)
{
    return ((double)(sl_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

static void heap_push(struct run *run, struct running x)
{
    if (run->heap_count == run->heap_room) {
        run->heap_room = run->heap_room ? run->heap_room * 2 : 1024;
        run->heap = sl_xreallocarray(run->heap, run->heap_room, sizeof(*run->heap));
    }
    size_t at = run->heap_count++;
    for (; at && run->heap[(at - 1) / 2].ends > x.ends; at = (at - 1) / 2)
        run->heap[at] = run->heap[(at - 1) / 2];
    run->heap[at] = x;
}

static struct running heap_pop(struct run *run)
{
    struct running top = run->heap[0], last = run->heap[--run->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < run->heap_count; at = child) {
        if (child + 1 < run->heap_count && run->heap[child + 1].ends < run->heap[child].ends)
            child++;
        if (last.ends <= run->heap[child].ends)
            break;
        run->heap[at] = run->heap[child];
    }
    run->heap[at] = last;
    return top;
}

static double unallocated_percent(const struct run *run)
{
    double capacity = (double)run->cluster->gpu_milli;
    return 100.0 * (capacity - (double)run->served) / capacity;
}

static double fragmentation_percent(const struct run *run)
{
    struct sl_place_totals t;
    double lost = 0;
    sl_place_totals(run->place, &t);
    for (uint32_t i = 0; i < t.nodes; i++)
        lost += sl_place_fragmentation(run->place, i);
    return t.gpu_free_milli ? 100 * lost / (double)t.gpu_free_milli : 0;
}

static uint32_t next_pod(struct run *run, uint64_t i)
{
    if (i < run->pods->count)
        return run->order[i];
    return (uint32_t)(sl_random(&run->rng) % run->pods->count);
}

/* 1: placed, 0: no room, negative: an error. */
static int arrive(struct run *run, uint32_t pod, struct sl_place_decision *at, struct sl_err *err)
{
    const struct sl_place_request *r = &run->pods->pods[pod].request;
    run->result->pods++;
    int rc = sl_place_decide(run->place, r, NULL, at, err);
    if (rc == -ENOSPC) {
        run->result->rejected++;
        return 0;
    }
    if (!rc)
        rc = sl_place_commit(run->place, r, at, err);
    if (!rc)
        run->served += run->pods->pods[pod].worth_milli;
    return rc ? rc : 1;
}

static int run_arrivals(struct run *run, struct sl_err *err)
{
    struct sim_result *res = run->result;
    uint64_t capacity = run->cluster->gpu_milli, arrived = 0, lost = 0;
    uint64_t until = capacity / 100 * run->options->until_percent;
    res->unallocated[0] = 100;
    res->samples = 1;
    for (uint64_t i = 0; arrived < until && run->pods->count; i++) {
        uint32_t pod = next_pod(run, i);
        struct sl_place_decision at;
        uint64_t demand = run->pods->pods[pod].worth_milli;
        int rc = arrive(run, pod, &at, err);
        if (rc < 0)
            return rc;
        arrived += demand;
        lost += rc ? 0 : demand;
        while (res->samples <= run->options->until_percent &&
               arrived * 100 >= capacity * res->samples) {
            res->unallocated[res->samples] = unallocated_percent(run);
            if (res->samples % 5 == 0)
                res->fragmentation[res->samples] = fragmentation_percent(run);
            res->samples++;
        }
    }
    res->rejected_gpu_percent = arrived ? 100.0 * (double)lost / (double)arrived : 0;
    return 0;
}

/* Time is counted in arrivals. The mean lifetime that keeps the wanted demand running. */
static double mean_lifetime(const struct run *run, double *ret_scale)
{
    double milli = 0, weighted = 0, known = 0;
    for (size_t i = 0; i < run->pods->count; i++) {
        double d = run->pods->pods[i].worth_milli;
        milli += d;
        weighted += d * run->pods->pods[i].runtime_s;
        known += run->pods->pods[i].runtime_s ? 1 : 0;
    }
    double wanted = (double)run->cluster->gpu_milli * run->options->load_percent / 100;
    *ret_scale = weighted > 0 && known > 0 ? wanted * (double)run->pods->count / weighted : 0;
    return wanted * (double)run->pods->count / milli;
}

static int depart_until(struct run *run, double now, struct sl_err *err)
{
    while (run->heap_count && run->heap[0].ends <= now) {
        struct running x = heap_pop(run);
        int rc = sl_place_release(run->place, &run->pods->pods[x.pod].request, &x.at, err);
        if (rc)
            return rc;
        run->served -= run->pods->pods[x.pod].worth_milli;
    }
    return 0;
}

static int place_for(struct run *run, uint32_t pod, double ends, struct sl_err *err)
{
    struct running x = {.ends = ends, .pod = pod};
    int rc = arrive(run, pod, &x.at, err);
    if (rc == 1)
        heap_push(run, x);
    return rc;
}

/*
 * Real run times have so long a tail that no simulated time would reach their steady state: a few pods that run for
 * months are most of the load. So the run begins in the steady state: a pod that runs at a given moment is drawn in
 * proportion to its run time, and has a uniform part of that time left.
 */
static int fill_stationary(struct run *run, double scale, struct sl_err *err)
{
    size_t count = run->pods->count;
    SL_CLEANUP(free) double *until = sl_xcalloc(count, sizeof(*until));
    double sum = 0, milli = 0;
    double wanted = (double)run->cluster->gpu_milli * run->options->load_percent / 100;
    for (size_t i = 0; i < count; i++)
        until[i] = sum += run->pods->pods[i].runtime_s;
    while (milli < wanted) {
        double at = uniform(&run->rng) * sum;
        size_t low = 0, high = count - 1;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (until[middle] > at)
                high = middle;
            else
                low = middle + 1;
        }
        double left = uniform(&run->rng) * scale * run->pods->pods[low].runtime_s;
        int rc = place_for(run, (uint32_t)low, left, err);
        if (rc < 0)
            return rc;
        milli += run->pods->pods[low].worth_milli;
    }
    return 0;
}

static int run_churn(struct run *run, struct sl_err *err)
{
    double scale, mean = mean_lifetime(run, &scale), sum = 0;
    bool by_trace = run->options->lifetimes == SIM_LIFETIME_TRACE;
    if (by_trace && scale <= 0)
        return sl_err_set(err, -EINVAL, SL_E_SIM_NO_TIMES);
    int rc = by_trace ? fill_stationary(run, scale, err) : 0;
    if (rc)
        return rc;
    uint64_t steps = (uint64_t)(mean * run->options->turnovers), arrived = 0, lost = 0;
    for (uint64_t i = 0; i < 2 * steps; i++) {
        /* Draw the lifetime whether the pod is placed or not: every policy sees the same pods and lifetimes. */
        uint32_t pod = next_pod(run, i);
        double lifetime = -mean * log(uniform(&run->rng));
        if (by_trace)
            lifetime = scale * run->pods->pods[pod].runtime_s;
        rc = depart_until(run, (double)i, err);
        if (!rc)
            rc = place_for(run, pod, (double)i + lifetime, err);
        if (rc < 0)
            return rc;
        if (i < steps)
            continue;
        uint64_t demand = run->pods->pods[pod].worth_milli;
        arrived += demand;
        lost += rc ? 0 : demand;
        sum += unallocated_percent(run);
    }
    run->result->mean_unallocated = steps ? sum / (double)steps : 0;
    run->result->rejected_gpu_percent = arrived ? 100.0 * (double)lost / (double)arrived : 0;
    return 0;
}

static int tell_demand(struct run *run, struct sl_err *err)
{
    size_t count = run->pods->count;
    struct sl_place_demand *demand = sl_xcalloc(count, sizeof(*demand));
    for (size_t i = 0; i < count; i++)
        demand[i] = (struct sl_place_demand){run->pods->pods[i].request, 1};
    int rc = sl_place_set_demand(run->place, demand, count, err);
    free(demand);
    return rc;
}

static int run_prepare(struct run *run, uint64_t seed, struct sl_err *err)
{
    struct sl_place_config config = run->options->place;
    config.seed = seed;
    run->rng = seed * 0x9e3779b97f4a7c15ULL + 0x5851f42d4c957f2dULL;
    int rc = sl_place_create(&config, run->cluster->nodes, run->cluster->count, &run->place, err);
    if (!rc && !run->options->learn)
        rc = tell_demand(run, err);
    if (rc)
        return rc;
    size_t count = run->pods->count;
    run->order = sl_xcalloc(count, sizeof(*run->order));
    for (size_t i = 0; i < count; i++)
        run->order[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)(sl_random(&run->rng) % i);
        uint32_t t = run->order[i - 1];
        run->order[i - 1] = run->order[j];
        run->order[j] = t;
    }
    return 0;
}

int sl_sim_run(const struct sim_cluster *cluster, const struct sim_pods *pods,
               const struct sim_options *options, uint64_t seed, struct sim_result *ret,
               struct sl_err *err)
{
    struct run run = {.cluster = cluster, .pods = pods, .options = options, .result = ret};
    memset(ret, 0, sizeof(*ret));
    uint64_t start = sl_now_ns();
    int rc = run_prepare(&run, seed, err);
    if (!rc)
        rc = options->churn ? run_churn(&run, err) : run_arrivals(&run, err);
    ret->wall_s = (double)(sl_now_ns() - start) / 1e9;
    ret->decisions_per_s = ret->wall_s > 0 ? (double)ret->pods / ret->wall_s : 0;
    sl_place_destroy(run.place);
    free(run.order);
    free(run.heap);
    return rc;
}
