/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShareConfig, the opaque parameters of gpu.sluice.io in a claim or a DeviceClass:
 *
 *   apiVersion: gpu.sluice.io/v1alpha1
 *   kind: ShareConfig
 *   priority: high            # low, normal, high
 *   cores: {limit: 100}       # percent; use what is idle beyond the share, up to this
 *   strategy: libsluice       # libsluice, mps, timeSlicing
 *   allow: {…}                # a DeviceClass's only: what claims of it may ask for, as sharing.fractional.allow
 *                             # of the node's configuration, and `namespaces: [team-*]`: only those
 *
 * Everything but the first two may be left out. Unknown keys are errors: a misspelt limit is no limit.
 */
#ifndef SLUICE_AGENT_DRA_SHARE_CONFIG_H
#define SLUICE_AGENT_DRA_SHARE_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"
#include "sluice/pages.h" /* enum sl_priority */

#define SL_SHARE_API_VERSION "gpu.sluice.io/v1alpha1"
#define SL_SHARE_KIND        "ShareConfig"

enum sl_share_strategy { SL_SHARE_LIBSLUICE, SL_SHARE_MPS, SL_SHARE_TIME_SLICING };

struct sl_share_config {
    enum sl_priority priority;
    uint32_t cores_limit_permille; /* 0: as the share */
    enum sl_share_strategy strategy;
    bool any; /* something was said */
};

/* Who is reading it: a claim may not say what claims may ask for. */
struct sl_share_reader {
    const char *name_space;        /* the claim's */
    struct sl_config_allow *allow; /* gets what the class allows there; NULL: a claim's config is read */
};

#define SL_SHARE_CONFIG_DEFAULT                                                                    \
    {                                                                                              \
        .priority = SL_PRIORITY_NORMAL                                                             \
    }

/* Lays one ShareConfig over `config`: what it says replaces, the rest stays. Untouched on error. */
int sl_share_config_apply(const json_t *parameters, const struct sl_share_reader *reader,
                          struct sl_share_config *config, struct sl_err *err) SL_MUST_CHECK;

const char *sl_share_strategy_name(enum sl_share_strategy strategy);

#endif
