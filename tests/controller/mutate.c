/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of pods at admission: by claim, by slots, or not at all; and reviews, read and answered. */
#include "pods.h"

#include <errno.h>

#include "base/cleanup.h"
#include "controller/mutate.h"
#include "controller/review.h"

static const uint32_t cards[] = {81920, 143771};
static const struct sl_mutate_options dra = {
    .mode = SL_MUTATE_DRA, .scheduler = "default-scheduler", .card_mib = cards, .card_count = 2};
static const struct sl_mutate_options slots = {.mode = SL_MUTATE_EXTENDER,
                                               .slot_resource = "nvidia.com/gpu",
                                               .scheduler = "default-scheduler"};

static void mutated(json_t *pod, const struct sl_mutate_options *opt, struct sl_mutation *m)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_mutate_pod(pod, "review-1", opt, m, &err) != 0)
        fail_msg("%s", err.msg);
    if (m->patch)
        apply(pod, m->patch);
}

static void test_claim(void **state)
{
    (void)state;
    struct sl_mutation m, again;
    json_t *pod = pod_of("'cpu':'1','nvidia.com/gpu':'1','nvidia.com/gpumem':'10240',"
                         "'nvidia.com/gpucores':'30','nvidia.com/priority':'0'",
                         "'annotations':{'keep':'me','nvidia.com/use-gputype':'H200,h100'}",
                         "'schedulerName':'hami-scheduler'");
    mutated(pod, &dra, &m);
    json_t *t = m.template_object;
    assert_true(m.asks && m.patch && t);
    assert_int_equal(json_object_size(at(pod, "spec/containers/0/resources/limits")), 1);
    assert_string_equal(text_at(pod, "spec/containers/0/resources/limits/cpu"), "1");
    assert_string_equal(text_at(pod, "spec/containers/0/resources/claims/0/name"), "sluice-gpu");
    assert_string_equal(text_at(pod, "spec/containers/0/resources/claims/0/request"), "gpu0");
    assert_string_equal(text_at(pod, "spec/resourceClaims/0/resourceClaimTemplateName"),
                        m.template_name);
    assert_string_equal(text_at(pod, "spec/schedulerName"), "default-scheduler");
    assert_string_equal(text_at(pod, "metadata/annotations/keep"), "me");
    const char *request = "spec/spec/devices/requests/0/";
    char path[128];
#define REQUEST(rest) (snprintf(path, sizeof(path), "%s%s", request, rest), text_at(t, path))
    assert_string_equal(REQUEST("name"), "gpu0");
    assert_string_equal(REQUEST("exactly/deviceClassName"), "gpu.sluice.io");
    assert_string_equal(REQUEST("exactly/capacity/requests/memory"), "10Gi");
    assert_string_equal(REQUEST("exactly/capacity/requests/cores"), "30");
    assert_string_equal(
        REQUEST("exactly/selectors/0/cel/expression"),
        "(device.attributes[\"gpu.sluice.io\"].productName.lowerAscii().contains(\"h200\") || "
        "device.attributes[\"gpu.sluice.io\"].productName.lowerAscii().contains(\"h100\"))");
    assert_string_equal(text_at(t, "spec/spec/devices/config/0/opaque/parameters/priority"),
                        "high");
    assert_string_equal(text_at(t, "metadata/name"), m.template_name);
    /* The same again, by another webhook's doing or copied: nothing to change, but the template must be there. */
    mutated(pod, &dra, &again);
    assert_true(again.asks && !again.patch);
    assert_string_equal(again.template_name, m.template_name);
    assert_true(json_equal(again.template_object, t));
    sl_mutation_free(&again);
    /* With a claim of the user's own by our name it is the user's business. */
    json_object_set_new(at(pod, "spec/resourceClaims/0"), "resourceClaimTemplateName",
                        json_string("mine"));
    mutated(pod, &dra, &again);
    assert_true(!again.patch && !again.template_object);
    sl_mutation_free(&m);
    json_decref(pod);
}

