/* SPDX-License-Identifier: Apache-2.0 */
/* Our client and our server, in one process: every way a call can go and end. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "rpc/rpc_internal.h"

enum { MIB = 1024 * 1024 };

static void unary_echoes_every_size(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    world_open(&w, NULL, NULL, NULL);
    static const size_t sizes[] = {0, 1, 5, 16379, 16384, 65536, 300000, 4 * MIB};
    char *message = malloc(4 * MIB);
    assert_non_null(message);
    memset(message, 'm', 4 * MIB);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(world_call(&w, ECHO_UNARY, message, sizes[i], &r), SL_RPC_OK);
        assert_int_equal(r.messages, 1);
        assert_int_equal(r.bytes, sizes[i]);
    }
    free(message);
    world_close(&w);
}

static void too_long_messages_are_refused(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    struct sl_rpc_limits small = {.max_message_bytes = 1000};
    char *message = calloc(1, 5 * MIB);
    assert_non_null(message);
    world_open(&w, NULL, &small, NULL);
    /* By the server, as soon as it knows the length. */
    assert_int_equal(world_call(&w, ECHO_UNARY, message, 4 * MIB + 1, &r),
                     SL_RPC_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.text, "4194305"));
    /* By the client: the answer is too long for it. */
    assert_int_equal(world_call(&w, ECHO_UNARY, message, 1001, &r), SL_RPC_RESOURCE_EXHAUSTED);
    assert_int_equal(r.messages, 0);
    /* The connection is none the worse. */
    assert_int_equal(world_call(&w, ECHO_UNARY, message, 1000, &r), SL_RPC_OK);
    world_close(&w);
    free(message);
}

static void failures_carry_code_and_text(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    world_open(&w, NULL, NULL, NULL);
    for (unsigned code = 1; code <= 16; code++) {
        char request[64];
        int n = snprintf(request, sizeof(request), "%cno: 100%% grün\nzweite", (char)code);
        assert_int_equal(world_call(&w, ECHO_FAIL, request, (size_t)n, &r), code);
        assert_string_equal(r.text, request + 1);
        assert_int_equal(r.messages, 0);
    }
    char text[512] = "\5";
    memset(text + 1, '\n', 510);
    assert_int_equal(world_call(&w, ECHO_FAIL, text, 511, &r), SL_RPC_NOT_FOUND);
    assert_string_equal(r.text, text + 1);
    assert_int_equal(world_call(&w, "/test.Echo/Nothing", "", 0, &r), SL_RPC_UNIMPLEMENTED);
    assert_int_equal(world_call(&w, "/", "", 0, &r), SL_RPC_UNIMPLEMENTED);
    world_close(&w);
}

static void the_number_of_answers_is_checked(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    uint8_t request[8];
    world_open(&w, NULL, NULL, NULL);
    assert_int_equal(world_call(&w, ECHO_NONE, "", 0, &r), SL_RPC_UNIMPLEMENTED);
    world_stream_request(request, 2, 10);
    assert_int_equal(world_call(&w, ECHO_STREAM, request, 8, &r), SL_RPC_UNIMPLEMENTED);
    assert_int_equal(r.messages, 1);
    /* A stream may have none. */
    world_start(w.client, ECHO_NONE, "", 0, SL_RPC_NO_TIMEOUT, &world_stream, &r);
    world_until(&w, &r.done, 1);
    assert_int_equal(r.code, SL_RPC_OK);
    world_close(&w);
}

static void streams_deliver_everything_in_order(void **state)
{
    (void)state;
    struct world w;
    struct result r[4];
    static const struct {
        uint32_t count, size;
    } shape[4] = {{0, 0}, {5000, 0}, {3000, 4}, {20, 2 * MIB}};
    world_open(&w, NULL, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        uint8_t request[8];
        world_stream_request(request, shape[i].count, shape[i].size);
        world_start(w.client, ECHO_STREAM, request, 8, SL_RPC_NO_TIMEOUT, &world_stream, &r[i]);
    }
    for (int i = 0; i < 4; i++) {
        world_until(&w, &r[i].done, 1);
        assert_int_equal(r[i].code, SL_RPC_OK);
        assert_int_equal(r[i].messages, shape[i].count);
        assert_int_equal(r[i].bytes, (size_t)shape[i].count * shape[i].size);
    }
    world_settle(&w);
    assert_int_equal(w.echo.ended[SL_RPC_OK], 4);
    world_close(&w);
}

