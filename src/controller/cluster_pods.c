/* SPDX-License-Identifier: Apache-2.0 */
/* Pods of the cluster and what they hold. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/xalloc.h"
#include "controller/cluster_internal.h"
#include "controller/dialect.h"
#include "controller/errors.h"
#include "controller/mutate.h"

/* --- holding --- */

void sl_cluster_pod_waits(struct sl_cluster *c, struct cluster_pod *pod, bool waits)
{
    if (pod->refused == waits)
        return;
    pod->refused = waits;
    c->waiting += waits ? 1 : (size_t)-1;
}

/* kube-scheduler may know a pod before we do. */
void sl_cluster_refused(struct sl_cluster *c, const char *uid, bool refused)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (pod)
        sl_cluster_pod_waits(c, pod, refused);
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

static void unlink_reserved(struct sl_cluster *c, struct cluster_pod *pod)
{
    if (pod->state != POD_RESERVED && pod->state != POD_BINDING)
        return;
    if (pod->r_prev)
        pod->r_prev->r_next = pod->r_next;
    else
        c->reserved = pod->r_next;
    if (pod->r_next)
        pod->r_next->r_prev = pod->r_prev;
    pod->r_prev = pod->r_next = NULL;
    c->stats.reserved--;
}

/* Changes the state, and keeps the list of the reserved and the counts with it. */
void sl_cluster_reserve(struct sl_cluster *c, struct cluster_pod *pod, enum cluster_state state,
                        uint64_t until_ns)
{
    unlink_reserved(c, pod);
    c->stats.bound -= pod->state == POD_BOUND;
    pod->state = (uint8_t)state;
    pod->until_ns = until_ns;
    c->stats.bound += state == POD_BOUND;
    if (state != POD_RESERVED && state != POD_BINDING)
        return;
    pod->r_next = c->reserved;
    if (c->reserved)
        c->reserved->r_prev = pod;
    c->reserved = pod;
    c->stats.reserved++;
}

static void grant_misfit(struct sl_cluster *c, struct cluster_node *n, struct cluster_grant *g,
                         int sign)
{
    for (unsigned i = 0; i < n->gpu_count; i++)
        if (g->misfit_gpus >> i & 1) {
            n->gpu[i].misfits += (uint32_t)sign;
            sl_cluster_block(c, n, i);
        }
    c->stats.misfits += (size_t)(long)sign;
}

/* GPUs that are blocked for others may have to hold what is there already. */
static int commit_anyway(struct sl_cluster *c, struct cluster_node *n, struct cluster_grant *g)
{
    struct sl_place_decision d = {.node = n->place, .gpus = g->gpus};
    uint32_t free_cpu = sl_place_cpu_free(c->placer, n->place);
    if (g->request.cpu_milli > free_cpu) /* CPU is the scheduler's business: here it only guides */
        g->request.cpu_milli = free_cpu;
    for (unsigned i = 0; i < n->gpu_count; i++)
        if (g->gpus >> i & 1)
            sl_place_block_gpu(c->placer, n->place, i, false);
    sl_place_open_node(c->placer, n->place, true);
    int rc = sl_place_commit(c->placer, &g->request, &d, NULL);
    sl_place_open_node(c->placer, n->place, n->open);
    for (unsigned i = 0; i < n->gpu_count; i++)
        if (g->gpus >> i & 1)
            sl_cluster_block(c, n, i);
    return rc;
}

static void grants_take(struct sl_cluster *c, struct cluster_pod *pod)
{
    struct cluster_node *n = pod->node;
    for (unsigned i = 0; i < pod->grant_count; i++) {
        struct cluster_grant *g = &pod->grant[i];
        if (g->misfit_gpus == 0 && n->place != CLUSTER_NO_PLACE && commit_anyway(c, n, g) == 0)
            continue;
        g->misfit_gpus |= g->gpus;
        g->gpus = 0;
        grant_misfit(c, n, g, 1);
    }
}

static void grants_give(struct sl_cluster *c, struct cluster_pod *pod)
{
    struct cluster_node *n = pod->node;
    if (c->waiting && pod->grant_count)
        c->room = n->room = true;
    for (unsigned i = 0; i < pod->grant_count; i++) {
        struct cluster_grant *g = &pod->grant[i];
        struct sl_place_decision d = {.node = n->place, .gpus = g->gpus};
        if (g->gpus || g->request.gpu_count == 0)
            (void)!sl_place_release(c->placer, &g->request, &d, NULL);
        else
            grant_misfit(c, n, g, -1);
    }
    free(pod->grant);
    pod->grant = NULL;
    pod->grant_count = 0;
}

