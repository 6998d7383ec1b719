/* SPDX-License-Identifier: Apache-2.0 */
/* What kubelet calls: registration, prepare and unprepare of any number of claims, device health. */
#include "agent/dra/dra_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/container/cdi.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "dra.pb-c.h"
#include "drahealth.pb-c.h"
#include "pluginregistration.pb-c.h"
#include "rpc/pb.h"

#define HEALTH_EVERY_NS  (10 * SL_NS_PER_S) /* kubelet forgets after timeout_s */
#define HEALTH_TIMEOUT_S 30
#define DRA_V1           "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define DRA_V1BETA1      "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/"

/* --- registration --- */

static void get_info(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct sl_dra *dra = data;
    (void)msg;
    (void)size;
    static char type[] = "DRAPlugin", driver[] = SL_DRA_DRIVER;
    static char v1[] = "v1.DRAPlugin", v1beta1[] = "v1beta1.DRAPlugin";
    static char health[] = "v1.DRAResourceHealth", health_alpha[] = "v1alpha1.DRAResourceHealth";
    char *versions[] = {v1, v1beta1, health, health_alpha};
    Reg__PluginInfo info = REG__PLUGIN_INFO__INIT;
    info.type = type;
    info.name = driver;
    info.endpoint = dra->dra_socket;
    info.supported_versions = versions;
    info.n_supported_versions = sizeof(versions) / sizeof(versions[0]);
    sl_rpc_pb_reply(call, &info.base);
}

static void registered(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct sl_dra *dra = data;
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &reg__registration_status__descriptor, msg, size, &m) < 0)
        return;
    const Reg__RegistrationStatus *s = (const Reg__RegistrationStatus *)(const void *)m;
    dra->stats.registered = s->plugin_registered;
    if (s->plugin_registered)
        sl_info("kubelet knows " SL_DRA_DRIVER);
    else
        sl_error("kubelet refuses " SL_DRA_DRIVER ": %s", s->error);
    Reg__RegistrationStatusResponse answer = REG__REGISTRATION_STATUS_RESPONSE__INIT;
    sl_rpc_pb_reply(call, &answer.base);
    sl_rpc_pb_free(m);
}

/* --- prepare and unprepare --- */

/* A device of an answer, with its texts. */
struct answer_device {
    Dra__Device message;
    struct sl_prepared_device of;
    char cdi[SL_CDI_NAME_SIZE], *request, *cdi_id;
};

/* One claim's part of an answer. */
struct part {
    char uid[SL_UID_SIZE];
    char error[sizeof(((struct sl_err *)0)->msg)];
    struct answer_device *device;
    Dra__Device **list;
    size_t count;
};

/* A call under way: kubelet may leave before it is answered, the work goes on. */
struct batch {
    struct sl_rpc_call *call; /* NULL: gone */
    enum op_kind kind;
    size_t count, left;
    bool beginning; /* answers that come at once wait for the last claim to have begun */
    struct part part[];
};

/* Copies: the claim may be gone when the last of its call is ready. */
static void part_fill(struct sl_dra *dra, struct part *part, const struct sl_prepared *p)
{
    part->device = sl_xcalloc(p->device_count, sizeof(*part->device));
    part->list = sl_xcalloc(p->device_count, sizeof(Dra__Device *));
    part->count = p->device_count;
    for (size_t i = 0; i < p->device_count; i++) {
        struct answer_device *d = &part->device[i];
        d->of = p->device[i];
        sl_dra_cdi_name(p, &d->of, d->cdi, sizeof(d->cdi));
        d->request = d->of.request;
        d->cdi_id = d->cdi;
        dra__device__init(&d->message);
        d->message.request_names = &d->request;
        d->message.cdi_device_ids = &d->cdi_id;
        d->message.n_request_names = d->message.n_cdi_device_ids = 1;
        d->message.pool_name = dra->node_name;
        d->message.device_name = d->of.device;
        d->message.share_id = d->of.share_id;
        part->list[i] = &d->message;
    }
}

static void reply_prepare(struct batch *b)
{
    Dra__NodePrepareResourcesResponse answer = DRA__NODE_PREPARE_RESOURCES_RESPONSE__INIT;
    Dra__NodePrepareResourcesResponse__ClaimsEntry *entry = sl_xcalloc(b->count, sizeof(*entry));
    Dra__NodePrepareResourceResponse *value = sl_xcalloc(b->count, sizeof(*value));
    answer.claims = sl_xcalloc(b->count, sizeof(Dra__NodePrepareResourcesResponse__ClaimsEntry *));
    answer.n_claims = b->count;
    for (size_t i = 0; i < b->count; i++) {
        dra__node_prepare_resources_response__claims_entry__init(&entry[i]);
        dra__node_prepare_resource_response__init(&value[i]);
        value[i].devices = b->part[i].list;
        value[i].n_devices = b->part[i].count;
        value[i].error = b->part[i].error;
        entry[i].key = b->part[i].uid;
        entry[i].value = &value[i];
        answer.claims[i] = &entry[i];
    }
    sl_rpc_pb_reply(b->call, &answer.base);
    free(answer.claims);
    free(value);
    free(entry);
}

