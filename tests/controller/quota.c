/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a namespace against its quotas; what DRA has given out; quantities. */
#include "pods.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "controller/claims.h"
#include "controller/extender.h"
#include "controller/quota.h"

static void quota_set(struct sl_quota *q, const char *name, const char *hard)
{
    char text[512];
    struct sl_err err = SL_ERR_INIT;
    (void)snprintf(text, sizeof(text),
                   "{'metadata':{'namespace':'ns','name':'%s'},'spec':{'hard':{%s}}}", name, hard);
    json_t *j = quoted(text);
    if (sl_quota_set(q, j, &err) != 0)
        fail_msg("%s", err.msg);
    json_decref(j);
}

static void pod_set(struct sl_cluster *c, unsigned number, unsigned mib, unsigned cores,
                    const char *phase)
{
    char text[512];
    (void)snprintf(
        text, sizeof(text),
        "{'metadata':{'uid':'u%u','namespace':'ns','annotations':{'sluice.io/"
        "request':'{\\\"version\\\":1,"
        "\\\"containers\\\":1,\\\"parts\\\":[{\\\"container\\\":\\\"a\\\",\\\"gpus\\\":2,"
        "\\\"memoryMiB\\\":%u,"
        "\\\"cores\\\":%u}],\\\"admission\\\":\\\"adm-%u\\\"}'}},'status':{'phase':'%s'}}",
        number, mib, cores, number, phase);
    json_t *j = quoted(text);
    struct sl_err err = SL_ERR_INIT;
    if (sl_cluster_pod_set(c, j, 1, &err) != 0)
        fail_msg("%s", err.msg);
    json_decref(j);
}

static void seen(void *data, const char *admission)
{
    sl_quota_seen(data, admission);
}

static void test_quota(void **state)
{
    (void)state;
    struct sl_quota q = {.pending = NULL};
    struct sl_cluster_options opt = {
        .policy = SL_PLACE_SLUICE, .seed = 1, .admitted = seen, .data = &q};
    struct sl_cluster *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_cluster_create(&opt, &c, &err), 0);
    quota_set(&q, "gpus",
              "'limits.nvidia.com/gpumem':'10Ki','requests.nvidia.com/gpucores':'150','pods':'1'");
    assert_true(sl_quota_covers(&q, "ns"));
    assert_false(sl_quota_covers(&q, "n") || sl_quota_covers(&q, "nsx"));
    assert_int_equal(sl_quota_check(&q, c, "ns", 10240, 150, &err), 0);
    assert_int_equal(sl_quota_check(&q, c, "ns", 10241, 0, &err), -EDQUOT);
    assert_non_null(
        strstr(err.msg, "ns/gpus allows 10240 MiB of GPU memory: 0 are promised already"));
    assert_int_equal(sl_quota_check(&q, c, "ns", 1, 151, &err), -EDQUOT);
    assert_int_equal(sl_quota_check(&q, c, "n", 99999, 999, &err), 0); /* another namespace */
    /* Let in, then seen: counted once all along. */
    sl_quota_admit(&q, "adm-1", "ns", 8000, 40, 100);
    assert_int_equal(sl_quota_check(&q, c, "ns", 2241, 0, &err), -EDQUOT);
    pod_set(c, 1, 4000, 20, "Pending");
    assert_int_equal(sl_quota_check(&q, c, "ns", 2240, 0, &err), 0);
    assert_int_equal(sl_quota_check(&q, c, "ns", 2241, 0, &err), -EDQUOT);
    /* Let in, never created. */
    sl_quota_admit(&q, "adm-2", "ns", 2240, 0, 100);
    assert_int_equal(sl_quota_check(&q, c, "ns", 1, 0, &err), -EDQUOT);
    sl_quota_expire(&q, 100);
    assert_int_equal(sl_quota_check(&q, c, "ns", 2240, 0, &err), 0);
    pod_set(c, 1, 4000, 20, "Succeeded");
    assert_int_equal(sl_quota_check(&q, c, "ns", 10240, 0, &err), 0);
    quota_set(&q, "more", "'limits.aliyun.com/gpu-mem':'2'"); /* GiB; the strictest counts */
    assert_int_equal(sl_quota_check(&q, c, "ns", 2049, 0, &err), -EDQUOT);
    quota_set(&q, "more", "'requests.volcano.sh/gpu-memory':'1024'");
    assert_int_equal(sl_quota_check(&q, c, "ns", 1024, 0, &err), 0);
    assert_int_equal(sl_quota_check(&q, c, "ns", 1025, 0, &err), -EDQUOT);
    sl_quota_gone(&q, "ns", "more");
    sl_quota_gone(&q, "ns", "gpus");
    assert_int_equal(sl_quota_check(&q, c, "ns", 999999, 999, &err), 0);
    sl_quota_admit(&q, "left", "ns", 1, 0, 100);
    sl_quota_free(&q);
    sl_cluster_destroy(c);
}

