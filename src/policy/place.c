/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster: nodes, their books, the cached scores, and the decision. */
#include "policy/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/xalloc.h"
#include "policy/errors.h"
#include "policy/place_internal.h"

/* Prices drift slowly: a fiftieth of the decisions pays for the steps. */
#define PRICE_EVERY      49
#define PRICE_ROUNDS     4
#define PRICE_ROUNDS_NEW 200

static const char *const policy_names[SL_PLACE_POLICIES] = {
    [SL_PLACE_RANDOM] = "random",
    [SL_PLACE_FIRST_FIT] = "first-fit",
    [SL_PLACE_DOT_PRODUCT] = "dot-product",
    [SL_PLACE_CLUSTERING] = "clustering",
    [SL_PLACE_PACKING] = "packing",
    [SL_PLACE_BEST_FIT] = "best-fit",
    [SL_PLACE_BINPACK] = "binpack",
    [SL_PLACE_SPREAD] = "spread",
    [SL_PLACE_FGD] = "fgd",
    [SL_PLACE_SLUICE] = "sluice",
};

const char *sl_place_policy_name(enum sl_place_policy policy)
{
    return policy < SL_PLACE_POLICIES ? policy_names[policy] : "?";
}

int sl_place_policy_parse(const char *name, enum sl_place_policy *ret, struct sl_err *err)
{
    char all[160] = "";
    for (unsigned i = 0; i < SL_PLACE_POLICIES; i++) {
        if (strcmp(name, policy_names[i]) == 0) {
            *ret = (enum sl_place_policy)i;
            return 0;
        }
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", policy_names[i]);
    }
    return sl_err_set(err, -EINVAL, SL_E_POLICY_UNKNOWN, name, all);
}

void sl_place_config_init(struct sl_place_config *config, enum sl_place_policy policy)
{
    *config = (struct sl_place_config){
        .policy = policy,
        .seed = 1,
        .tuning = {.band = 25,
                   .size_power = -1,
                   .load = 0.8,
                   .price_gpu = 10,
                   .price_cpu = 3,
                   .capacity = 0.5,
                   .slot = 1,
                   .slot_margin = 6,
                   .slot_from = 0.85},
    };
}

static int node_check(const struct sl_place_node *n, size_t at, struct sl_err *err)
{
    if (n->gpu_count > SL_PLACE_MAX_GPUS)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_GPUS, at, n->gpu_count, SL_PLACE_MAX_GPUS);
    if (n->model >= SL_PLACE_MAX_MODELS)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_MODEL, at, n->model, SL_PLACE_MAX_MODELS);
    return 0;
}

/* Past the table's end all nodes are of the last type: prices get coarser, nothing breaks. */
static uint8_t node_type(struct sl_placer *p, const struct sl_place_node *spec, uint32_t at)
{
    for (unsigned t = 0; t < p->type_count; t++) {
        const struct place_node *x = &p->nodes[p->type_example[t]];
        if (x->model == spec->model && x->gpu_count == spec->gpu_count &&
            x->cpu_total == spec->cpu_milli)
            return (uint8_t)t;
    }
    if (p->type_count == PLACE_MAX_TYPES)
        return PLACE_MAX_TYPES - 1;
    p->type_example[p->type_count] = at;
    return (uint8_t)p->type_count++;
}

static void node_init(struct sl_placer *p, uint32_t at, const struct sl_place_node *spec)
{
    struct place_node *n = &p->nodes[at];
    uint8_t type = node_type(p, spec, at);
    *n = (struct place_node){.cpu_total = spec->cpu_milli,
                             .cpu_free = spec->cpu_milli,
                             .mem_total = spec->memory_mib,
                             .mem_free = spec->memory_mib,
                             .gpu_total = 1000u * spec->gpu_count,
                             .max_pods = spec->max_pods,
                             .model = spec->model,
                             .gpu_count = spec->gpu_count,
                             .type = type,
                             .open = true};
    for (unsigned i = 0; i < spec->gpu_count; i++)
        n->gpus[i] = (struct place_gpu){.mem_free_mib = spec->gpus[i].memory_mib,
                                        .mem_total_mib = spec->gpus[i].memory_mib,
                                        .cores_free = SL_PLACE_WHOLE,
                                        .mem_free_permille = 1000,
                                        .free = 1000,
                                        .numa = spec->gpus[i].numa,
                                        .link_group = spec->gpus[i].link_group,
                                        .mig = spec->gpus[i].mig};
    p->models |= 1ULL << spec->model;
    p->cpu_scale = spec->cpu_milli > p->cpu_scale ? spec->cpu_milli : p->cpu_scale;
    p->gpu_scale = n->gpu_total > p->gpu_scale ? n->gpu_total : p->gpu_scale;
    p->totals.nodes++;
    p->totals.gpus += n->gpu_count;
    p->totals.gpu_milli += n->gpu_total;
    p->totals.gpu_free_milli += n->gpu_total;
    p->totals.cpu_milli += n->cpu_total;
    p->totals.cpu_free_milli += n->cpu_total;
    n->view.free = n->gpu_total;
}

