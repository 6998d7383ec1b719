/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice about fragmentation on made clusters. Every advice is carried out again here, with sums of its own: each move
 * must fit when it comes. On small clusters nothing better may exist: a brute force tries every sequence of moves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "policy/advice.h"

#define CARD_MIB 1000
#define NODES    8
#define PODS     16

struct world {
    struct sl_advice_node node[NODES];
    size_t nodes;
    struct sl_advice_pod pod[PODS];
    uint64_t allow[PODS];
    size_t pods;
};

static void add_node(struct world *w, unsigned gpus, uint32_t cpu)
{
    struct sl_advice_node *n = &w->node[w->nodes++];
    *n = (struct sl_advice_node){.open = true};
    n->node.cpu_milli = cpu;
    n->node.gpu_count = (uint8_t)gpus;
    for (unsigned i = 0; i < gpus; i++)
        n->node.gpus[i].memory_mib = CARD_MIB;
}

static struct sl_advice_pod *add_pod(struct world *w, uint32_t node, unsigned gpu, uint32_t mib,
                                     uint32_t cores, uint32_t cpu)
{
    struct sl_advice_pod *p = &w->pod[w->pods];
    *p = (struct sl_advice_pod){.node = node, .part_count = 1};
    p->part[0].request = (struct sl_place_request){
        .gpu_count = 1, .gpu_memory_mib = mib, .cores_permille = (uint16_t)cores, .cpu_milli = cpu};
    p->part[0].gpus = (uint16_t)(1u << gpu);
    w->allow[w->pods++] = UINT64_MAX;
    return p;
}

/* --- sums of our own --- */

struct sums {
    int mib[NODES][SL_PLACE_MAX_GPUS], cores[NODES][SL_PLACE_MAX_GPUS],
        pods[NODES][SL_PLACE_MAX_GPUS];
    int cpu[NODES];
};

static void add_up(struct sums *s, const struct sl_advice_pod *p, uint32_t node, uint16_t gpus,
                   int by)
{
    for (unsigned g = 0; g < SL_PLACE_MAX_GPUS; g++)
        if (gpus >> g & 1) {
            s->mib[node][g] += by * (int)p->part[0].request.gpu_memory_mib;
            s->cores[node][g] += by * (int)p->part[0].request.cores_permille;
            s->pods[node][g] += by;
        }
    s->cpu[node] += by * (int)p->part[0].request.cpu_milli;
}

static struct sums begin(const struct world *w)
{
    struct sums s = {0};
    for (size_t i = 0; i < w->pods; i++)
        add_up(&s, &w->pod[i], w->pod[i].node, w->pod[i].part[0].gpus, 1);
    return s;
}

static bool card_counts(const struct world *w, uint32_t node, unsigned gpu)
{
    return w->node[node].open && !(w->node[node].blocked >> gpu & 1);
}

static size_t whole_cards(const struct world *w, const struct sums *s)
{
    size_t n = 0;
    for (uint32_t i = 0; i < w->nodes; i++)
        for (unsigned g = 0; g < w->node[i].node.gpu_count; g++)
            n += card_counts(w, i, g) && s->pods[i][g] == 0;
    return n;
}

static bool fits(const struct world *w, const struct sums *s, size_t pod, uint32_t node,
                 unsigned gpu)
{
    const struct sl_place_request *r = &w->pod[pod].part[0].request;
    const struct sl_place_node *n = &w->node[node].node;
    return card_counts(w, node, gpu) && (w->allow[pod] >> node & 1) &&
           (!r->models || (r->models >> n->model & 1)) &&
           s->mib[node][gpu] + (int)r->gpu_memory_mib <= CARD_MIB &&
           s->cores[node][gpu] + (int)r->cores_permille <= 1000 &&
           s->cpu[node] + (int)r->cpu_milli <= (int)n->cpu_milli;
}

