/* SPDX-License-Identifier: Apache-2.0 */
/* The line of waiting commands: who is called, who waits for whom, and whose place outlives a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../support/rng.h"
#include "base/container.h"
#include "policy/line.h"

enum { LOW, NORMAL, HIGH };

#define GPUS   4
#define PEOPLE 8

/* A GPU has room for so many units; a place asks for some of them. */
struct job {
    struct sl_line_place place;
    uint32_t units;
};

static struct {
    struct sl_line line;
    uint32_t room[GPUS];
    struct job job[PEOPLE];
} w;

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof(w));
    return 0;
}

#define ALL 0

/* gpus: a bit for each. need: so many of them, or ALL. */
static struct job *wanting(int i, uint32_t priority, uint32_t gpus, uint32_t need, uint32_t units)
{
    struct job *j = &w.job[i];
    uint32_t count = (uint32_t)__builtin_popcount(gpus);
    *j = (struct job){.units = units,
                      .place = {.priority = priority, .need = need != ALL ? need : count}};
    for (uint32_t g = 0; g < GPUS; g++)
        if (gpus >> g & 1)
            sl_line_gpus_add(&j->place.wants, g);
    return j;
}

static struct job *join(int i, uint32_t priority, uint32_t gpus, uint32_t need, uint32_t units)
{
    struct job *j = wanting(i, priority, gpus, need, units);
    assert_true(sl_line_join(&w.line, &j->place));
    return j;
}

static bool fits(void *arg, struct sl_line_place *place, const struct sl_line_gpus *barred)
{
    const struct job *j = sl_container_of(place, struct job, place);
    uint32_t good = 0;
    (void)arg;
    for (uint32_t g = 0; g < GPUS; g++)
        good += sl_line_gpus_has(&place->wants, g) && !sl_line_gpus_has(barred, g) &&
                j->units <= w.room[g];
    return good >= place->need;
}

static struct sl_line_place *call(uint64_t now_ns)
{
    return sl_line_call(&w.line, now_ns, fits, NULL);
}

static void expect_position(const struct job *j, uint32_t position, uint32_t count)
{
    uint32_t got;
    assert_int_equal(sl_line_position(&w.line, &j->place, &got), position);
    assert_int_equal(got, count);
}

static void first_come_first_served(void **state)
{
    (void)state;
    struct job *large = join(0, NORMAL, 1, ALL, 10), *small = join(1, NORMAL, 1, ALL, 1);
    w.room[0] = 5;
    assert_null(call(0)); /* the small one would fit, and does not overtake */
    expect_position(large, 1, 2);
    expect_position(small, 2, 2);
    w.room[0] = 11;
    assert_ptr_equal(call(0), &large->place);
    assert_null(call(0)); /* nobody is called until it has taken its room */
    w.room[0] -= large->units;
    sl_line_leave(&w.line, &large->place);
    assert_ptr_equal(call(0), &small->place);
    expect_position(small, 1, 1);
}

static void a_higher_priority_goes_first(void **state)
{
    (void)state;
    struct job *low = join(0, LOW, 1, ALL, 1), *normal = join(1, NORMAL, 1, ALL, 1);
    struct job *high = join(2, HIGH, 1, ALL, 1), *later = join(3, HIGH, 1, ALL, 1);
    struct job *order[] = {high, later, normal, low};
    w.room[0] = 1;
    for (uint32_t i = 0; i < 4; i++) {
        expect_position(order[i], 1, 4 - i);
        assert_ptr_equal(call(0), &order[i]->place);
        sl_line_leave(&w.line, &order[i]->place);
    }
    assert_null(w.line.first);
}

/* Called, it answers too late: one of a higher priority has come. */
static void who_is_called_may_have_to_wait_again(void **state)
{
    (void)state;
    struct job *normal = join(0, NORMAL, 1, ALL, 1);
    w.room[0] = 1;
    assert_ptr_equal(call(0), &normal->place);
    struct job *high = join(1, HIGH, 1, ALL, 1);
    struct sl_line_gpus before = sl_line_before(&w.line, &normal->place, NORMAL);
    assert_true(sl_line_gpus_has(&before, 0));
    assert_ptr_equal(call(0), &high->place);
}

static void other_gpus_are_not_held_up(void **state)
{
    (void)state;
    struct job *zero = join(0, NORMAL, 1, ALL, 9), *any = join(1, NORMAL, 3, 1, 2);
    struct job *both = join(2, NORMAL, 6, ALL, 1);
    w.room[0] = 5;
    w.room[1] = 2;
    w.room[2] = 2;
    assert_ptr_equal(call(0), &any->place); /* GPU 1; GPU 0 has room too, but not for it */
    assert_null(call(0));                   /* GPUs 1 and 2: the one before may take 1 */
    sl_line_leave(&w.line, &any->place);
    assert_ptr_equal(call(0), &both->place);
    expect_position(zero, 1, 2);
}

