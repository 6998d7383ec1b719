/* SPDX-License-Identifier: Apache-2.0 */
/* Pods as each project documents them, and what they are taken to ask for; and what is refused, with what
 * sentence. */
#include "pods.h"

#include <errno.h>

#include "base/cleanup.h"
#include "controller/dialect.h"

static int read_pod(const char *limits, const char *metadata, const char *spec,
                    struct sl_request *r, struct sl_err *err)
{
    json_t *pod = pod_of(limits, metadata, spec);
    int rc = sl_dialect_read(pod, r, err);
    json_decref(pod);
    return rc;
}

static void asks(const char *limits, unsigned count, uint32_t mib, unsigned percent, unsigned cores)
{
    struct sl_request r;
    struct sl_err err = SL_ERR_INIT;
    int rc = read_pod(limits, "", "", &r, &err);
    if (rc != SL_DIALECT_ASKS)
        fail_msg("%s: %d %s", limits, rc, err.msg);
    assert_int_equal(r.part_count, 1);
    assert_string_equal(r.part[0].container, "main");
    assert_int_equal(r.part[0].count, count);
    assert_int_equal(r.part[0].share.memory_bytes >> 20, mib);
    assert_int_equal(r.part[0].share.memory_percent, percent);
    assert_int_equal(r.part[0].share.cores_permille / 10, cores);
}

static void refused(const char *limits, const char *metadata, const char *spec, const char *words)
{
    struct sl_request r;
    struct sl_err err = SL_ERR_INIT;
    int rc = read_pod(limits, metadata, spec, &r, &err);
    if (rc >= 0 || !strstr(err.msg, words))
        fail_msg("%s: %d \"%s\" has no \"%s\"", limits, rc, err.msg, words);
}

static void test_hami(void **state)
{
    (void)state;
    asks("'nvidia.com/gpu':'1','nvidia.com/gpumem':'3000','nvidia.com/gpucores':'30'", 1, 3000, 0,
         30);
    asks("'nvidia.com/gpu':2,'nvidia.com/gpumem':3000,'nvidia.com/gpucores':30", 2, 3000, 0, 30);
    asks("'nvidia.com/gpu':'2','nvidia.com/gpumem-percentage':'50'", 2, 0, 50, 0);
    asks("'nvidia.com/gpumem':'10240'", 1, 10240, 0, 0);                    /* the count is one */
    asks("'nvidia.com/gpumem':'10k'", 1, 10000, 0, 0);                      /* a quantity */
    asks("'nvidia.com/gpu':'1','nvidia.com/gpucores':'40'", 1, 0, 100, 40); /* all memory */
    asks("'nvidia.com/gpu':'1','nvidia.com/gpumem-percentage':'100'", 1, 0, 100, 100);
    asks("'nvidia.com/gpu':'1','nvidia.com/gpumem':'0','nvidia.com/gpucores':'20'", 1, 0, 100, 20);
}

static void test_hami_words(void **state)
{
    (void)state;
    struct sl_request r;
    assert_int_equal(
        read_pod("'nvidia.com/gpu':'1','nvidia.com/gpumem':'1','nvidia.com/priority':'0'", "", "",
                 &r, NULL),
        SL_DIALECT_ASKS);
    assert_int_equal(r.part[0].share.priority, SL_PRIORITY_HIGH);
    assert_int_equal(r.part[0].share.limit_permille / 10, 100); /* no share of time: what is idle */
    assert_int_equal(
        read_pod("'nvidia.com/gpu':'1','nvidia.com/gpumem':'1','nvidia.com/priority':1", "", "", &r,
                 NULL),
        SL_DIALECT_ASKS);
    assert_int_equal(r.part[0].share.priority, SL_PRIORITY_LOW);
    assert_int_equal(
        read_pod("'nvidia.com/gpu':'2'",
                 "'annotations':{'nvidia.com/use-gputype':'A100, V100','nvidia.com/nouse-gpuuuid':"
                 "'GPU-1','nvidia.com/numa-bind':'true'}",
                 "", &r, NULL),
        SL_DIALECT_ASKS);
    assert_true(r.numa && sl_share_whole(&r.part[0].share));
    assert_true(sl_request_allows(&r, "NVIDIA a100-SXM4-40GB", "GPU-2"));
    assert_true(sl_request_allows(&r, "Tesla V100", "GPU-2"));
    assert_false(sl_request_allows(&r, "Tesla V100", "GPU-1"));
    assert_false(sl_request_allows(&r, "NVIDIA H200", "GPU-2"));
}

