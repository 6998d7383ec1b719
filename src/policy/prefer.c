/* SPDX-License-Identifier: Apache-2.0 */
/* Whole GPUs: tries every set where there are few; else greedy, then improved by exchanges. */
#include "policy/prefer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "policy/errors.h"

enum {
    /* One NVLink outweighs any number of common NUMA nodes in sets of the sizes that exist. */
    LINK_WORTH = 1024,
    NUMA_WORTH = 1,
    EXACT_POOL = 16,       /* GPUs in all … */
    EXACT_SETS = 20000,    /* … and sets of them, up to which every set is tried */
    SEEDS = 64,            /* greedy starts */
    DEGREE_POOL = 1024,    /* beyond it, the rest left behind is not weighed */
    PAIRS_BUDGET = 4000000 /* examined pairs: some ten milliseconds */
};

/* The GPUs to choose from: pool[0 … fixed-1] are in every set. */
struct choice {
    const struct sl_prefer_topology *topology;
    size_t *pool, count, fixed, size;
    uint64_t *degree; /* worth of a GPU's ties to the whole pool: lost to the rest when taken */
    uint64_t budget;
};

/* A set is better when it is worth more, then when it takes fewer ties from the rest. */
struct worth {
    uint64_t score, degree;
};

static bool better(struct worth a, struct worth b)
{
    return a.score != b.score ? a.score > b.score : a.degree < b.degree;
}

static uint64_t pair(const struct sl_prefer_topology *t, size_t a, size_t b)
{
    uint64_t worth = t->links ? (uint64_t)t->links[a * t->gpu_count + b] * LINK_WORTH : 0;
    if (t->numa && t->numa[a] >= 0 && t->numa[a] == t->numa[b])
        worth += NUMA_WORTH;
    return worth;
}

/* `set` holds positions in the pool. */
static struct worth worth_of(const struct choice *c, const size_t *set)
{
    struct worth w = {0, 0};
    for (size_t i = 0; i < c->size; i++) {
        w.degree += c->degree[set[i]];
        for (size_t j = 0; j < i; j++)
            w.score += pair(c->topology, c->pool[set[i]], c->pool[set[j]]);
    }
    return w;
}

/* Stops counting at the limit: the numbers grow beyond any integer. */
static size_t sets_of(size_t n, size_t k, size_t limit)
{
    size_t sets = 1;
    for (size_t i = 1; i <= k && sets <= limit; i++)
        sets = sets * (n - k + i) / i;
    return sets;
}

/* The next set in lexicographic order; false after the last. */
static bool next_set(const struct choice *c, size_t *set)
{
    size_t i = c->size;
    while (i > c->fixed && set[i - 1] == c->count - c->size + i - 1)
        i--;
    if (i == c->fixed)
        return false;
    set[i - 1]++;
    for (; i < c->size; i++)
        set[i] = set[i - 1] + 1;
    return true;
}

static void choose_exact(const struct choice *c, size_t *best)
{
    size_t set[EXACT_POOL] = {0};
    for (size_t i = 0; i < c->size; i++)
        set[i] = best[i] = i;
    struct worth best_worth = worth_of(c, set);
    while (next_set(c, set)) {
        struct worth w = worth_of(c, set);
        if (better(w, best_worth)) {
            best_worth = w;
            memcpy(best, set, c->size * sizeof(*set));
        }
    }
}

/* --- many GPUs ------------------------------------------------------------------------------ */

/* A set that grows: `tie` is each pool member's worth to it. */
struct growing {
    size_t *set, count;
    bool *in;
    uint64_t *tie;
};

static bool spend(struct choice *c, size_t pairs)
{
    if (c->budget < pairs)
        return false;
    c->budget -= pairs;
    return true;
}

static void add(struct choice *c, struct growing *g, size_t member)
{
    g->set[g->count++] = member;
    g->in[member] = true;
    if (!spend(c, c->count))
        return; /* then the ties are not read any more either */
    for (size_t i = 0; i < c->count; i++)
        g->tie[i] += i == member ? 0 : pair(c->topology, c->pool[i], c->pool[member]);
}

static void exchange(const struct choice *c, struct growing *g, size_t at, size_t member)
{
    size_t old = g->set[at];
    g->set[at] = member;
    g->in[old] = false;
    g->in[member] = true;
    for (size_t i = 0; i < c->count; i++) {
        g->tie[i] -= i == old ? 0 : pair(c->topology, c->pool[i], c->pool[old]);
        g->tie[i] += i == member ? 0 : pair(c->topology, c->pool[i], c->pool[member]);
    }
}

/* The pool member with the strongest ties to the set; of equals, the one least needed elsewhere. */
static size_t strongest(const struct choice *c, const struct growing *g)
{
    size_t best = SIZE_MAX;
    for (size_t i = c->fixed; i < c->count; i++) {
        if (g->in[i])
            continue;
        struct worth w = {g->tie[i], c->degree[i]};
        if (best == SIZE_MAX || better(w, (struct worth){g->tie[best], c->degree[best]}))
            best = i;
    }
    return best;
}

