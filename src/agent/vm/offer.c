/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/vm/offer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/vm/errors.h"
#include "base/cleanup.h"
#include "base/xalloc.h"

#define DOMAIN "nvidia.com/"

struct making {
    const struct sl_config_vm *config;
    const struct sl_vm_tree *tree;
    const struct sl_vgpu_type *types;
    size_t type_count;
    const struct sl_vgpu_input *vgpu;
    struct sl_vm_offer *offer;
};

const char *sl_vm_kind_name(enum sl_vm_kind kind)
{
    static const char *const names[] = {[SL_VM_PASSTHROUGH] = "passthrough",
                                        [SL_VM_VGPU_VF] = "vgpu-vf",
                                        [SL_VM_VGPU_MDEV] = "vgpu-mdev"};
    return names[kind];
}

static void warn(struct sl_vm_offer *offer, char *sentence)
{
    struct sl_plan *p = &offer->plan;
    p->warning = sl_xreallocarray(p->warning, p->warning_count + 1, sizeof(*p->warning));
    p->warning[p->warning_count++] = sentence;
}

static void take(struct sl_vm_offer *offer, const char *address)
{
    if (sl_vm_offer_takes(offer, address))
        return;
    offer->taken = sl_xreallocarray(offer->taken, offer->taken_count + 1, sizeof(*offer->taken));
    (void)snprintf(offer->taken[offer->taken_count++], SL_PCI_ADDRESS_SIZE, "%s", address);
}

bool sl_vm_offer_takes(const struct sl_vm_offer *offer, const char *address)
{
    for (size_t i = 0; offer && i < offer->taken_count; i++)
        if (strcmp(offer->taken[i], address) == 0)
            return true;
    return false;
}

/* --- names --------------------------------------------------------------------------------------- */

/* The name that the configuration gives to something with one of these descriptions; NULL: none. */
static const char *renamed(const struct making *m, const char *const *descriptions)
{
    const struct sl_config_pattern *p = m->config->resources.item;
    for (size_t i = 0; i < m->config->resources.count; i++)
        for (size_t k = 0; descriptions[k]; k++)
            if (descriptions[k][0] && sl_config_match(p[i].pattern, descriptions[k]))
                return p[i].name;
    return NULL;
}

static void set_resource(struct sl_vm_device *d, const char *configured, const char *made)
{
    (void)snprintf(d->resource, sizeof(d->resource), "%s%.*s", configured ? "" : DOMAIN,
                   (int)(sizeof(d->resource) - sizeof(DOMAIN)), configured ? configured : made);
}

static void name_function(const struct making *m, const struct sl_vm_function *f,
                          struct sl_vm_device *d)
{
    char id[16], made[SL_RESOURCE_NAME_SIZE];
    (void)snprintf(id, sizeof(id), "10de:%04x", f->device);
    if (!sl_vm_card_name(f->name, made)) /* not in pci.ids: its number */
        (void)snprintf(made, sizeof(made), "%04x", f->device);
    const char *const descriptions[] = {f->address, id, made, NULL};
    set_resource(d, renamed(m, descriptions), made);
}

static bool name_vgpu(const struct making *m, unsigned number, const char *type, const char *card,
                      struct sl_vm_device *d)
{
    char id[32] = "", made[SL_RESOURCE_NAME_SIZE] = "";
    if (number)
        (void)snprintf(id, sizeof(id), "vgpu:%u", number);
    bool known = sl_vm_vgpu_name(type, made);
    const char *const descriptions[] = {d->id, id, type, made, NULL};
    const char *configured = renamed(m, descriptions);
    set_resource(d, configured, made);
    if (!configured && !known)
        warn(m->offer, sl_xasprintf(SL_E_VM_TYPE_UNNAMED, number, card, number));
    return configured || known;
}

/* --- health -------------------------------------------------------------------------------------- */

static void judge(const struct making *m, struct sl_vm_device *d)
{
    const struct sl_vm_group *g = sl_vm_tree_group(m->tree, d->group);
    d->group_node = g && g->node;
    bool reachable = d->group_node || (m->tree->iommufd && d->cdev_count);
    if (d->group == SL_NO_GROUP)
        (void)snprintf(d->why, sizeof(d->why), SL_E_VM_NO_GROUP, d->id);
    else if (g && g->blocker[0] && d->kind == SL_VM_PASSTHROUGH)
        (void)snprintf(d->why, sizeof(d->why), SL_E_VM_BLOCKED, d->id, g->blocker_driver,
                       g->blocker, d->group);
    else if (!reachable)
        (void)snprintf(d->why, sizeof(d->why), SL_E_VM_NO_NODE, d->id, d->group);
    d->healthy = !d->why[0];
}

