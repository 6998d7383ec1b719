/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster's objects in the form of policy/advice.h. Pure. */
#ifndef SLUICE_CLI_LIVE_WORLD_H
#define SLUICE_CLI_LIVE_WORLD_H

#include <jansson.h>

#include "policy/advice.h"
#include "share/promise.h"

struct live_node {
    const char *name; /* borrowed from the objects, as all texts here */
    const json_t *object;
    char *labels; /* of sl_affinity_labels */
    char uuid[SL_PLACE_MAX_GPUS][64];
    char model[64]; /* of the first card */
};

struct live_pod {
    const char *name_space, *name;
    const json_t *object;
};

struct live_world {
    struct live_node *node;
    struct sl_advice_node *advice_node;
    size_t node_count;
    struct live_pod *pod;
    struct sl_advice_pod *advice_pod;
    size_t pod_count, pod_room;
    uint64_t *allow; /* by pod, a bit a node */
    size_t allow_words;
    size_t fixed; /* pods that must not be moved */
};

/* Arrays of objects; claims and slices may be NULL. The result borrows from them. */
void sl_live_make(const json_t *nodes, const json_t *pods, const json_t *claims,
                  const json_t *slices, struct live_world *ret);
void sl_live_free(struct live_world *w);

#endif
