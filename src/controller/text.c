/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/xalloc.h"

void sl_text_add(struct sl_text *t, const char *data, size_t size)
{
    if (t->failed)
        return;
    if (t->room - t->size <= size) {
        size_t room = t->room ? t->room : 1024;
        while (room - t->size <= size)
            room *= 2;
        t->data = sl_xrealloc(t->data, room);
        t->room = room;
    }
    memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = '\0';
}

void sl_text_put(struct sl_text *t, const char *data)
{
    sl_text_add(t, data, strlen(data));
}

void sl_text_format(struct sl_text *t, const char *fmt, ...)
{
    char buf[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(buf))
        t->failed = true;
    else
        sl_text_add(t, buf, (size_t)n);
}

void sl_text_quote(struct sl_text *t, const char *data)
{
    const char *plain = data;
    sl_text_add(t, "\"", 1);
    while (*data) {
        unsigned char c = (unsigned char)*data;
        size_t n = sl_utf8_length(data);
        if (c >= 0x20 && c != '"' && c != '\\' && n) {
            data += n;
            continue;
        }
        sl_text_add(t, plain, (size_t)(data - plain));
        if (!n)
            sl_text_put(t, "\\ufffd"); /* one wrong byte would make the whole answer unreadable */
        else if (c < 0x20)
            sl_text_format(t, "\\u%04x", (unsigned)c);
        else
            sl_text_format(t, "\\%c", c);
        plain = ++data;
    }
    sl_text_add(t, plain, (size_t)(data - plain));
    sl_text_add(t, "\"", 1);
}

char *sl_text_take(struct sl_text *t)
{
    char *data = t->failed ? NULL : t->data;
    if (t->failed)
        free(t->data);
    *t = (struct sl_text){.data = NULL};
    return data;
}
