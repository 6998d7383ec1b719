/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/holdings.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/xalloc.h"

/* Its own name, and the one it has in the place of NVIDIA's. */
static bool is_driver(const char *name)
{
    return strcmp(name, "gpu.sluice.io") == 0 || strcmp(name, "gpu.nvidia.com") == 0;
}

/* A quantity of bytes in MiB. */
static uint64_t mib_of(const json_t *value)
{
    uint64_t bytes = 0;
    return value && sl_jget_quantity(value, 0, &bytes) == 0 ? bytes >> 20 : 0;
}

/* Cards that a node offers by DRA: those devices that many claims may share, one a card. */
static void add_slices(const json_t *slices, struct sl_holding_node *node)
{
    size_t i, k;
    const json_t *slice, *device;
    uint64_t cards = 0, memory = 0, most = 0;
    json_array_foreach(slices, i, slice)
    {
        if (!is_driver(sl_facts_text(slice, "spec.driver")) ||
            strcmp(sl_facts_text(slice, "spec.nodeName"), node->name) != 0)
            continue;
        json_array_foreach(sl_facts_at(slice, "spec.devices"), k, device)
        {
            if (!json_is_true(sl_facts_at(device, "allowMultipleAllocations")))
                continue;
            uint64_t mib = mib_of(sl_facts_at(device, "capacity.memory.value"));
            cards++;
            memory += mib;
            most = mib > most ? mib : most;
        }
    }
    if (cards == 0)
        return;
    node->has.cards = cards;
    node->has.memory_mib = memory;
    node->has.card_memory_mib = most;
}

/* What the claims of a pod got; a claim that several pods use counts for each. */
static void add_claims(const json_t *claims, struct sl_holding_pod *pod)
{
    size_t i, k, c;
    const json_t *claim, *user, *got;
    const char *uid = sl_facts_text(pod->pod, "metadata.uid");
    json_array_foreach(claims, i, claim)
    {
        bool ours = false;
        json_array_foreach(sl_facts_at(claim, "status.reservedFor"), k, user) ours |=
            *uid && strcmp(sl_facts_text(user, "uid"), uid) == 0;
        if (!ours)
            continue;
        json_array_foreach(sl_facts_at(claim, "status.allocation.devices.results"), c, got)
        {
            uint64_t cores = 0;
            const json_t *consumed = sl_facts_at(got, "consumedCapacity");
            if (!is_driver(sl_facts_text(got, "driver")))
                continue;
            pod->holds.devices++;
            pod->holds.memory_mib += mib_of(json_object_get(consumed, "memory"));
            if (json_object_get(consumed, "cores") &&
                sl_jget_quantity(json_object_get(consumed, "cores"), 0, &cores) == 0)
                pod->holds.cores += cores;
        }
    }
}

static int by_name(const void *a, const void *b)
{
    const struct sl_holding_node *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_node(const void *a, const void *b)
{
    const struct sl_holding_pod *x = a, *y = b;
    int order = strcmp(x->node, y->node);
    if (order == 0 && x->holds.memory_mib != y->holds.memory_mib)
        order = x->holds.memory_mib > y->holds.memory_mib ? -1 : 1;
    if (order == 0)
        order = strcmp(x->name_space, y->name_space);
    return order ? order : strcmp(x->name, y->name);
}

static void make_pods(const json_t *pods, const json_t *claims, struct sl_holdings *ret)
{
    size_t i;
    const json_t *pod;
    ret->pod = sl_xcalloc(json_array_size(pods) + 1, sizeof(*ret->pod));
    json_array_foreach(pods, i, pod)
    {
        struct sl_holding_pod *p = &ret->pod[ret->pod_count];
        *p = (struct sl_holding_pod){.pod = pod,
                                     .name = sl_facts_text(pod, "metadata.name"),
                                     .name_space = sl_facts_text(pod, "metadata.namespace"),
                                     .node = sl_facts_text(pod, "spec.nodeName"),
                                     .asks = sl_facts_asks(pod),
                                     .holds = sl_facts_holds(pod)};
        if (!sl_facts_ended(pod) && p->asks.claims)
            add_claims(claims, p);
        if (!sl_facts_ended(pod) &&
            (p->asks.gpus || p->holds.devices || (p->asks.claims && !*p->node)))
            ret->pod_count++;
    }
    qsort(ret->pod, ret->pod_count, sizeof(*ret->pod), by_node);
}

void sl_holdings_make(const json_t *nodes, const json_t *pods, const json_t *claims,
                      const json_t *slices, struct sl_holdings *ret)
{
    size_t i;
    const json_t *node;
    *ret = (struct sl_holdings){0};
    make_pods(pods, claims, ret);
    ret->node = sl_xcalloc(json_array_size(nodes) + 1, sizeof(*ret->node));
    json_array_foreach(nodes, i, node)
    {
        struct sl_holding_node *n = &ret->node[ret->node_count];
        *n = (struct sl_holding_node){.name = sl_facts_text(node, "metadata.name"),
                                      .has = sl_facts_node(node)};
        add_slices(slices, n);
        for (size_t k = 0; k < ret->pod_count; k++) {
            const struct sl_holding_pod *p = &ret->pod[k];
            if (strcmp(p->node, n->name) != 0)
                continue;
            n->pods++;
            n->promised.devices += p->holds.devices;
            n->promised.memory_mib += p->holds.memory_mib;
            n->promised.cores += p->holds.cores;
        }
        if (n->has.cards || n->pods)
            ret->node_count++;
    }
    qsort(ret->node, ret->node_count, sizeof(*ret->node), by_name);
}

void sl_holdings_free(struct sl_holdings *holdings)
{
    free(holdings->node);
    free(holdings->pod);
    *holdings = (struct sl_holdings){0};
}
