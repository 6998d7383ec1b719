/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster's books: bursts onto one node, restarts, cards that change, reservations that run out; and a
 * random history audited from the leases alone. */
#include "pods.h"

#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "controller/extender.h"
#include "../support/cluster_audit.h"

#define S SL_NS_PER_S

static const struct sl_claims no_claims;

static struct sl_cluster *cluster_new(void)
{
    struct sl_cluster_options opt = {.policy = SL_PLACE_SLUICE, .seed = 7};
    struct sl_cluster *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_cluster_create(&opt, &c, &err), 0);
    return c;
}

static json_t *node_json(const char *name, unsigned gpus, unsigned mib, const char *model)
{
    struct sl_promise_node told = {.count = gpus};
    for (unsigned i = 0; i < gpus; i++) {
        told.gpu[i] = (struct sl_promise_gpu){.memory_mib = mib, .cores = 100, .healthy = true};
        (void)snprintf(told.gpu[i].uuid, sizeof(told.gpu[i].uuid), "GPU-%s-%u", name, i);
        (void)snprintf(told.gpu[i].model, sizeof(told.gpu[i].model), "%s", model);
    }
    char *text = sl_promise_gpus_text(&told);
    json_t *j = json_pack("{s:{s:s,s:{s:s}},s:{s:{s:s}}}", "metadata", "name", name, "annotations",
                          SL_PROMISE_GPUS_KEY, text, "status", "allocatable", "cpu", "64");
    free(text);
    return j;
}

static void add_node(struct sl_cluster *c, const char *name, unsigned gpus, unsigned mib,
                     const char *model)
{
    struct sl_err err = SL_ERR_INIT;
    json_t *j = node_json(name, gpus, mib, model);
    if (sl_cluster_node_set(c, j, &err) != 0)
        fail_msg("%s", err.msg);
    json_decref(j);
}

/* The pod as the API server has it. limits in HAMi's words. */
static json_t *api_pod(unsigned number, const char *limits)
{
    char meta[128], with[256]; /* the webhook would have added the count */
    (void)snprintf(meta, sizeof(meta), "'uid':'uid-%u','namespace':'ns'", number);
    (void)snprintf(with, sizeof(with), "%s%s",
                   strstr(limits, "/gpu'") ? "" : "'nvidia.com/gpu':'1',", limits);
    return pod_of(with, meta, "");
}

/* Filter by JSON, as kube-scheduler does; "" where nothing fits. */
static void filter(struct sl_cluster *c, json_t *pod, const char *nodes, uint64_t now,
                   char node[64])
{
    struct sl_extender e = {.cluster = c, .slot_resource = "nvidia.com/gpu", .claims = &no_claims};
    json_t *names = quoted(nodes);
    json_t *args = json_pack("{s:O,s:n,s:o}", "Pod", pod, "Nodes", "NodeNames", names);
    char *body = json_dumps(args, 0);
    char *text = sl_extender_filter(&e, body, strlen(body), now);
    json_t *answer = json_loads(text, 0, NULL);
    assert_string_equal(text_at(answer, "Error"), "");
    (void)snprintf(node, 64, "%s", text_at(answer, "NodeNames/0"));
    free(text);
    free(body);
    json_decref(answer);
    json_decref(args);
}

/* What the API server would have after a bind: annotations and a node. */
static int bind(struct sl_cluster *c, json_t *pod, const char *node, uint64_t now)
{
    struct sl_promise promise;
    struct sl_err err = SL_ERR_INIT;
    const char *uid = text_at(pod, "metadata/uid");
    int rc = sl_cluster_bind_begin(c, uid, node, now, &promise, &err);
    if (rc)
        return rc;
    char *lease = sl_promise_lease_text(&promise);
    sl_cluster_bind_end(c, uid, SL_CLUSTER_BOUND, lease, now);
    json_object_set_new(at(pod, "metadata"), "annotations",
                        json_pack("{s:s}", SL_PROMISE_LEASE_KEY, lease));
    json_object_set_new(at(pod, "spec"), "nodeName", json_string(node));
    free(lease);
    return 0;
}

/* Sums over leases only: at most what a card has. */
struct sum {
    char uuid[64];
    uint64_t memory, cores;
};

