/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pods that are resized by annotation. The leader decides with its books: it checks the rights, the quota and the room
 * on the cards, writes the new lease into the pod together with what became of the request, and changes an annotation
 * of the node. The agent watches its Node: it reads the lease again, changes the tenant and writes the event. So nobody
 * needs a right for this that they did not have before.
 *
 * A lease is never guessed back: sluice.io/lease-allocated has the lease of the bind while another one counts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"
#include "controller/errors.h"

#define AT_ONCE 4 /* of the API client's 32: binds go first */

enum step { WRITE, TELL };

struct resizing {
    struct sl_map_item item; /* by uid */
    struct sl_controller *c;
    char *uid, *path, *name_space, *node;
    json_t *want;    /* the annotations of the pod that asks; NULL: nothing to write any more */
    char asked[128]; /* the request that is being written */
    char *before;    /* the lease to go back to, if the API server refuses the new one */
    enum step step;
    bool sending;
    bool over; /* the pod is gone: freed after the answer */
};

static const char *note(const json_t *notes, const char *key)
{
    return json_string_value(json_object_get(notes, key));
}

/* --- is there something to do? Pure --- */

static void asked_text(const json_t *notes, char buf[128])
{
    const char *text = note(notes, SL_RESIZE_KEY);
    sl_utf8_copy(buf, 128, text ? text : "");
}

bool sl_resize_wanted(const json_t *pod)
{
    const json_t *notes = json_object_get(json_object_get(pod, "metadata"), "annotations");
    const char *done = note(notes, SL_PROMISE_RESIZED_KEY);
    struct sl_promise_resized was;
    char asked[128];
    bool placed = note(notes, SL_PROMISE_LEASE_KEY) || note(notes, SL_PROMISE_HAMI_DONE);
    asked_text(notes, asked);
    sl_promise_resized_parse(done ? done : "", &was);
    return placed && sl_jget_text(json_object_get(pod, "spec"), "nodeName")[0] &&
           strcmp(was.resize, asked) != 0;
}

/* --- the decision --- */

static int check_allowed(const struct sl_controller *c, const char *name_space,
                         const struct sl_promise *p, const struct sl_resize *r, struct sl_err *err)
{
    bool beyond =
        c->opt.resize == SL_RESIZE_FREE || sl_controller_listed(c->opt.resize_free, name_space);
    if (c->opt.resize == SL_RESIZE_NEVER && !beyond)
        return sl_err_set(err, -EPERM, SL_E_RESIZE_NEVER);
    for (size_t i = 0; !beyond && i < p->share_count; i++) {
        const struct sl_share *s = &p->share[i];
        uint32_t limit =
            s->limit_permille > s->cores_permille ? s->limit_permille : s->cores_permille;
        if (r->memory_bytes > s->memory_bytes || r->cores_permille > s->cores_permille ||
            r->limit_permille > limit)
            return sl_err_set(err, -EPERM, SL_E_RESIZE_BEYOND,
                              (unsigned long long)(s->memory_bytes >> 20), s->cores_permille / 10,
                              name_space);
    }
    return 0;
}

static void sums(const struct sl_promise *p, uint64_t *ret_mib, uint64_t *ret_cores)
{
    *ret_mib = *ret_cores = 0;
    for (size_t i = 0; i < p->share_count; i++) {
        *ret_mib += p->share[i].memory_bytes >> 20;
        *ret_cores += p->share[i].cores_permille / 10;
    }
}

static int check_quota(const struct sl_controller *c, const char *name_space, const char *lease,
                       const struct sl_promise *now, struct sl_err *err)
{
    struct sl_promise was;
    uint64_t mib, cores, mib_was, cores_was;
    if (sl_promise_lease_parse(lease, &was, NULL) != 0)
        return 0;
    sums(now, &mib, &cores);
    sums(&was, &mib_was, &cores_was);
    if (mib <= mib_was && cores <= cores_was)
        return 0; /* less is always allowed */
    return sl_quota_check(&c->quota, c->cluster, name_space, mib > mib_was ? mib - mib_was : 0,
                          cores > cores_was ? cores - cores_was : 0, err);
}

