/* SPDX-License-Identifier: Apache-2.0 */
/* The rules for slices: versions, ranges of shares, the order of MIG places. */
#include "agent/dra/slices.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB            (1ULL << 20)
/* A context does not fit into less. */
#define MEMORY_MIN_MIB 256

void sl_slices_version(const char *version, char *buf, size_t size)
{
    unsigned long part[3] = {0};
    const char *p = version;
    for (size_t i = 0; i < 3 && isdigit((unsigned char)*p); i++) {
        char *end;
        part[i] = strtoul(p, &end, 10);
        p = *end == '.' ? end + 1 : end;
    }
    (void)snprintf(buf, size, "%lu.%lu.%lu", part[0], part[1], part[2]);
}

void sl_slices_bus_id(const char *nvml, char *buf, size_t size)
{
    const char *colon = strchr(nvml, ':');
    size_t domain = colon ? (size_t)(colon - nvml) : 0;
    const char *from = domain > 4 ? nvml + domain - 4 : nvml;
    size_t n = 0;
    for (; *from && n + 1 < size; from++)
        buf[n++] = (char)tolower((unsigned char)*from);
    buf[n] = '\0';
}

const char *sl_slices_architecture(int cc_major, int cc_minor)
{
    switch (cc_major) {
    case 3:
        return "Kepler";
    case 5:
        return "Maxwell";
    case 6:
        return "Pascal";
    case 7:
        return cc_minor >= 5 ? "Turing" : "Volta";
    case 8:
        return cc_minor == 9 ? "Ada Lovelace" : "Ampere";
    case 9:
        return "Hopper";
    case 10:
    case 11:
    case 12:
        return "Blackwell";
    default:
        return "";
    }
}

static uint64_t whole_steps(uint64_t min, uint64_t step, uint64_t total)
{
    return step && total > min ? min + (total - min) / step * step : total;
}

struct sl_share_policy_range sl_slices_range(const struct sl_config_fractional *fractional,
                                             uint64_t memory_total_bytes)
{
    const struct sl_config_fractional none = {0};
    const struct sl_config_fractional *f = fractional ? fractional : &none;
    uint64_t total = memory_total_bytes / MIB;
    struct sl_share_policy_range r = {
        .memory_min_mib = (f->memory_min_bytes + MIB - 1) / MIB,
        .memory_step_mib = (f->memory_step_bytes + MIB - 1) / MIB,
        .cores_min = f->cores_min ? f->cores_min : 1,
        .cores_step = f->cores_step ? f->cores_step : 1,
    };
    if (r.memory_min_mib == 0)
        r.memory_min_mib = MEMORY_MIN_MIB;
    if (r.memory_min_mib > total)
        r.memory_min_mib = total;
    /* The API wants at least one step above the minimum. */
    if (r.memory_min_mib + r.memory_step_mib > total)
        r.memory_step_mib = 0;
    if (r.cores_min > 100)
        r.cores_min = 100;
    if (r.cores_min + r.cores_step > 100)
        r.cores_step = 0;
    r.memory_max_mib = whole_steps(r.memory_min_mib, r.memory_step_mib, total);
    r.cores_max = (uint32_t)whole_steps(r.cores_min, r.cores_step, 100);
    return r;
}

static bool overlap(const struct sl_gpu_mig_place *a, const struct sl_gpu_mig_place *b)
{
    return a->start < b->start + b->size && b->start < a->start + a->size;
}

/* How much a place blocks: the sizes of all places of other profiles that it overlaps. */
static uint64_t in_the_way(const struct sl_gpu_mig_profile *all, size_t count, size_t which,
                           const struct sl_gpu_mig_place *at)
{
    uint64_t cost = 0;
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < all[p].placement_count && p != which; i++)
            if (overlap(at, &all[p].placements[i]))
                cost += all[p].placements[i].size;
    return cost;
}

void sl_slices_mig_order(const struct sl_gpu_mig_profile *all, size_t count, size_t which,
                         uint32_t order[SL_GPU_MIG_PLACEMENTS])
{
    uint64_t cost[SL_GPU_MIG_PLACEMENTS];
    uint32_t n = all[which].placement_count;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t c = in_the_way(all, count, which, &all[which].placements[i]);
        uint32_t at = i;
        for (; at > 0 && cost[at - 1] > c; at--) { /* stable: equal costs keep their order */
            cost[at] = cost[at - 1];
            order[at] = order[at - 1];
        }
        cost[at] = c;
        order[at] = i;
    }
}
