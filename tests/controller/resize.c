/* SPDX-License-Identifier: Apache-2.0 */
/* Pods that are resized by annotation: which pods ask, what a lease becomes, and what the books say meanwhile. */
#include "pods.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "controller/controller_internal.h"
#include "controller/dialect.h"

#define S    SL_NS_PER_S
#define CARD 81920

/* --- which pods ask --- */

static void test_wanted(void **state)
{
    (void)state;
    static const struct {
        const char *notes, *node;
        bool wanted;
    } rows[] = {
        {"'sluice.io/lease':'{}'", "n1", false},
        {"'sluice.io/lease':'{}','gpu.sluice.io/resize':'memory=1Gi'", "n1", true},
        {"'sluice.io/lease':'{}','gpu.sluice.io/resize':'memory=1Gi'", "", false},
        {"'gpu.sluice.io/resize':'memory=1Gi'", "n1", false}, /* by DRA, or no GPU */
        {"'hami.io/vgpu-devices-allocated':'x','gpu.sluice.io/resize':'memory=1Gi'", "n1", true},
        {"'sluice.io/lease':'{}','gpu.sluice.io/resize':'cores=5','sluice.io/resized':"
         "'{\\\"resize\\\":\\\"cores=5\\\",\\\"done\\\":false}'",
         "n1", false},
        {"'sluice.io/lease':'{}','sluice.io/resized':'{\\\"resize\\\":\\\"cores=5\\\"}'", "n1",
         true}, /* removed again */
        {"'sluice.io/lease':'{}','sluice.io/resized':'{\\\"resize\\\":\\\"\\\"}'", "n1", false},
        {"'sluice.io/lease':'{}','sluice.io/resized':'nonsense'", "n1", false},
        {"'sluice.io/lease':'{}','gpu.sluice.io/resize':'cores=5','sluice.io/resized':7", "n1",
         true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text),
                       "{'metadata':{'uid':'u','annotations':{%s}},'spec':{'nodeName':'%s'}}",
                       rows[i].notes, rows[i].node);
        json_t *pod = quoted(text);
        if (sl_resize_wanted(pod) != rows[i].wanted)
            fail_msg("%s", text);
        json_decref(pod);
    }
}

/* A text that is too long is refused once, not for ever. */
static void test_long(void **state)
{
    (void)state;
    char text[300] = "", kept[128];
    memset(text, 'x', sizeof(text) - 1);
    (void)snprintf(kept, sizeof(kept), "%s", text);
    struct sl_promise_resized r = {.done = false};
    memcpy(r.resize, kept, sizeof(kept));
    char *outcome = sl_promise_resized_text(&r);
    json_t *pod = json_pack("{s:{s:{s:s,s:s,s:s}},s:{s:s}}", "metadata", "annotations",
                            SL_PROMISE_LEASE_KEY, "{}", SL_RESIZE_KEY, text, SL_PROMISE_RESIZED_KEY,
                            outcome, "spec", "nodeName", "n1");
    assert_false(sl_resize_wanted(pod));
    json_decref(pod);
    free(outcome);
}

static void test_promise(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_resize r;
    struct sl_promise p = {.share_count = 2};
    p.share[0] = (struct sl_share){.memory_bytes = 10ull << 30, .cores_permille = 300};
    p.share[1] = (struct sl_share){
        .memory_bytes = 5ull << 30, .cores_permille = 300, .limit_permille = 1000};
    assert_int_equal(sl_resize_parse("memory=3000000000,cores=12.5", &r, &err), 0);
    sl_promise_resize(&p, &r);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(p.share[i].memory_bytes, 2861ull << 20); /* whole MiB */
        assert_int_equal(p.share[i].cores_permille, 120);         /* whole percent */
    }
    assert_int_equal(p.share[0].limit_permille, 120); /* hard before, hard now */
    assert_int_equal(p.share[1].limit_permille, 1000);
    assert_int_equal(sl_resize_parse("memory=1,cores=0.1", &r, &err), 0);
    sl_promise_resize(&p, &r);
    assert_int_equal(p.share[0].memory_bytes, 1 << 20);
    assert_int_equal(p.share[0].cores_permille, 10);
    static const char *const bad[] = {"",         "memory",      "memory=",   "memory=50%",
                                      "cores=x",  "disk=1Gi",    "memory=-1", "cores=40:20",
                                      "cores=0",  "memory=1Gi,", ",",         "cores=101",
                                      "memory=0", " memory=1Gi"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (sl_resize_parse(bad[i], &r, &err) == 0)
            fail_msg("\"%s\" was taken", bad[i]);
}

/* --- the books --- */

static struct sl_cluster *cluster_new(void)
{
    struct sl_cluster_options opt = {.policy = SL_PLACE_SLUICE, .seed = 7};
    struct sl_cluster *c = NULL;
    struct sl_promise_node told = {.count = 1};
    told.gpu[0] = (struct sl_promise_gpu){
        .uuid = "GPU-1", .model = "A100", .memory_mib = CARD, .cores = 100, .healthy = true};
    assert_int_equal(sl_cluster_create(&opt, &c, NULL), 0);
    char *text = sl_promise_gpus_text(&told);
    json_t *j = json_pack("{s:{s:s,s:{s:s}}}", "metadata", "name", "n1", "annotations",
                          SL_PROMISE_GPUS_KEY, text);
    assert_int_equal(sl_cluster_node_set(c, j, NULL), 0);
    json_decref(j);
    free(text);
    return c;
}

