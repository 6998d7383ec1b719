/* SPDX-License-Identifier: Apache-2.0 */
/* The server's end of a call: checks the request, runs the handler, answers. */
#include "rpc/errors.h"
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"

/* --- answers ------------------------------------------------------------------------------- */

struct status_headers {
    char code[4];
    char text[RPC_TEXT * 3 + 1];
    nghttp2_nv nv[4];
    size_t count;
};

static void add_status(struct status_headers *h, const struct sl_rpc_call *call)
{
    (void)snprintf(h->code, sizeof(h->code), "%u", (unsigned)call->code % 100);
    h->nv[h->count++] = rpc_nv("grpc-status", h->code);
    if (call->text[0]) {
        (void)sl_rpc_text_encode(call->text, h->text, sizeof(h->text));
        h->nv[h->count++] = rpc_nv("grpc-message", h->text);
    }
}

int sl_rpc_server_trailers(struct sl_rpc_call *call)
{
    struct status_headers h = {.count = 0};
    add_status(&h, call);
    return nghttp2_submit_trailer(call->conn->session, call->stream_id, h.nv, h.count);
}

/* The first HEADERS. Without a data source they are also the last: "trailers only". */
static int submit_response(struct sl_rpc_call *call, const nghttp2_data_provider *provider)
{
    struct status_headers h = {.count = 0};
    char http[12];
    (void)snprintf(http, sizeof(http), "%u", call->http_status ? call->http_status : 200U);
    h.nv[h.count++] = rpc_nv(":status", http);
    h.nv[h.count++] = rpc_nv("content-type", "application/grpc");
    if (!provider)
        add_status(&h, call);
    int rc = nghttp2_submit_response(call->conn->session, call->stream_id, h.nv, h.count, provider);
    if (rc != 0)
        return -ENOMEM;
    call->started = true;
    return 0;
}

int sl_rpc_call_send(struct sl_rpc_call *call, const void *data, size_t size, struct sl_err *err)
{
    if (call->finished || call->over || call->conn->dead)
        return sl_err_set(err, -EPIPE, SL_E_RPC_CALL_OVER);
    int rc = sl_rpc_call_push(call, data, size, err);
    if (rc < 0)
        return rc;
    if (!call->started) {
        nghttp2_data_provider provider = {.source.ptr = call, .read_callback = sl_rpc_call_read};
        if (submit_response(call, &provider) < 0) {
            sl_rpc_call_drop_queue(call);
            return sl_err_set(err, -ENOMEM, "out of memory for an answer");
        }
    }
    sl_rpc_call_wake(call);
    return 0;
}

void sl_rpc_call_finish(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message)
{
    if (call->finished)
        return;
    call->finished = true;
    call->code = code;
    (void)snprintf(call->text, sizeof(call->text), "%s", message ? message : "");
    if (call->conn->dead)
        return;
    if (call->started)
        sl_rpc_call_wake(call);
    else if (submit_response(call, NULL) < 0)
        sl_rpc_call_reset(call, NGHTTP2_INTERNAL_ERROR);
    else
        sl_rpc_conn_schedule(call->conn);
}

void sl_rpc_call_reply(struct sl_rpc_call *call, const void *data, size_t size)
{
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_rpc_call_send(call, data, size, &err);
    if (rc == 0)
        sl_rpc_call_finish(call, SL_RPC_OK, NULL);
    else
        sl_rpc_call_finish(call,
                           rc == -EMSGSIZE ? SL_RPC_RESOURCE_EXHAUSTED : sl_rpc_code_from_errno(rc),
                           err.msg);
}

void sl_rpc_call_watch(struct sl_rpc_call *call, const struct sl_rpc_call_events *events,
                       void *data)
{
    call->events = events;
    call->data = data;
}

static void tell_ended(struct sl_rpc_call *call, enum sl_rpc_code code)
{
    if (call->over)
        return;
    call->over = true;
    if (call->events && call->events->ended)
        call->events->ended(call, code, call->data);
}

/* --- requests ------------------------------------------------------------------------------ */

