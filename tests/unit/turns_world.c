/* SPDX-License-Identifier: Apache-2.0 */
#include "turns_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define FAULT(w, ...)                                                                              \
    do {                                                                                           \
        if (!(w)->fault[0])                                                                        \
            (void)snprintf((w)->fault, sizeof((w)->fault), __VA_ARGS__);                           \
    } while (0)

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void world_init(struct world *w, uint64_t handover_ns)
{
    memset(w, 0, sizeof(*w));
    w->turns = sl_turns_create();
    w->start_ns = w->now_ns = 5 * S + 7;
    w->wake_ns = w->now_ns;
    w->handover_ns = handover_ns;
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++)
        w->last_on[g] = NOBODY;
}

void world_fini(struct world *w)
{
    sl_turns_destroy(w->turns);
    w->turns = NULL;
}

static void begin_burst(struct world *w, uint32_t id)
{
    struct world_tenant *t = &w->t[id];
    t->left_ns = t->load.burst_ns ? t->load.burst_ns : UINT64_MAX;
    t->think_until_ns = 0;
    t->wants = true;
    t->asked_ns = w->now_ns;
    t->first_ns = 0;
    sl_turns_want(w->turns, id, true, w->now_ns);
    w->wake_ns = w->now_ns;
}

void world_add(struct world *w, uint32_t id, struct sl_steer_spec spec, struct world_load load)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_turns_add(w->turns, id, &spec, w->now_ns, &err) < 0) {
        FAULT(w, "add %u: %s", id, err.msg);
        return;
    }
    w->t[id] = (struct world_tenant){.used = true, .spec = spec, .load = load};
    begin_burst(w, id);
}

void world_set(struct world *w, uint32_t id, struct sl_steer_spec spec)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_turns_set(w->turns, id, &spec, w->now_ns, &err) < 0)
        FAULT(w, "set %u: %s", id, err.msg);
    w->t[id].spec = spec;
    w->wake_ns = w->now_ns;
}

void world_remove(struct world *w, uint32_t id)
{
    sl_turns_remove(w->turns, id, w->now_ns);
    w->t[id].used = false;
    w->wake_ns = w->now_ns;
}

void world_load_set(struct world *w, uint32_t id, struct world_load load)
{
    w->t[id].load = load;
    if (!load.stopped)
        begin_burst(w, id);
}

static bool on_gpu(const struct world *w, const struct world_tenant *t)
{
    return t->used && t->in_flight_ns > 0 && t->ready_ns <= w->now_ns;
}

/* How many share the fullest of its GPUs. */
static uint64_t crowd(const struct world *w, const struct world_tenant *t)
{
    uint64_t most = 1;
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++) {
        if (!(t->spec.gpu_mask & (1U << g)))
            continue;
        uint64_t n = 0;
        for (uint32_t i = 0; i < WORLD_TENANTS; i++)
            n += on_gpu(w, &w->t[i]) && (w->t[i].spec.gpu_mask & (1U << g));
        if (n > most)
            most = n;
    }
    return most;
}

static void take_sample(struct world *w)
{
    if (w->samples >= WORLD_SAMPLES)
        return;
    for (uint32_t i = 0; i < WORLD_TENANTS; i++)
        w->t[i].done_at[w->samples] = w->t[i].done_ns;
    w->samples++;
}

static void advance(struct world *w, uint64_t to_ns)
{
    uint64_t dt = to_ns - w->now_ns;
    uint64_t progress[WORLD_TENANTS] = {0};
    for (uint32_t i = 0; i < WORLD_TENANTS; i++)
        if (on_gpu(w, &w->t[i]))
            progress[i] =
                min_u64((dt + crowd(w, &w->t[i]) - 1) / crowd(w, &w->t[i]), w->t[i].in_flight_ns);
    w->now_ns = to_ns;
    for (uint32_t i = 0; i < WORLD_TENANTS; i++) {
        struct world_tenant *t = &w->t[i];
        if (!progress[i])
            continue;
        t->in_flight_ns -= progress[i];
        t->done_ns += progress[i];
        for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++)
            if (t->spec.gpu_mask & (1U << g))
                w->last_on[g] = i;
    }
}

static uint64_t refill_level(const struct world_tenant *t)
{
    if (t->load.kernel_ns >= SL_TURN_WINDOW_NS)
        return 0;
    return min_u64(SL_TURN_WINDOW_NS / 2, SL_TURN_WINDOW_NS - t->load.kernel_ns);
}

