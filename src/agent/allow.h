/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may ask for what. Claims and pods are written by users; what they may ask for beyond a plain share comes from the
 * administrator: the node's configuration (sharing.fractional.allow, by namespace too) and the DeviceClass. Pure.
 */
#ifndef SLUICE_AGENT_ALLOW_H
#define SLUICE_AGENT_ALLOW_H

#include "agent/checkpoint.h"
#include "agent/claim.h"
#include "config/config.h"

/* May the claim have all that it asks for? -EPERM and a sentence: it may not. */
int sl_allow_claim(const struct sl_config *config, const struct sl_claim *claim,
                   struct sl_err *err) SL_MUST_CHECK;

/* What may be asked for by all shares of the claim alike: of several classes, what the strictest allows. */
struct sl_config_allow sl_allow_resizes(const struct sl_config *config, const struct sl_claim *claim);
/* May this share be changed so? card_bytes is its GPU's memory. */
int sl_allow_resize(const struct sl_config_allow *allow, const struct sl_prepared_device *share,
                    const struct sl_claim_resize *wanted, uint64_t card_bytes,
                    struct sl_err *err) SL_MUST_CHECK;

/* The same for a pod that the extender placed: priority is enum sl_priority, permille of one GPU. */
int sl_allow_lease(const struct sl_config *config, const char *name_space, unsigned priority,
                   uint32_t request_permille, uint32_t limit_permille,
                   struct sl_err *err) SL_MUST_CHECK;

#endif