static void test_claim_kinds(void **state)
{
    (void)state;
    struct sl_mutation m, other;
    json_t *pod = pod_of("'nvidia.com/gpu':'2','nvidia.com/gpumem-percentage':'50'", "", "");
    mutated(pod, &dra, &m);
    json_t *t = m.template_object;
    assert_int_equal(
        json_integer_value(at(t, "spec/spec/devices/requests/0/firstAvailable/0/count")), 2);
    assert_string_equal(
        text_at(t, "spec/spec/devices/requests/0/firstAvailable/0/capacity/requests/memory"),
        "40Gi");
    assert_string_equal(
        text_at(t, "spec/spec/devices/requests/0/firstAvailable/1/capacity/requests/memory"),
        "71885Mi");
    assert_string_equal(
        text_at(t, "spec/spec/devices/requests/0/firstAvailable/1/capacity/requests/cores"), "1");
    assert_int_equal(
        json_integer_value(at(t, "spec/spec/devices/config/0/opaque/parameters/cores/limit")), 100);
    json_decref(pod);
    /* Equal requests share a template, different ones do not. */
    pod = pod_of("'volcano.sh/vgpu-number':'2','volcano.sh/vgpu-memory-percentage':'50'", "", "");
    mutated(pod, &dra, &other);
    assert_string_equal(other.template_name, m.template_name);
    sl_mutation_free(&other);
    json_decref(pod);
    pod = pod_of("'volcano.sh/vgpu-number':'2','volcano.sh/vgpu-memory-percentage':'51'", "", "");
    mutated(pod, &dra, &other);
    assert_string_not_equal(other.template_name, m.template_name);
    sl_mutation_free(&other);
    sl_mutation_free(&m);
    json_decref(pod);
    /* Whole cards with a wish are of the class of whole cards. */
    pod = pod_of("'nvidia.com/gpu':'2'", "'annotations':{'nvidia.com/use-gpuuuid':'GPU-1,GPU-2'}",
                 "");
    mutated(pod, &dra, &m);
    assert_string_equal(
        text_at(m.template_object, "spec/spec/devices/requests/0/exactly/deviceClassName"),
        "whole.gpu.sluice.io");
    assert_null(at(m.template_object, "spec/spec/devices/requests/0/exactly/capacity"));
    sl_mutation_free(&m);
    json_decref(pod);
}

static void test_untouched(void **state)
{
    (void)state;
    struct sl_mutation m;
    static const char *const limits[] = {"", "'cpu':'1'", "'nvidia.com/gpu':'1'"};
    for (size_t i = 0; i < SL_ARRAY_LEN(limits); i++) {
        json_t *pod = pod_of(limits[i], "", "");
        mutated(pod, &dra, &m);
        assert_true(!m.patch && !m.template_object);
        json_decref(pod);
    }
    json_t *pod = pod_of("", "'annotations':{'sluice.io/lease':'x'}", "'nodeName':'n1'");
    mutated(pod, &slots, &m);
    assert_null(m.patch);
    json_decref(pod);
}

/* Whole GPUs by DRA: the scheduler that is not there is replaced; where a quota counts them, it can know them again. */
static void test_plain_by_dra(void **state)
{
    (void)state;
    struct sl_mutation m;
    struct sl_mutate_options noted = dra;
    noted.note_plain = true;
    json_t *pod = pod_of("'nvidia.com/gpu':'2'", "", "'schedulerName':'hami-scheduler'");
    mutated(pod, &dra, &m);
    assert_true(!m.asks && !m.template_object && json_array_size(m.patch) == 1);
    assert_string_equal(text_at(pod, "spec/schedulerName"), "default-scheduler");
    assert_string_equal(text_at(pod, "spec/containers/0/resources/limits/nvidia.com~1gpu"), "2");
    sl_mutation_free(&m);
    json_object_set_new(at(pod, "metadata"), "annotations", json_pack("{s:s}", "keep", "me"));
    for (int i = 0; i < 2; i++) { /* the second time as copied: it does not become a claim */
        struct sl_request r;
        mutated(pod, &noted, &m);
        assert_true(m.asks && !m.template_object && json_array_size(m.patch) == 1);
        assert_int_equal(
            sl_request_parse(text_at(pod, "metadata/annotations/sluice.io~1request"), &r, NULL), 0);
        assert_true(r.part[0].count == 2 && sl_share_whole(&r.part[0].share));
        assert_string_equal(r.admission, "review-1");
        assert_string_equal(text_at(pod, "metadata/annotations/keep"), "me");
        assert_null(at(pod, "spec/resourceClaims"));
        assert_string_equal(text_at(pod, "spec/containers/0/resources/limits/nvidia.com~1gpu"),
                            "2");
        sl_mutation_free(&m);
    }
    json_decref(pod);
}