/* The lease that the pod shall have. On success it is in the books already. */
static int decide(const struct resizing *s, struct sl_promise *p, char **ret_lease,
                  struct sl_err *err)
{
    struct sl_controller *c = s->c;
    const char *lease = note(s->want, SL_PROMISE_LEASE_KEY);
    const char *before = note(s->want, SL_PROMISE_BEFORE_KEY);
    struct sl_resize r = {0};
    if (!lease)
        return sl_err_set(err, -EOPNOTSUPP, SL_E_RESIZE_FOREIGN);
    int rc = s->asked[0] ? sl_resize_parse(s->asked, &r, err) : 0;
    if (!rc)
        rc = sl_promise_lease_parse(before ? before : lease, p, err);
    if (!rc)
        rc = check_allowed(c, s->name_space, p, &r, err);
    if (rc)
        return rc;
    if (s->asked[0])
        sl_promise_resize(p, &r);
    rc = check_quota(c, s->name_space, lease, p, err);
    char *text SL_CLEANUP(free) = rc ? NULL : sl_promise_lease_text(p);
    if (!rc)
        rc = sl_cluster_resize(c->cluster, s->uid, text, err);
    if (!rc)
        *ret_lease = sl_take_ptr(text);
    return rc;
}

/* --- what is written --- */

static const char *sentence(const char *asked, char buf[200])
{
    (void)snprintf(buf, 200, "the share is now %s", asked[0] ? asked : "as it was allocated");
    return buf;
}

/* HAMi's list has a place for every container; a lease has those with GPUs only, in the same order. */
static char *hami_devices(const char *devices, const struct sl_promise *p)
{
    struct sl_promise list;
    if (!devices || sl_promise_hami_parse(devices, &list, NULL) != 0 ||
        list.share_count != p->share_count)
        return NULL;
    for (size_t i = 0; i < p->share_count; i++) {
        list.share[i].memory_bytes = p->share[i].memory_bytes;
        list.share[i].cores_permille = p->share[i].cores_permille;
    }
    return sl_promise_hami_text(&list);
}

static json_t *outcome_of(const char *asked, const char *refusal)
{
    char text[200];
    struct sl_promise_resized r = {.done = !refusal};
    sl_utf8_copy(r.resize, sizeof(r.resize), asked);
    sl_utf8_copy(r.message, sizeof(r.message), refusal ? refusal : sentence(asked, text));
    char *json SL_CLEANUP(free) = sl_promise_resized_text(&r);
    return json_pack("{s:s}", SL_PROMISE_RESIZED_KEY, json);
}

static json_t *annotations(struct resizing *s)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_promise p;
    char *lease SL_CLEANUP(free) = NULL;
    if (decide(s, &p, &lease, &err) != 0) {
        sl_info("%s is not resized: %s", s->path, err.msg);
        return outcome_of(s->asked, err.msg);
    }
    json_t *notes = outcome_of(s->asked, NULL);
    const char *was = note(s->want, SL_PROMISE_LEASE_KEY);
    const char *first = note(s->want, SL_PROMISE_BEFORE_KEY);
    char *devices SL_CLEANUP(free) = hami_devices(note(s->want, SL_PROMISE_HAMI_DONE), &p);
    free(s->before);
    s->before = sl_xstrdup(was);
    (void)json_object_set_new(notes, SL_PROMISE_LEASE_KEY, json_string(lease));
    (void)json_object_set_new(notes, SL_PROMISE_BEFORE_KEY,
                              s->asked[0] ? json_string(first ? first : was) : json_null());
    if (devices)
        (void)json_object_set_new(notes, SL_PROMISE_HAMI_DONE, json_string(devices));
    return notes;
}

/* --- the requests --- */

static void resizing_free(void *item)
{
    struct resizing *s = item;
    json_decref(s->want);
    free(s->uid);
    free(s->path);
    free(s->name_space);
    free(s->node);
    free(s->before);
    free(s);
}

static void drop(struct resizing *s)
{
    s->over = true;
    if (s->sending)
        return;
    sl_map_drop(&s->c->resizing, &s->item);
    resizing_free(s);
}

static void send(struct resizing *s);

