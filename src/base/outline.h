/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of keys and values, for files that people write: the part of YAML with indented keys, `{key: value}` on
 * one line, plain and quoted values, and comments. Lists, anchors, tags, tabs, values over several lines and a key that
 * comes twice are refused. Every error names line and column. Pure: it reads memory, and needs no library.
 */
#ifndef SLUICE_BASE_OUTLINE_H
#define SLUICE_BASE_OUTLINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct sl_outline {
    char *key;             /* NULL in the root */
    char *value;           /* NULL: it has keys below it, or nothing */
    unsigned line, column; /* of the key, from 1 */
    unsigned value_line, value_column;
    struct sl_outline *first, *next; /* the keys below it, in their order */
};

/* `file` names the file in messages: "FILE:LINE:COLUMN: text". The text may contain any bytes. */
int sl_outline_read(const char *file, const char *text, size_t size, struct sl_outline **ret,
                    struct sl_err *err) SL_MUST_CHECK;
void sl_outline_free(struct sl_outline *root); /* NULL is fine */

/* An error at a key or at its value. Returns code. */
int sl_outline_error(const char *file, unsigned line, unsigned column, int code, struct sl_err *err,
                     const char *fmt, ...) SL_PRINTF(6, 7);

#endif
