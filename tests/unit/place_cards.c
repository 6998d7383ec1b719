/* SPDX-License-Identifier: Apache-2.0 */
/* The choice among the cards of one machine: tight or loose, near each other, in a fixed order. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/rng.h"
#include "policy/place.h"

#define GIB     (1ULL << 30)
#define LARGEST (140 * GIB)

static struct sl_place_card card(uint64_t gib, uint32_t percent)
{
    return (struct sl_place_card){.memory_bytes = gib * GIB, .cores_permille = percent * 10};
}

static size_t one(enum sl_place_policy policy, const struct sl_place_card *cards, size_t count)
{
    size_t at = SIZE_MAX;
    assert_int_equal(sl_place_cards(policy, cards, count, LARGEST, 1, &at, NULL), 0);
    return at;
}

static void tight_or_loose(void **state)
{
    (void)state;
    const struct sl_place_card cards[] = {card(140, 100), card(20, 100), card(130, 10),
                                          card(90, 80)};
    assert_int_equal(one(SL_PLACE_BEST_FIT, cards, 4), 2); /* 10 % of the time are left */
    assert_int_equal(one(SL_PLACE_SLUICE, cards, 4), 2);
    assert_int_equal(one(SL_PLACE_BEST_FIT, cards, 2), 1);
    assert_int_equal(one(SL_PLACE_SPREAD, cards, 4), 0);
    assert_int_equal(one(SL_PLACE_SPREAD, cards + 1, 3), 2);
}

static void of_equals_the_first(void **state)
{
    (void)state;
    const struct sl_place_card cards[] = {card(50, 50), card(50, 50), card(50, 50)};
    assert_int_equal(one(SL_PLACE_BEST_FIT, cards, 3), 0);
    assert_int_equal(one(SL_PLACE_SPREAD, cards, 3), 0);
}

/* Left over: 6 GiB of a card with 16, or 130 GiB of a card with 140. */
static void a_small_card_for_a_small_request(void **state)
{
    (void)state;
    const struct sl_place_card cards[] = {card(130, 100), card(6, 100)};
    assert_int_equal(one(SL_PLACE_BEST_FIT, cards, 2), 1);
    assert_int_equal(one(SL_PLACE_SPREAD, cards, 2), 0);
}

static void several(void **state)
{
    (void)state;
    const struct sl_place_card cards[] = {card(140, 100), card(20, 100), card(90, 100),
                                          card(40, 100)};
    size_t at[4] = {0};
    assert_int_equal(sl_place_cards(SL_PLACE_BEST_FIT, cards, 4, LARGEST, 2, at, NULL), 0);
    assert_int_equal(at[0], 1); /* in the order of the list */
    assert_int_equal(at[1], 3);
    assert_int_equal(sl_place_cards(SL_PLACE_SPREAD, cards, 4, LARGEST, 3, at, NULL), 0);
    assert_int_equal(at[0], 0);
    assert_int_equal(at[1], 2);
    assert_int_equal(at[2], 3);
    assert_int_equal(sl_place_cards(SL_PLACE_SPREAD, cards, 4, LARGEST, 4, at, NULL), 0);
    assert_int_equal(at[3], 3);
}

static void near_each_other(void **state)
{
    (void)state;
    struct sl_place_card cards[] = {card(10, 100), card(90, 100), card(20, 100), card(90, 100)};
    size_t at[2] = {0};
    cards[1].link_group = cards[3].link_group = 1;
    cards[2].link_group = 2;
    assert_int_equal(sl_place_cards(SL_PLACE_BEST_FIT, cards, 4, LARGEST, 2, at, NULL), 0);
    assert_int_equal(at[0], 1); /* links are worth more than a tighter fit */
    assert_int_equal(at[1], 3);
    assert_int_equal(one(SL_PLACE_BEST_FIT, cards, 4), 0);
}

static void too_few(void **state)
{
    (void)state;
    const struct sl_place_card cards[] = {card(1, 1), card(1, 1)};
    struct sl_err err = SL_ERR_INIT;
    size_t at[2];
    const unsigned wanted[] = {0, 3, SL_PLACE_MAX_GPUS + 1, 256, UINT32_MAX};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        assert_int_equal(sl_place_cards(SL_PLACE_SPREAD, cards, 2, LARGEST, wanted[i], at, &err),
                         -ENOSPC);
    assert_int_equal(sl_place_cards(SL_PLACE_SPREAD, NULL, 0, LARGEST, 1, at, &err), -ENOSPC);
    assert_int_equal(sl_place_cards(SL_PLACE_SPREAD, cards, 2, 0, 2, at, &err), 0); /* no size */
}

/* Any number of cards (MIG instances count): the chosen are different, in order, and no other card is better. */
static void at_random_no_other_is_better(void **state)
{
    (void)state;
    struct rng rng = {7};
    for (int round = 0; round < 20000; round++) {
        struct sl_place_card cards[40];
        size_t count = 1 + rng_below(&rng, 40), at[SL_PLACE_MAX_GPUS];
        size_t most = count < SL_PLACE_MAX_GPUS ? count : SL_PLACE_MAX_GPUS;
        unsigned wanted = 1 + (unsigned)rng_below(&rng, most);
        bool loose = rng_below(&rng, 2);
        for (size_t i = 0; i < count; i++)
            cards[i] = card(14 * rng_below(&rng, 11), 100); /* 100 permille each */
        assert_int_equal(sl_place_cards(loose ? SL_PLACE_SPREAD : SL_PLACE_BEST_FIT, cards, count,
                                        LARGEST, wanted, at, NULL),
                         0);
        uint64_t edge = cards[at[0]].memory_bytes;
        bool taken[40] = {false};
        for (unsigned k = 0; k < wanted; k++) {
            assert_true(at[k] < count && (k == 0 || at[k] > at[k - 1]));
            taken[at[k]] = true;
            uint64_t m = cards[at[k]].memory_bytes;
            edge = (loose ? m < edge : m > edge) ? m : edge;
        }
        for (size_t i = 0; i < count; i++)
            assert_true(taken[i] ||
                        (loose ? cards[i].memory_bytes <= edge : cards[i].memory_bytes >= edge));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tight_or_loose),
        cmocka_unit_test(of_equals_the_first),
        cmocka_unit_test(a_small_card_for_a_small_request),
        cmocka_unit_test(several),
        cmocka_unit_test(near_each_other),
        cmocka_unit_test(too_few),
        cmocka_unit_test(at_random_no_other_is_better),
    };
    return cmocka_run_group_tests_name("place_cards", tests, NULL, NULL);
}
