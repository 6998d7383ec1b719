/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account against a plain model, one operation after another; what threads and kills do to it is
 * in tests/fault. The source is included, so that the helping step can be met in states that need a
 * process to sleep at a particular instruction.
 */
#include "shm/account.c" /* NOLINT(bugprone-suspicious-include) */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../support/rng.h"

static struct sl_ledger_page *page;

static int setup(void **state)
{
    (void)state;
    page = aligned_alloc(64, sizeof(*page));
    if (!page)
        return -1;
    memset(page, 0, sizeof(*page));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(page);
    return 0;
}

static void units_round_up(void **state)
{
    (void)state;
    assert_int_equal(sl_units_of_bytes(0), 0);
    assert_int_equal(sl_units_of_bytes(1), 1);
    assert_int_equal(sl_units_of_bytes(512), 1);
    assert_int_equal(sl_units_of_bytes(513), 2);
    assert_int_equal(sl_units_of_bytes(10ULL << 30), 10ULL << 21);
    /* No overflow at the top. */
    assert_true(sl_units_of_bytes(UINT64_MAX) == (1ULL << 55));
}

static void limit_is_exact(void **state)
{
    (void)state;
    assert_int_equal(sl_account_reserve(page, 3, 0, 60, 100), 0);
    assert_int_equal(sl_account_reserve(page, 4, 0, 41, 100), -ENOMEM);
    assert_int_equal(sl_account_total(page, 0), 60);
    assert_int_equal(sl_account_slot(page, 4, 0), 0);
    assert_int_equal(sl_account_reserve(page, 4, 0, 40, 100), 0);
    assert_int_equal(sl_account_total(page, 0), 100);
    assert_int_equal(sl_account_reserve(page, 3, 0, 1, 100), -ENOMEM);
    assert_int_equal(sl_account_reserve(page, 3, 0, 0, 100), 0);
    /* Another GPU has its own books. */
    assert_int_equal(sl_account_reserve(page, 3, 1, 100, 100), 0);
    assert_int_equal(sl_account_slot(page, 3, 0), 60);
    assert_int_equal(sl_account_slot(page, 3, 1), 100);
}

static void shrunken_limit_refuses_until_below(void **state)
{
    (void)state;
    assert_int_equal(sl_account_reserve(page, 0, 0, 80, 100), 0);
    assert_int_equal(sl_account_reserve(page, 0, 0, 1, 50), -ENOMEM);
    sl_account_release(page, 0, 0, 40);
    assert_int_equal(sl_account_reserve(page, 0, 0, 10, 50), 0);
    assert_int_equal(sl_account_reserve(page, 0, 0, 1, 50), -ENOMEM);
}

static void no_arithmetic_wraps(void **state)
{
    (void)state;
    assert_int_equal(sl_account_reserve(page, 0, 0, 10, SL_NO_LIMIT), 0);
    assert_int_equal(sl_account_reserve(page, 0, 0, UINT64_MAX, SL_NO_LIMIT), -ENOMEM);
    assert_int_equal(sl_account_reserve(page, 0, 0, UINT64_MAX - 5, SL_NO_LIMIT), -ENOMEM);
    assert_int_equal(sl_account_reserve(page, 0, 0, UNITS_MASK, SL_NO_LIMIT), -ENOMEM);
    assert_int_equal(sl_account_reserve(page, 0, 0, UNITS_MASK - 10, SL_NO_LIMIT), 0);
    assert_int_equal(sl_account_total(page, 0), UNITS_MASK);
}

static void release_never_exceeds_what_the_slot_has(void **state)
{
    (void)state;
    assert_int_equal(sl_account_reserve(page, 0, 0, 30, 100), 0);
    assert_int_equal(sl_account_reserve(page, 1, 0, 30, 100), 0);
    sl_account_release(page, 0, 0, UINT64_MAX);
    assert_int_equal(sl_account_slot(page, 0, 0), 0);
    assert_int_equal(sl_account_total(page, 0), 30);
    sl_account_release(page, 0, 0, 1);
    assert_int_equal(sl_account_total(page, 0), 30);
}

