/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster as the extender knows it: nodes with GPUs, and pods with the GPUs they hold. Watches feed it; the
 * placement engine decides. No I/O, no clock: the caller passes the time.
 *
 * A decision is a reservation. It counts from the moment it is made. It ends when the watch shows the pod bound, when
 * the pod is gone, when the pod is decided again, or when its time is up. Bound pods carry their promise in
 * annotations, so a restart rebuilds everything from the API server. There is no lock on a node: two binds on one node
 * hold two reservations.
 */
#ifndef SLUICE_CONTROLLER_CLUSTER_H
#define SLUICE_CONTROLLER_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "controller/request.h"
#include "policy/place.h"
#include "share/promise.h"

struct sl_cluster;

struct sl_cluster_options {
    enum sl_place_policy policy;
    uint64_t seed;
    void (*admitted)(void *data, const char *admission); /* the watch shows the pod; or NULL */
    void *data;
};

int sl_cluster_create(const struct sl_cluster_options *opt, struct sl_cluster **ret,
                      struct sl_err *err) SL_MUST_CHECK;
void sl_cluster_destroy(struct sl_cluster *c);

/* --- fed by watches; errors are for logs, an object that cannot be read counts as absent --- */
int sl_cluster_node_set(struct sl_cluster *c, const json_t *node, struct sl_err *err) SL_MUST_CHECK;
void sl_cluster_node_gone(struct sl_cluster *c, const char *name);
int sl_cluster_pod_set(struct sl_cluster *c, const json_t *pod, uint64_t now_ns,
                       struct sl_err *err) SL_MUST_CHECK;
void sl_cluster_pod_gone(struct sl_cluster *c, const char *uid);
/* Ends the reservations whose time is up. */
void sl_cluster_expire(struct sl_cluster *c, uint64_t now_ns);
/* Recent requests become the expected demand. Takes some milliseconds: call it in quiet moments. */
void sl_cluster_learn(struct sl_cluster *c);

/* --- deciding --- */
struct sl_cluster_ask {
    const char *uid, *name_space; /* of the pod */
    const struct sl_request *request;
    uint32_t cpu_milli;
    const json_t *preferred;  /* the pod's preferred node affinity (affinity.h); NULL: none */
    const char *const *nodes; /* candidates; NULL: all */
    size_t node_count;
};

/* Chooses a node and GPUs, and reserves them. Of the nodes with room, those that the pod prefers most come first. The name is valid until the node goes. -ENOSPC: no node has room. */
int sl_cluster_choose(struct sl_cluster *c, const struct sl_cluster_ask *ask, uint64_t now_ns,
                      const char **ret_node, struct sl_err *err) SL_MUST_CHECK;
/* Where would such a pod go now? Reserves nothing and teaches the engine nothing. ret_gpus: a bit for each card of the
 * node. -ENOSPC: no node has room. */
int sl_cluster_would(struct sl_cluster *c, const struct sl_request *request, const char **ret_node,
                     uint16_t *ret_gpus, struct sl_err *err) SL_MUST_CHECK;
/* A score for each candidate, INT32_MIN where the pod does not fit. Reserves nothing. */
int sl_cluster_scores(struct sl_cluster *c, const struct sl_cluster_ask *ask, int32_t *ret,
                      struct sl_err *err) SL_MUST_CHECK;
/* Why a node does not take the pod, in a few words; *ret_never: it would not, even without any other pod. */
const char *sl_cluster_reason(struct sl_cluster *c, const struct sl_request *request,
                              const char *node, bool *ret_never);

enum sl_cluster_outcome {
    SL_CLUSTER_BOUND,  /* the API server said yes */
    SL_CLUSTER_FAILED, /* the API server said no: the reservation is over */
    SL_CLUSTER_UNKNOWN, /* no answer: the reservation stays until its time is up; no other bind starts */
};
/* The promise for a bind to that node, from the reservation or made now. -EBUSY: another bind of the pod is running;
 * -ENOENT: the pod is not known; -ENOSPC: no room (any more). After success, call bind_end exactly once. */
int sl_cluster_bind_begin(struct sl_cluster *c, const char *uid, const char *node, uint64_t now_ns,
                          struct sl_promise *ret, struct sl_err *err) SL_MUST_CHECK;
void sl_cluster_bind_end(struct sl_cluster *c, const char *uid, enum sl_cluster_outcome outcome,
                         const char *lease, uint64_t now_ns);

/* Holds the amounts of this lease from now on; the cards are those of the pod's present lease. Until the watch shows
 * the new lease, an older one is ignored. -ENOENT: no bound pod of ours has that uid; -ENOSPC: no room on a card. */
int sl_cluster_resize(struct sl_cluster *c, const char *uid, const char *lease,
                      struct sl_err *err) SL_MUST_CHECK;
/* The API server refused the new lease: the amounts of `lease`, which the pod had before, count again. */
void sl_cluster_resize_undo(struct sl_cluster *c, const char *uid, const char *lease);

/*
 * The next node that got room while refused pods wait; each node is returned once. NULL: none. kube-scheduler may have
 * asked before the watch reported the end of a pod, and does not ask again by itself for minutes.
 */
const char *sl_cluster_next_room(struct sl_cluster *c);

/* --- looking --- */
struct sl_cluster_stats {
    size_t nodes, nodes_with_gpus, pods, bound, reserved;
    size_t misfits; /* promises that do not fit into the books: their GPUs take no new pod */
    uint64_t gpus, gpu_milli, gpu_free_milli;
    uint64_t decisions, refusals;
};
void sl_cluster_stats(const struct sl_cluster *c, struct sl_cluster_stats *ret);
/* Memory and cores promised to the pods of a namespace (running or not, but not ended). */
void sl_cluster_used(const struct sl_cluster *c, const char *name_space, uint64_t *ret_memory_mib,
                     uint64_t *ret_cores);
uint32_t sl_cluster_largest_card(const struct sl_cluster *c);
/* A card that DRA offers, for percentages. Call it before pods are set: a pod is counted only once. */
void sl_cluster_card_seen(struct sl_cluster *c, uint32_t memory_mib);
/* Does a pod of the namespace use that template? */
bool sl_cluster_uses_template(const struct sl_cluster *c, const char *name_space,
                              const char *template_name);

/* --- for the page (cluster_look.c) --- */
struct sl_page_card;
struct sl_page_tenant;
struct sl_page_waiter;
/* The cards of all nodes by name, to be freed; their texts are valid until the next change. */
struct sl_page_card *sl_cluster_cards(const struct sl_cluster *c, size_t *ret_count,
                                      size_t *ret_nodes);
/* owner: of the card. */
void sl_cluster_card_tenants(const void *owner, unsigned gpu,
                             void (*each)(void *to, const struct sl_page_tenant *tenant), void *to);
/* How many pods have GPUs, and how many have no node. */
void sl_cluster_pods(const struct sl_cluster *c, size_t *ret_placed, size_t *ret_waiting);
/* Those that have no node, from this one on. */
void sl_cluster_each_waiting(struct sl_cluster *c, size_t from, size_t count,
                             void (*each)(void *to, const struct sl_page_waiter *waiter), void *to);

/* The CPU that the scheduler charges a pod: the sum of its containers, or the largest init container if larger. */
uint32_t sl_cluster_pod_cpu(const json_t *pod);

#endif
