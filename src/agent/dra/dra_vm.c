/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of devices for virtual machines: whole cards, and vGPUs. They need no driver, no tenant and no MIG. */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/dra/errors.h"
#include "base/xalloc.h"

bool sl_dra_is_vm(const struct sl_prepared_device *d)
{
    struct sl_device_name name;
    return sl_device_name_parse(d->device, &name, NULL) == 0 && name.kind == SL_DEVICE_VM;
}

static bool address_of(const struct sl_dra *dra, size_t gpu, char ret[SL_PCI_ADDRESS_SIZE])
{
    return gpu != SIZE_MAX && sl_pci_address_from_nvml(dra->inv->gpu[gpu].info.pci_bus_id, ret);
}

bool sl_dra_vm_takes(const struct sl_dra *dra, size_t gpu)
{
    char address[SL_PCI_ADDRESS_SIZE];
    return address_of(dra, gpu, address) && sl_vm_offer_takes(dra->vm, address);
}

bool sl_dra_vm_held(const struct sl_dra *dra, const char *id)
{
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; i < p->device_count; i++)
            if (strcmp(p->device[i].share.gpu, id) == 0)
                return true;
    return dra->standby.set;
}

bool sl_dra_knows(const struct sl_dra *dra, const struct sl_prepared *p)
{
    for (size_t i = 0; i < p->device_count; i++)
        if (sl_dra_is_vm(&p->device[i]) ? !dra->vm : !dra->inv || !dra->driver)
            return false;
    return true;
}

enum dra_fitness sl_dra_fitness(struct sl_dra *dra, const struct sl_prepared_device *d,
                                const char **ret_reason)
{
    const char *trouble = NULL;
    if (sl_dra_is_vm(d)) {
        const struct sl_vm_device *v = sl_vm_offer_find(dra->vm, d->share.gpu);
        if (!dra->vm)
            return DRA_UNKNOWN;
        trouble = !v ? "the device is no longer there" : v->healthy ? NULL : v->why;
    } else {
        const struct card *c = sl_dra_card(dra, d->share.gpu);
        if (!c)
            return DRA_UNKNOWN;
        trouble = sl_dra_card_trouble(c);
    }
    *ret_reason = trouble;
    return trouble ? DRA_TROUBLE : DRA_FIT;
}

/* --- preparing --- */

static const struct sl_vm_device *find_named(const struct sl_dra *dra, const char *name)
{
    char text[SL_DEVICE_NAME_SIZE];
    for (size_t i = 0; dra->vm && i < dra->vm->device_count; i++) {
        sl_device_vm_name(dra->vm->device[i].id, text);
        if (strcmp(text, name) == 0)
            return &dra->vm->device[i];
    }
    return NULL;
}

/* A claim of a container on the card of this device. */
static int check_card(const struct sl_dra *dra, const struct sl_vm_device *v, const char *device,
                      struct sl_err *err)
{
    char address[SL_PCI_ADDRESS_SIZE];
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; i < p->device_count; i++) {
            const struct sl_prepared_device *o = &p->device[i];
            if (!o->admin && !sl_dra_is_vm(o) &&
                address_of(dra, sl_inventory_find(dra->inv, o->share.gpu), address) &&
                strcmp(address, v->card) == 0)
                return sl_err_set(err, -EBUSY, SL_E_CLAIM_NOT_FREE, device, p->name_space, p->name,
                                  o->device);
        }
    return 0;
}

int sl_dra_vm_plan(struct sl_dra *dra, struct sl_prepared_device *d, struct sl_err *err)
{
    if (!dra->vm)
        return sl_err_set(err, -EAGAIN, SL_E_DRA_READING);
    const struct sl_vm_device *v = find_named(dra, d->device);
    if (!v || v->elsewhere || dra->vm->way != SL_VM_BY_CLAIMS)
        return sl_err_set(err, -ENOENT, SL_E_CLAIM_VM_GONE, d->device);
    if (!v->healthy)
        return sl_err_set(err, -ENODEV, "%s", v->why);
    (void)snprintf(d->share.gpu, sizeof(d->share.gpu), "%s", v->id);
    return check_card(dra, v, d->device, err);
}

/* virt-launcher has one variable for a resource: it names all devices of the claim that are of it. */
static int add_variables(struct sl_dra *dra, const struct sl_prepared *p, const char *resource,
                         struct sl_edits *e, struct sl_err *err)
{
    const char *ids[SL_CLAIM_RESULTS];
    size_t n = 0;
    for (size_t i = 0; i < p->device_count && n < SL_CLAIM_RESULTS; i++) {
        const struct sl_vm_device *v = sl_vm_offer_find(dra->vm, p->device[i].share.gpu);
        if (v && strcmp(v->resource, resource) == 0)
            ids[n++] = v->id;
    }
    struct sl_edits all = {0};
    int rc = sl_vm_allocate(dra->vm, resource, ids, n, &all, err);
    for (size_t i = 0; rc == 0 && i < all.env_count; i++)
        sl_edits_env(e, all.env[i].name, all.env[i].value);
    sl_edits_clear(&all);
    return rc;
}

static bool first_of_request(const struct sl_prepared *p, size_t device)
{
    for (size_t i = 0; i < device; i++)
        if (sl_dra_is_vm(&p->device[i]) &&
            strcmp(p->device[i].request, p->device[device].request) == 0)
            return false;
    return true;
}

int sl_dra_vm_edits(struct sl_dra *dra, const struct sl_prepared *p, size_t device,
                    struct sl_edits *e, struct sl_err *err)
{
    const struct sl_prepared_device *d = &p->device[device];
    const struct sl_vm_device *v = sl_vm_offer_find(dra->vm, d->share.gpu);
    if (!v)
        return sl_err_set(err, -ENOENT, SL_E_CLAIM_VM_GONE, d->device);
    const char *id = v->id;
    int rc = sl_vm_allocate(dra->vm, v->resource, &id, 1, e, err);
    if (rc == 0)
        rc = add_variables(dra, p, v->resource, e, err);
    if (rc == 0 && first_of_request(p, device)) /* the request's other devices come with this one */
        rc = sl_dra_metadata_write(dra, p, d->request, e, err);
    return rc;
}

/* --- news --- */

void sl_dra_vm_told(struct sl_dra *dra)
{
    bool news = false;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p && dra->vm; p = p->next) {
        bool changed = false;
        for (size_t i = 0; i < p->device_count; i++) {
            const struct sl_prepared_device *d = &p->device[i];
            const char *why = NULL;
            changed |= sl_dra_is_vm(d) &&
                       (sl_dra_fitness(dra, d, &why) == DRA_TROUBLE) != (d->ready_since.no_s != 0);
        }
        if (changed && p->state == SL_PREPARED)
            sl_dra_status_write(dra, p, NULL, true, "");
        news |= changed;
    }
    if (news)
        sl_dra_health_send(dra);
}