/* Pods that nobody annotated count by what their containers say; percentages and whole GPUs by the largest card. */
static void test_unasked(void **state)
{
    (void)state;
    struct sl_cluster_options opt = {.policy = SL_PLACE_SLUICE, .seed = 1};
    struct sl_cluster *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    uint64_t memory, cores;
    assert_int_equal(sl_cluster_create(&opt, &c, &err), 0);
    sl_cluster_card_seen(c, 80000);
    sl_cluster_card_seen(c, 40000);
    static const struct {
        const char *limits, *more;
        uint64_t memory, cores;
    } rows[] = {{"'nvidia.com/gpu':'2'", "'nodeName':'n1'", 160000, 200},
                {"'nvidia.com/gpumem-percentage':'50'", "", 40000, 0},
                {"'cpu':'1'", "'nodeName':'n1'", 0, 0},
                {"'nvidia.com/gpumem':'3Gi'", "", 0, 0}};
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        json_t *pod = pod_of(rows[i].limits, "'uid':'u','namespace':'ns'", rows[i].more);
        for (int twice = 0; twice < 2; twice++) {
            assert_int_equal(sl_cluster_pod_set(c, pod, 1, &err), 0);
            sl_cluster_used(c, "ns", &memory, &cores);
            assert_int_equal(memory, rows[i].memory);
            assert_int_equal(cores, rows[i].cores);
        }
        json_decref(pod);
        sl_cluster_pod_gone(c, "u");
        sl_cluster_used(c, "ns", &memory, &cores);
        assert_true(memory == 0 && cores == 0);
    }
    sl_cluster_destroy(c);
}

static void claim(struct sl_claims *c, const char *uid, const char *pool, const char *memory)
{
    json_t *j = json_pack("{s:{s:s},s:{s:{s:{s:[{s:s,s:s,s:{s:s}}]}}}}", "metadata", "uid", uid,
                          "status", "allocation", "devices", "results", "driver", "gpu.sluice.io",
                          "pool", pool, "consumedCapacity", "memory", memory);
    sl_claims_claim_set(c, j);
    json_decref(j);
}

