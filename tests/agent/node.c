/* SPDX-License-Identifier: Apache-2.0 */
/* Labels and events against an API server that fails, forgets, and lets others write too. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "agent/node/node_internal.h"
#include "base/clock.h"
#include "base/log.h"

enum { LOG = 512 };

static uint64_t now_ns;

static uint64_t clock_ns(void)
{
    return now_ns;
}

static uint64_t wall_ns(void)
{
    return 1763189402ULL * SL_NS_PER_S + now_ns;
}

/* The server: one Node, merge patches, and answers given when the test says so. */
static struct {
    json_t *node;
    unsigned version;
    int fail; /* status instead of an answer; -1: none comes (0, with an error) */
    const struct sl_kube_watch_ops *ops;
    void *watcher;
    struct call {
        bool open;
        sl_kube_done *done;
        void *data;
        char method[8], path[300], type[40];
        json_t *body;
    } call[LOG];
    size_t calls;
    unsigned cancelled;
} server;

static struct sl_loop *loop;
static struct sl_node *node;

static void say(const char *reason, unsigned number)
{
    char text[80];
    (void)snprintf(text, sizeof(text), "number %u", number);
    sl_node_event(node, SL_EVENT_WARNING, reason, text);
}

/* Events of which the server does not know all. */
static size_t waiting(void)
{
    size_t n = 0;
    for (size_t i = 0; i < node->events.count; i++)
        n += node->events.event[i]->count != node->events.event[i]->sent;
    return n;
}
static char config[64];
static unsigned config_calls;

static int fake_request(struct sl_kube *s, const char *method, const char *path,
                        const char *content_type, json_t *body, sl_kube_done *done, void *data,
                        struct sl_kube_call **ret_call, struct sl_err *err)
{
    (void)s;
    (void)err;
    assert_true(server.calls < LOG);
    struct call *c = &server.call[server.calls++];
    *c = (struct call){.open = true, .done = done, .data = data, .body = json_deep_copy(body)};
    (void)snprintf(c->method, sizeof(c->method), "%s", method);
    (void)snprintf(c->path, sizeof(c->path), "%s", path);
    (void)snprintf(c->type, sizeof(c->type), "%s", content_type);
    *ret_call = (void *)c;
    return 0;
}

static void fake_cancel(struct sl_kube_call *call)
{
    ((struct call *)(void *)call)->open = false;
    server.cancelled++;
}

static int fake_watch(struct sl_kube *s, const char *path, const struct sl_kube_watch_ops *ops,
                      void *data, struct sl_kube_watch **ret, struct sl_err *err)
{
    (void)s;
    (void)err;
    assert_string_equal(path, "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-1");
    server.ops = ops;
    server.watcher = data;
    *ret = (void *)&server;
    return 0;
}

static void fake_unwatch(struct sl_kube_watch *watch)
{
    (void)watch;
    server.ops = NULL;
}

static void merge(json_t *into, const json_t *patch)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)patch, key, value)
    {
        if (json_is_null(value)) {
            (void)json_object_del(into, key);
        } else if (json_is_object(value)) {
            if (!json_is_object(json_object_get(into, key)))
                (void)json_object_set_new(into, key, json_object());
            merge(json_object_get(into, key), value);
        } else {
            (void)json_object_set(into, key, value);
        }
    }
}

static void bump(void)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "%u", ++server.version);
    (void)json_object_set_new(json_object_get(server.node, "metadata"), "resourceVersion",
                              json_string(text));
}

static void answer(struct call *c)
{
    struct sl_err err = SL_ERR_INIT;
    c->open = false;
    if (server.fail) {
        sl_err_set(&err, -EIO, "the test said so");
        c->done(c->data, server.fail < 0 ? 0 : server.fail, NULL, &err);
        return;
    }
    if (strcmp(c->path, "/api/v1/nodes/node-1") != 0) {
        c->done(c->data, strcmp(c->method, "POST") == 0 ? 201 : 200, c->body, NULL);
        return;
    }
    assert_string_equal(c->method, "PATCH");
    assert_string_equal(c->type, "application/merge-patch+json");
    merge(server.node, c->body);
    bump();
    json_t *copy = json_deep_copy(server.node);
    c->done(c->data, 200, copy, NULL);
    json_decref(copy);
}