/* Two of four GPUs, at once: it holds none while it waits, and small commands behind it do not take them. */
static void several_at_once(void **state)
{
    (void)state;
    struct job *pair = join(0, NORMAL, 15, 2, 5), *small = join(1, NORMAL, 15, 1, 1);
    struct job *other = join(2, NORMAL, 15, 2, 5);
    w.room[3] = 5;
    assert_null(call(0)); /* one card has room: not for the pair, and not for those behind it */
    w.room[1] = 5;
    assert_ptr_equal(call(0), &pair->place);
    assert_null(call(0));
    sl_line_leave(&w.line, &pair->place);
    w.room[1] = w.room[3] = 0;
    assert_null(call(0));
    w.room[0] = 6;
    w.room[2] = 5;
    assert_ptr_equal(call(0), &small->place);
    sl_line_leave(&w.line, &small->place);
    w.room[0] -= small->units;
    assert_ptr_equal(call(0), &other->place); /* two pairs never wait for each other */
}

/* Those before it leave too few GPUs, though more than one. */
static void several_of_what_is_left(void **state)
{
    (void)state;
    struct job *zero = join(0, NORMAL, 1, ALL, 9), *three = join(1, NORMAL, 7, 3, 1);
    struct job *two = join(2, HIGH, 7, 2, 1);
    for (uint32_t g = 0; g < GPUS; g++)
        w.room[g] = 2;
    assert_ptr_equal(call(0), &two->place);
    sl_line_leave(&w.line, &two->place);
    assert_null(call(0)); /* GPU 0 is claimed: two are left, three are needed */
    sl_line_leave(&w.line, &zero->place);
    assert_ptr_equal(call(0), &three->place);
}

/* One for which there is never room is refused by the caller: here it would stay, and let nobody pass. */
static void who_never_fits_holds_up_its_own_gpus_only(void **state)
{
    (void)state;
    struct job *never = join(0, NORMAL, 1, ALL, 1000), *other = join(1, NORMAL, 2, ALL, 1);
    struct job *behind = join(2, NORMAL, 1, ALL, 1);
    w.room[0] = w.room[1] = 100;
    assert_ptr_equal(call(0), &other->place);
    assert_null(call(0));
    sl_line_leave(&w.line, &never->place); /* Ctrl-C */
    assert_ptr_equal(call(0), &behind->place);
}

/* Its own user has too much: nobody else waits for that, and it is not called before that has changed. */
static void a_limit_of_its_own_holds_up_nobody(void **state)
{
    (void)state;
    struct job *held = join(0, HIGH, 1, false, 1), *behind = join(1, NORMAL, 1, false, 1);
    w.room[0] = 2;
    held->place.held = true;
    struct sl_line_gpus before = sl_line_before(&w.line, NULL, LOW);
    assert_true(sl_line_gpus_has(&before, 0)); /* for the one behind it */
    assert_ptr_equal(call(0), &behind->place);
    sl_line_leave(&w.line, &behind->place);
    before = sl_line_before(&w.line, NULL, LOW);
    assert_false(sl_line_gpus_has(&before, 0));
    assert_null(call(0));
    expect_position(held, 1, 1);
    held->place.held = false;
    assert_ptr_equal(call(0), &held->place);
}

static void who_does_not_answer_is_passed_over(void **state)
{
    (void)state;
    struct job *stopped = join(0, NORMAL, 1, ALL, 1), *next = join(1, NORMAL, 1, ALL, 1);
    w.room[0] = 1;
    assert_ptr_equal(call(7), &stopped->place);
    assert_int_equal(sl_line_due(&w.line), 7 + SL_LINE_ANSWER_NS);
    assert_null(sl_line_expire(&w.line, 6 + SL_LINE_ANSWER_NS));
    assert_null(call(6 + SL_LINE_ANSWER_NS));
    assert_null(sl_line_expire(&w.line, 7 + SL_LINE_ANSWER_NS));
    assert_int_equal(stopped->place.state, SL_LINE_ASLEEP);
    assert_ptr_equal(call(7 + SL_LINE_ANSWER_NS), &next->place);
    expect_position(next, 1, 1);
    struct sl_line_gpus before = sl_line_before(&w.line, NULL, NORMAL);
    assert_true(sl_line_gpus_has(&before, 0)); /* by the next one */
    /* It speaks again: its place is where it was. */
    stopped->place.state = next->place.state = SL_LINE_WAITING;
    expect_position(stopped, 1, 2);
    assert_ptr_equal(call(0), &stopped->place);
}

