/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/mig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint32_t ci_slices[SL_SIM_MIG_CI_PROFILES] = {1, 2, 3, 4, 7};

int sl_sim_mig_row_by_nvml(const struct sl_sim_profile *p, uint32_t nvml_profile)
{
    for (size_t i = 0; i < p->mig_count; i++)
        if (p->mig[i].nvml_profile == nvml_profile)
            return (int)i;
    return -1;
}

int sl_sim_mig_row_by_id(const struct sl_sim_profile *p, uint32_t id)
{
    for (size_t i = 0; i < p->mig_count; i++)
        if (p->mig[i].id == id)
            return (int)i;
    return -1;
}

void sl_sim_mig_name(const struct sl_sim_profile *p, size_t row, char *buf, size_t size)
{
    /* The driver counts in eighths of the card's whole GiB, rounded half up. */
    uint64_t total_gib = (p->memory_total_bytes + (1ULL << 30) - 1) >> 30;
    uint64_t sixteenths = 2 * total_gib * p->mig[row].size;
    uint64_t gb = (sixteenths + SL_SIM_MIG_SLICES) / (2ULL * SL_SIM_MIG_SLICES);
    (void)snprintf(buf, size, "%ug.%llugb%s", p->mig[row].gpu_slices, (unsigned long long)gb,
                   p->mig[row].suffix);
}

void sl_sim_mig_ci_name(const struct sl_sim_profile *p, size_t row, uint32_t slices, char *buf,
                        size_t size)
{
    char gi[32];
    sl_sim_mig_name(p, row, gi, sizeof(gi));
    if (slices == p->mig[row].gpu_slices)
        (void)snprintf(buf, size, "%s", gi);
    else
        (void)snprintf(buf, size, "%uc.%s", slices, gi);
}

static uint32_t span(uint32_t start, uint32_t size)
{
    return ((1u << size) - 1) << start;
}

static uint32_t occupied(const struct sl_sim_mig_state *s)
{
    uint32_t mask = 0;
    for (size_t i = 0; i < SL_SIM_MIG_MAX_GI; i++)
        if (s->gi[i].used)
            mask |= span(s->gi[i].start, s->gi[i].size);
    return mask;
}

static uint32_t instances_of(const struct sl_sim_mig_state *s, size_t row)
{
    uint32_t n = 0;
    for (size_t i = 0; i < SL_SIM_MIG_MAX_GI; i++)
        if (s->gi[i].used && s->gi[i].profile == row)
            n++;
    return n;
}

uint32_t sl_sim_mig_room(const struct sl_sim_profile *p, const struct sl_sim_mig_state *s,
                         size_t row)
{
    const struct sl_sim_mig_profile *m = &p->mig[row];
    uint32_t taken = occupied(s), existing = instances_of(s, row), n = 0;
    for (uint32_t start = 0; start < SL_SIM_MIG_SLICES; start++)
        if ((m->starts >> start & 1) && !(taken & span(start, m->size)))
            n++; /* placements of one profile never overlap each other */
    uint32_t left = existing < m->max_instances ? m->max_instances - existing : 0;
    return n < left ? n : left;
}

/* Instances are nodes of a binary tree over the eight slices, upper half first: the whole card is
 * 0, the halves 1 and 2, the quarters 3–6, the eighths 7–14. */
static uint32_t gi_id(uint32_t start, uint32_t size)
{
    return SL_SIM_MIG_SLICES / size - 1 +
           (start + SL_SIM_MIG_SLICES / 2) % SL_SIM_MIG_SLICES / size;
}

int sl_sim_mig_create_gi(const struct sl_sim_profile *p, struct sl_sim_mig_state *s, size_t row,
                         int start)
{
    if (row >= p->mig_count)
        return -EINVAL;
    const struct sl_sim_mig_profile *m = &p->mig[row];
    if (start >= SL_SIM_MIG_SLICES || (start >= 0 && !(m->starts >> start & 1)))
        return -EINVAL;
    if (sl_sim_mig_room(p, s, row) == 0)
        return -ENOSPC;
    uint32_t taken = occupied(s);
    int chosen = -1;
    for (uint32_t k = 0; k < SL_SIM_MIG_SLICES && chosen < 0; k++) {
        uint32_t at = (k + SL_SIM_MIG_SLICES / 2) % SL_SIM_MIG_SLICES;
        if (start >= 0 && at != (uint32_t)start)
            continue;
        if ((m->starts >> at & 1) && !(taken & span(at, m->size)))
            chosen = (int)at;
    }
    if (chosen < 0)
        return -ENOSPC;
    for (int slot = 0; slot < SL_SIM_MIG_MAX_GI; slot++) {
        if (s->gi[slot].used)
            continue;
        s->gi[slot] = (struct sl_sim_mig_gi){
            .used = 1,
            .id = gi_id((uint32_t)chosen, m->size),
            .profile = (uint32_t)row,
            .start = (uint32_t)chosen,
            .size = m->size,
            .generation = ++s->generation,
        };
        return slot;
    }
    return -ENOSPC;
}

