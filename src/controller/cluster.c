/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of the cluster and the books as a whole. */
#include "controller/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/xalloc.h"
#include "share/affinity.h"
#include "controller/cluster_internal.h"
#include "controller/errors.h"

int sl_cluster_create(const struct sl_cluster_options *opt, struct sl_cluster **ret,
                      struct sl_err *err)
{
    struct sl_place_config config;
    struct sl_cluster *c = sl_xcalloc(1, sizeof(*c));
    c->opt = *opt;
    sl_place_config_init(&config, opt->policy);
    config.seed = opt->seed;
    int rc = sl_place_create(&config, NULL, 0, &c->placer, err);
    if (rc) {
        free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

static void node_free(void *item)
{
    struct cluster_node *n = item;
    free(n->gpu);
    free(n->labels);
    free(n->name);
    free(n);
}

void sl_cluster_destroy(struct sl_cluster *c)
{
    if (!c)
        return;
    sl_map_free(&c->pods, sl_cluster_pod_free);
    sl_map_free(&c->nodes, node_free);
    sl_map_free(&c->spaces, free);
    sl_place_destroy(c->placer);
    free(c->by_place);
    free(c->allow);
    free(c->scores);
    free(c);
}

struct cluster_node *sl_cluster_node_find(const struct sl_cluster *c, const char *name)
{
    return sl_map_find(&c->nodes, name, strlen(name));
}

struct cluster_node *sl_cluster_node_get(struct sl_cluster *c, const char *name)
{
    struct cluster_node *n = sl_cluster_node_find(c, name);
    if (n)
        return n;
    n = sl_xcalloc(1, sizeof(*n));
    n->name = sl_xstrdup(name);
    n->place = CLUSTER_NO_PLACE;
    n->item.key = n->name;
    sl_map_add(&c->nodes, &n->item);
    return n;
}

void sl_cluster_scratch(struct sl_cluster *c)
{
    struct sl_place_totals totals;
    sl_place_totals(c->placer, &totals);
    size_t need = ((size_t)totals.nodes + 63) / 64 * 64;
    if (need > c->scratch_room) {
        c->allow = sl_xrealloc(c->allow, need / 8);
        c->scores = sl_xreallocarray(c->scores, need, sizeof(*c->scores));
        c->scratch_room = need;
    }
}

/* A GPU takes no new pod while it is unhealthy, or while a pod on it is not in the books. */
void sl_cluster_block(struct sl_cluster *c, struct cluster_node *n, unsigned gpu)
{
    if (n->place != CLUSTER_NO_PLACE)
        sl_place_block_gpu(c->placer, n->place, gpu,
                           !n->gpu[gpu].info.healthy || n->gpu[gpu].misfits > 0);
}

static uint8_t model_number(struct sl_cluster *c, const char *model)
{
    for (unsigned i = 0; i < c->model_count; i++)
        if (strcmp(c->models[i], model) == 0)
            return (uint8_t)i;
    if (c->model_count == SL_PLACE_MAX_MODELS)
        return SL_PLACE_MAX_MODELS - 1; /* shares a number: filters look at the names again */
    (void)snprintf(c->models[c->model_count], sizeof(c->models[0]), "%s", model);
    return (uint8_t)c->model_count++;
}

static bool same_cards(const struct cluster_node *n, const struct sl_promise_node *told)
{
    if (n->gpu_count != told->count)
        return false;
    for (size_t i = 0; i < told->count; i++)
        if (strcmp(n->gpu[i].info.uuid, told->gpu[i].uuid) != 0 ||
            strcmp(n->gpu[i].info.model, told->gpu[i].model) != 0 ||
            n->gpu[i].info.memory_mib != told->gpu[i].memory_mib)
            return false;
    return true;
}

/* The engine gets a new node; the old number stays closed for ever, with empty books. */
static int engine_add(struct sl_cluster *c, struct cluster_node *n, struct sl_err *err)
{
    /* A node that does not report its CPU gets some: scores divide by it. */
    struct sl_place_node node = {.cpu_milli = n->cpu_milli ? n->cpu_milli : 1000,
                                 .gpu_count = n->gpu_count};
    uint32_t place;
    node.model = model_number(c, n->gpu[0].info.model);
    n->mixed = c->model_count == SL_PLACE_MAX_MODELS;
    for (unsigned i = 0; i < n->gpu_count; i++) {
        node.gpus[i].memory_mib = n->gpu[i].info.memory_mib;
        node.gpus[i].numa = n->gpu[i].info.numa < 0 ? 0 : (uint8_t)n->gpu[i].info.numa;
        n->mixed |= strcmp(n->gpu[i].info.model, n->gpu[0].info.model) != 0;
    }
    int rc = sl_place_add_node(c->placer, &node, &place, err);
    if (rc)
        return rc;
    if (place >= c->by_place_room) {
        size_t room = c->by_place_room ? c->by_place_room * 2 : 64;
        c->by_place = sl_xreallocarray(c->by_place, room, sizeof(struct cluster_node *));
        c->by_place_room = room;
    }
    c->by_place[place] = n;
    n->place = place;
    return 0;
}

/* Cards came, went or changed: everything on the node is entered into the books again. */
static int replace_cards(struct sl_cluster *c, struct cluster_node *n,
                         const struct sl_promise_node *told, struct sl_err *err)
{
    struct cluster_gpu *gpu = sl_xcalloc(told->count, sizeof(*gpu));
    sl_cluster_node_lift(c, n);
    if (n->place != CLUSTER_NO_PLACE) {
        sl_place_open_node(c->placer, n->place, false);
        c->by_place[n->place] = NULL;
    }
    n->place = CLUSTER_NO_PLACE;
    for (size_t i = 0; i < told->count; i++) {
        gpu[i].info = told->gpu[i];
        if (told->gpu[i].memory_mib > c->largest_mib)
            c->largest_mib = told->gpu[i].memory_mib;
    }
    free(n->gpu);
    n->gpu = gpu;
    n->gpu_count = (uint8_t)told->count;
    int rc = told->count ? engine_add(c, n, err) : 0;
    sl_cluster_node_settle(c, n);
    return rc;
}

/* "1500m", "2", "1.5" in thousandths; 0 for any other text. */
static uint32_t cpu_of(const json_t *value)
{
    uint64_t milli;
    return sl_jget_quantity(value, 3, &milli) == 0 && milli <= 1000000000 ? (uint32_t)milli : 0;
}

static uint32_t container_cpu(const json_t *container)
{
    const json_t *resources = json_object_get(container, "resources");
    const json_t *cpu = json_object_get(json_object_get(resources, "requests"), "cpu");
    return cpu_of(cpu ? cpu : json_object_get(json_object_get(resources, "limits"), "cpu"));
}

uint32_t sl_cluster_pod_cpu(const json_t *pod)
{
    const json_t *spec = json_object_get(pod, "spec"), *one;
    uint64_t apps = 0, init = 0;
    size_t i;
    json_array_foreach(json_object_get(spec, "containers"), i, one) apps += container_cpu(one);
    json_array_foreach(json_object_get(spec, "initContainers"), i, one)
    {
        uint32_t cpu = container_cpu(one);
        init = cpu > init ? cpu : init;
    }
    apps = init > apps ? init : apps;
    return apps > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)apps;
}

int sl_cluster_node_set(struct sl_cluster *c, const json_t *object, struct sl_err *err)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(object, "metadata"), "name"));
    const char *ours = sl_jget_note(object, SL_PROMISE_GPUS_KEY);
    const char *hami = sl_jget_note(object, SL_PROMISE_REGISTER_KEY);
    struct sl_promise_node told = {.count = 0};
    if (!name)
        return sl_err_set(err, -EINVAL, SL_E_NODE_NAME_MISSING);
    struct cluster_node *n = sl_cluster_node_get(c, name);
    int rc = ours && ours[0]            ? sl_promise_gpus_parse(ours, &told, err)
             : !ours && hami && hami[0] ? sl_promise_register_parse(hami, &told, err)
                                        : 0; /* empty: an agent without a card to share */
    if (rc) { /* an unreadable node takes no new pod; its pods stay in the books */
        n->open = false;
        if (n->place != CLUSTER_NO_PLACE)
            sl_place_open_node(c->placer, n->place, false);
        return sl_err_wrap(err, "node %s", name);
    }
    n->cpu_milli = cpu_of(
        json_object_get(json_object_get(json_object_get(object, "status"), "allocatable"), "cpu"));
    n->present = n->open = true;
    free(n->labels);
    n->labels = told.count ? sl_affinity_labels(object) : NULL;
    if (!same_cards(n, &told))
        rc = replace_cards(c, n, &told, err);
    for (unsigned i = 0; !rc && i < n->gpu_count; i++) {
        n->gpu[i].info = told.gpu[i];
        sl_cluster_block(c, n, i);
    }
    if (!rc && n->place != CLUSTER_NO_PLACE)
        sl_place_open_node(c->placer, n->place, true);
    return rc;
}

