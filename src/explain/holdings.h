/* SPDX-License-Identifier: Apache-2.0 */
/* Who has how much of the cluster's GPUs: a row a node, a row a pod. Pure. */
#ifndef SLUICE_EXPLAIN_HOLDINGS_H
#define SLUICE_EXPLAIN_HOLDINGS_H

#include "explain/facts.h"

struct sl_holding_node {
    const char *name; /* borrowed from the objects, as all texts here */
    struct sl_node_has has;
    struct sl_pod_holds promised; /* to all its pods */
    unsigned pods;
};

struct sl_holding_pod {
    const json_t *pod;
    const char *name, *name_space, *node; /* node "": it waits */
    struct sl_pod_asks asks;
    struct sl_pod_holds holds;
};

struct sl_holdings {
    struct sl_holding_node *node; /* with GPUs, by name */
    size_t node_count;
    struct sl_holding_pod
        *pod; /* that have or want GPUs and have not ended; by node, then by what they hold */
    size_t pod_count;
};

/* Each argument is an array, or NULL where it may not be read. The result borrows from them. */
void sl_holdings_make(const json_t *nodes, const json_t *pods, const json_t *claims,
                      const json_t *slices, struct sl_holdings *ret);
void sl_holdings_free(struct sl_holdings *holdings);

#endif