static void reply_unprepare(struct batch *b)
{
    Dra__NodeUnprepareResourcesResponse answer = DRA__NODE_UNPREPARE_RESOURCES_RESPONSE__INIT;
    Dra__NodeUnprepareResourcesResponse__ClaimsEntry *entry = sl_xcalloc(b->count, sizeof(*entry));
    Dra__NodeUnprepareResourceResponse *value = sl_xcalloc(b->count, sizeof(*value));
    answer.claims =
        sl_xcalloc(b->count, sizeof(Dra__NodeUnprepareResourcesResponse__ClaimsEntry *));
    answer.n_claims = b->count;
    for (size_t i = 0; i < b->count; i++) {
        dra__node_unprepare_resources_response__claims_entry__init(&entry[i]);
        dra__node_unprepare_resource_response__init(&value[i]);
        value[i].error = b->part[i].error;
        entry[i].key = b->part[i].uid;
        entry[i].value = &value[i];
        answer.claims[i] = &entry[i];
    }
    sl_rpc_pb_reply(b->call, &answer.base);
    free(answer.claims);
    free(value);
    free(entry);
}

static void batch_done(struct batch *b)
{
    if (b->left || b->beginning)
        return;
    b->beginning = true; /* `ended` may come from inside the reply */
    if (b->call && b->kind == OP_PREPARE)
        reply_prepare(b);
    else if (b->call)
        reply_unprepare(b);
    b->beginning = false;
    for (size_t i = 0; i < b->count; i++) {
        free(b->part[i].device);
        free(b->part[i].list);
    }
    b->count = 0;
    if (!b->call)
        free(b); /* otherwise `ended` does */
}

struct claim_part {
    struct sl_dra *dra;
    struct batch *batch;
    size_t index;
};

static void claim_done(void *data, const char *uid, int rc, const struct sl_err *err,
                       const struct sl_prepared *p)
{
    struct claim_part *c = data;
    struct part *part = &c->batch->part[c->index];
    (void)uid;
    if (rc < 0)
        (void)snprintf(part->error, sizeof(part->error), "%s",
                       err->msg[0] ? err->msg : "the registration failed");
    else if (p)
        part_fill(c->dra, part, p);
    c->batch->left--;
    struct batch *b = c->batch;
    free(c);
    batch_done(b);
}

static void call_ended(struct sl_rpc_call *call, enum sl_rpc_code code, void *data)
{
    struct batch *b = data;
    (void)call;
    (void)code;
    b->call = NULL;
    if (!b->left && !b->beginning)
        free(b);
}

static const struct sl_rpc_call_events batch_events = {.ended = call_ended};

/* Either call is a list of claims and nothing else, in either version of the API. */
static void read_claims(struct sl_rpc_call *call, const uint8_t *msg, size_t size,
                        struct sl_dra *dra, enum op_kind kind)
{
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &dra__node_prepare_resources_request__descriptor, msg, size, &m) <
        0)
        return;
    const Dra__NodePrepareResourcesRequest *r =
        (const Dra__NodePrepareResourcesRequest *)(const void *)m;
    struct batch *b = sl_xcalloc(1, sizeof(*b) + r->n_claims * sizeof(b->part[0]));
    b->call = call;
    b->kind = kind;
    b->count = b->left = r->n_claims;
    b->beginning = true;
    sl_rpc_call_watch(call, &batch_events, b);
    for (size_t i = 0; i < r->n_claims; i++) {
        const Dra__Claim *claim = r->claims[i];
        struct claim_part *c = sl_xcalloc(1, sizeof(*c));
        *c = (struct claim_part){.dra = dra, .batch = b, .index = i};
        (void)snprintf(b->part[i].uid, sizeof(b->part[i].uid), "%s", claim->uid);
        sl_dra_begin(dra, kind, claim->namespace_, claim->name, b->part[i].uid, claim_done, c);
    }
    b->beginning = false;
    batch_done(b);
    sl_rpc_pb_free(m);
}

static void prepare(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    read_claims(call, msg, size, data, OP_PREPARE);
}

static void unprepare(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    read_claims(call, msg, size, data, OP_UNPREPARE);
}

/* --- health --- */

struct health_stream {
    struct health_stream *next;
    struct sl_dra *dra;
    struct sl_rpc_call *call;
};

static void stream_ended(struct sl_rpc_call *call, enum sl_rpc_code code, void *data)
{
    struct health_stream *s = data;
    (void)call;
    (void)code;
    sl_list_drop(&s->dra->streams, s);
    free(s);
}

static void stream_draining(struct sl_rpc_call *call, void *data)
{
    (void)data;
    sl_rpc_call_finish(call, SL_RPC_OK, NULL);
}

static const struct sl_rpc_call_events stream_events = {.draining = stream_draining,
                                                        .ended = stream_ended};

