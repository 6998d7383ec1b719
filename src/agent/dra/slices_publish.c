/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"

#define COLLECTION  "/apis/resource.k8s.io/v1/resourceslices"
#define BACKOFF_NS  (500 * SL_NS_PER_MS)
#define BACKOFF_MAX (30 * SL_NS_PER_S)

struct write {
    struct write *next;
    struct sl_slices_publisher *p;
    struct sl_kube_call *call;
    char name[300];
    bool removal;
};

struct sl_slices_publisher {
    struct sl_loop *loop;
    struct sl_kube *kube;
    struct sl_kube_watch *watch;
    json_t *have; /* name → object, as the server reported */
    json_t *gone; /* name → version of the removal */
    json_t *want; /* array; NULL: not set yet */
    struct sl_timer timer;
    struct write *writes; /* under way */
    bool ours_only;
    bool synced, failed, current;
    uint64_t backoff_ns;
};

static json_t *pool_of(const json_t *object)
{
    return json_object_get(json_object_get(object, "spec"), "pool");
}

static json_int_t generation_of(const json_t *object)
{
    return json_integer_value(json_object_get(pool_of(object), "generation"));
}

/* Resource versions are comparable numbers, by the API's conventions. 0: none. */
static json_int_t version_of(const json_t *object)
{
    return (json_int_t)strtoll(sl_kube_meta(object, "resourceVersion"), NULL, 10);
}

/*
 * Takes news from the watch or from an answer. They travel apart: the answer to a write may come after the news that
 * another program (kubelet, at its start) has changed or removed the written object.
 */
static void take(struct sl_slices_publisher *p, const char *name, json_t *object, bool removed)
{
    json_int_t version = version_of(object);
    const json_t *have = json_object_get(p->have, name);
    if (version && (version < version_of(have) ||
                    (!removed && version <= json_integer_value(json_object_get(p->gone, name)))))
        return;
    if (removed) {
        (void)json_object_set_new(p->gone, name, json_integer(version));
        (void)json_object_del(p->have, name);
    } else {
        (void)json_object_set(p->have, name, object);
    }
}

static void soon(struct sl_slices_publisher *p, uint64_t after_ns)
{
    if (!p->writes)
        sl_timer_set(p->loop, &p->timer, sl_loop_now(p->loop) + after_ns);
}

/* Is the server's pool exactly the wanted one, in one generation? */
static bool matches(const struct sl_slices_publisher *p)
{
    size_t i, n = json_array_size(p->want);
    json_t *w;
    json_int_t generation = -1;
    if (json_object_size(p->have) != n)
        return false;
    json_array_foreach(p->want, i, w)
    {
        const json_t *h = json_object_get(p->have, sl_kube_meta(w, "name"));
        if (!h || !sl_slices_same(h, w) || (generation >= 0 && generation_of(h) != generation))
            return false;
        generation = generation_of(h);
    }
    return true;
}

static void written(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct write *w = data;
    struct sl_slices_publisher *p = w->p;
    sl_list_drop(&p->writes, w);
    if (status >= 200 && status < 300) {
        if (w->removal)
            (void)json_object_del(p->have, w->name);
        else if (body)
            take(p, w->name, body, false);
    } else if (status == 404) { /* another program removed it; make it again, if wanted */
        p->failed |= !w->removal;
        (void)json_object_del(p->have, w->name);
    } else {
        /* 409: another writer was faster; the watch brings the present object. */
        if (status != 409)
            sl_warn("cannot write ResourceSlice %s: %s", w->name, err->msg);
        p->failed = true;
    }
    free(w);
    if (p->writes)
        return;
    p->backoff_ns = !p->failed ? 0 : p->backoff_ns ? p->backoff_ns * 2 : BACKOFF_NS;
    if (p->backoff_ns > BACKOFF_MAX)
        p->backoff_ns = BACKOFF_MAX;
    p->failed = false;
    soon(p, p->backoff_ns);
}

static void send(struct sl_slices_publisher *p, const char *method, const char *name, json_t *body)
{
    char path[400];
    struct sl_err err = SL_ERR_INIT;
    struct write *w = sl_xcalloc(1, sizeof(*w));
    bool create = strcmp(method, "POST") == 0;
    w->p = p;
    w->removal = strcmp(method, "DELETE") == 0;
    (void)snprintf(w->name, sizeof(w->name), "%s", name);
    (void)snprintf(path, sizeof(path), create ? COLLECTION : COLLECTION "/%s", name);
    if (sl_kube_request(p->kube, method, path, NULL, body, written, w, &w->call, &err) < 0) {
        sl_warn("cannot write ResourceSlice %s: %s", name, err.msg);
        p->failed = true;
        free(w);
        return;
    }
    w->next = p->writes;
    p->writes = w;
}

