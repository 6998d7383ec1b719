/* SPDX-License-Identifier: Apache-2.0 */
/* Small clusters where one can say by hand what each policy must do. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "policy/place.h"

static struct sl_place_node node(unsigned model, unsigned gpus, unsigned cpu_milli)
{
    struct sl_place_node n = {.cpu_milli = cpu_milli,
                              .memory_mib = 1u << 20,
                              .model = (uint8_t)model,
                              .gpu_count = (uint8_t)gpus};
    for (unsigned g = 0; g < gpus; g++)
        n.gpus[g] = (struct sl_place_gpu){.memory_mib = 80000,
                                          .numa = (uint8_t)(g * 2 / gpus),
                                          .link_group = (uint8_t)(g / 2),
                                          .mig = true};
    return n;
}

static struct sl_place_request share(unsigned milli)
{
    return (struct sl_place_request){
        .cpu_milli = 1000, .gpu_count = 1, .cores_permille = (uint16_t)milli};
}

static struct sl_place_request whole(unsigned gpus)
{
    return (struct sl_place_request){
        .cpu_milli = 1000, .gpu_count = (uint8_t)gpus, .cores_permille = SL_PLACE_WHOLE};
}

static struct sl_placer *cluster(enum sl_place_policy policy, const struct sl_place_node *nodes,
                                 size_t count)
{
    struct sl_place_config config;
    struct sl_placer *p;
    sl_place_config_init(&config, policy);
    assert_int_equal(sl_place_create(&config, nodes, count, &p, NULL), 0);
    return p;
}

static struct sl_place_decision put(struct sl_placer *p, struct sl_place_request r)
{
    struct sl_place_decision d;
    assert_int_equal(sl_place_decide(p, &r, NULL, &d, NULL), 0);
    assert_int_equal(sl_place_commit(p, &r, &d, NULL), 0);
    return d;
}

/* Puts it on that node, wherever the policy would. */
static struct sl_place_decision put_on(struct sl_placer *p, struct sl_place_request r, unsigned on)
{
    struct sl_place_decision d;
    uint64_t allow = 1ULL << on;
    assert_int_equal(sl_place_decide(p, &r, &allow, &d, NULL), 0);
    assert_int_equal(d.node, on);
    assert_int_equal(sl_place_commit(p, &r, &d, NULL), 0);
    return d;
}

static void test_names(void **state)
{
    (void)state;
    enum sl_place_policy p;
    struct sl_err err = SL_ERR_INIT;
    for (unsigned i = 0; i < SL_PLACE_POLICIES; i++) {
        assert_int_equal(sl_place_policy_parse(sl_place_policy_name(i), &p, NULL), 0);
        assert_int_equal(p, i);
    }
    assert_int_equal(sl_place_policy_parse("fdg", &p, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "fgd"));
}

static void test_senseless_requests_are_refused(void **state)
{
    (void)state;
    const struct sl_place_request bad[] = {
        {.gpu_count = 1},
        {.gpu_count = 17, .cores_permille = 1000},
        {.gpu_count = 1, .cores_permille = 1001},
        {.gpu_count = 1, .gpu_memory_permille = 1001},
        {.gpu_count = 2, .mig = SL_PLACE_MIG_1G},
        {.gpu_count = 1, .mig = SL_PLACE_MIG_1G, .cores_permille = 100},
        {.gpu_count = 1, .mig = SL_PLACE_MIG_PROFILES},
    };
    struct sl_place_node n = node(0, 2, 8000);
    struct sl_placer *p = cluster(SL_PLACE_BEST_FIT, &n, 1);
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        struct sl_place_decision d;
        assert_int_equal(sl_place_decide(p, &bad[i], NULL, &d, NULL), -EINVAL);
    }
    sl_place_destroy(p);
}

