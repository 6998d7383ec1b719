/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binds under way: the promise is written into the pod, then the pod is bound. In that order, so that a pod on
 * a node always says what it holds; both name the pod's uid, so that a pod of the same name made meanwhile is
 * left alone. No two binds of one pod at a time; any number on one node.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"
#include "controller/dialect.h"
#include "controller/errors.h"

struct bind_call {
    struct bind_call *prev, *next;
    struct sl_controller *c;
    struct sl_http_call *call; /* NULL: the client left */
    struct sl_extender_bind args;
    char *lease; /* what was promised; NULL: nothing, it asks for none */
    char path[640];
};

static void bind_drop(struct bind_call *b)
{
    if (b->prev)
        b->prev->next = b->next;
    else
        b->c->binds = b->next;
    if (b->next)
        b->next->prev = b->prev;
    free(b->lease);
    free(b);
}

static void finish(struct bind_call *b, enum sl_cluster_outcome outcome, const struct sl_err *err)
{
    struct sl_controller *c = b->c;
    if (b->lease)
        sl_cluster_bind_end(c->cluster, b->args.uid, outcome, b->lease, sl_loop_now(c->loop));
    if (outcome == SL_CLUSTER_BOUND) {
        c->count.binds++;
    } else {
        c->count.binds_failed++;
        sl_warn("pod %s/%s was not bound to %s: %s", b->args.name_space, b->args.name, b->args.node,
                err->msg);
    }
    if (b->call)
        sl_controller_answer(
            b->call, sl_extender_bind_answer(outcome == SL_CLUSTER_BOUND ? NULL : err->msg));
    bind_drop(b);
    sl_controller_maybe_stopped(c);
}

static void bound(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct bind_call *b = data;
    (void)body;
    /* Refused for sure, or nobody knows: after a conflict it may be on that very node already. */
    bool refused = status >= 400 && status < 500 && status != 409 && status != 429 && status != 408;
    finish(b,
           !err->code ? SL_CLUSTER_BOUND
           : refused  ? SL_CLUSTER_FAILED
                      : SL_CLUSTER_UNKNOWN,
           err);
}

/* The pod says what it holds, or has nothing to hold. */
static void promised(void *data, int status, json_t *answer, const struct sl_err *failed)
{
    struct bind_call *b = data;
    struct sl_controller *c = b->c;
    struct sl_err err = *failed;
    char path[720];
    (void)status;
    (void)answer;
    if (err.code) {
        finish(b, SL_CLUSTER_FAILED, &err); /* written or not: the pod is on no node */
        return;
    }
    SL_FAULT("controller.bind.post");
    json_t *body = json_pack("{s:s,s:s,s:{s:s,s:s,s:s},s:{s:s,s:s,s:s}}", "apiVersion", "v1",
                             "kind", "Binding", "metadata", "name", b->args.name, "namespace",
                             b->args.name_space, "uid", b->args.uid, "target", "apiVersion", "v1",
                             "kind", "Node", "name", b->args.node);
    (void)snprintf(path, sizeof(path), "%s/binding", b->path);
    int rc = sl_controller_leads(c) ? 0 : sl_err_set(&err, -EPERM, SL_E_NO_LONGER_LEADING);
    if (!rc)
        rc = sl_kube_request(c->kube, "POST", path, NULL, body, bound, b, NULL, &err);
    json_decref(body);
    if (rc)
        finish(b, SL_CLUSTER_FAILED, &err);
}

/* The annotations, ours and HAMi's, which has the devices twice: what the node's side has still to do (settle.c
 * empties it), and what the pod holds. */
static json_t *promise_patch(const struct bind_call *b, const struct sl_promise *promise)
{
    char now[24];
    char *devices SL_CLEANUP(free) = sl_promise_hami_text(promise);
    (void)snprintf(now, sizeof(now), "%lld", (long long)time(NULL));
    json_t *patch =
        json_pack("{s:{s:s,s:{s:s,s:s,s:s,s:s,s:s,s:s,s:s}}}", "metadata", "uid", b->args.uid,
                  "annotations", SL_PROMISE_LEASE_KEY, b->lease, SL_PROMISE_HAMI_NODE, b->args.node,
                  SL_PROMISE_HAMI_TIME, now, SL_PROMISE_HAMI_BOUND, now, SL_PROMISE_HAMI_PHASE,
                  "allocating", SL_PROMISE_HAMI_TODO, devices, SL_PROMISE_HAMI_DONE, devices);
    if (strlen(b->args.node) <= 63) /* as long as a label may be */
        (void)json_object_set_new(json_object_get(patch, "metadata"), "labels",
                                  json_pack("{s:s}", SL_PROMISE_HAMI_NODE, b->args.node));
    return patch;
}

