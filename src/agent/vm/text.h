/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the small texts of sysfs and of pci.ids. Pure: every function takes text and accepts any text, also a text that
 * was cut or that no driver would write. A text with an unexpected form is refused, never guessed.
 */
#ifndef SLUICE_AGENT_VM_TEXT_H
#define SLUICE_AGENT_VM_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/plan.h"

#define SL_PCI_ADDRESS_SIZE 20 /* "0000:3b:00.0"; a domain has up to 8 digits */
#define SL_VGPU_NAME_SIZE   64
#define SL_MDEV_UUID_SIZE   37

/* "0000:3b:00.0", with lower-case digits and a domain of 4 to 8 digits. */
bool sl_pci_address_valid(const char *text);
/* NVML's "00000000:3B:00.0" as sysfs writes it: "0000:3b:00.0". False: not an address. */
bool sl_pci_address_from_nvml(const char *text, char ret[SL_PCI_ADDRESS_SIZE]);

/* "0x10de\n", at most `max`. */
bool sl_sysfs_hex(const char *text, uint32_t max, uint32_t *ret);
/* "-1\n", "12\n"; from -1 to INT32_MAX. */
bool sl_sysfs_number(const char *text, int *ret);
/* Is this a UUID in lower-case letters, as the kernel writes those of mediated devices? */
bool sl_mdev_uuid_valid(const char *text);

/*
 * One line of creatable_vgpu_types: "1414  : NVIDIA H200X-1-18C". Returns the place after the line; NULL: the end of the
 * text. ret_id 0: the line is no type (the heading, an empty line, or a damaged line).
 */
const char *sl_vgpu_type_line(const char *text, unsigned *ret_id, char ret_name[SL_VGPU_NAME_SIZE]);
/* A mediated device's type name without its line end; false: empty, too long, or with odd characters. */
bool sl_vgpu_name(const char *text, char ret[SL_VGPU_NAME_SIZE]);

/* The name of an NVIDIA device in a pci.ids file: "GH100 [H200 SXM 141GB]". False: it has none there. */
bool sl_pci_ids_find(const char *text, size_t size, uint32_t device, char *ret, size_t ret_size);

/* Resource names as users of KubeVirt write them, without a domain: GH100_H200_SXM_141GB for a PCI name,
 * NVIDIA_L40S-8Q for a vGPU type. False: nothing is left of the name that Kubernetes would accept. */
bool sl_vm_card_name(const char *pci_name, char ret[SL_RESOURCE_NAME_SIZE]);
bool sl_vm_vgpu_name(const char *type_name, char ret[SL_RESOURCE_NAME_SIZE]);

/* The variable that virt-launcher reads for a resource: PCI_RESOURCE_NVIDIA_COM_… for "nvidia.com/…". */
void sl_vm_variable(const char *prefix, const char *resource, char *ret, size_t size);

#endif
