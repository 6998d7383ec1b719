/* SPDX-License-Identifier: Apache-2.0 */
/* Does a request fit, on which GPUs, and what does a GPU have left afterwards? */

#include "policy/place_internal.h"

/* Memory slices (of 8) of an instance, and its possible starts: the hardware's own table. */
const uint8_t sl_place_mig_slices[SL_PLACE_MIG_PROFILES] = {0, 1, 2, 2, 4, 4, 8};
static const uint8_t mig_compute[SL_PLACE_MIG_PROFILES] = {0, 1, 1, 2, 3, 4, 7};
static const uint8_t mig_starts[SL_PLACE_MIG_PROFILES] = {
    0, 0x7f /* 0-6 */, 0x55 /* 0 2 4 6 */, 0x15 /* 0 2 4 */, 0x11 /* 0 4 */, 0x01, 0x01};

static uint8_t mig_mask(uint8_t profile, int start)
{
    return (uint8_t)(((1u << sl_place_mig_slices[profile]) - 1u) << start);
}

/* How many places for the profile are left on a card with these slices in use. */
static unsigned mig_places(uint8_t used, uint8_t profile)
{
    unsigned places = 0;
    for (int start = 0; start < PLACE_MIG_SLICES; start++)
        if ((mig_starts[profile] >> start & 1) && !(used & mig_mask(profile, start)))
            places++;
    return places;
}

/*
 * The start that keeps the most places for every other profile, weighted by their size: a 1g in the middle of a card
 * costs a 3g and a 4g, a 1g at the edge does not. -1: no room.
 */
int sl_place_mig_start(uint8_t used, uint8_t profile)
{
    int best = -1;
    unsigned best_value = 0;
    for (int start = 0; start < PLACE_MIG_SLICES; start++) {
        if (!(mig_starts[profile] >> start & 1) || (used & mig_mask(profile, start)))
            continue;
        uint8_t after = (uint8_t)(used | mig_mask(profile, start));
        unsigned value = 1;
        for (unsigned q = SL_PLACE_MIG_1G; q < SL_PLACE_MIG_PROFILES; q++)
            value += mig_places(after, (uint8_t)q) * sl_place_mig_slices[q];
        if (value >= best_value) { /* later starts first: the low end takes the large profiles */
            best_value = value;
            best = start;
        }
    }
    return best;
}

bool sl_place_mig_free(const struct place_gpu *g, uint8_t profile, uint8_t start)
{
    return start < PLACE_MIG_SLICES && (mig_starts[profile] >> start & 1) &&
           !(g->mig_used & mig_mask(profile, start));
}

bool sl_place_is_whole(const struct sl_place_request *r)
{
    return r->gpu_count > 0 && !r->mig && r->cores_permille >= SL_PLACE_WHOLE;
}

static uint32_t memory_mib(const struct place_gpu *g, const struct sl_place_request *r)
{
    if (r->gpu_memory_mib)
        return r->gpu_memory_mib;
    return (uint32_t)((uint64_t)g->mem_total_mib * r->gpu_memory_permille / 1000);
}

static uint16_t memory_permille(const struct place_gpu *g, const struct sl_place_request *r)
{
    if (!r->gpu_memory_mib)
        return r->gpu_memory_permille;
    if (!g->mem_total_mib)
        return UINT16_MAX; /* room for nothing */
    return (uint16_t)(((uint64_t)r->gpu_memory_mib * 1000 + g->mem_total_mib - 1) /
                      g->mem_total_mib);
}

/* Where the card's size is known, the books count MiB, and permille are only for the measures: rounding every small
 * share up to a permille would lose a card's worth on a node of eight. */
static void memory_move(struct place_gpu *g, const struct sl_place_request *r, int sign)
{
    g->mem_free_mib += (uint32_t)sign * memory_mib(g, r);
    if (g->mem_total_mib)
        g->mem_free_permille = (uint16_t)((uint64_t)g->mem_free_mib * 1000 / g->mem_total_mib);
    else
        g->mem_free_permille = (uint16_t)(g->mem_free_permille + sign * memory_permille(g, r));
}

bool sl_place_gpu_fits(const struct place_gpu *g, const struct sl_place_request *r)
{
    if (g->blocked)
        return false;
    if (r->mig)
        return g->mig && (g->mig_used || !g->tenants) &&
               sl_place_mig_start(g->mig_used, r->mig) >= 0;
    if (g->mig_used)
        return false;
    if (sl_place_is_whole(r))
        return g->tenants == 0 && (!r->gpu_memory_mib || r->gpu_memory_mib <= g->mem_total_mib);
    if (g->cores_free < r->cores_permille)
        return false;
    if (r->gpu_memory_mib || g->mem_total_mib)
        return memory_mib(g, r) <= g->mem_free_mib;
    return r->gpu_memory_permille <= g->mem_free_permille;
}

