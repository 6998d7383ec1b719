/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of several replicas leads, by a coordination.k8s.io/v1 Lease. Clocks need not agree: the lease of another replica
 * is over when this replica has seen no change in it for lease_ns. The times written in the lease do not count.
 */
#ifndef SLUICE_KUBE_LEADER_H
#define SLUICE_KUBE_LEADER_H

#include "base/err.h"
#include "base/loop.h"
#include "kube/kube.h"

struct sl_leader;

struct sl_leader_options {
    const char *namespace, *name; /* of the Lease */
    const char *identity;         /* the name of this replica: the pod's name, unique among the
                                   * replicas */
    /* All replicas must use the same values; lease > renew > retry. */
    uint64_t lease_ns;           /* how long the others wait for a silent leader */
    uint64_t renew_ns;           /* how long a leader leads without a renewal */
    uint64_t retry_ns;           /* between two attempts */
    void (*started)(void *data); /* this replica leads */
    void (*stopped)(void *data); /* it leads no more: act at once. Attempts go on */
    void (*trouble)(void *data, const struct sl_err *err); /* for logs. May be NULL */
    void *data;
};

/* The strings and the kube client must outlive the leader. */
int sl_leader_create(struct sl_loop *loop, struct sl_kube *kube,
                     const struct sl_leader_options *opt, struct sl_leader **ret,
                     struct sl_err *err) SL_MUST_CHECK;
/* Does not give the lease back: the others wait until it is over. Fine in callbacks. NULL is fine. */
void sl_leader_destroy(struct sl_leader *leader);
/* For a clean end: stops leading (with `stopped`), gives the lease back so that another replica can start at once, then
 * calls `released` once, also after a failure. After that, only destroy may be called. */
void sl_leader_release(struct sl_leader *leader, void (*released)(void *data));

int sl_leader_is(const struct sl_leader *leader); /* 1: this replica leads */

#endif