void sl_cluster_pod_hold(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n,
                         struct cluster_grant *grant, size_t count)
{
    pod->node = n;
    pod->prev = NULL;
    pod->next = n->pods;
    if (n->pods)
        n->pods->prev = pod;
    n->pods = pod;
    pod->grant = grant;
    pod->grant_count = (uint8_t)count;
    grants_take(c, pod);
}

void sl_cluster_pod_release(struct sl_cluster *c, struct cluster_pod *pod)
{
    struct cluster_node *n = pod->node;
    sl_cluster_reserve(c, pod, POD_PENDING, 0);
    if (!n)
        return;
    grants_give(c, pod);
    if (pod->prev)
        pod->prev->next = pod->next;
    else
        n->pods = pod->next;
    if (pod->next)
        pod->next->prev = pod->prev;
    pod->prev = pod->next = NULL;
    pod->node = NULL;
    sl_cluster_node_forget(c, n);
}

/* --- what a lease says --- */

static int gpu_number(const struct cluster_node *n, const char *uuid)
{
    for (int i = 0; i < n->gpu_count; i++)
        if (strcmp(n->gpu[i].info.uuid, uuid) == 0)
            return i;
    return -1;
}

/* Devices of one container that are alike are one request of the engine's. */
static size_t container_grants(const struct sl_promise *p, const struct sl_promise_container *k,
                               const struct cluster_node *n, struct cluster_grant *out)
{
    size_t count = 0;
    for (unsigned d = k->first; d < k->first + k->count; d++) {
        struct sl_place_request want = sl_cluster_capacity(&p->share[d], 0);
        int gpu = gpu_number(n, p->share[d].gpu);
        size_t g = 0;
        while (g < count && (out[g].request.gpu_memory_mib != want.gpu_memory_mib ||
                             out[g].request.cores_permille != want.cores_permille ||
                             (gpu >= 0 && (out[g].gpus >> gpu & 1))))
            g++;
        if (g == count)
            out[count++] = (struct cluster_grant){.request = want, .part = CLUSTER_BY_LEASE};
        if (gpu < 0)
            continue; /* a card the node does not have (any more): nothing to account */
        out[g].gpus = (uint16_t)(out[g].gpus | 1u << gpu);
        out[g].request.gpu_count++;
    }
    size_t kept = 0;
    for (size_t g = 0; g < count; g++)
        if (out[g].request.gpu_count)
            out[kept++] = out[g];
    return kept;
}

/* The grants of a lease; none where it cannot be read. Also what the quota counts. */
static struct cluster_grant *lease_grants(const struct cluster_pod *pod,
                                          const struct cluster_node *n, size_t *ret_count,
                                          uint64_t *ret_memory, uint64_t *ret_cores)
{
    struct sl_promise p;
    size_t count = 0;
    int rc = pod->lease[0] == '{' ? sl_promise_lease_parse(pod->lease, &p, NULL)
                                  : sl_promise_hami_parse(pod->lease, &p, NULL);
    struct cluster_grant *out = rc ? NULL : sl_xcalloc(p.share_count + 1, sizeof(*out));
    *ret_count = 0;
    *ret_memory = *ret_cores = 0;
    if (!out || (p.node[0] && strcmp(p.node, n->name) != 0)) {
        free(out);
        return NULL;
    }
    for (size_t i = 0; i < p.container_count; i++) {
        if (i < 32 && (pod->skip >> i & 1))
            continue;
        count += container_grants(&p, &p.container[i], n, out + count);
        for (unsigned d = p.container[i].first; d < p.container[i].first + p.container[i].count;
             d++) {
            *ret_memory += p.share[d].memory_bytes >> 20;
            *ret_cores += p.share[d].cores_permille / 10;
        }
    }
    if (count)
        out[0].request.cpu_milli = pod->cpu_milli;
    *ret_count = count;
    return out;
}

