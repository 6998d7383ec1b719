/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/mutate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/utf8.h"
#include "controller/dialect.h"
#include "controller/errors.h"

/* Annotations that grant something: those of a user are removed. */
static const char *const granted[] = {
    SL_PROMISE_LEASE_KEY,  SL_PROMISE_BEFORE_KEY, SL_PROMISE_RESIZED_KEY,
    SL_PROMISE_HAMI_NODE,  SL_PROMISE_HAMI_TIME,  SL_PROMISE_HAMI_PHASE,
    SL_PROMISE_HAMI_BOUND, SL_PROMISE_HAMI_TODO,  SL_PROMISE_HAMI_DONE};

/*
 * A patch while it is made: parts of the pod are copied, changed, and put back whole. "add" replaces the old part, and
 * the patch is applied to the same object from which it was made.
 */
static void put(json_t *patch, const char *path, json_t *value)
{
    (void)json_array_append_new(
        patch, json_pack("{s:s,s:s,s:o}", "op", "add", "path", path, "value", value));
}

/* Removes the dialect's words. The rest of limits and requests stays, empty maps too. */
static void strip(json_t *resources)
{
    static const char *const maps[] = {"limits", "requests"};
    for (size_t m = 0; m < SL_ARRAY_LEN(maps); m++) {
        json_t *map = json_object_get(resources, maps[m]), *value;
        const char *key;
        void *next;
        json_object_foreach_safe(map, next, key, value)
        {
            if (sl_dialect_resource(key))
                (void)json_object_del(map, key);
        }
    }
}

static void part_by_claim(const struct sl_request *r, size_t i, json_t *resources)
{
    char name[16];
    sl_mutate_request_name(r, i, name);
    json_t *claims = json_object_get(resources, "claims");
    if (!claims)
        (void)json_object_set_new(resources, "claims", claims = json_array());
    (void)json_array_append_new(claims,
                                json_pack("{s:s,s:s}", "name", SL_MUTATE_CLAIM, "request", name));
}

static void part_by_slots(const struct sl_request_part *part, const char *slot, json_t *resources)
{
    char count[8];
    (void)snprintf(count, sizeof(count), "%u", part->count);
    json_t *limits = json_object_get(resources, "limits");
    if (!limits)
        (void)json_object_set_new(resources, "limits", limits = json_object());
    (void)json_object_set_new(limits, slot, json_string(count));
    json_t *requests = json_object_get(resources, "requests");
    if (requests)
        (void)json_object_set_new(requests, slot, json_string(count));
}

static void patch_containers(json_t *patch, const json_t *pod, const struct sl_request *r,
                             const struct sl_mutate_options *opt)
{
    const json_t *spec = json_object_get(pod, "spec");
    size_t inits = json_array_size(json_object_get(spec, "initContainers"));
    for (size_t i = 0; i < r->part_count; i++) {
        const struct sl_request_part *p = &r->part[i];
        const json_t *have = json_object_get(sl_dialect_container(pod, p), "resources");
        size_t at = p->init ? p->index : p->index - inits;
        char path[64];
        (void)snprintf(path, sizeof(path), "/spec/%s/%zu/resources",
                       p->init ? "initContainers" : "containers", at);
        json_t *resources = have ? json_deep_copy(have) : json_object();
        strip(resources);
        if (opt->mode == SL_MUTATE_DRA)
            part_by_claim(r, i, resources);
        else
            part_by_slots(p, opt->slot_resource, resources);
        put(patch, path, resources);
    }
}

static void patch_claims(json_t *patch, const json_t *pod, const char *template)
{
    const json_t *have = json_object_get(json_object_get(pod, "spec"), "resourceClaims");
    json_t *claims = json_is_array(have) ? json_deep_copy(have) : json_array();
    (void)json_array_append_new(claims, json_pack("{s:s,s:s}", "name", SL_MUTATE_CLAIM,
                                                  "resourceClaimTemplateName", template));
    put(patch, "/spec/resourceClaims", claims);
}

const char *sl_mutate_claim(const json_t *pod)
{
    const json_t *claims = json_object_get(json_object_get(pod, "spec"), "resourceClaims"), *one;
    size_t i;
    json_array_foreach(claims, i, one)
    {
        if (strcmp(sl_jget_text(one, "name"), SL_MUTATE_CLAIM) == 0)
            return sl_jget_text(one, "resourceClaimTemplateName");
    }
    return NULL;
}

/* A copy of an admitted pod (kubectl get -o yaml, kubectl debug --copy-to) needs no patch, but its template may be
 * deleted by now. */
static void keep_template(const char *name, const struct sl_mutate_options *opt,
                          struct sl_mutation *m)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_mutate_template(&m->request, opt, &m->template_object, m->template_name, &err) == 0 &&
        strcmp(m->template_name, name) == 0)
        return;
    sl_mutation_free(m); /* another owner's template: leave it alone */
}

