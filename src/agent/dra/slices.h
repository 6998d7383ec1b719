/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ResourceSlices of this node, as JSON. Input: the cards. Output: objects. Pure.
 *
 * A card is up to three kinds of device: `gpu-N` is the whole card, many claims share `gpu-N-share` by memory and
 * cores, and `gpu-N-mig-<profile>-<start>` stands for each place of a MIG instance. All consume the card's counters, so
 * that the scheduler never gives out two that overlap. The scheduler takes the first device that fits, so the order is
 * the placement policy: shares and MIG instances fill the first cards first, whole cards are taken from the other end,
 * and a small instance goes to the place where it blocks the fewest larger ones. `vm-<id>` is a device for virtual
 * machines; a card that virtual machines have is no device of the other kinds.
 */
#ifndef SLUICE_AGENT_DRA_SLICES_H
#define SLUICE_AGENT_DRA_SLICES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/dra/device_name.h"
#include "base/err.h"
#include "base/loop.h"
#include "config/config.h"
#include "agent/vm/offer.h"
#include "gpu/inventory.h"
#include "kube/kube.h"

#define SL_SLICE_DEVICES_MIXED 64 /* in a slice, of devices with taints or counters */
#define SL_SLICE_COUNTER_SETS  8

/* Facts about a card that the inventory does not have. */
struct sl_slice_gpu {
    const struct sl_gpu_mig_profile *profile; /* none: no MIG devices */
    size_t profile_count;
    const char *pcie_root;                           /* "pci0000:15"; NULL or "": not known */
    const char *unhealthy;                           /* NULL: healthy; else why, in a sentence */
    bool taken;                                      /* virtual machines have the card */
    bool (*ours)(void *data, uint32_t gpu_instance); /* did we make it? NULL: we made none */
    void *data;
};

struct sl_slices_options {
    const char *node_name;
    const char *node_uid;           /* owner of the slices; NULL: none */
    const struct sl_inventory *inv; /* NULL: no cards for containers */
    const struct sl_slice_gpu *gpu; /* one for each card of the inventory */
    const struct sl_vm_offer *vm;   /* NULL: no devices for virtual machines */
    const struct sl_config_fractional *fractional;
    struct sl_dra_names names;
};

/* An array of ResourceSlice objects, complete except for the generation and the server's own fields. */
json_t *sl_slices_make(const struct sl_slices_options *opt);

/* slices_vm.c: the attributes of a device for virtual machines, also for the metadata in its container. */
json_t *sl_slices_vm_attributes(const struct sl_vm_device *device);
/* Appends the devices that are offered by claims. */
void sl_slices_vm(const struct sl_vm_offer *offer, json_t *devices);

#define SL_SLICE_TAINT "gpu.sluice.io/unhealthy"

/* The order in which the places of a profile are offered: indices into its placements. */
void sl_slices_mig_order(const struct sl_gpu_mig_profile *all, size_t count, size_t which,
                         uint32_t order[SL_GPU_MIG_PLACEMENTS]);

/* NVML's "00000000:1B:00.0" as the kernel and Kubernetes write it. */
void sl_slices_bus_id(const char *nvml, char *buf, size_t size);
/* "580.159.04" as a semantic version: "580.159.4". */
void sl_slices_version(const char *version, char *buf, size_t size);
/* "Hopper" from 9.0; "" where not known. */
const char *sl_slices_architecture(int cc_major, int cc_minor);

/* The memory and cores that a share may ask for, by the configuration; also the default of a share. */
struct sl_share_policy_range {
    uint64_t memory_min_mib, memory_step_mib, memory_max_mib; /* step 0: any */
    uint32_t cores_min, cores_step, cores_max;                /* percent */
};
struct sl_share_policy_range sl_slices_range(const struct sl_config_fractional *fractional,
                                             uint64_t memory_total_bytes);

/* Are the specs of two slices equal, apart from the generation and the server's own fields? */
bool sl_slices_same(const json_t *have, const json_t *want);

/*
 * slices_publish.c: keeps the ResourceSlices of this driver and node in the API server up to date: writes those that
 * differ, and writes them again when they were deleted (kubelet does that when it starts). Every change makes a new
 * generation of the whole pool, so that the scheduler never sees half a pool.
 */
struct sl_slices_publisher;
/* ours_only: slices of that driver that are not ours by their name are left alone; otherwise the driver's name is ours
 * alone, and what others left there is removed. */
int sl_slices_publish_create(struct sl_loop *loop, struct sl_kube *kube, const char *driver,
                             const char *node_name, bool ours_only,
                             struct sl_slices_publisher **ret, struct sl_err *err) SL_MUST_CHECK;
/* Is it a slice that a driver of ours wrote, by its name? */
bool sl_slices_ours(const char *name);
void sl_slices_publish_destroy(struct sl_slices_publisher *p); /* NULL is fine */

/* Sets the wanted slices (of sl_slices_make; generations are set here). Takes the reference. */
void sl_slices_publish_want(struct sl_slices_publisher *p, json_t *slices);

bool sl_slices_publish_current(const struct sl_slices_publisher *p);

#endif
