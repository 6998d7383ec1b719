/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler extender's protocol: JSON from kube-scheduler in, JSON out, decisions by the cluster. No I/O.
 *
 * Filter decides: it reserves GPUs on one node and answers with that node alone, because scores of 0 to 10 are too
 * coarse and kube-scheduler breaks ties at random. With `all`, filter answers with every node that fits and leaves the
 * choice to the scores, so that other preferences count too. A request with whole Node objects (an autoscaler's
 * simulation) is always answered in that way, and reserves nothing.
 */
#ifndef SLUICE_CONTROLLER_EXTENDER_H
#define SLUICE_CONTROLLER_EXTENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "controller/claims.h"
#include "controller/cluster.h"

struct sl_extender {
    struct sl_cluster *cluster;
    bool all;                       /* filter leaves the choice to the scores */
    const char *slot_resource;      /* the resource that kubelet gives containers */
    const struct sl_claims *claims; /* the fullness of nodes, for pods placed by DRA */
};

/* The answer, to be freed. The protocol wants errors inside the answer. */
char *sl_extender_filter(const struct sl_extender *e, const char *body, size_t size,
                         uint64_t now_ns);
char *sl_extender_prioritize(const struct sl_extender *e, const char *body, size_t size);

struct sl_extender_bind {
    char name[254], name_space[64], uid[64], node[254];
};
int sl_extender_bind_parse(const char *body, size_t size, struct sl_extender_bind *ret,
                           struct sl_err *err) SL_MUST_CHECK;
/* error NULL or "": the pod is bound. */
char *sl_extender_bind_answer(const char *error);
/* {"Error": …} of a filter. */
char *sl_extender_filter_error(const char *error);

#endif
