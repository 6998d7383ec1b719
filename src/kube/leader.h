/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of several replicas leads, by a coordination.k8s.io/v1 Lease. Clocks need not agree: another's lease
 * is over when nothing in it has changed here for lease_ns, whatever the times written in it say.
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
    /* All replicas must agree on them; lease > renew > retry. */
    uint64_t lease_ns;           /* how long the others wait for a leader that says nothing */
    uint64_t renew_ns;           /* how long a leader leads without having renewed */
    uint64_t retry_ns;           /* between two attempts */
    void (*started)(void *data); /* we lead */
    void (*stopped)(void *data); /* we do not any more; it goes on trying. Act at once */
    void (*trouble)(void *data, const struct sl_err *err); /* for logs. May be NULL */
    void *data;
};

/* The strings and the kube client must outlive it. */
int sl_leader_create(struct sl_loop *loop, struct sl_kube *kube,
                     const struct sl_leader_options *opt, struct sl_leader **ret,
                     struct sl_err *err) SL_MUST_CHECK;
/* Without a word to anybody: the others wait until the lease is over. Fine in callbacks. NULL is fine. */
void sl_leader_destroy(struct sl_leader *leader);
/* For a clean end: stops leading (with `stopped`), gives the lease back so that another may start at once,
 * then says so, once, whether it worked or not. Then only destroy may follow. */
void sl_leader_release(struct sl_leader *leader, void (*released)(void *data));

int sl_leader_is(const struct sl_leader *leader); /* 1: we lead */

#endif
