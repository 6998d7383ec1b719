/* SPDX-License-Identifier: Apache-2.0 */
#include "steer_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/times.h"

#define NOBODY UINT32_MAX
#define NEVER  UINT64_MAX

/* The hardware: measured on an H200. */
#define SWITCH_NS       (160 * US) /* from one group to another */
#define CALL_NS         (500 * US) /* to turn channels off or on */
/* A process wakes up this much after it is told something. */
#define WAKE_NS         (100 * US)
#define LOOK_NS         MS
#define DEEP_NS         SL_METER_DEEP_NS
#define PLENTY_NS       SL_METER_PLENTY_NS
#define BELIEVED        32U
/* What a program that never waits has queued. */
#define DEPTH_NS        (50 * MS)
/* A tenant that launched counts as active for this long. */
#define ACTIVE_NS       S
/* Until it is seen that a lower tenant in its turn has nothing more to run, and the gap before the next. */
#define MOST_STARVED_NS (20 * MS)

#define FAULT(w, ...)                                                                              \
    do {                                                                                           \
        if (!(w)->fault[0])                                                                        \
            (void)snprintf((w)->fault, sizeof((w)->fault), __VA_ARGS__);                           \
    } while (0)

uint64_t world_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- tenants and processes --------------------------------------------------------------------- */

void world_init(struct world *w)
{
    memset(w, 0, sizeof(*w));
    w->steer = sl_steer_create();
    w->now_ns = w->wake_ns = 5 * S + 7;
    for (uint32_t g = 0; g < WORLD_GPUS; g++)
        w->gpu[g].on = w->gpu[g].last = NOBODY;
}

void world_fini(struct world *w)
{
    sl_steer_destroy(w->steer);
    w->steer = NULL;
}

void world_add(struct world *w, uint32_t id, struct sl_steer_spec spec)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_steer_add(w->steer, id, &spec, w->now_ns, &err) < 0) {
        FAULT(w, "add %u: %s", id, err.msg);
        return;
    }
    w->t[id] = (struct world_tenant){
        .used = true, .spec = spec, .order = {.id = id, .slice_us = SL_STEER_DEFAULT_US}};
    w->wake_ns = w->now_ns;
}

void world_set(struct world *w, uint32_t id, struct sl_steer_spec spec)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_steer_set(w->steer, id, &spec, &err) < 0)
        FAULT(w, "set %u: %s", id, err.msg);
    w->t[id].spec = spec;
    w->wake_ns = w->now_ns;
}

void world_remove(struct world *w, uint32_t id)
{
    sl_steer_remove(w->steer, id);
    w->t[id].used = false;
    for (uint32_t i = 0; i < w->n_procs; i++)
        if (w->p[i].used && w->p[i].tenant == id)
            w->p[i].used = false;
    w->wake_ns = w->now_ns;
}

void world_load_set(struct world *w, uint32_t proc, struct world_load load)
{
    struct world_proc *p = &w->p[proc];
    p->load = load;
    p->queue_ns = load.count ? 0 : DEPTH_NS > load.kernel_ns ? DEPTH_NS : load.kernel_ns;
    p->submitted_ns = p->executed_ns + p->queue_ns;
    /* What was queued is gone, for its meter as well. */
    p->fresh_from_ns = least(p->fresh_from_ns, p->submitted_ns);
    p->mark_ns = least(p->mark_ns, p->submitted_ns);
    p->launched_at_ns = w->now_ns;
    p->waits = false;
    p->left = load.count;
    p->asked_ns = w->now_ns;
    p->launch_ns = load.launch_ns;
    p->host_at_ns = load.count ? w->now_ns + load.launch_ns : NEVER;
}

void world_stop(struct world *w, uint32_t proc)
{
    world_load_set(w, proc, (struct world_load){.count = 1, .kernel_ns = 1});
    w->p[proc].left = 0;
    w->p[proc].host_at_ns = NEVER;
}

uint32_t world_start(struct world *w, uint32_t tenant, uint32_t gpu, struct world_load load)
{
    uint32_t i = 0;
    while (i < WORLD_PROCS && w->p[i].used)
        i++;
    if (i == WORLD_PROCS) {
        FAULT(w, "no room for a process");
        return 0;
    }
    w->p[i] = (struct world_proc){.used = true,
                                  .tenant = tenant,
                                  .gpu = gpu,
                                  .distance_ns = sl_once_came(&w->t[tenant].once, 0),
                                  .look_at_ns = NEVER,
                                  .obey_at_ns = w->now_ns + WAKE_NS,
                                  .switch_at_ns = NEVER};
    w->n_procs = i >= w->n_procs ? i + 1 : w->n_procs;
    w->n_gpus = gpu >= w->n_gpus ? gpu + 1 : w->n_gpus;
    world_load_set(w, i, load);
    w->wake_ns = w->now_ns;
    return i;
}

