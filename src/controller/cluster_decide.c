/* SPDX-License-Identifier: Apache-2.0 */
/* Where a pod goes: the engine's choice, corrected by rules that the engine does not know. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "share/affinity.h"
#include "controller/cluster_internal.h"
#include "controller/errors.h"

/* --- a request in the engine's form --- */

struct sl_place_request sl_cluster_capacity(const struct sl_share *share, unsigned count)
{
    return (struct sl_place_request){.gpu_count = (uint8_t)count,
                                     .gpu_memory_mib = (uint32_t)(share->memory_bytes >> 20),
                                     .gpu_memory_permille = (uint16_t)(share->memory_percent * 10),
                                     .cores_permille = (uint16_t)share->cores_permille};
}

static struct sl_place_request engine_request(const struct sl_request *r, size_t part)
{
    struct sl_place_request e = sl_cluster_capacity(&r->part[part].share, r->part[part].count);
    if (r->numa)
        e.prefer = SL_PLACE_PREFER_NUMA;
    return e;
}

/* One bit for each model that the pod may have; 0: any model. */
static uint64_t models_of(const struct sl_cluster *c, const struct sl_request *r)
{
    uint64_t models = 0;
    if (!r->use_type[0] && !r->no_type[0])
        return 0;
    for (unsigned i = 0; i < c->model_count; i++)
        if (sl_request_allows_type(r, c->models[i]))
            models |= 1ULL << i;
    return models;
}

/* The GPUs of a node that the pod may have. */
static uint16_t cards_of(const struct cluster_node *n, const struct sl_request *r)
{
    uint16_t cards = 0;
    for (unsigned i = 0; i < n->gpu_count; i++)
        if (sl_request_allows(r, n->gpu[i].info.model, n->gpu[i].info.uuid))
            cards = (uint16_t)(cards | 1u << i);
    return cards;
}

static size_t own_parts(const struct sl_request *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->part_count; i++)
        n += r->part[i].same_as < 0;
    return n;
}

/* --- recent requests, for the engine to learn from --- */

static void remember(struct sl_cluster *c, const struct sl_place_request *e)
{
    size_t least = 0;
    c->asked_since_learned++;
    for (size_t i = 0; i < c->kind_count; i++) {
        if (memcmp(&c->kinds[i].request, e, sizeof(*e)) == 0) {
            c->kinds[i].weight++;
            return;
        }
        if (c->kinds[i].weight < c->kinds[least].weight)
            least = i;
    }
    if (c->kind_count < CLUSTER_KINDS)
        least = c->kind_count++;
    c->kinds[least].request = *e;
    c->kinds[least].weight = 1;
}

/* --- candidates --- */

static void candidates(struct sl_cluster *c, const struct sl_cluster_ask *ask)
{
    sl_cluster_scratch(c);
    if (!ask->nodes) {
        memset(c->allow, 0xff, c->scratch_room / 8);
        return;
    }
    memset(c->allow, 0, c->scratch_room / 8);
    for (size_t i = 0; i < ask->node_count; i++) {
        const struct cluster_node *n = sl_cluster_node_find(c, ask->nodes[i]);
        if (n && n->place != CLUSTER_NO_PLACE)
            c->allow[n->place / 64] |= 1ULL << (n->place % 64);
    }
}

/* Picks GPUs by the pod's policy: the fullest GPUs that fit, or the emptiest. */
static int pick_by_policy(const struct sl_cluster *c, const struct cluster_node *n,
                          const struct sl_request *r, const struct sl_place_request *e,
                          uint16_t cards, struct sl_place_decision *ret, struct sl_err *err)
{
    struct sl_place_request one = *e;
    struct sl_place_decision d = {.node = n->place};
    unsigned left = e->gpu_count;
    one.gpu_count = 1;
    while (left) {
        struct sl_place_decision fits;
        int best = -1;
        uint64_t best_free = 0;
        for (int i = 0; i < n->gpu_count; i++) {
            uint32_t cores, memory;
            uint16_t bit = (uint16_t)(1u << i);
            if (!(cards & bit) || (d.gpus & bit) ||
                sl_place_pick(c->placer, &one, n->place, bit, &fits, NULL) != 0)
                continue;
            sl_place_gpu_free(c->placer, n->place, (unsigned)i, &cores, &memory);
            if (best < 0 ||
                (r->gpu_policy == SL_REQUEST_SPREAD ? memory > best_free : memory < best_free)) {
                best = i;
                best_free = memory;
            }
        }
        if (best < 0)
            return sl_err_set(err, -ENOSPC, SL_E_NODE_FULL, e->gpu_count);
        d.gpus = (uint16_t)(d.gpus | 1u << best);
        left--;
    }
    *ret = d;
    return 0;
}

