/* SPDX-License-Identifier: Apache-2.0 */
/* What-if: the same pods on the same cluster, with GPUs shared another way or in two dimensions. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/xalloc.h"
#include "cli/simulate.h"

/* The smallest instance with that much compute, by sevenths of a card. */
static uint8_t mig_for(unsigned milli)
{
    static const uint8_t profiles[] = {SL_PLACE_MIG_1G, SL_PLACE_MIG_2G, SL_PLACE_MIG_3G,
                                       SL_PLACE_MIG_4G};
    for (unsigned g = 0; g < sizeof(profiles); g++)
        if (milli * 7 <= 1000 * (g + 1))
            return profiles[g];
    return SL_PLACE_MIG_7G;
}

static bool is_share(const struct sl_place_request *r)
{
    return r->gpu_count == 1 && !r->mig && r->cores_permille < SL_PLACE_WHOLE;
}

static void apply_strategy(const struct sim_options *o, struct sl_place_request *r)
{
    if (!is_share(r))
        return;
    if (o->strategy == SIM_EXCLUSIVE) {
        r->cores_permille = SL_PLACE_WHOLE;
        r->gpu_memory_permille = 0;
    } else if (o->strategy == SIM_SLOTS) {
        unsigned slots = (r->cores_permille * o->slots + 999) / 1000;
        r->cores_permille =
            (uint16_t)(slots == o->slots ? SL_PLACE_WHOLE : slots * (1000 / o->slots));
    } else if (o->strategy == SIM_MIG) {
        r->mig = mig_for(r->cores_permille);
        r->cores_permille = 0;
        r->gpu_memory_permille = 0;
        r->gpu_memory_mib = 0;
    }
}

static void apply_memory(const struct sim_options *o, struct sim_pods *pods)
{
    if (o->memory == SIM_MEMORY_NONE)
        return;
    uint16_t *shares = sl_xcalloc(pods->count, sizeof(*shares));
    size_t count = 0;
    for (size_t i = 0; i < pods->count; i++)
        if (is_share(&pods->pods[i].request))
            shares[count++] = pods->pods[i].request.cores_permille;
    uint64_t rng = 1; /* a property of the pods, so the same for every seed */
    for (size_t i = 0; i < pods->count; i++) {
        struct sl_place_request *r = &pods->pods[i].request;
        if (!is_share(r))
            continue;
        r->gpu_memory_mib = 0;
        r->gpu_memory_permille =
            o->memory == SIM_MEMORY_SAME ? r->cores_permille : shares[sl_random(&rng) % count];
    }
    free(shares);
}

void sl_sim_transform(const struct sim_options *o, const struct sim_cluster *cluster,
                      const struct sim_pods *pods, struct sim_cluster *ret_cluster,
                      struct sim_pods *ret_pods)
{
    struct sim_cluster c = *cluster;
    struct sim_pods p = *pods;
    c.nodes = sl_xmalloc(c.count * sizeof(*c.nodes));
    p.pods = sl_xmalloc(p.count * sizeof(*p.pods));
    memcpy(c.nodes, cluster->nodes, c.count * sizeof(*c.nodes));
    memcpy(p.pods, pods->pods, p.count * sizeof(*p.pods));
    apply_memory(o, &p);
    for (size_t i = 0; i < p.count; i++)
        apply_strategy(o, &p.pods[i].request);
    for (size_t i = 0; o->strategy == SIM_MIG && i < c.count; i++)
        for (unsigned g = 0; g < c.nodes[i].gpu_count; g++)
            c.nodes[i].gpus[g].mig = true;
    *ret_cluster = c;
    *ret_pods = p;
}
