/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sl_text_add(struct sl_text *t, const char *data, size_t size)
{
    if (t->failed)
        return;
    if (t->room - t->size <= size) {
        size_t room = t->room ? t->room : 1024;
        while (room - t->size <= size)
            room *= 2;
        char *more = realloc(t->data, room);
        if (!more) {
            t->failed = true;
            return;
        }
        t->data = more;
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
    sl_text_add(t, "\"", 1);
    while (*data) {
        size_t plain =
            strcspn(data, "\"\\\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
                          "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f");
        sl_text_add(t, data, plain);
        data += plain;
        if (!*data)
            break;
        if (*data == '"' || *data == '\\')
            sl_text_format(t, "\\%c", *data);
        else
            sl_text_format(t, "\\u%04x", (unsigned)(unsigned char)*data);
        data++;
    }
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
