/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a claim's owner sees and says: status.devices with the lease and its health, and the annotation
 * that changes a share while its pod runs. Writes are wishes; without an API server nothing waits for
 * them. Other drivers' devices in the same claim are left alone.
 */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/dra/claim_allow.h"
#include "agent/dra/claim_pb.h"
#include "agent/dra/errors.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/units.h"
#include "base/xalloc.h"

#define FIELD_MANAGER "?fieldManager=" SL_DRA_DRIVER
#define UPDATES_MAX   3
#define RETELL_NS     (5 * SL_NS_PER_S)

/* --- status.devices --- */

/* Its time is when the status changed, however often it is written. */
static json_t *condition(struct sl_prepared_since *since, const char *type, bool good,
                         const char *reason, const char *message)
{
    char text[32];
    uint64_t *now = good ? &since->yes_s : &since->no_s;
    struct tm tm;
    if (*now == 0) {
        *since = (struct sl_prepared_since){0};
        *now = (uint64_t)time(NULL);
    }
    time_t t = (time_t)*now;
    (void)gmtime_r(&t, &tm);
    (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_pack("{s:s,s:s,s:s,s:s,s:s}", "type", type, "status", good ? "True" : "False",
                     "reason", reason, "message", message, "lastTransitionTime", text);
}

static json_t *lease_data(const struct sl_prepared_device *d)
{
    char memory[40], cores[40];
    json_t *o = json_pack("{s:s,s:s,s:s}", "apiVersion", SL_SHARE_API_VERSION, "kind",
                          "DeviceLease", "gpu", d->share.gpu);
    if (d->mig != SL_MIG_NO)
        (void)json_object_set_new(o, "mig", json_string(d->mig_uuid));
    if (!d->share_id[0])
        return o;
    const struct sl_share now = sl_prepared_share(d);
    sl_quantity_binary(now.memory_bytes, memory, sizeof(memory));
    (void)sl_format_cores(now.cores_permille, now.limit_permille, cores, sizeof(cores));
    (void)json_object_set_new(o, "memory", json_string(memory));
    (void)json_object_set_new(o, "cores", json_string(cores));
    (void)json_object_set_new(o, "strategy", json_string(sl_strategy_words[now.strategy]));
    if (d->tenant[0])
        (void)json_object_set_new(o, "tenant", json_string(d->tenant));
    return o;
}

static json_t *device_status(struct sl_dra *dra, const struct sl_prepared_device *d,
                             json_t *conditions)
{
    json_t *o = json_pack("{s:s,s:s,s:s,s:o,s:o}", "driver", SL_DRA_DRIVER, "pool", dra->node_name,
                          "device", d->device, "conditions", conditions, "data", lease_data(d));
    if (d->share_id[0])
        (void)json_object_set_new(o, "shareID", json_string(d->share_id));
    return o;
}

/* A status on its way. */
struct dra_tell {
    struct dra_tell *next;
    struct sl_dra *dra;
    struct sl_kube_call *call;
    char uid[SL_UID_SIZE], path[400]; /* the claim's */
    json_t *devices, *body;
    unsigned updates; /* tried so often */
    bool waits; /* for the one before it, of the same claim: the last word has to be the last */
};

static void apply(struct dra_tell *t);

static void tell_free(struct dra_tell *t)
{
    struct dra_tell *after = NULL;
    for (struct dra_tell **p = &t->dra->tells; *p;) {
        if (*p == t) {
            *p = t->next;
            continue;
        }
        if ((*p)->waits && strcmp((*p)->uid, t->uid) == 0)
            after = *p;
        p = &(*p)->next;
    }
    json_decref(t->devices);
    json_decref(t->body);
    free(t);
    if (after) {
        after->waits = false;
        apply(after);
    }
}

static void not_told(struct dra_tell *t, const char *why)
{
    sl_warn(SL_E_CLAIM_STATUS_LOG, why);
    tell_free(t);
}

static void retell_fired(struct sl_timer *timer)
{
    struct sl_dra *dra = sl_container_of(timer, struct sl_dra, retell);
    for (struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next) {
        p->untold |= p->retell;
        p->retell = false;
    }
    sl_timer_set(dra->loop, &dra->telling, sl_loop_now(dra->loop));
}

/* The API server is away: what is so by then is said when it may be back. Said here once, not per claim. */
static void tell_later(struct dra_tell *t, const struct sl_err *err)
{
    struct sl_dra *dra = t->dra;
    struct sl_prepared *p = sl_checkpoint_find(&dra->checkpoint, t->uid);
    if (!dra->silent)
        sl_warn("cannot write the statuses of claims; it is tried again: %s", err->msg);
    dra->silent = true;
    if (p)
        p->retell = true;
    dra->retell.fire = retell_fired;
    if (!dra->retell.set)
        sl_timer_set(dra->loop, &dra->retell, sl_loop_now(dra->loop) + RETELL_NS);
    tell_free(t);
}

static bool is_away(int status)
{
    return status == 0 || status == 429 || status >= 500;
}

static void got_claim(void *data, int status, const uint8_t *bytes, size_t size,
                      const struct sl_err *err);

/*
 * A patch makes the API server write a claim's opaque configs anew, in an order and with spaces of its own; where
 * they were written otherwise it takes that for a change of the allocation, which nobody may make (422). Then the
 * claim is read and put back in protobuf, which leaves them as they are; what changed meanwhile is read again (409).
 */
static void status_written(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct dra_tell *t = data;
    struct sl_err why = SL_ERR_INIT;
    (void)body;
    t->call = NULL;
    bool again = status == 422 ? t->updates == 0 : status == 409 && t->updates > 0;
    if (again && t->updates++ < UPDATES_MAX) {
        if (sl_kube_get_bytes(t->dra->kube, t->path, SL_KUBE_PROTOBUF, got_claim, t, &t->call,
                              &why) < 0)
            not_told(t, why.msg);
        return;
    }
    if (is_away(status)) {
        tell_later(t, err);
        return;
    }
    t->dra->silent = false;
    /* 404 and 409: the claim is gone, or another one by now. */
    if ((status < 200 || status >= 300) && status != 404 && status != 409)
        not_told(t, err->msg);
    else
        tell_free(t);
}

static void got_claim(void *data, int status, const uint8_t *bytes, size_t size,
                      const struct sl_err *err)
{
    struct dra_tell *t = data;
    struct sl_err why = SL_ERR_INIT;
    char path[500];
    uint8_t *body = NULL;
    size_t body_size = 0;
    t->call = NULL;
    if (is_away(status)) {
        tell_later(t, err);
        return;
    }
    if (status != 200) {
        if (status != 404)
            sl_warn(SL_E_CLAIM_STATUS_LOG, err->msg);
        tell_free(t);
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/status" FIELD_MANAGER, t->path);
    int rc = sl_claim_pb_devices(bytes, size, t->uid, SL_DRA_DRIVER, t->devices, &body, &body_size,
                                 &why);
    if (rc == 0)
        rc = sl_kube_put_bytes(t->dra->kube, path, SL_KUBE_PROTOBUF, body, body_size,
                               status_written, t, &t->call, &why);
    free(body);
    if (rc == -ESTALE)
        tell_free(t);
    else if (rc < 0)
        not_told(t, why.msg);
}

static void apply(struct dra_tell *t)
{
    struct sl_err err = SL_ERR_INIT;
    char path[500];
    (void)snprintf(path, sizeof(path), "%s/status" FIELD_MANAGER "&force=true", t->path);
    if (!t->body || sl_kube_request(t->dra->kube, "PATCH", path, SL_KUBE_PATCH_APPLY, t->body,
                                    status_written, t, &t->call, &err) < 0)
        not_told(t, t->body ? err.msg : "it is not UTF-8");
}

/* One at a time for a claim, and of those that wait only the last. */
static void queue(struct dra_tell *t)
{
    struct sl_dra *dra = t->dra;
    for (struct dra_tell **p = &dra->tells; *p;) {
        struct dra_tell *o = *p;
        bool same = strcmp(o->uid, t->uid) == 0;
        t->waits |= same;
        if (!same || !o->waits) {
            p = &o->next;
            continue;
        }
        *p = o->next;
        json_decref(o->devices);
        json_decref(o->body);
        free(o);
    }
    t->next = dra->tells;
    dra->tells = t;
    if (!t->waits)
        apply(t);
}

void sl_dra_status_write(struct sl_dra *dra, const struct sl_prepared *p, const char *type,
                         bool good, const char *reason, const char *message)
{
    if (!dra->kube)
        return;
    struct dra_tell *t = sl_xcalloc(1, sizeof(*t));
    json_t *devices = json_array();
    for (size_t i = 0; i < p->device_count; i++) {
        struct sl_prepared_device *d = &p->device[i];
        const struct card *c = sl_dra_card(dra, d->share.gpu);
        const char *trouble = c ? sl_dra_card_trouble(c) : NULL;
        bool ok = !trouble;
        json_t *conditions = json_array();
        (void)json_array_append_new(conditions,
                                    condition(&d->ready_since, "Ready", ok,
                                              ok ? "Prepared" : "Unhealthy", ok ? "" : trouble));
        if (strcmp(type, "Ready") != 0)
            (void)json_array_append_new(conditions,
                                        condition(&d->resized_since, type, good, reason, message));
        else if (d->resized.memory_bytes ||
                 d->resized.cores_permille) /* as the write before said */
            (void)json_array_append_new(conditions, condition(&d->resized_since, "Resized", true,
                                                              "Resized", "the share was resized"));
        (void)json_array_append_new(devices, device_status(dra, d, conditions));
    }
    *t = (struct dra_tell){.dra = dra, .devices = devices};
    memcpy(t->uid, p->uid, sizeof(t->uid));
    (void)snprintf(t->path, sizeof(t->path), SL_CLAIMS_PATH, p->name_space, p->name);
    t->body = json_pack("{s:s,s:s,s:{s:s,s:s,s:s},s:{s:O}}", "apiVersion", "resource.k8s.io/v1",
                        "kind", "ResourceClaim", "metadata", "name", p->name, "namespace",
                        p->name_space, "uid", p->uid, "status", "devices", devices);
    queue(t);
}

/* --- resize --- */

struct resize_watch {
    struct resize_watch *next;
    struct sl_dra *dra;
    char uid[SL_UID_SIZE];
    struct sl_kube_watch *watch;
    struct sl_kube_call *get_pod; /* for its containers' names */
    char text[128];               /* the annotation as last acted on */
    bool acted; /* before that it is unknown: it may have gone while no agent was there */
    struct sl_claim_resize wanted;
    struct sl_config_allow allow; /* what the annotation may ask for, as last seen */
    size_t at;                    /* the device whose tenant is being changed */
    bool busy;                    /* the arbiter is being asked */
    bool gone;                    /* freed when its answer is in */
    char next_text[128];          /* came meanwhile */
    bool next_there;
};

static void resize_begin(struct resize_watch *w, const char *text);

static void watch_free(struct resize_watch *w)
{
    for (struct resize_watch **p = &w->dra->watches; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            break;
        }
    free(w);
}

static void resize_told(struct resize_watch *w, bool good, const char *reason, const char *message)
{
    struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    w->busy = false;
    if (p) {
        sl_dra_status_write(w->dra, p, "Resized", good, reason, message);
        sl_dra_tell(w->dra, p, !good, good ? "SluiceResized" : "SluiceResizeFailed", message);
    }
    if (w->next_there) {
        w->next_there = false;
        resize_begin(w, w->next_text);
    }
}

static void resize_next(struct resize_watch *w);

/* The tenant's devices now hold what was asked for; the claim's own figures where it was not named. */
static void record(struct sl_prepared *p, const char *tenant, const struct sl_claim_resize *r)
{
    for (size_t i = 0; i < p->device_count; i++)
        if (strcmp(p->device[i].tenant, tenant) == 0)
            p->device[i].resized = *r;
}

static void resize_done(void *data, int rc, const char *text, const struct sl_err *err)
{
    struct resize_watch *w = data;
    struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    if (w->gone || !p) {
        w->busy = false;
        if (w->gone)
            watch_free(w);
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

static uint64_t card_bytes(const struct sl_dra *dra, const char *uuid)
{
    for (size_t i = 0; dra->inv && i < dra->inv->gpu_count; i++)
        if (strcmp(dra->inv->gpu[i].info.uuid, uuid) == 0)
            return dra->inv->gpu[i].info.memory_total_bytes;
    return 0;
}

/* All devices of the tenant whose turn it is. */
static int check_allowed(const struct resize_watch *w, const struct sl_prepared *p,
                         struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < p->device_count && rc == 0; i++)
        if (strcmp(p->device[i].tenant, p->device[w->at].tenant) == 0)
            rc = sl_allow_resize(&w->allow, &p->device[i], &w->wanted,
                                 card_bytes(w->dra, p->device[i].share.gpu), err);
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
        resize_told(w, true, "Resized", text);
        return;
    }
    /* Tried on, and taken back if it does not fit: the arbiter is asked with what it would be. */
    const struct sl_claim_resize before = p->device[w->at].resized;
    if (check_allowed(w, p, &err) < 0) {
        resize_told(w, false, "NotAllowed", err.msg);
        return;
    }
    record(p, p->device[w->at].tenant, &w->wanted);
    for (size_t i = 0; i < p->device_count; i++)
        if (strcmp(p->device[i].tenant, p->device[w->at].tenant) == 0 &&
            sl_dra_fits(w->dra, &p->device[i], &err) < 0) {
            record(p, p->device[w->at].tenant, &before);
            resize_told(w, false, "NoRoom", err.msg);
            return;
        }
    int rc = sl_dra_compose(w->dra, p, w->at, true, &set, &err);
    record(p, p->device[w->at].tenant, &before);
    if (rc < 0)
        resize_told(w, false, "Refused", err.msg);
    else
        sl_leases_set(w->dra->leases, &set, resize_done, w);
}

static bool as_wanted(const struct sl_prepared *p, const struct sl_claim_resize *r)
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
    struct sl_claim_resize r = {0};
    struct sl_prepared *p = sl_checkpoint_find(&w->dra->checkpoint, w->uid);
    if (w->busy) {
        (void)snprintf(w->next_text, sizeof(w->next_text), "%s", text);
        w->next_there = true;
        return;
    }
    if (!p || p->state != SL_PREPARED || (w->acted && strcmp(text, w->text) == 0))
        return;
    w->acted = true;
    (void)snprintf(w->text, sizeof(w->text), "%s", text);
    if (text[0] && sl_claim_resize_parse(text, &r, &err) < 0) {
        resize_told(w, false, "Invalid", err.msg);
        return;
    }
    if (as_wanted(p, &r)) /* a restart reads the annotation again */
        return;
    w->wanted = r;
    w->at = 0;
    w->busy = true;
    resize_next(w);
}

/* The class's word is in the claim's allocation, where the scheduler copied it. */
static void learn_allowed(struct resize_watch *w, const json_t *object)
{
    struct sl_claim *claim = sl_xcalloc(1, sizeof(*claim));
    const struct sl_config *config = w->dra->config;
    const char *space =
        json_string_value(json_object_get(json_object_get(object, "metadata"), "namespace"));
    w->allow = sl_config_allowed(config, space ? space : "");
    if (sl_claim_parse(object, SL_DRA_DRIVER, w->dra->node_name, w->uid, claim, NULL) == 0)
        w->allow = sl_allow_resizes(config, claim);
    free(claim);
}

static void claim_object(void *data, enum sl_kube_event event, json_t *object)
{
    struct resize_watch *w = data;
    const json_t *meta = json_object_get(object, "metadata");
    const char *uid = json_string_value(json_object_get(meta, "uid"));
    const char *text = json_string_value(
        json_object_get(json_object_get(meta, "annotations"), SL_RESIZE_ANNOTATION));
    if (event == SL_KUBE_DELETED || !uid || strcmp(uid, w->uid) != 0)
        return;
    learn_allowed(w, object);
    resize_begin(w, text ? text : "");
}

static void claim_synced(void *data)
{
    (void)data;
}

/* --- whose it is --- */

static void described(void *data, int rc, const char *text, const struct sl_err *err)
{
    (void)data;
    (void)text;
    if (rc < 0)
        sl_warn("cannot tell the arbiter the name of a container: %s", err->msg);
}

/* For `sluice status` and metrics: who uses which tenant. Asked for when the containers are on their way. */
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
        sl_leases_make(w->dra->leases, &ask, described, NULL);
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
    static const struct sl_kube_watch_ops ops = {.object = claim_object, .synced = claim_synced};
    struct sl_err err = SL_ERR_INIT;
    char path[600];
    bool tenant = false;
    for (size_t i = 0; i < p->device_count; i++)
        tenant |= p->device[i].tenant[0] != '\0';
    for (const struct resize_watch *w = dra->watches; w; w = w->next)
        if (!w->gone && strcmp(w->uid, p->uid) == 0)
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
    for (struct resize_watch *w = dra->watches, *after; w; w = after) {
        after = w->next;
        if (w->gone || strcmp(w->uid, uid) != 0)
            continue;
        sl_kube_watch_stop(w->watch);
        w->watch = NULL;
        if (w->get_pod)
            sl_kube_cancel(w->get_pod);
        w->get_pod = NULL;
        w->gone = true;
        if (!w->busy)
            watch_free(w);
    }
}

void sl_dra_resize_end(struct sl_dra *dra)
{
    sl_timer_stop(dra->loop, &dra->retell);
    for (struct dra_tell *t = dra->tells; t; t = t->next)
        t->waits = false;
    while (dra->tells) {
        if (dra->tells->call)
            sl_kube_cancel(dra->tells->call);
        tell_free(dra->tells);
    }
    while (dra->watches) {
        if (dra->watches->watch)
            sl_kube_watch_stop(dra->watches->watch);
        if (dra->watches->get_pod)
            sl_kube_cancel(dra->watches->get_pod);
        watch_free(dra->watches);
    }
}
