/* SPDX-License-Identifier: Apache-2.0 */
/* The books as people look at them: cards with the pods on them, and pods that wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "controller/cluster_internal.h"
#include "page/page.h"

#define REASONS 6

/* node-2 before node-10 */
static int by_name(const void *a, const void *b)
{
    const struct cluster_node *const *x = a, *const *y = b;
    return strverscmp((*x)->name, (*y)->name);
}

static const char *why_closed(const struct cluster_node *n, unsigned gpu)
{
    if (!n->present)
        return "the node is gone, and its pods are still there";
    if (!n->open)
        return "the node's list of GPUs cannot be read";
    if (!n->gpu[gpu].info.healthy)
        return "the GPU is unhealthy";
    return n->gpu[gpu].misfits ? "more is promised than the card has" : NULL;
}

struct sl_page_card *sl_cluster_cards(const struct sl_cluster *c, size_t *ret_count,
                                      size_t *ret_nodes)
{
    struct sl_map_walk walk = {.bucket = 0};
    size_t count = 0, cards = 0;
    struct cluster_node *n, **nodes = sl_xcalloc(c->nodes.count + 1, sizeof(struct cluster_node *));
    while ((n = sl_map_next(&c->nodes, &walk)))
        if (n->gpu_count) {
            nodes[count++] = n;
            cards += n->gpu_count;
        }
    qsort(nodes, count, sizeof(struct cluster_node *), by_name);
    struct sl_page_card *list = sl_xcalloc(cards + 1, sizeof(*list)), *at = list;
    for (size_t i = 0; i < count; i++)
        for (unsigned g = 0; g < nodes[i]->gpu_count; g++, at++) {
            uint32_t cores = 0, memory = 0;
            n = nodes[i];
            if (n->place != CLUSTER_NO_PLACE)
                sl_place_gpu_free(c->placer, n->place, g, &cores, &memory);
            *at = (struct sl_page_card){.node = n->name,
                                        .index = g,
                                        .uuid = n->gpu[g].info.uuid,
                                        .model = n->gpu[g].info.model,
                                        .bad = why_closed(n, g),
                                        .owner = n,
                                        .memory_mib = n->gpu[g].info.memory_mib,
                                        .free_mib = memory,
                                        .used_mib = -1,
                                        .free_permille = cores,
                                        .got_permille = -1};
        }
    free(nodes);
    *ret_count = cards;
    *ret_nodes = count;
    return list;
}

static const char *state_word(const struct cluster_pod *p, bool misfit)
{
    if (misfit)
        return "not in the books";
    return p->state == POD_RESERVED ? "reserved" : p->state == POD_BINDING ? "being bound" : NULL;
}

void sl_cluster_card_tenants(const void *owner, unsigned gpu, sl_page_tenant_fn *each, void *to)
{
    const struct cluster_node *n = owner;
    for (const struct cluster_pod *p = n->pods; p; p = p->next)
        for (unsigned i = 0; i < p->grant_count; i++) {
            const struct cluster_grant *g = &p->grant[i];
            const struct sl_place_request *r = &g->request;
            if (!((g->gpus | g->misfit_gpus) >> gpu & 1))
                continue;
            uint64_t percent_mib = (uint64_t)n->gpu[gpu].info.memory_mib * r->gpu_memory_permille;
            const struct sl_page_tenant t = {.name = p->name && p->name[0] ? p->name : p->uid,
                                             .space = p->space->name,
                                             .state = state_word(p, g->misfit_gpus >> gpu & 1),
                                             .memory_mib = r->gpu_memory_mib ? r->gpu_memory_mib
                                                                             : percent_mib / 1000,
                                             .cores_permille = r->cores_permille,
                                             .used_mib = -1,
                                             .got_permille = -1};
            each(to, &t);
        }
}

static bool waits(const struct cluster_pod *p)
{
    return p->seen && !p->node && p->state == POD_PENDING;
}