bool sl_place_node_fits(const struct place_node *n, const struct sl_place_request *r)
{
    if (!n->open || n->cpu_free < r->cpu_milli || n->mem_free < r->memory_mib)
        return false;
    if (n->max_pods && n->pods >= n->max_pods)
        return false;
    if (r->gpu_count == 0)
        return true;
    if (r->models && !(r->models >> n->model & 1))
        return false;
    unsigned fits = 0;
    for (unsigned i = 0; i < n->gpu_count && fits < r->gpu_count; i++)
        fits += sl_place_gpu_fits(&n->gpus[i], r);
    return fits >= r->gpu_count;
}

static void gpu_settle(struct place_gpu *g)
{
    if (g->mig_used) {
        int slices = PLACE_MIG_SLICES - __builtin_popcount(g->mig_used);
        g->free = (uint16_t)(1000 * slices / PLACE_MIG_SLICES);
        return;
    }
    g->free = g->cores_free < g->mem_free_permille ? g->cores_free : g->mem_free_permille;
}

void sl_place_gpu_move(struct place_gpu *g, const struct sl_place_request *r, uint8_t mig_start,
                       bool take)
{
    int sign = take ? -1 : 1;
    g->tenants = (uint16_t)(g->tenants - sign);
    if (r->mig) {
        uint8_t mask = mig_mask(r->mig, mig_start);
        g->mig_used = (uint8_t)(take ? g->mig_used | mask : g->mig_used & ~mask);
        g->cores_free = (uint16_t)(g->cores_free + sign * (mig_compute[r->mig] * 1000 / 7));
    } else if (sl_place_is_whole(r)) {
        g->cores_free = take ? 0 : SL_PLACE_WHOLE;
        g->mem_free_mib = take ? 0 : g->mem_total_mib;
        g->mem_free_permille = take ? 0 : 1000;
    } else {
        g->cores_free = (uint16_t)(g->cores_free + sign * r->cores_permille);
        memory_move(g, r, sign);
    }
    gpu_settle(g);
}

bool sl_place_gpu_holds(const struct place_gpu *g, const struct sl_place_request *r, uint8_t start)
{
    if (!g->tenants || !r->mig != !g->mig_used)
        return false;
    if (r->mig) {
        if (start >= PLACE_MIG_SLICES || !(mig_starts[r->mig] >> start & 1))
            return false;
        uint8_t mask = mig_mask(r->mig, start);
        return (g->mig_used & mask) == mask;
    }
    if (sl_place_is_whole(r))
        return g->tenants == 1 && g->cores_free == 0 && g->mem_free_permille == 0;
    return g->cores_free + r->cores_permille <= 1000 &&
           memory_mib(g, r) <= g->mem_total_mib - g->mem_free_mib &&
           (g->mem_total_mib || g->mem_free_permille + memory_permille(g, r) <= 1000);
}

/* A GPU near the chosen ones is worth more than a tighter fit: 2000 beats any r. */
static int nearness(const struct place_node *n, uint16_t chosen, unsigned gpu, unsigned prefer)
{
    int near = 0;
    for (unsigned i = 0; prefer && i < n->gpu_count; i++) {
        if (!(chosen >> i & 1))
            continue;
        if ((prefer & SL_PLACE_PREFER_LINK) && n->gpus[i].link_group == n->gpus[gpu].link_group)
            near += 4000;
        if ((prefer & SL_PLACE_PREFER_NUMA) && n->gpus[i].numa == n->gpus[gpu].numa)
            near += 2000;
    }
    return near;
}

static uint16_t pick_from(const struct place_node *n, const struct sl_place_request *r,
                          bool loosest, int first, int *ret_value)
{
    uint16_t chosen = 0;
    int value = 0;
    for (unsigned k = 0; k < r->gpu_count; k++) {
        int best = -1, best_value = 0;
        for (unsigned i = 0; i < n->gpu_count; i++) {
            if ((chosen >> i & 1) || !sl_place_gpu_fits(&n->gpus[i], r))
                continue;
            if (k == 0 && first >= 0 && (int)i != first)
                continue;
            int v = loosest ? n->gpus[i].free : -(int)n->gpus[i].free;
            v += nearness(n, chosen, i, r->prefer);
            if (best < 0 || v > best_value) {
                best = (int)i;
                best_value = v;
            }
        }
        if (best < 0)
            break; /* not on a node that fits */
        chosen = (uint16_t)(chosen | 1u << best);
        value += best_value;
    }
    *ret_value = value;
    return chosen;
}

uint16_t sl_place_pick_tightest(const struct place_node *n, const struct sl_place_request *r,
                                bool loosest)
{
    int value;
    if (r->gpu_count == 0)
        return 0;
    if (r->gpu_count == 1 || !r->prefer)
        return pick_from(n, r, loosest, -1, &value);
    /* Greedy from each possible first GPU: the first choice decides which island is used. */
    uint16_t best = 0;
    int best_value = 0;
    for (int first = 0; first < n->gpu_count; first++) {
        if (!sl_place_gpu_fits(&n->gpus[first], r))
            continue;
        uint16_t gpus = pick_from(n, r, loosest, first, &value);
        if (!best || value > best_value) {
            best = gpus;
            best_value = value;
        }
    }
    return best;
}
