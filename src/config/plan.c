/* SPDX-License-Identifier: Apache-2.0 */
#include "config/plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "config/errors.h"
#include "config/plan_internal.h"
#include "config/schema.h"

#define MAX_DEVICES 65536 /* of one resource; kubelet takes a list in one message of 16 MiB */

void sl_plan_warn(struct sl_planning *p, const char *fmt, ...)
{
    struct sl_plan *plan = p->plan;
    va_list ap;
    va_start(ap, fmt);
    plan->warning =
        sl_xreallocarray(plan->warning, plan->warning_count + 1, sizeof(*plan->warning));
    plan->warning[plan->warning_count++] = sl_xvasprintf(fmt, ap);
    va_end(ap);
}

const char *sl_plan_uuid(const struct sl_inventory *inv, size_t gpu, size_t mig)
{
    const struct sl_inv_gpu *g = &inv->gpu[gpu];
    return mig == SL_NO_MIG ? g->info.uuid : g->mig[mig].info.uuid;
}

/* How a device is shared: the kind, the number of shares, the resource name. */
struct share {
    enum sl_sharing sharing;
    unsigned replicas;
    char name[SL_RESOURCE_NAME_SIZE];
};

static struct share share_of(const struct sl_config *c, const struct sl_found *f)
{
    struct share s = {.sharing = SL_SHARING_NONE, .replicas = 1};
    const char *suffix = "", *name = f->name;
    if (f->entry) {
        s.sharing = c->sharing;
        s.replicas = f->entry->replicas;
        if (f->entry->rename)
            name = f->entry->rename;
        else if (c->rename_by_default)
            suffix = SL_SHARED_SUFFIX;
    } else if (c->sharing == SL_SHARING_FRACTIONAL && f->mig == SL_NO_MIG) {
        s.sharing = SL_SHARING_FRACTIONAL;
        s.replicas = c->fractional.slots;
    }
    (void)snprintf(s.name, sizeof(s.name), "%.100s%s", name, suffix);
    return s;
}

/* The resource of that name; added if the plan has none. */
static struct sl_plan_resource *resource_for(struct sl_planning *p, const struct sl_found *f,
                                             const struct share *s)
{
    struct sl_plan *plan = p->plan;
    for (size_t i = 0; i < plan->resource_count; i++) {
        struct sl_plan_resource *r = &plan->resource[i];
        if (strcmp(r->name, s->name) != 0)
            continue;
        if (strcmp(r->base_name, f->name) == 0)
            return r;
        (void)sl_err_set(p->err, -EINVAL, SL_E_NAME_TAKEN, r->base_name, f->name, s->name);
        return NULL;
    }
    plan->resource =
        sl_xreallocarray(plan->resource, plan->resource_count + 1, sizeof(*plan->resource));
    struct sl_plan_resource *r = &plan->resource[plan->resource_count++];
    *r = (struct sl_plan_resource){.renamed = strcmp(s->name, f->name) != 0};
    memcpy(r->name, s->name, sizeof(r->name));
    memcpy(r->base_name, f->name, sizeof(r->base_name));
    return r;
}

static int add_replicas(struct sl_planning *p, struct sl_plan_resource *r, const struct sl_found *f,
                        const struct share *s)
{
    if (r->device_count + s->replicas > MAX_DEVICES)
        return sl_err_set(p->err, -E2BIG, SL_E_TOO_MANY_DEVICES, r->name, MAX_DEVICES);
    r->device = sl_xreallocarray(r->device, r->device_count + s->replicas, sizeof(*r->device));
    const char *uuid = sl_plan_uuid(p->inv, f->gpu, f->mig);
    for (unsigned n = 0; n < s->replicas; n++) {
        struct sl_plan_device *d = &r->device[r->device_count++];
        *d = (struct sl_plan_device){.gpu = f->gpu,
                                     .mig = f->mig,
                                     .replica = n,
                                     .sharing = s->sharing,
                                     .numa_node = p->inv->gpu[f->gpu].info.numa_node};
        if (s->sharing == SL_SHARING_NONE)
            (void)snprintf(d->id, sizeof(d->id), "%.50s", uuid);
        else
            (void)snprintf(d->id, sizeof(d->id), "%.50s::%u", uuid, n);
    }
    return 0;
}

static int add_resources(struct sl_planning *p)
{
    for (size_t i = 0; i < p->found_count; i++) {
        struct share s = share_of(p->config, &p->found[i]);
        struct sl_plan_resource *r = resource_for(p, &p->found[i], &s);
        if (!r)
            return -EINVAL;
        if (s.sharing != SL_SHARING_NONE) {
            r->sharing = s.sharing;
            r->fail_requests_greater_than_one = p->config->fail_requests_greater_than_one;
        }
        int rc = add_replicas(p, r, &p->found[i], &s);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* One name for whole devices and for shares of devices: a pod cannot choose. Allowed, with a warning. */
static void warn_mixtures(struct sl_planning *p)
{
    for (size_t i = 0; i < p->plan->resource_count; i++) {
        const struct sl_plan_resource *r = &p->plan->resource[i];
        size_t whole = 0;
        for (size_t d = 0; d < r->device_count; d++)
            whole += r->device[d].sharing == SL_SHARING_NONE;
        if (whole > 0 && r->sharing != SL_SHARING_NONE)
            sl_plan_warn(p, SL_E_WARN_MIXED_NAME, r->name, whole, r->device_count - whole);
    }
}

int sl_plan_make(const struct sl_config *config, const struct sl_inventory *inv,
                 struct sl_plan **ret, struct sl_err *err)
{
    struct sl_planning p = {.config = config, .inv = inv, .err = err};
    p.plan = sl_xcalloc(1, sizeof(*p.plan));
    sl_plan_collect(&p);
    int rc = sl_plan_share(&p);
    if (rc == 0)
        rc = add_resources(&p);
    free(p.found);
    if (rc < 0) {
        sl_plan_free(p.plan);
        return rc;
    }
    warn_mixtures(&p);
    *ret = p.plan;
    return 0;
}

void sl_plan_free(struct sl_plan *plan)
{
    if (!plan)
        return;
    for (size_t i = 0; i < plan->resource_count; i++)
        free(plan->resource[i].device);
    for (size_t i = 0; i < plan->warning_count; i++)
        free(plan->warning[i]);
    free(plan->resource);
    free(plan->warning);
    free(plan);
}

unsigned sl_plan_replicas(const struct sl_plan *plan, size_t gpu, size_t mig)
{
    unsigned n = 0;
    for (size_t i = 0; i < plan->resource_count; i++)
        for (size_t d = 0; d < plan->resource[i].device_count; d++)
            n += plan->resource[i].device[d].gpu == gpu && plan->resource[i].device[d].mig == mig;
    return n;
}
