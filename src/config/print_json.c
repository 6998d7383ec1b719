/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration as JSON, row by row of the table. JSON is YAML: yaml.c reads it back. */
#include <string.h>

#include "base/cleanup.h"
#include "config/schema.h"

static void put_text(struct sl_json *j, const char *text)
{
    sl_json_string(j, text);
}

static void put_devices(struct sl_json *j, const struct sl_config_shared *s)
{
    if (s->device_count > 0) {
        sl_json_uint(j, s->device_count);
        return;
    }
    if (s->devices_count == 0) {
        put_text(j, "all");
        return;
    }
    sl_json_begin(j, '[');
    for (size_t i = 0; i < s->devices_count; i++)
        put_text(j, s->devices[i]);
    sl_json_end(j, ']');
}

static void put_xids(struct sl_json *j, const struct sl_xid_list *list)
{
    sl_json_begin(j, '[');
    if (list->all)
        put_text(j, "all");
    for (size_t i = 0; i < list->count; i++)
        sl_json_uint(j, list->xid[i]);
    sl_json_end(j, ']');
}

/* Amounts and times read the same in both languages: as text, by the YAML printer. */
static void put_as_yaml(struct sl_json *j, const struct sl_schema_row *row, const void *base)
{
    char text[48] = "";
    FILE *f = fmemopen(text, sizeof(text), "w");
    if (f) {
        sl_value_print(row, base, f);
        (void)fclose(f);
    }
    put_text(j, text);
}

static void put_value(struct sl_json *j, const struct sl_schema_row *row, const void *base)
{
    const void *field = (const char *)base + row->offset;
    switch (row->type) {
    case SL_TYPE_BOOL:
        sl_json_bool(j, *(const bool *)field);
        break;
    case SL_TYPE_ENUM:
        put_text(j, row->words[*(const unsigned *)field]);
        break;
    case SL_TYPE_WORD:
    case SL_TYPE_STRING:
    case SL_TYPE_NAME:
        put_text(j, *(char *const *)field);
        break;
    case SL_TYPE_UNSIGNED:
        sl_json_uint(j, *(const unsigned *)field);
        break;
    case SL_TYPE_STRATEGIES:
        sl_json_begin(j, '[');
        for (unsigned i = 0; row->words[i]; i++)
            if (*(const unsigned *)field & 1U << i)
                put_text(j, row->words[i]);
        sl_json_end(j, ']');
        break;
    case SL_TYPE_CHANNELS:
        sl_json_begin(j, '[');
        if (*(const bool *)field)
            sl_json_uint(j, 0);
        sl_json_end(j, ']');
        break;
    case SL_TYPE_DEVICES:
        put_devices(j, field);
        break;
    case SL_TYPE_XIDS:
        put_xids(j, field);
        break;
    case SL_TYPE_VERSION:
    case SL_TYPE_BYTES:
    case SL_TYPE_DURATION:
        put_as_yaml(j, row, base);
        break;
    case SL_TYPE_SECTION:
    case SL_TYPE_ITEMS:
        break;
    }
}

static void put_items(struct sl_json *j, const struct sl_schema_row *row, const struct sl_draft *d)
{
    const struct sl_item_list *list = (const void *)((const char *)d + row->offset);
    char path[96];
    (void)snprintf(path, sizeof(path), "%s[]", row->path);
    sl_json_begin(j, '[');
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->item + i * row->item_size;
        sl_json_begin(j, '{');
        for (size_t r = 0; r < sl_schema_count; r++) {
            const char *key = sl_schema[r].path ? sl_schema_key_in(sl_schema[r].path, path) : NULL;
            if (!key || !sl_value_is_there(&sl_schema[r], item))
                continue;
            sl_json_key(j, key);
            put_value(j, &sl_schema[r], item);
        }
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
}

static void put_section(struct sl_json *j, const char *path, const struct sl_draft *d)
{
    sl_json_begin(j, '{');
    for (size_t i = 0; i < sl_schema_count; i++) {
        const struct sl_schema_row *row = &sl_schema[i];
        const char *key = row->path ? sl_schema_key_in(row->path, path) : NULL;
        if (!key || sl_section_is_absent(&d->c, row->path))
            continue;
        sl_json_key(j, key);
        if (row->type == SL_TYPE_SECTION)
            put_section(j, row->path, d);
        else if (row->type == SL_TYPE_ITEMS)
            put_items(j, row, d);
        else
            put_value(j, row, d);
    }
    sl_json_end(j, '}');
}

void sl_config_json(const struct sl_config *config, struct sl_json *j)
{
    struct sl_draft d;
    sl_draft_view(config, &d);
    put_section(j, "", &d);
}