static void send_wanted(struct sl_slices_publisher *p, json_t *want, json_int_t generation)
{
    const json_t *have = json_object_get(p->have, sl_kube_meta(want, "name"));
    json_t *body = json_deep_copy(want);
    (void)json_object_set_new(pool_of(body), "generation", json_integer(generation));
    if (have) /* replaces our object as a whole, unless it changed since we saw it */
        (void)json_object_set_new(json_object_get(body, "metadata"), "resourceVersion",
                                  json_string(sl_kube_meta(have, "resourceVersion")));
    send(p, have ? "PUT" : "POST", sl_kube_meta(want, "name"), body);
    json_decref(body);
}

static void reconcile(struct sl_timer *t)
{
    struct sl_slices_publisher *p = sl_container_of(t, struct sl_slices_publisher, timer);
    if (!p->synced || !p->want || p->writes)
        return;
    p->current = matches(p);
    if (p->current)
        return;
    json_int_t generation = 0;
    const char *name;
    json_t *object;
    size_t i;
    void *next;
    json_object_foreach(p->have, name, object)
    {
        if (generation_of(object) > generation)
            generation = generation_of(object);
    }
    json_array_foreach(p->want, i, object) send_wanted(p, object, generation + 1);
    json_object_foreach_safe(p->have, next, name, object)
    {
        bool wanted = false;
        json_t *w;
        json_array_foreach(p->want, i, w) wanted |= strcmp(sl_kube_meta(w, "name"), name) == 0;
        if (!wanted)
            send(p, "DELETE", name, NULL);
    }
    if (!p->writes) /* no request could be sent */
        sl_timer_set(p->loop, &p->timer, sl_loop_now(p->loop) + BACKOFF_NS);
}

static void told(void *data, enum sl_kube_event event, json_t *object)
{
    struct sl_slices_publisher *p = data;
    if (p->ours_only && !sl_slices_ours(sl_kube_meta(object, "name")))
        return;
    take(p, sl_kube_meta(object, "name"), object, event == SL_KUBE_DELETED);
    if (p->synced)
        soon(p, 0);
}

static void synced(void *data)
{
    struct sl_slices_publisher *p = data;
    p->synced = true;
    soon(p, 0);
}

static void trouble(void *data, const struct sl_err *err)
{
    (void)data;
    sl_warn("cannot watch ResourceSlices: %s", err->msg);
}

int sl_slices_publish_create(struct sl_loop *loop, struct sl_kube *kube, const char *driver,
                             const char *node_name, bool ours_only,
                             struct sl_slices_publisher **ret, struct sl_err *err)
{
    static const struct sl_kube_watch_ops ops = {
        .object = told, .synced = synced, .trouble = trouble};
    char path[500];
    struct sl_slices_publisher *p = sl_xcalloc(1, sizeof(*p));
    p->loop = loop;
    p->ours_only = ours_only;
    p->kube = kube;
    p->timer.fire = reconcile;
    p->have = json_object();
    p->gone = json_object();
    (void)snprintf(path, sizeof(path),
                   COLLECTION "?fieldSelector=spec.driver%%3D%s%%2Cspec.nodeName%%3D%s", driver,
                   node_name);
    int rc = sl_kube_watch_start(kube, path, &ops, p, &p->watch, err);
    if (rc < 0) {
        sl_slices_publish_destroy(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void sl_slices_publish_destroy(struct sl_slices_publisher *p)
{
    if (!p)
        return;
    sl_kube_watch_stop(p->watch);
    while (p->writes) {
        struct write *w = p->writes;
        p->writes = w->next;
        sl_kube_cancel(w->call);
        free(w);
    }
    sl_timer_stop(p->loop, &p->timer);
    json_decref(p->have);
    json_decref(p->gone);
    json_decref(p->want);
    free(p);
}

void sl_slices_publish_want(struct sl_slices_publisher *p, json_t *slices)
{
    json_decref(p->want);
    p->want = slices;
    p->current = false;
    soon(p, 0);
}

bool sl_slices_publish_current(const struct sl_slices_publisher *p)
{
    return p->current;
}