static void audit_leases(json_t *const *pods, size_t count, uint32_t card_mib)
{
    static struct sum sums[256];
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        struct sl_promise p;
        const char *lease =
            pods[i] ? text_at(pods[i], "metadata/annotations/sluice.io~1lease") : "";
        if (!lease[0])
            continue;
        assert_int_equal(sl_promise_lease_parse(lease, &p, NULL), 0);
        for (size_t d = 0; d < p.share_count; d++) {
            size_t k = 0;
            while (k < n && strcmp(sums[k].uuid, p.share[d].gpu) != 0)
                k++;
            if (k == n) {
                assert_true(n < SL_ARRAY_LEN(sums));
                sums[n++] = (struct sum){.memory = 0};
                memcpy(sums[k].uuid, p.share[d].gpu, 64);
            }
            sums[k].memory += p.share[d].memory_bytes >> 20;
            sums[k].cores += p.share[d].cores_permille / 10;
        }
    }
    for (size_t k = 0; k < n; k++)
        if (sums[k].memory > card_mib || sums[k].cores > 100)
            fail_msg("%s: %llu MiB, %llu cores", sums[k].uuid, (unsigned long long)sums[k].memory,
                     (unsigned long long)sums[k].cores);
}

static void audited(struct sl_cluster *c)
{
    struct sl_err err = SL_ERR_INIT;
    if (cluster_audit(c, &err) != 0)
        fail_msg("%s", err.msg);
}

/* All filters before any bind: each decision counts at once, none waits for another. */
static void test_burst(void **state)
{
    (void)state;
    enum { PODS = 1000 };
    static json_t *pods[PODS];
    char node[64];
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 8, 143771, "NVIDIA H200");
    for (unsigned i = 0; i < PODS; i++) {
        pods[i] = api_pod(i, "'nvidia.com/gpu':'1','nvidia.com/gpumem':'1100'");
        filter(c, pods[i], "['n1']", S, node);
        assert_string_equal(node, "n1");
    }
    audited(c);
    for (unsigned i = 0; i < PODS; i++)
        assert_int_equal(bind(c, pods[(i * 7) % PODS], "n1", 2 * S), 0);
    audit_leases(pods, PODS, 143771);
    audited(c);
    /* 8 x 130 fit; the rest have no room, and are told so. */
    for (unsigned i = PODS; i < 1041; i++) {
        json_t *pod = api_pod(i, "'nvidia.com/gpu':'1','nvidia.com/gpumem':'1100'");
        filter(c, pod, "['n1']", S, node);
        assert_string_equal(node, i < 1040 ? "n1" : "");
        json_decref(pod);
    }
    for (unsigned i = 0; i < PODS; i++)
        json_decref(pods[i]);
    sl_cluster_destroy(c);
}

/* Arrivals, binds, failures, deletions, time, and now and then a new process that knows only the API server. */
static void test_history(void **state)
{
    (void)state;
    enum { PODS = 600 };
    static json_t *pods[PODS];
    static char chosen[PODS][64];
    static const char *const limits[] = {
        "'nvidia.com/gpu':'1','nvidia.com/gpumem':'10240','nvidia.com/gpucores':'30'",
        "'nvidia.com/gpu':'2','nvidia.com/gpumem-percentage':'50'", "'nvidia.com/gpu':'1'",
        "'nvidia.com/gpu':'1','nvidia.com/gpumem':'40000','nvidia.com/gpucores':'10'",
        "'nvidia.com/gpu':'4'"};
    uint64_t rng = 99, now = S;
    unsigned next = 0, bound = 0;
    struct sl_cluster *c = cluster_new();
    for (int step = 0; step < 3000; step++) {
        rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
        unsigned dice = (unsigned)(rng >> 33), slot = dice / 16 % PODS;
        now += S / 10;
        if (step == 0 || step % 700 == 699) { /* a restart */
            sl_cluster_destroy(c);
            c = cluster_new();
            for (int i = 0; i < 6; i++) {
                char name[8];
                (void)snprintf(name, sizeof(name), "n%d", i);
                add_node(c, name, 8, 81920, "NVIDIA H100");
            }
            for (int i = 0; i < PODS; i++)
                if (pods[i])
                    assert_int_equal(sl_cluster_pod_set(c, pods[i], now, NULL), 0);
            memset(chosen, 0, sizeof(chosen));
        }
        sl_cluster_expire(c, now);
        if (!pods[slot]) {
            pods[slot] = api_pod(10000 + next, limits[next % SL_ARRAY_LEN(limits)]);
            next++;
        }
        const char *on = text_at(pods[slot], "spec/nodeName");
        if (on[0] && dice % 16 < 6) {
            sl_cluster_pod_gone(c, text_at(pods[slot], "metadata/uid"));
            json_decref(pods[slot]);
            pods[slot] = NULL;
            chosen[slot][0] = '\0';
        } else if (!on[0] && !chosen[slot][0]) {
            filter(c, pods[slot], "['n0','n1','n2','n3','n4','n5','nx']", now, chosen[slot]);
        } else if (!on[0] && dice % 16 < 12) {
            bound += bind(c, pods[slot], chosen[slot], now) == 0;
            chosen[slot][0] = '\0';
            if (dice % 3) /* the watch, now or never */
                assert_int_equal(sl_cluster_pod_set(c, pods[slot], now, NULL), 0);
        }
        if (step % 100 == 0) {
            audited(c);
            sl_cluster_learn(c);
        }
    }
    assert_true(bound > 100);
    audit_leases(pods, PODS, 81920);
    audited(c);
    for (int i = 0; i < PODS; i++)
        if (pods[i])
            sl_cluster_pod_gone(c, text_at(pods[i], "metadata/uid"));
    sl_cluster_expire(c, now + 100 * S);
    struct sl_cluster_stats stats;
    sl_cluster_stats(c, &stats);
    assert_int_equal(stats.pods, 0);
    assert_int_equal(stats.gpu_free_milli, stats.gpu_milli);
    for (int i = 0; i < PODS; i++)
        json_decref(pods[i]);
    sl_cluster_destroy(c);
}

