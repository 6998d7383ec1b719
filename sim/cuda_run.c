/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the caller's work to the engine's operations and back: submission, seeing completion,
 * applying effects, waiting. A service thread exists only in processes that use what happens on
 * its own: host functions, callbacks, kernels that wait for memory.
 */
#include "sim/cuda_int.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define HOST_BYTES_PER_S 55000000000ULL /* PCIe, measured */
#define LAUNCH_NS        2000ULL
#define COPY_START_NS    1500ULL

/* What an SM holds at once. */
#define SM_THREADS      2048U
#define SM_BLOCKS       32U
#define SM_SHARED_BYTES (228U << 10)

static pthread_once_t service_once = PTHREAD_ONCE_INIT;
static pthread_cond_t service_wake = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t service_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned int service_signals;

static uint64_t bytes_ns(uint64_t bytes, uint64_t per_s)
{
    return (uint64_t)((unsigned __int128)bytes * 1000000000U / (per_s ? per_s : 1));
}

static uint64_t card_ns(uint32_t card, uint64_t bytes)
{
    return LAUNCH_NS + bytes_ns(bytes, sim_p.st->cards[card].desc.memory_bandwidth_bytes_per_s);
}

static uint64_t kernel_ns(const struct sim_work *w, uint32_t card, uint8_t *ret_kind)
{
    switch (w->kernel.f->id) {
    case SIM_K_FMA:
        return w->kernel.arg[0] ? w->kernel.arg[0] : 1;
    case SIM_K_FILL:
        return card_ns(card, (w->kernel.arg[2] & 0xffffffffULL) * 4);
    case SIM_K_ADD:
        return card_ns(card, (w->kernel.arg[2] & 0xffffffffULL) * 8);
    case SIM_K_SPIN:
    case SIM_K_FOREVER:
    case SIM_K_MEET:
        *ret_kind = SL_SIM_OP_SPIN;
        return 0;
    case SIM_K_OTHER:
    case SIM_K_EMPTY:
        break;
    }
    return LAUNCH_NS;
}

uint32_t sim_blocks_per_sm(uint64_t threads, uint64_t shared_bytes)
{
    uint64_t n = SM_THREADS / ((threads + 31) / 32 * 32);
    if (n > SM_SHARED_BYTES / (shared_bytes + 1024))
        n = SM_SHARED_BYTES / (shared_bytes + 1024);
    return n > SM_BLOCKS ? SM_BLOCKS : n ? (uint32_t)n : 1;
}

/* What a kernel's blocks take of the places there are: one of few blocks leaves room for others. */
static uint32_t room_of(const struct sim_work *w, uint32_t card)
{
    if (w->type != SIM_WORK_KERNEL)
        return SL_SIM_ROOM;
    uint64_t threads = (uint64_t)w->kernel.block[0] * w->kernel.block[1] * w->kernel.block[2];
    uint64_t blocks = (uint64_t)w->kernel.grid[0] * w->kernel.grid[1] * w->kernel.grid[2];
    uint64_t places =
        (uint64_t)sim_sm_count(card) * sim_blocks_per_sm(threads, w->kernel.shared_bytes);
    if (blocks >= places)
        return SL_SIM_ROOM;
    return (uint32_t)((blocks * SL_SIM_ROOM + places - 1) / places);
}

