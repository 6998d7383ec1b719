/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"

uint64_t world_now_ns = 1000;

uint64_t world_clock(void)
{
    return world_now_ns;
}

static void closed(struct sl_rpc_client *client, const struct sl_err *why, void *data)
{
    (void)client;
    struct world *w = data;
    w->closed++;
    w->why = *why;
}

int world_raw(struct world *w)
{
    int pair[2];
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(sl_rpc_server_adopt(w->server, pair[0], &err), 0);
    return pair[1];
}

struct sl_rpc_client *world_client(struct world *w, const struct sl_rpc_limits *limits,
                                   const char *authority)
{
    struct sl_rpc_client *client = NULL;
    struct sl_err err = SL_ERR_INIT;
    struct sl_rpc_client_options options = {.authority = authority, .closed = closed, .data = w};
    if (limits)
        options.limits = *limits;
    assert_int_equal(sl_rpc_client_adopt(w->loop, world_raw(w), &options, &client, &err), 0);
    return client;
}

void world_open(struct world *w, const struct sl_rpc_limits *server,
                const struct sl_rpc_limits *client, uint64_t (*now_ns)(void))
{
    struct sl_err err = SL_ERR_INIT;
    memset(w, 0, sizeof(*w));
    assert_int_equal(sl_loop_create(now_ns, &w->loop, &err), 0);
    assert_int_equal(sl_rpc_server_create(w->loop, server, &w->server, &err), 0);
    assert_int_equal(echo_install(w->server, &w->echo, &err), 0);
    w->client = world_client(w, client, NULL);
}

void world_close(struct world *w)
{
    sl_rpc_client_destroy(w->client);
    sl_rpc_server_destroy(w->server);
    sl_loop_destroy(w->loop);
    assert_int_equal(w->echo.open, 0); /* every watched call has ended */
}

void world_step(struct world *w, int timeout_ms)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_loop_step(w->loop, timeout_ms, &err), 0);
}

void world_settle(struct world *w)
{
    struct pollfd p = {.fd = sl_loop_fd(w->loop), .events = POLLIN};
    do
        world_step(w, 0);
    while (poll(&p, 1, 0) == 1);
}

void world_until(struct world *w, const unsigned *flag, unsigned n)
{
    uint64_t end = sl_now_ns() + 10 * SL_NS_PER_S;
    unsigned seen = *flag;
    while (*flag < n) {
        world_step(w, 1000);
        if (*flag != seen)
            end = sl_now_ns() + 10 * SL_NS_PER_S;
        seen = *flag;
        if (sl_now_ns() > end)
            fail_msg("nothing happened for ten seconds: at %u of %u", *flag, n);
    }
}

static void on_message(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)call;
    struct result *r = data;
    r->messages++;
    r->bytes += size;
    r->last_size = size;
    (void)snprintf(r->last, sizeof(r->last), "%.*s", size < 60 ? (int)size : 60,
                   size ? (const char *)msg : "");
}

static void on_numbered(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct result *r = data;
    if (size >= 4)
        assert_int_equal((uint32_t)msg[0] << 24 | (uint32_t)msg[1] << 16 | (uint32_t)msg[2] << 8 |
                             msg[3],
                         r->next_number);
    r->next_number++;
    on_message(call, msg, size, data);
}

static void on_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message,
                    void *data)
{
    struct result *r = data;
    assert_ptr_equal(call, r->call);
    r->done++;
    r->code = code;
    (void)snprintf(r->text, sizeof(r->text), "%s", message);
}

const struct sl_rpc_call_ops world_unary = {.message = on_message, .done = on_done, .unary = true};
const struct sl_rpc_call_ops world_stream = {.message = on_numbered, .done = on_done};

void world_start(struct sl_rpc_client *client, const char *path, const void *msg, size_t size,
                 uint64_t timeout_ns, const struct sl_rpc_call_ops *ops, struct result *r)
{
    struct sl_err err = SL_ERR_INIT;
    memset(r, 0, sizeof(*r));
    if (sl_rpc_client_call(client, path, msg, size, timeout_ns, ops, r, &r->call, &err) < 0)
        fail_msg("%s: %s", path, err.msg);
}

enum sl_rpc_code world_call(struct world *w, const char *path, const void *msg, size_t size,
                            struct result *r)
{
    world_start(w->client, path, msg, size, SL_RPC_NO_TIMEOUT, &world_unary, r);
    world_until(w, &r->done, 1);
    assert_int_equal(r->done, 1);
    return r->code;
}

void world_stream_request(uint8_t request[8], uint32_t count, uint32_t size)
{
    for (int i = 0; i < 4; i++) {
        request[i] = (uint8_t)(count >> (24 - 8 * i));
        request[4 + i] = (uint8_t)(size >> (24 - 8 * i));
    }
}