static bool may_submit(const struct world *w, const struct world_tenant *t)
{
    return t->open && t->ready_ns <= w->now_ns && t->left_ns > 0;
}

static void submit(struct world *w, struct world_tenant *t)
{
    if (t->in_flight_ns > refill_level(t))
        return;
    do {
        uint64_t k = min_u64(t->load.kernel_ns, t->left_ns);
        t->in_flight_ns += k;
        if (t->left_ns != UINT64_MAX)
            t->left_ns -= k;
    } while (t->left_ns && t->in_flight_ns + t->load.kernel_ns <= SL_TURN_WINDOW_NS);
    if (!t->first_ns) {
        t->first_ns = w->now_ns;
        uint64_t delay = w->now_ns - t->asked_ns;
        t->bursts++;
        t->delay_sum_ns += delay;
        if (delay > t->delay_max_ns)
            t->delay_max_ns = delay;
    }
}

static void step_tenant(struct world *w, uint32_t id)
{
    struct world_tenant *t = &w->t[id];
    if (t->load.stopped)
        return;
    if (t->think_until_ns && t->think_until_ns <= w->now_ns)
        begin_burst(w, id);
    if (may_submit(w, t)) {
        if (!t->started) {
            sl_turns_started(w->turns, id, w->now_ns);
            w->wake_ns = w->now_ns;
        }
        t->started = true;
        submit(w, t);
    }
    if (t->in_flight_ns == 0 && t->left_ns == 0 && t->wants) {
        t->wants = false;
        t->think_until_ns = w->now_ns + t->load.think_ns;
        sl_turns_want(w->turns, id, false, w->now_ns);
        w->wake_ns = w->now_ns;
    }
    if (t->closing && t->in_flight_ns == 0) {
        t->closing = false;
        sl_turns_released(w->turns, id, w->now_ns);
        w->wake_ns = w->now_ns;
    }
}

static void open_gate(struct world *w, uint32_t id)
{
    struct world_tenant *t = &w->t[id];
    if (t->open)
        FAULT(w, "tenant %u was granted a turn in its turn", id);
    if (t->closing)
        FAULT(w, "tenant %u was granted a turn before it had released", id);
    t->open = true;
    t->started = false;
    t->grants++;
    t->ready_ns = w->now_ns;
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++)
        if ((t->spec.gpu_mask & (1U << g)) && w->last_on[g] != id)
            t->ready_ns = w->now_ns + w->handover_ns;
}

static void check_invariants(struct world *w)
{
    struct sl_err err = SL_ERR_INIT;
    if (turns_check(w->turns, &err) < 0)
        FAULT(w, "%s", err.msg);
    uint64_t held[SL_TURNS_MAX_GPUS] = {0};
    uint32_t used = 0;
    for (uint32_t i = 0; i < WORLD_TENANTS; i++) {
        if (!w->t[i].used)
            continue;
        if (w->t[i].open && (used & w->t[i].spec.gpu_mask))
            FAULT(w, "tenant %u's gate is open beside another's", i);
        if (w->t[i].open)
            used |= w->t[i].spec.gpu_mask;
        struct sl_turns_stats st;
        if (sl_turns_stats(w->turns, i, w->now_ns, &st) < 0)
            FAULT(w, "no statistics of tenant %u", i);
        if (st.debt_ns > 10 * S)
            FAULT(w, "tenant %u owes %llu ns", i, (unsigned long long)st.debt_ns);
        for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++)
            if (w->t[i].spec.gpu_mask & (1U << g))
                held[g] += st.held_ns;
    }
    for (uint32_t g = 0; g < SL_TURNS_MAX_GPUS; g++)
        if (held[g] > w->now_ns - w->start_ns)
            FAULT(w, "GPU %u was held for longer than there was time", g);
}

static void decide(struct world *w)
{
    struct sl_turns_action actions[WORLD_TENANTS];
    size_t n = sl_turns_decide(w->turns, w->now_ns, actions, WORLD_TENANTS, &w->wake_ns);
    for (size_t i = 0; i < n; i++) {
        uint32_t id = actions[i].id;
        if (!w->t[id].used) {
            FAULT(w, "an action for %u, which is not there", id);
            continue;
        }
        if (actions[i].kind == SL_TURNS_CLOSE) {
            w->t[id].open = false;
            w->t[id].closing = true;
            w->t[id].closes++;
        } else {
            open_gate(w, id);
        }
    }
    for (uint32_t i = 0; n && i < WORLD_TENANTS; i++)
        if (w->t[i].used)
            step_tenant(w, i);
}

