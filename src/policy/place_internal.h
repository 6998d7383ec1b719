/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the placement files. See place.h for the contract. */
#ifndef SLUICE_POLICY_PLACE_INTERNAL_H
#define SLUICE_POLICY_PLACE_INTERNAL_H

#include "policy/place.h"

#define PLACE_MAX_SHAPES  64  /* distinct per-GPU shares the measure looks at */
#define PLACE_MAX_CLASSES 512 /* kinds of request the measure looks at */
#define PLACE_MAX_KINDS   512 /* kinds of request with cached scores */
#define PLACE_MAX_TYPES   32  /* kinds of node with a price of their own */
#define PLACE_SCALE       16  /* a score of `sluice` is milli-GPU times this */
#define PLACE_NO_FIT      INT32_MIN
#define PLACE_MIG_SLICES  8

struct place_gpu {
    uint32_t mem_free_mib;
    uint32_t mem_total_mib;
    uint16_t cores_free;
    uint16_t mem_free_permille; /* kept apart: requests by percentage must add up exactly */
    uint16_t tenants;
    uint16_t free; /* r of the measures: milli-GPU still usable in both dimensions */
    uint8_t mig_used;
    uint8_t numa;
    uint8_t link_group;
    bool mig;
    bool blocked; /* takes nothing new */
};

/* The figures of a node's GPUs that the fragmentation measures need, for each shape. */
struct place_view {
    uint32_t free;                    /* sum of r */
    uint8_t fits[PLACE_MAX_SHAPES];   /* GPUs on which one fits */
    uint16_t tasks[PLACE_MAX_SHAPES]; /* how many fit on all GPUs together */
    uint16_t unfit[PLACE_MAX_SHAPES]; /* sum of r over GPUs on which none fits */
};

struct place_node {
    uint32_t cpu_total, cpu_free;
    uint32_t mem_total, mem_free;
    uint32_t gpu_total; /* milli */
    uint16_t pods, max_pods;
    uint8_t model, gpu_count;
    uint8_t type; /* nodes alike in model, GPUs and CPU */
    bool open;
    uint8_t unused;                        /* GPUs without a pod */
    uint8_t ready;                         /* of these, with enough CPU for a multi-GPU pod */
    double usable;                         /* milli-GPU that demand for this model can use */
    uint16_t holds[SL_PLACE_MAX_GPUS + 1]; /* pods by type: 0 shared, k whole GPUs */
    struct place_gpu gpus[SL_PLACE_MAX_GPUS];
    struct place_view view;
};

/* A per-GPU share as the measure sees it. */
struct place_shape {
    uint16_t cores;
    uint16_t mem_permille;
    uint32_t mem_mib;
    uint8_t mig;
    uint8_t tasks[1001]; /* floor(r / cores), when memory does not matter */
};

/* Requests alike in everything but host memory and preferences. */
struct place_class {
    struct sl_place_request r;
    double weight; /* how often it comes */
    double milli;  /* milli-GPU one takes */
    size_t at;     /* input order, so that equal weights sort the same everywhere */
};

/* Classes of the demand that may run on one model, as columns. */
struct place_classes {
    uint32_t count;
    float other; /* weight of the classes that can never use this model */
    float weight[PLACE_MAX_CLASSES];
    float cpu[PLACE_MAX_CLASSES];
    float cpu_inverse[PLACE_MAX_CLASSES];
    float size[PLACE_MAX_CLASSES]; /* milli-GPU of one task */
    uint16_t shape[PLACE_MAX_CLASSES];
    uint8_t num[PLACE_MAX_CLASSES];
};

/* Demand for the prices: the types of node it can use, and its amounts. */
struct place_buyer {
    uint32_t types; /* bit per type of node */
    int ratio;      /* CPU a GPU, as a power */
    double gpu, cpu;
};

struct place_demand {
    struct place_buyer *buyers;
    unsigned buyer_count;
    double buyers_gpu;
    double slot_cpu;                          /* milli-CPU a GPU that multi-GPU pods want */
    double slot_share[SL_PLACE_MAX_GPUS + 1]; /* of GPU demand that wants k or more on a node */
    uint32_t shape_count;
    double total_weight;
    struct place_shape shapes[PLACE_MAX_SHAPES];
    struct place_classes *models[SL_PLACE_MAX_MODELS]; /* only models that some node has */
    double price_gpu[PLACE_MAX_TYPES];                 /* milli-GPU lost a milli-GPU used */
    double price_cpu[PLACE_MAX_TYPES];                 /* milli-GPU lost a milli-CPU used */
};

/* One kind of request: everything but host memory, which is compared during the scan. */
struct place_kind {
    struct sl_place_request key;
    uint64_t seen;   /* requests of this kind */
    uint64_t stamp;  /* last use, for eviction */
    double milli;    /* milli-GPU one takes */
    int32_t *scores; /* by position */
    uint64_t *dirty; /* bit per position: score is stale */
    uint8_t *opens;  /* by position: unused GPUs that it would take */
};

