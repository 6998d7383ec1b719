/* SPDX-License-Identifier: Apache-2.0 */
/* Pods of the cluster, as the watch reports them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/utf8.h"
#include "base/xalloc.h"
#include "controller/cluster_internal.h"
#include "controller/dialect.h"
#include "controller/errors.h"
#include "controller/mutate.h"

#define SAID_MAX 400 /* of what the scheduler says of a pod */

/* --- waiting --- */

static void pod_waits(struct sl_cluster *c, struct cluster_pod *pod, bool waits)
{
    if (pod->refused == waits)
        return;
    pod->refused = waits;
    c->waiting += waits ? 1 : (size_t)-1;
}

void sl_cluster_refused(struct sl_cluster *c, const char *uid, bool refused)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (pod)
        pod_waits(c, pod, refused);
    else if (refused)
        (void)snprintf(c->strangers[c->next_stranger++ % CLUSTER_STRANGERS],
                       sizeof(c->strangers[0]), "%s", uid);
}

static bool was_refused(const struct sl_cluster *c, const char *uid)
{
    for (size_t i = 0; i < CLUSTER_STRANGERS; i++)
        if (strcmp(c->strangers[i], uid) == 0)
            return true;
    return false;
}

/* --- pods --- */

struct cluster_pod *sl_cluster_pod_find(const struct sl_cluster *c, const char *uid)
{
    return sl_map_find(&c->pods, uid, strlen(uid));
}

static struct cluster_space *space_get(struct sl_cluster *c, const char *name)
{
    struct cluster_space *s = sl_map_find(&c->spaces, name, strlen(name));
    if (s || strlen(name) >= sizeof(s->name))
        return s;
    s = sl_xcalloc(1, sizeof(*s));
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    s->item.key = s->name;
    sl_map_add(&c->spaces, &s->item);
    return s;
}

struct cluster_pod *sl_cluster_pod_get(struct sl_cluster *c, const char *uid,
                                       const char *name_space)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (pod)
        return pod;
    struct cluster_space *space = space_get(c, name_space);
    if (!space)
        return NULL;
    pod = sl_xcalloc(1, sizeof(*pod) + strlen(uid) + 1);
    memcpy(pod->uid, uid, strlen(uid) + 1);
    pod->item.key = pod->uid;
    pod->space = space;
    sl_map_add(&c->pods, &pod->item);
    pod->space->pods++;
    return pod;
}

void sl_cluster_count(struct cluster_pod *pod, uint64_t memory_mib, uint64_t cores)
{
    pod->space->memory_mib += memory_mib - pod->memory_mib;
    pod->space->cores += cores - pod->cores;
    pod->memory_mib = memory_mib;
    pod->cores = cores;
}

void sl_cluster_pod_free(void *item)
{
    struct cluster_pod *pod = item;
    free(pod->request);
    free(pod->grant);
    free(pod->name);
    free(pod->said);
    free(pod->since);
    free(pod->template_name);
    free(pod->resizing);
    free(pod->lease);
    free(pod);
}

static void pod_drop(struct sl_cluster *c, struct cluster_pod *pod)
{
    pod_waits(c, pod, false);
    sl_cluster_pod_release(c, pod);
    sl_cluster_count(pod, 0, 0);
    if (--pod->space->pods == 0) {
        sl_map_drop(&c->spaces, &pod->space->item);
        free(pod->space);
    }
    sl_map_drop(&c->pods, &pod->item);
    sl_cluster_pod_free(pod);
}

void sl_cluster_pod_gone(struct sl_cluster *c, const char *uid)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (pod)
        pod_drop(c, pod);
}

static bool same_devices(const struct sl_promise *p, const struct sl_promise_container *a,
                         const struct sl_promise_container *b)
{
    if (a->count != b->count)
        return false;
    for (unsigned i = 0; i < a->count; i++)
        if (!sl_share_same(&p->share[a->first + i], &p->share[b->first + i]))
            return false;
    return true;
}

