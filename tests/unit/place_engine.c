/* SPDX-License-Identifier: Apache-2.0 */
/* The placement engine: random histories under every policy, audited against first principles. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "policy/place.h"

#define NODES 40
#define STEPS 800

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void random_nodes(struct sl_place_node *nodes, size_t count, uint64_t *rng)
{
    static const uint8_t gpus[] = {1, 2, 4, 8};
    memset(nodes, 0, count * sizeof(*nodes));
    for (size_t i = 0; i < count; i++) {
        struct sl_place_node *n = &nodes[i];
        n->gpu_count = gpus[next_random(rng) % SL_ARRAY_LEN(gpus)];
        n->model = (uint8_t)(next_random(rng) % 3);
        n->cpu_milli = (uint32_t)(n->gpu_count * (6000 + next_random(rng) % 20000));
        n->memory_mib = n->gpu_count * 65536u;
        n->max_pods = next_random(rng) % 4 ? 0 : 6;
        for (unsigned g = 0; g < n->gpu_count; g++)
            n->gpus[g] = (struct sl_place_gpu){.memory_mib = n->model ? 16384 : 81920,
                                               .numa = (uint8_t)(g * 2 / n->gpu_count),
                                               .link_group = (uint8_t)(g / 2),
                                               .mig = n->model == 0};
    }
}

static struct sl_place_request random_request(uint64_t *rng)
{
    struct sl_place_request r = {.cpu_milli = (uint32_t)(next_random(rng) % 12 * 1000),
                                 .memory_mib = (uint32_t)(next_random(rng) % 16 * 1024)};
    switch (next_random(rng) % 8) {
    case 0:
        return r; /* CPU only */
    case 1:
        r.gpu_count = (uint8_t)(2u << next_random(rng) % 3);
        r.cores_permille = SL_PLACE_WHOLE;
        r.prefer = (uint8_t)(next_random(rng) % 4);
        break;
    case 2:
        r.gpu_count = 1;
        r.mig = (uint8_t)(1 + next_random(rng) % (SL_PLACE_MIG_PROFILES - 1));
        break;
    case 3:
        r.gpu_count = 1;
        r.cores_permille = (uint16_t)(next_random(rng) % 5 * 100);
        r.gpu_memory_mib = (uint32_t)(1 + next_random(rng) % 20000);
        break;
    case 4:
        r.gpu_count = (uint8_t)(1 + next_random(rng) % 2);
        r.cores_permille = (uint16_t)(next_random(rng) % 10 * 50);
        r.gpu_memory_permille = (uint16_t)(1 + next_random(rng) % 999);
        break;
    case 5:
        r.gpu_count = 1;
        r.cores_permille = SL_PLACE_WHOLE;
        break;
    default:
        r.gpu_count = 1;
        r.cores_permille = (uint16_t)(1 + next_random(rng) % 999);
    }
    r.models = next_random(rng) % 3 ? 0 : 1ULL << next_random(rng) % 3;
    return r;
}

struct placed {
    struct sl_place_request r;
    struct sl_place_decision d;
};

/* Our own books, kept apart from the engine's: what each GPU was promised, in both dimensions. */
struct shadow {
    uint64_t cores[NODES + 1][SL_PLACE_MAX_GPUS];
    uint64_t memory[NODES + 1][SL_PLACE_MAX_GPUS];
    uint64_t cpu[NODES + 1], ram[NODES + 1], pods[NODES + 1];
};

static void shadow_move(struct shadow *s, const struct sl_place_node *nodes, const struct placed *p,
                        int sign)
{
    static const unsigned mig_memory[] = {0, 1, 2, 2, 4, 4, 8}, mig_cores[] = {0, 1, 1, 2, 3, 4, 7};
    uint32_t n = p->d.node;
    s->cpu[n] += (uint64_t)(sign * (int64_t)p->r.cpu_milli);
    s->ram[n] += (uint64_t)(sign * (int64_t)p->r.memory_mib);
    s->pods[n] += (uint64_t)sign;
    for (unsigned g = 0; g < nodes[n].gpu_count; g++) {
        if (!(p->d.gpus >> g & 1))
            continue;
        int64_t total = nodes[n].gpus[g].memory_mib, cores = p->r.cores_permille;
        int64_t memory =
            p->r.gpu_memory_mib ? p->r.gpu_memory_mib : total * p->r.gpu_memory_permille / 1000;
        if (p->r.mig) {
            memory = total * mig_memory[p->r.mig] / 8;
            cores = mig_cores[p->r.mig] * 1000 / 7;
        } else if (cores == SL_PLACE_WHOLE) {
            memory = total;
        }
        s->cores[n][g] += (uint64_t)(sign * cores);
        s->memory[n][g] += (uint64_t)(sign * memory);
    }
}

