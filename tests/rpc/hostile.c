/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that break the rules, byte by byte: each gets the answer it deserves, others notice nothing. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include <nghttp2/nghttp2.h>

#include "base/clock.h"
#include "raw.h"

/* What came back on one stream. */
struct seen {
    int grpc_status; /* -1: none */
    int http_status;
    int reset;  /* error code, -1: none */
    int goaway; /* error code, -1: none */
    unsigned messages_bytes, pings, closed;
};

static struct raw_bytes out;
static nghttp2_hd_inflater *inflater; /* of the connection talked to */

static void read_headers(const uint8_t *p, size_t n, struct seen *s)
{
    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t used = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, p, n, 1);
        assert_true(used >= 0);
        p += used;
        n -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT) {
            if (nv.namelen == 11 && memcmp(nv.name, "grpc-status", 11) == 0)
                s->grpc_status = atoi((const char *)nv.value);
            if (nv.namelen == 7 && memcmp(nv.name, ":status", 7) == 0)
                s->http_status = atoi((const char *)nv.value);
        }
        if (flags & NGHTTP2_HD_INFLATE_FINAL) {
            (void)nghttp2_hd_inflate_end_headers(inflater);
            return;
        }
    }
}

static void read_frames(const uint8_t *p, size_t n, struct seen *s)
{
    while (n >= 9) {
        size_t size = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        const uint8_t *payload = p + 9;
        assert_true(n >= 9 + size);
        if (p[3] == RAW_HEADERS)
            read_headers(payload, size, s);
        else if (p[3] == RAW_DATA)
            s->messages_bytes += (unsigned)size;
        else if (p[3] == RAW_RST)
            s->reset = payload[3];
        else if (p[3] == RAW_GOAWAY)
            s->goaway = payload[7];
        else if (p[3] == RAW_PING && (p[4] & RAW_ACK))
            s->pings++;
        p += 9 + size;
        n -= 9 + size;
    }
}

static void drop_inflater(void)
{
    if (inflater)
        nghttp2_hd_inflate_del(inflater);
    inflater = NULL;
}

static void new_inflater(void)
{
    drop_inflater();
    assert_int_equal(nghttp2_hd_inflate_new(&inflater), 0);
}

/* Sends `out` to a fresh connection, and says what the server made of it. */
static struct seen talk(struct world *w)
{
    static uint8_t in[1024 * 1024];
    size_t have = 0, sent = 0;
    struct seen s = {.grpc_status = -1, .http_status = -1, .reset = -1, .goaway = -1};
    int fd = world_raw(w);
    for (int quiet = 0; quiet < 3 && !s.closed;) {
        ssize_t n = sent < out.size ? send(fd, out.data + sent, out.size - sent, MSG_NOSIGNAL) : 0;
        if (n > 0)
            sent += (size_t)n;
        world_settle(w);
        ssize_t got = recv(fd, in + have, sizeof(in) - have, 0);
        if (got > 0)
            have += (size_t)got;
        if (got == 0 || (got < 0 && errno != EAGAIN))
            s.closed = 1;
        quiet = n > 0 || got > 0 ? 0 : quiet + 1;
    }
    (void)close(fd);
    world_settle(w);
    new_inflater();
    read_frames(in, have, &s);
    return s;
}

static struct world world;

static int open_world(void **state)
{
    (void)state;
    world_open(&world, NULL, NULL, NULL);
    return 0;
}

/* Whatever the hostile peer did, a good client is served, and nothing of the bad one is left. */
static int close_world(void **state)
{
    (void)state;
    struct result r;
    assert_int_equal(world_call(&world, ECHO_UNARY, "x", 1, &r), SL_RPC_OK);
    assert_int_equal(sl_rpc_server_conns(world.server), 1);
    assert_int_equal(world.echo.open, 0);
    world_close(&world);
    drop_inflater();
    return 0;
}

static void begin(void)
{
    out.size = 0;
    raw_hello(&out);
}

static void no_http2_at_all(void **state)
{
    (void)state;
    static const char *const texts[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                        "zero\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                                        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        out.size = 0;
        raw_put(&out, texts[i], 24);
        assert_int_equal(talk(&world).closed, 1);
    }
}