/* One bit for each init container that ends before the others start and uses the same GPUs as one of these. */
static uint32_t shared_containers(const json_t *pod, const char *lease)
{
    const json_t *inits = json_object_get(json_object_get(pod, "spec"), "initContainers"), *one;
    struct sl_promise p;
    uint32_t skip = 0;
    size_t i, n;
    if (json_array_size(inits) == 0 || lease[0] != '{' ||
        sl_promise_lease_parse(lease, &p, NULL) != 0)
        return 0;
    json_array_foreach(inits, n, one)
    {
        const char *name = sl_jget_text(one, "name");
        for (i = 0; !json_object_get(one, "restartPolicy") && i < p.container_count; i++)
            for (size_t k = 0; strcmp(p.container[i].name, name) == 0 && k < p.container_count; k++)
                if (k != i && !(skip >> k & 1) &&
                    same_devices(&p, &p.container[i], &p.container[k]))
                    skip |= 1u << i;
    }
    return skip;
}

/* Returns true when the text has changed. */
static bool keep_text(char **at, const char *value)
{
    if (*at == value || (*at && value && strcmp(*at, value) == 0))
        return false;
    char *copy = sl_xstrdup(value);
    free(*at);
    *at = copy;
    return true;
}

/* Keeps the texts that people know the pod by: its name and, while it has no node, why the scheduler says it waits. */
static void keep_words(struct cluster_pod *pod, const json_t *object)
{
    const json_t *meta = json_object_get(object, "metadata"), *one;
    bool waits = !sl_jget_text(json_object_get(object, "spec"), "nodeName")[0];
    char said[SAID_MAX] = "";
    size_t i;
    json_array_foreach(json_object_get(json_object_get(object, "status"), "conditions"), i, one)
    {
        if (waits && strcmp(sl_jget_text(one, "type"), "PodScheduled") == 0 &&
            strcmp(sl_jget_text(one, "status"), "False") == 0)
            (void)snprintf(said, sizeof(said), "%s", sl_jget_text(one, "message"));
    }
    sl_utf8_mend(said);
    (void)keep_text(&pod->name, sl_jget_text(meta, "name"));
    (void)keep_text(&pod->said, said[0] ? said : NULL);
    (void)keep_text(&pod->since, waits ? sl_jget_text(meta, "creationTimestamp") : NULL);
}

static void count_request(const struct sl_cluster *c, struct cluster_pod *pod,
                          const struct sl_request *r)
{
    uint64_t memory, cores;
    sl_request_sums(r, c->largest_mib, &memory, &cores);
    sl_cluster_count(pod, memory, cores);
}

/* Keeps the pod's request until the pod is placed. */
static int keep_request(struct sl_cluster *c, struct cluster_pod *pod, const char *request,
                        bool first, struct sl_err *err)
{
    struct sl_request r;
    int rc = sl_request_parse(request, &r, err);
    if (rc)
        return rc;
    count_request(c, pod, &r);
    if (first && r.admission[0] && c->opt.admitted)
        c->opt.admitted(c->opt.data, r.admission);
    if (pod->state == POD_BOUND)
        return 0;
    if (!pod->request)
        pod->request = sl_xmalloc(sizeof(r));
    *pod->request = r;
    return 0;
}

static void place_pod(struct sl_cluster *c, struct cluster_pod *pod, const char *node_name,
                      bool new_lease, uint64_t now_ns)
{
    if (node_name[0]) {
        struct cluster_node *n = sl_cluster_node_get(c, node_name);
        pod_waits(c, pod, false);
        if (pod->lease)
            sl_cluster_hold_lease(c, pod, n, POD_BOUND, 0);
        else
            sl_cluster_hold_cpu(c, pod, n);
        free(pod->request);
        pod->request = NULL;
        return;
    }
    /* A lease without a node: its writer died before the bind, or the bind is running now. */
    struct sl_promise p;
    if (!pod->lease || !new_lease || pod->state != POD_PENDING ||
        sl_promise_lease_parse(pod->lease, &p, NULL) != 0)
        return;
    struct cluster_node *n = sl_cluster_node_find(c, p.node);
    if (n && n->present)
        sl_cluster_hold_lease(c, pod, n, POD_RESERVED, now_ns + CLUSTER_RESERVE_NS);
}