static void shadow_check(const struct shadow *s, const struct sl_place_node *nodes)
{
    for (size_t n = 0; n < NODES; n++) {
        assert_true(s->cpu[n] <= nodes[n].cpu_milli);
        assert_true(s->ram[n] <= nodes[n].memory_mib);
        assert_true(!nodes[n].max_pods || s->pods[n] <= nodes[n].max_pods);
        for (unsigned g = 0; g < nodes[n].gpu_count; g++) {
            assert_true(s->cores[n][g] <= 1000);
            assert_true(s->memory[n][g] <= nodes[n].gpus[g].memory_mib);
        }
    }
}

static void audit(struct sl_placer *p)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_place_audit(p, &err) != 0)
        fail_msg("%s", err.msg);
}

static void history(enum sl_place_policy policy, uint64_t seed, bool learn)
{
    struct sl_place_node nodes[NODES];
    static struct placed live[STEPS];
    struct shadow shadow = {0};
    uint64_t rng = seed * 7919 + 1;
    size_t count = 0, refused = 0;
    struct sl_placer *p;
    struct sl_place_config config;
    random_nodes(nodes, NODES, &rng);
    sl_place_config_init(&config, policy);
    config.seed = seed;
    config.learn_every = learn ? 100 : 0;
    assert_int_equal(sl_place_create(&config, nodes, NODES, &p, NULL), 0);
    if (!learn) {
        struct sl_place_demand demand[64];
        for (size_t i = 0; i < SL_ARRAY_LEN(demand); i++)
            demand[i] = (struct sl_place_demand){random_request(&rng), 1 + (uint32_t)i % 7};
        assert_int_equal(sl_place_set_demand(p, demand, SL_ARRAY_LEN(demand), NULL), 0);
    }
    for (unsigned step = 0; step < STEPS; step++) {
        if (count && next_random(&rng) % 3 == 0) {
            size_t at = next_random(&rng) % count;
            assert_int_equal(sl_place_release(p, &live[at].r, &live[at].d, NULL), 0);
            shadow_move(&shadow, nodes, &live[at], -1);
            live[at] = live[--count];
        } else {
            struct placed x = {.r = random_request(&rng)};
            int rc = sl_place_decide(p, &x.r, NULL, &x.d, NULL);
            if (rc == 0) {
                assert_int_equal(sl_place_commit(p, &x.r, &x.d, NULL), 0);
                shadow_move(&shadow, nodes, &x, 1);
                live[count++] = x;
            } else {
                assert_int_equal(rc, -ENOSPC);
                refused++;
                int32_t scores[NODES];
                assert_int_equal(sl_place_scores(p, &x.r, scores, NULL), 0);
                for (uint32_t n = 0; n < NODES; n++)
                    assert_int_equal(scores[n], INT32_MIN);
            }
        }
        shadow_check(&shadow, nodes);
        if (step % 400 == 399)
            audit(p);
    }
    audit(p);
    assert_true(count > 20 && refused > 20);
    while (count--)
        assert_int_equal(sl_place_release(p, &live[count].r, &live[count].d, NULL), 0);
    struct sl_place_totals t;
    sl_place_totals(p, &t);
    assert_int_equal(t.gpu_free_milli, t.gpu_milli);
    assert_int_equal(t.cpu_free_milli, t.cpu_milli);
    assert_int_equal(t.pods, 0);
    audit(p);
    sl_place_destroy(p);
}

static void test_no_policy_overcommits_and_caches_stay_true(void **state)
{
    (void)state;
    for (unsigned policy = 0; policy < SL_PLACE_POLICIES; policy++)
        for (uint64_t seed = 1; seed <= 2; seed++)
            history((enum sl_place_policy)policy, seed, false);
}

