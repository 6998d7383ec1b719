/* SPDX-License-Identifier: Apache-2.0 */
/* Channel groups in the time engine, on virtual time: slices, switches, disabled channels, room. */
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

/* One card with the times of a real one: 2048 us, 160 us of which 90 are in the slice. */
static struct sl_sim_state *machine(void)
{
    struct sl_sim_state *st = mmap(NULL, sizeof(*st), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(st, MAP_FAILED);
    st->card_count = 1;
    sl_sim_lanes_init(&st->cards[0]);
    st->slice_ns = 2048 * US;
    st->switch_ns = 160 * US;
    st->switch_in_ns = 90 * US;
    st->now_ns = T0;
    for (uint32_t i = 0; i < 4; i++)
        st->procs[i].used = 1;
    st->proc_high = 4;
    return st;
}

static uint32_t queue(struct sl_sim_state *st, uint32_t proc)
{
    int q = sl_sim_queue_create(st, proc, 0);
    assert_true(q >= 0);
    st->queues[q].channels = 0xff;
    return (uint32_t)q;
}

static uint64_t kernel(struct sl_sim_state *st, uint32_t q, uint16_t stream, uint64_t ns,
                       uint32_t room)
{
    struct sl_sim_op o = {.kind = SL_SIM_OP_KERNEL, .stream = stream, .left_ns = ns, .room = room};
    return sl_sim_submit(st, q, &o);
}

static const struct sl_sim_op *at(struct sl_sim_state *st, uint32_t q, uint64_t seq)
{
    return sl_sim_op_at(st, q, seq);
}

static uint64_t ended(struct sl_sim_state *st, uint32_t q, uint64_t seq)
{
    assert_true(sl_sim_op_done(st, q, st->queues[q].generation, seq));
    return at(st, q, seq)->end_ns - T0;
}

static double share(struct sl_sim_state *st, uint32_t q, uint64_t ns)
{
    return (double)st->queues[q].running_ns * 100 / (double)ns;
}

/* Two endless kernels with slices of 3 and 7 ms: what the H200 gave, 28.8 + 68.0. */
static void slices_divide(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    sl_sim_queue_slice(st, a, 3 * MS);
    sl_sim_queue_slice(st, b, 7 * MS);
    (void)kernel(st, a, 1, 10000 * MS, 0);
    (void)kernel(st, b, 1, 10000 * MS, 0);
    sl_sim_advance(st, T0 + 1014 * MS); /* a hundred rounds of 3.07 and 7.07 ms */
    assert_in_range((uint64_t)(share(st, a, 1014 * MS) * 10), 285, 289);
    assert_in_range((uint64_t)(share(st, b, 1014 * MS) * 10), 679, 683);
}

/* A slice that is set while the group runs holds at once; nothing was said: the machine's own. */
static void a_new_slice_holds_at_once(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    (void)kernel(st, a, 1, 100 * MS, 0);
    uint64_t guest = kernel(st, b, 1, MS, 0);
    sl_sim_advance(st, T0 + 500 * US);
    sl_sim_queue_slice(st, a, MS);
    sl_sim_advance(st, T0 + 10 * MS);
    assert_int_equal(at(st, b, guest)->start_ns - T0, MS + 160 * US);
    assert_int_equal(ended(st, b, guest), 2160 * US);
    st = machine();
    a = queue(st, 0), b = queue(st, 1);
    (void)kernel(st, a, 1, 100 * MS, 0);
    guest = kernel(st, b, 1, MS, 0);
    sl_sim_advance(st, T0 + 10 * MS);
    assert_int_equal(at(st, b, guest)->start_ns - T0, 2208 * US);
}

/* Who has nothing to run is passed over, and leaves early; after it there is nothing to put away. */
static void idle_ones_are_passed_over(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), idle = queue(st, 1), b = queue(st, 2);
    (void)idle;
    uint64_t first = kernel(st, a, 1, 100 * US, 0);
    uint64_t second = kernel(st, b, 1, 100 * US, 0);
    sl_sim_advance(st, T0 + 10 * MS);
    assert_int_equal(ended(st, a, first), 100 * US);
    assert_int_equal(at(st, b, second)->start_ns - T0, 190 * US);
    assert_int_equal(st->queues[idle].running_ns, 0);
    /* Whoever is on the card goes on without a switch, however long it was idle. */
    uint64_t again = kernel(st, b, 1, 100 * US, 0);
    sl_sim_advance(st, T0 + 20 * MS);
    assert_int_equal(ended(st, b, again), 10 * MS + 100 * US);
}

