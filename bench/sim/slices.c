/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated card against a real one: programs share a card by its slices, and what each gets is
 * printed beside what it got on an H200 (driver 580). Virtual time only: no clock, no sleeping, the
 * same figures on every machine. Exits 1 if a figure is off by more than five points.
 *
 * A program is a small state machine, looked at every STEP_NS: it submits work, waits for it, or works
 * on the host. Figures are in percent of what it does alone on the card, in the same model.
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/engine.h"

#define US      1000ULL
#define MS      1000000ULL
#define STEP_NS (4 * US)
#define T0      (1000 * MS)
#define WARM_NS (100 * MS)
#define RUN_NS  (3000 * MS)
#define POINTS  5.0

/* Alone, gemm is held back by the power limit. Beside a program that leaves the card cooler it is
 * faster: 86.6 % where FMA kernels get 82.9. The simulated card has no clocks. */
#define GEMM_COOL (86.6 / 82.9)

#define TENANTS 3
#define STEPS   65536

/* ---- programs ---- */

enum kind {
    NOBODY,
    GEMM,      /* 170 us kernels back to back */
    FMA100,    /* 100 us */
    FMA20MS,   /* 20 ms */
    FMA2S,     /* 2 s */
    GRAPH,     /* 2 ms graphs */
    MIXED,     /* 50 us to 5 ms at random */
    STREAMS8,  /* small kernels in eight streams */
    SYNC,      /* one 100 us kernel, wait for it, again */
    COPIES,    /* to the card and from it */
    REQUEST,   /* twenty 100 us kernels, wait for them, 10 ms of nothing */
    INFERENCE, /* bound by its launches; waits at the end of a step */
    TRAINING, /* launches kernels of 29 us for 28 ms, a short gap after each; waits; 5 ms on the host */
};

static const char *const names[] = {
    [GEMM] = "gemm",          [FMA100] = "100 us",       [FMA20MS] = "20 ms",
    [FMA2S] = "2 s",          [GRAPH] = "graph",         [MIXED] = "mixed",
    [STREAMS8] = "8 streams", [SYNC] = "100 us + sync",  [COPIES] = "host copies",
    [REQUEST] = "request",    [INFERENCE] = "inference", [TRAINING] = "training",
};

struct tenant {
    enum kind kind;
    uint32_t queue;
    uint64_t ran_ns;   /* before the warm-up was over */
    uint64_t wait_for; /* operation, or 0 */
    uint64_t host_until;
    uint64_t begun_ns; /* the step */
    uint32_t launched; /* of the step */
    uint64_t random;
    double done; /* since the warm-up: time on the card, or steps, or copies */
    double step_ms[STEPS];
    size_t steps;
};

struct world {
    struct sl_sim_state *st;
    struct tenant tenant[TENANTS];
    bool counts; /* the warm-up is over */
};

static uint64_t kernel(struct world *w, struct tenant *t, uint16_t stream, uint64_t ns,
                       uint32_t room)
{
    struct sl_sim_op o = {.kind = SL_SIM_OP_KERNEL, .stream = stream, .left_ns = ns, .room = room};
    return sl_sim_submit(w->st, t->queue, &o);
}

/* Lets the ring go on. How many operations there are still. */
static uint64_t collect(struct world *w, struct tenant *t)
{
    struct sl_sim_queue *q = &w->st->queues[t->queue];
    q->head = q->first;
    return q->tail - q->first;
}

/* Keeps `depth` kernels of a stream in the queue. */
static void fill(struct world *w, struct tenant *t, uint64_t ns, unsigned int depth)
{
    for (uint64_t n = collect(w, t); n < depth; n++)
        (void)kernel(w, t, 1, ns, 0);
}

static uint64_t random_below(struct tenant *t, uint64_t n)
{
    t->random = t->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (t->random >> 33) % n;
}

static void mixed(struct world *w, struct tenant *t)
{
    for (uint64_t n = collect(w, t); n < 8; n++)
        (void)kernel(w, t, 1, 50 * US + random_below(t, 4950 * US), 0);
}

static void eight_streams(struct world *w, struct tenant *t)
{
    (void)collect(w, t);
    for (uint16_t s = 1; s <= 8; s++)
        while (w->st->queues[t->queue].pending[s] < 8)
            (void)kernel(w, t, s, 200 * US, 125);
}

