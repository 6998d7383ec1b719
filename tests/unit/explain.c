/* SPDX-License-Identifier: Apache-2.0 */
/* Broken pods, each with its cause and its cure; docs/what-happened.md has them all. JSON is written with ' for ". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "explain/explain.h"

#define GPU_POD(more) "{'metadata':{'name':'train-0','namespace':'team'" more "}"
#define WANTS_GPU     "'containers':[{'name':'main','resources':{'limits':{'nvidia.com/gpu':'1'}}}]"
#define UNSCHEDULED(words)                                                                         \
    "'status':{'phase':'Pending','conditions':[{'type':'PodScheduled','status':'False','message':" \
    "'" words "'}]}"
#define NODE(name, ready, gpus, more)                                                              \
    "{'metadata':{'name':'" name "'" more "},'status':{'allocatable':{'nvidia.com/gpu':'" gpus     \
    "'},'conditions':[{'type':'Ready','status':'" ready                                            \
    "','message':'kubelet stopped posting'}]}}"
#define CARD(mib)                                                                                  \
    ",'annotations':{'sluice.io/gpus':'[{\\'uuid\\':\\'GPU-a\\',\\'memoryMiB\\':" mib              \
    ",\\'cores\\':100,\\'model\\':\\'H200\\',\\'numa\\':0,\\'healthy\\':true}]'}"
#define ENDED(state, code, reason)                                                                 \
    "'status':{'phase':'Running','containerStatuses':[{'name':'main','state':{'" state             \
    "':{'reason':'CrashLoopBackOff'}},'lastState':{'terminated':{'exitCode':" code                 \
    ",'reason':'" reason "'}}}]}"
#define WAITING(reason, words)                                                                     \
    "'status':{'phase':'Pending','containerStatuses':[{'name':'main','state':{'waiting':{'reason'" \
    ":'" reason "','message':'" words "'}}}]}"

static const struct {
    const char *code, *why; /* why: words that its sentence has */
    const char *pod, *events, *nodes, *pods, *claims, *templates, *classes;
} broken[] = {
    {"deleted", "2026-11-17T01:00:00Z",
     .pod = GPU_POD(",'deletionTimestamp':'2026-11-17T01:00:00Z'") ",'spec':{'nodeName':'n1'},'"
                                                                   "status':{'phase':'Running'}}"},
    {"refused-by-kubelet", "Kubelet of n1 refused it: Allocate failed due to GPU-a is unhealthy",
     .pod = GPU_POD(
         "") ",'spec':{'nodeName':'n1'},'status':{'phase':'Failed','reason':'"
             "UnexpectedAdmissionError',"
             "'message':'Allocate failed due to GPU-a is unhealthy, which is unexpected'}}"},
    {"evicted", "low on resource: memory",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'},'status':{'phase':'Failed','reason':'Evicted',"
                        "'message':'The node was low on resource: memory.'}}"},
    {"gated", "\"wait-for-quota\"",
     .pod = GPU_POD("") ",'spec':{'schedulingGates':[{'name':'wait-for-quota'}]},'status':{'phase':"
                        "'Pending'}}"},
    {"no-claim", "\"gpu-x\"",
     .pod = GPU_POD("") ",'spec':{'resourceClaims':[{'name':'gpu','resourceClaimName':'gpu-x'}]}"
                        "," UNSCHEDULED("waiting") "}",
     .claims = "[{'metadata':{'name':'gpu-y'}}]"},
    {"no-template", "\"tenth\"",
     .pod = GPU_POD(
         "") ",'spec':{'resourceClaims':[{'name':'gpu','resourceClaimTemplateName':'tenth'}]},"
             "'status':{'phase':'Pending'}}",
     .claims = "[]", .templates = "[]"},
    {"no-class", "\"shares.sluice.io\"",
     .pod = GPU_POD("") ",'spec':{'resourceClaims':[{'name':'gpu','resourceClaimName':'c1'}]}"
                        "," UNSCHEDULED("cannot") "}",
     .claims = "[{'metadata':{'name':'c1'},'spec':{'devices':{'requests':[{'name':'r','exactly':{'"
               "deviceClassName':"
               "'shares.sluice.io'}}]}}}]",
     .classes = "[{'metadata':{'name':'gpu.sluice.io'}}]"},
    {"no-scheduler", "\"volcano\"",
     .pod = GPU_POD("") ",'spec':{'schedulerName':'volcano'," WANTS_GPU
                        "},'status':{'phase':'Pending'}}",
     .nodes = "[" NODE("n1", "True", "4", "") "]"},
    {"too-large",
     "asks for 200000 MiB of one GPU, and the largest GPU of the cluster has 143771 MiB",
     .pod = GPU_POD(
         ",'annotations':{'sluice.io/"
         "request':'{\\'parts\\':[{\\'memoryMiB\\':200000}]}'}") ",'spec':{" WANTS_GPU
                                                                 "}," UNSCHEDULED("0/1 nodes are "
                                                                                  "available: 1 no "
                                                                                  "room for the "
                                                                                  "request") "}",
     .nodes = "[" NODE("n1", "True", "10", CARD("143771")) "]"},
    {"no-gpu-node", "the cluster has 2 nodes",
     .pod = GPU_POD("") ",'spec':{" WANTS_GPU "}," UNSCHEDULED(
         "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.") "}",
     .nodes = "[" NODE("n1", "True", "0", "") "," NODE("n2", "True", "0", "") "]"},
    {"wrong-node-selector", "\"gpu.model\"",
     .pod = GPU_POD("") ",'spec':{'nodeSelector':{'gpu.model':'B200'}," WANTS_GPU
                        "}," UNSCHEDULED("affinity") "}",
     .nodes = "[" NODE("n1", "True", "4", ",'labels':{'gpu.model':'H200'}") "]"},
    {"tainted", "\"team-b\"",
     .pod = GPU_POD(
         "") ",'spec':{'tolerations':[{'key':'nvidia.com/gpu','operator':'Exists'}]," WANTS_GPU
             "}," UNSCHEDULED("untolerated taint") "}",
     .nodes =
         "[{'metadata':{'name':'n1'},'spec':{'taints':[{'key':'nvidia.com/"
         "gpu','effect':'NoSchedule'},"
         "{'key':'team-b','effect':'NoSchedule'}]},'status':{'allocatable':{'nvidia.com/gpu':'4'},"
         "'conditions':[{'type':'Ready','status':'True'}]}}]"},
    {"nodes-away", "for example n1",
     .pod = GPU_POD("") ",'spec':{" WANTS_GPU "}," UNSCHEDULED("0/1 nodes are available") "}",
     .nodes = "[" NODE("n1", "Unknown", "4", "") "," NODE("n2", "True", "0", "") "]"},
    {"gpus-full", "1 pod that you may see has GPUs: team/other.",
     .pod = GPU_POD("") ",'spec':{" WANTS_GPU "}," UNSCHEDULED(
         "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.") "}",
     .nodes = "[" NODE("n1", "True", "1", "") "]",
     .pods = "[{'metadata':{'name':'other','namespace':'team'},'spec':{'nodeName':'n1'," WANTS_GPU
             "},'status':"
             "{'phase':'Running'}},{'metadata':{'name':'old','namespace':'team'},'spec':{'nodeName'"
             ":'n1'," WANTS_GPU "},'status':{'phase':'Succeeded'}}]"},
    {"cpu-or-memory", "Insufficient cpu",
     .pod = GPU_POD("") ",'spec':{" WANTS_GPU
                        "}," UNSCHEDULED("0/1 nodes are available: 1 Insufficient cpu.") "}",
     .nodes = "[" NODE("n1", "True", "1", "") "]"},
    {"claim-does-not-fit", "cannot allocate all claims",
     .pod =
         GPU_POD("") ",'spec':{'resourceClaims':[{'name':'gpu','resourceClaimName':'c1'}]}"
                     "," UNSCHEDULED("0/1 nodes are available: 1 cannot allocate all claims.") "}",
     .claims = "[{'metadata':{'name':'c1'}}]"},
    {"not-scheduled", "pod affinity",
     .pod = GPU_POD("") ",'spec':{}," UNSCHEDULED(
         "0/1 nodes are available: 1 node(s) did not match pod affinity rules.") "}"},
    {"prepare-failed", "card GPU-a is gone",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'},'status':{'phase':'Pending'}}",
     .events = "[{'type':'Warning','reason':'FailedPrepareDynamicResources','message':'old "
               "words','lastTimestamp':"
               "'2026-11-17T01:00:00Z'},{'type':'Warning','reason':'FailedPrepareDynamicResources',"
               "'message':"
               "'card GPU-a is gone','lastTimestamp':'2026-11-17T01:00:05Z'}]"},
    {"image", "ImagePullBackOff",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'}," WAITING("ImagePullBackOff", "not found") "}"},
    {"not-created", "the pod has no promise",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'}," WAITING("CreateContainerError",
                                                             "the pod has no promise") "}"},
    {"volume", "configmap \"x\" not found",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'},'status':{'phase':'Pending'}}",
     .events =
         "[{'type':'Warning','reason':'FailedMount','message':'configmap \\'x\\' not found'}]"},
    {"node-down", "n1 is not ready: kubelet stopped posting",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'},'status':{'phase':'Running'}}",
     .nodes = "[" NODE("n1", "Unknown", "4", "") "]"},
    {"out-of-memory", "container main",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'}," ENDED("waiting", "137", "OOMKilled") "}"},
    {"killed", "SIGKILL",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'}," ENDED("waiting", "137", "Error") "}"},
    {"crashed", "exit code 2",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'}," ENDED("waiting", "2", "Error") "}"},
    {"failed", "exit code 3",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'},'status':{'phase':'Failed','containerStatuses':["
                        "{'name':'main','state':"
                        "{'terminated':{'exitCode':3,'reason':'Error'}}}]}}"},
    {"starting", "nothing has failed",
     .pod = GPU_POD("") ",'spec':{'nodeName':'n1'},'status':{'phase':'Pending'}}"},
    {"starting", "No scheduler",
     .pod =
         GPU_POD("") ",'spec':{'schedulerName':'default-scheduler'},'status':{'phase':'Pending'}}"},
    {"unknown", "\"\"", .pod = "{}"},
    {"unknown", "\"Lost\"", .pod = GPU_POD("") ",'status':{'phase':'Lost'}}"},
};

static json_t *read_json(const char *text)
{
    if (!text)
        return NULL;
    char *copy = strdup(text);
    char *to = copy;
    for (const char *c = text; *c; c++) { /* \' is a quote inside a text */
        if (*c == '\\' && c[1] == '\'') {
            *to++ = '\\';
            *to++ = '"';
            c++;
        } else {
            *to++ = *c == '\'' ? '"' : *c;
        }
    }
    *to = '\0';
    json_error_t err;
    json_t *value = json_loads(copy, 0, &err);
    if (!value)
        fail_msg("%s: %s", err.text, copy);
    free(copy);
    return value;
}

static void explain(size_t i, struct sl_explanation *ret)
{
    json_t *all[] = {read_json(broken[i].pod),    read_json(broken[i].events),
                     read_json(broken[i].nodes),  read_json(broken[i].pods),
                     read_json(broken[i].claims), read_json(broken[i].templates),
                     read_json(broken[i].classes)};
    struct sl_explain_facts facts = {all[0], all[1], all[2], all[3], all[4], all[5], all[6], NULL};
    sl_explain_pod(&facts, ret);
    for (size_t k = 0; k < 7; k++)
        json_decref(all[k]);
}

static void every_broken_pod(void **state)
{
    (void)state;
    struct sl_explanation e;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        explain(i, &e);
        if (strcmp(e.code, broken[i].code) != 0 || !strstr(e.why, broken[i].why))
            fail_msg("pod %zu: %s, not %s: %s", i, e.code, broken[i].code, e.why);
        assert_false(e.well);
        assert_true(strlen(e.cure) > 10);
        assert_int_equal(e.what[strlen(e.what) - 1], '.');
    }
}

static void nothing_wrong(void **state)
{
    (void)state;
    static const char *const pods[][2] = {
        {"runs",
         GPU_POD(",'annotations':{'sluice.io/"
                 "lease':'{\\'version\\':1,\\'node\\':\\'n1\\',\\'containers\\':"
                 "[{\\'name\\':\\'main\\',\\'gpus\\':[{\\'uuid\\':\\'GPU-a\\',\\'memoryMiB\\':1000,"
                 "\\'cores\\':30}]}]}'}") ",'spec':{'nodeName':'n1'," WANTS_GPU
                                          "},'status':{'phase':'Running'}}"},
        {"succeeded", GPU_POD("") ",'spec':{'nodeName':'n1'},'status':{'phase':'Succeeded'}}"}};
    struct sl_explanation e;
    for (size_t i = 0; i < 2; i++) {
        struct sl_explain_facts facts = {.pod = read_json(pods[i][1])};
        sl_explain_pod(&facts, &e);
        assert_string_equal(e.code, pods[i][0]);
        assert_true(e.well);
        if (i == 0)
            assert_string_equal(e.why, "It has 1000 MiB of GPU memory and 30 % of GPU time on n1.");
        json_decref((json_t *)(uintptr_t)facts.pod);
    }
}

/* Whatever the API server says: no crash, and always a sentence. */
static void odd_objects(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "[]",
        "3",
        "'x'",
        "null",
        "{'status':[],'spec':3,'metadata':{'name':7}}",
        ("{'status':{'phase':'Pending','conditions':{},'containerStatuses':[[],3]},"
         "'spec':{'containers':{},'resourceClaims':[3,{'resourceClaimName':{}}]}}")};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text), "[%s]", odd[i]);
        json_t *list = read_json(text);
        const json_t *pod = json_array_get(list, 0);
        struct sl_explain_facts facts = {pod, list, list, list, list, list, list, list};
        struct sl_explanation e;
        sl_explain_pod(&facts, &e);
        assert_non_null(e.code);
        assert_true(*e.why && *e.cure);
        json_decref(list);
    }
}

/* Every code has a line in the docs, and a pod above. */
static void as_documented(void **state)
{
    (void)state;
    static const char *const codes[] = {
#define CAUSE(code, fn, well, cure) code,
#include "explain/causes.def"
#undef CAUSE
    };
    char page[65536];
    FILE *f = fopen(EXPLAIN_DOC, "re");
    assert_non_null(f);
    page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
    (void)fclose(f);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        char row[80];
        bool tried = strcmp(codes[i], "runs") == 0 || strcmp(codes[i], "succeeded") == 0;
        (void)snprintf(row, sizeof(row), "* `%s`: ", codes[i]);
        if (!strstr(page, row))
            fail_msg("docs/what-happened.md does not have %s", codes[i]);
        for (size_t k = 0; k < sizeof(broken) / sizeof(broken[0]); k++)
            tried |= strcmp(broken[k].code, codes[i]) == 0;
        if (!tried)
            fail_msg("no pod of this test has the cause %s", codes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_broken_pod), cmocka_unit_test(nothing_wrong),
        cmocka_unit_test(odd_objects), cmocka_unit_test(as_documented)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