/* A request that is already in the annotation must fit this pod. */
static int check_parts(const json_t *pod, const struct sl_request *r, struct sl_err *err)
{
    const json_t *spec = json_object_get(pod, "spec");
    size_t inits = json_array_size(json_object_get(spec, "initContainers"));
    size_t all = inits + json_array_size(json_object_get(spec, "containers"));
    for (size_t i = 0; i < r->part_count; i++) {
        const struct sl_request_part *p = &r->part[i];
        bool good = r->containers == all && p->index < all && p->init == (p->index < inits);
        const json_t *container = good ? sl_dialect_container(pod, p) : NULL;
        const char *name = json_string_value(json_object_get(container, "name"));
        if (!name || strcmp(name, p->container) != 0)
            return sl_err_set(err, -EINVAL, SL_E_REQUEST_CONTAINER, SL_PROMISE_REQUEST_KEY,
                              p->container, p->index);
    }
    return 0;
}

/* The request, from the annotation of an earlier pass or from the dialect. */
static int read_pod(const json_t *pod, bool dra, struct sl_request *r, bool *ret_again,
                    struct sl_err *err)
{
    const char *text = sl_jget_note(pod, SL_PROMISE_REQUEST_KEY);
    *ret_again = text != NULL;
    if (!text)
        return sl_dialect_read(pod, r, err);
    if (dra && !sl_mutate_claim(pod) && sl_dialect_read(pod, r, NULL) == SL_DIALECT_PLAIN)
        return SL_DIALECT_PLAIN; /* a copied pod: ignore its annotation */
    int rc = sl_request_parse(text, r, err);
    if (!rc)
        rc = check_parts(pod, r, err);
    return rc ? rc : SL_DIALECT_ASKS;
}

/* Pods that name a scheduler of their own keep it. The first scheduler of a managed cluster knows no extender, so with a
 * second one every pod that would go to the first is marked for the second. */
static void patch_scheduler(json_t *patch, const json_t *pod, const struct sl_mutate_options *opt)
{
    const char *name = sl_jget_text(json_object_get(pod, "spec"), "schedulerName");
    bool second = opt->second && opt->second[0];
    const char *want = second ? opt->second : opt->scheduler;
    bool first = !name[0] || strcmp(name, SL_MUTATE_FIRST_SCHEDULER) == 0;
    if (want && want[0] && (sl_dialect_scheduler(name) || (second && first)))
        put(patch, "/spec/schedulerName", json_string(want));
}

static void add_warning(void *data, const char *text)
{
    json_t **warnings = data;
    if (!*warnings)
        *warnings = json_array();
    char whole[512]; /* what the sentence quotes may be cut inside a character */
    sl_utf8_copy(whole, sizeof(whole), text);
    (void)json_array_append_new(*warnings, json_string(whole));
}

int sl_mutate_pod(const json_t *pod, const char *admission, const struct sl_mutate_options *opt,
                  struct sl_mutation *ret, struct sl_err *err)
{
    bool dra = opt->mode == SL_MUTATE_DRA, again = false;
    const char *node = sl_jget_text(json_object_get(pod, "spec"), "nodeName");
    struct sl_request *r = &ret->request;
    memset(ret, 0, sizeof(*ret));
    int rc = read_pod(pod, dra, r, &again, err);
    if (rc <= SL_DIALECT_NOTHING)
        return rc;
    /* Whole GPUs are an ordinary extended resource of the DRA driver. Such a pod keeps its resources. But a dialect's
     * scheduler that does not run would never place it, and a quota must recognise it later. */
    bool plain = dra && rc == SL_DIALECT_PLAIN;
    const char *claim = dra && !plain ? sl_mutate_claim(pod) : NULL;
    ret->asks = !plain || opt->note_plain;
    if (claim && again) {
        keep_template(claim, opt, ret);
        return 0;
    }
    rc = plain     ? 0
         : claim   ? sl_err_set(err, -EINVAL, SL_E_CLAIM_NAME_TAKEN, SL_MUTATE_CLAIM)
         : node[0] ? sl_err_set(err, -EINVAL, SL_E_POD_HAS_NODE, node)
         : dra     ? sl_mutate_template(r, opt, &ret->template_object, ret->template_name, err)
                   : sl_dialect_check_slots(pod, r, NULL, err);
    if (rc)
        return rc;
    (void)snprintf(r->admission, sizeof(r->admission), "%.63s", admission);
    ret->patch = json_array();
    if (!plain)
        patch_containers(ret->patch, pod, r, opt);
    if (ret->asks) {
        const json_t *have = json_object_get(json_object_get(pod, "metadata"), "annotations");
        json_t *annotations = json_is_object(have) ? json_deep_copy(have) : json_object();
        char *text SL_CLEANUP(free) = sl_request_text(r);
        for (size_t i = 0; i < SL_ARRAY_LEN(granted); i++)
            (void)json_object_del(annotations, granted[i]);
        (void)json_object_set_new(annotations, SL_PROMISE_REQUEST_KEY, json_string(text));
        put(ret->patch, "/metadata/annotations", annotations);
    }
    if (dra && !plain)
        patch_claims(ret->patch, pod, ret->template_name);
    patch_scheduler(ret->patch, pod, opt);
    if (json_array_size(ret->patch) == 0)
        sl_mutation_free(ret);
    sl_dialect_warn(pod, add_warning, &ret->warnings);
    return 0;
}

void sl_mutation_free(struct sl_mutation *mutation)
{
    json_decref(mutation->patch);
    json_decref(mutation->template_object);
    json_decref(mutation->warnings);
    mutation->patch = mutation->template_object = mutation->warnings = NULL;
}