/* In the middle of a kernel, and it goes on where it was. */
static void a_long_kernel_is_cut(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    uint64_t big = kernel(st, a, 1, 20 * MS, 0);
    sl_sim_advance(st, T0 + MS);
    uint64_t small = kernel(st, b, 1, MS, 0);
    sl_sim_advance(st, T0 + 100 * MS);
    assert_int_equal(ended(st, b, small), 3208 * US);
    assert_int_equal(ended(st, a, big), 20 * MS + 160 * US + MS + 90 * US);
}

/* Tiny slices are ruinous between busy groups, and cost nothing while nobody else has work. */
static void tiny_slices(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    sl_sim_queue_slice(st, a, 20 * US);
    sl_sim_queue_slice(st, b, 20 * US);
    uint64_t alone = kernel(st, a, 1, 10 * MS, 0);
    sl_sim_advance(st, T0 + 20 * MS);
    assert_int_equal(ended(st, a, alone), 10 * MS);
    uint64_t before = st->queues[a].running_ns;
    (void)kernel(st, a, 1, 1000 * MS, 0);
    (void)kernel(st, b, 1, 1000 * MS, 0);
    sl_sim_advance(st, T0 + 120 * MS);
    assert_true(st->queues[a].running_ns - before < 5 * MS && st->queues[a].running_ns > before);
    assert_true(st->queues[b].running_ns < 5 * MS && st->queues[b].running_ns > 0);
}

static void disabled_stops_in_the_middle(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    uint64_t big = kernel(st, a, 1, 20 * MS, 0);
    sl_sim_advance(st, T0 + 5 * MS);
    st->queues[a].channels_off = 0x7f;
    sl_sim_advance(st, T0 + 6 * MS); /* one is left: it runs */
    assert_int_equal(st->queues[a].running_ns, 6 * MS);
    st->queues[a].channels_off = 0xff;
    sl_sim_advance(st, T0 + 10 * MS);
    assert_int_equal(st->queues[a].running_ns, 6 * MS);
    assert_int_equal(st->cards[0].usage.busy_ns, 6 * MS);
    uint64_t guest = kernel(st, b, 1, 5 * MS, 0); /* the card is free, no slice to wait for */
    sl_sim_advance(st, T0 + 20 * MS);
    assert_int_equal(ended(st, b, guest), 15 * MS + 160 * US);
    st->queues[a].channels_off = 0;
    sl_sim_advance(st, T0 + 60 * MS);
    assert_int_equal(ended(st, a, big), 20 * MS + 90 * US + 14 * MS);
}

static void a_running_one_that_is_disabled_makes_way(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    sl_sim_queue_slice(st, a, 50 * MS);
    (void)kernel(st, a, 1, 100 * MS, 0);
    uint64_t guest = kernel(st, b, 1, MS, 0);
    sl_sim_advance(st, T0 + 3 * MS);
    st->queues[a].channels_off = 0xff;
    sl_sim_advance(st, T0 + 30 * MS);
    assert_int_equal(at(st, b, guest)->start_ns - T0, 3160 * US);
    /* Its owner dies: the channels go with it, and the next context starts clean. */
    sl_sim_queue_destroy(st, a);
    uint32_t c = queue(st, 2);
    assert_int_equal(c, a);
    assert_int_equal(st->queues[c].channels_off, 0);
    assert_int_equal(st->queues[c].slice_ns, 0);
}

static void preempted_by_word(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    sl_sim_queue_slice(st, a, 50 * MS);
    (void)kernel(st, a, 1, 100 * MS, 0);
    uint64_t guest = kernel(st, b, 1, MS, 0);
    sl_sim_advance(st, T0 + 3 * MS);
    sl_sim_queue_slice(st, b, 60 * MS);
    sl_sim_queue_preempt(st, b); /* it has not the card: nothing */
    sl_sim_advance(st, T0 + 4 * MS);
    sl_sim_queue_preempt(st, a);
    sl_sim_advance(st, T0 + 30 * MS);
    assert_int_equal(at(st, b, guest)->start_ns - T0, 4160 * US);
}