bool world_is_off(const struct world *w, uint32_t id)
{
    return w->t[id].order.off_until_ns > w->now_ns;
}

/* --- the program ------------------------------------------------------------------------------- */

/* The host's speed in this burst. */
static uint64_t launch_ns(struct world *w, const struct world_load *load)
{
    if (load->uneven == 0)
        return load->launch_ns;
    return load->launch_ns *
           (1000 - load->uneven + world_random(&w->jitter) % (2 * load->uneven + 1)) / 1000;
}

static void begin_burst(struct world *w, struct world_proc *p)
{
    p->launch_ns = launch_ns(w, &p->load);
    p->asked_ns = p->load.period_ns ? p->host_at_ns : w->now_ns;
    p->left = p->load.count;
    p->waits = false;
    p->host_at_ns = w->now_ns + p->launch_ns;
}

static void end_burst(struct world *w, struct world_proc *p)
{
    struct world_tenant *t = &w->t[p->tenant];
    uint64_t took = w->now_ns - p->asked_ns;
    uint64_t think = p->load.think_ns * (900 + world_random(&w->jitter) % 201) / 1000;
    t->bursts++;
    t->latency_sum_ns += took;
    t->latency_max_ns = took > t->latency_max_ns ? took : t->latency_max_ns;
    t->latencies[least(took / (50 * US), WORLD_LATENCIES - 1)]++;
    p->waits = false;
    p->host_at_ns = p->load.period_ns ? p->asked_ns + p->load.period_ns : w->now_ns + think;
}

static void step_program(struct world *w, struct world_proc *p)
{
    if (p->waits && p->queue_ns == 0)
        end_burst(w, p);
    if (p->host_at_ns > w->now_ns)
        return;
    if (p->left == 0) {
        begin_burst(w, p);
        return;
    }
    p->queue_ns += p->load.kernel_ns;
    p->submitted_ns += p->load.kernel_ns;
    p->launches++;
    p->launched_at_ns = w->now_ns;
    p->waits = --p->left == 0;
    p->host_at_ns = p->waits ? NEVER : w->now_ns + p->launch_ns;
}

/* --- the process's meter ----------------------------------------------------------------------- */

/* What the queue was like since the last look. Compare src/preload/meter.c. */
static void count(struct world_proc *p, bool busy, uint64_t span, uint64_t launched_ns)
{
    uint64_t queued = p->total_ns - p->done_ns;
    p->watched_ns += span;
    p->coming = busy && (p->coming || launched_ns);
    if (busy && (queued >= PLENTY_NS || (queued >= DEEP_NS && p->coming))) {
        uint64_t sat = least(span, p->believed_ns);
        p->believed_ns -= sat;
        p->saturated_ns += sat;
        p->owed_ns = 0;
    } else {
        uint64_t work = least(p->owed_ns, span);
        p->owed_ns -= work;
        p->work_ns += work;
    }
}

static void look(struct world *w, struct world_proc *p)
{
    const struct sl_steer_order *order = &w->t[p->tenant].order;
    uint64_t span = p->looked_ns ? w->now_ns - p->looked_ns : 0;
    p->look_at_ns = NEVER;
    if (!order->meter && !p->off_since_ns) {
        p->looked_ns = 0;
        return;
    }
    uint64_t fresh = p->submitted_ns - p->fresh_from_ns;
    bool busy = p->executed_ns < p->mark_ns;
    p->fresh_from_ns = p->submitted_ns;
    p->total_ns += fresh;
    p->owed_ns += fresh;
    p->believed_ns += BELIEVED * fresh;
    if (!busy)
        p->done_ns = p->marked_ns;
    if (!busy || !p->off_since_ns)
        p->mark_ns = p->submitted_ns;
    p->marked_ns = p->total_ns;
    if (!p->off_since_ns && span)
        count(p, busy, span, fresh);
    p->looked_ns = p->metered_ns = w->now_ns;
    p->pending = busy;
    p->seen_launches = p->launches;
    p->told_done_ns = p->executed_ns;
    p->look_at_ns = w->now_ns + LOOK_NS;
}

