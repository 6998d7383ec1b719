/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sizes of cards and the fullness of nodes, from the ResourceSlices and ResourceClaims of DRA. Only for advice
 * (percentages, packing): the scheduler's own books decide.
 */
#ifndef SLUICE_CONTROLLER_CLAIMS_H
#define SLUICE_CONTROLLER_CLAIMS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"

#define SL_CLAIMS_SIZES 8

/* Zeroed before first use. */
struct sl_claims {
    struct sl_map slices, claims, pools;
    uint32_t size_mib[SL_CLAIMS_SIZES]; /* of cards, smallest first */
    size_t size_count;
};

int sl_claims_slice_set(struct sl_claims *c, const json_t *slice, struct sl_err *err) SL_MUST_CHECK;
void sl_claims_slice_gone(struct sl_claims *c, const char *name);
void sl_claims_claim_set(struct sl_claims *c, const json_t *claim);
void sl_claims_claim_gone(struct sl_claims *c, const char *uid);
void sl_claims_free(struct sl_claims *c);

/* Allocated memory of a node, in permille of the memory of its cards. */
unsigned sl_claims_fullness(const struct sl_claims *c, const char *node);

#endif
