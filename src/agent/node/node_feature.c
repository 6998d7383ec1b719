/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/node_feature.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/node/errors.h"
#include "agent/node/node_internal.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"

#define GROUP      "nfd.k8s-sigs.io/v1alpha1"
#define NODE_LABEL "nfd.node.kubernetes.io/node-name"
#define NAME       "sluice-features-for-"

#define UID_NS     SL_NS_PER_S         /* until the Node is seen */
#define REFUSED_NS (60 * SL_NS_PER_S)  /* Node Feature Discovery may be installed later */
#define LOOK_NS    (300 * SL_NS_PER_S) /* the object is not watched: it may have been deleted */

struct sl_node_feature {
    struct sl_loop *loop;
    struct sl_node_feature_options opt;
    char *node, *name_space;
    char path[640];
    struct sl_labels wanted;
    bool wanted_set; /* the object shall exist */
    bool newer;      /* changed since the request that is under way */
    bool current;    /* the server has it */
    bool may_be;     /* an object may exist, maybe of an earlier agent */
    struct sl_kube_call *call;
    struct sl_timer timer;
    uint64_t delay_ns;
    enum sl_node_feature_state state;
    uint64_t writes, failures;
};

static void send(struct sl_node_feature *f);

static json_t *labels_json(const struct sl_labels *labels)
{
    json_t *o = json_object();
    for (size_t i = 0; i < labels->count; i++)
        (void)json_object_set_new(o, labels->label[i].key, json_string(labels->label[i].value));
    return o;
}

/* Older definitions of the kind require `features` and its three parts, empty or not. */
static json_t *make_object(const struct sl_node_feature *f, const char *uid)
{
    return json_pack("{s:s, s:s, s:{s:s+, s:s, s:{s:s}, s:[{s:s, s:s, s:s, s:s}]},"
                     " s:{s:{s:{}, s:{}, s:{}}, s:o}}",
                     "apiVersion", GROUP, "kind", "NodeFeature", "metadata", "name", NAME, f->node,
                     "namespace", f->name_space, "labels", NODE_LABEL, f->node, "ownerReferences",
                     "apiVersion", "v1", "kind", "Node", "name", f->node, "uid", uid, "spec",
                     "features", "flags", "attributes", "instances", "labels",
                     labels_json(&f->wanted));
}

static void wait_for(struct sl_node_feature *f, uint64_t ns)
{
    sl_timer_set(f->loop, &f->timer, sl_loop_now(f->loop) + ns);
}

static void tell(struct sl_node_feature *f, enum sl_node_feature_state state, const char *why)
{
    if (state == f->state)
        return;
    f->state = state;
    if (f->opt.changed)
        f->opt.changed(f->opt.data, why);
}

static void failed(struct sl_node_feature *f, int status, const struct sl_err *err)
{
    f->failures++;
    f->current = false;
    if (node_try_again(status)) {
        wait_for(f, sl_node_backoff(f->node, sl_loop_now(f->loop) + f->failures, &f->delay_ns));
        return;
    }
    wait_for(f, REFUSED_NS);
    tell(f, SL_FEATURE_REFUSED, err->msg);
}

static void applied(void *data, int status, json_t *body, const struct sl_err *err)
{
    (void)body;
    struct sl_node_feature *f = data;
    f->call = NULL;
    if (!f->wanted_set) { /* withdrawn meanwhile */
        send(f);
        return;
    }
    if (!node_went_well(status)) {
        failed(f, status, err);
        return;
    }
    f->writes++;
    f->delay_ns = 0;
    f->current = !f->newer;
    tell(f, SL_FEATURE_TAKEN, NULL);
    if (f->newer)
        send(f);
    else
        wait_for(f, LOOK_NS);
}

static void removed(void *data, int status, json_t *body, const struct sl_err *err)
{
    (void)body;
    struct sl_node_feature *f = data;
    f->call = NULL;
    f->may_be = !node_went_well(status) && node_try_again(status);
    if (!node_went_well(status) && !f->may_be && status != 404)
        sl_warn("NodeFeature " NAME "cannot delete %s in namespace %s: %s", f->node, f->name_space,
                err->msg);
    if (f->wanted_set || !f->may_be) {
        send(f);
        return;
    }
    f->failures++;
    wait_for(f, sl_node_backoff(f->node, sl_loop_now(f->loop) + f->failures, &f->delay_ns));
}

