/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that line up, and colours where there is a terminal to show them. */
#ifndef SLUICE_CLI_TABLE_H
#define SLUICE_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

#define SL_TABLE_COLUMNS 20
#define SL_TABLE_CELL    48

struct sl_table_column {
    const char *title;
    bool right; /* numbers stand to the right */
};

struct sl_table {
    const struct sl_table_column *columns;
    size_t column_count;
    char (*cells)[SL_TABLE_CELL]; /* row by row */
    size_t cell_count;
};

void sl_table_init(struct sl_table *t, const struct sl_table_column *columns, size_t count);
/* The next cell, left to right and down. A character that is not printable ASCII becomes '?': names come from other
 * people's processes, and a terminal obeys control characters. */
void sl_table_cell(struct sl_table *t, const char *fmt, ...) SL_PRINTF(2, 3);
/* Prints the table and empties it. */
void sl_table_print(struct sl_table *t, FILE *out, bool colour);

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
