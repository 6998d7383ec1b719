/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice about fragmentation: which pods would have to move, and where to, so that whole cards become free. It only
 * recommends. Pure: nodes and pods in, moves out; the placement engine says what fits.
 *
 * Every move fits at the moment when it comes, after the moves before it. On a small cluster (see SL_ADVICE_STATES) the
 * advice is the best there is: as many whole cards as can be had, by the fewest moves. On a large one cards are emptied
 * one after the other, those with the fewest pods first.
 */
#ifndef SLUICE_POLICY_ADVICE_H
#define SLUICE_POLICY_ADVICE_H

#include "policy/place.h"

#define SL_ADVICE_PARTS  4     /* of one pod: containers of different sizes */
#define SL_ADVICE_STATES 20000 /* arrangements that are looked at before the search is given up */

/* The node's CPU and memory are what is left beside pods that are not listed. */
struct sl_advice_node {
    struct sl_place_node node;
    bool open;        /* takes new pods; a closed node is neither filled nor emptied */
    uint16_t blocked; /* bit per GPU: sick, or used by somebody who is not listed */
};

/* The pod is on a node. All its parts stay together on one node. */
struct sl_advice_pod {
    uint32_t node;
    uint8_t part_count;
    struct {
        struct sl_place_request request;
        uint16_t gpus;
    } part[SL_ADVICE_PARTS];
    bool fixed;            /* must not be moved */
    const uint64_t *allow; /* bit per node: where it may run; NULL: everywhere */
};

struct sl_advice_move {
    size_t pod;
    uint32_t from, to;
    uint16_t gpus_from, gpus_to; /* of all parts */
};

/* A card that is whole after this many of the moves, and stays so. */
struct sl_advice_card {
    uint32_t node;
    uint8_t gpu;
    size_t after;
};

struct sl_advice {
    struct sl_advice_move *move; /* in the order in which they can be made */
    size_t move_count;
    struct sl_advice_card *freed; /* by `after` */
    size_t freed_count;
    size_t whole_before, whole_after; /* cards that nobody uses, on nodes that take pods */
    bool best;                        /* all arrangements were looked at: nothing better exists */
    size_t
        misfits; /* pods that do not fit into the books where they are: they are not moved, and nothing is put
                       beside them */
};

struct sl_advice_limits {
    size_t moves; /* at most so many; 0: any number */
};

int sl_advice_make(const struct sl_advice_node *nodes, size_t node_count,
                   const struct sl_advice_pod *pods, size_t pod_count,
                   const struct sl_advice_limits *limits, struct sl_advice *ret,
                   struct sl_err *err) SL_MUST_CHECK;
void sl_advice_free(struct sl_advice *advice);

#endif
