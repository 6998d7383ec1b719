/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "explain/facts.h"

#define RESOURCE_API "/apis/resource.k8s.io/v1"

struct reader {
    struct sl_kubectl kubectl;
    struct sl_cluster_objects *to;
    struct sl_err *err;
    int rc; /* the first failure that is not a missing right */
};

static struct reader reader_of(const struct sl_cli_args *args, struct sl_cluster_objects *to,
                               struct sl_err *err)
{
    return (struct reader){.kubectl = {.kubeconfig = sl_cli_value(args, "kubeconfig"),
                                       .context = sl_cli_value(args, "context")},
                           .to = to,
                           .err = err};
}

/* The items of a list. NULL: they may not be read (that is noted), or the cluster does not know such objects. */
static json_t *list(struct reader *r, const char *what, const char *path)
{
    struct sl_err err = SL_ERR_INIT;
    json_t *object = NULL;
    if (r->rc < 0)
        return NULL;
    int rc = sl_kubectl_get(&r->kubectl, path, &object, &err);
    if (rc == -EACCES) {
        size_t n = strlen(r->to->unread);
        (void)snprintf(r->to->unread + n, sizeof(r->to->unread) - n, "%s%s", n ? ", " : "", what);
        return NULL;
    }
    if (rc == -ENOENT)
        return NULL;
    if (rc < 0) {
        r->rc = sl_err_set(r->err, rc, "%s", err.msg);
        return NULL;
    }
    json_t *items = json_incref(json_object_get(object, "items"));
    json_decref(object);
    return items;
}

static json_t *list_in(struct reader *r, const char *what, const char *api, const char *kind,
                       const char *more)
{
    SL_CLEANUP(free)
    char *path = r->to->name_space && *r->to->name_space
                     ? sl_xasprintf("%s/namespaces/%s/%s%s", api, r->to->name_space, kind, more)
                     : sl_xasprintf("%s/%s%s", api, kind, more);
    return list(r, what, path);
}

/* All pods, or those of the namespace where that is all that the user may see. */
static void read_pods(struct reader *r)
{
    r->to->pods = list(r, "pods of other namespaces", "/api/v1/pods");
    if (r->to->pods || r->rc < 0)
        return;
    r->to->own_pods = true;
    r->to->pods = list_in(r, "pods", "/api/v1", "pods", "");
}

static int name_space_of(const struct sl_cli_args *args, struct reader *r)
{
    const char *given = sl_cli_value(args, "namespace");
    if (given && !sl_kubectl_name_ok(given))
        return sl_err_set(r->err, -EINVAL, SL_E_CLUSTER_NAME_BAD, given);
    if (given) {
        r->to->name_space = sl_xstrdup(given);
        return 0;
    }
    int rc = sl_kubectl_namespace(&r->kubectl, &r->to->name_space, r->err);
    if (rc == 0 && !sl_kubectl_name_ok(r->to->name_space))
        rc = sl_err_set(r->err, -EINVAL, SL_E_CLUSTER_NAME_BAD, r->to->name_space);
    return rc;
}

int sl_cluster_read_pod(const struct sl_cli_args *args, const char *name,
                        struct sl_cluster_objects *ret, struct sl_err *err)
{
    *ret = (struct sl_cluster_objects){0};
    struct reader r = reader_of(args, ret, err);
    if (!sl_kubectl_name_ok(name))
        return sl_err_set(err, -EINVAL, SL_E_CLUSTER_NAME_BAD, name);
    int rc = name_space_of(args, &r);
    if (rc < 0)
        return rc;
    SL_CLEANUP(free)
    char *path = sl_xasprintf("/api/v1/namespaces/%s/pods/%s", ret->name_space, name);
    SL_CLEANUP(free) char *of_pod = sl_xasprintf("?fieldSelector=involvedObject.name%%3D%s", name);
    rc = sl_kubectl_get(&r.kubectl, path, &ret->pod, err);
    if (rc < 0)
        return rc;
    ret->events = list_in(&r, "events", "/api/v1", "events", of_pod);
    ret->nodes = list(&r, "nodes", "/api/v1/nodes");
    read_pods(&r);
    if (json_array_size(sl_facts_at(ret->pod, "spec.resourceClaims")) > 0) {
        ret->claims = list_in(&r, "resourceclaims", RESOURCE_API, "resourceclaims", "");
        ret->templates =
            list_in(&r, "resourceclaimtemplates", RESOURCE_API, "resourceclaimtemplates", "");
        ret->classes = list(&r, "deviceclasses", RESOURCE_API "/deviceclasses");
    }
    return r.rc;
}

int sl_cluster_read_all(const struct sl_cli_args *args, struct sl_cluster_objects *ret,
                        struct sl_err *err)
{
    *ret = (struct sl_cluster_objects){0};
    struct reader r = reader_of(args, ret, err);
    bool one = sl_cli_value(args, "namespace") != NULL;
    int rc = name_space_of(args, &r);
    if (rc < 0)
        return rc;
    ret->nodes = list(&r, "nodes", "/api/v1/nodes");
    if (one)
        ret->pods = list_in(&r, "pods", "/api/v1", "pods", "");
    else
        read_pods(&r);
    ret->own_pods |= one;
    ret->claims = ret->own_pods ? list_in(&r, "resourceclaims", RESOURCE_API, "resourceclaims", "")
                                : list(&r, "resourceclaims", RESOURCE_API "/resourceclaims");
    ret->slices = list(&r, "resourceslices", RESOURCE_API "/resourceslices");
    return r.rc;
}

void sl_cluster_objects_free(struct sl_cluster_objects *o)
{
    json_t *const all[] = {o->pod,    o->events,    o->nodes,   o->pods,
                           o->claims, o->templates, o->classes, o->slices};
    for (size_t i = 0; i < SL_ARRAY_LEN(all); i++)
        json_decref(all[i]);
    free(o->name_space);
    *o = (struct sl_cluster_objects){0};
}

struct sl_explain_facts sl_cluster_facts(const struct sl_cluster_objects *o)
{
    return (struct sl_explain_facts){o->pod,    o->events,    o->nodes,   o->pods,
                                     o->claims, o->templates, o->classes, o->slices};
}
