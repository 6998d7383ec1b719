/* SPDX-License-Identifier: Apache-2.0 */
/* Kubeconfigs, service accounts, and the cutting of lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fsutil.h"
#include "kube/kube_config.h"
#include "kube/lines.h"

#define CLUSTER                                                                                    \
    "clusters: [{name: k, cluster: {server: 'https://h:1', certificate-authority: ca/x.crt}}]\n"
#define CONTEXT "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"

static int parse(const char *text, struct sl_kube_config *c, struct sl_err *err)
{
    *c = (struct sl_kube_config){0};
    return sl_kube_config_parse(text, strlen(text), "/etc/k", c, err);
}

static void good(void **state)
{
    (void)state;
    struct sl_kube_config c;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(parse(CLUSTER CONTEXT
                           "users: [{name: u, user: {tokenFile: /t, client-certificate: a.crt, "
                           "client-key-data: aGVsbG8=}}]\n",
                           &c, &err),
                     0);
    assert_string_equal(c.server, "https://h:1");
    assert_string_equal(c.ca_file, "/etc/k/ca/x.crt");
    assert_string_equal(c.token_file, "/t");
    assert_string_equal(c.cert_file, "/etc/k/a.crt");
    assert_string_equal(c.key_pem, "hello");
    assert_null(c.token);
    assert_false(c.insecure);
    sl_kube_config_free(&c);
    /* JSON is YAML; no user at all is fine */
    assert_int_equal(parse("{\"current-context\":\"c\",\"contexts\":[{\"name\":\"c\",\"context\":{"
                           "\"cluster\":\"k\"}}],"
                           "\"clusters\":[{\"name\":\"k\",\"cluster\":{\"server\":\"http://h\","
                           "\"insecure-skip-tls-verify\":true}}]}",
                           &c, &err),
                     0);
    assert_true(c.insecure);
    sl_kube_config_free(&c);
}

static void bad(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *says;
    } cases[] = {
        {"", -EINVAL, "current-context"},
        {"a: [", -EINVAL, "line"},
        {"[]", -EINVAL, "current-context"},
        {"current-context: c\n", -EINVAL, "no context named \"c\""},
        {CONTEXT, -EINVAL, "no cluster named \"k\""},
        {CLUSTER CONTEXT, -EINVAL, "no user named \"u\""},
        {"current-context: c\ncontexts: [{name: c, context: {user: u}}]\n", -EINVAL,
         "names no cluster"},
        {CONTEXT "clusters: [{name: k, cluster: {}}]\n", -EINVAL, "no server"},
        {CONTEXT "clusters: [{name: k, cluster: {server: 'https://h', proxy-url: 'http://p'}}]\n",
         -ENOTSUP, "proxy-url"},
        {CONTEXT
         "clusters: [{name: k, cluster: {server: 'https://h', certificate-authority-data: '*'}}]\n",
         -EINVAL, "not base64"},
        {CLUSTER CONTEXT "users: [{name: u, user: {exec: {command: aws}}}]\n", -ENOTSUP, "plugin"},
        {CLUSTER CONTEXT "users: [{name: u, user: {auth-provider: {name: gcp}}}]\n", -ENOTSUP,
         "plugin"},
        {CLUSTER CONTEXT "users: [{name: u, user: {username: a, password: b}}]\n", -ENOTSUP,
         "password"},
        {CLUSTER CONTEXT "users: [{name: u, user: {client-key: a}}]\n", -EINVAL, "without its"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sl_kube_config c;
        struct sl_err err = SL_ERR_INIT;
        assert_int_equal(parse(cases[i].text, &c, &err), cases[i].code);
        assert_non_null(strstr(err.msg, cases[i].says));
    }
}

static void pod(void **state)
{
    (void)state;
    char dir[] = "/tmp/sluice-pod-XXXXXX", token[64];
    struct sl_kube_config c = {0};
    struct sl_err err = SL_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(token, sizeof(token), "%s/token", dir);
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(sl_kube_config_pod(dir, &c, &err), -ENOENT);
    (void)setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", "6443", 1);
    assert_int_equal(sl_kube_config_pod(dir, &c, &err), -ENOENT); /* no token */
    assert_int_equal(sl_fs_replace(AT_FDCWD, token, "t", 1, 0600, &err), 0);
    assert_int_equal(sl_kube_config_pod(dir, &c, &err), 0);
    assert_string_equal(c.server, "https://[fd00::1]:6443");
    assert_string_equal(c.token_file, token);
    sl_kube_config_free(&c);
    (void)unlink(token);
    (void)rmdir(dir);
}

static void lines(void **state)
{
    (void)state;
    struct sl_lines l = {.max_bytes = 5};
    struct sl_err err = SL_ERR_INIT;
    size_t size;
    assert_int_equal(sl_lines_feed(&l, "ab", 2, &err), 0);
    assert_null(sl_lines_next(&l, &size));
    assert_int_equal(sl_lines_feed(&l, "c\n\n\r\nde\r\nf", 10, &err), 0);
    const char *line = sl_lines_next(&l, &size);
    assert_int_equal(size, 3);
    assert_memory_equal(line, "abc", 3);
    line = sl_lines_next(&l, &size);
    assert_int_equal(size, 2);
    assert_memory_equal(line, "de", 2);
    assert_null(sl_lines_next(&l, &size));
    assert_int_equal(sl_lines_feed(&l, "2345\nxxxxxx", 11, &err), -EMSGSIZE);
    line = sl_lines_next(&l, &size);
    assert_int_equal(size, 5);
    assert_memory_equal(line, "f2345", 5);
    assert_null(sl_lines_next(&l, &size));
    sl_lines_reset(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good),
        cmocka_unit_test(bad),
        cmocka_unit_test(pod),
        cmocka_unit_test(lines),
    };
    return cmocka_run_group_tests_name("http_config", tests, NULL, NULL);
}
