/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What DRA has given out, from ResourceSlices and ResourceClaims: how large the cards are, and how full each
 * node is. Only for advice (percentages, packing): the scheduler's own books are the ones that count.
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

/* Memory given out on a node, in permille of what its cards have. */
unsigned sl_claims_fullness(const struct sl_claims *c, const char *node);

#endif