uint64_t sim_work_ns(const struct sim_work *w, uint32_t card, uint8_t *ret_kind)
{
    *ret_kind = SL_SIM_OP_MARK;
    switch ((enum sim_work_type)w->type) {
    case SIM_WORK_KERNEL:
        *ret_kind = SL_SIM_OP_KERNEL;
        return kernel_ns(w, card, ret_kind);
    case SIM_WORK_COPY:
        *ret_kind = SL_SIM_OP_COPY;
        if (w->copy.engine < SIM_COPY_BETWEEN)
            return COPY_START_NS + bytes_ns(sim_copy_bytes(&w->copy), HOST_BYTES_PER_S);
        /* Each byte is read and written. */
        if (w->copy.engine == SIM_COPY_WITHIN)
            *ret_kind = SL_SIM_OP_KERNEL;
        return card_ns(card, 2 * sim_copy_bytes(&w->copy));
    case SIM_WORK_MEMSET:
        *ret_kind = SL_SIM_OP_KERNEL;
        return card_ns(card, w->memset.width * w->memset.height * w->memset.element);
    case SIM_WORK_GRAPH:
        *ret_kind = SL_SIM_OP_KERNEL;
        return sim_program_ns(w->program, card);
    case SIM_WORK_HOST:
    case SIM_WORK_CALLBACK:
        *ret_kind = SL_SIM_OP_HOST;
        return 0;
    case SIM_WORK_WAIT:
        *ret_kind = SL_SIM_OP_WAIT;
        return 0;
    case SIM_WORK_WAIT_VALUE:
        *ret_kind = SL_SIM_OP_POLL;
        return 0;
    case SIM_WORK_RECORD:
    case SIM_WORK_ALLOC:
    case SIM_WORK_FREE:
    case SIM_WORK_WRITE_VALUE:
    case SIM_WORK_EMPTY:
        break;
    }
    return 0;
}

/* ---- seeing completion ---- */

/* Notes what the engine has finished. State locked. */
static void collect(CUcontext ctx)
{
    struct sl_sim_queue *q = &sim_p.st->queues[ctx->queue];
    if (q->generation != ctx->queue_generation)
        return;
    q->head = ctx->retired;
    uint64_t last = q->ahead ? q->tail : q->first;
    for (uint64_t s = ctx->retired + 1; s <= last; s++) {
        struct sim_local_op *l = &ctx->ops[s % SL_SIM_RING];
        const struct sl_sim_op *op = sl_sim_op_at(sim_p.st, ctx->queue, s);
        if (!l->done && op->state == SL_SIM_OP_DONE) {
            l->done = true;
            l->end_ns = op->end_ns;
        }
    }
}

static uint64_t next_unapplied(CUcontext ctx, uint64_t tail)
{
    for (uint64_t s = ctx->retired + 1; s <= tail; s++)
        if (ctx->ops[s % SL_SIM_RING].done && !ctx->ops[s % SL_SIM_RING].applied)
            return s;
    return 0;
}

static void retire(CUcontext ctx, uint64_t tail)
{
    while (ctx->retired < tail && ctx->ops[(ctx->retired + 1) % SL_SIM_RING].applied)
        ctx->retired++;
}

static uint64_t tail_of(CUcontext ctx)
{
    return sim_p.st->queues[ctx->queue].tail; /* only we move it, under the process lock */
}

/* Applies effects in the order of time over all contexts: a cause always ends before its effect. */
static void apply_done(void)
{
    for (;;) {
        CUcontext best = NULL;
        uint64_t best_seq = 0;
        for (CUcontext c = sim_p.contexts; c; c = c->next) {
            uint64_t s = c->dead ? 0 : next_unapplied(c, tail_of(c));
            if (s && (!best ||
                      c->ops[s % SL_SIM_RING].end_ns < best->ops[best_seq % SL_SIM_RING].end_ns)) {
                best = c;
                best_seq = s;
            }
        }
        if (!best)
            return;
        struct sim_local_op *l = &best->ops[best_seq % SL_SIM_RING];
        uint8_t kind;
        (void)sim_work_ns(&l->work, best->card, &kind);
        if ((kind == SL_SIM_OP_SPIN || kind == SL_SIM_OP_HOST || kind == SL_SIM_OP_POLL) &&
            best->watched)
            best->watched--;
        sim_apply(best, &l->work, l->end_ns);
        l->applied = true;
        retire(best, tail_of(best));
    }
}

bool sim_writes_memory(const struct sim_work *w)
{
    switch ((enum sim_work_type)w->type) {
    case SIM_WORK_KERNEL:
        return w->kernel.f->id != SIM_K_FMA && w->kernel.f->id != SIM_K_EMPTY;
    case SIM_WORK_RECORD:
    case SIM_WORK_WAIT:
    case SIM_WORK_WAIT_VALUE:
    case SIM_WORK_EMPTY:
        return false;
    case SIM_WORK_GRAPH:
        return sim_program_writes(w->program);
    default:
        return true;
    }
}