/* A pod that asks for MIG or MPS by HAMi's annotation gets neither, so it is not let in with less. */
static void test_hami_mode(void **state)
{
    (void)state;
    struct sl_request r;
    static const char *const limits[] = {"'nvidia.com/gpu':'1','nvidia.com/gpumem':'8000'",
                                         "'nvidia.com/gpu':'1'"};
    for (size_t i = 0; i < 2; i++) {
        refused(limits[i], "'annotations':{'nvidia.com/vgpu-mode':'mig'}", "",
                "nvidia.com/vgpu-mode \"mig\" asks for a mode");
        refused(limits[i], "'annotations':{'nvidia.com/vgpu-mode':'mps'}", "", "remove");
        refused(limits[i], "'annotations':{'nvidia.com/vgpu-mode':7}", "", "remove");
        assert_true(read_pod(limits[i], "'annotations':{'nvidia.com/vgpu-mode':'hami-core'}", "",
                             &r, NULL) > 0);
        assert_true(read_pod(limits[i], "'annotations':{'nvidia.com/vgpu-mode':'mig,hami-core'}",
                             "", &r, NULL) > 0);
        assert_true(read_pod(limits[i], "'annotations':{'nvidia.com/vgpu-mode':''}", "", &r, NULL) >
                    0);
    }
    assert_int_equal(read_pod("", "'annotations':{'nvidia.com/vgpu-mode':'mig'}", "", &r, NULL),
                     SL_DIALECT_NOTHING);
}

static void test_plain_and_nothing(void **state)
{
    (void)state;
    struct sl_request r;
    assert_int_equal(read_pod("'nvidia.com/gpu':'2'", "", "", &r, NULL), SL_DIALECT_PLAIN);
    assert_true(r.part_count == 1 && r.part[0].count == 2 && sl_share_whole(&r.part[0].share));
    assert_int_equal(read_pod("", "", "", &r, NULL), SL_DIALECT_NOTHING);
    assert_int_equal(read_pod("'cpu':'1','nvidia.com/mig-1g.18gb':'1'", "", "", &r, NULL),
                     SL_DIALECT_NOTHING);
    assert_int_equal(read_pod("'nvidia.com/gpu':'0'", "", "", &r, NULL), SL_DIALECT_NOTHING);
    assert_int_equal(
        read_pod("'nvidia.com/gpumem':'5'", "'labels':{'hami.io/webhook':'ignore'}", "", &r, NULL),
        SL_DIALECT_NOTHING);
    assert_int_equal(read_pod("'nvidia.com/gpumem':'-5'", "'labels':{'sluice.io/webhook':'ignore'}",
                              "", &r, NULL),
                     SL_DIALECT_NOTHING);
}

static void test_volcano(void **state)
{
    (void)state;
    asks("'volcano.sh/vgpu-number':2,'volcano.sh/vgpu-memory':3000,'volcano.sh/vgpu-cores':50", 2,
         3000, 0, 50);
    asks("'volcano.sh/vgpu-number':'1','volcano.sh/vgpu-memory-percentage':'25'", 1, 0, 25, 0);
    asks("'volcano.sh/vgpu-number':'1'", 1, 0, 100, 100);
    /* Its plugin before vGPU: MiB of one card, or whole cards. */
    asks("'volcano.sh/gpu-memory':'1024'", 1, 1024, 0, 0);
    asks("'volcano.sh/gpu-number':2", 2, 0, 100, 100);
    refused("'volcano.sh/gpu-memory':'1Gi'", "", "", "whole number of MiB");
    refused("'volcano.sh/gpu-number':2,'volcano.sh/gpu-memory':1024", "", "",
            "write only one of them");
    refused("'volcano.sh/vgpu-memory':2048,'volcano.sh/gpu-memory':1024", "", "",
            "both volcano.sh/vgpu-memory and volcano.sh/gpu-memory");
}