/* Carries the advice out; returns the whole cards at the end. */
static size_t carried_out(const struct world *w, const struct sl_advice *advice)
{
    struct sums s = begin(w);
    uint32_t node[PODS];
    uint16_t gpus[PODS];
    assert_int_equal(advice->whole_before, whole_cards(w, &s));
    for (size_t i = 0; i < w->pods; i++) {
        node[i] = w->pod[i].node;
        gpus[i] = w->pod[i].part[0].gpus;
    }
    for (size_t i = 0; i < advice->move_count; i++) {
        const struct sl_advice_move *m = &advice->move[i];
        assert_false(w->pod[m->pod].fixed);
        assert_int_equal(m->from, node[m->pod]);
        assert_int_equal(m->gpus_from, gpus[m->pod]);
        add_up(&s, &w->pod[m->pod], m->from, m->gpus_from, -1);
        for (unsigned g = 0; g < SL_PLACE_MAX_GPUS; g++)
            if ((m->gpus_to >> g & 1) && !fits(w, &s, m->pod, m->to, g))
                fail_msg("move %zu: pod %zu does not fit on %u/%u", i, m->pod, m->to, g);
        add_up(&s, &w->pod[m->pod], m->to, m->gpus_to, 1);
        node[m->pod] = m->to;
        gpus[m->pod] = m->gpus_to;
    }
    size_t end = whole_cards(w, &s);
    assert_int_equal(advice->whole_after, end);
    assert_true(end >= advice->whole_before);
    assert_int_equal(advice->freed_count >= end - advice->whole_before, 1);
    for (size_t i = 0; i < advice->freed_count; i++) {
        assert_int_equal(s.pods[advice->freed[i].node][advice->freed[i].gpu], 0);
        assert_in_range(advice->freed[i].after, 1, advice->move_count);
    }
    return end;
}

/* --- brute force: every sequence of at most `left` moves --- */

struct best {
    size_t whole, moves;
};

static void try_all(struct world *w, struct sums *s, size_t made, size_t left, struct best *best)
{
    size_t whole = whole_cards(w, s);
    if (whole > best->whole || (whole == best->whole && made < best->moves))
        *best = (struct best){whole, made};
    for (size_t i = 0; left && i < w->pods; i++) {
        struct sl_advice_pod *p = &w->pod[i];
        uint32_t node = p->node;
        uint16_t gpus = p->part[0].gpus;
        if (p->fixed || !w->node[node].open || (w->node[node].blocked & gpus))
            continue;
        add_up(s, p, node, gpus, -1);
        for (uint32_t n = 0; n < w->nodes; n++)
            for (unsigned g = 0; g < w->node[n].node.gpu_count; g++) {
                uint16_t bit = (uint16_t)(1u << g);
                if ((n == node && bit == gpus) || !fits(w, s, i, n, g))
                    continue;
                p->node = n;
                p->part[0].gpus = bit;
                add_up(s, p, n, bit, 1);
                try_all(w, s, made + 1, left - 1, best);
                add_up(s, p, n, bit, -1);
            }
        p->node = node;
        p->part[0].gpus = gpus;
        add_up(s, p, node, gpus, 1);
    }
}

static struct sl_advice ask(const struct world *w, size_t moves)
{
    struct sl_advice advice;
    struct sl_err err = SL_ERR_INIT;
    struct sl_advice_limits limits = {.moves = moves};
    if (sl_advice_make(w->node, w->nodes, w->pod, w->pods, &limits, &advice, &err) != 0)
        fail_msg("%s", err.msg);
    return advice;
}

/* --- tests --- */

static void test_plain(void **state)
{
    (void)state;
    struct world w = {0};
    add_node(&w, 2, 64000);
    add_node(&w, 2, 64000);
    add_pod(&w, 0, 0, 300, 300, 1000);
    add_pod(&w, 0, 1, 400, 200, 1000);
    add_pod(&w, 1, 0, 300, 500, 1000);
    struct sl_advice a = ask(&w, 0);
    assert_true(a.best);
    assert_int_equal(carried_out(&w, &a), 3); /* one card has them all */
    assert_int_equal(a.whole_before, 1);
    assert_int_equal(a.move_count, 2);
    assert_int_equal(a.freed_count, 2);
    sl_advice_free(&a);
    a = ask(&w, 1);
    assert_int_equal(carried_out(&w, &a), 2);
    assert_int_equal(a.move_count, 1);
    sl_advice_free(&a);
}

/* Nothing to gain: no moves. */
static void test_nothing(void **state)
{
    (void)state;
    struct world w = {0};
    struct sl_advice a = ask(&w, 0); /* an empty cluster */
    assert_int_equal(a.move_count, 0);
    sl_advice_free(&a);
    add_node(&w, 2, 64000);
    a = ask(&w, 0);
    assert_int_equal(a.whole_after, 2);
    sl_advice_free(&a);
    add_pod(&w, 0, 0, 600, 100, 0);
    add_pod(&w, 0, 1, 600, 100, 0);
    a = ask(&w, 0);
    assert_int_equal(carried_out(&w, &a), 0);
    assert_int_equal(a.move_count, 0);
    assert_true(a.best);
    sl_advice_free(&a);
}