static void a_good_request_by_hand(void **state)
{
    (void)state;
    begin();
    raw_request(&out, 1, ECHO_UNARY);
    raw_message(&out, RAW_END_STREAM, 1, 0, "hello");
    raw_frame(&out, RAW_PING, 0, 0, "12345678", 8);
    struct seen s = talk(&world);
    assert_int_equal(s.grpc_status, SL_RPC_OK);
    assert_int_equal(s.http_status, 200);
    assert_int_equal(s.messages_bytes, 10);
    assert_int_equal(s.reset, -1);
    assert_int_equal(s.pings, 1);
    assert_int_equal(s.closed, 0);
    /* A request whose end comes as trailers is a request too. */
    begin();
    raw_request(&out, 1, ECHO_UNARY);
    raw_message(&out, 0, 1, 0, "hello");
    raw_headers(&out, RAW_END_STREAM, 1, (const char *const[]){"x-end", "1", NULL});
    assert_int_equal(talk(&world).grpc_status, SL_RPC_OK);
}

static void messages_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char *payload;
        size_t size;
        enum sl_rpc_code code;
    } cases[] = {
        {"\1\0\0\0\1x", 6, SL_RPC_UNIMPLEMENTED},             /* compressed */
        {"\2\0\0\0\1x", 6, SL_RPC_INTERNAL},                  /* neither nor */
        {"\0\xff\xff\xff\xff", 5, SL_RPC_RESOURCE_EXHAUSTED}, /* 4 GiB announced */
        {"\0\0\0\0\5x", 6, SL_RPC_INTERNAL},                  /* cut short */
        {"\0\0\0", 3, SL_RPC_INTERNAL},                       /* cut very short */
        {"", 0, SL_RPC_UNIMPLEMENTED},                        /* none */
        {"\0\0\0\0\1x\0\0\0\0\1y", 12, SL_RPC_UNIMPLEMENTED}, /* two */
        {"\0\0\0\0\0\0\0\0\0\0", 10, SL_RPC_UNIMPLEMENTED},   /* two empty ones */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        raw_request(&out, 1, ECHO_UNARY);
        raw_frame(&out, RAW_DATA, RAW_END_STREAM, 1, cases[i].payload, cases[i].size);
        struct seen s = talk(&world);
        assert_int_equal(s.grpc_status, cases[i].code);
        assert_int_equal(s.closed, 0);
        /* The same with the request left open: answered, and told to stop sending. */
        if (i < 3) {
            begin();
            raw_request(&out, 1, ECHO_UNARY);
            raw_frame(&out, RAW_DATA, 0, 1, cases[i].payload, cases[i].size);
            s = talk(&world);
            assert_int_equal(s.grpc_status, cases[i].code);
            assert_int_equal(s.reset, NGHTTP2_NO_ERROR);
        }
    }
}