static void test_binpack_fills_and_spread_spreads(void **state)
{
    (void)state;
    struct sl_place_node nodes[3] = {node(0, 4, 64000), node(0, 4, 64000), node(0, 4, 64000)};
    struct sl_placer *p = cluster(SL_PLACE_BINPACK, nodes, 3);
    struct sl_place_decision a = put(p, share(300)), b = put(p, share(300));
    assert_true(a.node == b.node && a.gpus == b.gpus);
    sl_place_destroy(p);

    p = cluster(SL_PLACE_SPREAD, nodes, 3);
    a = put(p, share(300));
    b = put(p, share(300));
    struct sl_place_decision c = put(p, share(300)), d = put(p, share(300));
    assert_true(a.node != b.node && b.node != c.node && a.node != c.node);
    assert_true(d.node != a.node || d.gpus != a.gpus); /* a fresh GPU even when the node repeats */
    sl_place_destroy(p);
}

static void test_best_fit_takes_the_tightest(void **state)
{
    (void)state;
    struct sl_place_node nodes[2] = {node(0, 2, 64000), node(0, 2, 64000)};
    struct sl_placer *p = cluster(SL_PLACE_BEST_FIT, nodes, 2);
    (void)put_on(p, share(700), 1);
    struct sl_place_decision d = put(p, share(300));
    assert_int_equal(d.node, 1);
    assert_int_equal(d.gpus, 1); /* fills the 300 that were left */
    sl_place_destroy(p);
}

static void test_first_fit_keeps_one_order(void **state)
{
    (void)state;
    struct sl_place_node nodes[8];
    for (size_t i = 0; i < 8; i++)
        nodes[i] = node(0, 1, 64000);
    struct sl_placer *p = cluster(SL_PLACE_FIRST_FIT, nodes, 8);
    struct sl_place_decision a = put(p, whole(1)), b = put(p, whole(1));
    assert_true(a.node != b.node);
    assert_int_equal(
        sl_place_release(
            p,
            &(struct sl_place_request){.cpu_milli = 1000, .gpu_count = 1, .cores_permille = 1000},
            &a, NULL),
        0);
    assert_int_equal(put(p, whole(1)).node, a.node);
    sl_place_destroy(p);
}

static void test_clustering_keeps_types_together(void **state)
{
    (void)state;
    struct sl_place_node nodes[2] = {node(0, 8, 64000), node(0, 8, 64000)};
    struct sl_placer *p = cluster(SL_PLACE_CLUSTERING, nodes, 2);
    (void)put_on(p, share(100), 0);
    (void)put_on(p, whole(1), 1);
    assert_int_equal(put(p, share(100)).node, 0);
    assert_int_equal(put(p, whole(1)).node, 1);
    sl_place_destroy(p);
}

static void test_packing_prefers_used_gpus_then_used_nodes(void **state)
{
    (void)state;
    struct sl_place_node nodes[2] = {node(0, 4, 64000), node(0, 4, 64000)};
    struct sl_placer *p = cluster(SL_PLACE_PACKING, nodes, 2);
    (void)put_on(p, share(500), 1);
    assert_int_equal(put(p, share(400)).gpus, 1);
    assert_int_equal(put(p, whole(1)).node, 1);
    sl_place_destroy(p);
}

/* Half of the demand wants whole GPUs: fgd puts a half on a broken card, not on a fresh one. */
static void test_fgd_spares_whole_gpus(void **state)
{
    (void)state;
    struct sl_place_node nodes[2] = {node(0, 2, 64000), node(0, 2, 64000)};
    const struct sl_place_demand demand[] = {{whole(1), 1}, {share(500), 1}};
    const enum sl_place_policy policies[] = {SL_PLACE_FGD, SL_PLACE_SLUICE};
    for (size_t i = 0; i < 2; i++) {
        struct sl_placer *p = cluster(policies[i], nodes, 2);
        assert_int_equal(sl_place_set_demand(p, demand, 2, NULL), 0);
        (void)put_on(p, share(500), 0);
        assert_true(sl_place_fragmentation(p, 0) > 249 && sl_place_fragmentation(p, 0) < 251);
        struct sl_place_decision d = put(p, share(500));
        assert_int_equal(d.node, 0);
        assert_int_equal(d.gpus, 1);
        assert_true(sl_place_fragmentation(p, 0) < 1);
        sl_place_destroy(p);
    }
}

