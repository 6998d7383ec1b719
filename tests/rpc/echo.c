/* SPDX-License-Identifier: Apache-2.0 */
#include "echo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "rpc/rpc_internal.h"

struct stream {
    struct echo *echo;
    uint32_t left, size, number;
    uint8_t *message;
};

static void stream_ended(struct sl_rpc_call *call, enum sl_rpc_code code, void *data)
{
    (void)call;
    struct stream *s = data;
    s->echo->ended[code]++;
    s->echo->open--;
    free(s->message);
    free(s);
}

static void stream_pump(struct sl_rpc_call *call, void *data)
{
    struct stream *s = data;
    while (s->left > 0) {
        if (s->size >= 4) { /* so that a reader can see that none is missing */
            uint8_t number[] = {(uint8_t)(s->number >> 24), (uint8_t)(s->number >> 16),
                                (uint8_t)(s->number >> 8), (uint8_t)s->number};
            memcpy(s->message, number, 4);
        }
        struct sl_err err = SL_ERR_INIT;
        int rc = sl_rpc_call_send(call, s->message, s->size, &err);
        if (rc == -EAGAIN) {
            s->echo->refused++;
            return;
        }
        if (rc < 0) {
            sl_rpc_call_finish(call, sl_rpc_code_from_errno(rc), err.msg);
            return;
        }
        if (call->queued > s->echo->most_queued)
            s->echo->most_queued = call->queued;
        s->number++;
        s->left--;
    }
    sl_rpc_call_finish(call, SL_RPC_OK, NULL);
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void handle_stream(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    static const struct sl_rpc_call_events events = {.writable = stream_pump,
                                                     .ended = stream_ended};
    if (size != 8 || be32(msg + 4) > 64 * 1024 * 1024) {
        sl_rpc_call_finish(call, SL_RPC_INVALID_ARGUMENT, "count and size, please");
        return;
    }
    struct stream *s = calloc(1, sizeof(*s));
    uint8_t *message = calloc(1, be32(msg + 4) + 1);
    if (!s || !message) {
        free(s);
        free(message);
        sl_rpc_call_finish(call, SL_RPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    *s =
        (struct stream){.echo = data, .left = be32(msg), .size = be32(msg + 4), .message = message};
    s->echo->open++;
    sl_rpc_call_watch(call, &events, s);
    stream_pump(call, s);
}

static void silent_ended(struct sl_rpc_call *call, enum sl_rpc_code code, void *data)
{
    (void)call;
    struct echo *echo = data;
    echo->ended[code]++;
    echo->open--;
}

static void silent_drains(struct sl_rpc_call *call, void *data)
{
    (void)data;
    sl_rpc_call_finish(call, SL_RPC_UNAVAILABLE, "the server is stopping");
}

static void handle_never(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    static const struct sl_rpc_call_events events = {.ended = silent_ended};
    (void)msg;
    (void)size;
    ((struct echo *)data)->open++;
    sl_rpc_call_watch(call, &events, data);
}

static void handle_hello(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    static const struct sl_rpc_call_events events = {.ended = silent_ended,
                                                     .draining = silent_drains};
    ((struct echo *)data)->open++;
    sl_rpc_call_watch(call, &events, data);
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_rpc_call_send(call, msg, size, &err);
    if (rc < 0)
        sl_rpc_call_finish(call, sl_rpc_code_from_errno(rc), err.msg);
}

static void handle_unary(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)data;
    sl_rpc_call_reply(call, msg, size);
}

static void handle_fail(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)data;
    char text[600];
    (void)snprintf(text, sizeof(text), "%.*s", size > 1 ? (int)size - 1 : 0, (const char *)msg + 1);
    sl_rpc_call_finish(call, (enum sl_rpc_code)(size ? msg[0] : SL_RPC_INVALID_ARGUMENT), text);
}

static void handle_none(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg;
    (void)size;
    (void)data;
    sl_rpc_call_finish(call, SL_RPC_OK, NULL);
}

static void handle_state(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg;
    (void)size;
    const struct echo *e = data;
    char text[128];
    int n = snprintf(text, sizeof(text), "cancelled %u deadline %u open %u most %zu",
                     e->ended[SL_RPC_CANCELLED], e->ended[SL_RPC_DEADLINE_EXCEEDED], e->open,
                     e->most_queued);
    sl_rpc_call_reply(call, text, (size_t)n);
}

int echo_install(struct sl_rpc_server *server, struct echo *echo, struct sl_err *err)
{
    static const struct {
        const char *path;
        sl_rpc_handler *handler;
    } methods[] = {
        {ECHO_UNARY, handle_unary}, {ECHO_STREAM, handle_stream}, {ECHO_NEVER, handle_never},
        {ECHO_HELLO, handle_hello}, {ECHO_FAIL, handle_fail},     {ECHO_NONE, handle_none},
        {ECHO_STATE, handle_state},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(methods); i++) {
        int rc = sl_rpc_server_handle(server, methods[i].path, methods[i].handler, echo, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
