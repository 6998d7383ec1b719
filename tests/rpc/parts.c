/* SPDX-License-Identifier: Apache-2.0 */
/* The parts by themselves: statuses, texts, timeouts, message framing, timers, sockets, and the
 * protocol buffers. */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include <nghttp2/nghttp2.h>

#include "../support/rng.h"
#include "base/clock.h"
#include "deviceplugin.pb-c.h"
#include "dra.pb-c.h"
#include "rpc/frame.h"
#include "rpc/pb.h"
#include "rpc/unix.h"

static void codes_have_names_and_numbers(void **state)
{
    (void)state;
    assert_string_equal(sl_rpc_code_name(SL_RPC_OK), "OK");
    assert_string_equal(sl_rpc_code_name(SL_RPC_UNAUTHENTICATED), "UNAUTHENTICATED");
    assert_string_equal(sl_rpc_code_name((enum sl_rpc_code)17), "UNKNOWN");
    static const struct {
        const char *text;
        enum sl_rpc_code code;
    } cases[] = {{"0", SL_RPC_OK},
                 {"4", SL_RPC_DEADLINE_EXCEEDED},
                 {"16", SL_RPC_UNAUTHENTICATED},
                 {"17", SL_RPC_UNKNOWN},
                 {"", SL_RPC_UNKNOWN},
                 {"-1", SL_RPC_UNKNOWN},
                 {"1x", SL_RPC_UNKNOWN},
                 {"012", SL_RPC_UNKNOWN},
                 {"256", SL_RPC_UNKNOWN}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(sl_rpc_code_parse((const uint8_t *)cases[i].text, strlen(cases[i].text)),
                         cases[i].code);
    assert_int_equal(sl_rpc_code_from_errno(0), SL_RPC_OK);
    assert_int_equal(sl_rpc_code_from_errno(-ENOMEM), SL_RPC_RESOURCE_EXHAUSTED);
    assert_int_equal(sl_rpc_code_from_errno(-ENXIO), SL_RPC_INTERNAL);
    assert_int_equal(sl_rpc_code_from_http(404), SL_RPC_UNIMPLEMENTED);
    assert_int_equal(sl_rpc_code_from_http(503), SL_RPC_UNAVAILABLE);
    assert_int_equal(sl_rpc_code_from_http(500), SL_RPC_UNKNOWN);
    assert_int_equal(sl_rpc_code_from_h2(NGHTTP2_CANCEL), SL_RPC_CANCELLED);
    assert_int_equal(sl_rpc_code_from_h2(NGHTTP2_REFUSED_STREAM), SL_RPC_UNAVAILABLE);
}

static void texts_survive_percent_encoding(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "plain",
                                        "100% of it",
                                        "tab\tnewline\n",
                                        "Grüße, 世界",
                                        "%41 is not A",
                                        "~ is plain, \x7f is not"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char wire[256], back[256];
        size_t n = sl_rpc_text_encode(texts[i], wire, sizeof(wire));
        assert_int_equal(n, strlen(wire));
        for (size_t k = 0; k < n; k++)
            assert_in_range(wire[k], 0x20, 0x7e);
        sl_rpc_text_decode((const uint8_t *)wire, n, back, sizeof(back));
        assert_string_equal(back, texts[i]);
    }
    char out[8];
    assert_int_equal(sl_rpc_text_encode("\n\n\n", out, sizeof(out)), 6);
    assert_string_equal(out, "%0A%0A"); /* no half escape */
    sl_rpc_text_decode((const uint8_t *)"a%4", 3, out, sizeof(out));
    assert_string_equal(out, "a%4");
    sl_rpc_text_decode((const uint8_t *)"%00%zz", 6, out, sizeof(out));
    assert_string_equal(out, "?%zz");
    sl_rpc_text_decode((const uint8_t *)"0123456789", 10, out, sizeof(out));
    assert_string_equal(out, "0123456");
}

static bool parse_timeout(const char *text, uint64_t *ret)
{
    return sl_rpc_timeout_parse((const uint8_t *)text, strlen(text), ret);
}

