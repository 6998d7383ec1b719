/* SPDX-License-Identifier: Apache-2.0 */
/* The page's texts: headers, tokens, Host, queries, requests of the small server; and its JSON for odd books. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "cli/web_serve.h"
#include "page/page.h"

static void test_html(void **state)
{
    (void)state;
    size_t size;
    const char *html = sl_page_html(&size);
    assert_true(size > 10000 && size < 300000);
    assert_int_equal(strlen(html), size);
    assert_string_equal(sl_page_headers()[0].name, "Content-Security-Policy");
    assert_non_null(strstr(sl_page_headers()[0].value, "script-src 'sha256-"));
    assert_non_null(strstr(sl_page_headers()[0].value, "; frame-ancestors 'none'"));
}

static void test_token(void **state)
{
    (void)state;
    char token[SL_PAGE_TOKEN_MOST + 1], text[400];
    assert_int_equal(sl_page_token_read("  0123456789abcdef\r\n", token, NULL), 0);
    assert_string_equal(token, "0123456789abcdef");
    const char *const bad[] = {"",
                               "\n",
                               "0123456789abcde",
                               "0123456789 abcdef",
                               "0123456789abcdef\x01",
                               "0123456789abcdef\xc3\xa9"};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_int_equal(sl_page_token_read(bad[i], token, NULL), -EINVAL);
    memset(text, 'a', sizeof(text));
    text[SL_PAGE_TOKEN_MOST] = '\0';
    assert_int_equal(sl_page_token_read(text, token, NULL), 0);
    text[SL_PAGE_TOKEN_MOST] = 'a';
    text[SL_PAGE_TOKEN_MOST + 1] = '\0';
    assert_int_equal(sl_page_token_read(text, token, NULL), -EINVAL);
    assert_true(sl_page_token_same("abc", "abc"));
    assert_false(sl_page_token_same("abd", "abc"));
    assert_false(sl_page_token_same("ab", "abc"));
    assert_false(sl_page_token_same("abcd", "abc"));
    assert_false(sl_page_token_same(NULL, "abc"));
    assert_false(sl_page_token_same("", ""));
    assert_false(sl_page_token_same(NULL, ""));
    assert_string_equal(sl_page_token_of("own", "Bearer other"), "own");
    assert_string_equal(sl_page_token_of(NULL, "bearer other"), "other");
    assert_null(sl_page_token_of(NULL, "Basic other"));
    assert_null(sl_page_token_of(NULL, NULL));
}

static void test_host(void **state)
{
    (void)state;
    const char *const good[] = {"127.0.0.1:8090", "localhost:8090", "LOCALHOST:8090", "[::1]:8090"};
    const char *const bad[] = {"",
                               "127.0.0.1",
                               "127.0.0.1:80",
                               "127.0.0.1:80901",
                               "evil.example:8090",
                               "127.0.0.1.evil.example:8090",
                               "localhost.evil.example:8090",
                               "127.0.0.1:8090.evil.example"};
    for (size_t i = 0; i < SL_ARRAY_LEN(good); i++)
        assert_true(sl_page_host_local(good[i], 8090));
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_false(sl_page_host_local(bad[i], 8090));
    assert_false(sl_page_host_local(NULL, 8090));
    assert_true(sl_page_host_local("localhost", 80));
}

static void test_query(void **state)
{
    (void)state;
    struct sl_page_ask ask;
    struct sl_page_want want;
    sl_page_ask_read("", &ask);
    assert_true(ask.from == 0 && ask.count == 24 && ask.sort == SL_PAGE_BY_NAME && !ask.find[0]);
    sl_page_ask_read("xfrom=9&from=48&count=9999&sort=full&find=a%2fb+c%&wait=20", &ask);
    assert_true(ask.from == 48 && ask.count == SL_PAGE_COUNT_MAX && ask.wait_from == 20);
    assert_int_equal(ask.sort, SL_PAGE_FULL_FIRST);
    assert_string_equal(ask.find, "a/b c%");
    sl_page_ask_read("from=-1&count=x&sort=fullest&find=%00abc", &ask);
    assert_true(ask.from == 0 && ask.count == 24 && ask.sort == SL_PAGE_BY_NAME && !ask.find[0]);
    char long_find[400] = "find=";
    memset(long_find + 5, 'x', 300);
    sl_page_ask_read(long_find, &ask);
    assert_int_equal(strlen(ask.find), SL_PAGE_FIND_MAX);
    assert_int_equal(sl_page_want_read("memory=10Gi&cores=30&gpus=2", &want, NULL), 0);
    assert_true(want.memory_bytes == 10ULL << 30 && want.cores_permille == 300 && want.gpus == 2);
    assert_int_equal(sl_page_want_read("memory=25%25", &want, NULL), 0);
    assert_true(want.memory_percent == 25 && want.memory_bytes == 0 && want.gpus == 1);
    const char *const bad[] = {"",
                               "memory=",
                               "memory=ten",
                               "cores=101",
                               "cores=1&gpus=17",
                               "cores=1&gpus=0",
                               "cores=1&gpus=1x"};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_int_equal(sl_page_want_read(bad[i], &want, NULL), -EINVAL);
}

static int parse(const char *text, struct sl_web_request *ret)
{
    static char head[SL_WEB_HEAD_MAX + 1];
    (void)snprintf(head, sizeof(head), "%s", text);
    return sl_web_parse(head, ret);
}

static void test_request(void **state)
{
    (void)state;
    struct sl_web_request r;
    assert_int_equal(
        parse("GET /ui/data?from=1 HTTP/1.1\r\nHost: a:1 \r\nx-sluice-token:\tt\r\n\r\n", &r), 0);
    assert_string_equal(r.method, "GET");
    assert_string_equal(r.path, "/ui/data");
    assert_string_equal(r.query, "from=1");
    assert_string_equal(r.host, "a:1");
    assert_string_equal(r.token, "t");
    assert_null(r.origin);
    assert_int_equal(parse("GET / HTTP/1.0\r\n\r\n", &r), 0);
    assert_string_equal(r.query, "");
    assert_null(r.host);
    const char *const bad[] = {"\r\n\r\n",
                               " GET / HTTP/1.1\r\n\r\n",
                               "GET / HTTP/2\r\n\r\n",
                               "GET /\r\n\r\n",
                               "GET  / HTTP/1.1\r\n\r\n",
                               "GET http://x/ HTTP/1.1\r\n\r\n",
                               "GET / HTTP/1.1\r\nno colon\r\n\r\n",
                               "GET / HTTP/1.1\r\n: x\r\n\r\n",
                               "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
                               "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
                               "GET / HTTP/1.1\r\nX-Sluice-Token: a\r\nx-sluice-token: b\r\n\r\n",
                               "GET / HTTP/1.1\nHost: a\n\n"};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_int_equal(parse(bad[i], &r), -EINVAL);
}

/* --- books --- */

