/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ResourceClaimTemplates: made when a pod first needs one, shared by all pods of the namespace with the same request,
 * deleted when unused for template_keep_s. Replicas must not disagree about "in use". So before a pod gets a template,
 * its last-used mark is made younger than a sixth of that time; and a sweep deletes only a template whose mark is older
 * than the whole time, and only in the version that the sweep saw.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"
#include "controller/errors.h"

#define TEMPLATES "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaimtemplates"

struct template
{
    struct sl_map_item item; /* by namespace/name */
    char key[320], uid[64], version[32];
    long long used_s;
};

/* The longest namespace and the longest name that Kubernetes allows fit. */
static struct template *find(const struct sl_controller *c, const char *name_space,
                             const char *name, char key[320])
{
    (void)snprintf(key, 320, "%s/%s", name_space, name);
    return sl_map_find(&c->templates, key, strlen(key));
}

void sl_templates_set(struct sl_controller *c, enum sl_kube_event event, json_t *object)
{
    char key[320];
    const char *mark = sl_jget_note(object, SL_MUTATE_USED_KEY);
    struct template *t =
        find(c, sl_kube_meta(object, "namespace"), sl_kube_meta(object, "name"), key);
    if (event == SL_KUBE_DELETED) {
        if (t)
            sl_map_drop(&c->templates, &t->item);
        free(t);
        return;
    }
    if (!t) {
        t = sl_xcalloc(1, sizeof(*t));
        memcpy(t->key, key, sizeof(key));
        t->item.key = t->key;
        sl_map_add(&c->templates, &t->item);
    }
    (void)snprintf(t->uid, sizeof(t->uid), "%.63s", sl_kube_meta(object, "uid"));
    (void)snprintf(t->version, sizeof(t->version), "%.31s",
                   sl_kube_meta(object, "resourceVersion"));
    t->used_s = mark ? strtoll(mark, NULL, 10) : 0;
}

void sl_templates_free(struct sl_controller *c)
{
    sl_map_free(&c->templates, free);
}

static void ensured(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct templates_call *e = data;
    struct sl_err none = SL_ERR_INIT;
    /* Another replica was faster: the name is made from the content, so both templates are equal. */
    bool good = err->code == 0 || status == 409;
    if (err->code == 0 && status == 201)
        e->c->count.templates_made++;
    if (err->code == 0 && json_is_object(body))
        sl_templates_set(e->c, SL_KUBE_MODIFIED, body);
    e->done(e->data, good ? &none : err);
}

static void put_mark(json_t *object)
{
    char now[24];
    (void)snprintf(now, sizeof(now), "%lld", (long long)time(NULL));
    json_t *meta = json_object_get(object, "metadata");
    json_object_set_new(meta, "annotations", json_pack("{s:s}", SL_MUTATE_USED_KEY, now));
}

static int send(struct templates_call *e, bool there, const char *name_space, const char *name,
                json_t *object, struct sl_err *err)
{
    json_t *body = there ? json_pack("{s:{}}", "metadata") : json_incref(object);
    put_mark(body);
    char *path SL_CLEANUP(free) = there ? sl_kube_path(TEMPLATES "/%s", name_space, name)
                                        : sl_kube_path(TEMPLATES, name_space);
    int rc = sl_kube_request(e->c->kube, there ? "PATCH" : "POST", path,
                             there ? SL_KUBE_PATCH_MERGE : NULL, body, ensured, e, NULL, err);
    json_decref(body);
    return rc;
}

void sl_templates_ensure(struct templates_call *e, const char *name_space, const char *name,
                         json_t *object)
{
    char key[320];
    struct sl_err err = SL_ERR_INIT;
    const struct template *t = find(e->c, name_space, name, key);
    long long age = t ? time(NULL) - t->used_s : 0;
    bool fresh = t && age >= 0 && age < e->c->opt.template_keep_s / 6;
    if (fresh || send(e, t != NULL, name_space, name, object, &err) != 0)
        e->done(e->data, &err);
}

static void swept(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_controller *c = data;
    (void)body;
    c->count.templates_dropped += err->code == 0;
    if (err->code && status != 404 && status != 409)
        sl_warn(SL_E_TEMPLATE_DELETE_LOG, err->msg);
}

static void drop(struct sl_controller *c, const struct template *t, const char *name_space,
                 const char *name)
{
    struct sl_err err = SL_ERR_INIT;
    char *path SL_CLEANUP(free) = sl_kube_path(TEMPLATES "/%s", name_space, name);
    json_t *body = json_pack("{s:s,s:s,s:{s:s,s:s}}", "apiVersion", "v1", "kind", "DeleteOptions",
                             "preconditions", "uid", t->uid, "resourceVersion", t->version);
    if (sl_kube_request(c->kube, "DELETE", path, NULL, body, swept, c, NULL, &err) != 0)
        sl_warn("%s", err.msg);
    json_decref(body);
}

void sl_templates_sweep(struct sl_controller *c)
{
    struct sl_map_walk walk = {.bucket = 0};
    struct template *t;
    if (!sl_controller_leads(c) || !sl_feeds_synced(c))
        return;
    while ((t = sl_map_next(&c->templates, &walk))) {
        char space[320];
        const char *name = strchr(t->key, '/') + 1;
        if (time(NULL) - t->used_s < c->opt.template_keep_s)
            continue;
        (void)snprintf(space, sizeof(space), "%.*s", (int)(name - 1 - t->key), t->key);
        if (!sl_cluster_uses_template(c->cluster, space, name))
            drop(c, t, space, name);
    }
}
