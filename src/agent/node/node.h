/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our Node object: writes labels, reads the config label, writes events about the Node and about pods. Every call is a
 * wish that is carried out when the API server answers: while the server is away nothing blocks and nothing piles up,
 * and the newest state is written when it is back.
 *
 * Rights needed: nodes get, list, watch, patch; events create, patch.
 */
#ifndef SLUICE_AGENT_NODE_NODE_H
#define SLUICE_AGENT_NODE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/node/labels.h"
#include "base/loop.h"
#include "kube/kube.h"

#define SL_NODE_CONFIG_LABEL     "nvidia.com/device-plugin.config"
#define SL_NODE_OWNED_ANNOTATION "sluice.io/owned-labels" /* keys, comma-separated */
/* When the agent began that wrote the labels last, in nanoseconds. While an agent is replaced there are two. */
#define SL_NODE_SINCE_ANNOTATION "sluice.io/labels-by"

struct sl_node;

/* The API server's functions; sl_node_api_kube() is the real server, tests have their own. The contracts are those of
 * kube/kube.h. */
struct sl_node_api {
    struct sl_kube *server;
    int (*request)(struct sl_kube *server, const char *method, const char *path,
                   const char *content_type, json_t *body, sl_kube_done *done, void *data,
                   struct sl_kube_call **ret, struct sl_err *err);
    void (*cancel)(struct sl_kube_call *call);
    int (*watch)(struct sl_kube *server, const char *path, const struct sl_kube_watch_ops *ops,
                 void *data, struct sl_kube_watch **ret, struct sl_err *err);
    void (*unwatch)(struct sl_kube_watch *watch);
};
static inline struct sl_node_api sl_node_api_kube(struct sl_kube *kube)
{
    return (struct sl_node_api){kube, sl_kube_request, sl_kube_cancel, sl_kube_watch_start,
                                sl_kube_watch_stop};
}

struct sl_node_options {
    const char *name; /* of the node */
    struct sl_node_api api;
    /* The value of SL_NODE_CONFIG_LABEL, once known and when it changes. NULL: no such label. May be NULL. */
    void (*config_label)(void *data, const char *value);
    void (*seen)(void *data); /* the Node was read: its annotations may be others. May be NULL. */
    void *data;
    uint64_t (*wall_ns)(void); /* for events' times; NULL: the clock */
};

int sl_node_create(struct sl_loop *loop, const struct sl_node_options *opt, struct sl_node **ret,
                   struct sl_err *err) SL_MUST_CHECK;
/* Requests that were not sent yet are lost. NULL is fine. Not from inside config_label. */
void sl_node_destroy(struct sl_node *node);

/*
 * Sets the labels that the node shall have from us, copied. Our earlier labels that are not among them are removed,
 * after a restart too; other labels are never touched. If another writer keeps changing a label back, we give that
 * label up after a few times and write an event.
 */
void sl_node_labels(struct sl_node *node, const struct sl_labels *labels);

/* Another writer has the labels from now on: we write none, and the existing labels stay. */
void sl_node_disown(struct sl_node *node);

/*
 * Sets annotations of the node, copied; the value "" removes one. Other annotations are not touched.
 */
void sl_node_annotations(struct sl_node *node, const struct sl_labels *notes);

/* An annotation of the Node, as seen last; NULL: none, or not seen yet. Valid until the loop runs again. */
const char *sl_node_annotation(const struct sl_node *node, const char *key);

/* The Node's metadata.uid; NULL until it was seen. */
const char *sl_node_uid(const struct sl_node *node);

enum sl_event_type { SL_EVENT_NORMAL, SL_EVENT_WARNING };

/*
 * Writes an event. `reason` is CamelCase. An equal event is counted, not repeated. The number of kept events and the
 * rate are limited; the oldest are dropped.
 */
void sl_node_event(struct sl_node *node, enum sl_event_type type, const char *reason,
                   const char *text);
/* The same about a pod. uid may be NULL. */
void sl_pod_event(struct sl_node *node, const char *pod_namespace, const char *pod, const char *uid,
                  enum sl_event_type type, const char *reason, const char *text);

struct sl_node_stats {
    bool labels_current; /* the Node has the wanted labels */
    uint64_t label_writes, label_failures;
    uint64_t events_sent, events_dropped;
};
struct sl_node_stats sl_node_stats(const struct sl_node *node);

#endif
