/* SPDX-License-Identifier: Apache-2.0 */
/* A NodeFeature object on a server that has the kind, has it not, fails, or is slow. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "agent/node/node_feature.h"
#include "base/clock.h"
#include "base/log.h"

#define PATH "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/gpu/nodefeatures/sluice-features-for-node-1"

static uint64_t now_ns;
static struct sl_loop *loop;
static struct sl_node_feature *feature;
static const char *uid;
static unsigned told, calls;
static char why[128];

/* The question that is open: one at a time. */
static struct {
    bool open;
    sl_kube_done *done;
    void *data;
    char method[8], path[300], type[40];
    json_t *body;
} call;

static uint64_t clock_ns(void)
{
    return now_ns;
}

static int fake_request(struct sl_kube *server, const char *method, const char *path,
                        const char *content_type, json_t *body, sl_kube_done *done, void *data,
                        struct sl_kube_call **ret_call, struct sl_err *err)
{
    (void)server;
    (void)err;
    assert_false(call.open);
    call.open = true;
    call.done = done;
    call.data = data;
    json_decref(call.body);
    call.body = json_deep_copy(body);
    (void)snprintf(call.method, sizeof(call.method), "%s", method);
    (void)snprintf(call.path, sizeof(call.path), "%s", path);
    (void)snprintf(call.type, sizeof(call.type), "%s", content_type ? content_type : "");
    calls++;
    *ret_call = (void *)&call;
    return 0;
}

static void fake_cancel(struct sl_kube_call *which)
{
    (void)which;
    call.open = false;
}

static void answer(int status)
{
    struct sl_err err = SL_ERR_INIT;
    assert_true(call.open);
    call.open = false;
    if (status < 200 || status > 299)
        (void)sl_err_set(&err, -EIO, "the test said %d", status);
    call.done(call.data, status, NULL, &err);
}

static const char *node_uid(void *data)
{
    (void)data;
    return uid;
}

static void changed(void *data, const char *words)
{
    (void)data;
    told++;
    (void)snprintf(why, sizeof(why), "%s", words ? words : "taken");
}

static void want(const char *count)
{
    struct sl_labels labels = {0};
    sl_labels_set(&labels, "nvidia.com/gpu.count", count);
    sl_node_feature_labels(feature, &labels);
    sl_labels_clear(&labels);
}

static void pass(uint64_t seconds)
{
    now_ns += seconds * SL_NS_PER_S;
    assert_int_equal(sl_loop_step(loop, 0, NULL), 0);
}

static const char *text_at(const char *const *path)
{
    const json_t *o = call.body;
    for (; *path; path++)
        o = json_is_array(o) ? json_array_get(o, 0) : json_object_get(o, *path);
    return json_string_value(o);
}
#define AT(...) text_at((const char *const[]){__VA_ARGS__, NULL})

