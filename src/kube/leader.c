/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/leader.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/utf8.h"
#include "base/xalloc.h"
#include "kube/errors.h"

#define LEASES     "/apis/coordination.k8s.io/v1/namespaces/%s/leases"
#define HOLDER_MAX 256

struct sl_leader {
    struct sl_loop *loop;
    struct sl_kube *kube;
    struct sl_leader_options opt;
    char *collection, *item;  /* paths */
    struct sl_timer timer;    /* the next attempt, or the time limit of this one */
    struct sl_timer deadline; /* we do not lead beyond it */
    struct sl_kube_call *call;
    json_t *lease;           /* as last seen; NULL: read it first */
    char holder[HOLDER_MAX]; /* the holder in that lease */
    char version[64];        /* the last version seen, and */
    uint64_t observed_ns;    /* when this replica first saw it */
    uint64_t sent_ns;        /* when the request under way was sent */
    bool leading, releasing, dead;
    void (*released)(void *data);
    unsigned busy; /* in a callback: the memory must stay */
};

static void attempt_fired(struct sl_timer *timer);

/* --- callbacks ------------------------------------------------------------------------------ */

static void free_all(struct sl_leader *l)
{
    json_decref(l->lease);
    free(l->collection);
    free(l->item);
    free(l);
}

static void hold(struct sl_leader *l)
{
    l->busy++;
}

static void let_go(struct sl_leader *l)
{
    if (--l->busy == 0 && l->dead)
        free_all(l);
}

static void trouble(struct sl_leader *l, const struct sl_err *why)
{
    if (l->dead || !l->opt.trouble)
        return;
    struct sl_err err = *why;
    (void)sl_err_wrap(&err, "leader election by lease %s/%s", l->opt.namespace, l->opt.name);
    l->opt.trouble(l->opt.data, &err);
}

static void lose(struct sl_leader *l)
{
    sl_timer_stop(l->loop, &l->deadline);
    if (!l->leading)
        return;
    l->leading = false;
    if (!l->dead)
        l->opt.stopped(l->opt.data);
}

static void win(struct sl_leader *l)
{
    /* Count from the time of our request: the others saw the lease at some time after that. */
    uint64_t until = l->sent_ns + l->opt.renew_ns;
    if (sl_loop_now(l->loop) >= until)
        return;
    sl_timer_set(l->loop, &l->deadline, until);
    if (!l->leading) {
        l->leading = true;
        l->opt.started(l->opt.data);
    }
}

/* --- the lease ------------------------------------------------------------------------------ */

static void forget_lease(struct sl_leader *l)
{
    json_decref(l->lease);
    l->lease = NULL;
}

static void observe(struct sl_leader *l, json_t *lease)
{
    const char *version = sl_kube_meta(lease, "resourceVersion");
    const char *holder =
        json_string_value(json_object_get(json_object_get(lease, "spec"), "holderIdentity"));
    if (!l->version[0] || strncmp(version, l->version, sizeof(l->version) - 1) != 0) {
        (void)snprintf(l->version, sizeof(l->version), "%s", version);
        l->observed_ns = sl_loop_now(l->loop);
    }
    (void)snprintf(l->holder, sizeof(l->holder), "%s", holder ? holder : "");
    forget_lease(l);
    l->lease = json_incref(lease);
}

/* Now, as the API writes a MicroTime: "2026-01-02T03:04:05.123456Z". */
static void time_text(char buf[32])
{
    struct timespec now;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(buf + n, 32 - n, ".%06ldZ", now.tv_nsec / 1000);
}

/* The lease with this replica as holder (or, to release it, with no holder). */
static json_t *filled(struct sl_leader *l, bool release)
{
    char now[32];
    time_text(now);
    json_t *lease = l->lease ? json_deep_copy(l->lease)
                             : json_pack("{s:s,s:s,s:{s:s,s:s}}", "apiVersion",
                                         "coordination.k8s.io/v1", "kind", "Lease", "metadata",
                                         "name", l->opt.name, "namespace", l->opt.namespace);
    json_t *spec = json_object_get(lease, "spec");
    if (!spec)
        json_object_set_new(lease, "spec", spec = json_object());
    bool ours = strcmp(l->holder, l->opt.identity) == 0 && l->lease;
    json_int_t transitions = json_integer_value(json_object_get(spec, "leaseTransitions"));
    json_int_t seconds = (json_int_t)((l->opt.lease_ns + SL_NS_PER_S - 1) / SL_NS_PER_S);
    json_object_set_new(spec, "holderIdentity", json_string(release ? "" : l->opt.identity));
    json_object_set_new(spec, "leaseDurationSeconds", json_integer(release ? 1 : seconds));
    json_object_set_new(spec, "renewTime", json_string(now));
    if (!ours) {
        json_object_set_new(spec, "acquireTime", json_string(now));
        json_object_set_new(spec, "leaseTransitions",
                            json_integer(transitions + (l->lease != NULL)));
    }
    return lease;
}

/* --- attempts ------------------------------------------------------------------------------- */

static void later(struct sl_leader *l)
{
    if (!l->dead && !l->releasing)
        sl_timer_set(l->loop, &l->timer, sl_loop_now(l->loop) + l->opt.retry_ns);
}

static void send(struct sl_leader *l, const char *method, const char *path, json_t *body,
                 sl_kube_done *done)
{
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_kube_request(l->kube, method, path, NULL, body, done, l, &l->call, &err);
    l->sent_ns = sl_loop_now(l->loop);
    if (rc == 0) {
        sl_timer_set(l->loop, &l->timer, l->sent_ns + l->opt.renew_ns / 2);
        return;
    }
    l->call = NULL;
    trouble(l, &err);
    later(l);
}

