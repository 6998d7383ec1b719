/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: messages in, messages out, deadlines. */
#include "rpc/errors.h"
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/container.h"

static void deadline_fires(struct sl_timer *timer)
{
    struct sl_rpc_call *call = sl_container_of(timer, struct sl_rpc_call, deadline);
    struct rpc_conn *conn = call->conn;
    conn->depth++;
    conn->role->expired(call);
    sl_rpc_conn_leave(conn);
}

struct sl_rpc_call *sl_rpc_call_create(struct rpc_conn *conn)
{
    struct sl_rpc_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->conn = conn;
    call->deadline.fire = deadline_fires;
    call->deadline_ns = SL_RPC_NO_TIMEOUT;
    call->in.max_bytes = conn->limits.max_message_bytes;
    call->next = conn->calls;
    if (call->next)
        call->next->prev = call;
    conn->calls = call;
    conn->call_count++;
    return call;
}

void sl_rpc_call_drop_queue(struct sl_rpc_call *call)
{
    while (call->out_first) {
        struct rpc_out *out = call->out_first;
        call->out_first = out->next;
        free(out);
    }
    call->out_last = NULL;
    call->conn->held_bytes -= call->queued;
    call->queued = 0;
}

void sl_rpc_call_free(struct sl_rpc_call *call)
{
    struct rpc_conn *conn = call->conn;
    sl_timer_stop(conn->loop, &call->deadline);
    sl_rpc_call_drop_queue(call);
    conn->held_bytes -= call->in.capacity + call->request_size;
    free(call->in.body);
    free(call->request);
    *(call->prev ? &call->prev->next : &conn->calls) = call->next;
    if (call->next)
        call->next->prev = call->prev;
    conn->call_count--;
    free(call);
}

void sl_rpc_call_set_deadline(struct sl_rpc_call *call, uint64_t timeout_ns)
{
    uint64_t at;
    if (timeout_ns == SL_RPC_NO_TIMEOUT ||
        __builtin_add_overflow(sl_loop_now(call->conn->loop), timeout_ns, &at))
        return;
    call->deadline_ns = at;
    sl_timer_set(call->conn->loop, &call->deadline, at);
}

static void forget_message(struct sl_rpc_call *call)
{
    call->conn->held_bytes -= call->in.capacity;
    sl_rpc_reader_next(&call->in);
}

/* Bytes of a DATA frame. */
void sl_rpc_call_receive(struct sl_rpc_call *call, const uint8_t *data, size_t size)
{
    struct rpc_conn *conn = call->conn;
    struct sl_err err = SL_ERR_INIT;
    while (!call->discard && !conn->dead) {
        size_t before = call->in.capacity;
        int rc = sl_rpc_reader_feed(&call->in, &data, &size, &err);
        conn->held_bytes += call->in.capacity - before;
        if (rc > 0) {
            conn->role->message(call);
            forget_message(call);
            continue;
        }
        if (rc == 0 && conn->held_bytes > conn->limits.max_conn_bytes)
            rc = sl_err_set(&err, -ENOBUFS, SL_E_RPC_FULL);
        if (rc == 0)
            return;
        call->discard = true;
        forget_message(call);
        conn->role->broken(call, &err);
    }
}

/* Tells the peer that the stream is over. Its close event follows when the frame is out. */
void sl_rpc_call_reset(struct sl_rpc_call *call, uint32_t h2_error)
{
    struct rpc_conn *conn = call->conn;
    sl_rpc_call_drop_queue(call);
    call->finished = call->discard = true;
    int rc = nghttp2_submit_rst_stream(conn->session, NGHTTP2_FLAG_NONE, call->stream_id, h2_error);
    if (rc != 0)
        sl_rpc_conn_fail(conn, -ENOMEM, nghttp2_strerror(rc));
    else
        sl_rpc_conn_schedule(conn);
}

/* The call has new messages, or its end, to send: resume its stream in nghttp2. */
void sl_rpc_call_wake(struct sl_rpc_call *call)
{
    struct rpc_conn *conn = call->conn;
    if (call->deferred) {
        call->deferred = false;
        int rc = nghttp2_session_resume_data(conn->session, call->stream_id);
        if (rc != 0 && nghttp2_is_fatal(rc))
            sl_rpc_conn_fail(conn, -ENOMEM, nghttp2_strerror(rc));
    }
    sl_rpc_conn_schedule(conn);
}

int sl_rpc_call_push(struct sl_rpc_call *call, const void *data, size_t size, struct sl_err *err)
{
    struct rpc_conn *conn = call->conn;
    if (size > conn->limits.max_conn_bytes || size > UINT32_MAX)
        return sl_err_set(err, -EMSGSIZE, SL_E_RPC_SEND_LARGE, size, conn->limits.max_conn_bytes);
    if (call->queued > 0 && call->queued + size > conn->limits.max_queue_bytes) {
        call->blocked = true;
        return sl_err_set(err, -EAGAIN, SL_E_RPC_UNREAD, call->queued);
    }
    struct rpc_out *out = malloc(sizeof(*out) + SL_RPC_PREFIX + size);
    if (!out)
        return sl_err_set(err, -ENOMEM, "out of memory for a message of %zu bytes", size);
    out->next = NULL;
    out->size = SL_RPC_PREFIX + size;
    out->at = 0;
    sl_rpc_prefix_write(out->data, (uint32_t)size);
    if (size > 0)
        memcpy(out->data + SL_RPC_PREFIX, data, size);
    *(call->out_last ? &call->out_last->next : &call->out_first) = out;
    call->out_last = out;
    call->queued += out->size;
    conn->held_bytes += out->size;
    return 0;
}

static size_t take(struct sl_rpc_call *call, uint8_t *buf, size_t length)
{
    size_t used = 0;
    while (used < length && call->out_first) {
        struct rpc_out *out = call->out_first;
        size_t n = out->size - out->at < length - used ? out->size - out->at : length - used;
        memcpy(buf + used, out->data + out->at, n);
        out->at += n;
        used += n;
        if (out->at == out->size) {
            call->out_first = out->next;
            if (!call->out_first)
                call->out_last = NULL;
            free(out);
        }
    }
    call->queued -= used;
    call->conn->held_bytes -= used;
    return used;
}

ssize_t sl_rpc_call_read(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
                         uint32_t *flags, nghttp2_data_source *source, void *user_data)
{
    (void)session;
    (void)stream_id;
    struct rpc_conn *conn = user_data;
    struct sl_rpc_call *call = source->ptr;
    size_t used = take(call, buf, length);
    /* A half-empty queue: soon enough to keep the peer busy, late enough to be worth a callback. */
    if (call->blocked && call->queued <= conn->limits.max_queue_bytes / 2) {
        call->blocked = false;
        call->notify = conn->notify = true;
    }
    if (call->out_first)
        return (ssize_t)used;
    if (call->finished) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (!call->ops) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (sl_rpc_server_trailers(call) != 0)
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
        return (ssize_t)used;
    }
    if (used == 0) {
        call->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)used;
}

void sl_rpc_call_cancel(struct sl_rpc_call *call)
{
    call->over = true;
    sl_timer_stop(call->conn->loop, &call->deadline);
    if (!call->conn->dead)
        sl_rpc_call_reset(call, NGHTTP2_CANCEL);
}

uint64_t sl_rpc_call_deadline(const struct sl_rpc_call *call)
{
    return call->deadline_ns;
}