static void give_back(struct sl_cluster *c, const struct cluster_node *n,
                      const struct cluster_grant *grant, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct sl_place_decision d = {.node = n->place, .gpus = grant[i].gpus};
        (void)!sl_place_release(c->placer, &grant[i].request, &d, NULL);
    }
}

/* Takes all parts on one node, or nothing. On success the grants are in the books. */
static int take_on(struct sl_cluster *c, struct cluster_node *n, const struct sl_cluster_ask *ask,
                   struct cluster_grant *grant, size_t *ret_count, struct sl_err *err)
{
    const struct sl_request *r = ask->request;
    uint16_t cards = cards_of(n, r);
    size_t count = 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < r->part_count; i++) {
        struct sl_place_decision d = {.gpus = 0};
        if (r->part[i].same_as >= 0)
            continue;
        struct cluster_grant g = {.request = engine_request(r, i), .part = (uint8_t)i};
        if (count == 0) {
            uint32_t cpu = sl_place_cpu_free(c->placer, n->place);
            g.request.cpu_milli = ask->cpu_milli < cpu ? ask->cpu_milli : cpu;
        }
        rc = r->gpu_policy ? pick_by_policy(c, n, r, &g.request, cards, &d, err)
                           : sl_place_pick(c->placer, &g.request, n->place, cards, &d, err);
        if (!rc)
            rc = sl_place_commit(c->placer, &g.request, &d, err);
        g.gpus = d.gpus;
        if (!rc)
            grant[count++] = g;
    }
    if (rc)
        give_back(c, n, grant, count);
    *ret_count = count;
    return rc;
}