static void timeouts_parse_and_print(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"1n", 1},
                {"0S", 0},
                {"250m", 250000000},
                {"45S", 45000000000},
                {"1M", 60000000000},
                {"2H", 7200000000000},
                {"99999999u", 99999999000},
                {"99999999H", SL_RPC_NO_TIMEOUT}};
    uint64_t ns = 0;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(parse_timeout(good[i].text, &ns));
        assert_int_equal(ns, good[i].ns);
    }
    static const char *const bad[] = {"",     "S",          "1",   "-1S", "1s",
                                      "1.5S", "123456789S", "1 S", "S1",  "1SS"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(parse_timeout(bad[i], &ns));
    struct rng r = {7};
    for (int i = 0; i < 20000; i++) {
        uint64_t want = rng_next(&r) >> rng_below(&r, 64);
        char text[SL_RPC_TIMEOUT_TEXT];
        sl_rpc_timeout_format(want, text);
        assert_true(parse_timeout(text, &ns));
        assert_true(ns >= want); /* never early, and hardly late */
        assert_true(ns == SL_RPC_NO_TIMEOUT || ns - want <= want / 90000);
    }
}

static void messages_come_together_from_any_pieces(void **state)
{
    (void)state;
    struct rng rng = {11};
    for (int round = 0; round < 200; round++) {
        uint8_t wire[4096];
        size_t sizes[8], used = 0;
        for (int i = 0; i < 8; i++) {
            sizes[i] = rng_below(&rng, 4) ? rng_below(&rng, 400) : 0;
            sl_rpc_prefix_write(wire + used, (uint32_t)sizes[i]);
            memset(wire + used + SL_RPC_PREFIX, 'a' + i, sizes[i]);
            used += SL_RPC_PREFIX + sizes[i];
        }
        struct sl_rpc_reader r = {.max_bytes = 400};
        int got = 0;
        for (size_t at = 0; at < used;) {
            size_t piece = 1 + rng_below(&rng, 600);
            if (piece > used - at)
                piece = used - at;
            const uint8_t *data = wire + at;
            size_t left = piece;
            int rc;
            while ((rc = sl_rpc_reader_feed(&r, &data, &left, NULL)) == 1) {
                assert_int_equal(r.have, sizes[got]);
                for (size_t k = 0; k < r.have; k++)
                    assert_int_equal(r.body[k], 'a' + got);
                got++;
                sl_rpc_reader_next(&r);
            }
            assert_int_equal(rc, 0);
            assert_int_equal(left, 0);
            at += piece;
        }
        assert_int_equal(got, 8);
        assert_true(sl_rpc_reader_idle(&r));
    }
}

static int feed(struct sl_rpc_reader *r, const char *bytes, size_t size, struct sl_err *err)
{
    const uint8_t *data = (const uint8_t *)bytes;
    return sl_rpc_reader_feed(r, &data, &size, err);
}

static void bad_prefixes_are_refused(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_rpc_reader r = {.max_bytes = 100};
    assert_int_equal(feed(&r, "\1\0\0\0\1x", 6, &err), -EOPNOTSUPP);
    r = (struct sl_rpc_reader){.max_bytes = 100};
    assert_int_equal(feed(&r, "\2\0\0\0\1x", 6, &err), -EPROTO);
    r = (struct sl_rpc_reader){.max_bytes = 100};
    assert_int_equal(feed(&r, "\0\0\0\0\x65", 5, &err), -EMSGSIZE);
    /* A long message that is only announced costs nothing. */
    r = (struct sl_rpc_reader){.max_bytes = UINT32_MAX};
    assert_int_equal(feed(&r, "\0\xff\xff\xff\xffx", 6, &err), 0);
    assert_true(r.capacity < 100);
    assert_false(sl_rpc_reader_idle(&r));
    sl_rpc_reader_next(&r);
}

struct tick {
    struct sl_timer timer;
    int order;
};
static int fired;

static void fires(struct sl_timer *timer)
{
    ((struct tick *)timer)->order = ++fired;
}