static void test_claims(void **state)
{
    (void)state;
    struct sl_claims c = {.size_count = 0};
    json_t *slice = quoted(
        "{'metadata':{'name':'s'},'spec':{'driver':'gpu.sluice.io','pool':{'name':'n1'},'devices':["
        "{'attributes':{'type':{'string':'share'}},'capacity':{'memory':{'value':'80Gi'}}},"
        "{'attributes':{'type':{'string':'gpu'}},'capacity':{'memory':{'value':'80Gi'}}},"
        "{'attributes':{'type':{'string':'share'}},'capacity':{'memory':{'value':'40Gi'}}}]}}");
    assert_int_equal(sl_claims_slice_set(&c, slice, NULL), 0);
    assert_int_equal(sl_claims_slice_set(&c, slice, NULL), 0); /* told twice */
    assert_true(c.size_count == 2 && c.size_mib[0] == 40960 && c.size_mib[1] == 81920);
    assert_int_equal(sl_claims_fullness(&c, "n1"), 0);
    claim(&c, "a", "n1", "30Gi");
    claim(&c, "b", "n1", "30Gi");
    claim(&c, "b", "n1", "60Gi");
    claim(&c, "x", "n2", "60Gi");
    assert_int_equal(sl_claims_fullness(&c, "n1"), 750);
    assert_int_equal(sl_claims_fullness(&c, "n2"), 0);
    /* Pods that DRA places: the fuller node first, never a word about where they may go. */
    struct sl_extender e = {.slot_resource = "nvidia.com/gpu", .claims = &c};
    static const char body[] =
        "{\"Pod\":{\"spec\":{\"resourceClaims\":[{\"name\":\"x\"}]}},\"NodeNames\":[\"n2\","
        "\"n1\"]}";
    char *answer = sl_extender_prioritize(&e, body, sizeof(body) - 1);
    assert_string_equal(answer, "[{\"Host\":\"n2\",\"Score\":0},{\"Host\":\"n1\",\"Score\":10}]");
    free(answer);
    answer = sl_extender_filter(&e, body, sizeof(body) - 1, 1);
    assert_non_null(strstr(answer, "\"NodeNames\":[\"n2\",\"n1\"]"));
    free(answer);
    sl_claims_claim_gone(&c, "b");
    sl_claims_claim_gone(&c, "nobody");
    assert_int_equal(sl_claims_fullness(&c, "n1"), 250);
    sl_claims_slice_gone(&c, "s");
    assert_int_equal(c.size_count, 0);
    sl_claims_free(&c);
    json_decref(slice);
}

/* The driver under NVIDIA's name: its own attributes have their domain, and decide. */
static void test_claims_under_nvidias_name(void **state)
{
    (void)state;
    struct sl_claims c = {.size_count = 0};
    json_t *slice =
        quoted("{'metadata':{'name':'s'},'spec':{'driver':'gpu.nvidia.com','pool':{'name':'n1'},'"
               "devices':["
               "{'attributes':{'type':{'string':'gpu'},'gpu.sluice.io/type':{'string':'share'}},"
               "'capacity':{'memory':{'value':'80Gi'}}},"
               "{'attributes':{'type':{'string':'whole'},'gpu.sluice.io/type':{'string':'gpu'}},"
               "'capacity':{'memory':{'value':'80Gi'}}}]}}");
    json_t *held =
        quoted("{'metadata':{'uid':'a'},'status':{'allocation':{'devices':{'results':[{'driver':"
               "'gpu.nvidia.com','pool':'n1','consumedCapacity':{'memory':'40Gi'}}]}}}}");
    assert_int_equal(sl_claims_slice_set(&c, slice, NULL), 0);
    assert_true(c.size_count == 1 && c.size_mib[0] == 81920);
    sl_claims_claim_set(&c, held);
    assert_int_equal(sl_claims_fullness(&c, "n1"), 500);
    sl_claims_free(&c);
    json_decref(slice);
    json_decref(held);
}

static void test_quantities(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"20480", 20480},
                {"20Ki", 20480},
                {"10Gi", 10ULL << 30},
                {"1.5G", 1500000000},
                {"12e6", 12000000},
                {"2500m", 2}};
    static const char *const bad[] = {
        "", "-1", "x", "1x", "Gi", "nan", "inf", "1e300", "99999999999999999999"};
    uint64_t v;
    for (size_t i = 0; i < SL_ARRAY_LEN(good); i++) {
        json_t *j = json_string(good[i].text);
        assert_int_equal(sl_jget_quantity(j, 0, &v), 0);
        assert_int_equal(v, good[i].value);
        json_decref(j);
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        json_t *j = json_string(bad[i]);
        assert_int_equal(sl_jget_quantity(j, 0, &v), -EINVAL);
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quota), cmocka_unit_test(test_unasked), cmocka_unit_test(test_claims),
        cmocka_unit_test(test_claims_under_nvidias_name), cmocka_unit_test(test_quantities)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