static void test_reservation(void **state)
{
    (void)state;
    char node[64];
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 1, 1000, "A");
    json_t *a = api_pod(1, "'nvidia.com/gpumem':'600'"),
           *b = api_pod(2, "'nvidia.com/gpumem':'600'");
    filter(c, a, "['n1']", S, node);
    assert_string_equal(node, "n1");
    filter(c, b, "['n1']", 2 * S, node);
    assert_string_equal(node, "");
    filter(c, a, "['n1']", 3 * S, node); /* again: its own reservation is not in its way */
    assert_string_equal(node, "n1");
    sl_cluster_expire(c, 32 * S);
    filter(c, b, "['n1']", 32 * S, node);
    assert_string_equal(node, "");
    sl_cluster_expire(c, 34 * S);
    filter(c, b, "['n1']", 34 * S, node);
    assert_string_equal(node, "n1");
    assert_int_equal(bind(c, a, "n1", 35 * S), -ENOENT); /* gone: it never came by the watch */
    assert_int_equal(bind(c, b, "n1", 35 * S), 0);
    assert_int_equal(bind(c, b, "n1", 35 * S), -EBUSY);
    json_decref(a);
    json_decref(b);
    sl_cluster_destroy(c);
}

/* A bind that died between the annotation and the binding: the room stays taken for a while. */
static void test_half_bound(void **state)
{
    (void)state;
    char node[64];
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 1, 1000, "A");
    json_t *a = api_pod(1, "'nvidia.com/gpumem':'600'"),
           *b = api_pod(2, "'nvidia.com/gpumem':'600'");
    filter(c, a, "['n1']", S, node);
    assert_int_equal(bind(c, a, "n1", S), 0);
    json_object_del(at(a, "spec"), "nodeName");
    sl_cluster_destroy(c);
    c = cluster_new();
    add_node(c, "n1", 1, 1000, "A");
    assert_int_equal(sl_cluster_pod_set(c, a, S, NULL), 0);
    filter(c, b, "['n1']", S, node);
    assert_string_equal(node, "");
    filter(c, a, "['n1']", S, node);
    assert_string_equal(node, "n1");
    assert_int_equal(bind(c, a, "n1", S), 0);
    json_decref(a);
    json_decref(b);
    sl_cluster_destroy(c);
}

