/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration as JSON, row by row of the table. JSON is YAML: yaml.c reads it back. */
#include <string.h>

#include "config/schema.h"

static void put_devices(struct sl_json *j, const char *key, const struct sl_config_shared *s)
{
    if (s->device_count > 0) {
        sl_json_uint(j, key, s->device_count);
        return;
    }
    if (s->devices_count == 0) {
        sl_json_string(j, key, "all");
        return;
    }
    sl_json_begin(j, key, '[');
    for (size_t i = 0; i < s->devices_count; i++)
        sl_json_string(j, NULL, s->devices[i]);
    sl_json_end(j, ']');
}

static void put_xids(struct sl_json *j, const char *key, const struct sl_xid_list *list)
{
    sl_json_begin(j, key, '[');
    if (list->all)
        sl_json_string(j, NULL, "all");
    for (size_t i = 0; i < list->count; i++)
        sl_json_uint(j, NULL, list->xid[i]);
    sl_json_end(j, ']');
}

/* Amounts and times read the same in both languages: as text, by the YAML printer. */
static void put_as_yaml(struct sl_json *j, const char *key, const struct sl_schema_row *row,
                        const void *base)
{
    char text[48] = "";
    FILE *f = fmemopen(text, sizeof(text), "w");
    if (f) {
        sl_value_print(row, base, f);
        (void)fclose(f);
    }
    sl_json_string(j, key, text);
}

static void put_value(struct sl_json *j, const char *key, const struct sl_schema_row *row,
                      const void *base)
{
    const void *field = (const char *)base + row->offset;
    switch (row->type) {
    case SL_TYPE_BOOL:
        sl_json_bool(j, key, *(const bool *)field);
        break;
    case SL_TYPE_ENUM:
        sl_json_string(j, key, row->words[*(const unsigned *)field]);
        break;
    case SL_TYPE_WORD:
    case SL_TYPE_STRING:
    case SL_TYPE_NAME:
        sl_json_string(j, key, *(char *const *)field);
        break;
    case SL_TYPE_UNSIGNED:
        sl_json_uint(j, key, *(const unsigned *)field);
        break;
    case SL_TYPE_STRATEGIES:
        sl_json_begin(j, key, '[');
        for (unsigned i = 0; row->words[i]; i++)
            if (*(const unsigned *)field & 1U << i)
                sl_json_string(j, NULL, row->words[i]);
        sl_json_end(j, ']');
        break;
    case SL_TYPE_CHANNELS:
        sl_json_begin(j, key, '[');
        if (*(const bool *)field)
            sl_json_uint(j, NULL, 0);
        sl_json_end(j, ']');
        break;
    case SL_TYPE_DEVICES:
        put_devices(j, key, field);
        break;
    case SL_TYPE_XIDS:
        put_xids(j, key, field);
        break;
    case SL_TYPE_VERSION:
    case SL_TYPE_BYTES:
    case SL_TYPE_DURATION:
        put_as_yaml(j, key, row, base);
        break;
    case SL_TYPE_SECTION:
    case SL_TYPE_ITEMS:
        break;
    }
}

static void put_items(struct sl_json *j, const char *key, const struct sl_schema_row *row,
                      const struct sl_draft *d)
{
    const struct sl_config_list *list = (const void *)((const char *)d + row->offset);
    char path[96];
    (void)snprintf(path, sizeof(path), "%s[]", row->path);
    sl_json_begin(j, key, '[');
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->item + i * row->item_size;
        sl_json_begin(j, NULL, '{');
        for (size_t r = 0; r < sl_schema_count; r++) {
            const char *name = sl_schema[r].path ? sl_schema_key_in(sl_schema[r].path, path) : NULL;
            if (name && sl_value_is_there(&sl_schema[r], item))
                put_value(j, name, &sl_schema[r], item);
        }
        sl_json_end(j, '}');
    }
    sl_json_end(j, ']');
}

static void put_section(struct sl_json *j, const char *key, const char *path,
                        const struct sl_draft *d)
{
    sl_json_begin(j, key, '{');
    for (size_t i = 0; i < sl_schema_count; i++) {
        const struct sl_schema_row *row = &sl_schema[i];
        const char *name = row->path ? sl_schema_key_in(row->path, path) : NULL;
        if (!name || sl_section_is_absent(&d->c, row->path))
            continue;
        if (row->type == SL_TYPE_SECTION)
            put_section(j, name, row->path, d);
        else if (row->type == SL_TYPE_ITEMS)
            put_items(j, name, row, d);
        else
            put_value(j, name, row, d);
    }
    sl_json_end(j, '}');
}

void sl_config_json(const struct sl_config *config, const char *key, struct sl_json *j)
{
    struct sl_draft d;
    sl_draft_view(config, &d);
    put_section(j, key, "", &d);
}