static void requests_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char *pairs[18];
        int http, grpc, reset;
    } cases[] = {
        {{":method", "GET", ":scheme", "http", ":path", ECHO_UNARY, "content-type",
          "application/grpc"},
         405,
         SL_RPC_INTERNAL,
         -1},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "content-type", "text/plain"},
         415,
         SL_RPC_INTERNAL,
         -1},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "content-type",
          "application/grpcx"},
         415,
         SL_RPC_INTERNAL,
         -1},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY}, 415, SL_RPC_INTERNAL, -1},
        {{":method", "POST", ":scheme", "http", ":path", "/test.Echo/Nope", "content-type",
          "application/grpc+proto"},
         200,
         SL_RPC_UNIMPLEMENTED,
         -1},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "content-type",
          "application/grpc", "grpc-encoding", "gzip"},
         200,
         SL_RPC_UNIMPLEMENTED,
         -1},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "content-type",
          "application/grpc", "grpc-encoding", "identity"},
         200,
         SL_RPC_OK,
         -1},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "content-type",
          "application/grpc; charset=utf-8"},
         200,
         SL_RPC_OK,
         -1},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "content-type",
          "application/grpc", "grpc-timeout", "soon"},
         200,
         SL_RPC_INTERNAL,
         -1},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "content-type",
          "application/grpc", "grpc-timeout", "0n"},
         200,
         SL_RPC_DEADLINE_EXCEEDED,
         -1},
        /* Malformed by HTTP/2's own rules. */
        {{":method", "POST", ":scheme", "http", "content-type", "application/grpc"},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":method", "POST", ":path", ECHO_UNARY, "content-type", "application/grpc"},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":scheme", "http", ":path", ECHO_UNARY, "content-type", "application/grpc"},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":method", "POST", ":scheme", "http", ":path", "no-slash", "content-type",
          "application/grpc"},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":method", "POST", ":method", "POST", ":scheme", "http", ":path", ECHO_UNARY},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":method", "POST", ":scheme", "http", "te", "trailers", ":path", ECHO_UNARY},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, ":new", "x"},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "Content-Type",
          "application/grpc"},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "connection", "close"},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
        {{":method", "POST", ":scheme", "http", ":path", ECHO_UNARY, "x", "a\nb"},
         -1,
         -1,
         NGHTTP2_PROTOCOL_ERROR},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        raw_headers(&out, 0, 1, cases[i].pairs);
        raw_message(&out, RAW_END_STREAM, 1, 0, "x");
        struct seen s = talk(&world);
        if (s.http_status != cases[i].http || s.grpc_status != cases[i].grpc ||
            s.reset != cases[i].reset)
            fail_msg("case %zu: HTTP %d, grpc %d, reset %d", i, s.http_status, s.grpc_status,
                     s.reset);
        assert_int_equal(s.closed, 0);
    }
}

static void headers_without_end(void **state)
{
    (void)state;
    static char value[20000];
    memset(value, 'v', 12000);
    begin();
    raw_headers(&out, 0, 1,
                (const char *const[]){":method", "POST", ":scheme", "http", ":path", ECHO_UNARY,
                                      "x", value, NULL});
    assert_int_equal(talk(&world).http_status,
                     415); /* long, but within bounds: only the type is missing */
    struct raw_bytes *one = malloc(sizeof(*one));
    assert_non_null(one);
    /* The same block twice over, in one HEADERS and one CONTINUATION. */
    one->size = 0;
    raw_headers(one, 0, 1,
                (const char *const[]){":method", "POST", ":scheme", "http", ":path", ECHO_UNARY,
                                      "x", value, NULL});
    begin();
    one->data[4] = 0; /* not the end of the headers */
    raw_put(&out, one->data, one->size);
    one->size = 0;
    raw_headers(one, 0, 1, (const char *const[]){"y", value, NULL});
    one->data[3] = 9; /* CONTINUATION */
    raw_put(&out, one->data, one->size);
    raw_message(&out, RAW_END_STREAM, 1, 0, "x");
    free(one);
    assert_int_equal(talk(&world).grpc_status, SL_RPC_RESOURCE_EXHAUSTED);
}

static void broken_framing_ends_the_connection(void **state)
{
    (void)state;
    static const struct {
        uint8_t type, flags;
        uint32_t stream;
        const char *payload;
        size_t size;
        int goaway;
    } cases[] = {
        {RAW_DATA, 0, 0, "x", 1, NGHTTP2_PROTOCOL_ERROR},       /* DATA for the connection */
        {RAW_DATA, 0, 1, "x", 1, NGHTTP2_PROTOCOL_ERROR},       /* for a stream never opened */
        {RAW_SETTINGS, 0, 0, "x", 1, NGHTTP2_FRAME_SIZE_ERROR}, /* not a multiple of six */
        {RAW_PING, 0, 0, "1234567", 7, NGHTTP2_FRAME_SIZE_ERROR},
        {RAW_HEADERS, RAW_END_HEADERS, 2, "", 0, NGHTTP2_PROTOCOL_ERROR}, /* an even stream */
        {RAW_HEADERS, RAW_END_HEADERS, 1, "\xff\xff\xff\xff\xff\xff", 6, NGHTTP2_COMPRESSION_ERROR},
        {9, RAW_END_HEADERS, 1, "", 0, NGHTTP2_PROTOCOL_ERROR}, /* CONTINUATION of nothing */
        {8, 0, 0, "\0\0\0\0", 4, NGHTTP2_PROTOCOL_ERROR},       /* WINDOW_UPDATE by nothing */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        raw_frame(&out, cases[i].type, cases[i].flags, cases[i].stream, cases[i].payload,
                  cases[i].size);
        struct seen s = talk(&world);
        if (!s.closed || s.goaway != cases[i].goaway)
            fail_msg("case %zu: closed %u, GOAWAY %d", i, s.closed, s.goaway);
    }
    begin(); /* a frame far larger than agreed */
    uint8_t head[9] = {0xff, 0xff, 0xff, RAW_DATA, 0, 0, 0, 0, 1};
    raw_put(&out, head, 9);
    assert_int_equal(talk(&world).closed, 1);
}

