/* SPDX-License-Identifier: Apache-2.0 */
/* The server: its methods, sockets, connections, and how it stops. */
#include "rpc/errors.h"
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "rpc/unix.h"

struct listener {
    struct sl_source source;
    struct sl_timer retry;
    struct sl_rpc_server *server;
    struct listener *next;
    struct sl_rpc_unix at;
};

struct sl_rpc_server {
    struct sl_loop *loop;
    struct sl_rpc_limits limits;
    struct rpc_method *methods;
    struct listener *listeners;
    struct rpc_conn *conns;
    size_t conn_count;
    struct sl_timer stop_timer;
    void (*stopped)(struct sl_rpc_server *server, void *data);
    void *stopped_data;
    unsigned busy; /* we are in a loop over connections: do not free the server */
    bool stopping, destroyed;
};

static void free_if_done(struct sl_rpc_server *server)
{
    if (!server->destroyed || server->busy || server->conn_count)
        return;
    while (server->methods) {
        struct rpc_method *m = server->methods;
        server->methods = m->next;
        free(m);
    }
    free(server);
}

/* The listeners on this path; NULL: all of them. */
static void close_listeners(struct sl_rpc_server *server, const char *path)
{
    for (struct listener **at = &server->listeners; *at;) {
        struct listener *l = *at;
        if (path && strcmp(l->at.path, path) != 0) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        sl_timer_stop(server->loop, &l->retry);
        sl_loop_unwatch(server->loop, &l->source);
        sl_rpc_unix_close(&l->at);
        free(l);
    }
}

/* Releases every connection that is not on the stack; the others are released when their functions return. */
static void drop_conns(struct sl_rpc_server *server, const char *why)
{
    server->busy++;
    for (struct rpc_conn *conn = server->conns; conn;) {
        if (conn->depth > 0) {
            sl_rpc_conn_fail(conn, -ESHUTDOWN, why);
            conn = conn->next;
        } else {
            sl_rpc_conn_drop(conn, -ESHUTDOWN, why);
            conn = server->conns; /* callbacks may have changed the list */
        }
    }
    server->busy--;
}

static void stop_fires(struct sl_timer *timer)
{
    struct sl_rpc_server *server = sl_container_of(timer, struct sl_rpc_server, stop_timer);
    server->busy++;
    drop_conns(server, "the server has stopped");
    server->busy--;
    if (server->destroyed) /* by the last event of a call */
        free_if_done(server);
    else if (server->stopped)
        server->stopped(server, server->stopped_data);
}

int sl_rpc_server_create(struct sl_loop *loop, const struct sl_rpc_limits *limits,
                         struct sl_rpc_server **ret, struct sl_err *err)
{
    struct sl_rpc_server *server = calloc(1, sizeof(*server));
    if (!server)
        return sl_err_set(err, -ENOMEM, "out of memory for a server");
    server->loop = loop;
    if (limits)
        server->limits = *limits;
    sl_rpc_limits_fill(&server->limits);
    server->stop_timer.fire = stop_fires;
    *ret = server;
    return 0;
}

void sl_rpc_server_destroy(struct sl_rpc_server *server)
{
    if (!server || server->destroyed)
        return;
    server->destroyed = true;
    sl_timer_stop(server->loop, &server->stop_timer);
    close_listeners(server, NULL);
    drop_conns(server, "the server has stopped");
    free_if_done(server);
}

int sl_rpc_server_handle(struct sl_rpc_server *server, const char *path, sl_rpc_handler *handler,
                         void *data, struct sl_err *err)
{
    size_t size = strlen(path) + 1;
    struct rpc_method *m = malloc(sizeof(*m) + size);
    if (!m)
        return sl_err_set(err, -ENOMEM, "out of memory for method %s", path);
    m->handler = handler;
    m->data = data;
    memcpy(m->path, path, size);
    m->next = server->methods;
    server->methods = m;
    return 0;
}

const struct rpc_method *sl_rpc_server_find(const struct rpc_conn *conn, const uint8_t *path,
                                            size_t size)
{
    const struct sl_rpc_server *server = conn->owner;
    for (const struct rpc_method *m = server->methods; m; m = m->next)
        if (rpc_is(path, size, m->path))
            return m;
    return NULL;
}

/* --- connections --------------------------------------------------------------------------- */

int sl_rpc_server_adopt(struct sl_rpc_server *server, int fd, struct sl_err *err)
{
    struct rpc_conn *conn;
    if (server->stopping || server->destroyed || server->conn_count >= server->limits.max_conns) {
        (void)close(fd);
        return sl_err_set(err, -EAGAIN, "%s",
                          server->stopping ? SL_E_RPC_STOPPING : SL_E_RPC_MANY_CONNECTIONS);
    }
    int rc = sl_rpc_conn_create(server->loop, fd, true, &sl_rpc_server_role, &server->limits,
                                server, &conn, err);
    if (rc < 0)
        return rc;
    conn->next = server->conns;
    if (conn->next)
        conn->next->prev = conn;
    server->conns = conn;
    server->conn_count++;
    return 0;
}

