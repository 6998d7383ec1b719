/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The labels of a GPU node, as GPU Feature Discovery names them (docs/labels.md). Pure: takes the known facts, returns
 * a sorted list. labels_publish.h and node.h write the labels.
 */
#ifndef SLUICE_AGENT_NODE_LABELS_H
#define SLUICE_AGENT_NODE_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "config/plan.h"
#include "gpu/inventory.h"

#define SL_LABEL_VALUE_MAX 63 /* Kubernetes' limit */

struct sl_label {
    char *key, *value;
};

/* Sorted by key, each key once. Zero-initialised is empty. */
struct sl_labels {
    struct sl_label *label;
    size_t count;
};

enum sl_vgpu { SL_VGPU_UNKNOWN, SL_VGPU_NO, SL_VGPU_YES };

/* Facts that are not in the inventory: read from the machine by sl_labels_host_read(). */
struct sl_labels_host {
    char machine[128]; /* DMI product name, unchanged; empty: not known */
    enum sl_vgpu vgpu;
    char vgpu_driver_version[16], vgpu_driver_branch[16]; /* the hypervisor's; empty: not known */
    uint64_t start_s;                                     /* unix time of the agent's start */
};

/* plan may be NULL (nothing is advertised). Free with sl_labels_clear. */
struct sl_labels sl_labels_make(const struct sl_config *config, const struct sl_inventory *inv,
                                const struct sl_plan *plan, const struct sl_labels_host *host);
void sl_labels_clear(struct sl_labels *labels);

/* Adds a label, or gives an existing one a new value. Both are copied. */
void sl_labels_set(struct sl_labels *labels, const char *key, const char *value);
const char *sl_labels_get(const struct sl_labels *labels, const char *key); /* NULL: not there */
bool sl_labels_equal(const struct sl_labels *a, const struct sl_labels *b);
/* Replaces the labels of `to`. */
void sl_labels_copy(struct sl_labels *to, const struct sl_labels *from);

/*
 * Turns text into a label's value: runs of spaces become '-', characters that a value may not have are dropped, at most
 * 63 characters that begin and end with a letter or digit. `suffix` (may be NULL) is kept whole: the text is cut for
 * it. The result may be empty.
 */
void sl_label_value(const char *text, const char *suffix, char ret[SL_LABEL_VALUE_MAX + 1]);

#endif
