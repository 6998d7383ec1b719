/* SPDX-License-Identifier: Apache-2.0 */
/* Single requests: answers of every kind, and none. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct result {
    unsigned count;
    int status;
    struct sl_err err;
    json_t *body;
};

static void done(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct result *r = data;
    r->count++;
    r->status = status;
    r->err = *err;
    json_decref(r->body);
    r->body = json_incref(body);
}

static struct fake fake;
static struct sl_kube *kube;
static char last_head[4096], last_body[4096], last_method[16];
static unsigned held; /* connections with a request that gets no answer */
static struct fake_conn *holding[8];

static void handle(void *data, struct fake_conn *c, const char *method, const char *path,
                   const char *head, const char *body)
{
    (void)data;
    (void)snprintf(last_head, sizeof(last_head), "%s", head);
    (void)snprintf(last_body, sizeof(last_body), "%s", body);
    (void)snprintf(last_method, sizeof(last_method), "%s", method);
    if (strcmp(path, "/ok") == 0)
        fake_answer(c, 200, "{\"a\":1}");
    else if (strcmp(path, "/bytes") == 0) {
        fake_text(c, "HTTP/1.1 200 OK\r\nContent-Type: " SL_KUBE_PROTOBUF
                     "\r\nContent-Length: 6\r\n\r\n");
        fake_send(c, "k8s\0{\xff", 6);
    } else if (strcmp(path, "/none") == 0)
        fake_text(c, "HTTP/1.1 204 No Content\r\n\r\n");
    else if (strcmp(path, "/plain") == 0)
        fake_text(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok");
    else if (strcmp(path, "/missing") == 0)
        fake_answer(
            c, 404,
            "{\"kind\":\"Status\",\"message\":\"pods \\\"x\\\" not\\nfound\",\"code\":404}");
    else if (strcmp(path, "/broken") == 0)
        fake_answer(c, 500, "<html>");
    else if (strcmp(path, "/notjson") == 0)
        fake_answer(c, 200, "{\"a\":");
    else if (strcmp(path, "/moved") == 0)
        fake_text(
            c, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
    else if (strcmp(path, "/half") == 0) {
        fake_text(
            c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
        fake_cut(c);
    } else if (strcmp(path, "/cut") == 0)
        fake_cut(c);
    else if (strcmp(path, "/hold") == 0) {
        if (held < 8)
            holding[held] = c;
        held++;
    } else if (strcmp(path, "/endless") == 0) {
        static char block[1 << 20];
        memset(block, ' ', sizeof(block));
        fake_text(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n");
        for (int i = 0; i < 66; i++)
            fake_send(c, block, sizeof(block));
    }
}

static int setup(void **state)
{
    (void)state;
    world_open();
    fake = (struct fake){.handle = handle};
    fake_open(&fake, 0);
    kube = world_kube(&fake, 0);
    held = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_kube_destroy(kube);
    fake_close(&fake);
    world_close();
    return 0;
}

static struct result get(const char *method, const char *path, json_t *body, const char *type)
{
    struct result r = {0};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_kube_request(kube, method, path, type, body, done, &r, NULL, &err), 0);
    assert_int_equal(r.count, 0);
    world_until(&r.count, 1, 0);
    return r;
}

static void answers(void **state)
{
    (void)state;
    struct result r = get("GET", "/ok", NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.err.code, 0);
    assert_int_equal(json_integer_value(json_object_get(r.body, "a")), 1);
    assert_null(strstr(last_head, "Authorization"));
    json_decref(r.body);
    r = get("DELETE", "/none", NULL, NULL);
    assert_int_equal(r.status, 204);
    assert_int_equal(r.err.code, 0);
    assert_null(r.body);
    assert_string_equal(last_method, "DELETE");
    r = get("GET", "/plain", NULL, NULL);
    assert_string_equal(json_string_value(r.body), "ok");
    json_decref(r.body);
    json_t *patch = json_pack("{s:s}", "k", "v");
    r = get("PATCH", "/ok", patch, SL_KUBE_PATCH_MERGE);
    assert_int_equal(r.status, 200);
    assert_string_equal(last_body, "{\"k\":\"v\"}");
    assert_string_equal(last_method, "PATCH");
    assert_non_null(strstr(last_head, "Content-Type: application/merge-patch+json\r\n"));
    json_decref(r.body);
    json_decref(patch);
    assert_int_equal(fake.accepted, 1); /* all on one connection */
}

struct bytes_result {
    unsigned count;
    int status;
    struct sl_err err;
    uint8_t bytes[128];
    size_t size;
};

static void bytes_done(void *data, int status, const uint8_t *bytes, size_t size,
                       const struct sl_err *err)
{
    struct bytes_result *r = data;
    assert_true(size <= sizeof(r->bytes));
    r->count++;
    r->status = status;
    r->err = *err;
    r->size = size;
    if (size)
        memcpy(r->bytes, bytes, size);
}

static struct bytes_result get_bytes(const char *path)
{
    struct bytes_result r = {0};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_kube_get_bytes(kube, path, SL_KUBE_PROTOBUF, bytes_done, &r, NULL, &err),
                     0);
    world_until(&r.count, 1, 0);
    return r;
}

/* Objects as bytes, either way. */
static void raw(void **state)
{
    (void)state;
    struct bytes_result b = get_bytes("/bytes");
    assert_int_equal(b.status, 200);
    assert_int_equal(b.err.code, 0);
    assert_int_equal(b.size, 6);
    assert_memory_equal(b.bytes, "k8s\0{\xff", 6);
    assert_non_null(strstr(last_head, "Accept: " SL_KUBE_PROTOBUF "\r\n"));
    b = get_bytes("/missing");
    assert_int_equal(b.status, 404);
    assert_int_equal(b.err.code, -ENOENT);
    assert_non_null(strstr(b.err.msg, "not found"));
    b = get_bytes("/none");
    assert_int_equal(b.status, 204);
    assert_int_equal(b.size, 0);
    b = get_bytes("/cut");
    assert_int_equal(b.status, 0);
    assert_true(b.err.code < 0);
    struct result r = {0};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_kube_put_bytes(kube, "/ok", SL_KUBE_PROTOBUF, (const uint8_t *)"a\0bc", 4,
                                       done, &r, NULL, &err),
                     0);
    world_until(&r.count, 1, 0);
    assert_int_equal(r.status, 200);
    assert_string_equal(last_method, "PUT");
    assert_non_null(strstr(last_head, "Content-Type: " SL_KUBE_PROTOBUF "\r\n"));
    assert_non_null(strstr(last_head, "Content-Length: 4\r\n"));
    assert_non_null(strstr(last_head, "Accept: application/json\r\n"));
    assert_int_equal(json_integer_value(json_object_get(r.body, "a")), 1);
    json_decref(r.body);
    assert_int_equal(sl_kube_get_bytes(kube, "no/path", NULL, bytes_done, &b, NULL, &err), -EINVAL);
    assert_int_equal(sl_kube_put_bytes(kube, "no/path", NULL, NULL, 0, done, &r, NULL, &err),
                     -EINVAL);
}

static void refusals(void **state)
{
    (void)state;
    struct result r = get("GET", "/missing", NULL, NULL);
    assert_int_equal(r.status, 404);
    assert_int_equal(r.err.code, -ENOENT);
    assert_non_null(strstr(r.err.msg, "pods \"x\" not found")); /* its line end is no more */
    assert_non_null(strstr(r.err.msg, "/missing"));
    json_decref(r.body);
    r = get("GET", "/broken", NULL, NULL);
    assert_int_equal(r.status, 500);
    assert_int_equal(r.err.code, -EREMOTEIO);
    assert_null(r.body);
    r = get("GET", "/notjson", NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.err.code, -EPROTO);
    r = get("GET", "/moved", NULL, NULL);
    assert_int_equal(r.status, 302);
    assert_int_equal(r.err.code, -EPROTO);
}

static void no_answer(void **state)
{
    (void)state;
    struct result r = get("GET", "/half", NULL, NULL);
    assert_int_equal(r.status, 0);
    assert_int_equal(r.err.code, -EIO);
    r = get("GET", "/cut", NULL, NULL);
    assert_int_equal(r.status, 0);
    assert_true(r.err.code < 0);
    r = get("GET", "/endless", NULL, NULL);
    assert_int_equal(r.status, 0);
    assert_int_equal(r.err.code, -EMSGSIZE);
    assert_null(r.body);
    sl_kube_destroy(kube);
    kube = world_kube(&fake, 50 * SL_NS_PER_MS);
    r = get("GET", "/hold", NULL, NULL); /* a server that says nothing */
    assert_int_equal(r.status, 0);
    assert_int_equal(r.err.code, -ETIMEDOUT);
    unsigned port = fake.port;
    fake_close(&fake);
    r = get("GET", "/ok", NULL, NULL);
    assert_int_equal(r.err.code, -ECONNREFUSED);
    fake_open(&fake, port);
    r = get("GET", "/ok", NULL, NULL); /* and it is back */
    assert_int_equal(r.status, 200);
    json_decref(r.body);
}

static void bad_paths(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_kube_request(kube, "GET", "api", NULL, NULL, done, NULL, NULL, &err),
                     -EINVAL);
    assert_int_equal(sl_kube_request(kube, "GET", "/a b", NULL, NULL, done, NULL, NULL, &err),
                     -EINVAL);
    assert_int_equal(sl_kube_request(kube, "GET", "/a\r\nX: y", NULL, NULL, done, NULL, NULL, &err),
                     -EINVAL);
    char *made = sl_kube_path("/%s?x=%%3D%s", "a/b=c d", "\xff-._~");
    assert_string_equal(made, "/a%2Fb%3Dc%20d?x=%3D%FF-._~");
    free(made);
}