/* Exchanges one member for one outside while that makes the set worth more. */
static void improve(struct choice *c, struct growing *g)
{
    bool found = true;
    while (found && spend(c, (c->size - c->fixed) * c->count)) {
        uint64_t best_gain = 0;
        size_t best_at = 0, best_in = 0;
        for (size_t at = c->fixed; at < c->size; at++)
            for (size_t i = c->fixed; i < c->count; i++) {
                if (g->in[i])
                    continue;
                uint64_t gain = g->tie[i] - pair(c->topology, c->pool[i], c->pool[g->set[at]]);
                uint64_t loss = g->tie[g->set[at]];
                if (gain > loss && gain - loss > best_gain) {
                    best_gain = gain - loss;
                    best_at = at;
                    best_in = i;
                }
            }
        found = best_gain > 0;
        if (found)
            exchange(c, g, best_at, best_in);
    }
}

/* One greedy run from a first member (SIZE_MAX: from the fixed ones alone). */
static void grow(struct choice *c, struct growing *g, size_t seed)
{
    memset(g->in, 0, c->count * sizeof(*g->in));
    memset(g->tie, 0, c->count * sizeof(*g->tie));
    g->count = 0;
    for (size_t i = 0; i < c->fixed; i++)
        add(c, g, i);
    if (seed != SIZE_MAX)
        add(c, g, seed);
    while (g->count < c->size && spend(c, c->count))
        add(c, g, strongest(c, g));
    /* Out of budget: take any. */
    for (size_t i = c->fixed; g->count < c->size; i++)
        if (!g->in[i]) {
            g->in[i] = true;
            g->set[g->count++] = i;
        }
    if (c->budget)
        improve(c, g);
}

static void choose_greedy(struct choice *c, size_t *best)
{
    SL_CLEANUP(free) size_t *set = sl_xcalloc(c->size, sizeof(*set));
    SL_CLEANUP(free) bool *in = sl_xcalloc(c->count, sizeof(*in));
    SL_CLEANUP(free) uint64_t *tie = sl_xcalloc(c->count, sizeof(*tie));
    struct growing g = {.set = set, .in = in, .tie = tie};
    struct worth best_worth = {0, 0};
    size_t free_count = c->count - c->fixed;
    size_t seeds = c->fixed ? 1 : free_count < SEEDS ? free_count : SEEDS;
    for (size_t s = 0; s < seeds && (s == 0 || c->budget); s++) {
        grow(c, &g, c->fixed ? SIZE_MAX : s);
        bool weighed = spend(c, c->size * c->size);
        struct worth w = weighed ? worth_of(c, set) : (struct worth){0, 0};
        if (s == 0 || better(w, best_worth)) {
            best_worth = w;
            memcpy(best, set, c->size * sizeof(*set));
        }
    }
}

/* --------------------------------------------------------------------------------------------- */

/* The pool: `must`, then the other available GPUs. */
static int fill_pool(struct choice *c, const size_t *available, size_t available_count,
                     const size_t *must, size_t must_count, struct sl_err *err)
{
    SL_CLEANUP(free) bool *seen = sl_xcalloc(c->topology->gpu_count + 1, sizeof(*seen));
    for (size_t i = 0; i < must_count + available_count; i++) {
        size_t gpu = i < must_count ? must[i] : available[i - must_count];
        if (gpu >= c->topology->gpu_count)
            return sl_err_set(err, -EINVAL, SL_E_PREFER_NO_GPU, gpu, c->topology->gpu_count);
        if (!seen[gpu])
            c->pool[c->count++] = gpu;
        else if (i < must_count)
            return sl_err_set(err, -EINVAL, SL_E_PREFER_TWICE, gpu);
        seen[gpu] = true;
    }
    c->fixed = must_count;
    return 0;
}

static void fill_degrees(struct choice *c)
{
    for (size_t i = 0; c->count <= DEGREE_POOL && i < c->count; i++)
        for (size_t j = 0; j < c->count; j++)
            if (i != j)
                c->degree[i] += pair(c->topology, c->pool[i], c->pool[j]);
}

static int compare_positions(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

int sl_prefer_whole(const struct sl_prefer_topology *topology, const size_t *available,
                    size_t available_count, const size_t *must, size_t must_count, size_t size,
                    size_t *ret, struct sl_err *err)
{
    size_t most = available_count + must_count;
    SL_CLEANUP(free) size_t *pool = sl_xcalloc(most + 1, sizeof(*pool));
    SL_CLEANUP(free) uint64_t *degree = sl_xcalloc(most + 1, sizeof(*degree));
    struct choice c = {
        .topology = topology, .pool = pool, .size = size, .degree = degree, .budget = PAIRS_BUDGET};
    int rc = fill_pool(&c, available, available_count, must, must_count, err);
    if (rc < 0)
        return rc;
    if (size < c.fixed || size > c.count)
        return sl_err_set(err, -ERANGE, SL_E_PREFER_COUNT, size, c.fixed, c.count);
    if (size == 0)
        return 0;
    SL_CLEANUP(free) size_t *best = sl_xcalloc(size, sizeof(*best));
    fill_degrees(&c);
    if (c.count <= EXACT_POOL &&
        sets_of(c.count - c.fixed, size - c.fixed, EXACT_SETS) <= EXACT_SETS)
        choose_exact(&c, best);
    else
        choose_greedy(&c, best);
    qsort(best + c.fixed, size - c.fixed, sizeof(*best), compare_positions);
    for (size_t i = 0; i < size; i++)
        ret[i] = pool[best[i]];
    return 0;
}
