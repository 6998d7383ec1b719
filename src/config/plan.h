/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resources that a node advertises. Input: configuration and inventory. Output: resources with their devices. Pure:
 * the agent serves the plan, `sluice config check` prints it, labels count it.
 */
#ifndef SLUICE_CONFIG_PLAN_H
#define SLUICE_CONFIG_PLAN_H

#include "config/config.h"
#include "gpu/inventory.h"

#define SL_RESOURCE_NAME_SIZE 128 /* a domain, '/', and at most 63 characters */
#define SL_DEVICE_ID_SIZE     64  /* kubelet: at most 63 characters */
#define SL_NO_MIG             SIZE_MAX

struct sl_plan_device {
    char id[SL_DEVICE_ID_SIZE]; /* "<uuid>" or "<uuid>::<replica>" */
    size_t gpu;                 /* index in the inventory */
    size_t mig;                 /* index in that card's MIG devices, or SL_NO_MIG */
    unsigned replica;
    /* A resource may hold shares of one card and the whole of another. NONE: the whole device. */
    enum sl_sharing sharing;
    int numa_node; /* -1: not known */
};

struct sl_plan_resource {
    char name[SL_RESOURCE_NAME_SIZE];      /* as advertised: "nvidia.com/gpu.shared" */
    char base_name[SL_RESOURCE_NAME_SIZE]; /* before renaming */
    enum sl_sharing sharing;
    bool fail_requests_greater_than_one;
    bool renamed;
    struct sl_plan_device *device;
    size_t device_count;
};

struct sl_plan {
    struct sl_plan_resource *resource;
    size_t resource_count;
    char **warning; /* sentences: which devices were left out, and why */
    size_t warning_count;
};

/* An error is a setting that does not fit this very node ("devices: GPU 7 of 4"). */
int sl_plan_make(const struct sl_config *config, const struct sl_inventory *inv,
                 struct sl_plan **ret, struct sl_err *err) SL_MUST_CHECK;
void sl_plan_free(struct sl_plan *plan); /* NULL is fine */

/* How many replicas the card (mig SL_NO_MIG) or MIG device has in the plan; 0 when the plan does not contain it. */
unsigned sl_plan_replicas(const struct sl_plan *plan, size_t gpu, size_t mig);

#endif
