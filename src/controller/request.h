/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU request of a pod, independent of its dialect. The webhook writes it into the pod's annotation
 * sluice.io/request, so that the extender and the quota need to know no dialect. Pure.
 */
#ifndef SLUICE_CONTROLLER_REQUEST_H
#define SLUICE_CONTROLLER_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "share/promise.h"

#define SL_REQUEST_PARTS 16
#define SL_REQUEST_LIST  512 /* bytes of a list of types or UUIDs */

/* The request of one container. */
struct sl_request_part {
    char container[64];
    uint16_t index; /* in the pod, init containers first */
    bool init;
    uint8_t count;         /* GPUs */
    int8_t same_as;        /* the part whose GPUs this part uses; -1: its own GPUs */
    struct sl_share share; /* of each GPU; memory in bytes or in percent, and not 0 */
};

enum sl_request_policy { SL_REQUEST_POLICY_NONE, SL_REQUEST_BINPACK, SL_REQUEST_SPREAD };

struct sl_request {
    struct sl_request_part part[SL_REQUEST_PARTS];
    size_t part_count;
    uint16_t containers; /* of the pod, init containers included */
    char use_type[SL_REQUEST_LIST], no_type[SL_REQUEST_LIST]; /* comma lists, "" for none */
    char use_uuid[SL_REQUEST_LIST], no_uuid[SL_REQUEST_LIST];
    bool numa;                       /* all GPUs of one NUMA node, if possible */
    uint8_t node_policy, gpu_policy; /* enum sl_request_policy: overrides the cluster's */
    char admission[64];              /* uid of the review that admitted the pod; "" */
};

/* "binpack", "spread"; any other word is none. Also one word of several ("numa,binpack"). */
uint8_t sl_request_policy_of(const char *text);

/* Text for the annotation, to be freed. */
char *sl_request_text(const struct sl_request *request);
int sl_request_parse(const char *text, struct sl_request *ret, struct sl_err *err) SL_MUST_CHECK;

/* "Tesla V100,A100" against a card's name: does the name contain any of the words, in upper or lower case? */
bool sl_request_type_matches(const char *list, const char *model);
/* Is uuid in the comma list? */
bool sl_request_uuid_listed(const char *list, const char *uuid);
/* May the pod have a card of this model; this card? */
bool sl_request_allows_type(const struct sl_request *request, const char *model);
bool sl_request_allows(const struct sl_request *request, const char *model, const char *uuid);

/* Sums of the request over all GPUs; percentages count as if each card had card_mib. */
void sl_request_sums(const struct sl_request *request, uint32_t card_mib, uint64_t *ret_memory_mib,
                     uint64_t *ret_cores);

#endif
