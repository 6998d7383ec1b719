/* SPDX-License-Identifier: Apache-2.0 */
/* The watched collections, and the functions that take their events. */
#include "base/cleanup.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"

static void on_node(struct sl_controller *c, enum sl_kube_event event, json_t *object)
{
    struct sl_err err = SL_ERR_INIT;
    if (event == SL_KUBE_DELETED)
        sl_cluster_node_gone(c->cluster, sl_kube_meta(object, "name"));
    else if (sl_cluster_node_set(c->cluster, object, &err) != 0)
        sl_warn("%s", err.msg);
}

static void on_pod(struct sl_controller *c, enum sl_kube_event event, json_t *object)
{
    struct sl_err err = SL_ERR_INIT;
    if (event == SL_KUBE_DELETED) {
        sl_cluster_pod_gone(c->cluster, sl_kube_meta(object, "uid"));
        sl_settle_gone(c, sl_kube_meta(object, "uid"));
        sl_resize_gone(c, sl_kube_meta(object, "uid"));
        return;
    }
    if (sl_cluster_pod_set(c->cluster, object, sl_loop_now(c->loop), &err) != 0)
        sl_warn("%s", err.msg);
    if (c->opt.extender == SL_EXTENDER_CHOOSE || c->opt.extender == SL_EXTENDER_ALL) {
        sl_settle_pod(c, object);
        sl_resize_pod(c, object);
    }
}

static void on_quota(struct sl_controller *c, enum sl_kube_event event, json_t *object)
{
    struct sl_err err = SL_ERR_INIT;
    if (event == SL_KUBE_DELETED)
        sl_quota_gone(&c->quota, sl_kube_meta(object, "namespace"), sl_kube_meta(object, "name"));
    else if (sl_quota_set(&c->quota, object, &err) != 0)
        sl_warn("%s", err.msg);
}

static void on_slice(struct sl_controller *c, enum sl_kube_event event, json_t *object)
{
    struct sl_err err = SL_ERR_INIT;
    if (event == SL_KUBE_DELETED)
        sl_claims_slice_gone(&c->claims, sl_kube_meta(object, "name"));
    else if (sl_claims_slice_set(&c->claims, object, &err) != 0)
        sl_warn("%s", err.msg);
    if (c->dra)
        sl_ui_dra_slice(c->dra, event == SL_KUBE_DELETED, object);
    if (c->claims.size_count)
        sl_cluster_card_seen(c->cluster, c->claims.size_mib[c->claims.size_count - 1]);
}

static void on_claim(struct sl_controller *c, enum sl_kube_event event, json_t *object)
{
    if (event == SL_KUBE_DELETED)
        sl_claims_claim_gone(&c->claims, sl_kube_meta(object, "uid"));
    else
        sl_claims_claim_set(&c->claims, object);
    if (c->dra)
        sl_ui_dra_claim(c->dra, event == SL_KUBE_DELETED, object);
}

#define DRA "/apis/resource.k8s.io/v1/"

static const struct {
    const char *what;
    void (*object)(struct sl_controller *c, enum sl_kube_event event, json_t *object);
    const char *path;
} feeds[FEED_COUNT] = {
    [FEED_NODES] = {"nodes", on_node, "/api/v1/nodes"},
    [FEED_PODS] = {"pods", on_pod, "/api/v1/pods"},
    [FEED_QUOTAS] = {"resource quotas", on_quota, "/api/v1/resourcequotas"},
    [FEED_SLICES] = {"resource slices", on_slice, DRA "resourceslices"},
    [FEED_CLAIMS] = {"resource claims", on_claim, DRA "resourceclaims"},
    [FEED_TEMPLATES] = {"resource claim templates", sl_templates_set,
                        DRA "resourceclaimtemplates?labelSelector="
                            "app.kubernetes.io%2Fmanaged-by%3D" SL_MUTATE_MANAGED_VALUE},
    [FEED_SECRET] = {"the certificate's secret", sl_certs_secret, NULL},
    [FEED_WEBHOOK] = {"the webhook's configuration", sl_certs_webhook, NULL},
};