/* Answers before the request is complete: the rest of the request is ignored. */
static void reject(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message)
{
    call->discard = true;
    sl_rpc_call_finish(call, code, message);
}

static void once(struct sl_rpc_call *call, unsigned what)
{
    if (call->seen & what)
        call->malformed = true;
    call->seen |= what;
}

static void pseudo_header(struct sl_rpc_call *call, const uint8_t *name, size_t name_size,
                          const uint8_t *value, size_t value_size)
{
    if (call->seen & RPC_SEEN_REGULAR)
        call->malformed = true;
    if (rpc_is(name, name_size, ":method")) {
        once(call, RPC_SEEN_METHOD);
        if (rpc_is(value, value_size, "POST"))
            call->seen |= RPC_SEEN_POST;
    } else if (rpc_is(name, name_size, ":path")) {
        once(call, RPC_SEEN_PATH);
        if (value_size == 0 || value[0] != '/')
            call->malformed = true;
        call->method = sl_rpc_server_find(call->conn, value, value_size);
    } else if (rpc_is(name, name_size, ":scheme")) {
        once(call, RPC_SEEN_SCHEME);
    } else if (rpc_is(name, name_size, ":authority")) {
        once(call, RPC_SEEN_AUTHORITY); /* any value: the socket's name is not used */
    } else {
        call->malformed = true;
    }
}

static bool allowed_name(const uint8_t *name, size_t size)
{
    static const char *const of_http1[] = {"connection", "keep-alive", "proxy-connection",
                                           "transfer-encoding", "upgrade"};
    for (size_t i = 0; i < size; i++)
        if (name[i] >= 'A' && name[i] <= 'Z')
            return false;
    for (size_t i = 0; i < SL_ARRAY_LEN(of_http1); i++)
        if (rpc_is(name, size, of_http1[i]))
            return false;
    return nghttp2_check_header_name(name, size);
}

static void request_header(struct sl_rpc_call *call, const uint8_t *name, size_t name_size,
                           const uint8_t *value, size_t value_size)
{
    if (call->seen & RPC_SEEN_ALL) /* trailers of the request: all are ignored */
        return;
    if (name_size > 0 && name[0] == ':') {
        pseudo_header(call, name, name_size, value, value_size);
        return;
    }
    call->seen |= RPC_SEEN_REGULAR;
    uint64_t timeout_ns;
    if (!allowed_name(name, name_size) || !nghttp2_check_header_value(value, value_size)) {
        call->malformed = true;
    } else if (rpc_is(name, name_size, "content-type")) {
        static const char type[] = "application/grpc";
        char after = value_size > sizeof(type) - 1 ? (char)value[sizeof(type) - 1] : '+';
        if (rpc_starts(value, value_size, type) && (after == '+' || after == ';'))
            call->seen |= RPC_SEEN_GRPC;
    } else if (rpc_is(name, name_size, "grpc-encoding")) {
        if (!rpc_is(value, value_size, "identity"))
            call->seen |= RPC_SEEN_ENCODING;
    } else if (rpc_is(name, name_size, "grpc-timeout")) {
        if (sl_rpc_timeout_parse(value, value_size, &timeout_ns))
            sl_rpc_call_set_deadline(call, timeout_ns);
        else
            call->seen |= RPC_SEEN_BAD_TIMEOUT;
    }
}

static void judge_request(struct sl_rpc_call *call)
{
    struct rpc_conn *conn = call->conn;
    static const unsigned needed = RPC_SEEN_METHOD | RPC_SEEN_SCHEME | RPC_SEEN_PATH;
    if (call->header_bytes > RPC_HEADER_BYTES) {
        reject(call, SL_RPC_RESOURCE_EXHAUSTED, "the request has too many headers");
    } else if (call->malformed || (call->seen & needed) != needed) {
        sl_rpc_call_reset(call, NGHTTP2_PROTOCOL_ERROR);
    } else if (!(call->seen & RPC_SEEN_POST)) {
        call->http_status = 405;
        reject(call, SL_RPC_INTERNAL, "gRPC requests are POST requests");
    } else if (!(call->seen & RPC_SEEN_GRPC)) {
        call->http_status = 415;
        reject(call, SL_RPC_INTERNAL, "the content type is not application/grpc");
    } else if (!call->method) {
        reject(call, SL_RPC_UNIMPLEMENTED, "unknown method");
    } else if (call->seen & RPC_SEEN_ENCODING) {
        reject(call, SL_RPC_UNIMPLEMENTED, "compressed messages are not supported");
    } else if (call->seen & RPC_SEEN_BAD_TIMEOUT) {
        reject(call, SL_RPC_INTERNAL, "grpc-timeout is malformed");
    } else if (conn->held_bytes > conn->limits.max_conn_bytes) {
        reject(call, SL_RPC_RESOURCE_EXHAUSTED, "answers on this connection wait to be read");
    }
}

