/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses free devices for a container. Whole GPUs: those with the best links between them, so that the rest stays well
 * connected. Shares and MIG devices: spread over the GPUs, or packed on few. Pure.
 */
#ifndef SLUICE_POLICY_PREFER_H
#define SLUICE_POLICY_PREFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* How GPUs are connected. */
struct sl_prefer_topology {
    size_t gpu_count;
    const uint8_t *links; /* gpu_count × gpu_count NVLinks; NULL: none */
    const int *numa;      /* by GPU, -1: not known; NULL: none is known */
};

/*
 * Chooses `size` of the GPUs in `available`, with all of `must` among them, into ret (size entries, `must` first). GPUs
 * are indices, each at most once in a list; a GPU of `must` that is not in `available` counts as available. Up to 8
 * GPUs the set is the best one; beyond that, a good one. -ERANGE: too few available, or `size` below `must`. The time
 * is limited for any numbers.
 */
int sl_prefer_whole(const struct sl_prefer_topology *topology, const size_t *available,
                    size_t available_count, const size_t *must, size_t must_count, size_t size,
                    size_t *ret, struct sl_err *err) SL_MUST_CHECK;

/* One shared device: a GPU or a MIG device with its replicas. */
struct sl_prefer_unit {
    size_t gpu;    /* the card it is (part of): below gpu_count */
    unsigned used; /* replicas that are taken already */
    unsigned free; /* replicas to choose from, `must` included */
    unsigned must; /* of these, replicas that must be taken */
};

enum sl_prefer_share { SL_PREFER_DISTRIBUTED, SL_PREFER_PACKED };

/*
 * Chooses how many replicas of each unit to take (ret, one entry a unit), `size` in all. Distributed: the GPU, then the
 * unit, least used in this call; then the least used at all. Never two of one GPU while another GPU has a free one.
 * Packed: the GPU most used, then the unit; of equals, the least used in this call. Lower indices win ties. -ERANGE as
 * above.
 */
int sl_prefer_shares(enum sl_prefer_share how, const struct sl_prefer_unit *units, size_t count,
                     size_t gpu_count, size_t size, unsigned *ret,
                     struct sl_err *err) SL_MUST_CHECK;

/*
 * The same where all must be of one unit: the least used (packed: the most used) unit that has so many. false, and ret
 * unchanged: no unit has.
 */
bool sl_prefer_together(enum sl_prefer_share how, const struct sl_prefer_unit *units, size_t count,
                        size_t size, unsigned *ret);

#endif
