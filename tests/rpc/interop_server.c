/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interop_server SOCKET: the echo service, and a little of kubelet's APIs, for clients that are not
 * ours. Prints "ready"; stops in order on SIGTERM (its calls have ten seconds).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "deviceplugin.pb-c.h"
#include "dra.pb-c.h"
#include "echo.h"
#include "pluginregistration.pb-c.h"
#include "rpc/pb.h"

enum { DEVICES = 20000 };

static bool done;
static struct sl_rpc_server *server;

static char *literal(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c's structs have no const; packing does not write */
}

static void handle_list(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg;
    (void)size;
    (void)data;
    static char ids[DEVICES][64];
    static Dp__Device devices[DEVICES], *list[DEVICES];
    Dp__NUMANode node = DP__NUMANODE__INIT, *nodes[] = {&node};
    Dp__TopologyInfo topology = DP__TOPOLOGY_INFO__INIT;
    node.id = 1;
    topology.n_nodes = 1;
    topology.nodes = nodes;
    for (int i = 0; i < DEVICES; i++) {
        (void)snprintf(ids[i], sizeof(ids[i]), "GPU-00000000-0000-0000-0000-000000000000::%d", i);
        devices[i] = (Dp__Device)DP__DEVICE__INIT;
        devices[i].id = ids[i];
        devices[i].health = literal("Healthy");
        devices[i].topology = &topology;
        list[i] = &devices[i];
    }
    Dp__ListAndWatchResponse answer = DP__LIST_AND_WATCH_RESPONSE__INIT;
    answer.n_devices = DEVICES;
    answer.devices = list;
    struct sl_err err = SL_ERR_INIT;
    if (sl_rpc_pb_send(call, &answer.base, &err) < 0) /* and stays open: nothing changes */
        sl_rpc_call_finish(call, SL_RPC_INTERNAL, err.msg);
}

static void handle_allocate(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)data;
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &dp__allocate_request__descriptor, msg, size, &m) < 0)
        return;
    const Dp__AllocateRequest *request = (const void *)m;
    Dp__ContainerAllocateResponse__EnvsEntry env =
        DP__CONTAINER_ALLOCATE_RESPONSE__ENVS_ENTRY__INIT;
    Dp__ContainerAllocateResponse__EnvsEntry *envs[] = {&env};
    Dp__Mount mount = DP__MOUNT__INIT, *mounts[] = {&mount};
    Dp__CDIDevice cdi = DP__CDIDEVICE__INIT, *cdis[] = {&cdi};
    Dp__ContainerAllocateResponse container = DP__CONTAINER_ALLOCATE_RESPONSE__INIT;
    Dp__ContainerAllocateResponse *containers[] = {&container};
    Dp__AllocateResponse answer = DP__ALLOCATE_RESPONSE__INIT;
    if (request->n_container_requests != 1 || request->container_requests[0]->n_devices_ids < 1) {
        sl_rpc_call_finish(call, SL_RPC_INVALID_ARGUMENT, "one container with a device, please");
        sl_rpc_pb_free(m);
        return;
    }
    env.key = literal("DEVICE");
    env.value = request->container_requests[0]->devices_ids[0];
    mount.container_path = mount.host_path = literal("/dev/shm");
    mount.read_only = 1;
    cdi.name = literal("example.com/gpu=0");
    container.n_envs = container.n_mounts = container.n_cdi_devices = 1;
    container.envs = envs;
    container.mounts = mounts;
    container.cdi_devices = cdis;
    answer.n_container_responses = 1;
    answer.container_responses = containers;
    sl_rpc_pb_reply(call, &answer.base);
    sl_rpc_pb_free(m);
}

static void handle_info(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg;
    (void)size;
    (void)data;
    char *versions[] = {literal("v1.DRAPlugin"), literal("v1beta1.DRAPlugin")};
    Reg__PluginInfo info = REG__PLUGIN_INFO__INIT;
    info.type = literal("DRAPlugin");
    info.name = literal("gpu.example.com");
    info.endpoint = literal("/run/dra.sock");
    info.n_supported_versions = 2;
    info.supported_versions = versions;
    sl_rpc_pb_reply(call, &info.base);
}

