/* SPDX-License-Identifier: Apache-2.0 */
/* The server of one resource: its socket, and the streams that send the devices to kubelet. */
#include "agent/kubelet/plugin_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"

static const uint64_t RETIRE_NS = SL_NS_PER_S;
static const uint64_t PACK_AGAIN_NS = SL_NS_PER_S;

/* --- streams -------------------------------------------------------------------------------- */

static int have_list(struct plugin *p, struct sl_err *err)
{
    return p->list ? 0
                   : sl_plugin_devices_pack(&p->devices, p->retiring, &p->list, &p->list_size, err);
}

static void send_list(struct plugin_stream *s)
{
    struct plugin *p = s->plugin;
    struct sl_err err = SL_ERR_INIT;
    s->stale = true;
    int rc = have_list(p, &err);
    if (rc == 0)
        rc = sl_rpc_call_send(s->call, p->list, p->list_size, &err);
    if (rc == 0) {
        s->stale = false;
        p->owner->stats.lists_sent++;
    } else if (rc == -EMSGSIZE) {
        sl_error("%s: cannot send the list of devices: %s", p->devices.res.name, err.msg);
        sl_timer_set(p->owner->loop, &p->push, sl_loop_now(p->owner->loop) + PACK_AGAIN_NS);
    }
    /* -EAGAIN: `writable` will be called. -EPIPE: `ended` has been called or will be. */
}

static void stream_writable(struct sl_rpc_call *call, void *data)
{
    (void)call;
    struct plugin_stream *s = data;
    if (s->plugin && s->stale)
        send_list(s);
}

static void stream_draining(struct sl_rpc_call *call, void *data)
{
    (void)data;
    sl_rpc_call_finish(call, SL_RPC_OK, NULL);
}

static void stream_ended(struct sl_rpc_call *call, enum sl_rpc_code code, void *data)
{
    (void)call, (void)code;
    struct plugin_stream *s = data;
    struct plugin *p = s->plugin;
    if (p) {
        sl_list_drop(&p->streams, s);
        if (!p->streams)
            sl_plugin_streams_ended(p);
    }
    free(s);
}

static void list_and_watch(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg, (void)size; /* an Empty message */
    static const struct sl_rpc_call_events events = {
        .writable = stream_writable, .draining = stream_draining, .ended = stream_ended};
    struct plugin *p = data;
    struct plugin_stream *s = sl_xcalloc(1, sizeof(*s));
    *s = (struct plugin_stream){.plugin = p, .call = call, .next = p->streams};
    p->streams = s;
    sl_rpc_call_watch(call, &events, s);
    sl_plugin_stream_began(p);
    send_list(s);
}

static void push_fires(struct sl_timer *timer)
{
    struct plugin *p = sl_container_of(timer, struct plugin, push);
    for (struct plugin_stream *s = p->streams, *next; s; s = next) {
        next = s->next;
        send_list(s);
    }
}

void sl_plugin_serve_init(struct plugin *p)
{
    p->push.fire = push_fires;
}

void sl_plugin_changed(struct plugin *p)
{
    free(p->list);
    p->list = NULL;
    sl_timer_set(p->owner->loop, &p->push, sl_loop_now(p->owner->loop));
}

/* --- the server ----------------------------------------------------------------------------- */

static int make_server(struct plugin *p, struct sl_err *err)
{
    static const struct {
        const char *path;
        sl_rpc_handler *handler;
    } methods[] = {
        {"/v1beta1.DevicePlugin/GetDevicePluginOptions", sl_plugin_call_options},
        {"/v1beta1.DevicePlugin/ListAndWatch", list_and_watch},
        {"/v1beta1.DevicePlugin/GetPreferredAllocation", sl_plugin_call_prefer},
        {"/v1beta1.DevicePlugin/Allocate", sl_plugin_call_allocate},
        {"/v1beta1.DevicePlugin/PreStartContainer", sl_plugin_call_prestart},
    };
    /* A queue of one byte takes one list and no second: a slow reader never gets an old list. */
    const struct sl_rpc_limits limits = {.max_queue_bytes = 1,
                                         .max_message_bytes = PLUGIN_MAX_MESSAGE};
    struct sl_rpc_server *server;
    int rc = sl_rpc_server_create(p->owner->loop, &limits, &server, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < sizeof(methods) / sizeof(methods[0]); i++)
        rc = sl_rpc_server_handle(server, methods[i].path, methods[i].handler, p, err);
    if (rc < 0) {
        sl_rpc_server_destroy(server);
        return rc;
    }
    p->server = server;
    return 0;
}

int sl_plugin_listen(struct plugin *p, struct sl_err *err)
{
    struct stat st;
    p->listening = false;
    int rc = sl_rpc_server_listen(p->server, p->path, 0600, err);
    if (rc < 0)
        return rc;
    if (lstat(p->path, &st) != 0)
        return sl_err_errno(err, errno, "cannot look at %s", p->path);
    p->listening = true;
    p->dev = st.st_dev;
    p->ino = st.st_ino;
    return 0;
}

int sl_plugin_serve(struct plugin *p, struct sl_err *err)
{
    struct stat st;
    /* Kubelet up to 1.36 takes the end of an old stream for the end of the new registration: the old stream must be
     * over before Register. */
    if (p->server && sl_rpc_server_conns(p->server) > 0)
        sl_plugin_unserve(p);
    int rc = p->server ? 0 : make_server(p, err);
    if (rc < 0)
        return rc;
    if (p->listening && lstat(p->path, &st) == 0 && st.st_dev == p->dev && st.st_ino == p->ino)
        return 0;
    return sl_plugin_listen(p, err);
}

void sl_plugin_unserve(struct plugin *p)
{
    struct sl_rpc_server *server = p->server;
    p->server = NULL;
    p->listening = false;
    p->missed_ns = 0;
    sl_timer_stop(p->owner->loop, &p->gap);
    for (struct plugin_stream *s = p->streams; s; s = s->next)
        s->plugin = NULL; /* `ended` frees it and does nothing else */
    p->streams = NULL;
    sl_rpc_server_destroy(server);
}

/* --- the end -------------------------------------------------------------------------------- */

void sl_plugin_free(struct plugin *p)
{
    if (!p)
        return;
    sl_plugin_register_stop(p);
    sl_timer_stop(p->owner->loop, &p->push);
    sl_plugin_unserve(p);
    sl_plugin_devices_free(&p->devices);
    free(p->list);
    free(p);
}

static void retired(struct sl_rpc_server *server, void *data)
{
    (void)server;
    struct plugin *p = data;
    sl_list_drop(&p->owner->retiring, p);
    sl_plugin_free(p);
}

void sl_plugin_retire(struct plugin *p)
{
    sl_plugin_register_stop(p);
    if (!p->server) {
        sl_plugin_free(p);
        return;
    }
    p->retiring = true;
    p->next = p->owner->retiring;
    p->owner->retiring = p;
    sl_plugin_changed(p);
    sl_timer_stop(p->owner->loop, &p->push);
    push_fires(&p->push);
    sl_rpc_server_stop(p->server, RETIRE_NS, retired, p);
}