/* As many T4 are left as T4-only pods will want: the others have to go elsewhere. */
static void test_sluice_keeps_scarce_models_for_those_who_need_them(void **state)
{
    (void)state;
    struct sl_place_node nodes[20];
    struct sl_place_request t4 = whole(1);
    t4.models = 1u << 1;
    for (size_t i = 0; i < 20; i++)
        nodes[i] = node(i < 4, 2, 64000); /* 8 GPUs of model 1, 32 of model 0 */
    const struct sl_place_demand demand[] = {{t4, 2}, {whole(1), 8}};
    struct sl_placer *p = cluster(SL_PLACE_SLUICE, nodes, 20);
    assert_int_equal(sl_place_set_demand(p, demand, 2, NULL), 0);
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned k = 0; k < 4; k++)
            (void)put(p, whole(1));
        assert_true(put(p, t4).node < 4); /* there is always one left for it */
    }
    struct sl_place_totals t;
    sl_place_totals(p, &t);
    assert_int_equal(t.gpu_free_milli, 0);
    sl_place_destroy(p);
}

/* Whole nodes are kept for 8-GPU pods as long as there is room elsewhere. */
static void test_sluice_keeps_places_for_multi_gpu_pods(void **state)
{
    (void)state;
    struct sl_place_node nodes[6];
    for (size_t i = 0; i < 6; i++)
        nodes[i] = node(0, 8, 64000);
    const struct sl_place_demand demand[] = {{whole(8), 1}, {whole(1), 8}};
    struct sl_placer *p = cluster(SL_PLACE_SLUICE, nodes, 6);
    assert_int_equal(sl_place_set_demand(p, demand, 2, NULL), 0);
    for (unsigned i = 0; i < 24; i++)
        (void)put(p, whole(1));
    for (unsigned i = 0; i < 3; i++)
        (void)put(p, whole(8));
    sl_place_destroy(p);
}

static void test_model_constraints_and_closed_nodes(void **state)
{
    (void)state;
    struct sl_place_node nodes[2] = {node(0, 1, 64000), node(1, 1, 64000)};
    struct sl_placer *p = cluster(SL_PLACE_BEST_FIT, nodes, 2);
    struct sl_place_request r = whole(1);
    struct sl_place_decision d;
    r.models = 1u << 1;
    assert_int_equal(put(p, r).node, 1);
    assert_int_equal(sl_place_decide(p, &r, NULL, &d, NULL), -ENOSPC);
    sl_place_open_node(p, 0, false);
    r.models = 0;
    assert_int_equal(sl_place_decide(p, &r, NULL, &d, NULL), -ENOSPC);
    sl_place_open_node(p, 0, true);
    assert_int_equal(put(p, r).node, 0);
    sl_place_destroy(p);
}

static void test_two_dimensions(void **state)
{
    (void)state;
    struct sl_place_node n = node(0, 1, 64000);
    struct sl_placer *p = cluster(SL_PLACE_BEST_FIT, &n, 1);
    struct sl_place_request thin = share(100), fat = share(100);
    struct sl_place_decision d;
    uint32_t cores, memory;
    thin.gpu_memory_mib = 60000;
    fat.gpu_memory_mib = 30000;
    (void)put(p, thin);
    assert_int_equal(sl_place_decide(p, &fat, NULL, &d, NULL), -ENOSPC); /* cores are there */
    fat.gpu_memory_mib = 20000;
    (void)put(p, fat);
    sl_place_gpu_free(p, 0, 0, &cores, &memory);
    assert_int_equal(cores, 800);
    assert_int_equal(memory, 0);
    sl_place_destroy(p);
}