/* 40 requests, 32 under way; those that wait go when others end, by answer or by cancelling. */
static void queue(void **state)
{
    (void)state;
    struct result r[40] = {0};
    struct sl_kube_call *calls[40];
    struct sl_err err = SL_ERR_INIT;
    unsigned finished = 0;
    for (int i = 0; i < 40; i++)
        assert_int_equal(sl_kube_request(kube, "GET", i < 32 ? "/hold" : "/ok", NULL, NULL, done,
                                         &r[i], &calls[i], &err),
                         0);
    world_until(&held, 32, 0);
    for (int i = 0; i < 10; i++)
        world_step(1);
    assert_int_equal(fake.requests, 32);
    sl_kube_cancel(calls[39]); /* one that waits */
    sl_kube_cancel(calls[0]);  /* one under way */
    for (int i = 32; i < 39; i++)
        world_until(&r[i].count, 1, 0);
    for (int i = 0; i < 8; i++)
        if (i != 0 && holding[i])
            finished++;
    assert_true(finished > 0);
    assert_int_equal(r[39].count, 0);
    assert_int_equal(r[0].count, 0);
    for (int i = 0; i < 40; i++)
        json_decref(r[i].body);
}

static void too_many(void **state)
{
    (void)state;
    struct result r = {0};
    struct sl_err err = SL_ERR_INIT;
    int rc = 0, n = 0;
    while (rc == 0 && n < 10000)
        rc = sl_kube_request(kube, "GET", "/hold", NULL, NULL, done, &r, NULL, &err), n++;
    assert_int_equal(rc, -ENOBUFS);
    assert_int_equal(n, 32 + 4096 + 1);
    sl_kube_destroy(kube);
    kube = NULL;
    assert_int_equal(r.count, 0); /* no callback for what the end cut off */
}

struct killer {
    unsigned count;
};

static void destroys(void *data, int status, json_t *body, const struct sl_err *err)
{
    (void)status;
    (void)body;
    (void)err;
    ((struct killer *)data)->count++;
    sl_kube_destroy(kube);
    kube = NULL;
}

static void destroy_inside(void **state)
{
    (void)state;
    struct killer k = {0};
    struct sl_err err = SL_ERR_INIT;
    for (int i = 0; i < 3; i++)
        assert_int_equal(sl_kube_request(kube, "GET", "/ok", NULL, NULL, destroys, &k, NULL, &err),
                         0);
    world_until(&k.count, 1, 0);
    for (int i = 0; i < 10; i++)
        world_step(1);
    assert_int_equal(k.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers, setup, teardown),
        cmocka_unit_test_setup_teardown(raw, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(no_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(queue, setup, teardown),
        cmocka_unit_test_setup_teardown(too_many, setup, teardown),
        cmocka_unit_test_setup_teardown(destroy_inside, setup, teardown),
    };
    return cmocka_run_group_tests_name("http_requests", tests, NULL, NULL);
}
