/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

void sl_json_init(struct sl_json *j, FILE *out)
{
    *j = (struct sl_json){.out = out, .first = true};
}

/* Names come from other people's processes and file systems: bytes that are no UTF-8 would make the whole document
 * unreadable, so each such byte becomes the replacement character. */
static void quoted(struct sl_json *j, const char *s)
{
    fputc('"', j->out);
    while (*s) {
        unsigned char c = (unsigned char)*s;
        size_t n = sl_utf8_length(s);
        if (c == '"' || c == '\\')
            fprintf(j->out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(j->out, "\\u%04x", c);
        else if (n == 0)
            fputs("\\ufffd", j->out);
        else
            fwrite(s, 1, n, j->out);
        s += n ? n : 1;
    }
    fputc('"', j->out);
}

static void before_value(struct sl_json *j, const char *key)
{
    if (!j->first)
        fputc(',', j->out);
    if (j->depth > 0)
        fprintf(j->out, "\n%*s", j->depth * 2, "");
    j->first = false;
    if (key) {
        quoted(j, key);
        fputs(": ", j->out);
    }
}

void sl_json_begin(struct sl_json *j, const char *key, char bracket)
{
    before_value(j, key);
    fputc(bracket, j->out);
    j->depth++;
    j->first = true;
}

void sl_json_end(struct sl_json *j, char bracket)
{
    j->depth--;
    if (!j->first)
        fprintf(j->out, "\n%*s", j->depth * 2, "");
    fputc(bracket, j->out);
    j->first = false;
    if (j->depth == 0)
        fputc('\n', j->out);
}

void sl_json_string(struct sl_json *j, const char *key, const char *value)
{
    before_value(j, key);
    if (value)
        quoted(j, value);
    else
        fputs("null", j->out);
}

void sl_json_plain(struct sl_json *j, const char *key, const char *value)
{
    before_value(j, key);
    fputs(value, j->out);
}

void sl_json_uint(struct sl_json *j, const char *key, uint64_t value)
{
    before_value(j, key);
    fprintf(j->out, "%llu", (unsigned long long)value);
}

void sl_json_int(struct sl_json *j, const char *key, int64_t value)
{
    before_value(j, key);
    fprintf(j->out, "%lld", (long long)value);
}

void sl_json_double(struct sl_json *j, const char *key, double value)
{
    before_value(j, key);
    if (isfinite(value))
        fprintf(j->out, "%.6g", value);
    else
        fputs("null", j->out);
}

void sl_json_bool(struct sl_json *j, const char *key, bool value)
{
    sl_json_plain(j, key, value ? "true" : "false");
}