static int setup(void **state)
{
    (void)state;
    sl_log_open(SL_LOG_OFF, -1);
    memset(&call, 0, sizeof(call));
    now_ns = 1000 * SL_NS_PER_S;
    told = calls = 0;
    uid = "u-1";
    assert_int_equal(sl_loop_create(clock_ns, &loop, NULL), 0);
    struct sl_node_feature_options opt = {.node = "node-1",
                                          .name_space = "gpu",
                                          .api = {.request = fake_request, .cancel = fake_cancel},
                                          .node_uid = node_uid,
                                          .changed = changed};
    assert_int_equal(sl_node_feature_create(loop, &opt, &feature, NULL), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_node_feature_destroy(feature);
    assert_false(call.open);
    sl_loop_destroy(loop);
    json_decref(call.body);
    call.body = NULL;
    return 0;
}

static void the_object(void **state)
{
    (void)state;
    want("2");
    assert_string_equal(call.method, "PATCH");
    assert_string_equal(call.path, PATH "?fieldManager=sluiced&force=true");
    assert_string_equal(call.type, SL_KUBE_PATCH_APPLY);
    assert_string_equal(AT("apiVersion"), "nfd.k8s-sigs.io/v1alpha1");
    assert_string_equal(AT("kind"), "NodeFeature");
    assert_string_equal(AT("metadata", "name"), "sluice-features-for-node-1");
    assert_string_equal(AT("metadata", "namespace"), "gpu");
    assert_string_equal(AT("metadata", "labels", "nfd.node.kubernetes.io/node-name"), "node-1");
    assert_string_equal(AT("metadata", "ownerReferences", "0", "kind"), "Node");
    assert_string_equal(AT("metadata", "ownerReferences", "0", "uid"), "u-1");
    assert_string_equal(AT("spec", "labels", "nvidia.com/gpu.count"), "2");
    const json_t *features = json_object_get(json_object_get(call.body, "spec"), "features");
    assert_true(json_is_object(json_object_get(features, "instances")));
    assert_false(sl_node_feature_stats(feature).current);
    answer(200);
    assert_int_equal(told, 1);
    assert_string_equal(why, "taken");
    assert_true(sl_node_feature_stats(feature).current);
    want("2"); /* as it is: nothing to ask */
    assert_int_equal(calls, 1);
    want("3");
    answer(200);
    assert_int_equal(told, 1);
    pass(301); /* somebody may have deleted it */
    assert_int_equal(calls, 3);
    assert_string_equal(AT("spec", "labels", "nvidia.com/gpu.count"), "3");
    assert_true(sl_node_feature_stats(feature).current);
    answer(200);
}

static void changed_while_asking(void **state)
{
    (void)state;
    want("2");
    want("3");
    want("4");
    assert_int_equal(calls, 1);
    answer(200);
    assert_false(sl_node_feature_stats(feature).current);
    assert_int_equal(calls, 2);
    assert_string_equal(AT("spec", "labels", "nvidia.com/gpu.count"), "4");
    answer(200);
    assert_true(sl_node_feature_stats(feature).current);
    assert_false(call.open);
}

static void no_such_kind(void **state)
{
    (void)state;
    want("2");
    answer(404);
    assert_int_equal(told, 1);
    assert_string_equal(why, "the test said 404");
    assert_int_equal(sl_node_feature_stats(feature).state, SL_FEATURE_REFUSED);
    want("3");
    pass(30);
    assert_int_equal(calls, 1); /* it is not installed by asking */
    pass(31);
    answer(403);
    assert_int_equal(told, 1);
    pass(61);
    assert_string_equal(AT("spec", "labels", "nvidia.com/gpu.count"), "3");
    answer(201);
    assert_int_equal(told, 2);
    assert_string_equal(why, "taken");
}

static void the_server_is_away(void **state)
{
    (void)state;
    want("2");
    answer(200);
    want("3");
    for (unsigned i = 0; i < 100;
         i++) { /* an hour or so: at most every half minute, nothing is told */
        answer(i % 2 ? 0 : 503);
        want(i % 3 ? "4" : "5");
        assert_false(call.open);
        pass(31);
    }
    assert_int_equal(told, 1);
    assert_false(sl_node_feature_stats(feature).current);
    answer(200);
    assert_true(sl_node_feature_stats(feature).current);
    assert_int_equal(sl_node_feature_stats(feature).failures, 100);
}

static void the_node_was_not_seen_yet(void **state)
{
    (void)state;
    uid = NULL;
    want("2");
    pass(2);
    assert_int_equal(calls, 0);
    uid = "u-2"; /* made anew: the old one's objects go with it */
    pass(2);
    assert_string_equal(AT("metadata", "ownerReferences", "0", "uid"), "u-2");
    answer(200);
}

static void withdrawn(void **state)
{
    (void)state;
    sl_node_feature_withdraw(feature); /* of an earlier agent, perhaps */
    assert_string_equal(call.method, "DELETE");
    assert_string_equal(call.path, PATH);
    answer(404);
    sl_node_feature_withdraw(feature);
    assert_int_equal(calls, 1);
    want("2");
    sl_node_feature_withdraw(feature); /* before it was answered */
    answer(200);
    assert_string_equal(call.method, "DELETE");
    answer(503);
    sl_node_feature_withdraw(feature);
    assert_false(call.open);
    pass(31);
    assert_string_equal(call.method, "DELETE");
    want("3");
    answer(200);
    assert_string_equal(call.method, "PATCH");
    answer(200);
    assert_true(sl_node_feature_stats(feature).current);
    assert_string_equal(why, "taken");
}

static void bad_names(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_node_feature *f = NULL;
    struct sl_node_feature_options opt = {.node = "node-1", .name_space = ""};
    assert_int_equal(sl_node_feature_create(loop, &opt, &f, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "POD_NAMESPACE"));
    opt.name_space = "a/b";
    assert_int_equal(sl_node_feature_create(loop, &opt, &f, &err), -EINVAL);
    opt = (struct sl_node_feature_options){.node = "no de", .name_space = "gpu"};
    assert_int_equal(sl_node_feature_create(loop, &opt, &f, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "NODE_NAME"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_object),         TEST(changed_while_asking),      TEST(no_such_kind),
        TEST(the_server_is_away), TEST(the_node_was_not_seen_yet), TEST(withdrawn),
        TEST(bad_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
