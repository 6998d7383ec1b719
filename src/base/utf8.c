/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <string.h>

/* The length of a character that begins with c; 0: no character begins with c. */
static size_t promised(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    return c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
}

size_t sl_utf8_length(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = promised(p[0]);
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) /* also at the end of the string */
            return 0;
    /* Overlong, half of a UTF-16 pair, or beyond the last character. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

bool sl_utf8_valid(const char *s)
{
    while (*s) {
        size_t n = sl_utf8_length(s);
        if (n == 0)
            return false;
        s += n;
    }
    return true;
}

void sl_utf8_mend(char *s)
{
    while (*s) {
        size_t n = sl_utf8_length(s);
        if (n == 0 && strlen(s) < promised((unsigned char)*s)) {
            size_t rest = 1;
            while (((unsigned char)s[rest] & 0xc0) == 0x80)
                rest++;
            if (!s[rest]) {
                *s = '\0';
                return;
            }
        }
        if (n == 0)
            *s = '?';
        s += n ? n : 1;
    }
}

void sl_utf8_copy(char *dst, size_t size, const char *src)
{
    size_t n = strnlen(src, size - 1);
    memcpy(dst, src, n);
    dst[n] = '\0';
    sl_utf8_mend(dst);
}
