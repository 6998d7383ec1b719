/* SPDX-License-Identifier: Apache-2.0 */
/* The annotation by which a claim's owner changes a share while its pod runs. Also the names of its containers. */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/json_read.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"

struct resize_watch {
    struct resize_watch *next;
    struct sl_dra *dra;
    char uid[SL_UID_SIZE];
    struct sl_kube_watch *watch;
    struct sl_kube_call *get_pod; /* for its containers' names */
    char text[128];               /* the annotation that was carried out last */
    bool acted;                   /* false: it may have been removed while no agent ran */
    struct sl_resize wanted;
    struct sl_config_allow allow; /* the rights of the annotation, as last seen */
    size_t at;                    /* the device whose tenant is being changed */
    bool busy;                    /* a question to the arbiter is open */
    unsigned failures;            /* in a row, with this annotation; each may pass */
    struct sl_timer again;        /* set: the next try */
    char next_text[128];          /* the annotation that came meanwhile */
    bool next_there;
};

static void resize_begin(struct resize_watch *w, const char *text);

static void watch_free(struct resize_watch *w)
{
    sl_timer_stop(w->dra->loop, &w->again);
    sl_kube_watch_stop(w->watch);
    sl_kube_cancel(w->get_pod);
    sl_list_drop(&w->dra->watches, w);
    free(w);
}

/* No question to the arbiter is open any more: an annotation that came meanwhile is next. */
static void resize_over(struct resize_watch *w)
{
    w->busy = false;
    if (w->next_there) {
        w->next_there = false;
        resize_begin(w, w->next_text);
    }
}

static void tell(struct resize_watch *w, bool good, const char *reason, const char *message)
{
    struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    if (!p)
        return;
    sl_dra_status_write(w->dra, p, reason, good, message);
    sl_dra_tell(w->dra, p, !good, good ? "SluiceResized" : "SluiceResizeFailed", message);
}

static void resize_told(struct resize_watch *w, bool good, const char *reason, const char *message)
{
    tell(w, good, reason, message);
    resize_over(w);
}

static void resize_next(struct resize_watch *w);

/* The tenant's devices now have the wanted amounts; an amount that was not named is the claim's own. */
static void record(struct sl_prepared *p, const char *tenant, const struct sl_resize *r)
{
    for (size_t i = 0; i < p->device_count; i++)
        if (strcmp(p->device[i].tenant, tenant) == 0)
            p->device[i].resized = *r;
}

static void again_fired(struct sl_timer *timer)
{
    struct resize_watch *w = sl_container_of(timer, struct resize_watch, again);
    const struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    if (w->busy || !p || p->state != SL_PREPARED)
        return;
    w->busy = true;
    resize_next(w);
}

/* The failure may pass: tries again until it has passed, or until the annotation changes. Told once. */
static void resize_later(struct resize_watch *w, const struct sl_prepared *p, const char *reason,
                         const struct sl_err *err)
{
    w->failures++;
    w->again.fire = again_fired;
    sl_timer_set(w->dra->loop, &w->again,
                 sl_loop_now(w->dra->loop) + sl_leases_again_ns(w->failures));
    if (w->failures == 1)
        sl_warn("cannot resize claim %s/%s: %s; the agent tries again", p->name_space, p->name,
                err->msg);
    if (w->failures == SL_LEASES_TRIES)
        tell(w, false, reason, err->msg);
    resize_over(w);
}

static void set_unsure(struct sl_dra *dra, struct sl_prepared *p, bool unsure)
{
    if (p->unsure == unsure)
        return;
    p->unsure = unsure;
    sl_dra_mark_dirty(dra);
}

static void resize_done(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct resize_watch *w = data;
    struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    if (!p) {
        w->busy = false;
        return;
    }
    if (rc == -ETIMEDOUT)
        set_unsure(w->dra, p, true);
    if (rc < 0 && sl_leases_may_pass(rc)) {
        resize_later(w, p, "Refused", err);
        return;
    }
    if (rc < 0) {
        resize_told(w, false, "Refused", err->msg);
        return;
    }
    record(p, p->device[w->at].tenant, &w->wanted);
    sl_dra_mark_dirty(w->dra);
    if (text[0])
        sl_dra_tell(w->dra, p, true, "SluiceResized", text);
    w->at++;
    resize_next(w);
}