int sl_sim_mig_destroy_gi(struct sl_sim_mig_state *s, size_t slot)
{
    for (size_t i = 0; i < SL_SIM_MIG_MAX_CI; i++)
        if (s->gi[slot].ci[i].used)
            return -EBUSY;
    s->gi[slot].used = 0;
    return 0;
}

uint32_t sl_sim_mig_ci_slices(uint32_t ci_profile)
{
    return ci_profile < SL_SIM_MIG_CI_PROFILES ? ci_slices[ci_profile] : 0;
}

static uint32_t ci_occupied(const struct sl_sim_mig_gi *gi)
{
    uint32_t mask = 0;
    for (size_t i = 0; i < SL_SIM_MIG_MAX_CI; i++)
        if (gi->ci[i].used)
            mask |= span(gi->ci[i].start, gi->ci[i].slices);
    return mask;
}

/* First free start at or after `from` for `slices` of `total`; -1 when there is none. Compute
 * instances start at multiples of their size, except the three-slice ones (0 and 4 of seven). */
static int ci_fit(uint32_t taken, uint32_t slices, uint32_t total, uint32_t from)
{
    uint32_t step = slices == 3 ? 4 : slices;
    for (uint32_t at = 0; at + slices <= total; at += step)
        if (at >= from && !(taken & span(at, slices)))
            return (int)at;
    return -1;
}

uint32_t sl_sim_mig_ci_room(const struct sl_sim_profile *p, const struct sl_sim_mig_gi *gi,
                            uint32_t ci_profile)
{
    uint32_t slices = sl_sim_mig_ci_slices(ci_profile), total = p->mig[gi->profile].gpu_slices;
    uint32_t taken = ci_occupied(gi), n = 0;
    if (slices == 0 || slices > total)
        return 0;
    for (int at = ci_fit(taken, slices, total, 0); at >= 0;
         at = ci_fit(taken, slices, total, (uint32_t)at + slices))
        n++;
    return n;
}

int sl_sim_mig_create_ci(const struct sl_sim_profile *p, struct sl_sim_mig_state *s, size_t slot,
                         uint32_t ci_profile, int start)
{
    struct sl_sim_mig_gi *gi = &s->gi[slot];
    uint32_t slices = sl_sim_mig_ci_slices(ci_profile), total = p->mig[gi->profile].gpu_slices;
    if (slices == 0 || slices > total)
        return -EINVAL;
    uint32_t taken = ci_occupied(gi);
    int at = ci_fit(taken, slices, total, start < 0 ? 0 : (uint32_t)start);
    if (start >= 0 && ci_fit(0, slices, total, (uint32_t)start) != start)
        return -EINVAL;
    if (at < 0 || (start >= 0 && at != start))
        return -ENOSPC;
    for (uint32_t i = 0; i < SL_SIM_MIG_MAX_CI; i++) {
        if (gi->ci[i].used)
            continue;
        /* Ids are the lowest free ones, so a slot is its id. */
        gi->ci[i] = (struct sl_sim_mig_ci){
            .used = 1,
            .id = i,
            .profile = ci_profile,
            .start = (uint32_t)at,
            .slices = slices,
            .generation = ++s->generation,
        };
        return (int)i;
    }
    return -ENOSPC;
}

void sl_sim_mig_destroy_ci(struct sl_sim_mig_state *s, size_t slot, size_t ci_slot)
{
    s->gi[slot].ci[ci_slot].used = 0;
}

uint32_t sl_sim_mig_ci_sms(const struct sl_sim_profile *p, size_t row, uint32_t slices)
{
    return p->mig[row].sm_count * slices / p->mig[row].gpu_slices;
}

void sl_sim_mig_uuid(const struct sl_sim_device *dev, const struct sl_sim_mig_gi *gi,
                     const struct sl_sim_mig_ci *ci, uint8_t uuid[16])
{
    uint64_t gi_key = (uint64_t)gi->id << 32 | gi->profile;
    uint64_t ci_key = (uint64_t)ci->id << 32 | ci->start << 8 | ci->slices;
    sl_sim_hash128(dev->uuid_text, gi_key, ci_key, uuid);
}