/*
 * A card that comes to a wait whose value is there goes on at once; here its owner has to look, which may be
 * half a millisecond later, and the group would have lost its turn. So waits are looked at before it is their
 * turn, as long as nothing that comes before them can change the value: words that the stream itself writes lie from
 * `low` up to `high`.
 */
static void look_ahead(CUcontext c)
{
    struct sl_sim_state *st = sim_p.st;
    CUdeviceptr low = UINT64_MAX, high = 0;
    for (uint64_t s = c->retired + 1; c->watched && !c->dead && s <= tail_of(c); s++) {
        struct sl_sim_op *op = sl_sim_op_at(st, c->queue, s);
        struct sim_work *w = &c->ops[s % SL_SIM_RING].work;
        if (op->state == SL_SIM_OP_DONE)
            continue;
        if (w->type == SIM_WORK_WRITE_VALUE) {
            low = w->word.address < low ? w->word.address : low;
            high = w->word.address + 8 > high ? w->word.address + 8 : high;
            continue;
        }
        if (sim_writes_memory(w))
            return;
        if (op->kind == SL_SIM_OP_POLL && op->state == SL_SIM_OP_PENDING &&
            (w->word.address >= high || w->word.address + 8 <= low) && sim_watch_over(w))
            op->flags |= SL_SIM_OPF_MET;
    }
}

/* Finds an operation that waits for its owner: HOST only if the caller may run functions. */
static bool next_watched(bool service, CUcontext *ret_ctx, uint64_t *ret_seq)
{
    struct sl_sim_state *st = sim_p.st;
    for (CUcontext c = sim_p.contexts; c; c = c->next) {
        for (uint64_t s = c->retired + 1; c->watched && !c->dead && s <= tail_of(c); s++) {
            const struct sl_sim_op *op = sl_sim_op_at(st, c->queue, s);
            if (op->state != SL_SIM_OP_RUNNING)
                continue;
            bool host = op->kind == SL_SIM_OP_HOST;
            if (host ? service
                     : (op->kind == SL_SIM_OP_SPIN || op->kind == SL_SIM_OP_POLL) &&
                           sim_watch_over(&c->ops[s % SL_SIM_RING].work)) {
                *ret_ctx = c;
                *ret_seq = s;
                return true;
            }
        }
    }
    return false;
}

static void run_host(struct sim_work w)
{
    sim_unlock();
    if (w.type == SIM_WORK_CALLBACK)
        w.host.callback(w.host.stream, CUDA_SUCCESS, w.host.arg);
    else
        w.host.fn(w.host.arg);
    sim_lock();
}

static void poll_as(bool service)
{
    struct sl_sim_state *st = sim_p.st;
    for (;;) {
        CUcontext ctx;
        uint64_t seq;
        sl_sim_lock(st);
        sl_sim_advance(st, sl_sim_now_ns());
        for (CUcontext c = sim_p.contexts; c; c = c->next)
            if (!c->dead)
                collect(c);
        sl_sim_unlock(st);
        apply_done();

        sl_sim_lock(st);
        bool found = next_watched(service, &ctx, &seq);
        for (CUcontext c = sim_p.contexts; c && !found; c = c->next)
            look_ahead(c);
        sl_sim_unlock(st);
        if (!found)
            return;
        struct sim_work w = ctx->ops[seq % SL_SIM_RING].work;
        uint32_t queue = ctx->queue, generation = ctx->queue_generation;
        if (w.type == SIM_WORK_HOST || w.type == SIM_WORK_CALLBACK)
            run_host(w);
        sl_sim_lock(st);
        sl_sim_advance(st, sl_sim_now_ns());
        if (!sl_sim_op_done(st, queue, generation, seq))
            sl_sim_op_finish(st, queue, seq);
        sl_sim_unlock(st);
    }
}

void sim_poll(void)
{
    poll_as(false);
}

