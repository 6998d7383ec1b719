/* SPDX-License-Identifier: Apache-2.0 */
/* Preferred allocation: what must hold for any node, and known nodes with known answers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "policy/prefer.h"
#include "../support/rng.h"

enum { MOST = 64 };

struct node {
    uint8_t links[MOST * MOST];
    int numa[MOST];
    struct sl_prefer_topology topology;
};

static void random_node(struct rng *rng, struct node *n, size_t gpus)
{
    memset(n, 0, sizeof(*n));
    for (size_t i = 0; i < gpus; i++) {
        n->numa[i] = (int)rng_below(rng, 4) - 1;
        for (size_t j = 0; j < i; j++)
            n->links[i * gpus + j] = n->links[j * gpus + i] =
                (uint8_t)(rng_below(rng, 3) ? 0 : rng_below(rng, 19));
    }
    n->topology =
        (struct sl_prefer_topology){.gpu_count = gpus, .links = n->links, .numa = n->numa};
}

/* Some of 0 … gpus-1, in any order. */
static size_t random_subset(struct rng *rng, size_t gpus, size_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < gpus; i++)
        if (rng_below(rng, 4))
            out[n++] = i;
    for (size_t i = n; i > 1; i--) {
        size_t j = rng_below(rng, i), t = out[j];
        out[j] = out[i - 1];
        out[i - 1] = t;
    }
    return n;
}

static bool has(const size_t *list, size_t n, size_t gpu)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == gpu)
            return true;
    return false;
}

/* A set's worth: NVLinks between its members count most, a common NUMA node after that. */
static uint64_t score_of(const struct sl_prefer_topology *t, const size_t *gpus, size_t count)
{
    uint64_t score = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            size_t a = gpus[i], b = gpus[j];
            score += t->links ? (uint64_t)t->links[a * t->gpu_count + b] * 1024 : 0;
            score += t->numa && t->numa[a] >= 0 && t->numa[a] == t->numa[b];
        }
    return score;
}

/* By trying all: bits of `set` are positions in the list. */
static uint64_t best_score(const struct node *n, const size_t *list, size_t count, size_t must,
                           size_t size)
{
    uint64_t best = 0;
    for (uint32_t set = 0; set < 1u << count; set++) {
        size_t gpus[MOST], k = 0;
        if ((size_t)__builtin_popcount(set) != size ||
            (set & ((1u << must) - 1)) != (1u << must) - 1)
            continue;
        for (size_t i = 0; i < count; i++)
            if (set >> i & 1)
                gpus[k++] = list[i];
        uint64_t score = score_of(&n->topology, gpus, k);
        best = score > best ? score : best;
    }
    return best;
}

static void check_answer(const size_t *available, size_t count, size_t must, const size_t *ret,
                         size_t size)
{
    for (size_t i = 0; i < size; i++) {
        assert_true(has(available, count, ret[i]));
        assert_false(has(ret, i, ret[i]));
    }
    for (size_t i = 0; i < must; i++)
        assert_int_equal(ret[i], available[i]);
}

static void whole_is_the_best_set(void **state)
{
    (void)state;
    struct rng rng = {1};
    for (int round = 0; round < 600; round++) {
        struct node n;
        size_t available[MOST], ret[MOST];
        random_node(&rng, &n, 1 + rng_below(&rng, 8));
        size_t count = random_subset(&rng, n.topology.gpu_count, available);
        size_t size = rng_below(&rng, count + 1), must = rng_below(&rng, size + 1);
        struct sl_err err = SL_ERR_INIT;
        assert_int_equal(
            sl_prefer_whole(&n.topology, available, count, available, must, size, ret, &err), 0);
        check_answer(available, count, must, ret, size);
        assert_int_equal(score_of(&n.topology, ret, size),
                         best_score(&n, available, count, must, size));
    }
}

/* Beyond the exact: a legal set, no single exchange of which is better. */
static void many_gpus_are_chosen_well(void **state)
{
    (void)state;
    struct rng rng = {2};
    for (int round = 0; round < 100; round++) {
        struct node n;
        size_t available[MOST], ret[MOST];
        random_node(&rng, &n, 17 + rng_below(&rng, MOST - 16));
        size_t count = random_subset(&rng, n.topology.gpu_count, available);
        size_t size = 1 + rng_below(&rng, count), must = rng_below(&rng, size < 3 ? size : 3);
        struct sl_err err = SL_ERR_INIT;
        assert_int_equal(
            sl_prefer_whole(&n.topology, available, count, available, must, size, ret, &err), 0);
        check_answer(available, count, must, ret, size);
        uint64_t score = score_of(&n.topology, ret, size);
        for (size_t i = must; i < size; i++)
            for (size_t j = 0; j < count; j++) {
                if (has(ret, size, available[j]))
                    continue;
                size_t old = ret[i];
                ret[i] = available[j];
                assert_true(score_of(&n.topology, ret, size) <= score);
                ret[i] = old;
            }
    }
}

