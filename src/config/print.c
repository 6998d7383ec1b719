/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration as YAML or as JSON, row by row of the table. yaml.c reads both back: JSON is YAML too. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "config/schema.h"

struct out {
    struct sl_json *json; /* NULL: YAML */
    FILE *yaml;
    int depth;        /* how many sections the next key is in */
    const char *dash; /* before the next key of an item: "- ", then "  "; elsewhere "" */
    bool list;        /* inside [ ] ... */
    bool first;       /* ... before its first element */
};

/* The text before a value in YAML: its key, or the comma in a list. */
static void lead(struct out *o, const char *key)
{
    if (o->list) {
        (void)fputs(o->first ? "" : ", ", o->yaml);
        o->first = false;
        return;
    }
    (void)fprintf(o->yaml, "%*s%s%s: ", 2 * o->depth, "", o->dash, key);
    if (*o->dash)
        o->dash = "  ";
}

/* Quotes are needed for words that YAML would not take for text, and for texts with a special character. Values are
 * printable ASCII (values.c sees to it). */
static bool needs_quotes(const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    static const char *const words[] = {"true", "false", "yes", "no",  "on",
                                        "off",  "y",     "n",   "null"};
    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return !*text || text[strspn(text, plain)] || strchr("-.0123456789", text[0]);
}

enum kind {
    PLAIN, /* a number, true or false: the same in both languages */
    WORD,  /* a text that needs no quotes in YAML */
    TEXT,
};

static void put(struct out *o, const char *key, enum kind kind, const char *text)
{
    if (o->json) {
        (kind == PLAIN ? sl_json_plain : sl_json_string)(o->json, key, text);
        return;
    }
    const char *quote = kind == TEXT && needs_quotes(text) ? "\"" : "";
    lead(o, key);
    (void)fputs(quote, o->yaml);
    for (; *text; text++) {
        if (*quote && (*text == '"' || *text == '\\'))
            (void)fputc('\\', o->yaml);
        (void)fputc(*text, o->yaml);
    }
    (void)fprintf(o->yaml, "%s%s", quote, o->list ? "" : "\n");
}

static void put_number(struct out *o, const char *key, uint64_t number)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, number);
    put(o, key, PLAIN, text);
}

static void begin_list(struct out *o, const char *key)
{
    if (o->json) {
        sl_json_begin(o->json, key, '[');
        return;
    }
    lead(o, key);
    (void)fputc('[', o->yaml);
    o->list = o->first = true;
}

static void end_list(struct out *o)
{
    o->list = false;
    if (o->json)
        sl_json_end(o->json, ']');
    else
        (void)fputs("]\n", o->yaml);
}

static void put_bytes(struct out *o, const char *key, uint64_t bytes)
{
    static const char units[][3] = {"", "Ki", "Mi", "Gi", "Ti"};
    char text[32];
    size_t u = 0;
    for (; u + 1 < SL_ARRAY_LEN(units) && bytes >= 1024 && bytes % 1024 == 0; u++)
        bytes /= 1024;
    (void)snprintf(text, sizeof(text), "%" PRIu64 "%s", bytes, units[u]);
    put(o, key, WORD, text);
}

static void put_duration(struct out *o, const char *key, uint64_t ns)
{
    char text[48] = "infinite";
    if (ns != UINT64_MAX && ns % SL_NS_PER_S == 0)
        (void)snprintf(text, sizeof(text), "%llus", ns / SL_NS_PER_S);
    else if (ns != UINT64_MAX)
        (void)snprintf(text, sizeof(text), "%llus%09lluns", ns / SL_NS_PER_S, ns % SL_NS_PER_S);
    put(o, key, WORD, text);
}

static void put_devices(struct out *o, const char *key, const struct sl_config_shared *s)
{
    if (s->device_count > 0) {
        put_number(o, key, s->device_count);
        return;
    }
    if (s->devices_count == 0) {
        put(o, key, WORD, "all");
        return;
    }
    begin_list(o, key);
    for (size_t i = 0; i < s->devices_count; i++)
        put(o, NULL, TEXT, s->devices[i]);
    end_list(o);
}

static void put_texts(struct out *o, const char *key, const struct sl_config_texts *list)
{
    begin_list(o, key);
    for (size_t i = 0; i < list->count; i++)
        put(o, NULL, TEXT, list->text[i]);
    end_list(o);
}

static void put_xids(struct out *o, const char *key, const struct sl_xid_list *list)
{
    begin_list(o, key);
    if (list->all)
        put(o, NULL, WORD, "all");
    for (size_t i = 0; i < list->count; i++)
        put_number(o, NULL, list->xid[i]);
    end_list(o);
}