void sl_rpc_server_lost(struct rpc_conn *conn, const struct sl_err *why)
{
    (void)why;
    struct sl_rpc_server *server = conn->owner;
    *(conn->prev ? &conn->prev->next : &server->conns) = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    server->conn_count--;
    if (server->stop_timer.set && server->conn_count == 0)
        sl_timer_set(server->loop, &server->stop_timer, sl_loop_now(server->loop));
    free_if_done(server);
}

static void retry_fires(struct sl_timer *timer)
{
    struct listener *l = sl_container_of(timer, struct listener, retry);
    if (sl_loop_watch(l->server->loop, &l->source, EPOLLIN, NULL) < 0)
        sl_timer_set(l->server->loop, timer, sl_loop_now(l->server->loop) + SL_NS_PER_S);
}

static void listener_ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct listener *l = sl_container_of(source, struct listener, source);
    int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        int refused = sl_rpc_server_adopt(l->server, fd, NULL);
        (void)refused; /* the peer sees the close */
        return;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        /* The connection stays in the kernel's queue: a new attempt at once would be a busy loop. */
        sl_loop_unwatch(l->server->loop, source);
        sl_timer_set(l->server->loop, &l->retry, sl_loop_now(l->server->loop) + 100 * SL_NS_PER_MS);
    }
}

int sl_rpc_server_listen(struct sl_rpc_server *server, const char *path, mode_t mode,
                         struct sl_err *err)
{
    struct listener *l = calloc(1, sizeof(*l));
    if (!l)
        return sl_err_set(err, -ENOMEM, "out of memory for a socket");
    int rc = sl_rpc_unix_listen(path, mode, &l->at, err);
    if (rc < 0) {
        free(l);
        return rc;
    }
    l->server = server;
    l->retry.fire = retry_fires;
    l->source = (struct sl_source){.fd = l->at.fd, .ready = listener_ready};
    rc = sl_loop_watch(server->loop, &l->source, EPOLLIN, err);
    if (rc < 0) {
        sl_rpc_unix_close(&l->at);
        free(l);
        return rc;
    }
    close_listeners(server, path);
    l->next = server->listeners;
    server->listeners = l;
    return 0;
}

size_t sl_rpc_server_conns(const struct sl_rpc_server *server)
{
    return server->conn_count;
}

/* --- stopping ------------------------------------------------------------------------------ */

/* First a GOAWAY without a limit, "open no more calls": the client may open another call before it sees this. Then a
 * ping. When the client has answered the ping, sl_rpc_server_goaway sends the number of the last call that counts. */
static void say_goodbye(struct rpc_conn *conn)
{
    conn->depth++;
    int rc = nghttp2_submit_shutdown_notice(conn->session);
    if (rc == 0)
        rc = nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
    if (rc != 0)
        sl_rpc_conn_fail(conn, -ENOMEM, nghttp2_strerror(rc));
    sl_rpc_conn_schedule(conn);
    for (struct sl_rpc_call *call = conn->calls; call && !conn->dead; call = call->next)
        if (!call->over && !call->finished && call->events && call->events->draining)
            call->events->draining(call, call->data);
    sl_rpc_conn_leave(conn);
}

void sl_rpc_server_goaway(struct rpc_conn *conn)
{
    const struct sl_rpc_server *server = conn->owner;
    if (!server->stopping || conn->said_goodbye)
        return;
    conn->said_goodbye = true;
    int rc = nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
                                   nghttp2_session_get_last_proc_stream_id(conn->session),
                                   NGHTTP2_NO_ERROR, NULL, 0);
    if (rc != 0)
        sl_rpc_conn_fail(conn, -ENOMEM, nghttp2_strerror(rc));
    sl_rpc_conn_schedule(conn);
}

void sl_rpc_server_stop(struct sl_rpc_server *server, uint64_t grace_ns,
                        void (*stopped)(struct sl_rpc_server *server, void *data), void *data)
{
    if (server->stopping || server->destroyed)
        return;
    server->stopping = true;
    server->stopped = stopped;
    server->stopped_data = data;
    close_listeners(server, NULL);
    uint64_t now = sl_loop_now(server->loop), at;
    if (server->conn_count == 0)
        at = now;
    else if (__builtin_add_overflow(now, grace_ns, &at))
        at = UINT64_MAX;
    sl_timer_set(server->loop, &server->stop_timer, at);
    server->busy++;
    for (struct rpc_conn *conn = server->conns, *next; conn; conn = next) {
        next = conn->next;
        if (!conn->dead)
            say_goodbye(conn);
    }
    server->busy--;
    free_if_done(server);
}
