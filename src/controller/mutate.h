/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fate of a pod at admission: unchanged, refused with a sentence, or patched. Pure.
 *
 * With DRA, a claim replaces the dialect's resources. The claim comes from a ResourceClaimTemplate, which the caller
 * must create before it answers. With the extender, the containers keep slots of the device plugin's resource, and the
 * annotation sluice.io/request says how much each container gets.
 */
#ifndef SLUICE_CONTROLLER_MUTATE_H
#define SLUICE_CONTROLLER_MUTATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "controller/request.h"

enum sl_mutate_mode { SL_MUTATE_DRA, SL_MUTATE_EXTENDER };

#define SL_MUTATE_DRIVER        "gpu.sluice.io"
/* The name that the driver has with the component nvidia-claims. Attributes keep Sluice's domain then. */
#define SL_MUTATE_DRIVER_NVIDIA "gpu.nvidia.com"
#define SL_MUTATE_CLAIM         "sluice-gpu" /* the claim's name in the pod */
#define SL_MUTATE_MANAGED_KEY   "app.kubernetes.io/managed-by"
#define SL_MUTATE_MANAGED_VALUE "sluice-controller"
#define SL_MUTATE_USED_KEY      "sluice.io/last-used"
#define SL_MUTATE_CARDS         8 /* alternatives of a request; a limit of the API */

struct sl_mutate_options {
    enum sl_mutate_mode mode;
    const char *slot_resource; /* the resource of the device plugin */
    const char *scheduler;     /* replaces a dialect's scheduler in pods; "": pods keep theirs */
    const char *second;        /* marks pods for this scheduler instead; NULL or "": no pod */
    bool note_plain;           /* with DRA: plain pods get a request too, for the quota to count */
    const uint32_t *card_mib;  /* sizes of cards in the cluster, for percentages */
    size_t card_count;
};

struct sl_mutation {
    bool asks;                 /* the pod asks for a GPU: request is valid */
    struct sl_request request; /* for the quota */
    json_t *patch;             /* JSON patch; NULL: the pod stays as it is */
    json_t *warnings;          /* sentences about words that have no effect; NULL: none */
    json_t *template_object;   /* to be created first, in the pod's namespace; or NULL */
    char template_name[64];
};

/* The name of the scheduler that every cluster has. The API server gives it to pods that name none. */
#define SL_MUTATE_FIRST_SCHEDULER "default-scheduler"

/* Negative: refuse, err says why. admission: the review's uid. */
int sl_mutate_pod(const json_t *pod, const char *admission, const struct sl_mutate_options *opt,
                  struct sl_mutation *ret, struct sl_err *err) SL_MUST_CHECK;
void sl_mutation_free(struct sl_mutation *mutation);
/* The template of our claim in the pod; "": the claim has no template; NULL: the pod has no such claim. */
const char *sl_mutate_claim(const json_t *pod);

/* The template alone. Its name is made from its contents, so that equal requests share one template. */
int sl_mutate_template(const struct sl_request *request, const struct sl_mutate_options *opt,
                       json_t **ret, char name[64], struct sl_err *err) SL_MUST_CHECK;
/* The name of a part's request in the claim: "gpu0". */
void sl_mutate_request_name(const struct sl_request *request, size_t part, char buf[16]);

#endif
