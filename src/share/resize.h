/* SPDX-License-Identifier: Apache-2.0 */
/* The annotation by which the owner of a claim or of a pod changes its share while the pod runs. Pure. */
#ifndef SLUICE_SHARE_RESIZE_H
#define SLUICE_SHARE_RESIZE_H

#include "share/share.h"

#define SL_RESIZE_KEY "gpu.sluice.io/resize"

/* "memory=12Gi,cores=40" or "cores=30:100": a value that is not named stays. 0: not named. */
struct sl_resize {
    uint64_t memory_bytes;
    uint32_t cores_permille, limit_permille;
};
int sl_resize_parse(const char *text, struct sl_resize *ret, struct sl_err *err) SL_MUST_CHECK;

/* The share's amounts after the change. A limit that was allocated stays, unless the new one is higher. */
struct sl_share sl_resize_share(const struct sl_share *allocated, const struct sl_resize *r);

#endif