static void obey(struct world *w, struct world_proc *p)
{
    const struct sl_steer_order *order = &w->t[p->tenant].order;
    uint64_t now = w->now_ns;
    p->obey_at_ns = NEVER;
    if (p->switch_at_ns != NEVER) { /* in the driver */
        p->obey_at_ns = p->switch_at_ns;
        return;
    }
    if (order->meter && p->look_at_ns == NEVER)
        p->look_at_ns = now;
    if (p->off_since_ns) {
        if (now < order->off_until_ns) {
            p->obey_at_ns = order->off_until_ns;
            return;
        }
        p->off_since_ns = 0;
        if (p->looked_ns)
            p->looked_ns = now;
        p->switch_at_ns = now + CALL_NS;
    } else if (order->off_until_ns > now) {
        if (p->looked_ns && now > p->looked_ns)
            count(p, p->pending, now - p->looked_ns, 0);
        p->off_since_ns = now;
        p->switch_at_ns = now + CALL_NS;
        p->obey_at_ns = p->switch_at_ns;
    }
}

static void step_process(struct world *w, struct world_proc *p)
{
    step_program(w, p);
    if (p->switch_at_ns <= w->now_ns) {
        p->switch_at_ns = NEVER;
        p->off = p->off_since_ns != 0;
    }
    if (p->obey_at_ns <= w->now_ns)
        obey(w, p);
    if (p->look_at_ns <= w->now_ns && p->switch_at_ns == NEVER)
        look(w, p);
}

/* --- the GPU ----------------------------------------------------------------------------------- */

static bool runnable(const struct world *w, uint32_t i, uint32_t g)
{
    return i != NOBODY && w->p[i].used && w->p[i].gpu == g && w->p[i].queue_ns > 0 && !w->p[i].off;
}

static uint64_t slice_ns(const struct world *w, uint32_t i)
{
    return w->inert ? SL_STEER_DEFAULT_US * US : w->t[w->p[i].tenant].order.slice_us * US;
}

static uint32_t next_in_line(const struct world *w, uint32_t g)
{
    uint32_t last = w->gpu[g].last == NOBODY ? 0 : w->gpu[g].last;
    for (uint32_t k = 1; k <= w->n_procs; k++)
        if (runnable(w, (last + k) % w->n_procs, g))
            return (last + k) % w->n_procs;
    return NOBODY;
}

static void step_gpu(struct world *w, uint32_t g)
{
    struct world_gpu *gpu = &w->gpu[g];
    uint32_t next = next_in_line(w, g);
    if (runnable(w, gpu->on, g)) {
        if (next == gpu->on)
            return;
        if (w->now_ns > gpu->slice_end_ns) { /* nobody waited when it ended: it began again */
            uint64_t slice = slice_ns(w, gpu->on);
            gpu->slice_end_ns += (w->now_ns - gpu->slice_end_ns + slice - 1) / slice * slice;
        }
        if (w->now_ns < gpu->slice_end_ns)
            return;
    }
    gpu->on = next;
    if (next == NOBODY)
        return;
    gpu->ready_ns = next == gpu->last ? w->now_ns : w->now_ns + SWITCH_NS;
    gpu->slice_end_ns = gpu->ready_ns + slice_ns(w, next);
    gpu->last = next;
}

static bool executes(const struct world *w, uint32_t i)
{
    const struct world_gpu *gpu = &w->gpu[w->p[i].gpu];
    return gpu->on == i && gpu->ready_ns <= w->now_ns && runnable(w, i, w->p[i].gpu);
}

/* A gang's kernels wait for each other on the GPU. */
static bool goes_on(const struct world *w, uint32_t i)
{
    if (!executes(w, i))
        return false;
    for (uint32_t k = 0; w->p[i].load.gang && k < w->n_procs; k++)
        if (w->p[k].used && w->p[k].load.gang == w->p[i].load.gang && !executes(w, k))
            return false;
    return true;
}

static void execute(struct world *w, uint32_t i, uint64_t ns, bool on)
{
    struct world_proc *p = &w->p[i];
    w->t[p->tenant].ran_ns += ns;
    if (!on)
        return;
    w->t[p->tenant].progress_ns += ns;
    p->executed_ns += ns;
    if (p->load.count) {
        p->queue_ns -= ns;
        return;
    }
    /* Its host launches as fast as its kernels end. */
    p->submitted_ns += ns;
    p->launches_rest_ns += ns;
    p->launches += p->launches_rest_ns / p->load.kernel_ns;
    p->launches_rest_ns %= p->load.kernel_ns;
    p->launched_at_ns = w->now_ns;
}

