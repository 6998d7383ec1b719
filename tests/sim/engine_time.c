/* SPDX-License-Identifier: Apache-2.0 */
/* The time engine on virtual time: no clock, no sleeping, exact numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "sim/engine.h"

#define US 1000ULL
#define MS 1000000ULL
#define T0 (1000 * MS)

/* A machine of two cards, made by hand: turns of 2.2 ms, 0.15 ms to change. */
static struct sl_sim_state *machine(void)
{
    struct sl_sim_state *st = mmap(NULL, sizeof(*st), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(st, MAP_FAILED);
    st->card_count = 2;
    sl_sim_lanes_init(&st->cards[0]);
    sl_sim_lanes_init(&st->cards[1]);
    st->slice_ns = 2200 * US;
    st->switch_ns = 150 * US;
    st->now_ns = T0;
    for (uint32_t i = 0; i < 4; i++)
        st->procs[i].used = 1;
    st->proc_high = 4;
    return st;
}

static uint32_t queue(struct sl_sim_state *st, uint32_t proc, uint32_t card)
{
    int q = sl_sim_queue_create(st, proc, card);
    assert_true(q >= 0);
    return (uint32_t)q;
}

static uint64_t op(struct sl_sim_state *st, uint32_t q, uint8_t kind, uint16_t stream, uint64_t ns,
                   uint8_t flags)
{
    struct sl_sim_op o = {.kind = kind, .stream = stream, .left_ns = ns, .flags = flags};
    return sl_sim_submit(st, q, &o);
}

static uint64_t ended(struct sl_sim_state *st, uint32_t q, uint64_t seq)
{
    assert_true(sl_sim_op_done(st, q, st->queues[q].generation, seq));
    return sl_sim_op_at(st, q, seq)->end_ns - T0;
}

static void one_stream_is_exact(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t q = queue(st, 0, 0);
    uint64_t a = op(st, q, SL_SIM_OP_KERNEL, 1, 100 * US, 0);
    uint64_t m = op(st, q, SL_SIM_OP_MARK, 1, 0, 0);
    uint64_t b = op(st, q, SL_SIM_OP_KERNEL, 1, 5 * MS, 0); /* longer than a turn: nobody else */
    assert_int_equal(sl_sim_op_eta_ns(st, q, b), 5100 * US);
    sl_sim_advance(st, T0 + 20 * MS); /* looked at late: the times are the same */
    assert_int_equal(ended(st, q, a), 100 * US);
    assert_int_equal(ended(st, q, m), 100 * US);
    assert_int_equal(ended(st, q, b), 5100 * US);
    assert_int_equal(st->cards[0].usage.busy_ns, 5100 * US);
    assert_int_equal(st->procs[0].card[0].usage.busy_ns, 5100 * US);
    assert_int_equal(sl_sim_usage_between(&st->cards[0].usage, T0, T0 + 100 * MS), 5100 * US);
}

static void two_take_turns(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0, 0), b = queue(st, 1, 0);
    for (int i = 0; i < 1000; i++) {
        (void)op(st, a, SL_SIM_OP_KERNEL, 1, 170 * US, 0);
        (void)op(st, b, SL_SIM_OP_KERNEL, 1, 170 * US, 0);
    }
    sl_sim_advance(st, T0 + 235 * MS); /* fifty rounds of two turns */
    double share_a = (double)st->queues[a].running_ns / (235.0 * (double)MS);
    double share_b = (double)st->queues[b].running_ns / (235.0 * (double)MS);
    assert_true(share_a > 0.463 && share_a < 0.473);
    assert_true(share_b > 0.463 && share_b < 0.473);
}

static void a_guest_waits_for_the_turn(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0, 0), b = queue(st, 1, 0);
    for (int i = 0; i < 100; i++)
        (void)op(st, a, SL_SIM_OP_KERNEL, 1, 170 * US, 0);
    sl_sim_advance(st, T0 + 3 * MS); /* 0.8 ms into the second turn */
    uint64_t seq = op(st, b, SL_SIM_OP_KERNEL, 1, 2 * MS, 0);
    sl_sim_advance(st, T0 + 10 * MS);
    assert_int_equal(sl_sim_op_at(st, b, seq)->start_ns - T0, 4400 * US + 150 * US);
    assert_int_equal(ended(st, b, seq), 6550 * US);
}