static size_t dirty_words(uint32_t room)
{
    return (room + 63) / 64;
}

static void mark_everything(struct sl_placer *p)
{
    for (uint32_t i = 0; i < p->kinds_used; i++)
        memset(p->kinds[i].dirty, 0xff, dirty_words(p->room) * sizeof(uint64_t));
}

/* Copies the figures of a node that the scan reads, by its position. */
static void show_node(struct sl_placer *p, uint32_t node)
{
    uint32_t at = p->position[node];
    p->mem_free[at] = p->nodes[node].mem_free;
    p->type[at] = p->nodes[node].type;
    p->unused[at] = p->nodes[node].unused;
    p->cpu_free[at] = p->nodes[node].cpu_free;
}

static void mark_node(struct sl_placer *p, uint32_t node)
{
    uint32_t at = p->position[node];
    show_node(p, node);
    for (uint32_t i = 0; i < p->kinds_used; i++)
        p->kinds[i].dirty[at / 64] |= 1ULL << (at % 64);
}

static void grow(struct sl_placer *p, uint32_t room)
{
#define GROW(array, n) ((array) = sl_xreallocarray(array, n, sizeof(*(array))))
    GROW(p->nodes, room);
    GROW(p->order, room);
    GROW(p->position, room);
    GROW(p->mem_free, room);
    GROW(p->type, room);
    GROW(p->cpu_free, room);
    GROW(p->unused, room);
    GROW(p->priced, room);
    for (uint32_t i = 0; i < p->kinds_used; i++) {
        GROW(p->kinds[i].scores, room);
        GROW(p->kinds[i].opens, room);
        GROW(p->kinds[i].dirty, dirty_words(room));
    }
#undef GROW
    p->room = room;
    mark_everything(p);
}

/* The node's part of its type's supply; called before and after every change. */
static void supply(struct sl_placer *p, struct place_node *n, int sign)
{
    if (!p->demand || p->config.policy != SL_PLACE_SLUICE || !n->open)
        return;
    if (sign > 0) {
        n->usable = sl_place_usable(p->demand, n);
        n->unused = 0;
        for (unsigned i = 0; i < n->gpu_count; i++)
            n->unused = (uint8_t)(n->unused + (n->gpus[i].tenants == 0));
        n->ready = (uint8_t)sl_place_ready(p->demand, n->unused, n->cpu_free);
    }
    for (unsigned k = 2; k <= SL_PLACE_MAX_GPUS; k++)
        p->slots[k] += (uint32_t)sign * (n->ready / k);
    p->type_gpu[n->type] += sign * n->usable;
    p->type_cpu[n->type] += sign * (double)n->cpu_free;
}

/* Puts new tables to use: every view, supply, price and score is computed afresh. */
static void demand_use(struct sl_placer *p, struct place_demand *d)
{
    sl_place_demand_destroy(p->demand);
    p->demand = d;
    memset(p->type_gpu, 0, sizeof(p->type_gpu));
    memset(p->type_cpu, 0, sizeof(p->type_cpu));
    memset(p->slots, 0, sizeof(p->slots));
    for (uint32_t i = 0; i < p->count; i++) {
        sl_place_view_fill(p->demand, &p->nodes[i]);
        supply(p, &p->nodes[i], 1);
        p->unused[p->position[i]] = p->nodes[i].unused;
    }
    p->cpu_a_gpu =
        p->totals.gpu_milli ? (double)p->totals.cpu_milli / (double)p->totals.gpu_milli : 1;
    if (d && p->config.policy == SL_PLACE_SLUICE)
        sl_place_price_step(p, PRICE_ROUNDS_NEW);
    mark_everything(p);
}

int sl_place_set_demand(struct sl_placer *p, const struct sl_place_demand *demand, size_t count,
                        struct sl_err *err)
{
    size_t kept;
    struct place_class *classes = sl_place_demand_classes(demand, count, &kept);
    struct place_demand *d = sl_place_demand_build(p, classes, kept);
    if (!d) {
        free(classes);
        return sl_err_set(err, -EINVAL, SL_E_PLACE_NO_DEMAND);
    }
    free(p->classes);
    p->classes = classes;
    p->class_count = kept;
    demand_use(p, d);
    return 0;
}

