/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the node offers to virtual machines: passthrough cards, vGPUs, and their resources. Pure: takes the tree and the
 * configuration, returns the offer.
 */
#ifndef SLUICE_AGENT_VM_OFFER_H
#define SLUICE_AGENT_VM_OFFER_H

#include "agent/vm/tree.h"
#include "agent/vm/vgpu.h"
#include "config/config.h"
#include "config/plan.h"
#include "container/edits.h"

enum sl_vm_kind {
    SL_VM_PASSTHROUGH, /* a whole PCI function */
    SL_VM_VGPU_VF,     /* a vGPU on a virtual function */
    SL_VM_VGPU_MDEV,   /* a vGPU that is a mediated device */
};

#define SL_VM_GROUP_CDEVS 16

struct sl_vm_device {
    enum sl_vm_kind kind;
    char id[SL_DEVICE_ID_SIZE]; /* the PCI address, or the UUID of a mediated device */
    char resource[SL_RESOURCE_NAME_SIZE];
    char card[SL_PCI_ADDRESS_SIZE]; /* the physical card */
    char type[SL_VGPU_NAME_SIZE];   /* of a vGPU; "": a whole function */
    int group, numa_node;
    bool group_node;                  /* /dev/vfio/GROUP is there */
    char cdev[SL_VM_GROUP_CDEVS][16]; /* devices of iommufd, of the whole group */
    size_t cdev_count;
    bool healthy;
    char why[200]; /* it is not healthy */
};

struct sl_vm_offer {
    struct sl_vm_device *device;
    size_t device_count;
    /* The same as device plugins serve it: device i is card i of the inventory. */
    struct sl_plan plan;
    struct sl_inventory inv;
    bool iommufd;
    /* Cards that virtual machines have, wholly or in part: containers must not get them. */
    char (*taken)[SL_PCI_ADDRESS_SIZE];
    size_t taken_count;
};

/* types: names of vGPU types that were seen before, beside those of the tree. vgpu: which vGPUs leave, and which cards
 * are to have some; NULL: none. */
struct sl_vm_offer *sl_vm_offer_make(const struct sl_config_vm *config,
                                     const struct sl_vm_tree *tree,
                                     const struct sl_vgpu_type *types, size_t type_count,
                                     const struct sl_vgpu_input *vgpu);
void sl_vm_offer_free(struct sl_vm_offer *offer); /* NULL is fine */

/* offer may be NULL. */
bool sl_vm_offer_takes(const struct sl_vm_offer *offer, const char *pci_address);
const char *sl_vm_kind_name(enum sl_vm_kind kind); /* "passthrough", "vgpu-vf", "vgpu-mdev" */

/* The answer to Allocate: the nodes of VFIO and the variable that virt-launcher reads. */
int sl_vm_allocate(const struct sl_vm_offer *offer, const char *resource, const char *const *ids,
                   size_t n, struct sl_edits *edits, struct sl_err *err) SL_MUST_CHECK;

#endif
