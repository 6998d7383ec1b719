/* SPDX-License-Identifier: Apache-2.0 */
/* Our client and our server over TLS, with our own certificates: good ones, wrong ones, new ones; tokens. */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fsutil.h"
#include "http/cert.h"
#include "http/server_internal.h"

static char dir[] = "/tmp/sluice-tls-XXXXXX";
static char cert_file[64], key_file[64], ca_file[64], token_file[64], config_file[64];
static struct sl_http_server *server;
static char accepted_token[64], seen_token[200];
static unsigned requests, troubles;

static void put_file(const char *path, const char *text)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_fs_replace(AT_FDCWD, path, text, strlen(text), 0600, &err), 0);
}

static void handle(void *data, struct sl_http_call *call, const struct sl_http_request *r)
{
    (void)data;
    (void)r;
    requests++;
    const char *header = MHD_lookup_connection_value(call->mhd, MHD_HEADER_KIND, "Authorization");
    (void)snprintf(seen_token, sizeof(seen_token), "%s", header ? header : "");
    bool good = !accepted_token[0] || strcmp(seen_token, accepted_token) == 0;
    sl_http_answer(call, good ? 200 : 401, "application/json",
                   good ? "{}" : "{\"message\":\"who?\"}", good ? 2 : 18);
}

static void on_trouble(void *data, const struct sl_err *err)
{
    (void)data;
    (void)err;
    troubles++;
}

static void open_server(const struct sl_cert *cert)
{
    struct sl_err err = SL_ERR_INIT;
    put_file(cert_file, cert->cert_pem);
    put_file(key_file, cert->key_pem);
    put_file(ca_file, cert->ca_pem);
    struct sl_http_server_options opt = {.address = "127.0.0.1:0",
                                         .cert_file = cert_file,
                                         .key_file = key_file,
                                         .handle = handle,
                                         .trouble = on_trouble};
    assert_int_equal(sl_http_server_create(world_loop, &opt, &server, &err), 0);
}

static int setup(void **state)
{
    (void)state;
    world_open();
    accepted_token[0] = 0;
    requests = troubles = 0;
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

static struct sl_kube *client(const char *ca, const char *token)
{
    char url[64];
    struct sl_kube *kube = NULL;
    struct sl_err err = SL_ERR_INIT;
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u", sl_http_server_port(server));
    struct sl_kube_options opt = {.server = url, .ca_file = ca, .token_file = token};
    assert_int_equal(sl_kube_create(world_loop, &opt, &kube, &err), 0);
    return kube;
}

struct result {
    unsigned count;
    int status;
    struct sl_err err;
};

static void done(void *data, int status, json_t *body, const struct sl_err *err)
{
    (void)body;
    struct result *r = data;
    r->count++;
    r->status = status;
    r->err = *err;
}

static struct result get(struct sl_kube *kube)
{
    struct result r = {0};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_kube_request(kube, "GET", "/x", NULL, NULL, done, &r, NULL, &err), 0);
    world_until(&r.count, 1, 0);
    return r;
}

static struct result get_once(const char *ca)
{
    struct sl_kube *kube = client(ca, NULL);
    struct result r = get(kube);
    sl_kube_destroy(kube);
    return r;
}

static struct sl_cert make(const char *name, long from, long until)
{
    struct sl_cert cert = {0};
    struct sl_err err = SL_ERR_INIT;
    time_t now = time(NULL);
    assert_int_equal(sl_cert_make(&name, 1, now + from, now + until, &cert, &err), 0);
    return cert;
}

static void good_and_wrong(void **state)
{
    (void)state;
    struct sl_cert good = make("127.0.0.1", -60, 86400), other = make("127.0.0.1", -60, 86400);
    open_server(&good);
    struct result r = get_once(ca_file);
    assert_int_equal(r.status, 200);
    put_file(ca_file, other.ca_pem);
    r = get_once(ca_file); /* the same names, another authority */
    assert_int_equal(r.status, 0);
    assert_int_equal(r.err.code, -EACCES);
    r = get_once(NULL); /* nobody in the world vouches for it */
    assert_int_equal(r.status, 0);
    r = get_once("/nonexistent/ca.crt");
    assert_int_equal(r.status, 0);
    assert_int_equal(r.err.code, -ENOENT);
    assert_int_equal(requests, 1);
    sl_cert_free(&good);
    sl_cert_free(&other);
}

static void wrong_name(void **state)
{
    (void)state;
    struct sl_cert cert = make("other.example", -60, 86400);
    open_server(&cert);
    struct result r = get_once(ca_file);
    assert_int_equal(r.status, 0);
    assert_int_equal(r.err.code, -EACCES);
    assert_int_equal(requests, 0);
    sl_cert_free(&cert);
}

static void wrong_time(void **state)
{
    (void)state;
    static const long spans[2][2] = {{-7200, -3600}, {3600, 7200}};
    for (int i = 0; i < 2; i++) {
        struct sl_cert cert = make("127.0.0.1", spans[i][0], spans[i][1]);
        open_server(&cert);
        struct result r = get_once(ca_file);
        assert_int_equal(r.status, 0);
        assert_true(r.err.code < 0);
        assert_int_equal(requests, 0);
        sl_http_server_destroy(server);
        server = NULL;
        sl_cert_free(&cert);
    }
}