static void each_tenant(const struct sl_page_source *s, const struct sl_page_card *card,
                        sl_page_tenant_fn *each, void *to)
{
    const struct sl_page_tenant t = {
        .name = "</script>\"\\\x01\xff", .used_mib = -1, .got_permille = -1};
    (void)s;
    for (unsigned i = 0; i < card->index * 40; i++)
        each(to, &t);
}

static void each_waiter(const struct sl_page_source *s, size_t from, size_t count,
                        sl_page_waiter_fn *each, void *to)
{
    (void)s, (void)from, (void)count, (void)each, (void)to;
}

static void test_data(void **state)
{
    (void)state;
    const struct sl_page_card cards[] = {
        {.node = "n",
         .uuid = "a",
         .model = "m",
         .memory_mib = 100,
         .free_mib = 100,
         .free_permille = 1000},
        {.node = "n",
         .uuid = "b",
         .model = "m",
         .index = 1,
         .memory_mib = 100,
         .free_mib = 50,
         .free_permille = 900},
        {.node = "n", .uuid = "c", .model = "m", .index = 2, .memory_mib = 0, .free_permille = 0},
        {.node = "n",
         .uuid = "d",
         .model = "m",
         .bad = "sick",
         .memory_mib = 1,
         .free_mib = 5,
         .free_permille = 2000},
    };
    const struct sl_page_source s = {.kind = "cluster",
                                     .title = "t",
                                     .cards = cards,
                                     .card_count = 4,
                                     .each_tenant = each_tenant,
                                     .each_waiter = each_waiter};
    struct sl_page_ask ask = {.from = 2, .count = 1, .sort = SL_PAGE_BY_NAME};
    size_t size;
    char *text = sl_page_data(&s, &ask, &size);
    assert_int_equal(strlen(text), size);
    assert_non_null(strstr(text, "\"wall\": \"059x\""));
    assert_non_null(strstr(text, "\"uuid\": \"c\""));
    assert_null(strstr(text, "\"uuid\": \"b\""));
    assert_non_null(strstr(text, "\"more\": 16")); /* of 80 tenants, 64 are listed */
    assert_non_null(strstr(text, "</script>\\\"\\\\\\u0001\\ufffd"));
    free(text);
    ask = (struct sl_page_ask){.count = 100, .sort = SL_PAGE_FULL_FIRST};
    text = sl_page_data(&s, &ask, &size);
    assert_non_null(strstr(text, "\"wall\": \"950x\""));
    free(text);
    const struct sl_page_want want = {.memory_bytes = 50ULL << 20, .cores_permille = 900};
    assert_true(sl_page_card_fits(&cards[0], &want));
    assert_true(sl_page_card_fits(&cards[1], &want));
    assert_false(sl_page_card_fits(&cards[2], &want));
    assert_false(sl_page_card_fits(&cards[3], &want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_html),  cmocka_unit_test(test_token),   cmocka_unit_test(test_host),
        cmocka_unit_test(test_query), cmocka_unit_test(test_request), cmocka_unit_test(test_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