struct sl_placer {
    struct sl_place_config config;
    uint64_t rng;
    uint32_t count, room;
    struct place_node *nodes;
    uint32_t *order;    /* position -> node */
    uint32_t *position; /* node -> position */
    uint32_t *mem_free; /* by position */
    uint32_t cpu_scale, gpu_scale;
    unsigned type_count;
    uint32_t type_example[PLACE_MAX_TYPES]; /* a node of the type */
    double type_gpu[PLACE_MAX_TYPES];       /* milli-GPU its nodes can still give */
    double type_cpu[PLACE_MAX_TYPES];       /* milli-CPU likewise */
    uint32_t slots[SL_PLACE_MAX_GPUS + 1];  /* places for k GPUs on one node */
    double cpu_a_gpu;                       /* milli-CPU that come with a milli-GPU */
    uint32_t price_due;                     /* commits until the prices move */
    uint8_t *type;                          /* by position */
    uint8_t *unused;                        /* by position: GPUs without a pod */
    uint32_t *cpu_free;                     /* by position */
    int32_t *priced;                        /* by position: scratch of one decision */
    uint64_t models;                        /* models that some node has */
    uint64_t decisions;
    uint32_t kinds_used;
    struct place_kind kinds[PLACE_MAX_KINDS];
    uint32_t hash[PLACE_MAX_KINDS * 2]; /* kind number + 1 */
    struct place_demand *demand;
    struct place_class *classes; /* the classes of the demand, to build it again */
    size_t class_count;
    struct sl_place_totals totals;
};

/* Cost of a node's ready GPUs going from u to v, as a score. */
typedef int32_t place_slot_table[SL_PLACE_MAX_GPUS + 1][SL_PLACE_MAX_GPUS + 1];

/* place_fit.c */
extern const uint8_t sl_place_mig_slices[SL_PLACE_MIG_PROFILES];
bool sl_place_gpu_fits(const struct place_gpu *g, const struct sl_place_request *r);
bool sl_place_node_fits(const struct place_node *n, const struct sl_place_request *r);
int sl_place_mig_start(uint8_t used, uint8_t profile);
bool sl_place_mig_free(const struct place_gpu *g, uint8_t profile, uint8_t start);
bool sl_place_is_whole(const struct sl_place_request *r);
/* The request takes its share of the GPU, or gives it back. */
void sl_place_gpu_move(struct place_gpu *g, const struct sl_place_request *r, uint8_t mig_start,
                       bool take);
/* Could this GPU hold such a request? False proves a wrong release. */
bool sl_place_gpu_holds(const struct place_gpu *g, const struct sl_place_request *r, uint8_t start);
/* The GPUs with the least left afterwards (or the most, for spread). The request must fit the node. */
uint16_t sl_place_pick_tightest(const struct place_node *n, const struct sl_place_request *r,
                                bool loosest);

/* place_score.c */
double sl_place_request_milli(const struct sl_place_request *r);
/* Fills gpus with the policy's choice; PLACE_NO_FIT when it does not fit. */
int32_t sl_place_score_node(const struct sl_placer *p, const struct place_node *n,
                            const struct sl_place_request *r, uint16_t *ret_gpus);

/* place_frag.c */
void sl_place_view_fill(const struct place_demand *d, struct place_node *n);
void sl_place_view_replace(const struct place_demand *d, struct place_view *v,
                           const struct place_gpu *before, const struct place_gpu *after);
double sl_place_frag_published(const struct place_demand *d, unsigned model,
                               const struct place_view *v, uint32_t cpu_free);
double sl_place_usable(const struct place_demand *d, const struct place_node *n);
double sl_place_frag_capacity(const struct place_demand *d, unsigned model,
                              const struct place_view *v, uint32_t cpu_free);

/* place_demand.c */
/* Merges the demand into classes; the caller frees them. */
struct place_class *sl_place_demand_classes(const struct sl_place_demand *items, size_t count,
                                            size_t *ret_count) SL_MUST_CHECK;
/* NULL: there is no demand. */
struct place_demand *sl_place_demand_build(const struct sl_placer *p,
                                           const struct place_class *items,
                                           size_t count) SL_MUST_CHECK;
void sl_place_demand_destroy(struct place_demand *d);

/* place_price.c */
void sl_place_price_init(const struct sl_placer *p, const struct place_class *items, size_t count,
                         struct place_demand *d);
unsigned sl_place_ready(const struct place_demand *d, unsigned unused, double cpu_free);
void sl_place_slot_costs(const struct sl_placer *p, unsigned count, place_slot_table ret);
void sl_place_price_step(struct sl_placer *p, unsigned rounds);

#endif
