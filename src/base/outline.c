/* SPDX-License-Identifier: Apache-2.0 */
#include "base/outline.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/errors.h"
#include "base/utf8.h"
#include "base/xalloc.h"

#define DEPTH_MAX 8
#define KEYS_MAX  4096 /* a key is compared with all keys beside it */

/* Where the reader is. Lines end with '\n'; the text ends with '\0', and has no other. */
struct reader {
    const char *file;
    const char *at, *line_start;
    unsigned line, keys;
    struct sl_err *err;
};

int sl_outline_error(const char *file, unsigned line, unsigned column, int code, struct sl_err *err,
                     const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    SL_CLEANUP(free) char *text = sl_xvasprintf(fmt, ap);
    va_end(ap);
    size_t n = strlen(file);
    return sl_err_set(err, code, "%s:%u:%u: %s", n > 80 ? file + n - 80 : file, line, column, text);
}

static unsigned column_of(const struct reader *r, const char *p)
{
    return (unsigned)(p - r->line_start) + 1;
}

#define REFUSE(r, p, ...)                                                                          \
    sl_outline_error((r)->file, (r)->line, column_of(r, p), -EINVAL, (r)->err, __VA_ARGS__)

void sl_outline_free(struct sl_outline *node)
{
    while (node) { /* as deep as DEPTH_MAX */
        struct sl_outline *next = node->next;
        sl_outline_free(node->first);
        free(node->key);
        free(node->value);
        free(node);
        node = next;
    }
}

static bool ends_line(char c)
{
    return c == '\0' || c == '\n';
}

static void skip_blanks(struct reader *r)
{
    while (*r->at == ' ')
        r->at++;
}

/* A comment begins the line, or follows a blank. */
static bool at_comment(const struct reader *r)
{
    return *r->at == '#' && (r->at == r->line_start || r->at[-1] == ' ');
}

/* The rest of the line may only be a comment. */
static int end_line(struct reader *r)
{
    skip_blanks(r);
    if (at_comment(r))
        while (!ends_line(*r->at))
            r->at++;
    if (!ends_line(*r->at))
        return REFUSE(r, r->at, SL_E_OUTLINE_REST, *r->at);
    if (*r->at == '\n') {
        r->at++;
        r->line_start = r->at;
        r->line++;
    }
    return 0;
}

static int read_quoted(struct reader *r, char **ret)
{
    const char quote = *r->at, *begin = r->at++;
    char *out = sl_xmalloc(strcspn(begin, "\n") + 1), *to = out;
    for (;; r->at++) {
        if (ends_line(*r->at)) {
            free(out);
            return REFUSE(r, begin, SL_E_OUTLINE_QUOTE, quote);
        }
        if (*r->at == quote && quote == '\'' && r->at[1] == quote)
            r->at++;
        else if (*r->at == quote)
            break;
        else if (*r->at == '\\' && quote == '"') {
            if (r->at[1] != '"' && r->at[1] != '\\') {
                free(out);
                return REFUSE(r, r->at, SL_E_OUTLINE_ESCAPE);
            }
            r->at++;
        }
        *to++ = *r->at;
    }
    r->at++;
    *to = '\0';
    *ret = out;
    return 0;
}

/* A word ends at a comment, at ": " and, in braces, at a comma or a brace. */
static bool ends_plain(const struct reader *r, const char *p, bool braces)
{
    return ends_line(*p) || (*p == ':' && (p[1] == ' ' || ends_line(p[1]))) ||
           (*p == '#' && p > r->line_start && p[-1] == ' ') || (braces && strchr(",{}", *p)) ||
           (braces && *p == ':' && strchr(",}", p[1]));
}

static int read_word(struct reader *r, bool braces, char **ret)
{
    static const char special[] = "[]&*!|>%@`?,{}";
    if (*r->at == '"' || *r->at == '\'')
        return read_quoted(r, ret);
    if (*r->at == '-' && (r->at[1] == ' ' || ends_line(r->at[1])))
        return REFUSE(r, r->at, SL_E_OUTLINE_LIST);
    if (*r->at && strchr(special, *r->at))
        return REFUSE(r, r->at, SL_E_OUTLINE_SPECIAL, *r->at);
    const char *begin = r->at, *end = begin;
    while (!ends_plain(r, r->at, braces))
        if (*r->at++ != ' ')
            end = r->at;
    if (end == begin)
        return REFUSE(r, begin, SL_E_OUTLINE_NO_KEY);
    *ret = sl_xstrndup(begin, (size_t)(end - begin));
    return 0;
}

/* A key and its colon, added below the parent. */
static int read_key(struct reader *r, struct sl_outline *parent, bool braces,
                    struct sl_outline **ret)
{
    SL_CLEANUP(free) char *key = NULL;
    const char *begin = r->at;
    int rc = read_word(r, braces, &key);
    if (rc < 0)
        return rc;
    skip_blanks(r);
    if (*r->at != ':')
        return REFUSE(r, r->at, SL_E_OUTLINE_COLON, key);
    r->at++;
    if (*r->at != ' ' && !ends_line(*r->at) && !(braces && strchr(",}", *r->at)))
        return REFUSE(r, r->at, SL_E_OUTLINE_BLANK, key);
    struct sl_outline **at = &parent->first;
    for (; *at; at = &(*at)->next)
        if (strcmp((*at)->key, key) == 0)
            return REFUSE(r, begin, SL_E_OUTLINE_TWICE, key, (*at)->line);
    if (++r->keys > KEYS_MAX)
        return REFUSE(r, begin, SL_E_OUTLINE_KEYS, KEYS_MAX);
    struct sl_outline *n = sl_xcalloc(1, sizeof(*n));
    n->key = key;
    key = NULL;
    n->line = n->value_line = r->line;
    n->column = column_of(r, begin);
    skip_blanks(r);
    n->value_column = column_of(r, r->at);
    *at = *ret = n;
    return 0;
}

