/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ResourceQuotas on sums of GPU memory and cores, which Kubernetes itself cannot add up. The cluster's books have the
 * promises to pods; this file keeps pods that were admitted a moment ago and that the watch has not reported yet.
 */
#ifndef SLUICE_CONTROLLER_QUOTA_H
#define SLUICE_CONTROLLER_QUOTA_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "controller/cluster.h"

struct sl_quota {
    struct sl_map limits;          /* by namespace/name */
    struct quota_pending *pending; /* admitted, not yet reported by the watch */
};

int sl_quota_set(struct sl_quota *q, const json_t *object, struct sl_err *err) SL_MUST_CHECK;
void sl_quota_gone(struct sl_quota *q, const char *name_space, const char *name);
void sl_quota_free(struct sl_quota *q);

/* May the namespace have this much more? -EDQUOT: err says why not. */
int sl_quota_check(const struct sl_quota *q, const struct sl_cluster *c, const char *name_space,
                   uint64_t memory_mib, uint64_t cores, struct sl_err *err) SL_MUST_CHECK;
bool sl_quota_covers(const struct sl_quota *q, const char *name_space); /* has it a quota? */
/* A pod was admitted: it counts until the watch reports it, or until its time is up. */
void sl_quota_admit(struct sl_quota *q, const char *admission, const char *name_space,
                    uint64_t memory_mib, uint64_t cores, uint64_t until_ns);
void sl_quota_seen(struct sl_quota *q, const char *admission);
void sl_quota_expire(struct sl_quota *q, uint64_t now_ns);

#endif
