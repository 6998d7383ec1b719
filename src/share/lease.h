/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the lease request for the arbiter from a tenant's shares. Pure. */
#ifndef SLUICE_SHARE_LEASE_H
#define SLUICE_SHARE_LEASE_H

#include "share/share.h"
#include "sluice/attach.h"

/* The owner of a tenant. NULL or "": not known. No blanks in the strings. */
struct sl_owner {
    const char *name_space, *pod, *pod_uid, *container;
    const char *claim, *claim_uid, *request; /* of a DRA claim */
    const char *slot;                        /* of a device plugin's device */
};

/* "namespace=… pod=…" for sl_msg_lease.about. A container that does not fit is left out. */
void sl_owner_text(const struct sl_owner *owner, char buf[SL_ABOUT_MAX]);

/*
 * One kept tenant on all GPUs of its shares. Shares of one GPU add up. The arbiter has one figure of cores for all GPUs
 * of a tenant: where the shares differ the smallest counts, so that no GPU gives more than was allocated. The highest
 * limit and the highest priority count. -ENOSPC: more GPUs than a tenant can have.
 */
int sl_lease_compose(const char *tenant, const struct sl_owner *owner, const struct sl_share *share,
                     size_t count, struct sl_msg_lease *ret, struct sl_err *err) SL_MUST_CHECK;
/* Sets how its GPU time is shared, unless the lease has a value already. */
void sl_lease_compute(struct sl_msg_lease *lease, enum sl_compute compute);

#endif