static int read_braces(struct reader *r, struct sl_outline *parent, int depth)
{
    const char *begin = r->at++;
    if (depth >= DEPTH_MAX)
        return REFUSE(r, begin, SL_E_OUTLINE_DEEP, DEPTH_MAX);
    skip_blanks(r);
    while (*r->at != '}') {
        struct sl_outline *n = NULL;
        if (ends_line(*r->at) || at_comment(r))
            return REFUSE(r, begin, SL_E_OUTLINE_BRACE);
        int rc = read_key(r, parent, true, &n);
        if (rc == 0 && *r->at == '{')
            rc = read_braces(r, n, depth + 1);
        else if (rc == 0 && !ends_line(*r->at) && !strchr(",}", *r->at) && !at_comment(r))
            rc = read_word(r, true, &n->value);
        if (rc < 0)
            return rc;
        skip_blanks(r);
        if (*r->at == ',')
            r->at++;
        else if (*r->at != '}')
            return REFUSE(r, begin, SL_E_OUTLINE_BRACE);
        skip_blanks(r);
    }
    r->at++;
    return 0;
}

/* Goes to the next line with a key. Returns its indentation, or -1 at the end of the text. */
static int next_key(struct reader *r, int *ret)
{
    for (;;) {
        skip_blanks(r);
        if (*r->at == '\0') {
            *ret = -1;
            return 0;
        }
        if (*r->at != '\n' && !at_comment(r))
            break;
        int rc = end_line(r);
        if (rc < 0)
            return rc;
    }
    *ret = (int)(r->at - r->line_start);
    return 0;
}

/* The lines of one indentation, and what is below them. r->at is at the first key. */
static int read_block(struct reader *r, struct sl_outline *parent, int indent, int depth)
{
    int here = indent;
    while (here == indent) {
        struct sl_outline *n = NULL;
        int rc = read_key(r, parent, false, &n);
        bool empty = rc == 0 && (ends_line(*r->at) || at_comment(r));
        if (rc == 0 && *r->at == '{')
            rc = read_braces(r, n, depth + 1);
        else if (rc == 0 && !empty)
            rc = read_word(r, false, &n->value);
        if (rc == 0)
            rc = end_line(r);
        if (rc == 0)
            rc = next_key(r, &here);
        if (rc == 0 && here > indent) {
            if (!empty)
                return REFUSE(r, r->at, SL_E_OUTLINE_INDENT);
            if (depth + 1 >= DEPTH_MAX)
                return REFUSE(r, r->at, SL_E_OUTLINE_DEEP, DEPTH_MAX);
            rc = read_block(r, n, here, depth + 1);
            if (rc == 0)
                rc = next_key(r, &here);
        }
        if (rc < 0)
            return rc;
        if (here > indent) /* less than the block below, more than this one */
            return REFUSE(r, r->at, SL_E_OUTLINE_INDENT);
    }
    return 0;
}

/* Bytes that a text has not: then the rest may rely on it. */
static int check_bytes(struct reader *r, const char *text, size_t size)
{
    struct reader at = *r;
    for (const char *p = text; p < text + size; p++) {
        if (*p == '\n') {
            at.line++;
            at.line_start = p + 1;
        } else if (*p == '\t') {
            return REFUSE(&at, p, SL_E_OUTLINE_TAB);
        } else if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            return REFUSE(&at, p, SL_E_OUTLINE_BYTE, (unsigned char)*p);
        }
    }
    return 0;
}

int sl_outline_read(const char *file, const char *text, size_t size, struct sl_outline **ret,
                    struct sl_err *err)
{
    SL_CLEANUP(free) char *copy = sl_xstrndup(text, size);
    struct reader r = {.file = file, .at = copy, .line_start = copy, .line = 1, .err = err};
    struct reader raw = r;
    raw.line_start = text;
    int rc = check_bytes(&raw, text, size);
    if (rc < 0)
        return rc;
    if (!sl_utf8_valid(copy))
        return sl_outline_error(file, 1, 1, -EINVAL, err, SL_E_OUTLINE_UTF8);
    struct sl_outline *root = sl_xcalloc(1, sizeof(*root));
    int indent = -1;
    rc = next_key(&r, &indent);
    if (rc == 0 && indent >= 0)
        rc = read_block(&r, root, indent, 0);
    if (rc == 0 && *r.at != '\0')
        rc = REFUSE(&r, r.at, SL_E_OUTLINE_INDENT);
    if (rc < 0) {
        sl_outline_free(root);
        return rc;
    }
    *ret = root;
    return 0;
}
