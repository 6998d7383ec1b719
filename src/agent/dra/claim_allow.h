/* SPDX-License-Identifier: Apache-2.0 */
/* What claims and their resize annotations may ask for, by the rules of allow.h. Pure. */
#ifndef SLUICE_AGENT_DRA_CLAIM_ALLOW_H
#define SLUICE_AGENT_DRA_CLAIM_ALLOW_H

#include "agent/dra/checkpoint.h"
#include "agent/dra/claim.h"
#include "config/config.h"

/* Checks whether the claim may have everything that it asks for. -EPERM with a sentence: it may
 * not. */
int sl_allow_claim(const struct sl_config *config, const struct sl_claim *claim,
                   struct sl_err *err) SL_MUST_CHECK;

/* What may be asked for by all shares of the claim alike: of several classes, what the strictest allows. */
struct sl_config_allow sl_allow_resizes(const struct sl_config *config,
                                        const struct sl_claim *claim);
/* Checks whether this share may be resized as wanted. card_bytes is the memory of its GPU. */
int sl_allow_resize(const struct sl_config_allow *allow, const struct sl_prepared_device *device,
                    const struct sl_claim_resize *wanted, uint64_t card_bytes,
                    struct sl_err *err) SL_MUST_CHECK;

#endif
