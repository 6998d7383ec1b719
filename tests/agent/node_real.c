/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_real URL CA-FILE TOKEN-FILE: labels and events on a real API server, with no more rights than
 * docs/labels.md lists. The administrator's token makes the Node, the role and the agent's own token.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/node/node.h"
#include "base/clock.h"
#include "base/log.h"

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s (status %d: %s)\n", __FILE__, __LINE__, #cond,    \
                    last_status, last_err.msg);                                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct sl_loop *loop;
static struct sl_kube *admin, *agent;
static struct sl_node *node;
static int last_status;
static struct sl_err last_err;
static json_t *last_body;
static bool answered;
static char config[64] = "(not told)";

static void done(void *data, int status, json_t *body, const struct sl_err *err)
{
    (void)data;
    answered = true;
    last_status = status;
    if (err)
        last_err = *err;
    json_decref(last_body);
    last_body = json_incref(body);
}

/* body is taken over. */
static int ask(const char *method, const char *path, const char *type, json_t *body)
{
    answered = false;
    CHECK(sl_kube_request(admin, method, path, type, body, done, NULL, NULL, &last_err) == 0);
    while (!answered)
        CHECK(sl_loop_step(loop, 1000, NULL) == 0);
    json_decref(body);
    return last_status;
}

static void make(const char *path, const char *text)
{
    json_error_t where;
    json_t *body = json_loads(text, 0, &where);
    CHECK(body != NULL);
    CHECK(ask("POST", path, NULL, body) == 201);
}

static void run_until(bool (*yes)(void))
{
    uint64_t give_up = sl_now_ns() + 30 * SL_NS_PER_S;
    while (!yes()) {
        CHECK(sl_now_ns() < give_up);
        CHECK(sl_loop_step(loop, 50, NULL) == 0);
    }
}

static const char *label(const char *key)
{
    CHECK(ask("GET", "/api/v1/nodes/node-1", NULL, NULL) == 200);
    return json_string_value(
        json_object_get(json_object_get(json_object_get(last_body, "metadata"), "labels"), key));
}

static void want(const char *a, const char *value, const char *b)
{
    struct sl_labels labels = {0};
    sl_labels_set(&labels, a, value);
    if (b)
        sl_labels_set(&labels, b, "x");
    sl_node_labels(node, &labels);
    sl_labels_clear(&labels);
}

static void on_config(void *data, const char *value)
{
    (void)data;
    (void)snprintf(config, sizeof(config), "%s", value ? value : "(none)");
}

static bool labels_current(void)
{
    return sl_node_stats(node).labels_current && sl_node_stats(node).label_writes > 0;
}

static bool told_none(void)
{
    return strcmp(config, "(none)") == 0;
}

static bool told_a100(void)
{
    return strcmp(config, "a100") == 0;
}

static bool events_out(void)
{
    return sl_node_stats(node).events_sent == 2;
}

/* The agent's rights are those of the docs, and a token of its own. */
static void make_agent(const char *url, const char *ca, char *token_file)
{
    make("/api/v1/namespaces/default/serviceaccounts", "{\"metadata\":{\"name\":\"sluiced\"}}");
    make("/apis/rbac.authorization.k8s.io/v1/clusterroles",
         "{\"metadata\":{\"name\":\"sluiced\"},\"rules\":["
         "{\"apiGroups\":[\"\"],\"resources\":[\"nodes\"],"
         "\"verbs\":[\"get\",\"list\",\"watch\",\"patch\"]},"
         "{\"apiGroups\":[\"\"],\"resources\":[\"events\"],\"verbs\":[\"create\",\"patch\"]}]}");
    make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
         "{\"metadata\":{\"name\":\"sluiced\"},\"roleRef\":{\"apiGroup\":"
         "\"rbac.authorization.k8s.io\",\"kind\":\"ClusterRole\",\"name\":\"sluiced\"},"
         "\"subjects\":[{\"kind\":\"ServiceAccount\",\"name\":\"sluiced\","
         "\"namespace\":\"default\"}]}");
    make("/api/v1/namespaces/default/serviceaccounts/sluiced/token", "{\"spec\":{}}");
    const char *token =
        json_string_value(json_object_get(json_object_get(last_body, "status"), "token"));
    CHECK(token != NULL);
    int fd = mkstemp(token_file);
    CHECK(fd >= 0 && write(fd, token, strlen(token)) == (ssize_t)strlen(token));
    (void)close(fd);
    struct sl_kube_options opt = {.server = url, .ca_file = ca, .token_file = token_file};
    CHECK(sl_kube_create(loop, &opt, &agent, &last_err) == 0);
}