static void streams_and_the_legacy_one(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t q = queue(st, 0, 0);
    uint64_t spin = op(st, q, SL_SIM_OP_SPIN, 1, 0, SL_SIM_OPF_BLOCKING);
    uint64_t behind = op(st, q, SL_SIM_OP_KERNEL, 1, US, SL_SIM_OPF_BLOCKING);
    uint64_t beside = op(st, q, SL_SIM_OP_KERNEL, 2, US, SL_SIM_OPF_BLOCKING);
    uint64_t legacy = op(st, q, SL_SIM_OP_KERNEL, 0, US, SL_SIM_OPF_LEGACY);
    uint64_t after = op(st, q, SL_SIM_OP_KERNEL, 2, US, SL_SIM_OPF_BLOCKING);
    uint64_t apart = op(st, q, SL_SIM_OP_KERNEL, 3, US, 0);
    sl_sim_advance(st, T0 + MS);
    assert_int_equal(sl_sim_op_at(st, q, spin)->state, SL_SIM_OP_RUNNING);
    assert_true(sl_sim_op_done(st, q, st->queues[q].generation, beside));
    assert_true(sl_sim_op_done(st, q, st->queues[q].generation, apart));
    assert_false(sl_sim_op_done(st, q, st->queues[q].generation, behind));
    assert_false(sl_sim_op_done(st, q, st->queues[q].generation, legacy));
    assert_false(sl_sim_op_done(st, q, st->queues[q].generation, after));
    sl_sim_op_finish(st, q, spin);
    sl_sim_advance(st, T0 + 2 * MS);
    assert_int_equal(ended(st, q, behind), MS + US);
    assert_int_equal(ended(st, q, legacy), MS + 2 * US);
    assert_int_equal(ended(st, q, after), MS + 3 * US);
    assert_int_equal(st->queues[q].active_slots, 0);
    assert_int_equal(st->queues[q].first, st->queues[q].tail);
}

static void waits_cross_cards(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0, 0), b = queue(st, 1, 1);
    uint64_t cause = op(st, a, SL_SIM_OP_KERNEL, 1, 700 * US, 0);
    struct sl_sim_op wait = {.kind = SL_SIM_OP_WAIT,
                             .stream = 1,
                             .dep_queue = a,
                             .dep_generation = st->queues[a].generation,
                             .dep_seq = cause};
    (void)sl_sim_submit(st, b, &wait);
    uint64_t effect = op(st, b, SL_SIM_OP_KERNEL, 1, 10 * US, 0);
    sl_sim_advance(st, T0 + 5 * MS);
    assert_int_equal(ended(st, b, effect), 710 * US);
    /* Whoever waits for the dead waits for nothing. */
    (void)op(st, a, SL_SIM_OP_SPIN, 1, 0, 0);
    wait.dep_seq = st->queues[a].tail;
    uint64_t released = sl_sim_submit(st, b, &wait);
    sl_sim_advance(st, T0 + 6 * MS);
    assert_false(sl_sim_op_done(st, b, st->queues[b].generation, released));
    sl_sim_queue_destroy(st, a);
    sl_sim_advance(st, T0 + 7 * MS);
    assert_true(sl_sim_op_done(st, b, st->queues[b].generation, released));
}

static void endless_kernels_share(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0, 0), b = queue(st, 1, 0);
    (void)op(st, a, SL_SIM_OP_SPIN, 1, 0, 0);
    uint64_t work = op(st, b, SL_SIM_OP_KERNEL, 1, 20 * MS, 0);
    sl_sim_advance(st, T0 + 100 * MS);
    assert_true(sl_sim_op_done(st, b, st->queues[b].generation, work));
    uint64_t end = ended(st, b, work); /* ten turns of its own, and as many of the other's */
    assert_true(end > 40 * MS && end < 50 * MS);
}

static void copies_have_their_engines(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t q = queue(st, 0, 0);
    struct sl_sim_op in = {.kind = SL_SIM_OP_COPY, .stream = 1, .left_ns = MS, .engine = 0};
    struct sl_sim_op in2 = {.kind = SL_SIM_OP_COPY, .stream = 2, .left_ns = MS, .engine = 0};
    struct sl_sim_op out = {.kind = SL_SIM_OP_COPY, .stream = 3, .left_ns = MS, .engine = 1};
    uint64_t a = sl_sim_submit(st, q, &in), b = sl_sim_submit(st, q, &in2);
    uint64_t c = sl_sim_submit(st, q, &out);
    uint64_t k = op(st, q, SL_SIM_OP_KERNEL, 4, MS, 0);
    sl_sim_advance(st, T0 + 10 * MS);
    assert_int_equal(ended(st, q, a), MS);
    assert_int_equal(ended(st, q, b), 2 * MS); /* one engine each way */
    assert_int_equal(ended(st, q, c), MS);
    assert_int_equal(ended(st, q, k), MS);
}

/* Random work in random steps: every queue drains, in-stream order holds, no time is lost or made. */
static void random_work(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t q[3] = {queue(st, 0, 0), queue(st, 1, 0), queue(st, 2, 1)};
    uint64_t seed = 12345, total = 0, now = T0;
    for (int i = 0; i < 900; i++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        uint64_t ns = (seed >> 40) % (400 * US) + 1;
        uint32_t which = q[(seed >> 20) % 3];
        uint8_t flags = (seed >> 13) % 5 == 0 ? SL_SIM_OPF_LEGACY : SL_SIM_OPF_BLOCKING;
        (void)op(st, which, SL_SIM_OP_KERNEL,
                 flags == SL_SIM_OPF_LEGACY ? 0 : (uint16_t)(1 + (seed >> 50) % 4), ns, flags);
        total += ns;
        if (i % 7 == 0) {
            now += (seed >> 33) % (3 * MS);
            sl_sim_advance(st, now);
        }
    }
    sl_sim_advance(st, now + 10000 * MS);
    uint64_t ran = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(st->queues[q[i]].first, st->queues[q[i]].tail);
        assert_int_equal(st->queues[q[i]].ahead, 0);
        assert_int_equal(st->queues[q[i]].active_slots, 0);
        ran += st->queues[q[i]].running_ns;
        uint64_t last[8] = {0};
        for (uint64_t s = 1; s <= st->queues[q[i]].tail; s++) {
            const struct sl_sim_op *o = sl_sim_op_at(st, q[i], s);
            assert_true(o->start_ns >= last[o->stream] && o->end_ns > o->start_ns);
            last[o->stream] = o->end_ns;
        }
    }
    assert_int_equal(ran, total);
    assert_int_equal(st->cards[0].usage.busy_ns + st->cards[1].usage.busy_ns, total);
}