static void test_cards_change(void **state)
{
    (void)state;
    char node[64];
    struct sl_cluster_stats stats;
    struct sl_cluster *c = cluster_new();
    json_t *a = api_pod(1, "'nvidia.com/gpumem':'600'"),
           *b = api_pod(2, "'nvidia.com/gpumem':'600'");
    /* The pod is told before its node is: it counts as soon as the cards are known. */
    add_node(c, "n1", 1, 1000, "A");
    filter(c, a, "['n1']", S, node);
    assert_int_equal(bind(c, a, "n1", S), 0);
    sl_cluster_destroy(c);
    c = cluster_new();
    assert_int_equal(sl_cluster_pod_set(c, a, S, NULL), 0);
    add_node(c, "n1", 1, 1000, "A");
    filter(c, b, "['n1']", S, node);
    assert_string_equal(node, "");
    add_node(c, "n1", 2, 1000, "A"); /* another card */
    filter(c, b, "['n1']", S, node);
    assert_string_equal(node, "n1");
    audited(c);
    add_node(c, "n1", 1, 500,
             "A"); /* smaller than what is promised of it: nothing new, nothing lost */
    sl_cluster_stats(c, &stats);
    assert_int_equal(stats.misfits, 1);
    sl_cluster_pod_gone(c, "uid-1");
    sl_cluster_stats(c, &stats);
    assert_int_equal(stats.misfits, 0);
    json_t *small = api_pod(3, "'nvidia.com/gpumem':'500'");
    filter(c, small, "['n1']", S, node);
    assert_string_equal(node, "n1");
    sl_cluster_node_gone(c, "n1");
    filter(c, b, "['n1']", S, node);
    assert_string_equal(node, "");
    json_decref(a);
    json_decref(b);
    json_decref(small);
    sl_cluster_destroy(c);
}

static void test_wishes(void **state)
{
    (void)state;
    char node[64];
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 4, 81920, "NVIDIA A100-SXM4-80GB");
    add_node(c, "n2", 4, 143771, "NVIDIA H200");
    json_t *pod = api_pod(1, "'nvidia.com/gpumem':'600'");
    json_t *notes = json_object();
    json_object_set_new(at(pod, "metadata"), "annotations", notes);
    json_object_set_new(notes, "nvidia.com/use-gputype", json_string("a100"));
    filter(c, pod, "['n1','n2']", S, node);
    assert_string_equal(node, "n1");
    json_object_clear(notes);
    json_object_set_new(notes, "nvidia.com/nouse-gputype", json_string("a100"));
    filter(c, pod, "['n1','n2']", S, node);
    assert_string_equal(node, "n2");
    json_object_clear(notes);
    json_object_set_new(notes, "nvidia.com/use-gpuuuid", json_string("GPU-n2-3"));
    filter(c, pod, "['n1','n2']", S, node);
    assert_string_equal(node, "n2");
    assert_int_equal(bind(c, pod, "n2", S), 0);
    assert_non_null(strstr(text_at(pod, "metadata/annotations/sluice.io~1lease"), "GPU-n2-3"));
    json_decref(pod);
    pod = api_pod(2, "'nvidia.com/gpumem':'600'");
    json_object_set_new(at(pod, "metadata"), "annotations",
                        json_pack("{s:s}", "nvidia.com/use-gputype", "B200"));
    filter(c, pod, "['n1','n2']", S, node);
    assert_string_equal(node, "");
    json_decref(pod);
    sl_cluster_destroy(c);
}

static void label(struct sl_cluster *c, const char *name, const char *key, const char *value)
{
    json_t *j = node_json(name, 2, 143771, "NVIDIA H200");
    json_object_set_new(at(j, "metadata"), "labels", json_pack("{s:s}", key, value));
    assert_int_equal(sl_cluster_node_set(c, j, NULL), 0);
    json_decref(j);
}

/* A pod with Fluid's terms: its dataset is in the cache of n3, and n2 is in the cache's zone. */
static json_t *near_data(unsigned number, const char *limits)
{
    json_t *pod = api_pod(number, limits);
    json_object_set_new(
        at(pod, "spec"), "affinity",
        quoted("{'nodeAffinity':{'preferredDuringSchedulingIgnoredDuringExecution':[{'weight':100,"
               "'preference':{'matchExpressions':[{'key':'fluid.io/s-ns-data','operator':'In',"
               "'values':['true']}]}},{'weight':50,'preference':{'matchExpressions':[{'key':"
               "'topology.kubernetes.io/zone','operator':'In','values':['a']}]}}]}}"));
    return pod;
}

