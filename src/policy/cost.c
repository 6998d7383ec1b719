/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/cost.h"

#include <stddef.h>

#define LEAST_NS       500ULL          /* the resolution of an event */
#define MOST_NS        600000000000ULL /* ten minutes: more is a broken sample */
#define FIRST_GUESS_NS 1000000ULL      /* before anything was seen */
#define DEFAULT_MIN_NS 10000ULL
#define DEFAULT_MAX_NS 20000000ULL
#define MAX_STEP       10U
#define SURE_SAMPLES   3U
#define MOVING_SAMPLES 8
#define MEAN_SAMPLES   16
#define SEEN_MAX       1024U

#define load(p)     atomic_load_explicit(p, memory_order_relaxed)
#define store(p, v) atomic_store_explicit(p, v, memory_order_relaxed)

static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ULL;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ULL;
    h ^= h >> 32;
    return h;
}

static uint64_t not_zero(uint64_t h)
{
    return h ? h : 1;
}

uint64_t sl_cost_key(const void *function, const uint32_t grid[3], const uint32_t block[3],
                     uint32_t shared_bytes)
{
    /* Each word is multiplied by its own odd number, so shapes that are permutations differ. */
    uint64_t h = (uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15ULL;
    h ^= ((uint64_t)grid[1] << 32 | grid[0]) * 0xc2b2ae3d27d4eb4fULL;
    h = mix(h);
    h ^= ((uint64_t)block[0] << 32 | grid[2]) * 0x165667b19e3779f9ULL;
    h ^= ((uint64_t)block[1] << 42 | (uint64_t)block[2] << 32 | shared_bytes) *
         0x27d4eb2f165667c5ULL;
    return not_zero(mix(h));
}

uint64_t sl_cost_key_graph(const void *graph_exec)
{
    return not_zero(mix((uint64_t)(uintptr_t)graph_exec ^ 0x6772617068ULL));
}

static struct sl_cost_set *set_of(struct sl_cost *cost, uint64_t key)
{
    return &cost->sets[key & (SL_COST_SETS - 1)];
}

static int find_way(struct sl_cost_set *set, uint64_t key)
{
    for (unsigned w = 0; w < SL_COST_WAYS; w++)
        if (load(&set->keys[w]) == key)
            return (int)w;
    return -1;
}

static void clear_way(struct sl_cost_set *set, unsigned w)
{
    store(&set->ways[w].estimate_ns, 0);
    store(&set->ways[w].odd_ns, 0);
    store(&set->ways[w].countdown, 0);
    store(&set->ways[w].step, 0);
    store(&set->ways[w].samples, 0);
    store(&set->ways[w].heat, 1);
}

/* An unused way, or the coldest; all ways of a full set cool down, so that an old hot way yields. */
static unsigned victim(struct sl_cost_set *set)
{
    unsigned coldest = 0;
    for (unsigned w = 0; w < SL_COST_WAYS; w++) {
        if (load(&set->keys[w]) == 0)
            return w;
        if (load(&set->ways[w].heat) < load(&set->ways[coldest].heat))
            coldest = w;
    }
    for (unsigned w = 0; w < SL_COST_WAYS; w++)
        store(&set->ways[w].heat, (uint16_t)(load(&set->ways[w].heat) / 2));
    return coldest;
}

/* -1: another thread was faster; this launch has no entry. */
static int insert(struct sl_cost_set *set, uint64_t key)
{
    unsigned w = victim(set);
    uint64_t old = load(&set->keys[w]);
    if (!atomic_compare_exchange_strong_explicit(&set->keys[w], &old, key, memory_order_relaxed,
                                                 memory_order_relaxed))
        return -1;
    clear_way(set, w);
    return (int)w;
}

static struct sl_cost_guess guess(struct sl_cost *cost, struct sl_cost_set *set, int w)
{
    uint64_t ns = w < 0 ? 0 : load(&set->ways[w].estimate_ns);
    struct sl_cost_guess g = {.ns = ns, .known = ns != 0, .sample = false};
    if (!g.known)
        g.ns = sl_cost_default_ns(cost);
    return g;
}

struct sl_cost_guess sl_cost_launch(struct sl_cost *cost, uint64_t key)
{
    struct sl_cost_set *set = set_of(cost, key);
    int w = find_way(set, key);
    if (w < 0)
        w = insert(set, key);
    struct sl_cost_guess g = guess(cost, set, w);
    if (w < 0)
        return g;
    uint16_t heat = load(&set->ways[w].heat);
    if (heat < UINT16_MAX)
        store(&set->ways[w].heat, (uint16_t)(heat + 1));
    uint32_t countdown = load(&set->ways[w].countdown);
    if (countdown > 0) {
        store(&set->ways[w].countdown, countdown - 1);
        return g;
    }
    /* The next sample is further away even before the result of this one is known: a queue of a thousand launches must
     * not become a thousand samples. */
    uint8_t step = load(&set->ways[w].step);
    /* Not at an even pace: launches of one key may differ, and come in a fixed order. */
    uint32_t pace = 1U << step, early = pace >= 8 ? (uint32_t)(mix(key + heat) % (pace / 4)) : 0;
    store(&set->ways[w].countdown, pace - 1 - early);
    if (step < MAX_STEP)
        store(&set->ways[w].step, (uint8_t)(step + 1));
    g.sample = true;
    return g;
}

struct sl_cost_guess sl_cost_peek(struct sl_cost *cost, uint64_t key)
{
    struct sl_cost_set *set = set_of(cost, key);
    return guess(cost, set, find_way(set, key));
}

/* Half octaves: 2 × log2, plus one in the upper half. */
static unsigned class_of(uint64_t ns)
{
    unsigned log2 = 63U - (unsigned)__builtin_clzll(ns | 1);
    unsigned half = log2 ? (unsigned)(ns >> (log2 - 1)) & 1U : 0;
    unsigned c = 2 * log2 + half;
    return c < SL_COST_CLASSES ? c : SL_COST_CLASSES - 1;
}

static uint64_t class_top_ns(unsigned c)
{
    uint64_t base = 1ULL << (c / 2);
    return c % 2 ? 2 * base : base + base / 2;
}

static void age_seen(struct sl_cost *cost)
{
    uint32_t total = 0;
    for (unsigned c = 0; c < SL_COST_CLASSES; c++) {
        uint32_t n = load(&cost->seen[c]) / 2;
        store(&cost->seen[c], n);
        total += n;
    }
    store(&cost->seen_total, total);
}

static void count_seen(struct sl_cost *cost, uint64_t ns)
{
    atomic_fetch_add_explicit(&cost->seen[class_of(ns)], 1, memory_order_relaxed);
    uint32_t total = atomic_fetch_add_explicit(&cost->seen_total, 1, memory_order_relaxed) + 1;
    uint32_t below = 0;
    for (unsigned c = 0; c < SL_COST_CLASSES; c++) {
        below += load(&cost->seen[c]);
        if (below * 2ULL < total)
            continue;
        uint64_t twice = 2 * class_top_ns(c);
        if (twice < DEFAULT_MIN_NS)
            twice = DEFAULT_MIN_NS;
        store(&cost->default_ns, twice > DEFAULT_MAX_NS ? DEFAULT_MAX_NS : twice);
        break;
    }
    if (total >= SEEN_MAX)
        age_seen(cost);
}

uint64_t sl_cost_default_ns(const struct sl_cost *cost)
{
    uint64_t ns = load(&cost->default_ns);
    return ns ? ns : FIRST_GUESS_NS;
}

static void sample_soon(struct sl_cost_set *set, int w, uint8_t step)
{
    store(&set->ways[w].step, step);
    store(&set->ways[w].countdown, 0);
}

static bool same_size(uint64_t a, uint64_t b)
{
    return a <= 2 * b && b <= 2 * a;
}

/*
 * A sample more than a factor of two off is set aside: another process's slice, a throttled clock, a first launch that
 * loaded code. A second such sample of the same size in a row becomes the new estimate.
 */
static void learn_odd(struct sl_cost_set *set, int w, uint64_t ns)
{
    uint64_t odd = load(&set->ways[w].odd_ns);
    if (odd && same_size(odd, ns)) {
        store(&set->ways[w].estimate_ns, (odd + ns) / 2);
        store(&set->ways[w].odd_ns, 0);
        store(&set->ways[w].samples, 1);
        sample_soon(set, w, 0);
        return;
    }
    store(&set->ways[w].odd_ns, ns);
    uint8_t step = load(&set->ways[w].step);
    sample_soon(set, w, step > 3 ? (uint8_t)(step - 3) : 0);
}

/* The way of a measured key, made if missing; -1: the measurement is broken, or another thread was faster. */
static int measured_way(struct sl_cost *cost, uint64_t key, uint64_t *ns)
{
    if (*ns > MOST_NS)
        return -1;
    *ns = *ns < LEAST_NS ? LEAST_NS : *ns;
    count_seen(cost, *ns);
    struct sl_cost_set *set = set_of(cost, key);
    int w = find_way(set, key);
    return w < 0 ? insert(set, key) : w;
}

/* A mean at first; then a moving mean, by one part in so many. */
static void move_estimate(struct sl_cost_set *set, int w, uint64_t ns, uint8_t most)
{
    uint64_t estimate = load(&set->ways[w].estimate_ns);
    uint8_t samples = load(&set->ways[w].samples);
    int64_t weight = samples < most ? samples + 1 : most;
    int64_t change = estimate ? ((int64_t)ns - (int64_t)estimate) / weight : (int64_t)ns;
    store(&set->ways[w].estimate_ns, (uint64_t)((int64_t)estimate + change));
    store(&set->ways[w].odd_ns, 0);
    if (samples < UINT8_MAX)
        store(&set->ways[w].samples, (uint8_t)(samples + 1));
    if (samples + 1U < SURE_SAMPLES)
        sample_soon(set, w, 0);
}

void sl_cost_learn(struct sl_cost *cost, uint64_t key, uint64_t measured_ns)
{
    struct sl_cost_set *set = set_of(cost, key);
    int w = measured_way(cost, key, &measured_ns);
    if (w < 0)
        return;
    uint64_t estimate = load(&set->ways[w].estimate_ns);
    if (estimate != 0 && !same_size(estimate, measured_ns))
        learn_odd(set, w, measured_ns);
    else
        move_estimate(set, w, measured_ns, MOVING_SAMPLES);
}

void sl_cost_learn_mean(struct sl_cost *cost, uint64_t key, uint64_t measured_ns)
{
    struct sl_cost_set *set = set_of(cost, key);
    int w = measured_way(cost, key, &measured_ns);
    if (w < 0)
        return;
    /* One of the first samples may have been disturbed: a mean would keep that error for long. */
    if (load(&set->ways[w].samples) <= SURE_SAMPLES &&
        measured_ns < load(&set->ways[w].estimate_ns) / 2)
        store(&set->ways[w].samples, 0);
    move_estimate(set, w, measured_ns, MEAN_SAMPLES);
}

void sl_cost_learn_bound(struct sl_cost *cost, uint64_t key, uint64_t measured_ns)
{
    struct sl_cost_set *set = set_of(cost, key);
    int w = measured_way(cost, key, &measured_ns);
    if (w < 0 || load(&set->ways[w].samples) > 0)
        return;
    uint64_t estimate = load(&set->ways[w].estimate_ns);
    if (estimate == 0 || measured_ns < estimate)
        store(&set->ways[w].estimate_ns, measured_ns);
    sample_soon(set, w, 0);
}

void sl_cost_forget(struct sl_cost *cost, uint64_t key)
{
    struct sl_cost_set *set = set_of(cost, key);
    int w = find_way(set, key);
    if (w < 0)
        return;
    store(&set->keys[w], 0);
    clear_way(set, (unsigned)w);
}