static bool anything_watched(void)
{
    for (CUcontext c = sim_p.contexts; c; c = c->next)
        if (c->watched && !c->dead)
            return true;
    return false;
}

static void nap(uint64_t ns)
{
    int saved = errno;
    struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000U),
                          .tv_nsec = (long)(ns % 1000000000U)};
    (void)nanosleep(&ts, NULL);
    errno = saved;
}

static void *service(void *unused)
{
    (void)unused;
    for (;;) {
        (void)pthread_mutex_lock(&service_mutex);
        while (service_signals == 0)
            (void)pthread_cond_wait(&service_wake, &service_mutex);
        service_signals = 0;
        (void)pthread_mutex_unlock(&service_mutex);
        bool more = true;
        for (unsigned int round = 0; more; round++) {
            sim_lock();
            poll_as(true);
            more = anything_watched();
            sim_unlock();
            if (more)
                nap(round < 200 ? 50000 : 500000);
        }
    }
    return NULL;
}

static void service_start(void)
{
    pthread_t t;
    pthread_attr_t a;
    (void)pthread_attr_init(&a);
    (void)pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    (void)pthread_create(&t, &a, service, NULL);
    (void)pthread_attr_destroy(&a);
}

static void service_ask(void)
{
    (void)pthread_once(&service_once, service_start);
    (void)pthread_mutex_lock(&service_mutex);
    service_signals++;
    (void)pthread_cond_signal(&service_wake);
    (void)pthread_mutex_unlock(&service_mutex);
}

/* ---- submission ---- */

/* Waits while the ring is full, as a real channel makes its submitter wait. Process and state locked
 * on entry and on return. */
static bool make_room(CUcontext ctx)
{
    struct sl_sim_state *st = sim_p.st;
    struct sl_sim_queue *q = &st->queues[ctx->queue];
    while (!ctx->dead && sl_sim_queue_full(q)) {
        uint64_t eta = sl_sim_op_eta_ns(st, ctx->queue, q->head + SL_SIM_RING / 8);
        sl_sim_unlock(st);
        apply_done();
        if (tail_of(ctx) - ctx->retired >= SL_SIM_RING) {
            sim_unlock();
            nap(eta < 50000 ? 50000 : eta > 20000000 ? 1000000 : eta);
            sim_lock();
            sim_poll();
        }
        sl_sim_lock(st);
        sl_sim_advance(st, sl_sim_now_ns());
        if (!ctx->dead)
            collect(ctx);
        if (st->cards[ctx->card].lost)
            return false;
    }
    return !ctx->dead;
}

/*
 * What a stream does between kernels is done by the channels of its context's compute group, in their turn.
 * Measured on an H200 beside a busy neighbour: records of events that tell time, and words that are written,
 * wait for the slice. Events that tell no time do not, nor does what stands behind a copy between host and card:
 * that is the copy engine's.
 */
static void choose_channel(CUstream s, const struct sim_work *w, struct sl_sim_op *op)
{
    bool stamp = w->type == SIM_WORK_RECORD && !(w->record.event->flags & CU_EVENT_DISABLE_TIMING);
    if ((stamp || w->type == SIM_WORK_WRITE_VALUE) && !s->copied)
        op->flags |= SL_SIM_OPF_LANE;
    if (op->kind == SL_SIM_OP_COPY)
        s->copied = true;
    else if (op->kind == SL_SIM_OP_KERNEL || op->kind == SL_SIM_OP_SPIN)
        s->copied = false;
}