static void test_gpushare(void **state)
{
    (void)state;
    asks("'aliyun.com/gpu-mem':3", 1, 3072, 0, 0); /* GiB */
    asks("'aliyun.com/gpu-mem':'15','aliyun.com/gpu-core.percentage':'20'", 1, 15360, 0, 20);
    refused("'aliyun.com/gpu-mem':'3Gi'", "", "", "a whole number of GiB: for 3 GiB write \"3\"");
}

static void test_kubeshare(void **state)
{
    (void)state;
    struct sl_request r;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(
        read_pod("",
                 "'labels':{'sharedgpu/gpu_request':'0.5','sharedgpu/gpu_limit':'1.0',"
                 "'sharedgpu/gpu_mem':'3221225472','sharedgpu/gpu_model':'NVIDIA-H200'}",
                 "'schedulerName':'kubeshare-scheduler'", &r, &err),
        SL_DIALECT_ASKS);
    assert_int_equal(r.part[0].share.memory_bytes >> 20, 3072);
    assert_int_equal(r.part[0].share.cores_permille / 10, 50);
    assert_int_equal(r.part[0].share.limit_permille / 10, 100);
    assert_string_equal(r.use_type, "NVIDIA-H200");
    assert_true(sl_request_allows(&r, "NVIDIA H200", "GPU-1"));
    assert_false(sl_request_allows(&r, "NVIDIA A100-SXM4-80GB", "GPU-1"));
    refused("", "'annotations':{'sharedgpu/gpu_limit':'1.0','sharedgpu/gpu_model':'H200` || true'}",
            "", "a list of names");
    assert_int_equal(read_pod("",
                              "'annotations':{'sharedgpu/gpu_request':'0.25','sharedgpu/gpu_limit':"
                              "'0.25'}",
                              "", &r, &err),
                     SL_DIALECT_ASKS);
    assert_int_equal(r.part[0].share.memory_percent, 25);
    assert_int_equal(r.part[0].share.limit_permille / 10, 0);
    assert_int_equal(read_pod("",
                              "'labels':{'sharedgpu/gpu_request':'2.0','sharedgpu/gpu_limit':"
                              "'2.0'}",
                              "", &r, &err),
                     SL_DIALECT_ASKS);
    assert_true(r.part[0].count == 2 && sl_share_whole(&r.part[0].share));
    refused("", "'labels':{'sharedgpu/gpu_request':'1.5','sharedgpu/gpu_limit':'1.5'}", "",
            "the same whole number");
    refused("", "'labels':{'sharedgpu/gpu_request':'0.9','sharedgpu/gpu_limit':'0.5'}", "",
            "at most sharedgpu/gpu_limit");
    refused("", "'labels':{'sharedgpu/gpu_request':'0.5'}", "", "write for example \"1.0\"");
    refused("", "'labels':{'sharedgpu/gpu_limit':'0.5','sharedgpu/gpu_mem':'3Gi'}", "",
            "write \"3221225472\"");
    refused("'nvidia.com/gpumem':'5'", "'labels':{'sharedgpu/gpu_limit':'0.5'}", "",
            "keep one of the two");
}

