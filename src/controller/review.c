/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/review.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_dump.h"
#include "base/json_read.h"
#include "controller/base64.h"
#include "controller/errors.h"
#include "controller/load.h"

#define BODY_MAX (8u << 20) /* an object of the API has at most 1.5 MiB; a review has two */

static int read_request(const json_t *request, struct sl_review *r, struct sl_err *err)
{
    const char *uid = sl_jget_text(request, "uid"), *space = sl_jget_text(request, "namespace");
    const json_t *resource = json_object_get(request, "resource");
    if (!uid[0] || strlen(uid) >= sizeof(r->uid))
        return sl_err_set(err, -EINVAL, SL_E_REVIEW_UID);
    if (strlen(space) >= sizeof(r->name_space))
        return sl_err_set(err, -EINVAL, SL_E_REVIEW_NAMESPACE);
    (void)snprintf(r->uid, sizeof(r->uid), "%s", uid);
    (void)snprintf(r->name_space, sizeof(r->name_space), "%s", space);
    r->dry_run = json_is_true(json_object_get(request, "dryRun"));
    r->create_pod = strcmp(sl_jget_text(request, "operation"), "CREATE") == 0 &&
                    strcmp(sl_jget_text(resource, "resource"), "pods") == 0 &&
                    sl_jget_text(resource, "group")[0] == '\0' &&
                    sl_jget_text(request, "subResource")[0] == '\0';
    r->pod = json_object_get(request, "object");
    if (r->create_pod && (!json_is_object(r->pod) || !space[0]))
        return sl_err_set(err, -EINVAL, SL_E_REVIEW_POD);
    return 0;
}

int sl_review_parse(const char *body, size_t size, struct sl_review *ret, struct sl_err *err)
{
    memset(ret, 0, sizeof(*ret));
    if (size > BODY_MAX)
        return sl_err_set(err, -EMSGSIZE, SL_E_REVIEW_LARGE, size);
    ret->root = sl_load_json(body, size, JSON_REJECT_DUPLICATES, err);
    if (!ret->root) {
        (void)sl_err_wrap(err, "the body is not an AdmissionReview");
        return -EINVAL;
    }
    int rc = strcmp(sl_jget_text(ret->root, "kind"), "AdmissionReview") == 0 &&
                     strcmp(sl_jget_text(ret->root, "apiVersion"), "admission.k8s.io/v1") == 0
                 ? read_request(json_object_get(ret->root, "request"), ret, err)
                 : sl_err_set(err, -EINVAL, SL_E_REVIEW_VERSION);
    if (rc)
        sl_review_free(ret);
    return rc;
}

void sl_review_free(struct sl_review *review)
{
    json_decref(review->root);
    memset(review, 0, sizeof(*review));
}

static char *answer(json_t *response)
{
    json_t *j = json_pack("{s:s,s:s,s:o}", "apiVersion", "admission.k8s.io/v1", "kind",
                          "AdmissionReview", "response", response);
    char *text = sl_json_dump(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

char *sl_review_allow(const char *uid, const json_t *patch, json_t *warnings)
{
    json_t *response = json_pack("{s:s,s:b,s:O*}", "uid", uid, "allowed", 1, "warnings", warnings);
    if (patch) {
        char *text SL_CLEANUP(free) = sl_json_dump(patch, JSON_COMPACT);
        char *coded SL_CLEANUP(free) = sl_base64_encode(text);
        (void)json_object_set_new(response, "patchType", json_string("JSONPatch"));
        (void)json_object_set_new(response, "patch", json_string(coded));
    }
    return answer(response);
}

char *sl_review_deny(const char *uid, unsigned code, const char *message)
{
    return answer(json_pack("{s:s,s:b,s:{s:i,s:s}}", "uid", uid, "allowed", 0, "status", "code",
                            (int)code, "message", message));
}