/* Answers everything that is open, also what is asked because of an answer. */
static unsigned answer_all(void)
{
    unsigned n = 0;
    for (size_t i = 0; i < server.calls; i++) {
        if (server.call[i].open) {
            answer(&server.call[i]);
            n++;
        }
    }
    return n;
}

static void tell(enum sl_kube_event event)
{
    json_t *copy = json_deep_copy(server.node);
    server.ops->object(server.watcher, event, copy);
    json_decref(copy);
}

/* Somebody else's hand. */
static void foreign(const char *key, const char *value)
{
    json_t *labels = json_object_get(json_object_get(server.node, "metadata"), "labels");
    if (value)
        (void)json_object_set_new(labels, key, json_string(value));
    else
        (void)json_object_del(labels, key);
    bump();
    tell(SL_KUBE_MODIFIED);
}

static const char *label(const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(json_object_get(server.node, "metadata"), "labels"), key));
}

static const char *owned(void)
{
    return json_string_value(
        json_object_get(json_object_get(json_object_get(server.node, "metadata"), "annotations"),
                        SL_NODE_OWNED_ANNOTATION));
}

static void pass(uint64_t seconds)
{
    now_ns += seconds * SL_NS_PER_S;
    assert_int_equal(sl_loop_step(loop, 0, NULL), 0);
}

static void want(const char *key, const char *value, ...)
{
    struct sl_labels labels = {0};
    va_list ap;
    va_start(ap, value);
    while (key) {
        sl_labels_set(&labels, key, value);
        key = va_arg(ap, const char *);
        value = key ? va_arg(ap, const char *) : NULL;
    }
    va_end(ap);
    sl_node_labels(node, &labels);
    sl_labels_clear(&labels);
}

static void on_config(void *data, const char *value)
{
    (void)data;
    config_calls++;
    (void)snprintf(config, sizeof(config), "%s", value ? value : "(none)");
}

static void start_node(void)
{
    struct sl_node_options opt = {
        .name = "node-1",
        .api = {NULL, fake_request, fake_cancel, fake_watch, fake_unwatch},
        .config_label = on_config,
        .wall_ns = wall_ns,
    };
    assert_int_equal(sl_node_create(loop, &opt, &node, NULL), 0);
}

static void forget_calls(void)
{
    for (size_t i = 0; i < server.calls; i++)
        json_decref(server.call[i].body);
    server.calls = 0;
}

static int setup(void **state)
{
    (void)state;
    sl_log_open(SL_LOG_OFF, -1);
    memset(&server, 0, sizeof(server));
    now_ns = 1000 * SL_NS_PER_S;
    config_calls = 0;
    server.node = json_pack("{s:{s:s,s:s,s:{s:s}}}", "metadata", "name", "node-1", "uid", "u-1",
                            "labels", "kubernetes.io/os", "linux");
    bump();
    assert_int_equal(sl_loop_create(clock_ns, &loop, NULL), 0);
    start_node();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_node_destroy(node);
    sl_loop_destroy(loop);
    forget_calls();
    json_decref(server.node);
    return 0;
}

/* Somebody else keeps the labels from now on: what is there stays, and nothing is written any more. */
static void disowned(void **state)
{
    (void)state;
    want("nvidia.com/gpu.count", "2", NULL);
    tell(SL_KUBE_ADDED);
    answer_all();
    assert_string_equal(owned(), "nvidia.com/gpu.count");
    sl_node_disown(node);
    answer_all();
    assert_null(owned());
    assert_string_equal(label("nvidia.com/gpu.count"), "2");
    foreign("nvidia.com/gpu.count", "3");
    sl_node_disown(node);
    assert_int_equal(answer_all(), 0);
    assert_string_equal(label("nvidia.com/gpu.count"), "3");
    want("nvidia.com/gpu.count", "4", NULL); /* ours again */
    answer_all();
    assert_string_equal(label("nvidia.com/gpu.count"), "4");
    want(NULL, NULL);
    answer_all();
    assert_null(label("nvidia.com/gpu.count"));
}

