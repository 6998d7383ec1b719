/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML file, its headers, and who may see it. */
#include "page/page.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "page/errors.h"

/* The file, as text with its terminating zero. */
__asm__(".section .rodata\n.local sl_page_file\nsl_page_file:\n.incbin \"" PAGE_HTML
        "\"\n.local sl_page_file_end\nsl_page_file_end:\n.byte 0\n.previous\n");
extern const char sl_page_file[] __attribute__((visibility("hidden")));
extern const char sl_page_file_end[] __attribute__((visibility("hidden")));

#define POLICY_BEGIN "http-equiv=\"Content-Security-Policy\" content=\""
#define POLICY_MORE  "; frame-ancestors 'none'" /* is not allowed in the file's own policy */

const char *sl_page_html(size_t *ret_size)
{
    *ret_size = (size_t)(sl_page_file_end - sl_page_file);
    return sl_page_file;
}

/* The file says which script and which style may run: those whose hash it names. The header says the same. */
static const char *policy(void)
{
    static char text[1024];
    const char *begin = strstr(sl_page_file, POLICY_BEGIN);
    if (text[0])
        return text;
    begin = begin ? begin + strlen(POLICY_BEGIN) : "default-src 'none'\"";
    (void)snprintf(text, sizeof(text), "%.*s" POLICY_MORE, (int)strcspn(begin, "\""), begin);
    return text;
}

const struct sl_page_header *sl_page_headers(void)
{
    static struct sl_page_header headers[] = {
        {"Content-Security-Policy", NULL},
        {"Cache-Control", "no-store"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {NULL, NULL},
    };
    headers[0].value = policy();
    return headers;
}

bool sl_page_token_same(const char *given, const char *token)
{
    size_t size = strlen(token), other = given ? strlen(given) : 0;
    unsigned differ = size != other || size == 0;
    for (size_t i = 0; i < size; i++)
        differ |= (unsigned char)token[i] ^ (unsigned char)(i < other ? given[i] : 0);
    return differ == 0;
}

int sl_page_token_read(const char *text, char ret[SL_PAGE_TOKEN_MOST + 1], struct sl_err *err)
{
    const char *begin = text + strspn(text, " \t\r\n");
    size_t size = strlen(begin);
    while (size && isspace((unsigned char)begin[size - 1]))
        size--;
    bool good = size >= SL_PAGE_TOKEN_LEAST && size <= SL_PAGE_TOKEN_MOST;
    for (size_t i = 0; good && i < size; i++)
        good = isgraph((unsigned char)begin[i]);
    if (!good)
        return sl_err_set(err, -EINVAL, SL_E_PAGE_TOKEN, SL_PAGE_TOKEN_LEAST, SL_PAGE_TOKEN_MOST);
    memcpy(ret, begin, size);
    ret[size] = '\0';
    return 0;
}

const char *sl_page_token_of(const char *own_header, const char *authorization)
{
    static const char bearer[] = "Bearer ";
    if (own_header)
        return own_header;
    if (authorization && strncasecmp(authorization, bearer, sizeof(bearer) - 1) == 0)
        return authorization + sizeof(bearer) - 1;
    return NULL;
}

bool sl_page_host_local(const char *host, unsigned port)
{
    static const char *const names[] = {"127.0.0.1", "[::1]", "localhost"};
    char whole[64];
    for (size_t i = 0; host && i < SL_ARRAY_LEN(names); i++) {
        (void)snprintf(whole, sizeof(whole), "%s:%u", names[i], port);
        if (strcasecmp(host, whole) == 0 || (port == 80 && strcasecmp(host, names[i]) == 0))
            return true;
    }
    return false;
}