static char *lease_of(unsigned mib, unsigned cores)
{
    struct sl_promise p = {.node = "n1", .container_count = 1, .share_count = 1};
    p.container[0] = (struct sl_promise_container){.name = "main", .count = 1};
    p.share[0] = (struct sl_share){.gpu = "GPU-1",
                                   .memory_bytes = (uint64_t)mib << 20,
                                   .cores_permille = cores * 10,
                                   .priority = SL_PRIORITY_NORMAL};
    return sl_promise_lease_text(&p);
}

/* The watch shows the pod with this lease. */
static void seen(struct sl_cluster *c, const char *uid, unsigned mib, unsigned cores)
{
    char *lease = lease_of(mib, cores);
    json_t *pod = json_pack("{s:{s:s,s:s,s:s,s:{s:s}},s:{s:s}}", "metadata", "uid", uid,
                            "namespace", "ns", "name", uid, "annotations", SL_PROMISE_LEASE_KEY,
                            lease, "spec", "nodeName", "n1");
    assert_int_equal(sl_cluster_pod_set(c, pod, S, NULL), 0);
    json_decref(pod);
    free(lease);
}

static int resize(struct sl_cluster *c, const char *uid, unsigned mib, unsigned cores)
{
    struct sl_err err = SL_ERR_INIT;
    char *lease = lease_of(mib, cores);
    int rc = sl_cluster_resize(c, uid, lease, &err);
    free(lease);
    return rc;
}

static void books(struct sl_cluster *c, uint64_t mib, uint64_t cores, uint64_t free_milli)
{
    struct sl_cluster_stats stats;
    uint64_t memory, time;
    sl_cluster_used(c, "ns", &memory, &time);
    assert_int_equal(memory, mib);
    assert_int_equal(time, cores);
    sl_cluster_stats(c, &stats);
    assert_int_equal(stats.gpu_free_milli, free_milli);
    assert_int_equal(stats.misfits, 0);
}

static void test_books(void **state)
{
    (void)state;
    struct sl_cluster *c = cluster_new();
    seen(c, "a", 20480, 25);
    seen(c, "b", 40960, 50);
    books(c, 61440, 75, 250);
    assert_int_equal(resize(c, "a", 10240, 10), 0); /* smaller */
    books(c, 51200, 60, 375);
    seen(c, "a", 20480, 25); /* an event from before: ignored */
    books(c, 51200, 60, 375);
    seen(c, "a", 10240, 10);
    books(c, 51200, 60, 375);
    assert_int_equal(resize(c, "a", 40960, 50), 0); /* all that is left */
    books(c, 81920, 100, 0);
    assert_int_equal(resize(c, "b", 40961, 50), -ENOSPC);
    assert_int_equal(resize(c, "b", 40960, 51), -ENOSPC);
    books(c, 81920, 100, 0); /* a refusal changes nothing */
    /* The API server refused a's lease. */
    char *before = lease_of(10240, 10);
    sl_cluster_resize_undo(c, "a", before);
    books(c, 51200, 60, 375);
    sl_cluster_resize_undo(c, "a", before); /* nothing is open */
    books(c, 51200, 60, 375);
    free(before);
    /* The administrator changed the lease, or an older controller: the watch counts. */
    seen(c, "a", 5120, 5);
    books(c, 46080, 55, 437);
    assert_int_equal(resize(c, "nobody", 1, 1), -ENOENT);
    sl_cluster_pod_gone(c, "a");
    assert_int_equal(resize(c, "a", 1, 1), -ENOENT);
    sl_cluster_pod_gone(c, "b");
    sl_cluster_destroy(c);
}

/* Room that a resize frees is told, as that of a pod that ended. */
static void test_room(void **state)
{
    (void)state;
    struct sl_cluster *c = cluster_new();
    struct sl_request r;
    const char *node = NULL;
    seen(c, "a", 81920, 100);
    json_t *pod =
        pod_of("'nvidia.com/gpu':'1','nvidia.com/gpumem':'40960','nvidia.com/gpucores':'50'",
               "'uid':'w','namespace':'ns'", "");
    assert_true(sl_dialect_read(pod, &r, NULL) > 0);
    json_decref(pod);
    struct sl_cluster_ask ask = {.uid = "w", .name_space = "ns", .request = &r};
    assert_int_equal(sl_cluster_choose(c, &ask, S, &node, NULL), -ENOSPC);
    assert_null(sl_cluster_next_room(c));

    assert_int_equal(resize(c, "a", 40960, 50), 0);
    assert_int_equal(sl_cluster_choose(c, &ask, S, &node, NULL), 0);
    assert_string_equal(node, "n1");
    assert_int_equal(resize(c, "a", 40961, 50), -ENOSPC); /* reserved for w */
    sl_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wanted), cmocka_unit_test(test_long), cmocka_unit_test(test_promise),
        cmocka_unit_test(test_books),  cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