static void small_kernels_run_side_by_side(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t q = queue(st, 0);
    uint64_t a = kernel(st, q, 1, MS, 400), b = kernel(st, q, 2, 2 * MS, 400);
    uint64_t c = kernel(st, q, 3, MS, 400), d = kernel(st, q, 4, MS, 100);
    sl_sim_advance(st, T0 + 20 * MS);
    assert_int_equal(ended(st, q, a), MS);
    assert_int_equal(ended(st, q, b), 2 * MS);
    assert_int_equal(at(st, q, c)->start_ns - T0, MS);  /* no room before */
    assert_int_equal(at(st, q, d)->start_ns - T0, MS);  /* would have fitted, but is behind c */
    assert_int_equal(st->queues[q].running_ns, 2 * MS); /* of the card: once, however many run */
    assert_int_equal(st->queues[q].run_room, 0);
    /* Cut together, they go on together. */
    uint32_t other = queue(st, 1);
    a = kernel(st, q, 1, 3 * MS, 400);
    b = kernel(st, q, 2, 4 * MS, 400);
    uint64_t guest = kernel(st, other, 1, MS, 0);
    sl_sim_advance(st, T0 + 60 * MS);
    assert_int_equal(at(st, other, guest)->end_ns, at(st, other, guest)->start_ns + MS);
    assert_int_equal(ended(st, q, b) - ended(st, q, a), MS);
    assert_int_equal(at(st, q, a)->start_ns, at(st, q, b)->start_ns);
}

static void urgent_ones_first(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t q = queue(st, 0);
    uint64_t first = kernel(st, q, 1, MS, 0), later = kernel(st, q, 2, MS, 0);
    struct sl_sim_op o = {.kind = SL_SIM_OP_KERNEL, .stream = 3, .left_ns = MS, .priority = -5};
    sl_sim_advance(st, T0 + 500 * US);
    uint64_t urgent = sl_sim_submit(st, q, &o);
    sl_sim_advance(st, T0 + 20 * MS);
    assert_int_equal(ended(st, q, first), MS);
    assert_int_equal(ended(st, q, urgent), 2 * MS);
    assert_int_equal(ended(st, q, later), 3 * MS);
}

/* A copy of the host's has its own engine: disabled compute channels do not stop it, nor a busy card. */
static void host_copies_are_apart(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    (void)kernel(st, a, 1, 100 * MS, 0);
    struct sl_sim_op in = {.kind = SL_SIM_OP_COPY, .stream = 1, .left_ns = MS};
    st->queues[b].channels_off = 0xff;
    uint64_t copy = sl_sim_submit(st, b, &in);
    sl_sim_advance(st, T0 + 10 * MS);
    assert_int_equal(ended(st, b, copy), MS);
    assert_int_equal(st->queues[a].running_ns, 10 * MS);
}

static uint64_t mark(struct sl_sim_state *st, uint32_t q, uint16_t stream)
{
    struct sl_sim_op o = {.kind = SL_SIM_OP_MARK, .stream = stream, .flags = SL_SIM_OPF_LANE};
    return sl_sim_submit(st, q, &o);
}

/* Measured on an H200: an event that is recorded beside a busy neighbour is done when the slice of that is
 * over (1.34 ms in the middle), and costs it a change there and back. */
static void a_mark_needs_its_group(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    uint64_t big = kernel(st, a, 1, 20 * MS, 0);
    sl_sim_advance(st, T0 + MS);
    uint64_t event = mark(st, b, 1);
    sl_sim_advance(st, T0 + 2 * MS);
    assert_false(sl_sim_op_done(st, b, st->queues[b].generation, event));
    sl_sim_advance(st, T0 + 100 * MS);
    assert_int_equal(ended(st, b, event), 2208 * US);
    assert_int_equal(ended(st, a, big), 20 * MS + 160 * US + 90 * US);
    assert_int_equal(st->queues[b].running_ns, 0);
    /* Its context is on the card, and nothing runs there: at once. */
    event = mark(st, a, 1);
    sl_sim_advance(st, T0 + 101 * MS);
    assert_int_equal(ended(st, a, event), 100 * MS);
}