static void a_deadline_ends_the_call_at_both_ends(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    world_open(&w, NULL, NULL, world_clock);
    world_start(w.client, ECHO_NEVER, "", 0, 10 * SL_NS_PER_MS, &world_unary, &r);
    world_settle(&w);
    assert_int_equal(w.echo.open, 1);
    world_now_ns += 10 * SL_NS_PER_MS - 1;
    world_settle(&w);
    assert_int_equal(r.done, 0);
    world_now_ns += 1;
    world_settle(&w);
    assert_int_equal(r.done, 1);
    assert_int_equal(r.code, SL_RPC_DEADLINE_EXCEEDED);
    assert_int_equal(w.echo.open, 0); /* cancelled, or past its deadline: both timers were due */
    assert_int_equal(w.echo.ended[SL_RPC_DEADLINE_EXCEEDED] + w.echo.ended[SL_RPC_CANCELLED], 1);
    assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r), SL_RPC_OK);
    world_close(&w);
}

static void the_server_keeps_a_deadline_by_itself(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    world_open(&w, NULL, NULL, world_clock);
    /* No time at all: the handler is not even asked. */
    world_start(w.client, ECHO_NEVER, "", 0, 0, &world_unary, &r);
    world_settle(&w);
    assert_int_equal(r.code, SL_RPC_DEADLINE_EXCEEDED);
    assert_int_equal(w.echo.ended[SL_RPC_DEADLINE_EXCEEDED], 0);
    /* A client that keeps no deadline hears of it from the server, in trailers. */
    world_start(w.client, ECHO_HELLO, "hi", 2, SL_NS_PER_S, &world_stream, &r);
    world_settle(&w);
    assert_int_equal(r.messages, 1);
    assert_int_equal(w.echo.open, 1);
    world_now_ns += SL_NS_PER_S;
    world_settle(&w);
    assert_int_equal(r.done, 1);
    assert_int_equal(w.echo.open, 0);
    world_close(&w);
}

static void a_cancelled_call_ends_on_the_server(void **state)
{
    (void)state;
    struct world w;
    struct result r, other;
    world_open(&w, NULL, NULL, NULL);
    world_start(w.client, ECHO_HELLO, "hi", 2, SL_RPC_NO_TIMEOUT, &world_stream, &r);
    world_start(w.client, ECHO_NEVER, "", 0, SL_RPC_NO_TIMEOUT, &world_unary, &other);
    world_until(&w, &w.echo.open, 2);
    sl_rpc_call_cancel(r.call);
    world_until(&w, &w.echo.ended[SL_RPC_CANCELLED], 1);
    assert_int_equal(r.done, 0);
    assert_int_equal(other.done, 0);
    assert_int_equal(w.echo.open, 1);
    /* Before a byte of it was sent. */
    world_start(w.client, ECHO_NEVER, "", 0, SL_RPC_NO_TIMEOUT, &world_unary, &r);
    sl_rpc_call_cancel(r.call);
    assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r), SL_RPC_OK);
    assert_int_equal(w.echo.open, 1);
    world_close(&w);
    assert_int_equal(other.done, 1);
    assert_int_equal(other.code, SL_RPC_CANCELLED);
}

static struct sl_rpc_call *held;

static void hold(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    static uint8_t block[100000];
    (void)msg;
    (void)size;
    unsigned *asked = data;
    for (uint8_t i = 0; i < 10; i++) {
        block[3] = i;
        assert_int_equal(sl_rpc_call_send(call, block, sizeof(block), NULL), 0);
    }
    held = call;
    ++*asked;
}

static void a_server_may_cancel_too(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    unsigned asked = 0;
    world_open(&w, NULL, NULL, NULL);
    assert_int_equal(sl_rpc_server_handle(w.server, "/test/Hold", hold, &asked, NULL), 0);
    world_start(w.client, "/test/Hold", "", 0, SL_RPC_NO_TIMEOUT, &world_stream, &r);
    sl_rpc_call_pause(r.call); /* in the middle of a message, with more behind it */
    world_until(&w, &asked, 1);
    world_settle(&w);
    assert_true(held->queued > 0);
    sl_rpc_call_cancel(held);
    world_until(&w, &r.done, 1);
    assert_int_equal(r.code, SL_RPC_CANCELLED);
    assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r), SL_RPC_OK);
    world_close(&w);
}