static void floods_are_cut_off(void **state)
{
    (void)state;
    /* Nothing is read while the pings go out, so that the answers pile up at the server. */
    int fd = world_raw(&world);
    begin();
    assert_int_equal(send(fd, out.data, out.size, MSG_NOSIGNAL), out.size);
    out.size = 0;
    for (int i = 0; i < 2000; i++)
        raw_frame(&out, RAW_PING, 0, 0, "12345678", 8);
    bool closed = false;
    for (int i = 0; i < 2000 && !closed; i++) {
        ssize_t n = send(fd, out.data, out.size, MSG_NOSIGNAL);
        closed = n < 0 && errno == EPIPE;
        world_settle(&world);
    }
    assert_true(closed);
    (void)close(fd);

    /* Requests taken back at once: each is forgotten at once. */
    begin();
    uint32_t stream = 1;
    for (int i = 0; i < 900; i++, stream += 2) {
        raw_request(&out, stream, ECHO_NEVER);
        raw_message(&out, RAW_END_STREAM, stream, 0, "x");
        raw_frame(&out, RAW_RST, 0, stream, "\0\0\0\x8", 4);
    }
    raw_request(&out, stream, ECHO_UNARY);
    raw_message(&out, RAW_END_STREAM, stream, 0, "x");
    struct seen s = talk(&world);
    assert_int_equal(s.grpc_status, SL_RPC_OK);
    assert_int_equal(world.echo.ended[SL_RPC_CANCELLED], 900);
}

static void too_many_streams(void **state)
{
    (void)state;
    begin();
    uint32_t stream = 1;
    for (int i = 0; i < 1100; i++, stream += 2) {
        raw_request(&out, stream, ECHO_NEVER);
        raw_message(&out, RAW_END_STREAM, stream, 0, "x");
    }
    (void)talk(&world);
    assert_int_equal(world.echo.ended[SL_RPC_CANCELLED],
                     1024); /* no more than that were ever open */
}

/* --- stopping, seen from outside ------------------------------------------------------------- */

static void note_stopped(struct sl_rpc_server *server, void *data)
{
    (void)server;
    ++*(unsigned *)data;
}

static void exchange(struct world *w, int fd, struct seen *s)
{
    static uint8_t in[65536];
    if (out.size)
        assert_int_equal(send(fd, out.data, out.size, MSG_NOSIGNAL), out.size);
    out.size = 0;
    world_settle(w);
    ssize_t n = recv(fd, in, sizeof(in), 0);
    *s = (struct seen){
        .grpc_status = -1, .http_status = -1, .reset = -1, .goaway = -1, .closed = n == 0};
    read_frames(in, n > 0 ? (size_t)n : 0, s);
}

