/* SPDX-License-Identifier: Apache-2.0 */
#include "container/edits.h"

#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

static void put(char **slot, const char *text)
{
    char *copy = sl_xstrdup(text);
    free(*slot);
    *slot = copy;
}

/* The item with this key, which is the first member of every item; added if missing. `list` points to the pointer to
 * the items; the array doubles at powers of two. */
static void *keyed(void *list, size_t *count, size_t size, const char *key)
{
    char *items, *item;
    size_t n = *count;
    memcpy(&items, list, sizeof(items));
    for (size_t i = 0; i < n; i++) {
        item = items + i * size;
        if (strcmp(*(char **)(void *)item, key) == 0)
            return item;
    }
    if ((n & (n - 1)) == 0)
        items = sl_xreallocarray(items, n ? n * 2 : 1, size);
    memcpy(list, &items, sizeof(items));
    *count = n + 1;
    item = memset(items + n * size, 0, size);
    put((char **)(void *)item, key);
    return item;
}

/* Every item begins with so many strings. */
static void drop(void *list, size_t count, size_t size, size_t texts)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < texts; k++)
            free(((char **)(void *)((char *)list + i * size))[k]);
    free(list);
}

void sl_edits_env(struct sl_edits *e, const char *name, const char *value)
{
    struct sl_edit_pair *p = keyed(&e->env, &e->env_count, sizeof(*p), name);
    put(&p->value, value);
}

void sl_edits_annotation(struct sl_edits *e, const char *name, const char *value)
{
    struct sl_edit_pair *p = keyed(&e->annotation, &e->annotation_count, sizeof(*p), name);
    put(&p->value, value);
}

void sl_edits_mount(struct sl_edits *e, const char *host, const char *container, bool read_only)
{
    struct sl_edit_mount *m = keyed(&e->mount, &e->mount_count, sizeof(*m), container);
    put(&m->host, host);
    m->read_only = read_only;
}

void sl_edits_node(struct sl_edits *e, const char *host, const char *container)
{
    struct sl_edit_node *n = keyed(&e->node, &e->node_count, sizeof(*n), container);
    put(&n->host, host);
    n->numbered = false;
}

void sl_edits_node_numbered(struct sl_edits *e, const char *host, const char *container,
                            uint32_t major, uint32_t minor)
{
    sl_edits_node(e, host, container);
    struct sl_edit_node *n = keyed(&e->node, &e->node_count, sizeof(*n), container);
    n->numbered = true;
    n->major = major;
    n->minor = minor;
}

void sl_edits_cdi(struct sl_edits *e, const char *name)
{
    (void)keyed(&e->cdi, &e->cdi_count, sizeof(*e->cdi), name);
}

void sl_edits_add(struct sl_edits *e, const struct sl_edits *from)
{
    for (size_t i = 0; i < from->env_count; i++)
        sl_edits_env(e, from->env[i].name, from->env[i].value);
    for (size_t i = 0; i < from->annotation_count; i++)
        sl_edits_annotation(e, from->annotation[i].name, from->annotation[i].value);
    for (size_t i = 0; i < from->mount_count; i++)
        sl_edits_mount(e, from->mount[i].host, from->mount[i].container, from->mount[i].read_only);
    for (size_t i = 0; i < from->node_count; i++) {
        const struct sl_edit_node *n = &from->node[i];
        if (n->numbered)
            sl_edits_node_numbered(e, n->host, n->container, n->major, n->minor);
        else
            sl_edits_node(e, n->host, n->container);
    }
    for (size_t i = 0; i < from->cdi_count; i++)
        sl_edits_cdi(e, from->cdi[i]);
}

void sl_edits_clear(struct sl_edits *e)
{
    drop(e->env, e->env_count, sizeof(*e->env), 2);
    drop(e->annotation, e->annotation_count, sizeof(*e->annotation), 2);
    drop(e->mount, e->mount_count, sizeof(*e->mount), 2);
    drop(e->node, e->node_count, sizeof(*e->node), 2);
    drop(e->cdi, e->cdi_count, sizeof(*e->cdi), 1);
    *e = (struct sl_edits){0};
}