/* New files: new connections get them, old connections go on; a bad file changes nothing. */
static void reload(void **state)
{
    (void)state;
    struct sl_cert first = make("127.0.0.1", -60, 86400), second = make("127.0.0.1", -60, 86400);
    open_server(&first);
    struct sl_kube *old = client(ca_file, NULL);
    assert_int_equal(get(old).status, 200);
    put_file(cert_file,
             second.cert_pem); /* as a reader may find it: the certificate without its key */
    assert_int_equal(get_once(ca_file).status, 200);
    assert_int_equal(troubles, 1);
    put_file(key_file, "not a key");
    assert_int_equal(get_once(ca_file).status, 200);
    assert_int_equal(troubles, 2);
    put_file(key_file, second.key_pem);
    assert_int_equal(get_once(ca_file).err.code, -EACCES); /* it is the new one now */
    put_file(ca_file, second.ca_pem);
    assert_int_equal(get_once(ca_file).status, 200);
    assert_int_equal(get(old).status, 200); /* on its connection of before */
    assert_int_equal(troubles, 2);
    sl_kube_destroy(old);
    sl_cert_free(&first);
    sl_cert_free(&second);
}

static void texts(void **state)
{
    (void)state;
    struct sl_cert first = make("127.0.0.1", -60, 86400), second = make("127.0.0.1", -60, 86400);
    struct sl_err err = SL_ERR_INIT;
    struct sl_http_server_options opt = {.address = "127.0.0.1:0",
                                         .cert_pem = first.cert_pem,
                                         .key_pem = second.key_pem,
                                         .handle = handle};
    assert_int_equal(sl_http_server_create(world_loop, &opt, &server, &err), -EINVAL);
    opt.key_pem = first.key_pem;
    assert_int_equal(sl_http_server_create(world_loop, &opt, &server, &err), 0);
    put_file(ca_file, first.ca_pem);
    assert_int_equal(get_once(ca_file).status, 200);
    assert_int_equal(sl_http_server_certify(server, second.cert_pem, first.key_pem, &err), -EINVAL);
    assert_int_equal(sl_http_server_certify(server, second.cert_pem, second.key_pem, &err), 0);
    put_file(ca_file, second.ca_pem);
    assert_int_equal(get_once(ca_file).status, 200);
    sl_cert_free(&first);
    sl_cert_free(&second);
}

static void tokens(void **state)
{
    (void)state;
    struct sl_cert cert = make("127.0.0.1", -60, 86400);
    struct sl_err err = SL_ERR_INIT;
    open_server(&cert);
    put_file(token_file, "one\n");
    strcpy(accepted_token, "Bearer one");
    struct sl_kube *kube = client(ca_file, token_file);
    assert_int_equal(get(kube).status, 200);
    put_file(token_file, "two");
    strcpy(accepted_token, "Bearer two");
    assert_int_equal(get(kube).status, 200); /* it changed: read again before it is refused */
    assert_int_equal(requests, 2);
    strcpy(accepted_token, "Bearer three");
    struct result r = get(kube); /* refused: tried once more, then told */
    assert_int_equal(r.status, 401);
    assert_int_equal(r.err.code, -EACCES);
    assert_int_equal(requests, 4);
    put_file(token_file, "bad\r\nX-Evil: 1");
    r = get(kube); /* not a token: the old one stays */
    assert_int_equal(r.status, 401);
    assert_string_equal(seen_token, "Bearer two");
    assert_int_equal(unlink(token_file), 0);
    strcpy(accepted_token, "Bearer two");
    assert_int_equal(get(kube).status, 200);
    sl_kube_destroy(kube);
    struct sl_kube_options opt = {.server = "http://127.0.0.1:1", .token_file = token_file};
    assert_int_equal(sl_kube_create(world_loop, &opt, &kube, &err), -EINVAL); /* never in clear */
    opt.server = "ftp://127.0.0.1:1";
    assert_int_equal(sl_kube_create(world_loop, &opt, &kube, &err), -EINVAL);
    sl_cert_free(&cert);
}

/* A kubeconfig with everything in it, the certificates as data. */
static void kubeconfig(void **state)
{
    (void)state;
    struct sl_cert cert = make("127.0.0.1", -60, 86400);
    struct sl_err err = SL_ERR_INIT;
    struct sl_kube *kube = NULL;
    open_server(&cert);
    strcpy(accepted_token, "Bearer secret");
    char text[8192], data[4096];
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)cert.ca_pem; *p;) {
        unsigned have = 1 + (p[1] ? 1U : 0U) + (p[1] && p[2] ? 1U : 0U);
        unsigned v =
            (unsigned)p[0] << 16 | (have > 1 ? (unsigned)p[1] << 8 : 0) | (have > 2 ? p[2] : 0);
        for (unsigned i = 0; i < 4; i++)
            data[n++] = i <= have ? set[v >> (18 - 6 * i) & 63] : '=';
        p += have;
    }
    data[n] = 0;
    (void)snprintf(
        text, sizeof(text),
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster:\n"
        "    server: https://127.0.0.1:%u\n    certificate-authority-data: %s\n"
        "users:\n- {name: u, user: {token: secret}}\n"
        "contexts:\n- name: c\n  context: {cluster: k, user: u}\n",
        sl_http_server_port(server), data);
    put_file(config_file, text);
    struct sl_kube_options opt = {.kubeconfig = config_file};
    assert_int_equal(sl_kube_create(world_loop, &opt, &kube, &err), 0);
    assert_int_equal(get(kube).status, 200);
    sl_kube_destroy(kube);
    sl_cert_free(&cert);
}