static void test_learning_keeps_the_same_promises(void **state)
{
    (void)state;
    history(SL_PLACE_FGD, 11, true);
    history(SL_PLACE_SLUICE, 12, true);
}

static void test_the_same_seed_decides_the_same(void **state)
{
    (void)state;
    for (unsigned policy = 0; policy < SL_PLACE_POLICIES; policy++) {
        struct sl_place_node nodes[NODES];
        struct sl_placer *a, *b;
        struct sl_place_config config;
        uint64_t rng = 99;
        random_nodes(nodes, NODES, &rng);
        sl_place_config_init(&config, (enum sl_place_policy)policy);
        config.learn_every = 64;
        assert_int_equal(sl_place_create(&config, nodes, NODES, &a, NULL), 0);
        assert_int_equal(sl_place_create(&config, nodes, NODES, &b, NULL), 0);
        for (unsigned i = 0; i < 300; i++) {
            struct sl_place_request r = random_request(&rng);
            struct sl_place_decision x, y;
            int rc = sl_place_decide(a, &r, NULL, &x, NULL);
            assert_int_equal(sl_place_decide(b, &r, NULL, &y, NULL), rc);
            if (rc)
                continue;
            assert_true(x.node == y.node && x.gpus == y.gpus && x.mig_start == y.mig_start);
            assert_int_equal(sl_place_commit(a, &r, &x, NULL), 0);
            assert_int_equal(sl_place_commit(b, &r, &y, NULL), 0);
        }
        sl_place_destroy(a);
        sl_place_destroy(b);
    }
}

/* More kinds of request than the cache holds: old ones make room, answers stay right. */
static void test_many_kinds_are_evicted_quietly(void **state)
{
    (void)state;
    struct sl_place_node nodes[NODES];
    struct sl_placer *p;
    struct sl_place_config config;
    uint64_t rng = 5;
    random_nodes(nodes, NODES, &rng);
    sl_place_config_init(&config, SL_PLACE_BEST_FIT);
    assert_int_equal(sl_place_create(&config, nodes, NODES, &p, NULL), 0);
    for (unsigned i = 0; i < 1500; i++) {
        struct sl_place_request r = {.cpu_milli = i + 1, .gpu_count = 1, .cores_permille = 1};
        struct sl_place_decision d;
        assert_int_equal(sl_place_decide(p, &r, NULL, &d, NULL), 0);
        if (i % 50 == 0)
            assert_int_equal(sl_place_commit(p, &r, &d, NULL), 0);
    }
    audit(p);
    sl_place_destroy(p);
}

static void test_nodes_join_and_close(void **state)
{
    (void)state;
    for (unsigned policy = SL_PLACE_BEST_FIT; policy < SL_PLACE_POLICIES; policy++) {
        struct sl_place_node nodes[NODES];
        struct sl_placer *p;
        struct sl_place_config config;
        uint64_t rng = 17;
        random_nodes(nodes, NODES, &rng);
        sl_place_config_init(&config, (enum sl_place_policy)policy);
        config.learn_every = 32;
        assert_int_equal(sl_place_create(&config, nodes, 1, &p, NULL), 0);
        for (uint32_t i = 1; i < NODES; i++) {
            uint32_t at;
            nodes[i].model = (uint8_t)(i % 60);
            assert_int_equal(sl_place_add_node(p, &nodes[i], &at, NULL), 0);
            assert_int_equal(at, i);
            if (i % 3 == 0)
                sl_place_open_node(p, i, false);
            for (unsigned k = 0; k < 10; k++) {
                struct sl_place_request r = random_request(&rng);
                struct sl_place_decision d;
                if (sl_place_decide(p, &r, NULL, &d, NULL) != 0)
                    continue;
                assert_true(d.node == 0 || d.node % 3 != 0);
                assert_int_equal(sl_place_commit(p, &r, &d, NULL), 0);
            }
            audit(p);
        }
        sl_place_destroy(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_policy_overcommits_and_caches_stay_true),
        cmocka_unit_test(test_learning_keeps_the_same_promises),
        cmocka_unit_test(test_the_same_seed_decides_the_same),
        cmocka_unit_test(test_many_kinds_are_evicted_quietly),
        cmocka_unit_test(test_nodes_join_and_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