void sl_cluster_node_lift(struct sl_cluster *c, struct cluster_node *n)
{
    struct cluster_pod *next;
    bool present = n->present;
    n->present = true; /* so that it is not forgotten under our hands */
    for (struct cluster_pod *p = n->pods; p; p = next) {
        next = p->next;
        if (p->lease && p->state == POD_BOUND)
            grants_give(c, p);
        else
            sl_cluster_pod_release(c,
                                   p); /* a reservation of cards that are not the same any more */
    }
    n->present = present;
}

void sl_cluster_node_settle(struct sl_cluster *c, struct cluster_node *n)
{
    for (struct cluster_pod *p = n->pods; p; p = p->next) {
        size_t count;
        uint64_t memory, cores;
        p->grant = lease_grants(p, n, &count, &memory, &cores);
        p->grant_count = (uint8_t)count;
        grants_take(c, p);
    }
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

static void count_for_quota(struct cluster_pod *pod, uint64_t memory_mib, uint64_t cores)
{
    pod->space->memory_mib += memory_mib - pod->memory_mib;
    pod->space->cores += cores - pod->cores;
    pod->memory_mib = memory_mib;
    pod->cores = cores;
}

void sl_cluster_pod_free(struct sl_cluster *c, struct cluster_pod *pod)
{
    (void)c;
    free(pod->request);
    free(pod->grant);
    free(pod->template_name);
    free(pod->lease);
    free(pod);
}

static void pod_drop(struct sl_cluster *c, struct cluster_pod *pod)
{
    sl_cluster_pod_waits(c, pod, false);
    sl_cluster_pod_release(c, pod);
    count_for_quota(pod, 0, 0);
    if (--pod->space->pods == 0) {
        sl_map_drop(&c->spaces, &pod->space->item);
        free(pod->space);
    }
    sl_map_drop(&c->pods, &pod->item);
    sl_cluster_pod_free(c, pod);
}

void sl_cluster_pod_gone(struct sl_cluster *c, const char *uid)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (pod)
        pod_drop(c, pod);
}

static const char *template_of(const json_t *pod)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(pod, "spec"), "resourceClaims"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, SL_MUTATE_CLAIM) == 0)
            return json_string_value(json_object_get(one, "resourceClaimTemplateName"));
    }
    return NULL;
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

/* Init containers that end before the others start and have the very GPUs of one of these. */
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
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *restart = json_string_value(json_object_get(one, "restartPolicy"));
        for (i = 0; name && !restart && i < p.container_count; i++)
            for (size_t k = 0; strcmp(p.container[i].name, name) == 0 && k < p.container_count; k++)
                if (k != i && !(skip >> k & 1) &&
                    same_devices(&p, &p.container[i], &p.container[k]))
                    skip |= 1u << i;
    }
    return skip;
}

/* True: it is another one than before. */
static bool keep_text(char **at, const char *value)
{
    if (*at == value || (*at && value && strcmp(*at, value) == 0))
        return false;
    free(*at);
    *at = sl_xstrdup(value);
    return true;
}

/* Whole GPUs that DRA gives, and pods that came in past the webhook: no request is in them, and they count. */
static void count_unasked(const struct sl_cluster *c, struct cluster_pod *pod,
                          const struct sl_request *r)
{
    uint64_t memory, cores;
    sl_request_sums(r, sl_cluster_largest_card(c), &memory, &cores);
    count_for_quota(pod, memory, cores);
}

/* What it asks for, as long as nobody has placed it. */
static int keep_request(struct sl_cluster *c, struct cluster_pod *pod, const char *request,
                        bool first, struct sl_err *err)
{
    struct sl_request r;
    uint64_t memory, cores;
    int rc = sl_request_parse(request, &r, err);
    if (rc)
        return rc;
    sl_request_sums(&r, sl_cluster_largest_card(c), &memory, &cores);
    count_for_quota(pod, memory, cores);
    if (first && r.admission[0] && c->opt.admitted)
        c->opt.admitted(c->opt.data, r.admission);
    if (pod->state == POD_BOUND)
        return 0;
    if (!pod->request)
        pod->request = sl_xmalloc(sizeof(r));
    *pod->request = r;
    return 0;
}

static bool same_grant(const struct cluster_grant *a, const struct cluster_grant *b)
{
    return (a->gpus | a->misfit_gpus) == (b->gpus | b->misfit_gpus) &&
           a->request.gpu_memory_mib == b->request.gpu_memory_mib &&
           a->request.gpu_memory_permille == b->request.gpu_memory_permille &&
           a->request.cores_permille == b->request.cores_permille;
}

