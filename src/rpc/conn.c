/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: bytes between a socket and nghttp2, nghttp2's events to the calls. */
#include "rpc/errors.h"
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/container.h"

enum {
    READ_BYTES = 64 * 1024,
    WRITE_BUDGET = 256 * 1024,  /* bytes in one turn, so that other connections get theirs */
    MAX_FRAMES_WAITING = 16384, /* beyond it, drop a peer that never reads our answers */
    MAX_LAST_READS = 256,
};

/* nghttp2 uses our malloc: a test that makes malloc fail reaches nghttp2 too. */
static void *mem_malloc(size_t size, void *data)
{
    (void)data;
    return malloc(size);
}

static void mem_free(void *ptr, void *data)
{
    (void)data;
    free(ptr);
}

static void *mem_calloc(size_t count, size_t size, void *data)
{
    (void)data;
    return calloc(count, size);
}

static void *mem_realloc(void *ptr, size_t size, void *data)
{
    (void)data;
    return realloc(ptr, size);
}

void sl_rpc_limits_fill(struct sl_rpc_limits *limits)
{
    static const size_t mib = 1UL << 20;
    if (!limits->max_message_bytes)
        limits->max_message_bytes = 4 * mib;
    if (!limits->max_queue_bytes)
        limits->max_queue_bytes = mib;
    if (!limits->max_conn_bytes)
        limits->max_conn_bytes = 64 * mib;
    if (!limits->max_streams)
        limits->max_streams = 1024;
    if (!limits->max_conns)
        limits->max_conns = 64;
}

/* --- nghttp2's events ---------------------------------------------------------------------- */

static struct sl_rpc_call *call_of(struct rpc_conn *conn, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(conn->session, stream_id);
}

/* After a callback of the owner: if the owner dropped the connection, nghttp2 must stop too. */
static int go_on(const struct rpc_conn *conn)
{
    return conn->dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct rpc_conn *conn = user_data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct sl_rpc_call *call = sl_rpc_call_create(conn);
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    call->stream_id = frame->hd.stream_id;
    (void)nghttp2_session_set_stream_user_data(session, call->stream_id, call);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user_data)
{
    (void)session;
    (void)flags;
    struct rpc_conn *conn = user_data;
    struct sl_rpc_call *call = call_of(conn, frame->hd.stream_id);
    if (!call || call->discard)
        return 0;
    call->header_bytes += name_size + value_size + 32;
    if (call->header_bytes <= RPC_HEADER_BYTES) /* a longer block is judged when it is complete */
        conn->role->header(call, name, name_size, value, value_size);
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    (void)session;
    struct rpc_conn *conn = user_data;
    bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        conn->going_away = true;
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) &&
        conn->role->ping_acked)
        conn->role->ping_acked(conn);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return go_on(conn);
    struct sl_rpc_call *call = call_of(conn, frame->hd.stream_id);
    if (!call)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS)
        conn->role->headers_done(call, ends);
    if (ends && !conn->dead && !call->peer_ended) {
        call->peer_ended = true;
        if (!call->discard)
            conn->role->peer_ended(call);
    }
    return go_on(conn);
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t size, void *user_data)
{
    (void)flags;
    struct rpc_conn *conn = user_data;
    /* Give the connection's window back at once: a slow call must not hold up another call. */
    if (nghttp2_is_fatal(nghttp2_session_consume_connection(session, size)))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    struct sl_rpc_call *call = call_of(conn, stream_id);
    if (call && !call->discard)
        sl_rpc_call_receive(call, data, size);
    if (conn->dead)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (call && call->paused && !call->discard) {
        call->unconsumed += size;
        return 0;
    }
    return nghttp2_is_fatal(nghttp2_session_consume_stream(session, stream_id, size))
               ? NGHTTP2_ERR_CALLBACK_FAILURE
               : 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data)
{
    (void)session;
    struct rpc_conn *conn = user_data;
    struct sl_rpc_call *call = call_of(conn, stream_id);
    if (!call)
        return 0;
    (void)nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    conn->role->closed(call, false, error_code);
    sl_rpc_call_free(call);
    /* Not go_on(): when this callback fails, nghttp2 forgets the frame that it was about to send. The next callback
     * notices a dead connection. */
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    (void)session;
    struct rpc_conn *conn = user_data;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    struct sl_rpc_call *call = call_of(conn, frame->hd.stream_id);
    if (call && conn->role->sent_end)
        conn->role->sent_end(call);
    return go_on(conn);
}

static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int code,
                             void *user_data)
{
    (void)session;
    (void)code;
    struct rpc_conn *conn = user_data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    for (struct sl_rpc_call *call = conn->calls; call; call = call->next)
        if (call->stream_id == frame->hd.stream_id)
            call->unsent = conn->sweep = true;
    return 0;
}

