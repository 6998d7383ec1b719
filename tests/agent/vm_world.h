/* SPDX-License-Identifier: Apache-2.0 */
/* A made machine: a directory with sys/, dev/ and a pci.ids, whose devices a test adds, changes and removes. */
#ifndef SLUICE_TESTS_AGENT_VM_WORLD_H
#define SLUICE_TESTS_AGENT_VM_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/vm/offer.h"

struct vm_world {
    char root[64];
};

/* Writes a file below the root and makes its directories; NULL: only the directory. */
static inline void vm_file(const struct vm_world *w, const char *text, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline void vm_file(const struct vm_world *w, const char *text, const char *fmt, ...)
{
    char path[600];
    va_list ap;
    int n = snprintf(path, sizeof(path), "%s/", w->root);
    va_start(ap, fmt);
    (void)vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, ap);
    va_end(ap);
    for (char *slash = strchr(path + n, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    if (!text) {
        (void)mkdir(path, 0755);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static inline void vm_link(const struct vm_world *w, const char *target, const char *path)
{
    char full[600];
    (void)snprintf(full, sizeof(full), "%s/%s", w->root, path);
    (void)unlink(full);
    assert_int_equal(symlink(target, full), 0);
}

static inline void vm_remove(const struct vm_world *w, const char *path)
{
    char command[700];
    (void)snprintf(command, sizeof(command), "rm -rf '%s/%s'", w->root, path);
    assert_int_equal(system(command), 0); /* NOLINT: a test's own directory */
}

static inline void vm_open(struct vm_world *w)
{
    (void)snprintf(w->root, sizeof(w->root), "/tmp/sluice-vm-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    vm_file(w, NULL, "sys/bus/pci/devices");
    vm_file(w, "", "dev/vfio/vfio");
    vm_file(w,
            "# comment\n0001  SafeNet\n\t2335  wrong vendor\n10de  NVIDIA Corporation\n"
            "\t2203  GA102 [GeForce RTX 3090 Ti]\n\t\t1043 8871  a subsystem\n"
            "\t1aef  GA102 High Definition Audio Controller\n"
            "\t2335  GH100 [H200 SXM 141GB]\n\t26b9  AD102GL [L40S]\n10df  Emulex\n",
            "usr/share/hwdata/pci.ids");
}

static inline void vm_close(const struct vm_world *w)
{
    vm_remove(w, "");
}

#define VM_PCI "sys/bus/pci/devices/"

static inline void vm_bind(const struct vm_world *w, const char *address, const char *driver)
{
    char path[200], target[200];
    (void)snprintf(path, sizeof(path), VM_PCI "%s/driver", address);
    vm_remove(w, path);
    (void)snprintf(target, sizeof(target), "../../../bus/pci/drivers/%s", driver);
    if (*driver)
        vm_link(w, target, path);
}

/* A PCI function in an IOMMU group, which gets its node in /dev; group < 0: in none. */
static inline void vm_function(const struct vm_world *w, const char *address, unsigned device,
                               unsigned class, int group, const char *driver)
{
    char text[64], path[300], target[300];
    (void)snprintf(text, sizeof(text), "0x%04x\n", device);
    vm_file(w, "0x10de\n", VM_PCI "%s/vendor", address);
    vm_file(w, text, VM_PCI "%s/device", address);
    (void)snprintf(text, sizeof(text), "0x%04x00\n", class);
    vm_file(w, text, VM_PCI "%s/class", address);
    vm_file(w, "1\n", VM_PCI "%s/numa_node", address);
    vm_bind(w, address, driver);
    if (group < 0)
        return;
    vm_file(w, "", "dev/vfio/%d", group);
    vm_file(w, NULL, "sys/kernel/iommu_groups/%d/devices", group);
    (void)snprintf(target, sizeof(target), "../../../../kernel/iommu_groups/%d", group);
    (void)snprintf(path, sizeof(path), VM_PCI "%s/iommu_group", address);
    vm_link(w, target, path);
    (void)snprintf(target, sizeof(target), "%s/" VM_PCI "%s", w->root, address);
    (void)snprintf(path, sizeof(path), "sys/kernel/iommu_groups/%d/devices/%s", group, address);
    vm_link(w, target, path);
}

static inline void vm_h200(const struct vm_world *w, const char *address, int group,
                           const char *driver)
{
    vm_function(w, address, 0x2335, 0x0302, group, driver);
}

/* A virtual function with a vGPU type (0: none). */
static inline void vm_vf(const struct vm_world *w, const char *card, const char *address, int group,
                         unsigned type, const char *creatable)
{
    char text[64], path[300];
    vm_function(w, address, 0x26b9, 0x0302, group, "nvidia");
    (void)snprintf(text, sizeof(text), "../%s", card);
    (void)snprintf(path, sizeof(path), VM_PCI "%s/physfn", address);
    vm_link(w, text, path);
    (void)snprintf(text, sizeof(text), "%u\n", type);
    vm_file(w, text, VM_PCI "%s/nvidia/current_vgpu_type", address);
    vm_file(w, creatable, VM_PCI "%s/nvidia/creatable_vgpu_types", address);
}

/* A mediated device of a card. */
static inline void vm_mdev(const struct vm_world *w, const char *card, const char *uuid, int group,
                           const char *type)
{
    char target[300], path[300];
    vm_file(w, type, VM_PCI "%s/%s/mdev_type/name", card, uuid);
    vm_file(w, NULL, VM_PCI "%s/mdev_supported_types/nvidia-558", card);
    vm_file(w, NULL, "sys/bus/mdev/devices");
    (void)snprintf(target, sizeof(target), "../../pci/devices/%s/%s", card, uuid);
    (void)snprintf(path, sizeof(path), "sys/bus/mdev/devices/%s", uuid);
    vm_link(w, target, path);
    (void)snprintf(target, sizeof(target), "../../../../../kernel/iommu_groups/%d", group);
    (void)snprintf(path, sizeof(path), VM_PCI "%s/%s/iommu_group", card, uuid);
    vm_link(w, target, path);
    vm_file(w, "", "dev/vfio/%d", group);
}

static inline struct sl_vm_tree *vm_read(const struct vm_world *w)
{
    struct sl_vm_tree *tree = NULL;
    struct sl_err err = SL_ERR_INIT;
    struct sl_pci_names names = {0};
    (void)snprintf(names.file, sizeof(names.file), "%s/usr/share/hwdata/pci.ids", w->root);
    if (sl_vm_tree_read(w->root, &names, &tree, &err) < 0)
        fail_msg("%s", err.msg);
    sl_pci_names_clear(&names);
    return tree;
}

static inline struct sl_vm_offer *vm_offer(const struct vm_world *w,
                                           const struct sl_config_vm *config)
{
    static const struct sl_config_vm plain;
    struct sl_vm_tree *tree = vm_read(w);
    struct sl_vm_offer *offer = sl_vm_offer_make(config ? config : &plain, tree, NULL, 0, NULL);
    sl_vm_tree_free(tree);
    return offer;
}

#endif