static void request_headers_done(struct sl_rpc_call *call, bool ends)
{
    if (!(call->seen & RPC_SEEN_ALL)) {
        call->seen |= RPC_SEEN_ALL;
        judge_request(call);
    } else if (!ends && !call->discard) { /* trailers that are not the end */
        sl_rpc_call_reset(call, NGHTTP2_PROTOCOL_ERROR);
    }
}

static void request_message(struct sl_rpc_call *call)
{
    if (call->request || call->messages) {
        reject(call, SL_RPC_UNIMPLEMENTED, "the method takes one message");
        return;
    }
    /* The call takes over the reader's memory; held_bytes stays the same. */
    call->messages = 1;
    call->request = sl_take_ptr(call->in.body);
    call->request_size = call->in.capacity;
    call->in.capacity = 0;
}

static void request_broken(struct sl_rpc_call *call, const struct sl_err *err)
{
    enum sl_rpc_code code = SL_RPC_RESOURCE_EXHAUSTED;
    if (err->code == -EOPNOTSUPP)
        code = SL_RPC_UNIMPLEMENTED;
    else if (err->code == -EPROTO)
        code = SL_RPC_INTERNAL;
    reject(call, code, err->msg);
}

static void request_expired(struct sl_rpc_call *call)
{
    tell_ended(call, SL_RPC_DEADLINE_EXCEEDED);
    /* A clean end is possible only between two messages, and when no message waits for the peer. */
    if (!call->finished && !call->queued && (!call->started || call->deferred))
        reject(call, SL_RPC_DEADLINE_EXCEEDED, "the deadline has passed");
    else
        sl_rpc_call_reset(call, NGHTTP2_CANCEL);
}

static void request_ended(struct sl_rpc_call *call)
{
    if (!sl_rpc_reader_idle(&call->in)) {
        reject(call, SL_RPC_INTERNAL, "the request ended inside a message");
        return;
    }
    if (!call->messages) {
        reject(call, SL_RPC_UNIMPLEMENTED, "the method takes one message");
        return;
    }
    if (call->deadline_ns <= sl_loop_now(call->conn->loop)) {
        request_expired(call);
        return;
    }
    uint8_t *request = sl_take_ptr(call->request);
    size_t size = call->request_size;
    call->request_size = 0;
    call->conn->held_bytes -= size;
    call->method->handler(call, request, size, call->method->data);
    free(request);
}

static void request_closed(struct sl_rpc_call *call, bool lost, uint32_t h2_error)
{
    bool orderly = !lost && h2_error == NGHTTP2_NO_ERROR && call->finished;
    tell_ended(call, orderly ? call->code : SL_RPC_CANCELLED);
}

static void answer_sent(struct sl_rpc_call *call)
{
    if (call->peer_ended)
        return;
    /* Answered before the request was complete: the client may stop sending it. */
    call->discard = true;
    (void)nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                    NGHTTP2_NO_ERROR);
}

const struct rpc_role sl_rpc_server_role = {
    .header = request_header,
    .headers_done = request_headers_done,
    .message = request_message,
    .broken = request_broken,
    .peer_ended = request_ended,
    .expired = request_expired,
    .closed = request_closed,
    .sent_end = answer_sent,
    .ping_acked = sl_rpc_server_goaway,
    .lost = sl_rpc_server_lost,
};
