/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of `sluice cluster`, and the same as JSON. */
#ifndef SLUICE_CLI_CLUSTER_VIEW_H
#define SLUICE_CLI_CLUSTER_VIEW_H

#include <stdio.h>

#include "cli/cluster_read.h"
#include "explain/holdings.h"

void sl_cluster_nodes(const struct sl_holdings *h, FILE *out);
void sl_cluster_pods(const struct sl_cluster_objects *o, const struct sl_holdings *h, FILE *out);
void sl_cluster_top(const struct sl_holdings *h, FILE *out);
/* All of it, whichever table was asked for. */
void sl_cluster_json(const struct sl_cluster_objects *o, const struct sl_holdings *h, FILE *out);

#endif