static void indexes_out_of_range_do_nothing(void **state)
{
    (void)state;
    assert_int_equal(sl_account_reserve(page, SL_MAX_SLOTS, 0, 1, 100), -EINVAL);
    assert_int_equal(sl_account_reserve(page, 0, SL_MAX_GPUS, 1, 100), -EINVAL);
    assert_int_equal(sl_account_reserve(page, UINT32_MAX, UINT32_MAX, 1, 100), -EINVAL);
    sl_account_release(page, SL_MAX_SLOTS, 0, 1);
    sl_account_release(page, 0, SL_MAX_GPUS, 1);
    assert_int_equal(sl_account_slot(page, SL_MAX_SLOTS, 0), 0);
    assert_int_equal(sl_account_slot(page, 0, SL_MAX_GPUS), 0);
    assert_int_equal(sl_account_total(page, SL_MAX_GPUS), 0);
    assert_false(sl_account_reap(page, SL_MAX_SLOTS));
    for (uint32_t gpu = 0; gpu < SL_MAX_GPUS; gpu++)
        assert_int_equal(sl_account_total(page, gpu), 0);
}

static void reap_returns_everything_and_repeats_harmlessly(void **state)
{
    (void)state;
    for (uint32_t gpu = 0; gpu < SL_MAX_GPUS; gpu++) {
        assert_int_equal(sl_account_reserve(page, 7, gpu, 10 + gpu, 1000), 0);
        assert_int_equal(sl_account_reserve(page, 8, gpu, 5, 1000), 0);
    }
    assert_true(sl_account_reap(page, 7));
    assert_true(sl_account_reap(page, 7));
    for (uint32_t gpu = 0; gpu < SL_MAX_GPUS; gpu++) {
        assert_int_equal(sl_account_slot(page, 7, gpu), 0);
        assert_int_equal(sl_account_total(page, gpu), 5);
    }
}

/* Killed after step 2: the total has moved, `applied` has not. */
static void an_operation_that_reached_the_total_has_happened(void **state)
{
    (void)state;
    struct sl_slot_memory *m = &page->slot[5].memory[0];
    assert_int_equal(sl_account_reserve(page, 5, 0, 10, 100), 0);
    m->used[0] = 25; /* op 2: reserve 15 */
    page->total[0].word = pack(25, 5, 2);

    assert_int_equal(sl_account_slot(page, 5, 0), 25);
    assert_int_equal(m->applied, 1);
    /* The next operation of anybody completes it before its tag is lost. */
    assert_int_equal(sl_account_reserve(page, 6, 0, 1, 100), 0);
    assert_int_equal(m->applied, 2);
    assert_int_equal(sl_account_slot(page, 5, 0), 25);
    assert_true(sl_account_reap(page, 5));
    assert_int_equal(sl_account_total(page, 0), 1);
}

/* Killed after step 1: nothing has happened. */
static void an_operation_that_did_not_reach_the_total_has_not(void **state)
{
    (void)state;
    assert_int_equal(sl_account_reserve(page, 5, 0, 10, 100), 0);
    page->slot[5].memory[0].used[0] = 25;
    assert_int_equal(sl_account_slot(page, 5, 0), 10);
    assert_true(sl_account_reap(page, 5));
    assert_int_equal(sl_account_total(page, 0), 0);
}

/* A helper that slept through 4,095 operations of the owner holds a tag that looks like the owner's
 * next one. It must not complete an operation that was never made. */
