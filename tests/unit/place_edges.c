/* SPDX-License-Identifier: Apache-2.0 */
/* Placement at its edges: nonsense is refused with a reason, an engine that grows and learns still audits, a
 * release of what is not held changes nothing. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/place.h"

static struct sl_place_node node(uint8_t gpus, uint8_t model)
{
    struct sl_place_node n = {
        .cpu_milli = 64000, .memory_mib = 1 << 18, .model = model, .gpu_count = gpus};
    for (unsigned i = 0; i < gpus && i < SL_PLACE_MAX_GPUS; i++)
        n.gpus[i] = (struct sl_place_gpu){.memory_mib = 81920, .mig = true};
    return n;
}

static const struct sl_place_request half = {
    .cpu_milli = 1000, .memory_mib = 1024, .cores_permille = 500, .gpu_count = 1};
static const struct sl_place_request whole = {
    .cpu_milli = 1000, .cores_permille = SL_PLACE_WHOLE, .gpu_count = 1};
static const struct sl_place_request instance = {.gpu_count = 1, .mig = SL_PLACE_MIG_1G};

static struct sl_placer *engine(enum sl_place_policy policy)
{
    struct sl_place_config config;
    struct sl_placer *p = NULL;
    struct sl_err err = SL_ERR_INIT;
    const struct sl_place_node nodes[] = {node(4, 0), node(2, 1), node(0, 0)};
    sl_place_config_init(&config, policy);
    assert_int_equal(sl_place_create(&config, nodes, 3, &p, &err), 0);
    return p;
}

static bool fits(struct sl_placer *p, const struct sl_place_request *r, uint32_t at)
{
    int32_t scores[16];
    assert_int_equal(sl_place_scores(p, r, scores, NULL), 0);
    return scores[at] != INT32_MIN;
}

static void test_nonsense(void **state)
{
    (void)state;
    struct sl_place_config config;
    struct sl_placer *p = NULL;
    struct sl_err err = SL_ERR_INIT;
    struct sl_place_node many = node(SL_PLACE_MAX_GPUS + 1, 0),
                         strange = node(1, SL_PLACE_MAX_MODELS);
    uint32_t cores = 1, memory = 1;
    int32_t scores[16];
    assert_string_equal(sl_place_policy_name(SL_PLACE_POLICIES), "?");
    sl_place_config_init(&config, SL_PLACE_POLICIES);
    assert_int_equal(sl_place_create(&config, NULL, 0, &p, &err), -EINVAL);
    sl_place_config_init(&config, SL_PLACE_SLUICE);
    assert_int_equal(sl_place_create(&config, &many, 1, &p, &err), -EINVAL);
    assert_int_equal(sl_place_create(&config, &strange, 1, &p, &err), -EINVAL);
    assert_int_equal(sl_place_create(&config, NULL, SIZE_MAX, &p, &err), -EINVAL);
    sl_place_destroy(NULL);
    p = engine(SL_PLACE_SLUICE);
    sl_place_open_node(p, 99, false);
    sl_place_open_node(p, 0, true); /* it is */
    sl_place_gpu_free(p, 99, 0, &cores, &memory);
    assert_int_equal(cores + memory, 0);
    sl_place_gpu_free(p, 0, 99, &cores, &memory);
    assert_int_equal(cores + memory, 0);
    assert_true(sl_place_fragmentation(p, 0) <= 0);
    struct sl_place_request bad = half;
    bad.gpu_count = SL_PLACE_MAX_GPUS + 1;
    assert_int_equal(sl_place_scores(p, &bad, scores, &err), -EINVAL);
    bad = instance;
    bad.gpu_memory_mib = 5;
    assert_int_equal(sl_place_validate(&bad, &err), -EINVAL);
    bad = instance;
    bad.gpu_memory_permille = 5;
    assert_int_equal(sl_place_validate(&bad, &err), -EINVAL);
    assert_int_equal(sl_place_audit(p, &err), 0);
    sl_place_destroy(p);
}