static void test_numa_and_links(void **state)
{
    (void)state;
    struct sl_place_node n = node(0, 8, 64000);
    struct sl_placer *p = cluster(SL_PLACE_BEST_FIT, &n, 1);
    struct sl_place_request two = whole(2), four = whole(4);
    (void)put(p, whole(1)); /* takes GPU 0: its link partner 1 is alone now */
    two.prefer = SL_PLACE_PREFER_LINK;
    four.prefer = SL_PLACE_PREFER_NUMA;
    assert_int_equal(put(p, two).gpus, 0x0c);  /* 2 and 3 are linked */
    assert_int_equal(put(p, four).gpus, 0xf0); /* one NUMA node */
    sl_place_destroy(p);
}

static void test_mig_instances_go_where_they_cost_least(void **state)
{
    (void)state;
    struct sl_place_node n = node(0, 1, 64000);
    struct sl_placer *p = cluster(SL_PLACE_BEST_FIT, &n, 1);
    struct sl_place_request mig = {.gpu_count = 1};
    struct sl_place_decision d;
    mig.mig = SL_PLACE_MIG_1G;
    (void)put(p, mig);
    mig.mig = SL_PLACE_MIG_4G; /* possible only if the 1g left slices 0-3 alone */
    assert_int_equal(put(p, mig).mig_start, 0);
    mig.mig = SL_PLACE_MIG_3G;
    assert_int_equal(sl_place_decide(p, &mig, NULL, &d, NULL), -ENOSPC);
    mig.mig = SL_PLACE_MIG_2G;
    assert_int_equal(put(p, mig).mig_start, 4);
    struct sl_place_request fraction = share(10);
    assert_int_equal(sl_place_decide(p, &fraction, NULL, &d, NULL), -ENOSPC); /* not mixed */
    sl_place_destroy(p);
}

static void test_what_was_not_taken_cannot_be_given_back(void **state)
{
    (void)state;
    struct sl_place_node n = node(0, 2, 64000);
    struct sl_placer *p = cluster(SL_PLACE_BEST_FIT, &n, 1);
    struct sl_place_request small = share(100), large = share(900);
    struct sl_place_decision d = put(p, small), wrong = {.node = 7, .gpus = 1};
    assert_int_equal(sl_place_release(p, &large, &d, NULL), -EINVAL);
    assert_int_equal(sl_place_release(p, &small, &wrong, NULL), -EINVAL);
    wrong = (struct sl_place_decision){.gpus = 0x3};
    assert_int_equal(sl_place_commit(p, &small, &wrong, NULL), -EINVAL);
    wrong = (struct sl_place_decision){.gpus = 0x1};
    struct sl_place_request full = whole(1);
    assert_int_equal(sl_place_commit(p, &full, &wrong, NULL), -ENOSPC);
    assert_int_equal(sl_place_release(p, &small, &d, NULL), 0);
    assert_int_equal(sl_place_release(p, &small, &d, NULL), -EINVAL);
    sl_place_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_senseless_requests_are_refused),
        cmocka_unit_test(test_binpack_fills_and_spread_spreads),
        cmocka_unit_test(test_best_fit_takes_the_tightest),
        cmocka_unit_test(test_first_fit_keeps_one_order),
        cmocka_unit_test(test_clustering_keeps_types_together),
        cmocka_unit_test(test_packing_prefers_used_gpus_then_used_nodes),
        cmocka_unit_test(test_fgd_spares_whole_gpus),
        cmocka_unit_test(test_sluice_keeps_scarce_models_for_those_who_need_them),
        cmocka_unit_test(test_sluice_keeps_places_for_multi_gpu_pods),
        cmocka_unit_test(test_model_constraints_and_closed_nodes),
        cmocka_unit_test(test_two_dimensions),
        cmocka_unit_test(test_numa_and_links),
        cmocka_unit_test(test_mig_instances_go_where_they_cost_least),
        cmocka_unit_test(test_what_was_not_taken_cannot_be_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