/* The watch may still report pods of the node: the books stay until those pods go. */
void sl_cluster_node_gone(struct sl_cluster *c, const char *name)
{
    struct cluster_node *n = sl_cluster_node_find(c, name);
    if (!n)
        return;
    n->present = n->open = false;
    if (n->place != CLUSTER_NO_PLACE)
        sl_place_open_node(c->placer, n->place, false);
    sl_cluster_node_forget(c, n);
}

void sl_cluster_node_forget(struct sl_cluster *c, struct cluster_node *n)
{
    if (n->present || n->pods)
        return;
    if (n->place != CLUSTER_NO_PLACE)
        c->by_place[n->place] = NULL;
    sl_map_drop(&c->nodes, &n->item);
    node_free(n);
}

void sl_cluster_learn(struct sl_cluster *c)
{
    struct sl_place_demand demand[CLUSTER_KINDS];
    if (c->asked_since_learned == 0 || c->kind_count == 0)
        return;
    for (size_t i = 0; i < c->kind_count; i++)
        demand[i] = (struct sl_place_demand){c->kinds[i].request, c->kinds[i].weight};
    /* Without memory for the new demand, the old demand stays. */
    (void)!sl_place_set_demand(c->placer, demand, c->kind_count, NULL);
    c->asked_since_learned = 0;
    for (size_t i = 0; i < c->kind_count; i++) /* older requests count less and less */
        if (c->kinds[i].weight > 1 << 20)
            c->kinds[i].weight /= 2;
}