/* The preferred node is taken although another would be packed better; without room there, the next one is taken. */
static void test_locality(void **state)
{
    (void)state;
    char node[64];
    static const char *const expected[] = {"n3", "n3", "n2", "n2", "n1"};
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 2, 143771, "NVIDIA H200");
    label(c, "n2", "topology.kubernetes.io/zone", "a");
    label(c, "n3", "fluid.io/s-ns-data", "true");
    /* Half a card is in use on n1: packing alone would go there. */
    json_t *pod = api_pod(100, "'nvidia.com/gpumem':'70000','nvidia.com/gpucores':'50'");
    filter(c, pod, "['n1']", S, node);
    assert_string_equal(node, "n1");
    json_decref(pod);
    pod = near_data(101, "'nvidia.com/gpumem':'60000','nvidia.com/gpucores':'40'");
    filter(c, pod, "['n1','n2','n3']", S, node);
    assert_string_equal(node, "n3");
    json_object_del(at(pod, "spec"), "affinity"); /* asked again, without the wish */
    filter(c, pod, "['n1','n2','n3']", S, node);
    assert_string_equal(node, "n1");
    sl_cluster_pod_gone(c, "uid-101");
    json_decref(pod);
    for (unsigned i = 0; i < 5; i++) { /* whole cards: two a node */
        pod = near_data(i, "'nvidia.com/gpu':'1','nvidia.com/gpucores':'100'");
        filter(c, pod, "['n1','n2','n3']", S, node);
        assert_string_equal(node, expected[i]);
        json_decref(pod);
    }
    pod = near_data(6, "'nvidia.com/gpu':'1','nvidia.com/gpucores':'100'");
    filter(c, pod, "['n1','n2','n3']", S, node);
    assert_string_equal(node, ""); /* no room anywhere */
    filter(c, pod, "[]", S, node);
    assert_string_equal(node, "");
    json_decref(pod);
    /* With two containers: not by the engine alone. */
    sl_cluster_pod_gone(c, "uid-0");
    pod = near_data(7, "'nvidia.com/gpumem':'6000','nvidia.com/gpucores':'10'");
    json_array_append_new(at(pod, "spec/containers"),
                          quoted("{'name':'b','resources':{'limits':{'nvidia.com/gpu':'1',"
                                 "'nvidia.com/gpumem':'500','nvidia.com/gpucores':'10'}}}"));
    filter(c, pod, "['n1','n2','n3']", S, node);
    assert_string_equal(node, "n3");
    json_decref(pod);
    audited(c);
    sl_cluster_destroy(c);
}

/* Two containers of different sizes, and an init container that uses the first one's GPU. */
static void test_containers(void **state)
{
    (void)state;
    char node[64];
    struct sl_cluster_stats stats;
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 2, 1000, "A");
    json_t *pod = quoted(
        "{'metadata':{'name':'p','uid':'u','namespace':'ns'},'spec':{'initContainers':[{'name':'i',"
        "'resources':{'limits':{'nvidia.com/gpu':'1','nvidia.com/gpumem':'700'}}}],'containers':["
        "{'name':'a','resources':{'limits':{'nvidia.com/gpu':'1','nvidia.com/gpumem':'700'}}},"
        "{'name':'none'},{'name':'b','resources':{'limits':{'nvidia.com/gpu':'1',"
        "'nvidia.com/gpumem':'800','nvidia.com/gpucores':'40'}}}]}}");
    filter(c, pod, "['n1']", S, node);
    assert_string_equal(node, "n1");
    assert_int_equal(bind(c, pod, "n1", S), 0);
    struct sl_promise p;
    assert_int_equal(
        sl_promise_lease_parse(text_at(pod, "metadata/annotations/sluice.io~1lease"), &p, NULL), 0);
    assert_int_equal(p.container_count, 3);
    assert_string_equal(p.share[p.container[0].first].gpu, p.share[p.container[1].first].gpu);
    assert_string_not_equal(p.share[p.container[0].first].gpu, p.share[p.container[2].first].gpu);
    sl_cluster_stats(c, &stats);
    uint64_t free_before = stats.gpu_free_milli;
    sl_cluster_destroy(c);
    c = cluster_new();
    add_node(c, "n1", 2, 1000, "A");
    assert_int_equal(sl_cluster_pod_set(c, pod, S, NULL), 0);
    sl_cluster_stats(c, &stats);
    assert_int_equal(stats.gpu_free_milli, free_before);
    assert_int_equal(stats.misfits, 0);
    json_decref(pod);
    sl_cluster_destroy(c);
}

