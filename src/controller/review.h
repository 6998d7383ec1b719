/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and answers an AdmissionReview of admission.k8s.io/v1. Pure. */
#ifndef SLUICE_CONTROLLER_REVIEW_H
#define SLUICE_CONTROLLER_REVIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct sl_review {
    char uid[64];
    char name_space[64];
    bool create_pod; /* creates a pod; any other review is allowed unchanged */
    bool dry_run;
    const json_t *pod; /* borrowed from root */
    json_t *root;
};

int sl_review_parse(const char *body, size_t size, struct sl_review *ret,
                    struct sl_err *err) SL_MUST_CHECK;
void sl_review_free(struct sl_review *review);

/* The answers, as JSON text to be freed. patch may be NULL, and warnings: an array of sentences for the pod's maker. */
char *sl_review_allow(const char *uid, const json_t *patch, json_t *warnings);
char *sl_review_deny(const char *uid, unsigned code, const char *message);

#endif
