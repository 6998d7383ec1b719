/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels as a NodeFeature object (nfd.k8s-sigs.io/v1alpha1): where Node Feature Discovery runs, its master copies the
 * labels to the Node, and the agent need not. One object a node, applied as a whole, so that old labels go. The object
 * belongs to the Node and is deleted with it.
 *
 * Rights needed: nodefeatures create, patch, delete, in the object's namespace.
 */
#ifndef SLUICE_AGENT_NODE_NODE_FEATURE_H
#define SLUICE_AGENT_NODE_NODE_FEATURE_H

#include "agent/node/labels.h"
#include "agent/node/node.h"

struct sl_node_feature;

struct sl_node_feature_options {
    const char *node;       /* the Node's name */
    const char *name_space; /* of the object */
    struct sl_node_api api; /* requests only */
    /* The Node's metadata.uid; NULL: not known yet, and called again. */
    const char *(*node_uid)(void *data);
    /* The server has the labels (why NULL), or refuses them: no such kind of object, no right to write. Called when
     * that changes; a server that does not answer changes nothing. Attempts go on all the time. */
    void (*changed)(void *data, const char *why);
    void *data;
};

int sl_node_feature_create(struct sl_loop *loop, const struct sl_node_feature_options *opt,
                           struct sl_node_feature **ret, struct sl_err *err) SL_MUST_CHECK;
/* The object stays, as labels of a Node do. NULL is fine. Not from inside a callback. */
void sl_node_feature_destroy(struct sl_node_feature *feature);

/* Sets the labels of the object, copied. */
void sl_node_feature_labels(struct sl_node_feature *feature, const struct sl_labels *labels);
/* Deletes the object. */
void sl_node_feature_withdraw(struct sl_node_feature *feature);

enum sl_node_feature_state { SL_FEATURE_UNKNOWN, SL_FEATURE_TAKEN, SL_FEATURE_REFUSED };

struct sl_node_feature_stats {
    enum sl_node_feature_state state;
    bool current; /* the server has the wanted object */
    uint64_t writes, failures;
};
struct sl_node_feature_stats sl_node_feature_stats(const struct sl_node_feature *feature);

#endif