static void writes_only_what_differs(void **state)
{
    (void)state;
    want("nvidia.com/gpu.count", "2", "nvidia.com/gpu.product", "NVIDIA-H200", NULL);
    assert_int_equal(server.calls, 0); /* the node was not seen yet */
    tell(SL_KUBE_ADDED);
    server.ops->synced(server.watcher);
    assert_int_equal(answer_all(), 1);
    assert_string_equal(label("nvidia.com/gpu.count"), "2");
    assert_string_equal(label("kubernetes.io/os"), "linux");
    assert_string_equal(owned(), "nvidia.com/gpu.count,nvidia.com/gpu.product");
    assert_string_equal(sl_node_uid(node), "u-1");
    assert_true(sl_node_stats(node).labels_current);
    tell(SL_KUBE_MODIFIED);
    want("nvidia.com/gpu.count", "2", "nvidia.com/gpu.product", "NVIDIA-H200", NULL);
    assert_int_equal(server.calls, 1);
    want("nvidia.com/gpu.count", "3", "nvidia.com/gpu.product", "NVIDIA-H200", NULL);
    assert_int_equal(answer_all(), 1);
    json_t *sent = json_object_get(json_object_get(server.call[1].body, "metadata"), "labels");
    assert_int_equal(json_object_size(sent), 1);
}

static void removes_its_own_after_a_restart(void **state)
{
    (void)state;
    tell(SL_KUBE_ADDED);
    foreign("nvidia.com/mig.config", "all-1g.18gb");
    want("nvidia.com/gpu.count", "2", "nvidia.com/mig.strategy", "single", NULL);
    answer_all();
    sl_node_destroy(node);
    start_node();
    tell(SL_KUBE_ADDED);
    want("nvidia.com/gpu.count", "2", NULL);
    answer_all();
    assert_null(label("nvidia.com/mig.strategy"));
    assert_string_equal(label("nvidia.com/mig.config"), "all-1g.18gb");
    assert_string_equal(owned(), "nvidia.com/gpu.count");
    want(NULL, NULL);
    answer_all();
    assert_null(label("nvidia.com/gpu.count"));
    assert_null(owned());
}

/* An hour of errors and silence, labels changing meanwhile; then one write, of the last state. */
static void catches_up_after_an_hour(void **state)
{
    (void)state;
    tell(SL_KUBE_ADDED);
    for (unsigned minute = 0; minute < 60; minute++) {
        char count[16];
        (void)snprintf(count, sizeof(count), "%u", minute);
        server.fail = minute % 3 == 0 ? 500 : minute % 3 == 1 ? -1 : 429;
        want("nvidia.com/gpu.count", count, NULL);
        say("GPULost", minute);
        for (unsigned s = 0; s < 60; s += 5) {
            pass(5);
            answer_all();
        }
        assert_null(label("nvidia.com/gpu.count"));
    }
    assert_true(server.calls < 2 * 60 * 3 + 20); /* it backs off */
    assert_false(sl_node_stats(node).labels_current);
    assert_true(sl_node_stats(node).label_failures > 60);
    forget_calls();
    server.fail = 0;
    for (unsigned s = 0; s < 31; s++) {
        pass(1);
        answer_all();
    }
    assert_string_equal(label("nvidia.com/gpu.count"), "59");
    assert_int_equal(sl_node_stats(node).label_writes, 1);
    for (unsigned s = 0; s < 300; s++) {
        pass(1);
        answer_all();
    }
    assert_int_equal(sl_node_stats(node).events_sent, 60); /* nothing was lost: 64 fit */
    assert_int_equal(waiting(), 0);
}