static bool wanted(const struct sl_controller *c, unsigned which)
{
    bool dra = c->opt.admission && c->opt.mutate.mode == SL_MUTATE_DRA;
    bool places = c->opt.extender == SL_EXTENDER_CHOOSE || c->opt.extender == SL_EXTENDER_ALL;
    switch (which) {
    case FEED_NODES:
    case FEED_PODS:
        return places || c->opt.admission;
    case FEED_QUOTAS:
        return c->opt.admission;
    case FEED_SLICES:
        return dra || c->opt.extender == SL_EXTENDER_PRIORITIZE;
    case FEED_CLAIMS:
        return c->opt.extender == SL_EXTENDER_PRIORITIZE || c->dra;
    case FEED_TEMPLATES:
        return dra;
    case FEED_SECRET:
        return c->certs != NULL;
    default:
        return c->certs != NULL && c->opt.admission && c->opt.webhook;
    }
}

static char *path_of(const struct sl_controller *c, unsigned which)
{
    if (which == FEED_SECRET)
        return sl_kube_path("/api/v1/namespaces/%s/secrets?fieldSelector=metadata.name%%3D%s",
                            c->opt.name_space, c->opt.secret);
    if (which == FEED_WEBHOOK)
        return sl_kube_path(SL_WEBHOOKS "?fieldSelector=metadata.name%%3D%s", c->opt.webhook);
    return sl_xstrdup(feeds[which].path);
}

static void feed_object(void *data, enum sl_kube_event event, json_t *object)
{
    struct feed *f = data;
    feeds[f->which].object(f->c, event, object);
}

static void feed_synced(void *data);

static void feed_trouble(void *data, const struct sl_err *err)
{
    struct feed *f = data;
    f->c->count.watch_troubles++;
    sl_warn("%s", err->msg);
}

static const struct sl_kube_watch_ops ops = {feed_object, feed_synced, feed_trouble};

static int feed_start(struct sl_controller *c, unsigned which, struct sl_err *err)
{
    struct feed *f = &c->feed[which];
    f->c = c;
    f->which = which;
    if (!wanted(c, which) || f->watch)
        return 0;
    char *path SL_CLEANUP(free) = path_of(c, which);
    return sl_kube_watch_start(c->kube, path, &ops, f, &f->watch, err);
}

static void feed_synced(void *data)
{
    struct feed *f = data;
    struct sl_err err = SL_ERR_INIT;
    bool first = !f->synced;
    f->synced = true;
    if (f->which == FEED_SECRET)
        sl_certs_tick(f->c); /* there is no Secret: make one */
    /* Claims come after slices, which say which card a device is. */
    if (first && f->which == FEED_SLICES && feed_start(f->c, FEED_CLAIMS, &err) != 0)
        sl_error("%s", err.msg);
    /* Pods come after nodes and slices: the cards that a pod holds must be known when the pod is reported. */
    bool cards = f->c->feed[FEED_NODES].synced &&
                 (f->c->feed[FEED_SLICES].synced || !wanted(f->c, FEED_SLICES));
    if (first && cards && feed_start(f->c, FEED_PODS, &err) != 0)
        sl_error("%s", err.msg);
    if (first)
        sl_info("known: %s", feeds[f->which].what);
}

int sl_feeds_start(struct sl_controller *c, struct sl_err *err)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < FEED_COUNT; i++)
        if (i != FEED_PODS && i != FEED_CLAIMS)
            rc = feed_start(c, i, err);
    return rc;
}

void sl_feeds_stop(struct sl_controller *c)
{
    for (unsigned i = 0; i < FEED_COUNT; i++) {
        sl_kube_watch_stop(c->feed[i].watch);
        c->feed[i].watch = NULL;
    }
}

bool sl_feeds_synced(const struct sl_controller *c)
{
    for (unsigned i = 0; i < FEED_COUNT; i++)
        if (wanted(c, i) && !c->feed[i].synced)
            return false;
    return true;
}
