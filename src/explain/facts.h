/* SPDX-License-Identifier: Apache-2.0 */
/* Reads objects of the API server: what a pod asks for, what a node has, what the events say. Pure; every function takes
 * NULL and objects of the wrong shape, and finds nothing in them. */
#ifndef SLUICE_EXPLAIN_FACTS_H
#define SLUICE_EXPLAIN_FACTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* At "a.b.c"; NULL: not there. */
const json_t *sl_facts_at(const json_t *object, const char *path);
/* Never NULL. */
const char *sl_facts_text(const json_t *object, const char *path);
/* The object of an array with this metadata.name; NULL: none. */
const json_t *sl_facts_named(const json_t *array, const char *name);
/* The condition of this type of a Pod or Node; NULL: none. */
const json_t *sl_facts_condition(const json_t *object, const char *type);
/* The newest Warning whose reason this is; NULL: none. */
const json_t *sl_facts_event(const json_t *events, const char *reason);

struct sl_pod_asks {
    uint64_t gpus;       /* devices of nvidia.com/gpu, all containers */
    uint64_t memory_mib; /* the most that a container wants of one GPU; 0: not said */
    uint64_t claims;
};
struct sl_pod_asks sl_facts_asks(const json_t *pod);

struct sl_node_has {
    uint64_t gpus;            /* devices that kubelet offers */
    uint64_t cards;           /* as the agent says, or kubelet */
    uint64_t memory_mib;      /* of all cards */
    uint64_t card_memory_mib; /* of the largest card */
    bool ready, cordoned;
};
struct sl_node_has sl_facts_node(const json_t *node);

struct sl_pod_holds {
    uint64_t devices, memory_mib, cores; /* cores in percent of one card */
};
/* What a pod has been promised; nothing once it has ended. */
struct sl_pod_holds sl_facts_holds(const json_t *pod);
bool sl_facts_ended(const json_t *pod);

/* The taint of the node that the pod does not tolerate and that keeps it away; NULL: none. */
const json_t *sl_facts_taint(const json_t *pod, const json_t *node);
/* The nodeSelector's first label that the node does not have; NULL: it fits. */
const char *sl_facts_selector(const json_t *pod, const json_t *node);

#endif
