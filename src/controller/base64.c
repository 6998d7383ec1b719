/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/base64.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *sl_base64_encode(const char *text)
{
    size_t size = strlen(text), n = 0;
    char *out = sl_xmalloc((size + 2) / 3 * 4 + 1);
    for (size_t i = 0; i < size; i += 3) {
        uint32_t v = (uint32_t)(unsigned char)text[i] << 16;
        if (i + 1 < size)
            v |= (uint32_t)(unsigned char)text[i + 1] << 8;
        if (i + 2 < size)
            v |= (uint32_t)(unsigned char)text[i + 2];
        out[n++] = digits[v >> 18 & 63];
        out[n++] = digits[v >> 12 & 63];
        out[n++] = (char)(i + 1 < size ? digits[v >> 6 & 63] : '=');
        out[n++] = (char)(i + 2 < size ? digits[v & 63] : '=');
    }
    out[n] = '\0';
    return out;
}

char *sl_base64_decode(const char *coded)
{
    size_t size = strlen(coded), n = 0;
    uint32_t v = 0;
    char *out = size % 4 ? NULL : sl_xmalloc(size / 4 * 3 + 1);
    for (size_t i = 0; out && i < size; i++) {
        const char *at = coded[i] == '=' && i + 2 >= size ? digits : strchr(digits, coded[i]);
        if (!at) {
            free(out);
            return NULL;
        }
        v = v << 6 | (uint32_t)(at - digits);
        if (i % 4 == 3) {
            out[n++] = (char)(v >> 16 & 255);
            out[n++] = (char)(v >> 8 & 255);
            out[n++] = (char)(v & 255);
        }
    }
    if (out) {
        n -= size && coded[size - 1] == '=';
        n -= size > 1 && coded[size - 2] == '=';
        out[n] = '\0';
        if (strlen(out) != n) { /* not a text */
            free(out);
            return NULL;
        }
    }
    return out;
}
