/* SPDX-License-Identifier: Apache-2.0 */
/* Finding rows of the table, and guessing which one was meant. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
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

/* Lower case without - and _: time_slicing, timeslicing and time-slicing are all timeSlicing. */
static size_t plain(const char *text, char *buf, size_t size)
{
    size_t n = 0;
    for (; *text && n + 1 < size; text++)
        if (*text != '-' && *text != '_')
            buf[n++] = (char)tolower((unsigned char)*text);
    buf[n] = '\0';
    return n;
}

enum { WORD_MAX = 40, FAR = 99 };

/* Edits (insert, delete, replace, swap of neighbours) between two words, FAR when it is too many. */
static unsigned distance(const char *one, const char *other)
{
    char a[WORD_MAX + 1], b[WORD_MAX + 1];
    unsigned row[3][WORD_MAX + 1]; /* the line before the last, the last, this one */
    size_t na = plain(one, a, sizeof(a)), nb = plain(other, b, sizeof(b));
    if (strlen(one) > WORD_MAX)
        return FAR;
    for (size_t j = 0; j <= nb; j++)
        row[1][j] = row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        row[2][0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = row[1][j - 1] + (a[i - 1] != b[j - 1]);
            best = row[1][j] + 1 < best ? row[1][j] + 1 : best;
            best = row[2][j - 1] + 1 < best ? row[2][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                row[0][j - 2] + 1 < best)
                best = row[0][j - 2] + 1;
            row[2][j] = best;
        }
        memcpy(row[0], row[1], sizeof(row[0]));
        memcpy(row[1], row[2], sizeof(row[1]));
    }
    return row[1][nb] <= 1 + na / 4 ? row[1][nb] : FAR;
}

const char *sl_schema_closest(const char *text, const char *const *words)
{
    const char *best = NULL;
    unsigned best_d = FAR;
    for (; *words; words++) {
        unsigned d = distance(text, *words);
        if (d < best_d) {
            best = *words;
            best_d = d;
        }
    }
    return best;
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

/* The row whose key is closest to the one written: here first unless it is exactly one elsewhere;
 * among those elsewhere, the nearest by path. */
static const struct sl_schema_row *meant(const char *parent, const char *key)
{
    const struct sl_schema_row *best = NULL;
    unsigned best_score = 0;
    for (size_t i = 0; i < sl_schema_count; i++) {
        const char *path = sl_schema[i].path;
        unsigned d = path ? distance(key, last_key(path)) : FAR;
        if (d == FAR)
            continue;
        bool here = sl_schema_key_in(path, parent) != NULL;
        /* 1000 for an exact match, 500 for being here, less by edit, more by nearness. */
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
    /* What was written is quoted in messages, and terminals obey what they are shown. */
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = *p == '\n' ? ' ' : '?';
    return sl_config_locate(d->file, &at, text, err, code);
}