static void test_slots(void **state)
{
    (void)state;
    struct sl_mutation m;
    struct sl_request r;
    json_t *pod = pod_of("'volcano.sh/vgpu-number':'2','volcano.sh/vgpu-memory':'3000'",
                         "'annotations':{'sluice.io/lease':'mine','hami.io/vgpu-node':'n1'}",
                         "'schedulerName':'volcano'");
    mutated(pod, &slots, &m);
    assert_null(m.template_object);
    assert_int_equal(json_object_size(at(pod, "spec/containers/0/resources/limits")), 1);
    assert_string_equal(text_at(pod, "spec/containers/0/resources/limits/nvidia.com~1gpu"), "2");
    assert_string_equal(text_at(pod, "spec/schedulerName"), "default-scheduler");
    assert_null(at(pod, "metadata/annotations/sluice.io~1lease"));
    assert_null(at(pod, "metadata/annotations/hami.io~1vgpu-node"));
    assert_int_equal(
        sl_request_parse(text_at(pod, "metadata/annotations/sluice.io~1request"), &r, NULL), 0);
    assert_true((r.part[0].share.memory_bytes >> 20) == 3000 && r.part[0].count == 2);
    assert_string_equal(r.admission, "review-1");
    sl_mutation_free(&m);
    /* Again: two slots now, but the annotation still says 3000 MiB of each. */
    mutated(pod, &slots, &m);
    assert_int_equal(m.request.part[0].share.memory_bytes >> 20, 3000);
    sl_mutation_free(&m);
    json_decref(pod);
    pod = pod_of("'nvidia.com/gpu':'1'", "", "");
    mutated(pod, &slots, &m);
    assert_true(m.patch && sl_share_whole(&m.request.part[0].share));
    sl_mutation_free(&m);
    json_decref(pod);
}

/* With a second scheduler: pods of the first one and of the dialects' go to it, others keep theirs. */
static void test_second_scheduler(void **state)
{
    (void)state;
    struct sl_mutate_options opt = slots;
    static const char *const cases[][2] = {
        {"", "second"},
        {"'schedulerName':'default-scheduler'", "second"},
        {"'schedulerName':'hami-scheduler'", "second"},
        {"'schedulerName':'second'", "second"},
        {"'schedulerName':'kueue'", "kueue"},
    };
    opt.second = "second";
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sl_mutation m;
        json_t *pod = pod_of("'nvidia.com/gpu':'1'", "", cases[i][0]);
        mutated(pod, &opt, &m);
        assert_string_equal(text_at(pod, "spec/schedulerName"), cases[i][1]);
        sl_mutation_free(&m);
        json_decref(pod);
    }
    /* A pod that asks for no GPU is not ours to mark. */
    struct sl_mutation m;
    json_t *pod = pod_of("'cpu':'1'", "", "'schedulerName':'default-scheduler'");
    mutated(pod, &opt, &m);
    assert_null(m.patch);
    json_decref(pod);
    /* An empty name is none. */
    opt.second = "";
    pod = pod_of("'nvidia.com/gpu':'1'", "", "'schedulerName':'default-scheduler'");
    mutated(pod, &opt, &m);
    assert_string_equal(text_at(pod, "spec/schedulerName"), "default-scheduler");
    sl_mutation_free(&m);
    json_decref(pod);
}

static void test_refused(void **state)
{
    (void)state;
    struct sl_mutation m;
    struct sl_err err = SL_ERR_INIT;
    struct sl_mutate_options none = dra;
    json_t *pod = pod_of("'nvidia.com/gpumem':'5'", "", "'nodeName':'n1'");
    assert_int_equal(sl_mutate_pod(pod, "u", &dra, &m, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "nodeSelector"));
    json_decref(pod);
    none.card_count = 0;
    pod = pod_of("'nvidia.com/gpumem-percentage':'5'", "", "");
    assert_int_equal(sl_mutate_pod(pod, "u", &none, &m, &err), -EAGAIN);
    assert_non_null(strstr(err.msg, "or ask for MiB"));
    json_decref(pod);
    pod = pod_of(
        "'nvidia.com/gpu':'1'",
        "'annotations':{'sluice.io/request':'{\\\"version\\\":1,\\\"containers\\\":1,\\\"parts\\\":"
        "[{\\\"container\\\":\\\"other\\\",\\\"gpus\\\":1,\\\"memoryMiB\\\":5}]}'}",
        "");
    assert_int_equal(sl_mutate_pod(pod, "u", &slots, &m, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "has no such container there"));
    json_decref(pod);
}

static json_t *with_init(const char *init, const char *main)
{
    char text[1024];
    (void)snprintf(text, sizeof(text),
                   "{'metadata':{'name':'p'},'spec':{'initContainers':[{'name':'warm',%s}],"
                   "'containers':[{'name':'main','resources':{'limits':{%s}}}]}}",
                   init, main);
    return quoted(text);
}

