/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/podres.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/kubelet/errors.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "podresources.pb-c.h"
#include "rpc/pb.h"

#define SOCKET     "/var/lib/kubelet/pod-resources/kubelet.sock"
#define LIST       "/v1.PodResourcesLister/List"
#define MAX_AGE_NS (5 * SL_NS_PER_S)
#define TIMEOUT_NS (3 * SL_NS_PER_S)
#define ANSWER_MAX ((size_t)16 * 1024 * 1024) /* kubelet's own limit for this answer */

struct waiter {
    struct waiter *next;
    sl_podres_done *done;
    void *data;
};

struct sl_podres {
    struct sl_loop *loop;
    char *socket;
    uint64_t max_age_ns;
    struct sl_rpc_client *client;
    bool asking;
    struct waiter *waiters;
    struct waiter *later; /* waits for the next question */
    /* The message owns the map's strings. */
    ProtobufCMessage *message;
    struct sl_podres_map map;
    uint64_t at_ns;
    struct sl_err failed; /* the last attempt; code 0: it succeeded */
    uint64_t failed_ns;
};

/* ---- an answer as a map ---- */

static const char *text(const char *s)
{
    return s ? s : "";
}

static int by_device(const void *a, const void *b)
{
    const struct sl_podres_device *x = a, *y = b;
    int order = strcmp(x->resource, y->resource);
    return order ? order : strcmp(x->id, y->id);
}

static void add_claims(struct sl_podres_map *map, const Podres__PodResources *pod,
                       const Podres__ContainerResources *c)
{
    for (size_t i = 0; i < c->n_dynamic_resources; i++) {
        const Podres__DynamicResource *d = c->dynamic_resources[i];
        for (size_t j = 0; j < d->n_claim_resources; j++) {
            const Podres__ClaimResource *r = d->claim_resources[j];
            if (map->claim)
                map->claim[map->claim_count] = (struct sl_podres_claim){
                    text(r->driver_name),  text(r->pool_name),       text(r->device_name),
                    text(r->share_id),     text(d->claim_namespace), text(d->claim_name),
                    text(pod->namespace_), text(pod->name),          text(c->name)};
            map->claim_count++;
        }
    }
}

static void add_devices(struct sl_podres_map *map, const Podres__PodResources *pod,
                        const Podres__ContainerResources *c)
{
    for (size_t i = 0; i < c->n_devices; i++) {
        const Podres__ContainerDevices *d = c->devices[i];
        for (size_t j = 0; j < d->n_device_ids; j++) {
            if (map->device)
                map->device[map->device_count] = (struct sl_podres_device){
                    text(d->resource_name), text(d->device_ids[j]), text(pod->namespace_),
                    text(pod->name), text(c->name)};
            map->device_count++;
        }
    }
}

/* Counts the devices; fills the arrays where the map has them. */
static void walk(const Podres__ListPodResourcesResponse *answer, struct sl_podres_map *map)
{
    map->device_count = map->claim_count = 0;
    for (size_t p = 0; p < answer->n_pod_resources; p++) {
        const Podres__PodResources *pod = answer->pod_resources[p];
        for (size_t i = 0; i < pod->n_containers; i++) {
            add_devices(map, pod, pod->containers[i]);
            add_claims(map, pod, pod->containers[i]);
        }
    }
}

static struct sl_podres_map make_map(const Podres__ListPodResourcesResponse *answer)
{
    struct sl_podres_map map = {0};
    walk(answer, &map);
    map.device = sl_xcalloc(map.device_count + 1, sizeof(*map.device));
    map.claim = sl_xcalloc(map.claim_count + 1, sizeof(*map.claim));
    walk(answer, &map);
    qsort(map.device, map.device_count, sizeof(*map.device), by_device);
    return map;
}

/* ---- asking ---- */

static void drop_answer(struct sl_podres *p)
{
    free(p->map.device);
    free(p->map.claim);
    p->map = (struct sl_podres_map){0};
    if (p->message)
        sl_rpc_pb_free(p->message);
    p->message = NULL;
}

static int ask(struct sl_podres *p, struct sl_err *err);
static void finish(struct sl_podres *p, const struct sl_err *err);

/* No question is under way: asks for those who wait for the next one. */
static void ask_later(struct sl_podres *p)
{
    struct sl_err err = SL_ERR_INIT;
    struct waiter **end = &p->waiters;
    while (*end)
        end = &(*end)->next;
    *end = p->later;
    p->later = NULL;
    if (ask(p, &err) < 0)
        finish(p, &err);
}

static void finish(struct sl_podres *p, const struct sl_err *err)
{
    p->asking = false;
    p->failed = err ? *err : (struct sl_err)SL_ERR_INIT;
    if (err)
        p->failed_ns = sl_loop_now(p->loop);
    struct sl_err why = p->failed;
    struct waiter *w = p->waiters;
    p->waiters = NULL;
    while (w) {
        struct waiter *next = w->next;
        w->done(w->data, sl_podres_last(p), err ? &why : NULL);
        free(w);
        w = next;
    }
    if (p->later && !p->asking)
        ask_later(p);
}

static void on_message(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)call;
    struct sl_podres *p = data;
    ProtobufCMessage *m = NULL;
    p->failed = (struct sl_err)SL_ERR_INIT;
    if (sl_rpc_pb_unpack(&podres__list_pod_resources_response__descriptor, msg, size, &m,
                         &p->failed) < 0)
        return;
    drop_answer(p);
    p->map = make_map((const Podres__ListPodResourcesResponse *)(const void *)m);
    p->message = m;
    p->at_ns = sl_loop_now(p->loop);
}