/* Two boards of four: pairs linked twice, the boards by NUMA. */
static void known_nodes(void **state)
{
    (void)state;
    struct node n;
    size_t ret[8], all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct sl_err err = SL_ERR_INIT;
    memset(&n, 0, sizeof(n));
    n.topology = (struct sl_prefer_topology){.gpu_count = 8, .links = n.links, .numa = n.numa};
    for (size_t i = 0; i < 8; i++) {
        n.numa[i] = i / 4 ? 1 : 0;
        n.links[i * 8 + (i ^ 1)] = 2;
    }
    size_t some[] = {1, 2, 3, 4, 6};
    assert_int_equal(sl_prefer_whole(&n.topology, some, 5, NULL, 0, 2, ret, &err), 0);
    assert_int_equal(ret[0], 2);
    assert_int_equal(ret[1], 3);
    /* One: the one that leaves no pair broken. */
    assert_int_equal(sl_prefer_whole(&n.topology, some, 5, NULL, 0, 1, ret, &err), 0);
    assert_true(ret[0] == 4 || ret[0] == 6);
    assert_int_equal(sl_prefer_whole(&n.topology, all, 8, NULL, 0, 4, ret, &err), 0);
    assert_int_equal(ret[0] / 4, ret[3] / 4);
    /* No links at all (PCIe): one NUMA node. */
    n.topology.links = NULL;
    size_t pcie[] = {0, 1, 4, 5, 6};
    assert_int_equal(sl_prefer_whole(&n.topology, pcie, 5, NULL, 0, 3, ret, &err), 0);
    assert_int_equal(ret[0], 4);
    /* Nothing known: the first ones. */
    n.topology.numa = NULL;
    assert_int_equal(sl_prefer_whole(&n.topology, pcie, 5, NULL, 0, 2, ret, &err), 0);
    assert_int_equal(ret[0], 0);
    assert_int_equal(ret[1], 1);
}

static void whole_refuses_what_cannot_be(void **state)
{
    (void)state;
    struct sl_prefer_topology t = {.gpu_count = 3};
    size_t ret[3] = {7, 7, 7}, available[] = {0, 1}, bad[] = {3}, twice[] = {1, 1}, outside[] = {2};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_prefer_whole(&t, available, 2, NULL, 0, 3, ret, &err), -ERANGE);
    assert_int_equal(sl_prefer_whole(&t, available, 2, available, 2, 1, ret, &err), -ERANGE);
    assert_int_equal(sl_prefer_whole(&t, bad, 1, NULL, 0, 1, ret, &err), -EINVAL);
    assert_int_equal(sl_prefer_whole(&t, available, 2, twice, 2, 2, ret, &err), -EINVAL);
    assert_int_equal(ret[0], 7);
    assert_int_equal(sl_prefer_whole(&t, NULL, 0, NULL, 0, 0, ret, &err), 0);
    assert_int_equal(sl_prefer_whole(&t, available, 2, outside, 1, 2, ret, &err), 0);
    assert_int_equal(ret[0], 2);
}

/* No node is like this; kubelet might still say so. The work is bounded, not just the patience. */
static void time_is_bounded(void **state)
{
    (void)state;
    enum { N = 20000 };
    size_t *all = calloc(N, sizeof(*all)), *ret = calloc(N, sizeof(*ret));
    int *numa = calloc(N, sizeof(*numa));
    struct sl_err err = SL_ERR_INIT;
    for (size_t i = 0; i < N; i++) {
        all[i] = i;
        numa[i] = (int)(i % 7);
    }
    struct sl_prefer_topology t = {.gpu_count = N, .numa = numa};
    static const size_t sizes[] = {1, 8, 1000, N / 2, N};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(sl_prefer_whole(&t, all, N, NULL, 0, sizes[i], ret, &err), 0);
        assert_int_equal(sl_prefer_whole(&t, all, N, all, sizes[i] / 2, sizes[i], ret, &err), 0);
    }
    free(all);
    free(ret);
    free(numa);
}

/* --- shares ------------------------------------------------------------------------------------ */

static size_t random_units(struct rng *rng, struct sl_prefer_unit *units, size_t gpus,
                           size_t *ret_must, size_t *ret_free)
{
    size_t count = 1 + rng_below(rng, 12);
    *ret_must = *ret_free = 0;
    for (size_t i = 0; i < count; i++) {
        units[i] = (struct sl_prefer_unit){.gpu = rng_below(rng, gpus),
                                           .used = (unsigned)rng_below(rng, 5),
                                           .free = (unsigned)rng_below(rng, 5)};
        units[i].must = rng_below(rng, 3) ? 0 : (unsigned)rng_below(rng, units[i].free + 1);
        *ret_must += units[i].must;
        *ret_free += units[i].free;
    }
    return count;
}