static void send(struct sl_node_feature *f)
{
    struct sl_err err = SL_ERR_INIT;
    int rc = 0;
    sl_timer_stop(f->loop, &f->timer);
    if (!f->wanted_set && !f->may_be)
        return;
    f->newer = false;
    if (f->wanted_set) {
        const char *uid = f->opt.node_uid(f->opt.data);
        json_t *body = uid ? make_object(f, uid) : NULL;
        if (!body) {
            wait_for(f, UID_NS);
            return;
        }
        f->may_be = true;
        rc = f->opt.api.request(f->opt.api.server, "PATCH", f->path, SL_KUBE_PATCH_APPLY, body,
                                applied, f, &f->call, &err);
        json_decref(body);
    } else {
        char path[sizeof(f->path)];
        (void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(f->path, "?"), f->path);
        rc = f->opt.api.request(f->opt.api.server, "DELETE", path, NULL, NULL, removed, f, &f->call,
                                &err);
    }
    if (rc < 0) {
        f->call = NULL;
        failed(f, 0, &err);
    }
}

static void fire(struct sl_timer *timer)
{
    send(sl_container_of(timer, struct sl_node_feature, timer));
}

int sl_node_feature_create(struct sl_loop *loop, const struct sl_node_feature_options *opt,
                           struct sl_node_feature **ret, struct sl_err *err)
{
    if (!sl_node_is_name(opt->node))
        return sl_err_set(err, -EINVAL, SL_E_NODE_NAME_BAD, opt->node);
    if (!sl_node_is_name(opt->name_space) || strchr(opt->name_space, '.'))
        return sl_err_set(err, -EINVAL, SL_E_NAMESPACE_BAD, opt->name_space);
    struct sl_node_feature *f = sl_xcalloc(1, sizeof(*f));
    f->loop = loop;
    f->opt = *opt;
    f->timer.fire = fire;
    f->may_be = true;
    f->node = sl_xstrdup(opt->node);
    f->name_space = sl_xstrdup(opt->name_space);
    (void)snprintf(f->path, sizeof(f->path),
                   "/apis/" GROUP "/namespaces/%.253s/nodefeatures/" NAME
                   "%.253s?fieldManager=sluiced&force=true",
                   f->name_space, f->node);
    *ret = f;
    return 0;
}

void sl_node_feature_destroy(struct sl_node_feature *feature)
{
    if (!feature)
        return;
    sl_timer_stop(feature->loop, &feature->timer);
    if (feature->call)
        feature->opt.api.cancel(feature->call);
    sl_labels_clear(&feature->wanted);
    free(feature->node);
    free(feature->name_space);
    free(feature);
}

void sl_node_feature_labels(struct sl_node_feature *feature, const struct sl_labels *labels)
{
    if (feature->wanted_set && sl_labels_equal(labels, &feature->wanted))
        return;
    bool waiting = feature->wanted_set && !feature->current && feature->timer.set;
    sl_labels_copy(&feature->wanted, labels);
    feature->wanted_set = feature->newer = true;
    feature->current = false;
    /* After a failure, wait for the timer instead of asking at each change. */
    if (!feature->call && !waiting)
        send(feature);
}

void sl_node_feature_withdraw(struct sl_node_feature *feature)
{
    bool before = feature->wanted_set;
    feature->wanted_set = feature->current = false;
    feature->state = SL_FEATURE_UNKNOWN;
    sl_labels_clear(&feature->wanted);
    if (!feature->call && (before || !feature->timer.set))
        send(feature);
}

struct sl_node_feature_stats sl_node_feature_stats(const struct sl_node_feature *feature)
{
    return (struct sl_node_feature_stats){.state = feature->state,
                                          .current = feature->current,
                                          .writes = feature->writes,
                                          .failures = feature->failures};
}
