/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the cluster. */
#ifndef SLUICE_CONTROLLER_CLUSTER_INTERNAL_H
#define SLUICE_CONTROLLER_CLUSTER_INTERNAL_H

#include "controller/cluster.h"

#include "base/clock.h"
#include "base/map.h"

#define CLUSTER_NO_PLACE   UINT32_MAX
#define CLUSTER_KINDS      256
#define CLUSTER_SPACE_NAME 64
#define CLUSTER_STRANGERS  64
#define CLUSTER_RESERVE_NS (30 * SL_NS_PER_S) /* how long a reservation waits for its bind */
#define CLUSTER_BY_LEASE   255                /* part of a grant read from a lease: not known */

struct cluster_gpu {
    struct sl_promise_gpu info;
    uint32_t misfits; /* pods on this GPU that did not fit into the books */
};

struct cluster_node {
    struct sl_map_item item; /* by name */
    char *name;
    char *labels;   /* of sl_affinity_labels; NULL: none, or no GPUs */
    uint32_t place; /* the engine's number; CLUSTER_NO_PLACE: no GPUs */
    uint32_t cpu_milli;
    bool present; /* the Node object is there */
    bool open;    /* … and its cards could be read */
    bool mixed;   /* cards of different models */
    bool room;    /* got room while pods wait */
    uint8_t gpu_count;
    struct cluster_gpu *gpu;
    struct cluster_pod *pods; /* the pods that hold something here */
};

/* One request to the engine, and the GPUs for it. */
struct cluster_grant {
    struct sl_place_request request;
    uint16_t gpus;
    uint16_t misfit_gpus; /* not in the books: these GPUs are blocked instead */
    uint8_t part;         /* of the request, for a reservation */
};

enum cluster_state { POD_PENDING, POD_RESERVED, POD_BINDING, POD_BOUND };

struct cluster_pod {
    struct sl_map_item item; /* by uid */
    struct cluster_space *space;
    struct cluster_node *node;
    struct cluster_pod *next;            /* on the node */
    struct cluster_pod *r_prev, *r_next; /* among the reserved */
    struct sl_request *request;          /* until bound */
    struct cluster_grant *grant;
    char *name;          /* NULL: the watch has not reported the pod */
    char *said, *since;  /* while it waits: the scheduler's words, and since when; or NULL */
    char *template_name; /* the template of its claim; or NULL */
    char *resizing;      /* the lease after a resize that the watch has not shown yet; or NULL */
    char *lease;         /* the annotation with its promise, ours or HAMi's; or NULL */
    uint32_t skip;       /* containers of the lease that use another container's GPUs */
    uint64_t until_ns;   /* of a reservation */
    uint64_t memory_mib, cores; /* as the quota counts them */
    uint32_t cpu_milli;
    uint8_t grant_count;
    uint8_t state;
    bool seen; /* the watch has reported the pod */
    bool refused;
    char uid[];
};

struct cluster_space {
    struct sl_map_item item; /* by name */
    uint64_t memory_mib, cores;
    size_t pods;
    char name[CLUSTER_SPACE_NAME];
};

/* One kind of recent request. */
struct cluster_kind {
    struct sl_place_request request;
    uint32_t weight;
};

struct sl_cluster {
    struct sl_cluster_options opt;
    struct sl_placer *placer;
    struct sl_map nodes, pods, spaces;
    struct cluster_node **by_place;
    size_t by_place_room;
    struct cluster_pod *reserved;
    size_t waiting;                        /* pods that were refused */
    char strangers[CLUSTER_STRANGERS][64]; /* uids that were refused before the watch saw them */
    unsigned next_stranger;
    bool room; /* some node has room set */
    char models[SL_PLACE_MAX_MODELS][64];
    unsigned model_count;
    struct cluster_kind kinds[CLUSTER_KINDS];
    size_t kind_count;
    uint64_t asked_since_learned;
    uint32_t largest_mib; /* memory of the largest card ever seen */
    struct sl_cluster_stats stats;
    uint64_t *allow; /* scratch: bit per engine node */
    int32_t *scores; /* scratch: by engine node */
    size_t scratch_room;
};

/* cluster.c */
struct cluster_node *sl_cluster_node_find(const struct sl_cluster *c, const char *name);
/* Finds the node, or adds it with nothing but its name. */
struct cluster_node *sl_cluster_node_get(struct sl_cluster *c, const char *name);
void sl_cluster_scratch(struct sl_cluster *c);
void sl_cluster_block(struct sl_cluster *c, struct cluster_node *n, unsigned gpu);

/* cluster_decide.c: the amounts of a share, as a request to the engine. */
struct sl_place_request sl_cluster_capacity(const struct sl_share *share, unsigned count);

/* cluster_pods.c */
struct cluster_pod *sl_cluster_pod_find(const struct sl_cluster *c, const char *uid);
struct cluster_pod *sl_cluster_pod_get(struct sl_cluster *c, const char *uid,
                                       const char *name_space);
void sl_cluster_pod_free(void *item);
/* refused: the pod fits nowhere and waits for room. kube-scheduler may know a pod before the watch reports it. */
void sl_cluster_refused(struct sl_cluster *c, const char *uid, bool refused);
/* Sets the amounts of the pod that the quota counts. */
void sl_cluster_count(struct cluster_pod *pod, uint64_t memory_mib, uint64_t cores);

/* cluster_hold.c */
/* Gives back the pod's grants and takes the pod off its node. */
void sl_cluster_pod_release(struct sl_cluster *c, struct cluster_pod *pod);
/* Puts the pod on the node with these grants, which are in the books already. Takes the array. */
void sl_cluster_pod_hold(struct cluster_pod *pod, struct cluster_node *n,
                         struct cluster_grant *grant, size_t count);
/* Holds the amounts of the pod's lease, also where we had reserved others. */
void sl_cluster_hold_lease(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n,
                           enum cluster_state state, uint64_t until_ns);
/* For a pod on a node without a lease, from another scheduler. Its CPU still counts in scores. */
void sl_cluster_hold_cpu(struct sl_cluster *c, struct cluster_pod *pod, struct cluster_node *n);
/* Changes the state, and updates the list of reserved pods and the counts. */
void sl_cluster_reserve(struct sl_cluster *c, struct cluster_pod *pod, enum cluster_state state,
                        uint64_t until_ns);
/* Takes the grants of all pods of the node out of the books; settle puts them in again, from the leases. */
void sl_cluster_node_lift(struct sl_cluster *c, struct cluster_node *n);
void sl_cluster_node_settle(struct sl_cluster *c, struct cluster_node *n);

/* cluster.c: forgets a node that is gone and holds nothing. */
void sl_cluster_node_forget(struct sl_cluster *c, struct cluster_node *n);

#endif