/* Checks all devices of the current tenant. */
static int check_allowed(const struct resize_watch *w, const struct sl_prepared *p,
                         struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < p->device_count && rc == 0; i++)
        if (strcmp(p->device[i].tenant, p->device[w->at].tenant) == 0)
            rc = sl_allow_resize(&w->allow, &p->device[i], &w->wanted,
                                 sl_dra_card_bytes(w->dra, p->device[i].share.gpu), err);
    return rc;
}

static void resize_next(struct resize_watch *w)
{
    struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_lease set;
    while (w->at < p->device_count && !sl_dra_first_of_tenant(p, w->at))
        w->at++;
    if (w->at == p->device_count) {
        char text[200];
        (void)snprintf(text, sizeof(text), "the share is now %s",
                       w->text[0] ? w->text : "as it was allocated");
        set_unsure(w->dra, p, false);
        resize_told(w, true, "Resized", text);
        return;
    }
    /* Set the new size for the question to the arbiter, and take it back if it does not fit. */
    const struct sl_resize before = p->device[w->at].resized;
    if (check_allowed(w, p, &err) < 0) {
        resize_told(w, false, "NotAllowed", err.msg);
        return;
    }
    record(p, p->device[w->at].tenant, &w->wanted);
    for (size_t i = 0; i < p->device_count; i++)
        if (strcmp(p->device[i].tenant, p->device[w->at].tenant) == 0 &&
            sl_dra_fits(w->dra, &p->device[i], &err) < 0) {
            record(p, p->device[w->at].tenant, &before);
            if (p->unsure) /* the tenant may have that room already: the claim in its way passes */
                resize_later(w, p, "NoRoom", &err);
            else
                resize_told(w, false, "NoRoom", err.msg);
            return;
        }
    int rc = sl_dra_compose(w->dra, p, w->at, true, &set, &err);
    record(p, p->device[w->at].tenant, &before);
    if (rc < 0)
        resize_told(w, false, "Refused", err.msg);
    else
        sl_leases_ask(w->dra->leases, &(struct sl_leases_item){SL_MSG_SET, &set, NULL}, 1,
                      resize_done, w);
}

static bool as_wanted(const struct sl_prepared *p, const struct sl_resize *r)
{
    for (size_t i = 0; i < p->device_count; i++) {
        const struct sl_prepared_device *d = &p->device[i];
        if (d->tenant[0] && (d->resized.memory_bytes != r->memory_bytes ||
                             d->resized.cores_permille != r->cores_permille ||
                             d->resized.limit_permille != r->limit_permille))
            return false;
    }
    return true;
}

static void resize_begin(struct resize_watch *w, const char *text)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_resize r = {0};
    struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    if (w->busy) {
        (void)snprintf(w->next_text, sizeof(w->next_text), "%s", text);
        w->next_there = true;
        return;
    }
    if (!p || p->state != SL_PREPARED || (w->acted && strcmp(text, w->text) == 0))
        return;
    w->acted = true;
    w->failures = 0;
    sl_timer_stop(w->dra->loop, &w->again);
    (void)snprintf(w->text, sizeof(w->text), "%s", text);
    if (text[0] && sl_resize_parse(text, &r, &err) < 0) {
        resize_told(w, false, "Invalid", err.msg);
        return;
    }
    if (as_wanted(p, &r) && !p->unsure) /* after a restart the annotation is read again */
        return;
    w->wanted = r;
    w->at = 0;
    w->busy = true;
    resize_next(w);
}

/* The class's rights are in the claim's allocation: the scheduler copied them there. */
static void learn_allowed(struct resize_watch *w, const json_t *object)
{
    struct sl_claim *claim = sl_xcalloc(1, sizeof(*claim));
    const struct sl_config *config = w->dra->config;
    w->allow = sl_config_allowed(config, sl_kube_meta(object, "namespace"));
    if (sl_claim_parse(object, &w->dra->opt.names, w->dra->opt.node_name, w->uid, claim, NULL) == 0)
        w->allow = sl_allow_resizes(config, claim);
    free(claim);
}

