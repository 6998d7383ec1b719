/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a pod waits or failed, and what to change: from objects of the API server, as its user may read them. Pure. What
 * the user may not read is NULL, and is then not judged by.
 */
#ifndef SLUICE_EXPLAIN_EXPLAIN_H
#define SLUICE_EXPLAIN_EXPLAIN_H

#include <jansson.h>
#include <stdbool.h>

#define SL_GPU_RESOURCE "nvidia.com/gpu"

struct sl_explain_facts {
    const json_t *pod;       /* the Pod */
    const json_t *events;    /* array of the pod's Events, any order */
    const json_t *nodes;     /* array of all Nodes */
    const json_t *pods;      /* array of all Pods, or of those of its namespace */
    const json_t *claims;    /* array of the ResourceClaims of its namespace */
    const json_t *templates; /* array of the ResourceClaimTemplates of its namespace */
    const json_t *classes;   /* array of all DeviceClasses */
    const json_t *slices;    /* array of all ResourceSlices */
};

/* Three sentences. `code` is one word for machines; docs/what-happened.md has each of them. */
struct sl_explanation {
    const char *code;
    bool well; /* there is nothing to change */
    char what[256], why[1024];
    const char *cure;
};

void sl_explain_pod(const struct sl_explain_facts *facts, struct sl_explanation *ret);

#endif
