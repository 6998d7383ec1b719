/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/container/edits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

/* Makes room for one more and returns it zeroed; *items grows by doubling at powers of two. */
static void *grow(void **items, size_t *count, size_t size)
{
    size_t n = *count;
    if ((n & (n - 1)) == 0)
        *items = sl_xreallocarray(*items, n ? n * 2 : 1, size);
    *count = n + 1;
    return memset((char *)*items + n * size, 0, size);
}

static void put(char **slot, const char *text)
{
    char *copy = sl_xstrdup(text);
    free(*slot);
    *slot = copy;
}

static void pair(struct sl_edit_pair **pairs, size_t *count, const char *name, const char *value)
{
    struct sl_edit_pair *p = NULL;
    for (size_t i = 0; i < *count && !p; i++)
        p = strcmp((*pairs)[i].name, name) == 0 ? &(*pairs)[i] : NULL;
    if (!p) {
        void *items = *pairs;
        p = grow(&items, count, sizeof(*p));
        *pairs = items;
        put(&p->name, name);
    }
    put(&p->value, value);
}

void sl_edits_env(struct sl_edits *e, const char *name, const char *value)
{
    pair(&e->env, &e->env_count, name, value);
}

void sl_edits_annotation(struct sl_edits *e, const char *name, const char *value)
{
    pair(&e->annotation, &e->annotation_count, name, value);
}

void sl_edits_mount(struct sl_edits *e, const char *host, const char *container, bool read_only)
{
    struct sl_edit_mount *m = NULL;
    for (size_t i = 0; i < e->mount_count && !m; i++)
        m = strcmp(e->mount[i].container, container) == 0 ? &e->mount[i] : NULL;
    if (!m) {
        void *items = e->mount;
        m = grow(&items, &e->mount_count, sizeof(*m));
        e->mount = items;
        put(&m->container, container);
    }
    put(&m->host, host);
    m->read_only = read_only;
}

/* Of number only the number counts. */
static void put_node(struct sl_edits *e, struct sl_edit_node number, const char *host,
                     const char *container, const char *permissions)
{
    struct sl_edit_node *n = NULL;
    for (size_t i = 0; i < e->node_count && !n; i++)
        n = strcmp(e->node[i].container, container) == 0 ? &e->node[i] : NULL;
    if (!n) {
        void *items = e->node;
        n = grow(&items, &e->node_count, sizeof(*n));
        e->node = items;
        put(&n->container, container);
    }
    put(&n->host, host);
    assert(strlen(permissions) < sizeof(n->permissions));
    memset(n->permissions, 0, sizeof(n->permissions));
    memcpy(n->permissions, permissions, strnlen(permissions, sizeof(n->permissions) - 1));
    n->numbered = number.numbered;
    n->major = number.major;
    n->minor = number.minor;
}

void sl_edits_node(struct sl_edits *e, const char *host, const char *container,
                   const char *permissions)
{
    put_node(e, (struct sl_edit_node){0}, host, container, permissions);
}

void sl_edits_node_numbered(struct sl_edits *e, const char *host, const char *container,
                            const char *permissions, uint32_t major, uint32_t minor)
{
    struct sl_edit_node n = {.numbered = true, .major = major, .minor = minor};
    put_node(e, n, host, container, permissions);
}

void sl_edits_cdi(struct sl_edits *e, const char *name)
{
    for (size_t i = 0; i < e->cdi_count; i++) {
        if (strcmp(e->cdi[i], name) == 0)
            return;
    }
    void *items = e->cdi;
    char **slot = grow(&items, &e->cdi_count, sizeof(*slot));
    e->cdi = items;
    put(slot, name);
}

void sl_edits_add(struct sl_edits *e, const struct sl_edits *from)
{
    for (size_t i = 0; i < from->env_count; i++)
        sl_edits_env(e, from->env[i].name, from->env[i].value);
    for (size_t i = 0; i < from->annotation_count; i++)
        sl_edits_annotation(e, from->annotation[i].name, from->annotation[i].value);
    for (size_t i = 0; i < from->mount_count; i++)
        sl_edits_mount(e, from->mount[i].host, from->mount[i].container, from->mount[i].read_only);
    for (size_t i = 0; i < from->node_count; i++)
        put_node(e, from->node[i], from->node[i].host, from->node[i].container,
                 from->node[i].permissions);
    for (size_t i = 0; i < from->cdi_count; i++)
        sl_edits_cdi(e, from->cdi[i]);
}

void sl_edits_clear(struct sl_edits *e)
{
    for (size_t i = 0; i < e->env_count; i++) {
        free(e->env[i].name);
        free(e->env[i].value);
    }
    for (size_t i = 0; i < e->annotation_count; i++) {
        free(e->annotation[i].name);
        free(e->annotation[i].value);
    }
    for (size_t i = 0; i < e->mount_count; i++) {
        free(e->mount[i].host);
        free(e->mount[i].container);
    }
    for (size_t i = 0; i < e->node_count; i++) {
        free(e->node[i].host);
        free(e->node[i].container);
    }
    for (size_t i = 0; i < e->cdi_count; i++)
        free(e->cdi[i]);
    free(e->env);
    free(e->annotation);
    free(e->mount);
    free(e->node);
    free(e->cdi);
    *e = (struct sl_edits){0};
}
