/* SPDX-License-Identifier: Apache-2.0 */
/* Devices for virtual machines in ResourceSlices. docs/vm.md has who reads which attribute. */
#include <stdio.h>

#include "agent/dra/device_name.h"
#include "agent/dra/slices.h"

#define TEXT_MAX 64 /* a limit of the API */

static void put_text(json_t *attributes, const char *key, const char *text)
{
    char cut[TEXT_MAX + 1];
    (void)snprintf(cut, sizeof(cut), "%.*s", TEXT_MAX, text);
    if (cut[0])
        (void)json_object_set_new(attributes, key, json_pack("{s:s}", "string", cut));
}

static void put_number(json_t *attributes, const char *key, int number)
{
    if (number >= 0)
        (void)json_object_set_new(attributes, key, json_pack("{s:i}", "int", number));
}

json_t *sl_slices_vm_attributes(const struct sl_vm_device *d)
{
    json_t *a = json_object();
    char text[16];
    put_text(a, "type", "vm");
    put_text(a, "kind", sl_vm_kind_name(d->kind));
    put_text(a, "resourceName", d->resource);
    put_text(a, "productName", d->product);
    put_text(a, "vgpuType", d->type);
    (void)snprintf(text, sizeof(text), "10de:%04x", d->pci_device);
    put_text(a, "pciDevice", d->pci_device ? text : "");
    put_text(a, "card", d->card);
    put_number(a, "iommuGroup", d->group);
    put_number(a, "numaNode", d->numa_node);
    put_number(a, "resource.kubernetes.io/numaNode", d->numa_node);
    put_text(a, "resource.kubernetes.io/pcieRoot", d->pcie_root);
    /* KubeVirt takes a device with both of these for a mediated device; a PCI address names one device only. */
    put_text(a, d->kind == SL_VM_VGPU_MDEV ? "mdevUUID" : "resource.kubernetes.io/pciBusID", d->id);
    return a;
}

void sl_slices_vm(const struct sl_vm_offer *offer, json_t *devices)
{
    char name[SL_DEVICE_NAME_SIZE];
    for (size_t i = 0; offer && i < offer->device_count && offer->way == SL_VM_BY_CLAIMS; i++) {
        const struct sl_vm_device *d = &offer->device[i];
        if (d->elsewhere)
            continue;
        sl_device_vm_name(d->id, name);
        json_t *o = json_pack("{s:s,s:o}", "name", name, "attributes", sl_slices_vm_attributes(d));
        if (!d->healthy) /* a machine that has it goes on, as long as it can */
            (void)json_object_set_new(o, "taints",
                                      json_pack("[{s:s,s:s,s:s}]", "key", SL_SLICE_TAINT, "value",
                                                "vfio", "effect", "NoSchedule"));
        (void)json_array_append_new(devices, o);
    }
}