static void copies(struct world *w, struct tenant *t)
{
    uint64_t before = w->st->queues[t->queue].head;
    (void)collect(w, t);
    t->done += w->counts ? (double)(w->st->queues[t->queue].head - before) : 0;
    for (uint16_t s = 1; s <= 2; s++)
        while (w->st->queues[t->queue].pending[s] < 4) {
            struct sl_sim_op o = {.kind = SL_SIM_OP_COPY,
                                  .stream = s,
                                  .left_ns = 300 * US,
                                  .engine = (uint8_t)(s - 1)};
            (void)sl_sim_submit(w->st, t->queue, &o);
        }
}

static bool waits(struct world *w, struct tenant *t)
{
    if (t->host_until > w->st->now_ns)
        return true;
    if (t->wait_for &&
        !sl_sim_op_done(w->st, t->queue, w->st->queues[t->queue].generation, t->wait_for))
        return true;
    return false;
}

static void step_done(struct world *w, struct tenant *t)
{
    if (t->wait_for && w->counts && t->steps < STEPS) {
        t->step_ms[t->steps++] = (double)(w->st->now_ns - t->begun_ns) / (double)MS;
    }
    t->wait_for = 0;
    t->launched = 0;
    w->st->queues[t->queue].head = w->st->queues[t->queue].first;
}

/* `count` kernels at once, wait for them all, `idle` on the host. */
static void burst(struct world *w, struct tenant *t, unsigned int count, uint64_t ns, uint64_t idle)
{
    if (waits(w, t))
        return;
    if (t->wait_for) {
        step_done(w, t);
        t->host_until = w->st->now_ns + idle;
        return;
    }
    t->begun_ns = w->st->now_ns;
    for (unsigned int i = 0; i < count; i++)
        t->wait_for = kernel(w, t, 1, ns, 0);
}

/* `count` launches that take the host `each`, a short kernel every time; then wait. */
static void launches(struct world *w, struct tenant *t, unsigned int count, uint64_t each,
                     uint64_t ns, uint64_t idle)
{
    if (waits(w, t))
        return;
    if (t->launched == 0)
        t->begun_ns = w->st->now_ns;
    if (t->launched == count && !t->wait_for) {
        t->wait_for = w->st->queues[t->queue].tail;
        return;
    }
    if (t->wait_for) {
        step_done(w, t);
        t->host_until = w->st->now_ns + idle;
        return;
    }
    (void)kernel(w, t, 1, ns, 0);
    t->launched++;
    t->host_until = w->st->now_ns + each;
}

static void act(struct world *w, struct tenant *t)
{
    switch (t->kind) {
    case NOBODY:
        return;
    case GEMM:
        fill(w, t, 170 * US, 16);
        return;
    case FMA100:
        fill(w, t, 100 * US, 16);
        return;
    case FMA20MS:
        fill(w, t, 20 * MS, 4);
        return;
    case FMA2S:
        fill(w, t, 2000 * MS, 4);
        return;
    case GRAPH:
        fill(w, t, 2 * MS, 4);
        return;
    case MIXED:
        mixed(w, t);
        return;
    case STREAMS8:
        eight_streams(w, t);
        return;
    case SYNC:
        burst(w, t, 1, 100 * US, 8 * US);
        return;
    case COPIES:
        copies(w, t);
        return;
    case REQUEST:
        burst(w, t, 20, 100 * US, 9 * MS + random_below(t, 2 * MS));
        return;
    case INFERENCE:
        launches(w, t, 130, 20 * US, 2 * US, 20 * US);
        return;
    case TRAINING:
        launches(w, t, 850, 33 * US, 29 * US, 5 * MS);
        return;
    }
}

/* ---- a run ---- */

