/* SPDX-License-Identifier: Apache-2.0 */
/* PreStartContainer: answered when the owner of the callback has made the container ready, or has failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/kubelet/plugin_internal.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "deviceplugin.pb-c.h"
#include "rpc/pb.h"

/* Held by the owner of the callback, who answers. Kubelet may hang up first, and the plugins may be destroyed first. */
struct sl_prestart {
    struct sl_rpc_call *call; /* NULL: the call is over */
    char resource[SL_RESOURCE_NAME_SIZE];
    struct sl_prestart *next;
    struct sl_plugins *plugins; /* the plugins that list it; NULL: destroyed */
};

bool sl_plugin_wants_prestart(const struct plugin *p)
{
    return p->devices.fractions && p->owner->options.prestart;
}

static void reply(struct sl_rpc_call *call)
{
    Dp__PreStartContainerResponse answer = DP__PRE_START_CONTAINER_RESPONSE__INIT;
    sl_rpc_pb_reply(call, &answer.base);
}

static void ended(struct sl_rpc_call *call, enum sl_rpc_code code, void *data)
{
    (void)call, (void)code;
    struct sl_prestart *s = data;
    if (s)
        s->call = NULL;
}

static const struct sl_rpc_call_events events = {.ended = ended};

void sl_plugin_prestarts_forget(struct sl_plugins *plugins)
{
    for (struct sl_prestart *s = plugins->prestarts; s; s = s->next)
        s->plugins = NULL;
}

/* By name: the resource may have been removed, or added again, since the call. */
static void count(struct sl_plugins *plugins, const char *resource, bool failed)
{
    plugins->stats.prestarts += !failed;
    plugins->stats.prestart_failures += failed;
    for (struct plugin *p = plugins->plugins; p; p = p->next)
        if (strcmp(p->devices.res.name, resource) == 0) {
            p->counts.prestarts += !failed;
            p->counts.prestart_failures += failed;
        }
}

void sl_prestart_answer(struct sl_prestart *s, const struct sl_err *err)
{
    struct sl_rpc_call *call = s->call;
    char text[sizeof(err->msg) + sizeof(s->resource) + 4];
    if (s->plugins) {
        sl_list_drop(&s->plugins->prestarts, s);
        count(s->plugins, s->resource, err != NULL);
    }
    if (err) {
        (void)snprintf(text, sizeof(text), "%s: %s", s->resource, err->msg);
        sl_warn("PreStartContainer refused: %s", text);
    }
    if (call) {
        sl_rpc_call_watch(call, &events, NULL); /* its end does not matter any more */
        if (err)
            sl_rpc_call_finish(call, sl_rpc_code_from_errno(err->code), text);
        else
            reply(call);
    }
    free(s);
}

uint64_t sl_prestart_deadline(const struct sl_prestart *s)
{
    return s->call ? sl_rpc_call_deadline(s->call) : UINT64_MAX;
}

void sl_plugin_call_prestart(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct plugin *p = data;
    struct sl_plugins *plugins = p->owner;
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &dp__pre_start_container_request__descriptor, msg, size, &m) < 0)
        return;
    const Dp__PreStartContainerRequest *request = (const void *)m;
    if (!sl_plugin_wants_prestart(p) || request->n_devices_ids == 0) {
        reply(call);
        sl_rpc_pb_free(m);
        return;
    }
    struct sl_prestart *s = sl_xcalloc(1, sizeof(*s));
    *s = (struct sl_prestart){.call = call, .plugins = plugins, .next = plugins->prestarts};
    (void)snprintf(s->resource, sizeof(s->resource), "%s", p->devices.res.name);
    plugins->prestarts = s;
    sl_rpc_call_watch(call, &events, s);
    plugins->options.prestart(plugins->options.data, &p->devices.res,
                              (const char *const *)request->devices_ids, request->n_devices_ids, s);
    sl_rpc_pb_free(m);
}
