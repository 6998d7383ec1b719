/* SPDX-License-Identifier: Apache-2.0 */
/* Readers that are slow, and servers that stop. */
#include "world.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "deviceplugin.pb-c.h"
#include "rpc/pb.h"
#include "rpc/rpc_internal.h"

enum { MIB = 1024 * 1024, KIB = 1024 };

static void start_stream(struct sl_rpc_client *client, uint32_t count, uint32_t size,
                         uint64_t timeout_ns, struct result *r)
{
    uint8_t request[8];
    world_stream_request(request, count, size);
    world_start(client, ECHO_STREAM, request, 8, timeout_ns, &world_stream, r);
}

static void a_paused_call_holds_up_nobody(void **state)
{
    (void)state;
    struct world w;
    struct result slow, quick, r;
    world_open(&w, NULL, NULL, NULL);
    start_stream(w.client, 1000, 100 * KIB, SL_RPC_NO_TIMEOUT, &slow);
    sl_rpc_call_pause(slow.call);
    world_settle(&w);
    assert_int_equal(slow.done, 0);
    assert_true(slow.messages <= 3); /* a window of 256 KiB and no more */
    assert_true(w.echo.refused >= 1);
    assert_true(w.echo.most_queued <= MIB);
    /* The same connection: many times the windows' sizes. */
    start_stream(w.client, 100, 100 * KIB, SL_RPC_NO_TIMEOUT, &quick);
    world_until(&w, &quick.done, 1);
    assert_int_equal(quick.messages, 100);
    assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r), SL_RPC_OK);
    assert_true(slow.messages <= 3);

    sl_rpc_call_resume(slow.call);
    world_until(&w, &slow.done, 1);
    assert_int_equal(slow.code, SL_RPC_OK);
    assert_int_equal(slow.messages, 1000);
    assert_true(w.echo.most_queued <= MIB);
    world_close(&w);
}

static void a_client_that_does_not_read_costs_one_queue(void **state)
{
    (void)state;
    struct world w, other;
    struct result slow[8], r;
    world_open(&w, NULL, NULL, NULL);
    /* A client in another loop, which does not run, is one whose process hangs. */
    memset(&other, 0, sizeof(other));
    assert_int_equal(sl_loop_create(NULL, &other.loop, NULL), 0);
    assert_int_equal(sl_rpc_client_adopt(other.loop, world_raw(&w), NULL, &other.client, NULL), 0);
    for (int i = 0; i < 8; i++)
        start_stream(other.client, 50, MIB, SL_RPC_NO_TIMEOUT, &slow[i]);
    world_step(&other, 0);
    world_settle(&w);
    world_settle(&w);
    assert_int_equal(w.echo.open, 8);
    assert_true(w.echo.most_queued <= MIB + 5);
    assert_int_equal(w.echo.ended[SL_RPC_OK], 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r), SL_RPC_OK);
    for (int i = 0; i < 8; i++)
        while (!slow[i].done) {
            world_step(&other, 0);
            world_step(&w, 0);
        }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(slow[i].code, SL_RPC_OK);
        assert_int_equal(slow[i].messages, 50);
    }
    world_settle(&w);
    sl_rpc_client_destroy(other.client);
    sl_loop_destroy(other.loop);
    world_close(&w);
}

static void a_blocked_call_still_has_a_deadline(void **state)
{
    (void)state;
    struct world w;
    struct result slow;
    struct sl_rpc_client *client;
    world_open(&w, NULL, NULL, world_clock);
    client = world_client(&w, NULL, NULL);
    start_stream(client, 1000, 100 * KIB, SL_NS_PER_S, &slow);
    sl_rpc_call_pause(slow.call);
    world_settle(&w);
    world_now_ns += 2 * SL_NS_PER_S;
    world_settle(&w);
    assert_int_equal(slow.code, SL_RPC_DEADLINE_EXCEEDED);
    assert_int_equal(w.echo.open, 0);
    sl_rpc_client_destroy(client);
    world_close(&w);
}