/* A pod must make room before another can come. */
static void test_chain(void **state)
{
    (void)state;
    struct world w = {0};
    add_node(&w, 3, 64000);
    add_pod(&w, 0, 0, 500, 500, 0);
    add_pod(&w, 0, 1, 500, 500, 0);
    add_pod(&w, 0, 1, 300, 300, 0);
    add_pod(&w, 0, 2, 700, 700, 0);
    struct sl_advice a = ask(&w, 0);
    assert_int_equal(carried_out(&w, &a), 1);
    assert_int_equal(a.move_count, 2);
    sl_advice_free(&a);
}

/* CPU, taints (allow), models, fixed pods, closed nodes and sick cards: each alone forbids the only move. */
static void test_rules(void **state)
{
    (void)state;
    for (int rule = 0; rule < 7; rule++) {
        struct world w = {0};
        add_node(&w, 1, 4000);
        add_node(&w, 1, 4000);
        struct sl_advice_pod *p = add_pod(&w, 0, 0, 200, 200, 2000);
        struct sl_advice_pod *q = add_pod(&w, 1, 0, 200, 200, 2000);
        static const uint64_t only[] = {1, 2};
        if (rule == 1)
            p->part[0].request.cpu_milli = q->part[0].request.cpu_milli = 2001;
        if (rule == 2) {
            p->allow = &only[0];
            q->allow = &only[1];
            w.allow[0] = 1;
            w.allow[1] = 2;
        }
        if (rule == 3) {
            w.node[1].node.model = 1;
            p->part[0].request.models = 1;
            q->part[0].request.models = 2;
        }
        if (rule == 4)
            p->fixed = q->fixed = true;
        if (rule == 5)
            w.node[0].open = false;
        if (rule == 6)
            w.node[0].blocked = 1;
        struct sl_advice a = ask(&w, 0);
        assert_int_equal(carried_out(&w, &a), rule == 0 ? 1 : 0);
        assert_int_equal(a.move_count, rule == 0 ? 1 : 0);
        sl_advice_free(&a);
    }
}

/* A pod that is promised more than its card has: nothing is moved there or from there, all else goes on. */
static void test_misfit(void **state)
{
    (void)state;
    struct world w = {0};
    add_node(&w, 3, 4000);
    add_pod(&w, 0, 0, 1500, 500, 0);
    add_pod(&w, 0, 1, 200, 200, 0);
    add_pod(&w, 0, 2, 200, 200, 0);
    struct sl_advice a = ask(&w, 0);
    assert_int_equal(a.misfits, 1);
    assert_int_equal(a.whole_after, 1);
    assert_int_equal(a.move_count, 1);
    assert_int_not_equal(a.move[0].pod, 0);
    assert_int_equal(a.move[0].gpus_to & 1, 0);
    sl_advice_free(&a);
    w.pod[1].node = 7; /* nowhere */
    assert_int_equal(sl_advice_make(w.node, w.nodes, w.pod, w.pods, NULL, &a, NULL), -22);
}

/* Pods with two cards, and pods with two parts: they move as a whole. */
static void test_several(void **state)
{
    (void)state;
    struct world w = {0};
    add_node(&w, 2, 64000);
    add_node(&w, 4, 64000);
    struct sl_advice_pod *p = add_pod(&w, 0, 0, 400, 400, 0);
    p->part[0].request.gpu_count = 2;
    p->part[0].gpus = 3;
    add_pod(&w, 1, 0, 500, 500, 0);
    add_pod(&w, 1, 1, 500, 500, 0);
    struct sl_advice a = ask(&w, 0);
    assert_int_equal(carried_out(&w, &a), 4);
    assert_int_equal(a.move_count, 1);
    assert_int_equal(a.freed_count, 2);
    assert_int_equal(a.freed[0].after, 1);
    sl_advice_free(&a);
    p->part_count = 2; /* … and a second container, on the first card */
    p->part[1].request =
        (struct sl_place_request){.gpu_count = 1, .gpu_memory_mib = 100, .cores_permille = 100};
    p->part[1].gpus = 1;
    a = ask(&w, 0);
    assert_int_equal(a.move_count, 1);
    assert_int_equal(a.whole_after, 4);
    sl_advice_free(&a);
    w.pod[1].part[0].request.gpu_memory_mib = w.pod[2].part[0].request.gpu_memory_mib = 601;
    a = ask(&w, 0);
    assert_int_equal(a.move_count, 0);
    sl_advice_free(&a);
}