static void a_thousand_calls_at_once(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct world w;
    struct result *r = calloc(N + 1, sizeof(*r));
    assert_non_null(r);
    struct sl_rpc_limits narrow = {.max_streams = 100};
    for (int round = 0; round < 2; round++) { /* the second time 900 of them wait for a stream */
        world_open(&w, round ? &narrow : NULL, NULL, NULL);
        for (int i = 0; i < N; i++) {
            char text[32];
            int n = snprintf(text, sizeof(text), "call %d", i);
            world_start(w.client, ECHO_UNARY, text, (size_t)n, 60 * SL_NS_PER_S, &world_unary,
                        &r[i]);
        }
        for (int i = 0; i < N; i++) {
            char text[32];
            (void)snprintf(text, sizeof(text), "call %d", i);
            world_until(&w, &r[i].done, 1);
            assert_int_equal(r[i].code, SL_RPC_OK);
            assert_string_equal(r[i].last, text);
        }
        world_settle(&w);
        for (int i = 0; i < N; i++)
            world_start(w.client, ECHO_NEVER, "", 0, SL_RPC_NO_TIMEOUT, &world_unary, &r[i]);
        world_until(&w, &w.echo.open, round ? 100 : N);
        for (int i = 0; i < N; i++)
            sl_rpc_call_cancel(r[i].call);
        world_settle(&w);
        assert_int_equal(w.echo.open, 0);
        assert_int_equal(world_call(&w, ECHO_UNARY, "x", 1, &r[0]), SL_RPC_OK);
        world_close(&w);
    }
    free(r);
}

static void too_many_calls_are_refused(void **state)
{
    (void)state;
    struct world w;
    struct result r[3];
    struct sl_rpc_limits two = {.max_streams = 2};
    struct sl_err err = SL_ERR_INIT;
    world_open(&w, NULL, &two, NULL);
    for (int i = 0; i < 2; i++)
        world_start(w.client, ECHO_NEVER, "", 0, SL_RPC_NO_TIMEOUT, &world_unary, &r[i]);
    assert_int_equal(sl_rpc_client_call(w.client, ECHO_UNARY, "", 0, SL_RPC_NO_TIMEOUT,
                                        &world_unary, &r[2], &r[2].call, &err),
                     -EAGAIN);
    world_close(&w);
    assert_int_equal(r[0].done + r[1].done, 2);
}

static void the_loop_lives_inside_another(void **state)
{
    (void)state;
    struct world w;
    struct result echoed, late;
    world_open(&w, NULL, NULL, NULL);
    int outer = epoll_create1(EPOLL_CLOEXEC);
    assert_true(outer >= 0);
    struct epoll_event e = {.events = EPOLLIN};
    assert_int_equal(epoll_ctl(outer, EPOLL_CTL_ADD, sl_loop_fd(w.loop), &e), 0);
    world_start(w.client, ECHO_UNARY, "x", 1, SL_RPC_NO_TIMEOUT, &world_unary, &echoed);
    world_start(w.client, ECHO_NEVER, "", 0, 50 * SL_NS_PER_MS, &world_unary, &late);
    while (!echoed.done || !late.done) { /* only ever stepped when the outer loop says so */
        assert_int_equal(epoll_wait(outer, &e, 1, 10000), 1);
        world_step(&w, 0);
    }
    assert_int_equal(echoed.code, SL_RPC_OK);
    assert_int_equal(late.code, SL_RPC_DEADLINE_EXCEEDED);
    while (epoll_wait(outer, &e, 1, 0) == 1)
        world_step(&w, 0);
    assert_int_equal(w.echo.open, 0); /* and it falls silent */
    (void)close(outer);
    world_close(&w);
}

