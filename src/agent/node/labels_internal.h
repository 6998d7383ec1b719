/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of sl_labels_make(): rows about the node (labels_make.c) and about what it advertises. */
#ifndef SLUICE_AGENT_NODE_LABELS_INTERNAL_H
#define SLUICE_AGENT_NODE_LABELS_INTERNAL_H

#include "agent/node/labels.h"

#define LABELS_DOMAIN "nvidia.com/"
#define LABELS_MIB    ((uint64_t)1024 * 1024)

/* What the rows look at. */
struct labels_view {
    const struct sl_config *config;
    const struct sl_inventory *inv;
    const struct sl_plan *plan;
    const struct sl_labels_host *host;
    const struct sl_inv_gpu *card; /* the one that stands for all: see typical_card(); NULL: none */
    size_t count;                  /* cards that answer */
    char driver[3][32];            /* the driver's version, split at its dots */
    int driver_parts;
};

/* `<domain><resource>.<key>`, or `<domain><key>` where resource is empty; the value is made fit. */
void sl_labels_put(struct sl_labels *out, const char *resource, const char *key, const char *value,
                   const char *suffix);
/* `gpu.…`, and `mig-….…` where the plan has such. v->card is not NULL. */
void sl_labels_resources(const struct labels_view *v, struct sl_labels *out);

#endif
