/* SPDX-License-Identifier: Apache-2.0 */
/* The decision: updates the cached scores of the kind of request, then scans once. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/xalloc.h"
#include "policy/errors.h"
#include "policy/place_internal.h"

/* A kind is everything that a score depends on: host memory only filters, so it is left out. */
static struct sl_place_request kind_key(const struct sl_place_request *r)
{
    struct sl_place_request key;
    memset(&key, 0, sizeof(key)); /* padding too: keys are compared as bytes */
    key.cpu_milli = r->cpu_milli;
    key.models = r->models;
    key.gpu_memory_mib = r->gpu_memory_mib;
    key.gpu_memory_permille = r->gpu_memory_permille;
    key.cores_permille = r->cores_permille;
    key.gpu_count = r->gpu_count;
    key.mig = r->mig;
    key.prefer = r->prefer;
    return key;
}

static uint32_t key_hash(const struct sl_place_request *key)
{
    uint64_t h = sl_hash_bytes(SL_HASH_START, key, sizeof(*key));
    return (uint32_t)(h ^ (h >> 32)) % SL_ARRAY_LEN(((struct sl_placer *)0)->hash);
}

static void hash_insert(struct sl_placer *p, uint32_t kind)
{
    uint32_t at = key_hash(&p->kinds[kind].key);
    while (p->hash[at])
        at = (at + 1) % (uint32_t)SL_ARRAY_LEN(p->hash);
    p->hash[at] = kind + 1;
}

static struct place_kind *kind_lookup(struct sl_placer *p, const struct sl_place_request *key)
{
    for (uint32_t at = key_hash(key); p->hash[at]; at = (at + 1) % (uint32_t)SL_ARRAY_LEN(p->hash))
        if (memcmp(&p->kinds[p->hash[at] - 1].key, key, sizeof(*key)) == 0)
            return &p->kinds[p->hash[at] - 1];
    return NULL;
}

/* Reuses the kind that was unused for longest. Open addressing cannot delete, so the table is refilled. */
static struct place_kind *kind_evict(struct sl_placer *p)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < p->kinds_used; i++)
        if (p->kinds[i].stamp < p->kinds[oldest].stamp)
            oldest = i;
    return &p->kinds[oldest];
}

static struct place_kind *kind_get(struct sl_placer *p, const struct sl_place_request *r)
{
    struct sl_place_request key = kind_key(r);
    struct place_kind *k = kind_lookup(p, &key);
    if (k)
        return k;
    bool evict = p->kinds_used == PLACE_MAX_KINDS;
    k = evict ? kind_evict(p) : &p->kinds[p->kinds_used];
    if (!evict) {
        k->scores = sl_xmalloc(p->room * sizeof(*k->scores));
        k->opens = sl_xmalloc(p->room * sizeof(*k->opens));
        k->dirty = sl_xmalloc((p->room + 63) / 64 * sizeof(*k->dirty));
        p->kinds_used++;
    }
    memcpy(&k->key, &key, sizeof(key));
    k->seen = 0;
    k->milli = sl_place_request_milli(r);
    memset(k->dirty, 0xff, (p->room + 63) / 64 * sizeof(*k->dirty));
    if (evict) {
        memset(p->hash, 0, sizeof(p->hash));
        for (uint32_t i = 0; i < p->kinds_used; i++)
            hash_insert(p, i);
    } else {
        hash_insert(p, p->kinds_used - 1);
    }
    return k;
}

static void refresh(struct sl_placer *p, struct place_kind *k)
{
    uint32_t words = (p->count + 63) / 64;
    for (uint32_t w = 0; w < words; w++) {
        uint64_t bits = k->dirty[w];
        k->dirty[w] = 0;
        for (; bits; bits &= bits - 1) {
            uint32_t at = w * 64 + (uint32_t)__builtin_ctzll(bits);
            uint16_t gpus = 0;
            if (at >= p->count)
                break;
            const struct place_node *n = &p->nodes[p->order[at]];
            k->scores[at] = sl_place_score_node(p, n, &k->key, &gpus);
            k->opens[at] = 0;
            for (unsigned g = 0; gpus >> g; g++)
                k->opens[at] |= (gpus >> g & 1) && n->gpus[g].tenants == 0;
        }
    }
}