static void one_connection_holds_so_much_and_no_more(void **state)
{
    (void)state;
    struct world w;
    struct result slow[6], r;
    struct sl_rpc_limits limits = {.max_conn_bytes = 3 * MIB};
    world_open(&w, &limits, NULL, NULL);
    for (int i = 0; i < 6; i++) {
        start_stream(w.client, 100, 512 * KIB, SL_RPC_NO_TIMEOUT, &slow[i]);
        sl_rpc_call_pause(slow[i].call);
    }
    world_settle(&w);
    assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r), SL_RPC_RESOURCE_EXHAUSTED);
    for (int i = 0; i < 6; i++)
        sl_rpc_call_cancel(slow[i].call);
    world_settle(&w);
    assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r), SL_RPC_OK);
    /* A single message beyond the limit cannot be sent at all. */
    struct result big;
    start_stream(w.client, 1, 4 * MIB, SL_RPC_NO_TIMEOUT, &big);
    world_until(&w, &big.done, 1);
    assert_int_equal(big.code, SL_RPC_INVALID_ARGUMENT);
    world_close(&w);
}

/* --- a list of devices that changes while its reader sleeps ---------------------------------- */

enum { DEVICES = 20000 };

struct devices {
    struct sl_rpc_call *call;
    Dp__ListAndWatchResponse list;
    unsigned version, sent_version, sends, ended;
};

static void devices_send(struct sl_rpc_call *call, void *data)
{
    struct devices *d = data;
    if (d->sent_version == d->version)
        return;
    static char health[32];
    (void)snprintf(health, sizeof(health), "v%u", d->version);
    d->list.devices[DEVICES - 1]->health = health;
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_rpc_pb_send(call, &d->list.base, &err);
    if (rc == -EAGAIN)
        return; /* `writable` comes back here, with whatever is newest then */
    assert_int_equal(rc, 0);
    d->sent_version = d->version;
    d->sends++;
}

static void devices_ended(struct sl_rpc_call *call, enum sl_rpc_code code, void *data)
{
    (void)call;
    (void)code;
    ((struct devices *)data)->ended++;
}

static void handle_devices(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    static const struct sl_rpc_call_events events = {.writable = devices_send,
                                                     .ended = devices_ended};
    struct devices *d = data;
    ProtobufCMessage *request;
    if (sl_rpc_pb_request(call, &dp__empty__descriptor, msg, size, &request) < 0)
        return;
    sl_rpc_pb_free(request);
    d->call = call;
    sl_rpc_call_watch(call, &events, d);
    devices_send(call, d);
}

struct watcher {
    unsigned lists, done;
    char last_health[32];
};

static void list_arrives(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)call;
    struct watcher *watcher = data;
    ProtobufCMessage *m;
    assert_int_equal(
        sl_rpc_pb_unpack(&dp__list_and_watch_response__descriptor, msg, size, &m, NULL), 0);
    const Dp__ListAndWatchResponse *list = (const void *)m;
    assert_int_equal(list->n_devices, DEVICES);
    assert_string_equal(list->devices[7]->id, "GPU-00000000-0000-0000-0000-000000000000::7");
    assert_int_equal(list->devices[7]->topology->nodes[0]->id, 1);
    (void)snprintf(watcher->last_health, sizeof(watcher->last_health), "%s",
                   list->devices[DEVICES - 1]->health);
    watcher->lists++;
    sl_rpc_pb_free(m);
}

static void list_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *text, void *data)
{
    (void)call;
    (void)code;
    (void)text;
    ((struct watcher *)data)->done++;
}

