/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

/* All these functions stop at the NUL behind the text. */
static char *blanks(char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* Returns the place behind the closing quote; NULL: there is none. *p is the opening quote. */
static char *string_end(char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && *++p == '\0')
            return NULL;
    return *p ? p + 1 : NULL;
}

/* Returns the place behind a value of any kind. Does not find errors in the value: the ordinary parser will. */
static char *value_end(char *p)
{
    unsigned depth = 0;
    do {
        if (*p == '"') {
            p = string_end(p);
            if (!p)
                return NULL;
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        else if (!depth)
            return p + strcspn(p, ",}] \t\r\n");
        if (!*p)
            return NULL;
        p++;
    } while (depth);
    return p;
}

static void add(struct sl_names *n, size_t *room, const char *name)
{
    if (n->count == *room) {
        *room = *room ? *room * 2 : 256;
        n->name = sl_xreallocarray(n->name, *room, sizeof(*n->name));
    }
    n->name[n->count++] = name;
}

/* Reads a list of plain strings; *p is the opening bracket. Returns the place behind it; NULL: no such list. */
static char *read_list(struct sl_names *n, char *p)
{
    size_t room = 0;
    p = blanks(p + 1);
    if (*p == ']')
        return p + 1;
    for (;;) {
        if (*p != '"')
            return NULL;
        char *name = ++p;
        while (*p >= ' ' && *p != '"' && *p != '\\' && *p < 0x7f)
            p++;
        if (*p != '"')
            return NULL;
        add(n, &room, name);
        *p = '\0';
        p = blanks(p + 1);
        if (*p == ']')
            return p + 1;
        if (*p != ',')
            return NULL;
        p = blanks(p + 1);
    }
}

static bool is_names(const char *key, const char *end)
{
    size_t size = (size_t)(end - key);
    return size == 11 &&
           (strncmp(key, "\"NodeNames\"", size) == 0 || strncmp(key, "\"nodenames\"", size) == 0);
}

/* Walks the members of the outermost object until it finds the list; from and to are the list's borders. */
static bool find_list(struct sl_names *n, char **ret_from, char **ret_to)
{
    char *p = blanks(n->text);
    if (*p != '{')
        return false;
    do {
        p = blanks(p + 1);
        char *key = p, *end = *p == '"' ? string_end(p) : NULL;
        if (!end)
            return false;
        p = blanks(end);
        if (*p != ':')
            return false;
        p = blanks(p + 1);
        if (is_names(key, end)) {
            *ret_from = p;
            *ret_to = *p == '[' ? read_list(n, p) : NULL;
            return *ret_to != NULL;
        }
        p = value_end(p);
        if (!p)
            return false;
        p = blanks(p);
    } while (*p == ',');
    return false;
}

bool sl_names_scan(const char *body, size_t size, struct sl_names *ret)
{
    struct sl_names n = {.text = sl_xstrndup(body, size)};
    char *from = NULL, *to = NULL;
    if (strlen(n.text) != size || !find_list(&n, &from, &to)) {
        sl_names_free(&n);
        return false;
    }
    n.rest = sl_xasprintf("%.*snull%s", (int)(from - n.text), n.text, to);
    *ret = n;
    return true;
}

void sl_names_free(struct sl_names *n)
{
    free(n->name);
    free(n->text);
    free(n->rest);
    *n = (struct sl_names){.count = 0};
}