/* The part of `sluice` scores that changes with the cluster, not with the node: added in the scan. */
struct prices {
    bool slots;      /* multi-GPU pods are expected */
    unsigned opened; /* unused GPUs the request takes where it takes any */
    int32_t type[PLACE_MAX_TYPES];
    place_slot_table slot;
};

static void prices_init(struct prices *x, const struct sl_placer *p, const struct place_kind *k)
{
    const struct sl_place_tuning *t = &p->config.tuning;
    for (unsigned i = 0; i < p->type_count; i++)
        x->type[i] = -(int32_t)lrint(PLACE_SCALE *
                                     (t->price_gpu * p->demand->price_gpu[i] * k->milli +
                                      t->price_cpu * p->demand->price_cpu[i] * k->key.cpu_milli));
    x->opened = sl_place_is_whole(&k->key) ? k->key.gpu_count : 1;
    x->slots = p->demand->slot_cpu > 0;
    if (x->slots)
        sl_place_slot_costs(p, x->opened, x->slot);
}

static int32_t priced(const struct prices *x, const struct sl_placer *p, const struct place_kind *k,
                      uint32_t at)
{
    int32_t score = k->scores[at];
    if (score == PLACE_NO_FIT)
        return score;
    score += x->type[p->type[at]];
    if (x->slots && p->unused[at] > 1) {
        unsigned left = p->unused[at] - (k->opens[at] ? x->opened : 0);
        unsigned before = sl_place_ready(p->demand, p->unused[at], p->cpu_free[at]);
        double cpu_left = (double)p->cpu_free[at] - k->key.cpu_milli;
        score -= x->slot[before][sl_place_ready(p->demand, left, cpu_left)];
    }
    return score;
}

static const int32_t *final_scores(struct sl_placer *p, const struct place_kind *k)
{
    if (p->config.policy != SL_PLACE_SLUICE || !p->demand)
        return k->scores;
    struct prices x;
    prices_init(&x, p, k);
    for (uint32_t at = 0; at < p->count; at++)
        p->priced[at] = priced(&x, p, k, at);
    return p->priced;
}

static bool allowed(const struct sl_placer *p, const uint64_t *allow, uint32_t at)
{
    uint32_t node = p->order[at];
    return !allow || (allow[node / 64] >> (node % 64) & 1);
}

static int32_t best_score(const struct sl_placer *p, const int32_t *scores, uint32_t memory,
                          const uint64_t *allow)
{
    int32_t best = PLACE_NO_FIT;
    if (allow) {
        for (uint32_t at = 0; at < p->count; at++)
            if (scores[at] > best && p->mem_free[at] >= memory && allowed(p, allow, at))
                best = scores[at];
        return best;
    }
    for (uint32_t at = 0; at < p->count; at++) {
        int32_t s = p->mem_free[at] >= memory ? scores[at] : PLACE_NO_FIT;
        best = s > best ? s : best;
    }
    return best;
}

/* Position of the first node whose score is at least `floor_score`, skipping `skip` of them. */
static uint32_t first_at_least(const struct sl_placer *p, const int32_t *scores, uint32_t memory,
                               const uint64_t *allow, int32_t floor_score, uint32_t skip)
{
    for (uint32_t at = 0; at < p->count; at++)
        if (scores[at] >= floor_score && p->mem_free[at] >= memory && allowed(p, allow, at) &&
            skip-- == 0)
            return at;
    return p->count;
}

