/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status for a claim's owner: status.devices with the lease and its health. Writes are best effort: without an API
 * server nothing waits for them. Other drivers' devices in the same claim are left alone.
 */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* The time of a condition is when the status changed, not when it was written. */
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
                          "DeviceLease", sl_dra_is_vm(d) ? "device" : "gpu", d->share.gpu);
    if (d->mig != SL_MIG_NO)
        (void)json_object_set_new(o, "mig", json_string(d->mig_uuid));
    if (!d->share_id[0]) {
        if (d->share.strategy != SL_SHARE_LIBSLUICE) /* of a whole card: a GpuConfig's */
            (void)json_object_set_new(o, "strategy",
                                      json_string(sl_strategy_words[d->share.strategy]));
        return o;
    }
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
    json_t *o = json_pack("{s:s,s:s,s:s,s:o,s:o}", "driver", sl_dra_driver(&dra->opt.names), "pool",
                          dra->opt.node_name, "device", d->device, "conditions", conditions, "data",
                          lease_data(d));
    if (d->share_id[0])
        (void)json_object_set_new(o, "shareID", json_string(d->share_id));
    return o;
}

/* A write of a status. */
struct dra_tell {
    struct dra_tell *next;
    struct sl_dra *dra;
    struct sl_kube_call *call;
    char uid[SL_UID_SIZE], path[400]; /* the claim's */
    json_t *devices, *body;
    unsigned updates; /* attempts so far */
    bool waits;       /* for the earlier write of the same claim: the last write must come last */
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

/* The API server is away: write the state of that time when the server may be back. Log this once, not per claim. */
static void tell_later(struct dra_tell *t, const struct sl_err *err)
{
    struct sl_dra *dra = t->dra;
    struct sl_prepared *p = sl_checkpoint_find(&dra->checkpoint, t->uid);
    if (!dra->silent)
        sl_warn("cannot write the status of claims: %s; the agent tries again", err->msg);
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
 * A patch makes the API server write a claim's opaque configs anew, with its own order and spaces. If the bytes differ,
 * the server takes that for a change of the allocation, which is forbidden (422). Then the claim is read and written
 * back in protobuf, which keeps the bytes; after a conflict (409) it is read again.
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
    /* 404 and 409: the claim is gone, or is another claim by now. */
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
    int rc = sl_claim_pb_devices(bytes, size, t->uid, sl_dra_driver(&t->dra->opt.names), t->devices,
                                 &body, &body_size, &why);
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

/* One write at a time for a claim; of the waiting ones only the last. */
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

void sl_dra_status_write(struct sl_dra *dra, const struct sl_prepared *p, const char *resized,
                         bool good, const char *message)
{
    if (!dra->kube)
        return;
    struct dra_tell *t = sl_xcalloc(1, sizeof(*t));
    json_t *devices = json_array();
    for (size_t i = 0; i < p->device_count; i++) {
        struct sl_prepared_device *d = &p->device[i];
        const char *trouble = NULL;
        bool ok = sl_dra_fitness(dra, d, &trouble) != DRA_TROUBLE;
        json_t *conditions = json_array();
        (void)json_array_append_new(conditions,
                                    condition(&d->ready_since, "Ready", ok,
                                              ok ? "Prepared" : "Unhealthy", ok ? "" : trouble));
        if (resized)
            (void)json_array_append_new(
                conditions, condition(&d->resized_since, "Resized", good, resized, message));
        else if (d->resized.memory_bytes || d->resized.cores_permille) /* as the last write said */
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

void sl_dra_status_end(struct sl_dra *dra)
{
    sl_timer_stop(dra->loop, &dra->retell);
    for (struct dra_tell *t = dra->tells; t; t = t->next)
        t->waits = false;
    while (dra->tells) {
        sl_kube_cancel(dra->tells->call);
        tell_free(dra->tells);
    }
}
