/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement: chooses a node, and GPUs on it, for a request. Pure: no I/O, no clock, no globals; the simulator and the
 * scheduler extender run the same code.
 *
 * The engine keeps a score for every (node, kind of request) and rescores only the nodes that changed since that kind
 * was last decided, so one decision costs a scan and a few rescored nodes. Equal scores go to the node that comes first
 * in a fixed order: a new random choice each time would spread pods over half-empty nodes and undo the effect of the
 * score.
 *
 * Not thread-safe: one owner at a time.
 */
#ifndef SLUICE_POLICY_PLACE_H
#define SLUICE_POLICY_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SL_PLACE_MAX_GPUS   16 /* GPUs on one node */
#define SL_PLACE_MAX_MODELS 64
#define SL_PLACE_WHOLE      1000 /* cores_permille of a whole GPU */

enum sl_place_policy {
    SL_PLACE_RANDOM,
    SL_PLACE_FIRST_FIT,
    SL_PLACE_DOT_PRODUCT,
    SL_PLACE_CLUSTERING,
    SL_PLACE_PACKING,
    SL_PLACE_BEST_FIT,
    SL_PLACE_BINPACK,
    SL_PLACE_SPREAD,
    SL_PLACE_FGD,    /* fragmentation gradient descent, as published */
    SL_PLACE_SLUICE, /* ours: see docs/placement.md */
    SL_PLACE_POLICIES
};

/* MIG instance sizes, by compute slices (of 7); the _MEM variant has twice the memory. */
enum sl_place_mig {
    SL_PLACE_MIG_NONE,
    SL_PLACE_MIG_1G,
    SL_PLACE_MIG_1G_MEM,
    SL_PLACE_MIG_2G,
    SL_PLACE_MIG_3G,
    SL_PLACE_MIG_4G,
    SL_PLACE_MIG_7G,
    SL_PLACE_MIG_PROFILES
};

/* Preferences of a multi-GPU request; never a reason to refuse. */
enum { SL_PLACE_PREFER_NUMA = 1u << 0, SL_PLACE_PREFER_LINK = 1u << 1 };

struct sl_place_gpu {
    uint32_t memory_mib; /* 0: not known; requests for memory in MiB do not fit */
    uint8_t numa;
    uint8_t link_group; /* GPUs of one NVLink island share a number */
    bool mig;           /* may be cut into MIG instances */
};

struct sl_place_node {
    uint32_t cpu_milli;
    uint32_t memory_mib;
    uint16_t max_pods; /* 0: no limit */
    uint8_t model;     /* caller's number, below SL_PLACE_MAX_MODELS; one model a node */
    uint8_t gpu_count;
    struct sl_place_gpu gpus[SL_PLACE_MAX_GPUS];
};

/*
 * The request of a pod. With gpu_count > 0 the fields describe the share of each GPU: cores and/or memory (a fraction),
 * whole, or a MIG profile.
 */
struct sl_place_request {
    uint32_t cpu_milli;
    uint32_t memory_mib;
    uint64_t models; /* bit per allowed model, 0 = any */
    uint32_t gpu_memory_mib;
    uint16_t gpu_memory_permille; /* of the card; used when gpu_memory_mib is 0 */
    uint16_t cores_permille;      /* SL_PLACE_WHOLE = the whole card */
    uint8_t gpu_count;
    uint8_t mig; /* enum sl_place_mig; gpu_count must be 1 */
    uint8_t prefer;
};

/* The chosen place. Pass it unchanged to sl_place_release. */
struct sl_place_decision {
    uint32_t node;
    uint16_t gpus;     /* bit per GPU */
    uint8_t mig_start; /* first memory slice of the instance */
};

/* One kind of request and how often it comes (any unit, only ratios count). */
struct sl_place_demand {
    struct sl_place_request request;
    uint32_t weight;
};

/* Constants of the `sluice` policy; sl_place_config_init gives the shipped values. */
struct sl_place_tuning {
    double band;        /* milli-GPU: scores this close count as equal, the order decides */
    double size_power;  /* weight of a class = how often * size ^ this */
    double load;        /* demand for which the prices are set, as a share of capacity */
    double price_gpu;   /* how much the GPU price counts */
    double price_cpu;   /* how much the CPU price counts */
    double capacity;    /* 0: published measure, 1: capacity-aware, between: mixed */
    double slot;        /* weight of breaking up a place for a multi-GPU pod */
    double slot_margin; /* standard deviations of multi-GPU arrivals to keep places for */
    double slot_from;   /* such places are scarce once this share of them is wanted */
};

struct sl_place_config {
    enum sl_place_policy policy;
    uint64_t seed; /* fixes the order of nodes and every draw of `random` */
    struct sl_place_tuning tuning;
    uint32_t learn_every; /* decisions between two updates of the learnt demand; 0: never learn */
};

struct sl_place_totals {
    uint64_t gpu_milli;      /* capacity, in thousandths of a GPU */
    uint64_t gpu_free_milli; /* the smaller of free cores and free memory, summed over GPUs */
    uint64_t cpu_milli;
    uint64_t cpu_free_milli;
    uint32_t nodes;
    uint32_t gpus;
    uint32_t pods;
};