/* The watch says that the server is back: no waiting for the timer. */
static void back_means_now(void **state)
{
    (void)state;
    tell(SL_KUBE_ADDED);
    server.fail = 503;
    want("nvidia.com/gpu.count", "1", NULL);
    for (unsigned i = 0; i < 8; i++) {
        answer_all();
        pass(40);
    }
    answer_all();
    server.fail = 0;
    server.ops->synced(server.watcher);
    answer_all();
    assert_string_equal(label("nvidia.com/gpu.count"), "1");
}

static void tells_the_config_label(void **state)
{
    (void)state;
    tell(SL_KUBE_ADDED);
    assert_int_equal(config_calls, 1);
    assert_string_equal(config, "(none)");
    foreign(SL_NODE_CONFIG_LABEL, "a100");
    assert_string_equal(config, "a100");
    foreign("other", "x");
    assert_int_equal(config_calls, 2);
    foreign(SL_NODE_CONFIG_LABEL, NULL);
    assert_string_equal(config, "(none)");
    assert_int_equal(config_calls, 3);
}

static void does_not_fight(void **state)
{
    (void)state;
    tell(SL_KUBE_ADDED);
    foreign("same", "1"); /* already there, and not ours */
    want("same", "1", "nvidia.com/gpu.count", "2", NULL);
    answer_all();
    assert_string_equal(owned(), "nvidia.com/gpu.count");
    unsigned restored = 0;
    for (unsigned i = 0; i < 10; i++) {
        foreign("nvidia.com/gpu.count", "7");
        answer_all();
        restored += strcmp(label("nvidia.com/gpu.count"), "2") == 0;
    }
    assert_int_equal(restored, 2);
    assert_string_equal(label("nvidia.com/gpu.count"), "7");
    bool said = false;
    for (size_t i = 0; i < server.calls; i++) {
        const char *reason = json_string_value(json_object_get(server.call[i].body, "reason"));
        said = said || (reason && strcmp(reason, "LabelConflict") == 0);
    }
    assert_true(said);
    want("nvidia.com/gpu.count", "3", NULL); /* given up, ours no more, and not removed either */
    answer_all();
    assert_string_equal(label("nvidia.com/gpu.count"), "7");
    pass(3601);
    tell(SL_KUBE_MODIFIED);
    answer_all();
    assert_string_equal(label("nvidia.com/gpu.count"), "3");
}

/* What another agent of Sluice writes: a label, and since when it is there. */
static void by_agent(uint64_t since, const char *key, const char *value)
{
    json_t *meta = json_object_get(server.node, "metadata");
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)since);
    json_object_set_new(json_object_get(meta, "annotations"), SL_NODE_SINCE_ANNOTATION,
                        json_string(text));
    foreign(key, value);
    answer_all();
}

/* While an agent is replaced the younger one has the labels, and neither takes the other for a rival. */
static void two_agents(void **state)
{
    (void)state;
    uint64_t mine = wall_ns();
    pass(100);
    tell(SL_KUBE_ADDED);
    want("nvidia.com/gpu.count", "2", NULL);
    answer_all();
    for (unsigned i = 0; i < 10; i++) {
        by_agent(mine - SL_NS_PER_S, "nvidia.com/gpu.count", "7"); /* it is about to end */
        assert_string_equal(label("nvidia.com/gpu.count"), "2");
    }
    assert_string_equal(owned(), "nvidia.com/gpu.count");
    by_agent(mine + SL_NS_PER_S, "nvidia.com/gpu.count", "3"); /* we are */
    assert_string_equal(label("nvidia.com/gpu.count"), "3");
    want("nvidia.com/gpu.count", "4", NULL);
    answer_all();
    assert_string_equal(label("nvidia.com/gpu.count"), "3");
    by_agent(wall_ns() + 3600 * SL_NS_PER_S, "nvidia.com/gpu.count", "5"); /* of a wrong clock */
    assert_string_equal(label("nvidia.com/gpu.count"), "4");
}