static uint64_t next_event(const struct world *w)
{
    uint64_t next = w->wake_ns;
    for (uint32_t i = 0; i < WORLD_TENANTS; i++) {
        const struct world_tenant *t = &w->t[i];
        if (!t->used)
            continue;
        if (t->in_flight_ns) {
            uint64_t level = 0;
            if (t->ready_ns > w->now_ns)
                next = min_u64(next, t->ready_ns);
            else if (may_submit(w, t) && t->in_flight_ns > refill_level(t))
                level = refill_level(t);
            next = min_u64(next, w->now_ns + (t->in_flight_ns - level) * crowd(w, t));
        }
        if (t->load.stopped)
            continue;
        if (t->open && t->ready_ns > w->now_ns)
            next = min_u64(next, t->ready_ns);
        if (t->think_until_ns > w->now_ns)
            next = min_u64(next, t->think_until_ns);
    }
    return next;
}

void world_run(struct world *w, uint64_t ns)
{
    uint64_t end = w->now_ns + ns;
    uint64_t same = 0;
    while (w->now_ns < end && !w->fault[0]) {
        for (uint32_t i = 0; i < WORLD_TENANTS; i++)
            if (w->t[i].used)
                step_tenant(w, i);
        if (w->wake_ns <= w->now_ns)
            decide(w);
        if (++w->steps % 16 == 0)
            check_invariants(w);
        uint64_t sample_ns = w->start_ns + w->samples * WORLD_SAMPLE_NS;
        if (sample_ns <= w->now_ns) {
            take_sample(w);
            continue;
        }
        uint64_t next = min_u64(min_u64(next_event(w), end), sample_ns);
        same = next <= w->now_ns ? same + 1 : 0;
        if (same > 1000)
            FAULT(w, "time stands still at %llu", (unsigned long long)w->now_ns);
        if (next > w->now_ns)
            advance(w, next);
    }
    for (uint32_t i = 0; i < WORLD_TENANTS; i++)
        if (w->t[i].used)
            step_tenant(w, i);
    check_invariants(w);
}

uint32_t world_share(const struct world *w, uint32_t id, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t a = from_ns / WORLD_SAMPLE_NS, b = to_ns / WORLD_SAMPLE_NS;
    if (b >= w->samples)
        b = w->samples - 1;
    if (a >= b)
        return 0;
    uint64_t got = w->t[id].done_at[b] - w->t[id].done_at[a];
    return (uint32_t)((got * 1000 + (b - a) * WORLD_SAMPLE_NS / 2) / ((b - a) * WORLD_SAMPLE_NS));
}

uint32_t world_worst_second(const struct world *w, uint32_t id, uint32_t share_permille,
                            uint64_t from_ns, uint64_t to_ns)
{
    uint32_t worst = 0;
    for (uint64_t from = from_ns; from + S <= to_ns; from += WORLD_SAMPLE_NS) {
        uint32_t share = world_share(w, id, from, from + S);
        uint32_t miss = share > share_permille ? share - share_permille : share_permille - share;
        if (miss > worst)
            worst = miss;
    }
    return worst;
}

void world_expected(const struct world *w, uint32_t *ret_permille)
{
    bool full[WORLD_TENANTS] = {false};
    double left = 1000;
    for (bool again = true; again;) {
        again = false;
        double weights = 0;
        for (uint32_t i = 0; i < WORLD_TENANTS; i++) {
            const struct sl_steer_spec *spec = &w->t[i].spec;
            if (w->t[i].used && !full[i])
                weights += spec->request_permille ? spec->request_permille : 10;
        }
        for (uint32_t i = 0; i < WORLD_TENANTS; i++) {
            const struct sl_steer_spec *spec = &w->t[i].spec;
            if (!w->t[i].used || full[i])
                continue;
            double weight = spec->request_permille ? spec->request_permille : 10;
            double share = left * weight / weights;
            if (share > spec->limit_permille) {
                ret_permille[i] = spec->limit_permille;
                left -= spec->limit_permille;
                full[i] = again = true;
                break;
            }
            ret_permille[i] = (uint32_t)(share + 0.5);
        }
    }
}
