/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct sl_loop *world_loop;
static uint64_t jumped_ns;

static uint64_t world_now(void)
{
    return sl_now_ns() + jumped_ns;
}

void world_open(void)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_loop_create(world_now, &world_loop, &err), 0);
}

void world_close(void)
{
    sl_loop_destroy(world_loop);
    world_loop = NULL;
}

void world_jump(uint64_t ns)
{
    jumped_ns += ns;
}

void world_step(int timeout_ms)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_loop_step(world_loop, timeout_ms, &err), 0);
}

void world_until(const unsigned *value, unsigned at_least, unsigned jump_ms)
{
    uint64_t give_up = sl_now_ns() + 30 * SL_NS_PER_S;
    while (*value < at_least) {
        if (sl_now_ns() > give_up)
            fail_msg("waited for %u, have %u", at_least, *value);
        world_jump(jump_ms * SL_NS_PER_MS);
        world_step(2);
    }
}

/* --- the fake server ------------------------------------------------------------------------ */

static void conn_free(struct fake_conn *c)
{
    struct fake_conn **at = &c->fake->conns;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    sl_loop_unwatch(c->fake->loop, &c->source);
    (void)close(c->source.fd);
    free(c->out);
    free(c);
}

/* false: the connection is gone. */
static bool flush(struct fake_conn *c)
{
    while (c->out_sent < c->out_size) {
        ssize_t n =
            send(c->source.fd, c->out + c->out_sent, c->out_size - c->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            conn_free(c);
            return false;
        }
        c->out_sent += (size_t)n;
    }
    bool all = c->out_sent == c->out_size;
    if (all && c->closing) {
        conn_free(c);
        return false;
    }
    assert_int_equal(
        sl_loop_watch(c->fake->loop, &c->source, EPOLLIN | (all ? 0U : EPOLLOUT), NULL), 0);
    return true;
}

static bool one_request(struct fake_conn *c)
{
    c->in[c->in_size] = 0;
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end)
        return false;
    char *length = strcasestr(c->in, "\r\nContent-Length:");
    size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
    size_t head = (size_t)(end - c->in) + 4;
    if (c->in_size < head + body)
        return false;
    char *copy = strndup(c->in, head + body), *save;
    char *text = strndup(c->in, head - 2);
    assert_non_null(copy);
    assert_non_null(text);
    memmove(c->in, c->in + head + body, c->in_size - head - body);
    c->in_size -= head + body;
    char *method = strtok_r(copy, " ", &save), *path = strtok_r(NULL, " ", &save);
    c->fake->requests++;
    c->fake->handle(c->fake->data, c, method, path, text, copy + head);
    free(copy);
    free(text);
    return true;
}

static void conn_ready(struct sl_source *source, uint32_t events)
{
    struct fake_conn *c = (struct fake_conn *)source; /* first in it */
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t n = recv(source->fd, c->in + c->in_size, sizeof(c->in) - 1 - c->in_size, 0);
        if (n <= 0) {
            conn_free(c);
            return;
        }
        c->in_size += (size_t)n;
        while (one_request(c))
            ;
    }
    (void)flush(c);
}

static void accept_ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct fake *fake = (struct fake *)((char *)source - offsetof(struct fake, listener));
    int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct fake_conn *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    c->fake = fake;
    c->source.fd = fd;
    c->source.ready = conn_ready;
    c->next = fake->conns;
    fake->conns = c;
    fake->accepted++;
    assert_int_equal(sl_loop_watch(fake->loop, &c->source, EPOLLIN, NULL), 0);
}

void fake_open(struct fake *fake, unsigned port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof(sa);
    const int on = 1;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &size), 0);
    fake->loop = world_loop;
    fake->port = ntohs(sa.sin_port);
    fake->listener = (struct sl_source){.fd = fd, .ready = accept_ready};
    assert_int_equal(sl_loop_watch(fake->loop, &fake->listener, EPOLLIN, NULL), 0);
}

void fake_close(struct fake *fake)
{
    while (fake->conns)
        conn_free(fake->conns);
    sl_loop_unwatch(fake->loop, &fake->listener);
    (void)close(fake->listener.fd);
}

void fake_cut(struct fake_conn *conn)
{
    conn->closing = true;
    /* In its own time: the caller may be inside this connection's handler. */
    assert_int_equal(sl_loop_watch(conn->fake->loop, &conn->source, EPOLLIN | EPOLLOUT, NULL), 0);
}

void fake_send(struct fake_conn *conn, const char *data, size_t size)
{
    conn->out = realloc(conn->out, conn->out_size + size + 1);
    assert_non_null(conn->out);
    memcpy(conn->out + conn->out_size, data, size);
    conn->out_size += size;
    assert_int_equal(sl_loop_watch(conn->fake->loop, &conn->source, EPOLLIN | EPOLLOUT, NULL), 0);
}

static void __attribute__((format(printf, 3, 0))) send_va(struct fake_conn *conn, bool chunk,
                                                          const char *fmt, va_list args)
{
    char *text = NULL, head[20];
    int n = vasprintf(&text, fmt, args);
    assert_true(n >= 0);
    if (chunk)
        fake_send(conn, head, (size_t)snprintf(head, sizeof(head), "%x\r\n", (unsigned)n));
    fake_send(conn, text, (size_t)n);
    if (chunk)
        fake_send(conn, "\r\n", 2);
    free(text);
}

void fake_text(struct fake_conn *conn, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    send_va(conn, false, fmt, args);
    va_end(args);
}

void fake_chunk(struct fake_conn *conn, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    send_va(conn, true, fmt, args);
    va_end(args);
}

void fake_answer(struct fake_conn *conn, unsigned status, const char *json)
{
    fake_text(conn,
              "HTTP/1.1 %u X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
              status, strlen(json), json);
}

void fake_stream(struct fake_conn *conn)
{
    fake_text(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n");
}

struct sl_kube *world_kube(const struct fake *fake, uint64_t timeout_ns)
{
    char url[64];
    struct sl_kube *kube = NULL;
    struct sl_err err = SL_ERR_INIT;
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", fake->port);
    struct sl_kube_options opt = {.server = url, .timeout_ns = timeout_ns};
    assert_int_equal(sl_kube_create(world_loop, &opt, &kube, &err), 0);
    return kube;
}
