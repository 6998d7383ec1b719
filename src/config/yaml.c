/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads NVIDIA's file into a draft, by libyaml. The table says which keys exist, so the walk goes no deeper than the
 * table: a document that refers to itself ends where the table ends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/xalloc.h"
#include "config/errors.h"
#include "config/schema.h"

struct walk {
    struct sl_draft *d;
    yaml_document_t *doc;
    struct sl_err *err;
};

enum { PATH_SIZE = 96, MAX_ITEMS = 256 };

static struct sl_origin where(yaml_mark_t mark)
{
    return (struct sl_origin){.line = (unsigned)mark.line + 1, .column = (unsigned)mark.column + 1};
}

static struct sl_scalar scalar(const yaml_node_t *node)
{
    return (struct sl_scalar){.text = (const char *)node->data.scalar.value,
                              .len = node->data.scalar.length,
                              .quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE,
                              .at = where(node->start_mark)};
}

#define FAIL(w, node, ...)                                                                         \
    sl_config_fail((w)->d, where((node)->start_mark), (w)->err, -EINVAL, __VA_ARGS__)

static bool is_null(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE)
        return false;
    struct sl_scalar s = scalar(node);
    return sl_scalar_is_null(&s);
}

static int walk_mapping(const struct walk *w, const yaml_node_t *node, const char *path,
                        void *base);