/* A kernel between two events, all of it in the queue before any of it may run: the events tell the time of
 * the kernel and nothing else. On the H200 102 to 103 us for a kernel of 100, beside a busy neighbour. */
static void two_marks_tell_what_is_between(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    (void)kernel(st, a, 1, 1000 * MS, 0);
    sl_sim_advance(st, T0 + 300 * US);
    struct sl_sim_op o = {.kind = SL_SIM_OP_POLL, .stream = 1};
    uint64_t hold = sl_sim_submit(st, b, &o);
    uint64_t begin = mark(st, b, 1), work = kernel(st, b, 1, 100 * US, 0), end = mark(st, b, 1);
    sl_sim_advance(st, T0 + 350 * US);
    sl_sim_op_finish(st, b, hold);
    sl_sim_advance(st, T0 + 100 * MS);
    assert_int_equal(ended(st, b, begin), 2208 * US);
    assert_int_equal(ended(st, b, work), 2308 * US);
    assert_int_equal(ended(st, b, end), 2308 * US);
}

static void a_mark_waits_for_its_channels(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0);
    st->queues[a].channels_off = 0xff;
    uint64_t event = mark(st, a, 1), after = mark(st, a, 1);
    sl_sim_advance(st, T0 + 50 * MS);
    assert_false(sl_sim_op_done(st, a, st->queues[a].generation, event));
    st->queues[a].channels_off = 0;
    sl_sim_advance(st, T0 + 60 * MS);
    assert_int_equal(ended(st, a, event), 50 * MS);
    assert_int_equal(ended(st, a, after), 50 * MS);
}

/* Behind a copy between host and card a mark is the copy engine's: 21 us on the H200, and the neighbour
 * loses nothing. */
static void a_mark_of_the_copy_engine_is_apart(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    uint64_t big = kernel(st, a, 1, 20 * MS, 0);
    struct sl_sim_op in = {.kind = SL_SIM_OP_COPY, .stream = 1, .left_ns = 20 * US};
    struct sl_sim_op o = {.kind = SL_SIM_OP_MARK, .stream = 1};
    (void)sl_sim_submit(st, b, &in);
    uint64_t event = sl_sim_submit(st, b, &o);
    sl_sim_advance(st, T0 + 50 * MS);
    assert_int_equal(ended(st, b, event), 20 * US);
    assert_int_equal(ended(st, a, big), 20 * MS);
}

/* An event that tells time, recorded of a whole context that has nothing to do: measured on an H200, done in
 * 15 us, and whoever has the card loses 160 us. Of one that is busy it costs nobody anything. */
static void an_idle_context_that_is_marked_disturbs(void **unused)
{
    (void)unused;
    struct sl_sim_state *st = machine();
    uint32_t a = queue(st, 0), b = queue(st, 1);
    uint64_t big = kernel(st, a, 1, MS, 0);
    sl_sim_queue_marked(st, a);
    sl_sim_advance(st, T0 + 100 * US);
    sl_sim_queue_marked(st, b);
    sl_sim_advance(st, T0 + 50 * MS);
    assert_int_equal(ended(st, a, big), MS + 160 * US);
    sl_sim_queue_marked(st, b); /* nobody is there to lose anything */
    uint64_t small = kernel(st, a, 1, MS, 0);
    sl_sim_advance(st, T0 + 60 * MS);
    assert_int_equal(ended(st, a, small), 51 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_divide),
        cmocka_unit_test(a_new_slice_holds_at_once),
        cmocka_unit_test(idle_ones_are_passed_over),
        cmocka_unit_test(a_long_kernel_is_cut),
        cmocka_unit_test(tiny_slices),
        cmocka_unit_test(disabled_stops_in_the_middle),
        cmocka_unit_test(a_running_one_that_is_disabled_makes_way),
        cmocka_unit_test(preempted_by_word),
        cmocka_unit_test(small_kernels_run_side_by_side),
        cmocka_unit_test(urgent_ones_first),
        cmocka_unit_test(host_copies_are_apart),
        cmocka_unit_test(a_mark_needs_its_group),
        cmocka_unit_test(two_marks_tell_what_is_between),
        cmocka_unit_test(a_mark_waits_for_its_channels),
        cmocka_unit_test(a_mark_of_the_copy_engine_is_apart),
        cmocka_unit_test(an_idle_context_that_is_marked_disturbs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