static void test_wrong_decisions(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_placer *p = engine(SL_PLACE_BEST_FIT);
    struct sl_place_decision d = {.node = 0, .gpus = 1};
    assert_int_equal(sl_place_release(p, &half, &d, &err), -EINVAL); /* nothing is there */
    assert_int_equal(sl_place_commit(p, &half, &d, &err), 0);
    assert_int_equal(sl_place_release(p, &whole, &d, &err), -EINVAL);
    assert_int_equal(sl_place_release(p, &instance, &d, &err), -EINVAL);
    struct sl_place_request more = half;
    more.cpu_milli = 2000;
    assert_int_equal(sl_place_release(p, &more, &d, &err), -EINVAL);
    more = half;
    more.memory_mib = 4096;
    assert_int_equal(sl_place_release(p, &more, &d, &err), -EINVAL);
    struct sl_place_decision far = {.node = 0, .gpus = 1u << 15};
    assert_int_equal(sl_place_commit(p, &half, &far, &err), -EINVAL);
    far = (struct sl_place_decision){.node = 99, .gpus = 1};
    assert_int_equal(sl_place_commit(p, &half, &far, &err), -EINVAL);
    struct sl_place_decision second = {.node = 0, .gpus = 2};
    assert_int_equal(sl_place_commit(p, &instance, &second, &err), 0);
    assert_true(sl_place_commit(p, &instance, &second, &err) < 0); /* that slice is taken */
    struct sl_place_decision nowhere = {.node = 0, .gpus = 2, .mig_start = 200};
    assert_int_equal(sl_place_release(p, &instance, &nowhere, &err), -EINVAL);
    assert_true(sl_place_commit(p, &instance, &nowhere, &err) < 0);
    struct sl_place_decision third = {.node = 0, .gpus = 4};
    assert_int_equal(sl_place_release(p, &instance, &third, &err), -EINVAL);
    assert_int_equal(sl_place_audit(p, &err), 0);
    assert_int_equal(sl_place_release(p, &instance, &second, &err), 0);
    assert_int_equal(sl_place_release(p, &half, &d, &err), 0);
    struct sl_place_totals totals;
    sl_place_totals(p, &totals);
    assert_int_equal(totals.pods, 0);
    assert_int_equal(totals.gpu_free_milli, totals.gpu_milli);
    sl_place_destroy(p);
}

static void test_scores(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    for (enum sl_place_policy policy = 0; policy < SL_PLACE_POLICIES; policy++) {
        struct sl_placer *p = engine(policy);
        const struct sl_place_demand demand[] = {{half, 10}, {whole, 5}, {instance, 1}};
        const struct sl_place_request cpu = {.cpu_milli = 500}, large = {.memory_mib = UINT32_MAX};
        assert_int_equal(sl_place_set_demand(p, demand, 3, &err), 0);
        assert_true(fits(p, &half, 0));
        assert_true(fits(p, &cpu, 2));
        assert_false(fits(p, &half, 2)); /* no GPU there */
        assert_false(fits(p, &large, 0));
        sl_place_open_node(p, 0, false);
        assert_false(fits(p, &half, 0));
        sl_place_open_node(p, 0, true);
        assert_true(sl_place_fragmentation(p, 0) >= 0);
        assert_int_equal(sl_place_audit(p, &err), 0);
        sl_place_destroy(p);
    }
}

/* One life of an engine: it learns, is asked, grows, and gives everything back. */
static void live(enum sl_place_policy policy)
{
    struct sl_place_config config;
    struct sl_placer *p = NULL;
    struct sl_err err = SL_ERR_INIT;
    struct sl_place_node nodes[3] = {node(4, 0), node(2, 1), node(0, 0)};
    const struct sl_place_demand demand[] = {{half, 10}, {whole, 5}, {instance, 1}};
    const struct sl_place_request *asks[] = {&half, &whole, &instance};
    struct sl_place_decision done[3];
    sl_place_config_init(&config, policy);
    config.learn_every = 2;
    assert_int_equal(sl_place_create(&config, nodes, 3, &p, &err), 0);
    assert_int_equal(sl_place_set_demand(p, demand, 3, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sl_place_decide(p, asks[i], NULL, &done[i], &err), 0);
        assert_int_equal(sl_place_commit(p, asks[i], &done[i], &err), 0);
    }
    assert_true(fits(p, &half, 0));
    for (uint8_t i = 0; i < 6; i++) { /* grows, and brings models the demand has not seen */
        struct sl_place_node late = node(8, (uint8_t)(2 + i));
        assert_int_equal(sl_place_add_node(p, &late, NULL, &err), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(sl_place_release(p, asks[i], &done[i], &err), 0);
    assert_int_equal(sl_place_audit(p, &err), 0);
    assert_int_equal(sl_place_decide(p, &whole, NULL, &done[0], &err), 0);
    sl_place_destroy(p);
}

static void test_life(void **state)
{
    (void)state;
    for (enum sl_place_policy policy = 0; policy < SL_PLACE_POLICIES; policy++)
        live(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_wrong_decisions),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