/* A GPU in an init container alone: DRA can, kubelet's device manager cannot tell whose it is. */
static void test_init_alone(void **state)
{
    (void)state;
    static const char gpu[] = "'resources':{'limits':{'nvidia.com/gpumem':'5'}}";
    static const char side[] =
        "'restartPolicy':'Always','resources':{'limits':{'nvidia.com/gpumem':'5'}}";
    struct sl_mutation m, again;
    struct sl_err err = SL_ERR_INIT;
    json_t *pod = with_init(gpu, "'cpu':'1'");
    assert_int_equal(sl_mutate_pod(pod, "u", &slots, &m, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "init container warm asks for a GPU and no container"));
    assert_non_null(strstr(err.msg, "give a container of the pod the same request"));
    assert_null(m.patch);
    mutated(pod, &dra, &m);
    assert_non_null(m.patch);
    sl_mutation_free(&m);
    json_decref(pod);
    /* Another size is enough: kubelet hands the slot on. A sidecar is listed itself. */
    const char *const good[][2] = {{gpu, "'nvidia.com/gpumem':'7'"}, {side, "'cpu':'1'"}};
    for (size_t i = 0; i < SL_ARRAY_LEN(good); i++) {
        pod = with_init(good[i][0], good[i][1]);
        mutated(pod, &slots, &m);
        mutated(pod, &slots, &again); /* in our own words */
        sl_mutation_free(&m);
        sl_mutation_free(&again);
        json_decref(pod);
    }
}

/* A privileged container cannot be held to a share. With DRA a whole GPU is none, and not our business. */
static void test_privileged(void **state)
{
    (void)state;
    struct sl_mutation m;
    struct sl_err err = SL_ERR_INIT;
    static const struct {
        const char *limits;
        const struct sl_mutate_options *opt;
        bool good;
    } rows[] = {{"'nvidia.com/gpu':'1'", &dra, true},
                {"'nvidia.com/gpu':'1'", &slots, false},
                {"'nvidia.com/gpumem':'1'", &dra, false},
                {"'cpu':'1'", &slots, true}};
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        json_t *pod = pod_of(rows[i].limits, "", "");
        json_object_set_new(at(pod, "spec/containers/0"), "securityContext",
                            json_pack("{s:b}", "privileged", 1));
        int rc = sl_mutate_pod(pod, "u", rows[i].opt, &m, &err);
        assert_int_equal(rc, rows[i].good ? 0 : -EINVAL);
        assert_null(m.patch);
        if (rc)
            assert_non_null(strstr(err.msg, "remove securityContext.privileged"));
        json_decref(pod);
    }
}

static const char review_text[] =
    "{'apiVersion':'admission.k8s.io/"
    "v1','kind':'AdmissionReview','request':{'uid':'u-1','namespace':'ns',"
    "'operation':'%s','dryRun':true,'resource':{'group':'','version':'v1','resource':'pods'},"
    "'object':{'spec':{}}}}";

static int review(const char *operation, struct sl_review *r, struct sl_err *err)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), review_text, operation);
    json_t *j = quoted(text);
    char *body = json_dumps(j, 0);
    int rc = sl_review_parse(body, strlen(body), r, err);
    free(body);
    json_decref(j);
    return rc;
}

static void test_review(void **state)
{
    (void)state;
    struct sl_review r;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(review("CREATE", &r, &err), 0);
    assert_true(r.create_pod && r.dry_run && r.pod);
    assert_string_equal(r.uid, "u-1");
    assert_string_equal(r.name_space, "ns");
    sl_review_free(&r);
    assert_int_equal(review("UPDATE", &r, &err), 0);
    assert_false(r.create_pod);
    sl_review_free(&r);
    static const char *const bad[] = {
        "",
        "x",
        "{}",
        "[]",
        "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1beta1\"}",
        "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{}}",
        ("{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/"
         "v1\",\"request\":{\"uid\":\"a\","
         "\"operation\":\"CREATE\",\"resource\":{\"resource\":\"pods\"}}}")};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        assert_int_equal(sl_review_parse(bad[i], strlen(bad[i]), &r, &err), -EINVAL);
        assert_non_null(strstr(err.msg, "AdmissionReview"));
        assert_null(r.root);
    }
}