static void on_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message,
                    void *data)
{
    (void)call;
    struct sl_podres *p = data;
    struct sl_err err = p->failed;
    if (!p->asking)
        return; /* destroyed by us */
    if (code != SL_RPC_OK)
        sl_err_set(&err, -EIO, SL_E_PODRES_STATUS, message, (int)code);
    finish(p, err.code ? &err : NULL);
}

static void on_closed(struct sl_rpc_client *client, const struct sl_err *why, void *data)
{
    (void)why;
    struct sl_podres *p = data;
    sl_rpc_client_destroy(client);
    if (p->client == client)
        p->client = NULL;
}

static int connect_kubelet(struct sl_podres *p, struct sl_err *err)
{
    if (p->client && sl_rpc_client_usable(p->client))
        return 0;
    sl_rpc_client_destroy(p->client);
    p->client = NULL;
    struct sl_rpc_client_options opt = {
        .limits = {.max_message_bytes = ANSWER_MAX}, .closed = on_closed, .data = p};
    int rc = sl_rpc_client_connect(p->loop, p->socket, &opt, &p->client, err);
    return rc < 0 ? sl_err_wrap(err, "the pod resources of kubelet") : 0;
}

static int ask(struct sl_podres *p, struct sl_err *err)
{
    static const struct sl_rpc_call_ops ops = {on_message, on_done, true};
    Podres__ListPodResourcesRequest question = PODRES__LIST_POD_RESOURCES_REQUEST__INIT;
    struct sl_rpc_call *call;
    int rc = connect_kubelet(p, err);
    if (rc < 0)
        return rc;
    p->failed = (struct sl_err)SL_ERR_INIT;
    rc = sl_rpc_pb_call(p->client, LIST, &question.base, TIMEOUT_NS, &ops, p, &call, err);
    if (rc == 0)
        p->asking = true;
    return rc;
}

/* Puts the question into a line. */
static void wait_in(struct waiter **line, sl_podres_done *done, void *data)
{
    struct waiter *w = sl_xmalloc(sizeof(*w));
    *w = (struct waiter){*line, done, data};
    *line = w;
}

void sl_podres_get(struct sl_podres *podres, sl_podres_done *done, void *data)
{
    uint64_t now = sl_loop_now(podres->loop);
    struct sl_err err = SL_ERR_INIT;
    if (!podres->asking) {
        if (podres->message && now - podres->at_ns < podres->max_age_ns) {
            done(data, &podres->map, NULL);
            return;
        }
        /* Do not ask an absent kubelet for every caller. */
        if (podres->failed.code && now - podres->failed_ns < SL_NS_PER_S) {
            err = podres->failed;
            done(data, sl_podres_last(podres), &err);
            return;
        }
    }
    wait_in(&podres->waiters, done, data);
    if (!podres->asking && ask(podres, &err) < 0)
        finish(podres, &err);
}

void sl_podres_fresh(struct sl_podres *podres, sl_podres_done *done, void *data)
{
    wait_in(&podres->later, done, data);
    if (!podres->asking)
        ask_later(podres);
}

static void forget(struct waiter **at, const void *data)
{
    while (*at) {
        struct waiter *w = *at;
        if (w->data != data) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free(w);
    }
}

void sl_podres_forget(struct sl_podres *podres, void *data)
{
    forget(&podres->waiters, data);
    forget(&podres->later, data);
}

const struct sl_podres_map *sl_podres_last(const struct sl_podres *podres)
{
    return podres->message ? &podres->map : NULL;
}

struct sl_podres *sl_podres_create(struct sl_loop *loop, const char *socket, uint64_t max_age_ns)
{
    struct sl_podres *p = sl_xcalloc(1, sizeof(*p));
    p->loop = loop;
    p->socket = sl_xstrdup(socket ? socket : SOCKET);
    p->max_age_ns = max_age_ns ? max_age_ns : MAX_AGE_NS;
    return p;
}

void sl_podres_destroy(struct sl_podres *podres)
{
    if (!podres)
        return;
    podres->asking = false;
    sl_rpc_client_destroy(podres->client);
    while (podres->waiters)
        forget(&podres->waiters, podres->waiters->data);
    while (podres->later)
        forget(&podres->later, podres->later->data);
    drop_answer(podres);
    free(podres->socket);
    free(podres);
}

/* ---- looking up ---- */

/* The position of the first device that is not before this one. */
static size_t lower(const struct sl_podres_map *map, const struct sl_podres_device *key)
{
    size_t at = 0;
    while (map && at < map->device_count && by_device(&map->device[at], key) < 0)
        at++;
    return at;
}

size_t sl_podres_find(const struct sl_podres_map *map, const char *resource, const char *id,
                      const struct sl_podres_device **ret)
{
    struct sl_podres_device key = {.resource = resource, .id = id};
    size_t at = lower(map, &key), n = 0;
    while (map && at + n < map->device_count && by_device(&map->device[at + n], &key) == 0)
        n++;
    *ret = n ? &map->device[at] : NULL;
    return n;
}

size_t sl_podres_in_use(const struct sl_podres_map *map, const char *resource)
{
    struct sl_podres_device key = {.resource = resource, .id = ""};
    size_t at = lower(map, &key), count = 0;
    for (; map && at < map->device_count && strcmp(map->device[at].resource, resource) == 0; at++)
        count += at == 0 || by_device(&map->device[at - 1], &map->device[at]) != 0;
    return count;
}
