/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that kubelet calls: registration, prepare and unprepare of any number of claims, device health. */
#include "agent/dra/dra_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "container/cdi.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "dra.pb-c.h"
#include "drahealth.pb-c.h"
#include "pluginregistration.pb-c.h"
#include "rpc/pb.h"

#define HEALTH_EVERY_NS  (10 * SL_NS_PER_S) /* kubelet forgets the health after timeout_s */
#define HEALTH_TIMEOUT_S 30
#define DRA_V1           "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define DRA_V1BETA1      "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/"

/* --- registration --- */

static void get_info(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct sl_dra *dra = data;
    (void)msg;
    (void)size;
    static char type[] = "DRAPlugin";
    char driver[64];
    (void)snprintf(driver, sizeof(driver), "%s", sl_dra_driver(&dra->opt.names));
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
        sl_info("kubelet knows %s", sl_dra_driver(&dra->opt.names));
    else
        sl_error("kubelet refuses %s: %s", sl_dra_driver(&dra->opt.names), s->error);
    Reg__RegistrationStatusResponse answer = REG__REGISTRATION_STATUS_RESPONSE__INIT;
    sl_rpc_pb_reply(call, &answer.base);
    sl_rpc_pb_free(m);
}

/* --- prepare and unprepare --- */

/* A running call: kubelet may leave before the answer, the work goes on. */
struct batch {
    struct sl_rpc_call *call; /* NULL: kubelet has left */
    ProtobufCMessage *answer;
    size_t left;
    bool beginning; /* early answers wait until the last claim has begun */
};

/* One claim's part of an answer. */
struct part {
    struct sl_dra *dra;
    struct batch *batch;
    char **error;
    Dra__NodePrepareResourceResponse *devices; /* of a prepare */
};

static char **one_text(const char *text)
{
    char **list = sl_xmalloc(sizeof(*list));
    *list = sl_xstrdup(text);
    return list;
}

static void add_device(struct part *part, const struct sl_prepared *p,
                       const struct sl_prepared_device *d)
{
    Dra__Device *to =
        sl_rpc_pb_add(&part->devices->devices, &part->devices->n_devices, &dra__device__descriptor);
    char cdi[SL_CDI_NAME_SIZE];
    sl_dra_cdi_name(p, d, cdi, sizeof(cdi));
    to->request_names = one_text(d->request);
    to->cdi_device_ids = one_text(cdi);
    to->n_request_names = to->n_cdi_device_ids = 1;
    to->pool_name = sl_xstrdup(part->dra->opt.node_name);
    to->device_name = sl_xstrdup(d->device);
    to->share_id = sl_xstrdup(d->share_id);
}

static void batch_done(struct batch *b)
{
    if (b->left || b->beginning)
        return;
    b->beginning = true; /* `ended` may be called from inside the reply */
    if (b->call)
        sl_rpc_pb_reply(b->call, b->answer);
    b->beginning = false;
    sl_rpc_pb_free(b->answer);
    b->answer = NULL;
    if (!b->call)
        free(b); /* otherwise `ended` frees it */
}