static void timers_fire_in_order(void **state)
{
    (void)state;
    struct sl_loop *loop;
    assert_int_equal(sl_loop_create(world_clock, &loop, NULL), 0);
    struct tick t[5] = {0};
    static const uint64_t at[] = {50, 10, 30, 10, 40};
    fired = 0;
    uint64_t start = world_now_ns;
    for (int i = 0; i < 5; i++) {
        t[i].timer.fire = fires;
        sl_timer_set(loop, &t[i].timer, start + at[i]);
    }
    sl_timer_stop(loop, &t[4].timer);
    sl_timer_stop(loop, &t[4].timer);
    world_now_ns = start + 9;
    assert_int_equal(sl_loop_step(loop, 0, NULL), 0);
    assert_int_equal(fired, 0);
    world_now_ns = start + 30;
    assert_int_equal(sl_loop_step(loop, 0, NULL), 0);
    assert_int_equal(t[1].order, 1);
    assert_int_equal(t[3].order, 2);
    assert_int_equal(t[2].order, 3);
    world_now_ns = start + 100;
    assert_int_equal(sl_loop_step(loop, 0, NULL), 0);
    assert_int_equal(t[0].order, 4);
    assert_int_equal(t[4].order, 0);
    sl_loop_destroy(loop);
    /* On the real clock the loop wakes up by itself. */
    assert_int_equal(sl_loop_create(NULL, &loop, NULL), 0);
    t[0].order = 0;
    sl_timer_set(loop, &t[0].timer, sl_loop_now(loop) + 20 * SL_NS_PER_MS);
    while (!t[0].order)
        assert_int_equal(sl_loop_step(loop, -1, NULL), 0);
    sl_loop_destroy(loop);
}

static void sockets_replace_sockets_only(void **state)
{
    (void)state;
    char dir[] = "/tmp/sluice-rpc-XXXXXX", path[64], other[200];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/s", dir);
    struct sl_rpc_unix a, b;
    struct sl_err err = SL_ERR_INIT;
    struct stat st;
    assert_int_equal(sl_rpc_unix_listen(path, 0600, &a, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(sl_rpc_unix_listen(path, 0666, &b, &err), 0); /* a newer instance */
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0666);
    sl_rpc_unix_close(&a); /* leaves the newer one's file alone */
    int fd = sl_rpc_unix_connect(path, &err);
    assert_true(fd >= 0);
    (void)close(fd);
    sl_rpc_unix_close(&b);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(sl_rpc_unix_connect(path, &err), -ENOENT);

    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(sl_rpc_unix_listen(path, 0600, &a, &err), -EEXIST);
    assert_int_equal(unlink(path), 0);
    memset(other, 'x', sizeof(other) - 1);
    other[sizeof(other) - 1] = '\0';
    assert_int_equal(sl_rpc_unix_listen(other, 0600, &a, &err), -ENAMETOOLONG);
    assert_int_equal(sl_rpc_unix_connect(other, &err), -ENAMETOOLONG);
    assert_int_equal(rmdir(dir), 0);
}

static void protocol_buffers_pack_and_refuse(void **state)
{
    (void)state;
    /* Bytes written by hand: field 1 of the request is a claim {namespace, uid, name}. */
    static const uint8_t wire[] = "\x0a\x0b\x0a\x02ns\x12\x02id\x1a\x01n";
    ProtobufCMessage *m = NULL;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_rpc_pb_unpack(&dra__node_prepare_resources_request__descriptor, wire,
                                      sizeof(wire) - 1, &m, &err),
                     0);
    const Dra__NodePrepareResourcesRequest *req = (const void *)m;
    assert_int_equal(req->n_claims, 1);
    assert_string_equal(req->claims[0]->namespace_, "ns");
    assert_string_equal(req->claims[0]->uid, "id");
    assert_string_equal(req->claims[0]->name, "n");
    uint8_t out[64];
    assert_int_equal(protobuf_c_message_pack(m, out), sizeof(wire) - 1);
    assert_memory_equal(out, wire, sizeof(wire) - 1);
    sl_rpc_pb_free(m);
    assert_int_equal(
        sl_rpc_pb_unpack(&dra__node_prepare_resources_request__descriptor, wire, 5, &m, &err),
        -EBADMSG);
    sl_rpc_pb_free(NULL);

    /* Two bytes on the wire, a struct in memory: 3 million of them are refused, not unpacked. */
    size_t size = 6 * 1024 * 1024;
    uint8_t *many = calloc(1, size);
    assert_non_null(many);
    for (size_t i = 0; i < size; i += 2)
        many[i] = 0x0a;
    assert_int_equal(
        sl_rpc_pb_unpack(&dp__list_and_watch_response__descriptor, many, size, &m, &err), -EBADMSG);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_have_names_and_numbers),
        cmocka_unit_test(texts_survive_percent_encoding),
        cmocka_unit_test(timeouts_parse_and_print),
        cmocka_unit_test(messages_come_together_from_any_pieces),
        cmocka_unit_test(bad_prefixes_are_refused),
        cmocka_unit_test(timers_fire_in_order),
        cmocka_unit_test(sockets_replace_sockets_only),
        cmocka_unit_test(protocol_buffers_pack_and_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