/* The lease counts, not the reservation: also where both are on the same GPUs, the other way round. */
static void test_swapped(void **state)
{
    (void)state;
    char node[64], uuid[2][64], swapped[1024];
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 2, 1000, "A");
    json_t *pod = quoted(
        "{'metadata':{'name':'p','uid':'u','namespace':'ns'},'spec':{'containers':["
        "{'name':'a','resources':{'limits':{'nvidia.com/gpu':'1','nvidia.com/gpumem':'700'}}},"
        "{'name':'b','resources':{'limits':{'nvidia.com/gpu':'1','nvidia.com/gpumem':'800'}}}]}}");
    filter(c, pod, "['n1']", S, node);
    assert_int_equal(bind(c, pod, "n1", S), 0);
    struct sl_promise p;
    const char *key = "metadata/annotations/sluice.io~1lease";
    assert_int_equal(sl_promise_lease_parse(text_at(pod, key), &p, NULL), 0);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(uuid[i], sizeof(uuid[i]), "%s", p.share[p.container[i].first].gpu);
        (void)snprintf(p.share[p.container[i].first].gpu, sizeof(p.share[0].gpu), "GPU-n1-%c",
                       uuid[i][strlen(uuid[i]) - 1] == '0' ? '1' : '0');
    }
    char *text = sl_promise_lease_text(&p);
    (void)snprintf(swapped, sizeof(swapped), "%s", text);
    free(text);
    json_object_set_new(at(pod, "metadata/annotations"), SL_PROMISE_LEASE_KEY,
                        json_string(swapped));
    assert_int_equal(sl_cluster_pod_set(c, pod, 2 * S, NULL), 0);
    for (unsigned i = 0; i < 2; i++) { /* 250 fit beside the 700, and not beside the 800 */
        json_t *other = api_pod(10 + i, "'nvidia.com/gpumem':'250'");
        json_object_set_new(at(other, "metadata"), "annotations",
                            json_pack("{s:s}", "nvidia.com/use-gpuuuid", uuid[i]));
        filter(c, other, "['n1']", 3 * S, node);
        assert_string_equal(node, i == 0 ? "" : "n1");
        json_decref(other);
    }
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(cluster_audit(c, &err), 0);
    json_decref(pod);
    sl_cluster_destroy(c);
}

/* The pod's own policy goes before the cluster's. */
static void test_policies(void **state)
{
    (void)state;
    char node[64], first[64];
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 2, 1000, "A");
    add_node(c, "n2", 2, 1000, "A");
    for (unsigned i = 0; i < 8; i++) {
        json_t *pod = api_pod(i, "'nvidia.com/gpumem':'100'");
        json_object_set_new(at(pod, "metadata"), "annotations",
                            json_pack("{s:s,s:s}", "hami.io/node-scheduler-policy",
                                      i < 4 ? "spread" : "binpack", "hami.io/gpu-scheduler-policy",
                                      i < 4 ? "spread" : "numa,binpack"));
        filter(c, pod, "['n1','n2']", S, node);
        assert_int_equal(bind(c, pod, node, S), 0);
        const char *lease = text_at(pod, "metadata/annotations/sluice.io~1lease");
        char want[16];
        (void)snprintf(want, sizeof(want), "-%u\"", i < 4 ? i / 2 : 0);
        if (i < 2 || i >= 4)
            assert_non_null(
                strstr(lease, want)); /* the first card; full ones first, once packing */
        if (i == 4)
            (void)snprintf(first, sizeof(first), "%s", node);
        if (i > 4)
            assert_string_equal(node, first);
        json_decref(pod);
    }
    audited(c);
    sl_cluster_destroy(c);
}

static char *asked(struct sl_cluster *c, bool all, bool prioritize, const char *body)
{
    struct sl_extender e = {
        .cluster = c, .all = all, .slot_resource = "nvidia.com/gpu", .claims = &no_claims};
    json_t *j = quoted(body);
    char *text = json_dumps(j, 0);
    char *answer = prioritize ? sl_extender_prioritize(&e, text, strlen(text))
                              : sl_extender_filter(&e, text, strlen(text), S);
    free(text);
    json_decref(j);
    return answer;
}

#define POD                                                                                        \
    "'Pod':{'metadata':{'uid':'u','namespace':'ns','name':'p'},'spec':{'containers':[{'name':'m'," \
    "'resources':{'limits':{"

