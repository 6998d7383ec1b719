/* SPDX-License-Identifier: Apache-2.0 */
/* real URL CA-FILE TOKEN-FILE: the client, a watch and two replicas against a real API server. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kube/kube.h"
#include "kube/leader.h"

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s (status %d: %s)\n", __FILE__, __LINE__, #cond,    \
                    last_status, last_err.msg);                                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct sl_loop *loop;
static struct sl_kube *kube;
static int last_status;
static struct sl_err last_err;
static json_t *last_body;
static unsigned added, modified, deleted, synced, troubles;
static bool answered;

static void done(void *data, int status, json_t *body, const struct sl_err *err)
{
    (void)data;
    answered = true;
    last_status = status;
    last_err = *err;
    json_decref(last_body);
    last_body = json_incref(body);
}

static int ask(const char *method, const char *path, const char *type, json_t *body)
{
    struct sl_err err = SL_ERR_INIT;
    answered = false;
    CHECK(sl_kube_request(kube, method, path, type, body, done, NULL, NULL, &err) == 0);
    while (!answered)
        CHECK(sl_loop_step(loop, 1000, &err) == 0);
    json_decref(body);
    return last_status;
}

static void until(const unsigned *value, unsigned at_least)
{
    uint64_t give_up = sl_now_ns() + 30 * SL_NS_PER_S;
    while (*value < at_least) {
        CHECK(sl_now_ns() < give_up);
        CHECK(sl_loop_step(loop, 100, NULL) == 0);
    }
}

static void object(void *data, enum sl_kube_event event, json_t *o)
{
    (void)data;
    CHECK(sl_kube_meta(o, "name")[0]);
    *(event == SL_KUBE_ADDED ? &added : event == SL_KUBE_MODIFIED ? &modified : &deleted) += 1;
}

static void on_synced(void *data)
{
    (void)data;
    synced++;
}

static void trouble(void *data, const struct sl_err *err)
{
    (void)data;
    last_err = *err;
    troubles++;
}

static json_t *config_map(unsigned i)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "m%04u", i);
    return json_pack("{s:s,s:s,s:{s:s}}", "apiVersion", "v1", "kind", "ConfigMap", "metadata",
                     "name", name);
}

static const char maps[] = "/api/v1/namespaces/default/configmaps";

static void requests(void)
{
    CHECK(ask("GET", "/readyz", NULL, NULL) == 200);
    CHECK(strcmp(json_string_value(last_body), "ok") == 0);
    CHECK(ask("GET", "/api/v1/namespaces/default/configmaps/none", NULL, NULL) == 404);
    CHECK(strstr(last_err.msg, "configmaps \"none\" not found"));
    CHECK(ask("POST", maps, NULL, config_map(0)) == 201);
    CHECK(ask("POST", maps, NULL, config_map(0)) == 409);
    CHECK(ask("PATCH", "/api/v1/namespaces/default/configmaps/m0000", SL_KUBE_PATCH_MERGE,
              json_pack("{s:{s:s}}", "data", "k", "v")) == 200);
    CHECK(ask("PATCH", "/api/v1/namespaces/default/configmaps/m0000?fieldManager=t",
              SL_KUBE_PATCH_APPLY,
              json_pack("{s:s,s:s,s:{s:s},s:{s:s}}", "apiVersion", "v1", "kind", "ConfigMap",
                        "metadata", "name", "m0000", "data", "k2", "v2")) == 200);
    CHECK(json_object_size(json_object_get(last_body, "data")) == 2);
}

static void watches(void)
{
    static const struct sl_kube_watch_ops ops = {object, on_synced, trouble};
    struct sl_kube_watch *w = NULL;
    struct sl_err err = SL_ERR_INIT;
    for (unsigned i = 1; i < 620; i++) /* more than a page */
        CHECK(ask("POST", maps, NULL, config_map(i)) == 201);
    CHECK(sl_kube_watch_start(kube, maps, &ops, NULL, &w, &err) == 0);
    until(&synced, 1);
    CHECK(added >= 620);
    unsigned before = added;
    CHECK(ask("POST", maps, NULL, config_map(9000)) == 201);
    until(&added, before + 1);
    CHECK(ask("PATCH", "/api/v1/namespaces/default/configmaps/m9000", SL_KUBE_PATCH_MERGE,
              json_pack("{s:{s:s}}", "data", "k", "v")) == 200);
    until(&modified, 1);
    CHECK(ask("DELETE", "/api/v1/namespaces/default/configmaps/m9000", NULL, NULL) == 200);
    until(&deleted, 1);
    CHECK(troubles == 0);
    sl_kube_watch_stop(w);
}

static unsigned started[2], stopped[2], released;

static void on_started(void *data)
{
    ++*(unsigned *)data;
    CHECK(started[0] - stopped[0] + started[1] - stopped[1] == 1);
}

static void on_stopped(void *data)
{
    ++*((unsigned *)data == &started[0] ? &stopped[0] : &stopped[1]);
}

static void on_released(void *data)
{
    (void)data;
    released++;
}

static void leaders(void)
{
    struct sl_leader *l[2];
    struct sl_err err = SL_ERR_INIT;
    for (unsigned i = 0; i < 2; i++) {
        struct sl_leader_options opt = {.namespace = "default",
                                        .name = "sluice-test",
                                        .identity = i ? "b" : "a",
                                        .lease_ns = 3 * SL_NS_PER_S,
                                        .renew_ns = 2 * SL_NS_PER_S,
                                        .retry_ns = 200 * SL_NS_PER_MS,
                                        .started = on_started,
                                        .stopped = on_stopped,
                                        .trouble = trouble,
                                        .data = &started[i]};
        CHECK(sl_leader_create(loop, kube, &opt, &l[i], &err) == 0);
        until(&started[0], 1);
    }
    sl_leader_release(l[0], on_released);
    until(&released, 1);
    until(&started[1], 1);
    sl_leader_destroy(l[0]);
    sl_leader_destroy(l[1]);
    CHECK(troubles == 0);
}

int main(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    if (argc != 4)
        return 2;
    struct sl_kube_options opt = {.server = argv[1], .ca_file = argv[2], .token_file = argv[3]};
    CHECK(sl_loop_create(NULL, &loop, &err) == 0);
    CHECK(sl_kube_create(loop, &opt, &kube, &last_err) == 0);
    requests();
    watches();
    leaders();
    sl_kube_destroy(kube);
    sl_loop_destroy(loop);
    json_decref(last_body);
    printf("%u added, %u modified, %u deleted, two leaders in turn\n", added, modified, deleted);
    return 0;
}