static void told(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct resizing *s = data;
    (void)body;
    s->sending = false;
    s->c->resizing_sent--;
    if (err->code && status != 404 && !s->over) {
        sl_warn(SL_E_RESIZE_TELL_LOG, s->node, err->msg);
        return; /* at the next tick */
    }
    if (s->over || !s->want) {
        drop(s);
        return;
    }
    s->step = WRITE;
    send(s);
}

static void written(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct resizing *s = data;
    char asked[128];
    (void)body;
    s->sending = false;
    s->c->resizing_sent--;
    bool refused = status >= 400 && status < 500 && status != 408 && status != 429;
    if (refused && s->before)
        sl_cluster_resize_undo(s->c->cluster, s->uid, s->before);
    if (s->over || status == 404 || status == 409) {
        drop(s); /* the pod is gone, or another pod has its name */
        return;
    }
    if (err->code) {
        sl_warn(SL_E_RESIZE_WRITE_LOG, s->path, err->msg);
        return; /* at the next tick */
    }
    if (s->want)
        asked_text(s->want, asked);
    if (s->want && strcmp(asked, s->asked) == 0) {
        json_decref(s->want);
        s->want = NULL;
    }
    s->step = TELL;
    send(s);
}

static json_t *body_of(struct resizing *s)
{
    char now[32];
    if (s->step == WRITE) {
        asked_text(s->want, s->asked);
        free(s->before);
        s->before = NULL;
        return json_pack("{s:{s:s,s:o}}", "metadata", "uid", s->uid, "annotations", annotations(s));
    }
    (void)snprintf(now, sizeof(now), "%llu", (unsigned long long)sl_loop_now(s->c->loop));
    return json_pack("{s:{s:{s:s}}}", "metadata", "annotations", SL_PROMISE_NUDGE_KEY, now);
}

static void send(struct resizing *s)
{
    struct sl_controller *c = s->c;
    if (s->sending || c->resizing_sent >= AT_ONCE || c->stopping || !sl_controller_leads(c) ||
        !sl_feeds_synced(c) || (s->step == WRITE && !s->want))
        return;
    char *node SL_CLEANUP(free) = sl_kube_path("/api/v1/nodes/%s", s->node);
    json_t *body = body_of(s);
    if (sl_kube_request(c->kube, "PATCH", s->step == WRITE ? s->path : node, SL_KUBE_PATCH_MERGE,
                        body, s->step == WRITE ? written : told, s, NULL, NULL) == 0) {
        s->sending = true;
        c->resizing_sent++;
    } else if (s->step == WRITE && s->before) {
        sl_cluster_resize_undo(c->cluster, s->uid, s->before);
    }
    json_decref(body);
}

void sl_resize_pod(struct sl_controller *c, const json_t *pod)
{
    const char *uid = sl_kube_meta(pod, "uid");
    struct resizing *s = sl_map_find(&c->resizing, uid, strlen(uid));
    bool wanted = sl_resize_wanted(pod);
    if (!s && !wanted)
        return;
    if (!s) {
        s = sl_xcalloc(1, sizeof(*s));
        s->c = c;
        s->name_space = sl_xstrdup(sl_kube_meta(pod, "namespace"));
        s->node = sl_xstrdup(sl_jget_text(json_object_get(pod, "spec"), "nodeName"));
        s->path =
            sl_kube_path("/api/v1/namespaces/%s/pods/%s", s->name_space, sl_kube_meta(pod, "name"));
        s->item.key = s->uid = sl_xstrdup(uid);
        sl_map_add(&c->resizing, &s->item);
    }
    json_decref(s->want);
    s->want = wanted
                  ? json_deep_copy(json_object_get(json_object_get(pod, "metadata"), "annotations"))
                  : NULL;
    if (!wanted && !s->sending && s->step == WRITE)
        drop(s);
    else
        send(s);
}

void sl_resize_gone(struct sl_controller *c, const char *uid)
{
    struct resizing *s = sl_map_find(&c->resizing, uid, strlen(uid));
    if (s)
        drop(s);
}

void sl_resize_tick(struct sl_controller *c)
{
    struct sl_map_walk walk = {.bucket = 0};
    struct resizing *s;
    while (c->resizing_sent < AT_ONCE && (s = sl_map_next(&c->resizing, &walk)))
        send(s);
}

void sl_resize_free(struct sl_controller *c)
{
    sl_map_free(&c->resizing, resizing_free);
}
