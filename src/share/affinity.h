/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node affinity as kube-scheduler counts it. Preferred: each preferred term that the node matches adds its weight. Pods
 * write it themselves, and data systems write it for them: Fluid's webhook prefers the nodes that have a dataset in
 * their cache. Pure.
 */
#ifndef SLUICE_SHARE_AFFINITY_H
#define SLUICE_SHARE_AFFINITY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The preferred terms of a pod; NULL: it has none. The pod owns them. */
const json_t *sl_affinity_preferred(const json_t *pod);

/* The labels of a node in a compact form, to be freed; NULL: it has none. */
char *sl_affinity_labels(const json_t *node);
/* The value of a label; NULL: the node does not have the label. labels: of sl_affinity_labels, or NULL. */
const char *sl_affinity_label(const char *labels, const char *key);

/* The sum of the weights of the terms that the node matches. A term that cannot be read adds nothing. */
int32_t sl_affinity_weight(const json_t *preferred, const char *node, const char *labels);

/* Does the node match the pod's required node affinity? A pod without any is matched by every node. */
bool sl_affinity_required(const json_t *pod, const char *node, const char *labels);

#endif