static void put_value(struct out *o, const char *key, const struct sl_schema_row *row,
                      const void *base)
{
    const void *field = (const char *)base + row->offset;
    switch (row->type) {
    case SL_TYPE_VERSION:
        put(o, key, WORD, row->initial);
        break;
    case SL_TYPE_BOOL:
        put(o, key, PLAIN, *(const bool *)field ? "true" : "false");
        break;
    case SL_TYPE_ENUM:
        put(o, key, WORD, row->words[*(const unsigned *)field]);
        break;
    case SL_TYPE_WORD:
    case SL_TYPE_STRING:
    case SL_TYPE_NAME:
    case SL_TYPE_VM_NAME:
        put(o, key, TEXT, *(char *const *)field);
        break;
    case SL_TYPE_UNSIGNED:
        put_number(o, key, *(const unsigned *)field);
        break;
    case SL_TYPE_BYTES:
        put_bytes(o, key, *(const uint64_t *)field);
        break;
    case SL_TYPE_DURATION:
        put_duration(o, key, *(const uint64_t *)field);
        break;
    case SL_TYPE_STRATEGIES:
        begin_list(o, key);
        for (unsigned i = 0; row->words[i]; i++)
            if (*(const unsigned *)field & 1U << i)
                put(o, NULL, WORD, row->words[i]);
        end_list(o);
        break;
    case SL_TYPE_CHANNELS:
        begin_list(o, key);
        if (*(const bool *)field)
            put_number(o, NULL, 0);
        end_list(o);
        break;
    case SL_TYPE_DEVICES:
        put_devices(o, key, field);
        break;
    case SL_TYPE_CARDS:
        put_texts(o, key, field);
        break;
    case SL_TYPE_XIDS:
        put_xids(o, key, field);
        break;
    case SL_TYPE_SECTION:
    case SL_TYPE_ITEMS:
        break;
    }
}

/* Texts and lists of an item may be absent. */
static bool is_there(const struct sl_schema_row *row, const void *base)
{
    const void *field = (const char *)base + row->offset;
    if (row->type == SL_TYPE_STRATEGIES)
        return *(const unsigned *)field != 0;
    if (row->type == SL_TYPE_CARDS)
        return ((const struct sl_config_texts *)field)->count > 0;
    bool text =
        row->type == SL_TYPE_NAME || row->type == SL_TYPE_VM_NAME || row->type == SL_TYPE_STRING;
    return !text || *(char *const *)field;
}

static void put_items(struct out *o, const char *key, const struct sl_schema_row *row,
                      const struct sl_config_list *list)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s[]", row->path);
    if (o->json)
        sl_json_begin(o->json, key, '[');
    else
        (void)fprintf(o->yaml, "%*s%s:%s", 2 * o->depth, "", key, list->count ? "\n" : " []\n");
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->item + i * row->item_size;
        o->dash = "- ";
        if (o->json)
            sl_json_begin(o->json, NULL, '{');
        for (size_t r = 0; r < sl_schema_count; r++) {
            const char *name = sl_schema[r].path ? sl_schema_key_in(sl_schema[r].path, path) : NULL;
            if (name && is_there(&sl_schema[r], item))
                put_value(o, name, &sl_schema[r], item);
        }
        if (o->json)
            sl_json_end(o->json, '}');
    }
    o->dash = "";
    if (o->json)
        sl_json_end(o->json, ']');
}

/* The way of sharing that is not used is left out, rather than printed empty. */
static bool is_absent(const struct sl_config *c, const char *path)
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

static void put_rows(struct out *o, const char *path, const struct sl_draft *d)
{
    for (size_t i = 0; i < sl_schema_count; i++) {
        const struct sl_schema_row *row = &sl_schema[i];
        const char *name = row->path ? sl_schema_key_in(row->path, path) : NULL;
        if (!name || is_absent(&d->c, row->path))
            continue;
        if (row->type == SL_TYPE_ITEMS) {
            put_items(o, name, row, (const void *)((const char *)d + row->offset));
        } else if (row->type != SL_TYPE_SECTION) {
            put_value(o, name, row, d);
        } else if (o->json) {
            sl_json_begin(o->json, name, '{');
            put_rows(o, row->path, d);
            sl_json_end(o->json, '}');
        } else {
            (void)fprintf(o->yaml, "%*s%s:\n", 2 * o->depth++, "", name);
            put_rows(o, row->path, d);
            o->depth--;
        }
    }
}

void sl_config_print(const struct sl_config *config, FILE *out)
{
    struct out o = {.yaml = out, .dash = ""};
    struct sl_draft d;
    sl_draft_view(config, &d);
    put_rows(&o, "", &d);
    /* Settings that NVIDIA's file and ours do not have: only the command line and the environment set them. */
    for (size_t i = 0; i < sl_schema_count; i++) {
        char flag[64];
        if (sl_schema[i].path || !sl_schema_name(sl_schema[i].flag, 0, flag, sizeof(flag)))
            continue;
        const char *text = *(char *const *)((const char *)&d + sl_schema[i].offset);
        if (text[0])
            (void)fprintf(out, "# --%s=%s\n", flag, text);
    }
}

void sl_config_json(const struct sl_config *config, const char *key, struct sl_json *j)
{
    struct out o = {.json = j, .yaml = j->out, .dash = ""};
    struct sl_draft d;
    sl_draft_view(config, &d);
    sl_json_begin(j, key, '{');
    put_rows(&o, "", &d);
    sl_json_end(j, '}');
}