static void a_stale_tag_helps_nobody(void **state)
{
    (void)state;
    assert_int_equal(sl_account_reserve(page, 9, 0, 10, 100), 0);
    uint64_t old = page->total[0].word;
    for (uint64_t i = 0; i < TAG_MASK; i++)
        assert_int_equal(sl_account_reserve(page, 9, 0, 0, 100), 0);
    assert_int_equal(sl_account_reserve(page, 9, 1, 1, 100), 0); /* another GPU is another matter */
    page->slot[9].memory[0].used[(page->slot[9].memory[0].applied + 1) & 1] =
        77; /* prepared only */
    uint64_t applied = page->slot[9].memory[0].applied;
    assert_int_equal((applied + 1) & TAG_MASK, tag_op(old));

    complete(page, 0, old);
    assert_true(page->slot[9].memory[0].applied == applied);
    assert_int_equal(sl_account_slot(page, 9, 0), 10);
}

/* A process that was thought to be gone goes on in the middle of an operation: the total has it, its slot does not. */
static void true_up_makes_the_total_the_sum(void **state)
{
    (void)state;
    assert_int_equal(sl_account_reserve(page, 1, 0, 40, 100), 0);
    assert_int_equal(sl_account_reserve(page, 2, 0, 7, 100), 0);
    assert_int_equal(sl_account_reserve(page, SL_PROCESS_SLOTS, 0, 3, 100), 0);
    uint64_t word = atomic_load(&page->total[0].word);
    sl_account_true_up(page, 0);
    assert_true(atomic_load(&page->total[0].word) == word); /* all was right */
    /* Slot 1 has prepared its second operation, is reaped, and moves the total then. */
    assert_true(sl_account_reap(page, 1));
    word = atomic_load(&page->total[0].word);
    atomic_store(&page->total[0].word, pack((word & UNITS_MASK) + 5, 1, 2));
    assert_int_equal(sl_account_total(page, 0), 15);
    sl_account_true_up(page, 0);
    assert_int_equal(sl_account_total(page, 0), 10);
    assert_int_equal(sl_account_reserve(page, 1, 0, 45, 100), 0);
    assert_int_equal(sl_account_total(page, 0), 55);
    assert_int_equal(sl_account_slot(page, 1, 0), 45);
    /* Too little is as wrong as too much; an operation that only the total shows yet is no error. */
    word = atomic_load(&page->total[0].word);
    atomic_store(&page->total[0].word, word - 20);
    sl_account_true_up(page, 0);
    assert_int_equal(sl_account_total(page, 0), 55);
    atomic_store(&page->slot[2].memory[0].used[0], 17);
    atomic_store(&page->total[0].word, pack(65, 2, 2));
    sl_account_true_up(page, 0);
    assert_int_equal(sl_account_total(page, 0), 65);
    assert_int_equal(sl_account_slot(page, 2, 0), 17);
    sl_account_true_up(page, SL_MAX_GPUS);
}

static void clear_zeroes_the_books_and_they_work_again(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < 50; slot++)
        assert_int_equal(sl_account_reserve(page, slot * 80, slot % SL_MAX_GPUS, slot + 1, 100000),
                         0);
    sl_account_clear(page);
    for (uint32_t gpu = 0; gpu < SL_MAX_GPUS; gpu++)
        assert_int_equal(sl_account_total(page, gpu), 0);
    for (uint32_t slot = 0; slot < 50; slot++)
        assert_int_equal(sl_account_slot(page, slot * 80, slot % SL_MAX_GPUS), 0);
    assert_int_equal(sl_account_reserve(page, 80, 1, 7, 10), 0);
    assert_int_equal(sl_account_slot(page, 80, 1), 7);
    assert_int_equal(sl_account_total(page, 1), 7);
}

enum { SLOTS = 12, GPUS = 3 };
struct model {
    uint64_t used[SLOTS][GPUS];
};

static uint64_t model_total(const struct model *m, uint32_t gpu)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < SLOTS; s++)
        sum += m->used[s][gpu];
    return sum;
}