/* Does the pod need an entry at all? */
static bool of_interest(const struct sl_cluster *c, const char *request, const char *lease,
                        const char *template, const char *node_name)
{
    const struct cluster_node *n = node_name[0] ? sl_cluster_node_find(c, node_name) : NULL;
    return request || lease || template || (n && n->place != CLUSTER_NO_PLACE);
}

int sl_cluster_pod_set(struct sl_cluster *c, const json_t *object, uint64_t now_ns,
                       struct sl_err *err)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *uid = sl_jget_text(meta, "uid"), *space = sl_jget_text(meta, "namespace");
    const char *phase = sl_jget_text(json_object_get(object, "status"), "phase");
    const char *node = sl_jget_text(json_object_get(object, "spec"), "nodeName");
    const char *request = sl_jget_note(object, SL_PROMISE_REQUEST_KEY);
    const char *lease = sl_jget_note(object, SL_PROMISE_LEASE_KEY);
    const char *template = sl_mutate_claim(object);
    if (template && !template[0])
        template = NULL;
    if (!lease) /* HAMi's; of its two lists, the one that policy.yaml protects */
        lease = sl_jget_note(object, SL_PROMISE_HAMI_DONE);
    if (!uid[0])
        return sl_err_set(err, -EINVAL, SL_E_POD_UID_MISSING);
    if (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0) {
        sl_cluster_pod_gone(c, uid);
        return 0;
    }
    struct sl_request unasked;
    bool counts = !request && !lease && sl_dialect_read(object, &unasked, NULL) > 0;
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (!pod && !counts && !of_interest(c, request, lease, template, node))
        return 0;
    pod = pod ? pod : sl_cluster_pod_get(c, uid, space);
    if (!pod)
        return sl_err_set(err, -ENAMETOOLONG, SL_E_NAMESPACE_LONG, space);
    bool first = !pod->seen;
    pod->seen = true;
    keep_words(pod, object);
    if (first && was_refused(c, uid))
        pod_waits(c, pod, true);
    pod->cpu_milli = sl_cluster_pod_cpu(object);
    (void)keep_text(&pod->template_name, template);
    if (lease)
        pod->skip = shared_containers(object, lease);
    if (lease && pod->resizing && strcmp(lease, pod->resizing) != 0)
        lease = pod->resizing; /* the event is older than the resize */
    else
        (void)keep_text(&pod->resizing, NULL);
    bool new_lease = keep_text(&pod->lease, lease);
    int rc = request ? keep_request(c, pod, request, first, err) : 0;
    if (counts) /* whole GPUs of DRA, and pods that bypassed the webhook */
        count_request(c, pod, &unasked);
    place_pod(c, pod, node, new_lease, now_ns);
    return rc ? sl_err_wrap(err, "pod %s/%s", space, sl_jget_text(meta, "name")) : 0;
}

void sl_cluster_expire(struct sl_cluster *c, uint64_t now_ns)
{
    struct cluster_pod *next;
    for (struct cluster_pod *p = c->reserved; p; p = next) {
        next = p->r_next;
        if (p->until_ns > now_ns)
            continue;
        sl_cluster_pod_release(c, p);
        if (!p->seen)
            pod_drop(c, p); /* the watch never reported it */
    }
}

void sl_cluster_used(const struct sl_cluster *c, const char *name_space, uint64_t *ret_memory_mib,
                     uint64_t *ret_cores)
{
    const struct cluster_space *s = sl_map_find(&c->spaces, name_space, strlen(name_space));
    *ret_memory_mib = s ? s->memory_mib : 0;
    *ret_cores = s ? s->cores : 0;
}

bool sl_cluster_uses_template(const struct sl_cluster *c, const char *name_space,
                              const char *template_name)
{
    struct sl_map_walk walk = {.bucket = 0};
    const struct cluster_pod *p;
    while ((p = sl_map_next(&c->pods, &walk)))
        if (p->template_name && strcmp(p->template_name, template_name) == 0 &&
            strcmp(p->space->name, name_space) == 0)
            return true;
    return false;
}
