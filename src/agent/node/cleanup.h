/* SPDX-License-Identifier: Apache-2.0 */
/* Takes away what agents left on a node after the last one has ended: files and folders, labels and annotations of the
 * Node. Objects of the cluster are the administrator's to delete (docs/uninstall.md). */
#ifndef SLUICE_AGENT_NODE_CLEANUP_H
#define SLUICE_AGENT_NODE_CLEANUP_H

#include <jansson.h>

#include "base/err.h"
#include "base/loop.h"
#include "kube/kube.h"

/* Files of agents below `root`, the node's root. All are tried; the first error is reported. */
int sl_cleanup_files(const char *root, struct sl_err *err) SL_MUST_CHECK;

/* The merge patch that takes our labels and annotations from a Node; NULL: it has none. Pure. */
json_t *sl_cleanup_patch(const json_t *node);

/* Sends it, and runs the loop until the server has taken it. An error is the server's: try again later. */
int sl_cleanup_node(struct sl_loop *loop, struct sl_kube *kube, const char *node,
                    struct sl_err *err) SL_MUST_CHECK;

#endif