static void shares_keep_the_rules(void **state)
{
    (void)state;
    struct rng rng = {3};
    for (int round = 0; round < 4000; round++) {
        struct sl_prefer_unit units[12];
        unsigned ret[12], on_gpu[4] = {0}, left[4] = {0}, must_on[4] = {0};
        size_t must, can, sum = 0, gpus = 1 + rng_below(&rng, 4);
        size_t count = random_units(&rng, units, gpus, &must, &can);
        size_t size = must + rng_below(&rng, can - must + 1);
        enum sl_prefer_share how = round % 2 ? SL_PREFER_PACKED : SL_PREFER_DISTRIBUTED;
        struct sl_err err = SL_ERR_INIT;
        assert_int_equal(sl_prefer_shares(how, units, count, gpus, size, ret, &err), 0);
        for (size_t i = 0; i < count; i++) {
            assert_in_range(ret[i], units[i].must, units[i].free);
            sum += ret[i];
            on_gpu[units[i].gpu] += ret[i];
            must_on[units[i].gpu] += units[i].must;
            left[units[i].gpu] += units[i].free - ret[i];
        }
        assert_int_equal(sum, size);
        /* Never a second one of a card while another that has some left was given fewer. */
        for (size_t a = 0; how == SL_PREFER_DISTRIBUTED && a < gpus; a++)
            for (size_t b = 0; b < gpus; b++)
                if (on_gpu[a] > must_on[a] && left[b])
                    assert_true(on_gpu[a] <= on_gpu[b] + 1);
        /* At most one card is begun and not used up, the ones that had to be taken apart. */
        unsigned begun = 0;
        for (size_t a = 0; how == SL_PREFER_PACKED && a < gpus; a++)
            begun += on_gpu[a] > must_on[a] && left[a];
        assert_true(begun <= 1);
    }
}

static void known_shares(void **state)
{
    (void)state;
    unsigned ret[3];
    struct sl_err err = SL_ERR_INIT;
    const struct sl_prefer_unit u[] = {{.gpu = 0, .used = 2, .free = 2},
                                       {.gpu = 1, .used = 0, .free = 4},
                                       {.gpu = 2, .used = 3, .free = 1}};
    assert_int_equal(sl_prefer_shares(SL_PREFER_DISTRIBUTED, u, 3, 3, 1, ret, &err), 0);
    assert_int_equal(ret[1], 1);
    assert_int_equal(sl_prefer_shares(SL_PREFER_DISTRIBUTED, u, 3, 3, 3, ret, &err), 0);
    assert_true(ret[0] == 1 && ret[1] == 1 && ret[2] == 1);
    assert_int_equal(sl_prefer_shares(SL_PREFER_PACKED, u, 3, 3, 1, ret, &err), 0);
    assert_int_equal(ret[2], 1);
    assert_int_equal(sl_prefer_shares(SL_PREFER_PACKED, u, 3, 3, 3, ret, &err), 0);
    assert_true(ret[2] == 1 && ret[0] == 2);
    assert_int_equal(sl_prefer_shares(SL_PREFER_PACKED, u, 3, 3, 8, ret, &err), -ERANGE);
    assert_true(sl_prefer_together(SL_PREFER_DISTRIBUTED, u, 3, 2, ret));
    assert_true(ret[0] == 0 && ret[1] == 2 && ret[2] == 0);
    assert_true(sl_prefer_together(SL_PREFER_PACKED, u, 3, 2, ret));
    assert_int_equal(ret[0], 2);
    assert_true(sl_prefer_together(SL_PREFER_PACKED, u, 3, 1, ret));
    assert_int_equal(ret[2], 1);
    assert_false(sl_prefer_together(SL_PREFER_PACKED, u, 3, 5, ret));
    const struct sl_prefer_unit apart[] = {{.gpu = 0, .free = 4, .must = 1},
                                           {.gpu = 1, .free = 4, .must = 1}};
    assert_false(sl_prefer_together(SL_PREFER_PACKED, apart, 2, 2, ret));
    assert_true(sl_prefer_together(SL_PREFER_DISTRIBUTED, apart, 1, 2, ret));
    const struct sl_prefer_unit bad[] = {{.gpu = 3, .free = 1}}, worse[] = {{.free = 1, .must = 2}};
    assert_int_equal(sl_prefer_shares(SL_PREFER_PACKED, bad, 1, 3, 1, ret, &err), -EINVAL);
    assert_int_equal(sl_prefer_shares(SL_PREFER_PACKED, worse, 1, 3, 1, ret, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_is_the_best_set), cmocka_unit_test(many_gpus_are_chosen_well),
        cmocka_unit_test(known_nodes),           cmocka_unit_test(whole_refuses_what_cannot_be),
        cmocka_unit_test(time_is_bounded),       cmocka_unit_test(shares_keep_the_rules),
        cmocka_unit_test(known_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
