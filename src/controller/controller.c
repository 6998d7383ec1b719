/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/controller.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "controller/controller_internal.h"
#include "controller/errors.h"

#define TICK_NS  SL_NS_PER_S
#define SWEEP_NS (60 * SL_NS_PER_S)
#define TELL_MAX 16 /* nodes to label at once */

bool sl_controller_leads(const struct sl_controller *c)
{
    return !c->opt.elect || (c->leader && sl_leader_is(c->leader));
}

bool sl_controller_listed(const char *list, const char *name)
{
    size_t size = strlen(name);
    if (!list || strcmp(list, "*") == 0)
        return list != NULL;
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        if (n == size && strncmp(at, name, n) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

void sl_controller_answer(struct sl_http_call *call, char *json)
{
    sl_http_answer(call, 200, "application/json", json, strlen(json));
    free(json);
}

/* value NULL: removes the label. False: the request could not be sent. */
static bool put_label(struct sl_controller *c, const char *path, const char *key, const char *value,
                      sl_kube_done *done)
{
    json_t *patch = json_pack("{s:{s:{s:s?}}}", "metadata", "labels", key, value);
    int rc =
        sl_kube_request(c->kube, "PATCH", path, SL_KUBE_PATCH_MERGE, patch, done, c, NULL, NULL);
    json_decref(patch);
    return rc == 0;
}

static void labelled(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_controller *c = data;
    (void)body;
    c->labelling = false;
    if (!err->code)
        return;
    sl_warn(SL_E_POD_LABEL_LOG, err->msg);
    if (status != 404 && status != 403)
        c->labelled = -1; /* try again */
}

/* A Service that selects sluice.io/leader=true sends the scheduler to the replica that can answer. */
static void label_ourselves(struct sl_controller *c)
{
    int want = sl_controller_leads(c) && !c->stopping;
    if (!c->opt.elect || !c->opt.pod || c->labelling || c->labelled == want)
        return;
    char *path SL_CLEANUP(free) =
        sl_kube_path("/api/v1/namespaces/%s/pods/%s", c->opt.name_space, c->opt.pod);
    if (put_label(c, path, "sluice.io/leader", want ? "true" : NULL, labelled)) {
        c->labelling = true;
        c->labelled = want;
    }
}

static void told(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_controller *c = data;
    (void)body;
    c->telling--;
    if (err->code && status != 404)
        sl_warn("cannot tell the scheduler that a node has room again: %s", err->msg);
}

/* kube-scheduler tries refused pods again when a label of a node changes. */
static void tell_room(struct sl_controller *c)
{
    const char *node;
    char now[24];
    if (!sl_controller_leads(c) || c->stopping)
        return;
    (void)snprintf(now, sizeof(now), "%llu", (unsigned long long)(sl_loop_now(c->loop) / TICK_NS));
    while (c->telling < TELL_MAX && (node = sl_cluster_next_room(c->cluster))) {
        char *path SL_CLEANUP(free) = sl_kube_path("/api/v1/nodes/%s", node);
        c->telling += put_label(c, path, "sluice.io/room", now, told);
    }
}

static void tick(struct sl_timer *timer)
{
    struct sl_controller *c = sl_container_of(timer, struct sl_controller, tick);
    uint64_t now = sl_loop_now(c->loop);
    sl_cluster_expire(c->cluster, now);
    sl_quota_expire(&c->quota, now);
    sl_certs_tick(c);
    sl_settle_tick(c);
    sl_resize_tick(c);
    tell_room(c);
    label_ourselves(c);
    sl_timer_set(c->loop, timer, now + TICK_NS);
}

static void sweep(struct sl_timer *timer)
{
    struct sl_controller *c = sl_container_of(timer, struct sl_controller, sweep);
    sl_cluster_learn(c->cluster);
    sl_templates_sweep(c);
    uint64_t keep_ns = (uint64_t)c->opt.template_keep_s * SL_NS_PER_S;
    sl_timer_set(c->loop, timer, sl_loop_now(c->loop) + (keep_ns < SWEEP_NS ? keep_ns : SWEEP_NS));
}

static void admitted(void *data, const char *admission)
{
    struct sl_controller *c = data;
    sl_quota_seen(&c->quota, admission);
}

static void started_leading(void *data)
{
    sl_info("this replica is the leader now");
    label_ourselves(data);
}

static void stopped_leading(void *data)
{
    sl_warn(SL_E_NO_LONGER_LEADING);
    label_ourselves(data);
}

static void leader_trouble(void *data, const struct sl_err *err)
{
    (void)data;
    sl_warn("leader election: %s", err->msg);
}

static int elect(struct sl_controller *c, struct sl_err *err)
{
    const struct sl_controller_options *o = &c->opt;
    struct sl_leader_options opt = {.namespace = o->name_space,
                                    .name = o->lease,
                                    .identity = o->identity,
                                    .lease_ns = o->lease_ns,
                                    .renew_ns = o->renew_ns,
                                    .retry_ns = o->retry_ns,
                                    .started = started_leading,
                                    .stopped = stopped_leading,
                                    .trouble = leader_trouble,
                                    .data = c};
    return o->elect ? sl_leader_create(c->loop, c->kube, &opt, &c->leader, err) : 0;
}

int sl_controller_create(struct sl_loop *loop, const struct sl_controller_options *opt,
                         struct sl_controller **ret, struct sl_err *err)
{
    struct sl_cluster_options cluster = {.policy = opt->policy, .seed = 1, .admitted = admitted};
    struct sl_controller *c = sl_xcalloc(1, sizeof(*c));
    c->loop = loop;
    c->opt = *opt;
    c->tick.fire = tick;
    c->labelled = -1;
    c->sweep.fire = sweep;
    cluster.data = c;
    int rc = sl_cluster_create(&cluster, &c->cluster, err);
    c->extender = (struct sl_extender){.cluster = c->cluster,
                                       .all = opt->extender == SL_EXTENDER_ALL,
                                       .slot_resource = opt->mutate.slot_resource,
                                       .claims = &c->claims};
    bool claims = (opt->admission && opt->mutate.mode == SL_MUTATE_DRA) ||
                  opt->extender == SL_EXTENDER_PRIORITIZE;
    if (!rc && sl_ui_on(c) && claims && !(c->dra = sl_ui_dra_create(opt->policy, err)))
        rc = -ENOMEM;
    if (!rc)
        rc = sl_kube_create(loop, &opt->kube, &c->kube, err);
    if (!rc && opt->listen && !opt->cert_file)
        rc = sl_certs_create(c, err);
    if (!rc)
        rc = sl_ui_check(c, err);
    if (!rc)
        rc = sl_serve_start(c, err);
    if (!rc)
        rc = sl_feeds_start(c, err);
    if (!rc)
        rc = elect(c, err);
    if (rc) {
        sl_controller_destroy(c);
        return rc;
    }
    sl_timer_set(loop, &c->tick, sl_loop_now(loop) + TICK_NS);
    sl_timer_set(loop, &c->sweep, sl_loop_now(loop) + TICK_NS);
    *ret = c;
    return 0;
}

void sl_controller_destroy(struct sl_controller *c)
{
    if (!c)
        return;
    sl_timer_stop(c->loop, &c->tick);
    sl_timer_stop(c->loop, &c->sweep);
    sl_serve_stop(c);
    sl_leader_destroy(c->leader);
    sl_feeds_stop(c);
    sl_ui_dra_free(c->dra);
    sl_webhook_free(c);
    sl_bind_free(c);
    sl_kube_destroy(c->kube);
    sl_certs_free(c);
    sl_templates_free(c);
    sl_settle_free(c);
    sl_resize_free(c);
    free(c->client_ca_pem);
    sl_claims_free(&c->claims);
    sl_quota_free(&c->quota);
    sl_cluster_destroy(c->cluster);
    free(c);
}

static void released(void *data)
{
    struct sl_controller *c = data;
    c->stopped(c->stopped_data);
}

void sl_controller_maybe_stopped(struct sl_controller *c)
{
    if (!c->stopping || c->binds)
        return;
    c->stopping = false; /* call done only once */
    if (c->leader)
        sl_leader_release(c->leader, released);
    else
        released(c);
}

void sl_controller_stop(struct sl_controller *c, void (*done)(void *data), void *data)
{
    c->stopped = done;
    c->stopped_data = data;
    c->stopping = true;
    for (unsigned i = 0; i < SERVE_COUNT; i++)
        if (c->serve[i].server)
            sl_http_server_quiesce(c->serve[i].server);
    sl_controller_maybe_stopped(c);
}

bool sl_controller_ready(const struct sl_controller *c)
{
    return !c->stopping && sl_feeds_synced(c) && (!c->opt.listen || c->serve[SERVE_TLS].server);
}
