/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the page: any head is refused, or cut into texts of the buffer; any query is read within its bounds. */
#include <string.h>

#include "cli/web_serve.h"
#include "fuzz.h"
#include "page/page.h"

static void query(const char *text)
{
    struct sl_page_ask ask;
    struct sl_page_want want = {.gpus = 0};
    struct sl_err err = SL_ERR_INIT;
    sl_page_ask_read(text, &ask);
    FUZZ_CHECK(ask.count <= SL_PAGE_COUNT_MAX && strlen(ask.find) <= SL_PAGE_FIND_MAX);
    FUZZ_CHECK(ask.sort <= SL_PAGE_FREE_FIRST);
    if (sl_page_want_read(text, &want, &err) == 0) {
        FUZZ_CHECK(err.code == 0 && want.gpus >= 1 && want.gpus <= 16);
        FUZZ_CHECK(want.memory_percent <= 100 && want.cores_permille <= want.cores_limit_permille);
    } else {
        FUZZ_CHECK(err.code < 0 && err.msg[0] != '\0');
    }
}

static void inside(const char *text, const char *head, size_t size)
{
    FUZZ_CHECK(!text || (text >= head && text + strlen(text) < head + size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char head[SL_WEB_HEAD_MAX + 1];
    struct sl_web_request r;
    if (size > SL_WEB_HEAD_MAX - 4 || memchr(data, '\0', size))
        return 0;
    memcpy(head, data, size);
    memcpy(head + size, "\r\n\r\n", 5); /* the server waits for it */
    if (sl_web_parse(head, &r) != 0)
        return 0;
    FUZZ_CHECK(r.path[0] == '/' && r.method[0] && !strchr(r.method, ' ') && !strchr(r.path, ' '));
    inside(r.path, head, sizeof(head));
    inside(r.host, head, sizeof(head));
    inside(r.origin, head, sizeof(head));
    inside(r.token, head, sizeof(head));
    inside(r.authorization, head, sizeof(head));
    (void)sl_page_host_local(r.host, 80);
    (void)sl_page_token_same(sl_page_token_of(r.token, r.authorization), "0123456789abcdef");
    query(r.query);
    return 0;
}