/* The cluster has promised; the pod is told. */
static void write_promise(struct bind_call *b, const struct sl_promise *promise)
{
    struct sl_err err = SL_ERR_INIT;
    b->lease = sl_promise_lease_text(promise);
    json_t *patch = promise_patch(b, promise);
    SL_FAULT("controller.bind.patch");
    int rc = sl_kube_request(b->c->kube, "PATCH", b->path, SL_KUBE_PATCH_MERGE, patch, promised, b,
                             NULL, &err);
    json_decref(patch);
    if (rc)
        finish(b, SL_CLUSTER_FAILED, &err);
}

/* A pod the books do not know: it asks for nothing, or it came before the watch told of it. */
static void fetched(void *data, int status, json_t *pod, const struct sl_err *err)
{
    struct bind_call *b = data;
    struct sl_controller *c = b->c;
    struct sl_err why = *err;
    struct sl_request request;
    struct sl_promise promise;
    const char *node = b->args.node;
    uint64_t now = sl_loop_now(c->loop);
    const char *text = sl_jget_note(pod, SL_PROMISE_REQUEST_KEY);
    const json_t *claims = json_object_get(json_object_get(pod, "spec"), "resourceClaims");
    int rc = why.code;
    if (!rc && strcmp(sl_kube_meta(pod, "uid"), b->args.uid) != 0)
        rc = sl_err_set(&why, -ESTALE, SL_E_POD_REPLACED);
    if (!rc)
        rc = text ? sl_request_parse(text, &request, &why) : sl_dialect_read(pod, &request, &why);
    if (rc < 0) {
        finish(b, SL_CLUSTER_FAILED, &why);
        return;
    }
    if ((!text && rc == SL_DIALECT_NOTHING) || json_array_size(claims)) {
        promised(b, status, NULL, &why); /* nothing */
        return;
    }
    struct sl_cluster_ask ask = {.uid = b->args.uid,
                                 .name_space = b->args.name_space,
                                 .name = b->args.name,
                                 .request = &request,
                                 .cpu_milli = sl_cluster_pod_cpu(pod),
                                 .nodes = &node,
                                 .node_count = 1};
    rc = sl_cluster_choose(c->cluster, &ask, now, &node, &why);
    if (!rc)
        rc = sl_cluster_bind_begin(c->cluster, b->args.uid, b->args.node, now, &promise, &why);
    if (rc)
        finish(b, SL_CLUSTER_FAILED, &why);
    else
        write_promise(b, &promise);
}

void sl_bind_handle(struct sl_controller *c, struct sl_http_call *call,
                    const struct sl_http_request *request)
{
    struct sl_err err = SL_ERR_INIT;
    struct bind_call *b = sl_xcalloc(1, sizeof(*b));
    struct sl_promise promise;
    char space[256], name[768];
    int rc = sl_extender_bind_parse(request->body, request->body_size, &b->args, &err);
    if (!rc && (sl_kube_escape(b->args.name_space, space, sizeof(space)) != 0 ||
                sl_kube_escape(b->args.name, name, sizeof(name)) != 0 ||
                snprintf(b->path, sizeof(b->path), "/api/v1/namespaces/%s/pods/%s", space, name) >=
                    (int)sizeof(b->path)))
        rc = sl_err_set(&err, -ENAMETOOLONG, SL_E_EXT_POD_NAME);
    if (!rc && (!sl_controller_leads(c) || c->stopping || !sl_feeds_synced(c)))
        rc = sl_err_set(&err, -EAGAIN, SL_E_NOT_LEADING);
    if (rc) {
        free(b);
        c->count.binds_failed++;
        sl_controller_answer(call, sl_extender_bind_answer(err.msg));
        return;
    }
    b->c = c;
    b->call = call;
    b->next = c->binds;
    if (c->binds)
        c->binds->prev = b;
    c->binds = b;
    rc = sl_cluster_bind_begin(c->cluster, b->args.uid, b->args.node, sl_loop_now(c->loop),
                               &promise, &err);
    if (rc == 0) {
        write_promise(b, &promise);
        return;
    }
    if (rc == -ENOENT)
        rc = sl_kube_request(c->kube, "GET", b->path, NULL, NULL, fetched, b, NULL, &err);
    if (rc)
        finish(b, SL_CLUSTER_FAILED, &err);
}

void sl_bind_gone(struct sl_controller *c, struct sl_http_call *call)
{
    for (struct bind_call *b = c->binds; b; b = b->next)
        if (b->call == call)
            b->call = NULL; /* it goes on: half of it may be done */
}

void sl_bind_free(struct sl_controller *c)
{
    while (c->binds)
        bind_drop(c->binds);
}
