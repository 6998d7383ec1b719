/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration as YAML, row by row of the table. What it prints, yaml.c reads back. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "config/schema.h"

/* Words that YAML would not take for text, and everything with a character of its own meaning, get
 * quotes. Values are printable ASCII (values.c sees to it). */
static void put_text(const char *text, FILE *out)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    static const char *const words[] = {"true", "false", "yes", "no",  "on",
                                        "off",  "y",     "n",   "null"};
    size_t n = strlen(text);
    bool quote = n == 0 || strspn(text, plain) != n || text[0] == '-' || text[0] == '.' ||
                 (text[0] >= '0' && text[0] <= '9');
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && !quote; i++)
        quote = strcasecmp(text, words[i]) == 0;
    if (!quote) {
        (void)fputs(text, out);
        return;
    }
    (void)fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            (void)fputc('\\', out);
        (void)fputc(*text, out);
    }
    (void)fputc('"', out);
}

static void put_bytes(uint64_t bytes, FILE *out)
{
    static const char units[][3] = {"", "Ki", "Mi", "Gi", "Ti"};
    size_t u = 0;
    while (u + 1 < sizeof(units) / sizeof(units[0]) && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        u++;
    }
    (void)fprintf(out, "%" PRIu64 "%s", bytes, units[u]);
}

static void put_duration(uint64_t ns, FILE *out)
{
    if (ns == UINT64_MAX)
        (void)fputs("infinite", out);
    else if (ns % SL_NS_PER_S == 0)
        (void)fprintf(out, "%llus", ns / SL_NS_PER_S);
    else
        (void)fprintf(out, "%llus%09lluns", ns / SL_NS_PER_S, ns % SL_NS_PER_S);
}

static void put_strategies(unsigned set, const char *const *words, FILE *out)
{
    const char *comma = "";
    (void)fputc('[', out);
    for (unsigned i = 0; words[i]; i++) {
        if (!(set & 1U << i))
            continue;
        (void)fprintf(out, "%s%s", comma, words[i]);
        comma = ", ";
    }
    (void)fputc(']', out);
}

static void put_devices(const struct sl_config_shared *s, FILE *out)
{
    if (s->device_count > 0) {
        (void)fprintf(out, "%u", s->device_count);
        return;
    }
    if (s->devices_count == 0) {
        (void)fputs("all", out);
        return;
    }
    for (size_t i = 0; i < s->devices_count; i++) {
        (void)fputs(i == 0 ? "[" : ", ", out);
        put_text(s->devices[i], out);
    }
    (void)fputc(']', out);
}

static void put_xids(const struct sl_xid_list *list, FILE *out)
{
    (void)fputs(list->all ? "[all" : "[", out);
    for (size_t i = 0; i < list->count; i++)
        (void)fprintf(out, "%s%" PRIu64, i == 0 && !list->all ? "" : ", ", list->xid[i]);
    (void)fputc(']', out);
}

void sl_value_print(const struct sl_schema_row *row, const void *base, FILE *out)
{
    const void *field = (const char *)base + row->offset;
    switch (row->type) {
    case SL_TYPE_VERSION:
        (void)fputs(row->initial, out);
        break;
    case SL_TYPE_BOOL:
        (void)fputs(*(const bool *)field ? "true" : "false", out);
        break;
    case SL_TYPE_ENUM:
        (void)fputs(row->words[*(const unsigned *)field], out);
        break;
    case SL_TYPE_WORD:
    case SL_TYPE_STRING:
    case SL_TYPE_NAME:
        put_text(*(char *const *)field, out);
        break;
    case SL_TYPE_UNSIGNED:
        (void)fprintf(out, "%u", *(const unsigned *)field);
        break;
    case SL_TYPE_BYTES:
        put_bytes(*(const uint64_t *)field, out);
        break;
    case SL_TYPE_DURATION:
        put_duration(*(const uint64_t *)field, out);
        break;
    case SL_TYPE_STRATEGIES:
        put_strategies(*(const unsigned *)field, row->words, out);
        break;
    case SL_TYPE_CHANNELS:
        (void)fputs(*(const bool *)field ? "[0]" : "[]", out);
        break;
    case SL_TYPE_DEVICES:
        put_devices(field, out);
        break;
    case SL_TYPE_XIDS:
        put_xids(field, out);
        break;
    case SL_TYPE_SECTION:
    case SL_TYPE_ITEMS:
        break;
    }
}

static int depth_of(const char *path)
{
    int n = 0;
    for (; *path; path++)
        n += *path == '.';
    return n;
}

static const char *key_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

bool sl_value_is_there(const struct sl_schema_row *row, const void *base)
{
    const void *field = (const char *)base + row->offset;
    if (row->type == SL_TYPE_STRATEGIES)
        return *(const unsigned *)field != 0;
    bool text = row->type == SL_TYPE_NAME || row->type == SL_TYPE_STRING;
    return !text || *(char *const *)field;
}

static void put_items(const struct sl_schema_row *row, const struct sl_config_list *list, FILE *out)
{
    size_t n = strlen(row->path);
    (void)fprintf(out, list->count ? "\n" : " []\n");
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->item + i * row->item_size, *dash = "- ";
        for (size_t r = sl_schema_index(row) + 1; r < sl_schema_count; r++) {
            const struct sl_schema_row *field = &sl_schema[r];
            if (!field->path || strncmp(field->path, row->path, n) != 0)
                break;
            if (!sl_value_is_there(field, item))
                continue;
            (void)fprintf(out, "%*s%s%s: ", 2 * depth_of(row->path), "", dash, key_of(field->path));
            sl_value_print(field, item, out);
            (void)fputc('\n', out);
            dash = "  ";
        }
    }
}

bool sl_section_is_absent(const struct sl_config *c, const char *path)
{
    static const struct {
        const char *prefix;
        enum sl_sharing sharing;
    } block[] = {{"sharing.timeSlicing", SL_SHARING_TIME_SLICING}, {"sharing.mps", SL_SHARING_MPS}};
    for (size_t i = 0; i < 2; i++)
        if (strncmp(path, block[i].prefix, strlen(block[i].prefix)) == 0)
            return c->sharing != block[i].sharing;
    return false;
}

void sl_config_print(const struct sl_config *config, FILE *out)
{
    struct sl_draft d;
    sl_draft_view(config, &d);
    for (size_t i = 0; i < sl_schema_count; i++) {
        const struct sl_schema_row *row = &sl_schema[i];
        if (!row->path || strstr(row->path, "[]") || sl_section_is_absent(config, row->path))
            continue;
        (void)fprintf(out, "%*s%s:", 2 * depth_of(row->path), "", key_of(row->path));
        if (row->type == SL_TYPE_SECTION) {
            (void)fputc('\n', out);
        } else if (row->type == SL_TYPE_ITEMS) {
            put_items(row, (const void *)((const char *)&d + row->offset), out);
        } else {
            (void)fputc(' ', out);
            sl_value_print(row, &d, out);
            (void)fputc('\n', out);
        }
    }
    /* Not in NVIDIA's file, and so not in ours: said on the command line or in the environment. */
    for (size_t i = 0; i < sl_schema_count; i++) {
        char flag[64];
        if (sl_schema[i].path || !sl_schema_name(sl_schema[i].flag, 0, flag, sizeof(flag)))
            continue;
        const char *text = *(char *const *)((const char *)&d + sl_schema[i].offset);
        if (text[0])
            (void)fprintf(out, "# --%s=%s\n", flag, text);
    }
}