static void any_authority_is_accepted(void **state)
{
    (void)state;
    static const char *const names[] = {"localhost", "%2Fvar%2Flib%2Fx.sock",
                                        "/var/lib/kubelet/plugins_registry/x-reg.sock", "", "a b"};
    struct world w;
    world_open(&w, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct result r;
        struct sl_rpc_client *c = world_client(&w, NULL, names[i]);
        world_start(c, ECHO_UNARY, "x", 1, SL_RPC_NO_TIMEOUT, &world_unary, &r);
        world_until(&w, &r.done, 1);
        assert_int_equal(r.code, SL_RPC_OK);
        sl_rpc_client_destroy(c);
    }
    world_close(&w);
}

static void a_lost_peer_ends_its_calls(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    world_open(&w, NULL, NULL, NULL);
    /* The client goes. */
    struct sl_rpc_client *c = world_client(&w, NULL, NULL);
    world_start(c, ECHO_NEVER, "", 0, SL_RPC_NO_TIMEOUT, &world_unary, &r);
    world_until(&w, &w.echo.open, 1);
    sl_rpc_client_destroy(c);
    assert_int_equal(r.code, SL_RPC_CANCELLED);
    world_until(&w, &w.echo.ended[SL_RPC_CANCELLED], 1);
    assert_int_equal(sl_rpc_server_conns(w.server), 1);
    /* The server goes. */
    world_start(w.client, ECHO_NEVER, "", 0, SL_RPC_NO_TIMEOUT, &world_unary, &r);
    world_until(&w, &w.echo.open, 1);
    sl_rpc_server_destroy(w.server);
    w.server = NULL;
    world_until(&w, &r.done, 1);
    assert_int_equal(r.code, SL_RPC_UNAVAILABLE);
    world_until(&w, &w.closed, 1);
    assert_false(sl_rpc_client_usable(w.client));
    assert_int_equal(sl_rpc_client_call(w.client, ECHO_UNARY, "", 0, SL_RPC_NO_TIMEOUT,
                                        &world_unary, &r, NULL, NULL),
                     -ESHUTDOWN);
    world_close(&w);
}

/* --- destroying things in the callbacks that are about them --------------------------------- */

static struct world *doomed;

static void destroy_client_message(struct sl_rpc_call *call, const uint8_t *msg, size_t size,
                                   void *data)
{
    (void)call;
    (void)msg;
    (void)size;
    (void)data;
    sl_rpc_client_destroy(doomed->client);
    doomed->client = NULL;
}

static void destroy_client_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *text,
                                void *data)
{
    (void)call;
    (void)code;
    (void)text;
    ++*(unsigned *)data;
    sl_rpc_client_destroy(doomed->client);
    doomed->client = NULL;
}

static void destroy_server(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg;
    (void)size;
    (void)data;
    sl_rpc_server_destroy(doomed->server);
    doomed->server = NULL;
    sl_rpc_call_finish(call, SL_RPC_OK, NULL); /* harmless, if pointless */
}

static void everything_may_go_in_its_own_callbacks(void **state)
{
    (void)state;
    static const struct sl_rpc_call_ops at_message = {.message = destroy_client_message,
                                                      .done = destroy_client_done};
    static const struct sl_rpc_call_ops at_done = {.done = destroy_client_done};
    for (int i = 0; i < 3; i++) {
        struct world w;
        struct result r, never;
        unsigned done = 0;
        uint8_t request[8];
        world_open(&w, NULL, NULL, NULL);
        doomed = &w;
        world_stream_request(request, 100, 100);
        if (i < 2) {
            assert_int_equal(sl_rpc_client_call(w.client, ECHO_STREAM, request, 8,
                                                SL_RPC_NO_TIMEOUT, i ? &at_done : &at_message,
                                                &done, NULL, NULL),
                             0);
            world_until(&w, &done, 1);
        } else {
            assert_int_equal(
                sl_rpc_server_handle(w.server, "/test/End", destroy_server, NULL, NULL), 0);
            world_start(w.client, ECHO_NEVER, "", 0, SL_RPC_NO_TIMEOUT, &world_unary, &never);
            world_call(&w, "/test/End", "", 0, &r);
            assert_int_equal(r.code, SL_RPC_UNAVAILABLE);
            assert_int_equal(never.code, SL_RPC_UNAVAILABLE);
        }
        world_settle(&w);
        world_close(&w);
    }
}

