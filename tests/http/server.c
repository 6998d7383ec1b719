/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server, talked to over raw sockets by clients good and bad. */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/server_internal.h"

static struct sl_http_server *server;
static unsigned handled, gone_count;
static char last_method[16], last_path[100], last_query[100];
static size_t last_size;
static struct sl_http_call *deferred;

static unsigned under_way(void)
{
    unsigned n = 0;
    for (const struct sl_http_call *call = server->calls; call; call = call->next)
        n++;
    return n;
}

static void handle(void *data, struct sl_http_call *call, const struct sl_http_request *r)
{
    (void)data;
    handled++;
    (void)snprintf(last_method, sizeof(last_method), "%s", r->method);
    (void)snprintf(last_path, sizeof(last_path), "%s", r->path);
    (void)snprintf(last_query, sizeof(last_query), "%s", r->query);
    last_size = r->body_size;
    assert_int_equal(r->body[r->body_size], 0);
    if (strcmp(r->path, "/later") == 0)
        deferred = call;
    else if (strcmp(r->path, "/big") == 0) {
        static char big[8 << 20];
        memset(big, 'b', sizeof(big));
        sl_http_answer(call, 200, "text/plain", big, sizeof(big));
    } else
        sl_http_answer(call, 200, "text/plain", r->body, r->body_size);
}

static void gone(void *data, struct sl_http_call *call)
{
    (void)data;
    assert_ptr_equal(call, deferred);
    deferred = NULL;
    gone_count++;
}

static void open_server(unsigned connections, void (*on_gone)(void *, struct sl_http_call *))
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_http_server_options opt = {.address = "127.0.0.1:0",
                                         .body_max = 1000,
                                         .connections_max = connections,
                                         .idle_timeout_s = 5,
                                         .handle = handle,
                                         .gone = on_gone};
    assert_int_equal(sl_http_server_create(world_loop, &opt, &server, &err), 0);
    assert_true(sl_http_server_port(server) > 0);
}

static int setup(void **state)
{
    (void)state;
    world_open();
    open_server(0, gone);
    handled = gone_count = 0;
    deferred = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_http_server_destroy(server);
    server = NULL;
    world_close();
    return 0;
}