/* --- life ---------------------------------------------------------------------------------- */

static int make_session(struct rpc_conn *conn, bool server)
{
    static const nghttp2_mem mem_template = {
        .malloc = mem_malloc, .free = mem_free, .calloc = mem_calloc, .realloc = mem_realloc};
    nghttp2_mem mem = mem_template;
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;
    int rc = nghttp2_session_callbacks_new(&cb);
    if (rc == 0)
        rc = nghttp2_option_new(&option);
    if (rc != 0)
        goto out;
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_frame_not_send);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    /* Old kubelets send the socket's path as :authority. nghttp2's own check of requests refuses that; server.c checks
     * the headers that matter. */
    if (server)
        nghttp2_option_set_no_http_messaging(option, 1);
    rc = server ? nghttp2_session_server_new3(&conn->session, cb, conn, option, &mem)
                : nghttp2_session_client_new3(&conn->session, cb, conn, option, &mem);
out:
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    return rc;
}

static int greet(struct rpc_conn *conn, bool server)
{
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, RPC_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, RPC_HEADER_BYTES},
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, conn->limits.max_streams},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
    };
    int rc = nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, settings, server ? 3 : 4);
    if (rc == 0)
        rc = nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0,
                                                   RPC_CONN_WINDOW);
    return rc;
}

static void conn_ready(struct sl_source *source, uint32_t events);

int sl_rpc_conn_create(struct sl_loop *loop, int fd, bool server, const struct rpc_role *role,
                       const struct sl_rpc_limits *limits, void *owner, struct rpc_conn **ret,
                       struct sl_err *err)
{
    struct rpc_conn *conn = calloc(1, sizeof(*conn));
    if (!conn) {
        (void)close(fd);
        return sl_err_set(err, -ENOMEM, "out of memory for a connection");
    }
    conn->source = (struct sl_source){.fd = fd, .ready = conn_ready};
    conn->loop = loop;
    conn->role = role;
    conn->limits = *limits;
    conn->owner = owner;
    int rc = make_session(conn, server);
    if (rc == 0)
        rc = greet(conn, server);
    if (rc != 0)
        rc = sl_err_set(err, -ENOMEM, SL_E_RPC_START, nghttp2_strerror(rc));
    if (rc == 0)
        rc = sl_loop_watch(loop, &conn->source, EPOLLIN | EPOLLOUT, err);
    if (rc < 0) {
        nghttp2_session_del(conn->session);
        (void)close(fd);
        free(conn);
        return rc;
    }
    *ret = conn;
    return 0;
}

static void release(struct rpc_conn *conn)
{
    conn->depth++; /* callbacks below must not get here again */
    conn->dead = true;
    sl_loop_unwatch(conn->loop, &conn->source);
    (void)close(conn->source.fd);
    while (conn->calls) {
        struct sl_rpc_call *call = conn->calls;
        conn->role->closed(call, true, 0);
        sl_rpc_call_free(call);
    }
    nghttp2_session_del(conn->session);
    conn->role->lost(conn, &conn->why);
    free(conn);
}

void sl_rpc_conn_leave(struct rpc_conn *conn)
{
    if (--conn->depth > 0)
        return;
    if (conn->dead)
        release(conn);
    else if (conn->unwritten)
        sl_rpc_conn_schedule(conn);
}

void sl_rpc_conn_fail(struct rpc_conn *conn, int code, const char *why)
{
    if (conn->dead)
        return;
    conn->dead = true;
    (void)sl_err_set(&conn->why, code, "%s", why);
    /* Makes the descriptor ready for any event, so that the loop releases the connection. */
    (void)shutdown(conn->source.fd, SHUT_RDWR);
}

void sl_rpc_conn_drop(struct rpc_conn *conn, int code, const char *why)
{
    conn->depth++;
    sl_rpc_conn_fail(conn, code, why);
    sl_rpc_conn_leave(conn);
}

void sl_rpc_conn_schedule(struct rpc_conn *conn)
{
    conn->unwritten = true;
    if (conn->dead || conn->depth > 0) /* sl_rpc_conn_leave releases it later */
        return;
    if (sl_loop_watch(conn->loop, &conn->source, EPOLLIN | EPOLLOUT, NULL) < 0)
        sl_rpc_conn_fail(conn, -ENOMEM, "cannot watch the connection");
}

/* --- bytes --------------------------------------------------------------------------------- */

