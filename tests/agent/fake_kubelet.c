/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_kubelet.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "deviceplugin.pb-c.h"
#include "rpc/pb.h"

struct fake_resource *fake_find(struct fake_kubelet *k, const char *name)
{
    for (size_t i = 0; i < FAKE_RESOURCES; i++)
        if (strcmp(k->resource[i].name, name) == 0)
            return &k->resource[i];
    return NULL;
}

static void forget_list(struct fake_resource *r)
{
    for (size_t i = 0; i < r->devices; i++)
        free(r->id[i]);
    free(r->id);
    free(r->ok);
    r->id = NULL;
    r->ok = NULL;
    r->devices = r->healthy = r->with_numa = 0;
}

static bool lists(const Dp__ListAndWatchResponse *list, const char *id)
{
    for (size_t i = 0; i < list->n_devices; i++)
        if (strcmp(list->devices[i]->id, id) == 0)
            return strcmp(list->devices[i]->health, "Healthy") == 0;
    return false;
}

static void on_list(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct fake_resource *r = data;
    ProtobufCMessage *m;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(
        sl_rpc_pb_unpack(&dp__list_and_watch_response__descriptor, msg, size, &m, &err), 0);
    const Dp__ListAndWatchResponse *list = (const void *)m;
    /* Quadratic: not for the large lists. */
    for (size_t i = 0; r->devices <= 1000 && i < r->devices; i++)
        r->blips += r->ok[i] && !lists(list, r->id[i]);
    forget_list(r);
    r->devices = list->n_devices;
    r->id = calloc(r->devices + 1, sizeof(*r->id));
    r->ok = calloc(r->devices + 1, sizeof(*r->ok));
    for (size_t i = 0; i < r->devices; i++) {
        r->id[i] = strdup(list->devices[i]->id);
        r->ok[i] = strcmp(list->devices[i]->health, "Healthy") == 0;
        r->healthy += r->ok[i];
        r->with_numa += list->devices[i]->topology != NULL;
    }
    r->lists++;
    sl_rpc_pb_free(m);
    if (r->kubelet->manners == FAKE_INCONSTANT) {
        r->stream = NULL;
        sl_rpc_call_cancel(call);
    }
}

static void on_list_end(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message,
                        void *data)
{
    (void)code, (void)message;
    struct fake_resource *r = data;
    if (r->stream != call)
        return;
    r->stream = NULL;
    r->ends++;
    r->blips += (unsigned)r->healthy;
}

static void on_options(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)call;
    struct fake_resource *r = data;
    ProtobufCMessage *m;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_rpc_pb_unpack(&dp__device_plugin_options__descriptor, msg, size, &m, &err),
                     0);
    const Dp__DevicePluginOptions *options = (const void *)m;
    r->preferred = options->get_preferred_allocation_available;
    r->prestart = options->pre_start_required;
    r->options_answered = true;
    sl_rpc_pb_free(m);
}

static void ignore_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message,
                        void *data)
{
    (void)call, (void)code, (void)message, (void)data;
}

static bool dial(struct fake_resource *r)
{
    static const struct sl_rpc_call_ops list = {.message = on_list, .done = on_list_end};
    static const struct sl_rpc_call_ops options = {
        .message = on_options, .done = ignore_done, .unary = true};
    struct sl_err err = SL_ERR_INIT;
    struct sl_rpc_call *call;
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", r->kubelet->dir, r->endpoint);
    r->stream = NULL;
    sl_rpc_client_destroy(r->client);
    r->client = NULL;
    const struct sl_rpc_client_options how = {.limits = {.max_message_bytes = 16 << 20}};
    if (sl_rpc_client_connect(r->kubelet->loop, path, &how, &r->client, &err) < 0)
        return false;
    if (r->kubelet->manners == FAKE_DEAF)
        return true;
    Dp__Empty empty = DP__EMPTY__INIT;
    assert_int_equal(sl_rpc_pb_call(r->client, "/v1beta1.DevicePlugin/GetDevicePluginOptions",
                                    &empty.base, SL_RPC_NO_TIMEOUT, &options, r, &call, &err),
                     0);
    assert_int_equal(sl_rpc_pb_call(r->client, "/v1beta1.DevicePlugin/ListAndWatch", &empty.base,
                                    SL_RPC_NO_TIMEOUT, &list, r, &r->stream, &err),
                     0);
    return true;
}

static void on_register(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct fake_kubelet *k = data;
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &dp__register_request__descriptor, msg, size, &m) < 0)
        return;
    const Dp__RegisterRequest *request = (const void *)m;
    assert_string_equal(request->version, "v1beta1");
    assert_non_null(request->options);
    assert_true(request->options->get_preferred_allocation_available);
    k->registrations++;
    struct fake_resource *r = fake_find(k, request->resource_name);
    if (!r)
        r = fake_find(k, "");
    assert_non_null(r);
    r->kubelet = k;
    (void)snprintf(r->name, sizeof(r->name), "%s", request->resource_name);
    (void)snprintf(r->endpoint, sizeof(r->endpoint), "%s", request->endpoint);
    r->registrations++;
    r->prestart_registered = request->options->pre_start_required;
    sl_rpc_pb_free(m);
    Dp__Empty empty = DP__EMPTY__INIT;
    if (k->manners == FAKE_REFUSES)
        sl_rpc_call_finish(call, SL_RPC_INVALID_ARGUMENT, "not today");
    else if (k->manners == FAKE_GARBAGE)
        sl_rpc_call_reply(call, "\xff\xff\xff\xff\xff\xff", 6);
    else if (k->manners != FAKE_SILENT && !dial(r))
        sl_rpc_call_finish(call, SL_RPC_INTERNAL, "cannot dial the plugin");
    else if (k->manners != FAKE_SILENT)
        sl_rpc_pb_reply(call, &empty.base);
    if (k->manners == FAKE_RACES && !k->raced) {
        k->raced = true;
        r->stream = NULL;
        sl_rpc_client_destroy(r->client);
        r->client = NULL;
    }
}