void sl_cluster_pods(const struct sl_cluster *c, size_t *ret_placed, size_t *ret_waiting)
{
    struct sl_map_walk walk = {.bucket = 0};
    const struct cluster_pod *p;
    *ret_placed = *ret_waiting = 0;
    while ((p = sl_map_next(&c->pods, &walk))) {
        *ret_placed += p->node && p->grant_count && (p->grant[0].gpus || p->grant[0].misfit_gpus);
        *ret_waiting += waits(p);
    }
}

/* "12 nodes: not enough free GPU memory or cores; 3 nodes: its GPUs are too small or too few" */
static void why_nowhere(struct sl_cluster *c, const struct sl_request *r, char *buf, size_t size)
{
    struct {
        const char *text;
        size_t nodes;
    } why[REASONS] = {{NULL, 0}};
    struct sl_map_walk walk = {.bucket = 0};
    const struct cluster_node *n;
    buf[0] = '\0';
    while ((n = sl_map_next(&c->nodes, &walk))) {
        bool never;
        size_t i = 0;
        if (!n->gpu_count)
            continue; /* nobody expects a GPU there */
        const char *text = sl_cluster_reason(c, r, n->name, &never);
        while (i < REASONS - 1 && why[i].text && strcmp(why[i].text, text) != 0)
            i++;
        why[i].text = text;
        why[i].nodes++;
    }
    if (!why[0].text)
        (void)snprintf(buf, size, "no node has GPUs of Sluice's");
    for (size_t i = 0, used = 0; i < REASONS && why[i].text; i++, used = strlen(buf))
        (void)snprintf(buf + used, size - used, "%s%zu node%s: %s", i ? "; " : "", why[i].nodes,
                       why[i].nodes == 1 ? "" : "s", why[i].text);
}

static void tell_waiting(struct sl_cluster *c, const struct cluster_pod *p, sl_page_waiter_fn *each,
                         void *to)
{
    char why[512] = "";
    struct sl_page_waiter w = {.name = p->name && p->name[0] ? p->name : p->uid,
                               .space = p->space->name,
                               .said = p->said,
                               .since = p->since,
                               .claim = p->template_name};
    const struct sl_request *r = p->request;
    for (size_t i = 0; r && i < r->part_count; i++) {
        const struct sl_share *s = &r->part[i].share;
        if (r->part[i].same_as >= 0)
            continue;
        w.gpus += r->part[i].count;
        if (s->memory_bytes >> 20 >= w.memory_mib) { /* of the largest part */
            w.memory_mib = s->memory_bytes >> 20;
            w.memory_percent = s->memory_percent;
            w.cores_permille = s->cores_permille;
            w.limit_permille = s->limit_permille;
        }
    }
    if (p->refused && r)
        why_nowhere(c, r, why, sizeof(why));
    w.why = why[0] ? why : NULL;
    each(to, &w);
}

/* The longest waiting first. */
static int by_since(const void *a, const void *b)
{
    const struct cluster_pod *const *x = a, *const *y = b;
    int order = strcmp((*x)->since ? (*x)->since : "", (*y)->since ? (*y)->since : "");
    return order ? order : strcmp((*x)->uid, (*y)->uid);
}

void sl_cluster_each_waiting(struct sl_cluster *c, size_t from, size_t count,
                             sl_page_waiter_fn *each, void *to)
{
    struct sl_map_walk walk = {.bucket = 0};
    const struct cluster_pod *p;
    size_t n = 0;
    const struct cluster_pod **list SL_CLEANUP(free) =
        sl_xmalloc((c->pods.count + 1) * sizeof(struct cluster_pod *));
    while ((p = sl_map_next(&c->pods, &walk)))
        if (waits(p))
            list[n++] = p;
    qsort(list, n, sizeof(struct cluster_pod *), by_since);
    for (size_t i = from; i < n && i - from < count; i++)
        tell_waiting(c, list[i], each, to);
}
