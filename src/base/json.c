/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <math.h>
#include <string.h>

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

/* How many bytes of s are one well-formed UTF-8 character; 0 if none begins there. */
static size_t utf8_length(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) /* also at the end of the string */
            return 0;
    /* Longer than it need be, half of a UTF-16 pair, beyond the last character. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

/* Names come from other people's processes and file systems: what is not UTF-8 would make the whole
 * document unreadable, so each such byte becomes the replacement character. */
static void quoted(struct sl_json *j, const char *s)
{
    fputc('"', j->out);
    while (*s) {
        unsigned char c = (unsigned char)*s;
        size_t n = utf8_length(s);
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