void fake_start(struct fake_kubelet *k, struct sl_loop *loop, const char *dir)
{
    struct sl_err err = SL_ERR_INIT;
    k->loop = loop;
    (void)snprintf(k->dir, sizeof(k->dir), "%s", dir);
    (void)snprintf(k->path, sizeof(k->path), "%s/kubelet.sock", k->dir);
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)closedir(d);
    assert_int_equal(sl_rpc_server_create(loop, NULL, &k->server, &err), 0);
    assert_int_equal(
        sl_rpc_server_handle(k->server, "/v1beta1.Registration/Register", on_register, k, &err), 0);
    assert_int_equal(sl_rpc_server_listen(k->server, k->path, 0600, &err), 0);
}

void fake_stop(struct fake_kubelet *k, bool stale)
{
    sl_rpc_server_destroy(k->server);
    k->server = NULL;
    for (size_t i = 0; i < FAKE_RESOURCES; i++) {
        struct fake_resource *r = &k->resource[i];
        r->stream = NULL;
        sl_rpc_client_destroy(r->client);
        forget_list(r);
        *r = (struct fake_resource){.kubelet = k};
    }
    if (!stale)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", k->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    (void)close(fd);
}

/* --- calls ------------------------------------------------------------------------------------- */

static void on_answer(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)call;
    struct fake_call *c = data;
    c->answer = malloc(size + 1);
    c->size = size;
    if (size)
        memcpy(c->answer, msg, size);
}

static void on_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message,
                    void *data)
{
    (void)call;
    struct fake_call *c = data;
    c->done = true;
    c->call = NULL;
    c->code = code;
    (void)snprintf(c->text, sizeof(c->text), "%s", message);
}

static void call_within(struct fake_resource *r, const char *method, const void *msg, size_t size,
                        uint64_t timeout_ns, struct fake_call *ret)
{
    static const struct sl_rpc_call_ops ops = {
        .message = on_answer, .done = on_done, .unary = true};
    struct sl_err err = SL_ERR_INIT;
    char path[100];
    (void)snprintf(path, sizeof(path), "/v1beta1.DevicePlugin/%s", method);
    *ret = (struct fake_call){.done = false};
    if (sl_rpc_client_call(r->client, path, msg, size, timeout_ns, &ops, ret, &ret->call, &err) < 0)
        fail_msg("%s: %s", method, err.msg);
}

void fake_call(struct fake_resource *r, const char *method, const void *msg, size_t size,
               struct fake_call *ret)
{
    call_within(r, method, msg, size, SL_RPC_NO_TIMEOUT, ret);
}

static void send_within(struct fake_resource *r, const char *method, const ProtobufCMessage *m,
                        uint64_t timeout_ns, struct fake_call *ret)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *data = malloc(size + 1);
    (void)protobuf_c_message_pack(m, data);
    call_within(r, method, data, size, timeout_ns, ret);
    free(data);
}

static void send_message(struct fake_resource *r, const char *method, const ProtobufCMessage *m,
                         struct fake_call *ret)
{
    send_within(r, method, m, SL_RPC_NO_TIMEOUT, ret);
}

/* protobuf-c's lists are of char *, which it does not write to. */
static char **unconst(const char *const *list)
{
    union {
        const char *const *in;
        char **out;
    } same = {.in = list};
    return same.out;
}

void fake_allocate(struct fake_resource *r, const char *const *ids, size_t n, struct fake_call *ret)
{
    Dp__ContainerAllocateRequest one = DP__CONTAINER_ALLOCATE_REQUEST__INIT, *ones[] = {&one};
    Dp__AllocateRequest request = DP__ALLOCATE_REQUEST__INIT;
    one.devices_ids = unconst(ids);
    one.n_devices_ids = n;
    request.container_requests = ones;
    request.n_container_requests = 1;
    send_message(r, "Allocate", &request.base, ret);
}

void fake_prestart(struct fake_resource *r, const char *const *ids, size_t n, uint64_t timeout_ns,
                   struct fake_call *ret)
{
    Dp__PreStartContainerRequest request = DP__PRE_START_CONTAINER_REQUEST__INIT;
    request.devices_ids = unconst(ids);
    request.n_devices_ids = n;
    send_within(r, "PreStartContainer", &request.base, timeout_ns, ret);
}

void fake_prefer(struct fake_resource *r, const char *const *available, size_t n,
                 const char *const *must, size_t must_n, int want, struct fake_call *ret)
{
    Dp__ContainerPreferredAllocationRequest one = DP__CONTAINER_PREFERRED_ALLOCATION_REQUEST__INIT,
                                            *ones[] = {&one};
    Dp__PreferredAllocationRequest request = DP__PREFERRED_ALLOCATION_REQUEST__INIT;
    one.available_deviceids = unconst(available);
    one.n_available_deviceids = n;
    one.must_include_deviceids = unconst(must);
    one.n_must_include_deviceids = must_n;
    one.allocation_size = want;
    request.container_requests = ones;
    request.n_container_requests = 1;
    send_message(r, "GetPreferredAllocation", &request.base, ret);
}

void fake_call_free(struct fake_call *call)
{
    free(call->answer);
    call->answer = NULL;
}
