/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's names and the names of its devices, in slices and in claims. Pure. */
#ifndef SLUICE_AGENT_DRA_DEVICE_NAME_H
#define SLUICE_AGENT_DRA_DEVICE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SL_DRA_DRIVER       "gpu.sluice.io"
#define SL_NVIDIA_DRIVER    "gpu.nvidia.com"
#define SL_DEVICE_NAME_SIZE 64 /* a DNS label */

enum sl_device_kind { SL_DEVICE_WHOLE, SL_DEVICE_SHARE, SL_DEVICE_MIG, SL_DEVICE_VM };

/* The parts of a device's name. */
struct sl_device_name {
    enum sl_device_kind kind;
    uint32_t gpu;     /* the card's index; 0 for virtual machines' */
    char profile[32]; /* as in the name: "1g18gb", "1g18gb-me"; "" unless MIG */
    uint32_t start;   /* memory slice */
};
/* What a claim of class gpu.nvidia.com gets, by the words of NVIDIA's driver (--consumable-shares). */
enum sl_consumable {
    SL_CONSUMABLE_DISABLED,  /* a whole GPU */
    SL_CONSUMABLE_MEMORY,    /* the memory that it names; without a name, all of it */
    SL_CONSUMABLE_UNLIMITED, /* the GPU beside any number of others; nothing is enforced */
    SL_CONSUMABLE_COUNT,     /* one of a number of equal shares */
};

/* The name under which this node's driver serves claims. One driver has one name: devices under two names would be
 * given out twice, since counters do not reach over drivers. */
struct sl_dra_names {
    bool
        nvidia; /* gpu.nvidia.com: its classes, attributes and opaque parameters; Sluice's own, too */
    enum sl_consumable consumable;
    unsigned count; /* of equal shares */
};
const char *sl_dra_driver(const struct sl_dra_names *names);
/* "disabled", "memory", "unlimited" or a number from 1 to 100. */
int sl_dra_consumable_parse(const char *text, struct sl_dra_names *names,
                            struct sl_err *err) SL_MUST_CHECK;

int sl_device_name_parse(const char *name, struct sl_device_name *ret,
                         struct sl_err *err) SL_MUST_CHECK;
void sl_device_name_format(const struct sl_device_name *name, char buf[SL_DEVICE_NAME_SIZE]);
/* A device for virtual machines has its id in its name: "vm-0000-3b-00-0" for a PCI address, "vm-<uuid>". */
void sl_device_vm_name(const char *id, char buf[SL_DEVICE_NAME_SIZE]);
/* "1g.18gb+me" is "1g18gb-me" in names. */
void sl_device_profile_word(const char *profile, char *buf, size_t size);

#endif