static void a_request_that_crosses_the_goaway_is_served(void **state)
{
    (void)state;
    struct seen s;
    unsigned stopped = 0;
    int fd = world_raw(&world);
    new_inflater();
    begin();
    raw_request(&out, 1, ECHO_UNARY);
    raw_message(&out, RAW_END_STREAM, 1, 0, "x");
    exchange(&world, fd, &s);
    assert_int_equal(s.grpc_status, SL_RPC_OK);
    sl_rpc_server_stop(world.server, 60 * SL_NS_PER_S, note_stopped, &stopped);
    exchange(&world, fd, &s); /* the warning, and a ping to know when it was read */
    assert_int_equal(s.goaway, NGHTTP2_NO_ERROR);
    assert_int_equal(s.pings, 0);
    raw_request(&out, 3, ECHO_UNARY); /* sent before that was read */
    exchange(&world, fd, &s);
    assert_int_equal(s.goaway, -1);
    raw_frame(&out, RAW_PING, RAW_ACK, 0, "\0\0\0\0\0\0\0\0", 8);
    exchange(&world, fd, &s); /* now the last word, with one call still open */
    assert_int_equal(s.goaway, NGHTTP2_NO_ERROR);
    assert_int_equal(s.closed, 0);
    raw_request(&out, 5, ECHO_UNARY); /* too late: not looked at */
    raw_message(&out, RAW_END_STREAM, 5, 0, "x");
    raw_message(&out, RAW_END_STREAM, 3, 0, "x");
    exchange(&world, fd, &s);
    assert_int_equal(s.grpc_status, SL_RPC_OK);
    assert_int_equal(s.messages_bytes, 6);
    exchange(&world, fd, &s);
    assert_int_equal(s.closed, 1);
    world_until(&world, &stopped, 1);
    (void)close(fd);
    /* For close_world: a fresh server. */
    sl_rpc_client_destroy(world.client);
    sl_rpc_server_destroy(world.server);
    sl_loop_destroy(world.loop);
    world_open(&world, NULL, NULL, NULL);
}

/* A client that sets a deadline and does not keep it hears of it from the server. */
static void the_server_keeps_deadlines_by_itself(void **state)
{
    (void)state;
    struct world late;
    struct seen s;
    static const char *const pairs[] = {
        ":method",          "POST",         ":scheme", "http", ":path", ECHO_HELLO, "content-type",
        "application/grpc", "grpc-timeout", "1S",      NULL};
    world_open(&late, NULL, NULL, world_clock);
    int fd = world_raw(&late);
    new_inflater();
    begin();
    raw_headers(&out, 0, 1, pairs);
    raw_message(&out, RAW_END_STREAM, 1, 0, "x");
    exchange(&late, fd, &s);
    assert_int_equal(s.messages_bytes, 6);
    assert_int_equal(s.grpc_status, -1);
    world_now_ns += SL_NS_PER_S;
    exchange(&late, fd, &s); /* between messages: trailers */
    assert_int_equal(s.grpc_status, SL_RPC_DEADLINE_EXCEEDED);
    assert_int_equal(s.reset, -1);
    /* A window of nothing: the message cannot go out, so there is no clean end. */
    raw_frame(&out, RAW_SETTINGS, 0, 0, "\0\4\0\0\0\0", 6);
    raw_headers(&out, 0, 3, pairs);
    raw_message(&out, RAW_END_STREAM, 3, 0, "x");
    exchange(&late, fd, &s);
    assert_int_equal(s.messages_bytes, 0);
    world_now_ns += SL_NS_PER_S;
    exchange(&late, fd, &s);
    assert_int_equal(s.reset, NGHTTP2_CANCEL);
    /* A request that never becomes complete. */
    raw_headers(&out, 0, 5, pairs);
    exchange(&late, fd, &s);
    world_now_ns += SL_NS_PER_S;
    exchange(&late, fd, &s);
    assert_int_equal(s.grpc_status, SL_RPC_DEADLINE_EXCEEDED);
    (void)close(fd);
    world_settle(&late);
    assert_int_equal(late.echo.ended[SL_RPC_DEADLINE_EXCEEDED], 2); /* the third never began */
    world_close(&late);
}

/* --- a server that lies to our client -------------------------------------------------------- */