/* Does the lease say what was reserved, the same amounts on the same GPUs? In any order. */
static bool same_grants(const struct cluster_pod *pod, const struct cluster_grant *g, size_t count)
{
    uint64_t found = 0;
    if (pod->grant_count != count || count > 64)
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < count && ((found >> k & 1) || !same_grant(&pod->grant[k], &g[i])))
            k++;
        if (k == count)
            return false;
        found |= 1ull << k;
    }
    return true;
}

/* Its lease counts, whatever we had reserved. */
static void hold_by_lease(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n,
                          enum cluster_state state, uint64_t until_ns)
{
    size_t count;
    uint64_t memory, cores;
    struct cluster_grant *g = lease_grants(pod, n, &count, &memory, &cores);
    if (g)
        count_for_quota(pod, memory, cores);
    if (pod->node == n && g && same_grants(pod, g, count)) {
        free(g);
    } else {
        bool present = n->present;
        n->present = true; /* not to be forgotten between the two */
        sl_cluster_pod_release(c, pod);
        n->present = present;
        sl_cluster_pod_hold(c, pod, n, g, count);
    }
    sl_cluster_reserve(c, pod, state, until_ns);
}

/* On a node without a lease: somebody else's pod. Its CPU still counts for where GPUs make sense. */
static void hold_cpu(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n)
{
    if (pod->node == n && pod->state == POD_BOUND)
        return;
    bool present = n->present;
    n->present = true;
    sl_cluster_pod_release(c, pod);
    n->present = present;
    struct cluster_grant *g = n->place != CLUSTER_NO_PLACE ? sl_xcalloc(1, sizeof(*g)) : NULL;
    if (g)
        g->request.cpu_milli = pod->cpu_milli;
    sl_cluster_pod_hold(c, pod, n, g, g ? 1 : 0);
    sl_cluster_reserve(c, pod, POD_BOUND, 0);
}

static void place_pod(struct sl_cluster *c, struct cluster_pod *pod, const char *node_name,
                      bool new_lease, uint64_t now_ns)
{
    if (node_name[0]) {
        struct cluster_node *n = sl_cluster_node_get(c, node_name);
        if (!n)
            return;
        sl_cluster_pod_waits(c, pod, false);
        if (pod->lease)
            hold_by_lease(c, pod, n, POD_BOUND, 0);
        else
            hold_cpu(c, pod, n);
        free(pod->request);
        pod->request = NULL;
        return;
    }
    /* A lease without a node: whoever wrote it died before the bind, or is just doing it. */
    struct sl_promise p;
    if (!pod->lease || !new_lease || pod->state != POD_PENDING ||
        sl_promise_lease_parse(pod->lease, &p, NULL) != 0)
        return;
    struct cluster_node *n = sl_cluster_node_find(c, p.node);
    if (n && n->present)
        hold_by_lease(c, pod, n, POD_RESERVED, now_ns + c->opt.reserve_ns);
}

/* Is there anything about it to remember? */
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
    const char *template = template_of(object);
    if (!lease) /* HAMi's, and only the one that policy.yaml keeps users from writing */
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
    if (first && was_refused(c, uid))
        sl_cluster_pod_waits(c, pod, true);
    pod->cpu_milli = sl_cluster_pod_cpu(object);
    (void)keep_text(&pod->template_name, template);
    if (lease)
        pod->skip = shared_containers(object, lease);
    bool new_lease = keep_text(&pod->lease, lease);
    int rc = request ? keep_request(c, pod, request, first, err) : 0;
    if (counts)
        count_unasked(c, pod, &unasked);
    place_pod(c, pod, node, new_lease, now_ns);
    return rc ? sl_err_wrap(err, "pod %s/%s", space, sl_jget_text(meta, "name")) : 0;
}

uint64_t sl_cluster_expire(struct sl_cluster *c, uint64_t now_ns)
{
    uint64_t soonest = UINT64_MAX;
    struct cluster_pod *next;
    for (struct cluster_pod *p = c->reserved; p; p = next) {
        next = p->r_next;
        if (p->until_ns > now_ns) {
            soonest = p->until_ns < soonest ? p->until_ns : soonest;
            continue;
        }
        sl_cluster_pod_release(c, p);
        if (!p->seen)
            pod_drop(c, p); /* never came */
    }
    return soonest;
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
