/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a node's labels up to date: makes them again when the configuration, the inventory or the plan changes and
 * every gfd.sleepInterval, reports a difference, and keeps the file for Node Feature Discovery where it is wanted.
 */
#ifndef SLUICE_AGENT_NODE_LABELS_PUBLISH_H
#define SLUICE_AGENT_NODE_LABELS_PUBLISH_H

#include "agent/node/labels.h"
#include "base/loop.h"

struct sl_labeler;

struct sl_labeler_options {
    void (*changed)(void *data); /* sl_labeler_last() has changed */
    void *data;
    bool write_file;          /* also write config->gfd_output_file, for Node Feature Discovery */
    const char *sys_root;     /* before /sys in tests; NULL: none */
    uint64_t (*wall_s)(void); /* NULL: the clock */
};

struct sl_labeler *sl_labeler_create(struct sl_loop *loop, const struct sl_labeler_options *opt);
/* Removes the file, unless gfd.oneshot. NULL is fine. */
void sl_labeler_destroy(struct sl_labeler *labeler);

/*
 * Sets the current state; all three are borrowed until the next update or destroy, plan may be NULL. With gfd.oneshot
 * only the first update of the process counts. A failure to write the file is logged once, and the write is tried again
 * at the next interval.
 */
void sl_labeler_update(struct sl_labeler *labeler, const struct sl_config *config,
                       const struct sl_inventory *inv, const struct sl_plan *plan);

/* The labels that were published last; NULL: none yet. Valid until the loop runs again. */
const struct sl_labels *sl_labeler_last(const struct sl_labeler *labeler);

/* The machine's part, from DMI (`machine_file`) and the cards' PCI configuration space below sys_root. */
void sl_labels_host_read(const char *sys_root, const char *machine_file,
                         const struct sl_inventory *inv, struct sl_labels_host *ret);

#endif
