/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that no single value shows: values that do not go together. */
#include <errno.h>
#include <string.h>

#include "config/errors.h"
#include "config/schema.h"

static struct sl_origin said(const struct sl_draft *d, const char *path)
{
    return d->origin[sl_schema_index(sl_schema_path(path))];
}

static bool is_said(const struct sl_draft *d, const char *path)
{
    return said(d, path).line > 0;
}

/* Refuses two ways to share: NVIDIA's plugin would take MPS and not tell. */
static int check_one_sharing(const struct sl_draft *d, struct sl_err *err)
{
    static const char *const path[] = {"sharing.timeSlicing", "sharing.mps", "sharing.fractional"};
    int first = -1;
    for (int i = 0; i < 3; i++) {
        if (i == 2 ? !d->c.fractional.enabled : !is_said(d, path[i]))
            continue;
        if (first < 0) {
            first = i;
            continue;
        }
        struct sl_origin a = said(d, path[first]), b = said(d, path[i]);
        bool later = b.line > a.line || (b.line == a.line && b.column > a.column);
        return sl_config_fail(d, later ? b : a, err, -EINVAL, SL_E_TWO_WAYS_TO_SHARE,
                              later ? path[i] : path[first], later ? path[first] : path[i],
                              later ? a.line : b.line);
    }
    return 0;
}

static int check_mig(const struct sl_draft *d, struct sl_err *err)
{
    if (d->c.mig_strategy != SL_MIG_MIXED || !is_said(d, "sharing.mps"))
        return 0;
    struct sl_origin at = said(d, "flags.migStrategy");
    return sl_config_fail(d, at, err, -EINVAL, SL_E_MIG_AND_MPS);
}

static int check_discovery(const struct sl_draft *d, struct sl_err *err)
{
    if (strcmp(d->c.discovery_strategy, "auto") == 0 ||
        strcmp(d->c.discovery_strategy, "nvml") == 0)
        return 0;
    return sl_config_fail(d, said(d, "flags.deviceDiscoveryStrategy"), err, -EINVAL,
                          SL_E_DISCOVERY_UNKNOWN, d->c.discovery_strategy);
}

/* Two entries may share one resource if each names devices of its own. Only the node knows which devices the names
 * stand for; the plan checks again. */
static int check_pair(const struct sl_draft *d, const struct sl_config_shared *a,
                      const struct sl_config_shared *b, struct sl_err *err)
{
    struct sl_origin at = {.line = b->line, .column = b->column};
    if (strcmp(a->name, b->name) != 0)
        return 0;
    if (a->devices_count == 0 || b->devices_count == 0)
        return sl_config_fail(d, at, err, -EINVAL, SL_E_RESOURCE_SHARED_TWICE, b->name, a->line);
    for (size_t i = 0; i < a->devices_count; i++)
        for (size_t j = 0; j < b->devices_count; j++)
            if (strcmp(a->devices[i], b->devices[j]) == 0)
                return sl_config_fail(d, at, err, -EINVAL, SL_E_DEVICE_SHARED_TWICE, b->devices[j],
                                      b->name, a->line);
    return 0;
}

static int check_block(const struct sl_draft *d, const struct sl_draft_block *block,
                       struct sl_err *err)
{
    const struct sl_config_shared *s = block->shared.item;
    int rc = 0;
    for (size_t i = 0; i < block->shared.count && rc == 0; i++) {
        struct sl_origin at = {.line = s[i].line, .column = s[i].column};
        size_t len = strlen(s[i].name) + strlen(SL_SHARED_SUFFIX);
        if (block->rename_by_default && !s[i].rename && len > SL_RESOURCE_NAME_MAX)
            rc = sl_config_fail(d, at, err, -EINVAL, SL_E_RESOURCE_RENAMED_LONG, s[i].name,
                                SL_SHARED_SUFFIX, len, SL_RESOURCE_NAME_MAX);
        for (size_t j = 0; j < i && rc == 0; j++)
            rc = check_pair(d, &s[j], &s[i], err);
    }
    return rc;
}

static bool has_name(const struct sl_config_list *list, const char *name)
{
    const struct sl_config_pattern *p = list->item;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(p[i].name, name) == 0)
            return true;
    return false;
}

static bool is_renamed(const struct sl_draft_block *block, const char *name)
{
    const struct sl_config_shared *s = block->shared.item;
    for (size_t i = 0; i < block->shared.count; i++)
        if (s[i].rename && strcmp(s[i].rename, name) == 0)
            return true;
    return false;
}

/* One resource cannot mean a card in a container and a card in a virtual machine. */
static int check_vm(const struct sl_draft *d, struct sl_err *err)
{
    const struct sl_config_pattern *p = d->c.vm.resources.item;
    for (size_t i = 0; i < d->c.vm.resources.count; i++) {
        const char *name = p[i].name;
        size_t n = strlen(name), tail = strlen(SL_SHARED_SUFFIX);
        bool taken = strcmp(name, SL_DOMAIN "gpu") == 0 ||
                     strncmp(name, SL_DOMAIN "mig-", strlen(SL_DOMAIN "mig-")) == 0 ||
                     (n > tail && strcmp(name + n - tail, SL_SHARED_SUFFIX) == 0) ||
                     has_name(&d->c.gpus, name) || has_name(&d->c.migs, name) ||
                     is_renamed(&d->time_slicing, name) || is_renamed(&d->mps, name);
        if (taken)
            return sl_config_fail(d, said(d, "vm.resources"), err, -EINVAL, SL_E_VM_NAME_TAKEN,
                                  name);
    }
    return 0;
}

/* Two entries with one card and one type would contradict each other. */
static bool is_vgpu_twice(const struct sl_config_vgpu *a, const struct sl_config_vgpu *b)
{
    if (strcmp(a->name, b->name) != 0)
        return false;
    for (size_t i = 0; i < a->devices.count; i++)
        for (size_t j = 0; j < b->devices.count; j++)
            if (strcmp(a->devices.text[i], b->devices.text[j]) == 0)
                return true;
    return a->devices.count == 0 || b->devices.count == 0;
}

static int check_vgpu(const struct sl_draft *d, struct sl_err *err)
{
    const struct sl_config_vgpu *v = d->c.vm.vgpu.item;
    struct sl_origin at = said(d, "sharing.vgpu");
    if (d->c.vm.vgpu.count && !d->c.vm.enabled)
        return sl_config_fail(d, at, err, -EINVAL, SL_E_VGPU_OFF);
    for (size_t i = 0; i < d->c.vm.vgpu.count; i++)
        for (size_t j = 0; j < i; j++)
            if (is_vgpu_twice(&v[j], &v[i]))
                return sl_config_fail(d, at, err, -EINVAL, SL_E_VGPU_TWICE, v[i].name);
    return 0;
}

int sl_draft_check(struct sl_draft *d, struct sl_err *err)
{
    int rc = check_one_sharing(d, err);
    if (rc == 0)
        rc = check_mig(d, err);
    if (rc == 0)
        rc = check_discovery(d, err);
    if (rc == 0)
        rc = check_block(d, &d->time_slicing, err);
    if (rc == 0)
        rc = check_block(d, &d->mps, err);
    if (rc == 0)
        rc = check_vm(d, err);
    return rc == 0 ? check_vgpu(d, err) : rc;
}
