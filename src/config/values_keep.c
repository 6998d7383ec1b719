/* SPDX-License-Identifier: Apache-2.0 */
/* Frees and compares values in a struct. */
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

static void clear_devices(struct sl_config_shared *s)
{
    for (size_t i = 0; i < s->devices_count; i++)
        free(s->devices[i]);
    free(s->devices);
    s->devices = NULL;
    s->devices_count = 0;
    s->device_count = 0;
    s->all_devices = false;
}

static void clear_texts(struct sl_config_texts *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->text[i]);
    free(list->text);
    *list = (struct sl_config_texts){0};
}

/* Calls for each row of the items of a list, such as resources[].name. */
static const struct sl_schema_row *item_row(const struct sl_schema_row *list, size_t *at)
{
    size_t n = strlen(list->path);
    for (; *at < sl_schema_count; ++*at) {
        const char *path = sl_schema[*at].path;
        if (path && strncmp(path, list->path, n) == 0 && strncmp(path + n, "[].", 3) == 0)
            return &sl_schema[(*at)++];
    }
    return NULL;
}

static void clear_items(const struct sl_schema_row *row, struct sl_config_list *list)
{
    const struct sl_schema_row *r;
    for (size_t i = 0; i < list->count; i++)
        for (size_t at = 0; (r = item_row(row, &at));)
            sl_value_clear(r, (char *)list->item + i * row->item_size);
    free(list->item);
    *list = (struct sl_config_list){0};
}

void sl_value_clear(const struct sl_schema_row *row, void *base)
{
    void *field = (char *)base + row->offset;
    switch (row->type) {
    case SL_TYPE_WORD:
    case SL_TYPE_STRING:
    case SL_TYPE_NAME:
    case SL_TYPE_VM_NAME:
        free(*(char **)field);
        *(char **)field = NULL;
        break;
    case SL_TYPE_STRATEGIES:
        *(unsigned *)field = 0;
        break;
    case SL_TYPE_CHANNELS:
        *(bool *)field = false;
        break;
    case SL_TYPE_DEVICES:
        clear_devices(field);
        break;
    case SL_TYPE_CARDS:
        clear_texts(field);
        break;
    case SL_TYPE_XIDS:
        free(((struct sl_xid_list *)field)->xid);
        *(struct sl_xid_list *)field = (struct sl_xid_list){0};
        break;
    case SL_TYPE_ITEMS:
        clear_items(row, field);
        break;
    case SL_TYPE_SECTION:
    case SL_TYPE_VERSION:
    case SL_TYPE_BOOL:
    case SL_TYPE_ENUM:
    case SL_TYPE_UNSIGNED:
    case SL_TYPE_BYTES:
    case SL_TYPE_DURATION:
        break; /* overwritten in place */
    }
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_devices(const struct sl_config_shared *a, const struct sl_config_shared *b)
{
    if (a->all_devices != b->all_devices || a->device_count != b->device_count ||
        a->devices_count != b->devices_count)
        return false;
    for (size_t i = 0; i < a->devices_count; i++)
        if (strcmp(a->devices[i], b->devices[i]) != 0)
            return false;
    return true;
}

static bool same_texts(const struct sl_config_texts *a, const struct sl_config_texts *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (strcmp(a->text[i], b->text[i]) != 0)
            return false;
    return a->count == b->count;
}

static bool same_items(const struct sl_schema_row *row, const struct sl_config_list *a,
                       const struct sl_config_list *b)
{
    const struct sl_schema_row *r;
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        for (size_t at = 0; (r = item_row(row, &at));)
            if (!sl_value_equal(r, (const char *)a->item + i * row->item_size,
                                (const char *)b->item + i * row->item_size))
                return false;
    return true;
}

static bool same_xids(const struct sl_xid_list *a, const struct sl_xid_list *b)
{
    return a->all == b->all && a->count == b->count &&
           (a->count == 0 || memcmp(a->xid, b->xid, a->count * sizeof(*a->xid)) == 0);
}

bool sl_value_equal(const struct sl_schema_row *row, const void *base_a, const void *base_b)
{
    const void *a = (const char *)base_a + row->offset, *b = (const char *)base_b + row->offset;
    switch (row->type) {
    case SL_TYPE_WORD:
    case SL_TYPE_STRING:
    case SL_TYPE_NAME:
    case SL_TYPE_VM_NAME:
        return same_text(*(char *const *)a, *(char *const *)b);
    case SL_TYPE_BOOL:
    case SL_TYPE_CHANNELS:
        return *(const bool *)a == *(const bool *)b;
    case SL_TYPE_ENUM:
    case SL_TYPE_UNSIGNED:
    case SL_TYPE_STRATEGIES:
        return *(const unsigned *)a == *(const unsigned *)b;
    case SL_TYPE_BYTES:
    case SL_TYPE_DURATION:
        return *(const uint64_t *)a == *(const uint64_t *)b;
    case SL_TYPE_DEVICES:
        return same_devices(a, b);
    case SL_TYPE_CARDS:
        return same_texts(a, b);
    case SL_TYPE_XIDS:
        return same_xids(a, b);
    case SL_TYPE_ITEMS:
        return same_items(row, a, b);
    case SL_TYPE_SECTION:
    case SL_TYPE_VERSION:
        break;
    }
    return true;
}
