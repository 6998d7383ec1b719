/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant's shares as the lease that the arbiter is asked for. Pure. */
#ifndef SLUICE_SHARE_LEASE_H
#define SLUICE_SHARE_LEASE_H

#include "share/share.h"
#include "sluice/attach.h"

/* Whose a tenant is. NULL or "": not known. No blanks in them. */
struct sl_owner {
    const char *name_space, *pod, *pod_uid, *container;
    const char *claim, *claim_uid, *request; /* of a DRA claim */
    const char *slot;                        /* of a device plugin's device */
};

/* "namespace=… pod=…" for sl_msg_lease.about. A container that does not fit is left out. */
void sl_owner_text(const struct sl_owner *owner, char buf[SL_ABOUT_MAX]);

/*
 * One kept tenant on all GPUs of its shares. Shares of one GPU add up. The arbiter has one figure of cores for all
 * GPUs of a tenant: where they differ the smallest counts, so that nobody gets more than was given anywhere. The
 * highest limit and the highest priority count. -ENOSPC: more GPUs than a tenant can have.
 */
int sl_lease_compose(const char *tenant, const struct sl_owner *owner, const struct sl_share *share,
                     size_t count, struct sl_msg_lease *ret, struct sl_err *err) SL_MUST_CHECK;
/* How its GPU time is shared, where nothing says so yet. */
void sl_lease_compute(struct sl_msg_lease *lease, enum sl_compute compute);

#endif