void sl_cluster_stats(const struct sl_cluster *c, struct sl_cluster_stats *ret)
{
    struct sl_place_totals totals;
    struct sl_map_walk walk = {.bucket = 0};
    const struct cluster_node *n;
    *ret = c->stats;
    sl_place_totals(c->placer, &totals);
    ret->nodes = 0;
    while ((n = sl_map_next(&c->nodes, &walk))) {
        if (!n->present)
            continue;
        ret->nodes++;
        ret->nodes_with_gpus += n->gpu_count > 0;
        ret->gpus += n->gpu_count;
        for (unsigned i = 0; i < n->gpu_count; i++) {
            uint32_t cores, memory;
            sl_place_gpu_free(c->placer, n->place, i, &cores, &memory);
            uint64_t part =
                n->gpu[i].info.memory_mib ? (uint64_t)memory * 1000 / n->gpu[i].info.memory_mib : 0;
            ret->gpu_milli += 1000;
            ret->gpu_free_milli += part < cores ? part : cores;
        }
    }
    ret->pods = c->pods.count;
}

const char *sl_cluster_next_room(struct sl_cluster *c)
{
    struct sl_map_walk walk = {.bucket = 0};
    struct cluster_node *n;
    while (c->room && (n = sl_map_next(&c->nodes, &walk)))
        if (n->room) {
            n->room = false;
            if (n->present)
                return n->name;
        }
    c->room = false;
    return NULL;
}

void sl_cluster_card_seen(struct sl_cluster *c, uint32_t memory_mib)
{
    if (memory_mib > c->largest_mib)
        c->largest_mib = memory_mib;
}

uint32_t sl_cluster_largest_card(const struct sl_cluster *c)
{
    return c->largest_mib;
}