static void claim_done(void *data, int rc, const struct sl_err *err, const struct sl_prepared *p)
{
    struct part *part = data;
    struct batch *b = part->batch;
    if (rc < 0)
        *part->error = sl_xstrdup(err->msg[0] ? err->msg : "the registration failed");
    for (size_t i = 0; rc == 0 && p && i < p->device_count; i++)
        add_device(part, p, &p->device[i]);
    free(part);
    b->left--;
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

/* Puts the claim into the answer. */
static struct part *add_part(struct sl_dra *dra, struct batch *b, enum op_kind kind,
                             const char *uid)
{
    struct part *part = sl_xcalloc(1, sizeof(*part));
    *part = (struct part){.dra = dra, .batch = b};
    if (kind == OP_PREPARE) {
        Dra__NodePrepareResourcesResponse *answer = (void *)b->answer;
        Dra__NodePrepareResourcesResponse__ClaimsEntry *entry =
            sl_rpc_pb_add(&answer->claims, &answer->n_claims,
                          &dra__node_prepare_resources_response__claims_entry__descriptor);
        entry->key = sl_xstrdup(uid);
        part->devices = entry->value =
            sl_rpc_pb_new(&dra__node_prepare_resource_response__descriptor);
        part->error = &entry->value->error;
    } else {
        Dra__NodeUnprepareResourcesResponse *answer = (void *)b->answer;
        Dra__NodeUnprepareResourcesResponse__ClaimsEntry *entry =
            sl_rpc_pb_add(&answer->claims, &answer->n_claims,
                          &dra__node_unprepare_resources_response__claims_entry__descriptor);
        entry->key = sl_xstrdup(uid);
        entry->value = sl_rpc_pb_new(&dra__node_unprepare_resource_response__descriptor);
        part->error = &entry->value->error;
    }
    return part;
}

/* Both calls are only a list of claims, in both versions of the API. */
static void read_claims(struct sl_rpc_call *call, const uint8_t *msg, size_t size,
                        struct sl_dra *dra, enum op_kind kind)
{
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &dra__node_prepare_resources_request__descriptor, msg, size, &m) <
        0)
        return;
    const Dra__NodePrepareResourcesRequest *r =
        (const Dra__NodePrepareResourcesRequest *)(const void *)m;
    struct batch *b = sl_xcalloc(1, sizeof(*b));
    *b = (struct batch){.call = call, .left = r->n_claims, .beginning = true};
    b->answer =
        sl_rpc_pb_new(kind == OP_PREPARE ? &dra__node_prepare_resources_response__descriptor
                                         : &dra__node_unprepare_resources_response__descriptor);
    sl_rpc_call_watch(call, &batch_events, b);
    for (size_t i = 0; i < r->n_claims; i++) {
        const Dra__Claim *claim = r->claims[i];
        sl_dra_begin(dra, kind, claim->namespace_, claim->name, claim->uid, claim_done,
                     add_part(dra, b, kind, claim->uid));
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

/* Adds the health of the device's card, once a device. */
static void add_health(Drahealth__NodeWatchResourcesResponse *answer, struct sl_dra *dra,
                       const struct sl_prepared_device *d)
{
    for (size_t i = 0; i < answer->n_devices; i++)
        if (strcmp(answer->devices[i]->device->device_name, d->device) == 0)
            return;
    const char *trouble = NULL;
    enum dra_fitness fitness = sl_dra_fitness(dra, d, &trouble);
    Drahealth__DeviceHealth *h =
        sl_rpc_pb_add(&answer->devices, &answer->n_devices, &drahealth__device_health__descriptor);
    h->device = sl_rpc_pb_new(&drahealth__device_identifier__descriptor);
    h->device->pool_name = sl_xstrdup(dra->opt.node_name);
    h->device->device_name = sl_xstrdup(d->device);
    h->health = fitness == DRA_UNKNOWN ? DRAHEALTH__HEALTH_STATUS__UNKNOWN
                : trouble              ? DRAHEALTH__HEALTH_STATUS__UNHEALTHY
                                       : DRAHEALTH__HEALTH_STATUS__HEALTHY;
    h->last_updated_time = (int64_t)time(NULL);
    h->health_check_timeout_seconds = HEALTH_TIMEOUT_S;
    if (trouble)
        h->message = sl_xstrdup(trouble);
}

/* The health of every device in use, as of now. */
static void stream_send(struct sl_dra *dra, struct sl_rpc_call *call)
{
    struct sl_err err = SL_ERR_INIT;
    Drahealth__NodeWatchResourcesResponse *answer =
        sl_rpc_pb_new(&drahealth__node_watch_resources_response__descriptor);
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; i < p->device_count; i++)
            add_health(answer, dra, &p->device[i]);
    /* A slow reader gets the next message, which is newer. */
    if (sl_rpc_pb_send(call, &answer->base, &err) < 0)
        sl_debug("cannot report health to kubelet: %s", err.msg);
    sl_rpc_pb_free(&answer->base);
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
    /* Last: kubelet starts to call once this socket exists. */
    return rc < 0 ? rc : sl_rpc_server_listen(dra->registration, dra->reg_socket, 0600, err);
}

void sl_dra_serve_end(struct sl_dra *dra)
{
    sl_rpc_server_destroy(dra->registration);
    sl_rpc_server_destroy(dra->plugin);
    dra->registration = dra->plugin = NULL;
    sl_timer_stop(dra->loop, &dra->health_timer);
}