static void random_world(struct world *w, uint64_t *seed, unsigned nodes, unsigned cards,
                         unsigned pods)
{
    static const uint32_t sizes[] = {100, 200, 250, 300, 400, 500, 600, 700};
    *w = (struct world){0};
    for (unsigned i = 0; i < nodes; i++) {
        add_node(w, cards, 2000 + (uint32_t)(sl_random(seed) % 4) * 1000);
        w->node[i].open = sl_random(seed) % 8 != 0;
        w->node[i].node.model = (uint8_t)(sl_random(seed) % 2);
    }
    struct sums s = {0};
    for (unsigned k = 0; k < pods * 4 && w->pods < pods; k++) {
        uint32_t node = (uint32_t)(sl_random(seed) % nodes);
        unsigned gpu = (unsigned)(sl_random(seed) % cards);
        struct sl_advice_pod *p =
            add_pod(w, node, gpu, sizes[sl_random(seed) % 8], sizes[sl_random(seed) % 8], 500);
        size_t i = w->pods - 1;
        w->allow[i] = UINT64_MAX;
        if (sl_random(seed) % 4 == 0)
            w->allow[i] = sl_random(seed) | 1ull << node;
        if (sl_random(seed) % 6 == 0)
            p->part[0].request.models = 1ull << w->node[node].node.model;
        p->fixed = sl_random(seed) % 6 == 0;
        p->allow = &w->allow[i];
        bool open = w->node[node].open;
        w->node[node].open = true;
        if (fits(w, &s, i, node, gpu))
            add_up(&s, p, node, p->part[0].gpus, 1);
        else
            w->pods--;
        w->node[node].open = open;
    }
    if (sl_random(seed) % 3 == 0)
        w->node[0].blocked = (uint16_t)(sl_random(seed) & 1);
}

/* As good as the best sequence of at most so many moves, and never longer. */
static void test_optimal(void **state)
{
    (void)state;
    uint64_t seed = 11;
    size_t gained = 0;
    for (unsigned round = 0; round < 400; round++) {
        struct world w;
        unsigned nodes = 1 + round % 3, cards = nodes == 1 ? 4 : 2;
        random_world(&w, &seed, nodes, cards, 4 + round % 2);
        size_t depth = 4;
        struct sums s = begin(&w);
        struct best best = {0};
        best.whole = whole_cards(&w, &s);
        struct sl_advice a = ask(&w, depth);
        try_all(&w, &s, 0, depth, &best);
        assert_true(a.best);
        assert_int_equal(carried_out(&w, &a), best.whole);
        assert_int_equal(a.move_count, best.moves);
        gained += a.whole_after - a.whole_before;
        sl_advice_free(&a);
    }
    assert_true(gained > 100); /* otherwise nothing was tested */
}

/* Larger than the search takes: every move fits, nothing is lost, and most of what can be had is found. */
static void test_large(void **state)
{
    (void)state;
    uint64_t seed = 5;
    size_t gained = 0;
    for (unsigned round = 0; round < 100; round++) {
        struct world w;
        random_world(&w, &seed, NODES, 8, PODS);
        struct sl_advice a = ask(&w, 0);
        (void)carried_out(&w, &a);
        assert_false(a.best);
        gained += a.whole_after - a.whole_before;
        sl_advice_free(&a);
        a = ask(&w, 2);
        assert_true(a.move_count <= 2);
        (void)carried_out(&w, &a);
        sl_advice_free(&a);
    }
    assert_true(gained > 300);
}

/* 5,000 nodes with eight cards and one small pod on each second card. */
static void test_huge(void **state)
{
    (void)state;
    size_t nodes = 5000, pods = 20000;
    struct sl_advice_node *node = calloc(nodes, sizeof(*node));
    struct sl_advice_pod *pod = calloc(pods, sizeof(*pod));
    struct sl_advice a;
    struct world w = {0};
    add_node(&w, 8, 64000);
    add_pod(&w, 0, 0, 250, 250, 0);
    for (size_t i = 0; i < nodes; i++)
        node[i] = w.node[0];
    for (size_t i = 0; i < pods; i++) {
        pod[i] = w.pod[0];
        pod[i].node = (uint32_t)(i / 4);
        pod[i].part[0].gpus = (uint16_t)(1u << (i % 4 * 2));
    }
    assert_int_equal(sl_advice_make(node, nodes, pod, pods, NULL, &a, NULL), 0);
    assert_int_equal(a.whole_before, 20000);
    assert_int_equal(a.whole_after, 35000); /* four fit on a card */
    assert_int_equal(a.move_count, 15000);
    sl_advice_free(&a);
    free(node);
    free(pod);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),   cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_chain),   cmocka_unit_test(test_rules),
        cmocka_unit_test(test_misfit),  cmocka_unit_test(test_several),
        cmocka_unit_test(test_optimal), cmocka_unit_test(test_large),
        cmocka_unit_test(test_huge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
