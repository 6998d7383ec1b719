/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells HAMi's tools how a promise ended. The annotations say "allocating" from the bind on. Once the containers have
 * their GPUs they say "success", with nothing left to allocate. HAMi writes this on the node. Here the controller
 * writes it: it may patch pods anyway and learns from kubelet which containers have started, so agents need no such
 * right. Every replica knows the pods to patch; only the leader patches.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"

#define AT_ONCE 8 /* of the API client's 32: binds go first */

struct settling {
    struct sl_map_item item; /* by uid */
    struct sl_controller *c;
    char *uid, *path;
    json_t *patch;
    bool sending;
    bool over; /* nothing to write any more: freed after the answer */
};

/* --- the annotations to write. Pure --- */

/* Has kubelet made the container? The container got its devices before that. */
static bool has_started(const json_t *status, const char *list, const char *name)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(status, list), i, one)
    {
        if (strcmp(sl_jget_text(one, "name"), name) == 0)
            return sl_jget_text(one, "containerID")[0];
    }
    return false;
}

static bool all_started(const json_t *pod, const struct sl_promise *p)
{
    const json_t *status = json_object_get(pod, "status");
    for (size_t i = 0; i < p->container_count; i++)
        if (p->container[i].count &&
            !has_started(status, "containerStatuses", p->container[i].name) &&
            !has_started(status, "initContainerStatuses", p->container[i].name))
            return false;
    return true;
}

/* The list without its devices: the separators stay. */
static void emptied(const char *devices, char buf[SL_PROMISE_CONTAINERS + 1])
{
    size_t n = 0;
    for (; *devices && n < SL_PROMISE_CONTAINERS; devices++)
        if (*devices == ';')
            buf[n++] = ';';
    buf[n] = '\0';
}

json_t *sl_settle_patch(const json_t *pod)
{
    const char *lease = sl_jget_note(pod, SL_PROMISE_LEASE_KEY);
    const char *state = sl_jget_note(pod, SL_PROMISE_HAMI_PHASE);
    const char *devices = sl_jget_note(pod, SL_PROMISE_HAMI_TODO);
    struct sl_promise p;
    char left[SL_PROMISE_CONTAINERS + 1];
    if (!lease || !state || strcmp(state, "allocating") != 0 ||
        !sl_jget_text(json_object_get(pod, "spec"), "nodeName")[0] ||
        sl_promise_lease_parse(lease, &p, NULL) != 0)
        return NULL;
    if (!all_started(pod, &p))
        return strcmp(sl_jget_text(json_object_get(pod, "status"), "phase"), "Failed") == 0
                   ? json_pack("{s:s}", SL_PROMISE_HAMI_PHASE, "failed")
                   : NULL;
    emptied(devices ? devices : "", left);
    return json_pack("{s:s,s:s}", SL_PROMISE_HAMI_PHASE, "success", SL_PROMISE_HAMI_TODO, left);
}

/* --- the requests --- */

static void settling_free(void *item)
{
    struct settling *s = item;
    json_decref(s->patch);
    free(s->uid);
    free(s->path);
    free(s);
}

static void drop(struct settling *s)
{
    s->over = true;
    if (s->sending)
        return;
    sl_map_drop(&s->c->settling, &s->item);
    settling_free(s);
}

static void written(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct settling *s = data;
    struct sl_controller *c = s->c;
    (void)body;
    s->sending = false;
    c->settling_sent--;
    /* No such pod, or another pod of that name: nothing to write. Any other failure is tried again. */
    bool done = !err->code || status == 404 || status == 409 || s->over;
    if (!done) {
        sl_warn("cannot write the annotations of HAMi for %s: %s", s->path, err->msg);
        return; /* at the next tick */
    }
    drop(s);
    sl_settle_tick(c);
}

static void send(struct settling *s)
{
    struct sl_controller *c = s->c;
    struct sl_err err = SL_ERR_INIT;
    if (s->sending || c->settling_sent >= AT_ONCE || c->stopping || !sl_controller_leads(c))
        return;
    json_t *body = json_pack("{s:{s:s,s:O}}", "metadata", "uid", s->uid, "annotations", s->patch);
    if (sl_kube_request(c->kube, "PATCH", s->path, SL_KUBE_PATCH_MERGE, body, written, s, NULL,
                        &err) == 0) {
        s->sending = true;
        c->settling_sent++;
    }
    json_decref(body);
}

void sl_settle_pod(struct sl_controller *c, const json_t *pod)
{
    const char *uid = sl_kube_meta(pod, "uid");
    struct settling *s = sl_map_find(&c->settling, uid, strlen(uid));
    json_t *patch = sl_settle_patch(pod);
    if (s && !patch)
        drop(s);
    if (s || !patch) {
        json_decref(patch);
        return;
    }
    s = sl_xcalloc(1, sizeof(*s));
    s->c = c;
    s->patch = patch;
    s->path = sl_kube_path("/api/v1/namespaces/%s/pods/%s", sl_kube_meta(pod, "namespace"),
                           sl_kube_meta(pod, "name"));
    s->item.key = s->uid = sl_xstrdup(uid);
    sl_map_add(&c->settling, &s->item);
    send(s);
}

void sl_settle_gone(struct sl_controller *c, const char *uid)
{
    struct settling *s = sl_map_find(&c->settling, uid, strlen(uid));
    if (s)
        drop(s);
}

void sl_settle_tick(struct sl_controller *c)
{
    struct sl_map_walk walk = {.bucket = 0};
    struct settling *s;
    while (c->settling_sent < AT_ONCE && (s = sl_map_next(&c->settling, &walk)))
        send(s);
}

void sl_settle_free(struct sl_controller *c)
{
    sl_map_free(&c->settling, settling_free);
}