static void handle_prepare(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)data;
    ProtobufCMessage *m;
    if (sl_rpc_pb_request(call, &dra__node_prepare_resources_request__descriptor, msg, size, &m) <
        0)
        return;
    const Dra__NodePrepareResourcesRequest *request = (const void *)m;
    Dra__NodePrepareResourcesResponse answer = DRA__NODE_PREPARE_RESOURCES_RESPONSE__INIT;
    Dra__NodePrepareResourcesResponse__ClaimsEntry entry[8], *entries[8];
    Dra__NodePrepareResourceResponse one[8];
    Dra__Device device = DRA__DEVICE__INIT, *devices[] = {&device};
    device.pool_name = literal("pool");
    device.device_name = literal("gpu-0");
    device.share_id = literal("share");
    for (size_t i = 0; i < request->n_claims && i < 8; i++) {
        entry[i] = (Dra__NodePrepareResourcesResponse__ClaimsEntry)
            DRA__NODE_PREPARE_RESOURCES_RESPONSE__CLAIMS_ENTRY__INIT;
        one[i] = (Dra__NodePrepareResourceResponse)DRA__NODE_PREPARE_RESOURCE_RESPONSE__INIT;
        entry[i].key = request->claims[i]->uid;
        entry[i].value = &one[i];
        if (i % 2) {
            one[i].error = literal("odd");
        } else {
            one[i].n_devices = 1;
            one[i].devices = devices;
        }
        entries[i] = &entry[i];
        answer.n_claims++;
    }
    answer.claims = entries;
    sl_rpc_pb_reply(call, &answer.base);
    sl_rpc_pb_free(m);
}

static void has_stopped(struct sl_rpc_server *stopped, void *data)
{
    (void)stopped;
    (void)data;
    done = true;
}

static void signalled(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct signalfd_siginfo info;
    if (read(source->fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        sl_rpc_server_stop(server, 10 * SL_NS_PER_S, has_stopped, NULL);
}

static int setup(struct sl_loop *loop, struct echo *echo, const char *path, struct sl_err *err)
{
    static const struct {
        const char *path;
        sl_rpc_handler *handler;
    } methods[] = {
        {"/v1beta1.DevicePlugin/ListAndWatch", handle_list},
        {"/v1beta1.DevicePlugin/Allocate", handle_allocate},
        {"/pluginregistration.Registration/GetInfo", handle_info},
        {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", handle_prepare},
    };
    int rc = sl_rpc_server_create(loop, NULL, &server, err);
    if (rc == 0)
        rc = echo_install(server, echo, err);
    for (size_t i = 0; rc == 0 && i < sizeof(methods) / sizeof(methods[0]); i++)
        rc = sl_rpc_server_handle(server, methods[i].path, methods[i].handler, NULL, err);
    return rc < 0 ? rc : sl_rpc_server_listen(server, path, 0600, err);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s SOCKET\n", argv[0]);
        return 2;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    struct sl_source signals = {.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                                .ready = signalled};
    struct sl_err err = SL_ERR_INIT;
    struct sl_loop *loop;
    struct echo echo = {0};
    int rc = sl_loop_create(NULL, &loop, &err);
    if (rc == 0)
        rc = sl_loop_watch(loop, &signals, EPOLLIN, &err);
    if (rc == 0)
        rc = setup(loop, &echo, argv[1], &err);
    if (rc == 0) {
        printf("ready\n");
        (void)fflush(stdout);
    }
    while (rc == 0 && !done)
        rc = sl_loop_step(loop, -1, &err);
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    sl_rpc_server_destroy(server);
    sl_loop_unwatch(loop, &signals);
    (void)close(signals.fd);
    sl_loop_destroy(loop);
    printf("stopped\n");
    return 0;
}