static int client(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    sa.sin_port = htons((uint16_t)sl_http_server_port(server));
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

static void put(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Steps until the answer holds `needle`, or (NULL) until the server closed. */
static char *take(int fd, const char *needle)
{
    static char buf[1 << 20];
    size_t have = 0;
    uint64_t give_up = sl_now_ns() + 20 * SL_NS_PER_S;
    buf[0] = 0;
    while (!needle || !strstr(buf, needle)) {
        assert_true(sl_now_ns() < give_up);
        world_step(1);
        ssize_t n = recv(fd, buf + have, sizeof(buf) - 1 - have, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            assert_null(needle); /* closed, and it was not there */
            break;
        }
        if (n > 0)
            buf[have += (size_t)n] = 0;
    }
    return buf;
}

static void requests(void **state)
{
    (void)state;
    int fd = client();
    put(fd, "POST /a%20b?x=%20y&z HTTP/1.1\r\nHost: h\r\nContent-Type: text/x\r\nContent-Length: "
            "5\r\n\r\nhello");
    char *answer = take(fd, "hello");
    assert_non_null(strstr(answer, "200 OK"));
    assert_string_equal(last_path, "/a b");
    assert_string_equal(last_query, "x=%20y&z");
    assert_int_equal(last_size, 5);
    put(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); /* the same connection */
    (void)take(fd, "\r\n\r\n");
    assert_string_equal(last_query, "");
    put(fd, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
            "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    (void)take(fd, "abcde");
    put(fd, "HEAD /q HTTP/1.1\r\nHost: h\r\n\r\nGET /r HTTP/1.1\r\nHost: h\r\n\r\n");
    answer = take(fd, "\r\n\r\nHTTP/1.1 200"); /* no body in between */
    assert_int_equal(handled, 5);
    assert_string_equal(last_method, "GET");
    (void)close(fd);
}

static void limits(void **state)
{
    (void)state;
    int fd = client();
    char body[3001], text[4000];
    memset(body, 'x', 3000);
    body[3000] = 0;
    (void)snprintf(text, sizeof(text),
                   "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000\r\n\r\n%s", body);
    put(fd, text);
    assert_non_null(strstr(take(fd, "larger than 1000 bytes"), " 413 "));
    (void)snprintf(text, sizeof(text),
                   "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n%.1000s", body);
    put(fd, text); /* just within; the connection is still good */
    (void)take(fd, "xxx");
    assert_int_equal(handled, 1);
    (void)close(fd);
    fd = client(); /* announced, not sent */
    put(fd, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n");
    assert_non_null(strstr(take(fd, "larger than"), " 413 "));
    (void)close(fd);
    fd = client();
    put(fd, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n");
    assert_non_null(strstr(take(fd, "larger than"), " 413 "));
    (void)close(fd);
    fd = client(); /* chunks without end: dropped after some of them */
    put(fd, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 10; i++) {
        (void)snprintf(text, sizeof(text), "3e8\r\n%.1000s\r\n", body);
        (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
        world_step(1);
    }
    (void)take(fd, NULL);
    (void)close(fd);
    fd = client(); /* headers without end */
    put(fd, "GET / HTTP/1.1\r\nHost: h\r\n");
    for (int i = 0; i < 40; i++) {
        (void)snprintf(text, sizeof(text), "X-%d: %.1000s\r\n", i, body);
        (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
        world_step(1);
    }
    (void)take(fd, NULL);
    (void)close(fd);
    assert_int_equal(handled, 1);
}

static void nonsense(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\r\n\r\n\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int fd = client();
        put(fd, texts[i]);
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        for (int k = 0; k < 5; k++)
            world_step(1);
        world_jump(6 * SL_NS_PER_S); /* what is not refused at once is over with its time */
        (void)take(fd, NULL);
        (void)close(fd);
    }
    assert_int_equal(handled, 0);
    int fd = client();
    put(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    (void)take(fd, "200 OK");
    (void)close(fd);
}

static void later(void **state)
{
    (void)state;
    int fd = client(), other = client();
    put(fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    world_until(&handled, 1, 0);
    world_jump(100 * SL_NS_PER_S); /* the handler may take its time */
    put(other, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    other = (close(other), client());
    put(other, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    (void)take(other, "200 OK"); /* meanwhile others are served */
    sl_http_answer(deferred, 503, "application/json", "{}", 2);
    assert_non_null(strstr(take(fd, "{}"), "503"));
    put(fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    unsigned before = handled;
    world_until(&handled, before + 1, 0);
    assert_int_equal(gone_count, 0);
    (void)close(fd); /* the client does not wait */
    world_until(&gone_count, 1, 0);
    (void)close(other);
}

/* Nobody is told: the answer to a client that left goes nowhere, harmlessly. */
static void later_untold(void **state)
{
    (void)state;
    sl_http_server_destroy(server);
    open_server(0, NULL);
    int fd = client();
    put(fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    world_until(&handled, 1, 0);
    (void)close(fd);
    for (int i = 0; i < 20; i++)
        world_step(1);
    assert_int_equal(under_way(), 1);
    sl_http_answer(deferred, 200, NULL, "x", 1);
    for (int i = 0; i < 5; i++)
        world_step(1);
    assert_int_equal(under_way(), 0);
}

static void slow_clients(void **state)
{
    (void)state;
    int idle = client(), drip = client(), body = client(), reader = client(), after = client();
    const int small = 4096;
    (void)setsockopt(reader, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    put(body, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n");
    put(reader, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n"); /* and reads nothing of 8 MiB */
    put(after, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    (void)take(after, "200 OK");
    static const char request[] = "GET / HTTP/1.1\r\nHost: h\r\nX: 0123456789";
    for (int i = 0; i < 12; i++) { /* a byte now and then keeps nobody alive */
        (void)send(drip, request + i, 1, MSG_NOSIGNAL);
        (void)send(body, "x", 1, MSG_NOSIGNAL);
        world_jump(600 * SL_NS_PER_MS);
        for (int k = 0; k < 5; k++)
            world_step(1);
    }
    int fds[] = {idle, drip, body, after};
    for (size_t i = 0; i < 4; i++) {
        (void)take(fds[i], NULL);
        (void)close(fds[i]);
    }
    struct pollfd p = {.fd = reader, .events = 0};
    for (int i = 0; i < 100 && !(p.revents & (POLLHUP | POLLERR)); i++) {
        world_step(1);
        char sink[65536];
        ssize_t n = recv(reader, sink, sizeof(sink), MSG_DONTWAIT);
        if (n == 0)
            break;
        assert_int_equal(poll(&p, 1, 0) >= 0, 1);
    }
    assert_int_equal(under_way(), 0);
    (void)close(reader);
    assert_int_equal(handled, 2);
}

/* 200 at once, and more than there are places: the others wait their turn. */
static void crowd(void **state)
{
    (void)state;
    int fds[200];
    for (int round = 0; round < 2; round++) {
        if (round == 1) {
            sl_http_server_destroy(server);
            open_server(50, gone);
        }
        for (int i = 0; i < 200; i++) {
            fds[i] = client();
            put(fds[i],
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
        for (int i = 0; i < 200; i++) {
            assert_non_null(strstr(take(fds[i], NULL), "hi"));
            (void)close(fds[i]);
        }
    }
    assert_int_equal(handled, 400);
}

static void open_budget(size_t body_max, size_t held_max,
                        size_t (*room)(void *, struct sl_http_call *, const char *, const char *))
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_http_server_options opt = {.address = "127.0.0.1:0",
                                         .body_max = body_max,
                                         .held_max = held_max,
                                         .body_room = room,
                                         .handle = handle,
                                         .gone = gone};
    sl_http_server_destroy(server);
    assert_int_equal(sl_http_server_create(world_loop, &opt, &server, &err), 0);
}

/* Clients that only connect, or say half a request, keep nobody out; no time passes here, so no deadline helps. */
static void idle_crowd(void **state)
{
    (void)state;
    enum { PLACES = 8, CROWD = 100 };
    int fds[CROWD];
    sl_http_server_destroy(server);
    open_server(PLACES, gone);
    int busy = client();
    put(busy, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    world_until(&handled, 1, 0);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = client();
        if (i % 2)
            put(fds[i], "GET / HT");
        world_step(0);
    }
    for (int i = 0; i < 3; i++) {
        int fd = client();
        put(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        (void)take(fd, "200 OK");
        (void)close(fd);
    }
    assert_string_equal(take(fds[0], NULL), ""); /* the first went first */
    sl_http_answer(deferred, 200, NULL, "bye", 3);
    (void)take(busy, "bye"); /* one that waits for us stays, however long it takes */
    for (int i = 0; i < CROWD; i++)
        (void)close(fds[i]);
    (void)close(busy);
}

static int client_from(uint32_t address)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, sa = from;
    from.sin_addr.s_addr = htonl(address);
    sa.sin_port = htons((uint16_t)sl_http_server_port(server));
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* Who floods pushes himself out, and nobody who is slow to speak. */
static void a_flood_from_elsewhere(void **state)
{
    (void)state;
    enum { PLACES = 8, FLOOD = 100 };
    int fds[FLOOD];
    sl_http_server_destroy(server);
    open_server(PLACES, gone);
    int probe = client();
    world_step(1);
    for (int i = 0; i < FLOOD; i++) {
        fds[i] = client_from(0x7f000002);
        world_step(0);
    }
    put(probe, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    (void)take(probe, "200 OK");
    assert_string_equal(take(fds[0], NULL), "");
    for (int i = 0; i < FLOOD; i++)
        (void)close(fds[i]);
    (void)close(probe);
}

static void begin_post(int fd, size_t announced, size_t sent)
{
    static char text[1 << 20];
    int head = snprintf(text, sizeof(text),
                        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", announced);
    memset(text + head, 'x', sent);
    for (size_t at = 0, size = (size_t)head + sent; at < size;) {
        ssize_t n = send(fd, text + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(n > 0 || errno == EAGAIN);
        at += n > 0 ? (size_t)n : 0;
        world_step(1);
    }
}

/* Large bodies that never end: each new one throws the largest out, small ones always have room. */
static void bytes_together(void **state)
{
    (void)state;
    enum { LARGE = 400 << 10, MANY = 12 };
    int large[MANY];
    open_budget(512 << 10, 1 << 20, NULL);
    for (int i = 0; i < MANY; i++) {
        large[i] = client();
        begin_post(large[i], LARGE, LARGE - 1);
    }
    int fd = client();
    begin_post(fd, 100 << 10, 100 << 10);
    assert_non_null(strstr(take(fd, "xxxx"), "200 OK"));
    unsigned kept = 0, refused = 0;
    for (int i = 0; i < MANY; i++) {
        put(large[i], "x");
        const char *answer = take(large[i], "\r\n\r\n");
        kept += strstr(answer, "200 OK") != NULL;
        refused += strstr(answer, " 503 ") != NULL;
        (void)close(large[i]);
    }
    assert_int_equal(kept + refused, MANY);
    assert_in_range(kept, 1,
                    2); /* two of 400 KiB in 1 MiB, and one of them made room for the small one */
    (void)close(fd);
}

static size_t room_by_path(void *data, struct sl_http_call *call, const char *method,
                           const char *path)
{
    (void)data;
    (void)call;
    return strcmp(method, "POST") == 0 && strcmp(path, "/take") == 0 ? 100 : 0;
}

static void bodies_nobody_wants(void **state)
{
    (void)state;
    open_budget(1000, 0, room_by_path);
    int fd = client();
    put(fd, "POST /not HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    (void)take(fd, "200 OK");
    assert_int_equal(last_size, 0);
    put(fd, "POST /take HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    (void)take(fd, "hello");
    char text[400];
    (void)snprintf(text, sizeof(text),
                   "POST /take HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n%0101d", 0);
    put(fd, text);
    assert_non_null(strstr(take(fd, "larger than 100 bytes"), " 413 "));
    assert_int_equal(handled, 2);
    (void)close(fd);
}

/* Answers that nobody takes are bytes too. */
static void answers_together(void **state)
{
    (void)state;
    enum { MANY = 4 };
    int fds[MANY];
    open_budget(1000, 20 << 20, NULL); /* two of 8 MiB */
    for (int i = 0; i < MANY; i++) {
        fds[i] = client();
        put(fds[i], "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
        world_until(&handled, (unsigned)i + 1, 0);
    }
    assert_non_null(strstr(take(fds[0], "\r\n\r\n"), "200 OK"));
    assert_non_null(strstr(take(fds[3], "try again later"), " 503 "));
    for (int i = 0; i < MANY; i++)
        (void)close(fds[i]);
    for (int i = 0; i < 20; i++)
        world_step(1);
    int fd = client(); /* what was held is free again */
    put(fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_non_null(strstr(take(fd, "\r\n\r\n"), "200 OK"));
    (void)close(fd);
}

static void ends(void **state)
{
    (void)state;
    int fd = client(), idle = client();
    put(fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    world_until(&handled, 1, 0);
    sl_http_server_quiesce(server);
    struct sockaddr_in sa = {.sin_family = AF_INET};
    sa.sin_port = htons((uint16_t)sl_http_server_port(server));
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_not_equal(connect(late, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(under_way(), 1);
    sl_http_answer(deferred, 200, NULL, "bye", 3);
    sl_http_server_destroy(server); /* what is answered still goes out */
    server = NULL;
    char buf[500] = "";
    assert_true(recv(fd, buf, sizeof(buf) - 1, 0) > 0);
    assert_non_null(strstr(buf, "bye"));
    assert_int_equal(recv(idle, buf, sizeof(buf), 0), 0);
    (void)close(fd);
    (void)close(idle);
    (void)close(late);
    open_server(0, gone);
    fd = client();
    put(fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    world_until(&handled, 2, 0);
    sl_http_server_destroy(server); /* and what is not is told */
    server = NULL;
    assert_int_equal(gone_count, 1);
    (void)close(fd);
}

static void addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {"127.0.0.1:65536", "",           "x",
                                      "127.0.0.1",       "127.0.0.1:", "127.0.0.1:x",
                                      "::1:80",          "host:80",    "127.0.0.1:123456",
                                      "[::1:80"};
    static const char *const good[] = {":0", "127.0.0.1:0", "0.0.0.0:0"};
    struct sl_http_server *s = NULL;
    struct sl_err err = SL_ERR_INIT;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct sl_http_server_options opt = {.address = bad[i], .handle = handle};
        assert_int_equal(sl_http_server_create(world_loop, &opt, &s, &err), -EINVAL);
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct sl_http_server_options opt = {.address = good[i], .handle = handle};
        assert_int_equal(sl_http_server_create(world_loop, &opt, &s, &err), 0);
        sl_http_server_destroy(s);
    }
    char taken[40];
    (void)snprintf(taken, sizeof(taken), "127.0.0.1:%u", sl_http_server_port(server));
    struct sl_http_server_options opt = {.address = taken, .handle = handle};
    assert_int_equal(sl_http_server_create(world_loop, &opt, &s, &err), -EADDRINUSE);
    struct sl_http_server_options half = {.address = ":0", .handle = handle, .cert_file = "x"};
    assert_int_equal(sl_http_server_create(world_loop, &half, &s, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests, setup, teardown),
        cmocka_unit_test_setup_teardown(limits, setup, teardown),
        cmocka_unit_test_setup_teardown(nonsense, setup, teardown),
        cmocka_unit_test_setup_teardown(later, setup, teardown),
        cmocka_unit_test_setup_teardown(later_untold, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_clients, setup, teardown),
        cmocka_unit_test_setup_teardown(crowd, setup, teardown),
        cmocka_unit_test_setup_teardown(idle_crowd, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flood_from_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_together, setup, teardown),
        cmocka_unit_test_setup_teardown(bodies_nobody_wants, setup, teardown),
        cmocka_unit_test_setup_teardown(answers_together, setup, teardown),
        cmocka_unit_test_setup_teardown(ends, setup, teardown),
        cmocka_unit_test_setup_teardown(addresses, setup, teardown),
    };
    return cmocka_run_group_tests_name("http_server", tests, NULL, NULL);
}