static void claim_object(void *data, enum sl_kube_event event, json_t *object)
{
    struct resize_watch *w = data;
    const char *text = sl_jget_note(object, SL_RESIZE_KEY);
    if (event == SL_KUBE_DELETED || strcmp(sl_kube_meta(object, "uid"), w->uid) != 0)
        return;
    learn_allowed(w, object);
    resize_begin(w, text ? text : "");
}

/* --- the containers of a tenant --- */

static void described(void *data, int rc, const char *text, const struct sl_err *err)
{
    (void)data;
    (void)text;
    if (rc < 0)
        sl_warn("cannot tell the arbiter the name of a container: %s", err->msg);
}

/* For `sluice status` and metrics: which container uses which tenant. Read while the containers start. */
static void got_containers(void *data, int status, json_t *pod, const struct sl_err *err)
{
    struct resize_watch *w = data;
    struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    struct sl_msg_lease ask;
    w->get_pod = NULL;
    if (status != 200 || !p || p->state != SL_PREPARED) {
        if (status != 200 && status != 404)
            sl_warn("the names of the containers are not known: %s", err->msg);
        return;
    }
    for (size_t i = 0; i < p->device_count; i++) {
        struct sl_prepared_device *d = &p->device[i];
        sl_claim_containers(pod, p->name, d->request, d->containers, sizeof(d->containers));
        if (!sl_dra_first_of_tenant(p, i) || !d->containers[0] ||
            sl_dra_compose(w->dra, p, i, false, &ask, NULL) < 0)
            continue;
        sl_leases_ask(w->dra->leases, &(struct sl_leases_item){SL_MSG_CREATE, &ask, NULL}, 1,
                      described, NULL);
    }
}

static void ask_containers(struct resize_watch *w, const struct sl_prepared *p)
{
    struct sl_err err = SL_ERR_INIT;
    char path[500];
    if (!p->pod[0])
        return;
    (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", p->name_space, p->pod);
    if (sl_kube_request(w->dra->kube, "GET", path, NULL, NULL, got_containers, w, &w->get_pod,
                        &err) < 0)
        sl_warn("the names of the containers are not known: %s", err.msg);
}

void sl_dra_resize_watch(struct sl_dra *dra, const struct sl_prepared *p)
{
    static const struct sl_kube_watch_ops ops = {.object = claim_object};
    struct sl_err err = SL_ERR_INIT;
    char path[600];
    bool tenant = false;
    for (size_t i = 0; i < p->device_count; i++)
        tenant |= p->device[i].tenant[0] != '\0';
    for (const struct resize_watch *w = dra->watches; w; w = w->next)
        if (strcmp(w->uid, p->uid) == 0)
            return;
    if (!tenant || !dra->kube)
        return;
    struct resize_watch *w = sl_xcalloc(1, sizeof(*w));
    w->dra = dra;
    memcpy(w->uid, p->uid, sizeof(w->uid));
    (void)snprintf(path, sizeof(path),
                   "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims?fieldSelector=metadata."
                   "name%%3D%s",
                   p->name_space, p->name);
    if (sl_kube_watch_start(dra->kube, path, &ops, w, &w->watch, &err) < 0) {
        sl_warn("cannot resize claim %s/%s: %s", p->name_space, p->name, err.msg);
        free(w);
        return;
    }
    w->next = dra->watches;
    dra->watches = w;
    ask_containers(w, p);
}

void sl_dra_resize_unwatch(struct sl_dra *dra, const char *uid)
{
    struct resize_watch *w = dra->watches;
    while (w && strcmp(w->uid, uid) != 0)
        w = w->next;
    if (!w)
        return;
    sl_leases_forget(dra->leases, w);
    watch_free(w);
}

void sl_dra_resize_end(struct sl_dra *dra)
{
    while (dra->watches)
        watch_free(dra->watches);
}