static enum sl_rpc_code hear(const char *const *headers, uint8_t flags, const char *data,
                             size_t size, const char *const *trailers, struct result *r)
{
    int pair[2];
    struct sl_rpc_client *client;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(sl_rpc_client_adopt(world.loop, pair[0], NULL, &client, NULL), 0);
    world_start(client, "/x", "", 0, SL_RPC_NO_TIMEOUT, &world_unary, r);
    world_settle(&world);
    out.size = 0;
    raw_frame(&out, RAW_SETTINGS, 0, 0, NULL, 0);
    if (headers)
        raw_headers(&out, flags, 1, headers);
    if (data)
        raw_frame(&out, RAW_DATA, trailers ? 0 : RAW_END_STREAM, 1, data, size);
    if (trailers)
        raw_headers(&out, RAW_END_STREAM, 1, trailers);
    assert_int_equal(send(pair[1], out.data, out.size, MSG_NOSIGNAL), out.size);
    world_settle(&world);
    if (!r->done) /* it waits for more: the server goes */
        (void)shutdown(pair[1], SHUT_RDWR);
    world_until(&world, &r->done, 1);
    sl_rpc_client_destroy(client);
    (void)close(pair[1]);
    world_settle(&world);
    return r->code;
}

static void answers_that_are_none(void **state)
{
    (void)state;
    struct result r;
    static const char *const ok[] = {":status", "200", "content-type", "application/grpc", NULL};
    static const char *const fine[] = {"grpc-status", "0", NULL};
    static const char *const odd[] = {"grpc-status", "99", "grpc-message", "%e2%82%ac", NULL};
    static const char *const nothing[] = {"x", "y", NULL};
    static const char one[] = "\0\0\0\0\1x";
    assert_int_equal(hear(ok, 0, one, 6, fine, &r), SL_RPC_OK);
    assert_int_equal(hear(ok, 0, one, 6, odd, &r), SL_RPC_UNKNOWN);
    assert_string_equal(r.text, "€");
    assert_int_equal(hear(ok, 0, one, 6, nothing, &r), SL_RPC_UNKNOWN);
    assert_int_equal(hear(ok, 0, one, 6, NULL, &r), SL_RPC_UNKNOWN);            /* no trailers */
    assert_int_equal(hear(ok, 0, one, 3, fine, &r), SL_RPC_INTERNAL);           /* cut short */
    assert_int_equal(hear(ok, 0, "\1\0\0\0\1x", 6, fine, &r), SL_RPC_INTERNAL); /* compressed */
    assert_int_equal(hear(ok, 0, "\0\0\0\0\1x\0\0\0\0\1x", 12, fine, &r), SL_RPC_UNIMPLEMENTED);
    assert_int_equal(
        hear((const char *const[]){":status", "404", NULL}, RAW_END_STREAM, NULL, 0, NULL, &r),
        SL_RPC_UNIMPLEMENTED);
    assert_int_equal(
        hear((const char *const[]){":status", "503", "content-type", "text/html", NULL}, 0,
             "<html>", 6, NULL, &r),
        SL_RPC_UNAVAILABLE);
    assert_int_equal(
        hear((const char *const[]){":status", "200", "content-type", "application/grpc",
                                   "grpc-status", "5", "grpc-message", "no%20such", NULL},
             RAW_END_STREAM, NULL, 0, NULL, &r),
        SL_RPC_NOT_FOUND); /* trailers only */
    assert_string_equal(r.text, "no such");
    assert_int_equal(hear(NULL, 0, NULL, 0, NULL, &r), SL_RPC_UNAVAILABLE); /* silence, then gone */
    assert_int_equal(hear(nothing, 0, NULL, 0, NULL, &r), SL_RPC_INTERNAL); /* no :status */
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)
    const struct CMUnitTest tests[] = {
        CASE(no_http2_at_all),
        CASE(a_good_request_by_hand),
        CASE(messages_that_are_none),
        CASE(requests_that_are_none),
        CASE(headers_without_end),
        CASE(broken_framing_ends_the_connection),
        CASE(floods_are_cut_off),
        CASE(too_many_streams),
        CASE(answers_that_are_none),
        CASE(a_request_that_crosses_the_goaway_is_served),
        CASE(the_server_keeps_deadlines_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
