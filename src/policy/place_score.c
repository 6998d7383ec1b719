/* SPDX-License-Identifier: Apache-2.0 */
/* One function for each policy: how good is this node for this request, and with which GPUs. */
#include <math.h>

#include "policy/place_internal.h"

double sl_place_request_milli(const struct sl_place_request *r)
{
    if (r->mig)
        return 1000.0 * sl_place_mig_slices[r->mig] / PLACE_MIG_SLICES;
    unsigned each =
        r->cores_permille > r->gpu_memory_permille ? r->cores_permille : r->gpu_memory_permille;
    return (double)each * r->gpu_count;
}

static int32_t score_dot_product(const struct sl_placer *p, const struct place_node *n,
                                 const struct sl_place_request *r)
{
    double cpu_scale = p->cpu_scale, gpu_scale = p->gpu_scale;
    double dot = (double)n->cpu_free * r->cpu_milli / (cpu_scale * cpu_scale) +
                 n->view.free * sl_place_request_milli(r) / (gpu_scale * gpu_scale);
    return (int32_t)floor(100 * (1 - dot / 2));
}

static int32_t score_best_fit(const struct sl_placer *p, const struct place_node *n,
                              const struct sl_place_request *r)
{
    double left = (n->cpu_free - (double)r->cpu_milli) / p->cpu_scale +
                  (n->view.free - sl_place_request_milli(r)) / p->gpu_scale;
    return (int32_t)floor(100 * (1 - left / 2));
}

static int32_t score_clustering(const struct sl_placer *p, const struct place_node *n,
                                const struct sl_place_request *r)
{
    if (r->gpu_count == 0)
        return 0;
    int32_t score = (int32_t)floor(25.0 * ((double)p->gpu_scale - n->view.free) / p->gpu_scale);
    unsigned type = sl_place_is_whole(r) ? r->gpu_count : 0, types = 0;
    for (unsigned k = 0; k <= SL_PLACE_MAX_GPUS; k++)
        types += n->holds[k] > 0;
    if (types == 0)
        return score + 25;
    if (!n->holds[type])
        return score;
    return score + (types == 1 ? 75 : 50);
}

static int32_t score_packing(const struct place_node *n, const struct sl_place_request *r,
                             uint16_t gpus)
{
    if (r->gpu_count == 0)
        return 0;
    int unused = 0, opened = 0;
    double left = 0;
    for (unsigned i = 0; i < n->gpu_count; i++) {
        unused += n->gpus[i].tenants == 0;
        if (!(gpus >> i & 1))
            continue;
        opened += n->gpus[i].tenants == 0;
        left += (n->gpus[i].free - sl_place_request_milli(r) / r->gpu_count) / 10;
    }
    if (opened == 0)
        return (int32_t)fmax(50, 100 - floor(left / 10));
    if (unused < n->gpu_count)
        return opened > 17 ? 33 : 50 - opened;
    return n->gpu_count > 16 ? n->gpu_count : 33 - n->gpu_count;
}

static int32_t score_fullness(const struct place_node *n, const struct sl_place_request *r)
{
    if (r->gpu_count == 0 || n->gpu_total == 0)
        return n->cpu_total ? (int32_t)(1000 - 1000ULL * n->cpu_free / n->cpu_total) : 0;
    return (int32_t)(1000 - 1000ULL * n->view.free / n->gpu_total);
}

/* A node as it would be with some GPUs taken. */
struct outcome {
    struct place_view view;
    uint32_t cpu_free;
};

static void outcome_take(const struct sl_placer *p, const struct place_node *n,
                         const struct sl_place_request *r, uint16_t gpus, struct outcome *o)
{
    o->view = n->view;
    o->cpu_free = n->cpu_free - r->cpu_milli;
    for (unsigned i = 0; i < n->gpu_count; i++) {
        if (!(gpus >> i & 1))
            continue;
        struct place_gpu after = n->gpus[i];
        int start = r->mig ? sl_place_mig_start(after.mig_used, r->mig) : 0;
        sl_place_gpu_move(&after, r, (uint8_t)start, true);
        sl_place_view_replace(p->demand, &o->view, &n->gpus[i], &after);
    }
}