/* The protocol's other forms: all nodes with scores, whole objects, pods that ask for nothing, errors. */
static void test_protocol(void **state)
{
    (void)state;
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 1, 1000, "A");
    add_node(c, "n2", 1, 500, "A");
    static const struct {
        const char *body, *answer;
        bool all, prioritize;
    } rows[] = {
        {"{" POD
         "'nvidia.com/gpu':'1','nvidia.com/gpumem':'600'}}}]}},'NodeNames':['n1','n2','n3']}",
         "{\"Nodes\":null,\"NodeNames\":[\"n1\"],\"FailedNodes\":{},\"FailedAndUnresolvableNodes\":"
         "{"
         "\"n2\":\"its GPUs are too small or too few\",\"n3\":\"no GPUs of Sluice's on this "
         "node\"},\"Error\":\"\"}",
         true, false},
        {"{" POD "'nvidia.com/gpu':'1','nvidia.com/gpumem':'600'}}}]}},'NodeNames':['n1','n2']}",
         "[{\"Host\":\"n1\",\"Score\":10},{\"Host\":\"n2\",\"Score\":0}]", false, true},
        {"{" POD "'nvidia.com/gpu':'1','nvidia.com/"
         "gpumem':'600'}}}]}},'Nodes':{'items':[{'metadata':{'name':'n2'}},{'metadata':{'"
         "name':'n1'}}]}}",
         "{\"NodeNames\":null,\"Nodes\":{\"items\":[{\"metadata\":{\"name\":\"n1\"}}]},"
         "\"FailedNodes\":{},"
         "\"FailedAndUnresolvableNodes\":{\"n2\":\"its GPUs are too small or too "
         "few\"},\"Error\":\"\"}",
         false, false},
        {"{" POD "'cpu':'1'}}}]}},'NodeNames':['n1','n9']}",
         "{\"Nodes\":null,\"NodeNames\":[\"n1\",\"n9\"],\"FailedNodes\":{},\"Error\":\"\"}", false,
         false},
        /* Past the webhook and without a count, kubelet would give it nothing. */
        {"{" POD "'nvidia.com/gpumem':'600'}}}]}},'NodeNames':['n1']}",
         "{\"NodeNames\":null,\"Nodes\":null,\"FailedNodes\":{},\"Error\":\"container m has no "
         "nvidia.com/gpu in its limits, so kubelet would give it no GPU: the webhook of "
         "sluice-controller did not see this pod; delete the pod and create it again\"}",
         false, false},
        {"{'Pod':{},'Nodes':null}",
         "{\"NodeNames\":null,\"Nodes\":null,\"FailedNodes\":{},\"Error\":\"the request names no "
         "nodes: set nodeCacheCapable: true\"}",
         false, false},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        char *answer = asked(c, rows[i].all, rows[i].prioritize, rows[i].body);
        assert_string_equal(answer, rows[i].answer);
        free(answer);
    }
    sl_cluster_destroy(c);
}

/* A node that comes back under another name has other pods' places, not its own of before. */
static void test_renamed(void **state)
{
    (void)state;
    char node[64];
    struct sl_cluster *c = cluster_new();
    add_node(c, "old", 1, 1000, "A");
    json_t *pod = api_pod(1, "'nvidia.com/gpumem':'900'");
    filter(c, pod, "['old']", S, node);
    assert_int_equal(bind(c, pod, "old", S), 0);
    sl_cluster_node_gone(c, "old");
    add_node(c, "new", 1, 1000, "A");
    json_t *other = api_pod(2, "'nvidia.com/gpumem':'900'");
    filter(c, other, "['old','new']", S, node);
    assert_string_equal(node, "new");
    sl_cluster_pod_gone(c, "uid-1");
    struct sl_cluster_stats stats;
    sl_cluster_stats(c, &stats);
    assert_int_equal(stats.nodes, 1);
    audited(c);
    json_decref(pod);
    json_decref(other);
    sl_cluster_destroy(c);
}

static json_t *asking(unsigned number, const char *limits)
{
    json_t *pod = api_pod(number, limits);
    struct sl_request r = {.part_count = 1, .containers = 1};
    (void)snprintf(r.part[0].container, sizeof(r.part[0].container), "main");
    r.part[0].count = 1;
    r.part[0].same_as = -1;
    r.part[0].share.memory_bytes = 600ULL << 20;
    char *text = sl_request_text(&r);
    json_object_set_new(at(pod, "metadata"), "annotations",
                        json_pack("{s:s}", SL_PROMISE_REQUEST_KEY, text));
    free(text);
    return pod;
}