/* What the watch tells late, of before our own write, is no reason to write again. */
static void old_news(void **state)
{
    (void)state;
    tell(SL_KUBE_ADDED);
    json_t *old = json_deep_copy(server.node);
    want("nvidia.com/gpu.count", "2", NULL);
    answer_all();
    server.ops->object(server.watcher, SL_KUBE_MODIFIED, old);
    assert_int_equal(answer_all(), 0);
    json_decref(old);
}

static void counts_the_same_event(void **state)
{
    (void)state;
    tell(SL_KUBE_ADDED);
    for (unsigned i = 0; i < 5; i++)
        sl_node_event(node, SL_EVENT_WARNING, "XidError", "GPU 0 reports XID 79");
    assert_int_equal(server.calls, 1);
    const struct call *c = &server.call[0];
    assert_string_equal(c->method, "POST");
    assert_string_equal(c->path, "/api/v1/namespaces/default/events");
    const json_t *about = json_object_get(c->body, "involvedObject");
    assert_string_equal(json_string_value(json_object_get(about, "kind")), "Node");
    assert_string_equal(json_string_value(json_object_get(about, "uid")), "u-1");
    assert_string_equal(json_string_value(json_object_get(c->body, "type")), "Warning");
    assert_string_equal(json_string_value(json_object_get(c->body, "message")),
                        "GPU 0 reports XID 79");
    assert_string_equal(json_string_value(json_object_get(c->body, "firstTimestamp")),
                        "2025-11-15T07:06:42Z");
    answer_all();
    assert_int_equal(server.calls, 1); /* the four others wait */
    pass(31);
    assert_int_equal(server.calls, 2);
    assert_string_equal(server.call[1].method, "PATCH");
    assert_int_equal(json_integer_value(json_object_get(server.call[1].body, "count")), 5);
    server.fail = 404; /* expired meanwhile: made anew */
    answer(&server.call[1]);
    server.fail = 0;
    assert_int_equal(server.calls, 3);
    assert_string_equal(server.call[2].method, "POST");
    assert_int_equal(json_integer_value(json_object_get(server.call[2].body, "count")), 5);
    answer_all();
    pass(1000); /* long after: an event of its own */
    sl_node_event(node, SL_EVENT_WARNING, "XidError", "GPU 0 reports XID 79");
    assert_string_equal(server.call[3].method, "POST");
    assert_int_equal(json_integer_value(json_object_get(server.call[3].body, "count")), 1);
}

static void pods_have_events_too(void **state)
{
    (void)state;
    sl_pod_event(node, "team-a", "train-0", "u-9", SL_EVENT_NORMAL, "Prepared", "Given half a GPU");
    assert_string_equal(server.call[0].path, "/api/v1/namespaces/team-a/events");
    const json_t *about = json_object_get(server.call[0].body, "involvedObject");
    assert_string_equal(json_string_value(json_object_get(about, "namespace")), "team-a");
    assert_string_equal(json_string_value(json_object_get(about, "uid")), "u-9");
    sl_pod_event(node, "../nodes", "x", NULL, SL_EVENT_NORMAL, "Bad", "no such place");
    sl_pod_event(node, "b", "c", NULL, SL_EVENT_NORMAL, "Odd", "not \xff UTF-8");
    server.fail = 403; /* the first is refused for good: given up, and on with the next */
    answer(&server.call[0]);
    server.fail = 0;
    assert_int_equal(server.calls, 2);
    assert_string_equal(json_string_value(json_object_get(server.call[1].body, "message")),
                        "not ? UTF-8");
    answer_all();
    assert_int_equal(sl_node_stats(node).events_dropped, 2);
}

/* The answer was lost, the event was made: the second try finds the name taken. */
static void no_event_twice(void **state)
{
    (void)state;
    sl_node_event(node, SL_EVENT_NORMAL, "Started", "hello");
    server.fail = -1;
    answer_all();
    pass(2);
    assert_int_equal(server.calls, 2);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(server.call[0].body, "metadata"), "name")),
                        json_string_value(json_object_get(
                            json_object_get(server.call[1].body, "metadata"), "name")));
    server.fail = 409;
    answer_all();
    assert_int_equal(server.calls, 2);
    assert_int_equal(waiting(), 0);
}