static uint32_t part(struct sl_sim_state *st, uint32_t proc, uint32_t kind, uint32_t id,
                     uint32_t share_permille)
{
    int q = sl_sim_queue_create_in(
        st, proc, 0,
        &(struct sl_sim_lane){.kind = kind, .gi = id, .share_permille = share_permille});
    assert_true(q >= 0);
    return (uint32_t)q;
}

/* Instances run side by side, each as fast as its SMs; contexts of one instance take turns. */
static void instances_side_by_side(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = part(st, 0, SL_SIM_LANE_MIG, 1, 500), b = part(st, 1, SL_SIM_LANE_MIG, 2, 125);
    uint64_t ka = op(st, a, SL_SIM_OP_KERNEL, 0, 10 * MS, 0);
    uint64_t kb = op(st, b, SL_SIM_OP_KERNEL, 0, 10 * MS, 0);
    sl_sim_advance(st, T0 + 200 * MS);
    assert_int_equal(ended(st, a, ka), 20 * MS);
    assert_int_equal(ended(st, b, kb), 80 * MS);
    /* 20 ms at a half and 80 ms at an eighth: twenty of a whole card. */
    assert_in_range(st->cards[0].usage.busy_ns, 20 * MS - 4, 20 * MS);
    assert_in_range(st->procs[0].card[0].usage.busy_ns, 10 * MS - 2, 10 * MS);
    uint32_t c = part(st, 2, SL_SIM_LANE_MIG, 1, 500);
    assert_int_equal(st->queues[c].lane, st->queues[a].lane);
    ka = op(st, a, SL_SIM_OP_KERNEL, 0, 10 * MS, 0);
    (void)op(st, c, SL_SIM_OP_KERNEL, 0, 10 * MS, 0);
    sl_sim_advance(st, T0 + 400 * MS);
    assert_true(ended(st, a, ka) > 230 * MS); /* twice the time, and the switches */
    sl_sim_queue_destroy(st, a);
    sl_sim_queue_destroy(st, b);
    assert_true(st->cards[0].lanes_used != 1);
    sl_sim_queue_destroy(st, c);
    assert_int_equal(st->cards[0].lanes_used, 1);
}

/* Clients of an MPS server share what there is in proportion, and none gets more than its share. */
static void clients_share(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = part(st, 0, SL_SIM_LANE_MPS, 0, 1000), b = part(st, 1, SL_SIM_LANE_MPS, 1, 1000);
    uint64_t ka = op(st, a, SL_SIM_OP_KERNEL, 0, 10 * MS, 0);
    uint64_t kb = op(st, b, SL_SIM_OP_KERNEL, 0, 20 * MS, 0);
    sl_sim_advance(st, T0 + 100 * MS);
    assert_int_equal(ended(st, a, ka), 20 * MS); /* half the card each … */
    assert_int_equal(ended(st, b, kb), 30 * MS); /* … then all of it */
    sl_sim_queue_destroy(st, b);
    b = part(st, 1, SL_SIM_LANE_MPS, 1, 250);
    kb = op(st, b, SL_SIM_OP_KERNEL, 0, 10 * MS, 0);
    sl_sim_advance(st, T0 + 200 * MS);
    assert_int_equal(ended(st, b, kb), 140 * MS); /* alone, and still a quarter */
    /* Somebody who is no client takes turns with them: half of the time. */
    uint32_t w = queue(st, 2, 0);
    uint64_t kw = op(st, w, SL_SIM_OP_KERNEL, 0, 10 * MS, 0);
    kb = op(st, b, SL_SIM_OP_KERNEL, 0, 10 * MS, 0);
    sl_sim_advance(st, T0 + 400 * MS);
    assert_int_equal(ended(st, w, kw), 220 * MS);
    assert_int_equal(ended(st, b, kb), 250 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instances_side_by_side),     cmocka_unit_test(clients_share),
        cmocka_unit_test(one_stream_is_exact),        cmocka_unit_test(two_take_turns),
        cmocka_unit_test(a_guest_waits_for_the_turn), cmocka_unit_test(streams_and_the_legacy_one),
        cmocka_unit_test(waits_cross_cards),          cmocka_unit_test(endless_kernels_share),
        cmocka_unit_test(copies_have_their_engines),  cmocka_unit_test(random_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