int sl_place_add_node(struct sl_placer *p, const struct sl_place_node *node, uint32_t *ret_node,
                      struct sl_err *err)
{
    int rc = node_check(node, p->count, err);
    if (rc)
        return rc;
    if (p->count == p->room)
        grow(p, p->room * 2);
    unsigned types = p->type_count;
    uint64_t models = p->models;
    uint32_t at = p->count++;
    node_init(p, at, node);
    p->order[at] = at;
    p->position[at] = at;
    if (p->demand && (types != p->type_count || models != p->models)) {
        /* The tables are by model and kind of node: a new one needs them built again. */
        demand_use(p, sl_place_demand_build(p, p->classes, p->class_count));
    } else {
        sl_place_view_fill(p->demand, &p->nodes[at]);
        supply(p, &p->nodes[at], 1);
    }
    mark_node(p, at);
    if (ret_node)
        *ret_node = at;
    return 0;
}

/* Fisher-Yates: the fixed order in which equal nodes are preferred. */
static void shuffle_order(struct sl_placer *p)
{
    for (uint32_t i = p->count; i > 1; i--) {
        uint32_t j = (uint32_t)(sl_random(&p->rng) % i);
        uint32_t t = p->order[i - 1];
        p->order[i - 1] = p->order[j];
        p->order[j] = t;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        p->position[p->order[i]] = i;
        show_node(p, p->order[i]);
    }
}

int sl_place_create(const struct sl_place_config *config, const struct sl_place_node *nodes,
                    size_t count, struct sl_placer **ret, struct sl_err *err)
{
    if (config->policy >= SL_PLACE_POLICIES)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_POLICY, (int)config->policy);
    if (count > UINT32_MAX / 2)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_NODES, count);
    struct sl_placer *p = sl_xcalloc(1, sizeof(*p));
    p->config = *config;
    p->rng = config->seed * 0x2545f4914f6cdd1dULL + 1;
    grow(p, (uint32_t)(count ? count : 1));
    int rc = 0;
    for (size_t i = 0; !rc && i < count; i++)
        rc = sl_place_add_node(p, &nodes[i], NULL, err);
    if (rc) {
        sl_place_destroy(p);
        return rc;
    }
    shuffle_order(p);
    *ret = p;
    return 0;
}

void sl_place_destroy(struct sl_placer *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->kinds_used; i++) {
        free(p->kinds[i].scores);
        free(p->kinds[i].opens);
        free(p->kinds[i].dirty);
    }
    sl_place_demand_destroy(p->demand);
    free(p->classes);
    free(p->nodes);
    free(p->order);
    free(p->position);
    free(p->mem_free);
    free(p->type);
    free(p->cpu_free);
    free(p->unused);
    free(p->priced);
    free(p);
}

void sl_place_open_node(struct sl_placer *p, uint32_t node, bool open)
{
    if (node >= p->count || p->nodes[node].open == open)
        return;
    supply(p, &p->nodes[node], -1);
    p->nodes[node].open = open;
    supply(p, &p->nodes[node], 1);
    mark_node(p, node);
}

void sl_place_block_gpu(struct sl_placer *p, uint32_t node, unsigned gpu, bool blocked)
{
    if (node >= p->count || gpu >= p->nodes[node].gpu_count)
        return;
    struct place_node *n = &p->nodes[node];
    supply(p, n, -1);
    n->gpus[gpu].blocked = blocked;
    sl_place_view_fill(p->demand, n);
    supply(p, n, 1);
    mark_node(p, node);
}

uint32_t sl_place_cpu_free(const struct sl_placer *p, uint32_t node)
{
    return node < p->count ? p->nodes[node].cpu_free : 0;
}

int sl_place_validate(const struct sl_place_request *r, struct sl_err *err)
{
    if (r->gpu_count > SL_PLACE_MAX_GPUS)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_REQUEST_GPUS, r->gpu_count, SL_PLACE_MAX_GPUS);
    if (r->cores_permille > SL_PLACE_WHOLE || r->gpu_memory_permille > 1000)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_REQUEST_SHARE);
    if (r->mig >= SL_PLACE_MIG_PROFILES)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_REQUEST_PROFILE, r->mig);
    if (r->mig &&
        (r->gpu_count != 1 || r->cores_permille || r->gpu_memory_mib || r->gpu_memory_permille))
        return sl_err_set(err, -EINVAL, SL_E_PLACE_REQUEST_MIG);
    if (r->gpu_count && !r->mig && !r->cores_permille && !r->gpu_memory_mib &&
        !r->gpu_memory_permille)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_REQUEST_EMPTY);
    return 0;
}

static int commit_check(const struct sl_placer *p, const struct sl_place_request *r,
                        const struct sl_place_decision *d, struct sl_err *err)
{
    if (d->node >= p->count || __builtin_popcount(d->gpus) != r->gpu_count ||
        d->gpus >> p->nodes[d->node].gpu_count)
        return sl_err_set(err, -EINVAL, SL_E_PLACE_DECISION);
    return sl_place_validate(r, err);
}