static int walk_sequence(const struct walk *w, const yaml_node_t *node,
                         const struct sl_schema_row *row, void *base)
{
    const yaml_node_item_t *item = node->data.sequence.items.start;
    if (item == node->data.sequence.items.top &&
        (row->type == SL_TYPE_DEVICES || row->type == SL_TYPE_STRATEGIES))
        return FAIL(w, node, SL_E_LIST_EMPTY, row->path);
    sl_value_clear(row, base);
    for (; item < node->data.sequence.items.top; item++) {
        const yaml_node_t *e = yaml_document_get_node(w->doc, *item);
        if (e->type != YAML_SCALAR_NODE || is_null(e))
            return FAIL(w, e, SL_E_NEEDS_PLAIN_ITEMS, row->path);
        struct sl_scalar s = scalar(e);
        int rc = sl_value_add(w->d, row, base, &s, w->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int walk_items(const struct walk *w, const yaml_node_t *node,
                      const struct sl_schema_row *row, struct sl_config_list *list)
{
    char path[PATH_SIZE];
    if (node->type != YAML_SEQUENCE_NODE)
        return FAIL(w, node, SL_E_NEEDS_LIST, row->path);
    size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (count == 0 && row->required)
        return FAIL(w, node, "%s: %s", row->path, row->required);
    if (count > MAX_ITEMS)
        return sl_config_fail(w->d, where(node->start_mark), w->err, -E2BIG, SL_E_LIST_LONG,
                              row->path, count, MAX_ITEMS);
    (void)snprintf(path, sizeof(path), "%s[]", row->path);
    list->item = sl_xcalloc(count + 1, row->item_size);
    for (; list->count < count; list->count++) {
        const yaml_node_t *e =
            yaml_document_get_node(w->doc, node->data.sequence.items.start[list->count]);
        void *item = (char *)list->item + list->count * row->item_size;
        if (row->item_size == sizeof(struct sl_config_shared)) {
            ((struct sl_config_shared *)item)->line = where(e->start_mark).line;
            ((struct sl_config_shared *)item)->column = where(e->start_mark).column;
        }
        int rc = walk_mapping(w, e, path, item);
        if (rc < 0) {
            list->count++; /* the half-read item counts too, so that it is freed */
            return rc;
        }
    }
    return 0;
}

static int walk_value(const struct walk *w, const yaml_node_t *node,
                      const struct sl_schema_row *row, void *base)
{
    if (row->type == SL_TYPE_SECTION)
        return walk_mapping(w, node, row->path, base);
    if (row->type == SL_TYPE_ITEMS)
        return walk_items(w, node, row, (void *)((char *)base + row->offset));
    if (node->type == YAML_SEQUENCE_NODE && sl_value_is_list(row->type))
        return walk_sequence(w, node, row, base);
    if (node->type != YAML_SCALAR_NODE)
        return FAIL(w, node, SL_E_NEEDS_ONE_VALUE, row->path,
                    node->type == YAML_SEQUENCE_NODE ? "a list" : "keys of its own");
    struct sl_scalar s = scalar(node);
    /* Outside the file "0" is a list with one element; in the file, only [0] is a list. */
    if (row->type == SL_TYPE_CHANNELS)
        return sl_config_fail(w->d, s.at, w->err, -EINVAL, SL_E_NEEDS_CHANNELS, row->path);
    return sl_value_set(w->d, row, base, &s, w->err);
}

static int unknown_key(const struct walk *w, const char *path, const struct sl_scalar *key)
{
    char hint[200];
    sl_schema_suggest(path, key->text, hint, sizeof(hint));
    return sl_config_fail(w->d, key->at, w->err, -EINVAL, SL_E_KEY_UNKNOWN, key->text,
                          path[0] ? " in " : "", path, hint);
}

static int check_required(const struct walk *w, const yaml_node_t *node, const char *path,
                          const bool *seen)
{
    for (size_t i = 0; i < sl_schema_count; i++)
        if (sl_schema[i].required && !seen[i] && sl_schema_key_in(sl_schema[i].path, path))
            return FAIL(w, node, "%s: %s", path, sl_schema[i].required);
    return 0;
}

static int walk_mapping(const struct walk *w, const yaml_node_t *node, const char *path, void *base)
{
    bool seen[SL_SCHEMA_MAX] = {false}, valued[SL_SCHEMA_MAX] = {false};
    if (node->type != YAML_MAPPING_NODE)
        return FAIL(w, node, SL_E_NEEDS_MAPPING, path, path[0] ? " " : "the file ");
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *k = yaml_document_get_node(w->doc, pair->key);
        const yaml_node_t *v = yaml_document_get_node(w->doc, pair->value);
        if (k->type != YAML_SCALAR_NODE)
            return FAIL(w, k, SL_E_KEY_NOT_A_WORD);
        struct sl_scalar key = scalar(k);
        const struct sl_schema_row *row = sl_schema_child(path, key.text, key.len);
        if (!row)
            return unknown_key(w, path, &key);
        size_t i = sl_schema_index(row);
        if (seen[i])
            return sl_config_fail(w->d, key.at, w->err, -EINVAL, SL_E_KEY_TWICE, key.text);
        seen[i] = true;
        if (is_null(v))
            continue; /* null counts as absent, as in NVIDIA's plugin */
        valued[i] = true;
        if (!strstr(row->path, "[]"))
            w->d->origin[i] = row->type == SL_TYPE_SECTION ? key.at : where(v->start_mark);
        int rc = walk_value(w, v, row, base);
        if (rc < 0)
            return rc;
    }
    return check_required(w, node, path, valued);
}

/* The reader (encoding, control characters) reports only the byte where it failed. */
static struct sl_origin where_byte(const char *text, size_t size, size_t offset)
{
    struct sl_origin at = {.line = 1, .column = 1};
    for (size_t i = 0; i < offset && i < size; i++) {
        at.column++;
        if (text[i] == '\n') {
            at.line++;
            at.column = 1;
        }
    }
    return at;
}

static int not_yaml(const struct sl_draft *d, const yaml_parser_t *p, const char *text, size_t size,
                    struct sl_err *err)
{
    if (p->error == YAML_MEMORY_ERROR)
        sl_out_of_memory();
    struct sl_origin at = p->error == YAML_READER_ERROR ? where_byte(text, size, p->problem_offset)
                                                        : where(p->problem_mark);
    return sl_config_fail(d, at, err, -EINVAL, SL_E_YAML_BAD,
                          p->problem ? p->problem : "cannot be read", p->context ? " " : "",
                          p->context ? p->context : "");
}

static int load(struct sl_draft *d, yaml_parser_t *parser, const char *text, size_t size,
                struct sl_err *err)
{
    yaml_document_t doc;
    int rc = 0;
    for (unsigned n = 0; rc == 0; n++) {
        if (!yaml_parser_load(parser, &doc))
            return not_yaml(d, parser, text, size, err);
        const yaml_node_t *root = yaml_document_get_root_node(&doc);
        struct walk w = {d, &doc, err};
        if (!root) {
            yaml_document_delete(&doc);
            return 0;
        }
        if (n > 0)
            rc = sl_config_fail(d, where(root->start_mark), err, -EINVAL, SL_E_SECOND_DOCUMENT);
        else if (!is_null(root))
            rc = walk_mapping(&w, root, "", d);
        yaml_document_delete(&doc);
    }
    return rc;
}

int sl_yaml_read(struct sl_draft *d, const char *text, size_t size, struct sl_err *err)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        sl_out_of_memory();
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    int rc = load(d, &parser, text, size, err);
    yaml_parser_delete(&parser);
    return rc;
}
