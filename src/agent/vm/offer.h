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

/* How pods get the devices: one way for all, so that none is offered twice. */
enum sl_vm_way { SL_VM_BY_PLUGINS, SL_VM_BY_CLAIMS };

#define SL_VM_GROUP_CDEVS 16

struct sl_vm_device {
    enum sl_vm_kind kind;
    char id[SL_DEVICE_ID_SIZE]; /* the PCI address, or the UUID of a mediated device */
    char resource[SL_RESOURCE_NAME_SIZE];
    char card[SL_PCI_ADDRESS_SIZE]; /* the physical card */
    char type[SL_VGPU_NAME_SIZE];   /* of a vGPU; "": a whole function */
    uint32_t pci_device;            /* 0x2335, of the function; 0: not known */
    char product[96];               /* of a whole function, from pci.ids; "": not there */
    char pcie_root[24];             /* "pci0000:15"; "": not known */
    int group, numa_node;
    bool group_node;                  /* /dev/vfio/GROUP is there */
    char cdev[SL_VM_GROUP_CDEVS][16]; /* devices of iommufd, of the whole group */
    size_t cdev_count;
    bool healthy;
    char why[200];  /* it is not healthy */
    bool elsewhere; /* a pod has it by the other way: nobody gets it until that pod has ended */
};

struct sl_vm_offer {
    struct sl_vm_device *device;
    size_t device_count;
    /* The same as device plugins serve it: device i is card i of the inventory. */
    struct sl_plan plan;
    struct sl_inventory inv;
    enum sl_vm_way way;
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

/* Why nobody may get the device now, in a sentence ("": no sentence is due); NULL: a pod may have it. */
typedef const char *sl_vm_elsewhere(void *data, const struct sl_vm_device *device);
/* Leaves the devices to one way. By claims, the plan has no resource. */
void sl_vm_offer_by(struct sl_vm_offer *offer, enum sl_vm_way way, sl_vm_elsewhere *elsewhere,
                    void *data);

/* offer may be NULL. */
const struct sl_vm_device *sl_vm_offer_find(const struct sl_vm_offer *offer, const char *id);
bool sl_vm_offer_takes(const struct sl_vm_offer *offer, const char *pci_address);
const char *sl_vm_kind_name(enum sl_vm_kind kind); /* "passthrough", "vgpu-vf", "vgpu-mdev" */

/* The answer to Allocate: the nodes of VFIO and the variable that virt-launcher reads. */
int sl_vm_allocate(const struct sl_vm_offer *offer, const char *resource, const char *const *ids,
                   size_t n, struct sl_edits *edits, struct sl_err *err) SL_MUST_CHECK;

#endif
