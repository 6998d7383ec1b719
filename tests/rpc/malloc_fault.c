/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation between our client and our server in which the n-th allocation fails, for every n,
 * once alone and once with all that follow. Whatever happens, every call that was started ends
 * exactly once, nothing crashes, and in the end no allocation is left.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "deviceplugin.pb-c.h"
#include "echo.h"
#include "rpc/client.h"
#include "rpc/pb.h"
#include "support/nth_malloc.h"

#define CHECK NTH_CHECK

static uint64_t now_ns = 1;
static uint64_t clock_now(void)
{
    return now_ns;
}

static unsigned started, ended, good;

static void on_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message,
                    void *data)
{
    (void)call;
    (void)message;
    CHECK(++*(unsigned *)data == 1);
    ended++;
    good += code == SL_RPC_OK;
}

static void on_message(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)call;
    (void)data;
    ProtobufCMessage *m = NULL;
    if (sl_rpc_pb_unpack(&dp__list_and_watch_response__descriptor, msg, size, &m, NULL) == 0)
        sl_rpc_pb_free(m);
}

static void settle(struct sl_loop *loop)
{
    struct pollfd p = {.fd = sl_loop_fd(loop), .events = POLLIN};
    int steps = 0;
    do {
        CHECK(sl_loop_step(loop, 0, NULL) == 0);
        CHECK(++steps < 10000); /* a busy loop is a failure too */
    } while (poll(&p, 1, 0) == 1);
}

static void stopped(struct sl_rpc_server *server, void *data)
{
    (void)server;
    *(bool *)data = true;
}

static void start_calls(struct sl_rpc_client *client, unsigned done[8])
{
    static const struct sl_rpc_call_ops unary = {
        .message = on_message, .done = on_done, .unary = true};
    static const struct sl_rpc_call_ops stream = {.message = on_message, .done = on_done};
    static const uint8_t big[300000], shape[8] = {0, 0, 0, 20, 0, 2, 0, 0}; /* 20 of 128 KiB */
    static const struct {
        const char *path;
        const void *msg;
        size_t size;
        uint64_t timeout_ns;
        const struct sl_rpc_call_ops *ops;
    } calls[] = {
        {ECHO_UNARY, "x", 1, SL_RPC_NO_TIMEOUT, &unary},
        {ECHO_UNARY, big, sizeof(big), 60 * SL_NS_PER_S, &unary},
        {ECHO_STREAM, shape, 8, SL_RPC_NO_TIMEOUT, &stream},
        {ECHO_NEVER, "", 0, SL_NS_PER_S, &unary},
        {ECHO_FAIL, "\5nothing found", 14, SL_RPC_NO_TIMEOUT, &unary},
        {ECHO_HELLO, "hi", 2, SL_RPC_NO_TIMEOUT, &stream},
        {"/no/Such", "", 0, SL_RPC_NO_TIMEOUT, &unary},
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (sl_rpc_client_call(client, calls[i].path, calls[i].msg, calls[i].size,
                               calls[i].timeout_ns, calls[i].ops, &done[i], NULL, NULL) == 0)
            started++;
    Dp__Empty empty = DP__EMPTY__INIT;
    struct sl_rpc_call *call;
    if (sl_rpc_pb_call(client, ECHO_NEVER, &empty.base, SL_RPC_NO_TIMEOUT, &stream, &done[7], &call,
                       NULL) == 0)
        sl_rpc_call_cancel(call);
}

static void converse(void)
{
    struct sl_loop *loop = NULL;
    struct sl_rpc_server *server = NULL;
    struct sl_rpc_client *client = NULL;
    struct echo echo = {0};
    unsigned done[8] = {0};
    bool has_stopped = false;
    int pair[2];
    started = ended = good = 0;
    if (sl_loop_create(clock_now, &loop, NULL) < 0)
        return;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    if (sl_rpc_server_create(loop, NULL, &server, NULL) < 0 ||
        echo_install(server, &echo, NULL) < 0) {
        (void)close(pair[0]);
        (void)close(pair[1]);
    } else {
        /* Either may fail; the other then meets a closed socket. */
        int rc = sl_rpc_server_adopt(server, pair[0], NULL);
        rc = sl_rpc_client_adopt(loop, pair[1], NULL, &client, NULL);
        (void)rc;
    }
    if (client) {
        start_calls(client, done);
        settle(loop);
        now_ns += 2 * SL_NS_PER_S;
        settle(loop);
    }
    if (server) {
        sl_rpc_server_stop(server, SL_NS_PER_S, stopped, &has_stopped);
        settle(loop);
        now_ns += 2 * SL_NS_PER_S;
        settle(loop);
        CHECK(has_stopped);
    }
    CHECK(ended == started); /* with the server gone nothing is left to wait for */
    sl_rpc_client_destroy(client);
    sl_rpc_server_destroy(server);
    sl_loop_destroy(loop);
    CHECK(echo.open == 0);
}

int main(void)
{
    converse(); /* once in good health */
    CHECK(started == 7 && ended == 7 && good == 3);
    long before = nth_malloc.live;
    unsigned long runs = 0, hurt = 0;
    for (int mode = 0; mode < 2; mode++) {
        nth_malloc.persistent = mode == 1;
        for (unsigned long n = 1;; n++) {
            (void)nth_malloc_set(n);
            converse();
            nth_malloc.fail_at =
                0; /* the rest of the program, and its exit handlers, are not on trial */
            CHECK(nth_malloc.live == before);
            runs++;
            hurt += ended != 7 || good != 3;
            if (!nth_malloc.failures)
                break;
        }
    }
    printf("%lu conversations, %lu of them hurt, nothing lost\n", runs, hurt);
    return 0;
}