/* An idle connection does not stay, nor does one without a handshake. */
static void idle(void **state)
{
    (void)state;
    struct sl_cert cert = make("127.0.0.1", -60, 86400);
    open_server(&cert);
    struct sl_kube *kube = client(ca_file, NULL);
    assert_int_equal(get(kube).status, 200);
    struct sockaddr_in sa = {.sin_family = AF_INET};
    sa.sin_port = htons((uint16_t)sl_http_server_port(server));
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(raw, (struct sockaddr *)&sa, sizeof(sa)), 0);
    for (int i = 0; i < 5; i++)
        world_step(1);
    world_jump(61 * SL_NS_PER_S); /* idle: the server closes, the client opens another */
    for (int i = 0; i < 20; i++)
        world_step(1);
    char byte;
    assert_int_equal(recv(raw, &byte, 1, MSG_DONTWAIT), 0);
    (void)close(raw);
    assert_int_equal(get(kube).status, 200);
    sl_kube_destroy(kube);
    sl_cert_free(&cert);
}

static void certificates(void **state)
{
    (void)state;
    static const char *const names[] = {"w.sluice.svc", "w.sluice.svc.cluster.local", "127.0.0.1",
                                        "::1"};
    struct sl_cert cert = {0}, other = make("x", -60, 86400);
    struct sl_err err = SL_ERR_INIT;
    time_t now = time(NULL), end = now + 30 * 86400;
    assert_int_equal(sl_cert_make(names, 4, now - 3600, end, &cert, &err), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sl_cert_check(&cert, names[i], now, &err), 0);
    assert_int_equal(sl_cert_check(&cert, "v.sluice.svc", now, &err), -EKEYREJECTED);
    assert_int_equal(sl_cert_check(&cert, names[0], end - 1, &err), 0);
    assert_int_equal(sl_cert_check(&cert, names[0], end, &err), -EKEYEXPIRED);
    assert_int_equal(sl_cert_check(&cert, names[0], now - 86400, &err), -EKEYEXPIRED);
    struct sl_cert mixed = {other.ca_pem, cert.cert_pem, cert.key_pem};
    assert_int_equal(sl_cert_check(&mixed, names[0], now, &err), -EKEYREJECTED);
    mixed = (struct sl_cert){cert.ca_pem, cert.cert_pem, other.key_pem};
    assert_int_equal(sl_cert_check(&mixed, names[0], now, &err), -EINVAL);
    mixed = (struct sl_cert){0};
    assert_int_equal(sl_cert_check(&mixed, names[0], now, &err), -EINVAL);
    char nonsense[] = "nonsense";
    mixed = (struct sl_cert){cert.ca_pem, nonsense, cert.key_pem};
    assert_int_equal(sl_cert_check(&mixed, names[0], now, &err), -EINVAL);
    struct sl_cert none = {0};
    assert_int_equal(sl_cert_make(names, 0, now, end, &none, &err), -EINVAL);
    assert_int_equal(sl_cert_make(names, 1, now, now, &none, &err), -EINVAL);
    assert_int_equal(sl_cert_make((const char *const[]){""}, 1, now, end, &none, &err), -EINVAL);
    sl_cert_free(&cert);
    sl_cert_free(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(good_and_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_name, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_time, setup, teardown),
        cmocka_unit_test_setup_teardown(reload, setup, teardown),
        cmocka_unit_test_setup_teardown(texts, setup, teardown),
        cmocka_unit_test_setup_teardown(tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(kubeconfig, setup, teardown),
        cmocka_unit_test_setup_teardown(idle, setup, teardown),
        cmocka_unit_test_setup_teardown(certificates, setup, teardown),
    };
    if (!mkdtemp(dir))
        return 1;
    (void)snprintf(cert_file, sizeof(cert_file), "%s/tls.crt", dir);
    (void)snprintf(key_file, sizeof(key_file), "%s/tls.key", dir);
    (void)snprintf(ca_file, sizeof(ca_file), "%s/ca.crt", dir);
    (void)snprintf(token_file, sizeof(token_file), "%s/token", dir);
    (void)snprintf(config_file, sizeof(config_file), "%s/config", dir);
    int rc = cmocka_run_group_tests_name("http_tls", tests, NULL, NULL);
    const char *files[] = {cert_file, key_file, ca_file, token_file, config_file};
    for (size_t i = 0; i < 5; i++)
        (void)unlink(files[i]);
    (void)rmdir(dir);
    return rc;
}