/* The health of every device in use, as of now. */
static void stream_send(struct sl_dra *dra, struct sl_rpc_call *call)
{
    size_t n = 0, at = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        n += p->device_count;
    Drahealth__DeviceHealth *health = sl_xcalloc(n, sizeof(*health));
    Drahealth__DeviceIdentifier *id = sl_xcalloc(n, sizeof(*id));
    Drahealth__NodeWatchResourcesResponse answer = DRAHEALTH__NODE_WATCH_RESOURCES_RESPONSE__INIT;
    answer.devices = sl_xcalloc(n, sizeof(Drahealth__DeviceHealth *));
    for (struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; i < p->device_count; i++) {
            struct sl_prepared_device *d = &p->device[i];
            bool again = false;
            for (size_t k = 0; k < at && !again; k++)
                again = strcmp(id[k].device_name, d->device) == 0;
            if (again)
                continue;
            struct card *c = sl_dra_card(dra, d->share.gpu);
            drahealth__device_health__init(&health[at]);
            drahealth__device_identifier__init(&id[at]);
            id[at].pool_name = dra->node_name;
            id[at].device_name = d->device;
            health[at].device = &id[at];
            const char *trouble = c ? sl_dra_card_trouble(c) : NULL;
            health[at].health = !c        ? DRAHEALTH__HEALTH_STATUS__UNKNOWN
                                : trouble ? DRAHEALTH__HEALTH_STATUS__UNHEALTHY
                                          : DRAHEALTH__HEALTH_STATUS__HEALTHY;
            health[at].last_updated_time = (int64_t)time(NULL);
            health[at].health_check_timeout_seconds = HEALTH_TIMEOUT_S;
            if (trouble) /* protobuf-c does not write to it */
                health[at].message = (char *)(uintptr_t)trouble;
            answer.devices[at] = &health[at];
            at++;
        }
    answer.n_devices = at;
    struct sl_err err = SL_ERR_INIT;
    /* A reader that is slow gets the next one, which says more. */
    if (sl_rpc_pb_send(call, &answer.base, &err) < 0)
        sl_debug("cannot report health to kubelet: %s", err.msg);
    free(answer.devices);
    free(id);
    free(health);
}

void sl_dra_health_send(struct sl_dra *dra)
{
    for (struct health_stream *s = dra->streams; s; s = s->next)
        stream_send(dra, s->call);
}

static void health_fired(struct sl_timer *t)
{
    struct sl_dra *dra = sl_container_of(t, struct sl_dra, health_timer);
    sl_dra_health_send(dra);
    if (dra->streams)
        sl_timer_set(dra->loop, t, sl_loop_now(dra->loop) + HEALTH_EVERY_NS);
}

static void watch_resources(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct sl_dra *dra = data;
    (void)msg;
    (void)size;
    struct health_stream *s = sl_xcalloc(1, sizeof(*s));
    *s = (struct health_stream){.next = dra->streams, .dra = dra, .call = call};
    dra->streams = s;
    sl_rpc_call_watch(call, &stream_events, s);
    stream_send(dra, call);
    if (!dra->health_timer.set)
        sl_timer_set(dra->loop, &dra->health_timer, sl_loop_now(dra->loop) + HEALTH_EVERY_NS);
}

/* --- sockets --- */

int sl_dra_serve(struct sl_dra *dra, struct sl_err *err)
{
    static const struct {
        const char *path;
        sl_rpc_handler *handler;
    } methods[] = {
        {DRA_V1 "NodePrepareResources", prepare},
        {DRA_V1 "NodeUnprepareResources", unprepare},
        {DRA_V1BETA1 "NodePrepareResources", prepare},
        {DRA_V1BETA1 "NodeUnprepareResources", unprepare},
        {"/v1alpha1.DRAResourceHealth/NodeWatchResources", watch_resources},
        {"/v1.DRAResourceHealth/NodeWatchResources", watch_resources},
    };
    dra->health_timer.fire = health_fired;
    int rc = sl_rpc_server_create(dra->loop, NULL, &dra->plugin, err);
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]) && rc == 0; i++)
        rc = sl_rpc_server_handle(dra->plugin, methods[i].path, methods[i].handler, dra, err);
    if (rc == 0)
        rc = sl_rpc_server_listen(dra->plugin, dra->dra_socket, 0600, err);
    if (rc == 0)
        rc = sl_rpc_server_create(dra->loop, NULL, &dra->registration, err);
    if (rc == 0)
        rc = sl_rpc_server_handle(dra->registration, "/pluginregistration.Registration/GetInfo",
                                  get_info, dra, err);
    if (rc == 0)
        rc = sl_rpc_server_handle(dra->registration,
                                  "/pluginregistration.Registration/NotifyRegistrationStatus",
                                  registered, dra, err);
    /* Last: from here on kubelet calls. */
    return rc < 0 ? rc : sl_rpc_server_listen(dra->registration, dra->reg_socket, 0600, err);
}

void sl_dra_serve_end(struct sl_dra *dra)
{
    sl_rpc_server_destroy(dra->registration);
    sl_rpc_server_destroy(dra->plugin);
    dra->registration = dra->plugin = NULL;
    sl_timer_stop(dra->loop, &dra->health_timer);
}