static void test_refusals(void **state)
{
    (void)state;
    refused("'nvidia.com/gpumem':'3Gi'", "", "", "for 3 GiB write \"3072\"");
    refused("'nvidia.com/gpumem':'-1'", "", "", "whole number of MiB");
    refused("'nvidia.com/gpumem':1.5", "", "", "whole number of MiB");
    refused("'nvidia.com/gpumem':'99999999999999999999'", "", "", "whole number of MiB");
    refused("'nvidia.com/gpu':'1','nvidia.com/gpucores':'101'", "", "", "from 1 to 100");
    refused("'nvidia.com/gpu':'17'", "", "", "from 1 to 16");
    refused("'nvidia.com/gpu':'1','nvidia.com/gpumem':'1','nvidia.com/priority':'2'", "", "",
            "0 (high) or 1 (low)");
    refused("'nvidia.com/gpumem':'5','nvidia.com/gpumem-percentage':'5'", "", "",
            "write only one of them");
    refused("'nvidia.com/gpumem':'5','volcano.sh/vgpu-number':'1'", "", "",
            "use the resources of one of them");
    refused("'nvidia.com/gpumem':'5'", "'annotations':{'nvidia.com/use-gputype':'A\\\"b'}", "",
            "a list of names");
    json_t *pod = pod_of("'nvidia.com/gpumem':'5'", "", "");
    json_object_set_new(at(pod, "spec/containers/0"), "securityContext",
                        json_pack("{s:b}", "privileged", 1));
    struct sl_request r;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_dialect_read(pod, &r, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "remove securityContext.privileged"));
    json_decref(pod);
}

/* Requests count where limits say nothing; init containers run before, sidecars beside. */
static void test_containers(void **state)
{
    (void)state;
    struct sl_request r;
    json_t *pod = quoted("{'spec':{'initContainers':[{'name':'warm','resources':{'limits':{'nvidia."
                         "com/gpumem':'9'}}},"
                         "{'name':'side','restartPolicy':'Always','resources':{'limits':{'nvidia."
                         "com/gpumem':'9'}}}],"
                         "'containers':[{'name':'none'},{'name':'a','resources':{'requests':{'"
                         "nvidia.com/gpumem':'9'}}},"
                         "{'name':'b','resources':{'limits':{'nvidia.com/gpumem':'7','nvidia.com/"
                         "gpucores':'5'}}}]}}");
    assert_int_equal(sl_dialect_read(pod, &r, NULL), SL_DIALECT_ASKS);
    assert_int_equal(r.part_count, 4);
    assert_int_equal(r.containers, 5);
    assert_string_equal(r.part[0].container, "a");
    assert_int_equal(r.part[0].index, 3);
    assert_string_equal(r.part[2].container, "warm");
    assert_int_equal(r.part[2].same_as, 0);
    assert_string_equal(r.part[3].container, "side");
    assert_int_equal(r.part[3].same_as, -1);
    uint64_t memory, cores;
    sl_request_sums(&r, 1000, &memory, &cores);
    assert_int_equal(memory, 9 + 7 + 9);
    assert_int_equal(cores, 5);
    json_decref(pod);
}

/* What is written is what is read. */
static void test_annotation(void **state)
{
    (void)state;
    struct sl_request r, back;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(read_pod("'nvidia.com/gpu':'2','nvidia.com/gpumem-percentage':'50',"
                              "'nvidia.com/priority':'0'",
                              "'annotations':{'nvidia.com/use-gpuuuid':'GPU-1,GPU-2'}", "", &r,
                              NULL),
                     SL_DIALECT_ASKS);
    char *text = sl_request_text(&r);
    assert_int_equal(sl_request_parse(text, &back, &err), 0);
    assert_memory_equal(&r, &back, sizeof(r));
    free(text);
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{\"version\":1,\"containers\":1,\"parts\":[]}",
        "{\"version\":1,\"containers\":1,\"parts\":[{\"container\":\"a\",\"gpus\":1}]}",
        "{\"version\":1,\"containers\":1,\"parts\":[{\"container\":\"a\",\"gpus\":99,\"memoryMiB\":"
        "1}]}",
        "{\"version\":1,\"containers\":0,\"parts\":[{\"container\":\"a\",\"gpus\":1,\"memoryMiB\":"
        "1}]}",
        ("{\"version\":1,\"containers\":1,\"parts\":[{\"container\":\"a\",\"gpus\":1,\"memoryMiB\":"
         "1,"
         "\"sameAs\":0}]}")};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_int_equal(sl_request_parse(bad[i], &back, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hami),       cmocka_unit_test(test_hami_words),
        cmocka_unit_test(test_volcano),    cmocka_unit_test(test_plain_and_nothing),
        cmocka_unit_test(test_gpushare),   cmocka_unit_test(test_kubeshare),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_containers),
        cmocka_unit_test(test_annotation), cmocka_unit_test(test_hami_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