/* What has no effect is said to whoever creates the pod, who gets the pod all the same. */
static void test_warnings(void **state)
{
    (void)state;
    static const struct {
        const char *metadata, *words; /* NULL: no warning */
    } cases[] = {
        {"'labels':{'sharedgpu/gpu_limit':'0.5','sharedgpu/min_available':'3'}",
         "sharedgpu/min_available \"3\" has no effect"},
        {"'labels':{'sharedgpu/gpu_limit':'0.5','sharedgpu/group_headcount':'5'}",
         "placed one by one"},
        {"'labels':{'sharedgpu/gpu_limit':'0.5','sharedgpu/min_available':'1'}", NULL},
        {"'annotations':{'sharedgpu/gpu_limit':'0.5','hami.io/gpu-scheduler-policy':'mutex'}",
         "hami.io/gpu-scheduler-policy \"mutex\""},
        {"'annotations':{'sharedgpu/gpu_limit':'0.5','hami.io/gpu-scheduler-policy':'binpack'}",
         NULL},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++)
        for (int how = 0; how < 2; how++) {
            struct sl_mutation m;
            json_t *pod = pod_of("", cases[i].metadata, "");
            mutated(pod, how ? &dra : &slots, &m);
            assert_non_null(m.patch);
            assert_int_equal(json_array_size(m.warnings), cases[i].words ? 1 : 0);
            char *text = sl_review_allow("u", m.patch, m.warnings);
            json_t *j = json_loads(text, 0, NULL);
            if (cases[i].words)
                assert_non_null(strstr(text_at(j, "response/warnings/0"), cases[i].words));
            else
                assert_null(at(j, "response/warnings"));
            json_decref(j);
            free(text);
            sl_mutation_free(&m);
            json_decref(pod);
        }
    /* A quote that is cut inside a character is no reason to say nothing. */
    struct sl_mutation m;
    json_t *pod = pod_of(
        "'nvidia.com/gpumem':'5'",
        "'annotations':{'sharedgpu/min_available':"
        "'\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9x\xc3\xa9'}",
        "");
    mutated(pod, &slots, &m);
    assert_int_equal(json_array_size(m.warnings), 1);
    sl_mutation_free(&m);
    json_decref(pod);
}

static void test_answers(void **state)
{
    (void)state;
    json_t *patch = json_pack("[{s:s}]", "a", "b");
    char *text = sl_review_allow("u", patch, NULL);
    json_t *j = json_loads(text, 0, NULL);
    assert_string_equal(text_at(j, "response/patch"), "W3siYSI6ImIifV0=");
    assert_string_equal(text_at(j, "response/patchType"), "JSONPatch");
    assert_true(json_is_true(at(j, "response/allowed")));
    json_decref(j);
    free(text);
    text = sl_review_deny("u", 422, "no");
    j = json_loads(text, 0, NULL);
    assert_true(json_is_false(at(j, "response/allowed")));
    assert_string_equal(text_at(j, "response/status/message"), "no");
    json_decref(j);
    free(text);
    json_decref(patch);
}

/* A denial says what is wrong, also when what it quotes is cut inside a character. */
static void test_denials_that_cut(void **state)
{
    (void)state;
    for (int lead = 0; lead < 4; lead++) {
        struct sl_mutation m;
        struct sl_err err = SL_ERR_INIT;
        char value[700], meta[800];
        int n = snprintf(value, sizeof(value), "%.*s", lead, "aaa");
        while (n + 5 < (int)sizeof(value))
            n += snprintf(value + n, sizeof(value) - (size_t)n, "\xf0\x9f\x92\xa7");
        for (int which = 0; which < 2; which++) {
            (void)snprintf(meta, sizeof(meta),
                           "'annotations':{'sharedgpu/gpu_request':'0.5','%s':'%s'}",
                           which ? "sharedgpu/gpu_mem" : "sharedgpu/gpu_limit", value);
            json_t *pod = pod_of("'cpu':'1'", meta, "");
            assert_int_equal(sl_mutate_pod(pod, "review-1", &dra, &m, &err), -EINVAL);
            char *text = sl_review_deny("u", 422, err.msg);
            assert_non_null(text);
            json_t *j = json_loads(text, 0, NULL);
            assert_string_equal(text_at(j, "response/status/message"), err.msg);
            json_decref(j);
            free(text);
            json_decref(pod);
        }
    }
}

/* The API server looks at names after the webhook: one that is too long must not become an error of ours. */
static void test_long_names(void **state)
{
    (void)state;
    struct sl_mutation m;
    json_t *pod = pod_of("'nvidia.com/gpu':'1','nvidia.com/gpumem':'10240'", "", "");
    json_t *container = json_array_get(at(pod, "spec/containers"), 0);
    json_object_set_new(container, "name",
                        json_string("cc\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
                                    "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
                                    "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
                                    "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
                                    "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"));
    mutated(pod, &slots, &m);
    sl_mutation_free(&m);
    json_decref(pod);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claim),
        cmocka_unit_test(test_claim_kinds),
        cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_second_scheduler),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_review),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_init_alone),
        cmocka_unit_test(test_privileged),
        cmocka_unit_test(test_plain_by_dra),
        cmocka_unit_test(test_denials_that_cut),
        cmocka_unit_test(test_long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
