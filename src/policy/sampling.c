/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sampling.h"

#include "policy/cost.h"
#include "policy/times.h"

/* The overhead of a sample, until it is known. */
#define ADDED_NS      3000U
#define MOST_ADDED_NS (20 * SL_TIME_US)
/* Our own memsets take no longer, unless another process's slice came between. */
#define MOST_OWN_NS   (200 * SL_TIME_US)
/* A sample whose stream was not held says little about a kernel shorter than this. */
#define HELD_BELOW_NS (20 * SL_TIME_MS)
/* Another process's slice makes a sample longer by two switches of 160 us at least. */
#define ODD_LEAST_NS  (250 * SL_TIME_US)
/* More than one in four: each odd sample counts three up, the others one down. */
#define ODD_WEIGHT    3U
#define ODD_BELIEVED  24U
#define ODD_MOST      32U
/* The mean of all launches is of so many samples. */
#define MEAN_OF       16U

/* Means, as for kernels: an interruption makes a sample longer, and such a sample is left out. */
void sl_sampling_own(struct sl_sampling *s, uint32_t count, uint64_t ns)
{
    uint64_t *mean_ns = count == 1 ? &s->one_ns : &s->many_ns;
    uint32_t *seen = count == 1 ? &s->one_seen : &s->many_seen;
    if (ns > MOST_OWN_NS || (*mean_ns && ns > *mean_ns + *mean_ns / 4))
        return;
    if (!*mean_ns || ns < *mean_ns - *mean_ns / 4)
        *seen = 0; /* earlier samples were disturbed */
    (*seen)++;
    *mean_ns = *seen == 1 ? ns : (*mean_ns * (*seen - 1) + ns) / *seen;
    if (!s->one_ns || s->many_ns <= s->one_ns)
        return;
    uint64_t each = (s->many_ns - s->one_ns) / (SL_SAMPLING_MANY - 1);
    uint64_t added = s->one_ns > each ? s->one_ns - each : 1;
    if (added <= MOST_ADDED_NS)
        s->added_ns = added;
}

/* An interruption is rare for short kernels. So a sample that is longer by one counts only if many are: then the kernel
 * itself varies. */
static bool is_odd(struct sl_sampling *s, uint64_t key, uint64_t ns, uint64_t usual_ns)
{
    uint8_t *many = &s->odd[key % SL_SAMPLING_KEYS];
    if (ns <= usual_ns + usual_ns / 4 + ODD_LEAST_NS) {
        *many = *many ? (uint8_t)(*many - 1) : 0;
        return false;
    }
    *many = *many < ODD_MOST ? (uint8_t)(*many + ODD_WEIGHT) : *many;
    return *many < ODD_BELIEVED;
}

void sl_sampling_learn(struct sl_sampling *s, struct sl_cost *cost, uint64_t key, uint64_t ns,
                       bool held)
{
    uint64_t added = s->added_ns ? s->added_ns : ADDED_NS;
    /* Keep at least a small rest: events tell time in steps of half a microsecond. */
    ns = ns > added + ns / 8 ? ns - added : ns / 8 + 1;
    struct sl_cost_guess guess = sl_cost_peek(cost, key);
    if (!held && ns < HELD_BELOW_NS) {
        sl_cost_learn_bound(cost, key, ns);
        return;
    }
    if (guess.known && is_odd(s, key, ns, guess.ns))
        return;
    if (held)
        sl_cost_learn_mean(cost, key, ns);
    else
        sl_cost_learn(cost, key, ns);
    s->mean_ns = s->mean_ns ? (s->mean_ns * (MEAN_OF - 1) + ns) / MEAN_OF : ns;
}