/* Returns whether bytes came. */
static bool read_some(struct rpc_conn *conn)
{
    static _Thread_local uint8_t buf[READ_BYTES];
    ssize_t n = recv(conn->source.fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n == 0) {
        sl_rpc_conn_fail(conn, -EPIPE, "the peer closed the connection");
        return false;
    }
    if (n < 0) {
        sl_rpc_conn_fail(conn, -errno, "the connection was lost");
        return false;
    }
    ssize_t used = nghttp2_session_mem_recv(conn->session, buf, (size_t)n);
    if (used < 0)
        sl_rpc_conn_fail(conn, used == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO,
                         nghttp2_strerror((int)used));
    return !conn->dead;
}

/* The peer reads nothing any more. Bytes that it wrote before are still worth reading: a server that stops in order
 * answers, then closes, and never sees our last window updates. */
static void write_failed(struct rpc_conn *conn, int errno_value)
{
    if (conn->role->reads_to_the_end)
        for (int i = 0; i < MAX_LAST_READS && read_some(conn); i++)
            ;
    sl_rpc_conn_fail(conn, -errno_value, "the connection was lost");
}

/* Moves frames into out until out is full or there are no more frames. */
static int gather(struct rpc_conn *conn)
{
    conn->out_at = conn->out_size = 0;
    for (;;) {
        if (conn->more_size == 0) {
            ssize_t n = nghttp2_session_mem_send(conn->session, &conn->more);
            if (n < 0)
                return (int)n;
            if (n == 0)
                return 0;
            conn->more_size = (size_t)n;
        }
        size_t room = sizeof(conn->out) - conn->out_size;
        size_t n = conn->more_size < room ? conn->more_size : room;
        memcpy(conn->out + conn->out_size, conn->more, n);
        conn->out_size += n;
        conn->more += n;
        conn->more_size -= n;
        if (conn->more_size > 0)
            return 0;
    }
}

/* Returns true when the socket takes no more or the turn is over. */
static bool write_out(struct rpc_conn *conn)
{
    for (size_t budget = WRITE_BUDGET; budget > 0 && !conn->dead;) {
        if (conn->out_at == conn->out_size) {
            int rc = gather(conn);
            if (rc != 0 && !conn->dead)
                sl_rpc_conn_fail(conn, rc == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO,
                                 nghttp2_strerror(rc));
            if (conn->out_size == 0)
                return false;
            continue;
        }
        ssize_t n = send(conn->source.fd, conn->out + conn->out_at, conn->out_size - conn->out_at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            if (errno != EAGAIN)
                write_failed(conn, errno);
            return true;
        }
        if (n > 0) {
            conn->out_at += (size_t)n;
            budget -= (size_t)n < budget ? (size_t)n : budget;
        }
    }
    return true;
}

/* The work that nghttp2's callbacks must not do. Returns whether there may be more to write. */
static bool settle(struct rpc_conn *conn)
{
    bool again = conn->notify || conn->sweep;
    conn->notify = conn->sweep = false;
    for (struct sl_rpc_call *call = conn->calls, *next; again && call && !conn->dead; call = next) {
        next = call->next;
        if (call->unsent) {
            conn->role->closed(call, false, NGHTTP2_REFUSED_STREAM);
            sl_rpc_call_free(call);
            continue;
        }
        if (call->notify) {
            call->notify = false;
            if (!call->over && !call->finished && call->events && call->events->writable)
                call->events->writable(call, call->data);
        }
    }
    return again;
}

static void conn_ready(struct sl_source *source, uint32_t events)
{
    struct rpc_conn *conn = sl_container_of(source, struct rpc_conn, source);
    conn->depth++;
    if (!conn->dead && (events & ~(uint32_t)EPOLLOUT))
        read_some(conn);
    bool stuck = false;
    do
        stuck = !conn->dead && write_out(conn);
    while (settle(conn) && !stuck);

    if (!conn->dead && stuck &&
        nghttp2_session_get_outbound_queue_size(conn->session) > MAX_FRAMES_WAITING)
        sl_rpc_conn_fail(conn, -ENOBUFS, "the peer does not read");
    if (!conn->dead && !stuck && !nghttp2_session_want_read(conn->session) &&
        !nghttp2_session_want_write(conn->session))
        sl_rpc_conn_fail(conn, -ESHUTDOWN, "the HTTP/2 session ended");
    if (!conn->dead &&
        sl_loop_watch(conn->loop, source, EPOLLIN | (stuck ? (uint32_t)EPOLLOUT : 0U), NULL) < 0)
        sl_rpc_conn_fail(conn, -ENOMEM, "cannot watch the connection");
    conn->unwritten = false; /* all written, or the loop will be back */
    sl_rpc_conn_leave(conn);
}
