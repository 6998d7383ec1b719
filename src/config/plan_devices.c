/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices that a node can offer, and their names before sharing. Nothing here is fatal: a device that cannot be
 * offered is left out with a warning, and the rest of the node goes on working.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "config/errors.h"
#include "config/plan_internal.h"
#include "config/schema.h"

#define GPU_NAME SL_DOMAIN "gpu"

/* '*' is any text, '?' any character. */
bool sl_config_match(const char *pattern, const char *text)
{
    const char *star = NULL, *retry = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            retry = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++retry;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

static const char *by_pattern(const struct sl_config_list *list, const char *text)
{
    const struct sl_config_pattern *patterns = list->item;
    for (size_t i = 0; i < list->count; i++)
        if (sl_config_match(patterns[i].pattern, text))
            return patterns[i].name;
    return NULL;
}

/* "1c.3g.71gb": a compute instance that is only a part of its GPU instance. */
static bool is_partial(const char *profile)
{
    size_t digits = strspn(profile, "0123456789");
    return digits > 0 && profile[digits] == 'c';
}

static const struct sl_gpu_mig_info *mig_of(const struct sl_planning *p, size_t gpu, size_t mig)
{
    return &p->inv->gpu[gpu].mig[mig].info;
}

static void keep(struct sl_planning *p, size_t gpu, size_t mig, const char *name)
{
    struct sl_found *f = &p->found[p->found_count++];
    *f = (struct sl_found){.gpu = gpu, .mig = mig};
    (void)snprintf(f->name, sizeof(f->name), "%s", name);
}

/* NVIDIA's name: nvidia.com/mig-1g.18gb, with "+me" as ".me". */
static void mixed_name(const char *profile, char *buf, size_t size)
{
    (void)snprintf(buf, size, SL_DOMAIN "mig-%s", profile);
    for (char *c = buf; *c; c++)
        *c = *c == '+' ? '.' : *c;
}

/* `resource`: the name of the resource; NULL: the type's own, "mixed" name. */
static void keep_mig(struct sl_planning *p, size_t gpu, size_t mig, const char *resource)
{
    const char *profile = mig_of(p, gpu, mig)->profile;
    char name[SL_RESOURCE_NAME_SIZE];
    const char *named = by_pattern(&p->config->migs, profile);
    mixed_name(profile, name, sizeof(name));
    if (named || resource)
        keep(p, gpu, mig, named ? named : resource);
    else if (is_partial(profile))
        sl_plan_warn(p, SL_E_WARN_MIG_PART, gpu, mig, profile);
    else if (strlen(name) > SL_RESOURCE_NAME_MAX)
        sl_plan_warn(p, SL_E_WARN_MIG_PROFILE, gpu, profile, mig);
    else
        keep(p, gpu, mig, name);
}

/* Is the card in MIG mode, and is migStrategy not `none`? */
static bool is_mig(const struct sl_planning *p, size_t gpu)
{
    return p->inv->gpu[gpu].info.mig_enabled && p->config->mig_strategy != SL_MIG_NONE;
}

static bool same_type(const struct sl_gpu_mig_info *a, const struct sl_gpu_mig_info *b)
{
    return strcmp(a->profile, b->profile) == 0;
}

static size_t most_devices(const struct sl_inventory *inv)
{
    size_t n = 1;
    for (size_t g = 0; g < inv->gpu_count; g++)
        n += 1 + inv->gpu[g].mig_count;
    return n;
}

/* Under `single`, nvidia.com/gpu is one kind of device: the kind that this node has most of; of equals, the first
 * found. NULL: there are no MIG devices without a name of their own. */
static const struct sl_gpu_mig_info *single_type(const struct sl_planning *p, bool *ret_others)
{
    struct {
        const struct sl_gpu_mig_info *info;
        size_t count;
    } *types = sl_xcalloc(most_devices(p->inv), sizeof(*types));
    size_t n = 0, best = 0;
    for (size_t g = 0; g < p->inv->gpu_count; g++)
        for (size_t m = 0; is_mig(p, g) && m < p->inv->gpu[g].mig_count; m++) {
            const struct sl_gpu_mig_info *info = mig_of(p, g, m);
            size_t t = 0;
            if (by_pattern(&p->config->migs, info->profile))
                continue;
            while (t < n && !same_type(types[t].info, info))
                t++;
            n += t == n;
            types[t].info = types[t].info ? types[t].info : info;
            types[t].count++;
        }
    for (size_t t = 1; t < n; t++)
        best = types[t].count > types[best].count ? t : best;
    const struct sl_gpu_mig_info *type = types[best].info;
    free(types);
    *ret_others = n > 1;
    return type;
}

static void collect_migs(struct sl_planning *p, size_t gpu, const struct sl_gpu_mig_info *type)
{
    const struct sl_inv_gpu *g = &p->inv->gpu[gpu];
    if (g->mig_count == 0)
        sl_plan_warn(p, SL_E_WARN_MIG_EMPTY, gpu);
    for (size_t m = 0; m < g->mig_count; m++) {
        if (strlen(g->mig[m].info.uuid) > SL_PLAN_UUID_MAX)
            sl_plan_warn(p, SL_E_WARN_MIG_UUID, gpu, m);
        else
            keep_mig(p, gpu, m, type && same_type(&g->mig[m].info, type) ? GPU_NAME : NULL);
    }
}

static void collect_whole(struct sl_planning *p, size_t gpu, const struct sl_gpu_mig_info *type)
{
    const struct sl_inv_gpu *g = &p->inv->gpu[gpu];
    const char *named = by_pattern(&p->config->gpus, g->info.name);
    if (type && (!named || strcmp(named, GPU_NAME) == 0)) {
        sl_plan_warn(p, SL_E_WARN_NOT_MIG, gpu, GPU_NAME, type->profile);
        return;
    }
    keep(p, gpu, SL_NO_MIG, named ? named : GPU_NAME);
    if (g->info.mig_enabled)
        sl_plan_warn(p, SL_E_WARN_MIG_NONE, gpu);
}

void sl_plan_collect(struct sl_planning *p)
{
    const struct sl_gpu_mig_info *type = NULL;
    bool others = false;
    p->found = sl_xcalloc(most_devices(p->inv), sizeof(*p->found));
    if (p->config->mig_strategy == SL_MIG_SINGLE)
        type = single_type(p, &others);
    if (type && others)
        sl_plan_warn(p, SL_E_WARN_MIG_TYPES, GPU_NAME, type->profile);
    for (size_t g = 0; g < p->inv->gpu_count; g++) {
        const struct sl_inv_gpu *gpu = &p->inv->gpu[g];
        if (!gpu->info.uuid[0])
            sl_plan_warn(p, SL_E_WARN_GPU_SILENT, g);
        else if (strlen(gpu->info.uuid) > SL_PLAN_UUID_MAX)
            sl_plan_warn(p, SL_E_WARN_GPU_UUID, g);
        else if (is_mig(p, g))
            collect_migs(p, g, type);
        else
            collect_whole(p, g, type);
    }
}