static void a_server_out_of_descriptors_comes_back(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    struct sl_rpc_client *c;
    struct sl_err err = SL_ERR_INIT;
    struct rlimit old, tight;
    char dir[] = "/tmp/sluice-rpc-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/s", dir);
    world_open(&w, NULL, NULL, world_clock);
    assert_int_equal(sl_rpc_server_listen(w.server, path, 0600, &err), 0);
    assert_int_equal(sl_rpc_client_connect(w.loop, path, NULL, &c, &err), 0);
    world_start(c, ECHO_UNARY, "x", 1, SL_RPC_NO_TIMEOUT, &world_unary, &r);
    int next = dup(0);
    assert_true(next > 0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    tight = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    world_settle(&w); /* returns: it is not a busy loop */
    assert_int_equal(r.done, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    world_now_ns += SL_NS_PER_S;
    world_settle(&w);
    assert_int_equal(r.done, 1);
    assert_int_equal(r.code, SL_RPC_OK);
    sl_rpc_client_destroy(c);
    world_close(&w);
    assert_int_equal(rmdir(dir), 0);
}

static void listening_sockets_serve(void **state)
{
    (void)state;
    struct world w;
    struct result r;
    struct sl_rpc_client *c[3];
    struct sl_err err = SL_ERR_INIT;
    struct sl_rpc_limits limits = {.max_conns = 3}; /* one is the world's own */
    char dir[] = "/tmp/sluice-rpc-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/s", dir);
    world_open(&w, &limits, NULL, NULL);
    assert_int_equal(sl_rpc_server_listen(w.server, path, 0600, &err), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sl_rpc_client_connect(w.loop, path, NULL, &c[i], &err), 0);
    for (int i = 0; i < 2; i++) {
        world_start(c[i], ECHO_UNARY, "x", 1, SL_RPC_NO_TIMEOUT, &world_unary, &r);
        world_until(&w, &r.done, 1);
        assert_int_equal(r.code, SL_RPC_OK);
    }
    world_settle(&w);
    assert_false(sl_rpc_client_usable(c[2])); /* turned away */
    sl_rpc_client_destroy(c[2]);

    /* Somebody removes the file, as kubelet does when it starts: listen again, old peers stay. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(sl_rpc_client_connect(w.loop, path, NULL, &c[2], &err), -ENOENT);
    assert_int_equal(sl_rpc_server_listen(w.server, path, 0600, &err), 0);
    world_start(c[0], ECHO_UNARY, "x", 1, SL_RPC_NO_TIMEOUT, &world_unary, &r);
    world_until(&w, &r.done, 1);
    assert_int_equal(r.code, SL_RPC_OK);
    sl_rpc_client_destroy(c[1]);
    world_settle(&w);
    assert_int_equal(sl_rpc_client_connect(w.loop, path, NULL, &c[1], &err), 0);
    world_start(c[1], ECHO_UNARY, "x", 1, SL_RPC_NO_TIMEOUT, &world_unary, &r);
    world_until(&w, &r.done, 1);
    assert_int_equal(r.code, SL_RPC_OK);
    for (int i = 0; i < 2; i++)
        sl_rpc_client_destroy(c[i]);
    world_close(&w);
    assert_int_equal(rmdir(dir), 0); /* the socket went with the server */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_echoes_every_size),
        cmocka_unit_test(too_long_messages_are_refused),
        cmocka_unit_test(failures_carry_code_and_text),
        cmocka_unit_test(the_number_of_answers_is_checked),
        cmocka_unit_test(streams_deliver_everything_in_order),
        cmocka_unit_test(a_deadline_ends_the_call_at_both_ends),
        cmocka_unit_test(the_server_keeps_a_deadline_by_itself),
        cmocka_unit_test(a_cancelled_call_ends_on_the_server),
        cmocka_unit_test(a_server_may_cancel_too),
        cmocka_unit_test(a_thousand_calls_at_once),
        cmocka_unit_test(too_many_calls_are_refused),
        cmocka_unit_test(the_loop_lives_inside_another),
        cmocka_unit_test(any_authority_is_accepted),
        cmocka_unit_test(a_lost_peer_ends_its_calls),
        cmocka_unit_test(everything_may_go_in_its_own_callbacks),
        cmocka_unit_test(listening_sockets_serve),
        cmocka_unit_test(a_server_out_of_descriptors_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
