/* SPDX-License-Identifier: Apache-2.0 */
/* The client: one connection and its calls. */
#include "rpc/errors.h"
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "rpc/unix.h"

#define DEADLINE_TEXT "the deadline has passed"

struct sl_rpc_client {
    struct sl_rpc_client_options options;
    struct rpc_conn *conn; /* NULL once the connection is gone */
    char authority[256];
    bool destroyed;
};

/* --- answers ------------------------------------------------------------------------------- */

static void tell_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *text)
{
    if (call->over)
        return;
    call->over = true;
    call->ops->done(call, code, text, call->data);
}

/* The client ends the call before the server does: the stream reset tells the server to stop. */
static void give_up(struct sl_rpc_call *call, enum sl_rpc_code code, const char *text)
{
    sl_rpc_call_reset(call, NGHTTP2_CANCEL);
    tell_done(call, code, text);
}

static void answer_header(struct sl_rpc_call *call, const uint8_t *name, size_t name_size,
                          const uint8_t *value, size_t value_size)
{
    if (rpc_is(name, name_size, ":status")) {
        call->http_status = 0;
        for (size_t i = 0; i < value_size && i < 3; i++)
            call->http_status = call->http_status * 10 + (unsigned)(value[i] - '0');
    } else if (rpc_is(name, name_size, "content-type")) {
        if (rpc_starts(value, value_size, "application/grpc"))
            call->seen |= RPC_SEEN_GRPC;
    } else if (rpc_is(name, name_size, "grpc-status")) {
        call->status_seen = true;
        call->code = sl_rpc_code_parse(value, value_size);
    } else if (rpc_is(name, name_size, "grpc-message")) {
        sl_rpc_text_decode(value, value_size, call->text, sizeof(call->text));
    }
}

static void answer_headers_done(struct sl_rpc_call *call, bool ends)
{
    (void)ends;
    if (call->discard || (call->http_status >= 100 && call->http_status < 200))
        return;
    char text[96];
    if (call->header_bytes > RPC_HEADER_BYTES) {
        give_up(call, SL_RPC_RESOURCE_EXHAUSTED, "the answer has too many headers");
    } else if (!call->status_seen && (call->http_status != 200 || !(call->seen & RPC_SEEN_GRPC))) {
        (void)snprintf(text, sizeof(text), "the server does not speak gRPC: HTTP status %u",
                       call->http_status);
        give_up(call, sl_rpc_code_from_http(call->http_status), text);
    }
}

static void answer_message(struct sl_rpc_call *call)
{
    call->messages++;
    if (call->ops->unary && call->messages > 1)
        give_up(call, SL_RPC_UNIMPLEMENTED, "the server sent more than one answer");
    else if (call->ops->message)
        call->ops->message(call, call->in.body, call->in.have, call->data);
}

static void answer_broken(struct sl_rpc_call *call, const struct sl_err *err)
{
    bool ours = err->code == -EMSGSIZE || err->code == -ENOMEM || err->code == -ENOBUFS;
    give_up(call, ours ? SL_RPC_RESOURCE_EXHAUSTED : SL_RPC_INTERNAL, err->msg);
}

static void answer_ended(struct sl_rpc_call *call)
{
    if (!call->status_seen)
        tell_done(call, SL_RPC_UNKNOWN, "the answer ended without a status");
    else if (call->code != SL_RPC_OK)
        tell_done(call, call->code, call->text);
    else if (!sl_rpc_reader_idle(&call->in))
        tell_done(call, SL_RPC_INTERNAL, "the answer ended inside a message");
    else if (call->ops->unary && call->messages == 0)
        tell_done(call, SL_RPC_UNIMPLEMENTED, "the server sent no answer");
    else
        tell_done(call, SL_RPC_OK, call->text);
    /* A server may answer before it has read the whole request; then the rest need not be sent. */
    if (!call->conn->dead && (call->out_first || !call->finished))
        sl_rpc_call_reset(call, NGHTTP2_CANCEL);
    call->discard = true;
}

static void answer_expired(struct sl_rpc_call *call)
{
    if (!call->over)
        give_up(call, SL_RPC_DEADLINE_EXCEEDED, DEADLINE_TEXT);
}

static void answer_closed(struct sl_rpc_call *call, bool lost, uint32_t h2_error)
{
    const struct sl_rpc_client *client = call->conn->owner;
    char text[RPC_TEXT];
    if (lost) {
        (void)snprintf(text, sizeof(text), "%s", call->conn->why.msg);
        tell_done(call, client->destroyed ? SL_RPC_CANCELLED : SL_RPC_UNAVAILABLE, text);
        return;
    }
    /* The server keeps the same deadline, and its answer may come before our own timer fires. */
    if (sl_loop_now(call->conn->loop) >= call->deadline_ns) {
        tell_done(call, SL_RPC_DEADLINE_EXCEEDED, DEADLINE_TEXT);
        return;
    }
    (void)snprintf(text, sizeof(text), "the server reset the call: %s",
                   nghttp2_http2_strerror(h2_error));
    tell_done(call, sl_rpc_code_from_h2(h2_error), text);
}

static void conn_lost(struct rpc_conn *conn, const struct sl_err *why)
{
    struct sl_rpc_client *client = conn->owner;
    client->conn = NULL;
    if (client->destroyed)
        free(client);
    else if (client->options.closed)
        client->options.closed(client, why, client->options.data);
}

