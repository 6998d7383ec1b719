/* SPDX-License-Identifier: Apache-2.0 */
/* Running reviews: each is read, decided, and answered once the template that it needs exists. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"
#include "controller/errors.h"
#include "controller/review.h"

#define PENDING_NS (15 * SL_NS_PER_S) /* after this time an unreported pod was never created */

struct review_call {
    struct late_call late;
    struct sl_review review;
    struct sl_mutation mutation;
    struct templates_call template;
};

static void review_free(struct review_call *r)
{
    sl_list_drop(&r->late.c->reviews, &r->late);
    sl_mutation_free(&r->mutation);
    sl_review_free(&r->review);
    free(r);
}

static void finish(struct review_call *r, const struct sl_err *denied, unsigned code)
{
    struct sl_controller *c = r->late.c;
    if (denied) {
        c->count.reviews_denied++;
        sl_info("refused a pod in namespace %s: %s", r->review.name_space, denied->msg);
    } else if (r->mutation.patch) {
        c->count.reviews_patched++;
    } else {
        c->count.reviews_untouched++;
    }
    if (r->late.call)
        sl_controller_answer(r->late.call, denied
                                               ? sl_review_deny(r->review.uid, code, denied->msg)
                                               : sl_review_allow(r->review.uid, r->mutation.patch,
                                                                 r->mutation.warnings));
    review_free(r);
}

static void template_ready(void *data, const struct sl_err *err)
{
    struct review_call *r = data;
    struct sl_err why = *err;
    if (!err->code) {
        finish(r, NULL, 0);
        return;
    }
    sl_quota_seen(&r->late.c->quota, r->review.uid); /* the pod is not admitted after all */
    (void)sl_err_wrap(&why, "cannot create the ResourceClaimTemplate of the pod; try again later");
    finish(r, &why, 500);
}

/* High priority takes from other pods: not every namespace may have it. Nodes check too: pods can bypass us. */
static int check_priority(struct review_call *r, struct sl_err *err)
{
    const struct sl_request *request = &r->mutation.request;
    for (size_t i = 0; i < request->part_count; i++)
        if (request->part[i].share.priority == SL_PRIORITY_HIGH &&
            !sl_controller_listed(r->late.c->opt.high_priority, r->review.name_space))
            return sl_err_set(err, -EPERM, SL_E_PRIORITY_NOT_ALLOWED, request->part[i].container,
                              r->review.name_space);
    return 0;
}

static int check_quota(struct review_call *r, struct sl_err *err)
{
    struct sl_controller *c = r->late.c;
    uint64_t memory, cores;
    sl_request_sums(&r->mutation.request, sl_cluster_largest_card(c->cluster), &memory, &cores);
    int rc = sl_quota_check(&c->quota, c->cluster, r->review.name_space, memory, cores, err);
    if (!rc && !r->review.dry_run)
        sl_quota_admit(&c->quota, r->review.uid, r->review.name_space, memory, cores,
                       sl_loop_now(c->loop) + PENDING_NS);
    return rc;
}

void sl_webhook_handle(struct sl_controller *c, struct sl_http_call *call,
                       const struct sl_http_request *request)
{
    struct sl_err err = SL_ERR_INIT;
    struct review_call *r = sl_xcalloc(1, sizeof(*r));
    r->late = (struct late_call){c->reviews, c, call};
    r->template = (struct templates_call){c, template_ready, r};
    if (sl_review_parse(request->body, request->body_size, &r->review, &err) != 0) {
        c->count.reviews_bad++;
        free(r);
        sl_http_answer(call, 400, "text/plain", err.msg, strlen(err.msg));
        return;
    }
    c->reviews = &r->late;
    struct sl_mutate_options opt = c->opt.mutate;
    opt.card_mib = c->claims.size_mib;
    opt.card_count = c->claims.size_count;
    opt.note_plain = sl_quota_covers(&c->quota, r->review.name_space);
    int rc = r->review.create_pod
                 ? sl_mutate_pod(r->review.pod, r->review.uid, &opt, &r->mutation, &err)
                 : 0;
    if (!rc && r->mutation.asks)
        rc = check_priority(r, &err);
    if (!rc && r->mutation.asks)
        rc = check_quota(r, &err);
    if (rc) {
        finish(r, &err, rc == -EDQUOT || rc == -EPERM ? 403 : 422);
        return;
    }
    if (!r->mutation.template_object || r->review.dry_run) {
        finish(r, NULL, 0);
        return;
    }
    json_decref(r->review.root); /* many reviews may wait for the API server: free memory */
    r->review.root = NULL;
    r->review.pod = NULL;
    sl_templates_ensure(&r->template, r->review.name_space, r->mutation.template_name,
                        r->mutation.template_object);
}

void sl_webhook_free(struct sl_controller *c)
{
    while (c->reviews)
        review_free(sl_container_of(c->reviews, struct review_call, late));
}
