/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that line up, and colours where there is a terminal to show them. */
#ifndef SLUICE_CLI_TABLE_H
#define SLUICE_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

#define SL_TABLE_COLUMNS 20
#define SL_TABLE_WIDTH   80  /* of a terminal that nobody made wider */
#define SL_TABLE_CUT     '~' /* ends a text that was cut */

enum sl_table_kind {
    SL_TABLE_LEFT,
    SL_TABLE_RIGHT, /* numbers */
    SL_TABLE_NAME,  /* to the left, and cut where the table is too wide */
};

struct sl_table_column {
    const char *title;
    enum sl_table_kind kind;
};

struct sl_table {
    const struct sl_table_column *columns;
    size_t column_count;
    char **cells; /* row by row; a line of its own is a first cell, and NULL for the others */
    size_t cell_count;
    int max_width; /* 0: as wide as it has to be */
};

void sl_table_init(struct sl_table *t, const struct sl_table_column *columns, size_t count);
/* The next cell, left to right and down. A character that is not printable ASCII becomes '?': names come from other
 * people's processes, and a terminal obeys control characters. */
void sl_table_cell(struct sl_table *t, const char *fmt, ...) SL_PRINTF(2, 3);
/* Between two rows: a line across all columns (of which there are two or more). */
void sl_table_line(struct sl_table *t, const char *text);
/* Prints the table and empties it. Returns whether a text was cut. */
bool sl_table_print(struct sl_table *t, FILE *out, bool colour);

/* Prints a text in lines of at most `width` columns (0: in one line), broken at spaces. The first line begins at column
 * `from`, where the caller has written up to there; the others begin at column `indent`. */
void sl_table_prose(FILE *out, int width, int from, int indent, const char *text);

/* Replaces characters that are not printable ASCII, in place. Returns text. */
char *sl_table_printable(char *text);

/* Is out a terminal that wants colours (NO_COLOR unset, TERM not dumb)? */
bool sl_table_colour(FILE *out);

#define SL_COLOUR_BOLD   "\033[1m"
#define SL_COLOUR_GREEN  "\033[32m"
#define SL_COLOUR_YELLOW "\033[33m"
#define SL_COLOUR_RED    "\033[31m"
#define SL_COLOUR_OFF    "\033[0m"

#endif
