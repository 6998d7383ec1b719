/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

void sl_json_init(struct sl_json *j, FILE *out)
{
    *j = (struct sl_json){.out = out, .first = true};
}

static void before_value(struct sl_json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (!j->first)
        fputc(',', j->out);
    if (j->depth > 0)
        fprintf(j->out, "\n%*s", j->depth * 2, "");
    j->first = false;
}

/* Names come from other people's processes and file systems: what is not UTF-8 would make the whole
 * document unreadable, so each such byte becomes the replacement character. */
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

void sl_json_begin(struct sl_json *j, char bracket)
{
    before_value(j);
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

void sl_json_key(struct sl_json *j, const char *key)
{
    before_value(j);
    quoted(j, key);
    fputs(": ", j->out);
    j->after_key = true;
}

void sl_json_string(struct sl_json *j, const char *value)
{
    before_value(j);
    if (value)
        quoted(j, value);
    else
        fputs("null", j->out);
}

void sl_json_uint(struct sl_json *j, uint64_t value)
{
    before_value(j);
    fprintf(j->out, "%llu", (unsigned long long)value);
}

void sl_json_int(struct sl_json *j, int64_t value)
{
    before_value(j);
    fprintf(j->out, "%lld", (long long)value);
}

void sl_json_double(struct sl_json *j, double value)
{
    before_value(j);
    if (isfinite(value))
        fprintf(j->out, "%.6g", value);
    else
        fputs("null", j->out);
}

void sl_json_bool(struct sl_json *j, bool value)
{
    before_value(j);
    fputs(value ? "true" : "false", j->out);
}