static void written(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_leader *l = data;
    l->call = NULL;
    hold(l);
    if (status == 200 || status == 201) {
        observe(l, body);
        win(l);
    } else {
        forget_lease(l); /* another was faster, or the result is unknown: read it */
        if (status != 409)
            trouble(l, err);
    }
    later(l);
    let_go(l);
}

static void write_lease(struct sl_leader *l)
{
    json_t *lease = filled(l, false);
    if (l->lease)
        send(l, "PUT", l->item, lease, written);
    else
        send(l, "POST", l->collection, lease, written);
    json_decref(lease);
}

static void looked(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_leader *l = data;
    l->call = NULL;
    hold(l);
    if (status == 404) {
        forget_lease(l);
        l->holder[0] = 0;
        write_lease(l);
    } else if (status == 200 && err->code == 0) {
        observe(l, body);
        bool ours = strcmp(l->holder, l->opt.identity) == 0;
        bool over = sl_loop_now(l->loop) - l->observed_ns >= l->opt.lease_ns;
        if (!ours)
            lose(l);
        if (!l->dead && !l->releasing && (ours || !l->holder[0] || over))
            write_lease(l);
        else
            later(l);
    } else {
        trouble(l, err);
        later(l);
    }
    let_go(l);
}

static void attempt_fired(struct sl_timer *timer)
{
    struct sl_leader *l = sl_container_of(timer, struct sl_leader, timer);
    hold(l);
    if (l->call) {
        sl_kube_cancel(l->call);
        l->call = NULL;
        forget_lease(l); /* the request may have been carried out all the same */
        trouble(l, &(struct sl_err){-ETIMEDOUT, "the API server did not answer in time"});
        later(l);
    } else if (l->leading && l->lease) {
        write_lease(l); /* one request a renewal; a 409 shows another writer */
    } else {
        send(l, "GET", l->item, NULL, looked);
    }
    let_go(l);
}

static void deadline_fired(struct sl_timer *timer)
{
    struct sl_leader *l = sl_container_of(timer, struct sl_leader, deadline);
    hold(l);
    forget_lease(l);
    lose(l);
    let_go(l);
}

/* --- start and stop ------------------------------------------------------------------------- */

static int check(const struct sl_leader_options *opt, struct sl_err *err)
{
    if (!opt->identity || !opt->identity[0] || strlen(opt->identity) >= HOLDER_MAX ||
        !opt->namespace || !opt->name)
        return sl_err_set(err, -EINVAL, SL_E_LEADER_NAMES);
    if (opt->lease_ns <= opt->renew_ns || opt->renew_ns <= opt->retry_ns)
        return sl_err_set(err, -EINVAL, SL_E_LEADER_TIMES);
    if (!sl_utf8_valid(opt->identity))
        return sl_err_set(err, -EINVAL, SL_E_LEADER_UTF8);
    return 0;
}

int sl_leader_create(struct sl_loop *loop, struct sl_kube *kube,
                     const struct sl_leader_options *opt, struct sl_leader **ret,
                     struct sl_err *err)
{
    int rc = check(opt, err);
    if (rc < 0)
        return rc;
    struct sl_leader *l = sl_xcalloc(1, sizeof(*l));
    l->loop = loop;
    l->kube = kube;
    l->opt = *opt;
    l->collection = sl_kube_path(LEASES, opt->namespace);
    l->item = sl_kube_path(LEASES "/%s", opt->namespace, opt->name);
    l->timer.fire = attempt_fired;
    l->deadline.fire = deadline_fired;
    sl_timer_set(loop, &l->timer, sl_loop_now(loop));
    *ret = l;
    return 0;
}

void sl_leader_destroy(struct sl_leader *l)
{
    if (!l || l->dead)
        return;
    l->dead = true;
    sl_kube_cancel(l->call);
    l->call = NULL;
    sl_timer_stop(l->loop, &l->timer);
    sl_timer_stop(l->loop, &l->deadline);
    if (l->busy == 0)
        free_all(l);
}

/* The lease has been given back, or that takes too long. */
static void release_fired(struct sl_timer *timer)
{
    struct sl_leader *l = sl_container_of(timer, struct sl_leader, timer);
    void (*released)(void *data) = l->released;
    sl_kube_cancel(l->call);
    l->call = NULL;
    l->released = NULL;
    sl_timer_stop(l->loop, timer);
    if (released)
        released(l->opt.data); /* may destroy the leader */
}

static void release_done(void *data, int status, json_t *body, const struct sl_err *err)
{
    (void)body;
    struct sl_leader *l = data;
    l->call = NULL;
    hold(l);
    if (status != 200)
        trouble(l, err);
    if (!l->dead)
        release_fired(&l->timer);
    let_go(l);
}

void sl_leader_release(struct sl_leader *l, void (*released)(void *data))
{
    bool led = l->leading && l->lease;
    l->releasing = true;
    l->released = released;
    hold(l);
    sl_kube_cancel(l->call);
    l->call = NULL;
    lose(l);
    if (!l->dead) {
        l->timer.fire = release_fired; /* at once if there is no lease to give back */
        sl_timer_set(l->loop, &l->timer, sl_loop_now(l->loop) + (led ? l->opt.retry_ns : 0));
        json_t *lease = led ? filled(l, true) : NULL;
        if (lease && sl_kube_request(l->kube, "PUT", l->item, NULL, lease, release_done, l,
                                     &l->call, NULL) < 0)
            l->call = NULL;
        json_decref(lease);
    }
    let_go(l);
}

int sl_leader_is(const struct sl_leader *leader)
{
    return leader->leading;
}