static void add(const struct making *m, struct sl_vm_device *d)
{
    struct sl_vm_offer *o = m->offer;
    if (m->vgpu && sl_vgpu_leaves(m->vgpu, d->id))
        return;
    judge(m, d);
    o->device = sl_xreallocarray(o->device, o->device_count + 1, sizeof(*o->device));
    o->device[o->device_count++] = *d;
}

/* --- devices ------------------------------------------------------------------------------------- */

static bool is_passthrough(const struct sl_vm_function *f)
{
    return sl_vm_is_vfio_driver(f->driver) && !f->parent[0];
}

/* The function of the group that stands for it: the first card, else the first function. */
static const struct sl_vm_function *leader(const struct sl_vm_tree *tree,
                                           const struct sl_vm_function *of)
{
    const struct sl_vm_function *first = NULL;
    if (of->group == SL_NO_GROUP)
        return of;
    for (size_t i = 0; i < tree->function_count; i++) {
        const struct sl_vm_function *f = &tree->function[i];
        if (!is_passthrough(f) || f->group != of->group)
            continue;
        if (sl_vm_is_card(f))
            return f;
        first = first ? first : f;
    }
    return first;
}

static void describe(const struct sl_vm_function *f, struct sl_vm_device *d)
{
    d->pci_device = f->device;
    memcpy(d->pcie_root, f->pcie_root, sizeof(d->pcie_root));
}

/* A group goes to one virtual machine as a whole: it is one device, with the devices of iommufd of all its functions. */
static void add_passthrough(const struct making *m, const struct sl_vm_function *f)
{
    const struct sl_vm_function *first = leader(m->tree, f);
    if (sl_vm_is_card(f))
        take(m->offer, f->address);
    if (first != f) {
        if (sl_vm_is_card(f))
            warn(m->offer,
                 sl_xasprintf(SL_E_VM_GROUP_SHARED, first->address, f->address, first->address));
        return;
    }
    struct sl_vm_device d = {
        .kind = SL_VM_PASSTHROUGH, .group = f->group, .numa_node = f->numa_node};
    memcpy(d.id, f->address, sizeof(f->address));
    memcpy(d.card, f->address, sizeof(f->address));
    describe(f, &d);
    (void)snprintf(d.product, sizeof(d.product), "%s", f->name);
    for (size_t i = 0; i < m->tree->function_count; i++) {
        const struct sl_vm_function *o = &m->tree->function[i];
        bool same = o == f || (o->group == f->group && f->group != SL_NO_GROUP);
        if (same && o->cdev[0] && d.cdev_count < SL_VM_GROUP_CDEVS)
            memcpy(d.cdev[d.cdev_count++], o->cdev, sizeof(o->cdev));
    }
    name_function(m, f, &d);
    add(m, &d);
}

static void add_vf(const struct making *m, const struct sl_vm_function *f)
{
    const char *type = sl_vm_type_name(m->tree, m->types, m->type_count, f->vgpu_type);
    take(m->offer, f->parent);
    struct sl_vm_device d = {.kind = SL_VM_VGPU_VF, .group = f->group, .numa_node = f->numa_node};
    memcpy(d.id, f->address, sizeof(f->address));
    memcpy(d.card, f->parent, sizeof(f->parent));
    describe(f, &d);
    (void)snprintf(d.type, sizeof(d.type), "%s", type);
    if (f->cdev[0])
        memcpy(d.cdev[d.cdev_count++], f->cdev, sizeof(f->cdev));
    if (name_vgpu(m, f->vgpu_type, type, f->parent, &d))
        add(m, &d);
}

static void add_mdev(const struct making *m, const struct sl_vm_mdev *mdev)
{
    const struct sl_vm_function *parent = sl_vm_tree_function(m->tree, mdev->parent);
    struct sl_vm_device d = {.kind = SL_VM_VGPU_MDEV, .group = mdev->group, .numa_node = -1};
    memcpy(d.id, mdev->uuid, sizeof(mdev->uuid));
    memcpy(d.type, mdev->type, sizeof(mdev->type));
    memcpy(d.card, mdev->parent, sizeof(mdev->parent));
    if (parent && parent->parent[0]) /* made of a virtual function of the card */
        memcpy(d.card, parent->parent, sizeof(parent->parent));
    if (parent) {
        d.numa_node = parent->numa_node;
        describe(parent, &d);
    }
    take(m->offer, d.card);
    if (name_vgpu(m, 0, mdev->type, d.card, &d))
        add(m, &d);
}