static void twenty_thousand_devices_to_a_slow_reader(void **state)
{
    (void)state;
    static char ids[DEVICES][64];
    static Dp__Device devices[DEVICES];
    static Dp__Device *list[DEVICES];
    static Dp__NUMANode node = DP__NUMANODE__INIT;
    static Dp__NUMANode *nodes[] = {&node};
    static Dp__TopologyInfo topology = DP__TOPOLOGY_INFO__INIT;
    static char healthy[] = "Healthy";
    node.id = 1;
    topology.n_nodes = 1;
    topology.nodes = nodes;
    for (int i = 0; i < DEVICES; i++) {
        (void)snprintf(ids[i], sizeof(ids[i]), "GPU-00000000-0000-0000-0000-000000000000::%d", i);
        devices[i] = (Dp__Device)DP__DEVICE__INIT;
        devices[i].id = ids[i];
        devices[i].health = healthy;
        devices[i].topology = &topology;
        list[i] = &devices[i];
    }
    struct devices d = {.list = DP__LIST_AND_WATCH_RESPONSE__INIT, .version = 1};
    d.list.n_devices = DEVICES;
    d.list.devices = list;

    static const struct sl_rpc_call_ops ops = {.message = list_arrives, .done = list_done};
    struct world w;
    struct result r;
    struct watcher watcher = {0};
    struct sl_rpc_call *call;
    Dp__Empty empty = DP__EMPTY__INIT;
    world_open(&w, NULL, NULL, NULL);
    assert_int_equal(sl_rpc_server_handle(w.server, "/v1beta1.DevicePlugin/ListAndWatch",
                                          handle_devices, &d, NULL),
                     0);
    assert_int_equal(sl_rpc_pb_call(w.client, "/v1beta1.DevicePlugin/ListAndWatch", &empty.base,
                                    SL_RPC_NO_TIMEOUT, &ops, &watcher, &call, NULL),
                     0);
    world_until(&w, &watcher.lists, 1);
    assert_string_equal(watcher.last_health, "v1");

    sl_rpc_call_pause(call);
    for (int i = 0; i < 50; i++) { /* fifty changes while it sleeps: over 60 MB if all were kept */
        d.version++;
        devices_send(d.call, &d);
        world_settle(&w);
        assert_true(d.call->queued < 2 * MIB);
        assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r), SL_RPC_OK);
    }
    sl_rpc_call_resume(call);
    world_settle(&w);
    assert_string_equal(watcher.last_health, "v51"); /* the newest, by way of few others */
    assert_true(watcher.lists <= 4);
    assert_int_equal(watcher.lists, d.sends);
    world_close(&w);
    assert_int_equal(d.ended, 1);
    assert_int_equal(watcher.done, 1);
}

/* --- stopping ------------------------------------------------------------------------------ */

static void has_stopped(struct sl_rpc_server *server, void *data)
{
    struct world *w = data;
    assert_ptr_equal(server, w->server);
    sl_rpc_server_destroy(server);
    w->server = NULL;
    w->echo.refused = 1000000; /* seen by world_until */
}

static void a_graceful_stop_lets_calls_finish(void **state)
{
    (void)state;
    struct world w;
    struct result stream, hello, r;
    struct sl_err err = SL_ERR_INIT;
    world_open(&w, NULL, NULL, NULL);
    start_stream(w.client, 200, 100 * KIB, SL_RPC_NO_TIMEOUT, &stream);
    sl_rpc_call_pause(stream.call);
    world_start(w.client, ECHO_HELLO, "hi", 2, SL_RPC_NO_TIMEOUT, &world_stream, &hello);
    world_until(&w, &hello.messages, 1);
    sl_rpc_server_stop(w.server, 60 * SL_NS_PER_S, has_stopped, &w);
    sl_rpc_server_stop(w.server, 0, NULL, NULL); /* the first counts */
    world_until(&w, &hello.done, 1);             /* was asked to end, and did */
    assert_int_equal(hello.code, SL_RPC_UNAVAILABLE);
    assert_string_equal(hello.text, "the server is stopping");
    world_settle(&w);
    assert_false(sl_rpc_client_usable(w.client));
    assert_int_equal(sl_rpc_client_call(w.client, ECHO_UNARY, "x", 1, SL_RPC_NO_TIMEOUT,
                                        &world_unary, &r, NULL, &err),
                     -ESHUTDOWN);
    assert_non_null(w.server);
    sl_rpc_call_resume(stream.call);
    world_until(&w, &stream.done, 1);
    if (stream.code != SL_RPC_OK)
        fail_msg("%s: %s", sl_rpc_code_name(stream.code), stream.text);
    assert_int_equal(stream.messages, 200);
    world_until(&w, &w.echo.refused, 1000000);
    world_until(&w, &w.closed, 1);
    world_close(&w);
}

