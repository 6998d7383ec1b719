/* SPDX-License-Identifier: Apache-2.0 */
/* The grants of pods: states and reservations, the engine's books, and the amounts in leases. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/xalloc.h"
#include "controller/cluster_internal.h"
#include "controller/errors.h"

/* --- holding --- */

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

/* Blocks do not count: the GPUs are blocked for new pods, but this pod is already there. */
static int commit_anyway(struct sl_cluster *c, struct cluster_node *n, struct cluster_grant *g)
{
    struct sl_place_decision d = {.node = n->place, .gpus = g->gpus};
    uint32_t free_cpu = sl_place_cpu_free(c->placer, n->place);
    if (g->request.cpu_milli > free_cpu) /* the scheduler decides about CPU: here it only guides */
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

void sl_cluster_pod_hold(struct cluster_pod *pod, struct cluster_node *n,
                         struct cluster_grant *grant, size_t count)
{
    pod->node = n;
    pod->next = n->pods;
    n->pods = pod;
    pod->grant = grant;
    pod->grant_count = (uint8_t)count;
}

void sl_cluster_pod_release(struct sl_cluster *c, struct cluster_pod *pod)
{
    struct cluster_node *n = pod->node;
    sl_cluster_reserve(c, pod, POD_PENDING, 0);
    if (!n)
        return;
    grants_give(c, pod);
    sl_list_drop(&n->pods, pod);
    pod->node = NULL;
    sl_cluster_node_forget(c, n);
}

/* --- the amounts of a lease --- */

static int gpu_number(const struct cluster_node *n, const char *uuid)
{
    for (int i = 0; i < n->gpu_count; i++)
        if (strcmp(n->gpu[i].info.uuid, uuid) == 0)
            return i;
    return -1;
}

/* Equal devices of one container become one request to the engine. */
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
            continue; /* the node does not have this card (any more): nothing to account */
        out[g].gpus = (uint16_t)(out[g].gpus | 1u << gpu);
        out[g].request.gpu_count++;
    }
    size_t kept = 0;
    for (size_t g = 0; g < count; g++)
        if (out[g].request.gpu_count)
            out[kept++] = out[g];
    return kept;
}

/* The grants of a lease; none where it cannot be read. Also sets the amounts that the quota counts. */
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

/* Gives back the pod's grants. The node is about to get new ones, so it is not forgotten meanwhile. */
static void release_for(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n)
{
    bool present = n->present;
    n->present = true;
    sl_cluster_pod_release(c, pod);
    n->present = present;
}

void sl_cluster_node_lift(struct sl_cluster *c, struct cluster_node *n)
{
    struct cluster_pod *next;
    for (struct cluster_pod *p = n->pods; p; p = next) {
        next = p->next;
        if (p->lease && p->state == POD_BOUND)
            grants_give(c, p);
        else
            release_for(c, p, n); /* a reservation of cards that have changed */
    }
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

/* --- the meaning of a lease on a node --- */

static bool same_grant(const struct cluster_grant *a, const struct cluster_grant *b)
{
    return (a->gpus | a->misfit_gpus) == (b->gpus | b->misfit_gpus) &&
           a->request.gpu_memory_mib == b->request.gpu_memory_mib &&
           a->request.gpu_memory_permille == b->request.gpu_memory_permille &&
           a->request.cores_permille == b->request.cores_permille;
}

/* Does the lease have the reserved amounts on the same GPUs? In any order. */
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

void sl_cluster_hold_lease(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n,
                           enum cluster_state state, uint64_t until_ns)
{
    size_t count;
    uint64_t memory, cores;
    struct cluster_grant *g = lease_grants(pod, n, &count, &memory, &cores);
    if (g)
        sl_cluster_count(pod, memory, cores);
    if (pod->node == n && g && same_grants(pod, g, count)) {
        free(g);
    } else {
        release_for(c, pod, n);
        sl_cluster_pod_hold(pod, n, g, count);
        grants_take(c, pod);
    }
    sl_cluster_reserve(c, pod, state, until_ns);
}

void sl_cluster_hold_cpu(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n)
{
    if (pod->node == n && pod->state == POD_BOUND)
        return;
    release_for(c, pod, n);
    struct cluster_grant *g = n->place != CLUSTER_NO_PLACE ? sl_xcalloc(1, sizeof(*g)) : NULL;
    if (g)
        g->request.cpu_milli = pod->cpu_milli;
    sl_cluster_pod_hold(pod, n, g, g ? 1 : 0);
    grants_take(c, pod);
    sl_cluster_reserve(c, pod, POD_BOUND, 0);
}

/* --- resizes --- */

/* Holds the lease's amounts instead of the present ones. Returns false when they are not in the books. */
static bool hold_instead(struct sl_cluster *c, struct cluster_pod *pod, const char *lease)
{
    size_t count;
    uint64_t memory, cores;
    bool fits = true;
    char *copy = sl_xstrdup(lease);
    grants_give(c, pod);
    free(pod->lease);
    pod->lease = copy;
    pod->grant = lease_grants(pod, pod->node, &count, &memory, &cores);
    pod->grant_count = (uint8_t)count;
    sl_cluster_count(pod, memory, cores);
    grants_take(c, pod);
    for (size_t i = 0; i < count; i++)
        fits = fits && !pod->grant[i].misfit_gpus;
    return fits && count;
}

int sl_cluster_resize(struct sl_cluster *c, const char *uid, const char *lease, struct sl_err *err)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (!pod || pod->state != POD_BOUND || !pod->lease || pod->lease[0] != '{')
        return sl_err_set(err, -ENOENT, SL_E_POD_UNKNOWN);
    char *before SL_CLEANUP(free) = sl_xstrdup(pod->lease);
    if (!hold_instead(c, pod, lease)) {
        (void)hold_instead(c, pod, before);
        return sl_err_set(err, -ENOSPC, SL_E_RESIZE_NO_ROOM, pod->node->name);
    }
    free(pod->resizing);
    pod->resizing = sl_xstrdup(lease);
    return 0;
}

void sl_cluster_resize_undo(struct sl_cluster *c, const char *uid, const char *lease)
{
    struct cluster_pod *pod = sl_cluster_pod_find(c, uid);
    if (!pod || pod->state != POD_BOUND || !pod->resizing)
        return;
    free(pod->resizing);
    pod->resizing = NULL;
    (void)hold_instead(c, pod, lease);
}