struct ranked {
    int32_t score;
    uint32_t place;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Free GPU memory of a node, in permille of its GPU memory. */
static int32_t node_free(const struct sl_cluster *c, const struct cluster_node *n)
{
    uint64_t have = 0, all = 0;
    for (unsigned i = 0; i < n->gpu_count; i++) {
        uint32_t cores, memory;
        sl_place_gpu_free(c->placer, n->place, i, &cores, &memory);
        have += memory;
        all += n->gpu[i].info.memory_mib;
    }
    return all ? (int32_t)(have * 1000 / all) : 0;
}

/* The order in which nodes are tried: by the score of the largest part, or by the pod's policy. */
static int rank(struct sl_cluster *c, const struct sl_cluster_ask *ask, struct ranked **ret,
                size_t *ret_count, struct sl_err *err)
{
    const struct sl_request *r = ask->request;
    struct sl_place_totals totals;
    size_t largest = 0, n = 0;
    sl_place_totals(c->placer, &totals);
    for (size_t i = 1; i < r->part_count; i++)
        if (r->part[i].same_as < 0 &&
            r->part[i].share.memory_bytes * r->part[i].count >
                r->part[largest].share.memory_bytes * r->part[largest].count)
            largest = i;
    struct sl_place_request e = engine_request(r, largest);
    int rc = sl_place_scores(c->placer, &e, c->scores, err);
    if (rc)
        return rc;
    struct ranked *list = sl_xmalloc((totals.nodes + 1) * sizeof(*list));
    for (uint32_t i = 0; i < totals.nodes; i++)
        if ((c->allow[i / 64] >> (i % 64) & 1) && c->scores[i] != INT32_MIN && c->by_place[i])
            list[n++] = (struct ranked){
                r->node_policy == SL_REQUEST_SPREAD    ? node_free(c, c->by_place[i])
                : r->node_policy == SL_REQUEST_BINPACK ? -node_free(c, c->by_place[i])
                                                       : c->scores[i],
                i};
    qsort(list, n, sizeof(*list), by_score);
    *ret = list;
    *ret_count = n;
    return 0;
}

/* For several containers, or particular cards: tries nodes from the best on. */
static int take_tried(struct sl_cluster *c, const struct sl_cluster_ask *ask,
                      struct cluster_node **ret, struct cluster_grant *grant, size_t *ret_count,
                      struct sl_err *err)
{
    struct ranked *list SL_CLEANUP(free) = NULL;
    size_t n = 0;
    int rc = rank(c, ask, &list, &n, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct cluster_node *node = c->by_place[list[i].place];
        if (cards_of(node, ask->request) == 0)
            continue;
        rc = take_on(c, node, ask, grant, ret_count, NULL);
        if (rc == 0) {
            *ret = node;
            return 0;
        }
    }
    return sl_err_set(err, -ENOSPC, SL_E_NO_NODE);
}

/* Can the engine alone decide about this request? */
static bool simple(const struct sl_cluster *c, const struct sl_request *r)
{
    bool types = r->use_type[0] || r->no_type[0];
    return r->part_count == 1 && !r->use_uuid[0] && !r->no_uuid[0] && !r->node_policy &&
           !r->gpu_policy && (!types || c->model_count < SL_PLACE_MAX_MODELS) &&
           (!r->use_type[0] || models_of(c, r) != 0);
}

/* A pod that is asked for again is decided again. */
static int begin(struct sl_cluster *c, const struct sl_cluster_ask *ask, struct sl_err *err)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, ask->uid);
    if (!ask->uid[0] || own_parts(ask->request) == 0)
        return sl_err_set(err, -EINVAL, SL_E_EXT_POD);
    if (pod && pod->state == POD_BOUND)
        return sl_err_set(err, -EEXIST, SL_E_POD_PLACED, pod->node->name);
    if (pod && pod->state == POD_BINDING)
        return sl_err_set(err, -EBUSY, SL_E_POD_BINDING, pod->node->name);
    if (pod)
        sl_cluster_pod_release(c, pod);
    return 0;
}

/* Chooses among the allowed nodes, and enters the grants into the books. */
static int take_best(struct sl_cluster *c, const struct sl_cluster_ask *ask,
                     struct cluster_node **ret, struct cluster_grant *grant, size_t *ret_count,
                     struct sl_err *err)
{
    const struct sl_request *r = ask->request;
    struct sl_place_request *e = &grant[0].request;
    struct sl_place_decision d = {.node = 0};
    if (!simple(c, r))
        return take_tried(c, ask, ret, grant, ret_count, err);
    *ret_count = 1;
    *e = engine_request(r, 0);
    e->cpu_milli = ask->cpu_milli;
    e->models = models_of(c, r);
    int rc = sl_place_decide(c->placer, e, c->allow, &d, err);
    if (rc == -ENOSPC && ask->cpu_milli) { /* the scheduler counts CPU better than we do */
        e->cpu_milli = 0;
        rc = sl_place_decide(c->placer, e, c->allow, &d, err);
    }
    if (rc)
        return rc;
    *ret = c->by_place[d.node];
    grant[0].gpus = d.gpus;
    /* The engine knows one model a node: that of the first card. */
    if ((*ret)->mixed && (d.gpus & ~cards_of(*ret, r)))
        return take_tried(c, ask, ret, grant, ret_count, err);
    return sl_place_commit(c->placer, e, &d, err);
}

/* --- the nodes that the pod prefers --- */

struct wish {
    int32_t weight;
    uint32_t place;
};

static int by_weight(const void *a, const void *b)
{
    const struct wish *x = a, *y = b;
    return x->weight > y->weight ? -1 : x->weight < y->weight;
}