static void floods_are_bounded(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        say("Flood", i);
        answer_all();
    }
    assert_int_equal(server.calls, 20); /* the burst */
    assert_int_equal(waiting(), 64);
    assert_int_equal(sl_node_stats(node).events_dropped, 1000 - 20 - 64);
    for (unsigned i = 0; i < 30; i++) {
        pass(1);
        answer_all();
    }
    assert_in_range(server.calls, 29, 31);
}

static const char *note(const char *key)
{
    return json_string_value(json_object_get(
        json_object_get(json_object_get(server.node, "metadata"), "annotations"), key));
}

static void notes(const char *value, const char *gone)
{
    struct sl_labels list = {0};
    sl_labels_set(&list, "sluice.io/gpus", value);
    if (gone)
        sl_labels_set(&list, gone, "");
    sl_node_annotations(node, &list);
    sl_labels_clear(&list);
}

static void annotations_beside_labels(void **state)
{
    (void)state;
    notes("[1]", NULL);
    assert_null(sl_node_annotation(node, "sluice.io/gpus"));
    tell(SL_KUBE_ADDED);
    assert_int_equal(answer_all(), 1); /* without a word about labels, which nobody asked for */
    assert_null(json_object_get(json_object_get(server.call[0].body, "metadata"), "labels"));
    assert_string_equal(note("sluice.io/gpus"), "[1]");
    assert_string_equal(sl_node_annotation(node, "sluice.io/gpus"), "[1]");
    notes("[1]", NULL);
    tell(SL_KUBE_MODIFIED);
    assert_int_equal(server.calls, 1); /* there is nothing to say */
    want("nvidia.com/gpu.count", "2", NULL);
    answer_all();
    assert_string_equal(owned(), "nvidia.com/gpu.count");
    assert_string_equal(note("sluice.io/gpus"), "[1]");
    /* Both change while the server is away: one patch says it. */
    server.fail = 500;
    notes("[2]", "other");
    answer_all();
    want("nvidia.com/gpu.count", "3", NULL);
    server.fail = 0;
    pass(60);
    assert_int_equal(answer_all(), 1);
    assert_string_equal(note("sluice.io/gpus"), "[2]");
    assert_string_equal(label("nvidia.com/gpu.count"), "3");
    assert_null(note("other"));
    /* Somebody's, then not to be there; what is not named is not touched. */
    json_t *all = json_object_get(json_object_get(server.node, "metadata"), "annotations");
    (void)json_object_set_new(all, "other", json_string("x"));
    (void)json_object_set_new(all, "theirs", json_string("y"));
    bump();
    tell(SL_KUBE_MODIFIED);
    answer_all();
    assert_null(note("other"));
    notes("", NULL);
    answer_all();
    assert_null(note("sluice.io/gpus"));
    assert_string_equal(note("theirs"), "y");
    assert_string_equal(owned(), "nvidia.com/gpu.count");
    size_t calls = server.calls;
    tell(SL_KUBE_MODIFIED);
    assert_int_equal(server.calls, calls);
}

static void names_are_checked(void **state)
{
    (void)state;
    struct sl_node_options opt = {.name = "a/b"};
    struct sl_node *other = NULL;
    assert_int_equal(sl_node_create(loop, &opt, &other, NULL), -EINVAL);
    opt.name = NULL;
    assert_int_equal(sl_node_create(loop, &opt, &other, NULL), -EINVAL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(writes_only_what_differs),
        TEST(disowned),
        TEST(removes_its_own_after_a_restart),
        TEST(catches_up_after_an_hour),
        TEST(back_means_now),
        TEST(tells_the_config_label),
        TEST(does_not_fight),
        TEST(two_agents),
        TEST(old_news),
        TEST(counts_the_same_event),
        TEST(pods_have_events_too),
        TEST(no_event_twice),
        TEST(floods_are_bounded),
        TEST(annotations_beside_labels),
        TEST(names_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