/* --- the plan ------------------------------------------------------------------------------------ */

static struct sl_plan_resource *resource_of(struct sl_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->resource_count; i++)
        if (strcmp(plan->resource[i].name, name) == 0)
            return &plan->resource[i];
    plan->resource =
        sl_xreallocarray(plan->resource, plan->resource_count + 1, sizeof(*plan->resource));
    struct sl_plan_resource *r = &plan->resource[plan->resource_count++];
    *r = (struct sl_plan_resource){0};
    (void)snprintf(r->name, sizeof(r->name), "%s", name);
    memcpy(r->base_name, r->name, sizeof(r->name));
    return r;
}

/* Device plugins serve cards of an inventory. Here each device is a card of its own, `lost` where it is not healthy. */
static void make_plan(struct sl_vm_offer *o)
{
    o->inv.gpu = sl_xcalloc(o->device_count + 1, sizeof(*o->inv.gpu));
    o->inv.gpu_count = o->device_count;
    for (size_t i = 0; i < o->device_count; i++) {
        const struct sl_vm_device *d = &o->device[i];
        struct sl_inv_gpu *g = &o->inv.gpu[i];
        struct sl_plan_resource *r = resource_of(&o->plan, d->resource);
        (void)snprintf(g->info.uuid, sizeof(g->info.uuid), "%s", d->id);
        g->info.numa_node = d->numa_node;
        g->lost = !d->healthy;
        r->device = sl_xreallocarray(r->device, r->device_count + 1, sizeof(*r->device));
        struct sl_plan_device *p = &r->device[r->device_count++];
        *p = (struct sl_plan_device){.gpu = i, .mig = SL_NO_MIG, .numa_node = d->numa_node};
        memcpy(p->id, d->id, sizeof(p->id));
    }
}

struct sl_vm_offer *sl_vm_offer_make(const struct sl_config_vm *config,
                                     const struct sl_vm_tree *tree,
                                     const struct sl_vgpu_type *types, size_t type_count,
                                     const struct sl_vgpu_input *vgpu)
{
    struct making m = {config, tree, types, type_count, vgpu, sl_xcalloc(1, sizeof(*m.offer))};
    m.offer->iommufd = tree->iommufd;
    for (size_t i = 0; i < tree->function_count; i++) {
        const struct sl_vm_function *f = &tree->function[i];
        if (vgpu && sl_vm_is_card(f) && !f->parent[0] && sl_vgpu_claims(vgpu, f->address))
            take(m.offer, f->address); /* before its first vGPU is made */
        if (is_passthrough(f))
            add_passthrough(&m, f);
        else if (f->parent[0] && f->vgpu_type)
            add_vf(&m, f);
    }
    for (size_t i = 0; i < tree->mdev_count; i++)
        add_mdev(&m, &tree->mdev[i]);
    make_plan(m.offer);
    return m.offer;
}

static void drop_resources(struct sl_plan *plan)
{
    for (size_t i = 0; i < plan->resource_count; i++)
        free(plan->resource[i].device);
    free(plan->resource);
    plan->resource = NULL;
    plan->resource_count = 0;
}

void sl_vm_offer_by(struct sl_vm_offer *offer, enum sl_vm_way way, sl_vm_elsewhere *elsewhere,
                    void *data)
{
    offer->way = way;
    for (size_t i = 0; i < offer->device_count; i++) {
        struct sl_vm_device *d = &offer->device[i];
        const char *why = elsewhere(data, d);
        d->elsewhere = why != NULL;
        offer->inv.gpu[i].lost |= d->elsewhere;
        if (why && *why)
            warn(offer, sl_xstrdup(why));
    }
    if (way == SL_VM_BY_CLAIMS)
        drop_resources(&offer->plan);
}

const struct sl_vm_device *sl_vm_offer_find(const struct sl_vm_offer *offer, const char *id)
{
    for (size_t i = 0; offer && i < offer->device_count; i++)
        if (strcmp(offer->device[i].id, id) == 0)
            return &offer->device[i];
    return NULL;
}

void sl_vm_offer_free(struct sl_vm_offer *offer)
{
    if (!offer)
        return;
    drop_resources(&offer->plan);
    for (size_t i = 0; i < offer->plan.warning_count; i++)
        free(offer->plan.warning[i]);
    free(offer->plan.warning);
    free(offer->inv.gpu);
    free(offer->device);
    free(offer->taken);
    free(offer);
}