static void a_call_made_too_late_hears_so(void **state)
{
    (void)state;
    struct world w;
    struct result r[3];
    world_open(&w, NULL, NULL, NULL);
    world_start(w.client, ECHO_HELLO, "hi", 2, SL_RPC_NO_TIMEOUT, &world_stream, &r[0]);
    world_until(&w, &r[0].messages, 1);
    sl_rpc_server_stop(w.server, 60 * SL_NS_PER_S, has_stopped, &w);
    /* The client reads GOAWAY before it comes to send these: they were certainly not processed. */
    world_start(w.client, ECHO_UNARY, "late", 4, SL_RPC_NO_TIMEOUT, &world_unary, &r[1]);
    world_start(w.client, ECHO_UNARY, "late", 4, SL_RPC_NO_TIMEOUT, &world_unary, &r[2]);
    sl_rpc_call_cancel(r[2].call);
    world_until(&w, &r[1].done, 1);
    assert_int_equal(r[1].code, SL_RPC_UNAVAILABLE);
    world_until(&w, &w.echo.refused, 1000000);
    world_until(&w, &w.closed, 1);
    assert_int_equal(r[1].done, 1);
    assert_int_equal(r[2].done, 0);
    assert_int_equal(r[0].done, 1);
    world_close(&w);
}

static void grace_has_an_end(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    world_open(&w, NULL, NULL, world_clock);
    world_start(w.client, ECHO_NEVER, "", 0, SL_RPC_NO_TIMEOUT, &world_unary, &r);
    world_settle(&w);
    sl_rpc_server_stop(w.server, 5 * SL_NS_PER_S, has_stopped, &w);
    world_settle(&w);
    world_now_ns += 5 * SL_NS_PER_S - 1;
    world_settle(&w);
    assert_non_null(w.server);
    assert_int_equal(r.done, 0);
    world_now_ns += 1;
    world_settle(&w);
    assert_null(w.server);
    assert_int_equal(r.code, SL_RPC_UNAVAILABLE);
    assert_int_equal(w.echo.ended[SL_RPC_CANCELLED], 1);
    world_close(&w);
}

static void a_server_without_clients_stops_at_once(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL, NULL, world_clock);
    sl_rpc_client_destroy(w.client);
    w.client = NULL;
    world_settle(&w);
    sl_rpc_server_stop(w.server, 5 * SL_NS_PER_S, has_stopped, &w);
    assert_non_null(w.server); /* not before the loop runs */
    world_settle(&w);
    assert_null(w.server);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_paused_call_holds_up_nobody),
        cmocka_unit_test(a_client_that_does_not_read_costs_one_queue),
        cmocka_unit_test(a_blocked_call_still_has_a_deadline),
        cmocka_unit_test(one_connection_holds_so_much_and_no_more),
        cmocka_unit_test(twenty_thousand_devices_to_a_slow_reader),
        cmocka_unit_test(a_graceful_stop_lets_calls_finish),
        cmocka_unit_test(a_call_made_too_late_hears_so),
        cmocka_unit_test(grace_has_an_end),
        cmocka_unit_test(a_server_without_clients_stops_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