static struct sl_sim_state *machine(void)
{
    struct sl_sim_state *st = mmap(NULL, sizeof(*st), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (st == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    st->card_count = 1;
    sl_sim_lanes_init(&st->cards[0]);
    sl_sim_times_init(st);
    st->now_ns = T0;
    st->procs[0].used = 1;
    st->proc_high = 1;
    return st;
}

static void play(struct world *w, const enum kind *kinds, const uint64_t *slice_us)
{
    memset(w, 0, sizeof(*w));
    w->st = machine();
    for (int i = 0; i < TENANTS; i++) {
        struct tenant *t = &w->tenant[i];
        t->kind = kinds[i];
        t->random = 12345;
        if (t->kind == NOBODY)
            continue;
        t->queue = (uint32_t)sl_sim_queue_create(w->st, 0, 0);
        sl_sim_queue_slice(w->st, t->queue, slice_us ? slice_us[i] * SL_SIM_SLICE_UNIT_NS : 0);
    }
    for (uint64_t t = T0; t < T0 + WARM_NS + RUN_NS; t += STEP_NS) {
        sl_sim_advance(w->st, t);
        bool now = !w->counts && t >= T0 + WARM_NS;
        w->counts |= now;
        for (int i = 0; i < TENANTS; i++) {
            if (now)
                w->tenant[i].ran_ns = w->st->queues[w->tenant[i].queue].running_ns;
            act(w, &w->tenant[i]);
        }
    }
    for (int i = 0; i < TENANTS; i++) {
        struct tenant *t = &w->tenant[i];
        if (t->steps)
            t->done = (double)t->steps;
        else if (t->kind != COPIES)
            t->done = (double)(w->st->queues[t->queue].running_ns - t->ran_ns);
    }
    (void)munmap(w->st, sizeof(*w->st));
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double percentile(struct tenant *t, double p)
{
    if (t->steps == 0)
        return 0;
    qsort(t->step_ms, t->steps, sizeof(t->step_ms[0]), by_size);
    return t->step_ms[(size_t)(p / 100 * (double)(t->steps - 1) + 0.5)];
}

static struct world *alone(enum kind kind)
{
    static struct world *known[TRAINING + 1];
    if (!known[kind]) {
        known[kind] = malloc(sizeof(struct world));
        if (!known[kind])
            exit(2);
        play(known[kind], (enum kind[TENANTS]){kind}, NULL);
    }
    return known[kind];
}

/* ---- the tables ---- */

struct row {
    enum kind kind[TENANTS];
    uint64_t slice_us[TENANTS];
    double measured[TENANTS]; /* % of alone; 0: not measured */
    double sum;               /* where only that was measured; 0: not */
    double p99;               /* of the first one, in % of alone; negative: printed only; 0: none */
    const char *apart;        /* why figures are printed only */
};

static const struct row rows[] = {
#include "slices_rows.h"
};

static int failed;

static void print_figure(double is, double measured, double within, bool held)
{
    if (measured == 0) {
        (void)printf(" %6.1f        ", is);
        return;
    }
    bool off = fabs(is - measured) > within;
    failed += off && held;
    (void)printf(" %6.1f (%4.*f)%s", is, measured < 100 ? 1 : 0, measured,
                 off ? (held ? "!" : "~") : " ");
}

/* What a tenant got, in percent of what it gets alone. */
static double got(const struct world *w, const struct row *r, int i)
{
    double percent = w->tenant[i].done * 100 / alone(r->kind[i])->tenant[0].done;
    bool cool = r->kind[i] == GEMM;
    for (int k = 0; k < TENANTS; k++)
        cool &= k == i || (r->kind[k] != GEMM && r->kind[k] != COPIES);
    return cool ? percent * GEMM_COOL : percent;
}

static void print_p99(struct world *w, const struct row *r)
{
    double is = percentile(&w->tenant[0], 99);
    double percent = is * 100 / percentile(&alone(r->kind[0])->tenant[0], 99);
    (void)printf("  p99 %.2f ms", is);
    if (r->p99 == 0)
        return;
    double measured = fabs(r->p99);
    print_figure(percent, measured, measured > 200 ? measured * POINTS / 100 : POINTS, r->p99 > 0);
}

static void print_row(const struct row *r)
{
    static struct world w;
    char what[128] = "";
    size_t n = 0;
    play(&w, r->kind, r->slice_us);
    for (int i = 0; i < TENANTS && r->kind[i]; i++)
        n += (size_t)snprintf(what + n, sizeof(what) - n, "%s%s %g", i ? " + " : "",
                              names[r->kind[i]],
                              (double)(r->slice_us[i] ? r->slice_us[i] : 2048) / 1000);
    (void)printf("%-44s", what);
    for (int i = 0; i < TENANTS && r->kind[i]; i++)
        print_figure(got(&w, r, i), r->measured[i], POINTS, !r->apart || r->p99 < 0);
    if (r->sum != 0) {
        (void)printf("  sum");
        print_figure(got(&w, r, 0) + got(&w, r, 1), r->sum, POINTS, true);
    }
    if (w.tenant[0].steps)
        print_p99(&w, r);
    (void)printf("\n");
    if (r->apart)
        (void)printf("    ~ %s\n", r->apart);
}

int main(void)
{
    (void)printf(
        "Programs on one card, each with its slice in ms: percent of what each does alone,\n"
        "simulated (and on an H200). Last: p99 of a step of the first, and in percent of alone.\n"
        "!: off by more than %.0f points; ~: also off, not counted, the line below says why\n\n",
        POINTS);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        print_row(&rows[i]);
    (void)printf("\n%d figures are off by more than %.0f points\n", failed, POINTS);
    return failed != 0;
}