static const struct rpc_role client_role = {
    .header = answer_header,
    .headers_done = answer_headers_done,
    .message = answer_message,
    .broken = answer_broken,
    .peer_ended = answer_ended,
    .expired = answer_expired,
    .closed = answer_closed,
    .lost = conn_lost,
    .reads_to_the_end = true,
};

/* --- client -------------------------------------------------------------------------------- */

int sl_rpc_client_adopt(struct sl_loop *loop, int fd, const struct sl_rpc_client_options *options,
                        struct sl_rpc_client **ret, struct sl_err *err)
{
    struct sl_rpc_client *client = calloc(1, sizeof(*client));
    if (!client) {
        (void)close(fd);
        return sl_err_set(err, -ENOMEM, "out of memory for a client");
    }
    if (options)
        client->options = *options;
    sl_rpc_limits_fill(&client->options.limits);
    (void)snprintf(client->authority, sizeof(client->authority), "%s",
                   client->options.authority ? client->options.authority : "localhost");
    int rc = sl_rpc_conn_create(loop, fd, false, &client_role, &client->options.limits, client,
                                &client->conn, err);
    if (rc < 0) {
        free(client);
        return rc;
    }
    *ret = client;
    return 0;
}

int sl_rpc_client_connect(struct sl_loop *loop, const char *path,
                          const struct sl_rpc_client_options *options, struct sl_rpc_client **ret,
                          struct sl_err *err)
{
    int fd = sl_rpc_unix_connect(path, err);
    return fd < 0 ? fd : sl_rpc_client_adopt(loop, fd, options, ret, err);
}

void sl_rpc_client_destroy(struct sl_rpc_client *client)
{
    if (!client || client->destroyed)
        return;
    client->destroyed = true;
    if (!client->conn)
        free(client);
    else
        sl_rpc_conn_drop(client->conn, -ECANCELED, "the client was closed");
}

bool sl_rpc_client_usable(const struct sl_rpc_client *client)
{
    return client->conn && !client->conn->dead && !client->conn->going_away && !client->destroyed;
}

/* --- requests ------------------------------------------------------------------------------ */

static int submit_request(struct sl_rpc_client *client, struct sl_rpc_call *call, const char *path,
                          uint64_t timeout_ns)
{
    char timeout[SL_RPC_TIMEOUT_TEXT];
    sl_rpc_timeout_format(timeout_ns, timeout);
    nghttp2_nv nv[] = {
        rpc_nv(":method", "POST"),
        rpc_nv(":scheme", "http"),
        rpc_nv(":path", path),
        rpc_nv(":authority", client->authority),
        rpc_nv("content-type", "application/grpc"),
        rpc_nv("te", "trailers"),
        rpc_nv("user-agent", "sluice/" SLUICE_VERSION),
        rpc_nv("grpc-timeout", timeout),
    };
    size_t count = SL_ARRAY_LEN(nv);
    if (timeout_ns == SL_RPC_NO_TIMEOUT)
        count--;
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = sl_rpc_call_read};
    call->stream_id =
        nghttp2_submit_request(client->conn->session, NULL, nv, count, &provider, call);
    return call->stream_id < 0 ? call->stream_id : 0;
}

int sl_rpc_client_call(struct sl_rpc_client *client, const char *path, const void *msg, size_t size,
                       uint64_t timeout_ns, const struct sl_rpc_call_ops *ops, void *data,
                       struct sl_rpc_call **ret, struct sl_err *err)
{
    if (!sl_rpc_client_usable(client))
        return sl_err_set(err, -ESHUTDOWN, SL_E_RPC_CLOSED);
    if (client->conn->call_count >= client->options.limits.max_streams)
        return sl_err_set(err, -EAGAIN, SL_E_RPC_MANY_CALLS, client->conn->call_count);
    struct sl_rpc_call *call = sl_rpc_call_create(client->conn);
    if (!call)
        return sl_err_set(err, -ENOMEM, "out of memory for a call");
    call->ops = ops;
    call->data = data;
    call->started = call->finished = true; /* one message, then our end of the stream */
    int rc = sl_rpc_call_push(call, msg, size, err);
    if (rc == 0) {
        rc = submit_request(client, call, path, timeout_ns);
        if (rc != 0)
            rc = sl_err_set(err, rc == NGHTTP2_ERR_NOMEM ? -ENOMEM : -ESHUTDOWN,
                            SL_E_RPC_START_CALL, nghttp2_strerror(rc));
    }
    if (rc < 0) {
        sl_rpc_call_free(call);
        return rc;
    }
    sl_rpc_call_set_deadline(call, timeout_ns);
    sl_rpc_conn_schedule(client->conn);
    if (ret)
        *ret = call;
    return 0;
}

void sl_rpc_call_pause(struct sl_rpc_call *call)
{
    call->paused = true;
}

void sl_rpc_call_resume(struct sl_rpc_call *call)
{
    struct rpc_conn *conn = call->conn;
    call->paused = false;
    uint64_t bytes = call->unconsumed;
    call->unconsumed = 0;
    if (conn->dead || !bytes)
        return;
    if (nghttp2_is_fatal(
            nghttp2_session_consume_stream(conn->session, call->stream_id, (size_t)bytes)))
        sl_rpc_conn_fail(conn, -ENOMEM, "out of memory");
    sl_rpc_conn_schedule(conn);
}