/* The allowed nodes, those that the pod prefers most first. */
static struct wish *wishes(const struct sl_cluster *c, const struct sl_cluster_ask *ask,
                           size_t *ret_count)
{
    struct sl_place_totals totals;
    size_t n = 0;
    sl_place_totals(c->placer, &totals);
    struct wish *list = sl_xmalloc((totals.nodes + 1) * sizeof(*list));
    for (uint32_t i = 0; i < totals.nodes; i++) {
        const struct cluster_node *node = c->by_place[i];
        if (node && (c->allow[i / 64] >> (i % 64) & 1))
            list[n++] =
                (struct wish){sl_affinity_weight(ask->preferred, node->name, node->labels), i};
    }
    qsort(list, n, sizeof(*list), by_weight);
    *ret_count = n;
    return list;
}

/* Tries the nodes of the highest weight, then those of the next: a preference counts before packing, and refuses
 * nothing. */
static int take_preferred(struct sl_cluster *c, const struct sl_cluster_ask *ask,
                          struct cluster_node **ret, struct cluster_grant *grant, size_t *ret_count,
                          struct sl_err *err)
{
    size_t count, end;
    int rc = -ENOSPC;
    struct wish *list SL_CLEANUP(free) = wishes(c, ask, &count);
    for (size_t at = 0; rc == -ENOSPC && at < count; at = end) {
        memset(c->allow, 0, c->scratch_room / 8);
        for (end = at; end < count && list[end].weight == list[at].weight; end++)
            c->allow[list[end].place / 64] |= 1ULL << (list[end].place % 64);
        rc = take_best(c, ask, ret, grant, ret_count, err);
    }
    return count ? rc : sl_err_set(err, rc, SL_E_NO_NODE);
}

int sl_cluster_choose(struct sl_cluster *c, const struct sl_cluster_ask *ask, uint64_t now_ns,
                      const char **ret_node, struct sl_err *err)
{
    const struct sl_request *r = ask->request;
    struct cluster_grant *grant SL_CLEANUP(free) = sl_xcalloc(r->part_count, sizeof(*grant));
    struct cluster_node *n = NULL;
    size_t count = 0;
    int rc = begin(c, ask, err);
    if (!rc && strlen(ask->name_space) >= CLUSTER_SPACE_NAME)
        rc = sl_err_set(err, -ENAMETOOLONG, SL_E_NAMESPACE_LONG, ask->name_space);
    if (rc)
        return rc;
    candidates(c, ask);
    if (simple(c, r)) {
        struct sl_place_request e = engine_request(r, 0);
        e.cpu_milli = ask->cpu_milli;
        e.models = models_of(c, r);
        remember(c, &e);
    }
    rc = ask->preferred ? take_preferred(c, ask, &n, grant, &count, err)
                        : take_best(c, ask, &n, grant, &count, err);
    c->stats.decisions += rc == 0;
    c->stats.refusals += rc == -ENOSPC;
    sl_cluster_refused(c, ask->uid, rc == -ENOSPC);
    if (rc)
        return rc;
    struct cluster_pod *pod = sl_cluster_pod_get(c, ask->uid, ask->name_space);
    if (!pod->request)
        pod->request = sl_xmalloc(sizeof(*r));
    *pod->request = *r;
    sl_cluster_pod_hold(pod, n, sl_take_ptr(grant), count);
    sl_cluster_reserve(c, pod, POD_RESERVED, now_ns + CLUSTER_RESERVE_NS);
    *ret_node = n->name;
    return 0;
}

int sl_cluster_would(struct sl_cluster *c, const struct sl_request *r, const char **ret_node,
                     uint16_t *ret_gpus, struct sl_err *err)
{
    const struct sl_cluster_ask ask = {.request = r};
    struct cluster_grant *grant SL_CLEANUP(free) = sl_xcalloc(r->part_count + 1, sizeof(*grant));
    struct cluster_node *n = NULL;
    size_t count = 0;
    if (own_parts(r) == 0)
        return sl_err_set(err, -EINVAL, SL_E_EXT_POD);
    candidates(c, &ask);
    int rc = take_best(c, &ask, &n, grant, &count, err);
    if (rc)
        return rc;
    *ret_node = n->name;
    *ret_gpus = 0;
    for (size_t i = 0; i < count; i++)
        *ret_gpus |= grant[i].gpus;
    give_back(c, n, grant, count);
    return 0;
}

