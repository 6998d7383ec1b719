/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running binds: first the promise is written into the pod, then the pod is bound. In that order, so that a pod on a
 * node always carries its promise. Both requests name the pod's uid: a new pod of the same name is left alone. A pod
 * has at most one bind at a time; a node any number.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/container.h"
#include "base/fault.h"
#include "base/json_read.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"
#include "controller/dialect.h"
#include "controller/errors.h"

/* The next step after an answer of the API server. */
enum bind_step { PROMISE, LEARN, BIND, BOUND };

struct bind_call {
    struct late_call late;
    struct sl_extender_bind args;
    enum bind_step step;
    char *lease; /* the promise; NULL: none, the pod asks for nothing */
    char *path;
};

static void bind_drop(struct bind_call *b)
{
    sl_list_drop(&b->late.c->binds, &b->late);
    free(b->lease);
    free(b->path);
    free(b);
}

static void finish(struct bind_call *b, enum sl_cluster_outcome outcome, const struct sl_err *err)
{
    struct sl_controller *c = b->late.c;
    if (b->lease)
        sl_cluster_bind_end(c->cluster, b->args.uid, outcome, b->lease, sl_loop_now(c->loop));
    if (outcome == SL_CLUSTER_BOUND) {
        c->count.binds++;
    } else {
        c->count.binds_failed++;
        sl_warn("pod %s/%s was not bound to %s: %s", b->args.name_space, b->args.name, b->args.node,
                err->msg);
    }
    if (b->late.call)
        sl_controller_answer(
            b->late.call, sl_extender_bind_answer(outcome == SL_CLUSTER_BOUND ? NULL : err->msg));
    bind_drop(b);
    sl_controller_maybe_stopped(c);
}

static sl_kube_done go_on;

/* Takes ownership of the body. */
static int ask(struct bind_call *b, const char *method, const char *path, const char *type,
               json_t *body, struct sl_err *err)
{
    int rc = sl_kube_request(b->late.c->kube, method, path, type, body, go_on, b, NULL, err);
    json_decref(body);
    return rc;
}

static json_t *binding_of(const struct sl_extender_bind *args)
{
    return json_pack("{s:s,s:s,s:{s:s,s:s,s:s},s:{s:s,s:s,s:s}}", "apiVersion", "v1", "kind",
                     "Binding", "metadata", "name", args->name, "namespace", args->name_space,
                     "uid", args->uid, "target", "apiVersion", "v1", "kind", "Node", "name",
                     args->node);
}

/* The annotations, ours and HAMi's. HAMi lists the devices twice: those that the node must still allocate (settle.c
 * empties this list), and those that the pod holds. */
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
    if (strlen(b->args.node) <= 63) /* the limit of a label's length */
        (void)json_object_set_new(json_object_get(patch, "metadata"), "labels",
                                  json_pack("{s:s}", SL_PROMISE_HAMI_NODE, b->args.node));
    return patch;
}

/* For a pod that is not in the books. 1: the pod asks for nothing. 0: the scheduler was faster than the watch. */
static int learn(const struct bind_call *b, const json_t *pod, struct sl_err *err)
{
    struct sl_request request;
    const char *node = b->args.node;
    const char *text = sl_jget_note(pod, SL_PROMISE_REQUEST_KEY);
    const json_t *claims = json_object_get(json_object_get(pod, "spec"), "resourceClaims");
    if (strcmp(sl_kube_meta(pod, "uid"), b->args.uid) != 0)
        return sl_err_set(err, -ESTALE, SL_E_POD_REPLACED);
    int rc = text ? sl_request_parse(text, &request, err) : sl_dialect_read(pod, &request, err);
    if (rc < 0)
        return rc;
    if ((!text && rc == SL_DIALECT_NOTHING) || json_array_size(claims))
        return 1;
    struct sl_cluster_ask ask = {.uid = b->args.uid,
                                 .name_space = b->args.name_space,
                                 .request = &request,
                                 .cpu_milli = sl_cluster_pod_cpu(pod),
                                 .nodes = &node,
                                 .node_count = 1};
    return sl_cluster_choose(b->late.c->cluster, &ask, sl_loop_now(b->late.c->loop), &node, err);
}

static enum sl_cluster_outcome outcome(int status, const struct sl_err *err)
{
    /* Certainly refused, or unknown: after a conflict the pod may already be on that very node. */
    bool refused = status >= 400 && status < 500 && status != 409 && status != 429 && status != 408;
    return !err->code ? SL_CLUSTER_BOUND : refused ? SL_CLUSTER_FAILED : SL_CLUSTER_UNKNOWN;
}

/* Each step but the last sends a request; the answer calls this function again. */
static void go_on(void *data, int status, json_t *answer, const struct sl_err *failed)
{
    struct bind_call *b = data;
    struct sl_controller *c = b->late.c;
    struct sl_err err = *failed;
    struct sl_promise promise;
    int rc = err.code;
    if (b->step == BOUND) {
        finish(b, outcome(status, &err), &err);
        return;
    }
    if (!rc && b->step == LEARN)
        rc = learn(b, answer, &err);
    if (!rc && b->step != BIND)
        rc = sl_cluster_bind_begin(c->cluster, b->args.uid, b->args.node, sl_loop_now(c->loop),
                                   &promise, &err);
    if (rc == -ENOENT && b->step == PROMISE) {
        b->step = LEARN;
        rc = ask(b, "GET", b->path, NULL, NULL, &err);
    } else if (!rc && b->step != BIND) {
        b->step = BIND;
        b->lease = sl_promise_lease_text(&promise);
        SL_FAULT("controller.bind.patch");
        rc = ask(b, "PATCH", b->path, SL_KUBE_PATCH_MERGE, promise_patch(b, &promise), &err);
    } else if (rc >= 0) { /* the pod carries its promise, or asks for nothing */
        char *path SL_CLEANUP(free) = sl_xasprintf("%s/binding", b->path);
        b->step = BOUND;
        SL_FAULT("controller.bind.post");
        rc = sl_controller_leads(c) ? ask(b, "POST", path, NULL, binding_of(&b->args), &err)
                                    : sl_err_set(&err, -EPERM, SL_E_NO_LONGER_LEADING);
    }
    if (rc < 0) /* the pod is on no node, whatever its annotations say */
        finish(b, SL_CLUSTER_FAILED, &err);
}

void sl_bind_handle(struct sl_controller *c, struct sl_http_call *call,
                    const struct sl_http_request *request)
{
    struct sl_err err = SL_ERR_INIT;
    struct bind_call *b = sl_xcalloc(1, sizeof(*b));
    int rc = sl_extender_bind_parse(request->body, request->body_size, &b->args, &err);
    if (!rc && (!sl_controller_leads(c) || c->stopping || !sl_feeds_synced(c)))
        rc = sl_err_set(&err, -EAGAIN, SL_E_NOT_LEADING);
    if (rc) {
        free(b);
        c->count.binds_failed++;
        sl_controller_answer(call, sl_extender_bind_answer(err.msg));
        return;
    }
    b->late = (struct late_call){c->binds, c, call};
    b->path = sl_kube_path("/api/v1/namespaces/%s/pods/%s", b->args.name_space, b->args.name);
    c->binds = &b->late;
    go_on(b, 0, NULL, &err);
}

void sl_bind_free(struct sl_controller *c)
{
    while (c->binds)
        bind_drop(sl_container_of(c->binds, struct bind_call, late));
}