static void a_restart_keeps_places(void **state)
{
    (void)state;
    struct job *first = wanting(0, NORMAL, 1, ALL, 1), *second = wanting(1, NORMAL, 1, ALL, 1);
    first->place.number = 7;
    second->place.number = 9;
    assert_true(sl_line_keep(&w.line, &second->place, 100));
    assert_true(sl_line_keep(&w.line, &first->place, 100));
    struct job *late = join(2, NORMAL, 2, ALL, 1), *high = join(3, HIGH, 2, ALL, 1);
    assert_int_equal(late->place.number, 10);
    w.room[0] = w.room[1] = 10;
    assert_ptr_equal(call(100), &high->place);
    sl_line_leave(&w.line, &high->place);
    assert_null(call(100));
    second->place.state = SL_LINE_WAITING; /* back, and waits for the first */
    assert_null(call(100));
    assert_ptr_equal(sl_line_expire(&w.line, 100 + SL_LINE_RETURN_NS), &first->place);
    sl_line_leave(&w.line, &first->place);
    assert_null(sl_line_expire(&w.line, 100 + SL_LINE_RETURN_NS));
    assert_ptr_equal(call(100), &second->place);
    assert_ptr_equal(call(100), &late->place);
}

/* Who does not wait: behind all of its own priority and above. */
static void who_does_not_wait_overtakes_nobody(void **state)
{
    (void)state;
    join(0, NORMAL, 1, ALL, 9);
    for (uint32_t priority = LOW; priority <= HIGH; priority++) {
        struct sl_line_gpus before = sl_line_before(&w.line, NULL, priority);
        assert_int_equal(sl_line_gpus_has(&before, 0), priority <= NORMAL);
        assert_false(sl_line_gpus_has(&before, 1));
    }
}

static void the_line_is_bounded(void **state)
{
    static struct sl_line_place many[SL_LINE_MAX + 1];
    (void)state;
    for (int i = 0; i < SL_LINE_MAX; i++)
        assert_true(sl_line_join(&w.line, &many[i]));
    assert_false(sl_line_join(&w.line, &many[SL_LINE_MAX]));
    sl_line_leave(&w.line, &many[500]);
    assert_true(sl_line_join(&w.line, &many[SL_LINE_MAX]));
    assert_int_equal(w.line.count, SL_LINE_MAX);
}

/* Whatever comes, leaves and sleeps: no place is called while one before it waits for the same GPU. */
static void at_random_nobody_overtakes(void **state)
{
    (void)state;
    struct rng rng = {42};
    bool stands[PEOPLE] = {false};
    for (uint64_t step = 1; step < 200000; step++) {
        int i = (int)(rng_below(&rng, PEOPLE));
        for (uint32_t g = 0; g < GPUS; g++)
            w.room[g] = (uint32_t)(rng_below(&rng, 8));
        if (stands[i])
            sl_line_leave(&w.line, &w.job[i].place);
        else
            join(i, (uint32_t)(rng_below(&rng, 3)), 1 + (uint32_t)(rng_below(&rng, 15)),
                 (uint32_t)(rng_below(&rng, 4)), (uint32_t)(rng_below(&rng, 8)));
        stands[i] = !stands[i];
        assert_null(sl_line_expire(&w.line, step * SL_LINE_ANSWER_NS / 3));
        const struct sl_line_place *called = call(step * SL_LINE_ANSWER_NS / 3);
        struct sl_line_gpus before = {{0}};
        uint32_t left = 0;
        for (const struct sl_line_place *p = w.line.first; called && p != called; p = p->next)
            for (uint32_t g = 0; g < GPUS && p->state != SL_LINE_ASLEEP; g++)
                if (sl_line_gpus_has(&p->wants, g))
                    sl_line_gpus_add(&before, g);
        for (uint32_t g = 0; called && g < GPUS; g++)
            left += sl_line_gpus_has(&called->wants, g) && !sl_line_gpus_has(&before, g);
        assert_true(!called || left >= called->need);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(first_come_first_served, setup),
        cmocka_unit_test_setup(a_higher_priority_goes_first, setup),
        cmocka_unit_test_setup(who_is_called_may_have_to_wait_again, setup),
        cmocka_unit_test_setup(other_gpus_are_not_held_up, setup),
        cmocka_unit_test_setup(several_at_once, setup),
        cmocka_unit_test_setup(several_of_what_is_left, setup),
        cmocka_unit_test_setup(who_never_fits_holds_up_its_own_gpus_only, setup),
        cmocka_unit_test_setup(a_limit_of_its_own_holds_up_nobody, setup),
        cmocka_unit_test_setup(who_does_not_answer_is_passed_over, setup),
        cmocka_unit_test_setup(a_restart_keeps_places, setup),
        cmocka_unit_test_setup(who_does_not_wait_overtakes_nobody, setup),
        cmocka_unit_test_setup(the_line_is_bounded, setup),
        cmocka_unit_test_setup(at_random_nobody_overtakes, setup),
    };
    return cmocka_run_group_tests_name("line", tests, NULL, NULL);
}
