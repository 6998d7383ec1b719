/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/vm/errors.h"
#include "agent/vm/offer.h"
#include "base/cleanup.h"
#include "base/xalloc.h"

/* virt-launcher has a list of PCI devices and a list of mediated devices for each resource. */
static const char *prefix_of(enum sl_vm_kind kind)
{
    return kind == SL_VM_VGPU_MDEV ? "MDEV_PCI_RESOURCE" : "PCI_RESOURCE";
}

static const struct sl_vm_device *find(const struct sl_vm_offer *offer, const char *resource,
                                       const char *id)
{
    for (size_t i = 0; offer && i < offer->device_count; i++)
        if (strcmp(offer->device[i].id, id) == 0 &&
            strcmp(offer->device[i].resource, resource) == 0)
            return &offer->device[i];
    return NULL;
}

static void add_nodes(const struct sl_vm_offer *offer, const struct sl_vm_device *d,
                      struct sl_edits *edits)
{
    char path[64];
    if (d->group_node) {
        sl_edits_node(edits, "/dev/vfio/vfio", "/dev/vfio/vfio");
        (void)snprintf(path, sizeof(path), "/dev/vfio/%d", d->group);
        sl_edits_node(edits, path, path);
    }
    if (!offer->iommufd)
        return;
    for (size_t i = 0; i < d->cdev_count; i++) {
        (void)snprintf(path, sizeof(path), "/dev/vfio/devices/%s", d->cdev[i]);
        sl_edits_node(edits, path, path);
    }
    if (d->cdev_count)
        sl_edits_node(edits, "/dev/iommu", "/dev/iommu");
}

/* The ids of one kind, with commas between: the order of the request is the order of the virtual machine's devices. */
static void add_variable(const struct sl_vm_offer *offer, const char *resource, const char *prefix,
                         const char *const *ids, size_t n, struct sl_edits *edits)
{
    char *list = NULL, name[SL_RESOURCE_NAME_SIZE + 32];
    size_t size = 0, count = 0;
    FILE *out = sl_xmemstream(&list, &size);
    for (size_t i = 0; i < n; i++) {
        const struct sl_vm_device *d = find(offer, resource, ids[i]);
        if (d && strcmp(prefix_of(d->kind), prefix) == 0)
            (void)fprintf(out, "%s%s", count++ ? "," : "", d->id);
    }
    sl_xmemstream_close(out);
    sl_vm_variable(prefix, resource, name, sizeof(name));
    if (count)
        sl_edits_env(edits, name, list);
    free(list);
}

int sl_vm_allocate(const struct sl_vm_offer *offer, const char *resource, const char *const *ids,
                   size_t n, struct sl_edits *edits, struct sl_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct sl_vm_device *d = find(offer, resource, ids[i]);
        if (!d)
            return sl_err_set(err, -ENOENT, SL_E_VM_GONE, resource, ids[i]);
        if (!d->healthy)
            return sl_err_set(err, -ENODEV, "%s", d->why);
    }
    for (size_t i = 0; i < n; i++)
        add_nodes(offer, find(offer, resource, ids[i]), edits);
    add_variable(offer, resource, prefix_of(SL_VM_PASSTHROUGH), ids, n, edits);
    add_variable(offer, resource, prefix_of(SL_VM_VGPU_MDEV), ids, n, edits);
    return 0;
}