/* Whoever was refused hears of room, once, and only while somebody waits. */
static void test_room(void **state)
{
    (void)state;
    char node[64];
    struct sl_cluster *c = cluster_new();
    add_node(c, "n1", 1, 1000, "A");
    add_node(c, "n2", 1, 1000, "A");
    json_t *pod[4];
    for (unsigned i = 0; i < 4; i++)
        pod[i] = asking(i, "'nvidia.com/gpumem':'600'");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sl_cluster_pod_set(c, pod[i], S, NULL), 0);
    filter(c, pod[0], "['n1']", S, node);
    assert_int_equal(bind(c, pod[0], "n1", S), 0);
    sl_cluster_pod_gone(c, "uid-0"); /* nobody waits */
    assert_null(sl_cluster_next_room(c));
    filter(c, pod[1], "['n1']", S, node);
    assert_int_equal(bind(c, pod[1], "n1", S), 0);
    filter(c, pod[2], "['n2']", S, node); /* reserved only */
    assert_string_equal(node, "n2");
    filter(c, pod[3], "['n1','n2']", S, node);
    assert_string_equal(node, "");
    assert_int_equal(sl_cluster_pod_set(c, pod[3], S, NULL),
                     0);                  /* the watch tells of it only now */
    assert_null(sl_cluster_next_room(c)); /* and there is none */
    sl_cluster_expire(c, 32 * S);
    assert_string_equal(sl_cluster_next_room(c), "n2");
    assert_null(sl_cluster_next_room(c));
    sl_cluster_pod_gone(c, "uid-1"); /* it waits still */
    assert_string_equal(sl_cluster_next_room(c), "n1");
    assert_null(sl_cluster_next_room(c));
    filter(c, pod[3], "['n1','n2']", 33 * S, node);
    assert_string_not_equal(node, "");
    sl_cluster_expire(c, 99 * S); /* not any more */
    assert_null(sl_cluster_next_room(c));
    for (unsigned i = 0; i < 4; i++)
        json_decref(pod[i]);
    sl_cluster_destroy(c);
}

/* HAMi's own pods and nodes count too: a cluster in the middle of moving over. */
static void test_hami_state(void **state)
{
    (void)state;
    char node[64];
    struct sl_cluster *c = cluster_new();
    json_t *n = json_pack(
        "{s:{s:s,s:{s:s}}}", "metadata", "name", "n1", "annotations", SL_PROMISE_REGISTER_KEY,
        "[{\"id\":\"GPU-x\",\"count\":10,\"devmem\":1000,\"devcore\":100,\"type\":\"A\","
        "\"numa\":0,\"health\":true}]");
    assert_int_equal(sl_cluster_node_set(c, n, NULL), 0);
    json_decref(n);
    json_t *pod = quoted("{'metadata':{'uid':'h','namespace':'ns','annotations':{"
                         "'hami.io/vgpu-devices-allocated':'GPU-x,NVIDIA,600,30:;'}},"
                         "'spec':{'nodeName':'n1'}}");
    assert_int_equal(sl_cluster_pod_set(c, pod, S, NULL), 0);
    json_decref(pod);
    pod = api_pod(1, "'nvidia.com/gpumem':'500'");
    filter(c, pod, "['n1']", S, node);
    assert_string_equal(node, "");
    json_decref(pod);
    pod = api_pod(1, "'nvidia.com/gpumem':'400','nvidia.com/gpucores':'70'");
    filter(c, pod, "['n1']", S, node);
    assert_string_equal(node, "n1");
    json_decref(pod);
    sl_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_burst),        cmocka_unit_test(test_history),
        cmocka_unit_test(test_reservation),  cmocka_unit_test(test_half_bound),
        cmocka_unit_test(test_cards_change), cmocka_unit_test(test_wishes),
        cmocka_unit_test(test_containers),   cmocka_unit_test(test_hami_state),
        cmocka_unit_test(test_policies),     cmocka_unit_test(test_protocol),
        cmocka_unit_test(test_swapped),      cmocka_unit_test(test_renamed),
        cmocka_unit_test(test_room),         cmocka_unit_test(test_locality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