struct sl_placer;

const char *sl_place_policy_name(enum sl_place_policy policy);
int sl_place_policy_parse(const char *name, enum sl_place_policy *ret,
                          struct sl_err *err) SL_MUST_CHECK;
void sl_place_config_init(struct sl_place_config *config, enum sl_place_policy policy);

/* Copies the nodes; their numbers are their positions here. */
int sl_place_create(const struct sl_place_config *config, const struct sl_place_node *nodes,
                    size_t count, struct sl_placer **ret, struct sl_err *err) SL_MUST_CHECK;
void sl_place_destroy(struct sl_placer *p);

/* A node that joins later comes last in the order. */
int sl_place_add_node(struct sl_placer *p, const struct sl_place_node *node, uint32_t *ret_node,
                      struct sl_err *err) SL_MUST_CHECK;

/* A closed node takes no new request; running pods stay in the books. */
void sl_place_open_node(struct sl_placer *p, uint32_t node, bool open);

/* The same for a GPU (unhealthy, or with a pod that does not fit into the books). */
void sl_place_block_gpu(struct sl_placer *p, uint32_t node, unsigned gpu, bool blocked);

/*
 * Tells fgd and sluice the expected demand. Without it they learn from requests (learn_every); with neither, they fall
 * back to best-fit.
 */
int sl_place_set_demand(struct sl_placer *p, const struct sl_place_demand *demand, size_t count,
                        struct sl_err *err) SL_MUST_CHECK;

/* -EINVAL when the request contradicts itself. */
int sl_place_validate(const struct sl_place_request *request, struct sl_err *err) SL_MUST_CHECK;

/*
 * Chooses; changes no capacity. `allow` (bit per node, NULL = all) restricts the choice.
 * -ENOSPC when nothing fits.
 */
int sl_place_decide(struct sl_placer *p, const struct sl_place_request *request,
                    const uint64_t *allow, struct sl_place_decision *ret,
                    struct sl_err *err) SL_MUST_CHECK;

/* Takes the capacity. -ENOSPC, and nothing is taken, when the capacity is not free (any more). */
int sl_place_commit(struct sl_placer *p, const struct sl_place_request *request,
                    const struct sl_place_decision *decision, struct sl_err *err) SL_MUST_CHECK;

/* Gives the capacity back. -EINVAL when it was never taken. */
int sl_place_release(struct sl_placer *p, const struct sl_place_request *request,
                     const struct sl_place_decision *decision, struct sl_err *err) SL_MUST_CHECK;

/* The policy's score of every node, higher is better: ret has room for all nodes, INT32_MIN where the request does not
 * fit. */
int sl_place_scores(struct sl_placer *p, const struct sl_place_request *request, int32_t *ret,
                    struct sl_err *err) SL_MUST_CHECK;

/* Chooses GPUs on one node, only among these (bit per GPU). -ENOSPC when too few of them fit. */
int sl_place_pick(const struct sl_placer *p, const struct sl_place_request *request, uint32_t node,
                  uint16_t among, struct sl_place_decision *ret, struct sl_err *err) SL_MUST_CHECK;

/*
 * One machine, by books that the caller keeps: a card as it would be with the request on it. What the request leaves
 * open (it has no limit) counts as what it would get.
 */
struct sl_place_card {
    uint64_t memory_bytes;
    uint32_t cores_permille;
    uint8_t numa;
    uint8_t link_group;
};

/*
 * Chooses `wanted` of these cards, on all of which the request fits, into ret, in the order of the list:
 * SL_PLACE_SPREAD those with most left, any other policy those with least, which is what they do on one node. Several
 * cards are taken near each other. Of equals, the first. `largest_bytes` is the memory of the largest card of the
 * machine. -ENOSPC: too few cards.
 */
int sl_place_cards(enum sl_place_policy policy, const struct sl_place_card *cards, size_t count,
                   uint64_t largest_bytes, unsigned wanted, size_t *ret,
                   struct sl_err *err) SL_MUST_CHECK;

/* Free CPU of a node. */
uint32_t sl_place_cpu_free(const struct sl_placer *p, uint32_t node);

/* Milli-GPU of the node that a request of the known demand cannot use, on average. */
double sl_place_fragmentation(const struct sl_placer *p, uint32_t node);

void sl_place_totals(const struct sl_placer *p, struct sl_place_totals *ret);

/* Free share of one GPU: cores in permille, memory in MiB. */
void sl_place_gpu_free(const struct sl_placer *p, uint32_t node, unsigned gpu,
                       uint32_t *ret_cores_permille, uint32_t *ret_memory_mib);

/*
 * Checks every book against the others: nothing above its total or below zero, sums equal their
 * parts, every cached score equal to one computed afresh. For tests; slow.
 */
int sl_place_audit(struct sl_placer *p, struct sl_err *err) SL_MUST_CHECK;

#endif