static void step(struct model *m, struct rng *r, uint64_t limit)
{
    uint32_t slot = (uint32_t)rng_below(r, SLOTS), gpu = (uint32_t)rng_below(r, GPUS);
    uint32_t real = slot * 341; /* spread over the page, the last one near its end */
    uint64_t units = rng_below(r, 4) ? rng_below(r, 200) : rng_below(r, limit * 2);
    switch (rng_below(r, 20)) {
    case 0:
        assert_true(sl_account_reap(page, real));
        for (uint32_t g = 0; g < GPUS; g++)
            m->used[slot][g] = 0;
        break;
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
        sl_account_release(page, real, gpu, units);
        m->used[slot][gpu] -= units < m->used[slot][gpu] ? units : m->used[slot][gpu];
        break;
    default: {
        bool fits = model_total(m, gpu) + units <= limit;
        assert_int_equal(sl_account_reserve(page, real, gpu, units, limit), fits ? 0 : -ENOMEM);
        m->used[slot][gpu] += fits ? units : 0;
    }
    }
    assert_true(sl_account_slot(page, real, gpu) == m->used[slot][gpu]);
    assert_true(sl_account_total(page, gpu) == model_total(m, gpu));
}

static void random_operations_follow_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng r = {seed};
        struct model m = {0};
        memset(page, 0, sizeof(*page));
        uint64_t limit = 1 + rng_below(&r, 5000);
        for (int i = 0; i < 20000; i++)
            step(&m, &r, limit);
        for (uint32_t s = 0; s < SLOTS; s++)
            assert_true(sl_account_reap(page, s * 341));
        for (uint32_t g = 0; g < GPUS; g++)
            assert_int_equal(sl_account_total(page, g), 0);
    }
}

/* Taken and given back: as before, but not unchanged. */
static void operations_are_counted(void **state)
{
    (void)state;
    uint64_t before = sl_account_operations(page, 3, 1), other = sl_account_operations(page, 4, 1);
    assert_int_equal(sl_account_reserve(page, 3, 1, 10, 100), 0);
    uint64_t taken = sl_account_operations(page, 3, 1);
    sl_account_release(page, 3, 1, 10);
    assert_int_equal(sl_account_slot(page, 3, 1), 0);
    assert_int_not_equal(taken, before);
    assert_int_not_equal(sl_account_operations(page, 3, 1), taken);
    assert_int_not_equal(sl_account_operations(page, 3, 1), before);
    assert_int_equal(sl_account_operations(page, 4, 1), other);
    assert_int_equal(sl_account_reserve(page, 3, 1, 1000, 100), -ENOMEM);
    assert_int_equal(sl_account_operations(page, SL_MAX_SLOTS, 0), 0);
    assert_int_equal(sl_account_operations(page, 0, SL_MAX_GPUS), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static void the_peak_is_the_most_that_was_entered(void **state)
{
    (void)state;
    assert_int_equal(sl_account_peak(page, 0), 0);
    sl_account_peak_enter(page, 0, 700);
    sl_account_peak_enter(page, 0, 300);
    sl_account_peak_enter(page, 1, 900);
    assert_int_equal(sl_account_peak(page, 0), 700);
    assert_int_equal(sl_account_peak(page, 1), 900);
    sl_account_peak_enter(page, SL_MAX_GPUS, 1000);
    assert_int_equal(sl_account_peak(page, SL_MAX_GPUS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_peak_is_the_most_that_was_entered),
        cmocka_unit_test(units_round_up),
        T(operations_are_counted),
        T(limit_is_exact),
        T(shrunken_limit_refuses_until_below),
        T(no_arithmetic_wraps),
        T(release_never_exceeds_what_the_slot_has),
        T(indexes_out_of_range_do_nothing),
        T(reap_returns_everything_and_repeats_harmlessly),
        T(an_operation_that_reached_the_total_has_happened),
        T(an_operation_that_did_not_reach_the_total_has_not),
        T(a_stale_tag_helps_nobody),
        T(true_up_makes_the_total_the_sum),
        T(clear_zeroes_the_books_and_they_work_again),
        T(random_operations_follow_the_model),
    };
    return cmocka_run_group_tests_name("shm account", tests, NULL, NULL);
}
