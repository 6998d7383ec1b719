/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/container/edits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more and returns it zeroed; *items grows by doubling at powers of two. */
static void *grow(void **items, size_t *count, size_t size, struct sl_err *err)
{
    size_t n = *count;
    if ((n & (n - 1)) == 0) {
        void *p = reallocarray(*items, n ? n * 2 : 1, size);
        if (!p) {
            sl_err_set(err, -ENOMEM, "out of memory");
            return NULL;
        }
        *items = p;
    }
    *count = n + 1;
    return memset((char *)*items + n * size, 0, size);
}

static int put(char **slot, const char *text, struct sl_err *err)
{
    char *copy = strdup(text);
    if (!copy)
        return sl_err_set(err, -ENOMEM, "out of memory");
    free(*slot);
    *slot = copy;
    return 0;
}

static int pair(struct sl_edit_pair **pairs, size_t *count, const char *name, const char *value,
                struct sl_err *err)
{
    struct sl_edit_pair *p = NULL;
    for (size_t i = 0; i < *count && !p; i++)
        p = strcmp((*pairs)[i].name, name) == 0 ? &(*pairs)[i] : NULL;
    if (p)
        return put(&p->value, value, err);
    char *copy_name = NULL, *copy_value = NULL;
    void *items = *pairs;
    if (put(&copy_name, name, err) == 0 && put(&copy_value, value, err) == 0) {
        p = grow(&items, count, sizeof(*p), err);
        *pairs = items;
    }
    if (!p) {
        free(copy_name);
        free(copy_value);
        return -ENOMEM;
    }
    *p = (struct sl_edit_pair){copy_name, copy_value};
    return 0;
}

int sl_edits_env(struct sl_edits *e, const char *name, const char *value, struct sl_err *err)
{
    return pair(&e->env, &e->env_count, name, value, err);
}

int sl_edits_annotation(struct sl_edits *e, const char *name, const char *value, struct sl_err *err)
{
    return pair(&e->annotation, &e->annotation_count, name, value, err);
}

int sl_edits_mount(struct sl_edits *e, const char *host, const char *container, bool read_only,
                   struct sl_err *err)
{
    for (size_t i = 0; i < e->mount_count; i++) {
        if (strcmp(e->mount[i].container, container) != 0)
            continue;
        e->mount[i].read_only = read_only;
        return put(&e->mount[i].host, host, err);
    }
    struct sl_edit_mount m = {.read_only = read_only};
    struct sl_edit_mount *slot = NULL;
    void *items = e->mount;
    if (put(&m.host, host, err) == 0 && put(&m.container, container, err) == 0) {
        slot = grow(&items, &e->mount_count, sizeof(m), err);
        e->mount = items;
    }
    if (!slot) {
        free(m.host);
        free(m.container);
        return -ENOMEM;
    }
    *slot = m;
    return 0;
}

/* Of n only the number counts. */
static int put_node(struct sl_edits *e, struct sl_edit_node n, const char *host,
                    const char *container, const char *permissions, struct sl_err *err)
{
    if (strlen(permissions) >= sizeof(n.permissions))
        return sl_err_set(err, -EINVAL, "device permissions \"%s\": r, w and m at most",
                          permissions);
    memcpy(n.permissions, permissions, strlen(permissions) + 1);
    for (size_t i = 0; i < e->node_count; i++) {
        if (strcmp(e->node[i].container, container) != 0)
            continue;
        n.host = e->node[i].host;
        n.container = e->node[i].container;
        e->node[i] = n;
        return put(&e->node[i].host, host, err);
    }
    n.host = n.container = NULL;
    struct sl_edit_node *slot = NULL;
    void *items = e->node;
    if (put(&n.host, host, err) == 0 && put(&n.container, container, err) == 0) {
        slot = grow(&items, &e->node_count, sizeof(n), err);
        e->node = items;
    }
    if (!slot) {
        free(n.host);
        free(n.container);
        return -ENOMEM;
    }
    *slot = n;
    return 0;
}

int sl_edits_node(struct sl_edits *e, const char *host, const char *container,
                  const char *permissions, struct sl_err *err)
{
    return put_node(e, (struct sl_edit_node){0}, host, container, permissions, err);
}

int sl_edits_node_numbered(struct sl_edits *e, const char *host, const char *container,
                           const char *permissions, uint32_t major, uint32_t minor,
                           struct sl_err *err)
{
    struct sl_edit_node n = {.numbered = true, .major = major, .minor = minor};
    return put_node(e, n, host, container, permissions, err);
}

int sl_edits_cdi(struct sl_edits *e, const char *name, struct sl_err *err)
{
    for (size_t i = 0; i < e->cdi_count; i++) {
        if (strcmp(e->cdi[i], name) == 0)
            return 0;
    }
    char *copy = NULL;
    if (put(&copy, name, err) < 0)
        return -ENOMEM;
    void *items = e->cdi;
    char **slot = grow(&items, &e->cdi_count, sizeof(*slot), err);
    e->cdi = items;
    if (!slot) {
        free(copy);
        return -ENOMEM;
    }
    *slot = copy;
    return 0;
}

int sl_edits_add(struct sl_edits *e, const struct sl_edits *from, struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->env_count; i++)
        rc = sl_edits_env(e, from->env[i].name, from->env[i].value, err);
    for (size_t i = 0; rc == 0 && i < from->annotation_count; i++)
        rc = sl_edits_annotation(e, from->annotation[i].name, from->annotation[i].value, err);
    for (size_t i = 0; rc == 0 && i < from->mount_count; i++)
        rc = sl_edits_mount(e, from->mount[i].host, from->mount[i].container,
                            from->mount[i].read_only, err);
    for (size_t i = 0; rc == 0 && i < from->node_count; i++)
        rc = put_node(e, from->node[i], from->node[i].host, from->node[i].container,
                      from->node[i].permissions, err);
    for (size_t i = 0; rc == 0 && i < from->cdi_count; i++)
        rc = sl_edits_cdi(e, from->cdi[i], err);
    return rc;
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