static void check_events(void)
{
    sl_node_event(node, SL_EVENT_WARNING, "XidError", "GPU 0 reports XID 79");
    sl_pod_event(node, "default", "train-0", "6f5e0f0a-0000-4000-8000-000000000001",
                 SL_EVENT_NORMAL, "Prepared", "Half a GPU");
    run_until(events_out);
    CHECK(sl_node_stats(node).events_sent == 2 && sl_node_stats(node).events_dropped == 0);
    CHECK(ask("GET", "/api/v1/namespaces/default/events?fieldSelector=reason%3DXidError", NULL,
              NULL) == 200);
    const json_t *items = json_object_get(last_body, "items");
    CHECK(json_array_size(items) == 1);
    const json_t *about = json_object_get(json_array_get(items, 0), "involvedObject");
    CHECK(strcmp(json_string_value(json_object_get(about, "name")), "node-1") == 0);
    CHECK(strcmp(json_string_value(json_object_get(about, "uid")), sl_node_uid(node)) == 0);
}

int main(int argc, char **argv)
{
    char token_file[] = "/tmp/sluice-token-XXXXXX";
    if (argc != 4)
        return 2;
    sl_log_open(SL_LOG_WARN, 2);
    struct sl_kube_options opt = {.server = argv[1], .ca_file = argv[2], .token_file = argv[3]};
    CHECK(sl_loop_create(NULL, &loop, &last_err) == 0);
    CHECK(sl_kube_create(loop, &opt, &admin, &last_err) == 0);
    make("/api/v1/nodes", "{\"metadata\":{\"name\":\"node-1\",\"labels\":{\"mine\":\"yes\"}}}");
    make_agent(argv[1], argv[2], token_file);

    struct sl_node_options how = {
        .name = "node-1", .api = sl_node_api_kube(agent), .config_label = on_config};
    CHECK(sl_node_create(loop, &how, &node, &last_err) == 0);
    want("nvidia.com/gpu.count", "2", "nvidia.com/mig.strategy");
    run_until(labels_current);
    run_until(told_none);
    CHECK(strcmp(label("nvidia.com/gpu.count"), "2") == 0);
    CHECK(ask("PATCH", "/api/v1/nodes/node-1", "application/merge-patch+json",
              json_pack("{s:{s:{s:s}}}", "metadata", "labels", SL_NODE_CONFIG_LABEL, "a100")) ==
          200);
    run_until(told_a100);
    check_events();

    /* A new agent removes what the old one wrote. */
    sl_node_destroy(node);
    CHECK(sl_node_create(loop, &how, &node, &last_err) == 0);
    want("nvidia.com/gpu.count", "3", NULL);
    run_until(labels_current);
    CHECK(strcmp(label("nvidia.com/gpu.count"), "3") == 0);
    CHECK(label("nvidia.com/mig.strategy") == NULL);
    CHECK(strcmp(label("mine"), "yes") == 0);

    sl_node_destroy(node);
    sl_kube_destroy(agent);
    sl_kube_destroy(admin);
    sl_loop_destroy(loop);
    json_decref(last_body);
    (void)unlink(token_file);
    (void)printf("labels, events and the config label work with the documented rights\n");
    return 0;
}