static uint32_t choose_random(struct sl_placer *p, const int32_t *scores, uint32_t memory,
                              const uint64_t *allow)
{
    uint32_t fits = 0;
    for (uint32_t at = 0; at < p->count; at++)
        fits += scores[at] != PLACE_NO_FIT && p->mem_free[at] >= memory && allowed(p, allow, at);
    if (!fits)
        return p->count;
    return first_at_least(p, scores, memory, allow, PLACE_NO_FIT + 1,
                          (uint32_t)(sl_random(&p->rng) % fits));
}

static uint32_t choose(struct sl_placer *p, const int32_t *scores, uint32_t memory,
                       const uint64_t *allow)
{
    if (p->config.policy == SL_PLACE_RANDOM)
        return choose_random(p, scores, memory, allow);
    int32_t best = best_score(p, scores, memory, allow);
    if (best == PLACE_NO_FIT)
        return p->count;
    int32_t band = 0;
    if (p->config.policy == SL_PLACE_SLUICE && p->demand)
        band = (int32_t)(p->config.tuning.band * PLACE_SCALE);
    int32_t low = best < PLACE_NO_FIT + 1 + band ? PLACE_NO_FIT + 1 : best - band;
    return first_at_least(p, scores, memory, allow, low, 0);
}

/* Any GPU that fits, all with the same probability. */
static uint16_t random_gpus(struct sl_placer *p, const struct place_node *n,
                            const struct sl_place_request *r)
{
    uint16_t gpus = 0, left = r->gpu_count;
    unsigned fits = 0;
    for (unsigned i = 0; i < n->gpu_count; i++)
        fits += sl_place_gpu_fits(&n->gpus[i], r);
    for (unsigned i = 0; i < n->gpu_count && left; i++) {
        if (!sl_place_gpu_fits(&n->gpus[i], r))
            continue;
        if (sl_random(&p->rng) % fits < left) {
            gpus = (uint16_t)(gpus | 1u << i);
            left--;
        }
        fits--;
    }
    return gpus;
}

/* The requests so far become the expected demand. */
static void learn(struct sl_placer *p)
{
    struct sl_place_demand *items = sl_xcalloc(p->kinds_used, sizeof(*items));
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->kinds_used; i++)
        if (p->kinds[i].seen)
            items[count++] = (struct sl_place_demand){
                p->kinds[i].key,
                (uint32_t)(p->kinds[i].seen > UINT32_MAX ? UINT32_MAX : p->kinds[i].seen)};
    if (count)
        (void)!sl_place_set_demand(p, items, count, NULL); /* on failure the old demand stays */
    free(items);
}

int sl_place_decide(struct sl_placer *p, const struct sl_place_request *r, const uint64_t *allow,
                    struct sl_place_decision *ret, struct sl_err *err)
{
    int rc = sl_place_validate(r, err);
    if (rc)
        return rc;
    struct place_kind *k = kind_get(p, r);
    k->seen++;
    k->stamp = ++p->decisions;
    uint32_t every = p->config.learn_every;
    /* Early on each doubling teaches something new; later a fixed interval is enough. */
    if (every && (p->decisions % every == 0 ||
                  (p->decisions < every && (p->decisions & (p->decisions - 1)) == 0)))
        learn(p);
    refresh(p, k);
    uint32_t at = choose(p, final_scores(p, k), r->memory_mib, allow);
    if (at == p->count)
        return sl_err_set(err, -ENOSPC, SL_E_PLACE_NO_NODE);
    uint32_t node = p->order[at];
    const struct place_node *n = &p->nodes[node];
    struct sl_place_decision d = {.node = node};
    (void)sl_place_score_node(p, n, r, &d.gpus);
    if (p->config.policy == SL_PLACE_RANDOM)
        d.gpus = random_gpus(p, n, r);
    if (r->mig)
        d.mig_start = (uint8_t)sl_place_mig_start(n->gpus[__builtin_ctz(d.gpus)].mig_used, r->mig);
    *ret = d;
    return 0;
}