int sl_cluster_scores(struct sl_cluster *c, const struct sl_cluster_ask *ask, int32_t *ret,
                      struct sl_err *err)
{
    struct sl_place_totals totals;
    int rc = begin(c, ask, err);
    sl_cluster_scratch(c);
    struct sl_place_request e = engine_request(ask->request, 0);
    e.models = models_of(c, ask->request);
    if (!rc)
        rc = sl_place_scores(c->placer, &e, c->scores, err);
    if (rc)
        return rc;
    bool any = false;
    bool hard = !simple(c, ask->request);
    sl_place_totals(c->placer, &totals);
    for (size_t i = 0; i < ask->node_count; i++) {
        struct cluster_node *n = sl_cluster_node_find(c, ask->nodes[i]);
        bool there = n && n->place != CLUSTER_NO_PLACE && n->place < totals.nodes;
        ret[i] = there ? c->scores[n->place] : INT32_MIN;
        any |= ret[i] != INT32_MIN && !hard && !n->mixed;
        if (ret[i] == INT32_MIN || (!hard && !n->mixed))
            continue;
        struct cluster_grant grant[SL_REQUEST_PARTS];
        size_t count;
        if (take_on(c, n, ask, grant, &count, NULL) != 0) {
            ret[i] = INT32_MIN;
            continue;
        }
        any = true;
        give_back(c, n, grant, count);
    }
    sl_cluster_refused(c, ask->uid, !any);
    return 0;
}

const char *sl_cluster_reason(struct sl_cluster *c, const struct sl_request *r, const char *node,
                              bool *ret_never)
{
    const struct cluster_node *n = sl_cluster_node_find(c, node);
    *ret_never = true;
    if (!n || !n->present || n->gpu_count == 0)
        return "no GPUs of Sluice's on this node";
    if (!n->open)
        return "the node's list of GPUs cannot be read";
    uint16_t cards = cards_of(n, r);
    if (!cards)
        return "no GPU of the wanted type or UUID";
    for (size_t i = 0; i < r->part_count; i++) {
        unsigned big = 0;
        for (unsigned g = 0; g < n->gpu_count; g++)
            big += (cards >> g & 1) &&
                   n->gpu[g].info.memory_mib >= r->part[i].share.memory_bytes >> 20;
        if (big < r->part[i].count)
            return "its GPUs are too small or too few";
    }
    *ret_never = false;
    return "not enough free GPU memory or cores";
}

/* --- binding --- */

/* The GPUs of a part of the request; a part may use another part's GPUs. */
static uint16_t gpus_of(const struct cluster_pod *pod, size_t part)
{
    int8_t same = pod->request->part[part].same_as;
    for (unsigned g = 0; g < pod->grant_count; g++)
        if (pod->grant[g].part == (same >= 0 ? (size_t)same : part))
            return pod->grant[g].gpus;
    return 0;
}

/* May a promise be so large? */
static int check_size(const struct cluster_pod *pod, struct sl_err *err)
{
    int gpus = 0;
    for (size_t i = 0; i < pod->request->part_count; i++)
        gpus += __builtin_popcount(gpus_of(pod, i));
    if (pod->request->containers > SL_PROMISE_CONTAINERS)
        return sl_err_set(err, -EINVAL, SL_E_POD_CONTAINERS, SL_PROMISE_CONTAINERS);
    return gpus > SL_PROMISE_SHARES ? sl_err_set(err, -EINVAL, SL_E_POD_GPUS, SL_PROMISE_SHARES)
                                    : 0;
}

