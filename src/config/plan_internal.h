/* SPDX-License-Identifier: Apache-2.0 */
/* A plan while it is made: first the devices and their names, then how the devices are shared. */
#ifndef SLUICE_CONFIG_PLAN_INTERNAL_H
#define SLUICE_CONFIG_PLAN_INTERNAL_H

#include "config/plan.h"

/* The longest UUID, "MIG-GPU-<uuid>/13/0", has 49 characters; "::" and a number still fit after it. */
#define SL_PLAN_UUID_MAX 50

/* A card or MIG device that will be advertised. */
struct sl_found {
    size_t gpu, mig;
    char name[SL_RESOURCE_NAME_SIZE];     /* before sharing */
    const struct sl_config_shared *entry; /* how it is shared, or NULL */
};

struct sl_planning {
    const struct sl_config *config;
    const struct sl_inventory *inv;
    struct sl_plan *plan;
    struct sl_found *found;
    size_t found_count;
    struct sl_err *err;
};

/* Adds a sentence to the plan's warnings. */
void sl_plan_warn(struct sl_planning *p, const char *fmt, ...) SL_PRINTF(2, 3);
/* The UUID of the card or MIG device. */
const char *sl_plan_uuid(const struct sl_inventory *inv, size_t gpu, size_t mig);

/* plan_devices.c: fills found. */
void sl_plan_collect(struct sl_planning *p);
/* plan_share.c: fills the entries. */
int sl_plan_share(struct sl_planning *p) SL_MUST_CHECK;

#endif