static void advance(struct world *w, uint64_t to_ns)
{
    bool on[WORLD_GPUS];
    uint64_t dt = to_ns - w->now_ns;
    for (uint32_t g = 0; g < w->n_gpus; g++)
        on[g] = w->gpu[g].on != NOBODY && goes_on(w, w->gpu[g].on);
    for (uint32_t g = 0; g < w->n_gpus; g++)
        if (w->gpu[g].on != NOBODY && executes(w, w->gpu[g].on))
            execute(w, w->gpu[g].on, dt, on[g]);
    w->now_ns = to_ns;
}

/* --- the arbiter ------------------------------------------------------------------------------- */

static uint64_t grown(uint64_t now, uint64_t *before)
{
    uint64_t d = now > *before ? now - *before : 0;
    *before = now;
    return d;
}

static bool launched_lately(const struct world *w, const struct world_proc *p)
{
    return p->queue_ns > 0 || (p->launched_at_ns && w->now_ns - p->launched_at_ns < ACTIVE_NS);
}

/* Compare src/arbiter/compute.c. */
static void report(struct world *w, uint32_t id)
{
    struct world_tenant *t = &w->t[id];
    t->seen.active = t->seen.pending = false;
    t->seen.groups = 0;
    for (uint32_t i = 0; i < w->n_procs; i++) {
        struct world_proc *p = &w->p[i];
        if (!p->used || p->tenant != id)
            continue;
        uint64_t busy = grown(p->saturated_ns, &p->before_saturated_ns);
        sl_once_report(&t->once, &p->distance_ns, p->watched_ns, busy);
        t->seen.work_ns += grown(p->work_ns, &p->before_work_ns);
        t->seen.launches += grown(p->seen_launches, &p->before_launches);
        t->seen.done_ns += grown(p->told_done_ns, &p->before_done_ns);
        if (busy)
            p->busy_until_ns = w->now_ns + 500 * MS;
        t->seen.pending |= w->now_ns < p->metered_ns + 100 * MS && p->pending;
        t->seen.active |= launched_lately(w, p);
        t->seen.groups += p->busy_until_ns > w->now_ns;
    }
    t->seen.saturated_ns += sl_once_count(&t->once);
    struct sl_steer_seen told = t->seen;
    if (t->lie)
        t->lie(&told, w->now_ns);
    t->was_active = told.active;
    sl_steer_report(w->steer, id, &told);
}

static void carry_out(struct world *w, const struct sl_steer_order *order)
{
    struct world_tenant *t = &w->t[order->id];
    if (order->id >= WORLD_TENANTS || !t->used) {
        FAULT(w, "an order for %u, which is not there", order->id);
        return;
    }
    if (order->off_until_ns > w->now_ns + SL_STEER_MOST_OFF_NS)
        FAULT(w, "tenant %u is off for %llu ns", order->id,
              (unsigned long long)(order->off_until_ns - w->now_ns));
    if (order->slice_us < 20 || order->slice_us > 100000)
        FAULT(w, "tenant %u has a slice of %u us", order->id, order->slice_us);
    if (w->deaf)
        return;
    t->orders++;
    w->orders++;
    t->offs += order->off_until_ns > w->now_ns && t->order.off_until_ns <= w->now_ns;
    t->order = *order;
    for (uint32_t i = 0; i < w->n_procs; i++)
        if (w->p[i].used && w->p[i].tenant == order->id)
            w->p[i].obey_at_ns = least(w->p[i].obey_at_ns, w->now_ns + WAKE_NS);
}

static void arbiter(struct world *w)
{
    struct sl_steer_order orders[16];
    size_t n;
    for (uint32_t id = 0; id < WORLD_TENANTS; id++)
        if (w->t[id].used)
            report(w, id);
    do {
        n = sl_steer_decide(w->steer, w->now_ns, orders, 16, &w->wake_ns);
        for (size_t i = 0; i < n; i++)
            carry_out(w, &orders[i]);
    } while (n == 16);
    w->decides++;
    if (w->wake_ns <= w->now_ns)
        FAULT(w, "asks to be called again at once");
}

/* --- what always holds ------------------------------------------------------------------------- */

static void check_tenant(struct world *w, uint32_t id)
{
    struct world_tenant *t = &w->t[id];
    if (!world_is_off(w, id)) {
        t->off_at_ns = 0;
        return;
    }
    if (!t->off_at_ns)
        t->off_at_ns = w->now_ns;
    uint64_t off = w->now_ns - t->off_at_ns;
    t->longest_off_ns = off > t->longest_off_ns ? off : t->longest_off_ns;
}

