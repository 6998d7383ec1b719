/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a node's labels as they should be: makes them anew when the configuration, the inventory or the
 * plan changes and every gfd.sleepInterval, hands them on when they differ, and keeps the file for
 * Node Feature Discovery where one is wanted.
 */
#ifndef SLUICE_AGENT_NODE_LABELS_PUBLISH_H
#define SLUICE_AGENT_NODE_LABELS_PUBLISH_H

#include "agent/node/labels.h"
#include "base/loop.h"

struct sl_labeler;

struct sl_labeler_options {
    void (*changed)(void *data); /* sl_labeler_last() is another than before */
    void *data;
    bool write_file;          /* also write config->gfd_output_file, for Node Feature Discovery */
    const char *sys_root;     /* before /sys in tests; NULL: none */
    uint64_t (*wall_s)(void); /* NULL: the clock */
};

struct sl_labeler *sl_labeler_create(struct sl_loop *loop, const struct sl_labeler_options *opt);
/* Removes the file it wrote, unless gfd.oneshot. NULL is fine. */
void sl_labeler_destroy(struct sl_labeler *labeler);

/*
 * What is the case now; all three are borrowed until the next update or destroy, plan may be NULL. With
 * gfd.oneshot only the first update of the process counts. A file that cannot be written is logged once
 * and tried again at the next interval.
 */
void sl_labeler_update(struct sl_labeler *labeler, const struct sl_config *config,
                       const struct sl_inventory *inv, const struct sl_plan *plan);

/* As published last; NULL: nothing yet. Good until the loop runs again. */
const struct sl_labels *sl_labeler_last(const struct sl_labeler *labeler);

/* The machine's part, from DMI (`machine_file`) and the cards' PCI configuration space below sys_root. */
void sl_labels_host_read(const char *sys_root, const char *machine_file,
                         const struct sl_inventory *inv, struct sl_labels_host *ret);

#endif