/* Nothing is reserved on the node: the controller restarted, or the scheduler chose another node. */
static int reserve_on(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n,
                      struct sl_err *err)
{
    size_t count = 0;
    if (!pod->request)
        return sl_err_set(err, -ENOENT, SL_E_POD_NO_REQUEST, SL_PROMISE_REQUEST_KEY);
    struct cluster_grant *grant SL_CLEANUP(free) =
        sl_xcalloc(pod->request->part_count, sizeof(*grant));
    struct sl_cluster_ask ask = {.request = pod->request, .cpu_milli = pod->cpu_milli};
    sl_cluster_pod_release(c, pod);
    int rc = n->open && n->place != CLUSTER_NO_PLACE ? take_on(c, n, &ask, grant, &count, err)
                                                     : sl_err_set(err, -ENOSPC, SL_E_NODE_NO_GPUS);
    if (rc)
        return sl_err_wrap(err, "the node has no room");
    sl_cluster_pod_hold(pod, n, sl_take_ptr(grant), count);
    return 0;
}

int sl_cluster_bind_begin(struct sl_cluster *c, const char *uid, const char *node, uint64_t now_ns,
                          struct sl_promise *ret, struct sl_err *err)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    struct cluster_node *n = sl_cluster_node_find(c, node);
    if (!pod)
        return sl_err_set(err, -ENOENT, SL_E_POD_UNKNOWN);
    if (!n || !n->present)
        return sl_err_set(err, -ENOENT, SL_E_NODE_UNKNOWN, node);
    if (pod->state == POD_BOUND || pod->state == POD_BINDING)
        return sl_err_set(err, -EBUSY, SL_E_POD_ELSEWHERE,
                          pod->state == POD_BOUND ? "on" : "being bound to", pod->node->name);
    int rc = pod->state == POD_RESERVED && pod->node == n && pod->request &&
                     own_parts(pod->request) == pod->grant_count &&
                     pod->grant[0].part != CLUSTER_BY_LEASE
                 ? 0
                 : reserve_on(c, pod, n, err);
    if (!rc)
        rc = check_size(pod, err);
    if (rc) {
        sl_cluster_pod_release(c, pod);
        return rc;
    }
    memset(ret, 0, sizeof(*ret));
    (void)snprintf(ret->node, sizeof(ret->node), "%s", n->name);
    ret->container_count = pod->request->containers;
    /* Grants are sorted by part, the promise is sorted by container as in the pod. */
    for (size_t i = 0; i < pod->request->part_count; i++) {
        const struct sl_request_part *p = &pod->request->part[i];
        struct sl_promise_container *k = &ret->container[p->index];
        uint16_t gpus = gpus_of(pod, i);
        (void)snprintf(k->name, sizeof(k->name), "%s", p->container);
        k->first = (uint8_t)ret->share_count;
        for (unsigned x = 0; x < n->gpu_count; x++) {
            if (!(gpus >> x & 1))
                continue;
            struct sl_share *share = &ret->share[ret->share_count++];
            *share = p->share;
            memcpy(share->gpu, n->gpu[x].info.uuid, sizeof(share->gpu));
            share->memory_bytes = sl_share_memory(share, (uint64_t)n->gpu[x].info.memory_mib << 20);
            share->memory_percent = 0;
        }
        k->count = (uint8_t)(ret->share_count - k->first);
    }
    sl_cluster_reserve(c, pod, POD_BINDING, now_ns + CLUSTER_RESERVE_NS);
    return 0;
}

void sl_cluster_bind_end(struct sl_cluster *c, const char *uid, enum sl_cluster_outcome outcome,
                         const char *lease, uint64_t now_ns)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (!pod || pod->state != POD_BINDING)
        return; /* the watch was faster */
    if (outcome == SL_CLUSTER_FAILED) {
        sl_cluster_pod_release(c, pod);
        return;
    }
    if (outcome == SL_CLUSTER_UNKNOWN) {
        sl_cluster_reserve(c, pod, POD_BINDING, now_ns + CLUSTER_RESERVE_NS);
        return;
    }
    if (!pod->lease || strcmp(pod->lease, lease) != 0) {
        free(pod->lease);
        pod->lease = sl_xstrdup(lease);
    }
    sl_cluster_reserve(c, pod, POD_BOUND, 0);
}