CUresult sim_submit(CUstream s, const struct sim_work *w, uint64_t *ret_seq)
{
    CUcontext ctx = s->ctx;
    struct sl_sim_state *st = sim_p.st;
    struct sl_sim_op op = {
        .flags = s->op_flags, .stream = s->slot, .priority = (int16_t)s->priority};
    op.left_ns = sim_work_ns(w, ctx->card, &op.kind);
    if (op.kind == SL_SIM_OP_KERNEL)
        op.room = room_of(w, ctx->card);
    if (op.kind == SL_SIM_OP_COPY)
        op.engine = w->copy.engine;
    if (op.kind == SL_SIM_OP_WAIT) {
        op.dep_queue = w->wait.queue;
        op.dep_generation = w->wait.generation;
        op.dep_seq = w->wait.seq;
    }
    choose_channel(s, w, &op);
    sl_sim_lock(st);
    sl_sim_advance(st, sl_sim_now_ns());
    collect(ctx);
    bool room = !st->cards[ctx->card].lost && make_room(ctx);
    if (!room) {
        sl_sim_unlock(st);
        return ctx->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_UNKNOWN;
    }
    uint64_t seq = st->queues[ctx->queue].tail + 1;
    ctx->ops[seq % SL_SIM_RING] = (struct sim_local_op){.work = *w};
    (void)sl_sim_submit(st, ctx->queue, &op);
    if (op.kind == SL_SIM_OP_COPY && op.engine < 2)
        st->cards[ctx->card].copied_bytes[op.engine] += sim_copy_bytes(&w->copy);
    sl_sim_unlock(st);
    s->last_seq = seq;
    if (ret_seq)
        *ret_seq = seq;
    bool watch =
        op.kind == SL_SIM_OP_SPIN || op.kind == SL_SIM_OP_HOST || op.kind == SL_SIM_OP_POLL;
    if (watch)
        ctx->watched++;
    if (watch || w->type == SIM_WORK_WRITE_VALUE)
        service_ask();
    apply_done();
    return CUDA_SUCCESS;
}

/* ---- waiting ---- */

bool sim_seq_done(CUcontext ctx, uint64_t seq)
{
    return seq <= ctx->retired || ctx->ops[seq % SL_SIM_RING].applied;
}

static CUresult wait_until(CUcontext ctx, uint64_t seq, bool all)
{
    struct sl_sim_state *st = sim_p.st;
    for (unsigned int round = 0;; round++) {
        if (ctx->dead)
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        sim_poll();
        if (all ? ctx->retired >= seq : sim_seq_done(ctx, seq))
            return ctx->sticky;
        sl_sim_lock(st);
        bool lost = st->cards[ctx->card].lost;
        uint64_t eta = 0;
        if (!lost && all) {
            for (uint64_t s = ctx->retired + 1; s <= seq; s++) {
                const struct sl_sim_op *op = sl_sim_op_at(st, ctx->queue, s);
                if (op->state != SL_SIM_OP_DONE && op->kind == SL_SIM_OP_KERNEL)
                    eta += op->left_ns * op->room / SL_SIM_ROOM; /* side by side, at best */
            }
            uint64_t last = sl_sim_op_eta_ns(st, ctx->queue, seq);
            if (last > eta)
                eta = last;
        } else if (!lost) {
            eta = sl_sim_op_eta_ns(st, ctx->queue, seq);
        }
        sl_sim_unlock(st);
        if (lost)
            return ctx->sticky = CUDA_ERROR_UNKNOWN;
        if (sim_mps_gone())
            return ctx->sticky = CUDA_ERROR_MPS_CONNECTION_FAILED;
        if (eta == UINT64_MAX) /* not a matter of time alone: look often, then less often */
            eta = round < 100 ? 50000 : 500000;
        sim_unlock();
        nap(eta < 30000 ? 30000 : eta > 20000000 ? 20000000 : eta);
        sim_lock();
    }
}

CUresult sim_wait_seq(CUcontext ctx, uint64_t seq)
{
    return wait_until(ctx, seq, false);
}

uint64_t sim_ctx_tail(CUcontext ctx)
{
    return tail_of(ctx);
}

CUresult sim_wait_ctx(CUcontext ctx)
{
    CUresult r = wait_until(ctx, tail_of(ctx), true);
    sim_pool_sync();
    return r;
}

void sim_wait_card(uint32_t card)
{
    sim_keep_lock(true);
    for (CUcontext c = sim_p.contexts; c; c = c->next)
        if (!c->dead && c->card == card)
            (void)wait_until(c, tail_of(c), true);
    sim_keep_lock(false);
}