/* Somebody with work is on, unless all who have work have limits or are paused. Who is on and only now and then has
 * nothing queued counts, too. A tenant on several GPUs may be off all of them for a turn on one, and has
 * its turn on all of them. */
static void check_gpu(struct world *w, uint32_t g)
{
    bool waits = false, on = false;
    for (uint32_t i = 0; i < w->n_procs; i++) {
        const struct world_proc *p = &w->p[i];
        const struct sl_steer_spec *spec = &w->t[p->tenant].spec;
        if (!p->used || !(spec->gpu_mask & 1U << g) || !launched_lately(w, p))
            continue;
        bool off = world_is_off(w, p->tenant);
        waits |= off && !spec->paused && p->queue_ns && spec->limit_permille >= 1000 &&
                 spec->gpu_mask == 1U << g;
        on |= !off && (p->queue_ns || w->now_ns - p->launched_at_ns < 60 * MS);
    }
    struct world_gpu *gpu = &w->gpu[g];
    if (!waits || on) {
        gpu->starved_at_ns = 0;
        return;
    }
    if (!gpu->starved_at_ns)
        gpu->starved_at_ns = w->now_ns;
    if (w->now_ns - gpu->starved_at_ns > MOST_STARVED_NS)
        FAULT(w, "GPU %u: tenants have work, and all are off", g);
}

static void check(struct world *w)
{
    for (uint32_t id = 0; id < WORLD_TENANTS; id++)
        if (w->t[id].used)
            check_tenant(w, id);
    for (uint32_t g = 0; g < w->n_gpus; g++)
        check_gpu(w, g);
}

/* --- time -------------------------------------------------------------------------------------- */

static uint64_t next_of_gpu(const struct world *w, uint32_t g)
{
    const struct world_gpu *gpu = &w->gpu[g];
    if (gpu->on == NOBODY)
        return NEVER;
    if (gpu->ready_ns > w->now_ns)
        return gpu->ready_ns;
    uint64_t next = NEVER;
    if (w->p[gpu->on].load.count && goes_on(w, gpu->on))
        next = w->now_ns + w->p[gpu->on].queue_ns;
    if (gpu->slice_end_ns > w->now_ns && next_in_line(w, g) != gpu->on)
        next = least(next, gpu->slice_end_ns);
    return next;
}

static uint64_t next_event(const struct world *w)
{
    uint64_t next = w->wake_ns;
    for (uint32_t i = 0; i < w->n_procs; i++) {
        const struct world_proc *p = &w->p[i];
        if (!p->used)
            continue;
        next = least(least(next, p->host_at_ns), least(p->obey_at_ns, p->switch_at_ns));
        if (p->switch_at_ns == NEVER)
            next = least(next, p->look_at_ns);
    }
    for (uint32_t g = 0; g < w->n_gpus; g++)
        next = least(next, next_of_gpu(w, g));
    return next;
}

static bool somebody_woke(const struct world *w)
{
    for (uint32_t i = 0; i < w->n_procs; i++)
        if (w->p[i].used && !w->t[w->p[i].tenant].was_active && !w->t[w->p[i].tenant].lie &&
            launched_lately(w, &w->p[i]))
            return true;
    return false;
}

void world_run(struct world *w, uint64_t ns)
{
    uint64_t end = w->now_ns + ns, same = 0;
    while (w->now_ns < end && !w->fault[0]) {
        for (uint32_t i = 0; i < w->n_procs; i++)
            if (w->p[i].used)
                step_process(w, &w->p[i]);
        if (w->wake_ns <= w->now_ns || somebody_woke(w))
            arbiter(w);
        check(w);
        for (uint32_t g = 0; g < w->n_gpus; g++)
            step_gpu(w, g);
        uint64_t next = least(next_event(w), end);
        same = next <= w->now_ns ? same + 1 : 0;
        if (same > 1000)
            FAULT(w, "time stands still at %llu", (unsigned long long)w->now_ns);
        if (next > w->now_ns)
            advance(w, next);
    }
}

struct world_shares world_shares(struct world *w, uint64_t ns)
{
    struct world_shares s = {{0}};
    uint64_t before[WORLD_TENANTS], began = w->now_ns;
    for (uint32_t id = 0; id < WORLD_TENANTS; id++)
        before[id] = w->t[id].ran_ns;
    world_run(w, ns);
    uint64_t span = w->now_ns - began;
    for (uint32_t id = 0; id < WORLD_TENANTS && span; id++)
        s.permille[id] = (uint32_t)(((w->t[id].ran_ns - before[id]) * 1000 + span / 2) / span);
    return s;
}