static void account(struct sl_placer *p, uint32_t node, const struct sl_place_request *r,
                    const struct sl_place_decision *d, bool take)
{
    struct place_node *n = &p->nodes[node];
    supply(p, n, -1);
    p->totals.gpu_free_milli -= n->view.free;
    p->totals.cpu_free_milli -= n->cpu_free;
    n->cpu_free = take ? n->cpu_free - r->cpu_milli : n->cpu_free + r->cpu_milli;
    n->mem_free = take ? n->mem_free - r->memory_mib : n->mem_free + r->memory_mib;
    n->pods = (uint16_t)(take ? n->pods + 1 : n->pods - 1);
    p->totals.pods = take ? p->totals.pods + 1 : p->totals.pods - 1;
    if (r->gpu_count) {
        uint16_t *holds = &n->holds[sl_place_is_whole(r) ? r->gpu_count : 0];
        *holds = (uint16_t)(take ? *holds + 1 : *holds - 1);
    }
    for (unsigned i = 0; i < n->gpu_count; i++)
        if (d->gpus >> i & 1)
            sl_place_gpu_move(&n->gpus[i], r, d->mig_start, take);
    sl_place_view_fill(p->demand, n);
    p->totals.gpu_free_milli += n->view.free;
    p->totals.cpu_free_milli += n->cpu_free;
    supply(p, n, 1);
    if (p->demand && p->config.policy == SL_PLACE_SLUICE && p->price_due-- == 0) {
        p->price_due = PRICE_EVERY;
        sl_place_price_step(p, PRICE_ROUNDS);
    }
    mark_node(p, node);
}

int sl_place_commit(struct sl_placer *p, const struct sl_place_request *r,
                    const struct sl_place_decision *d, struct sl_err *err)
{
    int rc = commit_check(p, r, d, err);
    if (rc)
        return rc;
    const struct place_node *n = &p->nodes[d->node];
    if (!sl_place_node_fits(n, r))
        return sl_err_set(err, -ENOSPC, SL_E_PLACE_NODE_FULL, d->node);
    for (unsigned i = 0; i < n->gpu_count; i++)
        if ((d->gpus >> i & 1) &&
            (!sl_place_gpu_fits(&n->gpus[i], r) ||
             (r->mig && !sl_place_mig_free(&n->gpus[i], r->mig, d->mig_start))))
            return sl_err_set(err, -ENOSPC, SL_E_PLACE_GPU_FULL, i, d->node);
    account(p, d->node, r, d, true);
    return 0;
}

/* The books cannot name pods, but they show which capacity can never have been taken. */
static bool release_possible(const struct place_node *n, const struct sl_place_request *r,
                             const struct sl_place_decision *d)
{
    if (!n->pods || r->cpu_milli > n->cpu_total - n->cpu_free ||
        r->memory_mib > n->mem_total - n->mem_free)
        return false;
    if (r->gpu_count && !n->holds[sl_place_is_whole(r) ? r->gpu_count : 0])
        return false;
    for (unsigned i = 0; i < n->gpu_count; i++)
        if ((d->gpus >> i & 1) && !sl_place_gpu_holds(&n->gpus[i], r, d->mig_start))
            return false;
    return true;
}

int sl_place_release(struct sl_placer *p, const struct sl_place_request *r,
                     const struct sl_place_decision *d, struct sl_err *err)
{
    int rc = commit_check(p, r, d, err);
    if (rc)
        return rc;
    if (!release_possible(&p->nodes[d->node], r, d))
        return sl_err_set(err, -EINVAL, SL_E_PLACE_NOT_HELD, d->node);
    account(p, d->node, r, d, false);
    return 0;
}

double sl_place_fragmentation(const struct sl_placer *p, uint32_t node)
{
    if (!p->demand || node >= p->count)
        return 0;
    const struct place_node *n = &p->nodes[node];
    return sl_place_frag_published(p->demand, n->model, &n->view, n->cpu_free);
}

void sl_place_totals(const struct sl_placer *p, struct sl_place_totals *ret)
{
    *ret = p->totals;
}

void sl_place_gpu_free(const struct sl_placer *p, uint32_t node, unsigned gpu,
                       uint32_t *ret_cores_permille, uint32_t *ret_memory_mib)
{
    bool known = node < p->count && gpu < p->nodes[node].gpu_count;
    *ret_cores_permille = known ? p->nodes[node].gpus[gpu].cores_free : 0;
    *ret_memory_mib = known ? p->nodes[node].gpus[gpu].mem_free_mib : 0;
}
