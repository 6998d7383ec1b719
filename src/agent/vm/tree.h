/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sysfs and /dev say about NVIDIA's PCI functions, their vGPUs and their IOMMU groups, as one value: read once, then
 * passed around, compared and freed. Reading may block for as long as the kernel likes: not for the thread of the loop.
 */
#ifndef SLUICE_AGENT_VM_TREE_H
#define SLUICE_AGENT_VM_TREE_H

#include "agent/vm/text.h"
#include "base/err.h"

#define SL_PCI_CLASS_VGA   0x0300
#define SL_PCI_CLASS_3D    0x0302
#define SL_PCI_CLASS_AUDIO 0x0403
#define SL_NO_GROUP        (-1)

struct sl_vgpu_type {
    unsigned id;
    char name[SL_VGPU_NAME_SIZE];
};

/* A type of mediated devices that a function can have. */
struct sl_mdev_type {
    char dir[32]; /* "nvidia-558" */
    char name[SL_VGPU_NAME_SIZE];
    int available; /* so many more */
};

/* A PCI function of NVIDIA: a card, its audio function, or a virtual function of a card. */
struct sl_vm_function {
    char address[SL_PCI_ADDRESS_SIZE];
    uint32_t device;                  /* the PCI device id: 0x2335 */
    uint32_t pci_class;               /* class and subclass: 0x0302 */
    char driver[32];                  /* "": none */
    int group;                        /* of the IOMMU; SL_NO_GROUP: none */
    int numa_node;                    /* -1: not known */
    char cdev[16];                    /* "vfio3", the device of iommufd; "": none */
    char name[96];                    /* from pci.ids; "": not there */
    char pcie_root[24];               /* "pci0000:15"; "": not known */
    char parent[SL_PCI_ADDRESS_SIZE]; /* the card of a virtual function; "": not one */
    unsigned vgpu_type;               /* of a virtual function; 0: none */
    struct sl_vgpu_type *creatable;   /* the types that this function could have now */
    size_t creatable_count;
    struct sl_mdev_type *mdev_type;
    size_t mdev_type_count;
    bool makes_vgpus; /* it has a type that can be set, or types of mediated devices */
};

/* A mediated device. */
struct sl_vm_mdev {
    char uuid[SL_MDEV_UUID_SIZE];
    char parent[SL_PCI_ADDRESS_SIZE]; /* the function that it is made of */
    char type[SL_VGPU_NAME_SIZE];
    int group;
};

/* An IOMMU group with one of the devices above in it. */
struct sl_vm_group {
    int number;
    bool node;                         /* /dev/vfio/NUMBER is there */
    char blocker[SL_PCI_ADDRESS_SIZE]; /* a member whose driver keeps VFIO out; "": none */
    char blocker_driver[32];
};

struct sl_vm_tree {
    struct sl_vm_function *function; /* by address */
    size_t function_count;
    struct sl_vm_mdev *mdev; /* by UUID */
    size_t mdev_count;
    struct sl_vm_group *group; /* by number */
    size_t group_count;
    bool iommufd;        /* /dev/iommu is there */
    size_t unreadable;   /* functions and devices whose files could not be understood: left out */
    char first_bad[160]; /* the path of the first such file */
};

/* The names of PCI devices that were looked up before: pci.ids has a megabyte, and names do not change. */
struct sl_pci_names {
    struct sl_pci_name {
        uint32_t device;
        char name[96]; /* "": the file does not have it */
    } *item;
    size_t count;
    char file[4096]; /* the pci.ids file; "": where distributions put it */
};
void sl_pci_names_clear(struct sl_pci_names *names);

/* root: "/" or the directory that has the machine's sys/ and dev/. No NVIDIA device is an empty tree; a root without a
 * readable sys/bus/pci/devices is an error. */
int sl_vm_tree_read(const char *root, struct sl_pci_names *names, struct sl_vm_tree **ret,
                    struct sl_err *err) SL_MUST_CHECK;
void sl_vm_tree_free(struct sl_vm_tree *tree); /* NULL is fine */
bool sl_vm_tree_equal(const struct sl_vm_tree *a, const struct sl_vm_tree *b);

/* NULL: no such function, no such group. */
const struct sl_vm_function *sl_vm_tree_function(const struct sl_vm_tree *tree,
                                                 const char *address);
const struct sl_vm_group *sl_vm_tree_group(const struct sl_vm_tree *tree, int number);
/* The name of a vGPU type, from the tree or from types seen before; "": not known. */
const char *sl_vm_type_name(const struct sl_vm_tree *tree, const struct sl_vgpu_type *types,
                            size_t type_count, unsigned id);
static inline bool sl_vm_is_card(const struct sl_vm_function *f)
{
    return f->pci_class == SL_PCI_CLASS_VGA || f->pci_class == SL_PCI_CLASS_3D;
}
/* Is this one of the kernel's drivers that give a whole function to a virtual machine? */
bool sl_vm_is_vfio_driver(const char *driver);

#endif
