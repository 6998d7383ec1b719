/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's name and the names of its devices, in slices and in claims. Pure. */
#ifndef SLUICE_AGENT_DRA_DEVICE_NAME_H
#define SLUICE_AGENT_DRA_DEVICE_NAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SL_DRA_DRIVER       "gpu.sluice.io"
#define SL_DEVICE_NAME_SIZE 64 /* a DNS label */

enum sl_device_kind { SL_DEVICE_WHOLE, SL_DEVICE_SHARE, SL_DEVICE_MIG, SL_DEVICE_VM };

/* The parts of a device's name. */
struct sl_device_name {
    enum sl_device_kind kind;
    uint32_t gpu;     /* the card's index; 0 for virtual machines' */
    char profile[32]; /* as in the name: "1g18gb", "1g18gb-me"; "" unless MIG */
    uint32_t start;   /* memory slice */
};
int sl_device_name_parse(const char *name, struct sl_device_name *ret,
                         struct sl_err *err) SL_MUST_CHECK;
void sl_device_name_format(const struct sl_device_name *name, char buf[SL_DEVICE_NAME_SIZE]);
/* A device for virtual machines has its id in its name: "vm-0000-3b-00-0" for a PCI address, "vm-<uuid>". */
void sl_device_vm_name(const char *id, char buf[SL_DEVICE_NAME_SIZE]);
/* "1g.18gb+me" is "1g18gb-me" in names. */
void sl_device_profile_word(const char *profile, char *buf, size_t size);

#endif
