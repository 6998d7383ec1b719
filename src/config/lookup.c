/* SPDX-License-Identifier: Apache-2.0 */
/* Finds rows of the table, and guesses which row the user meant. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "config/schema.h"

const char *sl_schema_key_in(const char *path, const char *parent)
{
    size_t n = strlen(parent);
    if (strncmp(path, parent, n) != 0)
        return NULL;
    const char *key = path + n;
    if (n > 0 && *key++ != '.')
        return NULL;
    return *key && !strpbrk(key, ".[") ? key : NULL;
}

const struct sl_schema_row *sl_schema_child(const char *parent, const char *key, size_t key_len)
{
    for (size_t i = 0; i < sl_schema_count; i++) {
        const char *k = sl_schema[i].path ? sl_schema_key_in(sl_schema[i].path, parent) : NULL;
        if (k && strlen(k) == key_len && memcmp(k, key, key_len) == 0)
            return &sl_schema[i];
    }
    return NULL;
}

const struct sl_schema_row *sl_schema_path(const char *path)
{
    for (size_t i = 0; i < sl_schema_count; i++)
        if (sl_schema[i].path && strcmp(sl_schema[i].path, path) == 0)
            return &sl_schema[i];
    return NULL;
}

bool sl_schema_name(const char *names, size_t n, char *buf, size_t size)
{
    for (; names && *names; n--) {
        size_t len = strcspn(names, " ");
        if (n == 0)
            return (size_t)snprintf(buf, size, "%.*s", (int)len, names) < size;
        names += len + strspn(names + len, " ");
    }
    return false;
}

bool sl_schema_env(const struct sl_schema_row *row, size_t n, char *buf, size_t size)
{
    if (row->env)
        return sl_schema_name(row->env, n, buf, size);
    if (n > 0 || !sl_schema_name(row->flag, 0, buf, size))
        return false;
    for (char *p = buf; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    return true;
}

const struct sl_schema_row *sl_schema_flag(const char *flag)
{
    char name[64];
    for (size_t i = 0; i < sl_schema_count; i++)
        for (size_t n = 0; sl_schema_name(sl_schema[i].flag, n, name, sizeof(name)); n++)
            if (strcmp(name, flag) == 0)
                return &sl_schema[i];
    return NULL;
}

static const char *last_key(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static size_t common(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* The row whose key is closest to the written key. A row of this section wins, unless a row elsewhere matches exactly;
 * of the rows elsewhere, the nearest by path wins. */
static const struct sl_schema_row *meant(const char *parent, const char *key)
{
    const struct sl_schema_row *best = NULL;
    unsigned best_score = 0;
    for (size_t i = 0; i < sl_schema_count; i++) {
        const char *path = sl_schema[i].path;
        unsigned d = path ? sl_word_distance(key, last_key(path)) : SL_WORD_FAR;
        if (d == SL_WORD_FAR)
            continue;
        bool here = sl_schema_key_in(path, parent) != NULL;
        /* 1000 for an exact match, 500 for a row of this section, less for each edit, more for a nearer path. */
        unsigned score = (d == 0 ? 1000U : 0U) + (here ? 500U : 0U) + 300U - 20U * d +
                         (unsigned)common(path, parent);
        if (score > best_score) {
            best = &sl_schema[i];
            best_score = score;
        }
    }
    return best;
}

void sl_schema_suggest(const char *parent, const char *key, char *buf, size_t size)
{
    const struct sl_schema_row *row = meant(parent, key);
    if (row && sl_schema_key_in(row->path, parent)) {
        (void)snprintf(buf, size, "did you mean \"%s\"?", last_key(row->path));
        return;
    }
    if (row) {
        int len = (int)(last_key(row->path) - row->path) - 1;
        if (len > 0)
            (void)snprintf(buf, size, "\"%s\" belongs in %.*s", last_key(row->path), len,
                           row->path);
        else
            (void)snprintf(buf, size, "\"%s\" belongs at the top of the file", row->path);
        return;
    }
    int n = snprintf(buf, size, "the keys here are");
    const char *comma = " ";
    for (size_t i = 0; i < sl_schema_count && n > 0 && (size_t)n < size; i++) {
        const char *k = sl_schema[i].path ? sl_schema_key_in(sl_schema[i].path, parent) : NULL;
        if (!k)
            continue;
        n += snprintf(buf + n, size - (size_t)n, "%s%s", comma, k);
        comma = ", ";
    }
}

int sl_config_locate(const char *file, const struct sl_origin *at, const char *text,
                     struct sl_err *err, int code)
{
    if (at->line == 0)
        return sl_err_set(err, code, "%s%s%s", at->from, at->from[0] ? ": " : "", text);
    size_t numbers = sizeof(":4294967295:4294967295: "), len = strlen(file);
    size_t taken = numbers + strlen(text) + sizeof("...");
    size_t room = sizeof(err->msg) > taken + 20 ? sizeof(err->msg) - taken : 20;
    bool cut = len > room;
    return sl_err_set(err, code, "%s%s:%u:%u: %s", cut ? "..." : "", cut ? file + len - room : file,
                      at->line, at->column, text);
}

int sl_config_fail(const struct sl_draft *d, struct sl_origin at, struct sl_err *err, int code,
                   const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* Messages quote the written text, and terminals obey control characters. */
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = *p == '\n' ? ' ' : '?';
    return sl_config_locate(d->file, &at, text, err, code);
}
