/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShareConfig, the opaque parameters of gpu.sluice.io in a claim or a DeviceClass. What it says of a share is in
 * share/share_json.h; a DeviceClass's may also say what claims of it may ask for:
 *
 *   allow: {…}   # as sharing.fractional.allow of the node's configuration, and `namespaces: [team-*]`: only those
 *
 * Everything but apiVersion and kind may be left out. Unknown keys are errors: a misspelt limit is no limit.
 */
#ifndef SLUICE_AGENT_DRA_SHARE_CONFIG_H
#define SLUICE_AGENT_DRA_SHARE_CONFIG_H

#include "config/config.h"
#include "share/share_json.h"

/* Who is reading it: a claim may not say what claims may ask for. */
struct sl_share_reader {
    const char *name_space; /* the claim's */
    struct sl_config_allow
        *allow; /* gets what the class allows there; NULL: a claim's config is read */
};

/* Lays one ShareConfig over `share`: what it says replaces, the rest stays. Untouched on error. */
int sl_share_config_apply(const json_t *parameters, const struct sl_share_reader *reader,
                          struct sl_share *share, struct sl_err *err) SL_MUST_CHECK;

#endif