/* Same free share in every respect the measures see: scoring one of the two is enough. */
static bool same_gpu(const struct place_gpu *a, const struct place_gpu *b)
{
    return a->cores_free == b->cores_free && a->mem_free_mib == b->mem_free_mib &&
           a->mem_free_permille == b->mem_free_permille && a->mig_used == b->mig_used &&
           a->mem_total_mib == b->mem_total_mib && !a->tenants == !b->tenants && a->mig == b->mig &&
           a->blocked == b->blocked;
}

static bool seen_before(const struct place_node *n, unsigned gpu)
{
    for (unsigned i = 0; i < gpu; i++)
        if (same_gpu(&n->gpus[i], &n->gpus[gpu]))
            return true;
    return false;
}

/*
 * The part of a node that is lost to the expected demand, in milli-GPU. The published policy has its own measure; ours
 * mixes it with a measure that counts CPU. (The prices, the worth of resources to demand that can run nowhere else, are
 * added in the scan: place_decide.c.)
 */
static double measure(const struct sl_placer *p, const struct place_node *n,
                      const struct place_view *v, uint32_t cpu_free)
{
    double mix = p->config.policy == SL_PLACE_FGD ? 0 : p->config.tuning.capacity, f = 0;
    if (mix < 1)
        f += (1 - mix) * sl_place_frag_published(p->demand, n->model, v, cpu_free);
    if (mix > 0)
        f += mix * sl_place_frag_capacity(p->demand, n->model, v, cpu_free);
    return f;
}

static int32_t value_of(const struct sl_placer *p, const struct place_node *n,
                        const struct sl_place_request *r, uint16_t gpus, double before)
{
    struct outcome o;
    outcome_take(p, n, r, gpus, &o);
    double lost = measure(p, n, &o.view, o.cpu_free) - before;
    if (p->config.policy == SL_PLACE_FGD)
        return (int32_t)floor(100 / (1 + exp(lost / 1000)));
    return (int32_t)lrint(-lost * PLACE_SCALE);
}

/* Fragmentation gradient descent: the GPUs that lose the least when taken. */
static int32_t score_frag(const struct sl_placer *p, const struct place_node *n,
                          const struct sl_place_request *r, uint16_t *gpus)
{
    double before = measure(p, n, &n->view, n->cpu_free);
    if (r->gpu_count != 1 || sl_place_is_whole(r)) {
        *gpus = sl_place_pick_tightest(n, r, false);
        return value_of(p, n, r, *gpus, before);
    }
    int32_t best = PLACE_NO_FIT;
    for (unsigned i = 0; i < n->gpu_count; i++) {
        if (!sl_place_gpu_fits(&n->gpus[i], r) || seen_before(n, i))
            continue;
        int32_t s = value_of(p, n, r, (uint16_t)(1u << i), before);
        if (s > best) {
            best = s;
            *gpus = (uint16_t)(1u << i);
        }
    }
    return best;
}

int32_t sl_place_score_node(const struct sl_placer *p, const struct place_node *n,
                            const struct sl_place_request *r, uint16_t *ret_gpus)
{
    if (!sl_place_node_fits(n, r))
        return PLACE_NO_FIT;
    enum sl_place_policy policy = p->config.policy;
    if ((policy == SL_PLACE_FGD || policy == SL_PLACE_SLUICE) && p->demand)
        return score_frag(p, n, r, ret_gpus);
    *ret_gpus = sl_place_pick_tightest(n, r, policy == SL_PLACE_SPREAD);
    switch (policy) {
    case SL_PLACE_DOT_PRODUCT:
        return score_dot_product(p, n, r);
    case SL_PLACE_CLUSTERING:
        return score_clustering(p, n, r);
    case SL_PLACE_PACKING:
        return score_packing(n, r, *ret_gpus);
    case SL_PLACE_BINPACK:
        return score_fullness(n, r);
    case SL_PLACE_SPREAD:
        return -score_fullness(n, r);
    case SL_PLACE_BEST_FIT:
    case SL_PLACE_FGD:
    case SL_PLACE_SLUICE:
        return score_best_fit(p, n, r);
    default:
        return 0;
    }
}
