/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MIG geometry: which GPU instances and compute instances a card carries, and whether one more
 * fits. Pure: the state is a flat struct the caller keeps (in shared memory, under its lock).
 */
#ifndef SLUICE_SIM_MIG_H
#define SLUICE_SIM_MIG_H

#include <stdbool.h>

#include "sim/profiles.h"

#define SL_SIM_MIG_MAX_GI 8
#define SL_SIM_MIG_MAX_CI 8

/* Compute-instance profiles are numbered by their NVML enumeration: 1, 2, 3, 4, 7 slices = 0..4. */
#define SL_SIM_MIG_CI_PROFILES 5

struct sl_sim_mig_ci {
    uint32_t used;
    uint32_t id;
    uint32_t profile; /* NVML enumeration of the compute-instance profile */
    uint32_t start, slices;
    uint32_t generation; /* changes when the slot is reused: stale handles are told apart */
};

struct sl_sim_mig_gi {
    uint32_t used;
    uint32_t id;
    uint32_t profile; /* row in the card's MIG table */
    uint32_t start, size;
    uint32_t generation;
    struct sl_sim_mig_ci ci[SL_SIM_MIG_MAX_CI];
};

/* All zero is a card with MIG off. */
struct sl_sim_mig_state {
    uint32_t enabled;
    uint32_t generation; /* counts creations */
    struct sl_sim_mig_gi gi[SL_SIM_MIG_MAX_GI];
};

/* The row whose NVML enumeration is nvml_profile, or whose driver id is id; -1 if there is none. */
int sl_sim_mig_row_by_nvml(const struct sl_sim_profile *p, uint32_t nvml_profile);
int sl_sim_mig_row_by_id(const struct sl_sim_profile *p, uint32_t id);

/* "1g.18gb", "1g.18gb+me": sizes as the driver rounds them for this card. */
void sl_sim_mig_name(const struct sl_sim_profile *p, size_t row, char *buf, size_t size);

/* "1c.3g.71gb", or the instance's own name when it takes all of it. */
void sl_sim_mig_ci_name(const struct sl_sim_profile *p, size_t row, uint32_t slices, char *buf,
                        size_t size);

/* How many more instances of a row fit now. */
uint32_t sl_sim_mig_room(const struct sl_sim_profile *p, const struct sl_sim_mig_state *s,
                         size_t row);

/* Creates a GPU instance; start < 0 lets the card choose (upper half first, as the driver does).
 * Returns the slot, -ENOSPC when it does not fit, -EINVAL for a placement the profile has not. */
int sl_sim_mig_create_gi(const struct sl_sim_profile *p, struct sl_sim_mig_state *s, size_t row,
                         int start);

/* -EBUSY while compute instances exist on it. */
int sl_sim_mig_destroy_gi(struct sl_sim_mig_state *s, size_t slot);

/* Slices of a compute-instance profile (by NVML enumeration); 0 when there is none. */
uint32_t sl_sim_mig_ci_slices(uint32_t ci_profile);

/* How many more compute instances of a profile fit in a GPU instance. */
uint32_t sl_sim_mig_ci_room(const struct sl_sim_profile *p, const struct sl_sim_mig_gi *gi,
                            uint32_t ci_profile);

/* Same contract as create_gi; a compute instance is a MIG device. */
int sl_sim_mig_create_ci(const struct sl_sim_profile *p, struct sl_sim_mig_state *s, size_t slot,
                         uint32_t ci_profile, int start);

void sl_sim_mig_destroy_ci(struct sl_sim_mig_state *s, size_t slot, size_t ci_slot);

/* SMs of a compute instance: its part of the GPU instance's. */
uint32_t sl_sim_mig_ci_sms(const struct sl_sim_profile *p, size_t row, uint32_t slices);

/* The UUID of the MIG device on (gi, ci): depends on the card and the placement only, so the same
 * geometry made twice has the same names. */
void sl_sim_mig_uuid(const struct sl_sim_device *dev, const struct sl_sim_mig_gi *gi,
                     const struct sl_sim_mig_ci *ci, uint8_t uuid[16]);

#endif