int sl_place_scores(struct sl_placer *p, const struct sl_place_request *r, int32_t *ret,
                    struct sl_err *err)
{
    int rc = sl_place_validate(r, err);
    if (rc)
        return rc;
    struct place_kind *k = kind_get(p, r);
    k->stamp = ++p->decisions;
    refresh(p, k);
    const int32_t *scores = final_scores(p, k);
    for (uint32_t at = 0; at < p->count; at++)
        ret[p->order[at]] = p->mem_free[at] >= r->memory_mib ? scores[at] : PLACE_NO_FIT;
    return 0;
}

int sl_place_pick(const struct sl_placer *p, const struct sl_place_request *r, uint32_t node,
                  uint16_t among, struct sl_place_decision *ret, struct sl_err *err)
{
    int rc = sl_place_validate(r, err);
    if (rc || node >= p->count)
        return rc ? rc : sl_err_set(err, -EINVAL, SL_E_PLACE_NO_SUCH_NODE, node);
    struct place_node copy = p->nodes[node];
    struct sl_place_decision d = {.node = node};
    for (unsigned i = 0; i < copy.gpu_count; i++)
        copy.gpus[i].blocked |= !(among >> i & 1);
    if (sl_place_score_node(p, &copy, r, &d.gpus) == PLACE_NO_FIT)
        return sl_err_set(err, -ENOSPC, SL_E_PLACE_NODE_FULL, node);
    if (r->mig)
        d.mig_start =
            (uint8_t)sl_place_mig_start(copy.gpus[__builtin_ctz(d.gpus)].mig_used, r->mig);
    *ret = d;
    return 0;
}

static int audit_node(const struct sl_placer *p, uint32_t i, struct sl_err *err)
{
    const struct place_node *n = &p->nodes[i];
    uint32_t free = 0;
    if (n->cpu_free > n->cpu_total || n->mem_free > n->mem_total ||
        (n->max_pods && n->pods > n->max_pods) || p->mem_free[p->position[i]] != n->mem_free ||
        p->order[p->position[i]] != i)
        return sl_err_set(err, -EIO, SL_E_PLACE_CHECK_NODE, i);
    for (unsigned g = 0; g < n->gpu_count; g++) {
        const struct place_gpu *x = &n->gpus[g];
        free += x->free;
        if (x->cores_free > 1000 || x->mem_free_mib > x->mem_total_mib ||
            x->mem_free_permille > 1000 || x->free > 1000 ||
            (!x->tenants && (x->free != 1000 || x->mig_used)))
            return sl_err_set(err, -EIO, SL_E_PLACE_CHECK_GPU, i, g);
    }
    if (free != n->view.free)
        return sl_err_set(err, -EIO, SL_E_PLACE_CHECK_FREE, i, free, n->view.free);
    return 0;
}

int sl_place_audit(struct sl_placer *p, struct sl_err *err)
{
    uint64_t gpu_free = 0, cpu_free = 0, pods = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        int rc = audit_node(p, i, err);
        if (rc)
            return rc;
        gpu_free += p->nodes[i].view.free;
        cpu_free += p->nodes[i].cpu_free;
        pods += p->nodes[i].pods;
    }
    if (gpu_free != p->totals.gpu_free_milli || cpu_free != p->totals.cpu_free_milli ||
        pods != p->totals.pods)
        return sl_err_set(err, -EIO, SL_E_PLACE_CHECK_TOTAL);
    for (uint32_t i = 0; i < p->kinds_used; i++) {
        struct place_kind *k = &p->kinds[i];
        refresh(p, k);
        for (uint32_t at = 0; at < p->count; at++) {
            uint16_t gpus = 0;
            struct place_node copy = p->nodes[p->order[at]];
            sl_place_view_fill(p->demand, &copy);
            int32_t fresh = sl_place_score_node(p, &copy, &k->key, &gpus);
            if (fresh != k->scores[at])
                return sl_err_set(err, -EIO, SL_E_PLACE_CHECK_SCORE, p->order[at], k->scores[at],
                                  fresh);
        }
    }
    return 0;
}
